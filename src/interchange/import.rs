//! Importing into a store, and giving back what was imported.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::codec::Codec;
use super::emit::{Emit, Sink};
use super::fact::{
    CallId, ContextFact, ContextReason, Fact, Kept, Place, RepeatKey, RowFact, RowNo, SessionNo,
};
use super::native;
use super::registry::failed;
use super::report::FileReport;
use super::source::Source;
use crate::store::{
    CallName, ChunkWriter, ContextRow, Import, ImportCall, ImportContext, ImportRow, Reading, Span,
    TotalName,
};
use crate::transcript::spend::pico_to_usd;
use crate::{Attributes, Error, Result, Store, TranscriptMessage};

impl Store {
    /// Imports a file: its rows, and its bytes as they are.
    ///
    /// All of it is there once this returns, and nothing of it if it fails or the process dies. A second import adds
    /// nothing, however the path is spelled; that of a file which has grown adds what is new in it. Damage in the file is reported and is no error.
    /// One import runs at a time; readers and other writers go on meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the file tells of a session that no import made; [`Error::Busy`] if a host wrote to one of
    /// its sessions meanwhile (repeat the call); [`Error::Io`] if the file cannot be read; what the codec refuses.
    pub fn import(&self, path: impl AsRef<Path>, codec: &dyn Codec) -> Result<FileReport> {
        self.import_watched(path, codec, |_| {})
    }

    /// Like [`import`](Self::import); `progress` is told how many bytes were read, each time that some were.
    pub fn import_watched(
        &self,
        path: impl AsRef<Path>,
        codec: &dyn Codec,
        progress: impl FnMut(u64),
    ) -> Result<FileReport> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| failed(path, error))?;
        let reading = reading(codec);
        self.import_source(path, Watched { file, progress }, codec, true, reading)
    }

    /// Imports a file whose sessions an earlier version of `codec` read: what this version makes of it becomes the next
    /// generation of each of them. Sessions that this version read, or that are new, are imported as
    /// [`import`](Self::import) does it.
    ///
    /// Nothing is lost and nothing counted twice: the former generation stays in the chain, sealed, and a row that says one
    /// of its rows anew is a revision of that row. The report counts the rows of the new generation. Later imports of the
    /// file go on in it. `progress` is told how many bytes were read, each time that some were.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] also if a session has records that were read from other files or paths, or that a host wrote;
    /// [`Error::Other`] for files whose sessions cannot be read anew: those that name generations of sessions, and images of
    /// a store.
    pub fn import_again(
        &self,
        path: impl AsRef<Path>,
        codec: &dyn Codec,
        progress: impl FnMut(u64),
    ) -> Result<FileReport> {
        let path = path.as_ref();
        if codec.restores() || codec.names_generations() {
            return Err(Error::other(format!(
                "files of the format {} are not read anew: they say themselves which generations there are",
                codec.name()
            )));
        }
        let file = File::open(path).map_err(|error| failed(path, error))?;
        let reading = Reading::Anew {
            path: self.whole_path(path)?.display().to_string(),
            codec_version: codec.version(),
        };
        self.import_source(path, Watched { file, progress }, codec, true, reading)
    }

    /// Imports what `input` gives, under the name `path`. Like [`import`](Self::import), but nothing is looked for beside
    /// it.
    pub fn import_from(
        &self,
        path: impl AsRef<Path>,
        input: impl Read,
        codec: &dyn Codec,
    ) -> Result<FileReport> {
        self.import_source(path.as_ref(), input, codec, false, reading(codec))
    }

    /// By what the file at `path` is known: the name of its folder from the root on, with no link in it, and its own. A store
    /// that knows the file under the path as it is goes on with that.
    fn whole_path(&self, path: &Path) -> Result<PathBuf> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(path.to_owned());
        };
        if self.has_source_at(&path.display().to_string())? {
            return Ok(path.to_owned());
        }
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        let whole = folder.canonicalize().map_err(|error| failed(path, error))?;
        Ok(whole.join(name))
    }

    fn import_source(
        &self,
        path: &Path,
        input: impl Read,
        codec: &dyn Codec,
        companions: bool,
        reading: Reading,
    ) -> Result<FileReport> {
        if codec.restores() {
            return native::restore(self, path, input);
        }
        let whole = if companions {
            self.whole_path(path)?
        } else {
            path.to_owned()
        };
        let import = self.begin_import(reading)?;
        let chunks = RefCell::new(ChunkWriter::new(&import));
        let failure = RefCell::new(None);
        let tee = Tee {
            input,
            chunks: &chunks,
            failure: &failure,
        };
        let mut source = Source::new(&whole, tee);
        if companions {
            source = source.with_companions();
        }
        let mut sink = Importing {
            import,
            sessions: Vec::new(),
            rows: Vec::new(),
            compactions: 0,
            lossy: 0,
            sessions_told: 0,
        };
        let read = codec
            .read(&mut source, &mut Emit::new(&mut sink))
            .and_then(|()| source.drain());
        let counts = source.counts().clone();
        drop(source);
        // What the store answered says more than the read that it made fail.
        if let Some(error) = failure.into_inner() {
            return Err(error);
        }
        read?;
        let mut report = FileReport::of(path.display().to_string(), codec.name(), &counts);
        report.compactions = sink.compactions;
        report.lossy += sink.lossy;
        report.sessions = sink.sessions_told;
        let text = chunks.into_inner().finish(
            whole.display().to_string(),
            codec.name(),
            codec.version(),
        )?;
        let added = sink.import.publish(Some(text))?;
        report.messages = added.rows;
        report.duplicates = added.duplicates;
        report.distinct_message_ids = added.message_ids;
        report.input_tokens = added.input;
        report.output_tokens = added.output;
        report.cached_input_tokens = added.cached_input;
        report.cache_write_tokens = added.cache_write;
        report.cost_usd = pico_to_usd(added.cost);
        Ok(report)
    }

    /// Writes an imported file as it was, byte for byte. Answers its length; None if there is no source with this number
    /// (see [`sources`](Self::sources)).
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if `out` cannot be written; [`Error::Corrupted`] if the stored bytes are damaged.
    pub fn export_original(&self, source: u64, out: &mut dyn Write) -> Result<Option<u64>> {
        let Some(mut bytes) = self.source_bytes(source)? else {
            return Ok(None);
        };
        let copied =
            io::copy(&mut bytes, out).map_err(|error| match error.downcast::<Error>() {
                Ok(error) => error,
                Err(error) => Error::Io {
                    what: "writing an imported file".to_owned(),
                    source: Arc::new(error),
                },
            })?;
        Ok(Some(copied))
    }
}

