//! Sums of usage: of one transcript, and of a thread with its sub-agents.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::UsageCostSource;

/// How much of a sum is priced, by whom, and how much use has no price.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CostSplit {
    /// The cost in US dollars of the turns whose cost is charged or estimated.
    pub priced_cost_usd: f64,
    /// The more doubtful of the sources of that cost; `None` when no turn is priced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priced_source: Option<UsageCostSource>,
    /// How many turns have no reliable cost.
    pub unpriced_turns: usize,
    /// Input tokens of those turns, cached ones included.
    pub unpriced_input_tokens: u64,
    /// Output tokens of those turns.
    pub unpriced_output_tokens: u64,
    /// Cached input tokens of those turns.
    pub unpriced_cached_input_tokens: u64,
}

impl CostSplit {
    /// Adds another split to this one. Money is added to the 10^-12 of a dollar, so the order makes no difference.
    pub fn merge(&mut self, other: &Self) {
        let cost =
            usd_to_pico(self.priced_cost_usd).saturating_add(usd_to_pico(other.priced_cost_usd));
        self.priced_cost_usd = pico_to_usd(cost);
        self.priced_source = self.priced_source.max(other.priced_source);
        self.unpriced_turns = self.unpriced_turns.saturating_add(other.unpriced_turns);
        self.unpriced_input_tokens = self
            .unpriced_input_tokens
            .saturating_add(other.unpriced_input_tokens);
        self.unpriced_output_tokens = self
            .unpriced_output_tokens
            .saturating_add(other.unpriced_output_tokens);
        self.unpriced_cached_input_tokens = self
            .unpriced_cached_input_tokens
            .saturating_add(other.unpriced_cached_input_tokens);
    }
}

/// What a transcript, or several, used and cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TranscriptSpend {
    /// Input tokens, cached ones included.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Cached input tokens, a part of the input tokens.
    pub cached_input_tokens: u64,
    /// US dollars, of every usage whatever the source of its cost.
    pub cost_usd: f64,
    /// How many turns were counted.
    pub turns: usize,
    /// Input tokens of the newest counted turn.
    pub last_input_tokens: u64,
    /// Output tokens of the newest counted turn.
    pub last_output_tokens: u64,
    /// How many tokens of the context window the newest counted turn filled.
    pub last_context_tokens: u64,
    /// The input's share of that.
    pub last_context_input_tokens: u64,
    /// The output's share of that.
    pub last_context_output_tokens: u64,
    /// The model of the newest counted turn that names one, else the header's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The newest known context window in tokens, 0 when none is known.
    pub context_window: u64,
    /// How much of the cost is priced, and how much use is not.
    pub cost_split: CostSplit,
}

/// What a thread used and cost over all its history: rows that were compacted away included.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadSpend {
    /// Of the thread's root transcripts.
    pub root: TranscriptSpend,
    /// Of its sub-agents: by archetype, the spend and the number of runs. What a spend says of the last turn is 0 here.
    pub subagents: BTreeMap<String, (TranscriptSpend, usize)>,
    /// When the newest root was last changed, as the host's header says; when it was last written, the store knows
    /// ([`ThreadSummary::updated`](crate::ThreadSummary::updated)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated: Option<String>,
    /// Whether the thread has any root transcript.
    pub found_transcript: bool,
}

/// How many units of the sums of money make a dollar.
const PICO_PER_USD: i128 = 1_000_000_000_000;

/// An amount of US dollars in units of 10^-12, rounded half to even from its exact value. No number is 0, and what
/// does not fit is the nearest that does.
pub(crate) fn usd_to_pico(usd: f64) -> i128 {
    if !usd.is_finite() {
        return match usd {
            f64::INFINITY => i128::MAX,
            f64::NEG_INFINITY => i128::MIN,
            _ => 0,
        };
    }
    // A finite number is mantissa * 2^exponent, so that the product is exact: 53 and 40 bits.
    let bits = usd.to_bits();
    let biased = (bits >> 52) & 0x7ff;
    let fraction = bits & ((1 << 52) - 1);
    let (mantissa, exponent) = if biased == 0 {
        (fraction, -1074)
    } else {
        (
            fraction | 1 << 52,
            i32::try_from(biased).unwrap_or(0) - 1075,
        )
    };
    let product = i128::from(mantissa) * PICO_PER_USD;
    let magnitude = if exponent >= 0 {
        let shift = exponent.unsigned_abs();
        if product == 0 || shift < product.leading_zeros() {
            product.checked_shl(shift).unwrap_or(0)
        } else {
            i128::MAX
        }
    } else {
        round_shift_right(product, exponent.unsigned_abs())
    };
    if usd.is_sign_negative() {
        -magnitude
    } else {
        magnitude
    }
}

/// A non-negative number of less than 94 bits over 2^shift, rounded half to even.
fn round_shift_right(product: i128, shift: u32) -> i128 {
    if shift > 100 {
        return 0;
    }
    let quotient = product >> shift;
    let rest = product - (quotient << shift);
    let half = 1_i128 << (shift - 1);
    let up = rest > half || (rest == half && quotient & 1 == 1);
    quotient + i128::from(up)
}

