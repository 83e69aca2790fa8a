//! Opening a store.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uuid::Uuid;

use super::Store;
#[cfg(feature = "testkit")]
use super::backend::{Backend, StoreFile};
use super::backend::{FileBackend, MemoryBackend};
use super::database::{Database, Identity, MakeBackend, io, is_unfinished};
use super::engine::{Engine, Parts};
use super::environment::{Environment, System};
use super::head::StoreState;
use super::journaled::{JournalFile, JournalParts, Journaled, Pace};
use super::lock::{DatabaseLock, Locks, StoreLock, beside, check_regular, private};
use super::pending::Sessions;
use crate::{Error, Result};

const DEFAULT_CACHE_BYTES: usize = 256 << 20;
const DEFAULT_CHECKPOINT_BYTES: u64 = 4 << 20;
const DEFAULT_CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);
const DEFAULT_RECORD_LIMIT: u64 = 256 << 20;
/// Records are never larger than this, whatever the builder was told.
const MAX_RECORD_LIMIT: u64 = 512 << 20;

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// A power loss: the call returns after the disk has confirmed the data.
    #[default]
    Immediate,
    /// A crash of the process, not a power loss: the call returns when the operating system has the data. After a power
    /// loss the store shows what it was at some moment behind the last checkpoint
    /// ([`StoreBuilder::checkpoint_interval`], [`Store::checkpoint`]), or at it.
    Eventual,
}

/// How records are compressed as they are written. [`Store::compact`] packs them more tightly later, whatever this
/// says.
///
/// Measured on the strings of real transcripts (18 MB of JSONL, lognormal with a median of 900 bytes, all rows live), as
/// bytes on disk and time of a resume, relative to the JSONL and its typed parse:
///
/// | | on disk | resume |
/// |---|---|---|
/// | `None` | 1.07 | 0.5 to 0.6 |
/// | `Lz4` | 0.6 | 0.7 to 0.9 |
/// | either, after a compaction | 0.6 | 0.7 to 0.9 |
/// | either, after a compaction, nearly all rows history | 0.3 | |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// Not at all: a resume is fastest.
    #[default]
    None,
    /// With lz4, where that saves a quarter: records of 512 bytes and more, and large content.
    Lz4,
}

/// Options of a store. Each has a default that suits most hosts.
#[must_use]
pub struct StoreBuilder {
    cache_bytes: usize,
    durability: Durability,
    checkpoint_bytes: u64,
    checkpoint_interval: Duration,
    record_limit: u64,
    compression: Compression,
    read_only: bool,
    environment: Arc<dyn Environment>,
}

impl fmt::Debug for StoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreBuilder")
            .field("cache_bytes", &self.cache_bytes)
            .field("durability", &self.durability)
            .field("checkpoint_bytes", &self.checkpoint_bytes)
            .field("checkpoint_interval", &self.checkpoint_interval)
            .field("record_limit", &self.record_limit)
            .field("compression", &self.compression)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

impl Default for StoreBuilder {
    fn default() -> Self {
        Self {
            cache_bytes: DEFAULT_CACHE_BYTES,
            durability: Durability::Immediate,
            checkpoint_bytes: DEFAULT_CHECKPOINT_BYTES,
            checkpoint_interval: DEFAULT_CHECKPOINT_INTERVAL,
            record_limit: DEFAULT_RECORD_LIMIT,
            compression: Compression::None,
            read_only: false,
            environment: Arc::new(System),
        }
    }
}

impl StoreBuilder {
    /// Bytes of the database's page cache; 256 MiB unless set.
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// What an acknowledged write survives; [`Durability::Immediate`] unless set.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Bytes of changes in the journal after which a checkpoint is made: a durable commit of the database file, after
    /// which the journal is used anew. 4 MiB unless set. More makes fewer commits and a longer replay after a crash; the
    /// journal holds 8 MiB at most, and a write that finds it full waits for a checkpoint.
    pub fn checkpoint_bytes(mut self, bytes: u64) -> Self {
        self.checkpoint_bytes = bytes;
        self
    }

