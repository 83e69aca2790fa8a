//! The redb database behind the store: opening it, telling ours from any other file, reading it, and opening it again
//! after an I/O error.
//!
//! redb answers every call after an I/O error with an error until it is opened anew. Handles therefore never hold a
//! redb database; they hold the store, which closes and re-opens the database when the next call needs it.

mod failure;
mod gate;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use redb::{
    ReadTransaction, ReadableDatabase as _, ReadableTable as _, TableError, WriteTransaction,
};

use failure::{commit_error, compaction_error, damaged, database_error, foreign};
use gate::Gate;

pub(super) use failure::{
    guarded, io, is_the_file, needs_reopening, storage_error, table_error, transaction_error,
};

use super::backend::{Backend, Overlay, RedbBackend};
use super::binary;
use super::head::StoreState;
use super::snapshot::Snapshot;
use super::tables::{self, FORMAT_VERSION};
use crate::{Error, Result};

/// At most one attempt to re-open in this time.
const RECOVERY_PAUSE: Duration = Duration::from_millis(100);

/// The first bytes of every redb file.
const REDB_MAGIC: [u8; 9] = [b'r', b'e', b'd', b'b', 0x1A, 0x0A, 0xA9, 0x0D, 0x0A];

/// redb writes its magic only when a new file is as long as it will be; until then it is not longer than this.
const MAX_UNFINISHED_BYTES: u64 = 4 << 20;

/// Makes the backend of the database file; called again at every recovery.
pub(super) type MakeBackend = Box<dyn Fn() -> std::io::Result<Box<dyn Backend>> + Send + Sync>;

/// What a store is, as its own table says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub(super) id: [u8; 16],
    pub(super) seed: [u8; 32],
    pub(super) state: StoreState,
    /// The number of the transcript that was created last; 0 for none.
    pub(super) last_transcript: u64,
}

enum Open {
    Writable(redb::Database),
    ReadOnly(redb::ReadOnlyDatabase),
}

/// Whether the store can work, and if not, why.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Health {
    /// All is well.
    Healthy,
    /// An error closed the database. The next call that needs it tries to open it again, at most ten times a second.
    Recovering {
        /// What happened.
        error: Error,
    },
    /// The database cannot be opened any more: it is damaged, or it is no longer this store.
    Failed {
        /// What happened.
        error: Error,
    },
}

/// What a committed transaction survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// A power loss.
    Durable,
    /// Nothing but further calls on the open database.
    Memory,
}

/// Knows what was committed at [`Level::Memory`], and is asked whenever the database was opened anew, before anybody
/// reads it.
pub(super) trait Replay: Send + Sync {
    /// Applies it again.
    fn replay(&self, transaction: &WriteTransaction) -> Result<()>;

    /// It could not be applied: the database ends with this change.
    fn ends_with(&self, sequence: u64);
}

/// The open database, and the way to open it again.
pub(super) struct Database {
    /// For errors only.
    path: PathBuf,
    /// What store it must still be after it was opened again.
    id: [u8; 16],
    make: MakeBackend,
    cache_bytes: usize,
    read_only: bool,
    open: RwLock<Option<Open>>,
    /// The snapshot that reads share until the next commit.
    kept: Mutex<Option<Arc<Snapshot>>>,
    /// Reads and writes go through it; a compaction needs the database alone.
    gate: Gate,
    trouble: Mutex<Option<Trouble>>,
    /// Counts how often it was opened.
    openings: AtomicU64,
    replay: OnceLock<Box<dyn Replay>>,
}

struct Trouble {
    error: Error,
    last_try: Option<Instant>,
    /// The last attempt to open it again found something that another attempt will not mend.
    failed: bool,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database")
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Opens the database, or creates it where the backend is empty, and answers what store it is.
    ///
    /// A file that is not a store of ours, or of a newer format, or that `check` refuses, is refused without a byte
    /// changed.
    pub(super) fn open(
        path: PathBuf,
        make: MakeBackend,
        cache_bytes: usize,
        read_only: bool,
        create: impl FnOnce() -> Identity,
        check: impl FnOnce(&Identity) -> Result<()>,
    ) -> Result<(Self, Identity)> {
        let backend = make().map_err(|error| io("opening the database file", error))?;
        let empty = backend
            .is_empty()
            .map_err(|error| io("reading the database file", error))?;
        let (open, identity) = if read_only {
            let open = match open_read_only(&path, backend, cache_bytes) {
                // The file of another program is not ours to recover.
                Err(error @ Error::NeedsRecovery { .. }) => {
                    return Err(inspect(&make).err().unwrap_or(error));
                }
                open => open?,
            };
            let identity = guarded(|| identify(&open.begin_read()?))?;
            if identity.state.journal.is_some() {
                return Err(Error::NeedsRecovery { path });
            }
            (open, identity)
        } else if empty {
            initialize(backend, cache_bytes, create())?
        } else {
            check(&inspect(&make)?)?;
            let open = open_writable(backend, cache_bytes)?;
            let identity = guarded(|| identify(&open.begin_read()?))?;
            (open, identity)
        };
        let database = Self {
            path,
            id: identity.id,
            make,
            cache_bytes,
            read_only,
            open: RwLock::new(Some(open)),
            kept: Mutex::new(None),
            gate: Gate::default(),
            trouble: Mutex::new(None),
            openings: AtomicU64::new(0),
            replay: OnceLock::new(),
        };
        Ok((database, identity))
    }

