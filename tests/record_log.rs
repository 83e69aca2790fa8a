//! Record logs: in, on with the conversation, and out again.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a test that cannot go on has failed"
)]

use std::fs;
use std::path::Path;

use transcript_redb::interchange::record_log::{
    Block, BoundaryMeta, LogMessage, LogUsage, Recorder, load, messages, new_agent_id,
    new_session_id, view,
};
use transcript_redb::interchange::{self, Folder};
use transcript_redb::{ErrorKind, SessionRef, SpendQuery, Store, TranscriptLocator};

const FILE: &str = include_str!("../src/interchange/record_log/session.jsonl");
const AGENT: &str = include_str!("../src/interchange/record_log/agent.jsonl");
const SESSION: &str = "77aa77aa77aa47aa87aa77aa77aa77aa";
const SIDE: &str =
    "77aa77aa77aa47aa87aa77aa77aa77aa/subagents/agent-5b5b5b5b5b5b45b585b55b5b5b5b5b5b.jsonl";

fn folder(file: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join(SIDE).parent().unwrap()).unwrap();
    fs::write(folder.path().join(format!("{SESSION}.jsonl")), file).unwrap();
    fs::write(folder.path().join(SIDE), AGENT).unwrap();
    folder
}

fn import(store: &Store, folder: &Path) -> u64 {
    let files = interchange::files(folder, None).unwrap();
    assert_eq!(files.len(), 2);
    let mut added = 0;
    for (path, codec) in files {
        let codec = codec.expect("it is detected");
        assert_eq!(codec.name(), "record-log");
        added += store.import(path, codec).unwrap().messages;
    }
    added
}

fn export(store: &Store) -> tempfile::TempDir {
    let out = tempfile::tempdir().unwrap();
    let mut target = Folder::new(out.path());
    store
        .export(&[SessionRef::root(SESSION)], "record-log", &mut target)
        .unwrap();
    target.finish().unwrap();
    out
}

fn main_file(folder: &Path) -> Vec<u8> {
    fs::read(folder.join(format!("{SESSION}.jsonl"))).unwrap()
}

fn calling(id: &str) -> LogMessage {
    LogMessage {
        role: "assistant".to_owned(),
        content: vec![Block {
            kind: "tool_use".to_owned(),
            id: id.to_owned(),
            name: "ls".to_owned(),
            ..Block::default()
        }],
    }
}

#[test]
fn a_folder_comes_out_as_it_went_in_healthy_or_damaged() {
    let damaged = [
        FILE.as_bytes(),
        b"\r\n{\"uuid\":\"x\xff\n\0\0\n{\"uuid\":\"torn",
    ]
    .concat();
    for file in [FILE.as_bytes(), &damaged[..]] {
        let from = folder(file);
        let store = Store::in_memory().unwrap();
        assert_eq!(import(&store, from.path()), 11);
        assert_eq!(import(&store, from.path()), 0, "the second time");
        let out = export(&store);
        assert_eq!(main_file(out.path()), file);
        assert_eq!(fs::read(out.path().join(SIDE)).unwrap(), AGENT.as_bytes());
    }
}

#[test]
fn what_is_recorded_after_an_import_stands_behind_its_bytes() {
    let torn = [FILE.as_bytes(), b"{\"uuid\":\"torn"].concat();
    let from = folder(&torn);
    let store = Store::in_memory().unwrap();
    import(&store, from.path());
    let mut recorder = Recorder::resume(&store, SESSION).unwrap();
    assert_eq!(recorder.messages().len(), 5);
    assert_eq!(recorder.usage().output_tokens, 61);
    recorder.message(LogMessage::text("user", "Thank <you>."), None);
    recorder.message(
        LogMessage::text("assistant", "Gladly."),
        Some(LogUsage {
            input_tokens: 20,
            output_tokens: 2,
            cache_read_tokens: 0,
            cache_write_tokens: 15,
        }),
    );
    assert!(recorder.error().is_none());

    let out = export(&store);
    let file = main_file(out.path());
    assert!(file.starts_with(&[&torn[..], b"\n"].concat()));
    let added = load(&file[torn.len() + 1..]).unwrap();
    assert_eq!(added.len(), 2);
    let last = load(FILE.as_bytes()).unwrap().pop().unwrap().uuid;
    assert_eq!(added[0].parent_uuid, last);
    assert_eq!(added[1].parent_uuid, added[0].uuid);
    assert_eq!(added[1].usage.unwrap().cache_write_tokens, 15);

    // What was exported is itself a log that says the same.
    let again = Store::in_memory().unwrap();
    import(&again, out.path());
    assert_eq!(
        Recorder::resume(&again, SESSION).unwrap().messages().len(),
        7
    );
    let spend = |store: &Store| store.spend(SpendQuery::default()).unwrap().remove(0);
    let (mut imported, live) = (spend(&again), spend(&store));
    // What hosts write tells nothing of it, so what was recorded lacks the last 15.
    assert_eq!(imported.cache_write_tokens, 65);
    assert_eq!(live.cache_write_tokens, 50);
    imported.cache_write_tokens = live.cache_write_tokens;
    assert_eq!(imported, live);
}

