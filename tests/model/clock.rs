//! Time and randomness for the redb store, from the seed.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use jiff::Timestamp;
use transcript_redb::Environment;

use super::rng::Rng;

/// A clock that moves only when it is told to. The random numbers repeat with the seed.
#[derive(Debug)]
pub struct Clock(Mutex<State>);

#[derive(Debug)]
struct State {
    micros: i64,
    stepped_back: bool,
    rng: Rng,
    /// Every time that it has shown, as records show it.
    shown: BTreeSet<String>,
}

impl Clock {
    pub fn new(seed: u64) -> Self {
        let micros = 1_700_000_000_000_000;
        Self(Mutex::new(State {
            micros,
            stepped_back: false,
            rng: Rng::new(seed),
            shown: BTreeSet::from([written(micros)]),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic under the lock")
    }

    /// Moves it, back too.
    pub fn advance(&self, micros: i64) {
        let mut state = self.state();
        state.micros += micros;
        state.stepped_back |= micros < 0;
        let time = written(state.micros);
        state.shown.insert(time);
    }

    /// The time now, as a record that is written shows it.
    pub fn now(&self) -> String {
        written(self.state().micros)
    }

    /// Whether it ever went back, so that what was written later need not look later.
    pub fn stepped_back(&self) -> bool {
        self.state().stepped_back
    }

    /// Whether it ever showed this time.
    pub fn showed(&self, time: &str) -> bool {
        self.state().shown.contains(time)
    }
}

fn written(micros: i64) -> String {
    Timestamp::from_microsecond(micros)
        .expect("a time")
        .to_string()
}

impl Environment for Clock {
    fn now_micros(&self) -> i64 {
        self.state().micros
    }

    fn random(&self) -> u128 {
        let mut state = self.state();
        u128::from(state.rng.next()) << 64 | u128::from(state.rng.next())
    }
}
