//! From the store to files of a format.

mod spent;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use self::spent::Spent;
use super::codec::Codec;
use super::emit::{Emit, Sink};
use super::fact::{
    ContextFact, ContextReason, Fact, Kept, Place, RepeatKey, RowFact, RowNo, SessionFact,
    SessionNo,
};
use super::import::key_of;
use super::registry::{codec, writer};
use super::report::FileReport;
use super::source::Source;
use super::tally::Tally;
use super::write::{Target, UsageKept, Writer};
use crate::session::split_generation;
use crate::{
    DisplayMessage, DisplayRecord, Error, ListOrder, Record, RecordKind, Result, SessionQuery,
    SessionRef, SessionSummary, SourceInfo, Store, TranscriptLocator, TranscriptMeta,
    TranscriptPartial,
};

/// What an export wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// Sessions that were written from their records, behind their originals where the format allows that.
    pub sessions: u64,
    /// Imported files that were written as they were.
    pub sources: u64,
    /// Usages that count in the store and are in no file, as the format has no place for them.
    pub usages_left_out: u64,
    /// Usages of which the tokens are in a file, and the cost in USD is not.
    pub costs_left_out: u64,
}

impl Store {
    /// Writes sessions in a format that has a [`writer`]: all their generations, and every sub-agent below them.
    ///
    /// A session that was imported from a file of this format has that file's bytes, and behind them what was appended
    /// since; where the format keeps many sessions in one file, only if all of them are exported and nothing was appended.
    ///
    /// What calls cost is written where the format has a place for it (see [`ExportReport`]): on the row that the call made,
    /// or on one near it where the store keeps it apart from rows.
    ///
    /// All of it is of one moment, and writers go on meanwhile. A snapshot is held until all is written, and with it what
    /// writers replace meanwhile; `target` cannot write to the store.
    ///
    /// # Errors
    ///
    /// [`Error::NotWritten`] for a session that is not there; [`Error::InvalidId`] if nothing writes the format, for a
    /// session whose id cannot name a file, or if `target` is one file and the format has one for each session (or for each
    /// generation, or each sub-agent), and then nothing was written; what reading and the target answer.
    pub fn export(
        &self,
        sessions: &[SessionRef],
        format: &str,
        target: &mut dyn Target,
    ) -> Result<ExportReport> {
        self.at_one_moment(|| self.export_now(sessions, format, target))
    }

    fn export_now(
        &self,
        sessions: &[SessionRef],
        format: &str,
        target: &mut dyn Target,
    ) -> Result<ExportReport> {
        let mut writer = writer(format).ok_or_else(|| Error::InvalidId {
            what: "format",
            reason: "nothing writes it".to_owned(),
        })?;
        let chosen = self.with_subagents(sessions)?;
        if target.is_one_file() && !writer.shares_files() {
            self.check_one_file(&chosen, writer.as_ref())?;
        }
        let known = self.known_sessions()?;
        let mut report = ExportReport::default();
        let mut done = HashSet::new();
        if !writer.takes_originals() {
            let all: HashSet<SessionRef> =
                chosen.iter().map(SessionRef::first_generation).collect();
            for source in self.whole_sources(&known, &all, format, &mut done)? {
                let name = base_name(&source.path);
                self.export_original(source.id, target.file(name)?)?;
                report.sources += 1;
            }
        }
        let mut export = Export {
            store: self,
            codec: codec(format),
            writer: writer.as_mut(),
            target,
            titles: known
                .into_iter()
                .filter_map(|summary| Some((first(&summary)?, summary.title?)))
                .collect(),
            files: self.files()?,
            report,
            parts: 0,
            rows: HashMap::new(),
            covered: HashSet::new(),
            spent: Spent::default(),
            written: done,
        };
        for session in &chosen {
            export.session(&session.first_generation())?;
        }
        export.writer.finish(export.target)?;
        Ok(export.report)
    }

