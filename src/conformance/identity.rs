//! Which rows are stored again and which are kept, and what a turn stamps on those that it stores (contract section 4:
//! retained rows, stamping).

use serde_json::json;

use super::support::{
    answered, assistant, charged, live_rows, live_uuids, messages, meta, must, open, shown,
    turn_to, turn_with, user,
};
use super::{Check, Factory};
use crate::{
    SessionRef, ToolFailure, TranscriptHistory, TranscriptLocator, TranscriptMessage,
    TranscriptTurn, TurnUsage, UsageRecord,
};

pub(super) const CHECKS: &[Check] = table![
    only_a_row_that_was_read_can_be_kept,
    equal_rows_are_kept_one_by_one,
    a_kept_row_with_other_metadata_is_a_revision,
    a_kept_row_with_other_text_and_the_same_usage_is_a_revision,
    a_kept_row_with_other_text_and_no_usage_is_a_new_row,
    a_kept_row_of_another_request_is_a_new_row,
    exact_rows_are_taken_before_revisions,
    a_replacement_keeps_rows_by_reference,
    the_usage_of_a_turn_goes_to_its_last_new_assistant_row,
    the_usage_of_a_turn_without_a_new_assistant_row_is_a_record_of_its_own,
    a_usage_that_the_row_already_carries_is_one,
    a_usage_that_differs_from_the_rows_own_leaves_both,
    a_usage_on_another_role_becomes_a_record_of_its_own,
    the_usage_of_a_kept_row_is_never_overwritten,
    the_usage_of_a_turn_never_lands_on_a_revision,
    new_rows_get_the_request_id_of_their_turn,
    a_row_that_claims_its_request_id_keeps_it,
    earlier_steps_of_a_turn_are_stamped,
    a_step_is_at_least_the_first,
    a_turn_of_rows_that_were_read_is_not_stamped_with_steps,
];

fn named(content: &str, request: &str) -> TranscriptMessage {
    user(content).with_request_id(request)
}

/// A transcript whose first turn stored `rows` as they are given.
#[track_caller]
fn with_rows(
    locator: &dyn TranscriptLocator,
    rows: &[TranscriptMessage],
) -> std::sync::Arc<dyn TranscriptHistory> {
    let handle = open(locator, &SessionRef::root("k"));
    for row in rows {
        must("an append succeeds", handle.append(row.clone()));
    }
    handle
}

#[track_caller]
fn turn_using(
    handle: &dyn TranscriptHistory,
    next: &[TranscriptMessage],
    usage: &TurnUsage,
    request: Option<&str>,
) {
    let prev = messages(handle);
    let meta = meta("agent", "thread");
    must(
        "a turn on the stored baseline succeeds",
        handle.append_turn(TranscriptTurn {
            turn_usage: Some(usage),
            request_id: request,
            ..TranscriptTurn::new(&prev, next, &meta)
        }),
    );
}

#[track_caller]
fn unattached(handle: &dyn TranscriptHistory) -> Vec<UsageRecord> {
    must("a display can be read", handle.read_display())
        .expect("a written transcript has a display")
        .unattached
}

/// A row without `preserve_request_id` is new, whatever it equals.
pub fn only_a_row_that_was_read_can_be_kept(factory: Factory<'_>) {
    let locator = factory();
    let handle = with_rows(&*locator, &[user("a"), user("b")]);
    let before = live_uuids(&*handle);
    let rows = messages(&*handle);
    turn_to(
        &*handle,
        &[user("a"), rows[1].clone(), user("c")],
        &meta("agent", "thread"),
    );
    // This one is an extension: the prefix is the same, so the stored rows stay.
    assert_eq!(live_uuids(&*handle)[..2], before);
    turn_to(
        &*handle,
        &[user("b"), rows[0].clone()],
        &meta("agent", "thread"),
    );
    let after = live_uuids(&*handle);
    assert!(!before.contains(&after[0]), "a fresh row is a new row");
    assert_eq!(after[1], before[0]);
}

/// The first untaken stored row goes to the first equal row of `next`; none is used twice.
pub fn equal_rows_are_kept_one_by_one(factory: Factory<'_>) {
    let locator = factory();
    let handle = with_rows(&*locator, &[user("x"), user("x"), user("y")]);
    let before = live_uuids(&*handle);
    let rows = messages(&*handle);
    let x = || rows[0].clone();
    turn_to(
        &*handle,
        &[rows[2].clone(), x(), x(), x()],
        &meta("agent", "thread"),
    );
    let after = live_uuids(&*handle);
    assert_eq!(after[..3], [before[2], before[0], before[1]]);
    assert!(
        !before.contains(&after[3]),
        "there were two, the third is new"
    );
}

