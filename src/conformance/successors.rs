//! What a successor keeps of its predecessor, and truncation (contract sections 1.16, 3.1 and 4).

use super::support::{
    answered, assistant, charged, contents, live_rows, live_uuids, messages, meta, must, open,
    records, refused, refused_without_trace, shown, succeed, turn_with, user, written,
};
use super::{Check, Factory};
use crate::{
    DisplayRecord, ErrorKind, SessionRef, TranscriptLocator, TranscriptMessage, TruncateCut,
    session_stem,
};

pub(super) const CHECKS: &[Check] = table![
    a_successor_refers_to_the_rows_that_it_keeps,
    a_successor_stores_only_what_is_new,
    the_first_write_of_a_successor_is_plain_messages,
    a_fresh_row_is_never_a_kept_one,
    a_kept_row_can_be_kept_through_many_generations,
    the_predecessor_keeps_its_rows_and_their_identity,
    a_truncation_keeps_the_rows_before_an_index,
    a_truncation_index_is_clamped,
    a_truncation_keeps_the_rows_before_a_message_id,
    a_truncation_keeps_up_to_the_last_user_row,
    a_truncation_without_a_user_row_keeps_nothing,
    a_truncation_resolves_the_head,
    a_truncation_is_written_at_once,
    a_truncation_at_an_unknown_message_is_refused,
    a_truncation_of_nothing_is_refused,
    a_truncation_of_a_reserved_head_is_refused,
];

#[track_caller]
fn talk(locator: &dyn TranscriptLocator, session: &SessionRef) {
    let handle = open(locator, session);
    turn_with(
        &*handle,
        &[
            TranscriptMessage::system("rules"),
            user("question").with_id("m-1"),
            answered("answer", charged(10, 5, 0.5)),
            user("again").with_id("m-2"),
            assistant("sure"),
        ],
        &meta("agent", "thread"),
    );
}

/// Retained rows are references: the same record identity, in the successor as in the predecessor.
pub fn a_successor_refers_to_the_rows_that_it_keeps(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    talk(&*locator, &session);
    let first = open(&*locator, &session);
    let rows = messages(&*first);
    let uuids = live_uuids(&*first);
    let kept = [rows[0].clone(), rows[3].clone(), rows[4].clone()];
    let (_, next) = succeed(&*locator, &session, &kept, &meta("agent", "thread"));
    assert_eq!(messages(&*next), kept);
    assert_eq!(live_uuids(&*next), [uuids[0], uuids[3], uuids[4]]);
    assert!(live_rows(&*next).iter().all(|row| row.revises.is_none()));
}

/// A new row between kept ones has an identity of its own.
pub fn a_successor_stores_only_what_is_new(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    talk(&*locator, &session);
    let first = open(&*locator, &session);
    let rows = messages(&*first);
    let uuids = live_uuids(&*first);
    let next = [rows[0].clone(), assistant("summary"), rows[4].clone()];
    let (_, handle) = succeed(&*locator, &session, &next, &meta("agent", "thread"));
    let kept = live_uuids(&*handle);
    assert_eq!([kept[0], kept[2]], [uuids[0], uuids[4]]);
    assert!(!uuids.contains(&kept[1]), "a summary is a row of its own");
    assert_eq!(contents(&*handle), ["rules", "summary", "sure"]);
}

/// A successor's retained set is no compaction: its display has messages only.
pub fn the_first_write_of_a_successor_is_plain_messages(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    talk(&*locator, &session);
    let rows = messages(&*open(&*locator, &session));
    let (_, handle) = succeed(&*locator, &session, &rows[1..3], &meta("agent", "thread"));
    let kinds: Vec<_> = records(&*handle)
        .iter()
        .map(|record| matches!(record, DisplayRecord::Message(_)))
        .collect();
    assert_eq!(kinds, [true, true]);
}

