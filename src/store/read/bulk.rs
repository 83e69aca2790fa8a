//! Many rows at once: long contexts are decoded on several threads, since decoding takes longer than finding them.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::thread;

use super::Reader;
use crate::store::record::Opened;
use crate::{Result, TranscriptMessage};

/// A thread is worth its start for so many rows.
const ROWS_OF_A_THREAD: usize = 1000;

/// Beyond this memory is what is waited for.
const MAX_THREADS: usize = 4;

fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

impl Reader<'_> {
    /// The rows among the records at `positions`, in order.
    pub(super) fn rows(&self, positions: &[(u64, u64)]) -> Result<Vec<TranscriptMessage>> {
        let threads = (positions.len() / ROWS_OF_A_THREAD).min(MAX_THREADS);
        if threads < 2 || processors() < 2 {
            return self.rows_here(positions);
        }
        let share = positions.len().div_ceil(threads.min(processors()));
        let (own, others) = positions.split_at(share);
        let (transaction, seed, dictionaries) = (self.transaction, self.seed, self.dictionaries);
        thread::scope(|scope| {
            let others: Vec<_> = others
                .chunks(share)
                .map(|share| {
                    let read =
                        move || Reader::new(transaction, seed, dictionaries)?.rows_here(share);
                    (share, thread::Builder::new().spawn_scoped(scope, read))
                })
                .collect();
            let mut rows = self.rows_here(own)?;
            rows.reserve_exact(positions.len() - share);
            for (share, thread) in others {
                rows.extend(match thread {
                    Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic))?,
                    // There are too many threads already.
                    Err(_) => self.rows_here(share)?,
                });
            }
            Ok(rows)
        })
    }

    fn rows_here(&self, positions: &[(u64, u64)]) -> Result<Vec<TranscriptMessage>> {
        let mut rows = Vec::with_capacity(positions.len());
        self.records(positions, |record: Opened<'_>| {
            if record.is_row() {
                rows.push(record.row()?.message);
            }
            Ok(())
        })?;
        Ok(rows)
    }
}
