//! Stored text, numbers and money as a terminal may show them.

use std::borrow::Cow;
use std::fmt::Write as _;

use transcript_redb::{CostSplit, TranscriptSpend, UsageCostSource};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Stored text, with what a terminal would obey written out. Line ends and tabs stay.
pub fn safe(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| is_control(c) && c != '\n') {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' => safe.push('\n'),
            '\t' => safe.push_str("    "),
            '\r' if chars.peek() == Some(&'\n') => {}
            c if is_control(c) => {
                let _ = write!(safe, "{}", c.escape_unicode());
            }
            c => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// Stored text on one line.
pub fn safe_line(text: &str) -> Cow<'_, str> {
    let safe = safe(text);
    if safe.contains('\n') {
        Cow::Owned(safe.split_whitespace().collect::<Vec<_>>().join(" "))
    } else {
        safe
    }
}

/// Controls, and the marks that turn the direction of writing.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text, cut to so many columns.
pub fn cut(text: &str, columns: usize) -> Cow<'_, str> {
    if text.width() <= columns {
        return Cow::Borrowed(text);
    }
    let mut width = 0;
    let mut cut = String::new();
    for c in text.chars() {
        width += c.width().unwrap_or(0);
        if width >= columns {
            break;
        }
        cut.push(c);
    }
    cut.push('…');
    Cow::Owned(cut)
}

/// A number with separators.
pub fn count(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

/// How many of something there are.
pub fn many(number: u64, one: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {one}{plural}", count(number))
}

/// A size in bytes.
pub fn size(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// How many decimals amounts of US dollars in one column are shown with: cents, and more where some are small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimals(usize);

impl Decimals {
    /// So that each of these shows its size. Beside whole dollars a ten-thousandth of one is enough.
    pub fn of(amounts: impl IntoIterator<Item = f64>) -> Self {
        let (mut decimals, mut most) = (2, 6);
        for usd in amounts {
            let magnitude = usd.abs();
            if magnitude >= 1.0 {
                most = 4;
            } else if magnitude >= 0.01 {
                decimals = decimals.max(4);
            } else if magnitude > 0.0 {
                decimals = 6;
            }
        }
        Self(decimals.min(most))
    }

    /// An amount of US dollars. What is too small to show is said to be less than the least that is shown.
    pub fn dollars(self, usd: f64) -> String {
        let Self(decimals) = self;
        let magnitude = usd.abs();
        let text = format!("{magnitude:.decimals$}");
        let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
        if magnitude > 0.0 && text.bytes().all(|byte| !(b'1'..=b'9').contains(&byte)) {
            return format!("<$0.{:0>decimals$}", 1);
        }
        let whole = whole.parse().map_or_else(|_| whole.to_owned(), count);
        let sign = if usd < 0.0 { "-" } else { "" };
        format!("{sign}${whole}.{rest}")
    }
}

/// An amount of US dollars that stands alone.
pub fn dollars(usd: f64) -> String {
    Decimals::of([usd]).dollars(usd)
}

/// What was spent and where that is known from.
pub fn cost(turns: u64, split: &CostSplit, decimals: Decimals) -> String {
    let priced = split.priced_source.map(|source| {
        format!(
            "{} {}",
            decimals.dollars(split.priced_cost_usd),
            source_name(Some(source))
        )
    });
    match (priced, split.unpriced_turns) {
        (Some(priced), 0) => priced,
        (Some(priced), unpriced) => format!("{priced} + {unpriced} unpriced"),
        (None, _) if turns == 0 => "-".to_owned(),
        (None, _) => "unpriced".to_owned(),
    }
}

/// The cost of a session.
pub fn spend_cost(spend: &TranscriptSpend, decimals: Decimals) -> String {
    cost(spend.turns as u64, &spend.cost_split, decimals)
}

/// The decimals of a column of costs.
pub fn decimals<'s>(spends: impl IntoIterator<Item = &'s TranscriptSpend>) -> Decimals {
    let priced = spends.into_iter().map(|it| it.cost_split.priced_cost_usd);
    Decimals::of(priced)
}

/// The name of where a cost comes from.
pub fn source_name(source: Option<UsageCostSource>) -> &'static str {
    match source {
        Some(UsageCostSource::Charged) => "charged",
        Some(UsageCostSource::Estimated) => "estimated",
        _ => "unpriced",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        assert_eq!(
            safe("a\x1b[31mb\u{9b}1m\x07"),
            "a\\u{1b}[31mb\\u{9b}1m\\u{7}"
        );
        assert_eq!(safe("a\r\nb\tc\rd"), "a\nb    c\\u{d}d");
        assert_eq!(safe("evil\u{202e}txt"), "evil\\u{202e}txt");
        assert_eq!(safe_line("one\ntwo"), "one two");
        assert_eq!(safe("grüße 日本"), "grüße 日本");
    }

    #[test]
    fn texts_are_cut_by_columns_not_by_characters() {
        assert_eq!(cut("日本語日本語", 7), "日本語…");
        assert_eq!(cut("short", 5), "short");
    }

    #[test]
    fn money_shows_its_size_and_where_it_is_known_from() {
        assert_eq!(dollars(1234.5), "$1,234.50");
        assert_eq!(dollars(0.0123), "$0.0123");
        assert_eq!(dollars(0.000_012), "$0.000012");
        assert_eq!(dollars(-2.0), "-$2.00");
        let column = Decimals::of([0.0, 12.5, 0.0184, 0.000_012]);
        let shown = [0.0, 12.5, 0.0184, 0.000_012].map(|usd| column.dollars(usd));
        assert_eq!(shown, ["$0.0000", "$12.5000", "$0.0184", "<$0.0001"]);
        assert_eq!(Decimals::of([2.0, 0.5]).dollars(2.0), "$2.0000");
        let cents = Decimals::of([2.0]);
        let mut split = CostSplit::default();
        assert_eq!(cost(0, &split, cents), "-");
        split.unpriced_turns = 3;
        assert_eq!(cost(3, &split, cents), "unpriced");
        split.priced_source = Some(UsageCostSource::Estimated);
        split.priced_cost_usd = 2.0;
        assert_eq!(cost(4, &split, cents), "$2.00 estimated + 3 unpriced");
    }
}
