use super::super::fact::Fact;
use super::super::testing::{context, facts, report, rows, sessions};
use super::*;
use std::fmt::Write as _;

/// A session with a title, a response of three lines, a failed call, a branch and a compaction.
const FILE: &str = include_str!("fixture.jsonl");

const NO_FOLDER: &str = "c7c6eb5c-929e-524e-d668-ed5830ec2ab2.jsonl";

#[test]
fn a_response_of_several_lines_is_one_call() {
    let report = report(&ClaudeCode, NO_FOLDER, FILE.as_bytes());
    assert_eq!(
        (report.lines, report.records, report.messages),
        (13, 13, 10)
    );
    assert_eq!(report.distinct_message_ids, 3);
    assert_eq!(report.output_tokens, 210);
    assert_eq!(report.cached_input_tokens, 45_000);
    assert_eq!(report.input_tokens, 3 * (4 + 900 + 15_000));
    assert_eq!((report.sessions, report.compactions), (1, 1));
}

#[test]
fn the_context_goes_back_to_the_parent_of_a_prompt_and_over_a_boundary() {
    let before: Vec<&str> = FILE.lines().take(10).collect();
    assert_eq!(
        context(&ClaudeCode, NO_FOLDER, before.join("\n").as_bytes(), 0),
        [
            "Run the tests.",
            "",
            "Running.",
            "",
            "1 failed",
            "Fix it, but keep the API."
        ],
    );
    assert_eq!(
        context(&ClaudeCode, NO_FOLDER, FILE.as_bytes(), 0),
        ["Summary of what was before.", "API kept; test passes."],
    );
}

#[test]
fn rows_keep_their_ids_times_and_results() {
    let rows = rows(&ClaudeCode, NO_FOLDER, FILE.as_bytes());
    assert_eq!(
        rows[0].uuid,
        stamp::uuid("e4774cdd-a079-3f86-414e-8b9140bb6db4")
    );
    assert_eq!(rows[0].ts, "2026-08-01T09:00:00.000Z");
    assert_eq!(rows[4].message.tool_call_id.as_deref(), Some("toolu_1"));
    assert!(rows[4].message.tool_failure.is_some());
}

#[test]
fn the_header_says_when_and_with_which_model() {
    let last = facts(&ClaudeCode, NO_FOLDER, FILE.as_bytes())
        .pop()
        .unwrap();
    let Fact::Session(_, session) = last else {
        panic!("the last fact is the header");
    };
    assert_eq!(session.meta.created, "2026-08-01T09:00:00.000Z");
    assert_eq!(session.meta.updated, "2026-08-01T09:20:06.000Z");
    assert_eq!(session.meta.model.as_deref(), Some("claude-example-1"));
    assert_eq!(session.title.as_deref(), Some("Fix torn line"));
    assert_eq!(session.attributes["cwd"], "/home/u/app");
}

