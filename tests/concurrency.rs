//! Many callers at once: how their changes share commits, what they wait for, and that none disturbs another. What each
//! may see and lose is the contract's, and checked there for every store.
//!
//! `CONCURRENCY_ROUNDS` sets how often the races are run.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod support {
    pub mod picture;
    pub mod values;
}

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use redb::TableDefinition;
use serde_json::json;
use support::picture::picture;
use support::values::{meta, usage};
use transcript_redb::testkit::{DiskCall, DiskImage, SimDisk};
use transcript_redb::{
    AppendRows, BackgroundAppend, BackgroundAppendOutcome, DisplayRecord, Environment, ErrorKind,
    Health, Result, SessionRef, Stats, Store, StoreFile, TranscriptHistory, TranscriptLocator,
    TranscriptMessage, TranscriptMeta, TranscriptTurn,
};

fn rounds(default: usize) -> usize {
    std::env::var("CONCURRENCY_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

fn row(text: impl Into<String>) -> TranscriptMessage {
    TranscriptMessage::user(text)
}

fn open(store: &Store, session: &SessionRef) -> Arc<dyn TranscriptHistory> {
    let locator = store.locator();
    locator
        .open_session(session, meta("agent", "thread"))
        .unwrap()
}

/// A session of its own for each number.
fn session(number: usize) -> SessionRef {
    SessionRef::root(format!("session {number}"))
}

fn contents(history: &dyn TranscriptHistory) -> Vec<String> {
    let rows = history.messages().unwrap();
    rows.into_iter().map(|row| row.content).collect()
}

/// Waits until the store's numbers are as `fits` wants them.
fn wait_until(store: &Store, fits: impl Fn(&Stats) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let stats = store.stats().unwrap();
        if fits(&stats) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "it never comes to that: {stats:?}"
        );
        thread::yield_now();
    }
}

/// Runs `work` with its number on so many threads, all started at once, and answers what they answer.
fn at_once<T: Send>(threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(threads);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|number| {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || {
                    barrier.wait();
                    work(number)
                })
            })
            .collect();
        running.into_iter().map(|it| it.join().unwrap()).collect()
    })
}

/// A store on a simulated disk whose sessions 0 to `sessions` have one row each.
fn written(sessions: usize) -> (SimDisk, Store, Vec<Arc<dyn TranscriptHistory>>) {
    let disk = SimDisk::new();
    let store = disk.open(Store::builder()).unwrap();
    let histories = (0..sessions)
        .map(|number| {
            let history = open(&store, &session(number));
            history.append(row("first")).unwrap();
            history
        })
        .collect();
    (disk, store, histories)
}

// --- Groups ---

#[test]
fn changes_that_arrive_during_a_commit_share_the_next_one() {
    let (disk, store, histories) = written(64);
    let journal = disk.file(StoreFile::Journal);
    let before = journal.calls(DiskCall::Sync);
    thread::scope(|scope| {
        let held = journal.hold(DiskCall::Sync);
        scope.spawn(|| histories[0].append(row("second")).unwrap());
        held.wait_for(1);
        for history in &histories[1..] {
            scope.spawn(|| history.append(row("second")).unwrap());
        }
        wait_until(&store, |stats| stats.queued_changes == 63);
        drop(held);
    });
    // Two groups of one sync each.
    assert_eq!(journal.calls(DiskCall::Sync) - before, 2);
    for history in &histories {
        assert_eq!(contents(history.as_ref()), ["first", "second"]);
    }
}