    /// How often it was opened, as [`read_since`](Self::read_since) wants it.
    pub(super) fn openings(&self) -> u64 {
        self.openings.load(Ordering::Acquire)
    }

    /// Runs `read` on a consistent snapshot, unless the database was opened anew since `openings`: it may show less then.
    pub(super) fn read_since<T>(
        &self,
        openings: u64,
        read: impl FnOnce(&Arc<Snapshot>) -> Result<T>,
    ) -> Result<Option<T>> {
        let _inside = self.gate.enter(false)?;
        let guard = self.usable()?;
        if self.openings() != openings {
            return Ok(None);
        }
        let Some(open) = guard.as_ref() else {
            return Err(self.closed());
        };
        // The last one to let go of a snapshot ends its transaction, which the database has to survive.
        let result = guarded(|| read(&self.snapshot(open)?));
        drop(guard);
        result.map(Some).map_err(|error| self.note(error))
    }

    /// The newest snapshot. It stands until the next commit.
    fn snapshot(&self, open: &Open) -> Result<Arc<Snapshot>> {
        let mut kept = self.kept();
        if let Some(snapshot) = kept.as_ref() {
            return Ok(Arc::clone(snapshot));
        }
        // Begun while the lock is held: a commit that it may not show takes it away again.
        let snapshot = Arc::new(Snapshot::new(open.begin_read()?));
        *kept = Some(Arc::clone(&snapshot));
        Ok(snapshot)
    }

    fn kept(&self) -> MutexGuard<'_, Option<Arc<Snapshot>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of the snapshot that is kept.
    fn let_go(&self) {
        let kept = self.kept().take();
        // Ending a transaction of a database that is broken may panic.
        drop(guarded(|| {
            drop(kept);
            Ok(())
        }));
    }

    /// Sets what is done whenever the database was opened anew.
    pub(super) fn on_reopen(&self, replay: Box<dyn Replay>) {
        let _ = self.replay.set(replay);
    }

    /// Runs `write` in a transaction and commits it at `level`.
    ///
    /// An error says whether the transaction may have been committed all the same.
    pub(super) fn write<T>(
        &self,
        level: Level,
        write: impl FnOnce(&WriteTransaction) -> Result<T>,
    ) -> std::result::Result<T, WriteError> {
        let _inside = self.gate.enter(true).map_err(WriteError::Refused)?;
        let guard = self.usable().map_err(WriteError::Refused)?;
        let database = match guard.as_ref() {
            Some(Open::Writable(database)) => database,
            Some(Open::ReadOnly(_)) => {
                return Err(WriteError::Refused(Error::ReadOnly {
                    path: self.path.clone(),
                }));
            }
            None => return Err(WriteError::Refused(self.closed())),
        };
        // Not before the commit is over for sure can a reader be shown what it wrote. Before it begins, the pages that
        // only the snapshot still needs become free to be written.
        self.let_go();
        let result = write_in(database, level, write);
        self.let_go();
        drop(guard);
        result.map_err(|error| match error {
            WriteError::Refused(error) => WriteError::Refused(self.note(error)),
            WriteError::Uncertain(error) => WriteError::Uncertain(self.trouble_with(error)),
        })
    }

    /// Moves the pages of the database to the front of the file and gives back the space behind them, with nobody else
    /// inside. Waits so long for those who are.
    pub(super) fn compact(&self, wait: Duration) -> Result<()> {
        let _alone = self.gate.enter_alone(wait)?;
        if self.trouble().is_some() {
            self.recover()?;
        }
        let mut guard = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let Some(Open::Writable(database)) = guard.as_mut() else {
            return Err(self.closed());
        };
        self.let_go();
        let result = guarded(|| {
            database.compact().map_err(compaction_error)?;
            // redb's own commits leave out the state of the allocator, without which an open after a crash walks the
            // file.
            let mut transaction = database.begin_write().map_err(transaction_error)?;
            transaction.set_quick_repair(true);
            transaction.commit().map_err(commit_error)
        });
        drop(guard);
        result.map_err(|error| self.note(error))
    }

