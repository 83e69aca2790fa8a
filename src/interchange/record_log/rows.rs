//! Between rows and messages of blocks.

use serde_json::{Map, Value};

use super::model::{Block, LogMessage, LogUsage, compact};
use crate::interchange::blocks::note;
use crate::{MessageUsage, TranscriptMessage, TurnUsage, UsageCostSource};

/// Metadata: the counters as the format has them.
pub(super) const USAGE: &str = "usage";

/// Metadata: that the row belongs to the same message as the one before it.
const CONTINUES: &str = "continues";

/// Says that a row belongs to the message of the one before it.
pub(super) fn continues(row: &mut TranscriptMessage) {
    note(row, CONTINUES, true);
}

/// The usage that counters are, and how much of the input was written to the cache; None if they are no counters or
/// count nothing. Some writers left out of the input what came from the cache: it is added then.
pub(super) fn usage_of(counters: &Value, ts: &str) -> Option<(TurnUsage, u64)> {
    let number = |key: &str| counters.get(key).and_then(Value::as_u64).unwrap_or(0);
    let cached = number("cache_read_tokens");
    let written = number("cache_write_tokens");
    let apart = cached.saturating_add(written);
    let told = number("input_tokens");
    let input = if apart > told {
        told.saturating_add(apart)
    } else {
        told
    };
    let output = number("output_tokens");
    if input == 0 && output == 0 {
        return None;
    }
    let usage = TurnUsage {
        usage: MessageUsage {
            input,
            output,
            cached_input: cached,
            last_call_input: input,
            last_call_output: output,
            cost_source: Some(UsageCostSource::Unknown),
            ..MessageUsage::default()
        },
        ts: ts.to_owned(),
        ..TurnUsage::default()
    };
    Some((usage, written))
}

/// The counters of a row: as they were recorded, else as far as its usage says. `cache_write` of the input was written
/// to the cache.
pub(super) fn counters(row: &TranscriptMessage, cache_write: u64) -> Option<LogUsage> {
    let usage = row.turn_usage.as_ref()?;
    let told = row.extra_metadata.as_ref().and_then(|it| it.get(USAGE));
    let told = told.and_then(|told| serde_json::from_value(told.clone()).ok());
    let made = LogUsage {
        input_tokens: usage.usage.input,
        output_tokens: usage.usage.output,
        cache_read_tokens: usage.usage.cached_input,
        cache_write_tokens: cache_write,
    };
    Some(told.unwrap_or(made)).filter(|usage| !usage.is_zero())
}

/// The rows that a message becomes.
pub(super) fn rows_of(message: &LogMessage) -> Vec<TranscriptMessage> {
    let content = serde_json::to_value(&message.content).unwrap_or(Value::Null);
    let mut rows = crate::interchange::blocks::rows_of(&message.role, content);
    // The order of the arguments' members is the writer's.
    let raw = message.content.iter().filter(|it| it.kind == "tool_use");
    let calls = rows.iter_mut().flat_map(|row| &mut row.tool_calls);
    for (call, block) in calls.zip(raw) {
        if let Some(input) = &block.input {
            input.get().clone_into(&mut call.arguments);
        }
    }
    for row in rows.iter_mut().skip(1) {
        continues(row);
    }
    rows
}

/// Whether a row belongs to the message of the row before it: it says so, or both are results.
pub(super) fn joins(row: &TranscriptMessage, before: &TranscriptMessage) -> bool {
    let says = |it: &Value| it.get(CONTINUES) == Some(&Value::Bool(true));
    row.extra_metadata.as_ref().is_some_and(says) || row.role == "tool" && before.role == "tool"
}

/// The role that a row has in this format; None if it has no place there.
pub(super) fn role_of(row: &TranscriptMessage) -> Option<&'static str> {
    match row.role.as_str() {
        "user" | "tool" => Some("user"),
        "assistant" if !row.interrupted => Some("assistant"),
        _ => None,
    }
}

/// The blocks of a row.
pub(super) fn blocks_of(row: &TranscriptMessage) -> Vec<Block> {
    let mut blocks = Vec::new();
    let empty = Map::new();
    let metadata = match &row.extra_metadata {
        Some(Value::Object(metadata)) => metadata,
        _ => &empty,
    };
    let said = |key: &str| {
        let text = metadata.get(key).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    if row.role == "tool" {
        let failed = row.tool_failure.as_ref().is_some_and(|it| it.failed);
        let text = Block::text(row.content.as_str());
        return vec![Block {
            kind: "tool_result".to_owned(),
            tool_use_id: row.tool_call_id.clone().unwrap_or_default(),
            content: vec![text],
            is_error: failed,
            ..Block::default()
        }];
    }
    let thinking = said("reasoning_content");
    let signature = said("reasoning_signature");
    if !thinking.is_empty() || !signature.is_empty() {
        blocks.push(Block {
            kind: "thinking".to_owned(),
            thinking,
            signature,
            ..Block::default()
        });
    }
    if !row.content.is_empty() {
        blocks.push(Block::text(row.content.as_str()));
    }
    for call in &row.tool_calls {
        blocks.push(Block {
            kind: "tool_use".to_owned(),
            id: call.id.clone(),
            name: call.name.clone(),
            // What streamed in broken or empty is an empty object.
            input: compact(&call.arguments).or_else(|| compact("{}")),
            ..Block::default()
        });
    }
    blocks
}

/// The messages that rows are.
pub(super) fn messages_of(rows: &[TranscriptMessage]) -> Vec<LogMessage> {
    let mut messages: Vec<LogMessage> = Vec::new();
    let mut before: Option<&TranscriptMessage> = None;
    for row in rows {
        let Some(role) = role_of(row) else { continue };
        let joined = before.is_some_and(|before| joins(row, before));
        match messages.last_mut() {
            Some(last) if joined && last.role == role => last.content.extend(blocks_of(row)),
            _ => messages.push(LogMessage {
                role: role.to_owned(),
                content: blocks_of(row),
            }),
        }
        before = Some(row);
    }
    messages
}
