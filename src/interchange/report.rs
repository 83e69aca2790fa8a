//! What an import did, in numbers.

use serde::Serialize;

use super::quarantine::BadLine;
use super::source::Counts;

/// What the import of one file did. Of rows, sessions, calls and tokens it counts what it added, so the second import
/// of a file adds none.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FileReport {
    /// The file.
    pub path: String,
    /// Its format; empty if no codec knows it.
    pub format: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its lines, blank ones and a last one without an end included.
    pub lines: u64,
    /// Lines with nothing but white space.
    pub blank_lines: u64,
    /// The records that stand on them.
    pub records: u64,
    /// The rows that were added.
    pub messages: u64,
    /// The pieces that are no record, the first hundred thousand of them.
    pub quarantined: Vec<BadLine>,
    /// Records that stood on one line with another, or behind a piece of one.
    pub glued_records: u64,
    /// Rows, contexts and calls that the store had already.
    pub duplicates: u64,
    /// The compactions that were added.
    pub compactions: u64,
    /// The sessions that the file tells of.
    pub sessions: u64,
    /// The provider's message ids that were not known before.
    pub distinct_message_ids: u64,
    /// The input tokens that were added, cached ones included.
    pub input_tokens: u64,
    /// The output tokens that were added.
    pub output_tokens: u64,
    /// How many of the input tokens came from the cache.
    pub cached_input_tokens: u64,
    /// How many of the input tokens were written to the cache.
    pub cache_write_tokens: u64,
    /// The cost that was added, in US dollars, as the file has it. The importers price nothing.
    pub cost_usd: f64,
    /// All pieces that are no record, also those that are not listed.
    #[serde(skip)]
    pub bad: u64,
    /// Records of which something could not be held as it is written; the source has it.
    #[serde(skip)]
    pub lossy: u64,
}

impl FileReport {
    /// A report with what reading counted.
    #[must_use]
    pub fn of(path: String, format: &str, counts: &Counts) -> Self {
        Self {
            path,
            format: format.to_owned(),
            bytes: counts.bytes,
            lines: counts.lines,
            blank_lines: counts.blank_lines,
            records: counts.records,
            quarantined: counts.bad_lines.clone(),
            glued_records: counts.glued_records,
            bad: counts.bad,
            lossy: counts.lossy,
            ..Self::default()
        }
    }

    /// Whether the file has no record: it is empty, or all of it is damaged.
    #[must_use]
    pub fn is_barren(&self) -> bool {
        self.records == 0
    }
}
