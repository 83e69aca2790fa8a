//! Many threads write and read while checkpoints are made and single faults strike both files: what each was told holds.
//!
//! `STRESS_ROUNDS` sets how many disks are gone through, `STRESS_SEED` the first of them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use transcript_redb::testkit::{DiskCall, SimDisk};
use transcript_redb::{ErrorKind, Health, Store, StoreFile};

use crate::rig::{
    at_rest, contents, eventually, is_refused_by_disk, open, row, texts, until_healthy,
};

const THREADS: usize = 4;
/// Sessions of each thread.
const SESSIONS: usize = 6;
const TURNS: usize = 60;
/// Faults of each disk at most: every one may cost the pause before the next attempt to go on.
const FAULTS: usize = 10;

/// Pseudorandom numbers; the same seed gives the same ones.
struct Choice(u64);

impl Choice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// What the writer of a session was told.
#[derive(Default)]
struct Told {
    /// The rows that are there, in order.
    rows: Vec<String>,
    /// A row behind them that is there or not.
    uncertain: Option<String>,
}

impl Told {
    /// Compares what was read; a row that was uncertain is one or the other from now on.
    fn assert_holds(&mut self, found: &[String], what: &str) {
        let kept = &found[..self.rows.len().min(found.len())];
        assert_eq!(kept, self.rows, "{what}: what was acknowledged");
        let more = &found[self.rows.len()..];
        if let Some(uncertain) = self.uncertain.take_if(|row| more == [row.as_str()]) {
            self.rows.push(uncertain);
        }
        self.uncertain = None;
        assert_eq!(found, self.rows, "{what}: what was refused");
    }
}

/// Writes to sessions of its own and reads them; answers what it was told of each, and how often a call failed.
fn work(store: &Store, thread: usize, seed: u64, failed: &AtomicUsize) -> Vec<(usize, Told)> {
    let mut choice = Choice(seed ^ (thread as u64) << 20);
    let first = thread * SESSIONS;
    let mut all: Vec<_> = (first..first + SESSIONS)
        .map(|number| (number, Told::default()))
        .collect();
    for turn in 0..TURNS {
        let some = usize::try_from(choice.below(SESSIONS as u64)).unwrap();
        let (number, told) = &mut all[some];
        let history = open(store, *number);
        let what = format!("seed {seed}, session {number}, turn {turn}");
        if choice.below(3) == 0 {
            match history.messages() {
                Ok(rows) => told.assert_holds(&texts(rows), &what),
                Err(error) => assert!(is_refused_by_disk(&error), "{what}: {error}"),
            }
            continue;
        }
        let text = format!("{thread} {turn}");
        // As a host does it: whatever was refused is tried again, and must not come twice.
        while told.rows.last() != Some(&text) {
            match history.append(row(&text)) {
                Ok(()) => told.rows.push(text.clone()),
                Err(error) => {
                    failed.fetch_add(1, Ordering::Relaxed);
                    if error.kind() == ErrorKind::Indeterminate {
                        told.uncertain = Some(text.clone());
                    } else {
                        assert!(is_refused_by_disk(&error), "{what}: {error}");
                    }
                    told.assert_holds(&texts(eventually(|| history.messages())), &what);
                    thread::park_timeout(Duration::from_millis(1));
                }
            }
        }
    }
    all
}

/// Lets single calls fail.
fn break_now_and_then(disk: &SimDisk, seed: u64, done: &AtomicBool) {
    let mut choice = Choice(seed);
    for _ in 0..FAULTS {
        let failures = disk.failures();
        let journal = choice.below(2) == 0;
        let file = disk.file(if journal {
            StoreFile::Journal
        } else {
            StoreFile::Database
        });
        let nth = 1 + choice.below(12);
        match choice.below(5) {
            0 => file.tear(nth, usize::try_from(choice.below(3_000)).unwrap()),
            1 | 2 => file.fail_once(DiskCall::Sync, nth),
            3 => file.fail_once(DiskCall::SetLen, 1),
            _ => file.fail_once(DiskCall::Write, nth),
        }
        // The next one comes when this has struck, or never will.
        for _ in 0..200 {
            if disk.failures() > failures || done.load(Ordering::Relaxed) {
                break;
            }
            thread::yield_now();
        }
    }
    disk.heal();
}

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn what_each_of_many_threads_was_told_holds_whatever_strikes_meanwhile() {
    let first = number("STRESS_SEED", 0);
    let (failed, checkpoints) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let mut struck = 0;
    for seed in first..first + number("STRESS_ROUNDS", 3) {
        let disk = SimDisk::new();
        let bytes = [u64::MAX, 20_000, 1][(seed % 3) as usize];
        let builder = || at_rest(Store::builder()).checkpoint_bytes(bytes);
        let store = disk.open(builder()).unwrap();
        let done = AtomicBool::new(false);
        let mut all: Vec<(usize, Told)> = thread::scope(|scope| {
            scope.spawn(|| break_now_and_then(&disk, seed, &done));
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    match store.checkpoint() {
                        Ok(()) => drop(checkpoints.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => assert!(is_refused_by_disk(&error), "seed {seed}: {error}"),
                    }
                    thread::yield_now();
                }
            });
            let (store, failed) = (&store, &failed);
            let workers: Vec<_> = (0..THREADS)
                .map(|thread| scope.spawn(move || work(store, thread, seed, failed)))
                .collect();
            let told: Vec<_> = workers.into_iter().map(|it| it.join()).collect();
            done.store(true, Ordering::Relaxed);
            told.into_iter().flat_map(|told| told.unwrap()).collect()
        });
        disk.heal();
        struck += disk.failures();
        until_healthy(&store);
        let mut compare = |store: &Store, what: &str| {
            for (number, told) in &mut all {
                let what = format!("seed {seed}, session {number}, {what}");
                told.assert_holds(&contents(store, *number), &what);
            }
        };
        compare(&store, "in the process");
        assert!(matches!(store.health(), Health::Healthy), "seed {seed}");
        let killed = SimDisk::with_image(disk.image());
        compare(&killed.open(builder()).unwrap(), "killed");
        drop(store);
        let reopened = disk.open(builder()).unwrap();
        compare(&reopened, "reopened");
        assert!(matches!(reopened.health(), Health::Healthy), "seed {seed}");
    }
    let (failed, checkpoints) = (failed.into_inner(), checkpoints.into_inner());
    println!("{struck} faults struck, {failed} writes failed, {checkpoints} checkpoints");
    assert!(struck > 0 && failed > 0 && checkpoints > 0);
}