    /// Refuses sessions that do not stand in one file.
    fn check_one_file(&self, chosen: &[SessionRef], writer: &dyn Writer) -> Result<()> {
        let first: HashSet<SessionRef> = chosen.iter().map(SessionRef::first_generation).collect();
        let mut files = first.len() as u64;
        if writer.splits_generations() {
            let locator = self.locator();
            for session in &first {
                files += u64::from(locator.head_generation(session)?.generation);
            }
        }
        if files <= 1 {
            return Ok(());
        }
        Err(Error::InvalidId {
            what: "target",
            reason: format!(
                "these sessions are {files} files in this format; export them to a folder"
            ),
        })
    }

    /// Which file each source is, and its format: the sources of one path are one.
    fn files(&self) -> Result<HashMap<u64, (u64, String)>> {
        let mut by_path: HashMap<String, u64> = HashMap::new();
        let sources = self.sources()?.into_iter().map(|source| {
            let first = *by_path.entry(source.path).or_insert(source.id);
            (source.id, (first, source.format))
        });
        Ok(sources.collect())
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
                .any(|stem| stems.contains(split_generation(stem).0));
            if below && known.insert(session.clone()) {
                all.push(session);
            }
        }
        Ok(all)
    }

    /// The files that sessions were imported from: of each path the one that was imported last.
    pub fn originals(&self, sessions: &[SessionRef]) -> Result<Vec<SourceInfo>> {
        let mut sources = Vec::new();
        for session in sessions {
            sources.extend(self.sources_of(session)?);
        }
        Ok(newest_of_paths(sources))
    }

    /// All files that were imported, those that made no session too: of each path the one that was imported last.
    pub fn all_originals(&self) -> Result<Vec<SourceInfo>> {
        Ok(newest_of_paths(self.sources()?))
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
    fn rows_of(&self, source: &SourceInfo, codec: &dyn Codec) -> Result<u64> {
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
}

fn first(summary: &SessionSummary) -> Option<SessionRef> {
    summary.session.as_ref().map(SessionRef::first_generation)
}

/// Of the sources of each path the newest, in their order.
fn newest_of_paths(sources: Vec<SourceInfo>) -> Vec<SourceInfo> {
    let mut by_path: HashMap<String, SourceInfo> = HashMap::new();
    for source in sources {
        let held = by_path.get(&source.path);
        if held.is_none_or(|held| source.id > held.id) {
            by_path.insert(source.path.clone(), source);
        }
    }
    let mut newest: Vec<_> = by_path.into_values().collect();
    newest.sort_by_key(|source| source.id);
    newest
}

/// The last part of a path as it was named, whatever the system that it was named on.
fn base_name(path: &str) -> &str {
    let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
    if name.is_empty() { "source" } else { name }
}

struct Export<'e> {
    store: &'e Store,
    codec: Option<&'static dyn Codec>,
    writer: &'e mut dyn Writer,
    target: &'e mut dyn Target,
    titles: HashMap<SessionRef, String>,
    /// By the numbers of the sources: which file each is, and its format.
    files: HashMap<u64, (u64, String)>,
    report: ExportReport,
    /// What the writer was told of as sessions.
    parts: u32,
    rows: HashMap<Uuid, RowNo>,
    /// What stands in the originals that were written.
    covered: HashSet<Uuid>,
    /// The usages of the session that is being written.
    spent: Spent,
    written: HashSet<SessionRef>,
}

/// A new context, some rows of which come behind it in the log.
struct Pending {
    context: ContextFact,
    order: Vec<Uuid>,
    fresh: HashMap<Uuid, Box<RowFact>>,
    missing: usize,
}

