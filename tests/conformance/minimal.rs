//! The least that a third party has to write: the required methods alone, all others are the provided ones.

use std::sync::Arc;

use transcript_redb::{
    DisplaySessionTranscript, InMemoryTranscriptLocator, Result, SessionRef, SessionTranscript,
    ThreadTranscripts, TranscriptHistory, TranscriptLocator, TranscriptMessage, TranscriptMeta,
    TranscriptPartial, TranscriptRead, TranscriptTurn,
};

pub struct Minimal(InMemoryTranscriptLocator);

impl Minimal {
    pub fn new(store: InMemoryTranscriptLocator) -> Self {
        Self(store)
    }
}

struct Reader(Arc<dyn TranscriptRead>);

impl TranscriptRead for Reader {
    fn stem(&self) -> &str {
        self.0.stem()
    }

    fn read_session(&self) -> Result<Option<SessionTranscript>> {
        self.0.read_session()
    }

    fn read_display(&self) -> Result<Option<DisplaySessionTranscript>> {
        self.0.read_display()
    }
}

struct History(Arc<dyn TranscriptHistory>);

impl TranscriptRead for History {
    fn stem(&self) -> &str {
        self.0.stem()
    }

    fn read_session(&self) -> Result<Option<SessionTranscript>> {
        self.0.read_session()
    }

    fn read_display(&self) -> Result<Option<DisplaySessionTranscript>> {
        self.0.read_display()
    }
}

impl TranscriptHistory for History {
    fn append_turn_with_partial(
        &self,
        turn: TranscriptTurn<'_>,
        partial: Option<&TranscriptPartial>,
    ) -> Result<()> {
        self.0.append_turn_with_partial(turn, partial)
    }

    fn append(&self, message: TranscriptMessage) -> Result<()> {
        self.0.append(message)
    }

    fn replace(&self, messages: &[TranscriptMessage]) -> Result<()> {
        self.0.replace(messages)
    }

    fn clear(&self) -> Result<()> {
        self.0.clear()
    }
}

fn reader(read: Option<Arc<dyn TranscriptRead>>) -> Option<Arc<dyn TranscriptRead>> {
    read.map(|read| Arc::new(Reader(read)) as Arc<dyn TranscriptRead>)
}

fn history(history: Arc<dyn TranscriptHistory>) -> Arc<dyn TranscriptHistory> {
    Arc::new(History(history))
}

impl TranscriptLocator for Minimal {
    fn latest_for_agent(&self, agent: &str) -> Result<Option<Arc<dyn TranscriptRead>>> {
        self.0.latest_for_agent(agent).map(reader)
    }

    fn root_for_thread_scoped(
        &self,
        thread_id: &str,
        agent_id: Option<&str>,
    ) -> Result<Option<Arc<dyn TranscriptRead>>> {
        self.0
            .root_for_thread_scoped(thread_id, agent_id)
            .map(reader)
    }

    fn thread_transcripts(
        &self,
        thread_id: &str,
        agent_id: Option<&str>,
    ) -> Result<ThreadTranscripts> {
        self.0.thread_transcripts(thread_id, agent_id)
    }

    fn open_stem(&self, stem: &str, seed: TranscriptMeta) -> Result<Arc<dyn TranscriptHistory>> {
        self.0.open_stem(stem, seed).map(history)
    }

    fn open_session(
        &self,
        session: &SessionRef,
        seed: TranscriptMeta,
    ) -> Result<Arc<dyn TranscriptHistory>> {
        self.0.open_session(session, seed).map(history)
    }

    fn begin_generation(
        &self,
        session: &SessionRef,
        seed: TranscriptMeta,
    ) -> Result<(SessionRef, Arc<dyn TranscriptHistory>)> {
        let (successor, handle) = self.0.begin_generation(session, seed)?;
        Ok((successor, history(handle)))
    }

    fn begin_generation_from_baseline(
        &self,
        session: &SessionRef,
        seed: TranscriptMeta,
        baseline: &[TranscriptMessage],
    ) -> Result<(SessionRef, Arc<dyn TranscriptHistory>)> {
        let (successor, handle) = self
            .0
            .begin_generation_from_baseline(session, seed, baseline)?;
        Ok((successor, history(handle)))
    }
}
