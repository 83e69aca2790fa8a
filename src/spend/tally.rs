//! Sums of usages in whole numbers.

use jiff::Timestamp;

use super::{context_components_of, context_tokens_of};
use crate::transcript::spend::{pico_to_usd, usd_to_pico};
use crate::{CostSplit, TranscriptSpend, TurnUsage, UsageCostSource};

/// The UTC hour that a usage falls into, counted from the Unix epoch: that of its own time, and where that is no time
/// that of the write, which is given in microseconds since the epoch.
pub(crate) fn usage_hour(usage: &TurnUsage, written_micros: i64) -> i64 {
    let seconds = match usage.ts.parse::<Timestamp>() {
        Ok(time) => time.as_microsecond().div_euclid(1_000_000),
        Err(_) => written_micros.div_euclid(1_000_000),
    };
    seconds.div_euclid(3600)
}

/// An amount of money in units of 10^-12 USD.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Money(pub(crate) i128);

impl Money {
    /// The amount nearest to a number of USD, halves to even, from the number's exact value.
    pub(crate) fn from_usd(usd: f64) -> Self {
        Self(usd_to_pico(usd))
    }

    /// The nearest number of USD.
    pub(crate) fn to_usd(self) -> f64 {
        pico_to_usd(self.0)
    }

    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// The integer totals of a sequence of usages. All public numbers of spend derive from one.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SpendTally {
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) cached_input_tokens: u64,
    pub(crate) cost: Money,
    /// How many usages counted.
    pub(crate) turns: u64,
    /// These five are of the last usage that counted.
    pub(crate) last_input_tokens: u64,
    pub(crate) last_output_tokens: u64,
    pub(crate) last_context_tokens: u64,
    pub(crate) last_context_input_tokens: u64,
    pub(crate) last_context_output_tokens: u64,
    /// The last that was named.
    pub(crate) model: Option<String>,
    /// The last that was known.
    pub(crate) context_window: u64,
    pub(crate) priced: Money,
    pub(crate) priced_source: Option<UsageCostSource>,
    pub(crate) unpriced_turns: u64,
    pub(crate) unpriced_input_tokens: u64,
    pub(crate) unpriced_output_tokens: u64,
    pub(crate) unpriced_cached_input_tokens: u64,
}

impl SpendTally {
    /// Whether a usage counts: one that only records calls does not.
    pub(crate) fn counts(usage: &TurnUsage) -> bool {
        let totals = &usage.usage;
        let tokens = totals.input | totals.output | totals.cached_input;
        usage.tool_calls.is_empty() || tokens != 0 || totals.cost_usd != 0.0
    }

    /// Adds the next usage of the sequence, if it counts.
    pub(crate) fn add(&mut self, usage: &TurnUsage) {
        if Self::counts(usage) {
            self.follow(&Self::of(usage));
        }
    }

    /// Takes out a usage that was added before. What it was the last of stays.
    pub(crate) fn take_out(&mut self, usage: &TurnUsage) {
        if !Self::counts(usage) {
            return;
        }
        let gone = Self::of(usage);
        for (sum, part) in [
            (&mut self.input_tokens, gone.input_tokens),
            (&mut self.output_tokens, gone.output_tokens),
            (&mut self.cached_input_tokens, gone.cached_input_tokens),
            (&mut self.turns, gone.turns),
            (&mut self.unpriced_turns, gone.unpriced_turns),
            (&mut self.unpriced_input_tokens, gone.unpriced_input_tokens),
            (
                &mut self.unpriced_output_tokens,
                gone.unpriced_output_tokens,
            ),
            (
                &mut self.unpriced_cached_input_tokens,
                gone.unpriced_cached_input_tokens,
            ),
        ] {
            *sum = sum.saturating_sub(part);
        }
        self.cost = Money(self.cost.0.saturating_sub(gone.cost.0));
        self.priced = Money(self.priced.0.saturating_sub(gone.priced.0));
    }

