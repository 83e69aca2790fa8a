use super::super::calls::{CallBook, CallCost};
use super::super::fact::Fact;
use super::super::testing::{context, facts, report, rows, sessions};
use super::*;

const FILE: &str = include_str!("fixture.jsonl");

const NAME: &str = "rollout-2026-08-01T11-00-00-019f0000-0000-7000-8000-00000000c0de.jsonl";

#[test]
fn what_the_screen_showed_is_not_a_second_message() {
    let report = report(&Codex, NAME, FILE.as_bytes());
    assert_eq!((report.lines, report.records), (16, 16));
    let rows = rows(&Codex, NAME, FILE.as_bytes());
    let roles: Vec<_> = rows.iter().map(|row| row.message.role.as_str()).collect();
    assert_eq!(
        roles,
        [
            "user",
            "user",
            "assistant",
            "assistant",
            "tool",
            "assistant",
            "user"
        ],
        "context, prompt, reasoning, call, result, answer, and the summary"
    );
    assert_eq!(
        rows[0].message.extra_metadata.as_ref().unwrap()["injected"],
        true
    );
    assert_eq!(rows[1].message.extra_metadata, None);
    assert_eq!(rows[3].message.tool_calls[0].name, "exec_command");
    assert_eq!(rows[4].message.tool_call_id.as_deref(), Some("call_1"));
    assert_eq!(rows[4].message.request_id.as_deref(), Some("t1"));
}

#[test]
fn tokens_are_the_increases_of_the_total() {
    let report = report(&Codex, NAME, FILE.as_bytes());
    assert_eq!(
        (
            report.input_tokens,
            report.cached_input_tokens,
            report.output_tokens
        ),
        (10_100, 4_900, 52)
    );
}

#[test]
fn a_compaction_keeps_the_rows_that_its_history_repeats() {
    assert_eq!(
        context(&Codex, NAME, FILE.as_bytes(), 0),
        ["List files.", "Summary so far: listed files."]
    );
    let kept = facts(&Codex, NAME, FILE.as_bytes())
        .into_iter()
        .find_map(|fact| match fact {
            Fact::Context(context) => Some(context.rows),
            _ => None,
        });
    assert!(matches!(
        kept.unwrap()[..],
        [Kept::Row(RowNo(1)), Kept::New(..)]
    ));
}

#[test]
fn a_rollback_takes_the_last_turns_out() {
    let file = concat!(
        r#"{"timestamp":"2026-08-01T09:00:00Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"one"}]}}"#,
        "\n",
        r#"{"timestamp":"2026-08-01T09:00:00Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}}"#,
        "\n",
        r#"{"timestamp":"2026-08-01T09:00:00Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"two"}]}}"#,
        "\n",
        r#"{"timestamp":"2026-08-01T09:00:00Z","type":"event_msg","payload":{"type":"thread_rolled_back","num_turns":1}}"#,
    );
    assert_eq!(context(&Codex, "x.jsonl", file.as_bytes(), 0), ["one", "a"]);
    assert_eq!(report(&Codex, "x.jsonl", file.as_bytes()).compactions, 0);
}

fn total(input: u64, output: u64) -> String {
    format!(
        r#"{{"timestamp":"2026-08-01T09:00:00Z","type":"event_msg","payload":{{"type":"token_count","info":{{"total_token_usage":{{"input_tokens":{input},"output_tokens":{output}}}}}}}}}"#
    )
}

fn header(id: &str, from: Option<&str>) -> String {
    let from = from.map_or(String::new(), |from| {
        format!(r#","forked_from_id":"{from}""#)
    });
    format!(
        r#"{{"timestamp":"2026-08-01T09:00:00Z","type":"session_meta","payload":{{"id":"{id}"{from}}}}}"#
    )
}

#[test]
fn what_a_fork_inherits_is_spent_once_in_any_order() {
    let parent = [header("p", None), total(10, 1), total(30, 3), total(35, 4)].join("\n");
    let child = [
        header("c", Some("p")),
        header("p", None),
        total(10, 1),
        total(30, 3),
        total(70, 9),
    ]
    .join("\n");
    // It replays the headers of all that it comes from.
    let grandchild = [
        header("g", Some("c")),
        header("c", Some("p")),
        total(10, 1),
        total(30, 3),
        total(70, 9),
        total(71, 10),
    ]
    .join("\n");
    let files = [parent, child, grandchild];
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let mut book = CallBook::default();
        for at in order {
            for fact in facts(&Codex, "x.jsonl", files[at].as_bytes()) {
                if let Fact::Call(call) = fact {
                    let usage = call.usage.usage;
                    book.note(
                        &call.id,
                        CallCost {
                            input: usage.input,
                            output: usage.output,
                            ..CallCost::default()
                        },
                    );
                }
            }
        }
        let sum = book.sum();
        assert_eq!((sum.input, sum.output), (35 + 40 + 1, 4 + 6 + 1));
    }
}

#[test]
fn a_spawned_thread_is_a_child_of_the_one_that_spawned_it() {
    let file = concat!(
        r#"{"timestamp":"2026-08-01T09:00:00Z","type":"session_meta","payload":{"id":"c","agent_role":"explorer","source":{"subagent":{"thread_spawn":{"parent_thread_id":"p"}}}}}"#,
        "\n",
        r#"{"timestamp":"2026-08-01T09:00:00Z","type":"response_item","payload":{"type":"message","role":"user","content":"x"}}"#,
    );
    let found = sessions(&Codex, "x.jsonl", file.as_bytes());
    assert_eq!(found, [SessionRef::child_of(&SessionRef::root("p"), "c")]);
}

#[test]
fn files_without_an_envelope_are_read() {
    let file = concat!(
        r#"{"id":"old-1","timestamp":"2025-05-01T09:00:00Z","instructions":null,"git":{}}"#,
        "\n",
        r#"{"record_type":"state"}"#,
        "\n",
        r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}"#,
        "\n",
        r#"{"type":"function_call","name":"shell","arguments":"{","call_id":"c"}"#,
        "\n",
        r#"{"type":"function_call_output","call_id":"c","output":{"content":"no","success":false}}"#,
        "\n",
    );
    assert_eq!(
        sessions(&Codex, "x.jsonl", file.as_bytes()),
        [SessionRef::root("old-1")]
    );
    let rows = rows(&Codex, "x.jsonl", file.as_bytes());
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[1].message.tool_calls[0].arguments, "{");
    assert!(rows[2].message.tool_failure.is_some());
}
