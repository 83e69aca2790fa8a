//! The seam between hosts and stores: how transcripts are found, read and written.
//!
//! A store implements three traits: [`TranscriptRead`] and [`TranscriptHistory`] on its handles and
//! [`TranscriptLocator`] on itself. Most methods are provided, by walking and replaying, so that a small store has
//! little to write; a store that keeps indexes overrides them.
//!
//! All methods are synchronous and may do I/O. A look-up that fails is an error and never "not found".

mod provided;

use std::fmt;
use std::sync::Arc;

use crate::session::split_generation;
use crate::spend::walk_thread;
use crate::turn::{background_holder, cut_length, validate_background};
use crate::{
    BackgroundAppend, BackgroundAppendOutcome, DisplaySessionTranscript, DisplaySlice, Error,
    Result, SessionRef, SessionTranscript, ThreadSpend, TranscriptMessage, TranscriptMeta,
    TranscriptPartial, TranscriptTurn, TruncateCut,
};
use provided::{head_of_stem, no_seed, retried};

/// Reads one transcript.
///
/// A reader sees whole turns only. It always reads what is stored at that moment; nothing is cached in the handle.
pub trait TranscriptRead: Send + Sync {
    /// The transcript's unique name in its store. Handles of the same transcript give the same stem.
    fn stem(&self) -> &str;

    /// What the model would be sent now: the newest header, the live context and the tools in force.
    ///
    /// `None` if the transcript was never written; an empty list after a clear, or when only a partial was recorded.
    /// Every row has `preserve_request_id` set: hand rows back as they were read, and the store knows them again.
    ///
    /// Costs the live context, not the log.
    fn read_session(&self) -> Result<Option<SessionTranscript>>;

    /// What a person is shown: every row ever stored and every compaction, in the order of the log, rows that were
    /// compacted away and partials included. `None` if the transcript was never written.
    ///
    /// Costs the whole log; [`read_display_before`](Self::read_display_before) reads a page of it.
    fn read_display(&self) -> Result<Option<DisplaySessionTranscript>>;

    /// The last `limit` display records whose sequence is lower than `before`, or the last of all, oldest first.
    ///
    /// To page backwards, give the sequence of the first record of a page as the next `before`. Appends never change
    /// the sequence of a record. `None` if the transcript was never written.
    ///
    /// A compaction is one record, whatever the number of rows in its replacement, all of which it holds; a `limit` of 0
    /// gives none.
    ///
    /// The provided method reads the whole display and takes a record's place in it as its sequence.
    fn read_display_before(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Option<DisplaySlice>> {
        let Some(display) = self.read_display()? else {
            return Ok(None);
        };
        let total = display.records.len();
        let wanted = before.map(|before| usize::try_from(before).unwrap_or(usize::MAX));
        let end = wanted.unwrap_or(total).min(total);
        let start = end.saturating_sub(limit);
        let numbered = (0..).zip(display.records);
        Ok(Some(DisplaySlice {
            meta: display.meta,
            records: numbered.take(end).skip(start).collect(),
            more: start > 0,
        }))
    }
}

/// Reads and writes one transcript.
///
/// Any number of handles may be open on one transcript; no write of one is lost because of another. A method returns
/// success only once what it wrote is durable at the store's level, and a call that is refused leaves nothing behind.
///
/// Every write is refused with [`Error::Sealed`] when a later generation of the session is written or reserved. The
/// first write of a generation above 0 seals the generation before it in the same step; it is refused with
/// [`Error::NotWritten`] when that one was never written, with [`Error::Reserved`] while another handle holds the
/// slot, and with [`Error::GenerationLimit`] beyond generation 4096.
pub trait TranscriptHistory: TranscriptRead {
    /// Persists one turn: [`append_turn_with_partial`](Self::append_turn_with_partial) without a partial.
    fn append_turn(&self, turn: TranscriptTurn<'_>) -> Result<()> {
        self.append_turn_with_partial(turn, None)
    }

    /// Persists one turn, and the partial of an interrupted one behind it, in one atomic step.
    ///
    /// If the transcript is written and its live context is not row by row `turn.prev`, the turn is refused with
    /// [`Error::Stale`]. Otherwise the live context becomes `turn.next`: rows behind the stored ones are appended,
    /// anything else is a compaction, in which rows that were read and handed back are kept as the records they are.
    /// The header becomes `turn.meta`, the tools `turn.tools` if there are any. A turn makes the transcript exist,
    /// even without rows.
    ///
    /// A row or usage that cannot be stored is refused with [`Error::InvalidMessage`], [`Error::InvalidId`] or
    /// [`Error::TooLarge`].
    ///
    /// Stores the new rows alone; over `prev` and `next` it costs one comparison each.
    fn append_turn_with_partial(
        &self,
        turn: TranscriptTurn<'_>,
        partial: Option<&TranscriptPartial>,
    ) -> Result<()>;

