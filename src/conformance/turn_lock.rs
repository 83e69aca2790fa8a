//! The turn lock: one turn of a session at a time, in the order of asking (contract section 9).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;

use serde_json::json;

use super::support::{
    assistant, block_on, contents, meta, must, poll_once, succeed, user, written,
};
use super::{Check, Factory};
use crate::background::append_background_message_in;
use crate::turn_lock::{SessionTurnGuard, lock_session_turn};
use crate::{BackgroundAppend, BackgroundAppendOutcome, SessionRef, TranscriptLocator};

pub(super) const CHECKS: &[Check] = table![
    a_store_without_a_destination_has_no_turn_lock,
    the_turn_lock_is_exclusive,
    the_turn_lock_is_given_in_the_order_of_asking,
    the_turn_lock_is_released_on_drop,
    a_waiter_that_gives_up_loses_its_place_alone,
    all_generations_share_one_turn_lock,
    other_sessions_agents_and_children_have_their_own,
    other_stores_have_their_own,
    the_turn_lock_can_be_waited_for_on_many_threads,
    the_turn_guard_can_be_sent_to_another_thread,
    a_background_append_waits_for_the_turn,
    an_invalid_background_append_does_not_wait,
    the_futures_can_be_sent,
];

/// The lock at once; None if the store is anonymous.
fn try_lock(locator: &dyn TranscriptLocator, session: &SessionRef) -> Option<SessionTurnGuard> {
    match poll_once(&mut Box::pin(lock_session_turn(locator, session))) {
        Poll::Ready(guard) => guard,
        Poll::Pending => panic!("nobody else holds the turn lock, but it has to be waited for"),
    }
}

#[track_caller]
fn assert_held(locator: &dyn TranscriptLocator, session: &SessionRef) {
    let mut waiting = Box::pin(lock_session_turn(locator, session));
    assert!(
        poll_once(&mut waiting).is_pending(),
        "the turn lock of {session:?} is held, but was given a second time"
    );
}

/// The locator, if its store has a destination: without one there is nothing to check.
fn named_store(factory: Factory<'_>) -> Option<Arc<dyn TranscriptLocator>> {
    let locator = factory();
    locator.destination_key().is_some().then_some(locator)
}

/// None, and at once.
pub fn a_store_without_a_destination_has_no_turn_lock(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let guard = try_lock(&*locator, &session);
    assert_eq!(guard.is_some(), locator.destination_key().is_some());
    if guard.is_none() {
        assert!(try_lock(&*locator, &session).is_none());
    }
}

/// Not reentrant either.
pub fn the_turn_lock_is_exclusive(factory: Factory<'_>) {
    let Some(locator) = named_store(factory) else {
        return;
    };
    let session = SessionRef::root("k");
    let guard = try_lock(&*locator, &session);
    assert_held(&*locator, &session);
    drop(guard);
}

/// First in, first out.
pub fn the_turn_lock_is_given_in_the_order_of_asking(factory: Factory<'_>) {
    let Some(locator) = named_store(factory) else {
        return;
    };
    let session = SessionRef::root("k");
    let mut holder = try_lock(&*locator, &session);
    let mut waiting: Vec<_> = (0..5)
        .map(|_| Box::pin(lock_session_turn(&*locator, &session)))
        .collect();
    for waiter in &mut waiting {
        assert!(poll_once(waiter).is_pending());
    }
    while !waiting.is_empty() {
        drop(holder);
        // Asked in reverse, the later ones first: none of them may overtake.
        for later in waiting.iter_mut().skip(1).rev() {
            assert!(poll_once(later).is_pending(), "a later waiter overtook");
        }
        let Poll::Ready(next) = poll_once(&mut waiting.remove(0)) else {
            panic!("the lock is free, but the first waiter does not get it");
        };
        holder = next;
        assert!(holder.is_some());
    }
}

/// And can be taken again, any number of times.
pub fn the_turn_lock_is_released_on_drop(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    for _ in 0..100 {
        drop(try_lock(&*locator, &session));
    }
}

/// A dropped waiter neither keeps the lock nor lets anyone past it.
pub fn a_waiter_that_gives_up_loses_its_place_alone(factory: Factory<'_>) {
    let Some(locator) = named_store(factory) else {
        return;
    };
    let session = SessionRef::root("k");
    let holder = try_lock(&*locator, &session);
    let mut first = Box::pin(lock_session_turn(&*locator, &session));
    let mut second = Box::pin(lock_session_turn(&*locator, &session));
    assert!(poll_once(&mut first).is_pending());
    assert!(poll_once(&mut second).is_pending());
    drop(first);
    assert!(
        poll_once(&mut second).is_pending(),
        "the lock is still held"
    );
    drop(holder);
    let Poll::Ready(guard) = poll_once(&mut second) else {
        panic!("the lock is free, but the waiter does not get it");
    };
    assert_held(&*locator, &session);
    // Also one to whom the lock was already handed.
    let mut third = Box::pin(lock_session_turn(&*locator, &session));
    assert!(poll_once(&mut third).is_pending());
    drop(guard);
    drop(third);
    drop(try_lock(&*locator, &session));
}

