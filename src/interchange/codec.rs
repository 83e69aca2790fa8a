//! The seam between a file format and everything else.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::emit::Emit;
use super::scan;
use super::source::Source;
use super::write::Writer;
use crate::Result;

/// How many bytes from the front of a file are looked at to tell its format.
pub const HEAD_BYTES: usize = 256 << 10;

/// How many records of these are.
const HEAD_RECORDS: usize = 32;

/// A file format. See the [module](super) for what a new one needs.
pub trait Codec: Send + Sync {
    /// The name on the command line and in reports.
    fn name(&self) -> &'static str;

    /// The version of the rows that it makes. It rises when the same bytes give other rows; which usages are told with rows
    /// and which as [calls](super::CallFact) must stay as it is, or [`Store::import_again`](crate::Store::import_again)
    /// counts them twice.
    fn version(&self) -> u32;

    /// Whether a file is of this format, and how sure that is.
    fn detect(&self, probe: &Probe<'_>) -> Option<Certainty>;

    /// Which of the files of a folder that it detected are to be read, and in which order. `folder` is what the caller
    /// named; the files are sorted by path.
    fn arrange(&self, folder: &Path, files: Vec<PathBuf>) -> Vec<PathBuf> {
        let _ = folder;
        files
    }

    /// Whether a file is no transcript but belongs to one of this format, which is read with it.
    fn is_companion(&self, path: &Path) -> bool {
        let _ = path;
        false
    }

    /// Reads a source to its end and tells what it says.
    ///
    /// Damage is no error: [`Source`] sets bad lines aside, and what a codec cannot read as a record it gives to
    /// [`Source::misfit`].
    ///
    /// # Errors
    ///
    /// What the source and the sink answer; [`Error::NewerFormat`](crate::Error::NewerFormat) for a version that it does
    /// not read.
    fn read(&self, source: &mut Source<'_>, emit: &mut Emit<'_>) -> Result<()>;

    /// Whether its files are images of a store, which are restored as they are: [`read`](Self::read) then only counts.
    fn restores(&self) -> bool {
        false
    }

    /// Whether its files tell which generation of a session they are.
    fn names_generations(&self) -> bool {
        false
    }

    /// What writes facts in this format; None if it only gives back the bytes that it read.
    fn writer(&self) -> Option<Box<dyn Writer>> {
        None
    }
}

impl fmt::Debug for dyn Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How sure a codec is that a file is its own. The surest one reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// It could be, if nothing else claims it.
    Maybe,
    /// It looks like it.
    Likely,
    /// It says so.
    Sure,
}

/// What is known of a file before it is read: its path and the bytes that it begins with.
#[derive(Debug)]
pub struct Probe<'p> {
    path: &'p Path,
    head: &'p [u8],
    records: Vec<Map<String, Value>>,
}

impl<'p> Probe<'p> {
    /// Looks at a file with this path and these bytes at its front: [`HEAD_BYTES`], or more where its first line is longer.
    #[must_use]
    pub fn new(path: &'p Path, head: &'p [u8]) -> Self {
        let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
        let mut records = Vec::new();
        for line in text.split(|byte| *byte == b'\n').take(HEAD_RECORDS) {
            if let Ok(scan::Parsed {
                value: Value::Object(record),
                ..
            }) = scan::parse(line)
            {
                records.push(record);
            }
        }
        Self {
            path,
            head,
            records,
        }
    }

    /// The file's path as it was named.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.path
    }

    /// The path's last part, or an empty text if that is no UTF-8.
    #[must_use]
    pub fn file_name(&self) -> &str {
        let name = self.path.file_name().and_then(|name| name.to_str());
        name.unwrap_or_default()
    }

    /// The bytes that the file begins with.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        self.head
    }

    /// The JSON objects that stand on its first lines, whole ones only.
    #[must_use]
    pub fn records(&self) -> &[Map<String, Value>] {
        &self.records
    }

    /// Whether its front holds these bytes, for records that are too long to be whole in it.
    #[must_use]
    pub fn holds(&self, text: &str) -> bool {
        let text = text.as_bytes();
        !text.is_empty() && self.head.windows(text.len()).any(|part| part == text)
    }
}