/// Same row and request id, but other metadata, breakpoints, failure or usage: stored again, and it reads back as given.
pub fn a_kept_row_with_other_metadata_is_a_revision(factory: Factory<'_>) {
    let edits: [fn(&mut TranscriptMessage); 5] = [
        |row| row.extra_metadata = Some(json!({"edited": true})),
        |row| row.cache_breakpoints = vec![1],
        |row| row.tool_failure = Some(ToolFailure::failed()),
        |row| row.turn_usage = None,
        |row| row.turn_usage = Some(charged(2, 2, 0.5)),
    ];
    for edit in edits {
        let locator = factory();
        let row = answered("x", charged(1, 1, 0.5)).with_request_id("r");
        let handle = with_rows(&*locator, &[row, user("y")]);
        let before = live_uuids(&*handle);
        let mut rows = messages(&*handle);
        edit(&mut rows[0]);
        turn_to(&*handle, &rows[..1], &meta("agent", "thread"));
        let after = live_rows(&*handle);
        assert_ne!(after[0].uuid, before[0]);
        assert_eq!(after[0].revises, Some(before[0]));
        assert_eq!(after[0].message, rows[0]);
    }
}

/// Same request id and usage, other text.
pub fn a_kept_row_with_other_text_and_the_same_usage_is_a_revision(factory: Factory<'_>) {
    let locator = factory();
    let handle = with_rows(
        &*locator,
        &[user("x"), answered("long", charged(9, 9, 1.0))],
    );
    let before = live_uuids(&*handle);
    let mut rows = messages(&*handle);
    rows[1].content = "short".into();
    turn_to(&*handle, &rows, &meta("agent", "thread"));
    let after = live_rows(&*handle);
    assert_eq!(after[0].uuid, before[0]);
    assert_eq!(after[1].revises, Some(before[1]));
    assert_eq!(after[1].message, rows[1]);
    let spend = must("spend can be read", locator.thread_spend("thread"));
    assert_eq!(spend.root.turns, 1, "its usage is not counted again");
}

/// Without a usage nothing says that it is the same row.
pub fn a_kept_row_with_other_text_and_no_usage_is_a_new_row(factory: Factory<'_>) {
    let locator = factory();
    let handle = with_rows(&*locator, &[user("x"), assistant("long")]);
    let before = live_uuids(&*handle);
    let mut rows = messages(&*handle);
    rows[1].content = "short".into();
    turn_to(&*handle, &rows, &meta("agent", "thread"));
    let after = live_rows(&*handle);
    assert!(!before.contains(&after[1].uuid));
    assert_eq!(after[1].revises, None);
}

/// The request id is never revised.
pub fn a_kept_row_of_another_request_is_a_new_row(factory: Factory<'_>) {
    let locator = factory();
    let handle = with_rows(&*locator, &[named("x", "r-1"), user("y")]);
    let before = live_uuids(&*handle);
    let mut rows = messages(&*handle);
    rows[0].request_id = Some("r-2".into());
    turn_to(&*handle, &rows[..1], &meta("agent", "thread"));
    let after = live_rows(&*handle);
    assert!(!before.contains(&after[0].uuid));
    assert_eq!(after[0].revises, None);
    assert_eq!(after[0].request_id.as_deref(), Some("r-2"));
}

/// A revision only takes what no exact row wants, wherever that stands.
pub fn exact_rows_are_taken_before_revisions(factory: Factory<'_>) {
    let locator = factory();
    let one = user("x").with_extra_metadata(json!(1));
    let two = user("x").with_extra_metadata(json!(2));
    let handle = with_rows(&*locator, &[one, two]);
    let before = live_uuids(&*handle);
    let rows = messages(&*handle);
    let edited = rows[0].clone().with_extra_metadata(json!(3));
    turn_to(
        &*handle,
        &[edited, rows[0].clone(), user("z")],
        &meta("agent", "thread"),
    );
    // The identities agree with the stored ones up to here, so this was an extension: nothing was stored again.
    assert_eq!(live_uuids(&*handle)[..2], before);
    let edited = rows[0].clone().with_extra_metadata(json!(3));
    turn_to(
        &*handle,
        &[edited, rows[0].clone()],
        &meta("agent", "thread"),
    );
    let after = live_rows(&*handle);
    assert_eq!(after[1].uuid, before[0], "the exact row is referenced");
    assert_eq!(after[0].revises, Some(before[1]), "the other one is left");
}

