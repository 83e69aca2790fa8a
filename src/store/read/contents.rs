//! Large content that records refer to, and the dictionaries that they were packed with.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use redb::{ReadOnlyTable, ReadTransaction, ReadableTable as _, TableError};

use super::{Reader, missing};
use crate::Result;
use crate::store::binary;
use crate::store::blob::{Blob, BlobRef, PAGE_BYTES, damaged};
use crate::store::codec::{self, Codec, Dictionaries, Dictionary};
use crate::store::database::{storage_error, table_error};
use crate::store::envelope;
use crate::store::tables;

/// Content that is kept for the rest of a read because several records refer to it, at most.
const KEPT_BYTES: usize = 64 << 20;

/// Content and dictionaries of one snapshot.
pub(in crate::store) struct Contents<'t> {
    transaction: &'t ReadTransaction,
    dictionaries: &'t Dictionaries,
    tables: OnceCell<Tables>,
    kept: RefCell<Kept>,
    /// Room for what is being unpacked.
    packed: RefCell<Vec<u8>>,
    /// Room for a record with its content.
    room: RefCell<Vec<u8>>,
}

struct Tables {
    entries: ReadOnlyTable<u128, &'static [u8]>,
    pages: ReadOnlyTable<u64, &'static [u8]>,
}

#[derive(Default)]
struct Kept {
    contents: HashMap<[u8; 16], Vec<u8>>,
    bytes: usize,
}

impl<'t> Contents<'t> {
    pub(super) fn new(transaction: &'t ReadTransaction, dictionaries: &'t Dictionaries) -> Self {
        Self {
            transaction,
            dictionaries,
            tables: OnceCell::new(),
            kept: RefCell::default(),
            packed: RefCell::default(),
            room: RefCell::default(),
        }
    }

    fn tables(&self) -> Result<&Tables> {
        if let Some(tables) = self.tables.get() {
            return Ok(tables);
        }
        let opened = Tables {
            entries: self
                .transaction
                .open_table(tables::BLOBS)
                .map_err(table_error)?,
            pages: self
                .transaction
                .open_table(tables::BLOB_PAGES)
                .map_err(table_error)?,
        };
        Ok(self.tables.get_or_init(|| opened))
    }

    /// Appends the stored bytes of some content.
    pub(in crate::store) fn stored(&self, blob: &Blob, out: &mut Vec<u8>) -> Result<()> {
        let short = || damaged(blob.offset, "a page of it is missing");
        let mut skip = usize::try_from(blob.offset % PAGE_BYTES).map_err(|_| short())?;
        let mut left = usize::try_from(blob.stored).map_err(|_| short())?;
        let mut pages = blob.pages();
        for entry in self
            .tables()?
            .pages
            .range(blob.pages())
            .map_err(storage_error)?
        {
            let (page, bytes) = entry.map_err(storage_error)?;
            if pages.next() != Some(page.value()) {
                return Err(short());
            }
            let bytes = bytes.value().get(skip..).ok_or_else(short)?;
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
            .tables()?
            .entries
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
        let ids = self.transcripts.range(next..).map_err(storage_error)?;
        ids.take(limit)
            .map(|entry| entry.map(|(id, _)| id.value()).map_err(storage_error))
            .collect()
    }

    /// All large content in the order in which it lies, and where it ends.
    pub(in crate::store) fn large_contents(&self) -> Result<(Vec<(u128, Blob)>, u64)> {
        let entries = match self.transaction.open_table(tables::BLOBS) {
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
        let table = match self.transaction.open_table(tables::DICTIONARIES) {
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
