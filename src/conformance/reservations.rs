//! Reservations: who holds the slot of the next generation, and how it becomes free (contract section 3.1).

use std::sync::Arc;

use serde_json::json;

use super::support::{
    Picture, assert_sealed, assistant, begin, contents, messages, meta, must, open, open_stem,
    records, refused, user, written,
};
use super::{Check, Factory};
use crate::{
    BackgroundAppend, ErrorKind, SessionRef, TranscriptMessage, TranscriptPartial, TranscriptTurn,
    session_stem,
};

pub(super) const CHECKS: &[Check] = table![
    a_second_reservation_of_one_slot_is_refused,
    while_a_slot_is_reserved_the_predecessor_refuses_every_write,
    a_reservation_is_shared_by_the_clones_of_its_handle,
    dropping_an_unwritten_successor_frees_its_slot,
    clearing_an_unwritten_successor_frees_its_slot,
    a_cleared_successor_takes_its_slot_again_when_it_writes,
    a_cleared_successor_finds_its_slot_reserved,
    a_cleared_successor_finds_its_slot_written,
    a_failed_baseline_leaves_the_predecessor_writable_and_the_slot_free,
    the_baseline_is_checked_again_at_the_first_write,
    the_baseline_that_is_checked_again_is_compared_by_row_identity,
    a_reserved_generation_cannot_be_written_through_another_handle,
];

/// At most one handle holds a slot.
pub fn a_second_reservation_of_one_slot_is_refused(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    let (_, holder) = begin(&*locator, &session);
    refused(
        "the slot is held",
        locator.begin_generation(&session, meta("agent", "thread")),
        ErrorKind::Reserved,
    );
    must("the holder is not disturbed", holder.append(user("on")));
    refused(
        "the successor is written",
        locator.begin_generation(&session, meta("agent", "thread")),
        ErrorKind::GenerationExists,
    );
}

/// `Sealed` also for partials and background appends, which else answer false or a plain outcome.
pub fn while_a_slot_is_reserved_the_predecessor_refuses_every_write(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = written(&*locator, &session);
    let (_, _holder) = begin(&*locator, &session);
    assert_sealed(&*locator, &session, &*first);
    refused(
        "the head is held",
        locator.append_interrupted_partial("thread", None, &TranscriptPartial::new("half"), None),
        ErrorKind::Sealed,
    );
    refused(
        "the head is held",
        locator.append_background(
            &session,
            assistant("done"),
            &BackgroundAppend::new("key", json!(null)),
        ),
        ErrorKind::Sealed,
    );
    assert_eq!(records(&*first).len(), 1);
}

/// The slot belongs to the handle and its clones: it is free when the last of them is gone.
pub fn a_reservation_is_shared_by_the_clones_of_its_handle(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = written(&*locator, &session);
    let (_, holder) = begin(&*locator, &session);
    let clone = Arc::clone(&holder);
    drop(holder);
    refused("a clone holds", first.append(user("x")), ErrorKind::Sealed);
    let reader: Arc<dyn crate::TranscriptRead> = clone;
    refused("a clone holds", first.append(user("x")), ErrorKind::Sealed);
    drop(reader);
    must("the slot is free", first.append(user("x")));
}

/// A dropped reservation leaves nothing behind, and another can be taken.
pub fn dropping_an_unwritten_successor_frees_its_slot(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = written(&*locator, &session);
    let before = Picture::of(&*locator, &[&session], &["thread"]);
    let (_, holder) = begin(&*locator, &session);
    drop(holder);
    before.assert_same(
        &Picture::of(&*locator, &[&session], &["thread"]),
        "a dropped reservation leaves nothing behind",
    );
    must("the predecessor is writable", first.append(user("x")));
    let (successor, second) = begin(&*locator, &session);
    must("the slot can be taken again", second.append(user("y")));
    let head = must("a look-up works", locator.head_generation(&session));
    assert_eq!(head, successor);
}

/// `clear` on the unwritten handle gives the slot up.
pub fn clearing_an_unwritten_successor_frees_its_slot(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = written(&*locator, &session);
    let (successor, holder) = begin(&*locator, &session);
    must("clearing nothing succeeds", holder.clear());
    assert!(!must("a look-up works", locator.session_exists(&successor)));
    must("the predecessor is writable", first.append(user("x")));
    let (_, other) = begin(&*locator, &session);
    must("the slot can be taken", other.append(user("y")));
}

