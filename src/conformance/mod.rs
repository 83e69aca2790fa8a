//! The contract of a transcript store, as checks that any store can run.
//!
//! Every promise that the traits make is one public function here, named as the sentence it checks. A function takes a
//! [`Factory`]: each call of it gives the locator of a fresh, empty store. The checks use the traits and the free
//! functions of this crate alone, nothing of one store, so a store that lives elsewhere runs them as well:
//!
//! ```
//! use std::sync::Arc;
//! use transcript_redb::{InMemoryTranscriptLocator, conformance};
//!
//! // One check …
//! conformance::turns::a_stale_writer_is_refused_and_changes_nothing(&|| {
//!     Arc::new(InMemoryTranscriptLocator::new())
//! });
//!
//! // … or a whole theme.
//! for theme in conformance::themes().iter().filter(|theme| theme.name == "paging") {
//!     theme.run(&|| Arc::new(InMemoryTranscriptLocator::new()));
//! }
//! ```
//!
//! The checks are test functions: they return when the promise is kept and panic, saying what was promised, when it is
//! broken. [`run_all`] runs them all and names every broken one; a test suite that wants a test for each walks
//! [`themes`]. A store that keeps the provided default of a trait method can leave out what that default does not
//! promise by filtering on [`Check::name`].
//!
//! Checks that need two locators over one store stand apart, in [`locators`].
//!
//! A factory may be called several times in one check, and the stores must not share anything. Threads started by a
//! check end before it returns. No check depends on the time of day or on how fast the store is.

// These functions are tests, shipped in the library so that other stores can call them: they report by panicking.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a check reports a broken promise by a panic"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::TranscriptLocator;

/// The table of a theme: each function with its own name.
macro_rules! table {
    ($($check:ident),* $(,)?) => {
        &[$($crate::conformance::Check { name: stringify!($check), run: $check }),*]
    };
}

/// The themes: each module with its table.
macro_rules! themes {
    ($($theme:ident),* $(,)?) => {
        &[$(Theme { name: stringify!($theme), checks: $theme::CHECKS }),*]
    };
}

mod support;

pub mod background;
pub mod background_keys;
pub mod concurrency;
pub mod display;
pub mod generations;
pub mod handles;
pub mod hostile;
pub mod identity;
pub mod locators;
pub mod long;
pub mod lookups;
pub mod paging;
pub mod refusals;
pub mod reservations;
pub mod rows;
pub mod spend;
pub mod subagents;
pub mod successors;
pub mod thread_spend;
pub mod turn_lock;
pub mod turns;

/// Makes the locator of a fresh, empty store at each call. Stores of two calls share nothing.
pub type Factory<'a> = &'a dyn Fn() -> Arc<dyn TranscriptLocator>;

/// One promise of the contract and the function that checks it.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The name of the function: a sentence that says what is promised. Unique over all themes.
    pub name: &'static str,
    /// The function. It panics when the promise is broken.
    pub run: fn(Factory<'_>),
}

/// The checks on one subject.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    /// The name of the module that holds the checks.
    pub name: &'static str,
    /// The checks, in the order in which they stand in the module.
    pub checks: &'static [Check],
}

impl Theme {
    /// Runs every check of the theme.
    ///
    /// # Panics
    /// If any promise is broken, with the names of all broken ones, after all checks have run.
    pub fn run(&self, factory: Factory<'_>) {
        report(&run_checks(self, factory));
    }
}

/// All themes, in the order in which a reader of the contract meets them.
#[must_use]
pub fn themes() -> &'static [Theme] {
    const THEMES: &[Theme] = themes![
        handles,
        rows,
        lookups,
        generations,
        reservations,
        successors,
        subagents,
        turns,
        identity,
        display,
        paging,
        background,
        background_keys,
        spend,
        thread_spend,
        refusals,
        hostile,
        long,
        concurrency,
        turn_lock
    ];
    THEMES
}

/// Every check of every theme.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    themes().iter().flat_map(|theme| theme.checks)
}

/// Runs the whole contract.
///
/// # Panics
/// If any promise is broken, with the names of all broken ones, after all checks have run.
pub fn run_all<F>(factory: F)
where
    F: Fn() -> Arc<dyn TranscriptLocator>,
{
    let broken: Vec<_> = themes()
        .iter()
        .flat_map(|theme| run_checks(theme, &factory))
        .collect();
    report(&broken);
}

/// Runs the checks of `theme` and returns the names of those that panicked; the panic itself has been printed by then.
fn run_checks(theme: &Theme, factory: Factory<'_>) -> Vec<String> {
    theme
        .checks
        .iter()
        .filter(|check| catch_unwind(AssertUnwindSafe(|| (check.run)(factory))).is_err())
        .map(|check| format!("{}::{}", theme.name, check.name))
        .collect()
}

fn report(broken: &[String]) {
    assert!(
        broken.is_empty(),
        "the store breaks {} promise(s) of the contract:\n  {}",
        broken.len(),
        broken.join("\n  ")
    );
}
