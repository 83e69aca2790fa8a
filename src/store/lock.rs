//! One process owns a store: the lock file beside the database, and the lock on the database itself.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::database::io;
use crate::{Error, Result};

/// A lock file holds a process number and nothing else: no file that somebody else made is taken for one.
const HOLDER_DIGITS: usize = 20;

/// An exclusive lock, released when it is dropped or its process ends.
///
/// The file stays: removing it would race with the next process that locks it. It names the process that holds it.
#[derive(Debug)]
pub(super) struct StoreLock {
    file: File,
}

impl StoreLock {
    /// Locks the store at `path`.
    pub(super) fn acquire(path: &Path) -> Result<Self> {
        let lock_path = beside(path, "-lock");
        let file = check_regular(&lock_path)
            .and_then(|()| {
                private(OpenOptions::new().read(true).write(true).create(true))
                    .truncate(false)
                    .open(lock_path)
            })
            .map_err(|error| io("opening the lock file beside the store", error))?;
        lock(&file, path, File::try_lock, || holder(&file))?;
        let mut lock = Self { file };
        let named = read_start(&lock.file)
            .map_err(|error| io("reading the lock file beside the store", error))?;
        if !is_holder(&named) {
            return Err(io(
                "locking the store: another file has the name of its lock file",
                ErrorKind::AlreadyExists.into(),
            ));
        }
        // Only a courtesy to whoever finds the store locked.
        let _ = lock
            .file
            .set_len(0)
            .and_then(|()| lock.file.rewind())
            .and_then(|()| write!(lock.file, "{}", std::process::id()));
        Ok(lock)
    }
}

impl Drop for StoreLock {
    /// Closing the file would do, but for a process that is being started just now and still shares it.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// All that keeps others away from a store while it is open.
#[derive(Debug)]
pub(super) struct Locks {
    // Released in this order: whoever gets the lock file next finds the database free.
    pub(super) _database: DatabaseLock,
    /// A store that is open for reading only has none.
    pub(super) _store: Option<StoreLock>,
}

/// A lock on the database file itself: readers share it, and it holds under every name of the file.
#[derive(Debug)]
pub(super) struct DatabaseLock(Arc<File>);

impl DatabaseLock {
    /// Locks the open file of the store at `path`, for one writer or for readers.
    pub(super) fn acquire(file: &Arc<File>, path: &Path, read_only: bool) -> Result<Self> {
        if read_only {
            lock(file, path, File::try_lock_shared, || holder_of(path))?;
        } else {
            // Readers do not say who they are.
            lock(file, path, File::try_lock, || None)?;
        }
        Ok(Self(Arc::clone(file)))
    }
}

impl Drop for DatabaseLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Locks a file of the store at `path` with `how`. `holder` finds out who has it, if somebody does.
fn lock(
    file: &File,
    path: &Path,
    how: impl FnOnce(&File) -> std::result::Result<(), TryLockError>,
    holder: impl FnOnce() -> Option<u32>,
) -> Result<()> {
    match how(file) {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Error::AlreadyOpen {
            path: path.to_owned(),
            holder: holder(),
        }),
        Err(TryLockError::Error(error)) => Err(io("locking the store", error)),
    }
}

/// Refuses what is there under this name and is no file: to open a pipe or to read a device might never end.
pub(super) fn check_regular(path: &Path) -> std::io::Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "it is not a regular file",
        )),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The process that the lock file beside the store at `path` names, if it can be read.
fn holder_of(path: &Path) -> Option<u32> {
    let path = beside(path, "-lock");
    check_regular(&path).ok()?;
    holder(&File::open(path).ok()?)
}

fn holder(file: &File) -> Option<u32> {
    str::from_utf8(&read_start(file).ok()?).ok()?.parse().ok()
}

/// As much of a lock file as tells whether it is one.
fn read_start(file: &File) -> std::io::Result<Vec<u8>> {
    let mut start = Vec::new();
    file.take(HOLDER_DIGITS as u64 + 1)
        .read_to_end(&mut start)
        .map(|_| start)
}

fn is_holder(start: &[u8]) -> bool {
    start.len() <= HOLDER_DIGITS && start.iter().all(u8::is_ascii_digit)
}

/// The path of a file that stands beside the store's own.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// Files of a store are for their owner only: transcripts are private.
pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}
