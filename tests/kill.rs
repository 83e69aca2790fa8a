//! A process that is killed in the middle of its work, over and over: what it had acknowledged is there, in whole turns,
//! and the store opens at once.
//!
//! `KILL_ROUNDS` sets how often.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod support {
    pub mod child;
    pub mod values;
}

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use support::child::{Process, say, task};
use support::values::{meta, usage};
use transcript_redb::{
    ErrorKind, SessionRef, Store, TranscriptLocator, TranscriptMessage, TranscriptPartial,
    TranscriptTurn,
};

const SESSIONS: usize = 4;

/// Every so many turns the context is compacted.
const COMPACTION: usize = 6;

fn session(number: usize) -> SessionRef {
    SessionRef::root(format!("session {number}"))
}

/// The two rows of a turn.
fn rows(turn: usize) -> [TranscriptMessage; 2] {
    [
        TranscriptMessage::user(format!("question {turn}")),
        TranscriptMessage::assistant(format!("answer {turn}")),
    ]
}

/// How many turns a session holds. They have to be whole, and to follow each other without a gap.
fn turns(store: &Store, number: usize) -> usize {
    let stored = store
        .records_of_stem(&session(number).session_id())
        .unwrap();
    let contents: Vec<_> = stored
        .filter_map(|record| record.unwrap().message)
        .filter(|row| !row.interrupted && row.message.content != "summary")
        .map(|row| row.message.content)
        .collect();
    let turns = contents.len() / 2;
    let expected = (0..turns).flat_map(rows).map(|row| row.content);
    assert!(
        expected.eq(contents.iter().cloned()),
        "session {number}: {contents:?}"
    );
    turns
}

/// Goes on with a session until the process is killed, and says each turn that was acknowledged.
fn work(store: &Store, number: usize) {
    let meta = meta("agent", "thread");
    let history = store
        .locator()
        .open_session(&session(number), meta.clone())
        .unwrap();
    let partial = TranscriptPartial::new("it was abou");
    for turn in turns(store, number).. {
        let prev = history.messages().unwrap();
        let mut next = prev.clone();
        if turn % COMPACTION == COMPACTION - 1 {
            next.drain(..2);
            next.insert(0, TranscriptMessage::system("summary"));
        }
        next.extend(rows(turn));
        let usage = usage(100);
        let write = TranscriptTurn::new(&prev, &next, &meta).with_turn_usage(&usage);
        history
            .append_turn_with_partial(write, (turn % 3 == 0).then_some(&partial))
            .unwrap();
        say(&format!("{number} {turn}"));
    }
}

#[test]
#[ignore = "a child process of another test"]
fn child_that_is_killed() {
    let store = Store::open(task()).unwrap();
    thread::scope(|scope| {
        for number in 0..SESSIONS {
            let store = &store;
            scope.spawn(move || work(store, number));
        }
    });
}

/// Whether redb would have to walk the whole file to open it. Looks at a copy.
fn needs_a_walk(path: &Path) -> bool {
    let copy = path.with_extension("copy");
    std::fs::copy(path, &copy).unwrap();
    let walked = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&walked);
    redb::Builder::new()
        .set_repair_callback(move |_| noted.store(true, Ordering::Relaxed))
        .open(&copy)
        .unwrap();
    walked.load(Ordering::Relaxed)
}

#[test]
fn a_killed_process_loses_nothing_that_it_acknowledged() {
    let rounds = std::env::var("KILL_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(15);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    let mut acknowledged: BTreeMap<usize, usize> = BTreeMap::new();
    for round in 0..rounds {
        let mut child = Process::start("child_that_is_killed", path.to_str().unwrap());
        // Killed before its first turn, after it, and at ever other places of its work.
        let patience = round * 7 % 31;
        let mut said: Vec<_> = (0..patience).map(|_| child.hear().unwrap()).collect();
        said.extend(child.kill());
        let was_open = !said.is_empty();
        for line in said {
            // The last line may be cut short: it then names an earlier turn.
            let Some((number, turn)) = line.split_once(' ') else {
                continue;
            };
            let (Ok(number), Ok(turn)) = (number.parse(), turn.parse::<usize>()) else {
                continue;
            };
            let turns = acknowledged.entry(number).or_default();
            *turns = (*turns).max(turn + 1);
        }
        if !path.exists() {
            continue;
        }
        assert!(!needs_a_walk(&path), "round {round}");
        if was_open {
            let unclean = Store::builder().read_only(true).open(&path);
            assert_eq!(
                unclean.unwrap_err().kind(),
                ErrorKind::NeedsRecovery,
                "round {round}"
            );
        }
        let store = Store::open(&path).unwrap();
        let mut stored = 0;
        for number in 0..SESSIONS {
            let turns = turns(&store, number);
            let least = acknowledged.get(&number).copied().unwrap_or(0);
            assert!(
                turns >= least,
                "round {round}: {turns} of {least} turns of session {number}"
            );
            stored += turns;
        }
        let spend = store.locator().thread_spend("thread").unwrap();
        assert_eq!(spend.root.turns, stored, "round {round}");
    }
    assert_eq!(acknowledged.len(), SESSIONS, "every session gets somewhere");
}