#[test]
fn sixty_four_sessions_lose_nothing_and_need_no_more_than_a_sync_a_turn() {
    const TURNS: usize = 8;
    let (disk, store, _) = written(64);
    let journal = disk.file(StoreFile::Journal);
    let before = journal.calls(DiskCall::Sync);
    at_once(64, |number| {
        let session = session(number);
        let mut token = store.head(&session).unwrap().unwrap();
        for turn in 0..TURNS {
            let rows = [row(format!("{turn}")), TranscriptMessage::assistant("yes")];
            let usage = usage(10);
            let rows = AppendRows {
                rows: &rows,
                usage: Some(&usage),
                ..AppendRows::default()
            };
            token = store.append_rows(&session, &token, rows).unwrap();
        }
    });
    // The syncs of this disk take no time, so that little gathers behind them.
    let syncs = journal.calls(DiskCall::Sync) - before;
    let turns = 64 * TURNS as u64;
    assert!(syncs <= turns, "{syncs} syncs for {turns} turns");
    for number in 0..64 {
        let expected = (0..TURNS).flat_map(|turn| [format!("{turn}"), "yes".to_owned()]);
        let expected: Vec<_> = ["first".to_owned()].into_iter().chain(expected).collect();
        assert_eq!(contents(open(&store, &session(number)).as_ref()), expected);
    }
    let spend = store.locator().thread_spend("thread").unwrap();
    assert_eq!(spend.root.turns, 64 * TURNS);
    assert_eq!(spend.root.input_tokens, 640 * TURNS as u64);
}

#[test]
fn one_session_takes_the_rows_of_sixty_four_threads_each_in_its_order() {
    const ROWS: usize = 6;
    let (_disk, store, histories) = written(1);
    at_once(64, |thread| {
        for number in 0..ROWS {
            histories[0]
                .append(row(format!("{thread} {number}")))
                .unwrap();
        }
    });
    let stored = contents(histories[0].as_ref());
    assert_eq!(stored.len(), 1 + 64 * ROWS);
    for thread in 0..64 {
        let own: Vec<_> = stored
            .iter()
            .filter(|content| content.starts_with(&format!("{thread} ")))
            .cloned()
            .collect();
        let expected: Vec<_> = (0..ROWS)
            .map(|number| format!("{thread} {number}"))
            .collect();
        assert_eq!(own, expected);
    }
    picture(&store, &["thread"], &[]).unwrap();
}

#[test]
fn a_full_queue_holds_callers_back_until_there_is_room() {
    const LARGE: usize = 4 << 20;
    let (disk, store, histories) = written(12);
    thread::scope(|scope| {
        let held = disk.hold(DiskCall::Sync);
        let append = |number: usize| {
            let history = &histories[number];
            scope.spawn(move || history.append(row("x".repeat(LARGE))).unwrap())
        };
        append(0);
        held.wait_for(1);
        let mut taken = 1;
        while store.stats().unwrap().waiting_calls == 0 {
            assert!(taken < 12, "the queue takes everything");
            append(taken);
            wait_until(&store, |stats| {
                stats.queued_changes == taken || stats.waiting_calls == 1
            });
            taken += 1;
        }
        let full = store.stats().unwrap();
        assert!(full.queued_bytes >= 32 << 20, "{full:?}");
        assert!(full.queued_bytes < (32 << 20) + 2 * LARGE, "{full:?}");
        for number in taken..12 {
            append(number);
        }
        wait_until(&store, |stats| stats.waiting_calls == 12 - taken + 1);
        assert_eq!(store.stats().unwrap().queued_bytes, full.queued_bytes);
        drop(held);
    });
    for history in &histories {
        assert_eq!(history.messages().unwrap().len(), 2);
    }
    let idle = store.stats().unwrap();
    assert_eq!(
        (idle.queued_changes, idle.queued_bytes, idle.waiting_calls),
        (0, 0, 0)
    );
}

// --- What is seen and answered while a commit is under way ---

