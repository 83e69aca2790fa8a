//! Compression: how bytes are packed, and the dictionaries that they are packed with.
//!
//! Packed bytes say how long they are unpacked, and by which dictionary: `length varint | [dictionary varint] | data`,
//! the dictionary only for zstd, 0 for none. They carry no checksum: whoever packs keeps the one of the plain bytes,
//! so that it guards them through every packing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bincode::{Decode, Encode};
use zstd::bulk::{Compressor, Decompressor};

use super::binary;
use crate::{Error, Result};

/// Measured: level 9 takes seven times as long for a tenth less.
const ZSTD_LEVEL: i32 = 3;

/// No record is longer.
pub(super) const MAX_BYTES: u64 = 1 << 30;

/// The most that can come out of one byte, roughly.
const MAX_LZ4_RATIO: u64 = 256;
const MAX_ZSTD_RATIO: u64 = 1 << 16;

/// How bytes are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(super) enum Codec {
    #[default]
    Plain,
    Lz4,
    Zstd,
}

impl Codec {
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Lz4 => 1,
            Self::Zstd => 2,
        }
    }

    /// Whether packing is worth unpacking. Base64 does not shrink so far with either.
    pub(super) fn pays(self, plain: usize, packed: usize) -> bool {
        match self {
            Self::Plain => false,
            Self::Lz4 => packed <= plain / 4 * 3,
            Self::Zstd => packed <= plain / 10 * 7,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Plain),
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// What bytes that are packed with zstd were packed with.
pub(super) struct Dictionary {
    /// 0 for none.
    pub(super) id: u32,
    bytes: Vec<u8>,
    /// Making a decompressor costs far more than a row: they are used again.
    idle: Mutex<Vec<Decompressor<'static>>>,
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary")
            .field("id", &self.id)
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

impl Dictionary {
    pub(super) fn new(id: u32, bytes: Vec<u8>) -> Self {
        Self {
            id,
            bytes,
            idle: Mutex::new(Vec::new()),
        }
    }

    /// Learns a dictionary of at most `size` bytes; none if the samples do not make one.
    pub(super) fn train(samples: &[Vec<u8>], size: usize) -> Option<Vec<u8>> {
        zstd::dict::from_samples(samples, size)
            .ok()
            .filter(|bytes| !bytes.is_empty())
    }

    fn decompress(&self, data: &[u8], out: &mut [u8]) -> Result<usize> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let mut decompressor = match taken {
            Some(decompressor) => decompressor,
            None => Decompressor::with_dictionary(&self.bytes).map_err(Error::other)?,
        };
        let written = decompressor.decompress_to_buffer(data, out);
        idle().push(decompressor);
        written.map_err(|_| damaged())
    }
}

/// Packs with zstd and one dictionary.
pub(super) struct Zstd {
    dictionary: u32,
    compressor: Compressor<'static>,
}

impl Zstd {
    pub(super) fn new(dictionary: &Dictionary) -> Result<Self> {
        let mut compressor =
            Compressor::with_dictionary(ZSTD_LEVEL, &dictionary.bytes).map_err(Error::other)?;
        // Length, dictionary and checksum are kept outside.
        compressor
            .include_contentsize(false)
            .map_err(Error::other)?;
        compressor.include_dictid(false).map_err(Error::other)?;
        compressor.include_checksum(false).map_err(Error::other)?;
        Ok(Self {
            dictionary: dictionary.id,
            compressor,
        })
    }

    pub(super) fn pack(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(16 + bytes.len() / 2);
        binary::encode_into(&(bytes.len() as u64), &mut out)?;
        binary::encode_into(&self.dictionary, &mut out)?;
        out.extend(self.compressor.compress(bytes).map_err(Error::other)?);
        Ok(out)
    }
}

/// Packs with lz4.
pub(super) fn pack_lz4(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut length = Vec::with_capacity(9);
    binary::encode_into(&(bytes.len() as u64), &mut length)?;
    // Of the room for the worst case only what is written takes memory, where it is much.
    let room = lz4_flex::block::get_maximum_output_size(bytes.len());
    let mut out = vec![0; length.len() + room];
    let (head, body) = out.split_at_mut(length.len());
    head.copy_from_slice(&length);
    let packed = lz4_flex::block::compress_into(bytes, body).map_err(Error::other)?;
    out.truncate(length.len() + packed);
    out.shrink_to_fit();
    Ok(out)
}

/// The dictionaries that were needed so far.
#[derive(Debug, Default)]
pub(super) struct Dictionaries(RwLock<BTreeMap<u32, Arc<Dictionary>>>);

impl Dictionaries {
    /// The dictionary with this id, which `load` reads where it was not needed before.
    pub(super) fn get(
        &self,
        id: u32,
        load: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<Arc<Dictionary>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(dictionary) = known.get(&id) {
            return Ok(Arc::clone(dictionary));
        }
        drop(known);
        let bytes = if id == 0 { Vec::new() } else { load()? };
        let loaded = Arc::new(Dictionary::new(id, bytes));
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(known.entry(id).or_insert(loaded)))
    }
}

