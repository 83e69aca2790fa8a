//! Many threads at once: nothing is lost, nothing is seen half (contract section 2.1).

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;

use super::support::{
    answered, assistant, charged, contents, live_uuids, messages, meta, must, open, shown, turn_to,
    turn_with, user, written,
};
use super::{Check, Factory};
use crate::background::append_background_message_in;
use crate::{
    BackgroundAppend, BackgroundAppendOutcome, DisplayRecord, ErrorKind, SessionRef,
    TranscriptLocator, TranscriptMeta, TranscriptPartial, TranscriptTurn,
};

pub(super) const CHECKS: &[Check] = table![
    no_append_is_lost,
    racing_first_writes_make_one_transcript,
    of_writers_on_one_baseline_one_wins,
    turns_and_appends_lose_nothing_to_each_other,
    of_racing_reservations_one_is_written,
    an_append_that_races_a_seal_is_kept_or_refused,
    a_chain_never_shows_a_gap,
    a_reader_sees_whole_turns_only,
    a_reader_never_sees_a_compaction_half,
    spend_and_rows_of_a_turn_appear_together,
    pages_stay_put_while_rows_arrive,
    racing_background_appends_of_one_key_append_once,
    racing_background_appends_through_the_turn_lock_append_once,
    racing_background_appends_of_different_keys_are_all_kept,
    sessions_that_are_created_at_once_are_all_found,
];

const THREADS: usize = 4;
const ROUNDS: usize = 20;

/// Runs `work` with its number on so many threads, all started at once.
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
        running
            .into_iter()
            .map(|thread| thread.join().expect("a thread of a check panicked"))
            .collect()
    })
}

/// Runs `write` to its end while other threads call `read` over and over, and once more after it.
fn while_reading(read: impl Fn() + Sync, write: impl FnOnce()) {
    /// Ends the readers also when the writer panics.
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    read();
                }
                read();
            });
        }
        let _done = Done(&done);
        write();
    });
}

fn label(thread: usize, round: usize) -> String {
    format!("{thread}-{round}")
}

/// Every label of every thread, sorted.
fn all_labels() -> Vec<String> {
    let mut labels: Vec<_> = (0..THREADS)
        .flat_map(|thread| (0..ROUNDS).map(move |round| label(thread, round)))
        .collect();
    labels.sort();
    labels
}

/// All there, and those of one thread in its order.
pub fn no_append_is_lost(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    at_once(THREADS, |thread| {
        let handle = open(&*locator, &session);
        for round in 0..ROUNDS {
            let row = user(&label(thread, round));
            must("an append succeeds", handle.append(row));
        }
    });
    let handle = open(&*locator, &session);
    let rows = contents(&*handle)[1..].to_vec();
    for thread in 0..THREADS {
        let own: Vec<_> = rows
            .iter()
            .filter(|row| row.starts_with(&format!("{thread}-")))
            .cloned()
            .collect();
        let expected: Vec<_> = (0..ROUNDS).map(|round| label(thread, round)).collect();
        assert_eq!(own, expected);
    }
    assert_eq!(rows.len(), THREADS * ROUNDS);
    let distinct: BTreeSet<_> = live_uuids(&*handle).into_iter().collect();
    assert_eq!(distinct.len(), rows.len() + 1);
}

/// One of them is the first, the others append.
pub fn racing_first_writes_make_one_transcript(factory: Factory<'_>) {
    for _ in 0..ROUNDS / 2 {
        let locator = factory();
        let session = SessionRef::root("k");
        at_once(THREADS, |thread| {
            let handle = open(&*locator, &session);
            must(
                "an append succeeds",
                handle.append(user(&thread.to_string())),
            );
        });
        let mut rows = contents(&*open(&*locator, &session));
        rows.sort();
        assert_eq!(rows, ["0", "1", "2", "3"]);
        let chain = must("a look-up works", locator.session_chain(&session));
        assert_eq!(chain, [session]);
    }
}

