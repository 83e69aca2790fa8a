//! The envelope of a record: checksum, packing, and the content that is stored elsewhere.
//!
//! ```text
//! format version u8 | flags u8 | crc32 u32 LE | [references] | inline bytes, packed
//! ```
//!
//! Flags: bits 0 and 1 say how the inline bytes are packed (0 not, 1 lz4, 2 zstd), bit 2 that content was cut out and
//! references to it stand in front, bits 3 and 4 how hard it was tried to pack the record. The checksum is that of
//! the references and the plain inline bytes, and starts with bit 2: it is computed when the change is planned and
//! holds through every packing. The content that a reference names has a checksum of its own.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use super::binary::{self, Noting};
use super::blob::{BlobRef, LARGE_BYTES, NewBlob};
use super::codec::{self, Codec, Dictionary, MAX_BYTES, Zstd, pack_lz4};
use super::hash::Seed;
use crate::{Error, Result};

const FORMAT: u8 = 0;
const ENVELOPE_BYTES: usize = 6;

const CODEC: u8 = 0b11;
const REFERENCES: u8 = 0b100;
const LEVEL: u8 = 0b1_1000;
const LEVEL_SHIFT: u8 = 3;

/// A record that is larger than this, without what was cut out, would take two pages of the database: what is left of
/// it is cut out too.
const INLINE_BYTES: usize = 4000;

/// Nothing shorter is cut out.
const SCRAP_BYTES: usize = 256;

/// Shorter records are never packed as they are written.
const PACKED_BYTES: usize = 512;

/// How new records are stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packing<'a> {
    pub(super) seed: &'a Seed,
    /// Whether they are packed with lz4 where that pays.
    pub(super) lz4: bool,
}

/// A record, ready for the log.
#[derive(Debug)]
pub(super) struct Encoded {
    /// The row of the log.
    pub(super) bytes: Vec<u8>,
    /// The content that was cut out.
    pub(super) blobs: Vec<NewBlob>,
    /// Bytes of all of it, plain.
    pub(super) size: u64,
}

/// Where the content is that was cut out of records, and the dictionaries that they were packed with.
pub(super) trait Contents {
    /// Appends content, checked.
    fn append(&self, blob: &BlobRef, out: &mut Vec<u8>) -> Result<()>;

    /// A dictionary.
    fn dictionary(&self, id: u32) -> Result<Arc<Dictionary>>;

    /// Room for a record with its content, used again for the next.
    fn room(&self) -> &RefCell<Vec<u8>>;
}

/// A record in the making, with room for its envelope.
pub(super) fn begin(capacity: usize) -> Noting {
    let mut out = Noting::new(ENVELOPE_BYTES + capacity, LARGE_BYTES);
    out.bytes.extend_from_slice(&[FORMAT, 0, 0, 0, 0, 0]);
    out
}

/// Puts a record into its envelope. Its first `head` bytes stay inline.
pub(super) fn seal(plain: Noting, head: usize, packing: Packing<'_>) -> Result<Encoded> {
    let Noting {
        mut bytes, long, ..
    } = plain;
    let size = bytes.len() as u64;
    let cuts = cuts(bytes.len(), head, long);
    let mut blobs = Vec::with_capacity(cuts.len());
    let mut flags = 0;
    let mut inline_at = ENVELOPE_BYTES;
    if !cuts.is_empty() {
        flags = REFERENCES;
        let mut references = Vec::with_capacity(cuts.len());
        let mut inline = Vec::with_capacity(INLINE_BYTES);
        let mut at = ENVELOPE_BYTES;
        for cut in cuts {
            let content = bytes.get(cut.clone()).unwrap_or_default();
            let blob = NewBlob::new(packing.seed, content, packing.lz4)?;
            let gap = bytes.get(at..cut.start).unwrap_or_default();
            references.push(BlobRef {
                gap: gap.len() as u64,
                hash: blob.hash.to_le_bytes(),
                len: blob.len,
            });
            inline.extend_from_slice(gap);
            blobs.push(blob);
            at = cut.end;
        }
        inline.extend_from_slice(bytes.get(at..).unwrap_or_default());
        // What was cut out must not hold its memory any longer.
        bytes = Vec::with_capacity(INLINE_BYTES);
        bytes.extend_from_slice(&header(flags, 0));
        binary::encode_into(&references, &mut bytes)?;
        inline_at = bytes.len();
        bytes.extend(inline);
    }
    let (_, guarded) = bytes.split_at_checked(ENVELOPE_BYTES).unwrap_or_default();
    let crc = checksum(flags, &[guarded]);
    if packing.lz4 && bytes.len() >= PACKED_BYTES {
        let packed = pack_lz4(bytes.get(inline_at..).unwrap_or_default())?;
        if Codec::Lz4.pays(bytes.len() - inline_at, packed.len()) {
            bytes.truncate(inline_at);
            bytes.extend(packed);
            flags |= Codec::Lz4.code();
        }
    }
    if let Some(envelope) = bytes.first_chunk_mut::<ENVELOPE_BYTES>() {
        *envelope = header(flags, crc);
    }
    Ok(Encoded { bytes, blobs, size })
}

/// What to cut out of a record of `len` bytes with some long strings.
fn cuts(len: usize, head: usize, long: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let inline = len - long.iter().map(|span| span.len()).sum::<usize>();
    if inline <= INLINE_BYTES {
        return long;
    }
    let mut all = Vec::with_capacity(2 * long.len() + 1);
    let mut at = head;
    for span in long.into_iter().chain(std::iter::once(len..len)) {
        if span.start.saturating_sub(at) >= SCRAP_BYTES {
            all.push(at..span.start);
        }
        at = span.end;
        if !span.is_empty() {
            all.push(span);
        }
    }
    all
}

