//! The redb engine: a store, how it is opened, and what it offers beyond the traits.

mod apply;
mod attributes;
mod backend;
mod binary;
mod blob;
mod builder;
mod change;
mod checkpoint;
mod codec;
mod commit;
mod compact;
mod database;
mod engine;
mod envelope;
mod environment;
#[cfg(test)]
mod golden;
mod hash;
mod head;
mod image;
mod import;
mod journal;
mod journaled;
mod locator;
mod lock;
mod moment;
mod origin;
mod pending;
mod plan;
mod read;
mod record;
mod snapshot;
mod spend;
mod stats;
mod tables;
mod types;

use std::borrow::Borrow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use uuid::Uuid;

pub use attributes::Attributes;
#[cfg(feature = "testkit")]
pub use backend::{Backend, StoreFile};
pub use builder::{Compression, Durability, StoreBuilder};
pub use compact::{CompactOptions, CompactProgress, CompactReport, CompactStep};
pub use database::Health;
#[cfg(feature = "testkit")]
pub use environment::Environment;
pub(crate) use image::Entry;
pub use image::ExportScope;
pub use import::SourceInfo;
pub(crate) use import::{
    CallName, ChunkWriter, ContextRow, EXPORTED, Import, ImportCall, ImportContext, ImportRow,
    Reading, Restore, SourceBytes, Span, TotalName, is_misfit,
};
pub use locator::RedbTranscriptLocator;
pub use origin::Origin;
pub use read::records::RecordIter;
pub use spend::{SpendGroup, SpendQuery, SpendRow};
pub use stats::{ReservationStats, Stats};
pub use types::{
    AdoptedSource, Adoption, AppendRows, HeadToken, ListOrder, Record, RecordKind, SessionQuery,
    SessionSummary, ThreadSummary,
};

use crate::session::split_generation;
use crate::transcript::limits::check_id;
use crate::turn::{check_session, check_stem};
use crate::{Result, SessionRef, TranscriptMeta};
use engine::Engine;

