//! Handles: when a transcript exists, whose meta and tools it has, and what replaces its rows (contract sections 2 and 4).

use std::sync::Arc;

use serde_json::json;

use super::support::{
    assistant, contents, found, live_uuids, messages, meta, must, open, open_stem, open_with,
    records, turn_with, user, written,
};
use super::{Check, Factory};
use crate::{
    DisplayRecord, SessionRef, TranscriptHistory, TranscriptMeta, TranscriptRead, TranscriptTurn,
    session_stem,
};

pub(super) const CHECKS: &[Check] = table![
    opening_a_handle_does_not_make_a_transcript_exist,
    a_handle_carries_the_published_stem_of_its_session,
    a_raw_stem_and_its_session_are_one_transcript,
    a_turn_without_rows_makes_a_transcript_exist,
    a_replacement_without_rows_makes_a_transcript_exist,
    clearing_an_unwritten_transcript_changes_nothing,
    the_seed_serves_a_first_write_that_brings_no_meta,
    a_turn_brings_its_own_meta_and_the_newest_one_is_read,
    writes_that_bring_no_meta_keep_the_newest_one,
    an_append_lands_after_what_is_stored,
    handles_of_one_transcript_see_each_other,
    a_handle_outlives_the_locator_that_opened_it,
    a_history_handle_serves_as_a_reader,
    a_cleared_transcript_exists_and_is_empty,
    a_cleared_transcript_goes_on,
    a_replacement_gives_exactly_its_rows,
    the_last_tools_record_is_in_force,
    an_append_leaves_the_tools_record_in_force,
    a_turn_that_changes_nothing_records_its_meta,
    the_reader_of_a_session_is_that_of_its_generation,
];

/// Binding a handle writes nothing: every read and every look-up says that there is no such transcript.
pub fn opening_a_handle_does_not_make_a_transcript_exist(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let by_session = open(&*locator, &session);
    let by_stem = open_stem(&*locator, "raw");
    for handle in [&by_session, &by_stem] {
        assert!(must("a read works", handle.read_session()).is_none());
        assert!(must("a read works", handle.read_display()).is_none());
        assert!(must("a read works", handle.read_display_before(None, 10)).is_none());
        assert_eq!(messages(&**handle), []);
    }
    assert!(!must("a look-up works", locator.session_exists(&session)));
    let read = must("a look-up works", locator.read_session_transcript(&session));
    assert!(read.is_none(), "an unwritten session has no transcript");
    let chain = must("a look-up works", locator.session_chain(&session));
    assert_eq!(chain, [], "an unwritten session has no chain");
    let head = must("a look-up works", locator.head_generation(&session));
    assert_eq!(
        head, session,
        "the head of an unwritten session is the ref itself"
    );
    assert_eq!(found(locator.latest_for_agent("agent")), None);
    assert_eq!(found(locator.root_for_thread("thread")), None);
    let listed = must(
        "a look-up works",
        locator.thread_transcripts("thread", None),
    );
    assert!(listed.roots.is_empty(), "an unwritten session is listed");
    assert!(
        listed.pre_identity.is_empty(),
        "an unwritten stem is listed"
    );
}

