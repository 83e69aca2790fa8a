//! `spend`: tokens and cost, and where the cost is known from.

use std::collections::BTreeMap;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use transcript_redb::{SpendGroup, SpendQuery, SpendRow, Store, UsageCostSource};

use crate::args::{By, Database, Spend, usage};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::table::Table;
use crate::text::{count, dollars, many, source_name};

const SECONDS_AN_HOUR: i64 = 3600;

/// The column of what was written to a cache.
const WRITTEN: usize = 4;

/// `spend`
pub fn run(database: &Database, args: &Spend, output: &mut Output) -> Result<Outcome, Failure> {
    let zone = output.zone().clone();
    let query = SpendQuery {
        thread: args.thread.clone(),
        since_hour: hour_of(args.since.as_deref(), &zone, false)?,
        until_hour: hour_of(args.until.as_deref(), &zone, true)?,
        ..SpendQuery::default()
    };
    let store = database.read()?;
    if args.output.json {
        for line in lines(&store, &query, args.by, &TimeZone::UTC)? {
            output.json(&line.json(args.by))?;
        }
        return Ok(Outcome::Done);
    }
    let lines = lines(&store, &query, args.by, &zone)?;
    let total = self::lines(&store, &query, None, &zone)?;
    if total.is_empty() {
        output.line("Nothing was spent.")?;
        return Ok(Outcome::Done);
    }
    // Kinds of cost that there are none of go first.
    let none = |of: fn(&Line) -> f64| total.iter().all(|line| of(line) == 0.0);
    // Only imports know what was written to a cache.
    let written = total.iter().any(|line| line.written > 0);
    let mut spare = Vec::new();
    if none(|line| line.charged) {
        spare.push(6);
    }
    if none(|line| line.estimated) {
        spare.push(7);
    }
    spare.extend([4, 3]);
    let mut headings = vec![
        heading(args.by),
        "TURNS",
        "INPUT",
        "CACHED",
        "TO CACHE",
        "OUTPUT",
        "CHARGED",
        "ESTIMATED",
        "UNPRICED",
    ];
    if !written {
        headings.remove(WRITTEN);
    }
    // Where a column stands if that one is left out.
    let at = |columns: &[usize]| -> Vec<usize> {
        let kept = columns.iter().filter(|at| written || **at != WRITTEN);
        kept.map(|at| at - usize::from(!written && *at > WRITTEN))
            .collect()
    };
    let mut table =
        Table::new(&headings, &at(&[1, 2, 3, 4, 5, 6, 7]), &at(&[0, 8])).spare(&at(&spare));
    if args.by.is_some() {
        for line in &lines {
            table.row(line.cells(written));
        }
    }
    for line in &total {
        table.row(
            Line {
                name: "total".to_owned(),
                ..line.clone()
            }
            .cells(written),
        );
    }
    table.print(output)?;
    Ok(Outcome::Done)
}

/// One line of the answer.
#[derive(Clone, Debug, Default)]
struct Line {
    name: String,
    turns: u64,
    input: u64,
    cached: u64,
    written: u64,
    output: u64,
    cost: f64,
    charged: f64,
    estimated: f64,
    unpriced_turns: u64,
    unpriced_input: u64,
    unpriced_output: u64,
    unpriced_cost: f64,
}

