//! Bad input: a refused call says why and leaves nothing behind (contract sections 2.1, 2.2, 6 and 7).

use std::sync::Arc;

use serde_json::{Value, json};

use super::support::{
    answered, assistant, charged, messages, meta, must, open, refused, refused_without_trace,
    turn_with, user, written,
};
use super::{Check, Factory};
use crate::{
    BackgroundAppend, Error, ErrorKind, Result, SessionRef, TranscriptHistory, TranscriptLocator,
    TranscriptMessage, TranscriptMeta, TranscriptPartial, TranscriptToolCall, TranscriptTurn,
    TurnUsage,
};

pub(super) const CHECKS: &[Check] = table![
    a_cost_that_is_no_number_is_refused,
    an_absurd_cost_is_refused,
    the_largest_cost_is_accepted_in_either_direction,
    a_cost_in_any_row_of_a_turn_is_checked,
    a_meta_with_a_charge_that_is_no_number_is_refused,
    nesting_up_to_the_limit_reads_back,
    nesting_beyond_the_limit_is_refused,
    nesting_is_checked_wherever_a_caller_hands_in_json,
    absurd_nesting_does_not_overflow_the_stack,
    an_id_up_to_the_limit_reads_back,
    an_id_over_the_limit_is_refused,
    a_session_over_the_limit_is_refused,
    a_refused_first_write_does_not_make_a_transcript_exist,
    a_refused_first_write_of_a_successor_seals_nothing,
    a_refused_truncation_holds_nothing,
    an_error_never_tells_what_a_record_says,
];

/// One id, key, stem or role has at most so many bytes.
const ID_LIMIT: usize = 1 << 20;
/// JSON has at most so many levels.
const NESTING_LIMIT: usize = 128;

/// Arrays and objects in turn, `levels` deep.
fn nested(levels: usize) -> Value {
    let mut value = json!(null);
    for level in 0..levels {
        value = if level % 2 == 0 {
            Value::Array(vec![value])
        } else {
            let mut map = serde_json::Map::new();
            map.insert("k".into(), value);
            Value::Object(map)
        };
    }
    value
}

/// Takes nested JSON apart level by level: dropping it whole would recurse.
fn take_apart(mut value: Value) {
    loop {
        value = match value {
            Value::Array(mut items) => items.pop().unwrap_or_default(),
            Value::Object(mut map) => map.remove("k").unwrap_or_default(),
            _ => return,
        };
    }
}

/// Hands `row` to every call that stores rows, each of which has to answer `kind` and to change nothing.
#[track_caller]
fn assert_row_refused(
    locator: &dyn TranscriptLocator,
    session: &SessionRef,
    promise: &str,
    kind: ErrorKind,
    row: &TranscriptMessage,
) {
    let handle = open(locator, session);
    let meta = meta("agent", "thread");
    let stored = messages(&*handle);
    let mut extended = stored.clone();
    extended.push(row.clone());
    let compacted = [user("summary"), row.clone()];
    let calls: [(&str, &dyn Fn() -> Result<()>); 4] = [
        ("append", &|| handle.append(row.clone())),
        ("replace", &|| handle.replace(&[user("x"), row.clone()])),
        ("an extension", &|| {
            handle.append_turn(TranscriptTurn::new(&stored, &extended, &meta))
        }),
        ("a compaction", &|| {
            handle.append_turn(TranscriptTurn::new(&stored, &compacted, &meta))
        }),
    ];
    for (what, call) in calls {
        refused_without_trace(locator, session, &format!("{promise} ({what})"), kind, call);
    }
}

/// NaN and the infinities have no place in a sum.
pub fn a_cost_that_is_no_number_is_refused(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    for cost in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_usage_refused(&*locator, &session, cost);
    }
}

#[track_caller]
fn assert_usage_refused(locator: &dyn TranscriptLocator, session: &SessionRef, cost: f64) {
    let promise = format!("a cost of {cost} is refused");
    let kind = ErrorKind::InvalidMessage;
    let usage = charged(1, 1, cost);
    let row = answered("x", usage.clone());
    assert_row_refused(locator, session, &promise, kind, &row);
    let handle = open(locator, session);
    let stored = messages(&*handle);
    let meta = meta("agent", "thread");
    refused_without_trace(locator, session, &promise, kind, || {
        handle.append_turn(TranscriptTurn {
            turn_usage: Some(&usage),
            ..TranscriptTurn::new(&stored, &stored, &meta)
        })
    });
    refused_without_trace(locator, session, &promise, kind, || {
        locator.append_background(session, row, &BackgroundAppend::new("job", json!(null)))
    });
}

