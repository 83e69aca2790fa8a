//! Large content → its tables.

use std::collections::BTreeMap;

use redb::{ReadableTable as _, Table, WriteTransaction};

use crate::Result;
use crate::store::blob::{BLOCK_UNITS, Blob, NewBlob, UNIT_BYTES, damaged};
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
                rows: transaction
                    .open_table(tables::BLOB_PAGES)
                    .map_err(table_error)?,
                tail: None,
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

    /// Removes a block that no content lies in any more.
    pub(in crate::store) fn remove_block(&mut self, block: u64) -> Result<()> {
        let first = block * BLOCK_UNITS;
        for unit in first..first + BLOCK_UNITS {
            self.stream.rows.remove(unit).map_err(storage_error)?;
        }
        Ok(())
    }

    pub(in crate::store) fn flush(&mut self) -> Result<()> {
        self.stream.flush()?;
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
    rows: Table<'t, u64, &'static [u8]>,
    /// The last row, once something was appended to it. It is written when its block is full, or with the group.
    tail: Option<Tail>,
}

struct Tail {
    /// The unit at which it begins.
    unit: u64,
    bytes: Vec<u8>,
}

impl Tail {
    /// The unit with which the next block begins.
    fn end(&self) -> u64 {
        (self.unit / BLOCK_UNITS + 1) * BLOCK_UNITS
    }

    /// Bytes that it can still take.
    fn room(&self) -> usize {
        let whole = (self.end() - self.unit) * UNIT_BYTES;
        usize::try_from(whole)
            .unwrap_or_default()
            .saturating_sub(self.bytes.len())
    }
}

