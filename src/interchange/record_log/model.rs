//! The data of a record log, as its programs have it in memory, and its spelling.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::{Error, Result};

/// One line.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LogRecord {
    /// Its id: 32 hex digits.
    pub uuid: String,
    /// The record that the same writer wrote before; empty on its first.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parent_uuid: String,
    /// The top-level session, in the files of sub-agents too.
    pub session_id: String,
    /// The run of the sub-agent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub agent_id: String,
    /// Whether it stands in the file of a sub-agent.
    #[serde(skip_serializing_if = "is_false")]
    pub is_sidechain: bool,
    /// When it was written, RFC 3339 in UTC.
    pub timestamp: String,
    /// `message` or `boundary`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<LogMessage>,
    /// What the turn used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<LogUsage>,
    /// What is known of a compaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boundary: Option<BoundaryMeta>,
}

/// A message: what a user or an assistant said, in blocks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LogMessage {
    /// `user` or `assistant`; results of tools are a user's.
    pub role: String,
    /// The blocks.
    #[serde(deserialize_with = "or_default")]
    pub content: Vec<Block>,
}

/// A block of a message. What its kind does not use is empty.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Block {
    /// `text`, `thinking`, `tool_use`, `tool_result` or `compact_boundary`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// What was reasoned. The first writers had it in `text`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub thinking: String,
    /// The provider's signature of that.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub signature: String,
    /// The id of a call.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The tool that is called.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The arguments of a call, or what is known of a compaction, as they are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Box<RawValue>>,
    /// The call that a result is of.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tool_use_id: String,
    /// A result.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub content: Vec<Block>,
    /// Whether the call failed.
    #[serde(skip_serializing_if = "is_false")]
    pub is_error: bool,
}

/// Tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogUsage {
    /// Input, with what was read from the cache and written to it.
    pub input_tokens: u64,
    /// Output.
    pub output_tokens: u64,
    /// Input that came from the cache.
    pub cache_read_tokens: u64,
    /// Input that was written to the cache.
    pub cache_write_tokens: u64,
}

/// What is known of a compaction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BoundaryMeta {
    /// `auto`, `reactive` or `manual`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub trigger: String,
    /// The size of the model's view before it.
    pub pre_tokens: i64,
    /// How many messages the summary stands for.
    #[serde(skip_serializing_if = "is_zero")]
    pub messages_summarized: i64,
    /// Skills whose instructions were given again.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub active_skills: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> std::result::Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

impl LogMessage {
    /// A message of one text.
    #[must_use]
    pub fn text(role: &str, text: impl Into<String>) -> Self {
        Self {
            role: role.to_owned(),
            content: vec![Block::text(text)],
        }
    }

    /// The marker of a compaction.
    #[must_use]
    pub fn marker(meta: &BoundaryMeta) -> Self {
        Self {
            role: "user".to_owned(),
            content: vec![Block {
                kind: "compact_boundary".to_owned(),
                input: serde_json::value::to_raw_value(meta).ok(),
                ..Block::default()
            }],
        }
    }

    /// Whether it is the marker of a compaction: exactly one block, which says so.
    #[must_use]
    pub fn is_marker(&self) -> bool {
        matches!(&self.content[..], [block] if block.kind == "compact_boundary")
    }

    fn has_calls(&self) -> bool {
        self.content.iter().any(|block| block.kind == "tool_use")
    }
}

impl Block {
    /// A text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            kind: "text".to_owned(),
            text: text.into(),
            ..Self::default()
        }
    }
}

impl LogUsage {
    /// Whether nothing was used.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// Adds another, field by field.
    pub fn add(&mut self, other: &Self) {
        for (to, from) in [
            (&mut self.input_tokens, other.input_tokens),
            (&mut self.output_tokens, other.output_tokens),
            (&mut self.cache_read_tokens, other.cache_read_tokens),
            (&mut self.cache_write_tokens, other.cache_write_tokens),
        ] {
            *to = to.saturating_add(from);
        }
    }
}

