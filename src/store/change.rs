//! A change: everything that one call does to the store, as one value.
//!
//! Planning produces it, the committer makes it durable, `apply` writes it. A change carries the heads as they are
//! after it, so that applying it decides nothing.

use bincode::{BorrowDecode, Decode, Encode};

use super::binary;
use super::blob::NewBlob;
use super::head::{Head, SessionParts, Totals};
use super::import::step::ImportStep;
use crate::Result;

/// One atomic mutation of the store.
#[derive(Debug, Encode, BorrowDecode)]
pub(super) enum Change {
    /// What a host's call does.
    Turn(Box<TurnChange>),
    /// A step of an import.
    Import(ImportStep),
}

/// One atomic mutation of a transcript, and of its predecessor when it is a successor's first write.
#[derive(Debug, Encode, BorrowDecode)]
pub(super) struct TurnChange {
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
#[derive(Debug, Encode, BorrowDecode)]
pub(super) struct Create {
    /// The transcript of generation 0 of the session: itself, if it is that.
    pub(super) incarnation: u64,
    /// The predecessor, which this change seals.
    pub(super) seal: Option<SealPredecessor>,
}

/// The last change to a generation.
#[derive(Debug, Encode, BorrowDecode)]
pub(super) struct SealPredecessor {
    pub(super) transcript: u64,
    pub(super) head: Head,
    pub(super) record: NewRecord,
}

/// A record to append to the log.
#[derive(Debug, Encode, Decode)]
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
#[derive(Debug, Encode, Decode)]
pub(super) struct CountedUsage {
    /// UTC hours since the Unix epoch.
    pub(super) hour: i64,
    pub(super) provider: String,
    pub(super) model: String,
    /// See `source_code`.
    pub(super) source: u8,
    pub(super) totals: Totals,
}

/// The version of a change's encoding; it stands first in it.
const FORMAT: u8 = 0;

impl NewRecord {
    fn weight(&self) -> usize {
        let blobs = self.blobs.iter().map(|blob| 64 + blob.bytes.len());
        128 + self.bytes.len() + blobs.sum::<usize>()
    }
}

impl Change {
    /// The payload of its frame in the journal, which has a checksum of its own.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.weight());
        bytes.push(FORMAT);
        binary::encode_into(self, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads the payload of a frame.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let what = "a change in the journal";
        match bytes.split_first() {
            Some((&FORMAT, rest)) => binary::decode_all(rest, what),
            _ => Err(binary::damaged(what)),
        }
    }

    /// Bytes that the change holds in the queue, roughly.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Turn(change) => {
                let records = change.records.iter();
                1024 + records.map(NewRecord::weight).sum::<usize>()
            }
            Self::Import(step) => 1024 + step.weight(),
        }
    }

    /// The transcript that it creates, if its number has to ascend.
    pub(super) fn creates(&self) -> Option<u64> {
        match self {
            Self::Turn(change) => change.create.as_ref().map(|_| change.transcript),
            Self::Import(_) => None,
        }
    }

    /// The sessions that it changes, by the stems of their generation 0.
    pub(super) fn sessions(&self) -> Vec<&str> {
        match self {
            Self::Turn(change) => vec![&change.session],
            Self::Import(step) => step.sessions(),
        }
    }
}
