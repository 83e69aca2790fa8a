//! The rules of turns, identity, display, background appends and spend as literal cases: the calls, and exactly what
//! the store then shows. Every expectation was written from the contract by hand, so that the code which all stores
//! share is held against something that is not code. How a case is written is said in `dsl`, how what is shown is
//! written in `render`.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]
#![allow(clippy::too_many_lines, reason = "a table is as long as what it lists")]

mod dsl;
mod render;
mod runner;

mod background;
mod baselines;
mod compactions;
mod display;
mod revisions;
mod spend;
mod stamps;
mod steps;
mod successors;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use dsl::Case;
use transcript_redb::{InMemoryTranscriptLocator, Store, TranscriptLocator};

/// The cases of a file.
type Cases = fn() -> Vec<Case>;

const THEMES: &[(&str, Cases)] = &[
    ("baselines", baselines::cases),
    ("compactions", compactions::cases),
    ("revisions", revisions::cases),
    ("stamps", stamps::cases),
    ("steps", steps::cases),
    ("successors", successors::cases),
    ("display", display::cases),
    ("background", background::cases),
    ("spend", spend::cases),
];

/// Plays every case on a store of its own and reports all that differ.
fn play_all(store: impl Fn() -> Arc<dyn TranscriptLocator>) {
    let mut failures = Vec::new();
    let mut played = 0;
    for (theme, cases) in THEMES {
        for case in cases() {
            played += 1;
            let name = case.name;
            let result = catch_unwind(AssertUnwindSafe(|| runner::play(&*store(), &case)));
            match result {
                Ok(Ok(())) => {}
                Ok(Err(difference)) => failures.push(format!("{theme}: {name}\n  {difference}")),
                Err(_) => failures.push(format!("{theme}: {name}\n  panicked, see above")),
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {played} cases differ:\n\n{}\n",
        failures.len(),
        failures.join("\n\n")
    );
}

#[test]
fn the_store_in_memory_keeps_every_case() {
    play_all(|| Arc::new(InMemoryTranscriptLocator::new()));
}

#[test]
fn the_redb_store_keeps_every_case() {
    play_all(|| {
        Arc::new(
            Store::in_memory()
                .expect("a store in memory opens")
                .locator(),
        )
    });
}

#[test]
fn every_case_states_a_rule_of_its_own() {
    let cases: Vec<_> = THEMES.iter().flat_map(|(_, cases)| cases()).collect();
    let names: BTreeSet<_> = cases.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases.len());
}
