//! The locator traits on top of the store: forwarding, and nothing else.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Store;
use super::engine::Engine;
use super::head::SessionParts;
use super::plan::{self, Address, Begun};
use super::read::Reader;
use crate::session::split_generation;
use crate::turn::{check_session, check_stem, plan_partial, validate_background};
use crate::{
    BackgroundAppend, BackgroundAppendOutcome, DisplaySessionTranscript, DisplaySlice, ErrorKind,
    Result, SessionRef, SessionTranscript, ThreadSpend, ThreadTranscripts, TranscriptHistory,
    TranscriptLocator, TranscriptMessage, TranscriptMeta, TranscriptPartial, TranscriptRead,
    TranscriptTurn, TruncateCut,
};

/// The locator of a [`Store`]: every look-up is indexed, every write durable when it returns.
///
/// Clones and all locators of one store share everything, reservations and turn locks included. A locator keeps its
/// store open.
#[derive(Clone)]
pub struct RedbTranscriptLocator {
    engine: Arc<Engine>,
}

impl fmt::Debug for RedbTranscriptLocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbTranscriptLocator")
            .field("destination_key", &self.engine.destination)
            .finish_non_exhaustive()
    }
}

impl RedbTranscriptLocator {
    pub(super) fn new(store: &Store) -> Self {
        Self {
            engine: Arc::clone(&store.engine),
        }
    }

    fn history(&self, address: Address) -> Arc<RedbTranscript> {
        Arc::new(RedbTranscript {
            engine: Arc::clone(&self.engine),
            stem: address.stem(),
            address,
        })
    }

    /// The handle of a written transcript that a look-up found.
    fn found(&self, id: u64) -> Result<Arc<RedbTranscript>> {
        let (stem, generation, meta) = self.engine.read(|reader| {
            let transcript = reader.transcript(id)?;
            let info = reader.stem_info(transcript.birth.session)?;
            Ok((
                info.stem,
                transcript.birth.generation,
                Arc::clone(&transcript.head.meta),
            ))
        })?;
        Ok(self.history(Address {
            session: self.engine.sessions.get(&stem),
            generation,
            parts: None,
            seed: meta,
            begun: None,
        }))
    }

    fn begin(
        &self,
        session: &SessionRef,
        seed: TranscriptMeta,
        baseline: Option<&[TranscriptMessage]>,
    ) -> Result<(SessionRef, Arc<dyn TranscriptHistory>)> {
        check_session(session)?;
        let address = address(&self.engine, session, seed);
        let begun = plan::begin(&self.engine, &address, baseline)?;
        let successor = session.next_generation();
        let history = self.history(Address {
            generation: successor.generation,
            seed: Arc::new(successor_seed(&address.seed, &successor)),
            begun: Some(Arc::new(begun)),
            ..address
        });
        Ok((successor, history))
    }
}

/// The seed of a successor: it names its own session and the generation before.
fn successor_seed(seed: &TranscriptMeta, successor: &SessionRef) -> TranscriptMeta {
    TranscriptMeta {
        session_id: Some(successor.session_id()),
        parent_session_id: successor.parent_session_id(),
        ..seed.clone()
    }
}

/// The address of a generation of a session.
pub(super) fn address(engine: &Engine, session: &SessionRef, seed: TranscriptMeta) -> Address {
    Address {
        session: engine.sessions.get(&session.base_stem()),
        generation: session.generation,
        parts: Some(Arc::new(SessionParts {
            key: session.session_key.clone(),
            agent: session.agent_id.clone(),
            ancestors: session.ancestors().to_vec(),
        })),
        seed: Arc::new(seed),
        begun: None,
    }
}

impl TranscriptLocator for RedbTranscriptLocator {
    fn destination_key(&self) -> Option<String> {
        Some(self.engine.destination.clone())
    }

    fn latest_for_agent(&self, agent: &str) -> Result<Option<Arc<dyn TranscriptRead>>> {
        let found = self.engine.read(|reader| reader.latest_of_agent(agent))?;
        found
            .map(|id| Ok(self.found(id)? as Arc<dyn TranscriptRead>))
            .transpose()
    }

