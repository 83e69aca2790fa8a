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
    /// When the turn ended, in RFC 3339; empty when unknown.
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