/// The same rule in `replace`.
pub fn a_replacement_keeps_rows_by_reference(factory: Factory<'_>) {
    let locator = factory();
    let handle = with_rows(&*locator, &[user("x"), assistant("y"), user("z")]);
    let before = live_uuids(&*handle);
    let rows = messages(&*handle);
    must(
        "a replacement succeeds",
        handle.replace(&[rows[2].clone(), user("x"), rows[0].clone()]),
    );
    let after = live_uuids(&*handle);
    assert_eq!([after[0], after[2]], [before[2], before[0]]);
    assert!(!before.contains(&after[1]));
}

/// Other rows keep their own.
pub fn the_usage_of_a_turn_goes_to_its_last_new_assistant_row(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let own = charged(1, 1, 0.1);
    let usage = charged(10, 5, 0.5);
    turn_using(
        &*handle,
        &[
            user("q"),
            answered("step", own.clone()),
            assistant("answer"),
            user("tail"),
        ],
        &usage,
        None,
    );
    let given: Vec<_> = messages(&*handle)
        .into_iter()
        .map(|row| row.turn_usage)
        .collect();
    assert_eq!(given, [None, Some(own), Some(usage), None]);
    assert_eq!(unattached(&*handle), []);
}

/// It is in no message list and in no context, but in `unattached` and in spend.
pub fn the_usage_of_a_turn_without_a_new_assistant_row_is_a_record_of_its_own(
    factory: Factory<'_>,
) {
    let locator = factory();
    let handle = with_rows(&*locator, &[user("q"), assistant("a")]);
    let usage = charged(10, 5, 0.5);
    let mut next = messages(&*handle);
    next.push(user("interrupted question"));
    turn_using(&*handle, &next, &usage, Some("r"));
    let records = unattached(&*handle);
    let [record] = records.as_slice() else {
        panic!("one usage stands alone, but {records:?} are shown");
    };
    assert_eq!(record.usage, usage);
    assert_eq!(record.request_id.as_deref(), Some("r"));
    assert!(
        messages(&*handle)
            .iter()
            .all(|row| row.turn_usage.is_none())
    );
    assert_eq!(shown(&*handle).len(), 3);
    let spend = must("spend can be read", locator.thread_spend("thread"));
    assert_eq!((spend.root.turns, spend.root.input_tokens), (1, 10));
}

/// The host stamped the row itself and hands the usage in as well.
pub fn a_usage_that_the_row_already_carries_is_one(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let usage = charged(10, 5, 0.5);
    turn_using(&*handle, &[answered("a", usage.clone())], &usage, None);
    assert_eq!(messages(&*handle)[0].turn_usage, Some(usage));
    assert_eq!(unattached(&*handle), []);
    let spend = must("spend can be read", locator.thread_spend("thread"));
    assert_eq!(spend.root.turns, 1);
}

/// The call's stands on the row, the row's own becomes a record: no usage is dropped.
pub fn a_usage_that_differs_from_the_rows_own_leaves_both(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let (own, usage) = (charged(1, 2, 0.25), charged(10, 5, 0.5));
    turn_using(&*handle, &[answered("a", own.clone())], &usage, None);
    assert_eq!(messages(&*handle)[0].turn_usage, Some(usage));
    let left: Vec<_> = unattached(&*handle)
        .into_iter()
        .map(|record| record.usage)
        .collect();
    assert_eq!(left, [own]);
    let spend = must("spend can be read", locator.thread_spend("thread"));
    assert_eq!((spend.root.turns, spend.root.input_tokens), (2, 11));
}

/// Only assistant rows carry usage.
pub fn a_usage_on_another_role_becomes_a_record_of_its_own(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let usage = charged(1, 2, 0.25);
    turn_with(
        &*handle,
        &[user("q").with_turn_usage(usage.clone())],
        &meta("agent", "thread"),
    );
    let left: Vec<_> = unattached(&*handle)
        .into_iter()
        .map(|record| record.usage)
        .collect();
    assert_eq!(left, [usage]);
    let spend = must("spend can be read", locator.thread_spend("thread"));
    assert_eq!((spend.root.turns, spend.root.input_tokens), (1, 1));
}

/// A compaction whose only assistant row is a kept one.
pub fn the_usage_of_a_kept_row_is_never_overwritten(factory: Factory<'_>) {
    let locator = factory();
    let own = charged(1, 2, 0.25);
    let handle = with_rows(&*locator, &[user("q"), answered("a", own.clone())]);
    let before = live_uuids(&*handle);
    let rows = messages(&*handle);
    let usage = charged(10, 5, 0.5);
    turn_using(&*handle, &[rows[1].clone()], &usage, None);
    let after = live_rows(&*handle);
    assert_eq!(after[0].uuid, before[1]);
    assert_eq!(after[0].turn_usage, Some(own));
    assert_eq!(unattached(&*handle).len(), 1);
    let spend = must("spend can be read", locator.thread_spend("thread"));
    assert_eq!((spend.root.turns, spend.root.input_tokens), (2, 11));
}

