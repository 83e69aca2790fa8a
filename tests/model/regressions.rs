//! Short sequences that once made the stores disagree, each with what was wrong.

use serde_json::json;

use super::op::{Around, At, Baseline, Edit, Gen, Json, Keep, Meta, Next, Op, Row, Usage};
use super::run::agree_on;

const HEAD: Gen = Gen::Head;

fn meta(thread: &'static str) -> Meta {
    Meta {
        agent_name: "orch",
        thread: Some(thread),
        ..Meta::default()
    }
}

fn row(fields: serde_json::Value) -> Row {
    Row(fields)
}

fn append(session: usize, thread: &'static str) -> Op {
    Op::Append {
        at: At::Session(session, HEAD),
        seed: meta(thread),
        row: row(json!({"role": "user", "content": "a"})),
    }
}

fn begin(session: usize, slot: usize) -> Op {
    Op::Begin {
        session,
        generation: HEAD,
        baseline: None,
        seed: meta("t1"),
        slot,
    }
}

fn usage(input: u64) -> Usage {
    let totals = json!({"input": input, "output": 0, "cached_input": 0, "cost_usd": 0.1});
    Usage(json!({"usage": totals, "ts": "2026-01-02T03:04:05Z"}))
}

/// A turn that adds nothing but a usage.
fn turn(session: usize, thread: &'static str) -> Op {
    Op::Turn {
        at: At::Session(session, HEAD),
        prev: Baseline::Current,
        next: Next {
            keep: Keep::All,
            edits: Vec::new(),
        },
        meta: meta(thread),
        around: Around {
            usage: Some(usage(1)),
            ..Around::default()
        },
    }
}

/// A successor that was written is no reservation that could be released.
#[test]
fn a_slot_is_released_only_while_its_generation_is_unwritten() {
    agree_on(&[
        append(3, "t1"),
        begin(3, 0),
        Op::Append {
            at: At::Slot(0),
            seed: meta("t1"),
            row: row(json!({"role": "user", "content": "b"})),
        },
        Op::Release { session: 3 },
    ]);
}

/// A sub-agent's usage was recorded by the hour under the thread that its own header names, not under its root's.
#[test]
fn a_sub_agent_s_usage_is_recorded_under_the_thread_of_its_root() {
    agree_on(&[
        append(1, "t2"),
        turn(5, "t1"),
        turn(5, "t1"),
        turn(1, "t3"),
        turn(5, "t1"),
    ]);
    agree_on(&[turn(5, "t1"), append(1, "t2"), turn(5, "t1")]);
}

/// An append in the background that is refused named generation 0, whichever generation was given.
#[test]
fn a_refused_background_append_names_the_generation_that_was_given() {
    agree_on(&[
        append(7, "t1"),
        Op::Background {
            session: 7,
            generation: Gen::Number(1),
            row: row(json!({"role": "assistant", "content": "a"})),
            key: " ",
            provenance: Json(json!(null)),
            expected: None,
        },
    ]);
}

/// A slot that is taken was told before a cut that cannot be made.
#[test]
fn a_cut_before_an_unknown_row_is_refused_as_such_even_while_the_slot_is_taken() {
    agree_on(&[
        append(7, "t1"),
        begin(7, 1),
        Op::Truncate {
            session: 7,
            generation: HEAD,
            cut: transcript_redb::TruncateCut::BeforeMessageId("m1".to_owned()),
            seed: meta("t1"),
            slot: None,
        },
    ]);
}

/// Of two stored rows that are equal but for the sign of a zero, the redb store kept the one with the same sign and not
/// the first.
#[test]
fn a_kept_row_is_the_first_that_is_equal_and_zeros_of_either_sign_are() {
    let metadata = |n: f64| json!({"role": "user", "content": "a", "extra_metadata": {"n": n}});
    let costing = |cost_usd: f64| {
        let totals = json!({"input": 1, "output": 0, "cached_input": 0, "cost_usd": cost_usd});
        json!({"role": "assistant", "content": "a", "turn_usage": {"usage": totals}})
    };
    let called = |sig: f64| {
        let call = json!({"id": "c", "name": "n", "arguments": "", "extra_content": {"sig": sig}});
        json!({"role": "assistant", "content": "a", "tool_calls": [call]})
    };
    let replace = |edits: Vec<Edit>| Op::Replace {
        at: At::Session(0, HEAD),
        seed: meta("t1"),
        next: Next {
            keep: Keep::Nothing,
            edits,
        },
    };
    let pairs = [
        [metadata(0.0), metadata(-0.0)],
        [costing(-0.0), costing(0.0)],
        [called(0.0), called(-0.0)],
    ];
    for pair in pairs {
        let rows = pair.map(|fields| Edit::New(row(fields)));
        agree_on(&[replace(rows.into()), replace(vec![Edit::Kept(1)])]);
    }
}
