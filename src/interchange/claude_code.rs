//! Claude Code: `projects/<folder>/<session>.jsonl`, and the files of its sub-agents.
//!
//! Every line that says something to the model or comes from it is a row; a response of several lines is several rows,
//! and one call. What hooks, snapshots and progress lines say is in the source alone, but they carry the chain of
//! parents, so they are followed. A prompt whose parent is not the end of the context goes back to that parent; a
//! boundary replaces the context by its summary and the messages that it preserved.

mod chain;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use self::chain::{Chain, Live};
use super::blocks::{note, rows_of, take_text};
use super::codec::{Certainty, Codec, Probe};
use super::emit::Emit;
use super::fact::{
    CallFact, CallId, ContextFact, ContextReason, Kept, Place, RepeatKey, RowFact, RowNo,
    SessionFact, SessionNo,
};
use super::source::{Record, Source};
use super::stamp::{self, Span};
use crate::{MessageUsage, Result, SessionRef, TranscriptMessage, TranscriptMeta, TurnUsage};

/// The codec.
#[derive(Debug, Clone, Copy)]
pub struct ClaudeCode;

const NAME: &str = "claude-code";

/// What marks a line as one of this format, beside its type.
const MARKS: [&str; 6] = [
    "sessionId",
    "parentUuid",
    "uuid",
    "leafUuid",
    "messageId",
    "timestamp",
];

impl Codec for ClaudeCode {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> u32 {
        1
    }

    fn detect(&self, probe: &Probe<'_>) -> Option<Certainty> {
        let sure = |record: &Map<String, Value>| {
            record.contains_key("sessionId") && record.contains_key("type")
                || record.contains_key("leafUuid")
        };
        if probe.records().iter().any(sure) {
            return Some(Certainty::Sure);
        }
        let likely = |record: &Map<String, Value>| {
            let kind = record.get("type").and_then(Value::as_str);
            matches!(kind, Some("user" | "assistant"))
                && record.get("message").is_some_and(Value::is_object)
                && !record.contains_key("session_id")
        };
        if probe.records().iter().any(likely) {
            return Some(Certainty::Likely);
        }
        let cut = probe.records().is_empty()
            && (probe.holds("\"sessionId\":") || probe.holds("\"parentUuid\":"));
        cut.then_some(Certainty::Likely)
    }

    fn is_companion(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("agent-") && name.ends_with(".meta.json"))
    }

    /// Sub-agents come behind the sessions, so that a parent is there before its children.
    fn arrange(&self, _: &Path, mut files: Vec<PathBuf>) -> Vec<PathBuf> {
        files.sort_by_key(|file| {
            let name = file.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("agent-"))
        });
        files
    }

    fn read(&self, source: &mut Source<'_>, emit: &mut Emit<'_>) -> Result<()> {
        let mut reader = Reader::new(source)?;
        while let Some(record) = source.next(owns)? {
            reader.line(source, record, emit)?;
        }
        reader.finish(emit)
    }
}

fn owns(value: &Map<String, Value>) -> bool {
    value.get("type").is_some_and(Value::is_string)
        && MARKS.iter().any(|mark| value.contains_key(*mark))
}

/// A session that the file tells of.
struct State {
    no: SessionNo,
    fact: SessionFact,
    span: Span,
    live: Live,
    /// A boundary whose summary is still to come.
    boundary: Option<Boundary>,
    /// Whether the title is one that a person gave.
    titled: bool,
}

struct Boundary {
    kept: Vec<RowNo>,
    metadata: Option<Value>,
    uuid: String,
    ts: String,
    place: Place,
    key: RepeatKey,
}

/// What stands in `agent-<id>.meta.json` beside the file of a sub-agent.
#[derive(Default)]
struct Companion {
    agent: Option<String>,
    title: Option<String>,
    call: Option<String>,
}

struct Reader {
    file_stem: String,
    /// The sub-agent that the file is of.
    file_agent: Option<String>,
    /// The session whose folder the file lies in.
    folder_session: Option<String>,
    companion: Companion,
    states: Vec<State>,
    by_session: HashMap<SessionRef, usize>,
    chain: Chain,
    /// Titles of lines, which may stand before them.
    titles: Vec<(String, String)>,
}

