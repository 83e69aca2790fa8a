//! Background appends: rows that arrive outside a turn, where they go and which are refused (contract section 6).

use serde_json::{Value, json};

use super::support::{
    answered, assistant, block_on, charged, contents, messages, meta, must, open_with, records,
    refused, refused_without_trace, shown, succeed, turn_with, user, written,
};
use super::{Check, Factory};
use crate::background::append_background_message_in;
use crate::{
    BACKGROUND_METADATA_KEY, BackgroundAppend, BackgroundAppendOutcome, ErrorKind, SessionRef,
    ToolFailure, TranscriptLocator, TranscriptMessage, TranscriptToolCall, TurnUsage,
};

pub(super) const CHECKS: &[Check] = table![
    a_background_row_is_appended_to_the_head,
    a_background_row_carries_its_origin,
    a_background_row_keeps_its_other_metadata,
    a_background_row_has_no_request_id_unless_it_claims_one,
    a_background_row_does_not_change_the_meta,
    the_usage_of_a_background_row_counts,
    an_unwritten_session_takes_no_background_row,
    the_head_is_found_from_any_generation,
    an_expected_generation_that_is_the_head_is_accepted,
    an_expected_generation_that_is_not_the_head_is_stale,
    a_stale_generation_is_answered_before_a_duplicate,
    a_blank_key_is_refused,
    only_plain_assistant_rows_are_taken,
    a_background_row_with_calls_in_its_usage_is_refused,
    a_background_row_whose_metadata_is_no_object_is_refused,
    an_invalid_row_is_refused_before_the_session_is_looked_at,
    the_async_append_answers_like_the_plain_one,
];

pub(super) fn append(key: &str) -> BackgroundAppend {
    BackgroundAppend::new(key, json!({"job": key}))
}

#[track_caller]
pub(super) fn deliver(
    locator: &dyn TranscriptLocator,
    session: &SessionRef,
    text: &str,
    append: &BackgroundAppend,
) -> BackgroundAppendOutcome {
    must(
        "a background append is answered",
        locator.append_background(session, assistant(text), append),
    )
}

pub(super) const fn appended(generation: u32) -> BackgroundAppendOutcome {
    BackgroundAppendOutcome::Appended { generation }
}

pub(super) const fn duplicate(generation: u32) -> BackgroundAppendOutcome {
    BackgroundAppendOutcome::Duplicate { generation }
}

/// One row at the end of the live context.
pub fn a_background_row_is_appended_to_the_head(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::scoped("k", "a");
    let handle = written(&*locator, &session);
    assert_eq!(
        deliver(&*locator, &session, "done", &append("job-1")),
        appended(0)
    );
    assert_eq!(contents(&*handle), ["first", "done"]);
    assert_eq!(records(&*handle).len(), 2);
}

/// Key and provenance, under the published name, with the time of the write.
pub fn a_background_row_carries_its_origin(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    deliver(&*locator, &session, "done", &append("job-1"));
    let row = shown(&*handle).pop().expect("a row was appended");
    let origin = row.background.expect("a background row has an origin");
    assert_eq!(origin.idempotency_key, "job-1");
    assert_eq!(origin.provenance, json!({"job": "job-1"}));
    assert_eq!(
        row.message.extra_metadata,
        Some(json!({
            BACKGROUND_METADATA_KEY: {
                "idempotency_key": "job-1",
                "provenance": {"job": "job-1"},
            }
        }))
    );
    assert!(row.ts.is_some(), "its time is that of the write");
    assert!(!row.interrupted);
}

/// Only the origin's own key is set, and an older origin gives way.
pub fn a_background_row_keeps_its_other_metadata(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    let row = assistant("done").with_extra_metadata(json!({
        "reasoning_content": "thinking",
        BACKGROUND_METADATA_KEY: {"idempotency_key": "old"},
    }));
    must(
        "a background append is answered",
        locator.append_background(&session, row, &BackgroundAppend::new("new", json!(null))),
    );
    let row = shown(&*handle).pop().expect("a row was appended");
    assert_eq!(row.reasoning_content.as_deref(), Some("thinking"));
    let origin = row.background.expect("a background row has an origin");
    assert_eq!(origin.idempotency_key, "new");
    assert_eq!(origin.provenance, Value::Null);
    assert_eq!(
        deliver(&*locator, &session, "again", &append("old")),
        appended(0)
    );
}

