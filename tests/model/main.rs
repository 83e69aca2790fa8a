//! Random sequences of all operations, applied in step to the store in memory and to the redb store: whatever one
//! answers, the other answers too.
//!
//! `TRANSCRIPT_MODEL_SEED=n` runs the sequence of one seed, `TRANSCRIPT_MODEL_OPS=n` at least so many operations and
//! `TRANSCRIPT_MODEL_SECONDS=n` for so long. A sequence that makes the stores disagree is shortened before it is
//! reported.

mod clock;
mod compare;
mod diff;
mod expect;
mod finish;
mod generate;
mod op;
mod pair;
mod recount;
mod regressions;
mod rng;
mod run;
mod values;
mod world;

use std::time::{Duration, Instant};

/// Operations of the default run.
const OPS: usize = 10_000;

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

#[test]
fn random_sequences_read_the_same_from_both_stores() {
    if let Some(seed) = variable("TRANSCRIPT_MODEL_SEED") {
        run::check(seed);
        return;
    }
    let ops = variable("TRANSCRIPT_MODEL_OPS").map(|ops| usize::try_from(ops).expect("a number"));
    let time = variable("TRANSCRIPT_MODEL_SECONDS").map(Duration::from_secs);
    let first = variable("TRANSCRIPT_MODEL_FIRST").unwrap_or(0);
    let started = Instant::now();
    let mut done = 0;
    for seed in first.. {
        let enough = match (ops, time) {
            (_, Some(time)) => started.elapsed() >= time,
            (ops, None) => done >= ops.unwrap_or(OPS),
        };
        if enough {
            break;
        }
        done += run::check(seed);
    }
    println!("{done} operations in {:?}", started.elapsed());
}