#[test]
fn a_recorded_conversation_is_a_log_with_its_boundary() {
    let store = Store::in_memory().unwrap();
    let id = new_session_id();
    let mut recorder = Recorder::new(&store, &id);
    recorder.message(LogMessage::text("user", "one"), None);
    recorder.message(
        calling("c1"),
        Some(LogUsage {
            input_tokens: 9,
            output_tokens: 1,
            ..LogUsage::default()
        }),
    );
    let result = |id: &str, text: &str| Block {
        kind: "tool_result".to_owned(),
        tool_use_id: id.to_owned(),
        content: vec![Block::text(text)],
        ..Block::default()
    };
    recorder.message(
        LogMessage {
            role: "user".to_owned(),
            content: vec![result("c1", "a"), Block::text("and")],
        },
        None,
    );
    recorder.message(LogMessage::text("assistant", "two"), None);
    let meta = BoundaryMeta {
        trigger: "auto".to_owned(),
        pre_tokens: 12,
        messages_summarized: 3,
        active_skills: Vec::new(),
    };
    recorder.boundary(
        &meta,
        vec![
            LogMessage::marker(&meta),
            LogMessage::text("user", "[conversation summarized to save context]\n\nall"),
            LogMessage::text("assistant", "two"),
        ],
    );
    recorder.message(calling("c2"), None);
    assert!(recorder.error().is_none(), "{:?}", recorder.error());
    let mut agent = Recorder::for_agent(&store, &id, &new_agent_id());
    agent.message(LogMessage::text("user", "look"), None);

    let out = tempfile::tempdir().unwrap();
    let mut target = Folder::new(out.path());
    let session = SessionRef::root(id.as_str());
    store
        .export(std::slice::from_ref(&session), "record-log", &mut target)
        .unwrap();
    target.finish().unwrap();
    let bytes = fs::read(out.path().join(format!("{id}.jsonl"))).unwrap();
    let records = load(&bytes).unwrap();
    let kinds: Vec<&str> = records.iter().map(|it| it.kind.as_str()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "boundary").count(), 1);
    let (all, usage) = messages(&records);
    assert_eq!((all.len(), usage.input_tokens), (8, 9));
    assert_eq!(
        all[2].content.len(),
        2,
        "a message of two blocks is one message"
    );
    assert_eq!(view(&all).len(), 2, "the open call is not sent");
    for pair in records.windows(2) {
        assert_eq!(pair[1].parent_uuid, pair[0].uuid);
    }
    assert_eq!(
        fs::read_dir(out.path().join(&id).join("subagents"))
            .unwrap()
            .count(),
        1
    );

    // The tail that the boundary kept is one row of the store.
    let rows = store.records(&session).unwrap();
    let twos = rows.filter(|it| {
        let message = it.as_ref().unwrap().message.as_ref();
        message.is_some_and(|it| it.message.content == "two")
    });
    assert_eq!(twos.count(), 1);
    let resumed = Recorder::resume(&store, &id).unwrap();
    assert_eq!(
        resumed.messages().len(),
        2,
        "the call without an answer is trimmed"
    );
}

#[test]
fn the_first_error_is_kept_and_recording_goes_on_in_memory() {
    let store = Store::in_memory().unwrap();
    let id = new_session_id();
    let mut recorder = Recorder::new(&store, &id);
    recorder.message(LogMessage::text("user", "one"), None);
    let session = SessionRef::root(id.as_str());
    let meta = transcript_redb::TranscriptMeta::new("x");
    let (_, slot) = store.locator().begin_generation(&session, meta).unwrap();
    recorder.message(LogMessage::text("user", "two"), None);
    assert_eq!(recorder.error().unwrap().kind(), ErrorKind::Sealed);
    drop(slot);
    recorder.message(LogMessage::text("user", "three"), None);
    assert_eq!(recorder.messages().len(), 3);
    assert!(recorder.error().is_some(), "it is never cleared");
    let stored = Recorder::resume(&store, &id).unwrap();
    assert_eq!(stored.messages().len(), 2);
}

#[test]
fn an_id_that_is_no_file_name_is_refused() {
    let store = Store::in_memory().unwrap();
    let mut recorder = Recorder::new(&store, "../out");
    recorder.message(LogMessage::text("user", "x"), None);
    let out = tempfile::tempdir().unwrap();
    let refused = store.export(
        &[SessionRef::root("../out")],
        "record-log",
        &mut Folder::new(out.path()),
    );
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidId);
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
}
