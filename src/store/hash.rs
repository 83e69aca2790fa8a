//! Keyed hashes of rows and of long identifiers.
//!
//! Each store has a random seed, so nobody who writes content can construct two rows that the store takes for one.
//! Equal hashes mean equal rows. Rows whose values are equal have equal hashes where that can be had: keys are sorted,
//! and the two zeros are one number. So the first row of a hash is the first of all that are equal. Unequal hashes only
//! start a comparison of the rows themselves: legacy strings count only where both sides carry one.

use std::fmt;

use highway::{HighwayHash as _, HighwayHasher, Key};
use serde_json::Value;

use crate::{TranscriptMessage, TranscriptPart, TranscriptToolCall, TurnUsage};

/// The store's secret, from which all its hashes derive.
#[derive(Clone, Copy)]
pub(super) struct Seed(Key);

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// The hashes kept with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowHashes {
    /// Everything that makes a row the same row, except its legacy string.
    pub(super) identity: u128,
    /// The legacy string, if the row still means it.
    pub(super) legacy: Option<u128>,
    /// `identity` plus request id, usage, failure, metadata and cache breakpoints.
    pub(super) whole: u128,
}

/// The part of a row's hashes that decides whether two rows are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) identity: u128,
    pub(super) legacy: Option<u128>,
}

impl RowHashes {
    pub(super) fn identity(&self) -> Identity {
        Identity {
            identity: self.identity,
            legacy: self.legacy,
        }
    }
}

impl Identity {
    /// Whether the hashes prove that the rows are the same.
    pub(super) fn same(&self, other: &Self) -> bool {
        self.identity == other.identity
            && match (self.legacy, other.legacy) {
                (Some(a), Some(b)) => a == b,
                _ => true,
            }
    }
}

impl Seed {
    pub(super) fn from_bytes(bytes: [u8; 32]) -> Self {
        let mut words = [0u64; 4];
        for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*chunk);
        }
        Self(Key(words))
    }

    /// The hash that decides row identity. `row` must be normalized.
    pub(super) fn identity(&self, row: &TranscriptMessage) -> Identity {
        let mut state = State::new(self.0);
        state.optional(row.id.as_deref());
        state.text(&row.role);
        state.text(&row.content);
        state.calls(&row.tool_calls);
        state.optional(row.tool_call_id.as_deref());
        match &row.parts {
            None => state.tag(0),
            Some(parts) => {
                state.tag(1);
                state.number(parts.len());
                for part in parts {
                    state.part(part);
                }
            }
        }
        let legacy = row.live_legacy().map(|text| {
            let mut state = State::new(self.0);
            state.tag(0x4C);
            state.text(text);
            state.finish()
        });
        Identity {
            identity: state.finish(),
            legacy,
        }
    }

    /// All hashes of a row as it is stored. `row` must be normalized.
    pub(super) fn row(&self, row: &TranscriptMessage) -> RowHashes {
        let Identity { identity, legacy } = self.identity(row);
        let mut state = State::new(self.0);
        state.0.append(&identity.to_le_bytes());
        state.optional(row.request_id.as_deref());
        match &row.turn_usage {
            None => state.tag(0),
            Some(usage) => state.usage(usage),
        }
        match row.tool_failure.as_ref().filter(|failure| failure.failed) {
            None => state.tag(0),
            Some(failure) => {
                state.tag(1);
                state.optional(failure.detail.as_deref());
            }
        }
        state.optional_json(row.extra_metadata.as_ref());
        state.number(row.cache_breakpoints.len());
        for breakpoint in &row.cache_breakpoints {
            state.number(*breakpoint);
        }
        RowHashes {
            identity,
            legacy,
            whole: state.finish(),
        }
    }

    /// The digest of a context after one more row. The digest of an empty context is 0.
    pub(super) fn extend(&self, digest: u128, row: &Identity) -> u128 {
        let mut state = State::new(self.0);
        state.0.append(&digest.to_le_bytes());
        state.0.append(&row.identity.to_le_bytes());
        if let Some(legacy) = row.legacy {
            state.0.append(&legacy.to_le_bytes());
        }
        state.finish()
    }

    /// The hash of a JSON value as it is written.
    pub(super) fn json_text(&self, value: &Value) -> u128 {
        let mut state = State::new(self.0);
        state.text(&value.to_string());
        state.finish()
    }

    /// The hash by which large content is found again.
    pub(super) fn content(&self, content: &[u8]) -> u128 {
        let mut state = State::new(self.0);
        state.tag(0x42);
        state.0.append(content);
        state.finish()
    }

    /// A 256-bit stand-in for an identifier that is too long for a key.
    pub(super) fn long_id(&self, id: &[u8]) -> [u8; 32] {
        let words = HighwayHasher::new(self.0).hash256(id);
        let mut out = [0; 32];
        for (chunk, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *chunk = word.to_le_bytes();
        }
        out
    }
}

struct State(HighwayHasher);

impl State {
    fn new(key: Key) -> Self {
        Self(HighwayHasher::new(key))
    }

