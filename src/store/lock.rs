//! One process owns a store: the lock file beside the database.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use super::database::io;
use crate::{Error, Result};

/// An exclusive lock, released when it is dropped or its process ends.
///
/// The file stays: removing it would race with the next process that locks it. It names the process that holds it.
#[derive(Debug)]
pub(super) struct StoreLock {
    _file: File,
}

impl StoreLock {
    /// Locks the store at `path`.
    pub(super) fn acquire(path: &Path) -> Result<Self> {
        let lock_path = lock_path(path);
        let mut file = private(OpenOptions::new().read(true).write(true).create(true))
            .truncate(false)
            .open(&lock_path)
            .map_err(|error| io("opening the lock file beside the store", error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::AlreadyOpen {
                    path: path.to_owned(),
                    holder: holder(&mut file),
                });
            }
            Err(TryLockError::Error(error)) => return Err(io("locking the store", error)),
        }
        // Only a courtesy to whoever finds the store locked.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| write!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}

/// The process that the lock file beside the store at `path` names, if it can be read.
pub(super) fn holder_of(path: &Path) -> Option<u32> {
    holder(&mut File::open(lock_path(path)).ok()?)
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push("-lock");
    path.with_file_name(name)
}

/// Files of a store are for their owner only: transcripts are private.
pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}