    /// The totals of one usage that counts.
    fn of(usage: &TurnUsage) -> Self {
        let totals = &usage.usage;
        let cost = Money::from_usd(totals.cost_usd);
        let (context_input, context_output) = context_components_of(usage);
        let mut tally = Self {
            input_tokens: totals.input,
            output_tokens: totals.output,
            cached_input_tokens: totals.cached_input,
            cost,
            turns: 1,
            last_input_tokens: totals.input,
            last_output_tokens: totals.output,
            last_context_tokens: context_tokens_of(usage),
            last_context_input_tokens: context_input,
            last_context_output_tokens: context_output,
            model: Some(usage.model.clone()).filter(|model| !model.is_empty()),
            context_window: totals.context_window,
            ..Self::default()
        };
        match totals.cost_source {
            Some(source @ (UsageCostSource::Charged | UsageCostSource::Estimated)) => {
                tally.priced = cost;
                tally.priced_source = Some(source);
            }
            Some(UsageCostSource::Unknown) | None => {
                tally.unpriced_turns = 1;
                tally.unpriced_input_tokens = totals.input;
                tally.unpriced_output_tokens = totals.output;
                tally.unpriced_cached_input_tokens = totals.cached_input;
            }
        }
        tally
    }

    /// Adds the totals of a sequence that comes after this one.
    pub(crate) fn follow(&mut self, later: &Self) {
        if later.turns > 0 {
            self.last_input_tokens = later.last_input_tokens;
            self.last_output_tokens = later.last_output_tokens;
            self.last_context_tokens = later.last_context_tokens;
            self.last_context_input_tokens = later.last_context_input_tokens;
            self.last_context_output_tokens = later.last_context_output_tokens;
        }
        if later.model.is_some() {
            self.model.clone_from(&later.model);
        }
        if later.context_window > 0 {
            self.context_window = later.context_window;
        }
        for (sum, part) in [
            (&mut self.input_tokens, later.input_tokens),
            (&mut self.output_tokens, later.output_tokens),
            (&mut self.cached_input_tokens, later.cached_input_tokens),
            (&mut self.turns, later.turns),
            (&mut self.unpriced_turns, later.unpriced_turns),
            (&mut self.unpriced_input_tokens, later.unpriced_input_tokens),
            (
                &mut self.unpriced_output_tokens,
                later.unpriced_output_tokens,
            ),
            (
                &mut self.unpriced_cached_input_tokens,
                later.unpriced_cached_input_tokens,
            ),
        ] {
            *sum = sum.saturating_add(part);
        }
        self.cost = self.cost.plus(later.cost);
        self.priced = self.priced.plus(later.priced);
        self.priced_source = self.priced_source.max(later.priced_source);
    }

    /// The answer that the totals give.
    pub(crate) fn to_spend(&self, fallback_model: Option<&str>) -> TranscriptSpend {
        TranscriptSpend {
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            cached_input_tokens: self.cached_input_tokens,
            cost_usd: self.cost.to_usd(),
            turns: to_count(self.turns),
            last_input_tokens: self.last_input_tokens,
            last_output_tokens: self.last_output_tokens,
            last_context_tokens: self.last_context_tokens,
            last_context_input_tokens: self.last_context_input_tokens,
            last_context_output_tokens: self.last_context_output_tokens,
            model: self
                .model
                .clone()
                .or_else(|| fallback_model.map(str::to_owned)),
            context_window: self.context_window,
            cost_split: CostSplit {
                priced_cost_usd: self.priced.to_usd(),
                priced_source: self.priced_source,
                unpriced_turns: to_count(self.unpriced_turns),
                unpriced_input_tokens: self.unpriced_input_tokens,
                unpriced_output_tokens: self.unpriced_output_tokens,
                unpriced_cached_input_tokens: self.unpriced_cached_input_tokens,
            },
        }
    }

    /// The same totals, with a transcript's model where no usage names one.
    pub(super) fn or_model(&self, model: Option<&str>) -> Self {
        Self {
            model: self.model.clone().or_else(|| model.map(str::to_owned)),
            ..self.clone()
        }
    }

    /// The sums alone, without what is of the last usage.
    pub(super) fn without_last(self) -> Self {
        Self {
            last_input_tokens: 0,
            last_output_tokens: 0,
            last_context_tokens: 0,
            last_context_input_tokens: 0,
            last_context_output_tokens: 0,
            ..self
        }
    }
}

