//! From a codec to whoever takes its facts.

use serde_json::Value;

use super::fact::{
    CallFact, ContextFact, Fact, Kept, Place, RepeatKey, RowFact, RowNo, SessionFact, SessionNo,
};
use crate::{Result, TranscriptPartial};

/// Takes facts, in order.
pub trait Sink {
    /// Takes one fact.
    ///
    /// # Errors
    ///
    /// Why reading the source has to end.
    fn take(&mut self, fact: Fact) -> Result<()>;
}

impl Sink for Vec<Fact> {
    fn take(&mut self, fact: Fact) -> Result<()> {
        self.push(fact);
        Ok(())
    }
}

/// Numbers what a codec tells, and hands it on.
pub struct Emit<'s> {
    sink: &'s mut dyn Sink,
    sessions: u32,
    rows: u64,
}

impl<'s> Emit<'s> {
    /// Hands facts to `sink`.
    pub fn new(sink: &'s mut dyn Sink) -> Self {
        Self {
            sink,
            sessions: 0,
            rows: 0,
        }
    }

    /// Tells of a session, once for each; before its first row.
    pub fn session(&mut self, session: SessionFact) -> Result<SessionNo> {
        let no = SessionNo(self.sessions);
        self.sessions = self.sessions.saturating_add(1);
        self.sink.take(Fact::Session(no, Box::new(session)))?;
        Ok(no)
    }

    /// Tells what became of a session's header; the last one counts.
    pub fn header(&mut self, no: SessionNo, session: SessionFact) -> Result<()> {
        self.sink.take(Fact::Session(no, Box::new(session)))
    }

    /// Tells of a row.
    pub fn row(&mut self, row: RowFact) -> Result<RowNo> {
        let no = self.next_row();
        self.sink.take(Fact::Row(no, Box::new(row)))?;
        Ok(no)
    }

    /// The number for a row that is new with a context; see [`Kept::New`].
    pub fn new_row(&mut self, row: RowFact) -> (RowNo, Kept) {
        let no = self.next_row();
        (no, Kept::New(no, Box::new(row)))
    }

    /// Tells of a new live context.
    pub fn context(&mut self, context: ContextFact) -> Result<()> {
        self.sink.take(Fact::Context(Box::new(context)))
    }

    /// Tells of a call.
    pub fn call(&mut self, call: CallFact) -> Result<()> {
        self.sink.take(Fact::Call(Box::new(call)))
    }

    /// Tells of the tools in force from here on.
    pub fn tools(
        &mut self,
        session: SessionNo,
        tools: Value,
        place: Place,
        key: RepeatKey,
    ) -> Result<()> {
        self.sink.take(Fact::Tools {
            session,
            tools,
            place,
            key,
        })
    }

    /// Tells of a partial.
    pub fn partial(
        &mut self,
        session: SessionNo,
        partial: TranscriptPartial,
        request_id: Option<String>,
        ts: String,
        (place, key): (Place, RepeatKey),
    ) -> Result<()> {
        self.sink.take(Fact::Partial {
            session,
            partial,
            request_id,
            ts,
            place,
            key,
        })
    }

    /// Tells any other fact.
    pub fn fact(&mut self, fact: Fact) -> Result<()> {
        self.sink.take(fact)
    }

    fn next_row(&mut self) -> RowNo {
        let no = RowNo(self.rows);
        self.rows = self.rows.saturating_add(1);
        no
    }
}

impl std::fmt::Debug for Emit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Emit")
            .field("sessions", &self.sessions)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}
