//! A snapshot of the tables, which reads share until the next commit.
//!
//! Beginning a transaction and finding tables by their names costs more than a look-up in them. Both are done once a
//! snapshot.

use std::sync::OnceLock;

use redb::{Key, ReadOnlyTable, ReadTransaction, TableDefinition, TableError, Value};

use super::database::table_error;
use super::tables;
use crate::Result;

type Bytes = &'static [u8];
type Opened<K, V> = OnceLock<ReadOnlyTable<K, V>>;

/// The tables as they are at one moment; those that most reads need are opened once.
pub(super) struct Snapshot {
    /// For the tables that few reads need.
    pub(super) transaction: ReadTransaction,
    log: Opened<u64, Bytes>,
    blobs: Opened<u128, Bytes>,
    blob_pages: Opened<u64, Bytes>,
    records_by_uuid: Opened<u128, u64>,
    transcripts: Opened<u64, Bytes>,
    transcript_runs: Opened<(u64, u64), Bytes>,
    stems: Opened<Bytes, u64>,
    stem_info: Opened<u64, Bytes>,
    children: Opened<(u64, u64), ()>,
    generations: Opened<(u64, u32), u64>,
    names: Opened<Bytes, u64>,
    roots_by_thread: Opened<(u64, u64, u64), ()>,
    children_by_thread: Opened<(u64, u64), ()>,
    /// None in a store that nothing was imported into.
    origins: OnceLock<Option<ReadOnlyTable<(u64, u64), Bytes>>>,
}

/// A method a table.
macro_rules! tables {
    ($($name:ident: $definition:ident, $key:ty, $value:ty;)*) => {
        impl Snapshot {
            pub(super) fn new(transaction: ReadTransaction) -> Self {
                Self {
                    transaction,
                    $($name: OnceLock::new(),)*
                    origins: OnceLock::new(),
                }
            }

            $(pub(super) fn $name(&self) -> Result<&ReadOnlyTable<$key, $value>> {
                opened(&self.transaction, &self.$name, tables::$definition)
            })*
        }
    };
}

tables! {
    log: LOG, u64, Bytes;
    blobs: BLOBS, u128, Bytes;
    blob_pages: BLOB_PAGES, u64, Bytes;
    records_by_uuid: RECORDS_BY_UUID, u128, u64;
    transcripts: TRANSCRIPTS, u64, Bytes;
    transcript_runs: TRANSCRIPT_RUNS, (u64, u64), Bytes;
    stems: STEMS, Bytes, u64;
    stem_info: STEM_INFO, u64, Bytes;
    children: CHILDREN, (u64, u64), ();
    generations: GENERATIONS, (u64, u32), u64;
    names: NAMES, Bytes, u64;
    roots_by_thread: ROOTS_BY_THREAD, (u64, u64, u64), ();
    children_by_thread: CHILDREN_BY_THREAD, (u64, u64), ();
}

impl Snapshot {
    pub(super) fn origins(&self) -> Result<Option<&ReadOnlyTable<(u64, u64), Bytes>>> {
        if let Some(table) = self.origins.get() {
            return Ok(table.as_ref());
        }
        let opened = match self.transaction.open_table(tables::ORIGINS) {
            Ok(table) => Some(table),
            Err(TableError::TableDoesNotExist(_)) => None,
            Err(error) => return Err(table_error(error)),
        };
        Ok(self.origins.get_or_init(|| opened).as_ref())
    }
}

fn opened<'s, K: Key + 'static, V: Value + 'static>(
    transaction: &ReadTransaction,
    table: &'s Opened<K, V>,
    definition: TableDefinition<'_, K, V>,
) -> Result<&'s ReadOnlyTable<K, V>> {
    if let Some(table) = table.get() {
        return Ok(table);
    }
    let opened = transaction.open_table(definition).map_err(table_error)?;
    Ok(table.get_or_init(|| opened))
}