impl Reader {
    fn new(source: &Source<'_>) -> Result<Self> {
        let file_stem = source.stem();
        let file_agent = file_stem.strip_prefix("agent-").map(str::to_owned);
        let folder_session = (source.folder_name(0) == Some("subagents"))
            .then(|| source.folder_name(1))
            .flatten();
        let mut companion = Companion::default();
        if file_agent.is_some()
            && let Some(bytes) = source.companion(&format!("{file_stem}.meta.json"))?
            && let Ok(Value::Object(meta)) = serde_json::from_slice(&bytes)
        {
            let text = |key: &str| meta.get(key).and_then(Value::as_str).map(str::to_owned);
            companion = Companion {
                agent: text("agentType"),
                title: text("description"),
                call: text("toolUseId"),
            };
        }
        Ok(Self {
            folder_session: folder_session.map(str::to_owned),
            file_stem,
            file_agent,
            companion,
            states: Vec::new(),
            by_session: HashMap::new(),
            chain: Chain::default(),
            titles: Vec::new(),
        })
    }

    fn line(
        &mut self,
        source: &mut Source<'_>,
        mut record: Record,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        if record.text("type").is_none() {
            source.misfit(&record);
            return Ok(());
        }
        let kind = record.owned("type");
        match kind.as_str() {
            "user" | "assistant" => {
                let Some(Value::Object(message)) = record.value.remove("message") else {
                    source.misfit(&record);
                    return Ok(());
                };
                return self.message(source, &record, &kind, message, emit);
            }
            "system" if record.text("subtype") == Some("compact_boundary") => {
                return self.boundary(source, &record, emit);
            }
            "attachment" => {
                if let Some(Value::Object(mut attachment)) = record.value.remove("attachment")
                    && attachment.get("type").and_then(Value::as_str) == Some("queued_command")
                    && let Some(prompt) = attachment.remove("prompt")
                {
                    let rows = rows_of("user", prompt);
                    return self.rows(source, &record, rows, emit).map(|_| ());
                }
            }
            "tool_use" => {
                let mut row = TranscriptMessage::assistant("");
                row.tool_calls.push(crate::TranscriptToolCall {
                    id: record.owned("uuid"),
                    name: record.owned("name"),
                    arguments: record
                        .value
                        .remove("input")
                        .map(super::blocks::to_text)
                        .unwrap_or_default(),
                    extra_content: None,
                });
                return self.rows(source, &record, vec![row], emit).map(|_| ());
            }
            "tool_result" => {
                let output = record.value.remove("output").map(super::blocks::to_text);
                let row = TranscriptMessage::tool(output.unwrap_or_default());
                return self.rows(source, &record, vec![row], emit).map(|_| ());
            }
            "summary" => self
                .titles
                .push((record.owned("leafUuid"), record.owned("summary"))),
            "custom-title" => self.title(&record, "customTitle", true),
            "ai-title" => self.title(&record, "aiTitle", false),
            _ => {}
        }
        self.chain
            .pass(&record.owned("uuid"), &record.owned("parentUuid"));
        Ok(())
    }

    fn title(&mut self, record: &Record, key: &str, given: bool) {
        let session = SessionRef::root(record.owned("sessionId"));
        if let Some(at) = self.by_session.get(&session)
            && let Some(state) = self.states.get_mut(*at)
            && let Some(title) = record.text(key)
            && (given || !state.titled)
        {
            state.fact.title = Some(title.to_owned());
            state.titled |= given;
        }
    }

