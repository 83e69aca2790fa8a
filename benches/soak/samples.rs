//! What is sampled while the store is under load, and whether it stays within bounds.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::Result;
use common::measure::{disk_syncs, quantile};
use common::places::{allocated, resident};
use common::report::{Cell, Report, Table, bytes, time};

use crate::Verdict;
use crate::workers::Shared;

/// The state at the end of an interval, and what happened in it.
pub struct Sample {
    at: Duration,
    /// Bytes of text acknowledged so far.
    content: u64,
    /// Bytes of the files' blocks.
    files: u64,
    resident: u64,
    queued_changes: usize,
    queued_bytes: usize,
    turns: Latencies,
    reads: Latencies,
    sync: Duration,
}

/// Latencies of an interval.
struct Latencies {
    count: usize,
    /// Sorted; of many only some, evenly, so that memory does not grow with the length of the run.
    some: Vec<Duration>,
}

const LATENCIES: usize = 2_000;

pub struct Sampler<'a> {
    shared: &'a Shared<'a>,
    folder: &'a Path,
    start: Instant,
}

impl<'a> Sampler<'a> {
    pub fn new(shared: &'a Shared<'a>, folder: &'a Path) -> Self {
        let start = Instant::now();
        Self {
            shared,
            folder,
            start,
        }
    }

    pub fn sample(&mut self) -> Result<Sample> {
        let shared = self.shared;
        let stats = shared.store.stats()?;
        let files = allocated(self.folder)?;
        let parent = self.folder.parent().ok_or("a folder in a folder")?;
        Ok(Sample {
            at: self.start.elapsed(),
            content: shared.content.load(Ordering::Relaxed),
            files,
            resident: resident().unwrap_or(0),
            queued_changes: stats.queued_changes,
            queued_bytes: stats.queued_bytes,
            turns: take(&shared.turns),
            reads: take(&shared.reads),
            sync: quantile(&disk_syncs(parent)?, 0.5),
        })
    }
}

fn take(latencies: &Mutex<Vec<Duration>>) -> Latencies {
    let mut latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
    let mut taken = std::mem::take(&mut *latencies);
    drop(latencies);
    taken.sort_unstable();
    let step = taken.len().div_ceil(LATENCIES).max(1);
    Latencies {
        count: taken.len(),
        some: taken.into_iter().step_by(step).collect(),
    }
}

/// At most this many lines.
const LINES: usize = 30;

pub fn tables(report: &mut Report, samples: &[Sample]) {
    let mut table = Table::new(
        "samples",
        &[
            "after",
            "content",
            "files",
            "memory",
            "queued",
            "queued bytes",
            "turns",
            "turn p50",
            "turn p99",
            "reads",
            "read p50",
            "read p99",
            "disk sync",
        ],
    );
    table.note("content: text acknowledged so far; latencies are of the interval, with generations and compactions");
    for samples in samples.chunks(samples.len().div_ceil(LINES).max(1)) {
        let Some(sample) = samples.last() else {
            continue;
        };
        table.row(vec![
            Cell::Time(sample.at),
            Cell::Bytes(sample.content as f64),
            Cell::Bytes(sample.files as f64),
            Cell::Bytes(sample.resident as f64),
            Cell::Number(sample.queued_changes as f64, 0),
            Cell::Bytes(sample.queued_bytes as f64),
            Cell::Number(sample.turns.count as f64, 0),
            Cell::Time(quantile(&sample.turns.some, 0.5)),
            Cell::Time(quantile(&sample.turns.some, 0.99)),
            Cell::Number(sample.reads.count as f64, 0),
            Cell::Time(quantile(&sample.reads.some, 0.5)),
            Cell::Time(quantile(&sample.reads.some, 0.99)),
            Cell::Time(sample.sync),
        ]);
    }
    report.table(&table);
}

/// A third of the run.
struct Third {
    /// The most bytes of the files for a byte of content so far; compactions lower it.
    files_per_content: f64,
    resident: f64,
    queued_bytes: usize,
    turn: Duration,
    read: Duration,
    sync: f64,
}

impl Third {
    fn of(samples: &[Sample]) -> Self {
        let all = |latencies: fn(&Sample) -> &Latencies| {
            let mut all: Vec<_> = samples
                .iter()
                .flat_map(|sample| latencies(sample).some.iter().copied())
                .collect();
            all.sort_unstable();
            quantile(&all, 0.99)
        };
        let mut syncs: Vec<_> = samples.iter().map(|sample| sample.sync).collect();
        syncs.sort_unstable();
        Self {
            files_per_content: samples
                .iter()
                .map(|it| it.files as f64 / it.content.max(1) as f64)
                .fold(0.0, f64::max),
            resident: samples.iter().map(|it| it.resident).max().unwrap_or(0) as f64,
            queued_bytes: samples.iter().map(|it| it.queued_bytes).max().unwrap_or(0),
            turn: all(|sample| &sample.turns),
            read: all(|sample| &sample.reads),
            sync: quantile(&syncs, 0.5).as_secs_f64(),
        }
    }
}

/// Files grow in steps, of a region of the database or of a segment.
const STEP: f64 = 64.0 * 1_048_576.0;
/// What the store lets wait at most, with what the writers have planned beyond.
const QUEUE_BYTES: usize = 64 << 20;

/// From here on latencies are compared.
const LONG: Duration = Duration::from_secs(600);

pub fn check(samples: &[Sample], verdict: &mut Verdict) {
    let third = samples.len() / 3;
    let (Some(middle), Some(_)) = (samples.get(2 * third), samples.get(2 * third + 1)) else {
        verdict.check("the run was long enough to compare its thirds", "no", false);
        return;
    };
    let before = Third::of(&samples[third + 1..=2 * third]);
    let after = Third::of(&samples[2 * third + 1..]);

    verdict.check(
        "files grow with the content (most bytes a byte in the last third at most 1.2x those in the middle one)",
        format!(
            "{:.2} and {:.2} bytes a byte",
            before.files_per_content, after.files_per_content
        ),
        after.files_per_content <= 1.2 * before.files_per_content + STEP / middle.content as f64,
    );
    if let Some(last) = samples.last() {
        verdict.check(
            "files are at most 4x the content, and 64 MiB",
            format!(
                "{} for {}",
                bytes(last.files as f64),
                bytes(last.content as f64)
            ),
            last.files as f64 <= 4.0 * last.content as f64 + STEP,
        );
    }
    verdict.check(
        "memory stays (last third at most 1.2x the middle one, and 32 MiB)",
        format!("{} and {}", bytes(before.resident), bytes(after.resident)),
        after.resident <= 1.2 * before.resident + STEP / 2.0,
    );
    let queued = before.queued_bytes.max(after.queued_bytes);
    verdict.check(
        "the queue stays below 64 MiB",
        bytes(queued as f64),
        queued <= QUEUE_BYTES,
    );
    // Without optimization the machine decides, and its other work; in a short run, which sample a compaction of the store
    // falls into.
    let long = samples.last().is_some_and(|it| it.at >= LONG);
    if cfg!(debug_assertions) || !long {
        return;
    }
    // The disk's own speed changes; what it explains is allowed.
    let slower = (after.sync / before.sync).max(1.0);
    for (name, before, after) in [
        ("turns", before.turn, after.turn),
        ("reads", before.read, after.read),
    ] {
        verdict.check(
            &format!("p99 of {name} stays (at most 3x the middle third, in proportion to the disk, and 20 ms)"),
            format!("{} and {}", time(before), time(after)),
            after <= before.mul_f64(3.0 * slower) + Duration::from_millis(20),
        );
    }
}