/// Unpacks `packed`, at most `limit` bytes, behind what is in `out`. `dictionary` finds a dictionary by its id.
pub(super) fn unpack(
    codec: Codec,
    packed: &[u8],
    limit: u64,
    out: &mut Vec<u8>,
    dictionary: impl FnOnce(u32) -> Result<Arc<Dictionary>>,
) -> Result<()> {
    const WHAT: &str = "packed bytes";
    if codec == Codec::Plain {
        out.extend_from_slice(packed);
        return Ok(());
    }
    let (len, rest): (u64, _) = binary::decode_prefix(packed, WHAT)?;
    // A length that lies must not make us ask for more memory than the bytes can be worth.
    let ratio = if codec == Codec::Lz4 {
        MAX_LZ4_RATIO
    } else {
        MAX_ZSTD_RATIO
    };
    if len > limit.min((rest.len() as u64).saturating_mul(ratio)) {
        return Err(damaged());
    }
    let start = out.len();
    let end = start + usize::try_from(len).map_err(|_| damaged())?;
    out.resize(end, 0);
    let target = out.get_mut(start..).unwrap_or_default();
    let written = if codec == Codec::Lz4 {
        lz4_flex::block::decompress_into(rest, target).map_err(|_| damaged())?
    } else {
        let (id, data): (u32, _) = binary::decode_prefix(rest, WHAT)?;
        dictionary(id)?.decompress(data, target)?
    };
    if start + written == end {
        Ok(())
    } else {
        Err(damaged())
    }
}

fn damaged() -> Error {
    Error::Corrupted {
        what: "packed bytes".to_owned(),
        at: "they do not unpack".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts() -> Vec<Vec<u8>> {
        (0..400)
            .map(|n| format!("Tide table of harbour {n}: high water {n}:15, low water {n}:45, wind from the west.").into_bytes())
            .collect()
    }

    #[allow(clippy::unnecessary_wraps, reason = "as the parameter has it")]
    fn no_dictionary(id: u32) -> Result<Arc<Dictionary>> {
        Ok(Arc::new(Dictionary::new(id, Vec::new())))
    }

    #[test]
    fn what_is_packed_unpacks_behind_what_is_there_already() {
        let text = texts().concat();
        let mut zstd = Zstd::new(&Dictionary::new(0, Vec::new())).unwrap();
        for (codec, packed) in [
            (Codec::Plain, text.clone()),
            (Codec::Lz4, pack_lz4(&text).unwrap()),
            (Codec::Zstd, zstd.pack(&text).unwrap()),
        ] {
            let mut out = b"before".to_vec();
            unpack(codec, &packed, MAX_BYTES, &mut out, no_dictionary).unwrap();
            assert_eq!(out, [b"before".as_slice(), &text].concat());
            assert!(codec == Codec::Plain || packed.len() < text.len() / 2);
        }
    }

    #[test]
    fn a_dictionary_makes_short_texts_short() {
        let texts = texts();
        let bytes = Dictionary::train(&texts, 4096).unwrap();
        let dictionary = Arc::new(Dictionary::new(7, bytes));
        let packed = Zstd::new(&dictionary).unwrap().pack(&texts[9]).unwrap();
        assert!(packed.len() < texts[9].len() / 2, "{}", packed.len());
        let mut out = Vec::new();
        unpack(Codec::Zstd, &packed, MAX_BYTES, &mut out, |id| {
            assert_eq!(id, 7);
            Ok(Arc::clone(&dictionary))
        })
        .unwrap();
        assert_eq!(out, texts[9]);
    }

    #[test]
    fn nothing_unpacks_to_more_than_it_may() {
        let text = texts().concat();
        let packed = pack_lz4(&text).unwrap();
        for (limit, fits) in [(text.len(), true), (text.len() - 1, false)] {
            let mut out = Vec::new();
            let found = unpack(Codec::Lz4, &packed, limit as u64, &mut out, no_dictionary);
            assert_eq!((found.is_ok(), out.is_empty()), (fits, !fits));
        }
    }

    #[test]
    fn packed_bytes_that_lie_are_damage_and_cost_no_memory() {
        let mut lies = vec![vec![], vec![0xFD, 0, 0, 0, 0, 0, 1, 0, 0, 1, 2, 3]];
        let honest = pack_lz4(&texts().concat()).unwrap();
        lies.extend(
            (1..honest.len())
                .step_by(97)
                .map(|cut| honest[..cut].to_vec()),
        );
        for packed in lies {
            for codec in [Codec::Lz4, Codec::Zstd] {
                let found = unpack(codec, &packed, MAX_BYTES, &mut Vec::new(), no_dictionary);
                assert!(matches!(found, Err(Error::Corrupted { .. })), "{packed:?}");
            }
        }
    }
}
