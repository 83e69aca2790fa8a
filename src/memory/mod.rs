//! A store in memory: the readable reference of what a transcript store does.
//!
//! It keeps every transcript as its log, a list of entries, and answers everything by replaying. It leans on the
//! provided methods of the traits and overrides those whose answer only the store can know.

mod history;
mod state;
mod tree;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::turn::{check_session, check_stem, plan_partial, validate_background};
use crate::{
    BackgroundAppend, BackgroundAppendOutcome, Result, SessionRef, ThreadSpend, ThreadTranscripts,
    TranscriptHistory, TranscriptLocator, TranscriptMessage, TranscriptMeta, TranscriptPartial,
    TranscriptRead,
};
use history::MemoryHistory;
use state::{Id, State};

/// A transcript store in memory, for tests and for hosts that need no durability.
///
/// It keeps the whole contract but durability: what it holds is gone with its last clone or handle. Clones share one
/// memory. Every call replays the log it reads, so that costs grow with the length of the log; use
/// [`Store::in_memory`](crate::Store::in_memory) for more than tests.
///
/// ```
/// use transcript_redb::{
///     InMemoryTranscriptLocator, SessionRef, TranscriptLocator, TranscriptMessage, TranscriptMeta,
/// };
///
/// let locator = InMemoryTranscriptLocator::new();
/// let session = SessionRef::root("thread-1");
/// let history = locator.open_session(&session, TranscriptMeta::new("assistant"))?;
/// history.append(TranscriptMessage::user("hello"))?;
/// assert_eq!(history.messages()?.len(), 1);
/// # Ok::<(), transcript_redb::Error>(())
/// ```
#[derive(Clone)]
pub struct InMemoryTranscriptLocator {
    shared: Arc<Shared>,
}

struct Shared {
    key: String,
    state: Mutex<State>,
}

impl InMemoryTranscriptLocator {
    /// A new, empty store.
    #[must_use]
    pub fn new() -> Self {
        static STORES: AtomicU64 = AtomicU64::new(0);
        let number = STORES.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: Arc::new(Shared {
                key: format!("memory:{number}"),
                state: Mutex::default(),
            }),
        }
    }

    /// Frees the successor slot of a session that a forgotten handle of
    /// [`begin_generation`](TranscriptLocator::begin_generation) holds; false if none does.
    ///
    /// Any generation of the session may be given. The handle stays usable: its next write takes the slot again if
    /// that is still free.
    #[expect(clippy::must_use_candidate, reason = "it is called for its effect")]
    pub fn release(&self, session: &SessionRef) -> bool {
        self.state()
            .release(&session.first_generation().session_id())
    }

    /// Every change is planned before the first of it is made, so a panic elsewhere leaves a whole state.
    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    fn reader(&self, id: &Id, meta: TranscriptMeta) -> Arc<dyn TranscriptRead> {
        Arc::new(MemoryHistory::of_stem(self, id.stem(), meta))
    }

    fn begin(
        &self,
        session: &SessionRef,
        mut seed: TranscriptMeta,
        baseline: Option<&[TranscriptMessage]>,
    ) -> Result<(SessionRef, Arc<dyn TranscriptHistory>)> {
        let begun = self.state().begin(&Id::of(session), baseline)?;
        let successor = session.next_generation();
        seed.session_id = Some(successor.session_id());
        seed.parent_session_id = successor.parent_session_id();
        let history = MemoryHistory::of_session(self, &successor, seed, Some(begun));
        Ok((successor, Arc::new(history)))
    }
}

impl Default for InMemoryTranscriptLocator {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for InMemoryTranscriptLocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryTranscriptLocator")
            .field("destination_key", &self.shared.key)
            .finish_non_exhaustive()
    }
}

impl TranscriptLocator for InMemoryTranscriptLocator {
    fn destination_key(&self) -> Option<String> {
        Some(self.shared.key.clone())
    }

    fn latest_for_agent(&self, agent: &str) -> Result<Option<Arc<dyn TranscriptRead>>> {
        let newest = self.state().newest_root(|meta| {
            meta.agent_name == agent || meta.agent_id.as_deref() == Some(agent)
        });
        Ok(newest.map(|(id, meta)| self.reader(&id, meta)))
    }

    fn root_for_thread_scoped(
        &self,
        thread_id: &str,
        agent_id: Option<&str>,
    ) -> Result<Option<Arc<dyn TranscriptRead>>> {
        let newest = self.state().newest_root_of_thread(thread_id, agent_id);
        Ok(newest.map(|(id, meta)| self.reader(&id, meta)))
    }

    fn thread_transcripts(
        &self,
        thread_id: &str,
        agent_id: Option<&str>,
    ) -> Result<ThreadTranscripts> {
        Ok(self.state().thread_transcripts(thread_id, agent_id))
    }

    fn open_stem(&self, stem: &str, seed: TranscriptMeta) -> Result<Arc<dyn TranscriptHistory>> {
        check_stem(stem)?;
        Ok(Arc::new(MemoryHistory::of_stem(
            self,
            stem.to_owned(),
            seed,
        )))
    }

    fn open_session(
        &self,
        session: &SessionRef,
        seed: TranscriptMeta,
    ) -> Result<Arc<dyn TranscriptHistory>> {
        check_session(session)?;
        Ok(Arc::new(MemoryHistory::of_session(
            self, session, seed, None,
        )))
    }

    fn append_interrupted_partial(
        &self,
        thread_id: &str,
        agent_id: Option<&str>,
        partial: &TranscriptPartial,
        request_id: Option<&str>,
    ) -> Result<bool> {
        let Some(row) = plan_partial(partial, request_id) else {
            return Ok(false);
        };
        self.state().append_partial(thread_id, agent_id, row)
    }

    fn begin_generation(
        &self,
        session: &SessionRef,
        seed: TranscriptMeta,
    ) -> Result<(SessionRef, Arc<dyn TranscriptHistory>)> {
        self.begin(session, seed, None)
    }

    fn begin_generation_from_baseline(
        &self,
        session: &SessionRef,
        seed: TranscriptMeta,
        baseline: &[TranscriptMessage],
    ) -> Result<(SessionRef, Arc<dyn TranscriptHistory>)> {
        self.begin(session, seed, Some(baseline))
    }

    fn append_background(
        &self,
        session: &SessionRef,
        message: TranscriptMessage,
        append: &BackgroundAppend,
    ) -> Result<BackgroundAppendOutcome> {
        check_session(session)?;
        let row = validate_background(&session.session_id(), &message, append)?;
        self.state().append_background(session, &row, append)
    }

    fn thread_spend(&self, thread_id: &str) -> Result<ThreadSpend> {
        Ok(self.state().thread_spend(thread_id))
    }
}