    /// The live context; empty if the transcript was never written.
    fn messages(&self) -> Result<Vec<TranscriptMessage>> {
        let session = self.read_session()?;
        Ok(session.map(|session| session.messages).unwrap_or_default())
    }

    /// Appends one row behind whatever is stored at that moment. The row keeps its request id, the header stays, and
    /// the display shows the time of the write.
    ///
    /// As a first write it takes the seed of the handle as the header.
    fn append(&self, message: TranscriptMessage) -> Result<()>;

    /// Replaces the live context by `messages`, which keep their request ids; the header and the tools stay.
    ///
    /// On a written transcript this is recorded as a compaction, even when nothing changes. On one that was never
    /// written it is a first write with the seed of the handle as the header, even without rows.
    fn replace(&self, messages: &[TranscriptMessage]) -> Result<()>;

    /// Empties the live context; the header and the tools stay, and so does everything in the log.
    ///
    /// On a written transcript this is recorded as a compaction. On one that was never written it changes nothing,
    /// except that a handle from [`begin_generation`](TranscriptLocator::begin_generation) gives its slot back.
    fn clear(&self) -> Result<()>;
}

/// Finds and opens the transcripts of one store.
pub trait TranscriptLocator: Send + Sync {
    /// What identifies the store within this process: two locators over one store answer the same.
    ///
    /// It keys the turn lock. The provided `None` is an anonymous store, whose turns are not locked.
    fn destination_key(&self) -> Option<String> {
        None
    }

    /// The newest written root transcript whose header names `agent` as its agent name or agent id.
    ///
    /// Newest is the one that was created last, not the one that was written last; every generation is created by its
    /// own first write. Handles that were only opened or reserved are no transcripts.
    fn latest_for_agent(&self, agent: &str) -> Result<Option<Arc<dyn TranscriptRead>>>;

    /// The newest written root transcript of a thread: [`root_for_thread_scoped`](Self::root_for_thread_scoped)
    /// without an agent.
    fn root_for_thread(&self, thread_id: &str) -> Result<Option<Arc<dyn TranscriptRead>>> {
        self.root_for_thread_scoped(thread_id, None)
    }

    /// The newest written root transcript whose header names this thread and, if one is given, this agent id.
    ///
    /// Thread ids are compared trimmed; a blank one has no root. A transcript is asked for its own newest header,
    /// whatever the header of the session's head says.
    fn root_for_thread_scoped(
        &self,
        thread_id: &str,
        agent_id: Option<&str>,
    ) -> Result<Option<Arc<dyn TranscriptRead>>>;

    /// All transcripts of a thread: its sessions with all their generations, and every sub-agent below them.
    ///
    /// A session belongs to the thread that the newest header of its head names. With an agent id only the roots of
    /// that agent are accepted, and only what descends from them. A blank thread has no transcripts.
    fn thread_transcripts(
        &self,
        thread_id: &str,
        agent_id: Option<&str>,
    ) -> Result<ThreadTranscripts>;

    /// A handle on the transcript with this stem. Writes nothing, and does not make the transcript exist.
    ///
    /// `seed` is the header of a first write that brings none of its own. A stem that ends in `.g<decimal>` is that
    /// generation of the session whose stem stands before. An empty stem or one over 1 MiB is [`Error::InvalidId`].
    fn open_stem(&self, stem: &str, seed: TranscriptMeta) -> Result<Arc<dyn TranscriptHistory>>;

    /// A handle on exactly this generation of a session; like [`open_stem`](Self::open_stem) of its stem, and a first
    /// write also records what the reference says of the session and its ancestors.
    fn open_session(
        &self,
        session: &SessionRef,
        seed: TranscriptMeta,
    ) -> Result<Arc<dyn TranscriptHistory>>;

    /// Whether exactly this generation was ever written.
    ///
    /// The provided method reads the transcript.
    fn session_exists(&self, session: &SessionRef) -> Result<bool> {
        Ok(self.read_session_transcript(session)?.is_some())
    }