/// A write through a cleared handle is a first write again, on the predecessor as it is by then.
pub fn a_cleared_successor_takes_its_slot_again_when_it_writes(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = written(&*locator, &session);
    let (successor, holder) = begin(&*locator, &session);
    must("clearing nothing succeeds", holder.clear());
    must("the predecessor is writable", first.append(user("x")));
    must("the free slot is taken", holder.append(user("on")));
    let head = must("a look-up works", locator.head_generation(&session));
    assert_eq!(head, successor);
    refused(
        "a seal holds",
        first.append(user("late")),
        ErrorKind::Sealed,
    );
    let read = must("a read works", holder.read_session()).expect("it was written");
    assert_eq!(read.meta.session_id, Some(session_stem(&successor)));
}

/// Another handle took the slot meanwhile.
pub fn a_cleared_successor_finds_its_slot_reserved(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    let (_, cleared) = begin(&*locator, &session);
    must("clearing nothing succeeds", cleared.clear());
    let (_, other) = begin(&*locator, &session);
    refused(
        "another handle holds the slot",
        cleared.append(user("x")),
        ErrorKind::Reserved,
    );
    must("the holder is not disturbed", other.append(user("y")));
    assert_eq!(contents(&*other), ["y"]);
}

/// Another handle wrote the successor meanwhile: the cleared one was not the writer and must not append to it.
pub fn a_cleared_successor_finds_its_slot_written(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    let (_, cleared) = begin(&*locator, &session);
    must("clearing nothing succeeds", cleared.clear());
    let (_, other) = begin(&*locator, &session);
    must("the slot is free", other.append(user("y")));
    let error = cleared.append(user("x"));
    refused("the successor exists", error, ErrorKind::GenerationExists);
    assert_eq!(contents(&*other), ["y"]);
}

/// A failed `begin_generation_from_baseline` holds nothing.
pub fn a_failed_baseline_leaves_the_predecessor_writable_and_the_slot_free(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = written(&*locator, &session);
    refused(
        "a stale baseline is refused",
        locator.begin_generation_from_baseline(&session, meta("agent", "thread"), &[]),
        ErrorKind::Stale,
    );
    must("the predecessor is writable", first.append(user("x")));
    let (_, handle) = begin(&*locator, &session);
    must("the slot is free", handle.append(user("y")));
}

/// Between a `clear` of the handle and its next write the predecessor may have grown: then nothing is sealed.
pub fn the_baseline_is_checked_again_at_the_first_write(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = written(&*locator, &session);
    let (successor, handle) = must(
        "the stored rows are a baseline",
        locator.begin_generation_from_baseline(
            &session,
            meta("agent", "thread"),
            &messages(&*first),
        ),
    );
    must("clearing nothing succeeds", handle.clear());
    must("the predecessor is writable", first.append(user("newer")));
    refused(
        "the predecessor grew past the baseline",
        handle.append(user("on")),
        ErrorKind::Stale,
    );
    assert!(!must("a look-up works", locator.session_exists(&successor)));
    must("nothing was sealed", first.append(user("newest")));
}

/// Meanwhile the context may have been written anew. What is the same row by the rules of row identity is the baseline
/// still: here a row that an older host had packed into text.
pub fn the_baseline_that_is_checked_again_is_compared_by_row_identity(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = open(&*locator, &session);
    let packed = r#"{"content":"x","tool_call_id":"c"}"#;
    let typed = TranscriptMessage::tool_result("c", "x");
    must("an append succeeds", first.append(typed));
    let (successor, handle) = must(
        "the stored rows are a baseline",
        locator.begin_generation_from_baseline(
            &session,
            meta("agent", "thread"),
            &messages(&*first),
        ),
    );
    must("clearing nothing succeeds", handle.clear());
    must(
        "the predecessor is writable",
        first.replace(&[TranscriptMessage::tool(packed)]),
    );
    must("the baseline still stands", handle.append(user("on")));
    assert!(must("a look-up works", locator.session_exists(&successor)));
}

/// While a handle holds the slot, any other writer of that generation is refused.
pub fn a_reserved_generation_cannot_be_written_through_another_handle(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    let (successor, holder) = begin(&*locator, &session);
    let other = open(&*locator, &successor);
    let raw = open_stem(&*locator, &session_stem(&successor));
    for handle in [&other, &raw] {
        refused("held", handle.append(user("x")), ErrorKind::Reserved);
        refused("held", handle.replace(&[user("x")]), ErrorKind::Reserved);
        let meta = meta("agent", "thread");
        refused(
            "held",
            handle.append_turn(TranscriptTurn::new(&[], &[user("x")], &meta)),
            ErrorKind::Reserved,
        );
    }
    must("the holder writes", holder.append(user("on")));
    must("now it is a written transcript", other.append(user("more")));
    assert_eq!(contents(&*raw), ["on", "more"]);
}
