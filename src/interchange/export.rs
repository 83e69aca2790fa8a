//! From the store to files of a format.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use super::codec::Codec;
use super::emit::{Emit, Sink};
use super::fact::{
    ContextFact, ContextReason, Fact, Kept, Place, RepeatKey, RowFact, RowNo, SessionFact,
    SessionNo,
};
use super::import::key_of;
use super::source::Source;
use super::write::{Target, Writer};
use crate::session::split_generation;
use crate::{
    DisplayMessage, Error, Record, RecordKind, Result, SessionQuery, SessionRef, Store,
    TranscriptLocator, TranscriptPartial,
};

impl Store {
    /// Writes sessions in a format: all their generations, and every sub-agent below them.
    ///
    /// A session that was imported from a file of this format has that file's bytes, and behind them what was appended
    /// since.
    ///
    /// # Errors
    ///
    /// [`Error::NotWritten`] for a session that is not there; [`Error::InvalidId`] for one whose id cannot name a file;
    /// what the target answers. A format that cannot be written is an error, too.
    pub fn export(
        &self,
        sessions: &[SessionRef],
        codec: &dyn Codec,
        target: &mut dyn Target,
    ) -> Result<()> {
        let Some(mut writer) = codec.writer() else {
            return Err(Error::other(
                "this format can only be given back as it was imported, not written anew",
            ));
        };
        let all = self.sessions_matching(&SessionQuery {
            children: true,
            ..SessionQuery::default()
        })?;
        let mut known: Vec<SessionRef> = all.into_iter().filter_map(|it| it.session).collect();
        known.sort_by_key(|session| (session.ancestors().len(), session.session_id()));
        let mut export = Export {
            store: self,
            codec,
            writer: writer.as_mut(),
            target,
            sessions: 0,
            rows: HashMap::new(),
            covered: HashSet::new(),
            written: HashSet::new(),
        };
        for session in sessions {
            let session = session.first_generation();
            export.session(&session)?;
            let stem = session.session_id();
            for child in &known {
                let above = child.ancestors().iter();
                if above.into_iter().any(|it| split_generation(it).0 == stem) {
                    export.session(&child.first_generation())?;
                }
            }
        }
        export.writer.finish(export.target)
    }
}

struct Export<'e> {
    store: &'e Store,
    codec: &'e dyn Codec,
    writer: &'e mut dyn Writer,
    target: &'e mut dyn Target,
    sessions: u32,
    rows: HashMap<Uuid, RowNo>,
    /// What stands in the originals that were written.
    covered: HashSet<Uuid>,
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
        let read = locator.read_session_transcript(&head)?;
        let Some(read) = read.map(|it| it.read_session()).transpose()?.flatten() else {
            return Err(Error::NotWritten {
                stem: session.session_id(),
            });
        };
        let no = SessionNo(self.sessions);
        self.sessions += 1;
        let fact = SessionFact::new(session.clone(), read.meta);
        self.writer
            .write(Fact::Session(no, Box::new(fact)), self.target)?;
        self.original(session)?;
        let mut pending: Option<Pending> = None;
        let mut generation = 0;
        for record in self.store.session_records(session)? {
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
        let sources = self.store.sources_of(session)?;
        let own = sources.iter().filter(|it| it.format == self.codec.name());
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
            };
            self.codec.read(&mut source, &mut Emit::new(&mut sink))?;
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
                let row = Box::new(self.row(no, message, uuid, &record.written_at));
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
                let order = record.retained.clone();
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
            RecordKind::Usage | RecordKind::Seal => Ok(()),
        }
    }

    fn row(&self, no: SessionNo, row: DisplayMessage, uuid: Uuid, written: &str) -> RowFact {
        let mut message = row.message;
        message.turn_usage = message.turn_usage.or(row.turn_usage);
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
}

impl Covering<'_> {
    fn cover(&mut self, key: RepeatKey, place: Place) -> Result<()> {
        self.covered
            .extend(self.store.imported(&key_of(key, place))?);
        Ok(())
    }
}

impl Sink for Covering<'_> {
    fn take(&mut self, fact: Fact) -> Result<()> {
        match fact {
            Fact::Row(_, row) => self.cover(row.key, row.place),
            Fact::Context(context) => {
                self.cover(context.key, context.place)?;
                for kept in context.rows {
                    if let Kept::New(_, row) = kept {
                        self.cover(row.key, row.place)?;
                    }
                }
                Ok(())
            }
            Fact::Tools { place, key, .. } => self.cover(key, place.part(u32::MAX - 1)),
            Fact::Partial { place, key, .. } => self.cover(key, place),
            _ => Ok(()),
        }
    }
}

/// A folder that an export is written into. Files that are there already are never replaced.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    begun: HashSet<String>,
    current: String,
    file: Option<BufWriter<File>>,
}

impl Folder {
    /// The folder at `path`, which is created with the first file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            begun: HashSet::new(),
            current: String::new(),
            file: None,
        }
    }

    /// Writes out what is still in memory.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn finish(mut self) -> Result<()> {
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        match self.file.take() {
            Some(mut file) => file.flush().map_err(failed),
            None => Ok(()),
        }
    }
}

impl Target for Folder {
    fn file(&mut self, name: &str) -> Result<&mut dyn Write> {
        if self.current != name || self.file.is_none() {
            self.flush()?;
            for part in name.split('/') {
                super::write::plain_name(part)?;
            }
            let path = self.path.join(name);
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).map_err(failed)?;
            }
            let file = if self.begun.insert(name.to_owned()) {
                File::create_new(&path)
            } else {
                File::options().append(true).open(&path)
            };
            self.file = Some(BufWriter::new(file.map_err(failed)?));
            name.clone_into(&mut self.current);
        }
        match &mut self.file {
            Some(file) => Ok(file),
            None => Err(Error::other("no file was begun")),
        }
    }
}

fn failed(error: io::Error) -> Error {
    Error::Io {
        what: "writing an export".to_owned(),
        source: Arc::new(error),
    }
}
