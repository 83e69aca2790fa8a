//! The example host, run as a person would run it: on its own sample, on real files, and on files with mistakes.
#![allow(clippy::expect_used, reason = "a test stops where it cannot go on")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

/// The example's program. `cargo test` builds it; where only this test was built it is built here.
fn agent_host() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let profile = test
        .ancestors()
        .nth(2)
        .expect("target/<profile>/deps/<test>");
    let program = profile
        .join("examples")
        .join(format!("agent_host{}", std::env::consts::EXE_SUFFIX));
    if !is_current(&program) {
        let target = profile.parent().expect("target/<profile>");
        let name = profile.file_name().expect("a profile").to_string_lossy();
        let status = Command::new(env!("CARGO"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["build", "--quiet", "--example", "agent_host"])
            .args(["--profile", if name == "debug" { "dev" } else { &name }])
            .arg("--target-dir")
            .arg(target)
            .status()
            .expect("cargo starts");
        assert!(status.success(), "the example does not build: {status}");
    }
    program
}

/// Whether the program is newer than every source that cargo says it was made of.
fn is_current(program: &Path) -> bool {
    let changed = |path: &Path| -> Option<SystemTime> { path.metadata().ok()?.modified().ok() };
    let Some(built) = changed(program) else {
        return false;
    };
    let sources = fs::read_to_string(program.with_extension("d")).unwrap_or_default();
    let mut sources = sources
        .split_whitespace()
        .filter(|word| !word.ends_with(':'))
        .peekable();
    sources.peek().is_some()
        && sources.all(|source| changed(Path::new(source)).is_some_and(|changed| changed <= built))
}

fn run(arguments: &[&str]) -> Output {
    Command::new(agent_host())
        .args(arguments)
        .output()
        .expect("the example starts")
}

/// The standard output of a run that must succeed with all proofs.
fn succeed(arguments: &[&str]) -> String {
    let output = run(arguments);
    let text = String::from_utf8(output.stdout).expect("readable output");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{text}\n{errors}",
        output.status
    );
    assert_eq!(text.matches("\n  ok  ").count(), 6, "{text}");
    assert!(!text.contains("FAILED"), "{text}");
    text
}

/// The number that stands before `word`, or after it.
fn number(text: &str, word: &str) -> usize {
    let (before, after) = text
        .split_once(word)
        .unwrap_or_else(|| panic!("no {word:?} in\n{text}"));
    let digits = |text: &str| -> Option<usize> {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    let last = before.rsplit(|c: char| !c.is_ascii_digit()).next();
    digits(after)
        .or_else(|| digits(last.unwrap_or_default()))
        .unwrap_or_else(|| panic!("no number by {word:?} in\n{text}"))
}

#[test]
fn the_bundled_sample_survives_the_kill_with_everything_that_a_host_does() {
    let text = succeed(&[]);
    assert_eq!(number(&text, " messages in"), 206, "{text}");
    for event in [
        "compactions ",
        "new generations ",
        "sub-agents ",
        "background reports ",
        "interrupted texts ",
    ] {
        assert!(number(&text, event) > 0, "no {event}in\n{text}");
    }
    for price in ["charged", "estimated", "unknown"] {
        assert!(text.contains(price), "no {price} model in\n{text}");
    }
    // The kill came half-way: turns were acknowledged before it, and turns were left to do.
    let turns = number(&text, " turns, seed");
    let before = number(&text, "before the kill    ");
    let after = number(&text, "after the restart  ");
    assert!(before > 0 && after > 0, "{text}");
    let landed = number(&text, " more in flight");
    assert_eq!(before + landed + after, turns, "{text}");
}

#[test]
fn many_sessions_and_another_seed_move_the_kill_and_still_lose_nothing() {
    let text = succeed(&["--sessions", "24", "--seed", "7"]);
    assert!(text.contains("24 sessions, 24 at a time"), "{text}");
}

#[test]
fn fewer_threads_than_conversations_still_play_all_of_them() {
    let text = succeed(&["--sessions", "2", "--seed", "3"]);
    assert!(text.contains("8 sessions, 2 at a time"), "{text}");
}

#[test]
fn real_trajectories_and_chats_are_read_whole_and_survive_the_kill() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    if !corpus.is_dir() {
        println!("skipped: there is no corpus of real transcripts beside the project");
        return;
    }
    let mut files: Vec<String> = ["trajectory", "chat"]
        .iter()
        .flat_map(|folder| fs::read_dir(corpus.join(folder)).expect("a folder of the corpus"))
        .map(|entry| entry.expect("an entry").path().display().to_string())
        .collect();
    files.sort();
    let arguments: Vec<&str> = files.iter().map(String::as_str).collect();
    let text = succeed(&arguments);
    assert!(
        text.contains("162 messages in 12 conversations from 8 files"),
        "{text}"
    );
}

