use super::super::testing::{context, facts, report, rows, sessions};
use super::*;
use crate::interchange::fact::Fact;

/// An unfinished run: parallel calls, an id that two turns have, an elided output, a summary.
const FILE: &str = include_str!("run.json");

const RESUMABLE: Checks = Checks {
    resumable: true,
    strict: false,
};

fn rules(text: &str, checks: Checks) -> Vec<Rule> {
    let run = Trajectory::parse(text.as_bytes()).unwrap();
    let broken = run.validate_with(checks, |text| text == "go on");
    broken.into_iter().map(|it| it.rule).collect()
}

#[test]
fn a_run_is_a_session_with_its_totals_as_one_usage() {
    let report = report(&Checkpoint, "run.json", FILE.as_bytes());
    assert_eq!(
        (report.records, report.sessions, report.compactions),
        (1, 1, 2)
    );
    assert_eq!(report.messages, 11, "nine, an elided one, a summary");
    assert_eq!(
        (
            report.input_tokens,
            report.output_tokens,
            report.cached_input_tokens
        ),
        (5000, 300, 1000)
    );
    assert!((report.cost_usd - 0.04).abs() < 1e-12);
    assert_eq!(
        context(&Checkpoint, "run.json", FILE.as_bytes(), 0),
        [
            "You edit code.",
            "Make the parser accept tabs.",
            "The parser was read.",
            "Checking.",
            "clean"
        ]
    );
}

#[test]
fn an_elided_output_is_a_revision_of_its_row() {
    let revised = rows(&Checkpoint, "run.json", FILE.as_bytes())
        .into_iter()
        .find(|row| row.revises.is_some())
        .unwrap();
    assert_eq!(revised.revises, Some(RowNo(3)));
    assert_eq!(revised.message.content, "");
}

#[test]
fn a_run_stays_the_same_session_while_it_grows_and_a_resumed_one_is_another_of_its_thread() {
    let told = |text: &str| sessions(&Checkpoint, "any.json", text.as_bytes());
    let thread = |text: &str| match facts(&Checkpoint, "any.json", text.as_bytes()).remove(0) {
        Fact::Session(_, session) => session.meta.thread_id.unwrap(),
        other => panic!("{other:?} is no session"),
    };
    let short: String = FILE
        .lines()
        .filter(|line| !line.contains("c3"))
        .collect::<Vec<_>>()
        .join("\n")
        .replace("\"content\": \"passed\"},", "\"content\": \"passed\"}");
    assert_eq!(told(&short), told(FILE));
    let resumed = FILE
        .replace(
            "\"content\": \"clean\"}",
            "\"content\": \"clean\"}, {\"role\":\"user\",\"content\":\"go on\"}, {\"role\":\"assistant\",\"content\":\"done\"}",
        )
        .replace(
            "\"x_future\"",
            "\"resume\":{\"source\":\"a\",\"exit_status\":\"x\",\"steps\":3,\"message\":9},\"x_future\"",
        );
    assert_ne!(told(&resumed), told(FILE));
    assert_eq!(thread(&resumed), thread(FILE));
}

#[test]
fn whatever_is_no_document_is_set_aside_whole() {
    for (text, class) in [
        ("[1]", BadClass::WrongShape),
        ("{\"messages\":{}}", BadClass::WrongShape),
        (&FILE[..400], BadClass::TornTail),
        ("{\"messages\":[]} x", BadClass::Fragment),
        ("\u{0}", BadClass::Fragment),
    ] {
        let report = report(&Checkpoint, "x.json", text.as_bytes());
        assert!(report.is_barren() && report.sessions == 0, "{text}");
        assert_eq!(report.quarantined[0].class, class, "{text}");
        assert_eq!(report.quarantined[0].length, text.len() as u64);
    }
    assert!(report(&Checkpoint, "x.json", b"").quarantined.is_empty());
}

#[test]
fn a_whole_history_breaks_no_rule() {
    assert_eq!(rules(FILE, RESUMABLE), []);
    let strict = Checks {
        resumable: true,
        strict: true,
    };
    assert_eq!(rules(FILE, strict), []);
}

