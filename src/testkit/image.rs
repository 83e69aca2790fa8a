//! The bytes of a simulated disk as a value.

use std::fmt;

use crate::StoreFile;

/// The bytes of both files of a [`SimDisk`](super::SimDisk) at one moment. A file that does not exist is empty.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct DiskImage {
    database: Vec<u8>,
    journal: Vec<u8>,
}

impl fmt::Debug for DiskImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bytes are megabytes and tell nobody anything.
        f.debug_struct("DiskImage")
            .field("database", &self.database.len())
            .field("journal", &self.journal.len())
            .finish()
    }
}

impl DiskImage {
    /// An image of files with these bytes.
    #[must_use]
    pub fn new(database: Vec<u8>, journal: Vec<u8>) -> Self {
        Self { database, journal }
    }

    /// The bytes of the database.
    #[must_use]
    pub fn database(&self) -> &[u8] {
        &self.database
    }

    /// The bytes of the database, to damage them.
    pub fn database_mut(&mut self) -> &mut Vec<u8> {
        &mut self.database
    }

    /// The bytes of the journal.
    #[must_use]
    pub fn journal(&self) -> &[u8] {
        &self.journal
    }

    /// The bytes of the journal, to damage them.
    pub fn journal_mut(&mut self) -> &mut Vec<u8> {
        &mut self.journal
    }

    pub(super) fn file(&self, file: StoreFile) -> &[u8] {
        match file {
            StoreFile::Database => &self.database,
            StoreFile::Journal => &self.journal,
        }
    }

    pub(super) fn file_mut(&mut self, file: StoreFile) -> &mut Vec<u8> {
        match file {
            StoreFile::Database => &mut self.database,
            StoreFile::Journal => &mut self.journal,
        }
    }
}