#[test]
fn nothing_of_a_turn_is_seen_before_it_is_durable() {
    for call in [DiskCall::Write, DiskCall::Sync] {
        let (disk, store, histories) = written(1);
        let (history, session) = (&histories[0], session(0));
        let before = picture(&store, &["thread"], &[history.stem()]).unwrap();
        thread::scope(|scope| {
            let held = disk.file(StoreFile::Journal).hold(call);
            let writer = scope.spawn(|| {
                let prev = history.messages().unwrap();
                let next = [prev.clone(), vec![TranscriptMessage::assistant("second")]].concat();
                let (meta, usage) = (meta("agent", "thread").with_turn_count(2), usage(10));
                let turn = TranscriptTurn::new(&prev, &next, &meta).with_turn_usage(&usage);
                history.append_turn(turn).unwrap();
            });
            held.wait_for(1);
            assert_eq!(
                picture(&store, &["thread"], &[history.stem()]).unwrap(),
                before,
                "{call:?}"
            );
            assert_eq!(store.head(&session).unwrap().unwrap().seq, 1);
            drop(held);
            writer.join().unwrap();
        });
        assert_eq!(contents(history.as_ref()), ["first", "second"]);
    }
}

/// Lets `first` come to its sync, then starts `second`, which has to wait for it, and lets the disk go on after `then`.
/// Answers what both came to.
fn overlap<A: Send, B: Send>(
    (disk, store): (&SimDisk, &Store),
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B + Send,
    then: impl FnOnce(),
) -> (A, B) {
    thread::scope(|scope| {
        let held = disk.hold(DiskCall::Sync);
        let first = scope.spawn(first);
        held.wait_for(1);
        let (answer, answered) = mpsc::channel();
        let second = scope.spawn(move || answer.send(second()).unwrap());
        wait_until(store, |stats| stats.waiting_calls == 1);
        assert!(answered.try_recv().is_err(), "it is answered too early");
        then();
        drop(held);
        second.join().unwrap();
        (first.join().unwrap(), answered.recv().unwrap())
    })
}

fn append_background(store: &Store, key: &str) -> Result<BackgroundAppendOutcome> {
    let append = BackgroundAppend::new(key, json!(null));
    let row = TranscriptMessage::assistant("news");
    store.locator().append_background(&session(0), row, &append)
}

#[test]
fn an_answer_that_rests_on_a_change_waits_until_that_is_durable() {
    use BackgroundAppendOutcome::{Appended, Duplicate};
    let (disk, store, histories) = written(1);
    let history = &histories[0];

    let (first, second) = overlap(
        (&disk, &store),
        || append_background(&store, "key"),
        || append_background(&store, "key"),
        || (),
    );
    assert_eq!(first.unwrap(), Appended { generation: 0 });
    assert_eq!(second.unwrap(), Duplicate { generation: 0 });

    let prev = history.messages().unwrap();
    let next = [prev.clone(), vec![row("mine")]].concat();
    let meta = meta("agent", "thread");
    let (first, second) = overlap(
        (&disk, &store),
        || history.append(row("theirs")),
        || history.append_turn(TranscriptTurn::new(&prev, &next, &meta)),
        || (),
    );
    first.unwrap();
    assert_eq!(second.unwrap_err().kind(), ErrorKind::Stale);

    let locator = store.locator();
    let (_, successor) = locator.begin_generation(&session(0), meta.clone()).unwrap();
    let (first, second) = overlap(
        (&disk, &store),
        || successor.append(row("next")),
        || {
            locator
                .begin_generation(&session(0), meta.clone())
                .map(drop)
        },
        || (),
    );
    first.unwrap();
    assert_eq!(second.unwrap_err().kind(), ErrorKind::GenerationExists);
}

#[test]
fn an_answer_that_rests_on_a_change_that_failed_is_found_anew() {
    let (disk, store, _) = written(1);
    let (first, second) = overlap(
        (&disk, &store),
        || append_background(&store, "key"),
        || append_background(&store, "key"),
        || disk.fail_once(DiskCall::Sync, 1),
    );
    assert_eq!(first.unwrap_err().kind(), ErrorKind::Io);
    let appended = BackgroundAppendOutcome::Appended { generation: 0 };
    assert_eq!(second.unwrap(), appended);
}