/// A transcript store in one file.
///
/// Cheap to clone; all clones, locators, handles and iterators share one open file and keep it open. The last one to go
/// closes it, before its `drop` returns. One process owns a file at a time.
#[derive(Clone)]
pub struct Store {
    engine: Arc<Engine>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("destination", &self.engine.destination)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store at `path` with default options, or creates it. See [`StoreBuilder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder().open(path)
    }

    /// Options for opening a store.
    pub fn builder() -> StoreBuilder {
        StoreBuilder::default()
    }

    /// A new store in memory.
    pub fn in_memory() -> Result<Self> {
        Self::builder().in_memory()
    }

    /// The locator: the traits on top of this store.
    #[must_use]
    pub fn locator(&self) -> RedbTranscriptLocator {
        RedbTranscriptLocator::new(self)
    }

    /// The record with this UUID. Costs two look-ups, a third for its parent.
    pub fn record(&self, uuid: Uuid) -> Result<Option<Record>> {
        // A record never changes: only one that is not found may still be on its way.
        let found = self.engine.snapshot(|reader| reader.record_by_uuid(uuid))?;
        match found {
            None => self.engine.read(|reader| reader.record_by_uuid(uuid)),
            found => Ok(found),
        }
    }

    /// What one generation first stored, in the order of its log. Rows that it kept from the generation before stand
    /// as UUIDs in one [`RecordKind::Retained`] record. Empty if it is not written.
    pub fn records(&self, session: &SessionRef) -> Result<RecordIter> {
        self.generation_records(&session.base_stem(), session.generation)
    }

    /// The records of the transcript with this stem; like [`records`](Self::records) for stems without a reference.
    pub fn records_of_stem(&self, stem: &str) -> Result<RecordIter> {
        check_stem(stem)?;
        let (base, generation) = split_generation(stem);
        self.generation_records(base, generation)
    }

    fn generation_records(&self, base: &str, generation: u32) -> Result<RecordIter> {
        self.engine.read_of(base, |reader| {
            let found: Vec<u64> = locator::find(reader, base, generation)?
                .into_iter()
                .collect();
            RecordIter::new(&self.engine, reader, &found)
        })
    }

    /// The records of all generations of a session, oldest first: each record once. Any generation may be given.
    ///
    /// From the other end ([`rev`](Iterator::rev)) it is what a host pages back through: rows that a compaction or a
    /// generation kept come once, where they were first stored. Of one generation, with its compactions,
    /// [`read_display_before`](crate::TranscriptRead::read_display_before) gives pages.
    pub fn session_records(&self, session: &SessionRef) -> Result<RecordIter> {
        let base = session.base_stem();
        self.engine.read_of(&base, |reader| {
            let chain = match reader.stem_id(&base)? {
                Some(id) => reader.chain(id)?,
                None => Vec::new(),
            };
            let transcripts: Vec<u64> = chain.into_iter().map(|(_, id)| id).collect();
            RecordIter::new(&self.engine, reader, &transcripts)
        })
    }

    /// Lists the root sessions, the one written last first. Costs the number of transcripts in the store.
    pub fn sessions(&self) -> Result<Vec<SessionSummary>> {
        self.sessions_matching(&SessionQuery::default())
    }

    /// Lists sessions: of one thread, with sub-agents, by creation, only some. Costs the number of transcripts in the
    /// store.
    pub fn sessions_matching(&self, query: &SessionQuery) -> Result<Vec<SessionSummary>> {
        self.engine.read(|reader| reader.sessions(query))
    }

    /// Lists threads, the one written last first; sessions without a thread are in none. Costs the number of transcripts in the store.
    pub fn threads(&self) -> Result<Vec<ThreadSummary>> {
        self.engine.read(|reader| reader.threads())
    }

    /// Sums spend. Costs the totals that are summed, not the records behind them.
    pub fn spend(&self, query: impl Borrow<SpendQuery>) -> Result<Vec<SpendRow>> {
        self.engine.read(|reader| reader.spend(query.borrow()))
    }

    /// Names the head of a session as it is now, durable; None if the session was never written. Any generation may be
    /// given.
    pub fn head(&self, session: &SessionRef) -> Result<Option<HeadToken>> {
        check_session(session)?;
        let base = session.base_stem();
        self.engine.read_of(&base, |reader| {
            Ok(reader.newest_of(&base)?.as_ref().map(HeadToken::of))
        })
    }

    /// Appends the rows of a turn to the head that `token` names, and names the head after it.
    ///
    /// The fast path for a host that keeps the token instead of message lists: nothing is compared but the token. A session
    /// begins with a write through a handle ([`open_session`](crate::TranscriptLocator::open_session)), which knows its header;
    /// [`head`](Self::head) then gives the first token. Rows
    /// are stamped as in [`append_turn`](crate::TranscriptHistory::append_turn). Without rows nothing is written.
    ///
    /// # Errors
    ///
    /// [`Error::Stale`](crate::Error::Stale) if anything was written since the token was given, where `expected` and
    /// `found` are not numbers of rows but the sequences of the token and of the head; ask [`head`](Self::head) again; [`Error::Sealed`](crate::Error::Sealed) if the generation has a successor.
    pub fn append_rows(
        &self,
        session: &SessionRef,
        token: &HeadToken,
        rows: AppendRows<'_>,
    ) -> Result<HeadToken> {
        check_session(session)?;
        let head = session.with_generation(token.generation);
        // The head exists when a row is appended, so this seed is never used.
        let address = locator::address(&self.engine, &head, TranscriptMeta::new(""));
        plan::append_rows(&self.engine, &address, token, &rows)
    }

    /// Makes the roots that a thread has of before there were session identities the beginning of a session.
    ///
    /// Such a root was never written through a [`SessionRef`], its header names no session, and its stem is no
    /// sub-agent's: what a host wrote through [`open_stem`](crate::TranscriptLocator::open_stem), and classic files without
    /// a `session_id`. Those that name `thread_id` and exactly the agent of the session (if that is scoped to none, the
    /// agent id of `seed`) are folded into generation 0 of `session`, in the order in which their headers say they were
    /// created: the rows of their live contexts, not what was compacted away and no partials. Its header is `seed` with the
    /// ids of session and thread, the sums of the sources' turns, tokens and cost, their earliest `created` and latest
    /// `updated`, and the `prefix_message_count` of the first; its tools are those of the source that was created last.
    ///
    /// The sources stay as they were. Each adopted row is a record of its own that *revises* the row it was taken from: it
    /// reads back with its usage, but what that cost stays counted once, with the source, where spend by thread, agent and
    /// hour had it before. So no total changes, and the sources need not be touched.
    ///
    /// None, and nothing is written, if the session has a transcript already (of whichever generation), if there is no such
    /// root, if the thread is blank, or for a sub-agent's session. Of calls that race, and of an adoption that races the
    /// first turn of the session, whoever is first in the order of the store wins: the others answer None, and the turn
    /// [`Error::Stale`](crate::Error::Stale) or what it answers to a session with these rows.
    ///
    /// Costs the roots of the thread and the rows that are taken over, which are held in memory and become one atomic write.
    ///
    /// # Errors
    ///
    /// What reading a source answers: then nothing is written. [`Error::InvalidMessage`](crate::Error::InvalidMessage) if
    /// the costs that the sources' headers name have no sum.
    pub fn adopt(
        &self,
        session: &SessionRef,
        thread_id: &str,
        seed: TranscriptMeta,
    ) -> Result<Option<Adoption>> {
        check_session(session)?;
        check_id("thread id", thread_id)?;
        self.engine.writable()?;
        let thread = thread_id.trim();
        if thread.is_empty() || session.is_subagent() {
            return Ok(None);
        }
        let first = session.first_generation();
        let agent = session.agent_id.clone().or_else(|| seed.agent_id.clone());
        let address = locator::address(&self.engine, &first, seed);
        plan::adopt(&self.engine, &address, &first, thread, agent.as_deref())
    }

    /// Frees the successor slot of a session that a forgotten handle holds. Answers whether there was one. Any
    /// generation may be given. The handle stays usable: its next write takes the slot again if that is free.
    #[expect(
        clippy::must_use_candidate,
        reason = "it is called to free the slot, not to learn of it"
    )]
    pub fn release(&self, session: &SessionRef) -> bool {
        let session = self.engine.sessions.get(&session.base_stem());
        let in_force = session.reservation();
        in_force.is_some_and(|it| session.release(|held| held.owner.ptr_eq(&it.owner)))
    }

    /// Begins an import, once no other runs.
    pub(crate) fn begin_import(&self, reading: Reading) -> Result<Import<'_>> {
        Import::begin(&self.engine, reading)
    }

    /// Begins the import of an image, once no other import runs.
    pub(crate) fn begin_restore(&self) -> Result<Restore<'_>> {
        Restore::begin(&self.engine)
    }

    /// The files that were imported, by their numbers.
    pub fn sources(&self) -> Result<Vec<SourceInfo>> {
        self.engine.read(|reader| reader.sources())
    }

    /// The files that a session was imported from; none if no import made it. Any generation may be given.
    pub fn sources_of(&self, session: &SessionRef) -> Result<Vec<SourceInfo>> {
        self.sources_where(session, |_| true)
    }

    /// Whether a file was imported from this path.
    pub(crate) fn has_source_at(&self, path: &str) -> Result<bool> {
        self.engine
            .read(|reader| Ok(reader.source_at(path)?.is_some()))
    }

    /// The files that one generation of a session was imported from.
    pub(crate) fn sources_of_generation(&self, session: &SessionRef) -> Result<Vec<SourceInfo>> {
        self.sources_where(session, |generation| generation == session.generation)
    }

    fn sources_where(
        &self,
        session: &SessionRef,
        chosen: impl Fn(u32) -> bool,
    ) -> Result<Vec<SourceInfo>> {
        check_session(session)?;
        self.engine.read(|reader| {
            let chain = match reader.stem_id(&session.base_stem())? {
                Some(id) => reader.chain(id)?,
                None => Vec::new(),
            };
            let mut found = Vec::new();
            for (_, transcript) in chain.into_iter().filter(|(it, _)| chosen(*it)) {
                for id in reader.sources_of(transcript)? {
                    if let Some(entry) = reader.source(id)? {
                        found.push(entry.info(id));
                    }
                }
            }
            found.sort_by_key(|source| source.id);
            found.dedup();
            Ok(found)
        })
    }

    /// The imported file with this number; None if there is none.
    pub fn source(&self, id: u64) -> Result<Option<SourceInfo>> {
        let found = self.engine.read(|reader| reader.source(id))?;
        Ok(found.map(|entry| entry.info(id)))
    }

    /// What the files that a session was imported from tell of it beside its header: the call that spawned it, working
    /// directory, branch, version of the tool. Nothing of a session that a host wrote. Any generation may be given.
    pub fn attributes(&self, session: &SessionRef) -> Result<Attributes> {
        check_session(session)?;
        let base = session.base_stem();
        self.engine.read_of(&base, |reader| {
            let chain = match reader.stem_id(&base)? {
                Some(id) => reader.chain(id)?,
                None => Vec::new(),
            };
            // What was read last; a generation that no file told of has none.
            for (_, transcript) in chain.into_iter().rev() {
                let told = reader.attributes(transcript)?;
                if told != Attributes::default() {
                    return Ok(told);
                }
            }
            Ok(Attributes::default())
        })
    }

    /// The record that what a file names so was imported as, into a generation of a session that a stem names.
    pub(crate) fn imported(
        &self,
        named: &[u8; 20],
        stem: &str,
        generation: u32,
    ) -> Result<Option<Uuid>> {
        let key = import::key_in(named, stem, generation);
        self.engine.read(|reader| reader.imported_uuid(&key))
    }

    /// The bytes of an imported file; None if there is no source with this number.
    pub(crate) fn source_bytes(&self, id: u64) -> Result<Option<SourceBytes<'_>>> {
        let entry = self.engine.read(|reader| reader.source(id))?;
        Ok(entry.map(|entry| SourceBytes::new(&self.engine, entry)))
    }

    /// Packs everything that is stored more tightly and gives the space back, as [`compact_with`](Self::compact_with)
    /// with default options.
    pub fn compact(&self) -> Result<CompactReport> {
        self.compact_with(CompactOptions::default())
    }

    /// Packs everything that is stored more tightly and gives the space back. No read shows a difference.
    ///
    /// Rows in live contexts are packed so that a resume stays fast, all others as tightly as is reasonable; packing
    /// runs beside reads and writes. Only giving the space back needs the store alone: reads that come then wait as
    /// long as `options` say, and are [`Error::Busy`](crate::Error::Busy) beyond that. The store is whole
    /// at every moment; what a crash cuts off is continued by the next call.
    ///
    /// Costs a look at every record, and rewriting those that are not packed for what they are now. If the process is
    /// killed while space is given back, the next open reads the whole file once.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`](crate::Error::Busy) if another compaction is under way, or reads under way did not end in time:
    /// then everything is packed, but the file is not smaller yet.
    pub fn compact_with(&self, options: CompactOptions<'_>) -> Result<CompactReport> {
        self.engine.compact(options)
    }

    /// Sizes, counts, reservations, readers. Costs a look at every large content that is stored.
    pub fn stats(&self) -> Result<Stats> {
        self.engine.stats()
    }

    /// Makes the database file itself hold all that was acknowledged, and frees the journal.
    ///
    /// A store does this by itself (see [`StoreBuilder::checkpoint_bytes`]); with
    /// [`Durability::Eventual`] this call is what makes all writes before it survive a power loss.
    pub fn checkpoint(&self) -> Result<()> {
        self.engine.checkpoint()
    }

    /// Whether the store works, without touching the disk.
    #[must_use]
    pub fn health(&self) -> Health {
        self.engine.health()
    }
}
