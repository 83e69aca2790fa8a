//! The heart of the store: the way of a write, and the snapshot of a read.
//!
//! ```text
//! plan  →  order (sequencer and queue)  →  durable  →  apply  →  answer
//! ```

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::apply;
use super::builder::Compression;
use super::change::Change;
use super::codec::Dictionaries;
use super::commit::{Answer, Committer, GroupOutcome, Queued, indeterminate};
use super::database::{Database, Identity, WriteError};
use super::envelope::Packing;
use super::environment::{Environment, UuidGenerator};
use super::hash::Seed;
use super::lock::Locks;
use super::pending::{Newest, Session, Sessions, View};
use super::read::Reader;
use crate::{Error, Result};

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
    pub(super) database: Database,
    pub(super) readers: super::stats::Readers,
    /// Held by the compaction under way.
    pub(super) compacting: Mutex<()>,
    next_transcript: AtomicU64,
    /// Held as long as the store is open; released after the database is closed.
    _locks: Option<Locks>,
}

/// What a plan comes to.
pub(super) enum Planned<T> {
    /// The change to make, the pending head after it, and the answer once it is durable.
    Write {
        change: Box<Change>,
        newest: Newest,
        answer: T,
    },
    /// Nothing needs to change.
    Answer(T),
}

impl<T> Planned<T> {
    pub(super) fn map<U>(self, map: impl FnOnce(T) -> U) -> Planned<U> {
        match self {
            Self::Write {
                change,
                newest,
                answer,
            } => Planned::Write {
                change,
                newest,
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
    pub(super) database: Database,
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
            sessions: Sessions::default(),
            committer: Committer::new(state.sequence),
            database: parts.database,
            readers: super::stats::Readers::default(),
            compacting: Mutex::new(()),
            next_transcript: AtomicU64::new(identity.last_transcript.saturating_add(1)),
            _locks: parts.locks,
        }
    }

    /// Reads on one snapshot.
    pub(super) fn read<T>(&self, read: impl FnOnce(&mut Reader<'_>) -> Result<T>) -> Result<T> {
        let _registered = self.readers.begin();
        self.database.read(|transaction| {
            read(&mut Reader::new(
                transaction,
                &self.seed,
                &self.dictionaries,
            )?)
        })
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
        Ok(())
    }

    /// A session as it will be once all queued changes are applied.
    pub(super) fn view(&self, session: &Session) -> Result<View> {
        loop {
            let epoch = self.committer.epoch();
            if let Some(view) = session.view(epoch) {
                return Ok(view);
            }
            let newest = self.read(|reader| reader.newest_of(&session.stem))?;
            session.install(epoch, newest);
        }
    }

    /// Waits until all that `view` rests on is durable and applied. False if some of it failed: then plan again.
    pub(super) fn settled(&self, view: &View) -> bool {
        self.committer.wait_applied(view.epoch, view.sequence)
    }

    /// Plans until a plan meets the head that it was made for, and answers once its change is durable.
    ///
    /// An answer or a refusal that rests on queued changes is given only once they are durable.
    pub(super) fn run<T>(
        &self,
        session: &Session,
        mut plan: impl FnMut(&View) -> Result<Planned<T>>,
    ) -> Result<T> {
        self.writable()?;
        loop {
            self.committer.wait_for_space();
            let view = self.view(session)?;
            match plan(&view) {
                Ok(Planned::Write {
                    change,
                    newest,
                    answer,
                }) => {
                    let enqueue = || self.committer.enqueue(view.epoch, *change);
                    if let Some(ticket) = session.advance(&view, newest, enqueue) {
                        match self.committer.finish(&ticket, |group| self.commit(group)) {
                            Answer::Durable => return Ok(answer),
                            Answer::Failed(error) => return Err(error),
                            Answer::PlanAgain => {}
                        }
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

    /// Makes a group durable, or each of its changes for itself if one of them cannot be applied: a damaged session
    /// keeps nobody else from writing.
    fn commit(&self, group: &[Queued]) -> GroupOutcome {
        match self.commit_whole(group) {
            GroupOutcome::Refused(error) if is_of_the_disk(&error) => GroupOutcome::Refused(error),
            GroupOutcome::Refused(error) if group.len() == 1 => {
                GroupOutcome::Parted(vec![Answer::Failed(error)])
            }
            GroupOutcome::Refused(_) => self.commit_singly(group),
            outcome => outcome,
        }
    }

    fn commit_singly(&self, group: &[Queued]) -> GroupOutcome {
        let mut refused = HashSet::new();
        let answers = group.iter().map(|queued| {
            let session = queued.change.session.as_str();
            if refused.contains(session) {
                return Answer::PlanAgain;
            }
            let answer = match self.commit_whole(std::slice::from_ref(queued)) {
                GroupOutcome::Durable => return Answer::Durable,
                GroupOutcome::Refused(error) => Answer::Failed(error),
                GroupOutcome::Indeterminate(error) => Answer::Failed(indeterminate(error)),
                GroupOutcome::Parted(_) => Answer::PlanAgain,
            };
            refused.insert(session);
            answer
        });
        GroupOutcome::Parted(answers.collect())
    }

    fn commit_whole(&self, group: &[Queued]) -> GroupOutcome {
        let write = || {
            self.database.write(|transaction| {
                let changes = group.iter().map(|queued| (queued.sequence, &queued.change));
                apply::apply_group(transaction, &self.seed, changes)
            })
        };
        let result = match write() {
            // The database may have been closed by somebody's read error. Nothing was written, so one more try is due.
            Err(WriteError::Refused(error)) if is_of_the_disk(&error) => write(),
            result => result,
        };
        match result {
            Ok(()) => GroupOutcome::Durable,
            Err(WriteError::Refused(error)) => GroupOutcome::Refused(error),
            Err(WriteError::Uncertain(error)) => self.resolve(group, error),
        }
    }

    /// Finds out what became of a group whose commit failed. What the database holds once it is open again is durable,
    /// so the answer stays true.
    fn resolve(&self, group: &[Queued], error: Error) -> GroupOutcome {
        let found = self.database.recover().and_then(|()| self.database.state());
        let first = group.first().map_or(0, |queued| queued.sequence);
        match found {
            Ok(state) if state.sequence < first => GroupOutcome::Refused(error),
            Ok(_) => GroupOutcome::Durable,
            Err(_) => GroupOutcome::Indeterminate(error),
        }
    }
}

fn is_of_the_disk(error: &Error) -> bool {
    matches!(error, Error::Io { .. } | Error::Storage { .. })
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.database.close();
    }
}