/// It belongs to no turn.
pub fn a_background_row_has_no_request_id_unless_it_claims_one(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    let named = assistant("done").with_request_id("r");
    let mut claimed = named.clone();
    claimed.preserve_request_id = true;
    for (row, key) in [(named, "1"), (claimed, "2")] {
        must(
            "a background append is answered",
            locator.append_background(&session, row, &append(key)),
        );
    }
    let ids: Vec<_> = messages(&*handle)
        .into_iter()
        .map(|row| row.request_id)
        .collect();
    assert_eq!(ids, [None, None, Some("r".into())]);
}

/// Meta, tools and look-ups stay.
pub fn a_background_row_does_not_change_the_meta(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = open_with(&*locator, &session, meta("seed", "thread"));
    turn_with(&*handle, &[user("hi")], &meta("agent", "thread"));
    deliver(&*locator, &session, "done", &append("job-1"));
    let read = must("a read works", handle.read_session()).expect("it was written");
    assert_eq!(read.meta, meta("agent", "thread"));
}

/// In the live context and in the thread.
pub fn the_usage_of_a_background_row_counts(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    let row = answered("done", charged(10, 5, 0.5));
    for _ in 0..2 {
        must(
            "a background append is answered",
            locator.append_background(&session, row.clone(), &append("job-1")),
        );
    }
    let spend = must("spend can be read", locator.thread_spend("thread"));
    assert_eq!((spend.root.turns, spend.root.input_tokens), (1, 10));
}

/// `NoSession`, and nothing is created.
pub fn an_unwritten_session_takes_no_background_row(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    for append in [append("job-1"), append("job-1").expecting_generation(0)] {
        assert_eq!(
            deliver(&*locator, &session, "done", &append),
            BackgroundAppendOutcome::NoSession
        );
    }
    assert!(!must("a look-up works", locator.session_exists(&session)));
    written(&*locator, &session);
    assert_eq!(
        deliver(&*locator, &session, "done", &append("job-1")),
        appended(0),
        "the key was not used up"
    );
}

/// Whatever generation the argument names, also one that does not exist.
pub fn the_head_is_found_from_any_generation(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    let (next, handle) = succeed(&*locator, &session, &[user("on")], &meta("agent", "thread"));
    let asked = [session, next.clone(), next.next_generation()];
    for (number, session) in asked.iter().enumerate() {
        assert_eq!(
            deliver(&*locator, session, "done", &append(&number.to_string())),
            appended(1)
        );
    }
    assert_eq!(contents(&*handle), ["on", "done", "done", "done"]);
}

/// The head is what the caller thinks it is.
pub fn an_expected_generation_that_is_the_head_is_accepted(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    let expecting = |n: u32| append(&n.to_string()).expecting_generation(n);
    assert_eq!(
        deliver(&*locator, &session, "done", &expecting(0)),
        appended(0)
    );
    succeed(&*locator, &session, &[user("on")], &meta("agent", "thread"));
    assert_eq!(
        deliver(&*locator, &session, "done", &expecting(1)),
        appended(1)
    );
}

/// The answer names both.
pub fn an_expected_generation_that_is_not_the_head_is_stale(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    let (_, handle) = succeed(&*locator, &session, &[user("on")], &meta("agent", "thread"));
    for expected in [0, 2, u32::MAX] {
        assert_eq!(
            deliver(
                &*locator,
                &session,
                "done",
                &append("job").expecting_generation(expected)
            ),
            BackgroundAppendOutcome::StaleGeneration { expected, head: 1 }
        );
    }
    assert_eq!(contents(&*handle), ["on"]);
}

/// Step 5 comes before step 6.
pub fn a_stale_generation_is_answered_before_a_duplicate(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    deliver(&*locator, &session, "done", &append("job"));
    assert_eq!(
        deliver(
            &*locator,
            &session,
            "done",
            &append("job").expecting_generation(1)
        ),
        BackgroundAppendOutcome::StaleGeneration {
            expected: 1,
            head: 0
        }
    );
}