/// The lines of a query, in their order.
fn lines(
    store: &Store,
    query: &SpendQuery,
    by: Option<By>,
    zone: &TimeZone,
) -> Result<Vec<Line>, Failure> {
    let group = match by {
        None => None,
        Some(By::Agent) => Some(SpendGroup::Agent),
        Some(By::Model) => Some(SpendGroup::Model),
        Some(By::Provider) => Some(SpendGroup::Provider),
        Some(By::Source) => Some(SpendGroup::Source),
        Some(By::Day) if *zone == TimeZone::UTC => Some(SpendGroup::Day),
        // Days of other zones begin with other hours.
        Some(By::Hour | By::Day) => Some(SpendGroup::Hour),
    };
    let mut query = query.clone();
    query.group_by = group.into_iter().collect();
    let sums = store.spend(&query)?;
    if group != Some(SpendGroup::Source) {
        query.group_by.push(SpendGroup::Source);
    }
    let sources = store.spend(&query)?;
    let mut lines: BTreeMap<Key, Line> = BTreeMap::new();
    for row in sums {
        let line = lines.entry(key_of(&row, by, zone)).or_default();
        line.turns += row.turns;
        line.input += row.input_tokens;
        line.cached += row.cached_input_tokens;
        line.written += row.cache_write_tokens;
        line.output += row.output_tokens;
        line.cost += row.cost_usd;
    }
    for row in sources {
        let line = lines.entry(key_of(&row, by, zone)).or_default();
        match row.source.flatten() {
            Some(UsageCostSource::Charged) => line.charged += row.cost_usd,
            Some(UsageCostSource::Estimated) => line.estimated += row.cost_usd,
            _ => {
                line.unpriced_turns += row.turns;
                line.unpriced_input += row.input_tokens;
                line.unpriced_output += row.output_tokens;
                line.unpriced_cost += row.cost_usd;
            }
        }
    }
    let named = lines
        .into_iter()
        .map(|((_, name), line)| Line { name, ..line });
    Ok(named.collect())
}

/// What lines are sorted by, and their name.
type Key = (i64, String);

fn key_of(row: &SpendRow, by: Option<By>, zone: &TimeZone) -> Key {
    let text = |text: &Option<String>| (0, text.clone().unwrap_or_default());
    match by {
        None => (0, String::new()),
        Some(By::Agent) => text(&row.agent),
        Some(By::Model) => text(&row.model),
        Some(By::Provider) => text(&row.provider),
        Some(By::Source) => {
            let source = row.source.flatten();
            let name = source_name(source);
            let order = match source {
                Some(UsageCostSource::Charged) => 0,
                Some(UsageCostSource::Estimated) => 1,
                _ => 2,
            };
            (order, name.to_owned())
        }
        Some(by) => {
            let hour = row.hour.unwrap_or_default();
            let begins = hour.saturating_mul(SECONDS_AN_HOUR);
            let Ok(time) = Timestamp::from_second(begins) else {
                return (hour, String::new());
            };
            let time = time.to_zoned_datetime(zone.clone());
            if by == By::Day {
                let date = time.date();
                let order = date.at(0, 0, 0, 0).to_zoned_datetime(TimeZone::UTC);
                let order = order.map_or(hour, |midnight| midnight.timestamp().as_second());
                (order, date.to_string())
            } else {
                (hour, time.strftime("%Y-%m-%d %H:%M %:z").to_string())
            }
        }
    }
}

fn heading(by: Option<By>) -> &'static str {
    match by {
        None => "",
        Some(By::Agent) => "AGENT",
        Some(By::Model) => "MODEL",
        Some(By::Provider) => "PROVIDER",
        Some(By::Source) => "SOURCE",
        Some(By::Day) => "DAY",
        Some(By::Hour) => "HOUR",
    }
}

impl Line {
    fn cells(&self, written: bool) -> Vec<String> {
        let money = |usd: f64| {
            if usd == 0.0 {
                "-".to_owned()
            } else {
                dollars(usd)
            }
        };
        let unpriced = match self.unpriced_turns {
            0 => "-".to_owned(),
            turns => {
                let tokens = self.unpriced_input.saturating_add(self.unpriced_output);
                let told = match self.unpriced_cost {
                    0.0 => String::new(),
                    usd => format!(", {} told", dollars(usd)),
                };
                format!("{}, {} tokens{told}", many(turns, "turn"), count(tokens))
            }
        };
        let name = if self.name.is_empty() {
            "(none)"
        } else {
            &self.name
        };
        let mut cells = vec![
            name.to_owned(),
            count(self.turns),
            count(self.input),
            count(self.cached),
            count(self.written),
            count(self.output),
            money(self.charged),
            money(self.estimated),
            unpriced,
        ];
        if !written {
            cells.remove(WRITTEN);
        }
        cells
    }

