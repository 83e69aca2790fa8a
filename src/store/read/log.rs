//! The log as one snapshot holds it: one table, or two while a compaction is under way.

use redb::{ReadOnlyTable, ReadTransaction, TableError};

use super::missing;
use crate::Result;
use crate::store::database::{storage_error, table_error};
use crate::store::tables;

type Table = ReadOnlyTable<u64, &'static [u8]>;

/// The log.
pub(in crate::store) struct Log<'t> {
    transaction: &'t ReadTransaction,
    table: Table,
}

impl<'t> Log<'t> {
    pub(in crate::store) fn open(transaction: &'t ReadTransaction) -> Result<Self> {
        Ok(Self {
            transaction,
            table: transaction.open_table(tables::LOG).map_err(table_error)?,
        })
    }

    /// What a compaction has rewritten so far. Its positions lie before those of the other table.
    pub(in crate::store) fn compacted(&self) -> Result<Option<Table>> {
        match self.transaction.open_table(tables::LOG_COMPACTED) {
            Ok(table) => Ok(Some(table)),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(table_error(error)),
        }
    }

    /// What no compaction under way has rewritten yet.
    pub(in crate::store) fn rest(&self) -> &Table {
        &self.table
    }

    /// Visits the record at a position.
    pub(super) fn get<T>(
        &self,
        position: u64,
        visit: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<T> {
        if let Some(bytes) = self.table.get(position).map_err(storage_error)? {
            return visit(bytes.value());
        }
        if let Some(compacted) = self.compacted()?
            && let Some(bytes) = compacted.get(position).map_err(storage_error)?
        {
            return visit(bytes.value());
        }
        Err(missing("a record", &format!("log position {position}")))
    }

    /// Visits the records at the positions `first` to `last`, in order.
    pub(super) fn range(
        &self,
        first: u64,
        last: u64,
        mut visit: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut rest = self.table.range(first..=last).map_err(storage_error)?;
        let mut next = rest.next().transpose().map_err(storage_error)?;
        let whole = next
            .as_ref()
            .is_some_and(|(position, _)| position.value() == first);
        if !whole && let Some(compacted) = self.compacted()? {
            for entry in compacted.range(first..=last).map_err(storage_error)? {
                let (position, bytes) = entry.map_err(storage_error)?;
                visit(position.value(), bytes.value())?;
            }
        }
        while let Some((position, bytes)) = next {
            visit(position.value(), bytes.value())?;
            next = rest.next().transpose().map_err(storage_error)?;
        }
        Ok(())
    }
}