    /// Time after which changes in the journal get a checkpoint, however few they are; 5 seconds unless set.
    pub fn checkpoint_interval(mut self, interval: Duration) -> Self {
        self.checkpoint_interval = interval;
        self
    }

    /// How records are compressed as they are written. What is stored already stays as it is and readable.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Bytes of a record, encoded; a larger one is [`Error::TooLarge`]. 256 MiB unless set, 512 MiB at most.
    pub fn record_limit(mut self, bytes: u64) -> Self {
        self.record_limit = bytes.min(MAX_RECORD_LIMIT);
        self
    }

    /// Opens for reading only: every write is [`Error::ReadOnly`], nothing on disk is changed, and a store that was not
    /// closed cleanly is [`Error::NeedsRecovery`]. Any number of processes may read at the same time. There must be a
    /// store already: where the file is empty, opening it is [`Error::ReadOnly`].
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Where the store takes time and randomness from.
    #[cfg(feature = "testkit")]
    pub fn environment(mut self, environment: Arc<dyn Environment>) -> Self {
        self.environment = environment;
        self
    }

    /// Opens the store at `path`, or creates it where there is no file or an empty one.
    ///
    /// The folder must exist. A new store is private to its owner (mode 0600 on Unix) and comes into being whole: a
    /// crash while it is created leaves no half of it. Besides `path` there is a lock file `path` + `-lock`, while the
    /// store is created a file `path` + `-new`, and from the first write to a clean close a journal `path` + `-journal`;
    /// a file of another kind that has one of these names is left alone, and the call fails (the first write, where it
    /// is the journal's). After a crash the journal belongs to the store: neither file is whole without the other.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyOpen`] if another process, or another store of this one, has it open; [`Error::Corrupted`] if the
    /// file is damaged or not a store, and [`Error::NewerFormat`] if a newer version wrote it: in both cases not a byte
    /// of it is changed; [`Error::NeedsRecovery`] for a read-only open of a store that was not closed cleanly;
    /// [`Error::Io`] for everything that the file system refuses.
    ///
    /// If damage keeps changes in the journal from being applied, the store opens for reading what they do not concern:
    /// its health is [`Health::Failed`](crate::Health::Failed), and every write and every read that they concern is
    /// [`Error::Corrupted`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<Store> {
        let named = path.as_ref();
        canonical(named, self.read_only)
            .and_then(|path| {
                if self.read_only {
                    self.open_reader(path)
                } else {
                    self.open_writer(path)
                }
            })
            .map_err(|error| error.opening(named))
    }

    fn open_writer(self, path: PathBuf) -> Result<Store> {
        // Where no store can be, no lock file is left.
        is_vacant(&path)?;
        let store_lock = StoreLock::acquire(&path)?;
        let (file, lock) = if is_vacant(&path)? {
            self.create(&path)?
        } else {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .map_err(|error| io("opening the store's file for writing", error))?;
            let file = Arc::new(file);
            let lock = DatabaseLock::acquire(&file, &path, false)?;
            (file, lock)
        };
        let locks = Locks {
            _database: lock,
            _store: Some(store_lock),
        };
        self.open_file(path, file, locks)
    }

    fn open_reader(self, path: PathBuf) -> Result<Store> {
        if is_vacant(&path)? {
            // It is to become a store, and that is a write.
            return Err(Error::ReadOnly { path });
        }
        let file = File::open(&path).map_err(|error| io("opening the store's file", error))?;
        let file = Arc::new(file);
        let locks = Locks {
            _database: DatabaseLock::acquire(&file, &path, true)?,
            _store: None,
        };
        self.open_file(path, file, locks)
    }

    fn open_file(self, path: PathBuf, file: Arc<File>, locks: Locks) -> Result<Store> {
        // The file stays open, and so locked, while the database over it is closed and opened again.
        // Paths that are no text are shown escaped, so that two of them never look the same.
        let destination = match path.to_str() {
            Some(path) => path.to_owned(),
            None => path
                .as_os_str()
                .as_encoded_bytes()
                .escape_ascii()
                .to_string(),
        };
        let journal = (!self.read_only).then(|| journal_beside(&path));
        self.start(
            Some(path),
            destination,
            over_file(file),
            journal,
            Some(locks),
        )
    }

    /// Makes a store under another name and gives it its own once it is whole and durable.
    fn create(&self, path: &Path) -> Result<(Arc<File>, DatabaseLock)> {
        let what = "creating the store's file";
        let new_path = beside(path, "-new");
        check_regular(&new_path).map_err(|error| io(what, error))?;
        let file = private(OpenOptions::new().read(true).write(true).create(true))
            .truncate(false)
            .open(&new_path)
            .map_err(|error| io(what, error))?;
        let file = Arc::new(file);
        let lock = DatabaseLock::acquire(&file, &new_path, false)?;
        // A crash may have left one behind; but whatever else has this name is not ours to overwrite.
        if !is_unfinished(FileBackend::new(Arc::clone(&file)))? {
            return Err(io(
                "creating the store's file: another file has the name it would have while it is made",
                ErrorKind::AlreadyExists.into(),
            ));
        }
        let made = self.fill(&file, path).and_then(|()| {
            std::fs::rename(&new_path, path).map_err(|error| io(what, error))?;
            sync_folder(path)
        });
        if made.is_err() {
            let _ = std::fs::remove_file(&new_path);
        }
        made.map(|()| (file, lock))
    }

    /// Makes a file an empty store, durably.
    fn fill(&self, file: &Arc<File>, path: &Path) -> Result<()> {
        let what = "creating the store's file";
        file.set_len(0).map_err(|error| io(what, error))?;
        let (database, _) = Database::open(
            path.to_owned(),
            over_file(Arc::clone(file)),
            self.cache_bytes,
            false,
            || self.identity(),
            |_| Ok(()),
        )?;
        drop(database);
        file.sync_all().map_err(|error| io(what, error))
    }

    /// Opens a store in memory. It is gone with the last of its handles.
    pub fn in_memory(self) -> Result<Store> {
        let make: MakeBackend = Box::new(|| Ok(Box::new(MemoryBackend::default())));
        self.start(None, process_unique("memory"), make, None, None)
    }

    /// Opens a store over backends that `make` gives: once now, and again at every recovery from an I/O error.
    ///
    /// The database's backend must show the bytes that were written to the one before. An empty one becomes a new store.
    #[cfg(feature = "testkit")]
    pub fn with_backend(
        self,
        make: impl Fn(StoreFile) -> std::io::Result<Box<dyn Backend>> + Send + Sync + 'static,
    ) -> Result<Store> {
        let make = Arc::new(make);
        let [opened, created, discarded] = [(); 3].map(|()| Arc::clone(&make));
        let journal = JournalFile {
            open: Box::new(move || opened(StoreFile::Journal)),
            make: Box::new(move || created(StoreFile::Journal)),
            discard: Box::new(move || discarded(StoreFile::Journal)?.set_len(0)),
        };
        let make: MakeBackend = Box::new(move || make(StoreFile::Database));
        let journal = (!self.read_only).then_some(journal);
        self.start(None, process_unique("backend"), make, journal, None)
    }

    fn start(
        self,
        path: Option<PathBuf>,
        destination: String,
        make: MakeBackend,
        journal: Option<JournalFile>,
        locks: Option<Locks>,
    ) -> Result<Store> {
        let mut recovered = Vec::new();
        let (database, mut identity) = Database::open(
            path.clone().unwrap_or_default(),
            make,
            self.cache_bytes,
            self.read_only,
            || self.identity(),
            |identity| {
                if let Some(file) = &journal {
                    recovered = file.changes(identity)?;
                }
                Ok(())
            },
        )?;
        let database = Arc::new(database);
        let sessions = Sessions::default();
        let journaled = journal
            .map(|file| {
                let pace = Pace {
                    eventual: self.durability == Durability::Eventual,
                    checkpoint_bytes: self.checkpoint_bytes,
                    checkpoint_interval: self.checkpoint_interval,
                };
                let environment = Arc::clone(&self.environment);
                let parts = JournalParts {
                    database: Arc::clone(&database),
                    environment,
                    pace,
                    file,
                };
                Journaled::recover(parts, recovered, &mut identity, &sessions)
            })
            .transpose()?;
        let engine = Engine::new(
            Parts {
                path,
                destination,
                read_only: self.read_only,
                record_limit: self.record_limit,
                compression: self.compression,
                environment: self.environment,
                database,
                journaled,
                sessions,
                locks,
            },
            &identity,
        );
        if !self.read_only {
            // What cannot be taken out now shows nowhere, and the next open tries again.
            let _ = super::import::sweep(&engine);
        }
        Ok(Store {
            engine: Arc::new(engine),
        })
    }

    fn identity(&self) -> Identity {
        let mut seed = [0; 32];
        let (low, high) = seed.split_at_mut(16);
        low.copy_from_slice(&self.environment.random().to_le_bytes());
        high.copy_from_slice(&self.environment.random().to_le_bytes());
        Identity {
            id: self.environment.random().to_le_bytes(),
            seed,
            state: StoreState::default(),
            last_transcript: 0,
        }
    }
}

