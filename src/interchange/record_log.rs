//! Record log: `<session>.jsonl`, and `<session>/subagents/agent-<id>.jsonl` for the runs of sub-agents.
//!
//! A compaction is a boundary record, a marker, and the whole new working set: summary, skills that are given again, and
//! a tail that repeats the last messages before. The tail is recognised as the rows that it repeats; the model is sent
//! what stands behind the last marker.

mod model;
mod recorder;
mod rows;
mod tail;
#[cfg(test)]
mod tests;
mod writing;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use self::tail::{Group, Said, Step};
use super::blocks::rows_of;
use super::codec::{Certainty, Codec, Probe};
use super::emit::Emit;
use super::fact::{
    CallFact, CallId, ContextFact, ContextReason, Kept, Place, RepeatKey, RowFact, RowNo,
    SessionFact, SessionNo,
};
use super::source::{Record, Source};
use super::stamp::{self, Span};
use super::write::Writer;
use crate::{Result, SessionRef, TranscriptMessage, TranscriptMeta, TurnUsage};

pub use model::{
    Block, BoundaryMeta, LogMessage, LogRecord, LogUsage, last_uuid, load, messages, trim, view,
};
pub use recorder::{Recorder, new_agent_id, new_session_id};

/// The codec.
#[derive(Debug, Clone, Copy)]
pub struct RecordLog;

const NAME: &str = "record-log";

impl Codec for RecordLog {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> u32 {
        1
    }

    fn detect(&self, probe: &Probe<'_>) -> Option<Certainty> {
        let own = |record: &Map<String, Value>| {
            let kind = record.get("type").and_then(Value::as_str);
            matches!(kind, Some("message" | "boundary")) && record.contains_key("session_id")
        };
        if probe.records().iter().any(own) {
            return Some(Certainty::Sure);
        }
        let cut = probe.records().is_empty()
            && probe.holds("\"session_id\":")
            && (probe.holds("\"type\":\"message\"") || probe.holds("\"type\":\"boundary\""));
        cut.then_some(Certainty::Likely)
    }

    /// Sub-agents come behind the sessions, so that a parent is there before its children.
    fn arrange(&self, _: &Path, mut files: Vec<PathBuf>) -> Vec<PathBuf> {
        files.sort_by_key(|file| {
            let folder = file.parent().and_then(Path::file_name);
            folder.is_some_and(|name| name == "subagents")
        });
        files
    }

    fn read(&self, source: &mut Source<'_>, emit: &mut Emit<'_>) -> Result<()> {
        let mut reader = Reader::new(source);
        while let Some(record) = source.next(owns)? {
            reader.line(source, record, emit)?;
        }
        reader.finish(emit)
    }

    fn writer(&self) -> Option<Box<dyn Writer>> {
        Some(Box::<writing::LogWriter>::default())
    }
}

fn owns(value: &Map<String, Value>) -> bool {
    value.contains_key("uuid")
        && value.get("type").is_some_and(Value::is_string)
        && (value.contains_key("message") || value.contains_key("boundary"))
}

/// A boundary record whose marker is still to come.
struct Boundary {
    metadata: Option<Value>,
    uuid: Option<uuid::Uuid>,
}

/// A session that the file tells of.
struct State {
    no: SessionNo,
    fact: SessionFact,
    span: Span,
    boundary: Option<Boundary>,
    /// What was said since the last marker.
    said: Vec<Said>,
    /// A compaction whose working set is still being told.
    group: Option<Group<Message>>,
}

/// A message on its way.
struct Message {
    messages: Vec<TranscriptMessage>,
    usage: Option<Value>,
    uuid: Option<uuid::Uuid>,
    ts: String,
    place: Place,
    key: RepeatKey,
    lossy: bool,
}

struct Reader {
    file_session: String,
    file_agent: Option<String>,
    states: Vec<State>,
    by_session: HashMap<SessionRef, usize>,
}

impl Reader {
    fn new(source: &Source<'_>) -> Self {
        let stem = source.stem();
        let below = source.folder_name(0) == Some("subagents");
        let agent = stem.strip_prefix("agent-").filter(|_| below);
        let folder = source.folder_name(1).filter(|_| agent.is_some());
        Self {
            file_agent: agent.map(str::to_owned),
            file_session: folder.map_or_else(|| stem.clone(), str::to_owned),
            states: Vec::new(),
            by_session: HashMap::new(),
        }
    }

