//! What an operator wants to see: sizes, counts, reservations, and the oldest reader.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use redb::ReadableTableMetadata as _;

use super::apply::full_stem;
use super::blob::Blob;
use super::database::{Health, storage_error, table_error};
use super::engine::Engine;
use super::tables;
use crate::Result;

/// A look at a store as a whole.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Records in the log.
    pub records: u64,
    /// Written transcripts (each generation is one).
    pub transcripts: u64,
    /// Bytes of the database file; 0 in memory. A sparse file may occupy less on disk.
    pub file_bytes: u64,
    /// Bytes that the file occupies on disk, where the system tells, else those of the file; 0 in memory.
    pub allocated_bytes: u64,
    /// Large contents that are stored, each once.
    pub contents: u64,
    /// Bytes of them.
    pub content_bytes: u64,
    /// Bytes that they are stored in.
    pub content_stored_bytes: u64,
    /// Bytes that the records would have more if each held its content itself.
    pub content_saved_bytes: u64,
    /// Changes that wait for their commit.
    pub queued_changes: usize,
    /// Bytes of them and of those that are being committed.
    pub queued_bytes: usize,
    /// Changes that are acknowledged and that the database file itself does not hold durably yet: they stand in the
    /// journal and, for a while, in memory.
    pub journaled_changes: usize,
    /// Bytes of them.
    pub journaled_bytes: u64,
    /// Calls that are held back until there is room in the queue, or until what their answer rests on is durable.
    pub waiting_calls: usize,
    /// Generations that handles have begun and not written yet.
    pub reservations: Vec<ReservationStats>,
    /// Reads under way.
    pub readers: usize,
    /// How long the oldest of them has been running. A long read keeps freed pages from being used again.
    pub oldest_reader: Option<Duration>,
    /// Whether the store works.
    pub health: Health,
}

/// A generation that a handle has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationStats {
    /// Stem of the generation.
    pub stem: String,
    /// How long it has been reserved.
    pub age: Duration,
}

impl Engine {
    pub(super) fn stats(&self) -> Result<Stats> {
        let queued = self.committer.depth();
        let now = self.environment.now_micros();
        let reservations = self
            .sessions
            .all()
            .iter()
            .filter_map(|session| {
                let reservation = session.reservation()?;
                let age = u64::try_from(now.saturating_sub(reservation.since)).unwrap_or(0);
                Some(ReservationStats {
                    stem: full_stem(&session.stem, reservation.generation),
                    age: Duration::from_micros(age),
                })
            })
            .collect();
        let (journaled_changes, journaled_bytes) = match &self.journaled {
            Some(journaled) => journaled.uncovered(),
            None => (0, 0),
        };
        let (readers, oldest_reader) = self.readers.oldest();
        let health = self.health();
        let (records, transcripts, contents) = self.read(|reader| {
            let log = reader.log()?;
            let compacted = log
                .compacted()?
                .map_or(Ok(0), |table| table.len().map_err(storage_error))?;
            let heads = reader
                .transaction
                .open_table(tables::TRANSCRIPTS)
                .map_err(table_error)?;
            Ok((
                compacted + log.rest().len().map_err(storage_error)?,
                heads.len().map_err(storage_error)?,
                ContentStats::of(&reader.large_contents()?.0),
            ))
        })?;
        let sizes = FileSizes::of(self.path.as_deref())?;
        Ok(Stats {
            records,
            transcripts,
            file_bytes: sizes.file,
            allocated_bytes: sizes.allocated,
            contents: contents.contents,
            content_bytes: contents.bytes,
            content_stored_bytes: contents.stored,
            content_saved_bytes: contents.saved,
            queued_changes: queued.changes,
            queued_bytes: queued.bytes,
            journaled_changes,
            journaled_bytes,
            waiting_calls: queued.callers,
            reservations,
            readers,
            oldest_reader,
            health,
        })
    }
}

/// What large content comes to.
#[derive(Default)]
struct ContentStats {
    contents: u64,
    bytes: u64,
    stored: u64,
    saved: u64,
}

impl ContentStats {
    fn of(entries: &[(u128, Blob)]) -> Self {
        let mut sum = Self::default();
        for (_, entry) in entries {
            sum.contents += 1;
            sum.bytes = sum.bytes.saturating_add(entry.len);
            sum.stored = sum.stored.saturating_add(entry.stored);
            let all = entry.len.saturating_mul(entry.references);
            sum.saved = sum.saved.saturating_add(all.saturating_sub(entry.stored));
        }
        sum
    }
}

/// What a store's file takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FileSizes {
    pub(super) file: u64,
    pub(super) allocated: u64,
}

impl FileSizes {
    /// Of the file at `path`; nothing in memory.
    pub(super) fn of(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self::default());
        };
        let metadata = std::fs::metadata(path)
            .map_err(|error| super::database::io("looking at the store's file", error))?;
        let file = metadata.len();
        #[cfg(unix)]
        let allocated = std::os::unix::fs::MetadataExt::blocks(&metadata) * 512;
        #[cfg(not(unix))]
        let allocated = file;
        Ok(Self { file, allocated })
    }
}

/// The reads under way.
#[derive(Debug, Default)]
pub(super) struct Readers(Mutex<Begun>);

#[derive(Debug, Default)]
struct Begun {
    next: u64,
    since: BTreeMap<u64, Instant>,
}

/// A read under way, until it is dropped.
pub(super) struct ReaderGuard<'a> {
    readers: &'a Readers,
    number: u64,
}

impl Readers {
    pub(super) fn begin(&self) -> ReaderGuard<'_> {
        let mut begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = begun.next;
        begun.next += 1;
        begun.since.insert(number, Instant::now());
        ReaderGuard {
            readers: self,
            number,
        }
    }

    fn oldest(&self) -> (usize, Option<Duration>) {
        let begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = begun
            .since
            .first_key_value()
            .map(|(_, since)| since.elapsed());
        (begun.since.len(), oldest)
    }
}

impl Drop for ReaderGuard<'_> {
    fn drop(&mut self) {
        let mut begun = self
            .readers
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        begun.since.remove(&self.number);
    }
}
