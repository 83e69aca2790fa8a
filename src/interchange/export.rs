//! From a store to files: the records of sessions as facts, and sources as they were.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use uuid::Uuid;

use super::blocks::note;
use super::emit::Emit;
use super::fact::{
    CallFact, CallId, ContextFact, ContextReason, Fact, Kept, Place, RepeatKey, RowFact, RowNo,
    SessionFact, SessionNo,
};
use super::registry::{codec, writer};
use super::report::FileReport;
use super::source::Source;
use super::tally::Tally;
use super::write::{Target, Writer};
use crate::{
    Error, ListOrder, Record, RecordKind, Result, SessionQuery, SessionRef, SessionSummary,
    SourceInfo, Store, TranscriptLocator, TranscriptMeta, TranscriptPartial,
};

/// What an export wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// Sessions that were written anew, from their records.
    pub sessions: u64,
    /// Imported files that were written as they were.
    pub sources: u64,
}

impl Store {
    /// Writes sessions in a format that [`writable`](super::writable) names, in the order in which they were first
    /// written, with all their generations.
    ///
    /// A file that was imported from this format is given back byte for byte if all its sessions are among these and
    /// nothing was appended to them since. Each session is read as it is at that moment: while a host writes, two sessions can
    /// be of different moments.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidId`] if nothing writes the format; what the format cannot hold; what reading and the target answer.
    pub fn export(
        &self,
        sessions: &[SessionRef],
        format: &str,
        target: &mut dyn Target,
    ) -> Result<ExportReport> {
        let mut writer = writer(format).ok_or_else(|| Error::InvalidId {
            what: "format",
            reason: "nothing writes it".to_owned(),
        })?;
        let chosen: HashSet<SessionRef> =
            sessions.iter().map(SessionRef::first_generation).collect();
        let mut known = self.known_sessions()?;
        known.reverse();
        let mut report = ExportReport::default();
        let mut done = HashSet::new();
        for source in self.whole_sources(&known, &chosen, format, &mut done)? {
            let name = base_name(&source.path);
            self.export_original(source.id, target.file(name)?)?;
            report.sources += 1;
        }
        for summary in &known {
            let Some(session) = first(summary) else {
                continue;
            };
            if chosen.contains(&session) && !done.contains(&session) {
                let no = SessionNo(u32::try_from(report.sessions).unwrap_or(u32::MAX));
                self.tell(no, &session, summary, writer.as_mut(), target)?;
                report.sessions += 1;
            }
        }
        writer.finish(target)?;
        Ok(report)
    }

    /// The sessions given, and all their sub-agents at any depth. Costs the number of transcripts in the store.
    pub fn with_subagents(&self, sessions: &[SessionRef]) -> Result<Vec<SessionRef>> {
        let mut all: Vec<SessionRef> = sessions.to_vec();
        let stems: HashSet<String> = sessions.iter().map(SessionRef::base_stem).collect();
        let mut known: HashSet<SessionRef> = all.iter().map(SessionRef::first_generation).collect();
        for summary in self.known_sessions()? {
            let Some(session) = first(&summary) else {
                continue;
            };
            let below = session
                .ancestors()
                .iter()
                .any(|stem| stems.contains(crate::session::split_generation(stem).0));
            if below && known.insert(session.clone()) {
                all.push(session);
            }
        }
        Ok(all)
    }

    /// The files that sessions were imported from: of each path the one that was imported last.
    pub fn originals(&self, sessions: &[SessionRef]) -> Result<Vec<SourceInfo>> {
        let mut by_path: HashMap<String, SourceInfo> = HashMap::new();
        for session in sessions {
            for source in self.sources_of(session)? {
                let newer = by_path
                    .get(&source.path)
                    .is_none_or(|held| source.id > held.id);
                if newer {
                    by_path.insert(source.path.clone(), source);
                }
            }
        }
        let mut originals: Vec<_> = by_path.into_values().collect();
        originals.sort_by_key(|source| source.id);
        Ok(originals)
    }

