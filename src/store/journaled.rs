//! How a group becomes durable in a store with a journal: one write and one sync.
//!
//! The tables take the changes later (see `checkpoint`). A change too large for the journal goes to the tables at once,
//! behind all that were journaled before it.

use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::apply;
use super::backend::Backend;
use super::change::Change;
use super::checkpoint::Tables;
use super::commit::{Enqueued, GROUP_BYTES, GroupError, Queued};
use super::database::{
    Database, Identity, Level, MakeBackend, Replay, WriteError, io as io_error, needs_reopening,
};
use super::environment::Environment;
use super::hash::Seed;
use super::journal::{self, AppendError, Fit, Frame, RecoveryError, Writer};
use super::pending::Sessions;
use crate::{Error, Result};

/// At most one attempt to go on after an error in this time.
pub(super) const RECOVERY_PAUSE: Duration = Duration::from_millis(100);

/// The file of the journal.
pub(super) struct JournalFile {
    /// Opens the one that is there, for reading.
    pub(super) open: MakeBackend,
    /// Opens it for writing, or creates it; called whenever a journal begins.
    pub(super) make: MakeBackend,
    /// Removes it.
    pub(super) discard: Box<dyn Fn() -> io::Result<()> + Send + Sync>,
}

impl JournalFile {
    /// The changes behind those that the database holds, with their sequences. Nothing is changed.
    pub(super) fn changes(&self, identity: &Identity) -> Result<Vec<(u64, Change)>> {
        let Some(ledger) = &identity.state.journal else {
            return Ok(Vec::new());
        };
        let backend = match (self.open)() {
            Ok(backend) => backend,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::Corrupted {
                    what: "the journal of a store that was not closed".to_owned(),
                    at: "its file is missing".to_owned(),
                });
            }
            Err(error) => return Err(io_error("opening the journal", error)),
        };
        let found = journal::read(&backend, identity.id, ledger, identity.state.sequence)
            .map_err(recovery_error)?;
        found
            .into_iter()
            .map(|found| Ok((found.sequence, Change::decode(&found.payload)?)))
            .collect()
    }

    /// Opens the file for a journal to begin. A file of another kind is left alone.
    fn begin(&self) -> Result<Box<dyn Backend>> {
        let backend = (self.make)().map_err(|error| io_error("opening the journal", error))?;
        match journal::is_one(&backend) {
            Ok(true) => Ok(backend),
            Ok(false) => Err(io_error(
                "beginning the journal: another file has its name",
                io::ErrorKind::AlreadyExists.into(),
            )),
            Err(error) => Err(io_error("reading the journal", error)),
        }
    }

    /// Removes the file, if there is one.
    fn end(&self) {
        let is_one = (self.open)().and_then(|backend| journal::is_one(&backend));
        if is_one.is_ok_and(|is_one| is_one) {
            let _ = (self.discard)();
        }
    }
}

/// When and how the journal is written and emptied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Groups are not synced.
    pub(super) eventual: bool,
    /// Bytes of changes after which a checkpoint is due.
    pub(super) checkpoint_bytes: u64,
    /// Time after which it is due in any case.
    pub(super) checkpoint_interval: Duration,
}

/// The journal, the tables behind it, and what lies between them.
pub(super) struct Journaled {
    pub(super) database: Arc<Database>,
    pub(super) seed: Seed,
    store_id: [u8; 16],
    pub(super) environment: Arc<dyn Environment>,
    pub(super) pace: Pace,
    file: JournalFile,
    /// Held by whoever is next at the desk, so that the applier gets there between two leaders.
    next: Mutex<()>,
    desk: Mutex<Desk>,
    /// Why the journal is not written, if it is not.
    trouble: Mutex<Option<Error>>,
    pub(super) tables: Mutex<Tables>,
    /// Signals every change of `tables`.
    pub(super) moved: Condvar,
    /// Calls the applier.
    pub(super) work: Condvar,
    applier: Mutex<Option<JoinHandle<()>>>,
}

