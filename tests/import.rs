//! What importing promises: whole or not at all, each thing once, the same totals in any order, the same bytes back.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::PathBuf;

use transcript_redb::interchange::{self, Codec, FileReport};
use transcript_redb::{
    DisplayRecord, ErrorKind, SessionQuery, SessionRef, SpendGroup, SpendQuery, SpendRow, Store,
    TranscriptLocator, TranscriptMessage, TranscriptMeta, TranscriptTurn,
};

fn claude() -> &'static dyn Codec {
    interchange::codec("claude-code").expect("there is one")
}

/// A line of a session: a prompt or a response with usage.
fn line(session: &str, at: usize, parent: usize, output: u64) -> String {
    let uuid = |at: usize| format!("00000000-0000-4000-8000-{at:012x}");
    let (kind, more) = match at % 2 {
        1 => ("user", String::new()),
        _ => (
            "assistant",
            format!(
                r#","id":"msg_{}","model":"m","usage":{{"input_tokens":3,"cache_read_input_tokens":7,"cache_creation_input_tokens":{},"output_tokens":{output}}}"#,
                at / 4,
                2 * output
            ),
        ),
    };
    format!(
        r#"{{"type":"{kind}","sessionId":"{session}","uuid":"{}","parentUuid":"{}","timestamp":"2026-08-01T09:00:{:02}.000Z","message":{{"role":"{kind}","content":"text {at}"{more}}}}}"#,
        uuid(at),
        uuid(parent),
        at % 60
    ) + "\n"
}

fn lines(session: &str, count: usize) -> String {
    (1..=count)
        .map(|at| line(session, at, at - 1, at as u64))
        .collect()
}

fn import(store: &Store, name: &str, text: &[u8]) -> FileReport {
    store
        .import_from(name, text, claude())
        .expect("it can be imported")
}

fn texts(store: &Store, session: &SessionRef) -> Vec<String> {
    let read = store.locator().read_session_transcript(session);
    let read = read.expect("it reads").expect("it is there");
    let transcript = read.read_session().expect("it reads");
    let messages = transcript.expect("it is written").messages;
    messages.into_iter().map(|row| row.content).collect()
}

/// All that a store shows of spend.
fn spend(store: &Store) -> String {
    format!("{:?}", store.spend(SpendQuery::default()).expect("it sums"))
}

#[test]
fn a_second_import_adds_nothing_and_a_grown_file_its_new_lines() {
    let store = Store::in_memory().unwrap();
    let session = SessionRef::root("s");
    let first = import(&store, "s.jsonl", lines("s", 8).as_bytes());
    assert_eq!(
        (first.messages, first.duplicates, first.sessions),
        (8, 0, 1)
    );
    let totals = spend(&store);
    let again = import(&store, "s.jsonl", lines("s", 8).as_bytes());
    assert_eq!(
        (
            again.messages,
            again.input_tokens,
            again.output_tokens,
            again.distinct_message_ids
        ),
        (0, 0, 0, 0)
    );
    assert_eq!(again.lines, 8);
    assert_eq!(spend(&store), totals);
    assert_eq!(store.sources().unwrap().len(), 1);

    let grown = import(&store, "s.jsonl", lines("s", 12).as_bytes());
    assert_eq!((grown.messages, grown.duplicates > 0), (4, true));
    let shown: Vec<String> = (1..=12).map(|at| format!("text {at}")).collect();
    assert_eq!(texts(&store, &session), shown);
    assert_eq!(store.sources().unwrap().len(), 1, "it is the same file");

    let whole = Store::in_memory().unwrap();
    import(&whole, "s.jsonl", lines("s", 12).as_bytes());
    assert_eq!(spend(&store), spend(&whole));
}

