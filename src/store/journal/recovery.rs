//! Reading a journal after the process or the machine has stopped.

use std::io;

use memchr::memmem;

use super::Ledger;
use super::frame::{
    ALIGNMENT, FRAME_MAGIC, SEGMENT_BYTES, SEGMENT_HEADER_BYTES, find_frame, segment_first,
};
use crate::store::backend::Backend;

/// A frame that the database does not hold yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Recovered {
    pub(in crate::store) sequence: u64,
    pub(in crate::store) payload: Vec<u8>,
}

/// Why a journal cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub(in crate::store) enum RecoveryError {
    #[error("the journal cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It does not hold what had been acknowledged, or what the database records of it.
    #[error("the journal is damaged at byte {offset} (segment {segment}): {what}")]
    Damaged {
        segment: u8,
        /// Bytes from the beginning of the file.
        offset: u64,
        what: &'static str,
    },
}

/// The frames after sequence `recorded`, in order and without a gap.
///
/// `ledger` and `recorded` are from the last durable commit of the database. A group at the end that was torn, so never
/// acknowledged, may be found in part: its frames before the tear. Reads each segment once and needs memory for one
/// segment and the frames.
pub(in crate::store) fn read(
    backend: &dyn Backend,
    store_id: [u8; 16],
    ledger: &Ledger,
    recorded: u64,
) -> Result<Vec<Recovered>, RecoveryError> {
    read_shaped(SEGMENT_BYTES, backend, store_id, ledger, recorded)
}

pub(super) fn read_shaped(
    segment_bytes: u64,
    backend: &dyn Backend,
    store_id: [u8; 16],
    ledger: &Ledger,
    recorded: u64,
) -> Result<Vec<Recovered>, RecoveryError> {
    let len = backend.len()?;
    if len < 2 * segment_bytes && !ledger.eventual {
        // It had its whole length before anything in it counted.
        return Err(RecoveryError::Damaged {
            segment: u8::from(len >= segment_bytes),
            offset: len,
            what: "it is cut short",
        });
    }
    let [zero, one] = ledger.epochs;
    let zero = Segment::open(segment_bytes, backend, store_id, 0, zero)?;
    let one = Segment::open(segment_bytes, backend, store_id, 1, one)?;
    let (active, other) = match ledger.active {
        0 => (zero, one),
        1 => (one, zero),
        _ => return Err(zero.damaged(0, "the database names a segment that does not exist")),
    };
    let Some(active_first) = active.first else {
        return Err(active.damaged(0, "the segment in use has no valid header"));
    };
    let mut history = History {
        eventual: ledger.eventual,
        recorded,
        frames: Vec::new(),
        next: None,
        ended: false,
    };
    let before = other.first.filter(|first| *first < active_first);
    let after = other.first.filter(|first| *first >= active_first);
    if let Some(first) = before {
        history.go_on(&other, first, backend)?;
    }
    let reached = history.go_on(&active, active_first, backend)?;
    if !ledger.eventual && reached.next <= ledger.written {
        return Err(active.damaged(reached.end, "a frame that was synced is missing"));
    }
    match after {
        Some(first) => {
            history.go_on(&other, first, backend)?;
        }
        // Its header belongs to its first group: without one, that group may be torn, but none can come after it.
        None if other.first.is_none() && !ledger.eventual => {
            let bytes = other.load(backend)?;
            other.nothing_later(&bytes, SEGMENT_HEADER_BYTES, reached.next)?;
        }
        None => {}
    }
    Ok(history.frames)
}

struct Segment {
    index: u8,
    epoch: u128,
    /// Where it begins in the file, and how many of its bytes the file has.
    start: u64,
    len: usize,
    /// Its first sequence, if it has a valid header of the store and the epoch.
    first: Option<u64>,
}

impl Segment {
    fn open(
        segment_bytes: u64,
        backend: &dyn Backend,
        store_id: [u8; 16],
        index: u8,
        epoch: u128,
    ) -> io::Result<Self> {
        let start = u64::from(index) * segment_bytes;
        let len = backend.len()?.saturating_sub(start).min(segment_bytes);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let mut first = None;
        if len >= SEGMENT_HEADER_BYTES {
            let mut header = [0; SEGMENT_HEADER_BYTES];
            backend.read(start, &mut header)?;
            first = segment_first(&header, store_id, epoch);
        }
        Ok(Self {
            index,
            epoch,
            start,
            len,
            first,
        })
    }

    fn load(&self, backend: &dyn Backend) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.len];
        if self.len > 0 {
            backend.read(self.start, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Checks that no valid frame from `end` on is of a group that began after `missing`: such a group was written only
    /// once the frame `missing` had been synced.
    fn nothing_later(&self, bytes: &[u8], end: usize, missing: u64) -> Result<(), RecoveryError> {
        let behind = bytes.get(end..).unwrap_or_default();
        let later = memmem::find_iter(behind, &FRAME_MAGIC)
            .map(|at| end + at)
            .filter(|at| at % ALIGNMENT == 0)
            .filter_map(|at| find_frame(bytes, at, self.epoch))
            .any(|frame| frame.group > missing);
        if later {
            return Err(self.damaged(end, "a group that was synced is damaged"));
        }
        Ok(())
    }

    fn damaged(&self, at: usize, what: &'static str) -> RecoveryError {
        RecoveryError::Damaged {
            segment: self.index,
            offset: self.start + at as u64,
            what,
        }
    }
}

/// Where the valid frames of a segment end.
struct Reached {
    end: usize,
    /// The sequence that is not there.
    next: u64,
}

struct History {
    eventual: bool,
    recorded: u64,
    frames: Vec<Recovered>,
    /// The sequence after the last valid frame.
    next: Option<u64>,
    /// Whether an eventual journal has lost what would come next.
    ended: bool,
}

impl History {
    /// Adds the frames of a segment that begins with sequence `first`.
    fn go_on(
        &mut self,
        segment: &Segment,
        first: u64,
        backend: &dyn Backend,
    ) -> Result<Reached, RecoveryError> {
        // What the database holds need not be in the journal any more.
        let wanted = self.recorded.saturating_add(1);
        let joins = match self.next {
            None => first <= wanted,
            Some(next) if first < next => {
                return Err(segment.damaged(0, "the segments overlap"));
            }
            Some(next) => first == next || (self.eventual && first <= wanted),
        };
        if !joins && !self.eventual {
            return Err(segment.damaged(0, "frames before the segment are missing"));
        }
        self.ended |= !joins;
        let bytes = segment.load(backend)?;
        let mut reached = Reached {
            end: SEGMENT_HEADER_BYTES,
            next: first,
        };
        while let Some(frame) = find_frame(&bytes, reached.end, segment.epoch)
            && frame.sequence == reached.next
            && let Some(next) = reached.next.checked_add(1)
        {
            if frame.sequence > self.recorded && !self.ended {
                self.frames.push(Recovered {
                    sequence: frame.sequence,
                    payload: frame.payload.to_vec(),
                });
            }
            reached = Reached {
                end: frame.place.end,
                next,
            };
        }
        if !self.eventual {
            segment.nothing_later(&bytes, reached.end, reached.next)?;
        }
        self.next = Some(reached.next);
        Ok(reached)
    }
}
