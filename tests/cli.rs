//! What the command line promises, on the built program.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops where it cannot go on"
)]

use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use transcript_redb::{
    ErrorKind, SessionRef, Store, TranscriptLocator as _, TranscriptMessage, TranscriptMeta,
    TranscriptTurn, TurnUsage, UsageCostSource, serde_json,
};

const SESSION: &str = "7f3c2a10-5b1e-4c6f-9a4d-2f6f0d1c8e21";

fn sample() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/sample"))
}

/// A folder with a store in it, or room for one.
struct Desk {
    folder: TempDir,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    /// With the sample imported.
    fn with_sample() -> Self {
        let desk = Self::new();
        let imported = desk.run(&["import", sample().to_str().unwrap()]);
        assert_eq!(status(&imported), 0, "{}", stderr(&imported));
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn store(&self) -> PathBuf {
        self.path("store.redb")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = program();
        command.env("TRANSCRIPT_REDB", self.store()).args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that succeeds.
    fn text(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(status(&output), 0, "{args:?}: {}", stderr(&output));
        stdout(&output)
    }

    /// Runs a command that succeeds and prints JSON lines.
    fn json(&self, args: &[&str]) -> Vec<Value> {
        json_lines(&self.text(args))
    }
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transcript-redb"));
    command
        .env_remove("TRANSCRIPT_REDB")
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE")
        .env("TZ", "UTC")
        .stdin(Stdio::null());
    command
}

fn status(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// It fails with this status, says these things on one or two lines, and prints nothing.
fn refused(output: &Output, code: i32, says: &[&str]) {
    let told = stderr(output);
    assert_eq!(status(output), code, "{told}");
    assert_eq!(stdout(output), "");
    for said in says {
        assert!(told.contains(said), "{told}");
    }
    if code == 1 {
        assert!(told.lines().count() <= 2, "{told}");
    }
}

#[test]
fn the_sample_is_imported_listed_shown_and_summed() {
    let desk = Desk::new();
    let imported = desk.text(&["import", sample().to_str().unwrap()]);
    assert!(imported.contains("Added 39 messages and 6 sessions from 5 files, $0.0184"));
    let sessions = desk.text(&["sessions"]);
    assert_eq!(sessions.lines().count(), 8, "{sessions}");
    assert!(sessions.ends_with("and 1 session of sub-agents below these (--children)\n"));
    assert!(sessions.contains("The nightly build fails"));
    assert!(!sessions.contains("Find date arithmetic"));
    assert!(
        desk.text(&["sessions", "--children"])
            .contains("↳ Find date arithmetic")
    );
    let threads = desk.text(&["threads"]);
    assert!(
        threads.contains("81,590"),
        "the sub-agent counts: {threads}"
    );
    let shown = desk.text(&["show", "7f3c"]);
    assert!(shown.contains("  → Bash {\"command\":\"tail -n 20 build/nightly.log\""));
    assert!(shown.contains("more lines (--full)"));
    assert!(
        desk.text(&["show", "7f3c", "--full"])
            .contains("basket::case_12")
    );
    let spend = desk.text(&["spend", "--by", "model"]);
    assert!(spend.contains("claude-sample-4") && spend.contains("total"));
    assert!(desk.text(&["stats"]).contains("5 imported files"));
    assert!(desk.text(&["compact"]).starts_with("Packed "));
    assert_eq!(
        shown,
        desk.text(&["show", "7f3c"]),
        "compaction shows in nothing"
    );
}

#[test]
fn what_files_tell_of_a_session_and_a_record_is_shown() {
    let desk = Desk::with_sample();
    let shown = desk.text(&["show", "7f3c"]);
    assert!(shown.contains("/home/ada/orchard"), "{shown}");
    let sessions = desk.json(&["sessions", "--json", "--children"]);
    let of = |key: &str| sessions.iter().find(|it| it["session_key"] == key).unwrap();
    assert_eq!(of(SESSION)["attributes"]["gitBranch"], "main");
    assert!(of(SESSION)["spawned_by"].is_null());
    // The sample does not say which call it was.
    let agents = desk.path("p/s/subagents");
    std::fs::create_dir_all(&agents).unwrap();
    let line = r#"{"type":"user","sessionId":"s","agentId":"a1","isSidechain":true,"uuid":"u1","message":{"role":"user","content":"go"}}"#;
    std::fs::write(agents.join("agent-a1.jsonl"), line).unwrap();
    let meta = r#"{"toolUseId":"toolu_7"}"#;
    std::fs::write(agents.join("agent-a1.meta.json"), meta).unwrap();
    let one = Desk::new();
    one.text(&["import", desk.path("p").to_str().unwrap()]);
    let run = &one.json(&["sessions", "--json", "--children"])[0];
    assert_eq!(run["spawned_by"], "toolu_7");
    let stem = run["stem"].as_str().unwrap();
    assert!(one.text(&["show", stem]).contains("spawned by toolu_7"));

    let display = desk.json(&["show", SESSION, "--json"]);
    let uuid = display[0]["message"]["uuid"].as_str().unwrap();
    let origin = desk.json(&["record", uuid, "--json"])[0]["origin"].clone();
    let file = std::fs::read(sample().join(format!("{SESSION}.jsonl"))).unwrap();
    let from = usize::try_from(origin["offset"].as_u64().unwrap()).unwrap();
    let to = from + usize::try_from(origin["length"].as_u64().unwrap()).unwrap();
    let line: Value = serde_json::from_slice(&file[from..to]).unwrap();
    assert_eq!(line["uuid"], uuid);
    assert_eq!(origin["format"], "claude-code");
    assert!(
        desk.text(&["record", uuid])
            .contains("read as claude-code 1")
    );

    let spend = desk.text(&["spend", "--by", "model"]);
    assert!(spend.contains("TO CACHE"), "{spend}");
    let total = desk.json(&["spend", "--json"]);
    assert!(total[0]["cache_write_tokens"].as_u64().unwrap() > 0);
    // A host tells nothing of it.
    let desk = Desk::new();
    let store = Store::open(desk.store()).unwrap();
    let mut usage = TurnUsage::default();
    usage.usage.input = 7;
    write_session(&store, &SessionRef::root("a"), "hello", usage);
    drop(store);
    assert!(!desk.text(&["spend"]).contains("TO CACHE"));
    assert_eq!(desk.json(&["spend", "--json"])[0]["cache_write_tokens"], 0);
}

#[test]
fn programs_get_the_same_as_json() {
    let desk = Desk::with_sample();
    let sessions = desk.json(&["sessions", "--json", "--children"]);
    assert_eq!(sessions.len(), 6);
    let of = |key: &str| sessions.iter().find(|it| it["session_key"] == key).unwrap();
    assert_eq!(of(SESSION)["messages"], 15);
    assert_eq!(of("a41f09c2")["parent_stem"], of(SESSION)["stem"]);
    assert_eq!(desk.json(&["sessions", "--json", "--limit", "2"]).len(), 2);
    let of_thread = desk.json(&["sessions", "--json", "--thread", SESSION]);
    assert_eq!(of_thread.len(), 1);
    assert_eq!(desk.json(&["threads", "--json"]).len(), 5);
    let display = desk.json(&["show", SESSION, "--json"]);
    assert_eq!(display.len(), 15);
    let model = desk.json(&["show", SESSION, "--json", "--view", "model", "--limit", "1"]);
    assert_eq!(model.len(), 1);
    assert_eq!(model[0]["role"], "assistant");
    let uuid = display[0]["message"]["uuid"].as_str().unwrap();
    let record = desk.json(&["record", uuid, "--json"]);
    assert_eq!(record[0]["kind"], "message");
    assert_eq!(record[0]["message"]["message"]["role"], "user");
    assert!(
        desk.text(&["record", uuid])
            .contains("The nightly build fails")
    );
    let by_model = desk.json(&["spend", "--json", "--by", "model"]);
    assert_eq!(by_model[1]["model"], "fern-2");
    assert_eq!(by_model[1]["cost_usd"], 0.0184);
    assert_eq!(by_model[2]["model"], "gpt-sample-5");
    assert_eq!(by_model[2]["input_tokens"], 10_350);
    let total = desk.json(&["spend", "--json"]);
    assert_eq!(total[0]["turns"], 11);
    assert_eq!(total[0]["unpriced_turns"], 10);
    assert_eq!(desk.json(&["stats", "--json"])[0]["sources"], 5);
    assert!(desk.json(&["compact", "--json"])[0]["allocated_after"].is_u64());
}

#[test]
fn an_import_reports_each_file_and_a_second_one_adds_nothing() {
    let desk = Desk::new();
    let sample = sample();
    let import = ["import", "--json", sample.to_str().unwrap()];
    let first = desk.json(&import);
    assert_eq!(first.len(), 6);
    let mut keys: Vec<_> = first[0].as_object().unwrap().keys().cloned().collect();
    keys.sort();
    let mut named = [
        "path",
        "format",
        "bytes",
        "lines",
        "blank_lines",
        "records",
        "messages",
        "quarantined",
        "glued_records",
        "duplicates",
        "compactions",
        "sessions",
        "distinct_message_ids",
        "input_tokens",
        "output_tokens",
        "cached_input_tokens",
        "cache_write_tokens",
        "cost_usd",
    ];
    named.sort_unstable();
    assert_eq!(keys, named);
    assert_eq!(
        (&first[5]["messages"], &first[5]["sessions"]),
        (&39.into(), &6.into())
    );
    let again = desk.json(&import);
    for report in &again {
        for key in ["messages", "input_tokens", "distinct_message_ids"] {
            assert_eq!(report[key], 0, "{key}");
        }
    }
    assert_eq!(again[5]["sessions"], 0);
}

#[test]
fn damage_is_reported_by_its_place_and_hides_nothing_else() {
    let desk = Desk::new();
    let file = desk.write(
        "chat.jsonl",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"one\"}]}\n[1]\n{\"messages\":[{\"role\":\"user\",\"content\":\"secret",
    );
    let reports = desk.json(&["import", "--json", &file]);
    assert_eq!(reports[0]["messages"], 1);
    let classes: Vec<_> = reports[0]["quarantined"]
        .as_array()
        .unwrap()
        .iter()
        .collect();
    assert_eq!(classes[0]["class"], "wrong_shape");
    assert_eq!(classes[1]["class"], "torn_tail");
    assert_eq!(reports[1]["quarantined"], 2);
    let other = desk.path("other.redb");
    let told = desk.text(&["import", &file, "--db", other.to_str().unwrap()]);
    assert!(
        told.contains(":2: JSON, but no record of this format at byte") && !told.contains("secret")
    );
}

#[test]
fn what_was_written_before_sessions_is_adopted_once_for_each_thread_and_agent() {
    let desk = Desk::new();
    let folder = desk.path("w/session_raw");
    std::fs::create_dir_all(&folder).unwrap();
    let write = |stem: &str, agent: &str, created: &str| {
        let meta = format!(
            r#"{{"_meta":{{"version":1,"agent":"{agent}","agent_id":"{agent}","dispatcher":"native","created":"{created}","updated":"{created}","turn_count":1,"input_tokens":90,"output_tokens":9,"cached_input_tokens":0,"charged_amount_usd":0.5,"thread_id":"th-7"}}}}"#
        );
        let usage =
            r#"{"input":90,"output":9,"cached_input":0,"cost_usd":0.5,"cost_source":"charged"}"#;
        let rows = format!(
            "{{\"role\":\"user\",\"content\":\"of {stem}\"}}\n{{\"role\":\"assistant\",\"content\":\"done\",\"provider\":\"acme\",\"model\":\"m\",\"usage\":{usage},\"ts\":\"{created}\"}}\n"
        );
        std::fs::write(
            folder.join(format!("{stem}.jsonl")),
            format!("{meta}\n{rows}"),
        )
        .unwrap();
    };
    write("1700_planner", "planner", "2026-03-02T10:00:00Z");
    write("1600_planner", "planner", "2026-03-01T10:00:00Z");
    write("1650_coder", "coder", "2026-03-01T12:00:00Z");
    let folder = desk.path("w").to_str().unwrap().to_owned();
    desk.run(&["import", &folder]);
    let spent = desk.json(&["spend", "--json"]);
    let import = ["import", "--adopt", "--json", &folder];
    let adopted = desk.json(&import).pop().unwrap()["adopted"].take();
    let sessions = adopted["sessions"].as_array().unwrap();
    let stems = ["coder", "planner"].map(|it| SessionRef::scoped("th-7", it).session_id());
    assert_eq!(
        [&sessions[0]["session"], &sessions[1]["session"]],
        [&stems[0], &stems[1]]
    );
    assert_eq!(sessions[1]["messages"], 4);
    assert_eq!(sessions[1]["sources"][0]["created"], "2026-03-01T10:00:00Z");
    assert!(adopted["failed"].as_array().unwrap().is_empty());
    assert_eq!(desk.json(&["spend", "--json"]), spent);
    let shown = desk.text(&["show", &stems[1]]);
    assert!(shown.find("of 1600_planner").unwrap() < shown.find("of 1700_planner").unwrap());

    let again = desk.json(&import).pop().unwrap()["adopted"].take();
    assert!(again["sessions"].as_array().unwrap().is_empty());
    let told = desk.text(&["import", "--adopt", &folder]);
    assert!(told.contains("Nothing to adopt."));
}

#[test]
fn reading_again_what_this_version_read_adds_nothing_and_a_file_that_names_generations_is_refused()
{
    let desk = Desk::with_sample();
    let sample = sample().to_str().unwrap().to_owned();
    let before = desk.text(&["export", "--all"]);
    let report = desk.json(&["import", "--again", "--json", &sample]);
    assert_eq!(
        (&report[0]["messages"], &report[0]["sessions"]),
        (&0.into(), &1.into())
    );
    assert_eq!(desk.text(&["export", "--all"]), before);
    let classic = desk.write(
        "1700_planner.jsonl",
        "{\"_meta\":{\"version\":1,\"agent\":\"planner\"}}\n{\"role\":\"user\",\"content\":\"hm\"}\n",
    );
    let read = desk.run(&["import", "--again", "--from", "classic", &classic]);
    assert_eq!(status(&read), 1);
    assert!(stderr(&read).contains("of the format classic are not read anew"));
    assert_eq!(desk.text(&["export", "--all"]), before);
}

#[test]
fn files_without_a_format_or_a_record_are_refused_and_the_others_go_in() {
    let desk = Desk::new();
    let notes = desk.write("notes.txt", "notes");
    let output = desk.run(&["import", &notes]);
    refused(&output, 1, &["notes.txt", "--from"]);
    assert!(!desk.store().exists(), "nothing to import makes no store");
    refused(
        &desk.run(&["import", "/no/such/file"]),
        1,
        &["/no/such/file"],
    );
    let output = desk.run(&["import", "--json", &notes, sample().to_str().unwrap()]);
    assert_eq!(status(&output), 1);
    let lines = json_lines(&stdout(&output));
    assert_eq!(lines[5]["messages"], 39);
    assert_eq!(lines[5]["failed"][0]["path"], notes);
    // Named, it is kept as a source, and said to hold nothing.
    let output = desk.run(&["import", "--from", "chat", &notes]);
    assert_eq!(status(&output), 1);
    assert!(stderr(&output).contains("no record"));
    assert_eq!(desk.json(&["stats", "--json"])[0]["sources"], 6);
}

#[test]
fn a_session_is_named_by_its_key_its_stem_or_an_unambiguous_prefix() {
    let desk = Desk::new();
    {
        let store = Store::open(desk.store()).unwrap();
        for key in ["alpha-1", "alpha-2", "alpha-22", "beta"] {
            write_session(&store, &SessionRef::root(key), "text", TurnUsage::default());
        }
    }
    let stem = SessionRef::root("alpha-2").session_id();
    for name in ["beta", "b", "alpha-1", "alpha-2", "alpha-22", &stem] {
        assert!(desk.text(&["show", name]).contains("stem"), "{name}");
    }
    assert!(desk.text(&["show", "alpha-2"]).contains(&stem));
    refused(&desk.run(&["show", "gamma"]), 1, &["gamma", "sessions"]);
    let output = desk.run(&["show", "alpha"]);
    assert_eq!(status(&output), 1);
    assert!(stderr(&output).contains("names 3 sessions"));
    assert!(stderr(&output).contains(&stem));
}

fn write_session(store: &Store, session: &SessionRef, text: &str, usage: TurnUsage) {
    let meta = TranscriptMeta::new("host").with_thread_id("t");
    let history = store.locator().open_session(session, meta.clone()).unwrap();
    let rows = [
        TranscriptMessage::user(text),
        TranscriptMessage::assistant("done").with_turn_usage(usage),
    ];
    history
        .append_turn(TranscriptTurn::new(&[], &rows, &meta))
        .unwrap();
}

#[test]
fn a_store_in_use_is_named_with_the_process_that_holds_it() {
    let desk = Desk::with_sample();
    let held = Store::open(desk.store()).unwrap();
    let pid = format!("pid {}", std::process::id());
    for args in [
        &["sessions"][..],
        &["show", "7f3c"],
        &["compact"],
        &["import", sample().to_str().unwrap()],
    ] {
        refused(&desk.run(args), 1, &["store.redb", "in use", &pid]);
    }
    drop(held);
    assert_eq!(status(&desk.run(&["sessions"])), 0);
}

#[test]
fn wrong_usage_is_2_and_what_is_missing_is_1() {
    let desk = Desk::new();
    for args in [
        &["sessions", "--no-such"][..],
        &["no-such"],
        &["import"],
        &["import", "--from", "none", "x"],
        &["record", "no-uuid"],
        &["export", "--to", "chat"],
        &["export"],
        &["export", "--all", "--to", "chat", "--original"],
        &["spend", "--by", "none"],
        &["spend", "--since", "yesterday-ish"],
    ] {
        refused(&desk.run(args), 2, &["error"]);
    }
    let unnamed = program().arg("sessions").output().unwrap();
    refused(&unnamed, 2, &["--db", "TRANSCRIPT_REDB"]);
    refused(&desk.run(&["sessions"]), 1, &["no store", "--db"]);
    refused(&desk.run(&["compact"]), 1, &["no store"]);
    assert!(!desk.store().exists(), "looking makes no store");
    let desk = Desk::with_sample();
    let unknown = "00000000-0000-4000-8000-000000000001";
    refused(&desk.run(&["record", unknown]), 1, &[unknown]);
    refused(
        &desk.run(&["export", "--thread", "none", "--to", "chat"]),
        1,
        &["threads"],
    );
    let text = desk.write(
        "text.redb",
        "this is no store, but a text that is long enough to look like one",
    );
    let output = program()
        .args(["sessions", "--db", &text])
        .output()
        .unwrap();
    refused(&output, 1, &["store"]);
}

#[test]
fn money_is_shown_with_where_it_is_known_from() {
    let desk = Desk::new();
    {
        let store = Store::open(desk.store()).unwrap();
        for (key, source, usd, ts) in [
            (
                "a",
                Some(UsageCostSource::Charged),
                1234.5,
                "2026-03-01T22:30:00Z",
            ),
            (
                "b",
                Some(UsageCostSource::Estimated),
                0.25,
                "2026-03-01T23:30:00Z",
            ),
            (
                "c",
                Some(UsageCostSource::Unknown),
                0.0,
                "2026-03-02T10:00:00Z",
            ),
        ] {
            let mut usage = TurnUsage {
                model: "m".to_owned(),
                ts: ts.to_owned(),
                ..TurnUsage::default()
            };
            usage.usage.input = 1_000_000;
            usage.usage.cost_usd = usd;
            usage.usage.cost_source = source;
            write_session(&store, &SessionRef::root(key), "text", usage);
        }
    }
    let spend = desk.text(&["spend"]);
    for cell in [
        "3,000,000",
        "$1,234.50",
        "$0.2500",
        "1 turn, 1,000,000 tokens",
    ] {
        assert!(spend.contains(cell), "{cell}: {spend}");
    }
    let sources = desk.json(&["spend", "--by", "source", "--json"]);
    let names: Vec<_> = sources
        .iter()
        .map(|it| it["source"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["charged", "estimated", "unpriced"]);
    assert!(desk.text(&["sessions"]).contains("$1,234.5000 charged"));
    let since = desk.json(&["spend", "--json", "--since", "2026-03-02"]);
    assert_eq!(since[0]["turns"], 1);
    let until = desk.json(&["spend", "--json", "--until", "2026-03-01T23:00:00Z"]);
    assert_eq!(until[0]["cost_usd"], 1234.5);
    // Days are those of the clock on the wall.
    let days = |zone: &str, args: &[&str]| {
        let output = desk.command(args).env("TZ", zone).output().unwrap();
        stdout(&output).matches("2026-03-0").count()
    };
    let by_day = ["spend", "--by", "day"];
    assert_eq!(days("UTC", &by_day), 2);
    assert_eq!(days("<+02>-2", &by_day), 1);
    assert_eq!(days("<+02>-2", &["spend", "--by", "day", "--utc"]), 2);
}

#[test]
fn times_are_local_unless_utc_is_asked_for() {
    let desk = Desk::with_sample();
    let shown = |args: &[&str]| stdout(&desk.command(args).env("TZ", "<+09>-9").output().unwrap());
    assert!(shown(&["show", "7f3c"]).contains("2026-08-03 18:00:20"));
    assert!(shown(&["show", "7f3c", "--utc"]).contains("2026-08-03 09:00:20"));
}

#[test]
fn what_a_terminal_would_obey_is_never_printed() {
    let desk = Desk::new();
    let evil = "\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}abc\rdef";
    {
        let store = Store::open(desk.store()).unwrap();
        write_session(&store, &SessionRef::root(evil), evil, TurnUsage::default());
    }
    let stem = SessionRef::root(evil).session_id();
    for args in [
        &["sessions"][..],
        &["sessions", "--json"],
        &["show", &stem],
        &["show", &stem, "--json"],
        &["spend", "--by", "agent"],
    ] {
        let text = desk.text(args);
        let control = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(control, None, "{args:?}");
    }
    assert!(
        desk.text(&["show", &stem])
            .contains("\\u{1b}]0;owned\\u{7}\\u{9b}31m\\u{202e}abc")
    );
}

#[test]
fn a_pipe_gets_no_colour_no_bar_and_whole_names_and_may_close() {
    let desk = Desk::with_sample();
    let output = desk.run(&["import", sample().to_str().unwrap()]);
    assert_eq!(stderr(&output), "");
    assert!(!stdout(&output).contains('\u{1b}'));
    assert!(desk.text(&["sessions"]).contains(SESSION));
    let big = (0..20_000).map(|at| format!("{{\"role\":\"user\",\"content\":\"line {at}\"}}\n"));
    let file = desk.write("big.jsonl", big.collect::<String>());
    desk.text(&["import", "--from", "chat", &file]);
    let session = desk.json(&["sessions", "--json", "--limit", "1"])[0]["stem"].clone();
    for more in [
        &["show"][..],
        &["show", "--json"],
        &["export", "--to", "chat"],
    ] {
        let mut command = desk.command(more);
        let mut child = command
            .arg(session.as_str().unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut reader = BufReader::with_capacity(16, child.stdout.take().unwrap());
        let mut first = [0; 16];
        reader.read_exact(&mut first).unwrap();
        drop(reader);
        let mut told = String::new();
        BufReader::new(child.stderr.take().unwrap())
            .read_to_string(&mut told)
            .unwrap();
        assert_eq!(told, "", "{more:?}");
        assert_eq!(child.wait().unwrap().code(), Some(0), "{more:?}");
    }
}

#[test]
fn originals_come_back_byte_for_byte() {
    let desk = Desk::with_sample();
    let folder = desk.path("out");
    desk.text(&[
        "export",
        "7f3c",
        "--original",
        "-o",
        folder.to_str().unwrap(),
    ]);
    let main = format!("{SESSION}.jsonl");
    same_bytes(&sample().join(&main), &folder.join(&main));
    let agent = "agent-a41f09c2.jsonl";
    same_bytes(
        &sample().join(SESSION).join("subagents").join(agent),
        &folder.join(agent),
    );
    // Nothing is overwritten.
    let output = desk.run(&[
        "export",
        "7f3c",
        "--original",
        "-o",
        folder.to_str().unwrap(),
    ]);
    refused(&output, 1, &["creating"]);
    // Several files need a folder.
    refused(&desk.run(&["export", "7f3c", "--original"]), 1, &["-o"]);
    let output = desk.run(&["export", "0198a6d1", "--original"]);
    let file = format!(
        "rollout-2026-08-04T16-20-00-{}.jsonl",
        "0198a6d1-40c2-7d11-b6f3-5e0a4c9d7b02"
    );
    assert_eq!(output.stdout, std::fs::read(sample().join(file)).unwrap());
}

fn same_bytes(one: &Path, other: &Path) {
    assert_eq!(std::fs::read(one).unwrap(), std::fs::read(other).unwrap());
}

#[test]
fn chat_files_come_back_as_they_were_and_other_sessions_as_chat() {
    let desk = Desk::new();
    let odd = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\", \"x\":1.50}]}\r\n\n{\"messages\":[{\"content\":\"b\",\"role\":\"user\"}],\"z\":0}";
    let file = desk.write("odd.jsonl", odd);
    desk.text(&["import", &file]);
    assert_eq!(desk.text(&["export", "--all", "--to", "chat"]), odd);
    let one = desk.json(&["sessions", "--json", "--limit", "1"])[0]["stem"].clone();
    let exported = desk.json(&["export", one.as_str().unwrap(), "--to", "chat"]);
    assert_eq!(exported.len(), 1);
    let desk = Desk::with_sample();
    let out = desk.path("chat.jsonl");
    desk.text(&[
        "export",
        "7f3c",
        "--to",
        "chat",
        "-o",
        out.to_str().unwrap(),
    ]);
    let other = Desk::new();
    let reports = other.json(&["import", "--json", out.to_str().unwrap()]);
    assert_eq!(
        (&reports[0]["messages"], &reports[0]["sessions"]),
        (&19.into(), &2.into())
    );
    refused(
        &desk.run(&[
            "export",
            "--all",
            "--to",
            "chat",
            "-o",
            out.to_str().unwrap(),
        ]),
        1,
        &["already"],
    );
}

#[test]
fn compactions_and_generations_are_shown_whole_and_exported_as_they_stand() {
    let desk = Desk::new();
    let session = SessionRef::root("k");
    {
        let store = Store::open(desk.store()).unwrap();
        let meta = TranscriptMeta::new("host");
        let row = |text: &str| TranscriptMessage::user(text);
        let history = store
            .locator()
            .open_session(&session, meta.clone())
            .unwrap();
        let first = [row("one"), row("two"), row("three")];
        history
            .append_turn(TranscriptTurn::new(&[], &first, &meta))
            .unwrap();
        let stored = history.messages().unwrap();
        let compacted = [row("summary"), stored[2].clone()];
        history
            .append_turn(TranscriptTurn::new(&stored, &compacted, &meta))
            .unwrap();
        let compacted = history.messages().unwrap();
        let (_, next) = store
            .locator()
            .begin_generation_from_baseline(&session, meta.clone(), &compacted)
            .unwrap();
        next.replace(&compacted[1..]).unwrap();
        next.append(row("four")).unwrap();
    }
    let contents = |rows: &[Value]| -> Vec<String> {
        let text = |row: &Value| row["content"].as_str().unwrap().to_owned();
        rows.iter().map(text).collect()
    };
    let exported = desk.json(&["export", "k", "--to", "chat"]);
    let live = desk.json(&["show", "k", "--view", "model", "--json"]);
    assert_eq!(contents(&live), ["three", "four"]);
    assert_eq!(
        contents(exported[0]["messages"].as_array().unwrap()),
        contents(&live)
    );
    let markdown = desk.text(&["export", "k", "--to", "markdown"]);
    let shown = desk.text(&["show", "k"]);
    for text in ["one", "two", "three", "summary", "four"] {
        let times = |whole: &str, line: &str| whole.lines().filter(|it| *it == line).count();
        assert_eq!(times(&markdown, text), 1, "{text}: {markdown}");
        assert_eq!(times(&shown, &format!("  {text}")), 1, "{text}: {shown}");
    }
    // A generation may be named by its stem.
    let before = desk.json(&["show", &session.session_id(), "--view", "model", "--json"]);
    assert_eq!(contents(&before), ["summary", "three"]);
}

#[test]
fn markdown_is_one_document_a_session_in_a_folder() {
    let desk = Desk::with_sample();
    let text = desk.text(&["export", "--thread", SESSION, "--to", "markdown"]);
    assert!(text.starts_with("# The nightly build fails"));
    assert!(
        text.contains("# Find date arithmetic"),
        "sub-agents come along"
    );
    let folder = desk.path("md");
    std::fs::create_dir(&folder).unwrap();
    desk.text(&[
        "export",
        "--all",
        "--to",
        "markdown",
        "-o",
        folder.to_str().unwrap(),
    ]);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 6);
}

#[test]
fn completions_and_the_man_page_know_every_command() {
    let page = String::from_utf8(program().arg("man").output().unwrap().stdout).unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let output = program().args(["completions", shell]).output().unwrap();
        let script = stdout(&output);
        for command in [
            "import", "export", "sessions", "threads", "show", "record", "spend", "stats",
            "compact",
        ] {
            assert!(script.contains(command), "{shell} {command}");
            assert!(page.contains(command), "{command}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let output = program().arg("man").arg(folder.path()).output().unwrap();
    assert_eq!(status(&output), 0);
    assert!(folder.path().join("transcript-redb-import.1").exists());
}

#[test]
fn a_store_that_was_not_closed_is_recovered_by_looking_at_it() {
    let desk = Desk::new();
    let open = desk.path("open.redb");
    let store = Store::builder()
        .checkpoint_interval(std::time::Duration::from_secs(3600))
        .open(&open)
        .unwrap();
    write_session(&store, &SessionRef::root("k"), "text", TurnUsage::default());
    // What a crash at this moment would leave.
    std::fs::copy(&open, desk.store()).unwrap();
    std::fs::copy(
        desk.path("open.redb-journal"),
        desk.path("store.redb-journal"),
    )
    .unwrap();
    let read_only = Store::builder().read_only(true).open(desk.store());
    assert_eq!(
        read_only.unwrap_err().kind(),
        ErrorKind::NeedsRecovery,
        "the copy needs recovery"
    );
    assert_eq!(desk.json(&["sessions", "--json"])[0]["messages"], 2);
}

#[test]
fn real_files_go_in_and_are_shown() {
    let corpus = match std::env::var_os("TRANSCRIPT_CORPUS") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus")),
    };
    if !corpus.join("facts.json").exists() {
        eprintln!(
            "skipped: there is no corpus of real files in {}",
            corpus.display()
        );
        return;
    }
    let desk = Desk::new();
    for folder in ["claude-code", "codex", "chat"] {
        let folder = corpus.join(folder);
        desk.text(&["import", folder.to_str().unwrap()]);
    }
    let sessions = desk.json(&["sessions", "--children", "--json"]);
    assert!(sessions.len() > 30, "{}", sessions.len());
    for session in &sessions {
        let stem = session["stem"].as_str().unwrap();
        let text = desk.text(&["show", stem]);
        let control = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(control, None, "{stem}");
    }
    let total = desk.json(&["spend", "--json"]);
    let before = total[0]["input_tokens"].as_u64().unwrap();
    assert!(before > 0);
    let again = desk.json(&["import", "--json", corpus.join("codex").to_str().unwrap()]);
    assert_eq!(again.last().unwrap()["messages"], 0);
    assert_eq!(desk.json(&["spend", "--json"]), total);
}

#[test]
fn a_file_that_tells_of_no_session_of_the_named_format_is_refused() {
    let desk = Desk::new();
    let files = [
        format!("{SESSION}.jsonl"),
        "rollout-2026-08-04T16-20-00-0198a6d1-40c2-7d11-b6f3-5e0a4c9d7b02.jsonl".to_owned(),
        "questions.jsonl".to_owned(),
    ];
    for (at, format) in ["claude-code", "codex", "chat"].iter().enumerate() {
        for (of, file) in files.iter().enumerate() {
            let path = sample().join(file);
            let imported = desk.run(&["import", "--from", format, path.to_str().unwrap()]);
            assert_eq!(status(&imported), i32::from(at != of), "{format} {file}");
            assert_eq!(stderr(&imported).contains("kept as a source"), at != of);
        }
    }
    assert_eq!(desk.json(&["sessions", "--json"]).len(), 4);
    // A second import of what is known is no refusal.
    let path = sample().join(&files[0]);
    desk.text(&["import", "--from", "claude-code", path.to_str().unwrap()]);
}

#[test]
fn an_export_says_where_it_has_to_go_and_what_is_not_in_it() {
    let desk = Desk::with_sample();
    let file = desk.path("all.jsonl");
    for format in ["classic", "record-log", "checkpoint"] {
        for output in [vec![], vec!["-o", file.to_str().unwrap()]] {
            let mut args = vec!["export", "--all", "--to", format];
            args.extend(output);
            let refused = desk.run(&args);
            assert_eq!(status(&refused), 1, "{format}");
            assert!(refused.stdout.is_empty() && !file.exists(), "{format}");
            assert!(stderr(&refused).contains("-o DIR"), "{}", stderr(&refused));
        }
        let folder = desk.path(format);
        let output = desk.run(&[
            "export",
            "--all",
            "--to",
            format,
            "-o",
            &format!("{}/", folder.display()),
        ]);
        assert_eq!(status(&output), 0, "{}", stderr(&output));
        // One file of the sample knows what its run cost.
        let left_out = stderr(&output).contains("1 usage left out");
        assert_eq!(left_out, format == "record-log", "{}", stderr(&output));
    }
    let output = desk.run(&["export", SESSION, "--to", "markdown"]);
    assert!(stderr(&output).contains("left out"), "{}", stderr(&output));
}

#[test]
fn a_file_that_never_was_a_store_is_said_to_be_none_and_is_left_alone() {
    let desk = Desk::new();
    let notes = desk.write("notes.md", "# Notes\n\nNot a store.\n");
    for args in [
        ["stats"].as_slice(),
        &["compact"],
        &["import", sample().to_str().unwrap()],
    ] {
        let output = desk.run(&[args, &["--db", &notes]].concat());
        assert_eq!(status(&output), 1);
        let told = stderr(&output);
        assert!(told.contains("is not a transcript store"), "{told}");
        assert!(
            told.contains("--db") && !told.contains("corrupted"),
            "{told}"
        );
    }
    let text = std::fs::read_to_string(&notes).unwrap();
    assert_eq!(text, "# Notes\n\nNot a store.\n");
}

#[test]
fn spend_is_split_by_several_things_at_once_and_sums_to_the_total() {
    let desk = Desk::with_sample();
    let total = &desk.json(&["spend", "--json"])[0];
    let of_threads = desk.json(&["threads", "--json"]);
    for by in [
        vec!["thread"],
        vec!["session"],
        vec!["thread,model"],
        vec!["session", "day", "source"],
        vec!["agent", "agent,hour"],
    ] {
        let mut args = vec!["spend", "--json"];
        for by in &by {
            args.extend(["--by", by]);
        }
        let lines = desk.json(&args);
        for key in [
            "turns",
            "input_tokens",
            "output_tokens",
            "cached_input_tokens",
        ] {
            let sum: u64 = lines.iter().map(|line| line[key].as_u64().unwrap()).sum();
            assert_eq!(sum, total[key].as_u64().unwrap(), "{by:?} {key}");
        }
        let cost: f64 = lines
            .iter()
            .map(|line| line["cost_usd"].as_f64().unwrap())
            .sum();
        assert!((cost - 0.0184).abs() < 1e-12, "{by:?}");
        let mut names: Vec<String> = lines
            .iter()
            .map(|line| {
                let by = by.iter().flat_map(|by| by.split(','));
                by.map(|by| line[by].as_str().unwrap()).collect()
            })
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), lines.len(), "{by:?}: each once");
    }
    for line in desk.json(&["spend", "--json", "--by", "thread"]) {
        let thread = of_threads
            .iter()
            .find(|it| it["thread_id"] == line["thread"]);
        let root = &thread.unwrap()["spend"]["root"]["input_tokens"];
        // The sub-agents of the sample are one thread's.
        assert!(line["input_tokens"].as_u64() >= root.as_u64());
    }
    let table = desk.text(&["spend", "--by", "session,model"]);
    assert!(table.starts_with("SESSION"), "{table}");
    assert!(
        table.contains(SESSION) && table.contains("a41f09c2"),
        "{table}"
    );
    assert!(
        table.lines().last().unwrap().starts_with("total"),
        "{table}"
    );
}

#[test]
fn a_parent_that_was_never_written_is_not_taken_for_its_sub_agent() {
    let desk = Desk::new();
    {
        let store = Store::open(desk.store()).unwrap();
        let parent = SessionRef::root("ghost");
        let child = SessionRef::child_of(&parent, "worker");
        write_session(&store, &child, "done", TurnUsage::default());
    }
    for text in ["ghost", "gho"] {
        let output = desk.run(&["show", text]);
        assert_eq!(status(&output), 1);
        let told = stderr(&output);
        assert!(
            told.contains("was ever written") && told.contains("worker"),
            "{told}"
        );
    }
    let shown = desk.text(&["show", "work"]);
    assert!(
        shown.contains("sub-agent of") && shown.contains("worker"),
        "{shown}"
    );
}

#[test]
fn a_session_is_shown_with_its_times_generations_compactions_and_sub_agents() {
    let desk = Desk::new();
    let session = SessionRef::root("talk");
    let metadata = serde_json::json!({"trigger": "manual"});
    {
        let store = Store::open(desk.store()).unwrap();
        let locator = store.locator();
        let meta = TranscriptMeta::new("coder").with_thread_id("t");
        let history = locator.open_session(&session, meta.clone()).unwrap();
        let rows = [
            TranscriptMessage::user("first question"),
            TranscriptMessage::assistant("first answer"),
        ];
        history
            .append_turn(TranscriptTurn::new(&[], &rows, &meta))
            .unwrap();
        let rows = history.messages().unwrap();
        let kept = [TranscriptMessage::system("summary"), rows[1].clone()];
        let turn = TranscriptTurn::new(&rows, &kept, &meta).with_compaction(&metadata);
        history.append_turn(turn).unwrap();
        let live = history.messages().unwrap();
        let (second, history) = locator.begin_generation(&session, meta.clone()).unwrap();
        history.replace(&live).unwrap();
        history
            .append(TranscriptMessage::user("second question"))
            .unwrap();
        let child = SessionRef::child_of(&second, "worker");
        write_session(&store, &child, "done", TurnUsage::default());
    }
    let shown = desk.text(&["show", "talk"]);
    assert!(shown.contains("1 session below it"), "{shown}");
    assert!(shown.contains("{\"trigger\":\"manual\"}"), "{shown}");
    assert!(shown.contains("generation 1 begins with"), "{shown}");
    assert!(shown.contains("\nuser 20"), "rows have times: {shown}");
    assert!(shown.lines().all(|line| !line.ends_with(' ')), "{shown}");
    let last = desk.text(&["show", "talk", "--limit", "1"]);
    assert!(
        last.contains("before these") && !last.contains("first question"),
        "{last}"
    );
    // Programs get records only, of which people may ask for the UUIDs.
    let records = desk.json(&["show", "talk", "--json"]);
    assert!(records.iter().all(serde_json::Value::is_object));
    let uuid = records[0]["message"]["uuid"].as_str().unwrap();
    assert!(desk.text(&["show", "talk", "--uuids"]).contains(uuid));
    // Lists say what they leave out, and threads count all of it.
    let sessions = desk.text(&["sessions"]);
    assert!(
        sessions.contains("and 1 session of sub-agents"),
        "{sessions}"
    );
    assert!(
        !desk
            .text(&["sessions", "--children"])
            .contains("of sub-agents below")
    );
    let threads = &desk.json(&["threads", "--json"])[0];
    assert_eq!(threads["subagents"], 1);
    assert_eq!(threads["subagent_messages"], 2);
    assert_eq!(threads["messages"], 4);
}

#[test]
fn an_import_says_what_it_skipped_what_is_empty_and_what_it_told_before() {
    let desk = Desk::new();
    let inbox = desk.path("inbox");
    std::fs::create_dir(&inbox).unwrap();
    let chat = "{\"messages\":[{\"role\":\"user\",\"content\":\"one\"}]}\n[1]\n";
    for (name, text) in [
        ("a.jsonl", chat),
        ("notes.md", "notes"),
        ("empty.jsonl", ""),
    ] {
        std::fs::write(inbox.join(name), text).unwrap();
    }
    let inbox = inbox.to_str().unwrap();
    let told = desk.text(&["import", inbox]);
    assert!(
        told.contains("Skipped 2 files of other formats: empty.jsonl, notes.md"),
        "{told}"
    );
    assert!(
        told.contains("JSON, but no record of this format at byte"),
        "{told}"
    );
    let again = desk.text(&["import", inbox]);
    assert!(again.contains("1 damaged piece, as before"), "{again}");
    let anew = desk.text(&["import", "--again", inbox]);
    assert!(anew.contains("nothing was read anew"), "{anew}");
    let summary = desk.json(&["import", "--json", inbox]).pop().unwrap();
    assert_eq!(summary["skipped"].as_array().unwrap().len(), 2);
    let empty = format!("{inbox}/empty.jsonl");
    refused(&desk.run(&["import", &empty]), 1, &["it is empty"]);
    let named = desk.run(&["import", "--from", "chat", &empty]);
    assert_eq!(status(&named), 1);
    assert!(stderr(&named).contains("it is empty; it is kept as a source"));
    // What belongs to a sub-agent's file is no file of another format.
    let told = desk.text(&["import", sample().to_str().unwrap()]);
    assert!(!told.contains("Skipped"), "{told}");
}
