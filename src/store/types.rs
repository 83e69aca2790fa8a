//! What the store takes and gives beyond the traits.

use serde_json::Value;
use uuid::Uuid;

use super::origin::Origin;
use super::pending::Newest;
use crate::{
    DisplayMessage, SessionRef, ThreadSpend, TranscriptMessage, TranscriptMeta, TranscriptPartial,
    TranscriptSpend, TurnUsage,
};

/// One record of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Identity of the record. Version 7 and ascending within a log, unless it was imported with one of its own.
    pub uuid: Uuid,
    /// The record before it in the log that first stored it.
    pub parent: Option<Uuid>,
    /// Stem of the generation that first stored it.
    pub stem: String,
    /// That generation.
    pub generation: u32,
    /// Place in that generation's log. Sequences ascend and may leave gaps.
    pub seq: u64,
    /// Write time, RFC 3339.
    pub written_at: String,
    /// What it is.
    pub kind: RecordKind,
    /// The turn it belongs to.
    pub request_id: Option<String>,
    /// The row, of a message or a partial.
    pub message: Option<DisplayMessage>,
    /// The usage, of a usage record.
    pub usage: Option<TurnUsage>,
    /// Whether another record tells of the same call, so that the usage of this one does not count. Only imports know
    /// of such.
    pub superseded: bool,
    /// The tokens of its usage that were written to a cache, of a usage record or a row. Only imports know of them.
    pub cache_write_tokens: u64,
    /// The counters of its usage as the source has them, of an imported usage record.
    pub original_usage: Option<Value>,
    /// The declarations, of a tools record.
    pub tools: Option<Value>,
    /// What the host knew of the compaction, of a compaction or a seal.
    pub metadata: Option<Value>,
    /// The rows of the replacement, of a compaction; the rows kept from the generation before, of a retained record.
    pub retained: Vec<Uuid>,
    /// Where it was imported from; None of what a host wrote.
    pub origin: Option<Origin>,
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordKind {
    /// A row of the context.
    Message,
    /// The text of an interrupted turn.
    Partial,
    /// A compaction, a `replace` or a `clear`.
    Compaction,
    /// Usage that belongs to no row.
    Usage,
    /// Tool declarations.
    Tools,
    /// The rows that a successor kept from the generation before.
    Retained,
    /// The end of a generation.
    Seal,
}

/// Names the head of a session at one moment. A host that keeps it needs no message lists to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeadToken {
    /// Changes when a session is deleted and written again.
    pub incarnation: u64,
    /// The head generation.
    pub generation: u32,
    /// The sequence that the next record of its log will have.
    pub seq: u64,
}

impl HeadToken {
    pub(super) fn of(newest: &Newest) -> Self {
        Self {
            incarnation: newest.incarnation,
            generation: newest.generation,
            seq: newest.head.next_seq,
        }
    }
}

/// The rows of one turn for [`Store::append_rows`](super::Store::append_rows).
#[derive(Clone, Copy, Debug, Default)]
pub struct AppendRows<'a> {
    /// The new rows. Without any, nothing is written; a usage or a partial without rows is refused.
    pub rows: &'a [TranscriptMessage],
    /// The newest meta, if it changes.
    pub meta: Option<&'a TranscriptMeta>,
    /// Usage of the turn, as in [`TranscriptTurn`](crate::TranscriptTurn).
    pub usage: Option<&'a TurnUsage>,
    /// The turn that the rows belong to.
    pub request_id: Option<&'a str>,
    /// Tool declarations, if they change.
    pub tools: Option<&'a Value>,
    /// The text of the turn, if it was interrupted.
    pub partial: Option<&'a TranscriptPartial>,
}

/// What [`Store::adopt`](super::Store::adopt) made the beginning of a session of.
#[derive(Clone, Debug, PartialEq)]
pub struct Adoption {
    /// The session: its generation 0, which the adoption wrote.
    pub session: SessionRef,
    /// The header that it was given.
    pub meta: TranscriptMeta,
    /// What was folded into it, in the order of its rows; at least one.
    pub sources: Vec<AdoptedSource>,
}

impl Adoption {
    /// The rows that the session begins with.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.sources.iter().map(|source| source.rows).sum()
    }
}

/// A transcript that was folded into a session. It stays as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptedSource {
    /// Its stem.
    pub stem: String,
    /// When its header says that it was begun; by this the sources are ordered.
    pub created: String,
    /// Rows of its live context, all of which were taken over.
    pub rows: u64,
}

/// The order of a list of sessions, newest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ListOrder {
    /// By the last write.
    #[default]
    Updated,
    /// By the first write.
    Created,
}

/// Which sessions to list.
#[derive(Clone, Debug, Default)]
pub struct SessionQuery {
    /// Only sessions whose head names this thread (compared trimmed).
    pub thread: Option<String>,
    /// Sub-agents too.
    pub children: bool,
    /// The order, newest first.
    pub order: ListOrder,
    /// At most this many.
    pub limit: Option<usize>,
}

/// A session in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionSummary {
    /// Stem of the head generation.
    pub stem: String,
    /// The head generation, if the session was ever written through a reference.
    pub session: Option<SessionRef>,
    /// Number of the head generation.
    pub generation: u32,
    /// Whether it is a sub-agent's.
    pub subagent: bool,
    /// The thread that its head names.
    pub thread_id: Option<String>,
    /// The agent that its head names.
    pub agent_name: String,
    /// First line of the first user message, up to 80 characters.
    pub title: Option<String>,
    /// First write, RFC 3339.
    pub created: String,
    /// Last write, RFC 3339.
    pub updated: String,
    /// Messages and partials stored over all generations.
    pub messages: u64,
    /// Messages in the live context.
    pub live_messages: u64,
    /// Tokens and cost over all generations, without sub-agents.
    pub spend: TranscriptSpend,
}

/// A thread in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSummary {
    /// The thread.
    pub thread_id: String,
    /// Title of its oldest session.
    pub title: Option<String>,
    /// Root sessions.
    pub sessions: u64,
    /// Messages and partials stored in its root sessions.
    pub messages: u64,
    /// Sub-agents' sessions, at any depth.
    pub subagents: u64,
    /// Messages and partials stored in these.
    pub subagent_messages: u64,
    /// Last write of a root session, RFC 3339, by the store's clock (of an import by the times in the file), whatever headers
    /// say.
    pub updated: String,
    /// What it cost, sub-agents included.
    pub spend: ThreadSpend,
}