    /// All sessions, the one that was first written last first.
    fn known_sessions(&self) -> Result<Vec<SessionSummary>> {
        self.sessions_matching(&SessionQuery {
            children: true,
            order: ListOrder::Created,
            ..SessionQuery::default()
        })
    }

    /// The sources of a format that say all there is of chosen sessions; these are put into `done`.
    fn whole_sources(
        &self,
        known: &[SessionSummary],
        chosen: &HashSet<SessionRef>,
        format: &str,
        done: &mut HashSet<SessionRef>,
    ) -> Result<Vec<SourceInfo>> {
        let Some(codec) = codec(format) else {
            return Ok(Vec::new());
        };
        let mut by_source: HashMap<u64, (SourceInfo, Vec<&SessionSummary>)> = HashMap::new();
        if self.sources()?.iter().any(|source| source.format == format) {
            for summary in known {
                let Some(session) = first(summary) else {
                    continue;
                };
                for source in self.sources_of(&session)? {
                    let entry = by_source.entry(source.id).or_insert((source, Vec::new()));
                    entry.1.push(summary);
                }
            }
        }
        let mut sources: Vec<_> = by_source.into_values().collect();
        sources.retain(|(source, _)| source.format == format);
        // A file that has grown comes after what it was, and says all that the former said.
        sources.sort_by_key(|(source, _)| std::cmp::Reverse(source.id));
        let mut whole = Vec::new();
        for (source, summaries) in sources {
            let sessions: Vec<_> = summaries.iter().copied().filter_map(first).collect();
            let stored: u64 = summaries.iter().map(|summary| summary.messages).sum();
            if sessions.iter().all(|session| chosen.contains(session))
                && !sessions.iter().all(|session| done.contains(session))
                && self.rows_of(&source, codec)? == stored
            {
                done.extend(sessions);
                whole.push(source);
            }
        }
        whole.reverse();
        Ok(whole)
    }

    /// How many rows a source makes.
    fn rows_of(&self, source: &SourceInfo, codec: &dyn super::Codec) -> Result<u64> {
        let Some(bytes) = self.source_bytes(source.id)? else {
            return Ok(0);
        };
        let mut tally = Tally::default();
        let mut input = Source::new(Path::new(&source.path), bytes);
        codec.read(&mut input, &mut Emit::new(&mut tally))?;
        let mut report = FileReport::default();
        tally.add_to(&mut report);
        Ok(report.messages)
    }

    /// Tells all that is stored of a session.
    fn tell(
        &self,
        no: SessionNo,
        session: &SessionRef,
        summary: &SessionSummary,
        writer: &mut dyn Writer,
        target: &mut dyn Target,
    ) -> Result<()> {
        let head = summary.session.as_ref().unwrap_or(session);
        let read = self.locator().read_session_transcript(head)?;
        let slice = match read {
            Some(read) => read.read_display_before(None, 1)?,
            None => None,
        };
        let meta = slice.map_or_else(
            || TranscriptMeta::new(summary.agent_name.clone()),
            |slice| slice.meta,
        );
        let mut fact = SessionFact::new(session.clone(), meta);
        fact.title.clone_from(&summary.title);
        writer.write(Fact::Session(no, Box::new(fact)), target)?;
        let mut teller = Teller {
            store: self,
            session: no,
            rows: HashMap::new(),
            generation: 0,
        };
        for record in self.session_records(session)? {
            for fact in teller.facts(record?)? {
                writer.write(fact, target)?;
            }
        }
        Ok(())
    }
}

/// The session that a summary is of, if it was ever written through a reference.
fn first(summary: &SessionSummary) -> Option<SessionRef> {
    summary.session.as_ref().map(SessionRef::first_generation)
}

/// The last part of a path as it was named, whatever the system that it was named on.
fn base_name(path: &str) -> &str {
    let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
    if name.is_empty() { "source" } else { name }
}

/// Records → facts.
struct Teller<'s> {
    store: &'s Store,
    session: SessionNo,
    rows: HashMap<Uuid, RowNo>,
    generation: u32,
}

