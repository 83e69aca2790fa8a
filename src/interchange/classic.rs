//! Classic: `session_raw/{stem}.jsonl`, flat or in dated folders, and the older `.md`.
//!
//! The first line is the header, and a newer one follows every turn. The name of the file is the stem of its session: it
//! is that of the header's thread and agent where these spell it, else a session of that key. An ending `.gN` is the
//! generation. What has no `session_id` was written before there were sessions, and can be adopted by one
//! ([`Store::adopt`](crate::Store::adopt)).

mod line;
mod markdown;
#[cfg(test)]
mod tests;
mod writing;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use self::line::{Line, MetaLine};
use super::codec::{Certainty, Codec, Probe};
use super::emit::Emit;
use super::fact::{
    ContextFact, ContextReason, Kept, RepeatKey, RowFact, RowNo, SessionFact, SessionNo,
};
use super::source::{Record, Source};
use super::stamp;
use super::write::Writer;
use crate::session::split_generation;
use crate::{Result, SessionRef, TranscriptMessage, TranscriptMeta, TranscriptPartial};

/// The codec.
#[derive(Debug, Clone, Copy)]
pub struct Classic;

const NAME: &str = "classic";

impl Codec for Classic {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> u32 {
        1
    }

    fn names_generations(&self) -> bool {
        true
    }

    fn detect(&self, probe: &Probe<'_>) -> Option<Certainty> {
        let headed =
            |record: &Map<String, Value>| record.get("_meta").is_some_and(Value::is_object);
        if probe.records().iter().any(headed) {
            return Some(Certainty::Sure);
        }
        let old = probe
            .head()
            .trim_ascii_start()
            .starts_with(markdown::HEAD.as_bytes());
        old.then_some(Certainty::Sure)
    }

    /// One file a stem: a flat one before one in a dated folder, and these before a `.md`. Parents come before children, and
    /// generations in their order.
    fn arrange(&self, _: &Path, files: Vec<PathBuf>) -> Vec<PathBuf> {
        let rank = |file: &Path| {
            let folder = file.parent().and_then(Path::file_name);
            let folder = folder.and_then(|name| name.to_str()).unwrap_or_default();
            let dated = folder.len() == 8 && folder.bytes().all(|it| it.is_ascii_digit());
            (is_markdown(file), dated)
        };
        let mut best: BTreeMap<(usize, String, u32), PathBuf> = BTreeMap::new();
        for file in files.into_iter().filter(|file| !is_lock(file)) {
            let stem = file.file_stem().unwrap_or_default().to_string_lossy();
            let depth = stem.matches("__").count();
            let (base, generation) = split_generation(&stem);
            let slot = best.entry((depth, base.to_owned(), generation));
            let held = slot.or_insert_with(|| file.clone());
            if rank(&file) < rank(held) {
                *held = file;
            }
        }
        best.into_values().collect()
    }

    fn read(&self, source: &mut Source<'_>, emit: &mut Emit<'_>) -> Result<()> {
        if is_markdown(source.path()) {
            return markdown::read(source, emit);
        }
        let mut reader = Reader {
            stem: source.stem(),
            meta: None,
            session: None,
            live: Vec::new(),
            headless: false,
        };
        while let Some(record) = source.next(owns)? {
            reader.line(source, record, emit)?;
        }
        reader.finish(emit)
    }

    fn writer(&self) -> Option<Box<dyn Writer>> {
        Some(Box::<writing::ClassicWriter>::default())
    }
}

/// Whether it only keeps other writers of a transcript away.
fn is_lock(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "adopting")
        || path.iter().any(|part| part == ".transcript-locks")
}

fn is_markdown(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "md")
}

fn owns(value: &Map<String, Value>) -> bool {
    value.contains_key("_meta") || value.contains_key("kind") || value.contains_key("role")
}

/// The session whose transcript has this stem.
fn session_of(stem: &str, meta: &TranscriptMeta) -> SessionRef {
    let named = |stem: &str| -> SessionRef {
        let thread = meta.thread_id.as_deref().unwrap_or_default();
        let mut candidates = vec![SessionRef::root(thread)];
        if let Some(agent) = &meta.agent_id {
            candidates.push(SessionRef::scoped(thread, agent.as_str()));
        }
        candidates.push(SessionRef::scoped(thread, meta.agent_name.as_str()));
        let found = candidates.into_iter().find(|it| it.session_id() == stem);
        found.unwrap_or_else(|| SessionRef::root(stem))
    };
    let (base, generation) = split_generation(stem);
    let session = match base.rsplit_once("__") {
        Some((parent, child)) if !parent.is_empty() && !child.is_empty() => {
            let (parent, of) = split_generation(parent);
            SessionRef::child_of(&named(parent).with_generation(of), child)
        }
        _ => named(base),
    };
    session.with_generation(generation)
}

/// What the file of this stem tells of its session: without a `session_id`, and not named as sessions are, it was written
/// before there were sessions. A root that names no thread is one of its own.
fn headed(stem: &str, session: SessionRef, mut meta: TranscriptMeta) -> SessionFact {
    let old = meta.session_id.is_none() && !session.is_subagent() && session.session_id() != stem;
    if !session.is_subagent()
        && meta
            .thread_id
            .as_deref()
            .is_none_or(|it| it.trim().is_empty())
    {
        meta.thread_id = Some(format!("imported-{}", split_generation(stem).0));
    }
    let mut fact = SessionFact::new(session, meta);
    fact.pre_identity = old;
    fact
}

