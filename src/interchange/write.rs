//! From facts to files.

use std::io::{self, Read, Write};
use std::sync::Arc;

use super::fact::Fact;
use crate::{Error, Result};

/// Where an export goes: one file, or a folder of them.
pub trait Target {
    /// The file with this name, relative, with `/` between its parts; the one that was begun last is complete when
    /// another is begun, and goes on when it is asked for again. A target that is one file takes every name for it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidId`] for a name that is not made of plain parts, and what creating the
    /// file answers.
    fn file(&mut self, name: &str) -> Result<&mut dyn Write>;

    /// Whether all of it is one file.
    fn is_one_file(&self) -> bool {
        false
    }
}

/// What a format keeps of the usage of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageKept {
    /// Nothing.
    None,
    /// Tokens, and no cost.
    Tokens,
    /// Tokens and cost in USD.
    Whole,
}

/// Writes facts in one format. It is given them in the order of the log, session by session.
pub trait Writer {
    /// Writes one fact, or keeps what is needed to write it later. What the format cannot say is left out.
    ///
    /// # Errors
    ///
    /// What the target answers, and what the format cannot hold.
    fn write(&mut self, fact: Fact, target: &mut dyn Target) -> Result<()>;

    /// Whether the file that a session was imported from is handed to [`original`](Self::original).
    fn takes_originals(&self) -> bool {
        false
    }

    /// Whether each generation of a session has a file of its own, and is told of as a session of its own.
    fn splits_generations(&self) -> bool {
        false
    }

    /// What is kept of usages. Where anything is, they all stand on rows.
    fn usage_kept(&self) -> UsageKept {
        UsageKept::None
    }

    /// Whether several sessions can stand in one file.
    fn shares_files(&self) -> bool {
        false
    }

    /// Writes the file that the session which was told of last was imported from, as it is; what is written from then on
    /// stands behind it. False, with nothing read, if the format gives all facts anew.
    ///
    /// # Errors
    ///
    /// What reading and the target answer.
    fn original(&mut self, bytes: &mut dyn Read, target: &mut dyn Target) -> Result<bool> {
        let _ = (bytes, target);
        Ok(false)
    }

    /// Takes note of a fact that stands in the original.
    fn known(&mut self, fact: Fact) {
        let _ = fact;
    }

    /// Writes what remains.
    ///
    /// # Errors
    ///
    /// What the target answers.
    fn finish(&mut self, target: &mut dyn Target) -> Result<()>;
}

/// Writes a line; what stands before it is ended first where it is `unended`.
pub(super) fn put_line(file: &mut dyn Write, mut line: String, unended: bool) -> Result<()> {
    line.push('\n');
    if unended {
        line.insert(0, '\n');
    }
    file.write_all(line.as_bytes()).map_err(failed)
}

/// What a target answers that cannot be written.
pub(super) fn failed(error: io::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => Error::Io {
            what: "writing an export".to_owned(),
            source: Arc::new(error),
        },
    }
}

/// Refuses an id that cannot be part of a file's name on every system.
///
/// # Errors
///
/// [`Error::InvalidId`].
pub fn plain_name(id: &str) -> Result<()> {
    let strange = |letter: char| letter.is_control() || "/\\:*?\"<>|".contains(letter);
    let plain = !id.is_empty()
        && id.len() <= 200
        && !id.starts_with('.')
        && !id.ends_with(['.', ' '])
        && !id.contains(strange);
    if plain {
        return Ok(());
    }
    Err(Error::InvalidId {
        what: "file name",
        reason: "an id that is exported to a file of its own must be a plain file name".to_owned(),
    })
}