#[test]
fn a_source_is_given_back_byte_for_byte() {
    let store = Store::in_memory().unwrap();
    let mut text = b"\xef\xbb\xbf".to_vec();
    text.extend(lines("s", 3).replace('\n', "\r\n").into_bytes());
    text.extend(b"\n\0\0\0\n[1]\n{\"type\":\"us\xff\n{\"a\":1,\"a\":1e400}\n");
    text.extend(vec![b'x'; 700_000]);
    text.extend(b"\n{\"type\":\"user\",\"sess");
    for version in [&text[..400_000], &text[..]] {
        let report = import(&store, "s.jsonl", version);
        assert!(!report.quarantined.is_empty());
        let sources = store.sources_of(&SessionRef::root("s")).unwrap();
        assert_eq!(sources.len(), 1);
        let mut out = Vec::new();
        let written = store.export_original(sources[0].id, &mut out).unwrap();
        assert_eq!(written, Some(version.len() as u64));
        assert!(out == version);
    }
    // Rewritten in place: both are kept.
    import(&store, "s.jsonl", lines("s", 2).as_bytes());
    assert_eq!(store.sources().unwrap().len(), 2);
    // Nothing but damage is a source, too.
    let report = import(&store, "broken.jsonl", b"{\"never");
    assert!(report.is_barren());
    assert_eq!(store.sources().unwrap().len(), 3);
    assert_eq!(store.sessions().unwrap().len(), 1);
}

#[test]
fn records_take_over_their_uuids_where_these_are_free() {
    let store = Store::in_memory().unwrap();
    let uuid = "00000000-0000-4000-8000-000000000001".parse().unwrap();
    import(&store, "s.jsonl", lines("s", 1).as_bytes());
    assert_eq!(store.record(uuid).unwrap().unwrap().uuid, uuid);
    // A fork copies the lines, with the name of its own session.
    let fork = import(&store, "f.jsonl", lines("f", 1).as_bytes());
    assert_eq!(fork.messages, 1);
    assert_eq!(
        store.record(uuid).unwrap().unwrap().stem,
        SessionRef::root("s").session_id()
    );
}

#[test]
fn files_in_any_order_give_the_same_totals() {
    // A session, a fork that copies its beginning and tells of larger outputs, and one that grew between the two.
    let files = [
        ("a.jsonl", lines("a", 9)),
        (
            "b.jsonl",
            (1..=14)
                .map(|at| line("b", at, at - 1, 3 * at as u64))
                .collect(),
        ),
        (
            "c.jsonl",
            (1..=6)
                .map(|at| line("c", at, at - 1, 20 - at as u64))
                .collect::<String>(),
        ),
        ("a.jsonl", lines("a", 12)),
    ];
    // Counted by hand: each message once, with the largest output that any line tells of it.
    let mut largest = [0; 4];
    for (at, output) in (2..=12)
        .map(|at| (at, at))
        .chain((2..=14).map(|at| (at, 3 * at)))
    {
        if at % 2 == 0 {
            largest[at / 4] = largest[at / 4].max(output as u64);
        }
    }
    for at in [2, 4, 6] {
        largest[at / 4] = largest[at / 4].max(20 - at as u64);
    }
    let output: u64 = largest.iter().sum();
    let recount = (4 * 10 + 2 * output, output, 4 * 7, 2 * output);
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
        let store = Store::in_memory().unwrap();
        for at in order {
            let (name, text) = &files[at];
            import(&store, name, text.as_bytes());
        }
        // By transcript and by hour.
        for group_by in [vec![], vec![SpendGroup::Hour, SpendGroup::Session]] {
            let rows = store.spend(SpendQuery {
                group_by,
                ..SpendQuery::default()
            });
            let sum = rows.unwrap().iter().fold((0, 0, 0, 0), |sum, row| {
                (
                    sum.0 + row.input_tokens,
                    sum.1 + row.output_tokens,
                    sum.2 + row.cached_input_tokens,
                    sum.3 + row.cache_write_tokens,
                )
            });
            assert_eq!(sum, recount, "{order:?}");
        }
        // What threads are told is what the displays show.
        for thread in ["a", "b", "c"] {
            let locator = store.locator();
            let told = locator.thread_spend(thread).unwrap();
            let walked = transcript_redb::spend::thread_spend_in(&locator, thread).unwrap();
            assert_eq!(told.root.input_tokens, walked.root.input_tokens);
            assert_eq!(told.root.output_tokens, walked.root.output_tokens);
            assert_eq!(told.root.turns, walked.root.turns);
        }
    }
}