    fn message(
        &mut self,
        source: &mut Source<'_>,
        record: &Record,
        kind: &str,
        mut message: Map<String, Value>,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let role = match message.get("role").and_then(Value::as_str) {
            Some(role) if !role.is_empty() => role.to_owned(),
            _ => kind.to_owned(),
        };
        let content = message.remove("content").unwrap_or(Value::Null);
        let mut rows = rows_of(&role, content);
        let id = take_text(&mut message, "id");
        let model = take_text(&mut message, "model");
        if let Some(row) = rows.first_mut() {
            for (key, value) in [
                ("message_id", id.as_str()),
                ("model", model.as_str()),
                ("request_id", record.text("requestId").unwrap_or_default()),
                (
                    "stop_reason",
                    message
                        .get("stop_reason")
                        .and_then(Value::as_str)
                        .unwrap_or_default(),
                ),
            ] {
                if !value.is_empty() {
                    note(row, key, value);
                }
            }
            let result = record.value.get("toolUseResult");
            if let Some(agent) = result.and_then(|result| result.get("agentId")?.as_str()) {
                note(row, "agent_id", agent);
            }
            for flag in [
                "isMeta",
                "isCompactSummary",
                "isApiErrorMessage",
                "isAbortedMidStream",
            ] {
                if record.is(flag) {
                    note(row, flag, true);
                }
            }
        }
        let usage = message.remove("usage");
        let at = self.rows(source, record, rows, emit)?;
        let Some((at, row)) = at else { return Ok(()) };
        let Some(state) = self.states.get_mut(at) else {
            return Ok(());
        };
        if kind == "assistant" && !model.is_empty() && model != "<synthetic>" {
            state.fact.meta.model = Some(model.clone());
        }
        let Some(Value::Object(usage)) = usage else {
            return Ok(());
        };
        if kind != "assistant" {
            return Ok(());
        }
        let request = record.text("requestId").filter(|id| !id.is_empty());
        let call = if id.is_empty() {
            CallId::Record(source.key(record, record.text("uuid")))
        } else {
            CallId::Message {
                id,
                request: request.map(str::to_owned),
            }
        };
        emit.call(call_of(state.no, row, call, &model, record, usage))
    }

    /// Tells of the rows of one line: the state of their session and the first of them.
    fn rows(
        &mut self,
        source: &Source<'_>,
        record: &Record,
        messages: Vec<TranscriptMessage>,
        emit: &mut Emit<'_>,
    ) -> Result<Option<(usize, RowNo)>> {
        let at = self.session(record, emit)?;
        let uuid = record.owned("uuid");
        let parent = record.owned("parentUuid");
        let ts = stamp::rfc3339(record.text("timestamp").unwrap_or_default());
        let key = source.key(record, Some(&uuid));
        let parent_row = self.chain.row(&parent);
        let Some(state) = self.states.get_mut(at) else {
            return Ok(None);
        };
        state.meet(record, &ts);
        let facts: Vec<RowFact> = (0..)
            .zip(messages)
            .map(|(part, mut message)| {
                if !uuid.is_empty() && message.id.is_none() {
                    message.id = Some(uuid.clone());
                }
                RowFact {
                    session: state.no,
                    message,
                    uuid: if part == 0 { stamp::uuid(&uuid) } else { None },
                    ts: ts.clone(),
                    iteration: None,
                    place: record.place.part(part),
                    key,
                    revises: None,
                    cache_write: 0,
                    lossy: record.lossy,
                }
            })
            .collect();
        let prompt = record.text("type") == Some("user")
            && !record.is("isMeta")
            && facts.iter().all(|row| row.message.role == "user");
        let tools: Vec<bool> = facts.iter().map(|row| row.message.role == "tool").collect();
        let mut numbers = Vec::with_capacity(facts.len());
        let boundary = state.boundary.take();
        if let Some(boundary) = boundary {
            if record.is("isCompactSummary") {
                let mut rows = Vec::new();
                for fact in facts {
                    let (no, kept) = emit.new_row(fact);
                    numbers.push(no);
                    rows.push(kept);
                }
                state.replace(boundary, rows, &numbers, emit)?;
                self.chain.note(&uuid, &parent, at, &numbers);
                return Ok(numbers.first().map(|row| (at, *row)));
            }
            state.replace(boundary, Vec::new(), &[], emit)?;
        } else if prompt
            && let Some(back) = parent_row
            && state.live.go_back(back)
        {
            let rows = state.live.rows().map(Kept::Row).collect();
            emit.context(ContextFact {
                session: state.no,
                reason: ContextReason::Rewind,
                rows,
                metadata: None,
                ts: ts.clone(),
                uuid: None,
                // Behind all that the line can make itself.
                place: record.place.part(u32::MAX),
                key,
            })?;
        }
        for (fact, tool) in facts.into_iter().zip(tools) {
            let no = emit.row(fact)?;
            state.live.push(no, parent_row, tool);
            numbers.push(no);
        }
        self.chain.note(&uuid, &parent, at, &numbers);
        Ok(numbers.first().map(|row| (at, *row)))
    }