/// It is keyed by generation 0.
pub fn all_generations_share_one_turn_lock(factory: Factory<'_>) {
    let Some(locator) = named_store(factory) else {
        return;
    };
    let session = SessionRef::scoped("k", "a");
    written(&*locator, &session);
    let (next, _handle) = succeed(&*locator, &session, &[], &meta("agent", "thread"));
    let guard = try_lock(&*locator, &next);
    for generation in [&session, &next, &next.next_generation()] {
        assert_held(&*locator, generation);
    }
    drop(guard);
    let _first = try_lock(&*locator, &session);
    assert_held(&*locator, &next);
}

/// Turns of different sessions do not wait for each other.
pub fn other_sessions_agents_and_children_have_their_own(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    let _guards: Vec<_> = [
        root.clone(),
        SessionRef::root("K"),
        SessionRef::scoped("k", ""),
        SessionRef::scoped("k", "a"),
        SessionRef::child_of(&root, "k"),
        SessionRef::child_of(&SessionRef::child_of(&root, "k"), "k"),
    ]
    .iter()
    .map(|session| try_lock(&*locator, session))
    .collect();
}

/// One session key in two stores is two sessions.
pub fn other_stores_have_their_own(factory: Factory<'_>) {
    let (one, other) = (factory(), factory());
    let session = SessionRef::root("k");
    let _guard = try_lock(&*one, &session);
    let _other = try_lock(&*other, &session);
}

/// With real threads, each driving its future by parking.
pub fn the_turn_lock_can_be_waited_for_on_many_threads(factory: Factory<'_>) {
    const THREADS: usize = 8;
    const TURNS: usize = 50;
    let Some(locator) = named_store(factory) else {
        return;
    };
    let session = SessionRef::root("k");
    let inside = AtomicUsize::new(0);
    let turns = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..TURNS {
                    let guard = block_on(lock_session_turn(&*locator, &session));
                    let others = inside.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(others, 0, "two turns are in flight");
                    turns.fetch_add(1, Ordering::SeqCst);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(guard);
                }
            });
        }
    });
    assert_eq!(turns.into_inner(), THREADS * TURNS);
}

/// A turn may end on another thread than it began.
pub fn the_turn_guard_can_be_sent_to_another_thread(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let guard = try_lock(&*locator, &session);
    let (sender, receiver) = mpsc::channel();
    let other = thread::spawn(move || {
        drop(guard);
        sender.send(()).is_ok()
    });
    assert!(receiver.recv().is_ok());
    drop(try_lock(&*locator, &session));
    assert!(matches!(other.join(), Ok(true)));
}

/// A row that comes in between would make the turn's baseline stale.
pub fn a_background_append_waits_for_the_turn(factory: Factory<'_>) {
    let Some(locator) = named_store(factory) else {
        return;
    };
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    let turn = try_lock(&*locator, &session);
    let mut append = Box::pin(append_background_message_in(
        &*locator,
        &session,
        assistant("done"),
        BackgroundAppend::new("job", json!(null)),
    ));
    assert!(poll_once(&mut append).is_pending());
    assert_eq!(contents(&*handle), ["first"]);
    must(
        "the turn itself is not disturbed",
        handle.append(user("more")),
    );
    drop(turn);
    let Poll::Ready(outcome) = poll_once(&mut append) else {
        panic!("the turn is over, but the append still waits");
    };
    assert_eq!(
        must("a background append is answered", outcome),
        BackgroundAppendOutcome::Appended { generation: 0 }
    );
    assert_eq!(contents(&*handle), ["first", "more", "done"]);
    drop(try_lock(&*locator, &session));
}

/// Step 1 comes before step 2.
pub fn an_invalid_background_append_does_not_wait(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let _turn = try_lock(&*locator, &session);
    let mut append = Box::pin(append_background_message_in(
        &*locator,
        &session,
        user("not of the assistant"),
        BackgroundAppend::new("job", json!(null)),
    ));
    assert!(matches!(poll_once(&mut append), Poll::Ready(Err(_))));
}

/// Both async functions' futures are `Send`, so any runtime may drive them.
pub fn the_futures_can_be_sent(factory: Factory<'_>) {
    fn sent<F: Future + Send>(future: F) -> F::Output
    where
        F::Output: Send,
    {
        thread::scope(|scope| scope.spawn(|| block_on(future)).join())
            .expect("a future runs on another thread")
    }
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    drop(sent(lock_session_turn(&*locator, &session)));
    let outcome = sent(append_background_message_in(
        &*locator,
        &session,
        assistant("done"),
        BackgroundAppend::new("job", json!(null)),
    ));
    assert_eq!(
        must("a background append is answered", outcome),
        BackgroundAppendOutcome::Appended { generation: 0 }
    );
}
