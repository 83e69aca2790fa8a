//! Large content, stored once: what a record says of it, and how it lies in its tables.
//!
//! Content that is larger than a page is cut out of its record and stored under its hash, so that equal content is
//! stored once for the whole store. It lies in a stream of bytes, which is cut into blocks of [`BLOCK_BYTES`]. redb
//! gives a row that is larger than a page 2, 4, 8 … whole pages, and a block fills four of them.
//!
//! The key of a row is the number of the unit of [`UNIT_BYTES`] at which it begins. A row ends before the next one, at
//! the latest with its block: stores of before there were blocks have rows of a single unit, and go on in blocks.

use bincode::{Decode, Encode};

use super::binary;
use super::codec::{Codec, pack_lz4};
use super::hash::Seed;
use crate::{Error, Result};

/// Strings of this length and more are cut out of their records.
pub(super) const LARGE_BYTES: usize = 4096;

/// What keys of the stream count: with its key a row of this size fills a page of the database.
pub(super) const UNIT_BYTES: u64 = 4080;

/// Units of a block.
pub(super) const BLOCK_UNITS: u64 = 4;

/// Bytes of the stream that one row holds at most.
pub(super) const BLOCK_BYTES: u64 = BLOCK_UNITS * UNIT_BYTES;

/// New content, planned.
#[derive(Clone, Debug, Encode, Decode)]
pub(super) struct NewBlob {
    pub(super) hash: u128,
    /// Bytes of the content itself.
    pub(super) len: u64,
    /// Checksum of the content itself.
    pub(super) crc: u32,
    pub(super) codec: Codec,
    /// The content as it is stored.
    pub(super) bytes: Vec<u8>,
}

impl NewBlob {
    pub(super) fn new(seed: &Seed, content: &[u8], lz4: bool) -> Result<Self> {
        let packed = if lz4 { Some(pack_lz4(content)?) } else { None };
        let (codec, bytes) = match packed.filter(|it| Codec::Lz4.pays(content.len(), it.len())) {
            Some(packed) => (Codec::Lz4, packed),
            None => (Codec::Plain, content.to_vec()),
        };
        Ok(Self {
            hash: seed.content(content),
            len: content.len() as u64,
            crc: crc32fast::hash(content),
            codec,
            bytes,
        })
    }
}

/// What a record says of content that was cut out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct BlobRef {
    /// Bytes of the record's body between the content before (or the start) and this.
    pub(super) gap: u64,
    pub(super) hash: [u8; 16],
    pub(super) len: u64,
}

/// Where content is stored, and how. Encoded at a fixed width: it is rewritten whenever its references change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct Blob {
    /// Where in the stream it begins.
    pub(super) offset: u64,
    /// Bytes of the stream that it takes.
    pub(super) stored: u64,
    /// Bytes of the content itself.
    pub(super) len: u64,
    /// Checksum of the content itself.
    pub(super) crc: u32,
    codec: u8,
    /// How hard it was tried to make it small.
    level: u8,
    /// Records that refer to it, one for each time.
    pub(super) references: u64,
}

impl Blob {
    pub(super) fn new(blob: &NewBlob, offset: u64) -> Self {
        Self {
            offset,
            stored: blob.bytes.len() as u64,
            len: blob.len,
            crc: blob.crc,
            codec: blob.codec.code(),
            level: 0,
            references: 1,
        }
    }

    /// The same content with one more reference to it.
    pub(super) fn referenced(self) -> Self {
        Self {
            references: self.references.saturating_add(1),
            ..self
        }
    }

    /// The same content, packed and placed anew.
    pub(super) fn moved(self, offset: u64, stored: u64, codec: Codec, level: u8) -> Self {
        Self {
            offset,
            stored,
            codec: codec.code(),
            level,
            ..self
        }
    }

    pub(super) fn level(&self) -> u8 {
        self.level
    }

    pub(super) fn codec(&self) -> Result<Codec> {
        Codec::from_code(self.codec).ok_or_else(|| damaged(0, "its codec is unknown"))
    }

    /// The blocks that hold it.
    pub(super) fn blocks(&self) -> std::ops::RangeInclusive<u64> {
        let last = (self.offset + self.stored.max(1) - 1) / BLOCK_BYTES;
        self.offset / BLOCK_BYTES..=last
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        binary::encode_fixed(self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let blob: Self = binary::decode_fixed(bytes, "an entry of large content")?;
        match blob.offset.checked_add(blob.stored) {
            Some(_) => Ok(blob),
            None => Err(damaged(0, "it ends nowhere")),
        }
    }
}

/// Damage to large content.
pub(super) fn damaged(offset: u64, reason: &str) -> Error {
    Error::Corrupted {
        what: "large content".to_owned(),
        at: format!("stream offset {offset}: {reason}"),
    }
}