/// The stem of a session is a pure function of its ref; the table of section 3 gives the bytes that exist in the field.
pub fn a_handle_carries_the_published_stem_of_its_session(factory: Factory<'_>) {
    let locator = factory();
    let orchestrator = SessionRef::scoped("thread-1", "orchestrator");
    let worker = SessionRef::child_of(&orchestrator, "worker-7");
    let table = [
        (
            SessionRef::root("thread-1"),
            "thread-1-2c9d1afa3c382fdf440b08a5f1f46fef",
        ),
        (
            orchestrator.clone(),
            "thread-1-2c9d1afa3c382fdf440b08a5f1f46fef.orchestrator-57c4fd2d66355aa9fd1aea283ce94119",
        ),
        (
            orchestrator.next_generation(),
            "thread-1-2c9d1afa3c382fdf440b08a5f1f46fef.orchestrator-57c4fd2d66355aa9fd1aea283ce94119.g1",
        ),
        (
            SessionRef::scoped("thread-1", ""),
            "thread-1-2c9d1afa3c382fdf440b08a5f1f46fef.session-cbf29ce4842223259e3779b97f4a7c15",
        ),
        (
            SessionRef::root(""),
            "session-cbf29ce4842223259e3779b97f4a7c15",
        ),
        (
            SessionRef::root("a__b"),
            "a_b-148734836b861140caec286747020670",
        ),
        (
            SessionRef::root("../../etc/passwd"),
            "--_--_etc_passwd-2bef2c0bbbdefdfa5ec48241c1e174ca",
        ),
        (
            SessionRef::root("héllo 日"),
            "h_llo_-ece530477c4e17eeedf0565e9ea3e7fe",
        ),
        (
            SessionRef::child_of(&SessionRef::scoped("t1", "o"), "r1"),
            "t1-08c7ff07b56a5e169df6ae2967fa0806.o-af63e24c8601f6be22c050334b91834e__r1-08dc8307b57be76c9e0b3229680b915c",
        ),
        (
            worker.clone(),
            "thread-1-2c9d1afa3c382fdf440b08a5f1f46fef.orchestrator-57c4fd2d66355aa9fd1aea283ce94119__worker-7-249138c59027e1bb5888cc2ad52dc12b",
        ),
        (
            SessionRef::child_of(&worker, "w2"),
            "chain-58d53e16948578369fa97e8bbfd7e106__w2-08cb8407b56d75ec9dfa332967fd1fdc",
        ),
    ];
    for (session, stem) in table {
        assert_eq!(session_stem(&session), stem);
        assert_eq!(
            open(&*locator, &session).stem(),
            stem,
            "a handle names its stem"
        );
    }
    assert_eq!(open_stem(&*locator, "raw").stem(), "raw");
}

/// A stem names one transcript, however it was opened.
pub fn a_raw_stem_and_its_session_are_one_transcript(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::scoped("k", "a");
    let raw = open_stem(&*locator, &session_stem(&session));
    must("a raw stem can be written", raw.append(user("one")));
    assert!(must("a look-up works", locator.session_exists(&session)));
    let typed = open(&*locator, &session);
    must("a session can be written", typed.append(user("two")));
    assert_eq!(contents(&*raw), ["one", "two"]);
    assert_eq!(live_uuids(&*raw), live_uuids(&*typed));
}

/// `append_turn` makes a transcript exist, also with no rows.
pub fn a_turn_without_rows_makes_a_transcript_exist(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = open(&*locator, &session);
    let meta = meta("agent", "thread");
    must(
        "an empty turn succeeds",
        handle.append_turn(TranscriptTurn::new(&[], &[], &meta)),
    );
    assert!(must("a look-up works", locator.session_exists(&session)));
    let read = must("a read works", handle.read_session()).expect("it was written");
    assert_eq!(read.messages, []);
    assert_eq!(read.meta, meta);
    assert_eq!(records(&*handle), []);
}

/// `replace` makes a transcript exist, also with no rows.
pub fn a_replacement_without_rows_makes_a_transcript_exist(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = open(&*locator, &session);
    must("an empty replacement succeeds", handle.replace(&[]));
    assert!(must("a look-up works", locator.session_exists(&session)));
    let read = must("a read works", handle.read_session()).expect("it was written");
    assert_eq!(read.messages, []);
    assert_eq!(
        records(&*handle),
        [],
        "a first write is plain messages, here none"
    );
}

/// `clear` on an unwritten transcript does not make it exist.
pub fn clearing_an_unwritten_transcript_changes_nothing(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = open(&*locator, &session);
    must("clearing nothing succeeds", handle.clear());
    assert!(!must("a look-up works", locator.session_exists(&session)));
    assert!(must("a read works", handle.read_session()).is_none());
}

/// `append` and `replace` bring no meta, so their first write stores the seed.
pub fn the_seed_serves_a_first_write_that_brings_no_meta(factory: Factory<'_>) {
    let locator = factory();
    let appended = open_with(&*locator, &SessionRef::root("a"), meta("one", "thread"));
    must("an append succeeds", appended.append(user("hi")));
    let replaced = open_with(&*locator, &SessionRef::root("b"), meta("two", "thread"));
    must("a replacement succeeds", replaced.replace(&[user("hi")]));
    let turned = open_with(&*locator, &SessionRef::root("c"), meta("seed", "thread"));
    turn_with(&*turned, &[user("hi")], &meta("three", "thread"));
    for (handle, agent) in [(appended, "one"), (replaced, "two"), (turned, "three")] {
        let read = must("a read works", handle.read_session()).expect("it was written");
        assert_eq!(read.meta, meta(agent, "thread"));
    }
}