    fn root_for_thread_scoped(
        &self,
        thread_id: &str,
        agent_id: Option<&str>,
    ) -> Result<Option<Arc<dyn TranscriptRead>>> {
        let found = self
            .engine
            .read(|reader| reader.root_of_thread(thread_id, agent_id))?;
        found
            .map(|id| Ok(self.found(id)? as Arc<dyn TranscriptRead>))
            .transpose()
    }

    fn thread_transcripts(
        &self,
        thread_id: &str,
        agent_id: Option<&str>,
    ) -> Result<ThreadTranscripts> {
        self.engine
            .read(|reader| reader.thread_transcripts(thread_id, agent_id))
    }

    fn open_stem(&self, stem: &str, seed: TranscriptMeta) -> Result<Arc<dyn TranscriptHistory>> {
        check_stem(stem)?;
        let (base, generation) = split_generation(stem);
        Ok(self.history(Address {
            session: self.engine.sessions.get(base),
            generation,
            parts: None,
            seed: Arc::new(seed),
            begun: None,
        }))
    }

    fn open_session(
        &self,
        session: &SessionRef,
        seed: TranscriptMeta,
    ) -> Result<Arc<dyn TranscriptHistory>> {
        check_session(session)?;
        Ok(self.history(address(&self.engine, session, seed)))
    }

    fn session_exists(&self, session: &SessionRef) -> Result<bool> {
        check_session(session)?;
        let base = session.base_stem();
        self.engine.read_of(&base, |reader| {
            Ok(find(reader, &base, session.generation)?.is_some())
        })
    }

    fn read_session_transcript(
        &self,
        session: &SessionRef,
    ) -> Result<Option<Arc<dyn TranscriptRead>>> {
        check_session(session)?;
        let base = session.base_stem();
        let found = self
            .engine
            .read_of(&base, |reader| find(reader, &base, session.generation))?;
        found
            .map(|id| Ok(self.found(id)? as Arc<dyn TranscriptRead>))
            .transpose()
    }

    fn head_generation(&self, session: &SessionRef) -> Result<SessionRef> {
        check_session(session)?;
        let base = session.base_stem();
        let newest = self
            .engine
            .read_of(&base, |reader| reader.newest_course(&base))?;
        Ok(newest.map_or_else(
            || session.clone(),
            |(_, newest)| session.with_generation(newest.birth.generation),
        ))
    }

    fn session_chain(&self, session: &SessionRef) -> Result<Vec<SessionRef>> {
        check_session(session)?;
        let base = session.base_stem();
        let chain = self
            .engine
            .read_of(&base, |reader| match reader.stem_id(&base)? {
                Some(id) => reader.chain(id),
                None => Ok(Vec::new()),
            })?;
        Ok(chain
            .into_iter()
            .map(|(generation, _)| session.with_generation(generation))
            .collect())
    }

    fn append_interrupted_partial(
        &self,
        thread_id: &str,
        agent_id: Option<&str>,
        partial: &TranscriptPartial,
        request_id: Option<&str>,
    ) -> Result<bool> {
        self.engine.writable()?;
        if plan_partial(partial, request_id).is_none() {
            return Ok(false);
        }
        loop {
            let found = self.engine.read(|reader| {
                let Some(root) = reader.root_of_thread(thread_id, agent_id)? else {
                    return Ok(None);
                };
                let root = reader.transcript(root)?;
                let head = reader.newest(root.birth.session)?.map(|(_, head)| head);
                Ok(head)
            })?;
            let Some(head) = found else { return Ok(false) };
            let history = self.found(head)?;
            match plan::partial(&self.engine, &history.address, partial, request_id) {
                // A successor may have been written since the look-up; then the partial belongs there.
                Err(error) if error.kind() == ErrorKind::Sealed && history.has_successor()? => {}
                answer => return answer,
            }
        }
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
        check_session(session)?;
        let from = address(&self.engine, session, seed);
        let next = |generation| Address {
            generation,
            seed: Arc::new(successor_seed(
                &from.seed,
                &session.with_generation(generation),
            )),
            ..from.clone()
        };
        let (generation, kept) = plan::truncate(&self.engine, &from, &cut, next)?;
        let history = self.history(next(generation));
        Ok((session.with_generation(generation), history, kept))
    }