/// Exactly one; the others are `Stale`, and of theirs nothing is there.
pub fn of_writers_on_one_baseline_one_wins(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    for round in 0..ROUNDS {
        let baseline = messages(&*handle);
        let results = at_once(THREADS, |thread| {
            let mut next = baseline.clone();
            if thread % 2 == 0 {
                next.push(assistant(&label(thread, round)));
            } else {
                next = vec![user("summary"), assistant(&label(thread, round))];
            }
            open(&*locator, &session)
                .append_turn(TranscriptTurn::new(
                    &baseline,
                    &next,
                    &meta("agent", "thread"),
                ))
                .map(|()| label(thread, round))
        });
        let mut won = Vec::new();
        for result in results {
            match result {
                Ok(label) => won.push(label),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Stale, "{error}"),
            }
        }
        assert_eq!(won.len(), 1, "{} writers won", won.len());
        assert_eq!(contents(&*handle).last(), won.first());
    }
}

/// Turns are retried on `Stale`; the appends of others are never hidden by them.
pub fn turns_and_appends_lose_nothing_to_each_other(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = open(&*locator, &session);
    turn_with(&*handle, &[], &meta("agent", "thread"));
    at_once(THREADS, |thread| {
        let handle = open(&*locator, &session);
        for round in 0..ROUNDS {
            let row = user(&label(thread, round));
            if thread % 2 == 0 {
                must("an append succeeds", handle.append(row));
                continue;
            }
            loop {
                let prev = messages(&*handle);
                let mut next = prev.clone();
                next.push(row.clone());
                let meta = meta("agent", "thread");
                match handle.append_turn(TranscriptTurn::new(&prev, &next, &meta)) {
                    Ok(()) => break,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Stale, "{error}"),
                }
            }
        }
    });
    let mut rows = contents(&*handle);
    rows.sort();
    assert_eq!(rows, all_labels());
    assert_eq!(shown(&*handle).len(), rows.len(), "nothing was compacted");
}

/// At most one ends with a written successor; the others are `Reserved` or `GenerationExists`.
pub fn of_racing_reservations_one_is_written(factory: Factory<'_>) {
    let locator = factory();
    let mut session = SessionRef::root("k");
    written(&*locator, &session);
    for round in 0..ROUNDS {
        let results = at_once(THREADS, |thread| {
            let (successor, handle) =
                locator.begin_generation(&session, meta("agent", "thread"))?;
            handle.append(user(&label(thread, round)))?;
            Ok((successor, label(thread, round)))
        });
        let mut won = Vec::new();
        for result in results {
            match result {
                Ok(written) => won.push(written),
                Err(error) => {
                    let error: crate::Error = error;
                    assert!(
                        matches!(
                            error.kind(),
                            ErrorKind::Reserved | ErrorKind::GenerationExists
                        ),
                        "{error}"
                    );
                }
            }
        }
        assert_eq!(won.len(), 1, "{} successors were written", won.len());
        let (successor, label) = won.remove(0);
        assert_eq!(contents(&*open(&*locator, &successor)), [label]);
        let head = must("a look-up works", locator.head_generation(&session));
        assert_eq!(head, successor);
        session = successor;
    }
}

/// A row that was acknowledged is in the sealed generation, and the successor kept it: its baseline was re-checked.
pub fn an_append_that_races_a_seal_is_kept_or_refused(factory: Factory<'_>) {
    for _ in 0..ROUNDS / 2 {
        let locator = factory();
        let session = SessionRef::root("k");
        let first = written(&*locator, &session);
        let accepted = at_once(THREADS, |thread| {
            let mut accepted = Vec::new();
            if thread == 0 {
                loop {
                    let baseline = messages(&*first);
                    let seed = meta("agent", "thread");
                    match locator.begin_generation_from_baseline(&session, seed, &baseline) {
                        Ok((_, handle)) => {
                            must("the holder writes", handle.replace(&baseline));
                            break;
                        }
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Stale, "{error}"),
                    }
                }
                return accepted;
            }
            for round in 0..ROUNDS {
                match first.append(user(&label(thread, round))) {
                    Ok(()) => accepted.push(label(thread, round)),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Sealed, "{error}");
                        break;
                    }
                }
            }
            accepted
        });
        let mut accepted = accepted.concat();
        accepted.push("first".into());
        accepted.sort();
        let mut sealed = contents(&*first);
        let next = open(&*locator, &session.next_generation());
        assert_eq!(contents(&*next), sealed);
        assert_eq!(live_uuids(&*next), live_uuids(&*first));
        sealed.sort();
        assert_eq!(sealed, accepted);
    }
}

