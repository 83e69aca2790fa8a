//! What is found after the process was killed: every byte that it wrote, and not a turn less than it acknowledged.

use std::sync::Mutex;
use std::thread;

use transcript_redb::testkit::{DiskCall, DiskImage, SimDisk};
use transcript_redb::{Durability, ErrorKind, Store, StoreFile};

use crate::played::{Played, play, shown};
use crate::rig::{Rig, at_rest, contents, found_after_kill, found_in, open, row, wait_for_stats};
use crate::support::reference::reference;

#[test]
fn a_kill_after_any_turn_loses_none_and_what_is_found_is_what_was_read() {
    let Played { images, pictures } = play();
    assert!(
        pictures == reference().pictures,
        "a checkpoint shows in no read"
    );
    for (step, (image, picture)) in images.into_iter().zip(&pictures).enumerate() {
        assert!(shown(image) == *picture, "after {step} steps");
    }
}

#[test]
fn a_kill_loses_nothing_that_the_database_had_not_taken_yet() {
    let Played { images, pictures } = play();
    // The first write durably says that the journal counts: a database from before it knows nothing of the journal.
    for lag in [1, 3, 8] {
        for step in 1 + lag..images.len() {
            let behind = images[step - lag].database().to_vec();
            let image = DiskImage::new(behind, images[step].journal().to_vec());
            assert!(shown(image) == pictures[step], "{lag} behind step {step}");
        }
    }
}

#[test]
fn a_kill_during_the_recovery_from_a_kill_loses_nothing() {
    let rig = Rig::new();
    let expected: Vec<_> = ["first".to_owned()]
        .into_iter()
        .chain((0..20).map(|number| format!("{number}")))
        .collect();
    for text in &expected[1..] {
        rig.append(text);
    }
    let killed = SimDisk::with_image(rig.disk.image());
    killed.record();
    let store = killed.open(at_rest(Store::builder())).unwrap();
    assert_eq!(contents(&store, 0), expected);
    open(&store, 0).append(row("after")).unwrap();
    let acknowledged = killed.events();
    drop(store);
    for events in 0..=killed.events() {
        for seed in 0..2 {
            let found = found_after_kill(&killed.power_cut(events, seed));
            let (kept, more) = found.split_at(expected.len());
            assert_eq!(kept, expected, "event {events}, seed {seed}");
            assert!(more.is_empty() || more == ["after"], "event {events}");
            assert!(events < acknowledged || more == ["after"], "event {events}");
        }
    }
}

#[test]
fn kills_that_follow_each_other_add_up() {
    let mut image = DiskImage::default();
    let mut expected = Vec::new();
    for round in 0..12 {
        let disk = SimDisk::with_image(image);
        let store = disk.open(at_rest(Store::builder())).unwrap();
        if round > 0 {
            assert_eq!(contents(&store, 0), expected, "round {round}");
        }
        for number in 0..=round % 4 {
            let text = format!("{round} {number}");
            open(&store, 0).append(row(&text)).unwrap();
            expected.push(text);
            if round % 3 == 2 {
                store.checkpoint().unwrap();
            }
        }
        image = disk.image();
    }
    assert_eq!(found_in(image), expected);
}

#[test]
fn a_record_larger_than_half_a_segment_keeps_its_place_in_the_order() {
    let large = "y".repeat(3 << 20);
    let huge = "z".repeat(9 << 20);
    let rig = Rig::new();
    let mut expected = vec!["first".to_owned()];
    for text in ["a", &large, "b", &huge, "c", &large, &large, "d"] {
        rig.append(text);
        expected.push(text.to_owned());
        assert!(contents(&rig.store, 0) == expected);
        assert!(found_after_kill(&rig.disk) == expected, "after a kill");
    }
    rig.store.checkpoint().unwrap();
    assert!(
        found_after_kill(&rig.disk) == expected,
        "after a checkpoint"
    );
    drop(rig.store);
    assert!(found_after_kill(&rig.disk) == expected, "after a close");
}

#[test]
fn a_large_record_between_queued_turns_keeps_its_place_at_every_moment_of_a_power_cut() {
    let large = "y".repeat(3 << 20);
    let rig = Rig::new();
    rig.disk.record();
    let acknowledged = Mutex::new(Vec::new());
    let append = |text: &str| {
        rig.append(text);
        acknowledged.lock().unwrap().push(rig.disk.events());
    };
    thread::scope(|scope| {
        let held = rig.journal().hold(DiskCall::Sync);
        scope.spawn(|| append("led"));
        held.wait_for(1);
        for (queued, text) in ["before", &large, "behind"].into_iter().enumerate() {
            let append = &append;
            scope.spawn(move || append(text));
            // Each stands in the queue before the next one comes, or waits for one that does.
            wait_for_stats(&rig.store, |stats| {
                stats.queued_changes + stats.waiting_calls > queued
            });
        }
        drop(held);
    });
    let expected = ["first", "led", "before", &large, "behind"];
    assert!(contents(&rig.store, 0) == expected);
    let acknowledged = acknowledged.into_inner().unwrap();
    for events in 0..=rig.disk.events() {
        let found = found_after_kill(&rig.disk.power_cut(events, events as u64));
        assert!(found == expected[..found.len()], "after {events} events");
        let least = 1 + acknowledged.iter().filter(|at| **at <= events).count();
        assert!(found.len() >= least, "after {events} events");
    }
}