    fn finish(self) -> u128 {
        let [low, high] = self.0.finalize128();
        u128::from(low) | (u128::from(high) << 64)
    }

    fn tag(&mut self, tag: u8) {
        self.0.append(&[tag]);
    }

    fn number(&mut self, number: usize) {
        self.0.append(&(number as u64).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len());
        self.0.append(text.as_bytes());
    }

    fn optional(&mut self, text: Option<&str>) {
        match text {
            None => self.tag(0),
            Some(text) => {
                self.tag(1);
                self.text(text);
            }
        }
    }

    fn calls(&mut self, calls: &[TranscriptToolCall]) {
        self.number(calls.len());
        for call in calls {
            self.text(&call.id);
            self.text(&call.name);
            self.text(&call.arguments);
            self.optional_json(call.extra_content.as_ref());
        }
    }

    fn part(&mut self, part: &TranscriptPart) {
        use crate::TranscriptMediaRef::{Path, Url};
        let (tag, source, mime_type) = match part {
            TranscriptPart::Text { text } => (0, text, None),
            TranscriptPart::Image { url } => (1, url, None),
            TranscriptPart::Audio {
                source: Path { path },
                mime_type,
            } => (2, path, Some(mime_type)),
            TranscriptPart::Audio {
                source: Url { url },
                mime_type,
            } => (3, url, Some(mime_type)),
            TranscriptPart::Video {
                source: Path { path },
                mime_type,
            } => (4, path, Some(mime_type)),
            TranscriptPart::Video {
                source: Url { url },
                mime_type,
            } => (5, url, Some(mime_type)),
            TranscriptPart::Document {
                source: Path { path },
                mime_type,
            } => (6, path, Some(mime_type)),
            TranscriptPart::Document {
                source: Url { url },
                mime_type,
            } => (7, url, Some(mime_type)),
        };
        self.tag(tag);
        self.text(source);
        if let Some(mime_type) = mime_type {
            self.text(mime_type);
        }
    }

    fn usage(&mut self, turn: &TurnUsage) {
        let usage = &turn.usage;
        self.tag(1);
        self.text(&turn.provider);
        self.text(&turn.model);
        for number in [
            usage.input,
            usage.output,
            usage.cached_input,
            usage.context_window,
            usage.last_call_input,
            usage.last_call_output,
            zero(usage.cost_usd).to_bits(),
            usage.cost_source.map_or(0, |source| 1 + source as u64),
            u64::from(turn.iteration),
        ] {
            self.0.append(&number.to_le_bytes());
        }
        self.text(&turn.ts);
        self.optional(turn.reasoning_content.as_deref());
        self.calls(&turn.tool_calls);
    }

    fn optional_json(&mut self, value: Option<&Value>) {
        match value {
            None => self.tag(0),
            Some(value) => {
                self.tag(1);
                self.json(value);
            }
        }
    }

    /// Hashes a value independently of the order of its keys. Nesting was bounded before a row came here.
    fn json(&mut self, value: &Value) {
        match value {
            Value::Null => self.tag(0),
            Value::Bool(value) => self.tag(1 + u8::from(*value)),
            Value::Number(number) => {
                self.tag(3);
                let text = match number.to_string() {
                    negative if negative == "-0.0" => "0.0".to_owned(),
                    text => text,
                };
                self.text(&text);
            }
            Value::String(text) => {
                self.tag(4);
                self.text(text);
            }
            Value::Array(items) => {
                self.tag(5);
                self.number(items.len());
                for item in items {
                    self.json(item);
                }
            }
            Value::Object(map) => {
                self.tag(6);
                self.number(map.len());
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_unstable_by_key(|(key, _)| *key);
                for (key, item) in entries {
                    self.text(key);
                    self.json(item);
                }
            }
        }
    }
}

/// The number, or for a zero of either sign the positive one.
fn zero(number: f64) -> f64 {
    if number == 0.0 { 0.0 } else { number }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::MessageUsage;

    #[test]
    fn rows_of_equal_values_have_equal_hashes_whatever_the_sign_of_their_zeros() {
        let seed = Seed::from_bytes([7; 32]);
        let row = |zero: f64| TranscriptMessage {
            tool_calls: vec![TranscriptToolCall {
                extra_content: Some(json!({"b": [zero, 1.5], "a": zero})),
                ..TranscriptToolCall::default()
            }],
            extra_metadata: Some(json!([zero])),
            turn_usage: Some(TurnUsage {
                usage: MessageUsage {
                    cost_usd: zero,
                    ..MessageUsage::default()
                },
                ..TurnUsage::default()
            }),
            ..TranscriptMessage::assistant("a")
        };
        assert_eq!(row(0.0), row(-0.0));
        assert_eq!(seed.row(&row(0.0)), seed.row(&row(-0.0)));
        assert_ne!(seed.row(&row(0.0)), seed.row(&row(1.0)));
        // What is in force is told apart by what is written.
        assert_ne!(seed.json_text(&json!(0.0)), seed.json_text(&json!(-0.0)));
    }
}
