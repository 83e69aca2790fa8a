//! Turns: the baseline check, extensions, compactions and partials (contract sections 2.1 and 4).

use serde_json::json;

use super::support::{
    assistant, contents, live_rows, live_uuids, messages, meta, must, open, records,
    refused_without_trace, shown, turn_to, turn_with, user, written,
};
use super::{Check, Factory};
use crate::{
    DisplayRecord, Error, ErrorKind, SessionRef, TranscriptHistory, TranscriptLocator,
    TranscriptMessage, TranscriptMeta, TranscriptPartial, TranscriptTurn,
};

pub(super) const CHECKS: &[Check] = table![
    a_first_turn_stores_all_its_rows,
    the_first_turn_of_a_transcript_checks_no_baseline,
    an_extension_stores_only_the_new_rows,
    an_extension_leaves_stored_rows_as_they_are,
    a_stale_writer_is_refused_and_changes_nothing,
    a_stale_writer_never_hides_newer_rows,
    a_stale_error_names_the_transcript_and_the_row_counts,
    a_baseline_is_compared_by_row_identity,
    a_cleared_transcript_has_an_empty_baseline,
    a_compaction_leaves_exactly_the_next_rows,
    a_compaction_keeps_rows_by_reference,
    a_shorter_context_is_a_compaction,
    a_reordered_context_is_a_compaction,
    a_context_can_be_compacted_to_nothing,
    a_transcript_goes_on_after_a_compaction,
    a_row_that_was_compacted_away_is_new_when_it_returns,
    a_turn_is_stored_whole,
    a_partial_is_shown_and_never_replayed,
    a_partial_does_not_make_a_baseline_stale,
    a_partial_can_be_a_first_write,
    an_empty_partial_stores_nothing,
    a_refused_turn_stores_no_partial,
];

/// A written transcript of one user and one assistant row, with the rows as they read back.
#[track_caller]
fn greeted(
    locator: &dyn TranscriptLocator,
) -> (
    std::sync::Arc<dyn TranscriptHistory>,
    Vec<TranscriptMessage>,
) {
    let handle = open(locator, &SessionRef::root("k"));
    turn_with(
        &*handle,
        &[user("hi"), assistant("hello")],
        &meta("agent", "thread"),
    );
    let rows = messages(&*handle);
    (handle, rows)
}

fn rows<const N: usize>(rows: [&TranscriptMessage; N]) -> Vec<TranscriptMessage> {
    rows.into_iter().cloned().collect()
}

/// All of `next`, as plain rows in their order.
pub fn a_first_turn_stores_all_its_rows(factory: Factory<'_>) {
    let locator = factory();
    let (handle, rows) = greeted(&*locator);
    assert_eq!(contents(&*handle), ["hi", "hello"]);
    let shown: Vec<_> = shown(&*handle).into_iter().map(|row| row.message).collect();
    assert_eq!(shown, rows);
}

/// Of an unwritten transcript nothing is known, so `prev` is not looked at.
pub fn the_first_turn_of_a_transcript_checks_no_baseline(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    must(
        "an unwritten transcript takes any baseline",
        handle.append_turn(TranscriptTurn::new(
            &[user("from somewhere else")],
            &[user("hi")],
            &meta("agent", "thread"),
        )),
    );
    assert_eq!(contents(&*handle), ["hi"]);
}

/// Only `next[common..]` is stored; the rows before keep their identity.
pub fn an_extension_stores_only_the_new_rows(factory: Factory<'_>) {
    let locator = factory();
    let (handle, _) = greeted(&*locator);
    let before = live_uuids(&*handle);
    turn_with(&*handle, &[user("more")], &meta("agent", "thread"));
    let after = live_uuids(&*handle);
    assert_eq!(after[..2], before);
    assert!(!before.contains(&after[2]));
    assert_eq!(records(&*handle).len(), 3);
}

/// The caller's copies may carry other metadata, usage or request ids: what is stored stays.
pub fn an_extension_leaves_stored_rows_as_they_are(factory: Factory<'_>) {
    let locator = factory();
    let (handle, stored) = greeted(&*locator);
    let mut next = vec![
        TranscriptMessage {
            extra_metadata: Some(json!({"mine": 1})),
            request_id: Some("r".into()),
            cache_breakpoints: vec![1],
            ..user("hi")
        },
        assistant("hello"),
    ];
    next.push(user("more"));
    must(
        "copies of the stored rows are a baseline",
        handle.append_turn(TranscriptTurn::new(
            &next[..2],
            &next,
            &meta("agent", "thread"),
        )),
    );
    assert_eq!(messages(&*handle)[..2], stored);
}

