//! What a person is shown: every row ever stored, markers, and the fields that are derived (contract sections 1.13 and 5).

use serde_json::json;

use super::support::{
    answered, assistant, charged, live_uuids, messages, meta, must, open, records, shown, succeed,
    turn_to, turn_with, user, written,
};
use super::{Check, Factory};
use crate::{
    BACKGROUND_METADATA_KEY, CompactionMarker, DisplayRecord, SessionRef, ToolFailure,
    TranscriptHistory, TranscriptMessage, TranscriptPartial, TranscriptTurn, TurnUsage,
};

pub(super) const CHECKS: &[Check] = table![
    the_display_shows_every_row_in_the_order_of_the_log,
    a_compaction_is_shown_as_a_marker_with_its_replacement,
    a_marker_carries_what_the_host_knew_of_it,
    a_replacement_and_a_clear_are_markers_without_a_request,
    a_row_first_stored_by_a_compaction_stands_there_once,
    a_first_write_is_shown_as_plain_messages,
    an_extension_ignores_the_metadata_of_a_compaction,
    a_turn_without_new_rows_is_not_shown,
    a_successor_shows_its_own_log,
    every_record_has_an_identity_of_its_own,
    the_time_of_a_row_is_its_usages,
    the_time_of_an_appended_row_is_that_of_its_write,
    the_time_of_a_row_of_a_turn_is_not_invented,
    the_step_of_a_row_is_its_usages_unless_it_is_stamped,
    reasoning_is_taken_from_metadata_then_text_then_usage,
    a_failure_is_shown,
    a_partial_is_shown_with_trimmed_reasoning_and_its_time,
    an_interrupted_row_is_shown_and_neither_replayed_nor_counted,
    a_background_origin_is_lifted_and_stays,
    a_malformed_background_origin_is_none,
    two_reads_show_the_same,
];

#[track_caller]
fn last_marker(handle: &dyn TranscriptHistory) -> CompactionMarker {
    match records(handle).pop() {
        Some(DisplayRecord::Compaction(marker)) => marker,
        other => panic!("the last record is a compaction, not {other:?}"),
    }
}

/// Whether a stored time is one that a clock gave: RFC 3339 in UTC.
fn is_time(ts: Option<&str>) -> bool {
    ts.is_some_and(|ts| ts.parse::<jiff::Timestamp>().is_ok())
}

/// Rows that were compacted away later and partials included.
pub fn the_display_shows_every_row_in_the_order_of_the_log(factory: Factory<'_>) {
    let locator = factory();
    let handle = written(&*locator, &SessionRef::root("k"));
    let meta = meta("agent", "thread");
    turn_with(&*handle, &[assistant("second")], &meta);
    let rows = messages(&*handle);
    must(
        "a turn succeeds",
        handle.append_turn_with_partial(
            TranscriptTurn::new(&rows, &[assistant("summary")], &meta),
            Some(&TranscriptPartial::new("half")),
        ),
    );
    must("an append succeeds", handle.append(user("third")));
    must("a clear succeeds", handle.clear());
    must("an append succeeds", handle.append(user("fourth")));
    let texts: Vec<_> = records(&*handle)
        .into_iter()
        .map(|record| match record {
            DisplayRecord::Message(row) => row.message.content,
            DisplayRecord::Compaction(marker) => format!("-> {}", marker.replacement.len()),
        })
        .collect();
    assert_eq!(
        texts,
        ["first", "second", "-> 1", "half", "third", "-> 0", "fourth"]
    );
}

/// The replacement is the whole live context after it, kept rows included.
pub fn a_compaction_is_shown_as_a_marker_with_its_replacement(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    turn_with(&*handle, &[user("a"), user("b")], &meta("agent", "thread"));
    let before = shown(&*handle);
    let rows = messages(&*handle);
    turn_to(
        &*handle,
        &[assistant("summary"), rows[1].clone()],
        &meta("agent", "thread"),
    );
    let marker = last_marker(&*handle);
    assert_eq!(marker.replacement.len(), 2);
    assert_eq!(marker.replacement[0].message.content, "summary");
    assert_eq!(
        marker.replacement[1], before[1],
        "a kept row is shown as it was"
    );
    assert!(is_time(marker.ts.as_deref()), "a marker has its write time");
}

/// Request id and metadata of the call.
pub fn a_marker_carries_what_the_host_knew_of_it(factory: Factory<'_>) {
    let locator = factory();
    let handle = written(&*locator, &SessionRef::root("k"));
    let rows = messages(&*handle);
    let known = json!({"trigger": "auto", "before": 120_000, "ratio": 0.25});
    let meta = meta("agent", "thread");
    must(
        "a compaction succeeds",
        handle.append_turn(TranscriptTurn {
            request_id: Some("r"),
            compaction: Some(&known),
            ..TranscriptTurn::new(&rows, &[assistant("summary")], &meta)
        }),
    );
    let marker = last_marker(&*handle);
    assert_eq!(marker.request_id.as_deref(), Some("r"));
    assert_eq!(marker.metadata, Some(known));
    turn_to(&*handle, &[assistant("shorter")], &meta);
    let marker = last_marker(&*handle);
    assert_eq!((marker.request_id, marker.metadata), (None, None));
}

