//! Power cuts at every moment, with checkpoints between the turns.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use transcript_redb::testkit::SimDisk;
use transcript_redb::{Durability, Store, TranscriptLocator};

use crate::played;
use crate::rig::{Rig, at_rest, contents, found_after_kill, open, row};
use crate::support::picture::picture;
use crate::support::reference::reference;
use crate::support::script::{STEPS, World};
use crate::support::values::usage;

fn seeds(default: u64) -> u64 {
    std::env::var("CRASH_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Whether redb would have to walk the whole file to open it.
fn needs_a_walk(image: &SimDisk, path: &Path) -> bool {
    std::fs::write(path, image.image().database()).unwrap();
    let walked = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&walked);
    redb::Builder::new()
        .set_repair_callback(move |_| noted.store(true, Ordering::Relaxed))
        .open(path)
        .unwrap();
    walked.load(Ordering::Relaxed)
}

#[test]
fn a_power_cut_at_any_moment_between_checkpoints_leaves_whole_turns_and_all_acknowledged() {
    let pictures = reference().pictures;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    // Now and then, after every step, and by size behind the turns.
    for (way, checkpoint_bytes) in [(5, u64::MAX), (1, u64::MAX), (0, 1)] {
        let disk = SimDisk::new();
        let builder = at_rest(World::builder()).checkpoint_bytes(checkpoint_bytes);
        let world = World::over(disk.open(builder).unwrap()).unwrap();
        disk.record();
        let mut acknowledged = Vec::new();
        for (number, (name, step)) in STEPS.iter().enumerate() {
            step(&world).unwrap_or_else(|error| panic!("{name}: {error}"));
            acknowledged.push(disk.events());
            if way > 0 && number % way == way / 2 {
                world.store.checkpoint().unwrap();
            }
        }
        drop(world);
        let syncs = disk.syncs();
        for events in 0..=disk.events() {
            let near_sync = syncs.contains(&events);
            for seed in 0..seeds(u64::from(near_sync || events % 8 == 0)) {
                let what = format!("way {way} {checkpoint_bytes}, event {events}, seed {seed}");
                let left = disk.power_cut(events, seed);
                if near_sync && seed == 0 {
                    assert!(!needs_a_walk(&left, &path), "{what}: a walk");
                }
                let shown = played::shown(left.image());
                let done = acknowledged.iter().filter(|at| **at <= events).count();
                let right = &pictures[done..(done + 2).min(pictures.len())];
                assert!(right.contains(&shown), "{what}");
            }
        }
    }
}

#[test]
fn a_power_cut_under_load_with_checkpoints_keeps_every_acknowledged_turn() {
    const SESSIONS: usize = 4;
    const TURNS: usize = 10;
    let disk = SimDisk::new();
    let builder = at_rest(Store::builder()).checkpoint_bytes(2048);
    let store = disk.open(builder).unwrap();
    disk.record();
    let acknowledged = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..SESSIONS {
            let (disk, store, acknowledged) = (&disk, &store, &acknowledged);
            scope.spawn(move || {
                let history = open(store, number);
                for turn in 0..TURNS {
                    let row = row(format!("{turn}")).with_turn_usage(usage(10));
                    history.append(row).unwrap();
                    acknowledged.lock().unwrap().push((number, disk.events()));
                }
            });
        }
    });
    let acknowledged = acknowledged.into_inner().unwrap();
    for events in (0..=disk.events()).step_by(2) {
        for seed in 0..seeds(1) {
            let what = format!("after {events} events, seed {seed}");
            let left = disk.power_cut(events, seed + events as u64);
            let store = left.open(at_rest(Store::builder())).unwrap();
            let mut least = BTreeMap::new();
            for (number, _) in acknowledged.iter().filter(|(_, at)| *at <= events) {
                *least.entry(*number).or_insert(0) += 1;
            }
            let mut turns = 0;
            for number in 0..SESSIONS {
                let found = contents(&store, number);
                let expected = (0..found.len()).map(|turn| format!("{turn}"));
                assert!(found.iter().cloned().eq(expected), "{what}: {found:?}");
                assert!(found.len() >= *least.get(&number).unwrap_or(&0), "{what}");
                turns += found.len();
            }
            picture(&store, &["thread"], &[]).unwrap();
            let spend = store.locator().thread_spend("thread").unwrap();
            assert_eq!(spend.root.turns, turns, "{what}");
        }
    }
}

#[test]
fn a_power_cut_leaves_of_eventual_turns_those_up_to_some_moment() {
    const TURNS: usize = 24;
    let rig = Rig::with(at_rest(Store::builder().durability(Durability::Eventual)));
    open(&rig.store, 1).append(row("first")).unwrap();
    rig.store.checkpoint().unwrap();
    rig.disk.record();
    let (mut taken, mut durable) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        let history = open(&rig.store, turn % 2);
        history.append(row(format!("{turn}"))).unwrap();
        taken.push(rig.disk.events());
        if turn % 10 == 9 {
            rig.store.checkpoint().unwrap();
            durable.push((rig.disk.events(), turn + 1));
        }
    }
    let mut lost = 0;
    for events in 0..=rig.disk.events() {
        for seed in 0..seeds(4) {
            let what = format!("after {events} events, seed {seed}");
            let left = rig.disk.power_cut(events, seed);
            let store = left.open(at_rest(Store::builder())).unwrap();
            let mut found: Vec<usize> = (0..2)
                .flat_map(|number| contents(&store, number).split_off(1))
                .map(|text| text.parse().unwrap())
                .collect();
            found.sort_unstable();
            assert!(
                found.iter().copied().eq(0..found.len()),
                "{what}: {found:?}"
            );
            let least = durable.iter().filter(|(at, _)| *at <= events);
            let least = least.map(|(_, turns)| *turns).max().unwrap_or(0);
            assert!(found.len() >= least, "{what}");
            let answered = taken.iter().filter(|at| **at <= events).count();
            lost += usize::from(found.len() < answered);
        }
    }
    assert!(lost > 0, "what was not synced can be lost");
    assert_eq!(found_after_kill(&rig.disk).len(), 1 + TURNS / 2);
}
