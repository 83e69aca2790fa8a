//! This crate's files as backends that count syncs and bytes, and that can hold up the reads of one thread.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use transcript_redb::{Backend, Store, StoreBuilder, StoreFile};

use crate::Result;

/// A file that counts.
#[derive(Clone, Debug)]
struct Counted {
    file: Arc<File>,
    counts: Arc<Counts>,
    gate: Arc<Mutex<()>>,
}

thread_local! {
    static AT_GATE: Cell<bool> = const { Cell::new(false) };
}

/// Makes every read of the disk by this thread wait while somebody holds [`Counters::gate`].
pub fn read_through_gate() {
    AT_GATE.set(true);
}

#[derive(Debug, Default)]
struct Counts {
    syncs: AtomicU64,
    bytes: AtomicU64,
}

/// What was done to one file so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    pub syncs: u64,
    pub bytes: u64,
}

impl Work {
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            syncs: self.syncs - before.syncs,
            bytes: self.bytes - before.bytes,
        }
    }
}

impl Backend for Counted {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if AT_GATE.get() {
            drop(self.gate.lock());
        }
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let len = data.len() as u64;
        self.counts.bytes.fetch_add(len, Ordering::Relaxed);
        self.file.write_all_at(data, offset)
    }
}

/// The counting files of a store.
#[derive(Clone, Default)]
pub struct Counters {
    files: Arc<Mutex<HashMap<StoreFile, Counted>>>,
    /// See [`read_through_gate`].
    pub gate: Arc<Mutex<()>>,
}

impl Counters {
    /// Opens a store in a folder whose files count.
    pub fn open(&self, builder: StoreBuilder, folder: &Path) -> Result<Store> {
        let (files, gate) = (Arc::clone(&self.files), Arc::clone(&self.gate));
        let folder = folder.to_owned();
        let store = builder.with_backend(move |file| {
            let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(backend) = files.get(&file) {
                return Ok(Box::new(backend.clone()) as Box<dyn Backend>);
            }
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let backend = Counted {
                file: Arc::new(options.open(folder.join(format!("{file:?}")))?),
                counts: Arc::default(),
                gate: Arc::clone(&gate),
            };
            files.insert(file, backend.clone());
            Ok(Box::new(backend) as Box<dyn Backend>)
        })?;
        Ok(store)
    }

    /// What was done to one of the files; nothing where the store has no such file.
    pub fn of(&self, file: StoreFile) -> Work {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(&file).map_or_else(Work::default, |backend| Work {
            syncs: backend.counts.syncs.load(Ordering::Relaxed),
            bytes: backend.counts.bytes.load(Ordering::Relaxed),
        })
    }

    /// What was done to all of them.
    pub fn all(&self) -> Work {
        let [database, journal] =
            [StoreFile::Database, StoreFile::Journal].map(|file| self.of(file));
        Work {
            syncs: database.syncs + journal.syncs,
            bytes: database.bytes + journal.bytes,
        }
    }
}