/// While generations are opened, head and chain are always of whole, readable generations.
pub fn a_chain_never_shows_a_gap(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    while_reading(
        || {
            let head = must("a look-up works", locator.head_generation(&session));
            let chain = must("a look-up works", locator.session_chain(&session));
            for (number, generation) in chain.iter().enumerate() {
                assert_eq!(usize::try_from(generation.generation).ok(), Some(number));
            }
            assert!(
                chain.contains(&head),
                "a chain is never shorter than before"
            );
            let read = open(&*locator, &head).read_session();
            let read = must("a read works", read).expect("a head is written");
            assert_eq!(read.messages.len(), 1, "a head has its first write");
        },
        || {
            let mut head = session.clone();
            for _ in 0..ROUNDS {
                let (next, handle) = must(
                    "a written head can be succeeded",
                    locator.begin_generation(&head, meta("agent", "thread")),
                );
                must("an append succeeds", handle.append(user("on")));
                head = next;
            }
        },
    );
}

/// Rows, meta, tools, partial and request of a turn appear together, in each read.
pub fn a_reader_sees_whole_turns_only(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = open(&*locator, &session);
    turn_with(&*handle, &[], &meta("agent", "thread"));
    while_reading(
        || {
            let handle = open(&*locator, &session);
            let read = must("a read works", handle.read_session()).expect("it was written");
            let turns = read.meta.turn_count;
            assert_eq!(read.messages.len(), 2 * turns, "half a turn is live");
            let tools = (turns > 0).then(|| json!({ "turn": turns }));
            assert_eq!(read.tools, tools, "rows and tools of different turns");
            let display = must("a read works", handle.read_display()).expect("it was written");
            let turns = display.meta.turn_count;
            assert_eq!(display.records.len(), 3 * turns, "half a turn is shown");
            let page = must("a read works", handle.read_display_before(None, 1000));
            let page = page.expect("it was written");
            assert_eq!(page.records.len(), 3 * page.meta.turn_count);
        },
        || {
            for turn in 1..=ROUNDS {
                let prev = messages(&*handle);
                let mut next = prev.clone();
                next.extend([user("q"), assistant("a")]);
                let meta = TranscriptMeta {
                    turn_count: turn,
                    ..meta("agent", "thread")
                };
                let tools = json!({ "turn": turn });
                let turn = TranscriptTurn {
                    tools: Some(&tools),
                    ..TranscriptTurn::new(&prev, &next, &meta)
                };
                must(
                    "a turn succeeds",
                    handle.append_turn_with_partial(turn, Some(&TranscriptPartial::new("half"))),
                );
            }
        },
    );
}

/// The context is the one before or the one after.
pub fn a_reader_never_sees_a_compaction_half(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    let context = |round: usize| (0..3).map(|_| user(&round.to_string())).collect::<Vec<_>>();
    must("a replacement succeeds", handle.replace(&context(0)));
    while_reading(
        || {
            let rows = contents(&*open(&*locator, &session));
            assert_eq!(rows.len(), 3);
            assert!(rows.iter().all(|row| *row == rows[0]), "{rows:?}");
        },
        || {
            for round in 1..=ROUNDS {
                if round % 2 == 0 {
                    must("a replacement succeeds", handle.replace(&context(round)));
                } else {
                    turn_to(&*handle, &context(round), &meta("agent", "thread"));
                }
            }
        },
    );
}

/// The totals are never those of half a turn, and never behind what was acknowledged.
pub fn spend_and_rows_of_a_turn_appear_together(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    while_reading(
        || {
            let before = contents(&*open(&*locator, &session)).len() - 1;
            let spend = must("spend can be read", locator.thread_spend("thread")).root;
            let after = contents(&*open(&*locator, &session)).len() - 1;
            let (tokens, turns) = (spend.input_tokens, spend.turns);
            assert_eq!(usize::try_from(tokens).ok(), Some(10 * turns));
            assert!(
                (before..=after).contains(&turns),
                "{turns} turns are counted, {before} to {after} are stored"
            );
        },
        || {
            for _ in 0..ROUNDS {
                let row = answered("a", charged(10, 1, 0.5));
                turn_with(&*handle, &[row], &meta("agent", "thread"));
            }
        },
    );
}