#[test]
fn a_clean_close_leaves_no_journal_and_the_next_open_needs_none() {
    let rig = Rig::new();
    rig.append("second");
    let before = rig.disk.image();
    assert!(!before.journal().is_empty());
    drop(rig.store);
    let closed = rig.disk.image();
    assert!(closed.journal().is_empty());
    assert_eq!(found_in(closed.clone()), ["first", "second"]);
    let reader = SimDisk::with_image(closed.clone());
    let store = reader.open(Store::builder().read_only(true)).unwrap();
    assert_eq!(contents(&store, 0), ["first", "second"]);
    drop(store);
    assert!(reader.image() == closed, "a reader leaves no trace");

    // The close was cut off before the journal went.
    let left = DiskImage::new(closed.database().to_vec(), before.journal().to_vec());
    assert_eq!(found_in(left), ["first", "second"]);
}

#[test]
fn a_store_that_was_only_read_is_clean_all_the_time() {
    let rig = Rig::new();
    drop(rig.store);
    let store = rig.disk.open(at_rest(Store::builder())).unwrap();
    assert_eq!(contents(&store, 0), ["first"]);
    let image = rig.disk.image();
    let alone = DiskImage::new(image.database().to_vec(), Vec::new());
    assert_eq!(found_in(alone), ["first"], "it needs no journal");
    assert_eq!(found_in(image), ["first"]);
}

#[test]
fn a_reader_refuses_a_store_that_was_killed_and_changes_nothing() {
    let rig = Rig::new();
    for with_checkpoint in [false, true] {
        rig.append("more");
        if with_checkpoint {
            rig.store.checkpoint().unwrap();
        }
        let killed = rig.disk.image();
        for image in [killed.clone(), with_a_closed_database(&killed)] {
            let disk = SimDisk::with_image(image.clone());
            let refused = disk.open(Store::builder().read_only(true)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::NeedsRecovery, "{refused}");
            assert!(disk.image() == image);
            assert_eq!(found_in(image), contents(&rig.store, 0));
        }
    }
}

/// The same, but redb itself has nothing to repair.
fn with_a_closed_database(image: &DiskImage) -> DiskImage {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    std::fs::write(&path, image.database()).unwrap();
    drop(redb::Database::open(&path).unwrap());
    DiskImage::new(std::fs::read(&path).unwrap(), image.journal().to_vec())
}

#[test]
fn a_kill_loses_no_eventual_turn() {
    let rig = Rig::with(at_rest(Store::builder().durability(Durability::Eventual)));
    let mut expected = vec!["first".to_owned()];
    for number in 0..30 {
        let text = format!("{number}");
        rig.append(&text);
        expected.push(text);
        assert_eq!(found_after_kill(&rig.disk), expected);
    }
}

/// Bytes of the database that are read until the store has answered.
fn read_to_open(image: &DiskImage, rows: usize) -> u64 {
    let disk = SimDisk::with_image(image.clone());
    let store = disk.open(at_rest(Store::builder())).unwrap();
    assert_eq!(contents(&store, 0).len(), rows);
    disk.file(StoreFile::Database).bytes(DiskCall::Read)
}

#[test]
fn opening_after_a_kill_reads_a_small_part_of_a_large_database() {
    const ROWS: usize = 400;
    let rig = Rig::new();
    for number in 0..ROWS {
        let text = format!("{number} {}", "x".repeat(120 << 10));
        open(&rig.store, 1 + number % 8).append(row(text)).unwrap();
    }
    rig.append("second");
    let loaded = rig.disk.image();
    rig.store.checkpoint().unwrap();
    let covered = rig.disk.image();
    rig.append("third");
    let behind = rig.disk.image();
    let Rig { disk, store } = rig;
    drop(store);
    let closed = read_to_open(&disk.image(), 3);
    for (image, rows) in [(loaded, 2), (covered, 2), (behind, 3)] {
        let size = image.database().len() as u64;
        assert!(size > 45 << 20, "{size} bytes");
        let killed = read_to_open(&image, rows);
        // With debug assertions redb itself reads all that is in use, whenever it opens a database.
        let by_redb = if cfg!(debug_assertions) { closed } else { 0 };
        assert!(
            killed < by_redb + size / 8,
            "{killed} bytes of {size}, {by_redb} when closed"
        );
    }
}
