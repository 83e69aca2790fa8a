//! What a caller hands to a store: a turn, a partial, a cut.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{TranscriptMessage, TranscriptMeta, TurnUsage};

/// One turn: a state transition of a transcript's live context, persisted as a whole or not at all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TranscriptTurn<'a> {
    /// What the caller believes is the live context now.
    pub prev: &'a [TranscriptMessage],
    /// The whole live context after the turn. Rows that were read keep their `preserve_request_id`, by which the
    /// store knows them again.
    pub next: &'a [TranscriptMessage],
    /// The header after the turn.
    pub meta: &'a TranscriptMeta,
    /// What the turn used. It goes to the last assistant row among the new rows, or stands alone.
    pub turn_usage: Option<&'a TurnUsage>,
    /// The caller's id of the turn, for the rows that do not bring their own.
    pub request_id: Option<&'a str>,
    /// The tool declarations from now on; `None` leaves those in force that are.
    pub tools: Option<&'a Value>,
    /// What the host knows of the compaction, if the turn is one: kept with its marker or seal, else ignored.
    pub compaction: Option<&'a Value>,
}

impl<'a> TranscriptTurn<'a> {
    /// A turn from one live context to another, with no usage, request id, tools or compaction metadata.
    #[must_use]
    pub fn new(
        prev: &'a [TranscriptMessage],
        next: &'a [TranscriptMessage],
        meta: &'a TranscriptMeta,
    ) -> Self {
        Self {
            prev,
            next,
            meta,
            turn_usage: None,
            request_id: None,
            tools: None,
            compaction: None,
        }
    }

    /// Sets what the turn used.
    #[must_use]
    pub fn with_turn_usage(mut self, turn_usage: &'a TurnUsage) -> Self {
        self.turn_usage = Some(turn_usage);
        self
    }

    /// Sets the caller's id of the turn.
    #[must_use]
    pub fn with_request_id(mut self, request_id: &'a str) -> Self {
        self.request_id = Some(request_id);
        self
    }

    /// Sets the tool declarations from this turn on.
    #[must_use]
    pub fn with_tools(mut self, tools: &'a Value) -> Self {
        self.tools = Some(tools);
        self
    }

    /// Sets what the host knows of the compaction.
    #[must_use]
    pub fn with_compaction(mut self, compaction: &'a Value) -> Self {
        self.compaction = Some(compaction);
        self
    }
}

/// The text of a turn that was interrupted: shown to a person, never sent to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptPartial {
    /// The text so far. When it is empty nothing is stored.
    pub content: String,
    /// The reasoning so far. A blank one is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The step of the agent's loop that was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iteration: Option<u32>,
}

impl TranscriptPartial {
    /// A partial without reasoning and step.
    pub fn new(content: impl Into<String>) -> Self {
        Self {
            content: content.into(),
            reasoning_content: None,
            iteration: None,
        }
    }

    /// Sets the reasoning so far.
    #[must_use]
    pub fn with_reasoning_content(mut self, reasoning: impl Into<String>) -> Self {
        self.reasoning_content = Some(reasoning.into());
        self
    }

    /// Sets the step that was interrupted.
    #[must_use]
    pub fn with_iteration(mut self, iteration: u32) -> Self {
        self.iteration = Some(iteration);
        self
    }
}

/// Where to cut a live context; what stands before the cut is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TruncateCut {
    /// Keeps the rows before this index, all of them if there are fewer.
    BeforeIndex(usize),
    /// Keeps the rows before the first one with this message id. When no row has it the cut is refused.
    BeforeMessageId(String),
    /// Takes back the last answer: keeps the rows up to and including the last user row, none if there is no user row.
    LastAssistantTurn,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, json, to_string};

    use super::*;

    #[test]
    fn a_new_turn_brings_its_rows_and_header_and_nothing_else() {
        let (prev, meta) = (
            [TranscriptMessage::user("a")],
            TranscriptMeta::new("planner"),
        );
        let turn = TranscriptTurn::new(&prev, &[], &meta);
        assert_eq!(
            (turn.prev, turn.next, turn.meta),
            (&prev[..], &[][..], &meta)
        );
        assert!(turn.turn_usage.is_none() && turn.request_id.is_none());
        assert!(turn.tools.is_none() && turn.compaction.is_none());
    }

    #[test]
    fn setters_of_a_turn_set_what_they_say() {
        let (usage, tools, compaction) = (TurnUsage::default(), json!([1]), json!({"t": 1}));
        let meta = TranscriptMeta::new("planner");
        let turn = TranscriptTurn::new(&[], &[], &meta)
            .with_turn_usage(&usage)
            .with_request_id("rq")
            .with_tools(&tools)
            .with_compaction(&compaction);
        let literal = TranscriptTurn {
            prev: &[],
            next: &[],
            meta: &meta,
            turn_usage: Some(&usage),
            request_id: Some("rq"),
            tools: Some(&tools),
            compaction: Some(&compaction),
        };
        assert_eq!(turn, literal);
    }

    #[test]
    fn a_partial_leaves_out_what_is_not_set() {
        let partial = TranscriptPartial::new("so far");
        assert_eq!(to_string(&partial).unwrap(), r#"{"content":"so far"}"#);
        let partial = partial.with_reasoning_content("hm").with_iteration(3);
        let json = r#"{"content":"so far","reasoning_content":"hm","iteration":3}"#;
        assert_eq!(to_string(&partial).unwrap(), json);
        assert_eq!(from_str::<TranscriptPartial>(json).unwrap(), partial);
    }

    #[test]
    fn every_cut_reads_back_equal() {
        for (cut, json) in [
            (TruncateCut::BeforeIndex(3), r#"{"before_index":3}"#),
            (
                TruncateCut::BeforeMessageId("m".to_owned()),
                r#"{"before_message_id":"m"}"#,
            ),
            (TruncateCut::LastAssistantTurn, r#""last_assistant_turn""#),
        ] {
            assert_eq!(to_string(&cut).unwrap(), json);
            assert_eq!(from_str::<TruncateCut>(json).unwrap(), cut);
        }
    }
}
