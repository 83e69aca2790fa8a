//! The heart of the store: the way of a write, and the snapshot of a read.
//!
//! ```text
//! plan  →  order (sequencer and queue)  →  durable  →  apply  →  answer
//! ```

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::apply;
use super::builder::Compression;
use super::change::Change;
use super::codec::Dictionaries;
use super::commit::{Committer, Enqueued, GROUP_BYTES, GroupError, Queued, Ticket};
use super::database::{Database, Health, Identity, Level, WriteError};
use super::envelope::Packing;
use super::environment::{Environment, UuidGenerator};
use super::hash::Seed;
use super::journal::Payload;
use super::journaled::Journaled;
use super::lock::Locks;
use super::moment;
use super::pending::{Newest, Session, Sessions, View};
use super::read::Reader;
use super::snapshot::Snapshot;
use crate::{Error, Result};

/// A change of more bytes is not encoded: it is too large for a group of the journal, however roughly it was weighed.
const JOURNALED_BYTES: usize = 4 * GROUP_BYTES;

/// An open store.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) seed: Seed,
    /// Where the store lives; None in memory.
    pub(super) path: Option<PathBuf>,
    /// Equal for all locators over this store, different from every other store's.
    pub(super) destination: String,
    pub(super) read_only: bool,
    /// Bytes that one record may have.
    pub(super) record_limit: u64,
    pub(super) compression: Compression,
    pub(super) dictionaries: Dictionaries,
    pub(super) environment: Arc<dyn Environment>,
    pub(super) uuids: UuidGenerator,
    pub(super) sessions: Sessions,
    pub(super) committer: Committer,
    pub(super) database: Arc<Database>,
    /// How changes become durable; None in memory, where nothing does, and where nothing is written.
    pub(super) journaled: Option<Arc<Journaled>>,
    pub(super) readers: super::stats::Readers,
    /// Held by the compaction under way.
    pub(super) compacting: Mutex<()>,
    next_transcript: AtomicU64,
    /// Held by the import that runs: there is one at a time.
    pub(super) importing: Mutex<()>,
    /// Held as long as the store is open; released after the database is closed.
    _locks: Option<Locks>,
}

/// What a plan comes to.
pub(super) enum Planned<T> {
    /// The change to make, the pending head after it, and the answer once it is durable.
    Write {
        change: Box<Change>,
        newest: Newest,
        /// Sessions that the plan has read and that must not have moved since, beside its own.
        beside: Vec<(Arc<Session>, View)>,
        answer: T,
    },
    /// Nothing needs to change.
    Answer(T),
}

impl<T> Planned<T> {
    /// Makes it only if these sessions are still as they were seen when its change gets its place.
    pub(super) fn beside(mut self, seen: Vec<(Arc<Session>, View)>) -> Self {
        if let Self::Write { beside, .. } = &mut self {
            *beside = seen;
        }
        self
    }

    pub(super) fn map<U>(self, map: impl FnOnce(T) -> U) -> Planned<U> {
        match self {
            Self::Write {
                change,
                newest,
                beside,
                answer,
            } => Planned::Write {
                change,
                newest,
                beside,
                answer: map(answer),
            },
            Self::Answer(answer) => Planned::Answer(map(answer)),
        }
    }
}

/// What an engine is made of.
pub(super) struct Parts {
    pub(super) path: Option<PathBuf>,
    pub(super) destination: String,
    pub(super) read_only: bool,
    pub(super) record_limit: u64,
    pub(super) compression: Compression,
    pub(super) environment: Arc<dyn Environment>,
    pub(super) database: Arc<Database>,
    pub(super) journaled: Option<Arc<Journaled>>,
    pub(super) sessions: Sessions,
    pub(super) locks: Option<Locks>,
}

impl Engine {
    pub(super) fn new(parts: Parts, identity: &Identity) -> Self {
        let state = identity.state;
        Self {
            seed: Seed::from_bytes(identity.seed),
            path: parts.path,
            destination: parts.destination,
            read_only: parts.read_only,
            record_limit: parts.record_limit,
            compression: parts.compression,
            dictionaries: Dictionaries::default(),
            uuids: UuidGenerator::new(Arc::clone(&parts.environment), state.last_uuid),
            environment: parts.environment,
            sessions: parts.sessions,
            committer: Committer::new(state.sequence),
            database: parts.database,
            journaled: parts.journaled,
            readers: super::stats::Readers::default(),
            compacting: Mutex::new(()),
            next_transcript: AtomicU64::new(identity.last_transcript.saturating_add(1)),
            importing: Mutex::default(),
            _locks: parts.locks,
        }
    }

