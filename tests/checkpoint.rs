//! Documents of runs: saved, imported, gone on with, exported.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a test that cannot go on has failed"
)]

use std::fs;

use transcript_redb::interchange::checkpoint::Trajectory;
use transcript_redb::interchange::{self, Codec, Folder};
use transcript_redb::{
    SessionRef, SpendQuery, Store, TranscriptLocator, TranscriptMessage, TranscriptMeta,
};

const FILE: &str = include_str!("../src/interchange/checkpoint/run.json");

fn codec() -> &'static dyn Codec {
    interchange::codec("checkpoint").expect("there is one")
}

fn session(store: &Store) -> SessionRef {
    let sessions = store.sessions().unwrap();
    sessions[0].session.clone().expect("it is named")
}

fn export(store: &Store) -> Vec<u8> {
    let out = tempfile::tempdir().unwrap();
    let mut target = Folder::new(out.path());
    store
        .export(&[session(store)], "checkpoint", &mut target)
        .unwrap();
    target.finish().unwrap();
    let mut files = fs::read_dir(out.path()).unwrap();
    let path = files.next().unwrap().unwrap().path();
    assert!(files.next().is_none());
    fs::read(path).unwrap()
}

#[test]
fn a_document_is_saved_whole_and_a_new_one_never_over_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let run = Trajectory::parse(FILE.as_bytes()).unwrap();
    run.save_new(&path).unwrap();
    assert!(run.save_new(&path).is_err());
    run.save(&path).unwrap();
    assert_eq!(
        Trajectory::load(&path).unwrap().to_json().unwrap(),
        run.to_json().unwrap()
    );
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing temporary is left"
    );
    assert!(run.save(folder.path().join("no/where.json")).is_err());
    #[cfg(unix)]
    {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let link = folder.path().join("link.json");
        symlink("nowhere", &link).unwrap();
        assert!(run.save_new(&link).is_err());
        run.save(&link).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_file());
    }
}

#[test]
fn a_document_comes_out_as_it_went_in_until_something_is_added() {
    let store = Store::in_memory().unwrap();
    let import = |bytes: &[u8]| store.import_from("run.json", bytes, codec()).unwrap();
    assert_eq!(import(FILE.as_bytes()).messages, 11);
    assert_eq!(import(FILE.as_bytes()).messages, 0);
    assert_eq!(export(&store), FILE.as_bytes());

    let meta = TranscriptMeta::new("x");
    let history = store
        .locator()
        .open_session(&session(&store), meta)
        .unwrap();
    history
        .append(TranscriptMessage::user("And spaces?"))
        .unwrap();
    let grown = Trajectory::parse(&export(&store)).unwrap();
    assert_eq!(grown.history().len(), 10);
    assert!(grown.history()[9].get().contains("And spaces?"));
    assert_eq!(grown.compactions.len(), 2);
    assert!(grown.other.contains_key("x_future"));
}

#[test]
fn a_grown_document_adds_what_is_new_and_its_totals_count_once_in_any_order() {
    let grown = FILE
        .replace(
            "\"content\": \"clean\"}",
            "\"content\": \"clean\"}, {\"role\":\"assistant\",\"content\":\"Done.\"}",
        )
        .replace("\"output_tokens\": 300", "\"output_tokens\": 350");
    let mut totals = Vec::new();
    for order in [[FILE, grown.as_str()], [grown.as_str(), FILE]] {
        let store = Store::in_memory().unwrap();
        let mut added = 0;
        for text in order {
            added += store
                .import_from("run.json", text.as_bytes(), codec())
                .unwrap()
                .messages;
        }
        assert_eq!(added, 12);
        let rows = store.spend(SpendQuery::default()).unwrap();
        assert_eq!(rows.iter().map(|row| row.output_tokens).sum::<u64>(), 350);
        totals.push(format!(
            "{:?}",
            rows.iter().map(|row| row.input_tokens).collect::<Vec<_>>()
        ));
    }
    assert_eq!(totals[0], totals[1]);
}