/// Each turn's meta becomes the newest one, in both reads.
pub fn a_turn_brings_its_own_meta_and_the_newest_one_is_read(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    for count in 1..=3 {
        let meta = TranscriptMeta {
            turn_count: count,
            ..meta("agent", "thread")
        };
        turn_with(&*handle, &[user("hi")], &meta);
        let session = must("a read works", handle.read_session()).expect("it was written");
        assert_eq!(session.meta, meta);
        let display = must("a read works", handle.read_display()).expect("it was written");
        assert_eq!(display.meta, meta);
        let slice = must("a read works", handle.read_display_before(None, 1));
        assert_eq!(slice.expect("it was written").meta, meta);
    }
}

/// `append`, `replace` and `clear` do not touch the meta, whatever seed their handle was opened with.
pub fn writes_that_bring_no_meta_keep_the_newest_one(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    turn_with(
        &*open(&*locator, &session),
        &[user("hi")],
        &meta("first", "thread"),
    );
    let other = open_with(&*locator, &session, meta("seed", "elsewhere"));
    must("an append succeeds", other.append(user("more")));
    must("a replacement succeeds", other.replace(&[user("new")]));
    must("a clear succeeds", other.clear());
    let read = must("a read works", other.read_session()).expect("it was written");
    assert_eq!(read.meta, meta("first", "thread"));
}

/// `append` lands after what is stored at that moment, whatever its handle has seen.
pub fn an_append_lands_after_what_is_stored(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let early = open(&*locator, &session);
    assert_eq!(contents(&*early), [] as [&str; 0]);
    let late = written(&*locator, &session);
    must("an append succeeds", late.append(user("second")));
    must("an append succeeds", early.append(user("third")));
    assert_eq!(contents(&*late), ["first", "second", "third"]);
}

/// Any number of handles may be open; none has a view of its own.
pub fn handles_of_one_transcript_see_each_other(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handles: Vec<_> = (0..4).map(|_| open(&*locator, &session)).collect();
    for (number, handle) in handles.iter().enumerate() {
        must(
            "an append succeeds",
            handle.append(user(&number.to_string())),
        );
        for other in &handles {
            assert_eq!(messages(&**other).len(), number + 1);
        }
    }
}

/// A handle keeps its store open.
pub fn a_handle_outlives_the_locator_that_opened_it(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    drop(locator);
    must("an append succeeds", handle.append(user("hi")));
    assert_eq!(contents(&*handle), ["hi"]);
}

/// `Arc<dyn TranscriptHistory>` upcasts to `Arc<dyn TranscriptRead>`.
pub fn a_history_handle_serves_as_a_reader(factory: Factory<'_>) {
    let locator = factory();
    let handle: Arc<dyn TranscriptHistory> = written(&*locator, &SessionRef::root("k"));
    let reader: Arc<dyn TranscriptRead> = handle.clone();
    assert_eq!(reader.stem(), handle.stem());
    let read = must("a read works", reader.read_session()).expect("it was written");
    assert_eq!(read.messages, messages(&*handle));
}

/// A clear empties the context; the transcript and its log stay.
pub fn a_cleared_transcript_exists_and_is_empty(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    must("a clear succeeds", handle.clear());
    let read = must("a read works", handle.read_session()).expect("it still exists");
    assert_eq!(read.messages, []);
    assert!(must("a look-up works", locator.session_exists(&session)));
    assert!(matches!(
        records(&*handle).as_slice(),
        [DisplayRecord::Message(row), DisplayRecord::Compaction(marker)]
            if row.message.content == "first" && marker.replacement.is_empty()
    ));
}