/// How files of a format meet sessions that are there.
fn reading(codec: &dyn Codec) -> Reading {
    if codec.names_generations() {
        Reading::AsNamed
    } else {
        Reading::Newest
    }
}

/// A file that tells how much of it was read.
struct Watched<P> {
    file: File,
    progress: P,
}

impl<P: FnMut(u64)> Read for Watched<P> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        (self.progress)(read as u64);
        Ok(read)
    }
}

/// Hands the bytes of a source on, and keeps them.
struct Tee<'t, 'e, R> {
    input: R,
    chunks: &'t RefCell<ChunkWriter<'e>>,
    failure: &'t RefCell<Option<Error>>,
}

impl<R: Read> Read for Tee<'_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        let bytes = buffer.get(..read).unwrap_or_default();
        if let Err(error) = self.chunks.borrow_mut().write(bytes) {
            *self.failure.borrow_mut() = Some(error);
            return Err(io::Error::other("the store refused the bytes"));
        }
        Ok(read)
    }
}

/// For a number that stands for no row of the store.
const NO_ROW: u32 = u32::MAX;

/// Facts → the store.
struct Importing<'e> {
    import: Import<'e>,
    /// By the number of the session.
    sessions: Vec<usize>,
    /// By the number of the row; [`NO_ROW`] where there is none.
    rows: Vec<u32>,
    compactions: u64,
    lossy: u64,
    sessions_told: u64,
}