// --- Nobody disturbs another ---

#[test]
fn a_refused_call_disturbs_nobody_that_shares_its_commit() {
    let (disk, store, histories) = written(8);
    let stale = [row("somebody else's")];
    let meta = meta("agent", "thread");
    let results: Vec<_> = thread::scope(|scope| {
        let held = disk.hold(DiskCall::Sync);
        let leader = scope.spawn(|| histories[0].append(row("second")));
        held.wait_for(1);
        let others: Vec<_> = histories[1..]
            .iter()
            .enumerate()
            .map(|(number, history)| {
                let (stale, meta) = (&stale, &meta);
                scope.spawn(move || match number % 3 {
                    0 => history.append_turn(TranscriptTurn::new(stale, stale, meta)),
                    1 => history.append(TranscriptMessage::user("x").with_turn_usage(
                        transcript_redb::TurnUsage {
                            usage: transcript_redb::MessageUsage {
                                cost_usd: f64::NAN,
                                ..Default::default()
                            },
                            ..Default::default()
                        },
                    )),
                    _ => history.append(row("second")),
                })
            })
            .collect();
        wait_until(&store, |stats| stats.queued_changes == 2);
        drop(held);
        [leader]
            .into_iter()
            .chain(others)
            .map(|it| it.join().unwrap())
            .collect()
    });
    for (number, result) in results.into_iter().enumerate() {
        let rows = contents(histories[number].as_ref());
        match number {
            0 | 3 | 6 => {
                result.unwrap();
                assert_eq!(rows, ["first", "second"]);
            }
            1 | 4 | 7 => {
                assert_eq!(result.unwrap_err().kind(), ErrorKind::Stale);
                assert_eq!(rows, ["first"]);
            }
            _ => {
                assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidMessage);
                assert_eq!(rows, ["first"]);
            }
        }
    }
}

/// Damages the totals that the store keeps of its only spend, so that nothing can be added to them.
fn with_damaged_totals(image: &DiskImage) -> SimDisk {
    const TOTALS: TableDefinition<'_, (u64, u64, u64, u64, u8), &[u8]> =
        TableDefinition::new("spend_by_transcript");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    std::fs::write(&path, image.database()).unwrap();
    let database = redb::Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut table = transaction.open_table(TOTALS).unwrap();
        let key = table.pop_first().unwrap().expect("one total").0.value();
        table.insert(key, b"damaged".as_slice()).unwrap();
    }
    transaction.commit().unwrap();
    drop(database);
    let damaged = std::fs::read(&path).unwrap();
    SimDisk::with_image(DiskImage::new(damaged, image.journal().to_vec()))
}

#[test]
fn a_turn_that_damage_keeps_from_the_tables_is_never_skipped_and_fails_the_store() {
    let (disk, store, histories) = written(2);
    let spent = || row("spent").with_turn_usage(usage(10));
    histories[0].append(spent()).unwrap();
    drop((store, histories));
    let disk = with_damaged_totals(&disk.image());
    let store = disk.open(Store::builder()).unwrap();
    open(&store, &session(1)).append(row("second")).unwrap();
    assert_eq!(
        contents(open(&store, &session(1)).as_ref()),
        ["first", "second"]
    );

    store.checkpoint().unwrap();

    // Nothing of the damage is met before the tables are filled.
    open(&store, &session(0)).append(spent()).unwrap();
    let killed = SimDisk::with_image(disk.image());
    let reopened = killed.open(Store::builder()).unwrap();
    for store in [&store, &reopened] {
        let damaged = open(store, &session(0));
        let error = damaged.messages().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupted, "{error}");
        assert!(error.to_string().contains("applying change"), "{error}");
        assert!(matches!(store.health(), Health::Failed { .. }));
        for number in 0..2 {
            let error = open(store, &session(number)).append(spent()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupted, "{error}");
        }
        let lists = [
            store.sessions().map(drop),
            store.locator().thread_spend("thread").map(drop),
        ];
        for list in lists {
            assert_eq!(list.unwrap_err().kind(), ErrorKind::Corrupted);
        }
        // What it does not concern is read.
        let other = open(store, &session(1));
        assert_eq!(contents(other.as_ref()), ["first", "second"]);
    }
    drop(store);
    assert!(!disk.image().journal().is_empty(), "the turn is kept");
}