/// More than 10^9 USD in one turn is a mistake that would hide every other number.
pub fn an_absurd_cost_is_refused(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    for cost in [1.000_000_1e9, -1.000_000_1e9, 1e300, f64::MAX, f64::MIN] {
        assert_usage_refused(&*locator, &session, cost);
    }
}

/// 10^9 itself, and as a refund.
pub fn the_largest_cost_is_accepted_in_either_direction(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    for cost in [1e9, -1e9, 1e9] {
        must(
            "the largest cost is a cost",
            handle.append(answered("x", charged(1, 1, cost))),
        );
    }
    let spend = must("spend can be read", locator.thread_spend("thread"));
    assert_eq!(spend.root.cost_usd.to_string(), "1000000000");
}

/// Not only in the last one.
pub fn a_cost_in_any_row_of_a_turn_is_checked(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    let stored = messages(&*handle);
    let mut next = stored.clone();
    next.extend([
        user("q").with_turn_usage(charged(1, 1, f64::NAN)),
        answered("a", charged(1, 1, 0.5)),
    ]);
    refused_without_trace(
        &*locator,
        &session,
        "a usage on a user row is stored, so it is checked",
        ErrorKind::InvalidMessage,
        || {
            handle.append_turn(TranscriptTurn::new(
                &stored,
                &next,
                &meta("agent", "thread"),
            ))
        },
    );
}

/// Also in a seed that is used.
pub fn a_meta_with_a_charge_that_is_no_number_is_refused(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    let stored = messages(&*handle);
    for charge in [f64::NAN, f64::INFINITY] {
        let meta = TranscriptMeta {
            charged_amount_usd: charge,
            ..meta("agent", "thread")
        };
        refused_without_trace(
            &*locator,
            &session,
            "a charge that is no number is refused",
            ErrorKind::InvalidMessage,
            || handle.append_turn(TranscriptTurn::new(&stored, &stored, &meta)),
        );
        let other = SessionRef::root("other");
        let write = locator
            .open_session(&other, meta)
            .and_then(|handle| handle.append(user("hi")));
        refused(
            "a charge that is no number is refused",
            write,
            ErrorKind::InvalidMessage,
        );
        assert!(!must("a look-up works", locator.session_exists(&other)));
    }
}

/// What is accepted reads back.
pub fn nesting_up_to_the_limit_reads_back(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let meta = meta("agent", "thread");
    let deep = nested(NESTING_LIMIT);
    let call = TranscriptToolCall {
        extra_content: Some(deep.clone()),
        ..TranscriptToolCall::default()
    };
    let row =
        TranscriptMessage::assistant_with_calls("x", vec![call]).with_extra_metadata(deep.clone());
    for next in [vec![row.clone()], vec![user("summary"), row.clone()]] {
        let prev = messages(&*handle);
        must(
            "nesting up to the limit is accepted",
            handle.append_turn(TranscriptTurn {
                tools: Some(&deep),
                compaction: Some(&deep),
                ..TranscriptTurn::new(&prev, &next, &meta)
            }),
        );
    }
    let read = must("a read works", handle.read_session()).expect("it was written");
    let last = read.messages.last().expect("a row is live");
    assert_eq!(last.extra_metadata.as_ref(), Some(&deep));
    assert_eq!(last.tool_calls, row.tool_calls);
    assert_eq!(read.tools.as_ref(), Some(&deep));
    let display = must("a read works", handle.read_display()).expect("it was written");
    let Some(crate::DisplayRecord::Compaction(marker)) = display.records.last() else {
        panic!("the second turn was a compaction");
    };
    assert_eq!(marker.metadata, Some(deep));
}

/// One level more.
pub fn nesting_beyond_the_limit_is_refused(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    let row = user("x").with_extra_metadata(nested(NESTING_LIMIT + 1));
    assert_row_refused(
        &*locator,
        &session,
        "JSON that is too deep is refused",
        ErrorKind::TooLarge,
        &row,
    );
    let error = open(&*locator, &session)
        .append(row)
        .expect_err("it was just refused");
    let Error::TooLarge { what, .. } = error else {
        panic!("too deep is too large, not: {error}");
    };
    assert_eq!(what, "nesting");
}

