//! A journal that fails: nothing of a refused turn ever appears, a turn of uncertain end is whole or absent, and the
//! same handles go on once the disk does.

use std::thread;

use transcript_redb::testkit::{DiskCall, SimDisk, SimFile};
use transcript_redb::{
    Durability, ErrorKind, Health, Result, Store, StoreFile, TranscriptHistory, TranscriptTurn,
};

use crate::rig::{
    Rig, at_once, at_rest, contents, eventually, found_after_kill, is_refused_by_disk, open, row,
    texts, until_healthy, wait_for_stats,
};
use crate::support::values::meta;

type Break = (&'static str, fn(&SimFile));

/// The group fails, and can be voided.
const FOR_A_MOMENT: [Break; 6] = [
    ("a write", |journal| journal.fail_once(DiskCall::Write, 1)),
    ("the first byte", |journal| journal.tear(1, 1)),
    ("a torn header", |journal| journal.tear(1, 20)),
    ("a torn frame", |journal| journal.tear(1, 100)),
    ("all but a sync", |journal| journal.tear(1, usize::MAX)),
    ("a sync", |journal| journal.fail_once(DiskCall::Sync, 1)),
];

/// The group fails, and its void too.
const FOR_GOOD: [Break; 4] = [
    ("no write", |journal| journal.fail_from(DiskCall::Write, 1)),
    ("no sync", |journal| journal.fail_from(DiskCall::Sync, 1)),
    ("a torn write, then none", |journal| {
        journal.tear(1, 100);
        journal.fail_from(DiskCall::Write, 2);
    }),
    ("a whole write, then none", |journal| {
        journal.fail_once(DiskCall::Sync, 1);
        journal.fail_from(DiskCall::Write, 2);
    }),
];

/// Now, after a kill and after a power cut the store shows this.
#[track_caller]
fn assert_shown(rig: &Rig, expected: &[&str], what: &str) {
    let history = open(&rig.store, 0);
    let shown = texts(eventually(|| history.messages()));
    assert_eq!(shown, expected, "{what}");
    assert_eq!(found_after_kill(&rig.disk), expected, "{what}, killed");
    for seed in 0..12 {
        let left = rig.disk.power_cut(rig.disk.events(), seed);
        assert_eq!(found_after_kill(&left), expected, "{what}, seed {seed}");
    }
}

#[test]
fn a_turn_whose_group_was_voided_is_refused_and_appears_at_no_time() {
    for (what, break_journal) in FOR_A_MOMENT {
        let rig = Rig::new();
        let history = open(&rig.store, 0);
        rig.append("second");
        rig.disk.record();
        break_journal(&rig.journal());
        let error = history.append(row("never")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{what}: {error}");
        assert_eq!(rig.journal().failures(), 1, "{what}");
        assert_shown(&rig, &["first", "second"], what);

        eventually(|| history.append(row("third")));
        assert!(matches!(rig.store.health(), Health::Healthy), "{what}");
        assert_shown(&rig, &["first", "second", "third"], what);
        // Behind a void that is followed by more voids.
        for _ in 0..3 {
            break_journal(&rig.journal());
            assert!(history.append(row("never")).is_err(), "{what}");
        }
        eventually(|| history.append(row("fourth")));
        assert_shown(&rig, &["first", "second", "third", "fourth"], what);
        let Rig { disk, store } = rig;
        drop((store, history));
        assert!(disk.image().journal().is_empty(), "{what}");
        let found = found_after_kill(&disk);
        assert_eq!(found, ["first", "second", "third", "fourth"], "{what}");
    }
}

/// Extends a transcript of one row by "second".
fn second_turn(history: &dyn TranscriptHistory) -> Result<()> {
    let (prev, meta) = ([row("first")], meta("agent", "thread"));
    let next = [row("first"), row("second")];
    history.append_turn(TranscriptTurn::new(&prev, &next, &meta))
}

#[test]
fn a_refused_turn_is_retried_on_what_was_there_before_it() {
    for (what, break_journal) in FOR_A_MOMENT {
        let rig = Rig::new();
        rig.disk.record();
        let history = open(&rig.store, 0);
        break_journal(&rig.journal());
        let error = second_turn(history.as_ref()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{what}: {error}");
        eventually(|| second_turn(history.as_ref()));
        assert_shown(&rig, &["first", "second"], what);
    }
}

/// One append that is in its sync when those of five other sessions queue up behind it, and what each comes to.
fn append_in_two_groups(rig: &Rig, break_journal: impl FnOnce(&SimFile)) -> [Vec<Result<()>>; 2] {
    thread::scope(|scope| {
        let held = rig.journal().hold(DiskCall::Sync);
        let append = |number: usize| {
            let history = open(&rig.store, number);
            scope.spawn(move || history.append(row("more")))
        };
        let leader = append(0);
        held.wait_for(1);
        let followers: Vec<_> = (1..=5).map(append).collect();
        wait_for_stats(&rig.store, |stats| stats.queued_changes == 5);
        break_journal(&rig.journal());
        drop(held);
        [vec![leader], followers]
            .map(|group| group.into_iter().map(|it| it.join().unwrap()).collect())
    })
}

#[test]
fn all_that_queued_behind_a_failed_group_fails_with_it() {
    let rig = Rig::new();
    rig.disk.record();
    let results = append_in_two_groups(&rig, |journal| journal.fail_once(DiskCall::Sync, 1));
    for result in results.into_iter().flatten() {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Io);
    }
    assert_shown(&rig, &["first"], "a failed group");
    for number in 1..=5 {
        let history = open(&rig.store, number);
        assert!(history.read_session().unwrap().is_none());
        eventually(|| history.append(row("again")));
        assert_eq!(contents(&rig.store, number), ["again"]);
    }
}

#[test]
fn a_failed_group_takes_none_with_it_that_was_durable_before() {
    for (call, nth) in [(DiskCall::Sync, 2), (DiskCall::Write, 1)] {
        let rig = Rig::new();
        rig.disk.record();
        let [led, followed] = append_in_two_groups(&rig, |it| it.fail_once(call, nth));
        led.into_iter().for_each(Result::unwrap);
        for result in followed {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Io, "{call:?}");
        }
        assert_shown(&rig, &["first", "more"], "the group before it");
        for number in 1..=5 {
            let history = open(&rig.store, number);
            assert!(history.read_session().unwrap().is_none());
        }
    }
}

#[test]
fn a_turn_that_could_not_be_voided_is_whole_or_absent_and_the_store_goes_on() {
    for (what, break_journal) in FOR_GOOD {
        let rig = Rig::new();
        rig.disk.record();
        let history = open(&rig.store, 0);
        break_journal(&rig.journal());
        let error = second_turn(history.as_ref()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Indeterminate, "{what}: {error}");
        let health = rig.store.health();
        assert!(
            matches!(health, Health::Recovering { .. }),
            "{what}: {health:?}"
        );
        let whole_or_absent = |found: &[String]| found == ["first"] || found == ["first", "second"];
        let broken = [rig.disk.clone()].into_iter();
        let cuts = (0..12).map(|seed| rig.disk.power_cut(rig.disk.events(), seed));
        for left in broken.chain(cuts) {
            let found = found_after_kill(&left);
            assert!(whole_or_absent(&found), "{what}: {found:?}");
        }
        // While it is broken nothing more is taken, and nobody waits.
        for _ in 0..3 {
            let refused = at_once(|| open(&rig.store, 1).append(row("never"))).unwrap_err();
            assert!(is_refused_by_disk(&refused), "{what}: {refused}");
        }

        rig.disk.heal();
        let shown = texts(eventually(|| history.messages()));
        assert!(whole_or_absent(&shown), "{what}: {shown:?}");
        until_healthy(&rig.store);
        let shown: Vec<_> = shown.iter().map(String::as_str).collect();
        assert_shown(&rig, &shown, what);
        let retried = second_turn(history.as_ref());
        if shown.len() == 1 {
            retried.unwrap();
        } else {
            assert_eq!(retried.unwrap_err().kind(), ErrorKind::Stale, "{what}");
        }
        assert_shown(&rig, &["first", "second"], what);
        let other = open(&rig.store, 1);
        assert!(other.read_session().unwrap().is_none(), "{what}");
        other.append(row("at last")).unwrap();
        assert_eq!(contents(&rig.store, 1), ["at last"], "{what}");
    }
}

#[test]
fn a_process_that_ends_while_the_journal_is_broken_leaves_what_was_acknowledged() {
    for (what, break_journal) in FOR_GOOD {
        let rig = Rig::new();
        rig.append("second");
        break_journal(&rig.journal());
        let history = open(&rig.store, 0);
        assert!(history.append(row("third")).is_err(), "{what}");
        let Rig { disk, store } = rig;
        at_once(|| drop((store, history)));
        disk.heal();
        let found = found_after_kill(&disk);
        assert_eq!(found[..2], ["first", "second"], "{what}");
        assert!(found[2..].is_empty() || found[2..] == ["third"], "{what}");
    }
}

#[test]
fn a_journal_that_cannot_be_begun_takes_nothing_and_begins_once_it_can() {
    for nth in 1..=3 {
        for call in [DiskCall::Write, DiskCall::Sync, DiskCall::SetLen] {
            let disk = SimDisk::new();
            let store = disk.open(at_rest(Store::builder())).unwrap();
            let history = open(&store, 0);
            disk.file(StoreFile::Journal).fail_from(call, nth);
            let result = history.append(row("first"));
            let struck = disk.failures() > 0;
            assert!(struck || result.is_ok(), "{call:?} {nth}: {result:?}");
            let found = SimDisk::with_image(disk.image());
            let found = found.open(at_rest(Store::builder())).unwrap();
            let found = open(&found, 0).read_session().unwrap();
            assert!(result.is_err() || found.is_some(), "{call:?} {nth}");
            disk.heal();
            let shown = eventually(|| history.read_session()).is_some();
            assert!(result.is_err() || shown, "{call:?} {nth}");
            if let Err(error) = result {
                let uncertain = error.kind() == ErrorKind::Indeterminate;
                assert!(uncertain || is_refused_by_disk(&error), "{error}");
                assert!(uncertain || !shown, "{call:?} {nth}: it was refused");
            }
            eventually(|| history.append(row("again")));
            let expected: &[&str] = if shown {
                &["first", "again"]
            } else {
                &["again"]
            };
            assert_eq!(contents(&store, 0), expected, "{call:?} {nth}");
            assert_eq!(found_after_kill(&disk), expected, "{call:?} {nth}");
        }
    }
}

#[test]
fn a_journal_that_cannot_be_read_is_an_error_and_is_recovered_once_it_can() {
    let rig = Rig::new();
    rig.append("second");
    let image = rig.disk.image();
    let disk = SimDisk::with_image(image.clone());
    disk.file(StoreFile::Journal).fail_from(DiskCall::Read, 1);
    let error = disk.open(at_rest(Store::builder())).unwrap_err();
    assert!(is_refused_by_disk(&error), "{error}");
    disk.heal();
    assert_eq!(found_after_kill(&disk), ["first", "second"]);
}

#[test]
fn an_eventual_store_whose_sync_failed_takes_the_next_turn() {
    let eventual = at_rest(Store::builder()).durability(Durability::Eventual);
    let rig = Rig::with(eventual);
    rig.append("second");
    rig.journal().fail_once(DiskCall::Sync, 1);
    drop(rig.store.checkpoint());
    assert_eq!(rig.journal().failures(), 1);
    until_healthy(&rig.store);
    rig.append("third");
    let expected = ["first", "second", "third"];
    assert_eq!(contents(&rig.store, 0), expected);
    assert_eq!(found_after_kill(&rig.disk), expected);
}

#[test]
fn a_journal_that_cannot_be_synced_keeps_no_eventual_turn_from_becoming_durable() {
    let eventual = at_rest(Store::builder()).durability(Durability::Eventual);
    let rig = Rig::with(eventual);
    rig.disk.record();
    rig.append("second");
    rig.journal().fail_from(DiskCall::Sync, 1);
    eventually(|| rig.store.checkpoint());
    assert!(rig.journal().failures() > 0);
    for seed in 0..8 {
        let left = rig.disk.power_cut(rig.disk.events(), seed);
        let store = left.open(at_rest(Store::builder())).unwrap();
        assert_eq!(contents(&store, 0), ["first", "second"], "seed {seed}");
    }
}

#[test]
fn a_store_that_says_it_is_well_takes_a_turn() {
    let disk = SimDisk::new();
    let store = disk.open(at_rest(Store::builder())).unwrap();
    disk.file(StoreFile::Journal).fail_once(DiskCall::SetLen, 1);
    let refused = open(&store, 0).append(row("first")).unwrap_err();
    assert!(is_refused_by_disk(&refused), "{refused}");
    until_healthy(&store);
    open(&store, 0).append(row("first")).unwrap();
    assert_eq!(contents(&store, 0), ["first"]);
}