    fn json(&self, by: Option<By>) -> Value {
        let mut line = Map::new();
        if let Some(by) = by {
            line.insert(heading(Some(by)).to_lowercase(), self.name.clone().into());
        }
        for (key, number) in [
            ("turns", self.turns),
            ("input_tokens", self.input),
            ("output_tokens", self.output),
            ("cached_input_tokens", self.cached),
            ("cache_write_tokens", self.written),
            ("unpriced_turns", self.unpriced_turns),
            ("unpriced_input_tokens", self.unpriced_input),
            ("unpriced_output_tokens", self.unpriced_output),
        ] {
            line.insert(key.to_owned(), number.into());
        }
        for (key, usd) in [
            ("cost_usd", self.cost),
            ("charged_usd", self.charged),
            ("estimated_usd", self.estimated),
            ("unpriced_usd", self.unpriced_cost),
        ] {
            line.insert(key.to_owned(), usd.into());
        }
        Value::Object(line)
    }
}

/// The UTC hour that a time is in; with `end`, the one at or after it.
fn hour_of(text: Option<&str>, zone: &TimeZone, end: bool) -> Result<Option<i64>, Failure> {
    let Some(text) = text else {
        return Ok(None);
    };
    let Some(time) = time_of(text.trim(), zone) else {
        return Err(usage(format!(
            "{text:?} is no time; say 2026-08-31, 2026-08-31T14:00, 2026-08-31T14:00:00Z, or how long ago: 7d, 12h"
        )));
    };
    let seconds = time.as_second();
    let hour = seconds.div_euclid(SECONDS_AN_HOUR);
    let within = seconds.rem_euclid(SECONDS_AN_HOUR) > 0;
    Ok(Some(hour + i64::from(end && within)))
}

fn time_of(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    if let Some(ago) = ago(text) {
        return Timestamp::now().checked_sub(ago).ok();
    }
    let civil = match text.parse::<Date>() {
        Ok(date) if !text.contains(['T', ' ']) => date.at(0, 0, 0, 0),
        _ => text.parse::<DateTime>().ok()?,
    };
    civil
        .to_zoned_datetime(zone.clone())
        .ok()
        .map(|time| time.timestamp())
}

/// A length of time: a number of days or hours.
fn ago(text: &str) -> Option<SignedDuration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: i64 = number.parse().ok().filter(|number| *number >= 0)?;
    let hours = match unit {
        "d" => number.checked_mul(24)?,
        "h" => number,
        _ => return None,
    };
    SignedDuration::try_from_hours(hours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_a_time_or_how_long_ago() {
        let utc = TimeZone::UTC;
        let east = TimeZone::get("Asia/Tokyo").unwrap();
        let hour = |text, zone: &TimeZone, end| hour_of(Some(text), zone, end).unwrap().unwrap();
        assert_eq!(hour("1970-01-02", &utc, false), 24);
        assert_eq!(hour("1970-01-02", &east, false), 15);
        assert_eq!(hour("1970-01-01T05:30", &utc, false), 5);
        assert_eq!(hour("1970-01-01T05:30", &utc, true), 6);
        assert_eq!(hour("1970-01-01T05:00:00Z", &east, true), 5);
        let now = Timestamp::now().as_second() / SECONDS_AN_HOUR;
        assert!((0..=1).contains(&(now - 48 - hour("2d", &utc, false))));
        for wrong in [
            "",
            "x",
            "d",
            "-1d",
            "7w",
            "99999999999999999999h",
            "1970-13-01",
        ] {
            assert!(hour_of(Some(wrong), &utc, false).is_err(), "{wrong}");
        }
    }
}