#[test]
fn a_session_of_a_host_is_not_imported_into() {
    let store = Store::in_memory().unwrap();
    let session = SessionRef::root("s");
    let meta = TranscriptMeta::new("host");
    let history = store
        .locator()
        .open_session(&session, meta.clone())
        .unwrap();
    let rows = [TranscriptMessage::user("mine")];
    history
        .append_turn(TranscriptTurn::new(&[], &rows, &meta))
        .unwrap();
    let text = lines("t", 3) + &lines("s", 2);
    let refused = store
        .import_from("s.jsonl", text.as_bytes(), claude())
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert_eq!(texts(&store, &session), ["mine"]);
    assert_eq!(
        store.sessions().unwrap().len(),
        1,
        "nothing of the file is there"
    );
    assert!(store.sources().unwrap().is_empty());
}

#[test]
fn a_host_goes_on_in_an_imported_session_and_the_file_too() {
    let store = Store::in_memory().unwrap();
    let session = SessionRef::root("s");
    import(&store, "s.jsonl", lines("s", 2).as_bytes());
    let history = store
        .locator()
        .open_session(&session, TranscriptMeta::new("host"))
        .unwrap();
    history.append(TranscriptMessage::user("mine")).unwrap();
    import(&store, "s.jsonl", lines("s", 4).as_bytes());
    assert_eq!(
        texts(&store, &session),
        ["text 1", "text 2", "mine", "text 3", "text 4"]
    );
    let stored = history.messages().unwrap();
    let mut next = stored.clone();
    next.push(TranscriptMessage::assistant("again"));
    let meta = TranscriptMeta::new("host");
    history
        .append_turn(TranscriptTurn::new(&stored, &next, &meta))
        .unwrap();
}

#[test]
fn a_compaction_of_the_file_is_one_of_the_session() {
    let store = Store::in_memory().unwrap();
    let boundary = r#"{"type":"system","subtype":"compact_boundary","sessionId":"s","uuid":"b","parentUuid":null,"compactMetadata":{"trigger":"auto","preservedMessages":["00000000-0000-4000-8000-000000000002"]}}"#;
    let summary = r#"{"type":"user","sessionId":"s","uuid":"u","parentUuid":"b","isCompactSummary":true,"message":{"role":"user","content":"summary"}}"#;
    let text = format!(
        "{}{boundary}\n{summary}\n{}",
        lines("s", 4),
        line("s", 5, 4, 1)
    );
    let report = import(&store, "s.jsonl", text.as_bytes());
    assert_eq!((report.compactions, report.messages), (1, 6));
    let session = SessionRef::root("s");
    assert_eq!(texts(&store, &session), ["summary", "text 2", "text 5"]);
    let read = store
        .locator()
        .read_session_transcript(&session)
        .unwrap()
        .unwrap();
    let shown = read.read_display().unwrap().unwrap().records;
    let marker = shown.iter().find_map(|record| match record {
        DisplayRecord::Compaction(marker) => Some(marker),
        DisplayRecord::Message(_) => None,
    });
    assert_eq!(
        marker.unwrap().metadata.as_ref().unwrap()["trigger"],
        "auto"
    );
    assert_eq!(marker.unwrap().replacement.len(), 2);
    assert_eq!(import(&store, "s.jsonl", text.as_bytes()).compactions, 0);
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

#[test]
fn an_import_that_fails_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = Store::open(&path).unwrap();
    // Enough for several steps.
    let text = lines("s", 12_000);
    let refused = store.import_from("s.jsonl", Broken(text.as_bytes()), claude());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Io);
    assert!(store.sessions().unwrap().is_empty());
    assert!(store.sources().unwrap().is_empty());
    let uuid = "00000000-0000-4000-8000-000000000001".parse().unwrap();
    assert!(store.record(uuid).unwrap().is_none());
    let report = import(&store, "s.jsonl", text.as_bytes());
    assert_eq!((report.messages, report.duplicates), (12_000, 0));
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_eq!(texts(&store, &SessionRef::root("s")).len(), 12_000);
}