impl LogRecord {
    /// The line of it, without its end: compact JSON, with `<`, `>`, `&`, U+2028 and U+2029 escaped.
    ///
    /// # Errors
    ///
    /// None that a record of this type can have; it is the encoder's signature.
    pub fn to_line(&self) -> Result<String> {
        let plain = serde_json::to_string(self).map_err(Error::other)?;
        Ok(escape(&plain))
    }
}

/// Escapes what the format escapes. All of it stands in strings only.
pub(super) fn escape(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            other => out.push(other),
        }
    }
    out
}

/// JSON without the white space between its parts; None if it is no JSON.
pub(super) fn compact(json: &str) -> Option<Box<RawValue>> {
    let raw: &RawValue = serde_json::from_str(json).ok()?;
    let mut out = String::with_capacity(json.len());
    let (mut text, mut escaped) = (false, false);
    for letter in raw.get().chars() {
        if text || !letter.is_ascii_whitespace() {
            out.push(letter);
        }
        match letter {
            '"' if !escaped => text = !text,
            '\\' if text && !escaped => {
                escaped = true;
                continue;
            }
            _ => {}
        }
        escaped = false;
    }
    RawValue::from_string(out).ok()
}

/// The records of a file, as strictly as the programs that write it read it: one damaged line refuses the whole.
///
/// # Errors
///
/// [`Error::Corrupted`] with the number of the first line that does not decode.
pub fn load(bytes: &[u8]) -> Result<Vec<LogRecord>> {
    let mut records = Vec::new();
    for (number, line) in (1_u64..).zip(bytes.split(|byte| *byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let record: Option<LogRecord> =
            serde_json::from_slice(line).map_err(|_| Error::Corrupted {
                what: "record log".to_owned(),
                at: format!("line {number}"),
            })?;
        records.push(record.unwrap_or_default());
    }
    Ok(records)
}

/// All messages in the order of the file, and the sum of all usage.
#[must_use]
pub fn messages(records: &[LogRecord]) -> (Vec<LogMessage>, LogUsage) {
    let mut messages = Vec::new();
    let mut sum = LogUsage::default();
    for record in records.iter().filter(|record| record.kind != "boundary") {
        if let Some(message) = &record.message {
            messages.push(message.clone());
        }
        if let Some(usage) = &record.usage {
            sum.add(usage);
        }
    }
    (messages, sum)
}

/// The id of the last record, of whatever type; empty if there is none.
#[must_use]
pub fn last_uuid(records: &[LogRecord]) -> &str {
    records
        .last()
        .map(|record| record.uuid.as_str())
        .unwrap_or_default()
}

/// What the model is sent: the messages behind the last marker, without calls that have no result there and results
/// that have no call. Messages that are left without blocks are dropped.
#[must_use]
pub fn view(messages: &[LogMessage]) -> Vec<LogMessage> {
    let from = messages.iter().rposition(LogMessage::is_marker);
    let live = messages.get(from.unwrap_or(0)..).unwrap_or_default();
    let live: Vec<&LogMessage> = live.iter().filter(|it| !it.is_marker()).collect();
    let ids = |kind: &str, id: fn(&Block) -> &str| -> std::collections::HashSet<&str> {
        let blocks = live.iter().flat_map(|message| &message.content);
        blocks.filter(|block| block.kind == kind).map(id).collect()
    };
    let calls = ids("tool_use", |block| &block.id);
    let results = ids("tool_result", |block| &block.tool_use_id);
    let paired = |block: &Block| match block.kind.as_str() {
        "tool_use" => results.contains(block.id.as_str()),
        "tool_result" => calls.contains(block.tool_use_id.as_str()),
        _ => true,
    };
    let kept = live.into_iter().map(|message| LogMessage {
        role: message.role.clone(),
        content: message
            .content
            .iter()
            .filter(|it| paired(it))
            .cloned()
            .collect(),
    });
    kept.filter(|message| !message.content.is_empty()).collect()
}

/// Drops assistant messages with calls from the end: a crash came between the calls and their results.
pub fn trim(messages: &mut Vec<LogMessage>) {
    while messages
        .last()
        .is_some_and(|last| last.role == "assistant" && last.has_calls())
    {
        messages.pop();
    }
}
