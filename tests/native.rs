//! What the native format promises: everything out, everything in, and the same bytes again.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod support {
    pub mod picture;
    pub mod script;
    pub mod values;
    pub mod whole;
}

use std::fmt::Write as _;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};
use support::script::{STEPS, World};
use support::values::meta;
use support::whole::{exported, whole};
use transcript_redb::interchange::{self, Codec, FileReport};
use transcript_redb::testkit::{DiskCall, SimDisk};
use transcript_redb::{
    ErrorKind, ExportScope, Result, SessionRef, Store, TranscriptLocator, TranscriptMessage,
    TranscriptMeta, TranscriptTurn, same_transcript_messages, serde_json,
};

fn native() -> &'static dyn Codec {
    interchange::codec("native").unwrap()
}

fn import(store: &Store, bytes: &[u8]) -> Result<FileReport> {
    store.import_from("a file", bytes, native())
}

fn all(store: &Store) -> Vec<u8> {
    exported(store, ExportScope::All).unwrap()
}

/// A store with what every kind of write leaves.
fn scripted() -> World {
    let world = World::over(World::builder().in_memory().unwrap()).unwrap();
    for (name, step) in STEPS {
        step(&world).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    world
}

/// Imports an export into an empty store, and checks that all is the same.
fn check_round_trip(store: &Store) -> Vec<u8> {
    let bytes = all(store);
    let other = Store::in_memory().unwrap();
    import(&other, &bytes).unwrap();
    assert_same(store, &other);
    bytes
}

fn assert_same(store: &Store, other: &Store) {
    let (left, right) = (whole(store).unwrap(), whole(other).unwrap());
    for (left, right) in left.lines().zip(right.lines()) {
        assert_eq!(left, right);
    }
    assert_eq!(left.len(), right.len());
    let (left, right) = (all(store), all(other));
    let [left, right] = [left, right].map(|bytes| String::from_utf8(bytes).unwrap());
    for (left, right) in left.lines().zip(right.lines()) {
        assert_eq!(left, right);
    }
    assert_eq!(left.len(), right.len());
}

/// The file with another last line, which vouches for what is there now.
fn vouched(lines: &[String]) -> Vec<u8> {
    use sha2::Digest as _;
    let mut text = lines.join("\n") + "\n";
    let hash = sha2::Sha256::digest(&text);
    let hash = format!("{hash:x}");
    let end = json!({"type": "end", "lines": lines.len(), "sha256": hash});
    writeln!(text, "{end}").unwrap();
    text.into_bytes()
}

/// The lines of an export without the last one.
fn lines(bytes: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(bytes).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.pop();
    lines
}

/// A session of another tool: turns whose responses have usages, some of them told twice.
fn claude(session: &str, turns: usize) -> String {
    let mut text = String::new();
    for at in 1..=turns {
        let uuid = |at: usize| format!("00000000-0000-4000-8000-{at:012x}");
        let (parent, own) = (uuid(at - 1), uuid(at));
        let message = match at % 2 {
            1 => json!({"role": "user", "content": format!("text {at}")}),
            _ => {
                json!({"role": "assistant", "content": [{"type": "text", "text": format!("text {at}")}],
                "id": format!("msg_{}", at / 4), "model": "m",
                "usage": {"input_tokens": 3, "cache_read_input_tokens": 7, "output_tokens": at}})
            }
        };
        let line = json!({"type": message["role"], "sessionId": session, "uuid": own, "parentUuid": parent,
            "timestamp": format!("2026-08-01T09:00:{:02}.000Z", at % 60), "message": message});
        writeln!(text, "{line}").unwrap();
    }
    text
}

/// A store that imported files of other tools, damaged and grown ones too.
fn imported() -> Store {
    let store = Store::in_memory().unwrap();
    let give = |name: &str, text: &[u8], codec: &str| {
        let codec = interchange::codec(codec).unwrap();
        store.import_from(name, text, codec).unwrap();
    };
    give("s.jsonl", claude("s", 9).as_bytes(), "claude-code");
    give("s.jsonl", claude("s", 20).as_bytes(), "claude-code");
    // A fork: the same calls under another session, one of them larger.
    let fork = claude("s", 21).replace("\"s\"", "\"fork\"");
    give("fork.jsonl", fork.as_bytes(), "claude-code");
    let mut torn = claude("torn", 3).into_bytes();
    torn.extend(b"\n\0\0[1]\n{\"type\":\"us\xff");
    torn.extend(vec![b'x'; 600_000]);
    give("torn.jsonl", &torn, "claude-code");
    // Rewritten in place: two sources of one path.
    give("torn.jsonl", claude("torn", 2).as_bytes(), "claude-code");
    let fixture = include_bytes!("../src/interchange/claude_code/fixture.jsonl");
    give("fixture.jsonl", fixture, "claude-code");
    let fixture = include_bytes!("../src/interchange/codex/fixture.jsonl");
    give("rollout.jsonl", fixture, "codex");
    let chat = concat!(
        r#"{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}"#,
        "\n",
        r#"{"messages":[{"role":"user","content":"c"}]}"#,
        "\n"
    );
    give("chat.jsonl", chat.as_bytes(), "chat");
    give("nothing.jsonl", b"{\"never", "chat");
    store
}

#[test]
fn what_every_kind_of_write_leaves_comes_back_the_same() {
    let world = World::over(World::builder().in_memory().unwrap()).unwrap();
    check_round_trip(&world.store);
    for (name, step) in STEPS {
        step(&world).unwrap_or_else(|error| panic!("{name}: {error}"));
        check_round_trip(&world.store);
    }
    let other = Store::in_memory().unwrap();
    import(&other, &all(&world.store)).unwrap();
    let other = World::over(other).unwrap();
    assert_eq!(other.picture().unwrap(), world.picture().unwrap());
}

#[test]
fn what_was_imported_comes_back_with_its_sources_and_calls() {
    let store = imported();
    let bytes = check_round_trip(&store);
    let kinds: Vec<Value> = lines(&bytes)
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for kind in ["source", "chunk", "repeat", "call"] {
        assert!(kinds.iter().any(|line| line["type"] == kind), "{kind}");
    }
    assert!(kinds.iter().any(|line| line["superseded"] == true));
    assert!(
        lines(&bytes)
            .iter()
            .filter(|line| line.contains("\"chunk\""))
            .all(|line| line.len() <= 64 << 10)
    );
    // What the other store knows of them is enough to import the files again, grown ones too.
    let other = Store::in_memory().unwrap();
    import(&other, &bytes).unwrap();
    let codec = interchange::codec("claude-code").unwrap();
    for (turns, added) in [(20, 0), (24, 4)] {
        for store in [&store, &other] {
            let text = claude("s", turns);
            let report = store.import_from("s.jsonl", text.as_bytes(), codec);
            assert_eq!(report.unwrap().messages, added);
        }
    }
    let spent = |store: &Store| store.spend(transcript_redb::SpendQuery::default()).unwrap();
    assert_eq!(spent(&store), spent(&other));
}

/// Documents of a run, of two that were resumed from it, and of one that was resumed from one of those.
fn runs() -> Vec<String> {
    let message = |role: &str, text: &str| json!({"role": role, "content": text});
    let run = |texts: &[&str], points: &[usize], total: u32| {
        let roles = ["user", "assistant"].iter().cycle();
        let messages = texts
            .iter()
            .zip(roles)
            .map(|(text, role)| message(role, text));
        let resume = points.iter().fold(Value::Null, |previous, point| {
            let mut info = json!({"source": "x", "exit_status": "", "steps": 1, "message": point});
            if !previous.is_null() {
                info["previous"] = previous;
            }
            info
        });
        let mut document = json!({"task": "t", "model": "m", "messages": messages.collect::<Vec<_>>(),
            "steps": 1, "cost": f64::from(total) / 64.0, "input_tokens": 10 * total, "output_tokens": total,
            "cache_read_tokens": 3 * total, "cache_write_tokens": 2 * total, "exit_status": "", "root": "/srv"});
        if !resume.is_null() {
            document["resume"] = resume;
        }
        document.to_string()
    };
    vec![
        run(&["a", "b"], &[], 8),
        run(&["a", "b", "on", "c"], &[2], 13),
        run(&["a", "b", "on", "d"], &[2], 20),
        run(&["a", "b", "on", "c", "on", "e"], &[2, 4], 29),
    ]
}

#[test]
fn all_that_imports_tell_comes_back() {
    let store = imported();
    let give = |name: &str, text: &str, codec: &str| {
        let codec = interchange::codec(codec).unwrap();
        store.import_from(name, text.as_bytes(), codec).unwrap();
    };
    // The run that was resumed comes after those that go on from it.
    for (at, text) in runs().iter().enumerate().rev() {
        give(&format!("{at}.json"), text, "checkpoint");
    }
    let log = include_str!("../src/interchange/record_log/session.jsonl");
    give("log.jsonl", log, "record-log");
    let written = claude("w", 4).replace(
        "\"output_tokens\"",
        "\"cache_creation_input_tokens\":5,\"output_tokens\"",
    );
    let written = written.replace("\"sessionId\"", "\"cwd\":\"/home/u\",\"sessionId\"");
    let written = written.replace("msg_", "w_");
    give("w.jsonl", &written, "claude-code");
    let bytes = check_round_trip(&store);
    let text = String::from_utf8(bytes.clone()).unwrap();
    for key in [
        "origin",
        "attributes",
        "cache_write",
        "original",
        "totals",
        "adds",
    ] {
        assert!(text.contains(&format!("\"{key}\":")), "{key}");
    }
    // And it is enough to go on from: all files tell nothing new, and a later one what it adds.
    let other = Store::in_memory().unwrap();
    import(&other, &bytes).unwrap();
    let codec = interchange::codec("checkpoint").unwrap();
    for (at, text) in runs().iter().enumerate() {
        let name = format!("{at}.json");
        let report = other.import_from(name, text.as_bytes(), codec).unwrap();
        assert_eq!((report.messages, report.output_tokens), (0, 0));
    }
    let more = runs()[3].replace("\"output_tokens\":29", "\"output_tokens\":31");
    for store in [&store, &other] {
        let report = store.import_from("3.json", more.as_bytes(), codec).unwrap();
        assert_eq!((report.output_tokens, report.input_tokens), (2, 0));
    }
    let spent = |store: &Store| store.spend(transcript_redb::SpendQuery::default()).unwrap();
    assert_eq!(spent(&store), spent(&other));
    check_round_trip(&other);
}

#[test]
fn a_host_goes_on_in_an_imported_store() {
    let world = scripted();
    let other = Store::in_memory().unwrap();
    import(&other, &all(&world.store)).unwrap();
    for listed in other.sessions().unwrap() {
        let history = other
            .locator()
            .open_stem(&listed.stem, TranscriptMeta::new(""))
            .unwrap();
        let stored = history.messages().unwrap();
        let next = [stored.clone(), vec![TranscriptMessage::user("on")]].concat();
        // It is compared with the digest that the import made.
        let meta = meta("orchestrator", "one");
        history
            .append_turn(TranscriptTurn::new(&stored, &next, &meta))
            .unwrap();
        assert!(same_transcript_messages(
            &history.messages().unwrap(),
            &next
        ));
    }
    check_round_trip(&other);
}

#[test]
fn parts_of_a_store_are_whole_in_themselves() {
    let world = scripted();
    let stores = [&world.store, &imported()];
    for store in stores {
        for listed in store
            .sessions_matching(&transcript_redb::SessionQuery {
                children: true,
                ..Default::default()
            })
            .unwrap()
        {
            let part = exported(store, ExportScope::Sessions(&[&listed.stem])).unwrap();
            let other = Store::in_memory().unwrap();
            import(&other, &part).unwrap();
            assert_eq!(all(&other), part, "{}", listed.stem);
            for record in store.records_of_stem(&listed.stem).unwrap() {
                let record = record.unwrap();
                assert_eq!(other.record(record.uuid).unwrap(), Some(record));
            }
        }
    }
    let thread = exported(&world.store, ExportScope::Thread("one")).unwrap();
    let other = Store::in_memory().unwrap();
    import(&other, &thread).unwrap();
    assert_eq!(all(&other), thread);
    let spent = |store: &Store| store.locator().thread_spend("one").unwrap();
    assert_eq!(spent(&other), spent(&world.store));
    assert!(other.sessions().unwrap().len() < world.store.sessions().unwrap().len());
    let unwritten = exported(&other, ExportScope::Sessions(&["nobody"]));
    assert_eq!(unwritten.unwrap_err().kind(), ErrorKind::NotWritten);
}

#[test]
fn the_parts_together_are_the_store() {
    let store = imported();
    let other = Store::in_memory().unwrap();
    for listed in store.sessions().unwrap() {
        let part = exported(&store, ExportScope::Sessions(&[&listed.stem])).unwrap();
        import(&other, &part).unwrap();
        import(&other, &part).unwrap();
    }
    let spent = |store: &Store| store.spend(transcript_redb::SpendQuery::default()).unwrap();
    assert_eq!(spent(&store), spent(&other));
    assert_eq!(
        store.stats().unwrap().records,
        other.stats().unwrap().records
    );
}

#[test]
fn a_second_import_adds_nothing() {
    for store in [&scripted().store, &imported()] {
        let bytes = all(store);
        let other = Store::in_memory().unwrap();
        let first = import(&other, &bytes).unwrap();
        assert!(first.messages > 0 && first.input_tokens > 0 && first.compactions > 0);
        let again = import(&other, &bytes).unwrap();
        assert_eq!(
            (again.messages, again.compactions, again.input_tokens),
            (0, 0, 0)
        );
        assert!(again.duplicates > 0);
        assert_same(store, &other);
        // Into the store that it is of, too, and after that has gone on.
        import(store, &bytes).unwrap();
        assert_same(store, &other);
    }
    let world = scripted();
    let bytes = all(&world.store);
    let session = SessionRef::root("new");
    let history = world
        .store
        .locator()
        .open_session(&session, meta("clerk", "two"));
    history
        .unwrap()
        .append(TranscriptMessage::user("mine"))
        .unwrap();
    let before = all(&world.store);
    import(&world.store, &bytes).unwrap();
    assert_eq!(all(&world.store), before);
}

#[test]
fn a_session_that_is_another_one_is_a_conflict() {
    let world = scripted();
    let bytes = all(&world.store);
    let other = Store::in_memory().unwrap();
    let session = SessionRef::root("other");
    let history = other.locator().open_session(&session, meta("clerk", "two"));
    history
        .unwrap()
        .append(TranscriptMessage::user("mine"))
        .unwrap();
    let before = whole(&other).unwrap();
    assert_eq!(
        import(&other, &bytes).unwrap_err().kind(),
        ErrorKind::Conflict
    );
    assert_eq!(whole(&other).unwrap(), before);
}

#[test]
fn an_export_is_of_one_moment_while_writers_go_on() {
    let store = Store::in_memory().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..3 {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                let meta = meta("clerk", "one");
                let session = SessionRef::root(format!("session {writer}"));
                let history = store
                    .locator()
                    .open_session(&session, meta.clone())
                    .unwrap();
                let mut turn = 0;
                while !stop.load(Ordering::Relaxed) && turn < 400 {
                    let prev = history.messages().unwrap();
                    let new = [
                        TranscriptMessage::user(format!("question {turn}")),
                        TranscriptMessage::assistant(format!("answer {turn}")),
                    ];
                    // Every tenth turn leaves a compaction.
                    let kept = if turn % 10 == 9 {
                        &prev[prev.len() - 2..]
                    } else {
                        &prev[..]
                    };
                    let next = [kept, &new].concat();
                    history
                        .append_turn(TranscriptTurn::new(&prev, &next, &meta))
                        .unwrap();
                    turn += 1;
                }
            });
        }
        while store.stats().unwrap().records < 30 {
            thread::yield_now();
        }
        for _ in 0..5 {
            let bytes = all(&store);
            let other = Store::in_memory().unwrap();
            // Its contexts have the rows that its heads say, or it would be refused.
            import(&other, &bytes).unwrap();
            assert_eq!(all(&other), bytes);
            for listed in other.sessions().unwrap() {
                assert_eq!(listed.messages % 2, 0, "turns are whole");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_newer_version_is_refused_and_unknown_keys_survive() {
    let world = scripted();
    let mut file = lines(&all(&world.store));
    file[0] = r#"{"format":"transcript-redb","version":2}"#.to_owned();
    let store = Store::in_memory().unwrap();
    let refused = import(&store, &vouched(&file)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NewerFormat);

    let file = lines(&all(&imported()));
    let mut file: Vec<String> = file
        .into_iter()
        .map(|line| {
            if line.contains("\"type\":\"chunk\"") {
                return line;
            }
            let end = line.len() - 1;
            format!("{},\"x_later\":{{\"a\":[1.5,null]}}}}", &line[..end])
        })
        .collect();
    file.push(r#"{"type":"x_fact","of":1}"#.to_owned());
    file.push(r#"{"type":"x_fact","of":2}"#.to_owned());
    let store = Store::in_memory().unwrap();
    import(&store, &vouched(&file)).unwrap();
    let expected: Vec<Value> = file
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for _ in 0..2 {
        let found: Vec<Value> = lines(&all(&store))
            .iter()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        for (expected, found) in expected.iter().zip(&found) {
            assert_eq!(expected, found);
        }
        assert_eq!(expected.len(), found.len());
        import(&store, &vouched(&file)).unwrap();
    }
}

#[test]
fn of_a_file_that_vouches_for_nonsense_a_store_like_every_other_is_made() {
    let bytes = all(&imported());
    let file = lines(&bytes);
    let scripted = lines(&all(&scripted().store));
    for (file, step) in [(&file, 7), (&scripted, 2)] {
        for at in (0..file.len()).step_by(step) {
            // Without a line, with one twice, and with two exchanged.
            let mut without = file.clone();
            without.remove(at);
            let mut twice = file.clone();
            twice.insert(at, file[at].clone());
            let mut exchanged = file.clone();
            exchanged.swap(at, file.len() - 1 - at);
            // With a number that is another one.
            let mut other = file.clone();
            other[at] = file[at].replacen("\"seq\":", "\"seq\":9223372036854775807,\"x\":", 1);
            for changed in [without, twice, exchanged, other] {
                let store = Store::in_memory().unwrap();
                if import(&store, &vouched(&changed)).is_ok() {
                    // What is accepted is a store like every other.
                    check_round_trip(&store);
                } else {
                    assert!(store.sessions().unwrap().is_empty());
                    assert!(store.sources().unwrap().is_empty());
                }
            }
        }
    }
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let store = Store::in_memory().unwrap();
    let report = import(&store, &vouched(&[file[0].clone(), deep])).unwrap();
    assert_eq!(report.bad, 1);
}

/// Gives its bytes, then fails.
struct Broken<'b>(&'b [u8]);

impl Read for Broken<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::Error::other("the disk is gone")),
            read => Ok(read),
        }
    }
}

