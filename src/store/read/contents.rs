//! Large content that records refer to, and the dictionaries that they were packed with.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use redb::{AccessGuard, Range, ReadableTable as _, TableError};

use super::{Reader, missing};
use crate::Result;
use crate::store::binary;
use crate::store::blob::{BLOCK_UNITS, Blob, BlobRef, UNIT_BYTES, damaged};
use crate::store::codec::{self, Codec, Dictionaries, Dictionary};
use crate::store::database::{storage_error, table_error};
use crate::store::envelope;
use crate::store::snapshot::Snapshot;
use crate::store::tables;

/// Content that is kept for the rest of a read because several records refer to it, at most.
const KEPT_BYTES: usize = 64 << 20;

/// Content and dictionaries of one snapshot.
pub(in crate::store) struct Contents<'t> {
    snapshot: &'t Snapshot,
    dictionaries: &'t Dictionaries,
    kept: RefCell<Kept>,
    stream: RefCell<Stream>,
    /// Room for what is being unpacked.
    packed: RefCell<Vec<u8>>,
    /// Room for a record with its content.
    room: RefCell<Vec<u8>>,
}

#[derive(Default)]
struct Kept {
    contents: HashMap<[u8; 16], Vec<u8>>,
    bytes: usize,
}

type Bytes = &'static [u8];