    fn boundary(
        &mut self,
        source: &Source<'_>,
        record: &Record,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let at = self.session(record, emit)?;
        let ts = stamp::rfc3339(record.text("timestamp").unwrap_or_default());
        let metadata = record.value.get("compactMetadata").cloned();
        let kept = self.preserved(metadata.as_ref());
        let uuid = record.owned("uuid");
        let boundary = Boundary {
            kept,
            metadata,
            key: source.key(record, Some(&uuid)),
            uuid: uuid.clone(),
            ts: ts.clone(),
            place: record.place,
        };
        self.chain.pass(&uuid, &record.owned("parentUuid"));
        let Some(state) = self.states.get_mut(at) else {
            return Ok(());
        };
        state.meet(record, &ts);
        if let Some(before) = state.boundary.replace(boundary) {
            state.replace(before, Vec::new(), &[], emit)?;
        }
        Ok(())
    }

    /// The rows that a boundary keeps: a list of ids, plain or within an object, or the ends of a stretch of the chain.
    fn preserved(&self, metadata: Option<&Value>) -> Vec<RowNo> {
        let Some(metadata) = metadata else {
            return Vec::new();
        };
        let listed = metadata.get("preservedMessages");
        let ids = listed.and_then(|listed| {
            let list = listed
                .as_array()
                .or_else(|| listed.get("uuids")?.as_array())?;
            Some(list.iter().filter_map(Value::as_str).collect::<Vec<_>>())
        });
        if let Some(ids) = ids {
            let mut rows: Vec<RowNo> = ids.into_iter().flat_map(|id| self.chain.rows(id)).collect();
            rows.sort_unstable();
            rows.dedup();
            return rows;
        }
        let end = |key: &str| metadata.get("preservedSegment")?.get(key)?.as_str();
        match (end("headUuid"), end("tailUuid")) {
            (Some(head), Some(tail)) => self.chain.stretch(head, tail),
            _ => Vec::new(),
        }
    }

    /// The session that a line belongs to.
    fn session(&mut self, record: &Record, emit: &mut Emit<'_>) -> Result<usize> {
        let id = match record.text("sessionId") {
            Some(id) if !id.is_empty() => id.to_owned(),
            _ => self.file_stem.clone(),
        };
        let agent = if self.file_agent.is_some() || record.is("isSidechain") {
            let named = record.text("agentId").filter(|agent| !agent.is_empty());
            let named = named.or(self.file_agent.as_deref()).map(str::to_owned);
            match named {
                Some(agent) => Some(agent),
                // Older versions write sidechains into the file of the session, and give them no name.
                None => {
                    let above = self
                        .chain
                        .session(record.text("parentUuid").unwrap_or_default());
                    let above = above.filter(|at| {
                        self.states
                            .get(*at)
                            .is_some_and(|state| state.fact.session.is_subagent())
                    });
                    if let Some(at) = above {
                        return Ok(at);
                    }
                    Some(format!(
                        "sidechain-{}",
                        record.text("uuid").unwrap_or_default()
                    ))
                }
            }
        } else {
            None
        };
        let session = match &agent {
            None => SessionRef::root(&id),
            Some(agent) => match &self.folder_session {
                Some(parent) => SessionRef::child_of(&SessionRef::root(parent), agent),
                // A file that names itself says nothing of a parent.
                None if id == format!("agent-{agent}") => SessionRef::root(&id),
                None => SessionRef::child_of(&SessionRef::root(&id), agent),
            },
        };
        if let Some(at) = self.by_session.get(&session) {
            return Ok(*at);
        }
        let thread = match (&agent, &self.folder_session) {
            (Some(_), Some(parent)) => parent.clone(),
            _ => id,
        };
        let name = match &agent {
            None => NAME.to_owned(),
            Some(_) => {
                let named = record.text("attributionAgent").map(str::to_owned);
                let named = self.companion.agent.clone().or(named);
                named.unwrap_or_else(|| "subagent".to_owned())
            }
        };
        let mut meta = TranscriptMeta::new(name)
            .with_thread_id(thread)
            .with_dispatcher(NAME)
            .with_provider("anthropic")
            .with_created("")
            .with_updated("");
        if let Some(agent) = agent {
            meta = meta.with_agent_id(agent);
        }
        let mut fact = SessionFact::new(session.clone(), meta);
        if fact.session.is_subagent() {
            fact.title.clone_from(&self.companion.title);
            fact.spawned_by.clone_from(&self.companion.call);
        }
        let at = self.states.len();
        self.states.push(State {
            no: emit.session(fact.clone())?,
            fact,
            span: Span::default(),
            live: Live::default(),
            boundary: None,
            titled: false,
        });
        self.by_session.insert(session, at);
        Ok(at)
    }