/// What the leader of a group writes with.
pub(super) struct Desk {
    pub(super) phase: Phase,
    /// When voiding failed last, and why.
    not_voided: Option<(Instant, Error)>,
    /// When beginning a journal failed last, and why.
    not_begun: Option<(Instant, Error)>,
}

/// What the journal is up to.
pub(super) enum Phase {
    /// There is none; the next write begins one.
    Idle,
    Live(Writer),
    /// A write failed, and what it may have left has still to be overwritten.
    Spent(Writer),
}

impl fmt::Debug for Journaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journaled")
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

/// What a journal is made over.
pub(super) struct JournalParts {
    pub(super) database: Arc<Database>,
    pub(super) environment: Arc<dyn Environment>,
    pub(super) pace: Pace,
    pub(super) file: JournalFile,
}

impl Journaled {
    /// Makes the journal of a store that was opened. The `changes` that were found in the journal are applied first;
    /// `identity` then tells where the store stands. If damage keeps them from being applied, the store is open all the
    /// same, but failed.
    pub(super) fn recover(
        parts: JournalParts,
        changes: Vec<(u64, Change)>,
        identity: &mut Identity,
        sessions: &Sessions,
    ) -> Result<Arc<Self>> {
        let recovered = changes
            .into_iter()
            .map(|(sequence, change)| {
                let concerned: Vec<_> = change
                    .sessions()
                    .into_iter()
                    .map(|stem| sessions.get(stem))
                    .collect();
                for session in &concerned {
                    session.recover(sequence);
                }
                let enqueued = Enqueued {
                    change,
                    payload: None,
                    sessions: concerned,
                };
                Queued::new(sequence, enqueued)
            })
            .collect();
        let state = identity.state;
        let tables = Tables::new(state.sequence, recovered, state.journal.is_none());
        let seed = Seed::from_bytes(identity.seed);
        let journaled = Arc::new_cyclic(|this: &Weak<Self>| {
            let this = Weak::clone(this);
            parts.database.on_reopen(Box::new(Uncovered(this)));
            Self {
                database: parts.database,
                seed,
                store_id: identity.id,
                environment: parts.environment,
                pace: parts.pace,
                file: parts.file,
                next: Mutex::new(()),
                desk: Mutex::new(Desk {
                    phase: Phase::Idle,
                    not_voided: None,
                    not_begun: None,
                }),
                trouble: Mutex::new(None),
                tables: Mutex::new(tables),
                moved: Condvar::new(),
                work: Condvar::new(),
                applier: Mutex::new(None),
            }
        });
        journaled.recover_tables(identity)?;
        if journaled.uncovered().0 > 0 {
            // They get their checkpoint even if nothing more is ever written.
            journaled.start_applier()?;
        }
        Ok(journaled)
    }

    /// Applies what was found in the journal.
    fn recover_tables(&self, identity: &mut Identity) -> Result<()> {
        let Some(last) = self.tables().last_uncovered() else {
            return Ok(());
        };
        let replayed = self
            .database
            .write(Level::Memory, |transaction| self.replay(transaction))
            .map_err(WriteError::into_error);
        match replayed {
            Ok(()) => *identity = self.database.identity()?,
            Err(error) if needs_reopening(&error) => return Err(error),
            // Damage keeps it from being applied. What it does not concern can be read.
            Err(error) => {
                self.tables().fail(error);
                identity.state.sequence = last;
            }
        }
        Ok(())
    }

    pub(super) fn desk(&self) -> MutexGuard<'_, Desk> {
        let _next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a group durable and hands it on to the tables.
    pub(super) fn commit(
        self: &Arc<Self>,
        group: Vec<Arc<Queued>>,
    ) -> std::result::Result<(), GroupError> {
        let Some(first) = group.first() else {
            return Ok(());
        };
        let mut desk = self.desk();
        if first
            .frame_bytes
            .is_none_or(|bytes| bytes > GROUP_BYTES as u64)
        {
            return self.commit_directly(&mut desk, first);
        }
        let first = first.sequence;
        let bytes = group.iter().filter_map(|queued| queued.frame_bytes).sum();
        loop {
            match &mut desk.phase {
                Phase::Live(writer) if !writer.is_spent() => match writer.fits(bytes) {
                    Fit::Here | Fit::Next => {
                        self.append(&mut desk, &group)?;
                        break;
                    }
                    Fit::Full => {
                        drop(desk);
                        self.wait_for_room().map_err(GroupError::Refused)?;
                        desk = self.desk();
                    }
                },
                _ => {
                    self.begin(&mut desk, first).map_err(GroupError::Refused)?;
                }
            }
        }
        drop(desk);
        self.hand_on(group);
        Ok(())
    }