    /// Whether the last call met an error that closed the database.
    pub(super) fn health(&self) -> Health {
        match self.trouble().as_ref() {
            None => Health::Healthy,
            Some(trouble) if trouble.failed => Health::Failed {
                error: trouble.error.clone(),
            },
            Some(trouble) => Health::Recovering {
                error: trouble.error.clone(),
            },
        }
    }

    /// Opens the database again if an error closed it. What it then holds is durable: opening it for writing ends with
    /// a sync of the root that was found.
    pub(super) fn recover(&self) -> Result<()> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        // Whoever asks for the health meanwhile does not wait for the disk.
        match self.trouble().as_mut() {
            None => return Ok(()),
            Some(known) => {
                if known
                    .last_try
                    .is_some_and(|last| last.elapsed() < RECOVERY_PAUSE)
                {
                    return Err(known.error.clone());
                }
                known.last_try = Some(Instant::now());
            }
        }
        self.let_go();
        // Closing reports the error that is known already.
        drop(guarded(|| {
            open.take();
            Ok(())
        }));
        match self.reopen() {
            Ok(fresh) => {
                *open = Some(fresh);
                self.openings.fetch_add(1, Ordering::Release);
                *self.trouble() = None;
                Ok(())
            }
            Err(error) => {
                if let Some(known) = self.trouble().as_mut() {
                    known.error = error.clone();
                    known.failed =
                        matches!(error, Error::Corrupted { .. } | Error::NewerFormat { .. });
                }
                Err(error)
            }
        }
    }

    fn reopen(&self) -> Result<Open> {
        let (open, _) = self.open_again()?;
        let (Open::Writable(database), Some(replay)) = (&open, self.replay.get()) else {
            return Ok(open);
        };
        let replayed = write_in(database, Level::Memory, |transaction| {
            replay.replay(transaction)
        });
        if replayed.is_ok() {
            return Ok(open);
        }
        // Whatever can be read without it can be read.
        drop(guarded(|| {
            drop(open);
            Ok(())
        }));
        let (open, identity) = self.open_again()?;
        replay.ends_with(identity.state.sequence);
        Ok(open)
    }

    fn open_again(&self) -> Result<(Open, Identity)> {
        let backend = (self.make)().map_err(|error| io("opening the database file", error))?;
        if backend
            .is_empty()
            .map_err(|error| io("reading the database file", error))?
        {
            return Err(damaged("it has become empty"));
        }
        let open = if self.read_only {
            open_read_only(&self.path, backend, self.cache_bytes)?
        } else {
            open_writable(backend, self.cache_bytes)?
        };
        let found = guarded(|| identify(&open.begin_read()?))?;
        if found.id != self.id {
            return Err(damaged("it has become another store"));
        }
        Ok((open, found))
    }

    /// Closes the database cleanly.
    pub(super) fn close(&self) {
        let mut guard = self.open.write().unwrap_or_else(PoisonError::into_inner);
        self.let_go();
        let open = guard.take();
        drop(guard);
        // Nothing acknowledged depends on a clean close: an error here only makes the next open repair.
        drop(guarded(|| {
            drop(open);
            Ok(())
        }));
    }

    fn usable(&self) -> Result<RwLockReadGuard<'_, Option<Open>>> {
        if self.trouble().is_some() {
            self.recover()?;
        }
        Ok(self.open.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn trouble(&self) -> std::sync::MutexGuard<'_, Option<Trouble>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn closed(&self) -> Error {
        match self.trouble().as_ref() {
            Some(trouble) => trouble.error.clone(),
            None => Error::Busy {
                what: "the store is closing",
            },
        }
    }

    /// Remembers an error after which the database has to be opened again.
    fn note(&self, error: Error) -> Error {
        if needs_reopening(&error) {
            self.trouble_with(error)
        } else {
            error
        }
    }

    fn trouble_with(&self, error: Error) -> Error {
        self.trouble().get_or_insert_with(|| Trouble {
            error: error.clone(),
            last_try: None,
            failed: false,
        });
        error
    }

    /// What store it is, and where it stands.
    pub(super) fn identity(&self) -> Result<Identity> {
        loop {
            if let Some(identity) =
                self.read_since(self.openings(), |it| identify(&it.transaction))?
            {
                return Ok(identity);
            }
        }
    }
}

