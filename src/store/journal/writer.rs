//! Writing a journal.

use std::io;
use std::ops::Range;

use super::Ledger;
use super::frame::{
    Frame, SEGMENT_BYTES, SEGMENT_HEADER_BYTES, frame_bytes, put_frame, put_segment_header,
};
use crate::store::backend::Backend;

const HEADER: u64 = SEGMENT_HEADER_BYTES as u64;

/// The sizes of a journal; tests use small ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) segment: u64,
    /// The first pass over a segment writes zeros up to the next multiple of it, so that the syncs up to there change
    /// no extents of the file.
    pub(super) step: u64,
}

impl Shape {
    const FULL: Self = Self {
        segment: SEGMENT_BYTES,
        step: 512 * 1024,
    };
}

/// Where a group has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Fit {
    /// In the active segment.
    Here,
    /// In the other segment, which is free and becomes the active one.
    Next,
    /// Nowhere before a checkpoint has freed a segment; larger than an empty segment, never.
    Full,
}

/// Why a group was not appended. The writer is spent: see [`Writer::void`].
#[derive(Debug, thiserror::Error)]
pub(in crate::store) enum AppendError {
    /// No recovery will find any of it.
    #[error("the journal did not take a group: {0}")]
    Refused(#[source] io::Error),
    /// It could not be voided: a recovery may find all of it, a part or nothing.
    #[error("the journal may or may not hold a group: {0}")]
    Uncertain(#[source] io::Error),
}

#[derive(Debug)]
struct Segment {
    index: u8,
    epoch: u128,
    /// Where the next frame goes; 0 while the segment is free.
    end: u64,
    /// The last sequence in it.
    last: u64,
    /// Up to here its bytes were written since the journal was begun.
    allocated: u64,
}

impl Segment {
    fn is_free(&self) -> bool {
        self.end == 0
    }
}

/// Appends groups to a journal.
///
/// After a failed write or sync it is spent: nothing is ever appended behind a tail that is not known.
#[derive(Debug)]
pub(in crate::store) struct Writer {
    backend: Box<dyn Backend>,
    shape: Shape,
    store_id: [u8; 16],
    eventual: bool,
    active: Segment,
    other: Segment,
    next: u64,
    spent: bool,
    /// Bytes of the file that a failed append may have written and that are not zeros again.
    unvoided: Option<Range<u64>>,
    buffer: Vec<u8>,
}

impl Writer {
    /// Begins a journal over whatever `backend` held. It is durable when this returns.
    ///
    /// `epochs` are random and were never used before; `first` is the sequence of the first frame to come. Nothing that
    /// stood in `backend` is found again, so the database must hold it all and must not, at this moment, record a
    /// journal there as needed.
    pub(in crate::store) fn begin(
        backend: Box<dyn Backend>,
        store_id: [u8; 16],
        epochs: [u128; 2],
        first: u64,
        eventual: bool,
    ) -> io::Result<Self> {
        Self::begin_shaped(Shape::FULL, backend, store_id, epochs, first, eventual)
    }

    pub(super) fn begin_shaped(
        shape: Shape,
        backend: Box<dyn Backend>,
        store_id: [u8; 16],
        epochs: [u128; 2],
        first: u64,
        eventual: bool,
    ) -> io::Result<Self> {
        let mut buffer = Vec::new();
        let [active_epoch, other_epoch] = epochs;
        put_segment_header(&mut buffer, store_id, active_epoch, first);
        backend.set_len(2 * shape.segment)?;
        backend.write(0, &buffer)?;
        backend.write(shape.segment, &[0; SEGMENT_HEADER_BYTES])?;
        backend.sync_data()?;
        Ok(Self {
            backend,
            shape,
            store_id,
            eventual,
            active: Segment {
                index: 0,
                epoch: active_epoch,
                end: HEADER,
                last: first.saturating_sub(1),
                allocated: HEADER,
            },
            other: Segment {
                index: 1,
                epoch: other_epoch,
                end: 0,
                last: 0,
                allocated: HEADER,
            },
            next: first,
            spent: false,
            unvoided: None,
            buffer,
        })
    }

    /// What the database records in order to read this journal as it stands now.
    pub(in crate::store) fn ledger(&self) -> Ledger {
        let (active, other) = (self.active.epoch, self.other.epoch);
        Ledger {
            epochs: if self.active.index == 0 {
                [active, other]
            } else {
                [other, active]
            },
            active: self.active.index,
            eventual: self.eventual,
            written: self.next.saturating_sub(1),
        }
    }

    /// Where a group of `bytes` bytes, the sum of its [`frame_bytes`], has room.
    pub(in crate::store) fn fits(&self, bytes: u64) -> Fit {
        let room = |end: u64| bytes <= self.shape.segment.saturating_sub(end);
        if room(self.active.end) {
            Fit::Here
        } else if self.other.is_free() && room(HEADER) {
            Fit::Next
        } else {
            Fit::Full
        }
    }

    /// Appends `frames` as one group, whose sequences go on from the one before. Durable when this returns, unless the
    /// journal is eventual.
    pub(in crate::store) fn append(&mut self, frames: &[Frame]) -> Result<(), AppendError> {
        if self.spent {
            return Err(AppendError::Refused(io::Error::other(
                "the journal has failed before and must be begun anew",
            )));
        }
        let Some(last) = frames.last().map(|frame| frame.sequence) else {
            return Ok(());
        };
        self.spent = true;
        let bytes = frames
            .iter()
            .map(|frame| frame_bytes(frame.payload.len()))
            .sum();
        let fit = self.fits(bytes);
        let begun = self.encode(frames, fit).map_err(AppendError::Refused)?;
        let segment = if fit == Fit::Next {
            &self.other
        } else {
            &self.active
        };
        let base = u64::from(segment.index) * self.shape.segment;
        let end = begun + self.buffer.len() as u64;
        let allocated = segment.allocated.max(if end > segment.allocated {
            end.next_multiple_of(self.shape.step)
                .min(self.shape.segment)
        } else {
            0
        });
        if allocated > segment.allocated {
            let ahead = usize::try_from(allocated - begun).unwrap_or_default();
            self.buffer.resize(ahead.max(self.buffer.len()), 0);
        }
        self.unvoided = Some(base + begun..base + end);
        if let Err(error) = self.write_buffer(base + begun) {
            return Err(match self.void() {
                Ok(()) => AppendError::Refused(error),
                Err(_) => AppendError::Uncertain(error),
            });
        }
        self.unvoided = None;
        if fit == Fit::Next {
            std::mem::swap(&mut self.active, &mut self.other);
        }
        self.active.end = end;
        self.active.last = last;
        self.active.allocated = allocated;
        self.next = last.saturating_add(1);
        self.spent = false;
        Ok(())
    }

    /// Fills the buffer with a group, and with the header before it if a segment is begun; returns its place in the
    /// segment.
    fn encode(&mut self, frames: &[Frame], fit: Fit) -> io::Result<u64> {
        let refuse = |why: &'static str| io::Error::new(io::ErrorKind::InvalidInput, why);
        self.buffer.clear();
        let (epoch, begun) = match fit {
            Fit::Here => (self.active.epoch, self.active.end),
            Fit::Next => {
                let epoch = self.other.epoch;
                put_segment_header(&mut self.buffer, self.store_id, epoch, self.next);
                (epoch, 0)
            }
            Fit::Full => return Err(refuse("the journal has no room for the group")),
        };
        for (frame, sequence) in frames.iter().zip(self.next..) {
            if frame.sequence != sequence {
                return Err(refuse("the sequences of the group do not go on"));
            }
            put_frame(&mut self.buffer, epoch, self.next, frame)
                .ok_or_else(|| refuse("a payload is too long"))?;
        }
        Ok(begun)
    }

    fn write_buffer(&self, offset: u64) -> io::Result<()> {
        self.backend.write(offset, &self.buffer)?;
        if self.eventual {
            Ok(())
        } else {
            self.backend.sync_data()
        }
    }

    /// Overwrites with zeros, durably, what a failed append may have written and could not void; otherwise does nothing.
    pub(in crate::store) fn void(&mut self) -> io::Result<()> {
        let Some(range) = self.unvoided.clone() else {
            return Ok(());
        };
        let length = usize::try_from(range.end - range.start).unwrap_or_default();
        self.buffer.clear();
        self.buffer.resize(length, 0);
        self.backend.write(range.start, &self.buffer)?;
        self.backend.sync_data()?;
        self.unvoided = None;
        Ok(())
    }

    /// Makes all groups durable: an eventual journal before the database commits a checkpoint.
    pub(in crate::store) fn sync(&mut self) -> io::Result<()> {
        self.backend.sync_data().inspect_err(|_| self.spent = true)
    }

    /// The ledger to commit durably together with everything up to sequence `applied`.
    ///
    /// If that covers all frames of the other segment it gets the epoch `fresh`, random and never used before, and is
    /// free once [`covered`](Self::covered) has been told. Appends may go on until then; another plan may not be made.
    pub(in crate::store) fn checkpoint(&self, applied: u64, fresh: u128) -> Ledger {
        let mut ledger = self.ledger();
        if !self.other.is_free() && self.other.last <= applied {
            for (index, epoch) in (0..).zip(&mut ledger.epochs) {
                if self.other.index == index {
                    *epoch = fresh;
                }
            }
        }
        ledger
    }

    /// Takes note that `ledger`, planned by [`checkpoint`](Self::checkpoint), was committed.
    pub(in crate::store) fn covered(&mut self, ledger: &Ledger) {
        // Only a segment in use gets a new epoch, and no append goes into it before this call: it is still the other.
        let [zero, one] = ledger.epochs;
        let epoch = if self.other.index == 0 { zero } else { one };
        if epoch != self.other.epoch {
            self.other.epoch = epoch;
            self.other.end = 0;
        }
    }
}