/// Tools, compaction, calls of a row and of a usage, provenance.
pub fn nesting_is_checked_wherever_a_caller_hands_in_json(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    let stored = messages(&*handle);
    let meta = meta("agent", "thread");
    let deep = nested(NESTING_LIMIT + 1);
    let promise = "JSON that is too deep is refused";
    let kind = ErrorKind::TooLarge;
    refused_without_trace(&*locator, &session, promise, kind, || {
        handle.append_turn(TranscriptTurn {
            tools: Some(&deep),
            ..TranscriptTurn::new(&stored, &stored, &meta)
        })
    });
    refused_without_trace(&*locator, &session, promise, kind, || {
        handle.append_turn(TranscriptTurn {
            compaction: Some(&deep),
            ..TranscriptTurn::new(&stored, &[user("summary")], &meta)
        })
    });
    let call = TranscriptToolCall {
        extra_content: Some(deep.clone()),
        ..TranscriptToolCall::default()
    };
    let row = TranscriptMessage::assistant_with_calls("x", vec![call.clone()]);
    assert_row_refused(&*locator, &session, promise, kind, &row);
    let usage = TurnUsage {
        tool_calls: vec![call],
        ..charged(1, 1, 0.5)
    };
    assert_row_refused(&*locator, &session, promise, kind, &answered("x", usage));
    refused_without_trace(&*locator, &session, promise, kind, || {
        locator.append_background(
            &session,
            assistant("done"),
            &BackgroundAppend::new("job", deep.clone()),
        )
    });
}

/// A refusal must not take the process down.
pub fn absurd_nesting_does_not_overflow_the_stack(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    let stored = messages(&*handle);
    let meta = meta("agent", "thread");
    let deep = nested(200_000);
    let result = handle.append_turn(TranscriptTurn {
        tools: Some(&deep),
        ..TranscriptTurn::new(&stored, &stored, &meta)
    });
    take_apart(deep);
    refused(
        "JSON that is too deep is refused",
        result,
        ErrorKind::TooLarge,
    );
}

/// 1 MiB each, and told apart by their last byte.
pub fn an_id_up_to_the_limit_reads_back(factory: Factory<'_>) {
    let locator = factory();
    let long = "i".repeat(ID_LIMIT - 1);
    for end in ["x", "y"] {
        let id = format!("{long}{end}");
        let handle = must(
            "a long stem opens",
            locator.open_stem(&id, meta("agent", "thread")),
        );
        let row = TranscriptMessage::new(id.clone(), "x")
            .with_id(id.clone())
            .with_request_id(id.clone());
        must("long ids are accepted", handle.append(row));
        assert_eq!(handle.stem(), id);
        let rows = messages(&*handle);
        assert_eq!(rows.len(), 1, "two long stems are one");
        assert!(rows[0].role == id, "a long role reads back");
        assert!(rows[0].id.as_ref() == Some(&id), "a long id reads back");
        assert!(
            rows[0].request_id.as_ref() == Some(&id),
            "a long request id reads back"
        );
        let session = SessionRef::root(id);
        written(&*locator, &session);
        assert!(must("a look-up works", locator.session_exists(&session)));
    }
}

/// `InvalidId` for a role, a row's id, the id of its call, a request id, a key, a thread, a stem.
pub fn an_id_over_the_limit_is_refused(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    let stored = messages(&*handle);
    let long = "i".repeat(ID_LIMIT + 1);
    let kind = ErrorKind::InvalidId;
    let promise = "an id over 1 MiB is refused";
    let call = TranscriptToolCall {
        id: long.clone(),
        ..TranscriptToolCall::default()
    };
    for row in [
        TranscriptMessage::new(long.clone(), "x"),
        user("x").with_id(long.clone()),
        user("x").with_request_id(long.clone()),
        TranscriptMessage::tool_result(long.clone(), "x"),
        TranscriptMessage::assistant_with_calls("x", vec![call]),
    ] {
        if row.request_id.is_some() {
            // Such a row gets its turn's request id, so only the calls that keep its own can refuse it.
            refused_without_trace(&*locator, &session, promise, kind, || {
                handle.append(row.clone())
            });
            refused_without_trace(&*locator, &session, promise, kind, || {
                handle.replace(std::slice::from_ref(&row))
            });
        } else {
            assert_row_refused(&*locator, &session, promise, kind, &row);
        }
    }
    let own_meta = meta("agent", "thread");
    let mut next = stored.clone();
    next.push(user("more"));
    refused_without_trace(&*locator, &session, promise, kind, || {
        handle.append_turn(TranscriptTurn {
            request_id: Some(&long),
            ..TranscriptTurn::new(&stored, &next, &own_meta)
        })
    });
    refused_without_trace(&*locator, &session, promise, kind, || {
        locator.append_background(
            &session,
            assistant("x"),
            &BackgroundAppend::new(long.clone(), json!(null)),
        )
    });
    let long_thread = meta("agent", &long);
    refused_without_trace(&*locator, &session, promise, kind, || {
        handle.append_turn(TranscriptTurn::new(&stored, &stored, &long_thread))
    });
    refused_without_trace(&*locator, &session, promise, kind, || {
        locator
            .open_stem(&long, meta("agent", "thread"))
            .and_then(|handle| handle.append(user("x")))
    });
    let partial = TranscriptPartial::new("half");
    refused_without_trace(&*locator, &session, promise, kind, || {
        locator.append_interrupted_partial("thread", None, &partial, Some(&long))
    });
}

