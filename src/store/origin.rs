//! Where imported records come from: packed apart from the records, so that no read of a row pays for it.

use bincode::{Decode, Encode};

/// How many sequences of a transcript one row of the table covers.
pub(super) const ORIGIN_CHUNK: u64 = 64;

/// Where an imported record comes from: a piece of a source (see [`Store::source`](super::Store::source)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The number of the source.
    pub source: u64,
    /// Where in the source the record begins that it was made of, in bytes; of several lines the first.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// The version of the codec that made it.
    pub codec_version: u32,
}

/// What is kept of an imported record beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Imported {
    pub(super) origin: Origin,
    /// How many tokens of a row's own usage were written to a cache.
    pub(super) cache_write: u64,
}

/// The origins of [`ORIGIN_CHUNK`] sequences, ascending.
#[derive(Debug, Default, Encode, Decode)]
pub(super) struct Origins {
    /// Sources, and the versions of the codecs that read them.
    sources: Vec<(u64, u32)>,
    records: Vec<Packed>,
}

#[derive(Debug, Encode, Decode)]
struct Packed {
    slot: u64,
    /// An index.
    source: u64,
    /// From the end of the one before, wrapping: records of one line begin before they end.
    gap: i64,
    length: u64,
    cache_write: u64,
}

impl Origins {
    /// Adds the record at a sequence, which lies behind all that were added before.
    pub(super) fn push(&mut self, seq: u64, imported: &Imported) {
        let origin = imported.origin;
        let source = (origin.source, origin.codec_version);
        let known = self.sources.iter().position(|it| *it == source);
        let index = known.unwrap_or_else(|| {
            self.sources.push(source);
            self.sources.len() - 1
        });
        let end = self.records.iter().fold(0, |end, it| it.end(end));
        self.records.push(Packed {
            slot: seq % ORIGIN_CHUNK,
            source: index as u64,
            gap: origin.offset.wrapping_sub(end).cast_signed(),
            length: origin.length,
            cache_write: imported.cache_write,
        });
    }

    /// The sources, each with the version of the codec that read it.
    pub(super) fn sources(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.sources.iter().copied()
    }

    /// How many records there are.
    pub(super) fn len(&self) -> u64 {
        self.records.len() as u64
    }

    /// The record at a sequence.
    pub(super) fn get(&self, seq: u64) -> Option<Imported> {
        let slot = seq % ORIGIN_CHUNK;
        let mut end = 0;
        for packed in &self.records {
            let offset = packed.begin(end);
            end = packed.end(end);
            if packed.slot == slot {
                let index = usize::try_from(packed.source).ok()?;
                let (source, codec_version) = *self.sources.get(index)?;
                return Some(Imported {
                    origin: Origin {
                        source,
                        offset,
                        length: packed.length,
                        codec_version,
                    },
                    cache_write: packed.cache_write,
                });
            }
        }
        None
    }
}

impl Packed {
    fn begin(&self, before: u64) -> u64 {
        before.wrapping_add_signed(self.gap)
    }

    fn end(&self, before: u64) -> u64 {
        self.begin(before).wrapping_add(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::binary;

    fn imported(source: u64, offset: u64, length: u64, cache_write: u64) -> Imported {
        Imported {
            origin: Origin {
                source,
                offset,
                length,
                codec_version: 1,
            },
            cache_write,
        }
    }

    #[test]
    fn every_origin_comes_back_whatever_its_place() {
        let all = [
            (64, imported(9, 0, 120, 0)),
            (65, imported(9, 0, 120, 7)),
            (66, imported(9, 121, 40, 0)),
            (70, imported(u64::MAX, u64::MAX, 1, 0)),
            (71, imported(9, 5, u64::MAX, u64::MAX)),
            (127, imported(3, 1 << 40, 0, 0)),
        ];
        let mut origins = Origins::default();
        for (seq, one) in &all {
            origins.push(*seq, one);
        }
        let bytes = binary::encode(&origins).unwrap();
        let read: Origins = binary::decode(&bytes, "origins").unwrap();
        for (seq, one) in &all {
            assert_eq!(read.get(*seq), Some(*one), "{seq}");
        }
        assert_eq!(read.get(67), None);
    }

    #[test]
    fn an_origin_costs_a_few_bytes() {
        let mut origins = Origins::default();
        for seq in 0..ORIGIN_CHUNK {
            origins.push(seq, &imported(u64::MAX, seq * 900, 899, 0));
        }
        let bytes = binary::encode(&origins).unwrap().len() as u64;
        assert!(bytes <= 9 * ORIGIN_CHUNK, "{bytes} bytes");
    }
}