/// The path that all names of a file lead to, so that one file has one lock.
fn canonical(path: &Path, must_exist: bool) -> Result<PathBuf> {
    let what = "finding the store's file";
    match path.canonicalize() {
        Ok(path) => return Ok(path),
        Err(error) if error.kind() == ErrorKind::NotFound && !must_exist => {}
        Err(error) => return Err(io(what, error)),
    }
    let Some(name) = path.file_name() else {
        return Err(io(what, ErrorKind::InvalidInput.into()));
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if let Ok(target) = path.read_link() {
        // A link to nothing yet: the store comes into being where it leads.
        return canonical(&folder.join(target), must_exist);
    }
    let folder = folder
        .canonicalize()
        .map_err(|error| io("finding the store's folder", error))?;
    Ok(folder.join(name))
}

/// Whether there is no file at `path`, or an empty one.
fn is_vacant(path: &Path) -> Result<bool> {
    let what = "finding the store's file";
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(found.len() == 0),
        Ok(_) => Err(io(what, std::io::Error::other("it is not a regular file"))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(io(what, error)),
    }
}

/// The journal of the store at `path`.
fn journal_beside(path: &Path) -> JournalFile {
    let [opened, path, discarded] = [(); 3].map(|()| beside(path, "-journal"));
    JournalFile {
        open: Box::new(move || {
            check_regular(&opened)?;
            let file = File::open(&opened)?;
            Ok(Box::new(FileBackend::new(Arc::new(file))))
        }),
        make: Box::new(move || {
            check_regular(&path)?;
            let file = private(OpenOptions::new().read(true).write(true).create(true))
                .truncate(false)
                .open(&path)?;
            sync_folder_of(&path)?;
            Ok(Box::new(FileBackend::new(Arc::new(file))))
        }),
        discard: Box::new(move || std::fs::remove_file(&discarded)),
    }
}

fn over_file(file: Arc<File>) -> MakeBackend {
    let backend = FileBackend::new(file);
    Box::new(move || Ok(Box::new(backend.clone())))
}

/// Makes the name of a new file durable.
fn sync_folder(path: &Path) -> Result<()> {
    sync_folder_of(path).map_err(|error| io("making the store's file durable in its folder", error))
}

fn sync_folder_of(path: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn process_unique(kind: &str) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!(
        "{kind}:{}:{}",
        NUMBER.fetch_add(1, Ordering::Relaxed),
        Uuid::new_v4()
    )
}