    /// Reads on one snapshot with everything that was acknowledged before.
    pub(super) fn read<T>(&self, read: impl FnOnce(&mut Reader<'_>) -> Result<T>) -> Result<T> {
        self.read_behind(self.acknowledged(), read)
    }

    /// Reads on one snapshot with everything of one session that was acknowledged before. `base` is the stem of its
    /// generation 0.
    pub(super) fn read_of<T>(
        &self,
        base: &str,
        read: impl FnOnce(&mut Reader<'_>) -> Result<T>,
    ) -> Result<T> {
        // Whatever is not applied yet holds its session.
        let acknowledged = match self.sessions.held(base) {
            Some(session) => self.acknowledged_of(&session),
            None => 0,
        };
        self.read_behind(acknowledged, read)
    }

    /// Reads on one snapshot, which may lag behind what was acknowledged.
    pub(super) fn snapshot<T>(&self, read: impl FnOnce(&mut Reader<'_>) -> Result<T>) -> Result<T> {
        self.read_behind(0, read)
    }

    /// Reads on one snapshot with all that `view` rests on, which is settled.
    pub(super) fn read_under<T>(
        &self,
        view: &View,
        read: impl FnOnce(&mut Reader<'_>) -> Result<T>,
    ) -> Result<T> {
        self.read_behind(view.sequence, read)
    }

    /// Reads on one snapshot with all changes up to `sequence`, which are durable.
    pub(super) fn read_behind<T>(
        &self,
        sequence: u64,
        read: impl FnOnce(&mut Reader<'_>) -> Result<T>,
    ) -> Result<T> {
        let answer = |snapshot: &Arc<Snapshot>| {
            read(&mut Reader::new(snapshot, &self.seed, &self.dictionaries))
        };
        match moment::held(self) {
            Some(snapshot) => answer(&snapshot),
            None => self.read_snapshot(sequence, answer),
        }
    }

    /// Reads on one snapshot as a whole, with all changes up to `sequence`, which are durable.
    pub(super) fn read_snapshot<T>(
        &self,
        sequence: u64,
        read: impl FnOnce(&Arc<Snapshot>) -> Result<T>,
    ) -> Result<T> {
        // Taken only on the snapshot that is answered from.
        let mut read = Some(read);
        loop {
            let openings = self.database.openings();
            if let Some(journaled) = &self.journaled {
                journaled.tidy();
                journaled.wait_applied(sequence)?;
            }
            let _registered = self.readers.begin();
            let seen = self.database.read_since(openings, |snapshot| {
                read.take().map(|read| read(snapshot)).transpose()
            })?;
            if let Some(seen) = seen.flatten() {
                return Ok(seen);
            }
        }
    }

    /// The last change that is durable.
    pub(super) fn acknowledged(&self) -> u64 {
        self.committer.durable()
    }

    /// The last change of a session that was acknowledged, or a later one.
    fn acknowledged_of(&self, session: &Session) -> u64 {
        match session.last_sequence() {
            0 => 0,
            enqueued => enqueued.min(self.acknowledged()),
        }
    }

    /// The number of a transcript that is about to be created. Numbers ascend; a refused creation leaves a gap.
    pub(super) fn new_transcript(&self) -> u64 {
        self.next_transcript.fetch_add(1, Ordering::Relaxed)
    }

    /// How new records are stored.
    pub(super) fn packing(&self) -> Packing<'_> {
        Packing {
            seed: &self.seed,
            lz4: self.compression == Compression::Lz4,
        }
    }

    /// Refuses writes to a store that was opened for reading.
    pub(super) fn writable(&self) -> Result<()> {
        if self.read_only {
            return Err(Error::ReadOnly {
                path: self.path.clone().unwrap_or_default(),
            });
        }
        if moment::held(self).is_some() {
            return Err(Error::other(
                "a store cannot be written by what its own export calls",
            ));
        }
        Ok(())
    }

    /// A session as it will be once all queued changes are applied.
    pub(super) fn view(&self, session: &Session) -> Result<View> {
        loop {
            let epoch = self.committer.epoch();
            if let Some(view) = session.view(epoch) {
                return Ok(view);
            }
            let acknowledged = self.acknowledged_of(session);
            let newest =
                self.read_behind(acknowledged, |reader| reader.newest_of(&session.stem))?;
            session.install(epoch, acknowledged, newest);
        }
    }

    /// Waits until all that `view` rests on is durable. False if some of it failed: then plan again.
    pub(super) fn settled(&self, view: &View) -> bool {
        self.committer.wait_durable(view.epoch, view.sequence)
    }

    /// Plans until a plan meets the head that it was made for, and answers once its change is durable.
    ///
    /// An answer or a refusal that rests on queued changes is given only once they are durable.
    pub(super) fn run<T>(
        &self,
        session: &Arc<Session>,
        mut plan: impl FnMut(&View) -> Result<Planned<T>>,
    ) -> Result<T> {
        self.writable()?;
        loop {
            if let Some(journaled) = &self.journaled {
                journaled.check()?;
            }
            self.committer.wait_for_space();
            let view = self.view(session)?;
            match plan(&view) {
                Ok(Planned::Write {
                    change,
                    newest,
                    beside,
                    answer,
                }) => {
                    let payload = self.payload(&change)?;
                    let enqueued = Enqueued {
                        change: *change,
                        payload,
                        sessions: vec![Arc::clone(session)],
                    };
                    let enqueue = || self.committer.enqueue(view.epoch, enqueued);
                    let moves = vec![(session.as_ref(), &view, newest)];
                    if let Some(ticket) = Session::advance_beside(moves, &beside, enqueue) {
                        self.committer.finish(&ticket, |group| self.commit(group))?;
                        return Ok(answer);
                    }
                }
                Ok(Planned::Answer(answer)) => {
                    if self.settled(&view) {
                        return Ok(answer);
                    }
                }
                Err(error) => {
                    if self.settled(&view) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Makes a step of an import durable. `enqueue` gives it its place.
    pub(super) fn submit(
        &self,
        change: Change,
        sessions: Vec<Arc<Session>>,
        enqueue: impl FnOnce(Enqueued) -> Option<Arc<Ticket>>,
    ) -> Result<()> {
        self.writable()?;
        if let Some(journaled) = &self.journaled {
            journaled.check()?;
        }
        self.committer.wait_for_space();
        let payload = self.payload(&change)?;
        let ticket = enqueue(Enqueued {
            change,
            payload,
            sessions,
        })
        .ok_or(Error::Busy {
            what: "other writers changed what is being imported",
        })?;
        self.committer.finish(&ticket, |group| self.commit(group))
    }

    /// A change as the journal stores it, if it does.
    fn payload(&self, change: &Change) -> Result<Option<Payload>> {
        if self.journaled.is_none() || change.weight() > JOURNALED_BYTES {
            return Ok(None);
        }
        Ok(Some(Payload::new(change.encode()?)))
    }

    fn commit(&self, group: Vec<Arc<Queued>>) -> std::result::Result<(), GroupError> {
        match &self.journaled {
            Some(journaled) => journaled.commit(group),
            None => self
                .database
                .write(Level::Memory, |transaction| {
                    let changes = group.iter().map(|queued| (queued.sequence, &queued.change));
                    apply::apply_group(transaction, &self.seed, changes)
                })
                .map_err(|error| match error {
                    WriteError::Refused(error) => GroupError::Refused(error),
                    WriteError::Uncertain(error) => GroupError::Indeterminate(error),
                }),
        }
    }

    /// Makes the database itself hold all that was acknowledged.
    pub(super) fn checkpoint(&self) -> Result<()> {
        match &self.journaled {
            Some(journaled) => journaled.checkpoint_now(self.committer.durable()),
            None => Ok(()),
        }
    }

    pub(super) fn health(&self) -> Health {
        match &self.journaled {
            Some(journaled) => journaled.health(),
            None => self.database.health(),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        match &self.journaled {
            Some(journaled) => journaled.close(),
            None => self.database.close(),
        }
    }
}
