//! Rows and metas: what a caller puts in comes back (contract section 1).

use serde_json::json;

use super::support::{
    answered, assistant, charged, messages, meta, must, open, turn_with, user, written,
};
use super::{Check, Factory};
use crate::{
    SessionRef, ToolFailure, TranscriptMediaRef, TranscriptMessage, TranscriptMeta, TranscriptPart,
    TranscriptToolCall, TranscriptTurn,
};

pub(super) const CHECKS: &[Check] = table![
    a_meta_is_stored_verbatim,
    every_field_of_a_row_reads_back,
    every_row_that_is_read_states_its_request_id,
    a_failure_that_did_not_fail_reads_back_as_none,
    a_legacy_row_reads_back_typed_and_remembers_its_string,
    an_appended_row_keeps_its_own_request_id_and_usage,
    a_replacement_keeps_the_request_ids_as_given,
];

/// The store computes no field of a meta and corrects none: wrong totals come back as they were given.
pub fn a_meta_is_stored_verbatim(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let full = TranscriptMeta {
        agent_name: " Agent ".into(),
        dispatcher: "xml".into(),
        created: "not a time".into(),
        updated: String::new(),
        turn_count: 7,
        input_tokens: u64::MAX,
        output_tokens: 1,
        cached_input_tokens: 9,
        charged_amount_usd: -0.125,
        agent_id: Some("id-1".into()),
        agent_type: Some("worker".into()),
        provider: Some("provider".into()),
        model: Some("model".into()),
        prefix_message_count: Some(3),
        thread_id: Some(" thread ".into()),
        task_id: Some("task".into()),
        session_id: Some("my own".into()),
        parent_session_id: Some(String::new()),
    };
    turn_with(&*handle, &[user("hi")], &full);
    let read = must("a read works", handle.read_session()).expect("it was written");
    assert_eq!(read.meta, full);
}

/// Whatever a caller may put into a row comes back from both reads.
pub fn every_field_of_a_row_reads_back(factory: Factory<'_>) {
    let call = |id: &str, extra| TranscriptToolCall {
        id: id.into(),
        name: "search".into(),
        arguments: "{\"q\": not json".into(),
        extra_content: extra,
    };
    let rows = [
        TranscriptMessage::system("you are"),
        TranscriptMessage {
            id: Some("m-1".into()),
            extra_metadata: Some(json!({"z": 1, "a": [null, true, 1.5, "x"], "big": u64::MAX})),
            cache_breakpoints: vec![0, 3, usize::MAX],
            ..user("  spaces\r\nand\ttabs \u{0} and 日本 🦀")
        },
        TranscriptMessage::user_with_parts(vec![
            TranscriptPart::Text {
                text: "look ".into(),
            },
            TranscriptPart::Image {
                url: "https://example.org/a.png".into(),
            },
            TranscriptPart::Audio {
                source: TranscriptMediaRef::Path {
                    path: "/tmp/a b.wav".into(),
                },
                mime_type: "audio/wav".into(),
            },
            TranscriptPart::Video {
                source: TranscriptMediaRef::Url {
                    url: "https://example.org/v".into(),
                },
                mime_type: "video/mp4".into(),
            },
            TranscriptPart::Document {
                source: TranscriptMediaRef::Path {
                    path: String::new(),
                },
                mime_type: String::new(),
            },
        ]),
        TranscriptMessage {
            turn_usage: Some(crate::TurnUsage {
                provider: "p".into(),
                model: "m".into(),
                ts: "2026-01-02T03:04:05.678Z".into(),
                reasoning_content: Some("because".into()),
                tool_calls: vec![call("c-1", None)],
                iteration: 2,
                usage: crate::MessageUsage {
                    input: 10,
                    output: 5,
                    cached_input: 3,
                    context_window: 200_000,
                    cost_usd: 0.1 + 0.2,
                    last_call_input: 8,
                    last_call_output: 2,
                    cost_source: Some(crate::UsageCostSource::Estimated),
                },
            }),
            request_id: Some("r".into()),
            preserve_request_id: true,
            ..TranscriptMessage::assistant_with_calls(
                "calling",
                vec![call("c-1", Some(json!({"thought": "x"}))), call("", None)],
            )
        },
        TranscriptMessage {
            tool_failure: Some(ToolFailure {
                failed: true,
                detail: Some("timed out".into()),
            }),
            ..TranscriptMessage::tool_result("c-1", "")
        },
        TranscriptMessage::new("narrator", "a role of the host's own"),
        TranscriptMessage::new("", ""),
    ];
    let expected: Vec<_> = rows
        .iter()
        .map(|row| TranscriptMessage {
            preserve_request_id: true,
            ..row.clone()
        })
        .collect();
    let locator = factory();
    let turned = open(&*locator, &SessionRef::root("turned"));
    turn_with(&*turned, &rows, &meta("agent", "thread"));
    let appended = open(&*locator, &SessionRef::root("appended"));
    for row in &rows {
        must("an append succeeds", appended.append(row.clone()));
    }
    for handle in [turned, appended] {
        assert_eq!(messages(&*handle), expected);
        let shown: Vec<_> = super::support::shown(&*handle)
            .into_iter()
            .map(|row| row.message)
            .collect();
        assert_eq!(shown, expected, "the display carries the whole row");
    }
}

