//! Time and randomness that a test decides.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::power::mix;
use crate::Environment;

/// A clock that moves only when it is told to, and random numbers that a seed decides. A store that takes both from
/// here does the same in every run.
#[derive(Debug)]
pub struct TestClock {
    now: AtomicI64,
    random: AtomicU64,
}

impl TestClock {
    /// A clock that shows `micros` microseconds since the Unix epoch.
    #[must_use]
    pub fn at(micros: i64, seed: u64) -> Self {
        Self {
            now: AtomicI64::new(micros),
            random: AtomicU64::new(seed),
        }
    }

    /// Moves the clock, back if `micros` is negative.
    pub fn advance(&self, micros: i64) {
        self.now.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Environment for TestClock {
    fn now_micros(&self) -> i64 {
        self.now.load(Ordering::Relaxed)
    }

    fn random(&self) -> u128 {
        let number = self.random.fetch_add(2, Ordering::Relaxed);
        (u128::from(mix(number)) << 64) | u128::from(mix(number.wrapping_add(1)))
    }
}