fn header(flags: u8, crc: u32) -> [u8; ENVELOPE_BYTES] {
    let [a, b, c, d] = crc.to_le_bytes();
    [FORMAT, flags, a, b, c, d]
}

fn checksum(flags: u8, parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(u32::from(flags & REFERENCES));
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// A record as it lies in the log, not unpacked.
struct Stored<'a> {
    flags: u8,
    codec: Codec,
    crc: u32,
    references: Vec<BlobRef>,
    reference_bytes: &'a [u8],
    packed: &'a [u8],
}

impl<'a> Stored<'a> {
    fn split(bytes: &'a [u8]) -> Result<Self> {
        let unknown = || damaged("unknown envelope");
        let Some(([FORMAT, flags, crc @ ..], rest)) = bytes.split_first_chunk::<ENVELOPE_BYTES>()
        else {
            return Err(unknown());
        };
        let flags = *flags;
        let codec = Codec::from_code(flags & CODEC).ok_or_else(unknown)?;
        if flags & !(CODEC | REFERENCES | LEVEL) != 0 {
            return Err(unknown());
        }
        let (references, packed) = if flags & REFERENCES == 0 {
            (Vec::new(), rest)
        } else {
            binary::decode_prefix(rest, "a record").map_err(|_| unknown())?
        };
        Ok(Self {
            flags,
            codec,
            crc: u32::from_le_bytes(*crc),
            references,
            reference_bytes: rest.get(..rest.len() - packed.len()).unwrap_or_default(),
            packed,
        })
    }

    fn inline(&self, contents: &dyn Contents) -> Result<Cow<'a, [u8]>> {
        let inline = if self.codec == Codec::Plain {
            Cow::Borrowed(self.packed)
        } else {
            let mut plain = Vec::new();
            codec::unpack(self.codec, self.packed, MAX_BYTES, &mut plain, |id| {
                contents.dictionary(id)
            })?;
            Cow::Owned(plain)
        };
        if self.crc == checksum(self.flags, &[self.reference_bytes, &inline]) {
            Ok(inline)
        } else {
            Err(damaged("the checksum does not match"))
        }
    }
}

/// A record whose checksum holds.
pub(super) struct Envelope<'a> {
    /// What is not stored elsewhere.
    pub(super) inline: Cow<'a, [u8]>,
    references: Vec<BlobRef>,
}

impl<'a> Envelope<'a> {
    pub(super) fn open(bytes: &'a [u8], contents: &dyn Contents) -> Result<Self> {
        let stored = Stored::split(bytes)?;
        Ok(Self {
            inline: stored.inline(contents)?,
            references: stored.references,
        })
    }

    /// The whole record, with what is stored elsewhere, for which `room` gives room.
    pub(super) fn whole<'w>(
        &'w self,
        contents: &dyn Contents,
        room: &'w mut Vec<u8>,
    ) -> Result<&'w [u8]> {
        if self.references.is_empty() {
            return Ok(&self.inline);
        }
        let beyond = || damaged("a reference lies outside of it");
        room.clear();
        let mut rest: &[u8] = &self.inline;
        for reference in &self.references {
            let gap = usize::try_from(reference.gap).map_err(|_| beyond())?;
            let inline;
            (inline, rest) = rest.split_at_checked(gap).ok_or_else(beyond)?;
            room.extend_from_slice(inline);
            contents.append(reference, room)?;
        }
        room.extend_from_slice(rest);
        Ok(room)
    }
}

/// How hard it was tried to pack a record, and the hashes of the content that it refers to.
pub(super) fn packing_of(bytes: &[u8]) -> Result<(u8, impl Iterator<Item = u128>)> {
    let stored = Stored::split(bytes)?;
    let hashes = stored
        .references
        .into_iter()
        .map(|reference| u128::from_le_bytes(reference.hash));
    Ok(((stored.flags & LEVEL) >> LEVEL_SHIFT, hashes))
}

/// Packs a record anew, with zstd where it is given and else with lz4, or leaves it as it is where that does not pay.
/// It is marked with the level; its checksum stays.
pub(super) fn repack(
    bytes: &[u8],
    level: u8,
    zstd: Option<&mut Zstd>,
    contents: &dyn Contents,
) -> Result<Vec<u8>> {
    let stored = Stored::split(bytes)?;
    let inline = stored.inline(contents)?;
    let (codec, packed) = match zstd {
        Some(zstd) => (Codec::Zstd, zstd.pack(&inline)?),
        None => (Codec::Lz4, pack_lz4(&inline)?),
    };
    let (codec, packed) =
        if packed.len() < stored.packed.len() && codec.pays(inline.len(), packed.len()) {
            let mut unpacked = Vec::with_capacity(inline.len());
            codec::unpack(codec, &packed, MAX_BYTES, &mut unpacked, |id| {
                contents.dictionary(id)
            })?;
            if unpacked != *inline {
                return Err(damaged("it does not unpack to what was packed"));
            }
            (codec, Cow::Owned(packed))
        } else {
            (stored.codec, Cow::Borrowed(stored.packed))
        };
    let flags = stored.flags & REFERENCES | codec.code() | (level << LEVEL_SHIFT & LEVEL);
    let mut out = Vec::with_capacity(ENVELOPE_BYTES + stored.reference_bytes.len() + packed.len());
    out.extend_from_slice(&header(flags, stored.crc));
    out.extend_from_slice(stored.reference_bytes);
    out.extend_from_slice(&packed);
    Ok(out)
}

fn damaged(reason: &str) -> Error {
    Error::Corrupted {
        what: "a record".to_owned(),
        at: reason.to_owned(),
    }
}