impl Importing<'_> {
    fn session(&self, no: SessionNo) -> Result<usize> {
        let found = self.sessions.get(no.0 as usize).copied();
        found.ok_or_else(|| Error::other("a codec told of a session that it had not begun"))
    }

    fn row(&mut self, row: RowFact) -> ImportRow {
        self.lossy += u64::from(row.lossy);
        ImportRow {
            message: row.message,
            uuid: row.uuid,
            ts: row.ts,
            iteration: row.iteration,
            key: key_of(row.key, row.place),
            revises: row.revises.and_then(|no| self.at(no)),
            span: span_of(row.place),
            cache_write: row.cache_write,
        }
    }

    /// Replaces a context; codecs name its rows by their numbers.
    fn context(&mut self, context: ContextFact) -> Result<()> {
        let session = self.session(context.session)?;
        let mut numbers = Vec::new();
        let mut rows = Vec::new();
        for kept in context.rows {
            match kept {
                Kept::Row(no) => {
                    if let Some(at) = self.at(no) {
                        rows.push(ContextRow::Kept(at));
                        numbers.push(None);
                    }
                }
                Kept::New(no, row) => {
                    rows.push(ContextRow::New(Box::new(self.row(*row))));
                    numbers.push(Some(no));
                }
            }
        }
        let before = self.import.added().contexts;
        let key = key_of(context.key, context.place);
        let places = self.import.context(
            session,
            ImportContext {
                key,
                rows,
                metadata: context.metadata,
                ts: context.ts,
                uuid: context.uuid,
                span: span_of(context.place),
            },
        )?;
        if context.reason == ContextReason::Compaction {
            self.compactions += self.import.added().contexts - before;
        }
        for (no, at) in numbers.into_iter().zip(places) {
            if let Some(no) = no {
                self.set(no, at);
            }
        }
        Ok(())
    }

    fn at(&self, no: RowNo) -> Option<usize> {
        let at = self.rows.get(usize::try_from(no.0).ok()?).copied()?;
        Some(if at == NO_ROW {
            usize::MAX
        } else {
            at as usize
        })
    }

    fn set(&mut self, no: RowNo, at: usize) {
        let no = usize::try_from(no.0).unwrap_or(usize::MAX);
        // Codecs number rows one by one, so nothing is left out.
        if no >= self.rows.len() {
            self.rows.resize(no.saturating_add(1), NO_ROW);
        }
        if let Some(slot) = self.rows.get_mut(no) {
            *slot = u32::try_from(at).unwrap_or(NO_ROW);
        }
    }
}

fn span_of(place: Place) -> Span {
    Span {
        offset: place.offset,
        length: place.length,
    }
}

pub(super) fn key_of(key: RepeatKey, place: Place) -> [u8; 20] {
    let mut whole = [0; 20];
    let part = place.part.to_be_bytes();
    for (to, from) in whole.iter_mut().zip(key.0.into_iter().chain(part)) {
        *to = from;
    }
    whole
}

impl Sink for Importing<'_> {
    fn take(&mut self, fact: Fact) -> Result<()> {
        match fact {
            Fact::Session(no, session) => {
                let attributes = Attributes {
                    spawned_by: session.spawned_by,
                    more: session.attributes,
                };
                if let Some(known) = self.sessions.get(no.0 as usize) {
                    let old = session.pre_identity;
                    self.import.written_before_identities(*known, old);
                    self.import.describe(*known, attributes);
                    return self.import.header(*known, session.meta, session.title);
                }
                let old = session.pre_identity;
                self.sessions_told += 1;
                let meta = session.meta;
                let at = self.import.session(&session.session, meta, session.title)?;
                self.import.written_before_identities(at, old);
                self.import.describe(at, attributes);
                self.sessions.push(at);
            }
            Fact::Row(no, row) => {
                let session = self.session(row.session)?;
                let row = self.row(*row);
                let at = self.import.row(session, row)?;
                self.set(no, at);
            }
            Fact::Context(context) => self.context(*context)?,
            Fact::Tools {
                session,
                tools,
                place,
                key,
            } => {
                let session = self.session(session)?;
                // Apart from the rows that the same record makes.
                let key = key_of(key, place.part(u32::MAX - 1));
                let span = span_of(place);
                self.import.tools(session, &tools, key, span)?;
            }
            Fact::Partial {
                session,
                partial,
                request_id,
                ts,
                place,
                key,
            } => {
                let session = self.session(session)?;
                let mut message = TranscriptMessage::assistant(partial.content);
                message.interrupted = true;
                message.request_id = request_id;
                if let Some(reasoning) = partial.reasoning_content {
                    super::blocks::note(&mut message, "reasoning_content", reasoning);
                }
                self.import.row(
                    session,
                    ImportRow {
                        message,
                        uuid: None,
                        ts,
                        iteration: partial.iteration,
                        key: key_of(key, place),
                        revises: None,
                        span: span_of(place),
                        cache_write: 0,
                    },
                )?;
            }
            Fact::Call(call) => {
                let session = self.session(call.session)?;
                let name = match call.id {
                    CallId::Message { id, request } => CallName::Call(format!("m{id}"), request),
                    CallId::Key(key) => CallName::Call(format!("k{key}"), None),
                    CallId::Record(key) => {
                        CallName::Call(format!("r{:x}", u128::from_be_bytes(key.0)), None)
                    }
                    CallId::Total {
                        family,
                        run,
                        length,
                        after,
                    } => {
                        let name = TotalName { run, length, after };
                        CallName::Total(format!("t{family}"), name)
                    }
                };
                let told = ImportCall {
                    session,
                    usage: call.usage,
                    cache_write: call.cache_write,
                    original: call.original.map(|original| original.to_string()),
                    span: span_of(call.place),
                };
                self.import.call(name, told)?;
            }
            Fact::Seal { .. } | Fact::Bad(_) => {}
        }
        Ok(())
    }
}
