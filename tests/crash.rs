//! What a power cut leaves: of everything that was written since the last sync an arbitrary part, down to single
//! sectors. Each image is opened and has to show the conversation as it was after some whole turn, and no turn less
//! than was acknowledged.
//!
//! `CRASH_SEEDS` sets how many images are made of each moment; by default one or none, and more before the syncs.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod support {
    pub mod picture;
    pub mod reference;
    pub mod script;
    pub mod values;
}

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::picture::picture;
use support::reference::reference;
use support::script::{STEPS, World};
use support::values::{meta, usage};
use transcript_redb::testkit::{DiskCall, SimDisk};
use transcript_redb::{
    ErrorKind, Result, SessionRef, Store, TranscriptLocator, TranscriptMessage, TranscriptTurn,
};

/// The seeds of the images of one moment.
fn seeds(default: u64) -> std::ops::Range<u64> {
    let seeds = std::env::var("CRASH_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok());
    0..seeds.unwrap_or(default)
}

/// A played script: the disk that recorded it, and how many events there were when each step was acknowledged.
struct Played {
    disk: SimDisk,
    acknowledged: Vec<usize>,
}

fn play() -> Played {
    let disk = SimDisk::new();
    let world = World::open(&disk).unwrap();
    disk.record();
    let acknowledged = STEPS
        .iter()
        .map(|(name, step)| {
            step(&world).unwrap_or_else(|error| panic!("{name}: {error}"));
            disk.events()
        })
        .collect();
    Played { disk, acknowledged }
}

impl Played {
    /// The pictures that are right after so many events: whatever was acknowledged, and at most the step under way.
    fn right<'p>(&self, events: usize, pictures: &'p [String]) -> &'p [String] {
        let done = self.acknowledged.iter().filter(|at| **at <= events).count();
        &pictures[done..(done + 2).min(pictures.len())]
    }
}

#[test]
fn a_power_cut_at_any_moment_leaves_whole_turns_and_all_that_were_acknowledged() {
    let pictures = reference().pictures;
    let played = play();
    let syncs = played.disk.syncs();
    let mut seen_both = [false; 2];
    for events in 0..=played.disk.events() {
        // Most choices are open just before a sync.
        let near_sync = syncs.contains(&events);
        for seed in seeds(if near_sync { 2 } else { events as u64 % 2 }) {
            let image = played.disk.power_cut(events, seed);
            let world = World::open(&image)
                .unwrap_or_else(|error| panic!("after {events} events, seed {seed}: {error}"));
            let shown = world.picture().unwrap();
            let right = played.right(events, &pictures);
            let found = right.iter().position(|picture| *picture == shown);
            let found = found.unwrap_or_else(|| panic!("after {events} events, seed {seed}"));
            seen_both[found] = true;
        }
    }
    assert_eq!(
        seen_both,
        [true, true],
        "a step under way is met done and undone"
    );
}

#[test]
fn a_power_cut_during_recovery_changes_nothing_of_what_it_found() {
    let pictures = reference().pictures;
    let played = play();
    for (number, sync) in played.disk.syncs().into_iter().enumerate().step_by(6) {
        let seed = number as u64;
        let what = format!("before event {sync}, seed {seed}");
        let image = played.disk.power_cut(sync, seed);
        image.record();
        let world = World::open(&image).unwrap();
        let opened = image.events();
        let shown = world.picture().unwrap();
        drop(world);
        for events in 0..=image.events() {
            let again = image.power_cut(events, seed + 1);
            let found = World::open(&again).unwrap().picture().unwrap();
            if events < opened {
                assert!(
                    played.right(sync, &pictures).contains(&found),
                    "{what}, {events}"
                );
            } else {
                assert!(found == shown, "{what}, {events}: it was read already");
            }
        }
    }
}

#[test]
fn a_store_is_opened_after_a_power_cut_without_a_walk_over_its_pages() {
    let played = play();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    for sync in played.disk.syncs().into_iter().step_by(3) {
        let left = played.disk.power_cut(sync, 1).image();
        std::fs::write(&path, left.database()).unwrap();
        let walked = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&walked);
        redb::Builder::new()
            .set_repair_callback(move |_| noted.store(true, Ordering::Relaxed))
            .open(&path)
            .unwrap();
        assert!(!walked.load(Ordering::Relaxed), "before event {sync}");
    }
}

