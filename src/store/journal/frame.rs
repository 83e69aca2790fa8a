//! The bytes of a journal: segment headers and frames, little endian.
//!
//! ```text
//! segment  magic [u8; 8] | format u32 | store id [u8; 16] | epoch u128 | first sequence u64 | crc32 u32
//! frame    magic u32 | payload length u32 | epoch u128 | group u64 | sequence u64 | crc32 of the payload u32
//!          | crc32 of the 44 bytes before u32 | payload | zeros up to the next multiple of 8
//! ```

use std::ops::Range;

/// Size of one of the two segments of a journal.
pub(in crate::store) const SEGMENT_BYTES: u64 = 4 * 1024 * 1024;

/// The largest group: what fits into an empty segment.
pub(in crate::store) const MAX_GROUP_BYTES: u64 = SEGMENT_BYTES - SEGMENT_HEADER_BYTES as u64;

pub(super) const SEGMENT_HEADER_BYTES: usize = 56;
pub(super) const FRAME_HEADER_BYTES: usize = 48;
/// Every frame begins at a multiple of it.
pub(super) const ALIGNMENT: usize = 8;

pub(super) const SEGMENT_MAGIC: [u8; 8] = *b"redbjrnl";
pub(super) const FRAME_MAGIC: [u8; 4] = *b"jfrm";
const FORMAT: u32 = 0;
const CRC_BYTES: usize = 4;

/// What a frame carries, encoded and checksummed by the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Payload {
    bytes: Vec<u8>,
    checksum: u32,
}

impl Payload {
    pub(in crate::store) fn new(bytes: Vec<u8>) -> Self {
        let checksum = crc32fast::hash(&bytes);
        Self { bytes, checksum }
    }

    pub(in crate::store) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// A payload with its place in the order of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Frame<'a> {
    pub(in crate::store) sequence: u64,
    pub(in crate::store) payload: &'a Payload,
}

/// The bytes that a frame with a payload of `payload_len` bytes takes in the journal.
pub(in crate::store) const fn frame_bytes(payload_len: usize) -> u64 {
    (FRAME_HEADER_BYTES as u64 + payload_len as u64).next_multiple_of(ALIGNMENT as u64)
}

/// Appends the header of a segment to `out`.
pub(super) fn put_segment_header(out: &mut Vec<u8>, store_id: [u8; 16], epoch: u128, first: u64) {
    let start = out.len();
    out.extend_from_slice(&SEGMENT_MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&store_id);
    out.extend_from_slice(&epoch.to_le_bytes());
    out.extend_from_slice(&first.to_le_bytes());
    put_crc_since(out, start);
}

/// The first sequence of a segment, if `bytes` is the whole header of one with this store id and epoch.
pub(super) fn segment_first(bytes: &[u8], store_id: [u8; 16], epoch: u128) -> Option<u64> {
    let (first, _) = bytes
        .get(..SEGMENT_HEADER_BYTES - CRC_BYTES)?
        .split_last_chunk::<8>()
        .map(|(rest, first)| (u64::from_le_bytes(*first), rest))?;
    let mut expected = Vec::with_capacity(SEGMENT_HEADER_BYTES);
    put_segment_header(&mut expected, store_id, epoch, first);
    (bytes == expected).then_some(first)
}

/// Appends a frame to `out`, whose length is a multiple of the alignment and stays one.
///
/// `None` if the payload's length has no place in the header.
pub(super) fn put_frame(out: &mut Vec<u8>, epoch: u128, group: u64, frame: &Frame) -> Option<()> {
    let length = u32::try_from(frame.payload.len()).ok()?;
    let start = out.len();
    out.extend_from_slice(&FRAME_MAGIC);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&epoch.to_le_bytes());
    out.extend_from_slice(&group.to_le_bytes());
    out.extend_from_slice(&frame.sequence.to_le_bytes());
    out.extend_from_slice(&frame.payload.checksum.to_le_bytes());
    put_crc_since(out, start);
    out.extend_from_slice(&frame.payload.bytes);
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    Some(())
}

fn put_crc_since(out: &mut Vec<u8>, start: usize) {
    let crc = crc32fast::hash(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&crc.to_le_bytes());
}

/// A frame as it stands in a segment, both checksums checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found<'a> {
    /// The first sequence of its group.
    pub(super) group: u64,
    pub(super) sequence: u64,
    pub(super) payload: &'a [u8],
    /// Its place in the segment.
    pub(super) place: Range<usize>,
}

/// The frame of `epoch` at `at`, if there is a valid one.
pub(super) fn find_frame(segment: &[u8], at: usize, epoch: u128) -> Option<Found<'_>> {
    let (header, behind) = segment
        .get(at..)?
        .split_first_chunk::<FRAME_HEADER_BYTES>()?;
    let (magic, rest) = header.split_first_chunk()?;
    if *magic != FRAME_MAGIC {
        return None;
    }
    let (length, rest) = rest.split_first_chunk()?;
    let (found_epoch, rest) = rest.split_first_chunk()?;
    let (group, rest) = rest.split_first_chunk()?;
    let (sequence, rest) = rest.split_first_chunk()?;
    let (checksum, crc) = rest.split_first_chunk()?;
    let checked = header.get(..FRAME_HEADER_BYTES - CRC_BYTES)?;
    if u128::from_le_bytes(*found_epoch) != epoch || crc32fast::hash(checked).to_le_bytes() != crc {
        return None;
    }
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let payload = behind.get(..length)?;
    if crc32fast::hash(payload) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let end = at + FRAME_HEADER_BYTES + length;
    Some(Found {
        group: u64::from_le_bytes(*group),
        sequence: u64::from_le_bytes(*sequence),
        payload,
        place: at..end.next_multiple_of(ALIGNMENT),
    })
}
