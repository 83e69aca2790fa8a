//! Time and identity: the clock, and the generator of record UUIDs.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use uuid::Uuid;

/// Where a store takes time and randomness from. Tests inject one of their own to be deterministic.
pub trait Environment: fmt::Debug + Send + Sync + 'static {
    /// Microseconds since the Unix epoch. May step back; the store copes.
    fn now_micros(&self) -> i64;

    /// 128 random bits.
    fn random(&self) -> u128;
}

/// The system's clock and random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct System;

impl Environment for System {
    fn now_micros(&self) -> i64 {
        jiff::Timestamp::now().as_microsecond()
    }

    fn random(&self) -> u128 {
        Uuid::new_v4().as_u128()
    }
}

/// Mints version 7 UUIDs that ascend, whatever the clock does.
///
/// Within a millisecond, and while the clock stands behind the last one minted, the 74 bits behind the time count up.
pub(super) struct UuidGenerator {
    environment: Arc<dyn Environment>,
    last: Mutex<u128>,
}

impl fmt::Debug for UuidGenerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UuidGenerator")
    }
}

const COUNTER_BITS: u32 = 74;
const COUNTER_MASK: u128 = (1 << COUNTER_BITS) - 1;
const TIME_MASK: u128 = (1 << 48) - 1;

impl UuidGenerator {
    /// Continues behind `last`, a UUID that this generator minted before, or 0.
    pub(super) fn new(environment: Arc<dyn Environment>, last: u128) -> Self {
        Self {
            environment,
            last: Mutex::new(if last == 0 { 0 } else { unpack(last) }),
        }
    }

    /// The next UUID.
    pub(super) fn mint(&self) -> u128 {
        let millis =
            u128::try_from(self.environment.now_micros() / 1000).unwrap_or_default() & TIME_MASK;
        // The top counter bit starts at zero, so that there is always room to count up.
        let random = self.environment.random() & (COUNTER_MASK >> 1);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = if millis > *last >> COUNTER_BITS {
            (millis << COUNTER_BITS) | random
        } else {
            // A random step keeps ids of one millisecond from being guessed from each other.
            *last + 1 + (random & 0xFFFF_FFFF)
        };
        pack(*last)
    }
}

/// 48 bits of time and 74 of counter → UUID with version and variant in their places.
fn pack(value: u128) -> u128 {
    let time = (value >> COUNTER_BITS) & TIME_MASK;
    let high = (value >> 62) & 0xFFF;
    let low = value & ((1 << 62) - 1);
    (time << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low
}

fn unpack(uuid: u128) -> u128 {
    let time = uuid >> 80;
    let high = (uuid >> 64) & 0xFFF;
    let low = uuid & ((1 << 62) - 1);
    (time << COUNTER_BITS) | (high << 62) | low
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

    #[derive(Debug, Default)]
    struct Scripted {
        now: AtomicI64,
        random: AtomicU64,
    }

    impl Environment for Scripted {
        fn now_micros(&self) -> i64 {
            self.now.load(Ordering::Relaxed)
        }

        fn random(&self) -> u128 {
            let n = self
                .random
                .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
            (u128::from(n) << 64) | u128::from(n.rotate_left(17))
        }
    }

    #[test]
    fn uuids_ascend_when_the_clock_stands_still_or_steps_back_and_after_a_restart() {
        let environment = Arc::new(Scripted::default());
        environment
            .now
            .store(1_800_000_000_000_000, Ordering::Relaxed);
        let mut generator = UuidGenerator::new(environment.clone(), 0);
        let mut last = 0;
        for round in 0..2_000 {
            if round % 100 == 50 {
                environment.now.fetch_sub(5_000_000, Ordering::Relaxed);
            } else if round % 10 == 0 {
                environment.now.fetch_add(1_000, Ordering::Relaxed);
            }
            if round == 1_000 {
                generator = UuidGenerator::new(environment.clone(), last);
            }
            let uuid = generator.mint();
            assert!(uuid > last, "round {round}");
            assert_eq!(Uuid::from_u128(uuid).get_version_num(), 7);
            assert_eq!(Uuid::from_u128(uuid).get_variant(), uuid::Variant::RFC4122);
            last = uuid;
        }
    }
}
