//! A line of a classic file, and the row that it is.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::interchange::blocks::note;
use crate::{
    BACKGROUND_METADATA_KEY, MessageUsage, ToolFailure, TranscriptMessage, TranscriptMeta,
    TranscriptPart, TranscriptToolCall, TurnUsage,
};

/// The version of lines with typed fields.
const TYPED: u32 = 2;

/// The header. It has what the store's header has, under other names.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MetaLine {
    #[serde(default)]
    version: u32,
    agent: String,
    #[serde(flatten)]
    rest: Value,
}

impl MetaLine {
    pub(super) fn into_meta(self) -> TranscriptMeta {
        let plain = || {
            TranscriptMeta::new(self.agent.as_str())
                .with_created("")
                .with_updated("")
        };
        let mut all = serde_json::to_value(plain()).unwrap_or(Value::Null);
        // Each member on its own, so that one that does not read takes nothing with it.
        if let (Value::Object(all), Value::Object(told)) = (&mut all, self.rest) {
            for (key, value) in told {
                let mut with = all.clone();
                with.insert(key, value);
                if serde_json::from_value::<TranscriptMeta>(Value::Object(with.clone())).is_ok() {
                    *all = with;
                }
            }
        }
        serde_json::from_value(all).unwrap_or_else(|_| TranscriptMeta::new("unknown"))
    }

    pub(super) fn of(meta: &TranscriptMeta) -> Self {
        let mut rest = serde_json::to_value(meta).unwrap_or(Value::Null);
        if let Value::Object(rest) = &mut rest {
            rest.remove("agent_name");
        }
        Self {
            version: 1,
            agent: meta.agent_name.clone(),
            rest,
        }
    }
}

/// A message.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Line {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    role: String,
    pub(super) content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    extra_metadata: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cache_breakpoints: Vec<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage: Option<MessageUsage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) iteration: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ts: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request_id: Option<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) interrupted: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    failure: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure_detail: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    v: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shape: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parts: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    background: Option<Value>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Line {
    /// The row of it. What a line without typed fields spells in its text, the store reads.
    pub(super) fn into_row(self) -> TranscriptMessage {
        let mut row = TranscriptMessage::new(self.role, self.content);
        row.id = self.id;
        row.extra_metadata = self.extra_metadata;
        row.cache_breakpoints = self.cache_breakpoints;
        row.request_id = self.request_id;
        if self.failure {
            row.tool_failure = Some(ToolFailure {
                failed: true,
                detail: self.failure_detail,
            });
        }
        if self.v == TYPED {
            match self.shape.as_deref() {
                Some("assistant_calls") => {
                    let calls = self.tool_calls.clone();
                    let calls = calls.and_then(|it| serde_json::from_value(it).ok());
                    row.tool_calls = calls.unwrap_or_default();
                }
                Some("tool_result") => row.tool_call_id = self.tool_call_id,
                Some("user_parts") => {
                    let parts = self.parts.and_then(|it| serde_json::from_value(it).ok());
                    row.parts = parts.filter(|parts: &Vec<TranscriptPart>| !parts.is_empty());
                }
                _ => {}
            }
        }
        if let Some(background) = self.background {
            note(&mut row, BACKGROUND_METADATA_KEY, background);
        }
        let whole = (self.provider, self.model, self.usage, self.ts);
        match whole {
            (Some(provider), Some(model), Some(usage), Some(ts)) if row.role == "assistant" => {
                let calls: Option<Vec<TranscriptToolCall>> = self
                    .tool_calls
                    .and_then(|it| serde_json::from_value(it).ok());
                row.turn_usage = Some(TurnUsage {
                    provider,
                    model,
                    usage,
                    ts,
                    reasoning_content: self.reasoning_content,
                    tool_calls: calls.unwrap_or_default(),
                    iteration: self.iteration.unwrap_or(0),
                });
            }
            _ => {
                if let Some(reasoning) = self.reasoning_content {
                    note(&mut row, "reasoning_content", reasoning);
                }
            }
        }
        row
    }

    /// The line of a row.
    pub(super) fn of(row: &TranscriptMessage, ts: &str, iteration: Option<u32>) -> Self {
        let usage = row.turn_usage.as_ref();
        let failure = row.tool_failure.as_ref().filter(|it| it.failed);
        let (shape, calls, parts) = if !row.tool_calls.is_empty() {
            let calls = serde_json::to_value(&row.tool_calls).ok();
            (Some("assistant_calls"), calls, None)
        } else if row.tool_call_id.is_some() {
            (Some("tool_result"), None, None)
        } else if let Some(parts) = &row.parts {
            (Some("user_parts"), None, serde_json::to_value(parts).ok())
        } else {
            (None, None, None)
        };
        Self {
            id: row.id.clone(),
            role: row.role.clone(),
            content: row.content.clone(),
            extra_metadata: row.extra_metadata.clone(),
            cache_breakpoints: row.cache_breakpoints.clone(),
            provider: usage.map(|it| it.provider.clone()),
            model: usage.map(|it| it.model.clone()),
            usage: usage.map(|it| it.usage.clone()),
            reasoning_content: usage.and_then(|it| it.reasoning_content.clone()),
            tool_calls: calls,
            iteration,
            ts: Some(ts.to_owned()).filter(|ts| !ts.is_empty()),
            request_id: row.request_id.clone(),
            interrupted: row.interrupted,
            failure: failure.is_some(),
            failure_detail: failure.and_then(|it| it.detail.clone()),
            v: if shape.is_some() { TYPED } else { 0 },
            shape: shape.map(str::to_owned),
            tool_call_id: row.tool_call_id.clone(),
            parts,
            background: None,
        }
    }
}