/// A revision reads back as given: it is not among the new rows.
pub fn the_usage_of_a_turn_never_lands_on_a_revision(factory: Factory<'_>) {
    let locator = factory();
    let own = charged(1, 2, 0.25);
    let handle = with_rows(&*locator, &[user("q"), answered("a", own)]);
    let mut rows = messages(&*handle);
    rows[1].extra_metadata = Some(json!({"edited": true}));
    let usage = charged(10, 5, 0.5);
    turn_using(&*handle, &rows[1..], &usage, Some("r"));
    assert_eq!(messages(&*handle), rows[1..]);
    let left: Vec<_> = unattached(&*handle)
        .into_iter()
        .map(|record| record.usage)
        .collect();
    assert_eq!(left, [usage]);
    let spend = must("spend can be read", locator.thread_spend("thread"));
    assert_eq!((spend.root.turns, spend.root.input_tokens), (2, 11));
}

/// A row that does not claim a request id gets the call's, even None.
pub fn new_rows_get_the_request_id_of_their_turn(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let usage = charged(1, 1, 0.0);
    turn_using(
        &*handle,
        &[user("a"), named("b", "ignored"), assistant("c")],
        &usage,
        Some("r-1"),
    );
    turn_with(&*handle, &[named("d", "ignored")], &meta("agent", "thread"));
    let ids: Vec<_> = messages(&*handle)
        .into_iter()
        .map(|row| row.request_id)
        .collect();
    let r1 = Some("r-1".to_owned());
    assert_eq!(ids, [r1.clone(), r1.clone(), r1, None]);
}

/// `preserve_request_id` makes a row's own id authoritative, even None.
pub fn a_row_that_claims_its_request_id_keeps_it(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let mut own = named("a", "own");
    own.preserve_request_id = true;
    let mut none = user("b");
    none.preserve_request_id = true;
    turn_using(
        &*handle,
        &[own, none, assistant("c")],
        &charged(1, 1, 0.0),
        Some("r"),
    );
    let ids: Vec<_> = messages(&*handle)
        .into_iter()
        .map(|row| row.request_id)
        .collect();
    assert_eq!(ids, [Some("own".to_owned()), None, Some("r".to_owned())]);
}

/// The steps before the last are numbered down from it, at least 1, and carry its time.
pub fn earlier_steps_of_a_turn_are_stamped(factory: Factory<'_>) {
    let locator = factory();
    let handle = with_rows(&*locator, &[user("q0"), assistant("a0")]);
    let usage = TurnUsage {
        iteration: 3,
        ts: "2026-01-02T03:04:05Z".into(),
        ..charged(10, 5, 0.5)
    };
    let mut next = messages(&*handle);
    next.extend([
        assistant("of the turn before"),
        user("q"),
        assistant("step 1"),
        TranscriptMessage::tool_result("c", "out"),
        assistant("step 2"),
        assistant("answer"),
    ]);
    turn_using(&*handle, &next, &usage, None);
    let stamps: Vec<_> = shown(&*handle)
        .into_iter()
        .skip(2)
        .map(|row| (row.message.content, row.iteration, row.ts))
        .collect();
    let ts = || Some("2026-01-02T03:04:05Z".to_owned());
    assert_eq!(
        stamps,
        [
            ("of the turn before".into(), None, None),
            ("q".into(), None, None),
            ("step 1".into(), Some(1), ts()),
            ("out".into(), None, None),
            ("step 2".into(), Some(2), ts()),
            ("answer".into(), Some(3), ts()),
        ]
    );
}

/// A turn that kept more rows than it had steps.
pub fn a_step_is_at_least_the_first(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let usage = TurnUsage {
        iteration: 2,
        ..charged(10, 5, 0.5)
    };
    let rows = ["a", "b", "c", "d"].map(assistant);
    turn_using(&*handle, &rows, &usage, None);
    let steps: Vec<_> = shown(&*handle).iter().map(|row| row.iteration).collect();
    assert_eq!(steps, [Some(1), Some(1), Some(1), Some(2)]);
}

/// Rows of a host that restores a transcript are history, not steps of this turn.
pub fn a_turn_of_rows_that_were_read_is_not_stamped_with_steps(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let usage = TurnUsage {
        iteration: 2,
        ts: "2026-01-02T03:04:05Z".into(),
        ..charged(10, 5, 0.5)
    };
    let mut last = assistant("answer");
    last.preserve_request_id = true;
    turn_using(
        &*handle,
        &[user("q"), assistant("step"), last],
        &usage,
        None,
    );
    let step = &shown(&*handle)[1];
    assert_eq!((step.iteration, step.ts.as_deref()), (None, None));
}