/// `preserve_request_id` is true on every row that a read returns, so a host that hands it back changes nothing.
pub fn every_row_that_is_read_states_its_request_id(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    must("an append succeeds", handle.append(user("hi")));
    turn_with(&*handle, &[assistant("hello")], &meta("agent", "thread"));
    let session = must("a read works", handle.read_session()).expect("it was written");
    for message in messages(&*handle).iter().chain(&session.messages) {
        assert!(message.preserve_request_id);
    }
    for row in super::support::shown(&*handle) {
        assert!(row.message.preserve_request_id);
    }
}

/// `failed: false` says nothing and reads back as no failure.
pub fn a_failure_that_did_not_fail_reads_back_as_none(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let row = TranscriptMessage {
        tool_failure: Some(ToolFailure {
            failed: false,
            detail: Some("ignored".into()),
        }),
        ..TranscriptMessage::tool_result("c", "fine")
    };
    must("an append succeeds", handle.append(row));
    assert_eq!(messages(&*handle)[0].tool_failure, None);
}

/// A row of an older host is stored typed and gives its old string back byte for byte.
pub fn a_legacy_row_reads_back_typed_and_remembers_its_string(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let old = [
        (
            "assistant",
            r#"{"content": "on it",  "tool_calls":[{"id":"c","name":"n","arguments":"{}"}]}"#,
        ),
        ("tool", r#"{"tool_call_id":"c","content":"done","more":1}"#),
        ("user", "see [OH_IMAGE:https://example.org/i.png] here"),
    ];
    let rows: Vec<_> = old
        .iter()
        .map(|(role, content)| TranscriptMessage::new(*role, *content))
        .collect();
    turn_with(&*handle, &rows, &meta("agent", "thread"));
    let read = messages(&*handle);
    assert_eq!(read[0].content, "on it");
    assert_eq!(read[0].tool_calls.len(), 1);
    assert_eq!(read[1].content, "done");
    assert_eq!(read[1].tool_call_id.as_deref(), Some("c"));
    assert_eq!(read[2].content, "see  here");
    assert_eq!(read[2].parts.as_ref().map(Vec::len), Some(3));
    for (row, (_, content)) in read.iter().zip(old) {
        assert!(row.is_typed());
        assert_eq!(row.legacy_content(), content);
    }
    let next: Vec<_> = read.into_iter().chain([assistant("more")]).collect();
    must(
        "the old rows are a valid baseline for the typed ones",
        handle.append_turn(TranscriptTurn::new(&rows, &next, &meta("agent", "thread"))),
    );
    assert_eq!(messages(&*handle).len(), 4);
}

/// `append` stamps nothing on its row.
pub fn an_appended_row_keeps_its_own_request_id_and_usage(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let row = TranscriptMessage {
        request_id: Some("mine".into()),
        ..answered("hello", charged(3, 2, 0.5))
    };
    must("an append succeeds", handle.append(row));
    let read = messages(&*handle);
    assert_eq!(read[0].request_id.as_deref(), Some("mine"));
    assert_eq!(read[0].turn_usage, Some(charged(3, 2, 0.5)));
}

/// `replace` stamps no request id, also not on rows that do not claim theirs.
pub fn a_replacement_keeps_the_request_ids_as_given(factory: Factory<'_>) {
    let locator = factory();
    let handle = written(&*locator, &SessionRef::root("k"));
    let named = TranscriptMessage {
        request_id: Some("r-1".into()),
        ..user("x")
    };
    must(
        "a replacement succeeds",
        handle.replace(&[named, user("y")]),
    );
    let ids: Vec<_> = messages(&*handle)
        .into_iter()
        .map(|row| row.request_id)
        .collect();
    assert_eq!(ids, [Some("r-1".into()), None]);
}