/// A baseline that is shorter, longer, other or reordered is `Stale`, and nothing is written.
pub fn a_stale_writer_is_refused_and_changes_nothing(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let (handle, stored) = greeted(&*locator);
    let tools = json!(["tool"]);
    let newer = TranscriptMeta {
        turn_count: 9,
        ..meta("other", "elsewhere")
    };
    for prev in [
        vec![],
        stored[..1].to_vec(),
        rows([&stored[1], &stored[0]]),
        rows([&stored[0], &stored[1], &user("not stored")]),
        rows([&stored[0], &assistant("something else")]),
    ] {
        let mut next = prev.clone();
        next.push(user("more"));
        refused_without_trace(
            &*locator,
            &session,
            "a stale writer is refused",
            ErrorKind::Stale,
            || {
                handle.append_turn_with_partial(
                    TranscriptTurn {
                        tools: Some(&tools),
                        request_id: Some("r"),
                        ..TranscriptTurn::new(&prev, &next, &newer)
                    },
                    Some(&TranscriptPartial::new("half")),
                )
            },
        );
    }
    must(
        "the store is not disturbed",
        handle.append_turn(TranscriptTurn::new(&stored, &stored, &newer)),
    );
}

/// Even when its `next` would be a compaction, or happens to be what is stored.
pub fn a_stale_writer_never_hides_newer_rows(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let (handle, old) = greeted(&*locator);
    must("an append succeeds", handle.append(user("newer")));
    let newest = messages(&*handle);
    for next in [
        vec![assistant("summary")],
        old.clone(),
        vec![],
        newest.clone(),
    ] {
        refused_without_trace(
            &*locator,
            &session,
            "a stale writer is refused",
            ErrorKind::Stale,
            || handle.append_turn(TranscriptTurn::new(&old, &next, &meta("agent", "thread"))),
        );
    }
    assert_eq!(messages(&*handle), newest);
}

/// The stem and the two numbers of rows, and nothing that a row says.
pub fn a_stale_error_names_the_transcript_and_the_row_counts(factory: Factory<'_>) {
    let locator = factory();
    let (handle, _) = greeted(&*locator);
    let prev = [user("secret"), user("secret"), user("secret")];
    let error = handle
        .append_turn(TranscriptTurn::new(&prev, &prev, &meta("agent", "thread")))
        .expect_err("a stale writer is refused");
    assert!(!error.to_string().contains("secret"), "{error}");
    assert!(!error.to_string().contains("hello"), "{error}");
    let Error::Stale {
        stem,
        expected,
        found,
    } = error
    else {
        panic!("a stale writer is told that it is stale, not: {error}");
    };
    assert_eq!(stem, handle.stem());
    let mut counts = [expected, found];
    counts.sort_unstable();
    assert_eq!(counts, [2, 3]);
}

/// What is no part of a row's identity may differ: metadata, usage, request id, failure, breakpoints.
pub fn a_baseline_is_compared_by_row_identity(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let row = TranscriptMessage {
        extra_metadata: Some(json!({"a": 1})),
        request_id: Some("r".into()),
        ..user("hi")
    };
    must("an append succeeds", handle.append(row));
    must(
        "a row of the same identity is a baseline",
        handle.append_turn(TranscriptTurn::new(
            &[user("hi")],
            &[user("hi"), user("more")],
            &meta("agent", "thread"),
        )),
    );
    let with_id = [user("hi").with_id("m-1"), user("more")];
    let stale = handle.append_turn(TranscriptTurn::new(
        &with_id,
        &with_id,
        &meta("agent", "thread"),
    ));
    assert_eq!(
        stale.map_err(|error| error.kind()),
        Err(ErrorKind::Stale),
        "the id is part of a row's identity"
    );
}

/// A cleared transcript is written, so its baseline is checked: it is the empty one.
pub fn a_cleared_transcript_has_an_empty_baseline(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let (handle, old) = greeted(&*locator);
    must("a clear succeeds", handle.clear());
    refused_without_trace(
        &*locator,
        &session,
        "the rows before the clear are no baseline",
        ErrorKind::Stale,
        || handle.append_turn(TranscriptTurn::new(&old, &old, &meta("agent", "thread"))),
    );
    turn_to(&*handle, &[user("again")], &meta("agent", "thread"));
    assert_eq!(contents(&*handle), ["again"]);
}

