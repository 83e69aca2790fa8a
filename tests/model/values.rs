//! Random rows, usages and headers from small alphabets, so that equal ones meet.

use serde_json::{Map, Value, json};

use super::op::{Around, Json, Meta, Partial, Row, Usage};
use super::rng::Rng;

const CONTENTS: [&str; 6] = ["a", "b", "c", "", "first line\nsecond", "ü\0\u{2028}"];
const IDS: [&str; 3] = ["m1", "m2", "m3"];
const REQUESTS: [&str; 3] = ["r1", "r2", ""];
const CALLS: [&str; 2] = ["c1", "c2"];
pub const KEYS: [&str; 3] = ["k1", "k2", "k 3"];
/// Times of usages; one is no time, one lies before the epoch, one in another offset.
pub const TIMES: [&str; 7] = [
    "",
    "2026-01-02T03:04:05Z",
    "2026-01-02T03:59:59.999999Z",
    "2026-01-02T06:30:00+02:00",
    "1969-12-31T23:59:59Z",
    "2026-01-03T00:00:00Z",
    "yesterday",
];
/// The old encodings of rows. Neighbours mean the same row.
const ENCODED: [(&str, &str); 10] = [
    (
        "assistant",
        r#"{"content":"a","tool_calls":[{"id":"c1","name":"ls","arguments":"{}"}]}"#,
    ),
    (
        "assistant",
        r#"{"content": "a", "tool_calls": [{"id":"c1","name":"ls","arguments":"{}"}]}"#,
    ),
    (
        "assistant",
        r#"{"tool_calls":[{"id":"c1","name":"ls","arguments":"{}"}],"content":"a","reasoning_content":"why"}"#,
    ),
    ("tool", r#"{"tool_call_id":"c1","content":"out"}"#),
    ("tool", r#"{ "content": "out", "tool_call_id": "c1" }"#),
    ("user", "see [OH_IMAGE:u1] and [OH_IMAGE:u2]"),
    ("user", "open [OH_IMAGE:u1"),
    (
        "user",
        r#"{"_tinyagents_media_parts":[{"type":"audio","source":{"type":"path","path":"/a"},"mime_type":"audio/wav"}]}"#,
    ),
    (
        "user",
        r#"{"_tinyagents_media_parts":[{"mime_type":"audio/wav","source":{"path":"/a","type":"path"},"type":"audio"}]}"#,
    ),
    ("assistant", r#"{"tool_calls":[]}"#),
];

pub fn metadata(rng: &mut Rng) -> Value {
    let key = *rng.pick(&KEYS);
    let choices = [
        json!({"n": 0.0}),
        json!({"n": -0.0}),
        json!({"n": 0}),
        json!({"n": 1e-7, "m": 0.1}),
        json!({"reasoning_content": "noted"}),
        json!({"reasoning_content": 5}),
        json!({"background_origin": {"idempotency_key": key}}),
        json!({"background_origin": {"idempotency_key": key, "provenance": [1]}, "more": true}),
        json!({"background_origin": "malformed"}),
        json!({"background_origin": {"provenance": 1}}),
        json!("text"),
        json!([u64::MAX, i64::MIN, 1.5]),
        json!({"a": 1, "b": {"d": 2, "c": null}}),
    ];
    rng.pick(&choices).clone()
}

fn tool_call(rng: &mut Rng) -> Value {
    let mut call = json!({
        "id": rng.pick(&CALLS),
        "name": rng.pick(&["ls", "cat"]),
        "arguments": rng.pick(&["{}", "{\"broken\":"]),
    });
    if rng.percent(25) {
        call["extra_content"] = rng
            .pick(&[json!({"sig": 0.0}), json!({"sig": -0.0}), Value::Null])
            .clone();
    }
    call
}

pub fn usage(rng: &mut Rng) -> Usage {
    let tokens = |rng: &mut Rng| match rng.below(40) {
        0 => u64::MAX,
        n => [0, 1, 5, 100][n % 4],
    };
    let cost = match rng.below(60) {
        0 => json!(1e9),
        1 => json!(-1e9),
        2 => json!(1.000_000_1e9),
        3..=5 => json!(-0.5),
        6 => json!(-0.0),
        7 => json!(0.1 + 0.2),
        8 => json!(0.000_000_000_000_5),
        9 => json!(3.0 / 8192.0),
        10..=24 => json!(0.1),
        25..=34 => json!(0.000_123),
        35..=39 => json!(2.0),
        _ => json!(0.0),
    };
    let mut totals = json!({
        "input": tokens(rng),
        "output": tokens(rng),
        "cached_input": tokens(rng),
        "cost_usd": cost,
    });
    if rng.percent(40) {
        totals["context_window"] = json!(rng.pick(&[0, 1000, 2000]));
    }
    if rng.percent(40) {
        totals["last_call_input"] = json!(rng.pick(&[0, 7, 9]));
        totals["last_call_output"] = json!(rng.pick(&[0, 3]));
    }
    let source = rng.pick(&["charged", "estimated", "unknown", ""]);
    if !source.is_empty() {
        totals["cost_source"] = json!(source);
    }
    let mut usage = json!({"usage": totals});
    if rng.percent(60) {
        usage["provider"] = json!(rng.pick(&["p1", "p2"]));
        usage["model"] = json!(rng.pick(&["m1", "m2", ""]));
    }
    if rng.percent(70) {
        usage["ts"] = json!(rng.pick(&TIMES));
    }
    if rng.percent(50) {
        usage["iteration"] = json!(rng.pick(&[0, 1, 2, 5]));
    }
    if rng.percent(15) {
        usage["reasoning_content"] = json!(rng.pick(&["used", " "]));
    }
    if rng.percent(15) {
        usage["tool_calls"] = json!([tool_call(rng)]);
    }
    Usage(usage)
}

/// A row of few, some of which are the same row or all but the same.
fn twin(rng: &mut Rng) -> Row {
    let called = |sig: f64| {
        json!({"role": "assistant", "content": "a", "tool_calls": [
            {"id": "c1", "name": "ls", "arguments": "{}", "extra_content": {"sig": sig}},
        ]})
    };
    let costing = |cost_usd: f64| {
        json!({"role": "assistant", "content": "a", "turn_usage": {
            "ts": "2026-01-02T03:04:05Z",
            "usage": {"input": 1, "output": 0, "cached_input": 0, "cost_usd": cost_usd},
        }})
    };
    let encoded = |index: usize| json!({"role": ENCODED[index].0, "content": ENCODED[index].1});
    let choices = [
        json!({"role": "user", "content": "a", "extra_metadata": {"n": 0.0}}),
        json!({"role": "user", "content": "a", "extra_metadata": {"n": -0.0}}),
        called(0.0),
        called(-0.0),
        costing(0.0),
        costing(-0.0),
        encoded(0),
        encoded(1),
        encoded(3),
        encoded(4),
        json!({"role": "tool", "content": "out", "tool_call_id": "c1"}),
    ];
    Row(rng.pick(&choices).clone())
}

/// A row with any of its fields set.
pub fn row(rng: &mut Rng) -> Row {
    if rng.percent(12) {
        return twin(rng);
    }
    let mut fields = Map::new();
    let mut set = |key: &str, value: Value| fields.insert(key.to_owned(), value);
    let kind = rng.below(100);
    if kind < 12 {
        let (role, content) = *rng.pick(&ENCODED);
        set("role", json!(role));
        set("content", json!(content));
    } else {
        let role = rng.weighted(&[
            (34, "user"),
            (40, "assistant"),
            (16, "tool"),
            (7, "system"),
            (3, "critic"),
        ]);
        set("role", json!(role));
        set("content", json!(rng.pick(&CONTENTS)));
        if rng.percent(2) {
            set("content", json!(format!("long:{}", rng.within(1000..9000))));
        }
        if role == "assistant" && rng.percent(15) || rng.percent(1) {
            set("tool_calls", json!([tool_call(rng)]));
        }
        if role == "tool" && rng.percent(60) || rng.percent(1) {
            set("tool_call_id", json!(rng.pick(&CALLS)));
        }
        if role == "user" && rng.percent(8) {
            let parts = json!([{"type": "text", "text": "a"}, {"type": "image", "url": "u1"}]);
            set("parts", parts);
            set("content", json!("a"));
        }
    }
    if rng.percent(15) {
        set("id", json!(rng.pick(&IDS)));
    }
    if rng.percent(12) {
        set("extra_metadata", metadata(rng));
    }
    if rng.percent(8) {
        set(
            "cache_breakpoints",
            rng.pick(&[json!([0]), json!([3, 0])]).clone(),
        );
    }
    if rng.percent(15) {
        set("turn_usage", usage(rng).0);
    }
    if rng.percent(20) {
        set("request_id", json!(rng.pick(&REQUESTS)));
    }
    if rng.percent(12) {
        set("preserve_request_id", json!(true));
    }
    if rng.percent(4) {
        set("interrupted", json!(true));
    }
    if rng.percent(6) {
        let failures = [
            json!({"failed": true}),
            json!({"failed": true, "detail": "denied"}),
            json!({"failed": false, "detail": "none"}),
        ];
        set("tool_failure", rng.pick(&failures).clone());
    }
    if rng.percent(1) && rng.percent(30) {
        let deep = (0..rng.within(125..131)).fold(json!(1), |inner, _| json!([inner]));
        set("extra_metadata", deep);
    }
    Row(Value::Object(fields))
}

/// What changes in a row that is handed back.
pub fn patch(rng: &mut Rng) -> Json {
    Json(match rng.below(12) {
        0 | 1 => json!({"extra_metadata": metadata(rng)}),
        2 => json!({"extra_metadata": null}),
        3 => json!({"turn_usage": usage(rng).0}),
        4 => json!({"turn_usage": null}),
        5 => json!({"request_id": rng.pick(&REQUESTS)}),
        6 => json!({"request_id": null}),
        7 | 8 => json!({"content": rng.pick(&CONTENTS)}),
        9 => json!({"cache_breakpoints": [1], "tool_failure": {"failed": true}}),
        10 => json!({"id": rng.pick(&IDS)}),
        _ => json!({"interrupted": true}),
    })
}

pub fn meta(rng: &mut Rng) -> Meta {
    Meta {
        agent_name: rng.weighted(&[(8, "orch"), (6, "worker"), (1, "")]),
        agent_id: rng.weighted(&[(6, None), (3, Some("ag")), (1, Some("orch")), (1, Some(""))]),
        thread: rng.weighted(&[
            (8, Some("t1")),
            (4, Some("t2")),
            (1, Some("t3")),
            (2, Some(" t1")),
            (1, Some(" ")),
            (2, None),
        ]),
        model: rng.weighted(&[(3, None), (1, Some("m0")), (1, Some(""))]),
        session_id: rng.weighted(&[(20, None), (1, Some("sid"))]),
        updated: rng.pick::<&str>(&["u1", "u2", "u3"]),
    }
}

pub fn partial(rng: &mut Rng) -> Partial {
    Partial {
        content: rng.weighted(&[(5, "half"), (2, "ha"), (1, "")]),
        reasoning: rng.weighted(&[(3, None), (1, Some(" why ")), (1, Some("  "))]),
        iteration: rng.weighted(&[(3, None), (1, Some(0)), (1, Some(3))]),
    }
}

pub fn request(rng: &mut Rng) -> Option<&'static str> {
    rng.weighted(&[(3, None), (3, Some("r1")), (2, Some("r2")), (1, Some(""))])
}

pub fn around(rng: &mut Rng) -> Around {
    Around {
        usage: rng.percent(50).then(|| usage(rng)),
        request: request(rng),
        tools: rng.percent(15).then(|| {
            let choices = [
                json!([]),
                json!([{"name": "ls"}]),
                json!({"n": 0.0}),
                json!({"n": -0.0}),
                Value::Null,
            ];
            Json(rng.pick(&choices).clone())
        }),
        compaction: rng.percent(20).then(|| {
            let choices = [json!({"trigger": "full", "before": 9}), Value::Null];
            Json(rng.pick(&choices).clone())
        }),
        partial: rng.percent(8).then(|| partial(rng)),
    }
}
