//! What the player tells the parent: a line for everything that the store has acknowledged.
//!
//! A line is written after the store's answer, never before. The parent reads the lines from a pipe, which keeps
//! what was written to it when the writer is killed.

use std::io::{self, Write};

/// What was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A turn, named by its request id.
    Turn,
    /// A sub-agent's turn, named by its task.
    Task,
    /// A background report, named by its idempotency key.
    Report,
    /// The text of an interrupted attempt, named by the request id.
    Attempt,
}

/// One acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    pub kind: Kind,
    pub session: usize,
    pub name: String,
}

/// An acknowledgement with the microseconds since the run began.
#[derive(Debug, Clone)]
pub struct Entry {
    pub ack: Ack,
    pub micros: u64,
}

impl Entry {
    /// Writes the line in one piece, so that lines of several threads never mix.
    pub fn write(&self) -> io::Result<()> {
        let kind = match self.ack.kind {
            Kind::Turn => "turn",
            Kind::Task => "task",
            Kind::Report => "report",
            Kind::Attempt => "attempt",
        };
        let (micros, session, name) = (self.micros, self.ack.session, &self.ack.name);
        let line = format!("{kind} {micros} {session} {name}\n");
        let mut out = io::stdout().lock();
        out.write_all(line.as_bytes())?;
        out.flush()
    }

    /// Reads a line back; the last one of a killed writer may be none.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        let kind = match words.next()? {
            "turn" => Kind::Turn,
            "task" => Kind::Task,
            "report" => Kind::Report,
            "attempt" => Kind::Attempt,
            _ => return None,
        };
        Some(Self {
            micros: words.next()?.parse().ok()?,
            ack: Ack {
                kind,
                session: words.next()?.parse().ok()?,
                name: words.next()?.to_owned(),
            },
        })
    }
}
