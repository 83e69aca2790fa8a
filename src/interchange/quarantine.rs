//! Bad lines: where they are and what is wrong with them, never what they say.

use std::fmt;

use serde::{Serialize, Serializer};

/// What is wrong with a piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum BadClass {
    /// The file ends within a record: torn, or still being written.
    TornTail,
    /// A piece of a record, with other bytes of the file behind it.
    Fragment,
    /// Zero bytes.
    NulRun,
    /// A byte-order mark.
    Bom,
    /// JSON, but no record of the format.
    WrongShape,
    /// Bytes that are no UTF-8 where no text is.
    InvalidUtf8,
    /// Longer than a line may be.
    OverLong,
}

impl BadClass {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TornTail => "torn_tail",
            Self::Fragment => "fragment",
            Self::NulRun => "nul_run",
            Self::Bom => "bom",
            Self::WrongShape => "wrong_shape",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::OverLong => "over_long",
        }
    }
}

impl BadClass {
    /// What it is, in plain words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::TornTail => "the file ends in the middle of a record",
            Self::Fragment => "a piece of a record",
            Self::NulRun => "zero bytes",
            Self::Bom => "a byte-order mark",
            Self::WrongShape => "JSON, but no record of this format",
            Self::InvalidUtf8 => "bytes that are no text",
            Self::OverLong => "a line that is too long",
        }
    }
}

impl fmt::Display for BadClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for BadClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A piece of a file that is kept with the source, replayed nowhere and reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BadLine {
    /// The number of the line, 1 for the first.
    pub line: u64,
    /// Where the piece begins, in bytes from the begin of the file.
    pub offset: u64,
    /// Its length in bytes, without the end of the line.
    pub length: u64,
    /// What is wrong with it.
    pub class: BadClass,
}