/// A sum of money in US dollars: the number nearest to the exact sum, the one that its decimal form parses to.
pub(crate) fn pico_to_usd(pico: i128) -> f64 {
    let magnitude = pico.unsigned_abs();
    let unit = PICO_PER_USD.unsigned_abs();
    let decimal = format!("{}.{:012}", magnitude / unit, magnitude % unit);
    let usd: f64 = decimal.parse().unwrap_or(f64::NAN);
    if pico < 0 { -usd } else { usd }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, to_string};

    use super::*;

    #[test]
    fn merged_splits_add_up_and_keep_the_more_doubtful_source() {
        use UsageCostSource::{Charged, Estimated};
        let charged = CostSplit {
            priced_cost_usd: 0.1,
            priced_source: Some(Charged),
            unpriced_turns: 1,
            unpriced_input_tokens: 3,
            unpriced_output_tokens: 4,
            unpriced_cached_input_tokens: u64::MAX - 1,
        };
        let estimated = CostSplit {
            priced_cost_usd: 0.2,
            priced_source: Some(Estimated),
            unpriced_turns: 1,
            unpriced_input_tokens: 4,
            unpriced_output_tokens: 0,
            unpriced_cached_input_tokens: 7,
        };
        let mut one = charged.clone();
        one.merge(&estimated);
        let mut other = estimated.clone();
        other.merge(&charged);
        assert_eq!(one, other);
        assert_eq!(
            one,
            CostSplit {
                priced_cost_usd: 0.3,
                priced_source: Some(Estimated),
                unpriced_turns: 2,
                unpriced_input_tokens: 7,
                unpriced_output_tokens: 4,
                unpriced_cached_input_tokens: u64::MAX,
            }
        );
        let mut none = CostSplit::default();
        none.merge(&charged);
        assert_eq!(none, charged);
        none.merge(&CostSplit::default());
        assert_eq!(none, charged);
    }

    #[test]
    fn money_is_rounded_half_to_even_from_its_exact_value() {
        // Exactly representable halves of a unit: n / 2^13 is n * 122070312.5 units.
        let unit = 1.0 / 8192.0;
        let cases = [
            (0.0, 0),
            (-0.0, 0),
            (1.0, 1_000_000_000_000),
            (-2.5, -2_500_000_000_000),
            (0.1, 100_000_000_000),
            (unit, 122_070_312),
            (3.0 * unit, 366_210_938),
            (-unit, -122_070_312),
            (-3.0 * unit, -366_210_938),
            (0.4e-12, 0),
            (0.6e-12, 1),
            // The number nearest to half a unit lies below it.
            (0.5e-12, 0),
            (f64::MIN_POSITIVE, 0),
            (f64::from_bits(1), 0),
            // 0.1 behind a thousand million is 0.10000002384185791015625.
            (1e9 + 0.1, 1_000_000_000_100_000_023_842),
            (1e9, 1_000_000_000_000_000_000_000),
            (2_f64.powi(53), 9_007_199_254_740_992 * PICO_PER_USD),
            (2_f64.powi(60), (1 << 60) * PICO_PER_USD),
            (f64::MAX, i128::MAX),
            (f64::MIN, -i128::MAX),
            (f64::INFINITY, i128::MAX),
            (f64::NEG_INFINITY, i128::MIN),
            (f64::NAN, 0),
        ];
        for (usd, pico) in cases {
            assert_eq!(usd_to_pico(usd), pico, "{usd:e}");
        }
    }

    #[test]
    fn a_sum_of_money_is_the_number_of_its_decimal_form() {
        let cases = [
            (0, 0.0),
            (1, 1e-12),
            (3_300_000_000_000, 3.3),
            (-300_000_000_000, -0.3),
            (9_007_199_254_740_993, 9_007.199_254_740_993),
            (123_456_789_012_345_678_901_234, 123_456_789_012.345_67),
        ];
        for (pico, usd) in cases {
            assert_eq!(pico_to_usd(pico).to_bits(), f64::to_bits(usd), "{pico}");
        }
        assert!(pico_to_usd(i128::MIN).is_finite());
    }

    #[test]
    fn an_amount_in_units_survives_the_way_there_and_back() {
        for cents in 0..100_000_i128 {
            let pico = cents * 10_000_000_000;
            assert_eq!(usd_to_pico(pico_to_usd(pico)), pico);
        }
    }

    #[test]
    fn spend_reads_back_equal() {
        let spend = ThreadSpend {
            subagents: BTreeMap::from([("coder".to_owned(), (TranscriptSpend::default(), 2))]),
            updated: Some("u".to_owned()),
            found_transcript: true,
            ..ThreadSpend::default()
        };
        let json = to_string(&spend).unwrap();
        assert_eq!(from_str::<ThreadSpend>(&json).unwrap(), spend);
    }
}
