use super::super::testing::{context, facts, report, rows, sessions};
use super::*;
use crate::interchange::fact::Fact;

/// A session with parallel calls and a compaction that keeps two messages.
const FILE: &str = include_str!("session.jsonl");

const AGENT: &str = include_str!("agent.jsonl");

const NAME: &str = "log/77aa77aa77aa47aa87aa77aa77aa77aa.jsonl";

const AGENT_NAME: &str = "log/77aa77aa77aa47aa87aa77aa77aa77aa/subagents/agent-5b5b.jsonl";

#[test]
fn a_tail_that_is_recorded_again_is_the_rows_that_it_repeats() {
    let report = report(&RecordLog, NAME, FILE.as_bytes());
    assert_eq!((report.lines, report.records), (12, 12));
    assert_eq!(report.messages, 9, "six before, summary, skill, answer");
    assert_eq!((report.sessions, report.compactions), (1, 1));
    assert_eq!(
        (
            report.input_tokens,
            report.output_tokens,
            report.cached_input_tokens
        ),
        (1400, 61, 600)
    );
    let context = context(&RecordLog, NAME, FILE.as_bytes(), 0);
    assert!(context[0].starts_with("[conversation summarized"));
    assert!(context[1].contains("naming"));
    assert_eq!(
        context[2..],
        ["It is in lib.rs.", "Then rename it.", "Renamed."]
    );
}

#[test]
fn what_only_begins_like_the_tail_is_new() {
    // Without the second message of the tail there is no tail of which the first is the end.
    let lines: Vec<&str> = FILE.lines().collect();
    let cut = [&lines[..10], &lines[11..]].concat().join("\n");
    let report = report(&RecordLog, NAME, cut.as_bytes());
    assert_eq!(report.messages, 10);
    assert_eq!(
        context(&RecordLog, NAME, cut.as_bytes(), 0)[2..],
        ["It is in lib.rs.", "Renamed."]
    );
}

#[test]
fn a_message_is_a_row_for_each_result_and_keeps_its_id_once() {
    let rows = rows(&RecordLog, NAME, FILE.as_bytes());
    let roles: Vec<&str> = rows.iter().map(|row| row.message.role.as_str()).collect();
    assert_eq!(roles[..4], ["user", "assistant", "tool", "tool"]);
    assert_eq!(rows[0].message.content, "Rename <Foo> & all its uses.");
    assert_eq!(rows[0].ts, "2026-09-10T08:01:00.25Z");
    assert!(rows[2].message.tool_failure.is_some() && rows[2].uuid.is_some());
    assert!(rows[3].message.tool_failure.is_none() && rows[3].uuid.is_none());
    let usage = rows[1].message.turn_usage.as_ref().unwrap();
    assert_eq!(
        usage.usage.cost_source,
        Some(crate::UsageCostSource::Unknown)
    );
}

#[test]
fn counters_that_leave_out_the_cache_are_brought_to_the_whole_input() {
    let line = r#"{"uuid":"u","session_id":"s","timestamp":"2026-09-10T08:00:00Z","type":"message","message":{"role":"assistant","content":null},"usage":{"input_tokens":10,"output_tokens":1,"cache_read_tokens":80,"cache_write_tokens":7}}"#;
    let report = report(&RecordLog, "s.jsonl", line.as_bytes());
    assert_eq!((report.input_tokens, report.cached_input_tokens), (97, 80));
}

#[test]
fn the_run_of_a_sub_agent_is_a_child_of_its_session() {
    let top = SessionRef::root("77aa77aa77aa47aa87aa77aa77aa77aa");
    let child = SessionRef::child_of(&top, "5b5b5b5b5b5b45b585b55b5b5b5b5b5b");
    assert_eq!(sessions(&RecordLog, AGENT_NAME, AGENT.as_bytes()), [child]);
    let bare = r#"{"uuid":"u","type":"message","message":{"role":"user","content":[]}}"#;
    assert_eq!(
        sessions(&RecordLog, AGENT_NAME, bare.as_bytes()),
        [SessionRef::child_of(&top, "5b5b")],
        "the path says it where the record does not"
    );
}

#[test]
fn old_spellings_are_read() {
    let file = concat!(
        r#"{"uuid":"a","session_id":"s","timestamp":"t","type":"message","message":{"role":"assistant","content":[{"type":"thinking","text":"old"}]}}"#,
        "\n",
        r#"{"uuid":"b","session_id":"s","timestamp":"t","type":"message","message":{"role":"user","content":[{"type":"compact_boundary","input":4096}]}}"#,
        "\n",
        r#"{"uuid":"c","session_id":"s","timestamp":"t","type":"message","message":{"role":"user","content":[{"type":"text","text":"on"}]}}"#,
        "\n{}\n{\"uuid\":\"d\",\"sess"
    );
    let rows = rows(&RecordLog, "s.jsonl", file.as_bytes());
    let metadata = rows[0].message.extra_metadata.as_ref().unwrap();
    assert_eq!(metadata["reasoning_content"], "old");
    assert_eq!(context(&RecordLog, "s.jsonl", file.as_bytes(), 0), ["on"]);
    let told = facts(&RecordLog, "s.jsonl", file.as_bytes());
    let boundary = told.iter().find_map(|fact| match fact {
        Fact::Context(context) => context.metadata.clone(),
        _ => None,
    });
    assert_eq!(boundary.unwrap()["pre_tokens"], 4096);
    let report = report(&RecordLog, "s.jsonl", file.as_bytes());
    let classes: Vec<&str> = report
        .quarantined
        .iter()
        .map(|bad| bad.class.name())
        .collect();
    assert_eq!(classes, ["wrong_shape", "torn_tail"]);
}

#[test]
fn the_view_begins_behind_the_last_marker_and_pairs_its_calls() {
    let records = load(FILE.as_bytes()).unwrap();
    let (all, usage) = messages(&records);
    assert_eq!(all.len(), 11);
    assert_eq!((usage.input_tokens, usage.output_tokens), (1400, 61));
    assert_eq!(last_uuid(&records), records[11].uuid);
    assert_eq!(view(&all).len(), 5);
    assert_eq!(view(&all[..2])[1].content.len(), 2, "the calls are dropped");
    let mut cut = all[..2].to_vec();
    trim(&mut cut);
    assert_eq!(cut.len(), 1);
    assert!(load(b"{\"uuid\":").is_err());
    assert_eq!(last_uuid(&[]), "");
}

#[test]
fn a_record_is_spelled_as_the_format_has_it() {
    for line in FILE.lines().chain(AGENT.lines()) {
        let record: LogRecord = serde_json::from_str(line).unwrap();
        assert_eq!(record.to_line().unwrap(), line);
    }
    let spaced = model::compact(" { \"a b\\\"\" : [ 1.0 , \" x \" ] } ").unwrap();
    assert_eq!(spaced.get(), r#"{"a b\"":[1.0," x "]}"#);
}

#[test]
fn many_compactions_of_equal_messages_take_linear_time() {
    let line = |content: &str| {
        format!(
            "{{\"uuid\":\"u\",\"session_id\":\"s\",\"type\":\"message\",\"message\":{{\"role\":\"user\",\"content\":[{content}]}}}}\n"
        )
    };
    let same = line(r#"{"type":"text","text":"x"}"#);
    let block = same.repeat(30) + &line(r#"{"type":"compact_boundary"}"#);
    let begun = std::time::Instant::now();
    let report = report(&RecordLog, "s.jsonl", block.repeat(1000).as_bytes());
    assert_eq!(report.records, 31_000);
    assert!(begun.elapsed().as_secs() < 60);
}