/// How a write failed.
#[derive(Debug)]
pub(super) enum WriteError {
    /// Nothing was committed.
    Refused(Error),
    /// The commit was under way: it may be found after the next open.
    Uncertain(Error),
}

impl WriteError {
    /// The error, where it makes no difference.
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Refused(error) | Self::Uncertain(error) => error,
        }
    }
}

fn write_in<T>(
    database: &redb::Database,
    level: Level,
    write: impl FnOnce(&WriteTransaction) -> Result<T>,
) -> std::result::Result<T, WriteError> {
    let (transaction, value) = guarded(|| {
        let mut transaction = database.begin_write().map_err(transaction_error)?;
        match level {
            // Two-phase, so that a failed sync leaves the old root standing, and with the state of the allocator, so
            // that opening after a crash never walks the file.
            Level::Durable => transaction.set_quick_repair(true),
            Level::Memory => transaction
                .set_durability(redb::Durability::None)
                .map_err(Error::other)?,
        }
        let value = write(&transaction)?;
        Ok((transaction, value))
    })
    .map_err(WriteError::Refused)?;
    guarded(|| transaction.commit().map_err(commit_error))
        .map(|()| value)
        .map_err(WriteError::Uncertain)
}

impl Open {
    fn begin_read(&self) -> Result<ReadTransaction> {
        match self {
            Self::Writable(database) => database.begin_read(),
            Self::ReadOnly(database) => database.begin_read(),
        }
        .map_err(transaction_error)
    }
}

fn builder(cache_bytes: usize) -> redb::Builder {
    let mut builder = redb::Builder::new();
    builder.set_cache_size(cache_bytes);
    builder
}

fn open_writable(backend: Box<dyn Backend>, cache_bytes: usize) -> Result<Open> {
    guarded(|| {
        builder(cache_bytes)
            .create_with_backend(RedbBackend(backend))
            .map(Open::Writable)
            .map_err(database_error)
    })
}

fn open_read_only(path: &Path, backend: Box<dyn Backend>, cache_bytes: usize) -> Result<Open> {
    check_magic(&backend)?;
    guarded(|| {
        builder(cache_bytes)
            .open_read_only_with_backend(RedbBackend(backend))
            .map(Open::ReadOnly)
            .map_err(|error| match error {
                redb::DatabaseError::RepairAborted => Error::NeedsRecovery {
                    path: path.to_owned(),
                },
                error => database_error(error),
            })
    })
}

fn check_magic(backend: &dyn Backend) -> Result<()> {
    let mut magic = [0; REDB_MAGIC.len()];
    let len = backend
        .len()
        .map_err(|error| io("reading the database file", error))?;
    if len >= magic.len() as u64 {
        backend
            .read(0, &mut magic)
            .map_err(|error| io("reading the database file", error))?;
    }
    if magic == REDB_MAGIC {
        Ok(())
    } else {
        Err(foreign("it is not a redb database"))
    }
}

/// Looks into a file without changing it, and answers what store it is.
fn inspect(make: &MakeBackend) -> Result<Identity> {
    let backend = make().map_err(|error| io("opening the database file", error))?;
    check_magic(&backend)?;
    look_into(backend, identify)
}

/// Whether a file is what a crash leaves while a store is created: nothing yet, or a store without content.
pub(super) fn is_unfinished(backend: impl Backend) -> Result<bool> {
    let what = "reading the file of a new store";
    let len = backend.len().map_err(|error| io(what, error))?;
    let mut magic = [0; REDB_MAGIC.len()];
    if len >= magic.len() as u64 {
        backend
            .read(0, &mut magic)
            .map_err(|error| io(what, error))?;
    }
    if len == 0 || (magic == [0; REDB_MAGIC.len()] && len <= MAX_UNFINISHED_BYTES) {
        return Ok(true);
    }
    if magic != REDB_MAGIC {
        return Ok(false);
    }
    let unused = look_into(backend, |transaction| {
        let tables = transaction.list_tables().map_err(storage_error)?.count();
        Ok(tables == 0 || identify(transaction)?.state.sequence == 0)
    });
    match unused {
        Err(Error::Corrupted { .. } | Error::NewerFormat { .. }) => Ok(false),
        unused => unused,
    }
}

/// Reads a database without changing its bytes: redb marks and repairs what it opens.
fn look_into<T>(
    backend: impl Backend,
    look: impl FnOnce(&ReadTransaction) -> Result<T>,
) -> Result<T> {
    let overlay = Overlay::new(backend).map_err(|error| io("reading the database file", error))?;
    guarded(|| {
        let database = builder(8 << 20)
            .create_with_backend(RedbBackend(overlay))
            .map_err(database_error)?;
        let seen = look(&database.begin_read().map_err(transaction_error)?);
        close_as_it_is(database);
        seen
    })
}