/// Afterwards `messages()` equals `next`.
pub fn a_compaction_leaves_exactly_the_next_rows(factory: Factory<'_>) {
    let locator = factory();
    let (handle, stored) = greeted(&*locator);
    let next = rows([&assistant("summary"), &stored[1], &user("go on")]);
    turn_to(&*handle, &next, &meta("agent", "thread"));
    assert_eq!(contents(&*handle), ["summary", "hello", "go on"]);
    assert_eq!(records(&*handle).len(), 3, "two rows and one marker");
}

/// Rows of `next` that are stored rows are referenced, the others are stored.
pub fn a_compaction_keeps_rows_by_reference(factory: Factory<'_>) {
    let locator = factory();
    let (handle, stored) = greeted(&*locator);
    let before = live_uuids(&*handle);
    let next = rows([&assistant("summary"), &stored[1]]);
    turn_to(&*handle, &next, &meta("agent", "thread"));
    let after = live_uuids(&*handle);
    assert_eq!(after[1], before[1]);
    assert!(!before.contains(&after[0]));
}

/// Dropping the tail is a compaction whose rows are all retained.
pub fn a_shorter_context_is_a_compaction(factory: Factory<'_>) {
    let locator = factory();
    let (handle, stored) = greeted(&*locator);
    let before = live_uuids(&*handle);
    turn_to(&*handle, &stored[..1], &meta("agent", "thread"));
    assert_eq!(live_uuids(&*handle), before[..1]);
    assert!(matches!(
        records(&*handle).last(),
        Some(DisplayRecord::Compaction(marker)) if marker.replacement.len() == 1
    ));
}

/// A retained row may stand anywhere.
pub fn a_reordered_context_is_a_compaction(factory: Factory<'_>) {
    let locator = factory();
    let (handle, stored) = greeted(&*locator);
    let before = live_uuids(&*handle);
    turn_to(
        &*handle,
        &rows([&stored[1], &stored[0]]),
        &meta("agent", "thread"),
    );
    assert_eq!(live_uuids(&*handle), [before[1], before[0]]);
    assert_eq!(contents(&*handle), ["hello", "hi"]);
}

/// An empty `next` on a context with rows.
pub fn a_context_can_be_compacted_to_nothing(factory: Factory<'_>) {
    let locator = factory();
    let (handle, _) = greeted(&*locator);
    turn_to(&*handle, &[], &meta("agent", "thread"));
    assert_eq!(messages(&*handle), []);
    assert_eq!(records(&*handle).len(), 3);
}

/// The next turn extends what the compaction left.
pub fn a_transcript_goes_on_after_a_compaction(factory: Factory<'_>) {
    let locator = factory();
    let (handle, stored) = greeted(&*locator);
    turn_to(
        &*handle,
        &rows([&assistant("summary"), &stored[1]]),
        &meta("agent", "thread"),
    );
    let before = live_uuids(&*handle);
    turn_with(&*handle, &[user("more")], &meta("agent", "thread"));
    must("an append succeeds", handle.append(assistant("and more")));
    assert_eq!(contents(&*handle), ["summary", "hello", "more", "and more"]);
    assert_eq!(live_uuids(&*handle)[..2], before);
}

/// Only a row of the context before can be retained.
pub fn a_row_that_was_compacted_away_is_new_when_it_returns(factory: Factory<'_>) {
    let locator = factory();
    let (handle, stored) = greeted(&*locator);
    let before = live_uuids(&*handle);
    turn_to(&*handle, &stored[..1], &meta("agent", "thread"));
    turn_to(&*handle, &stored, &meta("agent", "thread"));
    let after = live_uuids(&*handle);
    assert_eq!(after[0], before[0]);
    assert_ne!(after[1], before[1], "the row was no longer in the context");
    assert_eq!(messages(&*handle), stored);
}