/// An older page is the same, however much is written meanwhile.
pub fn pages_stay_put_while_rows_arrive(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = open(&*locator, &session);
    for number in 0..6 {
        must(
            "an append succeeds",
            handle.append(user(&number.to_string())),
        );
    }
    let newest = must("a page can be read", handle.read_display_before(None, 2));
    let cursor = newest.expect("it was written").records[0].0;
    while_reading(
        || {
            let handle = open(&*locator, &session);
            let page = must(
                "a page can be read",
                handle.read_display_before(Some(cursor), 3),
            );
            let page = page.expect("it was written");
            let texts: Vec<_> = page
                .records
                .iter()
                .filter_map(|(_, record)| match record {
                    DisplayRecord::Message(row) => Some(row.message.content.as_str()),
                    DisplayRecord::Compaction(_) => None,
                })
                .collect();
            assert_eq!(texts, ["1", "2", "3"]);
            assert!(page.more);
        },
        || {
            for round in 0..ROUNDS {
                must("an append succeeds", handle.append(user("late")));
                if round % 5 == 0 {
                    must("a clear succeeds", handle.clear());
                }
            }
        },
    );
}

/// Exactly one `Appended`, all others `Duplicate`.
pub fn racing_background_appends_of_one_key_append_once(factory: Factory<'_>) {
    race_one_key(factory, |locator, session, append| {
        locator.append_background(session, assistant("done"), &append)
    });
}

/// With the turn lock between them, which a store that is not atomic relies on.
pub fn racing_background_appends_through_the_turn_lock_append_once(factory: Factory<'_>) {
    if factory().destination_key().is_none() {
        // An anonymous store has no turn lock.
        return;
    }
    race_one_key(factory, |locator, session, append| {
        super::support::block_on(append_background_message_in(
            locator,
            session,
            assistant("done"),
            append,
        ))
    });
}

fn race_one_key(
    factory: Factory<'_>,
    deliver: impl Fn(
        &dyn TranscriptLocator,
        &SessionRef,
        BackgroundAppend,
    ) -> crate::Result<BackgroundAppendOutcome>
    + Sync,
) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    for round in 0..ROUNDS {
        let outcomes = at_once(THREADS, |_| {
            let append = BackgroundAppend::new(round.to_string(), json!(null));
            must(
                "a background append is answered",
                deliver(&*locator, &session, append),
            )
        });
        let appended = BackgroundAppendOutcome::Appended { generation: 0 };
        let duplicate = BackgroundAppendOutcome::Duplicate { generation: 0 };
        let won = outcomes.iter().filter(|one| **one == appended).count();
        let lost = outcomes.iter().filter(|one| **one == duplicate).count();
        assert_eq!((won, lost), (1, THREADS - 1), "{outcomes:?}");
        assert_eq!(messages(&*handle).len(), round + 2);
    }
}

/// Among turns that are retried.
pub fn racing_background_appends_of_different_keys_are_all_kept(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = open(&*locator, &session);
    turn_with(&*handle, &[], &meta("agent", "thread"));
    at_once(THREADS, |thread| {
        for round in 0..ROUNDS {
            let label = label(thread, round);
            let outcome = must(
                "a background append is answered",
                locator.append_background(
                    &session,
                    assistant(&label),
                    &BackgroundAppend::new(label.as_str(), json!(null)),
                ),
            );
            assert_eq!(outcome, BackgroundAppendOutcome::Appended { generation: 0 });
        }
    });
    let mut rows = contents(&*handle);
    rows.sort();
    assert_eq!(rows, all_labels());
}

/// No index entry of one is lost to another.
pub fn sessions_that_are_created_at_once_are_all_found(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("root");
    at_once(THREADS, |thread| {
        for round in 0..ROUNDS / 2 {
            let key = label(thread, round);
            let row = || answered("a", charged(1, 1, 0.5));
            let handle = open(&*locator, &SessionRef::root(key.as_str()));
            must("an append succeeds", handle.append(row()));
            let child = open(&*locator, &SessionRef::child_of(&root, key));
            must("an append succeeds", child.append(row()));
        }
    });
    written(&*locator, &root);
    let sessions = THREADS * (ROUNDS / 2);
    let listed = must(
        "a look-up works",
        locator.thread_transcripts("thread", None),
    );
    assert_eq!(listed.roots.len(), sessions + 1);
    assert_eq!(listed.subagents.len(), sessions);
    let spend = must("spend can be read", locator.thread_spend("thread"));
    assert_eq!(spend.root.turns, sessions);
    assert_eq!(spend.subagents["agent"].0.turns, sessions);
    assert_eq!(spend.subagents["agent"].1, sessions);
}