impl Teller<'_> {
    fn facts(&mut self, record: Record) -> Result<Vec<Fact>> {
        let mut facts = Vec::new();
        let begins = record.generation != self.generation;
        self.generation = record.generation;
        if begins && record.kind != RecordKind::Retained {
            // Its generation kept nothing of the one before.
            facts.push(self.context(&record, Vec::new(), ContextReason::Clear)?);
        }
        let session = self.session;
        let (place, key) = (Place::default(), key_of(record.uuid));
        match record.kind {
            RecordKind::Message => {
                if !self.rows.contains_key(&record.uuid)
                    && let Some((no, row)) = self.row(record)
                {
                    facts.push(Fact::Row(no, row));
                }
            }
            RecordKind::Partial => {
                if let Some(row) = record.message {
                    facts.push(Fact::Partial {
                        session,
                        partial: TranscriptPartial {
                            content: row.message.content,
                            reasoning_content: row.reasoning_content,
                            iteration: row.iteration,
                        },
                        request_id: row.request_id,
                        ts: row.ts.unwrap_or(record.written_at),
                        place,
                        key,
                    });
                }
            }
            RecordKind::Compaction => {
                let rows = record.retained.clone();
                facts.push(self.context(&record, rows, ContextReason::Compaction)?);
            }
            RecordKind::Retained => {
                let rows = record.retained.clone();
                facts.push(self.context(&record, rows, ContextReason::Rewind)?);
            }
            RecordKind::Usage => {
                if let Some(usage) = record.usage {
                    facts.push(Fact::Call(Box::new(CallFact {
                        session,
                        row: None,
                        id: CallId::Record(key),
                        usage,
                        cache_write: 0,
                        original: None,
                        place,
                    })));
                }
            }
            RecordKind::Tools => {
                if let Some(tools) = record.tools {
                    facts.push(Fact::Tools {
                        session,
                        tools,
                        place,
                        key,
                    });
                }
            }
            RecordKind::Seal => facts.push(Fact::Seal {
                session,
                metadata: record.metadata,
            }),
        }
        Ok(facts)
    }

    fn context(&mut self, record: &Record, rows: Vec<Uuid>, reason: ContextReason) -> Result<Fact> {
        let mut kept = Vec::with_capacity(rows.len());
        for uuid in rows {
            if let Some(no) = self.rows.get(&uuid) {
                kept.push(Kept::Row(*no));
                continue;
            }
            // It was first stored with this context, and its record comes behind.
            if let Some(record) = self.store.record(uuid)?
                && let Some((no, row)) = self.row(record)
            {
                kept.push(Kept::New(no, row));
            }
        }
        Ok(Fact::Context(Box::new(ContextFact {
            session: self.session,
            reason,
            rows: kept,
            metadata: record.metadata.clone(),
            ts: record.written_at.clone(),
            uuid: Some(record.uuid),
            place: Place::default(),
            key: key_of(record.uuid),
        })))
    }

    fn row(&mut self, record: Record) -> Option<(RowNo, Box<RowFact>)> {
        let row = record.message?;
        let no = RowNo(self.rows.len() as u64);
        self.rows.insert(record.uuid, no);
        let mut message = row.message;
        message.turn_usage = row.turn_usage.or(message.turn_usage);
        if let Some(reasoning) = row.reasoning_content {
            note(&mut message, "reasoning_content", reasoning);
        }
        let fact = RowFact {
            session: self.session,
            message,
            uuid: Some(record.uuid),
            ts: row.ts.unwrap_or(record.written_at),
            iteration: row.iteration,
            place: Place::default(),
            key: key_of(record.uuid),
            revises: row.revises.and_then(|uuid| self.rows.get(&uuid).copied()),
            lossy: false,
        };
        Some((no, Box::new(fact)))
    }
}

fn key_of(uuid: Uuid) -> RepeatKey {
    RepeatKey(*uuid.as_bytes())
}
