//! The contract, run on every store of this crate: each theme of `transcript_redb::conformance` is one test a store.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod minimal;
mod runtime;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tempfile::TempDir;
use transcript_redb::conformance::{self, Factory, themes};
use transcript_redb::{Durability, InMemoryTranscriptLocator, Store, StoreBuilder};

/// The store that keeps everything in process memory: the readable reference.
fn memory(run: &dyn Fn(Factory<'_>)) {
    run(&|| Arc::new(InMemoryTranscriptLocator::new()));
}

/// The same through handles that have only what a store must write, so that the provided methods do the rest.
fn defaults(run: &dyn Fn(Factory<'_>)) {
    run(&|| Arc::new(minimal::Minimal::new(InMemoryTranscriptLocator::new())));
}

/// The redb store without a file.
fn redb_in_memory(run: &dyn Fn(Factory<'_>)) {
    run(&|| {
        Arc::new(
            Store::in_memory()
                .expect("a store in memory opens")
                .locator(),
        )
    });
}

/// The redb store on a disk, at its default durability.
fn redb_on_disk(run: &dyn Fn(Factory<'_>)) {
    in_a_file(run, Store::builder);
}

/// The same with a checkpoint behind every write.
fn redb_with_checkpoints(run: &dyn Fn(Factory<'_>)) {
    in_a_file(run, || Store::builder().checkpoint_bytes(1));
}

/// The same without a sync for each write.
fn redb_eventual(run: &dyn Fn(Factory<'_>)) {
    in_a_file(run, || Store::builder().durability(Durability::Eventual));
}

/// A locator keeps its store open; the folders outlive them all.
fn in_a_file(run: &dyn Fn(Factory<'_>), builder: impl Fn() -> StoreBuilder) {
    let folders = RefCell::new(Vec::new());
    run(&|| {
        let folder = TempDir::new().expect("a folder can be made");
        let path = folder.path().join("store.redb");
        let store = builder().open(path).expect("a new store opens");
        folders.borrow_mut().push(folder);
        Arc::new(store.locator())
    });
}

/// The checks that a store cannot pass, and why.
fn left_out(store: &str, theme: &str) -> &'static [&'static str] {
    match (store, theme) {
        // The provided `append_background` is not atomic: two calls at once can both find the key free. Hosts put the
        // turn lock around it, which `runtime` and the other stores check.
        ("defaults", "concurrency") => &["racing_background_appends_of_one_key_append_once"],
        _ => &[],
    }
}

/// Runs the checks of a theme but those that are left out, and names every one that is broken.
fn run_theme(store: &str, name: &str, factory: Factory<'_>) {
    let theme = themes()
        .iter()
        .find(|theme| theme.name == name)
        .expect("a theme of the contract");
    let left_out = left_out(store, name);
    for check in left_out {
        assert!(
            theme.checks.iter().any(|known| known.name == *check),
            "{check} is left out but is no check of {name}"
        );
    }
    let broken: Vec<_> = theme
        .checks
        .iter()
        .filter(|check| !left_out.contains(&check.name))
        .filter(|check| catch_unwind(AssertUnwindSafe(|| (check.run)(factory))).is_err())
        .map(|check| check.name)
        .collect();
    assert!(broken.is_empty(), "{store} breaks: {broken:#?}");
}

/// A module for each store with a test for each theme.
macro_rules! stores {
    ($($store:ident)* : $themes:tt) => {
        $(stores!(@one $store $themes);)*
    };
    (@one $store:ident [$($theme:ident)*]) => {
        mod $store {
            $(
                #[test]
                fn $theme() {
                    super::$store(&|factory| {
                        super::run_theme(stringify!($store), stringify!($theme), factory);
                    });
                }
            )*

            #[test]
            fn every_theme_has_a_test() {
                let tested = [$(stringify!($theme)),*];
                let names: Vec<_> = super::themes().iter().map(|theme| theme.name).collect();
                assert_eq!(names, tested);
            }
        }
    };
}

mod stores {
    use super::{
        defaults, memory, redb_eventual, redb_in_memory, redb_on_disk, redb_with_checkpoints,
        run_theme, themes,
    };

    stores! {
        memory defaults redb_in_memory redb_on_disk redb_with_checkpoints redb_eventual : [
            handles rows lookups generations reservations successors subagents turns identity display paging
            background background_keys spend thread_spend refusals hostile long concurrency turn_lock
        ]
    }
}

#[test]
fn locators_over_one_memory_are_one_store() {
    conformance::locators::run_all(&|| {
        let memory = InMemoryTranscriptLocator::new();
        [Arc::new(memory.clone()), Arc::new(memory)]
    });
}

#[test]
fn locators_over_one_redb_store_are_one_store() {
    let folders = RefCell::new(Vec::new());
    conformance::locators::run_all(&|| {
        let folder = TempDir::new().expect("a folder can be made");
        let store = Store::open(folder.path().join("store.redb")).expect("a new store opens");
        folders.borrow_mut().push(folder);
        [Arc::new(store.locator()), Arc::new(store.locator())]
    });
}

/// A list and a filter by name are only of use when a name means one check.
#[test]
fn every_check_has_a_name_of_its_own() {
    let mut names: Vec<_> = conformance::checks().map(|check| check.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// A store that keeps no promise is told of all that it breaks.
#[test]
fn a_broken_store_is_reported_with_every_broken_promise() {
    // One memory for every call: the stores of two calls share everything.
    let shared = InMemoryTranscriptLocator::new();
    let theme = themes().iter().find(|theme| theme.name == "paging");
    let theme = theme.expect("a theme of the contract");
    let report = catch_unwind(AssertUnwindSafe(|| {
        theme.run(&|| Arc::new(shared.clone()));
    }))
    .expect_err("stores that share their transcripts break the contract");
    let report = report.downcast_ref::<String>().expect("a formatted report");
    assert!(
        report.contains("paging::a_page_says_whether_there_are_older_records"),
        "{report}"
    );
    assert!(
        report.contains("paging::a_page_is_oldest_first"),
        "{report}"
    );
}