/// Every record tells where in the file it stands: within it, and codecs begin at the beginnings of records.
fn check_origins(store: &Store, bytes: &[u8]) {
    for session in store
        .sessions_matching(&SessionQuery {
            children: true,
            ..SessionQuery::default()
        })
        .unwrap()
    {
        for record in store.records_of_stem(&session.stem).unwrap() {
            let record = record.unwrap();
            let origin = record.origin.expect("it was imported");
            assert!(store.source(origin.source).unwrap().is_some());
            let (from, to) = (origin.offset, origin.offset + origin.length);
            let piece = &bytes[usize::try_from(from).unwrap()..usize::try_from(to).unwrap()];
            assert!(piece.trim_ascii().starts_with(b"{"), "{record:?}");
        }
    }
}

#[test]
fn every_record_tells_where_it_comes_from_and_what_its_call_told() {
    let store = Store::in_memory().unwrap();
    let session = SessionRef::root("s");
    let text = lines("s", 70);
    import(&store, "s.jsonl", &text.as_bytes()[..3_000]);
    import(&store, "s.jsonl", text.as_bytes());
    check_origins(&store, text.as_bytes());
    let history = store
        .locator()
        .open_session(&session, TranscriptMeta::new("host"))
        .unwrap();
    history.append(TranscriptMessage::user("mine")).unwrap();
    let source = store.sources_of(&session).unwrap().remove(0);
    let (mut rows, mut usages) = (0, 0);
    for record in store.session_records(&session).unwrap() {
        let record = record.unwrap();
        let Some(origin) = record.origin else {
            assert_eq!(record.message.unwrap().message.content, "mine");
            continue;
        };
        assert_eq!((origin.source, origin.codec_version), (source.id, 1));
        let end = usize::try_from(origin.offset + origin.length).unwrap();
        let line = &text[usize::try_from(origin.offset).unwrap()..end];
        if let Some(message) = record.message {
            rows += 1;
            let said = format!("\"{}\"", message.message.content);
            assert!(line.contains(&said) && line.ends_with('}'));
            assert!(line.contains(&record.uuid.to_string()));
        } else {
            usages += 1;
            let usage = record.usage.unwrap().usage;
            let told = record.original_usage.unwrap();
            assert_eq!(told["input_tokens"], 3);
            assert_eq!(told["output_tokens"], usage.output);
            assert_eq!(record.cache_write_tokens, 2 * usage.output);
            assert!(line.contains(&format!("\"output_tokens\":{}", usage.output)));
        }
    }
    assert_eq!((rows, usages > 15), (70, true));
}

