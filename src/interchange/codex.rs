//! Codex: rollouts, `rollout-<time>-<thread>.jsonl`.
//!
//! What the model saw and said (`response_item`) is rows; what the screen showed (`event_msg`) repeats it and is not.
//! A `compacted` line replaces the context by its history, whose items are the rows that they repeat where there are
//! such. Tokens are the increases of a running total, known by the family of forks and the total itself, so that what a
//! fork inherits is not spent again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::blocks::{note, take_text, to_text};
use super::codec::{Certainty, Codec, Probe};
use super::emit::Emit;
use super::fact::{
    CallFact, CallId, ContextFact, ContextReason, Kept, Place, RepeatKey, RowFact, RowNo,
    SessionFact, SessionNo,
};
use super::openai;
use super::source::{Record, Source};
use super::stamp::{self, Span};
use crate::{
    MessageUsage, Result, SessionRef, ToolFailure, TranscriptMessage, TranscriptMeta,
    TranscriptToolCall, TurnUsage,
};

mod tokens;

use tokens::Running;

/// The codec.
#[derive(Debug, Clone, Copy)]
pub struct Codex;

const NAME: &str = "codex";

impl Codec for Codex {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> u32 {
        1
    }

    fn detect(&self, probe: &Probe<'_>) -> Option<Certainty> {
        let enveloped = |record: &Map<String, Value>| {
            record.contains_key("payload") && record.contains_key("type")
        };
        if probe.records().iter().any(enveloped) {
            return Some(Certainty::Sure);
        }
        let first = probe.records().first();
        let legacy = first.is_some_and(|first| {
            first.contains_key("instructions")
                && first.contains_key("id")
                && first.contains_key("timestamp")
        });
        if legacy
            || probe
                .records()
                .iter()
                .any(|record| record.contains_key("record_type"))
        {
            return Some(Certainty::Likely);
        }
        let named = probe.file_name().starts_with("rollout-");
        (named && !probe.head().is_empty()).then_some(Certainty::Maybe)
    }

    /// Names begin with the time, so a fork comes behind what it forks from.
    fn arrange(&self, _: &Path, mut files: Vec<PathBuf>) -> Vec<PathBuf> {
        files.sort_by_key(|file| file.file_name().map(ToOwned::to_owned));
        files
    }

    fn read(&self, source: &mut Source<'_>, emit: &mut Emit<'_>) -> Result<()> {
        let mut reader = Reader::new(&source.stem());
        while let Some(record) = source.next(owns)? {
            reader.line(source, record, emit)?;
        }
        reader.finish(emit)
    }
}

fn owns(value: &Map<String, Value>) -> bool {
    let has = |key: &str| value.contains_key(key);
    has("payload") && has("type") || has("record_type") || (has("type") && has("role"))
}

/// A row of the context.
#[derive(Clone, Copy)]
struct Entry {
    row: RowNo,
    /// What it says, to know it again.
    said: RepeatKey,
    /// Whether a person asked it: a turn begins here.
    prompt: bool,
}

struct Reader {
    /// The id in the file's name, for files that do not say theirs.
    id: String,
    /// What the first header says; the others are those of what it forked from.
    meta: Option<Map<String, Value>>,
    /// Whom each thread forked from.
    forks: HashMap<String, String>,
    open: Option<(SessionNo, SessionFact)>,
    span: Span,
    model: String,
    context_window: u64,
    turn: Option<String>,
    live: Vec<Entry>,
    running: Running,
    calls: Vec<Spent>,
}

/// A call, before it is known which family of forks it belongs to.
struct Spent {
    key: String,
    row: Option<RowNo>,
    usage: TurnUsage,
    original: Value,
    place: Place,
}

impl Reader {
    fn new(stem: &str) -> Self {
        // `rollout-<time>-<uuid>`
        let id = stem
            .len()
            .checked_sub(36)
            .and_then(|at| stem.get(at..))
            .filter(|id| stamp::uuid(id).is_some());
        Self {
            id: id.unwrap_or(stem).to_owned(),
            meta: None,
            forks: HashMap::new(),
            open: None,
            span: Span::default(),
            model: String::new(),
            context_window: 0,
            turn: None,
            live: Vec::new(),
            running: Running::default(),
            calls: Vec::new(),
        }
    }