/// A row that did not come from a read is new, whatever it equals.
pub fn a_fresh_row_is_never_a_kept_one(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = written(&*locator, &session);
    let (_, handle) = succeed(
        &*locator,
        &session,
        &[user("first")],
        &meta("agent", "thread"),
    );
    assert_eq!(contents(&*handle), contents(&*first));
    assert_ne!(live_uuids(&*handle), live_uuids(&*first));
}

/// A reference of a reference is the row that was stored first.
pub fn a_kept_row_can_be_kept_through_many_generations(factory: Factory<'_>) {
    let locator = factory();
    let mut session = SessionRef::root("k");
    let first = written(&*locator, &session);
    let original = live_uuids(&*first);
    let mut rows = messages(&*first);
    for _ in 0..5 {
        let (next, handle) = succeed(&*locator, &session, &rows, &meta("agent", "thread"));
        assert_eq!(live_uuids(&*handle), original);
        rows = messages(&*handle);
        session = next;
    }
}

/// What the successor does with a row it kept does not reach the predecessor.
pub fn the_predecessor_keeps_its_rows_and_their_identity(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    talk(&*locator, &session);
    let first = open(&*locator, &session);
    let (rows, uuids) = (messages(&*first), live_uuids(&*first));
    let mut edited = rows.clone();
    edited[2].extra_metadata = Some(serde_json::json!({"edited": true}));
    let (_, handle) = succeed(&*locator, &session, &edited, &meta("agent", "thread"));
    must("a clear succeeds", handle.clear());
    assert_eq!(messages(&*first), rows);
    assert_eq!(live_uuids(&*first), uuids);
}

#[track_caller]
fn truncate(
    locator: &dyn TranscriptLocator,
    session: &SessionRef,
    cut: TruncateCut,
) -> Vec<String> {
    let old = open(locator, session);
    let (rows, uuids) = (messages(&*old), live_uuids(&*old));
    let (successor, handle, kept) = must(
        "a written session can be truncated",
        locator.truncate_into_next_generation(session, cut, meta("agent", "thread")),
    );
    assert_eq!(successor, session.next_generation());
    assert_eq!(kept, rows[..kept.len()], "the kept rows are a prefix");
    assert_eq!(messages(&*handle), kept, "the kept rows are written");
    assert_eq!(live_uuids(&*handle), uuids[..kept.len()], "by reference");
    kept.into_iter().map(|row| row.content).collect()
}

/// `BeforeIndex(n)` keeps `[0, n)`.
pub fn a_truncation_keeps_the_rows_before_an_index(factory: Factory<'_>) {
    for (index, expected) in [
        (0, &[] as &[&str]),
        (1, &["rules"]),
        (3, &["rules", "question", "answer"]),
        (5, &["rules", "question", "answer", "again", "sure"]),
    ] {
        let locator = factory();
        let session = SessionRef::root("k");
        talk(&*locator, &session);
        assert_eq!(
            truncate(&*locator, &session, TruncateCut::BeforeIndex(index)),
            expected
        );
    }
}

/// An index beyond the end keeps everything.
pub fn a_truncation_index_is_clamped(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    talk(&*locator, &session);
    let kept = truncate(&*locator, &session, TruncateCut::BeforeIndex(usize::MAX));
    assert_eq!(kept.len(), 5);
}

/// `BeforeMessageId` cuts before the first row of that id.
pub fn a_truncation_keeps_the_rows_before_a_message_id(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    talk(&*locator, &session);
    let twice = user("the id again").with_id("m-2");
    must(
        "an append succeeds",
        open(&*locator, &session).append(twice),
    );
    assert_eq!(
        truncate(
            &*locator,
            &session,
            TruncateCut::BeforeMessageId("m-2".into())
        ),
        ["rules", "question", "answer"]
    );
}

/// `LastAssistantTurn` keeps up to and including the last user row, so that the answer can be given again.
pub fn a_truncation_keeps_up_to_the_last_user_row(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    talk(&*locator, &session);
    assert_eq!(
        truncate(&*locator, &session, TruncateCut::LastAssistantTurn),
        ["rules", "question", "answer", "again"]
    );
}

