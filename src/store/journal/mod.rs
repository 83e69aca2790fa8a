//! The journal: groups of payloads, made durable with one write and one sync each.
//!
//! A file beside the database holds two segments. Groups go into the active one until the next group does not fit, then
//! into the other, which must be free by then: a checkpoint of the database frees a segment whose frames it holds. What
//! the database must know in order to read the journal again is the [`Ledger`].
//!
//! Every reuse of a segment has a new random epoch, and a frame counts only under the epoch that the database records.
//! A group is written only after the one before it was synced. So an invalid frame at the end is a group that was never
//! acknowledged, and an invalid frame with a later group behind it is damage.
//!
//! The journal knows sequences and bytes, and nothing of what they mean.

mod frame;
mod recovery;
#[cfg(test)]
mod tests;
mod writer;

use super::backend::Backend;

pub(in crate::store) use frame::{Frame, MAX_GROUP_BYTES, Payload, frame_bytes};
pub(in crate::store) use recovery::{RecoveryError, read};
pub(in crate::store) use writer::{AppendError, Fit, Writer};

/// Whether a file is a journal, or nothing yet.
pub(in crate::store) fn is_one(backend: &dyn Backend) -> std::io::Result<bool> {
    let mut start = [0; frame::SEGMENT_MAGIC.len()];
    let length = usize::try_from(backend.len()?).unwrap_or(usize::MAX);
    if let Some(start) = start.get_mut(..length.min(frame::SEGMENT_MAGIC.len())) {
        backend.read(0, start)?;
    }
    Ok(start == frame::SEGMENT_MAGIC || start == [0; frame::SEGMENT_MAGIC.len()])
}

/// What the database records of the journal in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(in crate::store) struct Ledger {
    /// The epoch that the frames of each segment carry; of a free segment, the one it will have when it is written next.
    pub(in crate::store) epochs: [u128; 2],
    /// The segment that was being written.
    pub(in crate::store) active: u8,
    /// Whether groups are not synced.
    pub(in crate::store) eventual: bool,
    /// The last sequence that was in the journal. It is less than the last one in the database when that was committed
    /// without a frame, and more when frames wait to be applied.
    pub(in crate::store) written: u64,
}
