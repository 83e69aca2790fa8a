//! Classic files: in, on with the conversation, and out again.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a test that cannot go on has failed"
)]

use std::collections::BTreeMap;
use std::io::Write;

use transcript_redb::interchange::{self, Codec, Target};
use transcript_redb::{
    ErrorKind, Result, SessionRef, Store, TranscriptLocator, TranscriptMessage, TranscriptMeta,
};

const FILE: &str = include_str!("../src/interchange/classic/session.jsonl");

/// Files in memory.
#[derive(Default)]
struct Files(BTreeMap<String, Vec<u8>>);

impl Target for Files {
    fn file(&mut self, name: &str) -> Result<&mut dyn Write> {
        Ok(self.0.entry(name.to_owned()).or_default())
    }
}

fn codec() -> &'static dyn Codec {
    interchange::codec("classic").expect("there is one")
}

fn export(store: &Store, session: &SessionRef) -> BTreeMap<String, Vec<u8>> {
    let mut files = Files::default();
    store
        .export(std::slice::from_ref(session), "classic", &mut files)
        .unwrap();
    files.0
}

fn texts(store: &Store, session: &SessionRef) -> Vec<String> {
    let meta = TranscriptMeta::new("x");
    let history = store.locator().open_session(session, meta).unwrap();
    let rows = history.messages().unwrap().into_iter();
    rows.map(|row| row.content).collect()
}

#[test]
fn a_file_comes_out_as_it_went_in_and_new_rows_stand_behind_it() {
    let torn = [FILE.as_bytes(), b"{\"role\":\"us\xff"].concat();
    let store = Store::in_memory().unwrap();
    let import = || {
        store
            .import_from("planner_1.jsonl", &torn[..], codec())
            .unwrap()
    };
    assert_eq!(import().messages, 8, "with the partial");
    assert_eq!(import().messages, 0);
    let session = SessionRef::root("planner_1");
    let name = "session_raw/planner_1.jsonl";
    assert_eq!(export(&store, &session)[name], torn);

    let meta = TranscriptMeta::new("x");
    let history = store.locator().open_session(&session, meta).unwrap();
    history.append(TranscriptMessage::user("more")).unwrap();
    let grown = export(&store, &session).remove(name).unwrap();
    assert!(grown.starts_with(&[&torn[..], b"\n{"].concat()));
    // The last line is the header as it is now.
    let last = grown.trim_ascii_end().rsplit(|byte| *byte == b'\n').next();
    assert!(last.unwrap().starts_with(b"{\"_meta\":"));
    let again = Store::in_memory().unwrap();
    again
        .import_from("planner_1.jsonl", &grown[..], codec())
        .unwrap();
    assert_eq!(texts(&again, &session), texts(&store, &session));
    assert_eq!(
        texts(&store, &session),
        ["summary", "Two files.", "go on", "more"]
    );
}

