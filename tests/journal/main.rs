//! The journal beside the database: what a write costs, what survives, what is refused, and what a failure of either
//! file does and does not do.
//!
//! `JOURNAL_STRIDE` sets how far apart the bytes are that are damaged, `CRASH_SEEDS` how many images are made of each
//! moment of a power cut.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

#[path = "../support"]
mod support {
    pub mod picture;
    pub mod reference;
    pub mod script;
    pub mod values;
}

mod costs;
mod damage;
mod database_faults;
mod files;
mod journal_faults;
mod kill;
mod played;
mod power;
mod rig;
mod stress;
