//! What can go wrong with the database, in our terms.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use redb::TableError;

use crate::{Error, Result};

/// What is damaged where redb itself says so.
const THE_FILE: &str = "the database file";

/// The error of a file that is not a store.
pub(super) fn foreign(at: &str) -> Error {
    Error::Corrupted {
        what: "the file is not a transcript store".to_owned(),
        at: at.to_owned(),
    }
}

/// Runs a closure and turns a panic into an error: redb answers some kinds of damage with one.
pub(in crate::store) fn guarded<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err(damaged("working on it ended in a panic")))
}

/// Whether what is damaged is the file as redb sees it.
pub(in crate::store) fn is_the_file(what: &str) -> bool {
    what == THE_FILE
}

/// Whether redb may be unable to go on after an error: it remembers I/O errors, and a panic may have poisoned its locks.
pub(in crate::store) fn needs_reopening(error: &Error) -> bool {
    match error {
        Error::Io { .. } | Error::Storage { .. } => true,
        Error::Corrupted { what, .. } => is_the_file(what),
        _ => false,
    }
}

pub(in crate::store) fn io(what: &str, error: std::io::Error) -> Error {
    Error::Io {
        what: what.to_owned(),
        source: Arc::new(error),
    }
}

fn storage(what: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Storage {
        what: what.to_owned(),
        source: Arc::new(error),
    }
}

/// redb's errors in our terms.
pub(in crate::store) fn storage_error(error: redb::StorageError) -> Error {
    use redb::StorageError as E;
    match error {
        E::Corrupted(_) => damaged("a page of it does not parse"),
        E::Io(error) if is_damage(error.kind()) => damaged("a page of it does not parse"),
        E::Io(error) => io("using the database file", error),
        error @ E::PreviousIo => Error::Io {
            what: "using the database file at an earlier call".to_owned(),
            source: Arc::new(error),
        },
        error => storage("the database", error),
    }
}

/// Bytes that do not parse, or that should be there and are not: trying again does not help.
fn is_damage(kind: std::io::ErrorKind) -> bool {
    use std::io::ErrorKind::{InvalidData, UnexpectedEof};
    matches!(kind, InvalidData | UnexpectedEof)
}

/// The error of bytes that redb itself cannot go on with.
pub(super) fn damaged(at: &str) -> Error {
    Error::Corrupted {
        what: THE_FILE.to_owned(),
        at: at.to_owned(),
    }
}

pub(in crate::store) fn table_error(error: redb::TableError) -> Error {
    match error {
        TableError::Storage(error) => storage_error(error),
        TableError::TableDoesNotExist(_)
        | TableError::TableTypeMismatch { .. }
        | TableError::TypeDefinitionChanged { .. }
        | TableError::TableIsMultimap(_) => damaged("a table is missing or of another type"),
        error => storage("the database", error),
    }
}

pub(in crate::store) fn transaction_error(error: redb::TransactionError) -> Error {
    match error {
        redb::TransactionError::Storage(error) => storage_error(error),
        error => storage("the database", error),
    }
}

pub(super) fn commit_error(error: redb::CommitError) -> Error {
    match error {
        redb::CommitError::Storage(error) => storage_error(error),
        error => storage("the database", error),
    }
}

pub(super) fn compaction_error(error: redb::CompactionError) -> Error {
    match error {
        redb::CompactionError::Storage(error) => storage_error(error),
        redb::CompactionError::TransactionInProgress => Error::Busy {
            what: "the store is being read or written",
        },
        error => storage("the database", error),
    }
}

pub(super) fn database_error(error: redb::DatabaseError) -> Error {
    use redb::DatabaseError as E;
    match error {
        E::Storage(error) => storage_error(error),
        E::UpgradeRequired(_) => foreign("it is in a format of redb that is too old"),
        error => storage("opening the database", error),
    }
}
