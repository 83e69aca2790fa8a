//! Large content that records refer to, and the dictionaries that they were packed with.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use redb::{AccessGuard, Range, ReadableTable as _, TableError};

use super::{Reader, missing};
use crate::Result;
use crate::store::binary;
use crate::store::blob::{Blob, BlobRef, PAGE_BYTES, damaged};
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

type Page = AccessGuard<'static, &'static [u8]>;

/// Where in the stream a read is: contents that were written one after the other lie one after the other, and the way
/// from one page to the next is much shorter than the way to any page.
#[derive(Default)]
struct Stream {
    /// The page that was read last.
    page: Option<(u64, Page)>,
    /// The pages behind it.
    rest: Option<Range<'static, u64, &'static [u8]>>,
}

impl Stream {
    /// The bytes of a page, if there is one.
    fn page(&mut self, snapshot: &Snapshot, number: u64) -> Result<Option<&[u8]>> {
        let at = self.page.as_ref().map(|(at, _)| *at);
        if at != Some(number) {
            if at.and_then(|at| at.checked_add(1)) != Some(number) {
                let pages = snapshot.blob_pages()?;
                self.rest = Some(pages.range(number..).map_err(storage_error)?);
            }
            let next = self.rest.as_mut().and_then(Iterator::next);
            self.page = next
                .transpose()
                .map_err(storage_error)?
                .map(|(found, bytes)| (found.value(), bytes));
        }
        Ok(match &self.page {
            Some((found, bytes)) if *found == number => Some(bytes.value()),
            _ => None,
        })
    }
}

impl<'t> Contents<'t> {
    pub(super) fn new(snapshot: &'t Snapshot, dictionaries: &'t Dictionaries) -> Self {
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
        let short = || damaged(blob.offset, "a page of it is missing");
        let mut skip = usize::try_from(blob.offset % PAGE_BYTES).map_err(|_| short())?;
        let mut left = usize::try_from(blob.stored).map_err(|_| short())?;
        let mut stream = self.stream.borrow_mut();
        for page in blob.pages() {
            let bytes = stream.page(self.snapshot, page)?.ok_or_else(short)?;
            let bytes = bytes.get(skip..).ok_or_else(short)?;
            let part = bytes.get(..left.min(bytes.len())).unwrap_or_default();
            out.extend_from_slice(part);
            left -= part.len();
            skip = 0;
        }
        if left == 0 { Ok(()) } else { Err(short()) }
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