    /// A reader of exactly this generation, if it was ever written.
    ///
    /// The provided method reads the transcript.
    fn read_session_transcript(
        &self,
        session: &SessionRef,
    ) -> Result<Option<Arc<dyn TranscriptRead>>> {
        let history = self.open_session(session, no_seed())?;
        let written = history.read_session()?.is_some();
        Ok(written.then_some(history as Arc<dyn TranscriptRead>))
    }

    /// The newest written generation of the session, whichever generation is given; the given one if none is written.
    ///
    /// The provided method walks the generations up from 0.
    fn head_generation(&self, session: &SessionRef) -> Result<SessionRef> {
        let head = self.session_chain(session)?.pop();
        Ok(head.unwrap_or_else(|| session.clone()))
    }

    /// The written generations of the session, oldest first, whichever generation is given; empty if none is written.
    ///
    /// The provided method walks the generations up from 0.
    fn session_chain(&self, session: &SessionRef) -> Result<Vec<SessionRef>> {
        let mut chain = Vec::new();
        let mut generation = session.first_generation();
        while self.session_exists(&generation)? {
            let next = generation.next_generation();
            chain.push(generation);
            generation = next;
        }
        Ok(chain)
    }

    /// Records the text of an interrupted turn at the head generation of the thread's newest root.
    ///
    /// False when there is no such root or no text; nothing is stored then. A head that refuses writes, because its
    /// successor is reserved, is [`Error::Sealed`]. The live context, and so every baseline, stays as it is.
    ///
    /// The provided method persists a turn that changes nothing and repeats it up to 3 times when another writer came
    /// in between.
    fn append_interrupted_partial(
        &self,
        thread_id: &str,
        agent_id: Option<&str>,
        partial: &TranscriptPartial,
        request_id: Option<&str>,
    ) -> Result<bool> {
        if partial.content.is_empty() {
            return Ok(false);
        }
        retried(|| {
            let Some(root) = self.root_for_thread_scoped(thread_id, agent_id)? else {
                return Ok(false);
            };
            let Some((head, stored)) = head_of_stem(self, root.stem())? else {
                return Ok(false);
            };
            let mut turn = TranscriptTurn::new(&stored.messages, &stored.messages, &stored.meta);
            turn.request_id = request_id;
            head.append_turn_with_partial(turn, Some(partial))?;
            Ok(true)
        })
    }

    /// Reserves the generation after exactly this one and returns it with an empty handle on it.
    ///
    /// The handle's seed is `seed` with the session ids of both generations. While the handle lives unwritten the
    /// predecessor refuses writes with [`Error::Sealed`]; its first write seals the predecessor for good in the same
    /// step. Dropping the handle and all its clones, or clearing it, gives the slot back. The reservation is in memory
    /// alone: the successor does not exist before it is written.
    ///
    /// Refused with [`Error::NotWritten`] if this generation was never written, [`Error::GenerationExists`] if its
    /// successor was, [`Error::Reserved`] while another handle holds the slot, and [`Error::GenerationLimit`] beyond
    /// generation 4096.
    fn begin_generation(
        &self,
        session: &SessionRef,
        seed: TranscriptMeta,
    ) -> Result<(SessionRef, Arc<dyn TranscriptHistory>)>;

    /// Like [`begin_generation`](Self::begin_generation), if the live context of this generation is `baseline`, else
    /// [`Error::Stale`]. The baseline is checked again by the successor's first write.
    fn begin_generation_from_baseline(
        &self,
        session: &SessionRef,
        seed: TranscriptMeta,
        baseline: &[TranscriptMessage],
    ) -> Result<(SessionRef, Arc<dyn TranscriptHistory>)>;

    /// Cuts the live context of the session's head and writes the rows that are kept as its next generation; returns
    /// that generation, a handle on it, and the rows. The kept rows are the records they were: no bytes are copied.
    ///
    /// Refused with [`Error::NotWritten`] if nothing of the session is written, with [`Error::UnknownMessageId`] if no
    /// row has the id to cut before, and like [`begin_generation_from_baseline`](Self::begin_generation_from_baseline).
    fn truncate_into_next_generation(
        &self,
        session: &SessionRef,
        cut: TruncateCut,
        seed: TranscriptMeta,
    ) -> Result<(
        SessionRef,
        Arc<dyn TranscriptHistory>,
        Vec<TranscriptMessage>,
    )> {
        let head = self.head_generation(session)?;
        let stem = head.session_id();
        let Some(stored) = self.open_session(&head, no_seed())?.read_session()? else {
            return Err(Error::NotWritten { stem });
        };
        let keep = cut_length(&stem, &stored.messages, &cut)?;
        let (successor, history) =
            self.begin_generation_from_baseline(&head, seed, &stored.messages)?;
        let mut kept = stored.messages;
        kept.truncate(keep);
        history.replace(&kept)?;
        Ok((successor, history, kept))
    }