#[test]
fn a_session_keeps_what_its_files_tell_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let agents = folder.path().join("s/subagents");
    std::fs::create_dir_all(&agents).unwrap();
    let known = r#""sessionId":"s","cwd":"/home/u/app","gitBranch":"main","version":"2.1""#;
    let text = lines("s", 3).replace(r#""sessionId":"s""#, known);
    let agent = text.replace("\"cwd\"", "\"agentId\":\"a1\",\"isSidechain\":true,\"cwd\"");
    std::fs::write(folder.path().join("s.jsonl"), &text).unwrap();
    std::fs::write(agents.join("agent-a1.jsonl"), agent).unwrap();
    let companion = r#"{"agentType":"reviewer","toolUseId":"toolu_7"}"#;
    std::fs::write(agents.join("agent-a1.meta.json"), companion).unwrap();
    let path = folder.path().join("store");
    let store = Store::open(&path).unwrap();
    for (file, codec) in interchange::files(folder.path(), Some(claude())).unwrap() {
        store.import(file, codec.unwrap()).unwrap();
    }
    drop(store);
    let store = Store::open(&path).unwrap();
    let root = SessionRef::root("s");
    let told = store.attributes(&root).unwrap();
    assert_eq!(told.spawned_by, None);
    assert_eq!(told.more["cwd"], "/home/u/app");
    assert_eq!(told.more["gitBranch"], "main");
    assert_eq!(told.more["version"], "2.1");
    let told = store
        .attributes(&SessionRef::child_of(&root, "a1"))
        .unwrap();
    assert_eq!(told.spawned_by.as_deref(), Some("toolu_7"));
    // A file that has grown may tell more.
    let grown = text.clone()
        + &line("s", 4, 3, 1).replace(r#""sessionId":"s""#, &known.replace("main", "next"));
    import(&store, "s.jsonl", grown.as_bytes());
    assert_eq!(store.attributes(&root).unwrap().more["gitBranch"], "next");
    assert!(
        store
            .attributes(&SessionRef::root("other"))
            .unwrap()
            .is_empty()
    );
}

fn corpus() -> Option<PathBuf> {
    let folder = std::env::var_os("TRANSCRIPT_CORPUS").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus")),
        PathBuf::from,
    );
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!(
        "skipped: there is no corpus of real files in {}",
        folder.display()
    );
    None
}

#[test]
fn real_files_import_as_they_were_inspected_and_come_back() {
    let Some(folder) = corpus() else { return };
    let files = interchange::files(&folder, None).unwrap();
    assert!(files.len() > 20);
    for (path, codec) in files {
        let Some(codec) = codec else { continue };
        let store = Store::in_memory().unwrap();
        let expected = interchange::inspect(&path, codec).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let report = store.import(&path, codec).unwrap();
        let name = path.display();
        assert_eq!(report.messages, expected.messages, "{name}");
        assert_eq!(report.compactions, expected.compactions, "{name}");
        assert_eq!(
            report.distinct_message_ids, expected.distinct_message_ids,
            "{name}"
        );
        assert_eq!(
            (
                report.input_tokens,
                report.output_tokens,
                report.cached_input_tokens
            ),
            (
                expected.input_tokens,
                expected.output_tokens,
                expected.cached_input_tokens
            ),
            "{name}"
        );
        let total = |of: fn(&SpendRow) -> u64| -> u64 {
            let rows = store.spend(SpendQuery::default()).unwrap();
            rows.iter().map(of).sum()
        };
        assert_eq!(total(|row| row.input_tokens), report.input_tokens, "{name}");
        assert_eq!(report.cache_write_tokens, expected.cache_write_tokens);
        assert_eq!(
            total(|row| row.cache_write_tokens),
            report.cache_write_tokens,
            "{name}"
        );
        check_origins(&store, &bytes);
        let sources = store.sources().unwrap();
        let mut out = Vec::new();
        store.export_original(sources[0].id, &mut out).unwrap();
        assert!(out == std::fs::read(&path).unwrap(), "{name}");
        let again = store.import(&path, codec).unwrap();
        assert_eq!(
            (again.messages, again.compactions, again.input_tokens),
            (0, 0, 0),
            "{name}"
        );
        for session in store
            .sessions_matching(&transcript_redb::SessionQuery {
                children: true,
                ..Default::default()
            })
            .unwrap()
        {
            let locator = store.locator();
            let history = locator
                .open_stem(&session.stem, TranscriptMeta::new("x"))
                .unwrap();
            let stored = history.messages().unwrap();
            // The context is what its head says it is.
            let mut next = stored.clone();
            next.push(TranscriptMessage::user("on"));
            history
                .append_turn(TranscriptTurn::new(
                    &stored,
                    &next,
                    &TranscriptMeta::new("x"),
                ))
                .unwrap();
        }
    }
}