struct Reader {
    stem: String,
    meta: Option<TranscriptMeta>,
    session: Option<(SessionNo, SessionRef)>,
    /// The live context, each row with what it says in short.
    live: Vec<(RepeatKey, RowNo)>,
    /// Whether the file does not begin with a header. The programs read nothing of such a file, nor is anything of it a
    /// session here: all of it is set aside.
    headless: bool,
}

impl Reader {
    fn line(
        &mut self,
        source: &mut Source<'_>,
        mut record: Record,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let first = self.meta.is_none();
        self.headless |= first && source.counts().bad > 0;
        if let Some(meta) = record.value.remove("_meta").filter(|_| !self.headless) {
            match serde_json::from_value::<MetaLine>(meta) {
                Ok(meta) => self.meta = Some(meta.into_meta()),
                Err(_) => {
                    self.headless = first;
                    source.misfit(&record);
                }
            }
            return Ok(());
        }
        self.headless |= first;
        if self.headless {
            source.misfit(&record);
            return Ok(());
        }
        match record.text("kind") {
            Some("compaction") => return self.compaction(source, record, emit),
            Some("tools") => {
                let Some(tools) = record.value.remove("tools") else {
                    source.misfit(&record);
                    return Ok(());
                };
                let session = self.session(emit)?;
                let key = source.key(&record, None);
                return emit.tools(session, tools, record.place, key);
            }
            _ => {}
        }
        let value = Value::Object(std::mem::take(&mut record.value));
        let Ok(line) = serde_json::from_value::<Line>(value) else {
            source.misfit(&record);
            return Ok(());
        };
        let session = self.session(emit)?;
        let key = source.key(&record, None);
        if line.interrupted {
            let partial = TranscriptPartial {
                content: line.content,
                reasoning_content: line.reasoning_content,
                iteration: line.iteration,
            };
            let ts = stamp::rfc3339(&line.ts.unwrap_or_default());
            return emit.partial(session, partial, line.request_id, ts, (record.place, key));
        }
        let row = fact(session, line, &record, 0, key);
        let said = said(&row.message);
        let no = emit.row(row)?;
        self.live.push((said, no));
        Ok(())
    }

    fn compaction(
        &mut self,
        source: &mut Source<'_>,
        mut record: Record,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let Some(Value::Array(lines)) = record.value.remove("replacement") else {
            source.misfit(&record);
            return Ok(());
        };
        let mut rows = Vec::new();
        for line in lines {
            // As the programs do: one row that does not read spoils the whole line.
            let Ok(line) = serde_json::from_value::<Line>(line) else {
                source.misfit(&record);
                return Ok(());
            };
            rows.push(line);
        }
        let session = self.session(emit)?;
        let key = source.key(&record, None);
        // What stood in the context and stands in the new one is the row that it was.
        let mut stood: HashMap<RepeatKey, VecDeque<RowNo>> = HashMap::new();
        for (said, no) in self.live.drain(..) {
            stood.entry(said).or_default().push_back(no);
        }
        let mut kept = Vec::new();
        let reason = if rows.is_empty() {
            ContextReason::Clear
        } else {
            ContextReason::Compaction
        };
        for (part, line) in (1..).zip(rows) {
            let row = fact(session, line, &record, part, key);
            let said = said(&row.message);
            let known = stood.get_mut(&said).and_then(VecDeque::pop_front);
            let no = match known {
                Some(no) => {
                    kept.push(Kept::Row(no));
                    no
                }
                None => {
                    let (no, new) = emit.new_row(row);
                    kept.push(new);
                    no
                }
            };
            self.live.push((said, no));
        }
        emit.context(ContextFact {
            session,
            reason,
            rows: kept,
            metadata: None,
            ts: stamp::rfc3339(record.text("ts").unwrap_or_default()),
            uuid: None,
            place: record.place,
            key,
        })
    }

    /// The session, which begins with the first line that says something.
    fn session(&mut self, emit: &mut Emit<'_>) -> Result<SessionNo> {
        if let Some((no, _)) = &self.session {
            return Ok(*no);
        }
        let fact = self.fact();
        let session = fact.session.clone();
        let no = emit.session(fact)?;
        self.session = Some((no, session));
        Ok(no)
    }

    fn fact(&self) -> SessionFact {
        let meta = self.meta.clone().unwrap_or_else(|| {
            TranscriptMeta::new("unknown")
                .with_created("")
                .with_updated("")
        });
        let session = match &self.session {
            Some((_, session)) => session.clone(),
            None => session_of(&self.stem, &meta),
        };
        headed(&self.stem, session, meta)
    }

    fn finish(mut self, emit: &mut Emit<'_>) -> Result<()> {
        if self.session.is_none() && self.meta.is_none() {
            return Ok(());
        }
        let no = self.session(emit)?;
        emit.header(no, self.fact())
    }
}

fn fact(session: SessionNo, line: Line, record: &Record, part: u32, key: RepeatKey) -> RowFact {
    RowFact {
        session,
        uuid: None,
        ts: stamp::rfc3339(line.ts.as_deref().unwrap_or_default()),
        iteration: line.iteration,
        message: line.into_row(),
        place: record.place.part(part),
        key,
        revises: None,
        cache_write: 0,
        lossy: record.lossy,
    }
}

/// What a row says, in short.
fn said(row: &TranscriptMessage) -> RepeatKey {
    let id = row.id.as_deref().unwrap_or_default();
    let call = row.tool_call_id.as_deref().unwrap_or_default();
    let calls = serde_json::to_string(&row.tool_calls).unwrap_or_default();
    RepeatKey::of(&[
        row.role.as_bytes(),
        row.content.as_bytes(),
        id.as_bytes(),
        call.as_bytes(),
        calls.as_bytes(),
    ])
}