/// An environment whose clock panics for whoever looks at it while it is armed.
#[derive(Debug)]
struct Panicking(AtomicBool);

impl Environment for Panicking {
    fn now_micros(&self) -> i64 {
        assert!(!self.0.load(Ordering::Relaxed), "the clock panics");
        1_796_000_000_000_000
    }

    fn random(&self) -> u128 {
        7
    }
}

#[test]
fn a_panic_in_the_thread_of_a_caller_harms_only_that_call() {
    let clock = Arc::new(Panicking(AtomicBool::new(false)));
    let store = Store::builder()
        .environment(Arc::clone(&clock) as Arc<dyn Environment>)
        .in_memory()
        .unwrap();
    let history = open(&store, &session(0));
    history.append(row("first")).unwrap();
    clock.0.store(true, Ordering::Relaxed);
    let calls: [&dyn Fn(); 4] = [
        &|| drop(history.append(row("never"))),
        &|| drop(history.replace(&[row("never")])),
        &|| drop(append_background(&store, "key")),
        &|| {
            drop(
                store
                    .locator()
                    .begin_generation(&session(0), TranscriptMeta::new("agent")),
            );
        },
    ];
    for (number, call) in calls.iter().enumerate() {
        assert!(
            catch_unwind(AssertUnwindSafe(call)).is_err(),
            "call {number} panics"
        );
    }
    clock.0.store(false, Ordering::Relaxed);
    history.append(row("second")).unwrap();
    assert_eq!(contents(history.as_ref()), ["first", "second"]);
}

#[test]
fn a_store_that_is_dropped_while_others_write_closes_behind_them() {
    let (disk, store, histories) = written(8);
    let barrier = Barrier::new(9);
    thread::scope(|scope| {
        for history in histories {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                for number in 0..20 {
                    history.append(row(format!("{number}"))).unwrap();
                }
            });
        }
        barrier.wait();
        drop(store);
    });
    let store = disk.open(Store::builder().read_only(true)).unwrap();
    for number in 0..8 {
        assert_eq!(contents(open(&store, &session(number)).as_ref()).len(), 21);
    }
}

// --- Races of one session ---

#[test]
fn threads_that_share_the_handle_of_a_begun_generation_all_write_it() {
    let (disk, store, _) = written(1);
    let locator = store.locator();
    let (next, handle) = locator
        .begin_generation(&session(0), meta("agent", "thread"))
        .unwrap();
    thread::scope(|scope| {
        let held = disk.hold(DiskCall::Sync);
        let first = scope.spawn(|| handle.append(row("one")));
        held.wait_for(1);
        let second = scope.spawn(|| handle.append(row("two")));
        wait_until(&store, |stats| {
            stats.queued_changes + stats.waiting_calls == 1
        });
        drop(held);
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
    });
    assert_eq!(contents(open(&store, &next).as_ref()), ["one", "two"]);
}

