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
    Result, SessionRef, Store, TranscriptLocator, TranscriptMessage, TranscriptMeta,
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
