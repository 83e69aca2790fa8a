//! From facts to files.

use std::io::Write;

use super::fact::Fact;
use crate::Result;

/// Where an export goes: one file, or a folder of them.
pub trait Target {
    /// The file with this name, relative, with `/` between its parts; the one that was begun last is complete when
    /// another is begun. A target that is one file takes every name for it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidId`](crate::Error::InvalidId) for a name that is not made of plain parts, and what creating the
    /// file answers.
    fn file(&mut self, name: &str) -> Result<&mut dyn Write>;
}

/// Writes facts in one format. It is given them in the order of the log, session by session.
pub trait Writer {
    /// Writes one fact, or keeps what is needed to write it later. What the format cannot say is left out.
    ///
    /// # Errors
    ///
    /// What the target answers, and what the format cannot hold.
    fn write(&mut self, fact: Fact, target: &mut dyn Target) -> Result<()>;

    /// Writes what remains.
    ///
    /// # Errors
    ///
    /// What the target answers.
    fn finish(&mut self, target: &mut dyn Target) -> Result<()>;
}