    fn line(
        &mut self,
        source: &mut Source<'_>,
        mut record: Record,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        if record.text("type") == Some("boundary") {
            if !record.value.get("boundary").is_some_and(Value::is_object) {
                source.misfit(&record);
                return Ok(());
            }
            let at = self.session(&record, emit)?;
            let boundary = Boundary {
                metadata: record.value.remove("boundary"),
                uuid: record.text("uuid").and_then(stamp::uuid),
            };
            if let Some(state) = self.states.get_mut(at) {
                settle(state, emit)?;
                state.boundary = Some(boundary);
            }
            return Ok(());
        }
        let Some(Value::Object(mut message)) = record.value.remove("message") else {
            source.misfit(&record);
            return Ok(());
        };
        let at = self.session(&record, emit)?;
        let Some(state) = self.states.get_mut(at) else {
            return Ok(());
        };
        let key = source.key(&record, record.text("uuid"));
        let ts = stamp::rfc3339(record.text("timestamp").unwrap_or_default());
        state.span.note(&ts);
        let content = message.remove("content").unwrap_or(Value::Null);
        if let Some(metadata) = marker(&content) {
            settle(state, emit)?;
            let before = state.boundary.take();
            let (told, uuid) = match before {
                Some(boundary) => (boundary.metadata, boundary.uuid),
                None => (None, None),
            };
            let said = std::mem::take(&mut state.said);
            let uuid = uuid.or_else(|| record.text("uuid").and_then(stamp::uuid));
            state.group = Some(Group::new(
                said,
                told.or(Some(metadata).filter(|it| !it.is_null())),
                uuid,
                ts,
                record.place,
                key,
            ));
            return Ok(());
        }
        let role = match message.get("role").and_then(Value::as_str) {
            Some(role) if !role.is_empty() => role.to_owned(),
            _ => "user".to_owned(),
        };
        let hash = tail::hash(&role, &content);
        let kind = tail::kind(&role, &content);
        let mut messages = rows_of(&role, content);
        for row in messages.iter_mut().skip(1) {
            rows::continues(row);
        }
        let message = Message {
            messages,
            usage: record.value.remove("usage").filter(Value::is_object),
            uuid: record.text("uuid").and_then(stamp::uuid),
            ts,
            place: record.place,
            key,
            lossy: record.lossy,
        };
        match state.group.take() {
            None => said(state, message, hash, emit),
            Some(mut group) => match group.take(message, hash, kind) {
                Step::More => {
                    state.group = Some(group);
                    Ok(())
                }
                Step::Done => {
                    state.group = Some(group);
                    settle(state, emit)
                }
            },
        }
    }

    /// The state of the session that a record is of.
    fn session(&mut self, record: &Record, emit: &mut Emit<'_>) -> Result<usize> {
        let own = |key: &str| record.text(key).filter(|id| !id.is_empty());
        let key = own("session_id").unwrap_or(&self.file_session).to_owned();
        let root = SessionRef::root(key.as_str());
        let agent = own("agent_id").or(self.file_agent.as_deref());
        let session = match agent {
            Some(agent) => SessionRef::child_of(&root, agent),
            None => root,
        };
        if let Some(at) = self.by_session.get(&session) {
            return Ok(*at);
        }
        // The format names neither tools nor models.
        let mut meta = TranscriptMeta::new(NAME)
            .with_thread_id(&key)
            .with_dispatcher(NAME)
            .with_created("")
            .with_updated("");
        if let Some(agent) = agent {
            meta = meta.with_agent_id(agent);
        }
        let fact = SessionFact::new(session.clone(), meta);
        let no = emit.session(fact.clone())?;
        self.states.push(State {
            no,
            fact,
            span: Span::default(),
            boundary: None,
            said: Vec::new(),
            group: None,
        });
        let at = self.states.len() - 1;
        self.by_session.insert(session, at);
        Ok(at)
    }

    fn finish(self, emit: &mut Emit<'_>) -> Result<()> {
        for mut state in self.states {
            settle(&mut state, emit)?;
            state.fact.meta.created = state.span.first;
            state.fact.meta.updated = state.span.last;
            emit.header(state.no, state.fact)?;
        }
        Ok(())
    }
}