#[test]
fn generations_are_one_session_and_have_files_of_their_own() {
    let session = SessionRef::scoped("th-7", "planner");
    let stem = session.session_id();
    let meta = |generation: &str| {
        format!(
            r#"{{"_meta":{{"version":1,"agent":"planner","agent_id":"planner","dispatcher":"native","created":"2026-03-01T10:00:00Z","updated":"2026-03-01T10:05:00Z","turn_count":1,"input_tokens":0,"output_tokens":0,"cached_input_tokens":0,"charged_amount_usd":0.0,"thread_id":"th-7","session_id":"{stem}{generation}"}}}}"#
        )
    };
    let answer = |text: &str, output: u64| {
        format!(
            r#"{{"role":"assistant","content":"{text}","provider":"acme","model":"m","usage":{{"input":90,"output":{output},"cached_input":0,"cost_usd":0.5}},"ts":"2026-03-01T10:05:00Z","request_id":"r{output}"}}"#
        )
    };
    let user = |text: &str| format!(r#"{{"role":"user","content":"{text}"}}"#);
    let file = |lines: &[String]| lines.join("\n") + "\n";
    let mut files = BTreeMap::new();
    for generation in 0..12 {
        let end = match generation {
            0 => String::new(),
            generation => format!(".g{generation}"),
        };
        // Each begins with the answer that the one before ended with.
        let mut lines = vec![meta(&end)];
        if generation > 0 {
            lines.push(answer("done", generation - 1));
        }
        lines.extend([
            user(&format!("go {generation}")),
            answer("done", generation),
        ]);
        files.insert(generation, (format!("{stem}{end}.jsonl"), file(&lines)));
    }
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("session_raw");
    std::fs::create_dir(&raw).unwrap();
    for (name, bytes) in files.values() {
        std::fs::write(raw.join(name), bytes).unwrap();
    }
    let store = Store::in_memory().unwrap();
    let import = || {
        let found = interchange::files(folder.path(), None).unwrap();
        let reports = found.iter().map(|(path, codec)| {
            let report = store.import(path, codec.unwrap()).unwrap();
            report.messages
        });
        reports.sum::<u64>()
    };
    assert_eq!(import(), 2 + 11 * 3);
    assert_eq!(import(), 0, "all of it is known");
    let locator = store.locator();
    let chain = locator.session_chain(&session).unwrap();
    let generations: Vec<u32> = chain.iter().map(|it| it.generation).collect();
    assert_eq!(generations, (0..12).collect::<Vec<_>>());
    assert_eq!(texts(&store, &chain[0]), ["go 0", "done"]);
    assert_eq!(texts(&store, &chain[11]), ["done", "go 11", "done"]);
    let spend = locator.thread_spend("th-7").unwrap();
    assert_eq!((spend.root.turns, spend.root.input_tokens), (12, 12 * 90));
    let recounted = transcript_redb::spend::thread_spend_in(&locator, "th-7").unwrap();
    assert_eq!(recounted.root.turns, 12);
    assert_eq!(
        locator
            .thread_transcripts("th-7", None)
            .unwrap()
            .roots
            .len(),
        12
    );

    let exported = export(&store, &session);
    assert_eq!(exported.len(), 12);
    for (name, bytes) in files.values() {
        assert_eq!(exported[&format!("session_raw/{name}")], bytes.as_bytes());
    }
    // The session goes on where it ended, and only there.
    let history = locator
        .open_session(&chain[11], TranscriptMeta::new("x"))
        .unwrap();
    history.append(TranscriptMessage::user("more")).unwrap();
    let mut grown = files[&0].1.clone();
    grown.push_str(&user("late"));
    let refused = store.import_from(&files[&0].0, grown.as_bytes(), codec());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(texts(&store, &chain[0]), ["go 0", "done"]);
}

#[test]
fn a_generation_without_the_one_before_is_refused() {
    let store = Store::in_memory().unwrap();
    let refused = store.import_from("planner_1.g1.jsonl", FILE.as_bytes(), codec());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(store.sessions().unwrap().is_empty());
}

#[test]
fn generations_of_a_host_are_written_into_files_that_give_the_same_ones() {
    let store = Store::in_memory().unwrap();
    let session = SessionRef::scoped("th-1", "coder");
    let meta = TranscriptMeta::new("coder")
        .with_agent_id("coder")
        .with_thread_id("th-1");
    let history = store
        .locator()
        .open_session(&session, meta.clone())
        .unwrap();
    for text in ["one", "two"] {
        history.append(TranscriptMessage::user(text)).unwrap();
    }
    let kept = history.messages().unwrap();
    let (next, history) = store.locator().begin_generation(&session, meta).unwrap();
    let rows = [TranscriptMessage::system("sum"), kept[1].clone()];
    history.replace(&rows).unwrap();
    let files = export(&store, &session);
    assert_eq!(files.len(), 2);
    let again = Store::in_memory().unwrap();
    let mut files: Vec<_> = files.iter().collect();
    files.sort_by_key(|(name, _)| name.len());
    for (name, bytes) in files {
        again.import_from(name, &bytes[..], codec()).unwrap();
    }
    for generation in [&session, &next] {
        assert_eq!(texts(&again, generation), texts(&store, generation));
    }
    assert_eq!(texts(&again, &next), ["sum", "two"]);
}

#[test]
fn a_file_of_before_there_were_sessions_is_none_until_it_is_adopted() {
    let store = Store::in_memory().unwrap();
    store
        .import_from("planner_1.jsonl", FILE.as_bytes(), codec())
        .unwrap();
    let listed = || store.locator().thread_transcripts("th-7", None).unwrap();
    assert_eq!((listed().roots.len(), listed().pre_identity.len()), (0, 1));
    let old = SessionRef::root("planner_1");
    assert_eq!(listed().pre_identity[0].session.as_ref(), Some(&old));
    let session = SessionRef::scoped("th-7", "planner");
    let seed = TranscriptMeta::new("planner");
    let adoption = store.adopt(&session, "th-7", seed).unwrap().unwrap();
    assert_eq!(adoption.sources[0].stem, old.session_id());
    assert_eq!(texts(&store, &session), ["summary", "Two files.", "go on"]);
    assert_eq!((listed().roots.len(), listed().pre_identity.len()), (1, 1));
    // Its file is still its own, and grows on its own.
    let again = store
        .import_from("planner_1.jsonl", FILE.as_bytes(), codec())
        .unwrap();
    assert_eq!(again.messages, 0);
    assert_eq!(listed().pre_identity.len(), 1);
    assert_eq!(
        export(&store, &old)["session_raw/planner_1.jsonl"],
        FILE.as_bytes()
    );
}

#[test]
fn a_session_of_a_host_is_written_so_that_it_reads_the_same() {
    let store = Store::in_memory().unwrap();
    let session = SessionRef::scoped("th-1", "coder");
    let meta = TranscriptMeta::new("coder")
        .with_agent_id("coder")
        .with_thread_id("th-1");
    let history = store.locator().open_session(&session, meta).unwrap();
    for row in [
        TranscriptMessage::user("one"),
        TranscriptMessage::tool_result("c", "two"),
    ] {
        history.append(row).unwrap();
    }
    let kept = history.messages().unwrap();
    let next = [TranscriptMessage::system("sum"), kept[1].clone()];
    history.replace(&next).unwrap();
    history
        .append(TranscriptMessage::assistant("three"))
        .unwrap();

    let files = export(&store, &session);
    let (name, bytes) = files.first_key_value().unwrap();
    assert_eq!(*name, format!("session_raw/{}.jsonl", session.session_id()));
    let again = Store::in_memory().unwrap();
    again.import_from(name, &bytes[..], codec()).unwrap();
    assert_eq!(texts(&again, &session), ["sum", "two", "three"]);
    let both = [&store, &again].map(|store| {
        let records = store.records(&session).unwrap();
        records
            .filter(|it| it.as_ref().unwrap().message.is_some())
            .count()
    });
    assert_eq!(both, [4, 4]);
}
