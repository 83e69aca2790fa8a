//! A transcript's header, and a transcript as it is read back.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::TranscriptMessage;

/// A transcript's header. Every turn brings one, and the newest is the transcript's.
///
/// A store keeps it as given and computes none of it, except the two session ids of a new generation. No reader of
/// this crate relies on the totals in it: they may be zero or wrong. What was spent is summed from the rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TranscriptMeta {
    /// The agent's name: its archetype, by which the spend of sub-agents is grouped.
    pub agent_name: String,
    /// The agent's id. Look-ups that are scoped to an agent compare this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The kind of the agent, in the host's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<String>,
    /// What runs the agent's tools.
    pub dispatcher: String,
    /// The provider's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// When the host began the transcript, in RFC 3339.
    pub created: String,
    /// When the host last changed it, in RFC 3339.
    pub updated: String,
    /// How many turns the host counted.
    pub turn_count: usize,
    /// How many leading rows the host calls a prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_message_count: Option<usize>,
    /// Input tokens as the host counted them.
    pub input_tokens: u64,
    /// Output tokens as the host counted them.
    pub output_tokens: u64,
    /// Cached input tokens as the host counted them.
    pub cached_input_tokens: u64,
    /// US dollars as the host counted them. A store takes finite amounts only.
    pub charged_amount_usd: f64,
    /// The host's id of the conversation. One thread has root transcripts and sub-agent transcripts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The host's id of the task that a sub-agent was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// The stem of this generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The stem of the generation before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_session_id: Option<String>,
}

impl TranscriptMeta {
    /// A header for an agent: dispatcher `native`, all counts zero, created and updated now.
    pub fn new(agent_name: impl Into<String>) -> Self {
        let now = Timestamp::now().to_string();
        Self {
            agent_name: agent_name.into(),
            agent_id: None,
            agent_type: None,
            dispatcher: "native".to_owned(),
            provider: None,
            model: None,
            created: now.clone(),
            updated: now,
            turn_count: 0,
            prefix_message_count: None,
            input_tokens: 0,
            output_tokens: 0,
            cached_input_tokens: 0,
            charged_amount_usd: 0.0,
            thread_id: None,
            task_id: None,
            session_id: None,
            parent_session_id: None,
        }
    }

    /// Sets the agent's id.
    #[must_use]
    pub fn with_agent_id(mut self, agent_id: impl Into<String>) -> Self {
        self.agent_id = Some(agent_id.into());
        self
    }

    /// Sets the kind of the agent.
    #[must_use]
    pub fn with_agent_type(mut self, agent_type: impl Into<String>) -> Self {
        self.agent_type = Some(agent_type.into());
        self
    }

    /// Sets what runs the agent's tools.
    #[must_use]
    pub fn with_dispatcher(mut self, dispatcher: impl Into<String>) -> Self {
        self.dispatcher = dispatcher.into();
        self
    }

    /// Sets the provider's name.
    #[must_use]
    pub fn with_provider(mut self, provider: impl Into<String>) -> Self {
        self.provider = Some(provider.into());
        self
    }

    /// Sets the model's name.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Sets when the host began the transcript, in RFC 3339.
    #[must_use]
    pub fn with_created(mut self, created: impl Into<String>) -> Self {
        self.created = created.into();
        self
    }

    /// Sets when the host last changed the transcript, in RFC 3339.
    #[must_use]
    pub fn with_updated(mut self, updated: impl Into<String>) -> Self {
        self.updated = updated.into();
        self
    }

    /// Sets how many turns the host counted.
    #[must_use]
    pub fn with_turn_count(mut self, turn_count: usize) -> Self {
        self.turn_count = turn_count;
        self
    }

    /// Sets how many leading rows the host calls a prefix.
    #[must_use]
    pub fn with_prefix_message_count(mut self, count: usize) -> Self {
        self.prefix_message_count = Some(count);
        self
    }

    /// Sets the input, output and cached input tokens as the host counted them.
    #[must_use]
    pub fn with_tokens(mut self, input: u64, output: u64, cached_input: u64) -> Self {
        self.input_tokens = input;
        self.output_tokens = output;
        self.cached_input_tokens = cached_input;
        self
    }

    /// Sets the US dollars as the host counted them.
    #[must_use]
    pub fn with_charged_amount_usd(mut self, amount: f64) -> Self {
        self.charged_amount_usd = amount;
        self
    }