/// Repeats a call until the store has recovered; it tries at most ten times a second.
fn eventually(mut call: impl FnMut() -> Result<()>) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while let Err(error) = call() {
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(Instant::now() < deadline, "it does not recover: {error}");
        thread::park_timeout(Duration::from_millis(1));
    }
}

#[test]
fn what_a_failed_sync_was_answered_with_holds_after_a_power_cut() {
    let reference = reference();
    for (step, (name, attempt)) in STEPS.iter().enumerate() {
        for nth in 1.. {
            let disk = SimDisk::with_image(reference.disks[step].clone());
            let world = World::open(&disk).unwrap();
            disk.record();
            disk.fail_once(DiskCall::Sync, nth);
            let result = attempt(&world);
            if disk.failures() == 0 {
                break;
            }
            let answered = disk.events();
            let expected = match &result {
                Ok(()) => step + 1,
                Err(error) if error.kind() == ErrorKind::Io => step,
                Err(error) => panic!("{name}, sync {nth}: {error}"),
            };
            // Later writes bring nothing back that was refused, and lose nothing that was not.
            if result.is_err() {
                eventually(|| attempt(&world));
            }
            let done = disk.events();
            for (events, expected) in [(answered, expected), (done, step + 1)] {
                for seed in seeds(1) {
                    let image = disk.power_cut(events, seed);
                    let shown = World::open(&image).unwrap().picture().unwrap();
                    assert!(
                        shown == reference.pictures[expected],
                        "{name}, sync {nth}, after {events} of {done} events, seed {seed}: {result:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_power_cut_under_load_keeps_every_acknowledged_turn_of_every_session() {
    const SESSIONS: usize = 6;
    const TURNS: usize = 8;
    let disk = SimDisk::new();
    let store = disk.open(Store::builder()).unwrap();
    disk.record();
    let acknowledged = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..SESSIONS {
            let (disk, store, acknowledged) = (&disk, &store, &acknowledged);
            scope.spawn(move || {
                let session = SessionRef::root(format!("session {number}"));
                let meta = meta("agent", "thread");
                let history = store
                    .locator()
                    .open_session(&session, meta.clone())
                    .unwrap();
                let mut rows = Vec::new();
                for turn in 0..TURNS {
                    let prev = rows.clone();
                    rows.push(TranscriptMessage::user(format!("question {turn}")));
                    rows.push(TranscriptMessage::assistant(format!("answer {turn}")));
                    let usage = usage(100);
                    let turn = TranscriptTurn::new(&prev, &rows, &meta).with_turn_usage(&usage);
                    history.append_turn(turn).unwrap();
                    acknowledged.lock().unwrap().push((number, disk.events()));
                }
            });
        }
    });
    let acknowledged = acknowledged.into_inner().unwrap();
    for events in (0..=disk.events()).step_by(3) {
        for seed in seeds(1) {
            let what = format!("after {events} events, seed {seed}");
            let image = disk.power_cut(events, seed);
            let store = image.open(Store::builder()).unwrap();
            let mut least = BTreeMap::new();
            for (number, _) in acknowledged.iter().filter(|(_, at)| *at <= events) {
                *least.entry(*number).or_insert(0) += 1;
            }
            let mut turns = 0;
            for number in 0..SESSIONS {
                let session = SessionRef::root(format!("session {number}"));
                let history = store
                    .locator()
                    .open_session(&session, meta("", ""))
                    .unwrap();
                let rows = history.messages().unwrap();
                let expected = (0..rows.len()).map(|row| match row % 2 {
                    0 => format!("question {}", row / 2),
                    _ => format!("answer {}", row / 2),
                });
                assert!(
                    rows.iter().map(|row| row.content.clone()).eq(expected),
                    "{what}"
                );
                assert_eq!(rows.len() % 2, 0, "{what}: half a turn");
                assert!(
                    rows.len() / 2 >= *least.get(&number).unwrap_or(&0),
                    "{what}"
                );
                turns += rows.len() / 2;
            }
            // With the recount that a picture makes.
            picture(&store, &["thread"], &[]).unwrap();
            let spend = store.locator().thread_spend("thread").unwrap();
            assert_eq!(spend.root.turns, turns, "{what}");
        }
    }
}