/// After a clear the next rows start an empty context, by `append` and by a turn.
pub fn a_cleared_transcript_goes_on(factory: Factory<'_>) {
    let locator = factory();
    let handle = written(&*locator, &SessionRef::root("k"));
    must("a clear succeeds", handle.clear());
    must(
        "the empty context is the baseline",
        handle.append_turn(TranscriptTurn::new(
            &[],
            &[user("again")],
            &meta("agent", "thread"),
        )),
    );
    must("an append succeeds", handle.append(assistant("yes")));
    assert_eq!(contents(&*handle), ["again", "yes"]);
}

/// `replace` checks no baseline and leaves exactly its rows.
pub fn a_replacement_gives_exactly_its_rows(factory: Factory<'_>) {
    let locator = factory();
    let handle = written(&*locator, &SessionRef::root("k"));
    must(
        "a replacement succeeds",
        handle.replace(&[user("x"), assistant("y")]),
    );
    assert_eq!(contents(&*handle), ["x", "y"]);
    must("a replacement succeeds", handle.replace(&[]));
    assert_eq!(messages(&*handle), []);
}

/// A turn with tools records them; a turn without leaves the last record in force.
pub fn the_last_tools_record_is_in_force(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let meta = meta("agent", "thread");
    let first = json!([{"name": "search", "weight": 1.0}]);
    let second = json!({"tools": null});
    for (given, expected) in [
        (None, None),
        (Some(&first), Some(&first)),
        (None, Some(&first)),
        (Some(&second), Some(&second)),
        (Some(&first), Some(&first)),
    ] {
        let prev = messages(&*handle);
        let mut next = prev.clone();
        next.push(user("hi"));
        let turn = TranscriptTurn {
            tools: given,
            ..TranscriptTurn::new(&prev, &next, &meta)
        };
        must("a turn succeeds", handle.append_turn(turn));
        let read = must("a read works", handle.read_session()).expect("it was written");
        assert_eq!(read.tools.as_ref(), expected);
    }
}

/// Only a turn records tools.
pub fn an_append_leaves_the_tools_record_in_force(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let tools = json!(["search"]);
    let meta = meta("agent", "thread");
    let turn = TranscriptTurn {
        tools: Some(&tools),
        ..TranscriptTurn::new(&[], &[], &meta)
    };
    must("a turn succeeds", handle.append_turn(turn));
    must("an append succeeds", handle.append(user("hi")));
    must("a replacement succeeds", handle.replace(&[user("x")]));
    let read = must("a read works", handle.read_session()).expect("it was written");
    assert_eq!(read.tools, Some(tools));
}

/// A turn whose live context is the stored one stores no rows, but its meta and its tools.
pub fn a_turn_that_changes_nothing_records_its_meta(factory: Factory<'_>) {
    let locator = factory();
    let handle = written(&*locator, &SessionRef::root("k"));
    let before = records(&*handle);
    let rows = messages(&*handle);
    let newer = TranscriptMeta {
        turn_count: 41,
        ..meta("agent", "thread")
    };
    let tools = json!(["t"]);
    let turn = TranscriptTurn {
        tools: Some(&tools),
        request_id: Some("r"),
        ..TranscriptTurn::new(&rows, &rows, &newer)
    };
    must("a turn succeeds", handle.append_turn(turn));
    assert_eq!(records(&*handle), before, "no record was stored");
    let read = must("a read works", handle.read_session()).expect("it was written");
    assert_eq!(read.meta, newer);
    assert_eq!(read.tools, Some(tools));
}

/// `read_session_transcript` and `session_exists` speak of exactly the generation that they are given.
pub fn the_reader_of_a_session_is_that_of_its_generation(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::scoped("k", "a");
    let handle = written(&*locator, &session);
    let next = session.next_generation();
    assert!(must("a look-up works", locator.session_exists(&session)));
    assert!(!must("a look-up works", locator.session_exists(&next)));
    let read = must("a look-up works", locator.read_session_transcript(&session))
        .expect("a written session has a reader");
    assert_eq!(read.stem(), handle.stem());
    let session_read = must("a read works", read.read_session()).expect("it was written");
    assert_eq!(session_read.messages, messages(&*handle));
    let none = must("a look-up works", locator.read_session_transcript(&next));
    assert!(none.is_none(), "an unwritten generation has no reader");
}