#[test]
fn a_file_is_one_source_however_its_path_is_spelled() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("store.redb")).unwrap();
    let codec = interchange::codec("chat").unwrap();
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let path = inner.join("talk.jsonl");
    std::fs::write(
        &path,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n",
    )
    .unwrap();
    let around = folder.path().join("inner/../inner/./talk.jsonl");
    assert_eq!(store.import(&path, codec).unwrap().messages, 1);
    let again = store.import(&around, codec).unwrap();
    assert_eq!(
        (again.messages, again.path),
        (0, around.display().to_string())
    );
    assert_eq!(store.sources().unwrap().len(), 1);
    #[cfg(unix)]
    {
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&inner, &link).unwrap();
        let report = store.import(link.join("talk.jsonl"), codec).unwrap();
        assert_eq!(report.messages, 0);
        assert_eq!(store.sources().unwrap().len(), 1);
    }
    // Grown, and named the other way: one file still, the newest of which counts.
    let more = "{\"messages\":[{\"role\":\"user\",\"content\":\"b\"}]}\n";
    std::fs::write(
        &path,
        [&std::fs::read(&path).unwrap(), more.as_bytes()].concat(),
    )
    .unwrap();
    assert_eq!(store.import(&around, codec).unwrap().messages, 1);
    assert_eq!(store.all_originals().unwrap().len(), 1);
}