#[test]
fn a_named_store_is_kept_and_one_that_is_already_there_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = folder.path().join("kept.redb");
    let path = db.to_str().expect("a readable path");
    succeed(&["--db", path]);
    let kept = fs::read(&db).expect("the store is kept");
    assert!(!kept.is_empty());

    let again = run(&["--db", path]);
    assert_eq!(again.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&again.stderr);
    assert!(errors.contains("exists and is not empty"), "{errors}");
    assert_eq!(fs::read(&db).expect("still there"), kept);
}

#[test]
fn a_mistake_is_reported_with_file_and_line_and_never_with_what_stands_there() {
    let good = r#"{"messages":[{"role":"user","content":"secret"}]}"#;
    let message = r#"{"role":"user","content":"secret"}"#;
    let cases: [(&str, String, &str); 20] = [
        ("a.jsonl", format!("{good}\n\n{{\"messages\": secret}}\n"), "line 3: not valid JSON"),
        ("b.jsonl", format!("{good}\n{{\"secret\":[]}}\n"), "line 2: neither a message with a `role`, nor an array of messages"),
        ("c.jsonl", format!("{good}\n{{\"messages\":[{{\"content\":\"secret\"}}]}}\n"), "line 2: message 1 has no `role`"),
        ("d.json", "{\n \"info\": \"[{secret\",\n \"history\": [\n  {\"role\":\"user\",\"content\":\"secret\"},\n\n  {\"role\":\"user\",\"content\":7}\n ]\n}\n".into(), "line 6: message 2 has a `content` that is neither text nor an array of blocks"),
        ("e.json", "\n[\n {\"role\":\"user\",\"content\":\"se\\\"cret, [\"},\n {\"role\":\"assistant\",\"content\":null,\n  \"tool_calls\":[{\"id\":\"secret\"}]}\n]\n".into(), "line 4: message 2 has a tool call without a name"),
        ("f.json", "{\n \"messages\": {\"secret\": 1}\n}\n".into(), "line 1: its messages are not an array"),
        ("g.json", "{\n \"messages\": [\n  \"secret\" 7\n".into(), "line 3: not valid JSON"),
        ("h.json", "\n \n".into(), "holds no conversation"),
        ("i.json", "[]".into(), "line 1: the conversation is empty"),
        ("j.json", "{\"messages\":[{\"role\":\"user\",\"content\":\"secr\n".into(), "line 1: the file ends in the middle"),
        ("k.json", "{\n \"messages\": [\n  {\"role\":\"secret\"\n".into(), "line 3: the file ends in the middle"),
        ("l.json", "{\n \"history\": [\n  \"secret\n ]\n}\n".into(), "line 3: not valid JSON (at the end of the line)"),
        ("m.jsonl", format!("{message}\nsecret\n{message}\n"), "line 2: not valid JSON (column 1)"),
        ("n.jsonl", format!("{message}\n{{\"role\":\n{message}\n"), "line 2: not valid JSON (the line ends in the middle)"),
        ("o.jsonl", format!("{message}\n{message}\n{{\"role\":\"secr\n"), "line 3: the file ends in the middle"),
        ("p.jsonl", format!("{message}\n{good}\n"), "line 2: not a message with a `role`"),
        ("q.jsonl", format!("{good}\n{message}\n"), "line 2: a message, where the lines before it are none"),
        ("r.jsonl", format!("{message}\n\n{{\"role\":\"user\",\"content\":7}}\n"), "line 3: message 2 has a `content`"),
        ("s.json", "\n{\"role\":7}".into(), "line 2: message 1 has a `role` that is not a word"),
        ("t.json", "\"secret\"".into(), "line 1: neither a message with a `role`"),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text, expected) in cases {
        let file = folder.path().join(name);
        fs::write(&file, text).expect("a written file");
        let output = run(&[file.to_str().expect("a readable path")]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {errors}");
        assert!(errors.contains(name), "{errors}");
        assert!(errors.contains(expected), "{errors}");
        assert!(!errors.contains("secret"), "{errors}");
        assert!(output.stdout.is_empty(), "{name}");
    }
}

#[test]
fn a_file_of_messages_is_one_conversation() {
    let folder = tempfile::tempdir().expect("a folder");
    let play = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).expect("a written file");
        succeed(&["--sessions", "1", file.to_str().expect("a readable path")])
    };
    let user = r#"{"role":"user","content":"hello"}"#;
    let answer = r#"{"role":"assistant","content":"good day"}"#;
    let text = play("two.jsonl", &format!("{user}\n\n{answer}\n"));
    assert!(
        text.contains("read     2 messages in 1 conversation from 1 file\n"),
        "{text}"
    );

    // All was done before the kill, so that there is nothing to take a rate of.
    let text = play("one.json", user);
    for said in [
        "read     1 message in 1 conversation from 1 file\n",
        "plan     1 session, 1 at a time, 1 turn, seed 1\n",
        "before the kill    1 turn and ",
        "1 of 1 acknowledged turn there",
    ] {
        assert!(text.contains(said), "no {said:?} in\n{text}");
    }
    let line = text
        .lines()
        .find(|line| line.starts_with("after the restart  0 turns and "))
        .unwrap_or_else(|| panic!("{text}"));
    assert!(!line.contains("a second"), "{line}");
}