#[test]
fn a_slot_is_free_once_its_handle_is_dropped_whoever_was_looking_at_it() {
    let (_disk, store, histories) = written(1);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let refused = histories[0].append(row("between")).err();
                    assert!(refused.is_none_or(|error| error.kind() == ErrorKind::Sealed));
                }
            });
        }
        let locator = store.locator();
        for _ in 0..rounds(200) {
            let begun = locator.begin_generation(&session(0), meta("agent", "thread"));
            drop(begun.map_err(|error| {
                done.store(true, Ordering::Relaxed);
                panic!("{error}");
            }));
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// The contents of every row of a session, whichever generation first stored it.
fn stored(store: &Store, session: &SessionRef) -> BTreeSet<String> {
    let locator = store.locator();
    let mut found = BTreeSet::new();
    for generation in locator.session_chain(session).unwrap() {
        let display = open(store, &generation).read_display().unwrap().unwrap();
        for record in display.records {
            let rows = match record {
                DisplayRecord::Message(row) => vec![*row],
                DisplayRecord::Compaction(marker) => marker.replacement,
            };
            found.extend(rows.into_iter().map(|row| row.message.content));
        }
    }
    found
}

/// Extends, compacts, appends in the background and begins generations from many threads; answers what was
/// acknowledged and what was refused.
fn race(store: &Store, threads: usize, calls: usize) -> (BTreeSet<String>, BTreeSet<String>) {
    let session = session(0);
    let results: Vec<(String, Result<()>)> = at_once(threads, |thread| {
        let locator = store.locator();
        let mut results = Vec::new();
        for call in 0..calls {
            let text = format!("{thread} {call}");
            let head = locator.head_generation(&session).unwrap();
            let history = open(store, &head);
            let meta = meta("agent", "thread").with_turn_count(call);
            let result = match (thread + call) % 5 {
                0 => history.append(row(&text)),
                1 => {
                    let append = BackgroundAppend::new(&text, json!(null));
                    let row = TranscriptMessage::assistant(&text);
                    locator.append_background(&session, row, &append).map(drop)
                }
                2 => {
                    let prev = history.messages().unwrap();
                    let next = [prev.clone(), vec![row(&text)]].concat();
                    history.append_turn(TranscriptTurn::new(&prev, &next, &meta))
                }
                3 => {
                    let prev = history.messages().unwrap();
                    let kept = prev.len().saturating_sub(3);
                    let next = [vec![row(&text)], prev[kept..].to_vec()].concat();
                    let usage = usage(10);
                    let turn = TranscriptTurn::new(&prev, &next, &meta).with_turn_usage(&usage);
                    history.append_turn(turn)
                }
                _ => {
                    let prev = history.messages().unwrap();
                    let begun = locator.begin_generation_from_baseline(&head, meta, &prev);
                    begun.and_then(|(_, successor)| successor.append(row(&text)))
                }
            };
            results.push((text, result));
        }
        results
    })
    .into_iter()
    .flatten()
    .collect();
    let (mut kept, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for (text, result) in results {
        match result {
            Ok(()) => kept.insert(text),
            Err(error) => {
                let expected = [
                    ErrorKind::Stale,
                    ErrorKind::Sealed,
                    ErrorKind::Reserved,
                    ErrorKind::GenerationExists,
                ];
                assert!(expected.contains(&error.kind()), "{text}: {error}");
                refused.insert(text)
            }
        };
    }
    (kept, refused)
}

#[test]
fn racing_writes_of_every_kind_are_kept_whole_or_refused_whole() {
    for round in 0..rounds(6) {
        let (disk, store, _) = written(1);
        let (kept, refused) = race(&store, 8, 10);
        let found = stored(&store, &session(0));
        assert!(
            kept.is_subset(&found),
            "round {round}: an acknowledged row is missing"
        );
        assert!(
            refused.is_disjoint(&found),
            "round {round}: a refused row is there"
        );
        let chain = store.locator().session_chain(&session(0)).unwrap();
        let stems: Vec<_> = chain.iter().map(SessionRef::session_id).collect();
        let stems: Vec<_> = stems.iter().map(String::as_str).collect();
        let shown = picture(&store, &["thread"], &stems).unwrap();
        let copy = SimDisk::with_image(disk.image())
            .open(Store::builder())
            .unwrap();
        assert_eq!(
            picture(&copy, &["thread"], &stems).unwrap(),
            shown,
            "round {round}"
        );
    }
}
