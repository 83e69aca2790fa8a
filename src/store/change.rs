//! A change: everything that one call does to the store, as one value.
//!
//! Planning produces it, the committer makes it durable, `apply` writes it. A change carries the heads as they are
//! after it, so that applying it decides nothing.

use super::blob::NewBlob;
use super::head::{Head, SessionParts, Totals};
use crate::UsageCostSource;

/// One atomic mutation of a transcript, and of its predecessor when it is a successor's first write.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// Write time, microseconds since the Unix epoch.
    pub(super) at: i64,
    pub(super) transcript: u64,
    /// Stem of generation 0.
    pub(super) session: String,
    pub(super) generation: u32,
    /// The parts of the session reference, when the transcript is written through one for the first time.
    pub(super) named: Option<SessionParts>,
    /// Set when this change creates the transcript.
    pub(super) create: Option<Create>,
    /// The head after the change.
    pub(super) head: Head,
    /// New records, in the order of their sequences.
    pub(super) records: Vec<NewRecord>,
}

/// What else the creation of a transcript does.
#[derive(Clone, Debug)]
pub(super) struct Create {
    /// The transcript of generation 0 of the session: itself, if it is that.
    pub(super) incarnation: u64,
    /// The predecessor, which this change seals.
    pub(super) seal: Option<SealPredecessor>,
}

/// The last change to a generation.
#[derive(Clone, Debug)]
pub(super) struct SealPredecessor {
    pub(super) transcript: u64,
    pub(super) head: Head,
    pub(super) record: NewRecord,
}

/// A record to append to the log.
#[derive(Clone, Debug)]
pub(super) struct NewRecord {
    pub(super) seq: u64,
    pub(super) uuid: u128,
    /// The whole envelope.
    pub(super) bytes: Vec<u8>,
    /// The large content that was cut out of it, once for each reference.
    pub(super) blobs: Vec<NewBlob>,
    /// The idempotency key that the row holds.
    pub(super) key: Option<String>,
    /// The usage that it adds to the totals.
    pub(super) usage: Option<CountedUsage>,
}

/// Usage as the totals see it.
#[derive(Clone, Debug)]
pub(super) struct CountedUsage {
    /// UTC hours since the Unix epoch.
    pub(super) hour: i64,
    pub(super) provider: String,
    pub(super) model: String,
    pub(super) source: Option<UsageCostSource>,
    pub(super) totals: Totals,
}

impl NewRecord {
    fn weight(&self) -> usize {
        let blobs = self.blobs.iter().map(|blob| 64 + blob.bytes.len());
        128 + self.bytes.len() + blobs.sum::<usize>()
    }
}

impl Change {
    /// Bytes that the change holds in the queue, roughly.
    pub(super) fn weight(&self) -> usize {
        1024 + self.records.iter().map(NewRecord::weight).sum::<usize>()
    }
}
