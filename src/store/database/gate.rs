//! Who may use the database: everybody at the same time, or one alone.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// Lets everybody in until one wants to be alone.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    inside: usize,
    /// Set while one is alone, or waits to be: how long others wait for it.
    alone: Option<Duration>,
}

/// Being inside, until it is dropped.
#[derive(Debug)]
pub(super) struct Inside<'a>(&'a Gate);

/// Being alone inside, until it is dropped.
#[derive(Debug)]
pub(super) struct Alone<'a>(&'a Gate);

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes in. Whoever is not `patient` waits only as long as the one who is alone allows.
    pub(super) fn enter(&self, patient: bool) -> Result<Inside<'_>> {
        let mut state = self.state();
        let since = Instant::now();
        while let Some(limit) = state.alone {
            if patient {
                state = self
                    .moved
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let Some(left) = limit
                .checked_sub(since.elapsed())
                .filter(|it| !it.is_zero())
            else {
                return Err(busy());
            };
            (state, _) = self
                .moved
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.inside += 1;
        Ok(Inside(self))
    }

    /// Waits until everybody has left, `limit` at most, while nobody comes in.
    pub(super) fn enter_alone(&self, limit: Duration) -> Result<Alone<'_>> {
        let mut state = self.state();
        if state.alone.is_some() {
            return Err(busy());
        }
        state.alone = Some(limit);
        let alone = Alone(self);
        let (state, waited) = self
            .moved
            .wait_timeout_while(state, limit, |state| state.inside > 0)
            .unwrap_or_else(PoisonError::into_inner);
        drop(state);
        if waited.timed_out() {
            return Err(Error::Busy {
                what: "the store is being read or written",
            });
        }
        Ok(alone)
    }
}

fn busy() -> Error {
    Error::Busy {
        what: "the store is being compacted",
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.inside -= 1;
        if state.inside == 0 && state.alone.is_some() {
            self.0.moved.notify_all();
        }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.state().alone = None;
        self.0.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_busy<T>(result: &Result<T>) -> bool {
        matches!(result, Err(Error::Busy { .. }))
    }

    #[test]
    fn whoever_wants_to_be_alone_waits_for_the_others_and_keeps_them_out() {
        let gate = Gate::default();
        let first = gate.enter(false).unwrap();
        assert!(is_busy(&gate.enter_alone(Duration::ZERO)));
        let second = gate.enter(false).unwrap();
        std::thread::scope(|scope| {
            let alone = scope.spawn(|| {
                let alone = gate.enter_alone(Duration::from_secs(60)).unwrap();
                assert_eq!(gate.state().inside, 0);
                drop(alone);
            });
            drop((first, second));
            alone.join().unwrap();
        });
        let alone = gate.enter_alone(Duration::from_millis(1)).unwrap();
        assert!(is_busy(&gate.enter(false)), "for longer than it allows");
        assert!(is_busy(&gate.enter_alone(Duration::ZERO)));
        std::thread::scope(|scope| {
            let patient = scope.spawn(|| gate.enter(true).map(drop));
            drop(alone);
            patient.join().unwrap().unwrap();
        });
        gate.enter(false).unwrap();
    }
}