impl Stream<'_> {
    /// Appends bytes and answers where they begin.
    fn append(&mut self, mut bytes: &[u8]) -> Result<u64> {
        let mut tail = match self.tail.take() {
            Some(tail) => tail,
            None => self.last()?,
        };
        let offset = tail.unit * UNIT_BYTES + tail.bytes.len() as u64;
        loop {
            let (part, rest) = bytes.split_at(tail.room().min(bytes.len()));
            tail.bytes.extend_from_slice(part);
            if rest.is_empty() {
                break;
            }
            self.put(&tail)?;
            tail.unit = tail.end();
            tail.bytes.clear();
            bytes = rest;
        }
        self.tail = Some(tail);
        Ok(offset)
    }

    fn last(&self) -> Result<Tail> {
        let last = self.rows.last().map_err(storage_error)?;
        Ok(match last {
            Some((unit, bytes)) => Tail {
                unit: unit.value(),
                bytes: bytes.value().to_vec(),
            },
            None => Tail {
                unit: 0,
                bytes: Vec::new(),
            },
        })
    }

    fn put(&mut self, tail: &Tail) -> Result<()> {
        self.rows
            .insert(tail.unit, tail.bytes.as_slice())
            .map(drop)
            .map_err(storage_error)
    }

    fn flush(&mut self) -> Result<()> {
        match self.tail.take() {
            Some(tail) => self.put(&tail),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use redb::ReadableDatabase as _;

    use super::*;
    use crate::store::codec::{Codec, Dictionaries};
    use crate::store::read::Contents;
    use crate::store::snapshot::Snapshot;

    fn content(number: u8, len: usize) -> NewBlob {
        let bytes: Vec<u8> = (0..=250).map(|at| at ^ number).cycle().take(len).collect();
        NewBlob {
            hash: u128::from(number),
            len: len as u64,
            crc: crc32fast::hash(&bytes),
            codec: Codec::Plain,
            bytes,
        }
    }

    fn database() -> redb::Database {
        let backend = redb::backends::InMemoryBackend::new();
        redb::Database::builder()
            .create_with_backend(backend)
            .unwrap()
    }

    /// Adds each group in a transaction of its own.
    fn add(database: &redb::Database, groups: &[&[NewBlob]]) {
        for group in groups {
            let transaction = database.begin_write().unwrap();
            let mut blobs = Blobs::open(&transaction).unwrap();
            for new in *group {
                blobs.add(new).unwrap();
            }
            blobs.flush().unwrap();
            drop(blobs);
            transaction.commit().unwrap();
        }
    }

    /// Asserts that all of it reads back, in this order.
    fn assert_holds<'a>(database: &redb::Database, all: impl IntoIterator<Item = &'a NewBlob>) {
        let snapshot = Snapshot::new(database.begin_read().unwrap());
        let dictionaries = Dictionaries::default();
        let contents = Contents::new(&snapshot, &dictionaries);
        for new in all {
            let entry = snapshot.blobs().unwrap().get(new.hash).unwrap().unwrap();
            let blob = Blob::decode(entry.value()).unwrap();
            let mut read = Vec::new();
            contents.plain(&blob, &mut read).unwrap();
            assert!(read == new.bytes, "content {}", new.hash);
        }
    }

    fn rows(database: &redb::Database) -> Vec<(u64, usize)> {
        let snapshot = Snapshot::new(database.begin_read().unwrap());
        let table = snapshot.blob_pages().unwrap();
        let rows = table.iter().unwrap();
        rows.map(|row| row.unwrap())
            .map(|(unit, bytes)| (unit.value(), bytes.value().len()))
            .collect()
    }

    #[test]
    fn content_lies_back_to_back_in_rows_that_are_blocks() {
        let database = database();
        let lens = [5_000, 11_320, 1, 40_000, 16_320, 7];
        let all: Vec<_> = (0..).zip(lens).map(|(n, len)| content(n, len)).collect();
        let (first, second) = all.split_at(3);
        add(&database, &[first, second]);
        assert_eq!(
            rows(&database),
            [
                (0, 16_320),
                (4, 16_320),
                (8, 16_320),
                (12, 16_320),
                (16, 7_368)
            ]
        );
        assert_holds(&database, &all);
        assert_holds(&database, all.iter().rev());
    }

    #[test]
    fn a_stream_of_rows_of_one_unit_goes_on_in_blocks() {
        for units in 1..10_u64 {
            let database = database();
            let old = content(1, usize::try_from(units * UNIT_BYTES - 100).unwrap());
            let transaction = database.begin_write().unwrap();
            let mut blobs = Blobs::open(&transaction).unwrap();
            let unit_bytes = usize::try_from(UNIT_BYTES).unwrap();
            for (unit, bytes) in (0..).zip(old.bytes.chunks(unit_bytes)) {
                blobs.stream.rows.insert(unit, bytes).unwrap();
            }
            blobs.mark(old.hash, Blob::new(&old, 0));
            blobs.flush().unwrap();
            drop(blobs);
            transaction.commit().unwrap();

            let new = [content(2, 100), content(3, 30_000), content(4, 4_096)];
            let (first, second) = new.split_at(1);
            add(&database, &[first, second]);
            assert_holds(&database, [&old].into_iter().chain(&new));
            assert_holds(&database, new.iter().rev().chain([&old]));
            for pair in rows(&database).windows(2) {
                let [(unit, len), (next, _)] = pair else {
                    unreachable!()
                };
                assert_eq!(unit * UNIT_BYTES + *len as u64, next * UNIT_BYTES);
            }
        }
    }

    #[test]
    fn a_block_is_removed_whatever_rows_it_has() {
        let database = database();
        let all = [content(1, 16_320), content(2, 20_000)];
        add(&database, &[&all]);
        let transaction = database.begin_write().unwrap();
        let mut blobs = Blobs::open(&transaction).unwrap();
        for unit in 4..8 {
            blobs
                .stream
                .rows
                .insert(unit, [0; 4080].as_slice())
                .unwrap();
        }
        blobs.remove_block(1).unwrap();
        blobs.flush().unwrap();
        drop(blobs);
        transaction.commit().unwrap();
        assert_eq!(rows(&database), [(0, 16_320), (8, 3_680)]);
        assert_holds(&database, &all[..1]);
        let snapshot = Snapshot::new(database.begin_read().unwrap());
        let dictionaries = Dictionaries::default();
        let contents = Contents::new(&snapshot, &dictionaries);
        let entry = snapshot.blobs().unwrap().get(2).unwrap().unwrap();
        let torn = Blob::decode(entry.value()).unwrap();
        let read = contents.plain(&torn, &mut Vec::new());
        assert!(matches!(read, Err(crate::Error::Corrupted { .. })));
    }
}