/// Rows, meta, tools and partial of a turn appear together.
pub fn a_turn_is_stored_whole(factory: Factory<'_>) {
    let locator = factory();
    let (handle, stored) = greeted(&*locator);
    let mut next = stored.clone();
    next.push(user("more"));
    let newer = TranscriptMeta {
        turn_count: 2,
        ..meta("agent", "thread")
    };
    let tools = json!({"names": ["search"]});
    must(
        "a turn succeeds",
        handle.append_turn_with_partial(
            TranscriptTurn {
                request_id: Some("r"),
                tools: Some(&tools),
                ..TranscriptTurn::new(&stored, &next, &newer)
            },
            Some(&TranscriptPartial {
                content: "half an ans".into(),
                reasoning_content: Some("  thinking \n".into()),
                iteration: Some(2),
            }),
        ),
    );
    let read = must("a read works", handle.read_session()).expect("it was written");
    assert_eq!(read.meta, newer);
    assert_eq!(read.tools, Some(tools));
    assert_eq!(read.messages.len(), 3);
    let rows = shown(&*handle);
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[2].request_id.as_deref(), Some("r"));
    assert_eq!(rows[3].message.content, "half an ans");
    assert!(rows[3].interrupted);
}

/// A partial stands in the display and in no context.
pub fn a_partial_is_shown_and_never_replayed(factory: Factory<'_>) {
    let locator = factory();
    let (handle, stored) = greeted(&*locator);
    let meta = meta("agent", "thread");
    must(
        "a partial is stored",
        handle.append_turn_with_partial(
            TranscriptTurn::new(&stored, &stored, &meta),
            Some(&TranscriptPartial::new("half")),
        ),
    );
    assert_eq!(messages(&*handle), stored);
    let read = must("a read works", handle.read_session()).expect("it was written");
    assert_eq!(read.messages, stored);
    let rows = shown(&*handle);
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[2].message.role, "assistant");
    assert!(rows[2].interrupted && rows[2].message.interrupted);
    assert_eq!(live_rows(&*handle).len(), 2);
}

/// The caller that stored a partial goes on from the baseline that it had.
pub fn a_partial_does_not_make_a_baseline_stale(factory: Factory<'_>) {
    let locator = factory();
    let (handle, stored) = greeted(&*locator);
    assert!(must(
        "a partial is stored",
        locator.append_interrupted_partial("thread", None, &TranscriptPartial::new("half"), None),
    ));
    let mut next = stored.clone();
    next.push(user("again"));
    must(
        "the baseline still stands",
        handle.append_turn(TranscriptTurn::new(
            &stored,
            &next,
            &meta("agent", "thread"),
        )),
    );
    let shown: Vec<_> = shown(&*handle)
        .into_iter()
        .map(|row| row.message.content)
        .collect();
    assert_eq!(shown, ["hi", "hello", "half", "again"]);
}

/// A turn that was interrupted before it had rows.
pub fn a_partial_can_be_a_first_write(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = open(&*locator, &session);
    must(
        "a partial is a first write",
        handle.append_turn_with_partial(
            TranscriptTurn::new(&[], &[], &meta("agent", "thread")),
            Some(&TranscriptPartial::new("half")),
        ),
    );
    assert!(must("a look-up works", locator.session_exists(&session)));
    let read = must("a read works", handle.read_session()).expect("it was written");
    assert_eq!(read.messages, []);
    assert_eq!(shown(&*handle).len(), 1);
}

/// The turn is stored, the partial is not.
pub fn an_empty_partial_stores_nothing(factory: Factory<'_>) {
    let locator = factory();
    let (handle, stored) = greeted(&*locator);
    let newer = TranscriptMeta {
        turn_count: 3,
        ..meta("agent", "thread")
    };
    must(
        "an empty partial is no error",
        handle.append_turn_with_partial(
            TranscriptTurn::new(&stored, &stored, &newer),
            Some(&TranscriptPartial {
                reasoning_content: Some("a thought without a word".into()),
                ..TranscriptPartial::new("")
            }),
        ),
    );
    assert_eq!(shown(&*handle).len(), 2);
    let read = must("a read works", handle.read_session()).expect("it was written");
    assert_eq!(read.meta, newer);
}

/// A partial is part of its turn: refused with it.
pub fn a_refused_turn_stores_no_partial(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    refused_without_trace(
        &*locator,
        &session,
        "a stale writer is refused",
        ErrorKind::Stale,
        || {
            handle.append_turn_with_partial(
                TranscriptTurn::new(&[], &[], &meta("agent", "thread")),
                Some(&TranscriptPartial::new("half")),
            )
        },
    );
}
