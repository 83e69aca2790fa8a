//! Writing conversations: one line a session, what the model would be sent of it.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::super::fact::{Fact, Kept, RowFact, RowNo};
use super::super::target::writing;
use super::super::write::{Target, Writer};
use crate::{Result, TranscriptMediaRef, TranscriptMessage, TranscriptPart};

/// Members of a message that a row keeps in its metadata.
const NOTED: [&str; 5] = ["name", "reasoning_content", "refusal", "weight", "audio"];

/// Writes a line when the next session begins.
#[derive(Debug, Default)]
pub struct ChatWriter {
    name: Option<String>,
    model: Option<String>,
    tools: Option<Value>,
    rows: HashMap<RowNo, Value>,
    live: Vec<RowNo>,
}

impl ChatWriter {
    fn row(&mut self, no: RowNo, row: &RowFact) {
        self.rows.insert(no, message_of(&row.message));
        // In the place of what it says anew.
        let place = row
            .revises
            .and_then(|revised| self.live.iter().position(|live| *live == revised));
        match place.and_then(|at| self.live.get_mut(at)) {
            Some(live) => *live = no,
            None => self.live.push(no),
        }
    }

    fn end_session(&mut self, target: &mut dyn Target) -> Result<()> {
        let ended = std::mem::take(self);
        let Some(name) = ended.name else {
            return Ok(());
        };
        let rows = ended.live.iter().filter_map(|no| ended.rows.get(no));
        let mut line = Map::new();
        line.insert("messages".to_owned(), rows.cloned().collect());
        if let Some(tools) = ended.tools {
            line.insert("tools".to_owned(), tools);
        }
        if let Some(model) = ended.model {
            line.insert("model".to_owned(), model.into());
        }
        let out = target.file(&format!("{name}.jsonl"))?;
        writeln!(out, "{}", Value::Object(line)).map_err(writing)
    }
}

impl Writer for ChatWriter {
    fn write(&mut self, fact: Fact, target: &mut dyn Target) -> Result<()> {
        match fact {
            Fact::Session(_, session) => {
                self.end_session(target)?;
                self.name = Some(session.session.session_id());
                self.model = session.meta.model.filter(|model| !model.is_empty());
            }
            Fact::Row(no, row) => self.row(no, &row),
            Fact::Context(context) => {
                self.live.clear();
                for kept in context.rows {
                    match kept {
                        Kept::Row(no) => self.live.push(no),
                        Kept::New(no, row) => self.row(no, &row),
                    }
                }
            }
            Fact::Tools { tools, .. } => self.tools = Some(tools),
            _ => {}
        }
        Ok(())
    }

    fn shares_files(&self) -> bool {
        true
    }

    fn finish(&mut self, target: &mut dyn Target) -> Result<()> {
        self.end_session(target)
    }
}

/// A row in the shape that chat APIs share.
fn message_of(row: &TranscriptMessage) -> Value {
    let mut message = Map::new();
    message.insert("role".to_owned(), row.role.clone().into());
    let content = match &row.parts {
        Some(parts) => parts.iter().map(part_of).collect(),
        None if row.content.is_empty() && !row.tool_calls.is_empty() => Value::Null,
        None => Value::from(row.content.clone()),
    };
    message.insert("content".to_owned(), content);
    if !row.tool_calls.is_empty() {
        let calls = row.tool_calls.iter().map(|call| {
            json!({
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            })
        });
        message.insert("tool_calls".to_owned(), calls.collect());
    }
    if let Some(call) = &row.tool_call_id {
        message.insert("tool_call_id".to_owned(), call.clone().into());
    }
    for key in NOTED {
        let noted = row.extra_metadata.as_ref().and_then(|noted| noted.get(key));
        if let Some(value) = noted {
            message.insert(key.to_owned(), value.clone());
        }
    }
    Value::Object(message)
}

fn part_of(part: &TranscriptPart) -> Value {
    match part {
        TranscriptPart::Text { text } => json!({"type": "text", "text": text}),
        TranscriptPart::Image { url } => json!({"type": "image_url", "image_url": {"url": url}}),
        TranscriptPart::Audio { source, .. } => media("audio_url", source),
        TranscriptPart::Video { source, .. } => media("video_url", source),
        TranscriptPart::Document { source, .. } => media("file_url", source),
    }
}

fn media(kind: &str, source: &TranscriptMediaRef) -> Value {
    let url = match source {
        TranscriptMediaRef::Path { path } => path,
        TranscriptMediaRef::Url { url } => url,
    };
    json!({"type": kind, kind: {"url": url}})
}
