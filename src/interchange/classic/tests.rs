use super::super::testing::{context, report, rows, sessions};
use super::*;

/// Typed rows, a failure, a compaction, tools, a partial.
const FILE: &str = include_str!("session.jsonl");

const OLD: &str = "<!-- session_transcript\nagent: planner\nturn_count: 2\ncharged_usd: $0.5\nthread_id: th-7\n-->\n\
    <!--MSG role=\"user\"-->\nlist\n<!--/MSG-->\n\
    <!--MSG role=\"assistant\"-->\na literal <!--\\/MSG--> stays\n<!--/MSG-->\n\
    <!--MSG role=\"user\"-->\nnever ended";

#[test]
fn lines_become_rows_with_their_types_and_their_usage() {
    let rows = rows(&Classic, "session_raw/planner_1.jsonl", FILE.as_bytes());
    assert_eq!(rows[0].message.request_id.as_deref(), Some("r1"));
    assert_eq!(rows[1].message.tool_calls[0].name, "ls");
    assert_eq!(rows[2].message.tool_call_id.as_deref(), Some("c1"));
    let failure = rows[2].message.tool_failure.as_ref().unwrap();
    assert_eq!(failure.detail.as_deref(), Some("denied"));
    let usage = rows[3].message.turn_usage.as_ref().unwrap();
    assert_eq!((usage.usage.input, usage.iteration), (90, 2));
    assert_eq!(usage.reasoning_content.as_deref(), Some("short"));
    assert!(
        rows[4].message.extra_metadata.as_ref().unwrap()[crate::BACKGROUND_METADATA_KEY]
            .is_object()
    );
}

#[test]
fn a_replacement_keeps_the_rows_that_it_repeats() {
    let report = report(&Classic, "planner_1.jsonl", FILE.as_bytes());
    assert_eq!((report.messages, report.compactions), (7, 1));
    assert_eq!((report.input_tokens, report.output_tokens), (90, 12));
    assert_eq!(
        context(&Classic, "planner_1.jsonl", FILE.as_bytes(), 0),
        ["summary", "Two files.", "go on"]
    );
}

#[test]
fn a_stem_is_the_session_that_its_header_spells() {
    let of = |stem: &str, meta: TranscriptMeta| session_of(stem, &meta);
    let meta = TranscriptMeta::new("planner").with_thread_id("th-7");
    for session in [
        SessionRef::root("th-7"),
        SessionRef::scoped("th-7", "planner"),
    ] {
        assert_eq!(of(&session.session_id(), meta.clone()), session);
    }
    assert_eq!(of("planner_1", meta.clone()), SessionRef::root("planner_1"));
    let parent = SessionRef::root("planner_1");
    let child = SessionRef::child_of(&parent, "17_coder");
    assert_eq!(of("planner_1__17_coder", meta.clone()), child);
    let session = SessionRef::scoped("th-7", "planner").next_generation();
    assert_eq!(of(&session.session_id(), meta.clone()), session);
    assert_eq!(
        of("planner_1.g2__17_coder.g1", meta),
        SessionRef::child_of(&parent.with_generation(2), "17_coder").next_generation()
    );
}

#[test]
fn a_line_that_does_not_fit_is_set_aside_and_the_others_read() {
    let file = format!(
        "{FILE}{}\n{}\n{}\n{{\"role\":\"user",
        r#"{"role":"user"}"#,
        r#"{"role":"assistant","content":"x","usage":{"input":"many"}}"#,
        r#"{"role":"user","content":"kept","kind":"new"}"#,
    );
    let report = report(&Classic, "planner_1.jsonl", file.as_bytes());
    assert_eq!(report.messages, 8);
    let lines: Vec<u64> = report.quarantined.iter().map(|bad| bad.line).collect();
    assert_eq!(lines, [11, 12, 14]);
}

#[test]
fn a_file_that_does_not_begin_with_a_header_is_set_aside_as_a_whole() {
    let (header, rest) = FILE.split_once('\n').unwrap();
    let lines = FILE.lines().count() as u64;
    for first in [
        "{\"_meta\":{\"version\":1",
        "{\"_meta\":{\"version\":1}}",
        "{\"_meta\":[]}",
        "[]",
        r#"{"role":"user","content":"x"}"#,
        r#"{"kind":"tools","tools":[]}"#,
    ] {
        let file = format!("\n{first}\n{rest}");
        let report = report(&Classic, "planner_1.jsonl", file.as_bytes());
        assert_eq!((report.messages, report.sessions), (0, 0), "{first}");
        assert_eq!(report.bad, lines, "{first}");
        assert!(report.is_barren());
    }
    let file = format!("\n \n{header}\n{rest}");
    assert_eq!(
        report(&Classic, "planner_1.jsonl", file.as_bytes()).messages,
        7
    );
}

#[test]
fn a_root_that_names_no_thread_is_a_thread_of_its_own() {
    let meta = |agent: &str| TranscriptMeta::new(agent);
    let root = headed("planner_1", SessionRef::root("planner_1"), meta("planner"));
    assert_eq!(root.meta.thread_id.as_deref(), Some("imported-planner_1"));
    assert!(root.pre_identity);
    let parent = SessionRef::root("planner_1");
    let child = SessionRef::child_of(&parent, "17_coder");
    let child = headed("planner_1__17_coder", child, meta("coder"));
    assert_eq!((child.meta.thread_id, child.pre_identity), (None, false));
    let session = SessionRef::scoped("th-7", "planner");
    let stem = session.session_id();
    let named = headed(&stem, session, meta("planner").with_thread_id("th-7"));
    assert!(!named.pre_identity);
}

#[test]
fn the_older_format_is_read_up_to_a_row_without_an_end() {
    let rows = rows(&Classic, "planner_2.md", OLD.as_bytes());
    let texts: Vec<&str> = rows
        .iter()
        .map(|row| row.message.content.as_str())
        .collect();
    assert_eq!(texts, ["list", "a literal <!--/MSG--> stays"]);
    assert_eq!(
        sessions(&Classic, "planner_2.md", OLD.as_bytes()),
        [SessionRef::root("planner_2")]
    );
    let bad = report(&Classic, "planner_2.md", b"no header");
    assert!(bad.is_barren() && bad.quarantined.len() == 1);
}

#[test]
fn of_several_files_of_a_stem_the_flat_one_is_read() {
    let paths = |names: &[&str]| -> Vec<PathBuf> { names.iter().map(PathBuf::from).collect() };
    let arranged = Classic.arrange(
        Path::new("w"),
        paths(&[
            "w/a__1_x.jsonl",
            "w/session_raw/01022026/a.jsonl",
            "w/session_raw/a.jsonl",
            "w/sessions/2026_02_01/a.md",
            "w/sessions/01022026/b.md",
            "w/session_raw/c.g10.jsonl",
            "w/session_raw/c.g2.jsonl",
            "w/session_raw/c.jsonl",
            "w/session_raw/c.jsonl.adopting",
            "w/.transcript-locks/session_raw/d.jsonl",
        ]),
    );
    assert_eq!(
        arranged,
        paths(&[
            "w/session_raw/a.jsonl",
            "w/sessions/01022026/b.md",
            "w/session_raw/c.jsonl",
            "w/session_raw/c.g2.jsonl",
            "w/session_raw/c.g10.jsonl",
            "w/a__1_x.jsonl"
        ])
    );
}