    /// Appends one assistant row to the head of a session outside a turn, at most once for each idempotency key that
    /// the live context holds.
    ///
    /// The row is checked first: [`Error::InvalidMessage`] if the key is blank or the row is not plain assistant text.
    /// It is stored with the origin in its metadata and shows the time of the write. The head is looked up from
    /// generation 0, whichever generation is given. A head whose successor is reserved is [`Error::Sealed`].
    ///
    /// Takes no turn lock; [`append_background_message_in`](crate::background::append_background_message_in) does. The
    /// provided method is not atomic: two calls at once can both find the key free. It repeats up to 3 times when
    /// another writer came in between.
    fn append_background(
        &self,
        session: &SessionRef,
        message: TranscriptMessage,
        append: &BackgroundAppend,
    ) -> Result<BackgroundAppendOutcome> {
        let row = validate_background(&session.session_id(), &message, append)?;
        retried(|| {
            let head = self.head_generation(&session.first_generation())?;
            let history = self.open_session(&head, no_seed())?;
            let Some(stored) = history.read_session()? else {
                return Ok(BackgroundAppendOutcome::NoSession);
            };
            let generation = head.generation;
            if let Some(expected) = append.expected_generation
                && expected != generation
            {
                return Ok(BackgroundAppendOutcome::StaleGeneration {
                    expected,
                    head: generation,
                });
            }
            if background_holder(&stored.messages, &append.idempotency_key) {
                return Ok(BackgroundAppendOutcome::Duplicate { generation });
            }
            history.append(row.clone())?;
            Ok(BackgroundAppendOutcome::Appended { generation })
        })
    }

    /// What a thread used and cost over its full history: every stored usage of its roots and of every sub-agent below
    /// them, once. A blank or unknown thread has spent nothing.
    ///
    /// The provided method reads the displays of all transcripts of the thread. It takes the order of sessions in
    /// [`thread_transcripts`](Self::thread_transcripts) for the order of creation, which decides whose turn is the
    /// last.
    fn thread_spend(&self, thread_id: &str) -> Result<ThreadSpend> {
        walk_thread(self, thread_id)
    }
}

/// The transcripts of a thread.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ThreadTranscripts {
    /// The session roots: oldest session first, each with its generations, oldest first.
    ///
    /// A root is a session's once it was written through a [`SessionRef`] or its header has a session id.
    pub roots: Vec<ThreadTranscript>,
    /// The other roots, in the same order: transcripts of hosts that knew no sessions.
    pub pre_identity: Vec<ThreadTranscript>,
    /// Every descendant of a root at any depth, and every sub-agent without a written root above it whose own header
    /// names the thread: oldest session first, each with its generations, oldest first.
    pub subagents: Vec<ThreadTranscript>,
}

/// One written transcript of a thread.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadTranscript {
    /// The transcript's stem.
    pub stem: String,
    /// This generation's reference, if the session was ever written through one.
    pub session: Option<SessionRef>,
    /// The generation, 0 for the first.
    pub generation: u32,
    /// The newest header of this transcript.
    pub meta: TranscriptMeta,
    /// The stem of the transcript that delegated to this one; `None` for a root. It need not be written.
    pub parent: Option<String>,
}

impl ThreadTranscript {
    /// The stem that all generations of the session share.
    pub(crate) fn session_stem(&self) -> &str {
        split_generation(&self.stem).0
    }

    /// Opens the transcript at the locator that listed it.
    pub(crate) fn open<L: TranscriptLocator + ?Sized>(
        &self,
        locator: &L,
    ) -> Result<Arc<dyn TranscriptHistory>> {
        match &self.session {
            Some(session) => locator.open_session(session, self.meta.clone()),
            None => locator.open_stem(&self.stem, self.meta.clone()),
        }
    }
}

impl fmt::Debug for dyn TranscriptRead + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TranscriptRead")
            .field("stem", &self.stem())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for dyn TranscriptHistory + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TranscriptHistory")
            .field("stem", &self.stem())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for dyn TranscriptLocator + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TranscriptLocator")
            .field("destination_key", &self.destination_key())
            .finish_non_exhaustive()
    }
}