/// Several steps of an import.
fn large() -> Vec<u8> {
    let store = imported();
    let meta = meta("clerk", "two");
    for session in 0..3 {
        let session = SessionRef::root(format!("large {session}"));
        let history = store
            .locator()
            .open_session(&session, meta.clone())
            .unwrap();
        let rows: Vec<_> = (0..300)
            .map(|at| TranscriptMessage::user(format!("{at}: {}", "long ".repeat(800))))
            .collect();
        history
            .append_turn(TranscriptTurn::new(&[], &rows, &meta))
            .unwrap();
    }
    all(&store)
}

#[test]
fn an_import_that_ends_early_leaves_nothing() {
    let bytes = large();
    let store = Store::in_memory().unwrap();
    let refused = store.import_from("a file", Broken(&bytes), native());
    // The last line is there; what it cannot read may stand behind it.
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Io);
    assert!(store.sessions().unwrap().is_empty());
    assert_eq!(store.stats().unwrap().records, 0);
    import(&store, &bytes).unwrap();
    assert_eq!(all(&store), bytes);
}

#[test]
fn a_power_cut_in_the_middle_leaves_all_or_nothing() {
    let bytes = large();
    let disk = SimDisk::new();
    let store = disk.open(World::builder()).unwrap();
    disk.record();
    import(&store, &bytes).unwrap();
    let acknowledged = disk.events();
    let mut seen = [0; 2];
    let syncs = disk.syncs();
    // About twenty moments, the last ones among them: it is there that all of it is published.
    let first = syncs.len().saturating_sub(6);
    let syncs = syncs.iter().copied().enumerate();
    let syncs: Vec<usize> = syncs
        .filter(|(at, _)| *at >= first || at % 8 == 0)
        .map(|(_, event)| event)
        .collect();
    for events in syncs
        .into_iter()
        .flat_map(|at| [at, at + 1])
        .chain([acknowledged])
    {
        let image = disk.power_cut(events.min(disk.events()), events as u64);
        let store = image.open(World::builder()).unwrap();
        let there = !store.sessions().unwrap().is_empty();
        seen[usize::from(there)] += 1;
        if there {
            assert_eq!(all(&store), bytes, "after {events} events");
        } else {
            assert!(events < acknowledged);
            assert!(store.sources().unwrap().is_empty());
            import(&store, &bytes).unwrap();
            assert_eq!(all(&store), bytes, "after {events} events");
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

#[test]
fn a_disk_that_fails_in_the_middle_leaves_all_or_nothing() {
    let bytes = large();
    for nth in (1..40).step_by(3) {
        let disk = SimDisk::new();
        let store = disk.open(World::builder()).unwrap();
        disk.fail_once(DiskCall::Sync, nth);
        let done = import(&store, &bytes);
        disk.heal();
        if done.is_ok() && disk.failures() == 0 {
            break;
        }
        drop(store);
        let store = World::open(&disk).unwrap().store;
        let there = !store.sessions().unwrap().is_empty();
        assert!(there || done.is_err(), "what was acknowledged is there");
        import(&store, &bytes).unwrap();
        assert_eq!(all(&store), bytes, "the sync {nth} failed");
    }
}