/// They belong to no turn.
pub fn a_replacement_and_a_clear_are_markers_without_a_request(factory: Factory<'_>) {
    let locator = factory();
    let handle = written(&*locator, &SessionRef::root("k"));
    must(
        "a replacement succeeds",
        handle.replace(&[user("x").with_request_id("r")]),
    );
    let marker = last_marker(&*handle);
    assert_eq!(marker.request_id, None);
    assert_eq!(marker.replacement[0].request_id.as_deref(), Some("r"));
    assert!(is_time(marker.ts.as_deref()));
    must("a clear succeeds", handle.clear());
    let marker = last_marker(&*handle);
    assert_eq!(marker.request_id, None);
    assert_eq!(marker.replacement, []);
    assert!(is_time(marker.ts.as_deref()));
}

/// It is not shown a second time as a message of its own.
pub fn a_row_first_stored_by_a_compaction_stands_there_once(factory: Factory<'_>) {
    let locator = factory();
    let handle = written(&*locator, &SessionRef::root("k"));
    turn_to(
        &*handle,
        &[assistant("summary"), user("next")],
        &meta("agent", "thread"),
    );
    let plain: Vec<_> = shown(&*handle)
        .into_iter()
        .map(|row| row.message.content)
        .collect();
    assert_eq!(plain, ["first"]);
    assert_eq!(last_marker(&*handle).replacement.len(), 2);
}

/// Also when it came from `replace`.
pub fn a_first_write_is_shown_as_plain_messages(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    must(
        "a replacement succeeds",
        handle.replace(&[user("x"), user("y")]),
    );
    assert_eq!(records(&*handle).len(), 2);
    assert_eq!(shown(&*handle).len(), 2);
}

/// The host may hand it in with every turn.
pub fn an_extension_ignores_the_metadata_of_a_compaction(factory: Factory<'_>) {
    let locator = factory();
    let handle = written(&*locator, &SessionRef::root("k"));
    let rows = messages(&*handle);
    let next = [rows[0].clone(), user("more")];
    let known = json!({"trigger": "auto"});
    let meta = meta("agent", "thread");
    must(
        "an extension succeeds",
        handle.append_turn(TranscriptTurn {
            compaction: Some(&known),
            ..TranscriptTurn::new(&rows, &next, &meta)
        }),
    );
    assert_eq!(records(&*handle).len(), 2);
    assert_eq!(shown(&*handle).len(), 2);
}

/// An extension by zero rows gives no record.
pub fn a_turn_without_new_rows_is_not_shown(factory: Factory<'_>) {
    let locator = factory();
    let handle = written(&*locator, &SessionRef::root("k"));
    let before = records(&*handle);
    turn_with(&*handle, &[], &meta("agent", "thread"));
    assert_eq!(records(&*handle), before);
}

/// The rows that it kept first, under their identity; nothing else of its predecessor.
pub fn a_successor_shows_its_own_log(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = open(&*locator, &session);
    turn_with(&*first, &[user("a"), user("b")], &meta("agent", "thread"));
    let rows = messages(&*first);
    let (_, next) = succeed(&*locator, &session, &rows[1..], &meta("agent", "thread"));
    must("an append succeeds", next.append(user("c")));
    let of_first = shown(&*first);
    let of_next = shown(&*next);
    assert_eq!(of_next.len(), 2);
    assert_eq!(of_next[0], of_first[1], "a kept row is shown as it was");
    assert_eq!(of_next[1].message.content, "c");
    assert_eq!(records(&*first).len(), 2, "a seal is not shown");
}

/// Rows, partials, markers and usage records.
pub fn every_record_has_an_identity_of_its_own(factory: Factory<'_>) {
    let locator = factory();
    let handle = written(&*locator, &SessionRef::root("k"));
    let meta = meta("agent", "thread");
    let usage = charged(1, 1, 0.0);
    for _ in 0..3 {
        let rows = messages(&*handle);
        must(
            "a turn succeeds",
            handle.append_turn_with_partial(
                TranscriptTurn {
                    turn_usage: Some(&usage),
                    ..TranscriptTurn::new(&rows, &[user("same"), user("same")], &meta)
                },
                Some(&TranscriptPartial::new("half")),
            ),
        );
    }
    let display = must("a read works", handle.read_display()).expect("it was written");
    let mut uuids: Vec<_> = display
        .unattached
        .iter()
        .map(|record| record.uuid)
        .collect();
    assert_eq!(uuids.len(), 3);
    for record in display.records {
        match record {
            DisplayRecord::Message(row) => uuids.push(row.uuid),
            DisplayRecord::Compaction(marker) => {
                uuids.push(marker.uuid);
                uuids.extend(marker.replacement.into_iter().map(|row| row.uuid));
            }
        }
    }
    let count = uuids.len();
    assert!(uuids.iter().all(|uuid| !uuid.is_nil()));
    uuids.sort_unstable();
    uuids.dedup();
    assert_eq!(uuids.len(), count, "two records share an identity");
}