#[track_caller]
fn assert_invalid(
    locator: &dyn TranscriptLocator,
    session: &SessionRef,
    promise: &str,
    row: TranscriptMessage,
    append: &BackgroundAppend,
) {
    refused_without_trace(locator, session, promise, ErrorKind::InvalidMessage, || {
        locator.append_background(session, row, append)
    });
}

/// A key of nothing but white space would make all such jobs one.
pub fn a_blank_key_is_refused(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    for key in ["", " ", "\t\n"] {
        assert_invalid(
            &*locator,
            &session,
            "a blank key is refused",
            assistant("done"),
            &append(key),
        );
    }
}

/// Not of another role, not typed (also after lifting), not interrupted, not failed.
pub fn only_plain_assistant_rows_are_taken(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    let call = TranscriptToolCall {
        id: "c".into(),
        name: "n".into(),
        ..TranscriptToolCall::default()
    };
    let legacy = r#"{"content":"x","tool_calls":[{"id":"c","name":"n","arguments":"{}"}]}"#;
    let mut interrupted = assistant("x");
    interrupted.interrupted = true;
    let refused = [
        ("a user row", user("x")),
        ("a system row", TranscriptMessage::system("x")),
        ("a tool row", TranscriptMessage::tool("x")),
        (
            "a row of an own role",
            TranscriptMessage::new("Assistant", "x"),
        ),
        (
            "a row with calls",
            TranscriptMessage::assistant_with_calls("x", vec![call]),
        ),
        ("a row with calls in its text", assistant(legacy)),
        ("an interrupted row", interrupted),
        (
            "a failed row",
            assistant("x").with_tool_failure(ToolFailure::failed()),
        ),
    ];
    for (what, row) in refused {
        assert_invalid(&*locator, &session, what, row, &append("job"));
    }
    assert_eq!(
        deliver(&*locator, &session, "done", &append("job")),
        appended(0),
        "a refused row uses up no key"
    );
}

/// Calls in a usage are calls of the row.
pub fn a_background_row_with_calls_in_its_usage_is_refused(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    let usage = TurnUsage {
        tool_calls: vec![TranscriptToolCall::default()],
        ..charged(1, 1, 0.5)
    };
    assert_invalid(
        &*locator,
        &session,
        "a usage with calls is refused",
        answered("x", usage),
        &append("job"),
    );
}

/// There is no place for the origin in it.
pub fn a_background_row_whose_metadata_is_no_object_is_refused(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    for metadata in [json!(1), json!("text"), json!([{}]), json!(true)] {
        assert_invalid(
            &*locator,
            &session,
            "metadata that is no object is refused",
            assistant("x").with_extra_metadata(metadata),
            &append("job"),
        );
    }
}

/// Step 1 is first: an invalid call is invalid in an unwritten session too.
pub fn an_invalid_row_is_refused_before_the_session_is_looked_at(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    refused(
        "a user row is refused",
        locator.append_background(&session, user("x"), &append("job")),
        ErrorKind::InvalidMessage,
    );
    refused(
        "a blank key is refused",
        locator.append_background(&session, assistant("x"), &append(" ")),
        ErrorKind::InvalidMessage,
    );
}

/// `append_background_message_in` adds the turn lock and nothing else.
pub fn the_async_append_answers_like_the_plain_one(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let deliver = |append: BackgroundAppend| {
        block_on(append_background_message_in(
            &*locator,
            &session,
            assistant("done"),
            append,
        ))
    };
    assert_eq!(
        must("an append is answered", deliver(append("job"))),
        BackgroundAppendOutcome::NoSession
    );
    let handle = written(&*locator, &session);
    assert_eq!(
        must("an append is answered", deliver(append("job"))),
        appended(0)
    );
    assert_eq!(
        must("an append is answered", deliver(append("job"))),
        duplicate(0)
    );
    assert_eq!(
        must(
            "an append is answered",
            deliver(append("job").expecting_generation(3))
        ),
        BackgroundAppendOutcome::StaleGeneration {
            expected: 3,
            head: 0
        }
    );
    refused(
        "a blank key is refused",
        deliver(append("")),
        ErrorKind::InvalidMessage,
    );
    assert_eq!(contents(&*handle), ["first", "done"]);
}
