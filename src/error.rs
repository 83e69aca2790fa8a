//! What can go wrong, and what the caller can do about it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call was refused or failed.
///
/// A refused call leaves nothing behind: no row, no index entry, no counter. The message of an error names the
/// transcript and the numbers and says what the caller can do; it never holds content of a record, because a
/// transcript can hold secrets. A stem is shown escaped, and shortened when it is long; the variant's field has it
/// whole.
///
/// [`Error::kind`] gives the class of an error without its data. A new variant may be added in any release.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The generation takes no further write: a successor has been written, or one is reserved and about to be.
    ///
    /// Ask for the session's head generation and write there.
    #[error(
        "transcript {} is sealed: a later generation has begun or is reserved; write to the session's head generation",
        Shown(stem)
    )]
    Sealed {
        /// The stem of the sealed generation.
        stem: String,
    },
    /// The live context is not the one the caller's baseline says: somebody else wrote in between.
    ///
    /// Read the transcript again and repeat the turn on what is there now.
    #[error(
        "transcript {} was changed by another writer since the baseline was read (expected {expected}, found {found}); read \
         it again and repeat the call",
        Shown(stem)
    )]
    Stale {
        /// The stem of the transcript.
        stem: String,
        /// How many rows the caller's baseline has; of a head token, its sequence.
        expected: usize,
        /// How many rows the live context has; of a head token, the sequence of the head.
        found: usize,
    },
    /// Another live handle holds the slot of this generation and has not written it yet.
    #[error(
        "generation {} is reserved by another handle that has not written it yet; wait for that handle, or release the \
         reservation",
        Shown(stem)
    )]
    Reserved {
        /// The stem of the reserved generation.
        stem: String,
    },
    /// The successor generation is already written.
    #[error(
        "generation {} is already written; continue from the session's head generation",
        Shown(stem)
    )]
    GenerationExists {
        /// The stem of the generation that exists.
        stem: String,
    },
    /// The session has as many generations as a session can have.
    #[error(
        "generation {} would be over the limit of {limit}; continue in a new session",
        Shown(stem)
    )]
    GenerationLimit {
        /// The stem of the generation that would have been one too many.
        stem: String,
        /// The highest generation that a session can have.
        limit: u32,
    },
    /// The call needs a transcript that was written, and nothing was ever written to this one.
    #[error(
        "nothing was ever written to transcript {}; write its first turn before",
        Shown(stem)
    )]
    NotWritten {
        /// The stem of the transcript.
        stem: String,
    },
    /// The transcript that the handle has seen was deleted. A handle never writes it anew by accident: open another.
    #[error(
        "transcript {} was deleted since this handle saw it; open a new handle to begin anew",
        Shown(stem)
    )]
    Deleted {
        /// The stem of the deleted transcript.
        stem: String,
    },
    /// No row of the live context has the message id to cut before.
    #[error(
        "no row in the live context of transcript {} has the given message id; read it again and choose one that is \
         there",
        Shown(stem)
    )]
    UnknownMessageId {
        /// The stem of the transcript.
        stem: String,
    },
    /// A row, usage or header that this call cannot store.
    #[error("transcript {} cannot take this: {reason}", Shown(stem))]
    InvalidMessage {
        /// The stem of the transcript.
        stem: String,
        /// What is wrong with it, without its content.
        reason: String,
    },
    /// An id, key, stem or role that the store cannot hold.
    #[error("invalid {what}: {reason}")]
    InvalidId {
        /// Which id it is.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A page cursor that no page of this store gave out.
    #[error("invalid cursor: {reason}; begin again with the newest page")]
    InvalidCursor {
        /// What is wrong with it.
        reason: String,
    },
    /// Something is larger than the store takes.
    #[error("{what} is too large: {size} {}, the limit is {limit}; reduce it and repeat the call",
        if *what == "nesting" { "levels" } else { "bytes" })]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size, in the unit of the limit.
        size: u64,
        /// The largest size that is taken.
        limit: u64,
    },
    /// The store was opened for reading only.
    #[error("store {} is open for reading only; open it for writing to change it",
        Shown(&path.to_string_lossy()))]
    ReadOnly {
        /// The store's file.
        path: PathBuf,
    },
    /// Another process, or another `Store` of this one, has the file open.
    #[error("store {} is already open{}; close it there, or share that `Store`",
        Shown(&path.to_string_lossy()),
        Holder(*holder))]
    AlreadyOpen {
        /// The store's file.
        path: PathBuf,
        /// The process that holds it, where that is known.
        holder: Option<u32>,
    },
    /// The store was not closed cleanly and a read-only open may not repair it: open it once for writing.
    #[error("store {} was not closed cleanly; open it once for writing to recover it",
        Shown(&path.to_string_lossy()))]
    NeedsRecovery {
        /// The store's file.
        path: PathBuf,
    },
    /// The file was written by a newer version of this crate. Nothing in it was changed.
    #[error(
        "the store has format version {found}, this build reads up to {supported}; use a newer version of the library"
    )]
    NewerFormat {
        /// The format version of the file.
        found: u32,
        /// The newest format version that this build reads.
        supported: u32,
    },
    /// Stored bytes are damaged. Damage is an error where it is met, never a shorter answer.
    #[error(
        "corrupted: {what} ({at}); if it is the right file, restore a backup or salvage what is readable"
    )]
    Corrupted {
        /// What is damaged.
        what: String,
        /// Where in the store it was met.
        at: String,
    },
    /// The call does not go together with what is stored.
    #[error("conflict in transcript {}: {reason}", Shown(stem))]
    Conflict {
        /// The stem of the transcript.
        stem: String,
        /// What does not go together.
        reason: String,
    },
    /// The store is occupied by work that needs it alone: try again later.
    #[error("the store is busy: {what}; try again later")]
    Busy {
        /// What occupies it.
        what: &'static str,
    },
    /// The operating system refused a file operation. Nothing of the call will ever appear in the store.
    #[error("file error while {what}: {source}; no change was made")]
    Io {
        /// What was being done.
        what: String,
        /// The cause.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The database underneath failed. Nothing of the call will ever appear in the store.
    #[error("database error while {what}: {source}; no change was made")]
    Storage {
        /// What was being done.
        what: String,
        /// The cause.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The disk failed under the call, and the store could not make sure that nothing of it will appear.
    ///
    /// The turn is wholly there or wholly not. The next successful read tells; a retry succeeds or answers
    /// [`Error::Stale`].
    #[error(
        "disk failure while {what}: {source}; the call took effect wholly or not at all: read again to see which"
    )]
    Indeterminate {
        /// What was being done.
        what: String,
        /// The cause.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// An error of a store by others; see [`Error::other`].
    #[error(transparent)]
    Other {
        /// The cause.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}

/// The class of an [`Error`]: what a caller decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// [`Error::Sealed`]
    Sealed,
    /// [`Error::Stale`]
    Stale,
    /// [`Error::Reserved`]
    Reserved,
    /// [`Error::GenerationExists`]
    GenerationExists,
    /// [`Error::GenerationLimit`]
    GenerationLimit,
    /// [`Error::NotWritten`]
    NotWritten,
    /// [`Error::Deleted`]
    Deleted,
    /// [`Error::UnknownMessageId`]
    UnknownMessageId,
    /// [`Error::InvalidMessage`]
    InvalidMessage,
    /// [`Error::InvalidId`]
    InvalidId,
    /// [`Error::InvalidCursor`]
    InvalidCursor,
    /// [`Error::TooLarge`]
    TooLarge,
    /// [`Error::ReadOnly`]
    ReadOnly,
    /// [`Error::AlreadyOpen`]
    AlreadyOpen,
    /// [`Error::NeedsRecovery`]
    NeedsRecovery,
    /// [`Error::NewerFormat`]
    NewerFormat,
    /// [`Error::Corrupted`]
    Corrupted,
    /// [`Error::Conflict`]
    Conflict,
    /// [`Error::Busy`]
    Busy,
    /// [`Error::Io`]
    Io,
    /// [`Error::Storage`]
    Storage,
    /// [`Error::Indeterminate`]
    Indeterminate,
    /// [`Error::Other`]
    Other,
}

impl Error {
    /// The same error, which names the file that could not be opened.
    pub(crate) fn opening(self, path: &std::path::Path) -> Self {
        let path = path.to_string_lossy();
        match self {
            Self::Io { what, source } => Self::Io {
                what: format!("opening {}: {what}", Shown(&path)),
                source,
            },
            Self::Storage { what, source } => Self::Storage {
                what: format!("opening {}: {what}", Shown(&path)),
                source,
            },
            Self::Corrupted { what, at } => Self::Corrupted {
                what: format!("{}: {what}", Shown(&path)),
                at,
            },
            other => other,
        }
    }

    /// Wraps an error of a store by others, for which no other variant fits.
    ///
    /// ```
    /// use transcript_redb::{Error, ErrorKind};
    ///
    /// let error = Error::other("the bucket is gone");
    /// assert_eq!(error.kind(), ErrorKind::Other);
    /// ```
    pub fn other(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other {
            source: Arc::from(source.into()),
        }
    }

    /// The class of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Sealed { .. } => ErrorKind::Sealed,
            Self::Stale { .. } => ErrorKind::Stale,
            Self::Reserved { .. } => ErrorKind::Reserved,
            Self::GenerationExists { .. } => ErrorKind::GenerationExists,
            Self::GenerationLimit { .. } => ErrorKind::GenerationLimit,
            Self::NotWritten { .. } => ErrorKind::NotWritten,
            Self::Deleted { .. } => ErrorKind::Deleted,
            Self::UnknownMessageId { .. } => ErrorKind::UnknownMessageId,
            Self::InvalidMessage { .. } => ErrorKind::InvalidMessage,
            Self::InvalidId { .. } => ErrorKind::InvalidId,
            Self::InvalidCursor { .. } => ErrorKind::InvalidCursor,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::ReadOnly { .. } => ErrorKind::ReadOnly,
            Self::AlreadyOpen { .. } => ErrorKind::AlreadyOpen,
            Self::NeedsRecovery { .. } => ErrorKind::NeedsRecovery,
            Self::NewerFormat { .. } => ErrorKind::NewerFormat,
            Self::Corrupted { .. } => ErrorKind::Corrupted,
            Self::Conflict { .. } => ErrorKind::Conflict,
            Self::Busy { .. } => ErrorKind::Busy,
            Self::Io { .. } => ErrorKind::Io,
            Self::Storage { .. } => ErrorKind::Storage,
            Self::Indeterminate { .. } => ErrorKind::Indeterminate,
            Self::Other { .. } => ErrorKind::Other,
        }
    }
}