    fn line(
        &mut self,
        source: &mut Source<'_>,
        mut record: Record,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let ts = record
            .text("timestamp")
            .or_else(|| record.text("created_at"));
        let ts = stamp::rfc3339(ts.unwrap_or_default());
        self.span.note(&ts);
        let kind = record.owned("type");
        let (kind, payload) = match record.value.remove("payload") {
            Some(Value::Object(payload)) => (kind, payload),
            Some(_) => {
                source.misfit(&record);
                return Ok(());
            }
            // Before there was an envelope, the line was the item, and the first one the header.
            None => {
                let whole = std::mem::take(&mut record.value);
                if whole.contains_key("instructions") && !whole.contains_key("type") {
                    ("session_meta".to_owned(), whole)
                } else if whole.contains_key("type") || whole.contains_key("role") {
                    ("response_item".to_owned(), whole)
                } else if whole.contains_key("record_type") {
                    return Ok(());
                } else {
                    source.misfit(&record);
                    return Ok(());
                }
            }
        };
        match kind.as_str() {
            "session_meta" => self.header(payload),
            "turn_context" => self.turn_context(&payload),
            "response_item" => {
                let place = (record.place, source.key(&record, None));
                if let Some(message) = item(payload, &record) {
                    let row = self.row(message, &ts, place, record.lossy, emit)?;
                    let no = emit.row(row.1)?;
                    self.live.push(Entry { row: no, ..row.0 });
                }
            }
            "event_msg" => self.event(source, &record, payload, &ts, emit)?,
            "compacted" => self.compacted(source, &record, payload, &ts, emit)?,
            _ => {}
        }
        Ok(())
    }

    fn header(&mut self, payload: Map<String, Value>) {
        let text = |key: &str| payload.get(key).and_then(Value::as_str);
        if let (Some(id), Some(from)) = (text("id"), text("forked_from_id")) {
            self.forks
                .entry(id.to_owned())
                .or_insert_with(|| from.to_owned());
        }
        if self.meta.is_none() {
            self.meta = Some(payload);
        }
    }

    fn turn_context(&mut self, payload: &Map<String, Value>) {
        if let Some(model) = payload.get("model").and_then(Value::as_str) {
            model.clone_into(&mut self.model);
        }
        self.set_turn(payload);
    }

    fn set_turn(&mut self, payload: &Map<String, Value>) {
        if let Some(turn) = payload.get("turn_id").and_then(Value::as_str) {
            self.turn = Some(turn.to_owned());
        }
    }