/// What is known of the compaction that a message marks; None if it is another message.
fn marker(content: &Value) -> Option<Value> {
    let [block] = content.as_array()?.as_slice() else {
        return None;
    };
    if block.get("type").and_then(Value::as_str) != Some("compact_boundary") {
        return None;
    }
    Some(match block.get("input") {
        // The first writers gave the size alone.
        Some(Value::Number(size)) => serde_json::json!({ "pre_tokens": size }),
        Some(Value::Object(metadata)) => Value::Object(metadata.clone()),
        _ => Value::Null,
    })
}

/// Tells of a message that is none of a working set.
fn said(state: &mut State, message: Message, hash: [u8; 16], emit: &mut Emit<'_>) -> Result<()> {
    let no = state.no;
    let (rows, usage) = facts(no, message);
    let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    let mut first = None;
    for row in rows {
        let told = emit.row(row)?;
        first = first.or(Some(told));
    }
    if let Some(row) = first {
        state.said.push(Said { hash, row, count });
        call(no, row, usage, emit)?;
    }
    Ok(())
}

/// Tells of the compaction whose working set is complete, and of the messages that turned out to be none of it.
fn settle(state: &mut State, emit: &mut Emit<'_>) -> Result<()> {
    let Some(group) = state.group.take() else {
        return Ok(());
    };
    let done = group.finish();
    let mut rows = Vec::new();
    let mut calls = Vec::new();
    for (message, hash) in done.fresh {
        let (facts, usage) = facts(state.no, message);
        let count = u32::try_from(facts.len()).unwrap_or(u32::MAX);
        let mut first = None;
        for fact in facts {
            let (no, kept) = emit.new_row(fact);
            first = first.or(Some(no));
            rows.push(kept);
        }
        if let Some(row) = first {
            state.said.push(Said { hash, row, count });
            calls.push((row, usage));
        }
    }
    for copy in done.copies {
        let last = copy.row.0.saturating_add(u64::from(copy.count));
        rows.extend((copy.row.0..last).map(|no| Kept::Row(RowNo(no))));
        state.said.push(copy);
    }
    emit.context(ContextFact {
        session: state.no,
        reason: ContextReason::Compaction,
        rows,
        metadata: done.metadata,
        ts: done.ts,
        uuid: done.uuid,
        place: done.place,
        key: done.key,
    })?;
    for (row, usage) in calls {
        call(state.no, row, usage, emit)?;
    }
    for (message, hash) in done.births {
        said(state, message, hash, emit)?;
    }
    Ok(())
}

/// The rows of a message. Usage of an answer stands on its row; any other is a call of its own.
fn facts(session: SessionNo, message: Message) -> (Vec<RowFact>, Option<CallFact>) {
    let mut messages = message.messages;
    let mut call = None;
    let mut on_row = 0;
    let usage = message.usage.as_ref();
    let usage = usage.and_then(|usage| rows::usage_of(usage, &message.ts));
    if let (Some((usage, cache_write)), Some(first)) = (usage, messages.first_mut()) {
        if first.role == "assistant" {
            if let Some(original) = message.usage {
                super::blocks::note(first, rows::USAGE, original);
            }
            first.turn_usage = Some(usage);
            on_row = cache_write;
        } else {
            call = Some(call_of(
                session,
                usage,
                cache_write,
                message.usage,
                message.place,
                message.key,
            ));
        }
    }
    let facts = (0..).zip(messages).map(|(part, row)| RowFact {
        session,
        message: row,
        uuid: message.uuid.filter(|_| part == 0),
        ts: message.ts.clone(),
        iteration: None,
        place: message.place.part(part),
        key: message.key,
        revises: None,
        cache_write: if part == 0 { on_row } else { 0 },
        lossy: message.lossy,
    });
    (facts.collect(), call)
}

fn call_of(
    session: SessionNo,
    usage: TurnUsage,
    cache_write: u64,
    original: Option<Value>,
    place: Place,
    key: RepeatKey,
) -> CallFact {
    CallFact {
        session,
        row: None,
        id: CallId::Record(key),
        usage,
        cache_write,
        original,
        place,
    }
}

fn call(session: SessionNo, row: RowNo, call: Option<CallFact>, emit: &mut Emit<'_>) -> Result<()> {
    match call {
        Some(call) => emit.call(CallFact {
            session,
            row: Some(row),
            ..call
        }),
        None => Ok(()),
    }
}
