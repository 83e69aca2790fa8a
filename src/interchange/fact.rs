//! What a codec makes of a source: facts, in the order of the source, that no format colours.

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{SessionRef, TranscriptMessage, TranscriptMeta, TranscriptPartial, TurnUsage};

use super::quarantine::BadLine;

/// A session of the source: the number that [`Emit::session`](super::Emit::session) gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionNo(pub u32);

/// A row of the source: the number that [`Emit::row`](super::Emit::row) gave it, ascending over all sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowNo(pub u64);

/// Where in the source something is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The line, 1 for the first; 0 where a format has no lines.
    pub line: u64,
    /// Where the record begins, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Which of the things it is that one record makes, 0 for the first.
    pub part: u32,
}

impl Place {
    /// The same record, the given thing of it.
    #[must_use]
    pub fn part(self, part: u32) -> Self {
        Self { part, ..self }
    }
}

/// By what a record is known when it is imported again, 128 bits of a hash.
///
/// [`Source::key`](super::Source::key) makes it: of the format's id and the record's bytes, or of all bytes of the
/// source up to the record's end. Several things of one record are told apart by [`Place::part`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepeatKey(pub [u8; 16]);

/// One fact.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Fact {
    /// A session of the source begins, or is met again with a newer header.
    Session(SessionNo, Box<SessionFact>),
    /// A row is appended to the log of its session and to its live context.
    Row(RowNo, Box<RowFact>),
    /// The live context of a session is replaced.
    Context(Box<ContextFact>),
    /// The tools that are declared from here on.
    Tools {
        /// The session.
        session: SessionNo,
        /// The declarations, opaque.
        tools: Value,
        /// Where.
        place: Place,
        /// By what it is known again.
        key: RepeatKey,
    },
    /// The partial of an interrupted turn: shown, never replayed.
    Partial {
        /// The session.
        session: SessionNo,
        /// The partial.
        partial: TranscriptPartial,
        /// The turn that was interrupted.
        request_id: Option<String>,
        /// RFC 3339, or empty.
        ts: String,
        /// Where.
        place: Place,
        /// By what it is known again.
        key: RepeatKey,
    },
    /// What one call of a provider cost. A call counts once, whatever files tell of it.
    Call(Box<CallFact>),
    /// A generation takes no more rows.
    Seal {
        /// The session.
        session: SessionNo,
        /// What is known of the compaction that sealed it.
        metadata: Option<Value>,
    },
    /// A piece of the source that is no record. [`Source`](super::Source) tells of these, codecs need not.
    Bad(BadLine),
}

/// A session as a source tells of it.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionFact {
    /// Its identity. Ids of files are attributes here: keys, never paths.
    pub session: SessionRef,
    /// Its header; times are those of the records, not of the import.
    pub meta: TranscriptMeta,
    /// Its title.
    pub title: Option<String>,
    /// The call of the parent that spawned it.
    pub spawned_by: Option<String>,
    /// Whether it was written before sessions had identities. Its key is then a name that the import gives it, and the
    /// store lists it among its thread's `pre_identity` roots.
    pub pre_identity: bool,
    /// What else is known: working directory, branch, version of the tool.
    pub attributes: Map<String, Value>,
}

impl SessionFact {
    /// A session of which nothing else is known.
    #[must_use]
    pub fn new(session: SessionRef, meta: TranscriptMeta) -> Self {
        Self {
            session,
            meta,
            title: None,
            spawned_by: None,
            pre_identity: false,
            attributes: Map::new(),
        }
    }
}

/// A row as a source tells of it.
#[derive(Debug, Clone, PartialEq)]
pub struct RowFact {
    /// Its session.
    pub session: SessionNo,
    /// The row. A usage of its own counts with the row; one that other lines or files repeat is a [`CallFact`] instead.
    pub message: TranscriptMessage,
    /// The UUID that it has in the source, if that is an RFC 4122 one. The record takes it over when it is free.
    pub uuid: Option<Uuid>,
    /// When it was written: RFC 3339, or empty where the source does not say.
    pub ts: String,
    /// The number of the model call within its turn, where known.
    pub iteration: Option<u32>,
    /// Where.
    pub place: Place,
    /// By what it is known again.
    pub key: RepeatKey,
    /// The row that it says anew; its usage is then not counted again.
    pub revises: Option<RowNo>,
    /// How many input tokens of the row's own usage were written to the cache.
    pub cache_write: u64,
    /// Whether something of it could not be held as it is written.
    pub lossy: bool,
}

/// Why a live context was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextReason {
    /// A compaction, which reports count.
    Compaction,
    /// The conversation went back to an earlier row and on from there.
    Rewind,
    /// The rows were cleared.
    Clear,
}

/// A row of a new live context.
#[derive(Debug, Clone, PartialEq)]
pub enum Kept {
    /// A row that was told before, wherever it stands.
    Row(RowNo),
    /// A row that is new with this context.
    New(RowNo, Box<RowFact>),
}

/// A new live context of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextFact {
    /// The session.
    pub session: SessionNo,
    /// Why.
    pub reason: ContextReason,
    /// The whole new context, in order.
    pub rows: Vec<Kept>,
    /// What is known of it: trigger, token counts.
    pub metadata: Option<Value>,
    /// RFC 3339, or empty.
    pub ts: String,
    /// The UUID that the boundary has in the source.
    pub uuid: Option<Uuid>,
    /// Where.
    pub place: Place,
    /// By what it is known again.
    pub key: RepeatKey,
}

/// By what a call of a provider is known, in all files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallId {
    /// The provider's message id, and the id of the request where the record has it.
    Message {
        /// Not empty.
        id: String,
        /// Not empty.
        request: Option<String>,
    },
    /// A key that the codec makes of what the format counts by.
    Key(String),
    /// The record, where nothing else names the call.
    Record(RepeatKey),
    /// No call, but all that a run had used so far. Runs that go on from each other have one name, and each total has in
    /// it those of the runs before; what it adds to them counts.
    Total {
        /// The name of all of them.
        family: String,
        /// The run.
        run: String,
        /// How long its history is.
        length: u64,
        /// The runs that it goes on from and how long the history was then, the last one first.
        after: Vec<(String, u64)>,
    },
}

/// What a call of a provider cost, as one record tells of it. Of several with one id, the one with the largest output
/// counts; of equal ones that of the session whose header says that it was created first, whichever was imported first.
#[derive(Debug, Clone, PartialEq)]
pub struct CallFact {
    /// The session that it is spent in.
    pub session: SessionNo,
    /// The row that it produced, where that is known.
    pub row: Option<RowNo>,
    /// The call.
    pub id: CallId,
    /// Tokens and cost. Input includes what was read from the cache and what was written to it.
    pub usage: TurnUsage,
    /// The tokens of the input that were written to the cache.
    pub cache_write: u64,
    /// The counters as the source has them.
    pub original: Option<Value>,
    /// Where.
    pub place: Place,
}