    fn append_background(
        &self,
        session: &SessionRef,
        message: TranscriptMessage,
        append: &BackgroundAppend,
    ) -> Result<BackgroundAppendOutcome> {
        check_session(session)?;
        let row = validate_background(&session.session_id(), &message, append)?;
        let first = session.first_generation();
        // The head exists when a row is appended, so this seed is never used.
        let address = address(&self.engine, &first, TranscriptMeta::new(""));
        plan::append_background(&self.engine, &address, &row, append)
    }

    fn thread_spend(&self, thread_id: &str) -> Result<ThreadSpend> {
        self.engine.read(|reader| reader.thread_spend(thread_id))
    }
}

/// The transcript of one generation, if it is written.
pub(super) fn find(reader: &Reader<'_>, base: &str, generation: u32) -> Result<Option<u64>> {
    match reader.stem_id(base)? {
        Some(session) => reader.generation(session, generation),
        None => Ok(None),
    }
}

/// A handle on one generation.
struct RedbTranscript {
    engine: Arc<Engine>,
    stem: String,
    address: Address,
}

impl RedbTranscript {
    /// Reads the transcript, if it is written.
    fn read<T>(&self, read: impl FnOnce(&mut Reader<'_>, u64) -> Result<T>) -> Result<Option<T>> {
        let base = &self.address.session.stem;
        self.engine.read_of(base, |reader| {
            match find(reader, base, self.address.generation)? {
                Some(id) => read(reader, id).map(Some),
                None => Ok(None),
            }
        })
    }

    fn has_successor(&self) -> Result<bool> {
        let session = &self.address.session.stem;
        let next = self.address.generation.saturating_add(1);
        self.engine
            .read_of(session, |reader| Ok(find(reader, session, next)?.is_some()))
    }

    /// Notes that a begun generation was written by this handle.
    fn wrote<T>(&self, result: Result<T>) -> Result<T> {
        if let Some(begun) = self.address.begun.as_deref() {
            note_written(begun, &result);
        }
        result
    }
}

fn note_written<T>(begun: &Begun, result: &Result<T>) {
    let written = match result {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::Indeterminate,
    };
    if written {
        begun.written.store(true, Ordering::Release);
    }
}

impl TranscriptRead for RedbTranscript {
    fn stem(&self) -> &str {
        &self.stem
    }

    fn read_session(&self) -> Result<Option<SessionTranscript>> {
        self.read(|reader, id| reader.session(id))
    }

    fn read_display(&self) -> Result<Option<DisplaySessionTranscript>> {
        self.read(|reader, id| reader.display(id))
    }

    fn read_display_before(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Option<DisplaySlice>> {
        self.read(|reader, id| reader.display_before(id, before, limit))
    }
}

impl TranscriptHistory for RedbTranscript {
    fn append_turn_with_partial(
        &self,
        turn: TranscriptTurn<'_>,
        partial: Option<&TranscriptPartial>,
    ) -> Result<()> {
        self.wrote(plan::append_turn(
            &self.engine,
            &self.address,
            &turn,
            partial,
        ))
    }

    fn append(&self, message: TranscriptMessage) -> Result<()> {
        self.wrote(plan::append(&self.engine, &self.address, &message))
    }

    fn replace(&self, messages: &[TranscriptMessage]) -> Result<()> {
        self.wrote(plan::replace(&self.engine, &self.address, messages))
    }

    fn clear(&self) -> Result<()> {
        if plan::clear(&self.engine, &self.address)? {
            return self.wrote(Ok(()));
        }
        Ok(())
    }
}