impl Export<'_> {
    fn session(&mut self, session: &SessionRef) -> Result<()> {
        if !self.written.insert(session.clone()) {
            return Ok(());
        }
        let locator = self.store.locator();
        let head = locator.head_generation(session)?;
        self.report.sessions += 1;
        if self.writer.usage_kept() != UsageKept::None {
            let records = self.store.session_records(session)?;
            self.spent = Spent::gather(records, |source| Some(self.files.get(&source)?.0))?;
            // What no row takes stands in the file that it is from, if that is given back.
            let own = self.codec.map(|codec| codec.name());
            let apart = self.spent.left_out.iter().filter(|file| {
                let format = file.and_then(|file| Some(self.files.get(&file)?.1.as_str()));
                format.is_none() || format != own
            });
            self.report.usages_left_out += apart.count() as u64;
        }
        if !self.writer.splits_generations() {
            return self.part(session, &head);
        }
        for generation in 0..=head.generation {
            let generation = session.with_generation(generation);
            self.part(&generation, &generation)?;
        }
        Ok(())
    }

    /// Writes what goes into one file: a session up to `head`, or if generations have files of their own, one of them.
    fn part(&mut self, session: &SessionRef, head: &SessionRef) -> Result<()> {
        let locator = self.store.locator();
        let read = locator.read_session_transcript(head)?;
        let Some(read) = read.map(|it| it.read_session()).transpose()?.flatten() else {
            return Err(Error::NotWritten {
                stem: session.session_id(),
            });
        };
        let no = SessionNo(self.parts);
        self.parts += 1;
        let mut fact = SessionFact::new(session.clone(), read.meta);
        fact.title = self.titles.get(&session.first_generation()).cloned();
        self.writer
            .write(Fact::Session(no, Box::new(fact)), self.target)?;
        self.original(session)?;
        let mut pending: Option<Pending> = None;
        let mut generation = session.generation;
        let records = if self.writer.splits_generations() {
            self.store.records(session)?
        } else {
            self.store.session_records(session)?
        };
        for record in records {
            let record = record?;
            if record.generation != generation {
                self.settle(pending.take())?;
                generation = record.generation;
                if record.kind != RecordKind::Retained {
                    // It began with nothing of the generation before.
                    self.tell(
                        record.uuid,
                        Fact::Context(context(no, &record, ContextReason::Clear)),
                    )?;
                }
            }
            self.record(no, record, &mut pending)?;
        }
        self.settle(pending)
    }

    /// Writes the file that a session was imported from, if it is one of this format.
    fn original(&mut self, session: &SessionRef) -> Result<()> {
        let Some(codec) = self.codec.filter(|_| self.writer.takes_originals()) else {
            return Ok(());
        };
        let sources = self.store.sources_of_generation(session)?;
        let own = sources.iter().filter(|it| it.format == codec.name());
        // Of several the longest says most; what only the others say is written behind it.
        let Some(source) = own.max_by_key(|it| (it.length, it.id)) else {
            return Ok(());
        };
        let Some(mut bytes) = self.store.source_bytes(source.id)? else {
            return Ok(());
        };
        if !self.writer.original(&mut bytes, self.target)? {
            return Ok(());
        }
        if let Some(bytes) = self.store.source_bytes(source.id)? {
            let path = PathBuf::from(&source.path);
            let mut source = Source::new(&path, bytes);
            let mut sink = Covering {
                store: self.store,
                covered: &mut self.covered,
                sessions: Vec::new(),
            };
            codec.read(&mut source, &mut Emit::new(&mut sink))?;
        }
        Ok(())
    }

    fn record(
        &mut self,
        no: SessionNo,
        record: Record,
        pending: &mut Option<Pending>,
    ) -> Result<()> {
        match record.kind {
            RecordKind::Message => {
                let Some(message) = record.message else {
                    return Ok(());
                };
                let uuid = record.uuid;
                let cache_write = record.cache_write_tokens;
                let row = Box::new(self.row(no, message, &record.written_at, cache_write));
                self.count(&row);
                let held = pending.as_mut().filter(|held| held.order.contains(&uuid));
                if let Some(held) = held {
                    held.fresh.insert(uuid, row);
                    held.missing = held.missing.saturating_sub(1);
                    if held.missing == 0 {
                        return self.settle(pending.take());
                    }
                    return Ok(());
                }
                self.settle(pending.take())?;
                let at = self.number(uuid);
                self.tell(uuid, Fact::Row(at, row))
            }
            RecordKind::Compaction | RecordKind::Retained => {
                self.settle(pending.take())?;
                let order = match record.kind {
                    RecordKind::Retained => self.beginning(&record)?,
                    _ => record.retained.clone(),
                };
                let missing = order
                    .iter()
                    .filter(|it| !self.rows.contains_key(it))
                    .count();
                let reason = match record.kind {
                    RecordKind::Compaction => ContextReason::Compaction,
                    _ => ContextReason::Rewind,
                };
                let held = Pending {
                    context: *context(no, &record, reason),
                    order,
                    fresh: HashMap::new(),
                    missing,
                };
                if missing == 0 {
                    return self.settle(Some(held));
                }
                *pending = Some(held);
                Ok(())
            }
            RecordKind::Partial => {
                self.settle(pending.take())?;
                let Some(message) = record.message else {
                    return Ok(());
                };
                let mut partial = TranscriptPartial::new(message.message.content);
                partial.reasoning_content = message.reasoning_content;
                partial.iteration = message.iteration;
                let fact = Fact::Partial {
                    session: no,
                    partial,
                    request_id: record.request_id,
                    ts: message.ts.unwrap_or(record.written_at),
                    place: Place::default(),
                    key: key(record.uuid),
                };
                self.tell(record.uuid, fact)
            }
            RecordKind::Tools => {
                let Some(tools) = record.tools else {
                    return Ok(());
                };
                let fact = Fact::Tools {
                    session: no,
                    tools,
                    place: Place::default(),
                    key: key(record.uuid),
                };
                self.tell(record.uuid, fact)
            }
            RecordKind::Usage => {
                if self.writer.usage_kept() == UsageKept::None && !record.superseded {
                    self.report.usages_left_out += 1;
                }
                Ok(())
            }
            RecordKind::Seal => Ok(()),
        }
    }

    /// The rows that a generation began with, in order, up to the last one that it kept: a record of those does not tell
    /// which new rows stand among them.
    fn beginning(&self, record: &Record) -> Result<Vec<Uuid>> {
        let meta = TranscriptMeta::new("");
        let history = self.store.locator().open_stem(&record.stem, meta)?;
        let shown = history
            .read_display()?
            .map_or_else(Vec::new, |it| it.records);
        let mut rows: Vec<Uuid> = shown
            .iter()
            .map_while(|shown| match shown {
                DisplayRecord::Message(row) => Some(row.uuid),
                DisplayRecord::Compaction(_) => None,
            })
            .collect();
        let last = rows.iter().rposition(|row| record.retained.contains(row));
        rows.truncate(last.map_or(0, |last| last + 1));
        Ok(rows)
    }

    /// Counts what of the usage of a row is in no file.
    fn count(&mut self, row: &RowFact) {
        let covered = |uuid: Uuid| self.covered.contains(&uuid);
        if row.revises.is_some() || row.uuid.is_some_and(covered) {
            return;
        }
        let Some(usage) = &row.message.turn_usage else {
            return;
        };
        match self.writer.usage_kept() {
            UsageKept::Whole => {}
            UsageKept::Tokens => {
                self.report.costs_left_out += u64::from(usage.usage.cost_usd > 0.0);
            }
            UsageKept::None => self.report.usages_left_out += 1,
        }
    }

    fn row(&self, no: SessionNo, row: DisplayMessage, written: &str, cache_write: u64) -> RowFact {
        let uuid = row.uuid;
        let mut message = row.message;
        let own = message.turn_usage.take().or(row.turn_usage);
        let (usage, cache_write) = self.spent.on(uuid, own, cache_write);
        message.turn_usage = usage;
        message.request_id = message.request_id.or(row.request_id);
        RowFact {
            session: no,
            message,
            uuid: Some(uuid),
            ts: row.ts.unwrap_or_else(|| written.to_owned()),
            iteration: row.iteration,
            place: Place::default(),
            key: key(uuid),
            revises: row.revises.and_then(|it| self.rows.get(&it)).copied(),
            cache_write,
            lossy: false,
        }
    }

    fn number(&mut self, uuid: Uuid) -> RowNo {
        let next = RowNo(self.rows.len() as u64);
        *self.rows.entry(uuid).or_insert(next)
    }

    /// Tells of a context, all rows of which are known.
    fn settle(&mut self, pending: Option<Pending>) -> Result<()> {
        let Some(mut pending) = pending else {
            return Ok(());
        };
        for uuid in pending.order {
            let kept = match pending.fresh.remove(&uuid) {
                Some(row) => Kept::New(self.number(uuid), row),
                None => match self.rows.get(&uuid) {
                    Some(no) => Kept::Row(*no),
                    None => continue,
                },
            };
            pending.context.rows.push(kept);
        }
        let uuid = pending.context.uuid.unwrap_or_default();
        self.tell(uuid, Fact::Context(Box::new(pending.context)))
    }

    fn tell(&mut self, uuid: Uuid, fact: Fact) -> Result<()> {
        if self.covered.contains(&uuid) {
            self.writer.known(fact);
            return Ok(());
        }
        self.writer.write(fact, self.target)
    }
}

