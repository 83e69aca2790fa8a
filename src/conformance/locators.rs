//! Several locators over one store are one store (contract sections 2, 3.1 and 9).
//!
//! These checks need two locators over the same store, so they take a [`PairFactory`] and stand in no theme: a store
//! that gives only one locator has nothing to check here. [`run_all`] runs them all.

use std::sync::Arc;

use serde_json::json;

use super::support::{
    assert_sealed, assistant, begin, contents, found, live_uuids, meta, must, open, poll_once,
    refused, user, written,
};
use crate::turn_lock::lock_session_turn;
use crate::{BackgroundAppend, BackgroundAppendOutcome, ErrorKind, SessionRef, TranscriptLocator};

/// Makes two locators over one fresh, empty store at each call. Stores of two calls share nothing.
pub type PairFactory<'a> = &'a dyn Fn() -> [Arc<dyn TranscriptLocator>; 2];

/// Runs every check of this module.
///
/// # Panics
/// With the first broken promise.
pub fn run_all(factory: PairFactory<'_>) {
    two_locators_name_one_destination(factory);
    two_locators_see_each_other(factory);
    two_locators_share_the_slots_of_successors(factory);
    two_locators_share_the_keys_of_background_rows(factory);
    two_locators_share_the_turn_lock(factory);
    a_store_lives_as_long_as_any_of_its_locators(factory);
}

/// The same `Some`.
pub fn two_locators_name_one_destination(factory: PairFactory<'_>) {
    let [one, other] = factory();
    assert!(one.destination_key().is_some(), "a shared store has a name");
    assert_eq!(one.destination_key(), other.destination_key());
    let [third, _] = factory();
    assert_ne!(one.destination_key(), third.destination_key());
}

/// At once, in reads and look-ups, by equal stems and identities.
pub fn two_locators_see_each_other(factory: PairFactory<'_>) {
    let [one, other] = factory();
    let session = SessionRef::scoped("k", "a");
    let handle = written(&*one, &session);
    let same = open(&*other, &session);
    assert_eq!(same.stem(), handle.stem());
    must("an append succeeds", same.append(assistant("second")));
    assert_eq!(contents(&*handle), ["first", "second"]);
    assert_eq!(live_uuids(&*handle), live_uuids(&*same));
    for locator in [&one, &other] {
        assert!(must("a look-up works", locator.session_exists(&session)));
        let root = found(locator.root_for_thread("thread"));
        assert_eq!(root.as_deref(), Some(handle.stem()));
    }
}

/// A slot that one handle holds is held for every locator.
pub fn two_locators_share_the_slots_of_successors(factory: PairFactory<'_>) {
    let [one, other] = factory();
    let session = SessionRef::root("k");
    written(&*one, &session);
    let (successor, holder) = begin(&*one, &session);
    assert_sealed(&*other, &session, &*open(&*other, &session));
    refused(
        "the slot is held",
        other.begin_generation(&session, meta("agent", "thread")),
        ErrorKind::Reserved,
    );
    refused(
        "the slot is held",
        open(&*other, &successor).append(user("x")),
        ErrorKind::Reserved,
    );
    drop(holder);
    let (_, holder) = begin(&*other, &session);
    must("the slot is free", holder.append(user("on")));
    let head = must("a look-up works", one.head_generation(&session));
    assert_eq!(head, successor);
}

/// A key is used up for the session, not for a locator.
pub fn two_locators_share_the_keys_of_background_rows(factory: PairFactory<'_>) {
    let [one, other] = factory();
    let session = SessionRef::root("k");
    written(&*one, &session);
    let deliver = |locator: &dyn TranscriptLocator| {
        let append = BackgroundAppend::new("job", json!(null));
        must(
            "a background append is answered",
            locator.append_background(&session, assistant("done"), &append),
        )
    };
    let generation = 0;
    assert_eq!(
        deliver(&*one),
        BackgroundAppendOutcome::Appended { generation }
    );
    assert_eq!(
        deliver(&*other),
        BackgroundAppendOutcome::Duplicate { generation }
    );
}

/// A turn of one locator makes the turns of the other wait.
pub fn two_locators_share_the_turn_lock(factory: PairFactory<'_>) {
    let [one, other] = factory();
    let session = SessionRef::root("k");
    let mut first = Box::pin(lock_session_turn(&*one, &session));
    let guard = poll_once(&mut first);
    assert!(guard.is_ready(), "the lock is free");
    let mut second = Box::pin(lock_session_turn(&*other, &session));
    assert!(poll_once(&mut second).is_pending(), "the lock is held");
    drop(guard);
    assert!(poll_once(&mut second).is_ready(), "the lock is free again");
}

/// Dropping one locator takes nothing from the other, nor from a handle.
pub fn a_store_lives_as_long_as_any_of_its_locators(factory: PairFactory<'_>) {
    let [one, other] = factory();
    let session = SessionRef::root("k");
    let handle = written(&*one, &session);
    drop(one);
    let same = open(&*other, &session);
    must("an append succeeds", same.append(user("second")));
    drop(other);
    must("an append succeeds", handle.append(user("third")));
    assert_eq!(contents(&*same), ["first", "second", "third"]);
}