    fn append(
        &self,
        desk: &mut Desk,
        group: &[Arc<Queued>],
    ) -> std::result::Result<(), GroupError> {
        let Phase::Live(mut writer) = std::mem::replace(&mut desk.phase, Phase::Idle) else {
            return Ok(());
        };
        let mut payloads: Vec<_> = group.iter().map(|queued| queued.payload()).collect();
        let frames: Vec<_> = group
            .iter()
            .zip(&payloads)
            .filter_map(|(queued, payload)| {
                Some(Frame {
                    sequence: queued.sequence,
                    payload: payload.as_ref()?,
                })
            })
            .collect();
        match writer.append(&frames) {
            Ok(()) => {
                // The changes are held until the tables hold them; this is not needed any more.
                for payload in &mut payloads {
                    payload.take();
                }
                desk.phase = Phase::Live(writer);
                Ok(())
            }
            Err(AppendError::Refused(error)) => Err(GroupError::Refused(journal_error(error))),
            Err(AppendError::Uncertain(error)) => {
                let error = journal_error(error);
                desk.phase = Phase::Spent(writer);
                *self.trouble() = Some(error.clone());
                Err(GroupError::Indeterminate(error))
            }
        }
    }

    /// Begins a journal whose first change is `first`. All changes before it are then in the tables, durably.
    fn begin(self: &Arc<Self>, desk: &mut Desk, first: u64) -> Result<()> {
        desk.void()?;
        desk.may_begin()?;
        let begun = self.start_applier().and_then(|()| self.begin_anew(first));
        match begun {
            Ok(writer) => {
                desk.phase = Phase::Live(writer);
                desk.not_begun = None;
                *self.trouble() = None;
                Ok(())
            }
            Err(error) => {
                *self.trouble() = Some(error.clone());
                desk.not_begun = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    fn begin_anew(&self, first: u64) -> Result<Writer> {
        let passed = first.saturating_sub(1);
        // Only then the old journal may be overwritten.
        self.cover_all(passed, None)
            .map_err(WriteError::into_error)?;
        let backend = self.file.begin()?;
        let epochs = [self.environment.random(), self.environment.random()];
        let eventual = self.pace.eventual;
        let writer = Writer::begin(backend, self.store_id, epochs, first, eventual)
            .map_err(|error| io_error("beginning the journal", error))?;
        self.tables().clean = false;
        self.write_durably(|transaction| {
            apply::record_journal(transaction, Some(writer.ledger()), passed)
        })
        .map_err(WriteError::into_error)?;
        Ok(writer)
    }

    /// Commits a change that is too large for the journal to the tables, with all that were journaled before it.
    fn commit_directly(
        &self,
        desk: &mut Desk,
        queued: &Arc<Queued>,
    ) -> std::result::Result<(), GroupError> {
        desk.void().map_err(GroupError::Refused)?;
        // The next change begins a journal anew.
        desk.phase = Phase::Idle;
        match self.cover_all(queued.sequence, Some(queued)) {
            Ok(()) => Ok(()),
            Err(WriteError::Refused(error)) => Err(GroupError::Refused(error)),
            Err(WriteError::Uncertain(error)) => self.resolve(queued, error),
        }
    }

    /// Finds out what became of a change whose commit failed. What the database holds once it is open again is durable.
    fn resolve(&self, queued: &Queued, error: Error) -> std::result::Result<(), GroupError> {
        let found = self
            .database
            .recover()
            .and_then(|()| self.database.identity());
        match found {
            Ok(found) if found.state.sequence < queued.sequence => Err(GroupError::Refused(error)),
            Ok(_) => {
                self.note_applied(queued.sequence);
                Ok(())
            }
            Err(_) => Err(GroupError::Indeterminate(error)),
        }
    }

    /// Commits in the database, with a second try where nothing was written: somebody's read error may have closed it.
    pub(super) fn write_durably(
        &self,
        write: impl Fn(&redb::WriteTransaction) -> Result<()>,
    ) -> std::result::Result<(), WriteError> {
        match self.database.write(Level::Durable, &write) {
            Err(WriteError::Refused(error)) if needs_reopening(&error) => {
                self.database.write(Level::Durable, &write)
            }
            result => result,
        }
    }

    /// Goes on where an error stopped the store, if that is due: whoever only reads sees the trouble end, too.
    pub(super) fn tidy(&self) {
        self.try_later();
        if self.trouble().is_some()
            && let Ok(mut desk) = self.desk.try_lock()
            && desk.void().is_ok()
            && desk.may_begin().is_ok()
        {
            *self.trouble() = None;
        }
    }

    /// Why the journal is not written, if it is not.
    pub(super) fn trouble(&self) -> MutexGuard<'_, Option<Error>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start_applier(self: &Arc<Self>) -> Result<()> {
        let mut applier = self.applier.lock().unwrap_or_else(PoisonError::into_inner);
        if applier.is_none() {
            let journaled = Arc::clone(self);
            let thread = std::thread::Builder::new()
                .name("transcript-redb".to_owned())
                .spawn(move || journaled.run())
                .map_err(|error| io_error("starting the thread that fills the tables", error))?;
            *applier = Some(thread);
        }
        Ok(())
    }

    /// Applies what is left, empties the journal and removes it.
    ///
    /// Nothing acknowledged depends on it: after an error the next open finds the journal.
    pub(super) fn close(&self) {
        self.tables().closing = true;
        self.work.notify_one();
        let applier = self
            .applier
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(applier) = applier {
            let _ = applier.join();
        }
        let mut desk = self.desk();
        let voided = desk.void().is_ok();
        if voided && self.cover_all(0, None).is_ok() {
            desk.phase = Phase::Idle;
            self.file.end();
        }
        drop(desk);
        self.database.close();
    }
}

/// What the database asks when it was opened anew.
struct Uncovered(Weak<Journaled>);

impl Replay for Uncovered {
    fn replay(&self, transaction: &redb::WriteTransaction) -> Result<()> {
        match self.0.upgrade() {
            Some(journaled) => journaled.replay(transaction),
            None => Ok(()),
        }
    }

    fn ends_with(&self, sequence: u64) {
        if let Some(journaled) = self.0.upgrade() {
            journaled.ends_with(sequence);
        }
    }
}

impl Desk {
    /// Refuses to begin a journal within [`RECOVERY_PAUSE`] of an attempt that failed.
    fn may_begin(&self) -> Result<()> {
        match &self.not_begun {
            Some((failed, error)) if failed.elapsed() < RECOVERY_PAUSE => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Overwrites what a failed write may have left, at most once in [`RECOVERY_PAUSE`].
    pub(super) fn void(&mut self) -> Result<()> {
        let Phase::Spent(writer) = &mut self.phase else {
            return Ok(());
        };
        if let Some((failed, error)) = &self.not_voided
            && failed.elapsed() < RECOVERY_PAUSE
        {
            return Err(error.clone());
        }
        match writer.void() {
            Ok(()) => {
                self.phase = Phase::Idle;
                self.not_voided = None;
                Ok(())
            }
            Err(error) => {
                let error = journal_error(error);
                self.not_voided = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }
}

fn recovery_error(error: RecoveryError) -> Error {
    match error {
        RecoveryError::Io(error) => io_error("reading the journal", error),
        RecoveryError::Damaged {
            segment,
            offset,
            what,
        } => Error::Corrupted {
            what: format!("the journal: {what}"),
            at: format!("segment {segment}, offset {offset}"),
        },
    }
}

pub(super) fn journal_error(error: io::Error) -> Error {
    io_error("writing the journal", error)
}
