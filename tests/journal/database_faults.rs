//! A database that fails while the journal works: what was acknowledged is never lost, reads never show less, and nobody
//! waits for a disk that has failed.

use std::thread;

use transcript_redb::testkit::DiskCall;
use transcript_redb::{Health, Result, Store, StoreFile};

use crate::rig::{
    Rig, at_once, at_rest, contents, costs, eventually, found_after_kill, is_refused_by_disk, open,
    row, rows_in_the_database, texts, until_healthy,
};

/// Large enough to make the database grow.
fn text(number: usize) -> String {
    format!("{number} {}", "x".repeat(150 << 10))
}

#[track_caller]
fn assert_refused<T>(result: Result<T>, what: &str) {
    match result {
        Ok(_) => panic!("{what}: it succeeds"),
        Err(error) => assert!(is_refused_by_disk(&error), "{what}: {error}"),
    }
}

#[test]
fn a_database_that_takes_nothing_loses_no_turn_and_answers_at_once() {
    let calls = [
        DiskCall::Write,
        DiskCall::Sync,
        DiskCall::SetLen,
        DiskCall::Read,
    ];
    for (call, cache) in calls.into_iter().flat_map(|it| [(it, 64 << 20), (it, 0)]) {
        let what = format!("{call:?}, {cache} bytes of cache");
        let rig = Rig::with(at_rest(Store::builder()).cache_bytes(cache));
        let (history, database) = (open(&rig.store, 0), rig.database());
        let mut expected = vec!["first".to_owned()];
        let append = |text: String, expected: &mut Vec<String>| {
            let result = at_once(|| history.append(row(&text)));
            match &result {
                Ok(()) => expected.push(text),
                Err(error) => assert!(is_refused_by_disk(error), "{what}: {error}"),
            }
            result
        };
        for number in 0..10 {
            append(text(number), &mut expected).unwrap();
        }
        database.fail_from(call, 1);
        for number in 10..40 {
            drop(append(text(number), &mut expected));
        }
        // A disk that cannot be read or is full may still take a checkpoint.
        let takes_nothing = matches!(call, DiskCall::Write | DiskCall::Sync);
        let checkpoint = at_once(|| rig.store.checkpoint());
        if takes_nothing {
            assert_refused(checkpoint, &what);
            assert!(database.failures() > 0, "{what}");
            assert!(
                matches!(rig.store.health(), Health::Recovering { .. }),
                "{what}"
            );
        } else if let Err(error) = checkpoint {
            assert!(is_refused_by_disk(&error), "{what}: {error}");
        }
        for _ in 0..5 {
            let before = costs(&rig.journal());
            let result = append("late".to_owned(), &mut expected);
            if takes_nothing {
                assert_refused(result, &what);
                assert_eq!(costs(&rig.journal()), before, "{what}: the journal took it");
            }
            match at_once(|| history.messages()) {
                Ok(rows) => assert!(texts(rows) == expected, "{what}"),
                Err(error) => assert!(is_refused_by_disk(&error), "{what}: {error}"),
            }
        }
        assert!(found_after_kill(&rig.disk) == expected, "{what}, killed");

        rig.disk.heal();
        let shown = texts(eventually(|| history.messages()));
        assert!(shown == expected, "{what}, healed");
        until_healthy(&rig.store);
        append("after".to_owned(), &mut expected).unwrap();
        assert!(contents(&rig.store, 0) == expected, "{what}, going on");
        rig.store.checkpoint().unwrap();
        assert!(found_after_kill(&rig.disk) == expected, "{what}, killed");
        let rows = rows_in_the_database(&rig.disk);
        assert_eq!(rows, expected.len() as u64, "{what}");
        let disk = rig.disk.clone();
        drop((rig.store, history));
        assert!(disk.image().journal().is_empty(), "{what}");
        assert!(found_after_kill(&disk) == expected, "{what}, closed");
    }
}

#[test]
fn a_close_whose_checkpoint_fails_leaves_the_journal_in_force() {
    for call in [DiskCall::Write, DiskCall::Sync] {
        for nth in 1..=4 {
            let rig = Rig::new();
            rig.append("second");
            let Rig { disk, store } = rig;
            disk.file(StoreFile::Database).fail_from(call, nth);
            at_once(|| drop(store));
            disk.heal();
            let found = found_after_kill(&disk);
            assert_eq!(found, ["first", "second"], "{call:?} {nth}");
        }
    }
}

#[test]
fn a_checkpoint_that_fails_once_is_made_up_for() {
    for call in [DiskCall::Sync, DiskCall::Write] {
        for nth in 1.. {
            let what = format!("{call:?} {nth}");
            let rig = Rig::new();
            let expected = ["first", "second", "third"];
            rig.append("second");
            rig.disk.record();
            rig.append("third");
            rig.database().fail_once(call, nth);
            let result = rig.store.checkpoint();
            if rig.disk.failures() == 0 {
                result.unwrap();
                assert!(nth > 1, "a checkpoint makes such calls");
                break;
            }
            if let Err(error) = result {
                assert!(is_refused_by_disk(&error), "{what}: {error}");
            }
            let cut = |seed| rig.disk.power_cut(rig.disk.events(), seed);
            for seed in 0..4 {
                assert_eq!(found_after_kill(&cut(seed)), expected, "{what}, cut");
            }
            let history = open(&rig.store, 0);
            let shown = texts(eventually(|| history.messages()));
            assert_eq!(shown, expected, "{what}");
            eventually(|| rig.store.checkpoint());
            for seed in 0..4 {
                assert_eq!(rows_in_the_database(&cut(seed)), 3, "{what}, made up");
                assert_eq!(found_after_kill(&cut(seed)), expected, "{what}, cut");
            }
        }
    }
}

#[test]
fn turns_go_on_while_a_checkpoint_waits_for_the_disk() {
    let rig = Rig::new();
    let mut expected = vec!["first".to_owned()];
    thread::scope(|scope| {
        let held = rig.database().hold(DiskCall::Sync);
        let checkpoint = scope.spawn(|| rig.store.checkpoint());
        held.wait_for(1);
        assert_eq!(contents(&rig.store, 0), expected, "a read does not wait");
        for number in 0..20 {
            let text = format!("{number}");
            rig.append(&text);
            expected.push(text);
            assert_eq!(found_after_kill(&rig.disk), expected);
        }
        assert!(!checkpoint.is_finished());
        drop(held);
        checkpoint.join().unwrap().unwrap();
    });
    assert_eq!(contents(&rig.store, 0), expected);
    assert_eq!(found_after_kill(&rig.disk), expected);
}