/// `turn_usage.ts`, as it was given.
pub fn the_time_of_a_row_is_its_usages(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let usage = TurnUsage {
        ts: "2020-02-30 in the evening".into(),
        ..charged(1, 1, 0.0)
    };
    let row = answered("x", usage);
    must("an append succeeds", handle.append(row.clone()));
    turn_with(&*handle, &[row], &meta("agent", "thread"));
    for row in shown(&*handle) {
        assert_eq!(row.ts.as_deref(), Some("2020-02-30 in the evening"));
    }
}

/// Without a time of its own.
pub fn the_time_of_an_appended_row_is_that_of_its_write(factory: Factory<'_>) {
    let locator = factory();
    let handle = written(&*locator, &SessionRef::root("k"));
    must(
        "an append succeeds",
        handle.append(answered("x", charged(1, 1, 0.0))),
    );
    for row in shown(&*handle) {
        assert!(is_time(row.ts.as_deref()), "{:?}", row.ts);
    }
}

/// A turn is persisted when it ends: the write time says nothing about its rows.
pub fn the_time_of_a_row_of_a_turn_is_not_invented(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    turn_with(
        &*handle,
        &[user("a"), answered("b", charged(1, 1, 0.0))],
        &meta("agent", "thread"),
    );
    for row in shown(&*handle) {
        assert_eq!(row.ts, None);
    }
}

/// Zero is "not recorded".
pub fn the_step_of_a_row_is_its_usages_unless_it_is_stamped(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    for iteration in [0, 1, 7] {
        let usage = TurnUsage {
            iteration,
            ..charged(1, 1, 0.0)
        };
        must("an append succeeds", handle.append(answered("x", usage)));
    }
    must("an append succeeds", handle.append(user("y")));
    let of_turn = |iteration| TurnUsage {
        iteration,
        ts: "2026-01-02T03:04:05Z".into(),
        ..charged(1, 1, 0.0)
    };
    let own = TurnUsage {
        ts: "earlier".into(),
        ..of_turn(9)
    };
    let mut next = messages(&*handle);
    let prev = next.clone();
    next.extend([answered("stamped", own), assistant("answer")]);
    let (meta, usage) = (meta("agent", "thread"), of_turn(2));
    must(
        "a turn succeeds",
        handle.append_turn(TranscriptTurn {
            turn_usage: Some(&usage),
            ..TranscriptTurn::new(&prev, &next, &meta)
        }),
    );
    let rows = shown(&*handle);
    let steps: Vec<_> = rows.iter().map(|row| row.iteration).collect();
    assert_eq!(steps, [None, Some(1), Some(7), None, Some(1), Some(2)]);
    assert_eq!(rows[4].ts.as_deref(), Some("2026-01-02T03:04:05Z"));
}

/// `extra_metadata.reasoning_content` if it is a string, else the one inside a live legacy envelope, else the usage's.
pub fn reasoning_is_taken_from_metadata_then_text_then_usage(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let thinking = || TurnUsage {
        reasoning_content: Some("usage".into()),
        ..charged(1, 1, 0.0)
    };
    let envelope = r#"{"content":"on it","tool_calls":[{"id":"c","name":"n","arguments":"{}"}],"reasoning_content":"text"}"#;
    let legacy = TranscriptMessage::assistant(envelope).with_turn_usage(thinking());
    let metadata = json!({"reasoning_content": "metadata", "more": 1});
    let rows = [
        legacy.clone().with_extra_metadata(metadata),
        legacy
            .clone()
            .with_extra_metadata(json!({"reasoning_content": 1})),
        legacy,
        answered("plain", thinking()).with_extra_metadata(json!("reasoning_content")),
        answered("plain", thinking()),
        assistant("plain"),
    ];
    for row in rows {
        must("an append succeeds", handle.append(row));
    }
    let shown: Vec<_> = shown(&*handle)
        .into_iter()
        .map(|row| row.reasoning_content)
        .collect();
    let expected = ["metadata", "text", "text", "usage", "usage"].map(|text| Some(text.to_owned()));
    assert_eq!(shown[..5], expected);
    assert_eq!(shown[5], None);
}