#[test]
fn a_store_in_a_folder_that_is_not_there_is_refused_with_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("no such");
    let db = missing.join("x.redb");
    let output = run(&["--db", db.to_str().expect("a readable path")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let errors = String::from_utf8_lossy(&output.stderr);
    let said = format!("there is no folder {}\n", missing.display());
    assert!(errors.ends_with(&said), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

/// The link looks like a path that is free, so that only the child that opens it finds out.
#[cfg(target_os = "linux")]
#[test]
fn what_a_child_has_said_is_not_said_again() {
    use std::os::unix::fs::symlink;

    let folder = tempfile::tempdir().expect("a folder");
    let db = folder.path().join("x.redb");
    symlink(folder.path().join("no such/y.redb"), &db).expect("a link to nowhere");
    let output = run(&["--db", db.to_str().expect("a readable path")]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.starts_with("agent_host: "), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn a_closed_output_ends_the_run_without_a_word() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    for arguments in [&["--sessions", "1"][..], &["--help"]] {
        let output = Command::new(agent_host())
            .args(arguments)
            .stdout(writer.try_clone().expect("the pipe again"))
            .output()
            .expect("the example starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.is_empty(), "{errors}");
    }
}

#[test]
fn a_number_that_cannot_be_is_refused_with_its_option_and_what_it_takes() {
    for (option, value, takes) in [
        ("--seed", "abc", "--seed takes a whole number from 0 to "),
        ("--seed", "-1", "--seed takes a whole number from 0 to "),
        (
            "--sessions",
            "0",
            "--sessions takes a whole number from 1 up",
        ),
    ] {
        let output = run(&[option, value]);
        assert_eq!(output.status.code(), Some(2));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(takes), "{errors}");
    }
}

#[test]
fn text_that_is_not_utf8_is_a_mistake_with_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("latin.jsonl");
    fs::write(&file, b"{\"messages\":[]}\n\xe9\n").expect("a written file");
    let output = run(&[file.to_str().expect("a readable path")]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("latin.jsonl, line 2: not UTF-8 text"),
        "{errors}"
    );
}

#[test]
fn an_unknown_option_is_a_usage_error_and_help_is_none() {
    let output = run(&["--speed", "9"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("usage:"));
    let output = run(&["--help"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("--sessions N"));
}
