//! What every store under test does.

use std::error::Error;
use std::path::Path;

use crate::work::Turn;

pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A store with sessions `0..sessions`, each preloaded.
pub trait Peer: Sync {
    /// A writer for some of the sessions. It writes a session's turns, then goes on to the next.
    fn writer(&self, sessions: std::ops::Range<usize>) -> Result<Box<dyn Writer + '_>>;
}

/// Writes turns, each durable when the call returns.
pub trait Writer: Send {
    /// Writes a turn to the session that stands at `place` of the writer's range.
    fn turn(&mut self, place: usize, turn: &Turn) -> Result<()>;
}

/// Makes a store in an empty folder and gives it sessions, with rows of these turns.
pub type Make = fn(&Path, &[Turn], usize) -> Result<Box<dyn Peer>>;

/// A kind of store.
pub struct Kind {
    pub name: &'static str,
    pub make: Make,
}