/// A Codex rollout: headers, and turns with what had been used in all by their ends.
fn rollout(ids: &[&str], turns: &[(u32, u32)], minute: u32) -> String {
    let mut text = String::new();
    for (at, id) in ids.iter().enumerate() {
        let from = ids.get(at + 1);
        let from = from.map_or_else(String::new, |from| format!(r#","forked_from_id":"{from}""#));
        writeln!(text, r#"{{"timestamp":"2026-05-01T10:{minute:02}:00Z","type":"session_meta","payload":{{"id":"{id}","timestamp":"2026-05-01T10:{minute:02}:00Z"{from}}}}}"#).unwrap();
    }
    for (turn, total) in turns {
        let at = format!(r#""timestamp":"2026-05-01T10:{minute:02}:{turn:02}Z""#);
        for (role, kind) in [("user", "input_text"), ("assistant", "output_text")] {
            writeln!(text, r#"{{{at},"type":"response_item","payload":{{"type":"message","role":"{role}","content":[{{"type":"{kind}","text":"{role} {turn}"}}]}}}}"#).unwrap();
        }
        writeln!(text, r#"{{{at},"type":"event_msg","payload":{{"type":"token_count","info":{{"total_token_usage":{{"input_tokens":{total},"output_tokens":{}}}}}}}}}"#,
            total / 10).unwrap();
    }
    text
}

/// All orders of so many things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for order in orders(count - 1) {
        for at in 0..count {
            let mut longer = order.clone();
            longer.insert(at, count - 1);
            all.push(longer);
        }
    }
    all
}

#[test]
fn what_a_fork_inherits_is_its_parents_whichever_is_imported_first() {
    let files = [
        rollout(&["p"], &[(1, 100), (2, 200), (3, 300)], 0),
        // Forked behind the second turn, and from that one behind the fourth.
        rollout(&["c", "p"], &[(1, 100), (2, 200), (4, 230)], 10),
        rollout(
            &["g", "c", "p"],
            &[(1, 100), (2, 200), (4, 230), (5, 280)],
            20,
        ),
    ];
    let codex = interchange::codec("codex").unwrap();
    for order in orders(files.len()) {
        let store = Store::in_memory().unwrap();
        for at in &order {
            let text = files[*at].as_bytes();
            store
                .import_from(format!("{at}.jsonl"), text, codex)
                .unwrap();
        }
        // Imported again, nothing moves.
        for at in &order {
            let text = files[*at].as_bytes();
            store
                .import_from(format!("{at}.jsonl"), text, codex)
                .unwrap();
        }
        for (thread, input, messages) in [("p", 300, 6), ("c", 30, 6), ("g", 50, 8)] {
            let told = store.locator().thread_spend(thread).unwrap();
            assert_eq!(told.root.input_tokens, input, "{thread} in {order:?}");
            assert_eq!(told.root.output_tokens, input / 10, "{thread} in {order:?}");
            let walked = transcript_redb::spend::thread_spend_in(&store.locator(), thread).unwrap();
            assert_eq!(walked.root.input_tokens, input, "{thread} in {order:?}");
            let summary = store.sessions_matching(&SessionQuery {
                thread: Some(thread.to_owned()),
                ..SessionQuery::default()
            });
            assert_eq!(
                summary.unwrap()[0].messages,
                messages,
                "{thread} in {order:?}"
            );
        }
        let all = store.spend(SpendQuery::default()).unwrap();
        assert_eq!(all[0].input_tokens, 380, "{order:?}");
    }
}

#[test]
fn a_copy_of_a_session_spends_nothing_whichever_is_imported_first() {
    // Times, ids and usages are the same in both; only the session's id differs. The copy goes on.
    for order in orders(2) {
        let store = Store::in_memory().unwrap();
        for at in &order {
            let (session, count) = [("a", 10), ("b", 14)][*at];
            import(
                &store,
                &format!("{session}.jsonl"),
                lines(session, count).as_bytes(),
            );
        }
        let of = |thread: &str| store.locator().thread_spend(thread).unwrap().root;
        let (first, copy) = (of("a"), of("b"));
        // Lines 2, 4 and 6, 8 and 10 tell of three calls, which the copy repeats, 12 and 14 of one more.
        assert_eq!((first.turns, copy.turns), (3, 1), "{order:?}");
    }
}

#[test]
fn damage_in_what_an_import_kept_is_an_error_or_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    // In the file, in what it tells of its session, and in the names of agents and models.
    let mark = "7Qx!vK2#zR";
    let text = lines("s", 8)
        .replace("\"model\":\"m\"", &format!("\"model\":\"{mark}\""))
        .replace(
            "\"type\":\"user\"",
            &format!("\"type\":\"user\",\"cwd\":\"/{mark}\""),
        );
    let store = Store::open(&path).unwrap();
    import(&store, "s.jsonl", text.as_bytes());
    let shown = |store: &Store| {
        let mut native = Vec::new();
        let native = store
            .export_native(transcript_redb::ExportScope::All, &mut native)
            .map(|_| native);
        let source = store.sources().map(|sources| sources[0].id);
        let mut bytes = Vec::new();
        let original = source.and_then(|source| store.export_original(source, &mut bytes));
        let by_model = SpendQuery {
            group_by: vec![SpendGroup::Model, SpendGroup::Agent],
            ..SpendQuery::default()
        };
        [
            native.map(|native| String::from_utf8(native).unwrap()),
            original.map(|_| String::from_utf8_lossy(&bytes).into_owned()),
            store
                .attributes(&SessionRef::root("s"))
                .map(|it| format!("{it:?}")),
            store.spend(by_model).map(|it| format!("{it:?}")),
        ]
    };
    let whole = shown(&store).map(Result::unwrap);
    assert!(whole.iter().all(|shown| shown.contains(mark)));
    drop(store);
    let bytes = std::fs::read(&path).unwrap();
    let places: Vec<usize> = (0..bytes.len() - mark.len())
        .filter(|at| bytes[*at..].starts_with(mark.as_bytes()))
        .collect();
    let mut refused = [0; 4];
    for at in places {
        let mut damaged = bytes.clone();
        damaged[at + 3] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let Ok(store) = Store::open(&path) else {
            continue;
        };
        for ((shown, whole), refused) in shown(&store).iter().zip(&whole).zip(&mut refused) {
            match shown {
                Ok(shown) => assert!(shown == whole, "at byte {at}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupted);
                    *refused += 1;
                }
            }
        }
    }
    assert!(refused.iter().all(|refused| *refused > 0), "{refused:?}");
}