fn to_count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MessageUsage, TranscriptToolCall};

    fn usage(input: u64, cost_usd: f64, cost_source: Option<UsageCostSource>) -> TurnUsage {
        TurnUsage {
            usage: MessageUsage {
                input,
                cost_usd,
                cost_source,
                ..MessageUsage::default()
            },
            ..TurnUsage::default()
        }
    }

    fn tally(usages: &[TurnUsage]) -> SpendTally {
        let mut tally = SpendTally::default();
        for usage in usages {
            tally.add(usage);
        }
        tally
    }

    /// Usages of many magnitudes, for which sums of floating-point numbers would depend on the order.
    fn mixed() -> Vec<TurnUsage> {
        let costs = [
            1e9,
            0.1,
            -1e9,
            0.2,
            1e-12,
            5e-13,
            0.3,
            -0.000_000_7,
            123_456_789.123,
        ];
        let sources = [
            None,
            Some(UsageCostSource::Charged),
            Some(UsageCostSource::Estimated),
            Some(UsageCostSource::Unknown),
        ];
        let sources = sources.into_iter().cycle();
        (1..)
            .zip(costs)
            .zip(sources)
            .map(|((input, cost), source)| usage(input, cost, source))
            .collect()
    }

    #[test]
    fn the_contract_s_example_adds_up() {
        let spend = tally(&[
            usage(1, 0.10, Some(UsageCostSource::Charged)),
            usage(2, 0.20, Some(UsageCostSource::Estimated)),
            usage(3, 1.00, Some(UsageCostSource::Unknown)),
            usage(4, 2.00, None),
        ])
        .to_spend(None);
        assert_eq!(spend.cost_usd.to_bits(), 3.30_f64.to_bits());
        assert_eq!(
            spend.cost_split,
            CostSplit {
                priced_cost_usd: 0.30,
                priced_source: Some(UsageCostSource::Estimated),
                unpriced_turns: 2,
                unpriced_input_tokens: 7,
                ..CostSplit::default()
            }
        );
        assert_eq!((spend.turns, spend.last_input_tokens), (4, 4));
    }

    #[test]
    fn sums_do_not_depend_on_the_order() {
        let forward = mixed();
        let backward: Vec<_> = forward.iter().rev().cloned().collect();
        let sums = |usages: &[TurnUsage]| tally(usages).without_last();
        assert_eq!(sums(&forward), sums(&backward));
    }

    #[test]
    fn a_tally_of_parts_is_the_tally_of_the_whole_wherever_it_is_cut() {
        let usages = mixed();
        for cut in 0..=usages.len() {
            let mut parts = tally(&usages[..cut]);
            parts.follow(&tally(&usages[cut..]));
            assert_eq!(parts, tally(&usages), "cut at {cut}");
        }
    }

    #[test]
    fn a_later_part_that_names_nothing_leaves_what_is_known() {
        let known = TurnUsage {
            model: "m".to_owned(),
            usage: MessageUsage {
                context_window: 8,
                ..usage(5, 0.0, None).usage
            },
            ..TurnUsage::default()
        };
        let mut whole = tally(&[known]);
        whole.follow(&SpendTally::default());
        assert_eq!(whole.last_input_tokens, 5);
        whole.follow(&tally(&[usage(6, 0.0, None)]));
        assert_eq!(whole.last_input_tokens, 6);
        assert_eq!(
            (whole.model.as_deref(), whole.context_window),
            (Some("m"), 8)
        );
    }

    #[test]
    fn tokens_stop_at_the_largest_number() {
        let spend = tally(&[usage(u64::MAX, 0.0, None), usage(2, 0.0, None)]).to_spend(None);
        assert_eq!(spend.input_tokens, u64::MAX);
        assert_eq!(spend.cost_split.unpriced_input_tokens, u64::MAX);
    }

    #[test]
    fn only_a_usage_that_does_nothing_but_record_calls_is_skipped() {
        let calls = TurnUsage {
            tool_calls: vec![TranscriptToolCall::default()],
            ..TurnUsage::default()
        };
        let mut cached = calls.clone();
        cached.usage.cached_input = 1;
        let mut refund = calls.clone();
        refund.usage.cost_usd = -0.5;
        assert_eq!(tally(std::slice::from_ref(&calls)), SpendTally::default());
        assert_eq!(
            tally(&[calls, cached, refund, TurnUsage::default()]).turns,
            3
        );
    }

    #[test]
    fn an_hour_is_the_usage_s_own_in_utc_else_that_of_the_write() {
        let hour = |ts: &str, micros| {
            let ts = ts.to_owned();
            usage_hour(
                &TurnUsage {
                    ts,
                    ..TurnUsage::default()
                },
                micros,
            )
        };
        assert_eq!(hour("1970-01-01T02:59:59.9Z", 0), 2);
        assert_eq!(hour("1970-01-01T02:30:00+02:00", 0), 0);
        assert_eq!(hour("1969-12-31T23:59:59.5Z", 0), -1);
        assert_eq!(hour("", 7_200_000_000), 2);
        assert_eq!(hour("yesterday", 7_199_999_999), 1);
        assert_eq!(hour("", -1), -1);
    }
}