#[test]
fn every_broken_rule_is_named() {
    let none = Checks::default();
    let strict = Checks {
        resumable: false,
        strict: true,
    };
    let last = ",\n    {\"role\": \"tool\", \"tool_call_id\": \"c3\", \"content\": \"clean\"}";
    for (from, to, checks, rule) in [
        (last, "", none, Rule::OpenEnd),
        (
            "    {\"role\": \"tool\", \"tool_call_id\": \"b2\", \"content\": \"passed\"},\n",
            "",
            none,
            Rule::Unanswered,
        ),
        (
            "\"tool_call_id\": \"c3\"",
            "\"tool_call_id\": \"b2\"",
            none,
            Rule::Orphan,
        ),
        (last, &format!("{last}{last}"), none, Rule::Pairing),
        ("\"id\": \"b2\"", "\"id\": \"a1\"", none, Rule::Pairing),
        ("\"id\": \"c3\"", "\"id\": \"\"", none, Rule::Pairing),
        (
            last,
            &format!("{last},{{\"role\":\"assistant\",\"content\":\"x\"}}"),
            strict,
            Rule::PlainEnd,
        ),
        ("\"schema_version\": 1,", "", RESUMABLE, Rule::Version),
        (
            "\"schema_version\": 1",
            "\"schema_version\": 2",
            RESUMABLE,
            Rule::Version,
        ),
        (
            "\"x_future\"",
            "\"resume\":{\"message\":7},\"x_future\"",
            RESUMABLE,
            Rule::ResumePoint,
        ),
        (
            "[0, 1, 2, 3, 4, 5, 6]",
            "[0, -1]",
            RESUMABLE,
            Rule::Compaction,
        ),
        ("[0, 1, -1, 7, 8]", "[0, 9]", RESUMABLE, Rule::Compaction),
        ("\"steps\": 3", "\"steps\": -3", RESUMABLE, Rule::Counter),
    ] {
        let text = FILE.replacen(from, to, 1);
        assert_ne!(text, FILE, "{rule:?}");
        let found = rules(&text, checks);
        assert!(found.contains(&rule), "{rule:?} is not among {found:?}");
    }
    let swapped = FILE
        .replace("\"tool_call_id\": \"b2\"", "\"tool_call_id\": \"z\"")
        .replacen(
            "\"role\": \"tool\", \"tool_call_id\": \"a1\", \"content\": \"ok\"",
            "\"role\": \"tool\", \"tool_call_id\": \"b2\", \"content\": \"ok\"",
            1,
        )
        .replace("\"tool_call_id\": \"z\"", "\"tool_call_id\": \"a1\"");
    assert_eq!(rules(&swapped, none), []);
    assert_eq!(rules(&swapped, strict), [Rule::Order]);
}

#[test]
fn the_view_at_a_step_is_that_of_the_last_compaction_and_what_follows() {
    let run = Trajectory::parse(FILE.as_bytes()).unwrap();
    assert_eq!(run.view_at(1).len(), 9);
    let second = run.view_at(2);
    assert_eq!(second.len(), 9);
    assert_eq!(
        second[3],
        Seen::Message {
            index: 3,
            elided: true
        }
    );
    assert_eq!(run.view_at(3)[2], Seen::Summary("The parser was read."));
    assert_eq!(run.view_at(3).len(), 5);
}

#[test]
fn members_keep_their_order_and_unknown_ones_their_spelling() {
    let run = Trajectory::parse(FILE.as_bytes()).unwrap();
    let text = run.to_json().unwrap();
    assert!(text.starts_with("{\"read_only\":false,\"task\":"));
    assert!(text.ends_with("\"x_future\":{\"n\": 1.50}}"));
    assert!(!text.contains("cache_write_tokens") && !text.contains("\"resume\""));
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(value(&text), value(FILE));
    let bare = Trajectory::default().to_json().unwrap();
    assert_eq!(
        bare,
        concat!(
            r#"{"read_only":false,"task":"","model":"","messages":null,"steps":0,"cost":0.0,"input_tokens":0,"#,
            r#""output_tokens":0,"exit_status":"","submission":"","skip_agents_md":false}"#
        )
    );
}

#[test]
fn an_error_of_reading_says_nothing_of_the_content() {
    let error = Trajectory::parse(b"{\"task\": \"a\", \"steps\": \"secret\"}").unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn only_the_text_of_the_format_resumes_a_run() {
    let run = Trajectory::parse(FILE.as_bytes()).unwrap();
    assert!(!is_notice("go on"));
    assert!(run.resumed("run.json", "go on").is_err());
}