/// A name as an error message shows it: quoted, control characters escaped, and shortened, since a stem may be long.
struct Shown<'a>(&'a str);

/// The process that has a store open, where it is known.
struct Holder(Option<u32>);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => write!(f, " in process {pid}"),
            None => Ok(()),
        }
    }
}

impl Shown<'_> {
    /// How many characters of a name are shown; a whole stem of a session and one sub-agent fits.
    const CHARS: usize = 160;
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = self.0.char_indices().nth(Self::CHARS);
        match cut.and_then(|(end, _)| self.0.get(..end)) {
            None => write!(f, "`{}`", self.0.escape_debug()),
            Some(head) => {
                write!(f, "`{}…` ({} bytes)", head.escape_debug(), self.0.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::io;

    use super::*;

    fn stem() -> String {
        "s-1".to_owned()
    }

    fn disk_full() -> Arc<dyn std::error::Error + Send + Sync> {
        Arc::new(io::Error::from(io::ErrorKind::StorageFull))
    }

    #[test]
    fn an_error_can_be_sent_shared_and_cloned() {
        fn check<T: Send + Sync + Clone + 'static>() {}
        check::<Error>();
    }

    #[test]
    fn a_refusal_names_the_transcript_and_the_numbers() {
        let stale = Error::Stale {
            stem: stem(),
            expected: 3,
            found: 17,
        };
        assert_eq!(stale.kind(), ErrorKind::Stale);
        assert_eq!(
            stale.to_string(),
            "transcript `s-1` was changed by another writer since the baseline was read (expected 3, \
             found 17); read it again and repeat the call"
        );
        let limit = Error::GenerationLimit {
            stem: stem(),
            limit: 4096,
        };
        assert!(limit.to_string().contains("`s-1`"));
        assert!(limit.to_string().contains("4096"));
        let newer = Error::NewerFormat {
            found: 9,
            supported: 1,
        };
        assert!(newer.to_string().contains("version 9"));
        assert!(newer.to_string().contains("up to 1"));
    }

    #[test]
    fn a_store_that_is_open_names_its_holder_where_that_is_known() {
        let open = |holder| Error::AlreadyOpen {
            path: PathBuf::from("/data/t.redb"),
            holder,
        };
        assert_eq!(
            open(Some(4711)).to_string(),
            "store `/data/t.redb` is already open in process 4711; close it there, or share that `Store`"
        );
        assert_eq!(
            open(None).to_string(),
            "store `/data/t.redb` is already open; close it there, or share that `Store`"
        );
    }

    #[test]
    fn control_characters_of_a_stem_are_shown_escaped() {
        let stem = "a\u{1b}[2Jb\nc\0".to_owned();
        let message = Error::Sealed { stem }.to_string();
        assert!(message.contains(r"`a\u{1b}[2Jb\nc\0`"), "{message}");
        assert!(!message.contains(char::is_control));
    }

    #[test]
    fn a_long_stem_is_shown_shortened_and_kept_whole() {
        let stem = "ü".repeat(1 << 19);
        let error = Error::NotWritten { stem: stem.clone() };
        let message = error.to_string();
        assert!(message.contains("ü…` (1048576 bytes)"), "{message}");
        assert_eq!(message.matches('ü').count(), Shown::CHARS);
        assert!(matches!(error, Error::NotWritten { stem: whole } if whole == stem));
    }

    #[test]
    fn a_stem_that_just_fits_is_shown_whole() {
        let stem = "s".repeat(Shown::CHARS);
        let message = Error::Deleted { stem: stem.clone() }.to_string();
        assert!(message.contains(&format!("`{stem}`")));
    }

    #[test]
    fn the_cause_of_a_failed_file_operation_can_be_reached_by_its_type() {
        let error = Error::Io {
            what: "syncing the file".to_owned(),
            source: disk_full(),
        };
        let shown = error.source().map(ToString::to_string);
        assert_eq!(shown, Some(disk_full().to_string()));
        let Error::Io { source, .. } = &error else {
            panic!("it was made as an I/O error");
        };
        let cause = source.downcast_ref().map(io::Error::kind);
        assert_eq!(cause, Some(io::ErrorKind::StorageFull));
    }

    #[test]
    fn an_error_of_another_store_speaks_for_itself() {
        let error = Error::other("the bucket is gone");
        assert_eq!(error.kind(), ErrorKind::Other);
        assert_eq!(error.to_string(), "the bucket is gone");
        assert!(error.source().is_none());
    }
}