#[test]
fn results_of_parallel_calls_stay_when_the_conversation_goes_on_from_one_of_them() {
    let line = |kind: &str, uuid: &str, parent: &str, content: &str| {
        format!(
            r#"{{"type":"{kind}","sessionId":"s","uuid":"{uuid}","parentUuid":"{parent}","message":{{"role":"{kind}","content":{content}}}}}"#
        )
    };
    let call = |id: &str| format!(r#"[{{"type":"tool_use","id":"{id}","name":"f","input":{{}}}}]"#);
    let result =
        |id: &str| format!(r#"[{{"type":"tool_result","tool_use_id":"{id}","content":"{id}"}}]"#);
    let mut file = [
        line("user", "u1", "", r#""go""#),
        line("assistant", "a1", "u1", &call("c1")),
        line("assistant", "a2", "a1", &call("c2")),
        line("user", "r2", "a2", &result("c2")),
        line("user", "r1", "a1", &result("c1")),
        line("user", "u2", "r2", r#""on""#),
    ]
    .join("\n");
    assert_eq!(
        context(&ClaudeCode, "s.jsonl", file.as_bytes(), 0),
        ["go", "", "", "c2", "c1", "on"]
    );
    file.push('\n');
    file.push_str(&line("user", "u3", "nowhere", r#""lost""#));
    assert_eq!(
        context(&ClaudeCode, "s.jsonl", file.as_bytes(), 0).len(),
        7,
        "no row is hidden"
    );
}

#[test]
fn preserved_messages_stay_in_the_context_behind_the_summary() {
    let file = concat!(
        r#"{"type":"user","sessionId":"s","uuid":"u1","parentUuid":null,"message":{"role":"user","content":"one"}}"#,
        "\n",
        r#"{"type":"assistant","sessionId":"s","uuid":"a1","parentUuid":"u1","message":{"role":"assistant","content":"two"}}"#,
        "\n",
        r#"{"type":"system","subtype":"compact_boundary","sessionId":"s","uuid":"b","parentUuid":null,"compactMetadata":{"trigger":"auto","preservedMessages":{"uuids":["a1","gone"]}}}"#,
        "\n",
        r#"{"type":"user","sessionId":"s","uuid":"u2","parentUuid":"b","isCompactSummary":true,"message":{"role":"user","content":"sum"}}"#,
        "\n",
        r#"{"type":"user","sessionId":"s","uuid":"u3","parentUuid":"u2","message":{"role":"user","content":"three"}}"#,
    );
    assert_eq!(
        context(&ClaudeCode, "s.jsonl", file.as_bytes(), 0),
        ["sum", "two", "three"]
    );
    let listed = file.replace(r#"{"uuids":["a1","gone"]}"#, r#"["a1"]"#);
    assert_eq!(
        context(&ClaudeCode, "s.jsonl", listed.as_bytes(), 0),
        ["sum", "two", "three"]
    );
    let stretch = file.replace("preservedMessages", "x").replace(
        r#""trigger":"auto""#,
        r#""preservedSegment":{"headUuid":"u1","tailUuid":"a1"}"#,
    );
    assert_eq!(
        context(&ClaudeCode, "s.jsonl", stretch.as_bytes(), 0),
        ["sum", "one", "two", "three"]
    );
}

#[test]
fn sub_agents_are_children_of_their_session() {
    let line = r#"{"type":"user","isSidechain":true,"agentId":"a7","sessionId":"top","uuid":"u1","parentUuid":null,"message":{"role":"user","content":"x"}}"#;
    let top = SessionRef::root("top");
    assert_eq!(
        sessions(
            &ClaudeCode,
            "p/top/subagents/agent-a7.jsonl",
            line.as_bytes()
        ),
        [SessionRef::child_of(&top, "a7")]
    );
    assert_eq!(
        sessions(&ClaudeCode, "top.jsonl", line.as_bytes()),
        [SessionRef::child_of(&top, "a7")]
    );

    let unnamed = concat!(
        r#"{"type":"user","sessionId":"top","uuid":"u1","parentUuid":null,"message":{"role":"user","content":"x"}}"#,
        "\n",
        r#"{"type":"user","isSidechain":true,"sessionId":"top","uuid":"s1","parentUuid":null,"message":{"role":"user","content":"x"}}"#,
        "\n",
        r#"{"type":"assistant","isSidechain":true,"sessionId":"top","uuid":"s2","parentUuid":"s1","message":{"role":"assistant","content":"x"}}"#,
        "\n",
        r#"{"type":"user","isSidechain":true,"sessionId":"top","uuid":"s3","parentUuid":null,"message":{"role":"user","content":"x"}}"#,
    );
    assert_eq!(
        sessions(&ClaudeCode, "top.jsonl", unnamed.as_bytes()).len(),
        3
    );
}

#[test]
fn lines_of_another_shape_are_set_aside_and_the_others_read() {
    let file = concat!(
        "{\"silly\":\"this\"}\n42\n\"massive\"\n",
        r#"{"type":"user","sessionId":"s","message":"error"}"#,
        "\n",
        r#"{"type":"user","sessionId":"s","uuid":"u","message":{"role":"user","content":"x \ud83d"}}"#,
        "\n",
        r#"{"type":"new-kind","sessionId":"s","__proto__":{}}"#,
        "\n",
    );
    let report = report(&ClaudeCode, "s.jsonl", file.as_bytes());
    let lines: Vec<u64> = report.quarantined.iter().map(|bad| bad.line).collect();
    assert_eq!(lines, [1, 2, 3, 4]);
    assert_eq!((report.records, report.messages), (2, 1));
    assert!(report.lossy > 0);
}

#[test]
fn many_lines_with_broken_parents_take_linear_time() {
    let mut file = String::new();
    for at in 0..30_000 {
        let parent = if at % 2 == 0 {
            "nowhere".to_owned()
        } else {
            format!("u{}", at % 7)
        };
        let _ = writeln!(
            file,
            "{{\"type\":\"user\",\"sessionId\":\"s\",\"uuid\":\"u{at}\",\"parentUuid\":\"{parent}\",\"message\":{{\"content\":\"x\"}}}}"
        );
    }
    let begun = std::time::Instant::now();
    assert_eq!(
        report(&ClaudeCode, "s.jsonl", file.as_bytes()).messages,
        30_000
    );
    assert!(begun.elapsed().as_secs() < 60);
}
