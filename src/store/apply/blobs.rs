//! Large content → its tables.

use std::collections::BTreeMap;

use redb::{ReadableTable as _, Table, WriteTransaction};

use crate::Result;
use crate::store::blob::{Blob, NewBlob, PAGE_BYTES, damaged};
use crate::store::database::{storage_error, table_error};
use crate::store::tables;

/// Large content and its stream. What a group refers to is gathered, so that each entry is written once.
pub(in crate::store) struct Blobs<'t> {
    entries: Table<'t, u128, &'static [u8]>,
    stream: Stream<'t>,
    touched: BTreeMap<u128, Blob>,
}

impl<'t> Blobs<'t> {
    pub(in crate::store) fn open(transaction: &'t WriteTransaction) -> Result<Self> {
        Ok(Self {
            entries: transaction.open_table(tables::BLOBS).map_err(table_error)?,
            stream: Stream {
                pages: transaction
                    .open_table(tables::BLOB_PAGES)
                    .map_err(table_error)?,
            },
            touched: BTreeMap::new(),
        })
    }

    /// The entry of some content, if it is stored.
    pub(in crate::store) fn get(&self, hash: u128) -> Result<Option<Blob>> {
        if let Some(known) = self.touched.get(&hash) {
            return Ok(Some(*known));
        }
        let entry = self.entries.get(hash).map_err(storage_error)?;
        entry.map(|bytes| Blob::decode(bytes.value())).transpose()
    }

    /// Adds a reference to content, and stores it if it is new.
    pub(super) fn add(&mut self, new: &NewBlob) -> Result<()> {
        let entry = match self.get(new.hash)? {
            Some(known) if known.len != new.len || known.crc != new.crc => {
                return Err(damaged(known.offset, "its hash is that of other content"));
            }
            Some(known) => known.referenced(),
            None => Blob::new(new, self.stream.append(&new.bytes)?),
        };
        self.touched.insert(new.hash, entry);
        Ok(())
    }

    /// Takes a reference to content back. A compaction gives back the space of what nothing refers to.
    pub(super) fn release(&mut self, hash: u128) -> Result<()> {
        if let Some(mut entry) = self.get(hash)? {
            entry.references = entry.references.saturating_sub(1);
            self.touched.insert(hash, entry);
        }
        Ok(())
    }

    /// Stores content anew that is stored already, packed in another way.
    pub(in crate::store) fn store(
        &mut self,
        hash: u128,
        bytes: &[u8],
        entry: impl FnOnce(u64) -> Blob,
    ) -> Result<()> {
        let offset = self.stream.append(bytes)?;
        self.touched.insert(hash, entry(offset));
        Ok(())
    }

    /// Replaces the entry of content that stays where it is.
    pub(in crate::store) fn mark(&mut self, hash: u128, entry: Blob) {
        self.touched.insert(hash, entry);
    }

    /// Removes a page that no content lies in any more.
    pub(in crate::store) fn remove_page(&mut self, page: u64) -> Result<()> {
        self.stream.pages.remove(page).map_err(storage_error)?;
        Ok(())
    }

    pub(in crate::store) fn flush(&mut self) -> Result<()> {
        for (hash, entry) in std::mem::take(&mut self.touched) {
            let bytes = entry.encode()?;
            self.entries
                .insert(hash, bytes.as_slice())
                .map_err(storage_error)?;
        }
        Ok(())
    }
}

struct Stream<'t> {
    pages: Table<'t, u64, &'static [u8]>,
}

impl Stream<'_> {
    /// Appends bytes and answers where they begin.
    fn append(&mut self, mut bytes: &[u8]) -> Result<u64> {
        let (mut page, mut last) = match self.pages.last().map_err(storage_error)? {
            Some((page, bytes)) => (page.value(), bytes.value().to_vec()),
            None => (0, Vec::new()),
        };
        let offset = page * PAGE_BYTES + last.len() as u64;
        while !bytes.is_empty() {
            let room = usize::try_from(PAGE_BYTES)
                .unwrap_or_default()
                .saturating_sub(last.len());
            let (part, rest) = bytes.split_at(room.min(bytes.len()));
            last.extend_from_slice(part);
            if !part.is_empty() {
                self.pages
                    .insert(page, last.as_slice())
                    .map_err(storage_error)?;
            }
            bytes = rest;
            if !bytes.is_empty() {
                last.clear();
                page += 1;
            }
        }
        Ok(offset)
    }
}