/// Without a user row there is no turn to keep.
pub fn a_truncation_without_a_user_row_keeps_nothing(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = open(&*locator, &session);
    must("an append succeeds", handle.append(assistant("hello")));
    assert_eq!(
        truncate(&*locator, &session, TruncateCut::LastAssistantTurn),
        [] as [&str; 0]
    );
    let head = must("a look-up works", locator.head_generation(&session));
    assert_eq!(head.generation, 1, "an empty kept set is a first write too");
}

/// Truncation asks for the session, not for the generation.
pub fn a_truncation_resolves_the_head(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    succeed(
        &*locator,
        &session,
        &[user("a"), user("b"), user("c")],
        &meta("agent", "thread"),
    );
    let (successor, handle, kept) = must(
        "a written session can be truncated",
        locator.truncate_into_next_generation(
            &session,
            TruncateCut::BeforeIndex(2),
            meta("agent", "thread"),
        ),
    );
    assert_eq!(successor.generation, 2);
    assert_eq!(kept.len(), 2);
    assert_eq!(contents(&*handle), ["a", "b"]);
}

/// The kept rows are written in the same call: the old head is sealed, and the seed is the meta.
pub fn a_truncation_is_written_at_once(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    talk(&*locator, &session);
    let (successor, handle, _) = must(
        "a written session can be truncated",
        locator.truncate_into_next_generation(
            &session,
            TruncateCut::BeforeIndex(1),
            meta("agent", "thread"),
        ),
    );
    drop(handle);
    let head = must("a look-up works", locator.head_generation(&session));
    assert_eq!(head, successor);
    let old = open(&*locator, &session);
    refused("a seal holds", old.append(user("x")), ErrorKind::Sealed);
    let new = open(&*locator, &successor);
    let read = must("a read works", new.read_session()).expect("it was written");
    assert_eq!(read.meta.session_id, Some(session_stem(&successor)));
    assert_eq!(read.meta.parent_session_id, Some(session_stem(&session)));
    assert_eq!(shown(&*new).len(), 1);
    must("the new head is writable", new.append(user("go on")));
}

/// An unknown id is an error, nothing is sealed and nothing is held.
pub fn a_truncation_at_an_unknown_message_is_refused(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    talk(&*locator, &session);
    refused_without_trace(
        &*locator,
        &session,
        "no row has that id",
        ErrorKind::UnknownMessageId,
        || {
            locator.truncate_into_next_generation(
                &session,
                TruncateCut::BeforeMessageId("m-3".into()),
                meta("agent", "thread"),
            )
        },
    );
    must(
        "nothing was sealed",
        open(&*locator, &session).append(user("x")),
    );
    truncate(&*locator, &session, TruncateCut::BeforeIndex(1));
}

/// Nothing written, nothing to cut.
pub fn a_truncation_of_nothing_is_refused(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    for cut in [
        TruncateCut::BeforeIndex(0),
        TruncateCut::BeforeMessageId("m".into()),
        TruncateCut::LastAssistantTurn,
    ] {
        refused(
            "nothing is written",
            locator.truncate_into_next_generation(&session, cut, meta("agent", "thread")),
            ErrorKind::NotWritten,
        );
    }
    assert!(!must("a look-up works", locator.session_exists(&session)));
}

/// The slot of the next generation is held by someone else.
pub fn a_truncation_of_a_reserved_head_is_refused(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    talk(&*locator, &session);
    let (_, holder) = must(
        "a written head can be succeeded",
        locator.begin_generation(&session, meta("agent", "thread")),
    );
    refused(
        "the slot is held",
        locator.truncate_into_next_generation(
            &session,
            TruncateCut::BeforeIndex(1),
            meta("agent", "thread"),
        ),
        ErrorKind::Reserved,
    );
    must("the holder is not disturbed", holder.append(user("on")));
}