/// Closes a database without the commit that redb makes when it closes one: there is no point in it here, and on a
/// file whose lists of free pages are damaged redb aborts the process in it.
fn close_as_it_is(database: redb::Database) {
    // redb records nothing of a database in which a write was cut off by a panic.
    let cut_off = catch_unwind(AssertUnwindSafe(|| {
        let _transaction = database.begin_write();
        std::panic::resume_unwind(Box::new(()));
    }));
    debug_assert!(cut_off.is_err());
    drop(database);
}

fn initialize(
    backend: Box<dyn Backend>,
    cache_bytes: usize,
    identity: Identity,
) -> Result<(Open, Identity)> {
    guarded(|| {
        let database = builder(cache_bytes)
            .create_with_backend(RedbBackend(backend))
            .map_err(database_error)?;
        let mut transaction = database.begin_write().map_err(transaction_error)?;
        transaction.set_quick_repair(true);
        create_tables(&transaction)?;
        {
            let mut store = transaction.open_table(tables::STORE).map_err(table_error)?;
            let state = identity.state.encode()?;
            let id = binary::encode_fixed(&identity.id)?;
            let seed = binary::encode_fixed(&identity.seed)?;
            for (name, value) in [
                ("format", FORMAT_VERSION.to_le_bytes().as_slice()),
                ("id", &id),
                ("seed", &seed),
                ("state", &state),
            ] {
                store.insert(name, value).map_err(storage_error)?;
            }
        }
        transaction.commit().map_err(commit_error)?;
        Ok((Open::Writable(database), identity))
    })
}

/// Readers cannot create a table and would not find one that was never written.
fn create_tables(transaction: &WriteTransaction) -> Result<()> {
    macro_rules! create {
        ($($table:ident),* $(,)?) => {
            $(transaction.open_table(tables::$table).map_err(table_error)?;)*
        };
    }
    create!(
        STORE,
        LOG,
        BLOBS,
        BLOB_PAGES,
        DICTIONARIES,
        RECORDS_BY_UUID,
        TRANSCRIPTS,
        TRANSCRIPT_RUNS,
        STEMS,
        STEM_INFO,
        STEM_DIGESTS,
        CHILDREN,
        GENERATIONS,
        NAMES,
        NAME_TEXTS,
        ROOTS_BY_THREAD,
        CHILDREN_BY_THREAD,
        ROOTS_BY_AGENT,
        IDEMPOTENCY,
        SPEND_BY_TRANSCRIPT,
        SPEND_BY_HOUR,
        IMPORTS,
        STAGED,
        STAGED_CALLS,
        IMPORT_KEYS,
        SOURCES,
        SOURCES_BY_PATH,
        SOURCES_BY_TRANSCRIPT,
        CHUNKS,
        CHUNK_USES,
        PROVIDER_CALLS,
        SUPERSEDED,
        ORIGINS,
        ATTRIBUTES,
    );
    Ok(())
}

fn identify(transaction: &ReadTransaction) -> Result<Identity> {
    let store = match transaction.open_table(tables::STORE) {
        Ok(store) => store,
        Err(
            TableError::TableDoesNotExist(_)
            | TableError::TableTypeMismatch { .. }
            | TableError::TypeDefinitionChanged { .. }
            | TableError::TableIsMultimap(_),
        ) => return Err(foreign("it is a redb database of another program")),
        Err(error) => return Err(table_error(error)),
    };
    let value = |name: &str| -> Result<Vec<u8>> {
        match store.get(name).map_err(storage_error)? {
            Some(value) => Ok(value.value().to_vec()),
            None => Err(foreign("it does not say what store it is")),
        }
    };
    let format = value("format")?;
    let format = format.try_into();
    let found = u32::from_le_bytes(format.map_err(|_| foreign("its version does not parse"))?);
    if found > FORMAT_VERSION {
        return Err(Error::NewerFormat {
            found,
            supported: FORMAT_VERSION,
        });
    }
    let transcripts = transaction
        .open_table(tables::TRANSCRIPTS)
        .map_err(table_error)?;
    let last = transcripts.last().map_err(storage_error)?;
    Ok(Identity {
        id: binary::decode_fixed(&value("id")?, "the id of the store")?,
        seed: binary::decode_fixed(&value("seed")?, "the seed of the store")?,
        state: StoreState::decode(&value("state")?)?,
        last_transcript: last.map_or(0, |(id, _)| id.value()),
    })
}
