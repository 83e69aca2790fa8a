//! A handle on one transcript.

use super::InMemoryTranscriptLocator;
use super::state::{Begun, Id, Writer};
use crate::replay;
use crate::{
    DisplaySessionTranscript, Result, SessionRef, SessionTranscript, TranscriptHistory,
    TranscriptMessage, TranscriptMeta, TranscriptPartial, TranscriptRead, TranscriptTurn,
};

/// A handle on one transcript of a memory.
pub(super) struct MemoryHistory {
    memory: InMemoryTranscriptLocator,
    stem: String,
    writer: Writer,
}

impl MemoryHistory {
    pub(super) fn of_stem(
        memory: &InMemoryTranscriptLocator,
        stem: String,
        seed: TranscriptMeta,
    ) -> Self {
        Self {
            memory: memory.clone(),
            writer: Writer {
                id: Id::of_stem(&stem),
                session: None,
                seed,
                begun: None,
            },
            stem,
        }
    }

    pub(super) fn of_session(
        memory: &InMemoryTranscriptLocator,
        session: &SessionRef,
        seed: TranscriptMeta,
        begun: Option<Begun>,
    ) -> Self {
        Self {
            memory: memory.clone(),
            stem: session.session_id(),
            writer: Writer {
                id: Id::of(session),
                session: Some(session.clone()),
                seed,
                begun,
            },
        }
    }
}

impl TranscriptRead for MemoryHistory {
    fn stem(&self) -> &str {
        &self.stem
    }

    fn read_session(&self) -> Result<Option<SessionTranscript>> {
        Ok(replay::session(self.memory.state().log(&self.writer.id)))
    }

    fn read_display(&self) -> Result<Option<DisplaySessionTranscript>> {
        Ok(replay::display(self.memory.state().log(&self.writer.id)))
    }
}

impl TranscriptHistory for MemoryHistory {
    fn append_turn_with_partial(
        &self,
        turn: TranscriptTurn<'_>,
        partial: Option<&TranscriptPartial>,
    ) -> Result<()> {
        self.memory
            .state()
            .append_turn(&self.writer, &turn, partial)
    }

    fn append(&self, message: TranscriptMessage) -> Result<()> {
        self.memory.state().append(&self.writer, &message)
    }

    fn replace(&self, messages: &[TranscriptMessage]) -> Result<()> {
        self.memory.state().replace(&self.writer, messages)
    }

    fn clear(&self) -> Result<()> {
        self.memory.state().clear(&self.writer)
    }
}