type Row = (u64, AccessGuard<'static, Bytes>);

/// Where in the stream a row ends.
fn end_of((at, row): &Row) -> u64 {
    at.saturating_add(row.value().len() as u64)
}

/// Where in the stream a read is: contents that were written one after the other lie one after the other, and the way
/// from one row to the next is much shorter than the way to any row.
#[derive(Default)]
struct Stream {
    /// The row that was read last, and where in the stream it begins.
    row: Option<Row>,
    /// The rows behind it.
    rest: Option<Range<'static, u64, Bytes>>,
}

impl Stream {
    /// The bytes of a row from here on; none if there is no row.
    fn at(&mut self, snapshot: &Snapshot, offset: u64) -> Result<&[u8]> {
        if !self.holds(offset) {
            let next = self.row.as_ref().map(end_of);
            if next != Some(offset) {
                let block = offset / UNIT_BYTES / BLOCK_UNITS * BLOCK_UNITS;
                let rows = snapshot.blob_pages()?;
                self.rest = Some(rows.range(block..).map_err(storage_error)?);
            }
            self.advance()?;
            // A block has several rows where it was written before there were blocks.
            while !self.holds(offset) && self.row.as_ref().is_some_and(|(at, _)| *at < offset) {
                self.advance()?;
            }
        }
        let Some((at, row)) = self.row.as_ref() else {
            return Ok(&[]);
        };
        let skip = offset.checked_sub(*at).map(usize::try_from);
        let Some(Ok(skip)) = skip else {
            return Ok(&[]);
        };
        Ok(row.value().get(skip..).unwrap_or_default())
    }

    fn holds(&self, offset: u64) -> bool {
        let row = self.row.as_ref();
        row.is_some_and(|row| (row.0..end_of(row)).contains(&offset))
    }

    fn advance(&mut self) -> Result<()> {
        let next = self.rest.as_mut().and_then(Iterator::next);
        self.row = next
            .transpose()
            .map_err(storage_error)?
            .map(|(unit, row)| (unit.value().saturating_mul(UNIT_BYTES), row));
        Ok(())
    }
}

impl<'t> Contents<'t> {
    pub(in crate::store) fn new(snapshot: &'t Snapshot, dictionaries: &'t Dictionaries) -> Self {
        Self {
            snapshot,
            dictionaries,
            kept: RefCell::default(),
            stream: RefCell::default(),
            packed: RefCell::default(),
            room: RefCell::default(),
        }
    }

    /// Appends the stored bytes of some content.
    pub(in crate::store) fn stored(&self, blob: &Blob, out: &mut Vec<u8>) -> Result<()> {
        let short = || damaged(blob.offset, "a part of it is missing");
        let mut left = usize::try_from(blob.stored).map_err(|_| short())?;
        let mut offset = blob.offset;
        let mut stream = self.stream.borrow_mut();
        while left > 0 {
            let bytes = stream.at(self.snapshot, offset)?;
            let part = bytes.get(..left.min(bytes.len())).unwrap_or_default();
            if part.is_empty() {
                return Err(short());
            }
            out.extend_from_slice(part);
            left -= part.len();
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Appends content, unpacked and checked.
    pub(in crate::store) fn plain(&self, blob: &Blob, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let codec = blob.codec()?;
        if codec == Codec::Plain {
            self.stored(blob, out)?;
        } else {
            let mut packed = self.packed.borrow_mut();
            packed.clear();
            self.stored(blob, &mut packed)?;
            codec::unpack(codec, &packed, blob.len, out, |id| self.dictionary(id))?;
        }
        let content = out.get(start..).unwrap_or_default();
        if content.len() as u64 != blob.len || crc32fast::hash(content) != blob.crc {
            return Err(damaged(blob.offset, "the checksum does not match"));
        }
        Ok(())
    }

    /// Whether packed bytes unpack to the content again.
    pub(in crate::store) fn verify(&self, codec: Codec, packed: &[u8], plain: &[u8]) -> Result<()> {
        let mut unpacked = Vec::with_capacity(plain.len());
        codec::unpack(codec, packed, plain.len() as u64, &mut unpacked, |id| {
            self.dictionary(id)
        })?;
        if unpacked == plain {
            Ok(())
        } else {
            Err(damaged(0, "it does not unpack to what was packed"))
        }
    }

    fn dictionary(&self, id: u32) -> Result<Arc<Dictionary>> {
        self.dictionaries.get(id, || {
            let table = self
                .snapshot
                .transaction
                .open_table(tables::DICTIONARIES)
                .map_err(table_error)?;
            let bytes = table.get(id).map_err(storage_error)?;
            match bytes {
                Some(bytes) => binary::decode::<Vec<u8>>(bytes.value(), "a dictionary"),
                None => Err(missing("a dictionary", &format!("dictionary {id}"))),
            }
        })
    }
}

impl envelope::Contents for Contents<'_> {
    fn append(&self, reference: &BlobRef, out: &mut Vec<u8>) -> Result<()> {
        if let Some(content) = self.kept.borrow().contents.get(&reference.hash) {
            out.extend_from_slice(content);
            return Ok(());
        }
        let entry = self
            .snapshot
            .blobs()?
            .get(u128::from_le_bytes(reference.hash))
            .map_err(storage_error)?;
        let blob = match entry {
            Some(bytes) => Blob::decode(bytes.value())?,
            None => return Err(missing("large content", "what a record refers to")),
        };
        if blob.len != reference.len {
            return Err(damaged(blob.offset, "a record says it has another length"));
        }
        let start = out.len();
        self.plain(&blob, out)?;
        if blob.references > 1 {
            let content = out.get(start..).unwrap_or_default();
            let mut kept = self.kept.borrow_mut();
            if kept.bytes + content.len() <= KEPT_BYTES {
                kept.bytes += content.len();
                kept.contents.insert(reference.hash, content.to_vec());
            }
        }
        Ok(())
    }

    fn dictionary(&self, id: u32) -> Result<Arc<Dictionary>> {
        Contents::dictionary(self, id)
    }

    fn room(&self) -> &RefCell<Vec<u8>> {
        &self.room
    }
}

impl Reader<'_> {
    /// The transcripts from `next` on, in the order of their numbers.
    pub(in crate::store) fn transcript_ids(&self, next: u64, limit: usize) -> Result<Vec<u64>> {
        let table = self.snapshot.transcripts()?;
        let ids = table.range(next..).map_err(storage_error)?;
        ids.take(limit)
            .map(|entry| entry.map(|(id, _)| id.value()).map_err(storage_error))
            .collect()
    }

    /// All large content in the order in which it lies, and where it ends.
    pub(in crate::store) fn large_contents(&self) -> Result<(Vec<(u128, Blob)>, u64)> {
        let entries = match self.snapshot.transaction.open_table(tables::BLOBS) {
            Ok(table) => table,
            // The store was made before there was any.
            Err(TableError::TableDoesNotExist(_)) => return Ok((Vec::new(), 0)),
            Err(error) => return Err(table_error(error)),
        };
        let mut found = entries
            .range::<u128>(..)
            .map_err(storage_error)?
            .map(|entry| {
                let (hash, bytes) = entry.map_err(storage_error)?;
                Ok((hash.value(), Blob::decode(bytes.value())?))
            })
            .collect::<Result<Vec<_>>>()?;
        found.sort_unstable_by_key(|(_, blob)| blob.offset);
        let end = found
            .last()
            .map_or(0, |(_, blob)| blob.offset + blob.stored);
        Ok((found, end))
    }

    /// The dictionary that was learned last.
    pub(in crate::store) fn newest_dictionary(&self) -> Result<Option<Arc<Dictionary>>> {
        let table = match self.snapshot.transaction.open_table(tables::DICTIONARIES) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(table_error(error)),
        };
        let newest = table.last().map_err(storage_error)?;
        newest
            .map(|(id, _)| self.contents.dictionary(id.value()))
            .transpose()
    }
}
