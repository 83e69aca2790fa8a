//! Facts → the document of a run.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::model::{Compaction, SCHEMA_VERSION, Trajectory};
use crate::interchange::fact::{ContextFact, ContextReason, Fact, Kept, RowFact, RowNo};
use crate::interchange::write::{Target, UsageKept, Writer, plain_name};
use crate::{Error, Result, TranscriptMessage};

/// Writes each session as a document of its own.
#[derive(Default)]
pub(super) struct RunWriter {
    name: Option<String>,
    /// The document as it was imported.
    bytes: Option<Vec<u8>>,
    run: Trajectory,
    /// Whether there is more than the original says.
    changed: bool,
    /// Whether the original reads too badly for anything to be added to it.
    fixed: bool,
    /// The messages that rows are.
    index: HashMap<RowNo, i64>,
}

impl RunWriter {
    fn close(&mut self, target: &mut dyn Target) -> Result<()> {
        let Some(name) = self.name.take() else {
            return Ok(());
        };
        let done = std::mem::take(self);
        if done.fixed && done.changed {
            return Err(Error::Conflict {
                stem: name,
                reason: "its checkpoint is damaged, so that no row can be added to it".to_owned(),
            });
        }
        let file = target.file(&name)?;
        match done.bytes {
            Some(bytes) if !done.changed => file.write_all(&bytes),
            _ => {
                let mut text = done.run.to_json()?;
                text.push('\n');
                file.write_all(text.as_bytes())
            }
        }
        .map_err(failed)
    }

    /// Adds what a row costs to the totals of the run.
    fn count(&mut self, row: &RowFact) {
        let usage = row.message.turn_usage.as_ref();
        let Some(usage) = usage.filter(|_| row.revises.is_none()) else {
            return;
        };
        let add = |sum: &mut i64, count: u64| {
            *sum = sum.saturating_add(i64::try_from(count).unwrap_or(i64::MAX));
        };
        let run = &mut self.run;
        add(&mut run.input_tokens, usage.usage.input);
        add(&mut run.output_tokens, usage.usage.output);
        add(&mut run.cache_read_tokens, usage.usage.cached_input);
        add(&mut run.cache_write_tokens, row.cache_write);
        run.cost += usage.usage.cost_usd;
    }

    fn row(&mut self, no: RowNo, row: &RowFact) -> Result<()> {
        self.changed = true;
        self.count(row);
        if row.message.role == "assistant" {
            self.run.steps = self.run.steps.saturating_add(1);
        }
        if self.run.task.is_empty() && row.message.role == "user" {
            self.run.task.clone_from(&row.message.content);
        }
        let message = Value::Object(message_of(&row.message));
        let raw = serde_json::value::to_raw_value(&message).map_err(Error::other)?;
        let messages = self.run.messages.get_or_insert_default();
        self.index.insert(no, at(messages.len()));
        messages.push(raw);
        Ok(())
    }

    fn context(&mut self, context: ContextFact) {
        self.changed = true;
        let mut compaction = Compaction {
            step: self.run.steps,
            reason: "proactive".to_owned(),
            stage: "summarize".to_owned(),
            ..Compaction::default()
        };
        let mut view = Vec::new();
        for kept in context.rows {
            match kept {
                Kept::Row(no) => view.extend(self.index.get(&no)),
                Kept::New(no, row) => {
                    self.count(&row);
                    if !compaction.summary.is_empty() {
                        compaction.summary.push_str("\n\n");
                    }
                    compaction.summary.push_str(&row.message.content);
                    self.index.insert(no, -1);
                    if !view.contains(&-1) {
                        view.push(-1);
                    }
                }
            }
        }
        if context.reason == ContextReason::Compaction || !view.is_empty() {
            compaction.view = Some(view);
            self.run.compactions.push(compaction);
        }
    }
}

impl Writer for RunWriter {
    fn write(&mut self, fact: Fact, target: &mut dyn Target) -> Result<()> {
        match fact {
            Fact::Session(_, session) => {
                self.close(target)?;
                let key = session.session.session_key.clone();
                let plain = session.session.agent_id.is_none() && !session.session.is_subagent();
                let name = if plain {
                    key
                } else {
                    session.session.base_stem()
                };
                plain_name(&name)?;
                self.name = Some(format!("{name}.json"));
                self.run.model = session.meta.model.unwrap_or_default();
                self.run.schema_version = SCHEMA_VERSION;
            }
            Fact::Row(no, row) => self.row(no, &row)?,
            Fact::Context(context) => self.context(*context),
            _ => {}
        }
        Ok(())
    }

    fn usage_kept(&self) -> UsageKept {
        UsageKept::Whole
    }

    fn takes_originals(&self) -> bool {
        true
    }

    fn original(&mut self, bytes: &mut dyn Read, _: &mut dyn Target) -> Result<bool> {
        let mut whole = Vec::new();
        bytes.read_to_end(&mut whole).map_err(failed)?;
        // A document that does not read strictly can be given back, but nothing can be added to it.
        match Trajectory::parse(&whole) {
            Ok(run) => self.run = run,
            Err(_) => self.fixed = true,
        }
        self.bytes = Some(whole);
        Ok(true)
    }

    fn known(&mut self, fact: Fact) {
        // Rows of one message stand together; the first of each new one is the next message.
        if let Fact::Row(no, _) = fact {
            let next = at(self.index.len());
            self.index.insert(no, next);
        }
    }

    fn finish(&mut self, target: &mut dyn Target) -> Result<()> {
        self.close(target)
    }
}

fn at(index: usize) -> i64 {
    i64::try_from(index).unwrap_or(i64::MAX)
}

/// A message as the format is taken to have it: with flat calls.
fn message_of(row: &TranscriptMessage) -> Map<String, Value> {
    let mut message = Map::new();
    message.insert("role".to_owned(), row.role.as_str().into());
    message.insert("content".to_owned(), row.content.as_str().into());
    if !row.tool_calls.is_empty() {
        let calls = row.tool_calls.iter().map(|call| {
            serde_json::json!({"id": call.id, "name": call.name, "arguments": call.arguments})
        });
        message.insert("tool_calls".to_owned(), calls.collect());
    }
    if let Some(id) = &row.tool_call_id {
        message.insert("tool_call_id".to_owned(), id.as_str().into());
    }
    let metadata = row.extra_metadata.as_ref();
    if let Some(reasoning) = metadata.and_then(|it| it.get("reasoning_content")) {
        message.insert("reasoning_content".to_owned(), reasoning.clone());
    }
    message
}

fn failed(error: io::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => Error::Io {
            what: "writing an export".to_owned(),
            source: Arc::new(error),
        },
    }
}