    fn event(
        &mut self,
        source: &Source<'_>,
        record: &Record,
        mut payload: Map<String, Value>,
        ts: &str,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        match payload
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
        {
            "task_started" | "turn_started" => self.set_turn(&payload),
            "token_count" => {
                if let Some(Value::Object(info)) = payload.remove("info") {
                    self.tokens(record, info, ts);
                }
            }
            "thread_rolled_back" => {
                let turns = payload
                    .get("num_turns")
                    .and_then(Value::as_u64)
                    .unwrap_or_default();
                self.roll_back(source, record, turns, ts, emit)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn tokens(&mut self, record: &Record, mut info: Map<String, Value>, ts: &str) {
        if let Some(window) = info.get("model_context_window").and_then(Value::as_u64) {
            self.context_window = window;
        }
        let Some(total) = info.remove("total_token_usage") else {
            return;
        };
        let Some((key, spent)) = self.running.next(&total) else {
            return;
        };
        self.calls.push(Spent {
            key,
            row: self.live.last().map(|entry| entry.row),
            usage: TurnUsage {
                provider: self.provider(),
                model: self.model.clone(),
                usage: MessageUsage {
                    input: spent.input,
                    output: spent.output,
                    cached_input: spent.cached,
                    context_window: self.context_window,
                    last_call_input: spent.input,
                    last_call_output: spent.output,
                    ..MessageUsage::default()
                },
                ts: ts.to_owned(),
                ..TurnUsage::default()
            },
            original: total,
            place: record.place,
        });
    }

    fn provider(&self) -> String {
        let meta = self.meta.as_ref();
        let named = meta.and_then(|meta| meta.get("model_provider")?.as_str());
        named.unwrap_or("openai").to_owned()
    }

    /// Takes the last turns out of the context.
    fn roll_back(
        &mut self,
        source: &Source<'_>,
        record: &Record,
        turns: u64,
        ts: &str,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let turns = usize::try_from(turns).unwrap_or(usize::MAX);
        let prompts = self.live.iter().rposition_of_prompt(turns);
        let Some(at) = prompts else { return Ok(()) };
        self.live.truncate(at);
        let rows = self.live.iter().map(|entry| Kept::Row(entry.row)).collect();
        let session = self.session(emit)?;
        emit.context(ContextFact {
            session,
            reason: ContextReason::Rewind,
            rows,
            metadata: None,
            ts: ts.to_owned(),
            uuid: None,
            place: record.place,
            key: source.key(record, None),
        })
    }

    fn compacted(
        &mut self,
        source: &Source<'_>,
        record: &Record,
        mut payload: Map<String, Value>,
        ts: &str,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let session = self.session(emit)?;
        let key = source.key(record, None);
        let summary = take_text(&mut payload, "message");
        let history = match payload.remove("replacement_history") {
            Some(Value::Array(items)) => items
                .into_iter()
                .filter_map(|entry| match entry {
                    Value::Object(entry) => item(entry, record),
                    _ => None,
                })
                .collect(),
            // Older versions say no more than the summary.
            _ => vec![TranscriptMessage::user(summary)],
        };
        // Rows that were in the context, by what they say, the earliest last.
        let mut known: HashMap<RepeatKey, Vec<RowNo>> = HashMap::new();
        for entry in self.live.iter().rev() {
            known.entry(entry.said).or_default().push(entry.row);
        }
        let mut rows = Vec::new();
        let mut live = Vec::new();
        for (part, message) in (1..).zip(history) {
            let place = (record.place.part(part), key);
            let (entry, fact) = self.row(message, ts, place, record.lossy, emit)?;
            let (no, kept) = match known.get_mut(&entry.said).and_then(Vec::pop) {
                Some(no) => (no, Kept::Row(no)),
                None => emit.new_row(fact),
            };
            rows.push(kept);
            live.push(Entry { row: no, ..entry });
        }
        self.live = live;
        let metadata = (!payload.is_empty()).then_some(Value::Object(payload));
        emit.context(ContextFact {
            session,
            reason: ContextReason::Compaction,
            rows,
            metadata,
            ts: ts.to_owned(),
            uuid: None,
            place: record.place,
            key,
        })
    }

    /// A row of the session, not told yet; its number is still to be set.
    fn row(
        &mut self,
        mut message: TranscriptMessage,
        ts: &str,
        (place, key): (Place, RepeatKey),
        lossy: bool,
        emit: &mut Emit<'_>,
    ) -> Result<(Entry, RowFact)> {
        let session = self.session(emit)?;
        let prompt = message.role == "user" && !is_injected(&message.content);
        if message.role == "user" && !prompt {
            note(&mut message, "injected", true);
        }
        let entry = Entry {
            row: RowNo(0),
            said: said(&message),
            prompt,
        };
        message.request_id.clone_from(&self.turn);
        let fact = RowFact {
            session,
            message,
            uuid: None,
            ts: ts.to_owned(),
            iteration: None,
            place,
            key,
            revises: None,
            cache_write: 0,
            lossy,
        };
        Ok((entry, fact))
    }

    /// The session of the file, which begins with the first thing that is told of it.
    fn session(&mut self, emit: &mut Emit<'_>) -> Result<SessionNo> {
        if let Some((no, _)) = &self.open {
            return Ok(*no);
        }
        let fact = self.describe();
        let no = emit.session(fact.clone())?;
        self.open = Some((no, fact));
        Ok(no)
    }

    fn describe(&self) -> SessionFact {
        let empty = Map::new();
        let header = self.meta.as_ref().unwrap_or(&empty);
        let text = |key: &str| {
            let text = header.get(key).and_then(Value::as_str);
            text.filter(|text| !text.is_empty())
        };
        let id = text("id").unwrap_or(&self.id);
        let spawned = header
            .get("source")
            .and_then(|source| source.get("subagent"));
        let parent = spawned.and_then(|spawned| {
            let named = spawned
                .get("thread_spawn")?
                .get("parent_thread_id")?
                .as_str();
            named.or(text("parent_thread_id"))
        });
        let (session, thread) = match parent {
            Some(parent) => (SessionRef::child_of(&SessionRef::root(parent), id), parent),
            None => (SessionRef::root(id), id),
        };
        let role = text("agent_role").or(text("agent_nickname"));
        let name = match parent {
            Some(_) => role.unwrap_or("subagent"),
            None => NAME,
        };
        let mut meta = TranscriptMeta::new(name)
            .with_thread_id(thread)
            .with_dispatcher(NAME)
            .with_provider(self.provider())
            .with_created(&self.span.first)
            .with_updated(&self.span.last);
        if parent.is_some() {
            meta = meta.with_agent_id(id);
        }
        if !self.model.is_empty() {
            meta = meta.with_model(&self.model);
        }
        let mut fact = SessionFact::new(session, meta);
        for key in [
            "cwd",
            "originator",
            "cli_version",
            "git",
            "forked_from_id",
            "agent_path",
        ] {
            if let Some(value) = header.get(key).filter(|value| !value.is_null()) {
                fact.attributes.insert(key.to_owned(), value.clone());
            }
        }
        fact
    }

    /// The oldest thread that this one is forked from, as far as the file says.
    fn family(&self, id: &str) -> String {
        let mut at = id;
        for _ in 0..=self.forks.len() {
            match self.forks.get(at) {
                Some(from) => at = from,
                None => return at.to_owned(),
            }
        }
        // They name each other.
        id.to_owned()
    }

    fn finish(mut self, emit: &mut Emit<'_>) -> Result<()> {
        if self.open.is_none() && self.calls.is_empty() {
            // A header alone is a session that nobody wrote in.
            return Ok(());
        }
        let session = self.session(emit)?;
        let fact = self.describe();
        let id = match &self.meta {
            Some(meta) => meta.get("id").and_then(Value::as_str).unwrap_or(&self.id),
            None => &self.id,
        };
        let family = self.family(id);
        for spent in std::mem::take(&mut self.calls) {
            emit.call(CallFact {
                session,
                row: spent.row,
                id: CallId::Key(format!("codex {family} {}", spent.key)),
                usage: spent.usage,
                cache_write: 0,
                original: Some(spent.original),
                place: spent.place,
            })?;
        }
        emit.header(session, fact)
    }
}

/// Where a number of turns before the end begins.
trait Turns {
    fn rposition_of_prompt(self, turns: usize) -> Option<usize>;
}

impl<'e, I: DoubleEndedIterator<Item = &'e Entry> + ExactSizeIterator> Turns for I {
    fn rposition_of_prompt(self, turns: usize) -> Option<usize> {
        let prompts = self.enumerate().rev().filter(|(_, entry)| entry.prompt);
        let last = prompts.take(turns).last();
        last.map(|(at, _)| at)
    }
}

/// Whether a user message was put there by the program: context in a wrapper of tags, or instructions of the project.
fn is_injected(text: &str) -> bool {
    let text = text.trim_start();
    let tagged = text.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    let name = |tag: &str| {
        !tag.is_empty()
            && tag
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' '))
    };
    tagged.is_some_and(|(tag, rest)| name(tag) && rest.contains("</"))
        || text.starts_with("# AGENTS.md instructions")
}

/// What a row says, whenever and in whichever turn it was said.
fn said(message: &TranscriptMessage) -> RepeatKey {
    let calls: Vec<&[u8]> = message
        .tool_calls
        .iter()
        .flat_map(|call| {
            [
                call.id.as_bytes(),
                call.name.as_bytes(),
                call.arguments.as_bytes(),
            ]
        })
        .collect();
    let sealed = message
        .extra_metadata
        .as_ref()
        .and_then(|metadata| metadata.get("encrypted_content"));
    let parts = [
        message.role.as_bytes(),
        message.content.as_bytes(),
        message
            .tool_call_id
            .as_deref()
            .unwrap_or_default()
            .as_bytes(),
        sealed
            .and_then(Value::as_str)
            .unwrap_or_default()
            .as_bytes(),
    ];
    RepeatKey::of(&[&parts[..], &calls].concat())
}

/// The row that an item becomes; None if it is none of the conversation.
fn item(mut payload: Map<String, Value>, record: &Record) -> Option<TranscriptMessage> {
    let kind = take_text(&mut payload, "type");
    Some(match kind.as_str() {
        "message" | "" => {
            let role = take_text(&mut payload, "role");
            let content = payload
                .remove("content")
                .or_else(|| payload.remove("message"))?;
            let (text, parts, others) = openai::content_of(content);
            let mut row = match (role.as_str(), parts) {
                ("", _) => return None,
                ("user", Some(parts)) => TranscriptMessage::user_with_parts(parts),
                _ => TranscriptMessage::new(role, text),
            };
            if let Some(Value::String(phase)) = payload.remove("phase") {
                note(&mut row, "phase", phase);
            }
            if !others.is_empty() {
                note(&mut row, "parts", others);
            }
            row
        }
        "reasoning" => {
            let mut row = TranscriptMessage::assistant("");
            let mut texts = Vec::new();
            for key in ["summary", "content"] {
                let (text, _, _) = openai::content_of(payload.remove(key).unwrap_or_default());
                if !text.is_empty() {
                    texts.push(text);
                }
            }
            if !texts.is_empty() {
                note(&mut row, "reasoning_content", texts.join("\n\n"));
            }
            if let Some(Value::String(sealed)) = payload.remove("encrypted_content") {
                note(&mut row, "encrypted_content", sealed);
            }
            row
        }
        "function_call"
        | "custom_tool_call"
        | "local_shell_call"
        | "web_search_call"
        | "tool_search_call"
        | "image_generation_call" => call(&kind, payload, record),
        "function_call_output" | "custom_tool_call_output" | "tool_search_output" => {
            result(payload)
        }
        _ => return None,
    })
}

fn call(kind: &str, mut payload: Map<String, Value>, record: &Record) -> TranscriptMessage {
    let mut id = take_text(&mut payload, "call_id");
    if id.is_empty() {
        id = take_text(&mut payload, "id");
    }
    if id.is_empty() {
        id = format!("line-{}", record.place.line);
    }
    let mut name = take_text(&mut payload, "name");
    if name.is_empty() {
        kind.trim_end_matches("_call").clone_into(&mut name);
    }
    let arguments = ["arguments", "input", "action"]
        .iter()
        .find_map(|key| payload.remove(*key).filter(|value| !value.is_null()));
    let mut row = TranscriptMessage::assistant("");
    row.tool_calls.push(TranscriptToolCall {
        id,
        name,
        arguments: arguments.map(to_text).unwrap_or_default(),
        extra_content: None,
    });
    row
}

fn result(mut payload: Map<String, Value>) -> TranscriptMessage {
    let id = take_text(&mut payload, "call_id");
    let mut failed = false;
    let output = match payload.remove("output").or_else(|| payload.remove("tools")) {
        Some(Value::Object(mut output)) => {
            failed = output.get("success") == Some(&Value::Bool(false));
            let plain = output.remove("content").or_else(|| output.remove("text"));
            plain.unwrap_or(Value::Object(output))
        }
        output => output.unwrap_or_default(),
    };
    let (text, _, others) = match output {
        Value::Array(_) => openai::content_of(output),
        output => (to_text(output), None, Vec::new()),
    };
    let mut row = TranscriptMessage::tool_result(id, text);
    if failed {
        row.tool_failure = Some(ToolFailure::failed());
    }
    if !others.is_empty() {
        note(&mut row, "parts", others);
    }
    row
}

#[cfg(test)]
mod tests;
