//! What a write costs on each file, and that reads do not wait for the database.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use transcript_redb::testkit::DiskCall;
use transcript_redb::{AppendRows, Durability, Store, TranscriptLocator};

use crate::rig::{
    Rig, at_rest, contents, costs, found_after_kill, less, open, row, rows_in_the_database,
    session, wait_until,
};
use crate::support::picture::picture;
use crate::support::values::usage;

/// Appends a row by its token and reads it, so that it is applied as well.
fn append_by_token(rig: &Rig, text: &str) {
    let rows = [row(text)];
    let usage = usage(10);
    let rows = AppendRows {
        rows: &rows,
        usage: Some(&usage),
        ..AppendRows::default()
    };
    let token = rig.head();
    rig.store.append_rows(&session(0), &token, rows).unwrap();
    assert_eq!(contents(&rig.store, 0).last().unwrap(), text);
}

#[test]
fn a_lone_append_is_one_write_and_one_sync_of_the_journal_and_nothing_of_the_database() {
    let rig = Rig::new();
    let (journal, database) = (rig.journal(), rig.database());
    // Growing in memory, the database may take room in its file.
    let touched = || [DiskCall::Write, DiskCall::Sync].map(|call| database.calls(call));
    let untouched = touched();
    for number in 0..50 {
        let before = costs(&journal);
        append_by_token(&rig, &format!("{number}"));
        assert_eq!(less(costs(&journal), before), [1, 1, 0], "append {number}");
        assert_eq!(touched(), untouched, "append {number}");
    }
    rig.store.checkpoint().unwrap();
    assert!(database.calls(DiskCall::Sync) > untouched[1]);
}

#[test]
fn turns_that_gather_behind_a_sync_share_the_next_one() {
    let rig = Rig::new();
    let before = costs(&rig.journal());
    thread::scope(|scope| {
        let held = rig.journal().hold(DiskCall::Sync);
        scope.spawn(|| rig.append("led"));
        held.wait_for(1);
        for number in 1..=63 {
            let history = open(&rig.store, number);
            scope.spawn(move || history.append(row("followed")).unwrap());
        }
        wait_until(|| rig.store.stats().unwrap().queued_changes == 63);
        drop(held);
    });
    assert_eq!(less(costs(&rig.journal()), before), [2, 2, 0]);
}

#[test]
fn reads_show_at_once_what_was_acknowledged_while_the_database_takes_its_time() {
    let rig = Rig::new();
    let history = open(&rig.store, 0);
    let held = rig.database().hold(DiskCall::Sync);
    let mut expected = vec!["first".to_owned()];
    for number in 0..40 {
        let text = format!("{number}");
        let turn = row(&text).with_turn_usage(usage(10));
        history.append(turn).unwrap();
        open(&rig.store, 1 + number).append(row("alone")).unwrap();
        expected.push(text);
        assert_eq!(contents(&rig.store, 0), expected);
        assert_eq!(contents(&rig.store, 1 + number), ["alone"]);
        let locator = rig.store.locator();
        let spend = locator.thread_spend("thread").unwrap();
        assert_eq!(spend.root.turns, number + 1);
        let listed = locator.thread_transcripts("thread", None).unwrap();
        assert_eq!(listed.roots.len(), number + 2);
        let newest = locator.root_for_thread("thread").unwrap().unwrap();
        assert_eq!(newest.stem(), session(1 + number).session_id());
        let records = rig.store.records(&session(0)).unwrap();
        let record = records.last().unwrap().unwrap();
        assert_eq!(rig.head().seq, record.seq + 1);
        assert_eq!(rig.store.record(record.uuid).unwrap(), Some(record));
        assert_eq!(rig.store.sessions().unwrap().len(), number + 2);
    }
    picture(&rig.store, &["thread"], &[history.stem()]).unwrap();
    drop(held);
}

#[test]
fn a_checkpoint_makes_all_that_was_acknowledged_durable_in_the_database_itself() {
    let rig = Rig::new();
    rig.disk.record();
    for round in 1..=4 {
        for number in 0..10 {
            rig.append(&format!("{round} {number}"));
        }
        rig.store.checkpoint().unwrap();
        for seed in 0..4 {
            let left = rig.disk.power_cut(rig.disk.events(), seed);
            assert_eq!(rows_in_the_database(&left), 1 + 10 * round, "seed {seed}");
        }
    }
}

#[test]
fn a_checkpoint_comes_by_itself_after_its_interval_or_its_bytes() {
    let hurried = [
        at_rest(Store::builder()).checkpoint_interval(Duration::from_millis(1)),
        at_rest(Store::builder()).checkpoint_bytes(1),
    ];
    for builder in hurried {
        let rig = Rig::with(builder);
        rig.disk.record();
        rig.append("second");
        wait_until(|| {
            let left = rig.disk.power_cut(rig.disk.events(), 1);
            rows_in_the_database(&left) == 2
        });
    }
}

#[test]
fn a_full_journal_holds_writers_back_until_the_database_takes_what_is_in_it() {
    const ROW: usize = 64 << 10;
    const ROWS: usize = 192;
    const FULL: usize = 8 << 20;
    let rig = Rig::new();
    let taken = AtomicUsize::new(0);
    let text = |number: usize| format!("{number} {}", "x".repeat(ROW));
    thread::scope(|scope| {
        let held = rig.database().hold(DiskCall::Sync);
        let history = open(&rig.store, 0);
        let writer = scope.spawn(|| {
            let history = history;
            for number in 0..ROWS {
                history.append(row(text(number))).unwrap();
                taken.fetch_add(1, Ordering::Relaxed);
            }
        });
        held.wait_for(1);
        // It is held back when it stands still.
        let (mut seen, mut since) = (0, Instant::now());
        wait_until(|| {
            let now = taken.load(Ordering::Relaxed);
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
            since.elapsed() > Duration::from_millis(500)
        });
        assert!(!writer.is_finished(), "nothing holds it back");
        assert!(seen * ROW >= FULL / 2, "{seen} rows are no full journal");
        assert!(seen * ROW <= FULL, "{seen} rows are more than fit");
        let image = rig.disk.image();
        assert!(image.journal().len() <= FULL + (64 << 10));
        let found = found_after_kill(&rig.disk);
        assert!(found.len() > seen, "all that was acknowledged is found");
        drop(held);
    });
    let expected = (0..ROWS).map(text);
    let expected: Vec<_> = ["first".to_owned()].into_iter().chain(expected).collect();
    assert!(contents(&rig.store, 0) == expected);
    assert!(found_after_kill(&rig.disk) == expected);
    assert!(rig.disk.image().journal().len() <= FULL + (64 << 10));
}

#[test]
fn eventual_turns_sync_nothing_and_a_checkpoint_makes_them_durable() {
    let rig = Rig::with(at_rest(Store::builder().durability(Durability::Eventual)));
    let (journal, database) = (rig.journal(), rig.database());
    let before = [
        journal.calls(DiskCall::Sync),
        database.calls(DiskCall::Sync),
    ];
    for number in 0..50 {
        append_by_token(&rig, &format!("{number}"));
    }
    let after = [
        journal.calls(DiskCall::Sync),
        database.calls(DiskCall::Sync),
    ];
    assert_eq!(after, before);
    rig.disk.record();
    rig.append("last");
    rig.store.checkpoint().unwrap();
    for seed in 0..8 {
        let left = rig.disk.power_cut(rig.disk.events(), seed);
        let found = found_after_kill(&left);
        assert_eq!(found.len(), 52, "seed {seed}");
        assert_eq!(found.last().unwrap(), "last", "seed {seed}");
    }
}