    /// Sets the id of the conversation.
    #[must_use]
    pub fn with_thread_id(mut self, thread_id: impl Into<String>) -> Self {
        self.thread_id = Some(thread_id.into());
        self
    }

    /// Sets the id of the task.
    #[must_use]
    pub fn with_task_id(mut self, task_id: impl Into<String>) -> Self {
        self.task_id = Some(task_id.into());
        self
    }

    /// Sets the stem of this generation.
    #[must_use]
    pub fn with_session_id(mut self, session_id: impl Into<String>) -> Self {
        self.session_id = Some(session_id.into());
        self
    }

    /// Sets the stem of the generation before this one.
    #[must_use]
    pub fn with_parent_session_id(mut self, session_id: impl Into<String>) -> Self {
        self.parent_session_id = Some(session_id.into());
        self
    }
}

/// A transcript as replay gives it: what the model would be sent now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionTranscript {
    /// The newest header.
    pub meta: TranscriptMeta,
    /// The live context.
    pub messages: Vec<TranscriptMessage>,
    /// The last tools record, opaque to the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Value>,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, json, to_string};

    use super::*;

    #[test]
    fn a_new_header_is_of_now_and_has_counted_nothing() {
        let before = Timestamp::now();
        let meta = TranscriptMeta::new("planner");
        let created: Timestamp = meta.created.parse().unwrap();
        assert!(before <= created && created <= Timestamp::now());
        assert_eq!(meta.updated, meta.created);
        assert_eq!(meta.agent_name, "planner");
        assert_eq!(meta.dispatcher, "native");
        assert_eq!((meta.turn_count, meta.charged_amount_usd), (0, 0.0));
    }

    #[test]
    fn a_header_leaves_out_what_is_not_set() {
        let meta = TranscriptMeta::new("planner")
            .with_created("c")
            .with_updated("u");
        let json = r#"{"agent_name":"planner","dispatcher":"native","created":"c","updated":"u","turn_count":0,"input_tokens":0,"output_tokens":0,"cached_input_tokens":0,"charged_amount_usd":0.0}"#;
        assert_eq!(to_string(&meta).unwrap(), json);
        assert_eq!(from_str::<TranscriptMeta>(json).unwrap(), meta);
    }

    #[test]
    fn a_full_header_serializes_every_field_and_reads_back_equal() {
        let meta = TranscriptMeta::new("planner")
            .with_agent_id("a")
            .with_agent_type("root")
            .with_dispatcher("d")
            .with_provider("acme")
            .with_model("m-2")
            .with_created("c")
            .with_updated("u")
            .with_turn_count(2)
            .with_prefix_message_count(1)
            .with_tokens(3, 4, 5)
            .with_charged_amount_usd(0.5)
            .with_thread_id("th")
            .with_task_id("job")
            .with_session_id("s.g1")
            .with_parent_session_id("s");
        let json = concat!(
            r#"{"agent_name":"planner","agent_id":"a","agent_type":"root","dispatcher":"d","provider":"acme","model":"m-2","#,
            r#""created":"c","updated":"u","turn_count":2,"prefix_message_count":1,"input_tokens":3,"output_tokens":4,"#,
            r#""cached_input_tokens":5,"charged_amount_usd":0.5,"thread_id":"th","task_id":"job","session_id":"s.g1","parent_session_id":"s"}"#
        );
        assert_eq!(to_string(&meta).unwrap(), json);
        assert_eq!(from_str::<TranscriptMeta>(json).unwrap(), meta);
    }

    #[test]
    fn every_count_of_a_header_is_required() {
        let meta = serde_json::to_value(TranscriptMeta::new("planner")).unwrap();
        for key in meta.as_object().unwrap().keys() {
            let mut without = meta.clone();
            without.as_object_mut().unwrap().remove(key);
            assert!(TranscriptMeta::deserialize(&without).is_err(), "{key}");
        }
    }

    #[test]
    fn a_transcript_reads_back_equal_with_and_without_tools() {
        let mut transcript = SessionTranscript {
            meta: TranscriptMeta::new("planner"),
            messages: vec![TranscriptMessage::user("hi")],
            tools: None,
        };
        let json = to_string(&transcript).unwrap();
        assert!(!json.contains("tools"));
        assert_eq!(from_str::<SessionTranscript>(&json).unwrap(), transcript);
        transcript.tools = Some(json!([{"name": "search"}]));
        let json = to_string(&transcript).unwrap();
        assert_eq!(from_str::<SessionTranscript>(&json).unwrap(), transcript);
    }
}
