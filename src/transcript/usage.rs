//! What a turn used and what it cost.

use serde::{Deserialize, Serialize};

use super::TranscriptToolCall;

/// Where the cost of a [`MessageUsage`] comes from, in ascending order of doubt.
///
/// A usage without one is a legacy record whose cost may be a guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageCostSource {
    /// The cost of every call came from the provider's billing.
    Charged,
    /// At least one call was priced from list rates.
    Estimated,
    /// At least one call has no known cost, so the sum is incomplete.
    Unknown,
}

/// Tokens and cost of one turn, summed over its provider calls.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MessageUsage {
    /// Input tokens of the turn, the cached ones included.
    pub input: u64,
    /// Output tokens of the turn.
    pub output: u64,
    /// The input tokens that were read from a cache; a part of `input`.
    pub cached_input: u64,
    /// The model's context window in tokens, 0 when unknown.
    #[serde(default)]
    pub context_window: u64,
    /// The cost in US dollars. A store takes finite amounts of at most a thousand million; a negative one is a refund.
    pub cost_usd: f64,
    /// Input tokens of the turn's final provider call alone, 0 when unknown.
    #[serde(default)]
    pub last_call_input: u64,
    /// Output tokens of the turn's final provider call alone, 0 when unknown.
    #[serde(default)]
    pub last_call_output: u64,
    /// Where the cost comes from; `None` in a legacy record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_source: Option<UsageCostSource>,
}

/// Usage and provenance of one turn, as it is recorded with the turn's last assistant row.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnUsage {
    /// The provider's name, empty when unknown.
    #[serde(default)]
    pub provider: String,
    /// The model's name, empty when unknown.
    #[serde(default)]
    pub model: String,
    /// Tokens and cost.
    pub usage: MessageUsage,
    /// When the turn ended, in RFC 3339; empty when unknown. Its UTC hour is the one that spend by hour counts it in.
    #[serde(default)]
    pub ts: String,
    /// What the model reasoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The calls that the turn issued, of hosts that keep them here and not on the row.
    #[serde(default)]
    pub tool_calls: Vec<TranscriptToolCall>,
    /// The step of the agent's loop at which the turn ended, counted from 1; 0 when it was not recorded.
    #[serde(default)]
    pub iteration: u32,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, to_string};

    use super::*;

    #[test]
    fn a_usage_serializes_all_its_numbers_and_its_source_if_known() {
        let usage = MessageUsage {
            input: 90,
            output: 12,
            cached_input: 40,
            context_window: 8000,
            cost_usd: 0.002,
            last_call_input: 50,
            last_call_output: 8,
            cost_source: Some(UsageCostSource::Charged),
        };
        let json = r#"{"input":90,"output":12,"cached_input":40,"context_window":8000,"cost_usd":0.002,"last_call_input":50,"last_call_output":8,"cost_source":"charged"}"#;
        assert_eq!(to_string(&usage).unwrap(), json);
        assert_eq!(from_str::<MessageUsage>(json).unwrap(), usage);
        assert_eq!(
            to_string(&MessageUsage::default()).unwrap(),
            r#"{"input":0,"output":0,"cached_input":0,"context_window":0,"cost_usd":0.0,"last_call_input":0,"last_call_output":0}"#
        );
    }

    #[test]
    fn tokens_and_cost_are_required_and_the_rest_is_not() {
        let least = r#"{"input":1,"output":2,"cached_input":0,"cost_usd":1}"#;
        let usage = MessageUsage {
            input: 1,
            output: 2,
            cost_usd: 1.0,
            ..MessageUsage::default()
        };
        assert_eq!(from_str::<MessageUsage>(least).unwrap(), usage);
        for key in ["input", "output", "cached_input", "cost_usd"] {
            let without = least.replace(&format!("\"{key}\""), &format!("\"no_{key}\""));
            assert!(from_str::<MessageUsage>(&without).is_err(), "{key}");
        }
        assert!(from_str::<TurnUsage>("{}").is_err());
        let turn: TurnUsage = from_str(&format!(r#"{{"usage":{least},"unknown":[]}}"#)).unwrap();
        let read = TurnUsage {
            usage,
            ..TurnUsage::default()
        };
        assert_eq!(turn, read);
    }

    #[test]
    fn a_turns_usage_leaves_out_only_reasoning_that_is_absent() {
        let mut turn = TurnUsage {
            provider: "acme".to_owned(),
            model: "m-2".to_owned(),
            ts: "2026-03-01T10:05:00Z".to_owned(),
            iteration: 2,
            ..TurnUsage::default()
        };
        let usage = to_string(&turn.usage).unwrap();
        assert_eq!(
            to_string(&turn).unwrap(),
            format!(
                r#"{{"provider":"acme","model":"m-2","usage":{usage},"ts":"2026-03-01T10:05:00Z","tool_calls":[],"iteration":2}}"#
            )
        );
        turn.reasoning_content = Some("hm".to_owned());
        let json = to_string(&turn).unwrap();
        assert!(json.contains(r#""reasoning_content":"hm""#));
        assert_eq!(from_str::<TurnUsage>(&json).unwrap(), turn);
    }

    #[test]
    fn sources_of_cost_ascend_by_doubt() {
        use UsageCostSource::{Charged, Estimated, Unknown};
        assert!(Charged < Estimated && Estimated < Unknown);
        assert_eq!(
            to_string(&[Charged, Estimated, Unknown]).unwrap(),
            r#"["charged","estimated","unknown"]"#
        );
        assert!(from_str::<UsageCostSource>(r#""free""#).is_err());
    }
}