/// A session's key and agent are ids, though its stem is short.
pub fn a_session_over_the_limit_is_refused(factory: Factory<'_>) {
    let locator = factory();
    let long = "i".repeat(ID_LIMIT + 1);
    for session in [
        SessionRef::root(long.clone()),
        SessionRef::scoped("k", long),
    ] {
        let write = locator
            .open_session(&session, meta("agent", "thread"))
            .and_then(|handle| handle.append(user("x")));
        refused("an id over 1 MiB is refused", write, ErrorKind::InvalidId);
    }
    let listed = must(
        "a look-up works",
        locator.thread_transcripts("thread", None),
    );
    assert!(listed.roots.is_empty() && listed.pre_identity.is_empty());
}

fn bad_row() -> TranscriptMessage {
    answered("x", charged(1, 1, f64::NAN))
}

/// The stem stays free, and the next write is a first write.
pub fn a_refused_first_write_does_not_make_a_transcript_exist(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle: Arc<dyn TranscriptHistory> = open(&*locator, &session);
    let kind = ErrorKind::InvalidMessage;
    let promise = "a cost that is no number is refused";
    refused_without_trace(&*locator, &session, promise, kind, || {
        handle.append(bad_row())
    });
    refused_without_trace(&*locator, &session, promise, kind, || {
        handle.replace(&[bad_row()])
    });
    refused_without_trace(&*locator, &session, promise, kind, || {
        handle.append_turn(TranscriptTurn::new(
            &[],
            &[bad_row()],
            &meta("agent", "thread"),
        ))
    });
    assert!(!must("a look-up works", locator.session_exists(&session)));
    turn_with(&*handle, &[user("hi")], &meta("agent", "thread"));
}

/// The reservation stays with its handle, which can write what is right.
pub fn a_refused_first_write_of_a_successor_seals_nothing(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = written(&*locator, &session);
    let (successor, handle) = must(
        "a written head can be succeeded",
        locator.begin_generation(&session, meta("agent", "thread")),
    );
    refused_without_trace(
        &*locator,
        &session,
        "a cost that is no number is refused",
        ErrorKind::InvalidMessage,
        || handle.append(bad_row()),
    );
    must("the slot is still held", handle.append(user("on")));
    let head = must("a look-up works", locator.head_generation(&session));
    assert_eq!(head, successor);
    refused("a seal holds", first.append(user("x")), ErrorKind::Sealed);
}

/// A seed that cannot be stored is found at the write, after the slot was taken.
pub fn a_refused_truncation_holds_nothing(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = written(&*locator, &session);
    let seed = TranscriptMeta {
        charged_amount_usd: f64::NAN,
        ..meta("agent", "thread")
    };
    refused_without_trace(
        &*locator,
        &session,
        "a charge that is no number is refused",
        ErrorKind::InvalidMessage,
        || {
            locator.truncate_into_next_generation(
                &session,
                crate::TruncateCut::BeforeIndex(0),
                seed,
            )
        },
    );
    must("nothing is sealed or held", handle.append(user("x")));
}

/// A transcript can hold secrets, and errors end up in logs.
pub fn an_error_never_tells_what_a_record_says(factory: Factory<'_>) {
    const SECRET: &str = "hunter2";
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = open(&*locator, &session);
    must("an append succeeds", handle.append(user(SECRET)));
    let secret = |row: TranscriptMessage| row.with_extra_metadata(json!({ "key": SECRET }));
    let meta = meta("agent", "thread");
    let errors = [
        handle.append(secret(answered(SECRET, charged(1, 1, f64::NAN)))),
        handle.append_turn(TranscriptTurn::new(&[], &[secret(user(SECRET))], &meta)),
        locator
            .append_background(
                &session,
                secret(user(SECRET)),
                &BackgroundAppend::new("job", json!(SECRET)),
            )
            .map(drop),
        locator
            .begin_generation_from_baseline(&session, meta.clone(), &[assistant(SECRET)])
            .map(drop),
        handle.append(user(SECRET).with_extra_metadata(nested(NESTING_LIMIT + 1))),
    ];
    for result in errors {
        let error = result.expect_err("every one of these is refused");
        let mut source: Option<&dyn std::error::Error> = Some(&error);
        while let Some(error) = source {
            assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
            source = error.source();
        }
    }
}