fn context(session: SessionNo, record: &Record, reason: ContextReason) -> Box<ContextFact> {
    Box::new(ContextFact {
        session,
        reason,
        rows: Vec::new(),
        metadata: record.metadata.clone(),
        ts: record.written_at.clone(),
        uuid: Some(record.uuid),
        place: Place::default(),
        key: key(record.uuid),
    })
}

fn key(uuid: Uuid) -> RepeatKey {
    RepeatKey(uuid.into_bytes())
}

/// Finds the records that a source was imported as.
struct Covering<'c> {
    store: &'c Store,
    covered: &'c mut HashSet<Uuid>,
    /// By their numbers: the stem of each session, and its last generation.
    sessions: Vec<(String, u32)>,
}

impl Covering<'_> {
    fn session(&mut self, no: SessionNo, session: &SessionRef) -> Result<()> {
        let head = self.store.locator().head_generation(session)?;
        if no.0 as usize == self.sessions.len() {
            self.sessions.push((session.base_stem(), head.generation));
        }
        Ok(())
    }

    /// Covers what a record was imported as, each time that it was read.
    fn cover(&mut self, session: SessionNo, key: RepeatKey, place: Place) -> Result<()> {
        let Some((stem, last)) = self.sessions.get(session.0 as usize) else {
            return Ok(());
        };
        let key = key_of(key, place);
        for generation in 0..=*last {
            self.covered
                .extend(self.store.imported(&key, stem, generation)?);
        }
        Ok(())
    }
}

impl Sink for Covering<'_> {
    fn take(&mut self, fact: Fact) -> Result<()> {
        match fact {
            Fact::Session(no, session) => self.session(no, &session.session),
            Fact::Row(_, row) => self.cover(row.session, row.key, row.place),
            Fact::Context(context) => {
                self.cover(context.session, context.key, context.place)?;
                for kept in context.rows {
                    if let Kept::New(_, row) = kept {
                        self.cover(row.session, row.key, row.place)?;
                    }
                }
                Ok(())
            }
            Fact::Tools {
                session,
                place,
                key,
                ..
            } => self.cover(session, key, place.part(u32::MAX - 1)),
            Fact::Partial {
                session,
                place,
                key,
                ..
            } => self.cover(session, key, place),
            _ => Ok(()),
        }
    }
}