    fn finish(mut self, emit: &mut Emit<'_>) -> Result<()> {
        for (leaf, title) in std::mem::take(&mut self.titles) {
            if let Some(state) = self
                .chain
                .session(&leaf)
                .and_then(|at| self.states.get_mut(at))
                && !state.titled
            {
                state.fact.title = Some(title);
            }
        }
        for mut state in self.states {
            if let Some(boundary) = state.boundary.take() {
                state.replace(boundary, Vec::new(), &[], emit)?;
            }
            state.fact.meta.created = state.span.first;
            state.fact.meta.updated = state.span.last;
            emit.header(state.no, state.fact)?;
        }
        Ok(())
    }
}

impl State {
    /// Notes what a line says of its session.
    fn meet(&mut self, record: &Record, ts: &str) {
        self.span.note(ts);
        for key in [
            "cwd",
            "gitBranch",
            "version",
            "entrypoint",
            "slug",
            "forkedFrom",
            "sessionKind",
        ] {
            if let Some(value) = record.value.get(key).filter(|value| !value.is_null())
                && self.fact.attributes.get(key) != Some(value)
            {
                self.fact.attributes.insert(key.to_owned(), value.clone());
            }
        }
    }

    /// Replaces the context: the summary, what was preserved, and what follows.
    fn replace(
        &mut self,
        boundary: Boundary,
        mut summary: Vec<Kept>,
        numbers: &[RowNo],
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        self.live
            .replace(numbers.iter().chain(&boundary.kept).copied());
        summary.extend(boundary.kept.into_iter().map(Kept::Row));
        emit.context(ContextFact {
            session: self.no,
            reason: ContextReason::Compaction,
            rows: summary,
            metadata: boundary.metadata,
            ts: boundary.ts,
            uuid: stamp::uuid(&boundary.uuid),
            place: boundary.place,
            key: boundary.key,
        })
    }
}

fn call_of(
    session: SessionNo,
    row: RowNo,
    id: CallId,
    model: &str,
    record: &Record,
    usage: Map<String, Value>,
) -> CallFact {
    let count = |key: &str| usage.get(key).and_then(Value::as_u64).unwrap_or_default();
    let written = count("cache_creation_input_tokens");
    let cached = count("cache_read_input_tokens");
    let input = count("input_tokens")
        .saturating_add(written)
        .saturating_add(cached);
    let output = count("output_tokens");
    CallFact {
        session,
        row: Some(row),
        id,
        usage: TurnUsage {
            provider: "anthropic".to_owned(),
            model: model.to_owned(),
            usage: MessageUsage {
                input,
                output,
                cached_input: cached,
                last_call_input: input,
                last_call_output: output,
                ..MessageUsage::default()
            },
            ts: stamp::rfc3339(record.text("timestamp").unwrap_or_default()),
            ..TurnUsage::default()
        },
        cache_write: written,
        original: Some(Value::Object(usage)),
        place: record.place,
    }
}

#[cfg(test)]
mod tests;
