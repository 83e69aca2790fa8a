//! Random sequences of all operations, applied in step to the store in memory and to the redb store: whatever one
//! answers, the other answers too.
//!
//! `TRANSCRIPT_MODEL_SEED=n` runs the sequence of one seed, `TRANSCRIPT_MODEL_OPS=n` at least so many operations and
//! `TRANSCRIPT_MODEL_SECONDS=n` for so long, both from the seed `TRANSCRIPT_MODEL_FIRST=n` on. A sequence that makes the
//! stores disagree is shortened before it is reported.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "all of it is a test: a panic is a failure"
)]

mod apply;
mod clock;
mod compare;
mod diff;
mod display;
mod expect;
mod finish;
mod generate;
mod lists;
mod native;
mod op;
mod pair;
mod place;
mod records;
mod recount;
mod regressions;
mod rng;
mod run;
mod shorten;
mod spend;
mod stems;
mod strike;
mod tokens;
mod values;
#[path = "../support/whole.rs"]
mod whole;
mod world;

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pair::Outcomes;

/// Operations of the default run.
const OPS: u64 = 14_000;

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

/// What a run of the default length meets, so that it means something.
const MET: &[&str] = &[
    "append_turn: done",
    "append_turn: Stale",
    "append_turn: Sealed",
    "append_turn: Reserved",
    "append_turn: NotWritten",
    "append_turn: GenerationExists",
    "append_turn: GenerationLimit",
    "append_turn: InvalidMessage",
    "append_turn: TooLarge",
    "append: done",
    "append: Stale",
    "append: Sealed",
    "append: Reserved",
    "append: NotWritten",
    "append: GenerationExists",
    "replace: done",
    "replace: Sealed",
    "replace: Reserved",
    "replace: NotWritten",
    "clear: done",
    "clear: Sealed",
    "begin_generation: done",
    "begin_generation: Stale",
    "begin_generation: Reserved",
    "begin_generation: NotWritten",
    "begin_generation: GenerationLimit",
    "truncate: done",
    "truncate: Reserved",
    "truncate: NotWritten",
    "truncate: UnknownMessageId",
    "append_background: InvalidMessage",
    "append_background: Sealed",
    "appended in the background",
    "a duplicate",
    "a stale generation",
    "append_interrupted_partial: done",
    "append_interrupted_partial: Sealed",
    "append_rows: done",
    "an old token",
    "a marker with kept rows",
    "a successor with kept rows",
    "a revision",
    "a context of many ranges",
    "kept rows in another order",
    "a usage that stands alone",
    "a log of many pages",
    "no session",
    "a checkpoint",
    "a kill",
    "a power cut",
    "done in spite of a fault",
    "refused by the disk",
    "indeterminate, and absent",
    "an open that is refused by the disk",
];

/// The first seed that is not needed for so many operations.
fn end_of_run(first: u64, ops: u64) -> u64 {
    let mut rest = ops;
    let mut seed = first;
    while rest > 0 {
        rest = rest.saturating_sub(u64::try_from(run::length(seed)).expect("a number"));
        seed += 1;
    }
    seed
}

fn add(met: &mut Outcomes, outcomes: Outcomes) {
    for (what, count) in outcomes {
        *met.entry(what).or_default() += count;
    }
}

/// Tells the other workers of a panic: nobody needs more than one disagreement.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn random_sequences_read_the_same_from_both_stores() {
    if let Some(seed) = variable("TRANSCRIPT_MODEL_SEED") {
        run::check(seed);
        return;
    }
    let first = variable("TRANSCRIPT_MODEL_FIRST").unwrap_or(0);
    let asked = variable("TRANSCRIPT_MODEL_OPS");
    let time = variable("TRANSCRIPT_MODEL_SECONDS").map(Duration::from_secs);
    let started = Instant::now();
    // The seeds are settled beforehand, so that a run does not depend on how many threads share them.
    let end = match time {
        Some(_) => u64::MAX,
        None => end_of_run(first, asked.unwrap_or(OPS)),
    };
    let next = AtomicU64::new(first);
    let failed = AtomicBool::new(false);
    let seed = || {
        let late = time.is_some_and(|time| started.elapsed() >= time);
        let seed = next.fetch_add(1, Ordering::Relaxed);
        (seed < end && !late && !failed.load(Ordering::Relaxed)).then_some(seed)
    };
    let worker = || {
        let _alarm = Alarm(&failed);
        let mut met = Outcomes::new();
        while let Some(seed) = seed() {
            add(&mut met, run::check(seed));
        }
        met
    };
    let workers = std::thread::available_parallelism()
        .map_or(1, NonZero::get)
        .min(8);
    let mut met = Outcomes::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            match worker.join() {
                Ok(outcomes) => add(&mut met, outcomes),
                Err(panic) => resume_unwind(panic),
            }
        }
    });
    let next = next.into_inner();
    println!("seeds {first}..{next} in {:?}\n{met:#?}", started.elapsed());
    if asked.is_none() && time.is_none() {
        let missed: Vec<_> = MET
            .iter()
            .filter(|what| !met.contains_key(**what))
            .collect();
        assert!(
            missed.is_empty(),
            "a run of this length should meet {missed:#?}"
        );
    }
}