/// `failure` and `failure_detail` come from the row's failure.
pub fn a_failure_is_shown(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let result = |failure| TranscriptMessage {
        tool_failure: failure,
        ..TranscriptMessage::tool_result("c", "out")
    };
    for failure in [
        None,
        Some(ToolFailure::failed()),
        Some(ToolFailure::failed().with_detail("timed out")),
    ] {
        must("an append succeeds", handle.append(result(failure)));
    }
    let failures: Vec<_> = shown(&*handle)
        .into_iter()
        .map(|row| (row.failure, row.failure_detail))
        .collect();
    assert_eq!(
        failures,
        [
            (false, None),
            (true, None),
            (true, Some("timed out".into()))
        ]
    );
}

/// Content as given, reasoning trimmed, a blank one none, no usage.
pub fn a_partial_is_shown_with_trimmed_reasoning_and_its_time(factory: Factory<'_>) {
    let locator = factory();
    let handle = written(&*locator, &SessionRef::root("k"));
    let partial = |reasoning: Option<&str>| TranscriptPartial {
        content: " half a sen\n".into(),
        reasoning_content: reasoning.map(str::to_owned),
        iteration: Some(4),
    };
    for reasoning in [Some("\t thinking \n"), Some("  "), None] {
        assert!(must(
            "a partial is stored",
            locator.append_interrupted_partial("thread", None, &partial(reasoning), Some("r")),
        ));
    }
    let rows = shown(&*handle);
    let reasoning: Vec<_> = rows[1..]
        .iter()
        .map(|row| row.reasoning_content.as_deref())
        .collect();
    assert_eq!(reasoning, [Some("thinking"), None, None]);
    for row in &rows[1..] {
        assert!(row.interrupted);
        assert_eq!(row.message.role, "assistant");
        assert_eq!(row.message.content, " half a sen\n");
        assert_eq!(row.request_id.as_deref(), Some("r"));
        assert_eq!(row.iteration, Some(4));
        assert_eq!(row.turn_usage, None);
        assert!(is_time(row.ts.as_deref()), "{:?}", row.ts);
    }
}

/// Also where the host appends it itself.
pub fn an_interrupted_row_is_shown_and_neither_replayed_nor_counted(factory: Factory<'_>) {
    let locator = factory();
    let handle = written(&*locator, &SessionRef::root("k"));
    let row = TranscriptMessage {
        interrupted: true,
        ..answered("half", charged(1, 1, 0.5))
    };
    must("an append succeeds", handle.append(row));
    let rows = shown(&*handle);
    assert_eq!(rows.len(), 2);
    assert!(rows[1].interrupted);
    let stored = messages(&*handle);
    assert_eq!(stored.len(), 1);
    let spend = must("spend can be read", locator.thread_spend("thread"));
    assert_eq!(spend.root.turns, 0);
    turn_with(&*handle, &[assistant("whole")], &meta("agent", "thread"));
    assert_eq!(messages(&*handle)[..1], stored, "it is no baseline either");
}

/// By whichever call the row came.
pub fn a_background_origin_is_lifted_and_stays(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let metadata = json!({
        BACKGROUND_METADATA_KEY: {"idempotency_key": "key", "provenance": {"job": 7}},
        "other": true,
    });
    let row = assistant("done").with_extra_metadata(metadata.clone());
    must("an append succeeds", handle.append(row.clone()));
    turn_with(&*handle, &[row], &meta("agent", "thread"));
    for row in shown(&*handle) {
        let origin = row.background.expect("a well-formed origin is lifted");
        assert_eq!(origin.idempotency_key, "key");
        assert_eq!(origin.provenance, json!({"job": 7}));
        assert_eq!(row.message.extra_metadata, Some(metadata.clone()));
    }
}

/// It stays in the metadata, whatever it is.
pub fn a_malformed_background_origin_is_none(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let malformed = [
        json!({BACKGROUND_METADATA_KEY: "key"}),
        json!({BACKGROUND_METADATA_KEY: {"provenance": 1}}),
        json!({BACKGROUND_METADATA_KEY: {"idempotency_key": 5}}),
        json!([BACKGROUND_METADATA_KEY]),
    ];
    for metadata in &malformed {
        let row = assistant("x").with_extra_metadata(metadata.clone());
        must("an append succeeds", handle.append(row));
    }
    for (row, metadata) in shown(&*handle).into_iter().zip(malformed) {
        assert_eq!(row.background, None);
        assert_eq!(row.message.extra_metadata, Some(metadata));
    }
}

/// Identities and times are stored, not made up by the read.
pub fn two_reads_show_the_same(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    turn_to(&*handle, &[assistant("summary")], &meta("agent", "thread"));
    let first = must("a read works", handle.read_display());
    let second = must("a read works", open(&*locator, &session).read_display());
    assert_eq!(first, second);
    assert_eq!(
        live_uuids(&*handle),
        live_uuids(&*open(&*locator, &session))
    );
}
