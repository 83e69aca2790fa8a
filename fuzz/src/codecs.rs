//! Files of every format: whatever is in one, it goes in, and comes out as it was.

use std::collections::BTreeMap;
use std::io::Write;

use transcript_redb::interchange::{self, Codec, FileReport, Target};
use transcript_redb::{ErrorKind, ExportScope, Result, SessionQuery, SessionRef, Store};

const PATH: &str = "session.jsonl";

/// The same bytes as a file of each format.
pub fn codecs(data: &[u8]) {
    for codec in interchange::codecs() {
        let store = empty();
        match import(&store, data, *codec) {
            Ok(report) => check(&store, data, *codec, &report),
            Err(error) => {
                assert_eq!(codec.name(), "native", "it is kept: {error}");
                assert_eq!(error.kind(), ErrorKind::NewerFormat);
            }
        }
    }
}

fn empty() -> Store {
    Store::in_memory().expect("a store in memory opens")
}

fn import(store: &Store, data: &[u8], codec: &dyn Codec) -> Result<FileReport> {
    store.import_from(PATH, data, codec)
}

fn check(store: &Store, data: &[u8], codec: &dyn Codec, report: &FileReport) {
    let name = codec.name();
    check_counts(data, report, name);
    let before = native(store);
    let again = import(store, data, codec).expect("what went in goes in again");
    assert_eq!(
        (again.messages, again.compactions, again.input_tokens),
        (0, 0, 0),
        "{name}: a second import adds nothing"
    );
    let after = native(store);
    assert!(before == after, "{name}: a second import changes nothing");
    let other = empty();
    let codec = interchange::codec("native").expect("there is one");
    let restored = import(&other, &before, codec).expect("an export goes in");
    assert_eq!(restored.bad, 0, "{name}: an export is whole");
    assert!(
        native(&other) == before,
        "{name}: an export comes out again"
    );
    if name != "native" {
        check_original(store, data, name);
    }
}

/// What is on the lines adds up.
fn check_counts(data: &[u8], report: &FileReport, name: &str) {
    assert_eq!(report.bytes, data.len() as u64, "{name}");
    assert!(report.bad >= report.quarantined.len() as u64);
    for bad in &report.quarantined {
        assert!(bad.offset + bad.length <= report.bytes, "{name}: {bad:?}");
        assert!(bad.line <= report.lines, "{name}: {bad:?}");
    }
    // A document is one record, however many lines it has.
    if name != "checkpoint" && report.glued_records == 0 {
        let good = report.records + report.blank_lines;
        assert!(
            good <= report.lines && report.lines <= good + report.bad,
            "{name}: {} lines, {} records, {} blank, {} bad",
            report.lines,
            report.records,
            report.blank_lines,
            report.bad
        );
    }
}

fn native(store: &Store) -> Vec<u8> {
    let mut out = Vec::new();
    store
        .export_native(ExportScope::All, &mut out)
        .expect("a store can be exported");
    out
}

/// Files in memory.
#[derive(Default)]
struct Files(BTreeMap<String, Vec<u8>>);

impl Target for Files {
    fn file(&mut self, name: &str) -> Result<&mut dyn Write> {
        Ok(self.0.entry(name.to_owned()).or_default())
    }
}

/// The same bytes come out: as the source, and by an export to the format.
fn check_original(store: &Store, data: &[u8], name: &str) {
    let sources = store.sources().expect("sources are listed");
    assert_eq!(sources.len(), 1, "{name}: the bytes are kept");
    let mut out = Vec::new();
    store
        .export_original(sources[0].id, &mut out)
        .expect("a source is given back");
    assert!(out == data, "{name}: the source is as it was");
    let query = SessionQuery {
        children: true,
        ..SessionQuery::default()
    };
    let listed = store.sessions_matching(&query).expect("they are listed");
    let sessions: Vec<SessionRef> = listed.into_iter().filter_map(|it| it.session).collect();
    if sessions.is_empty() || interchange::writer(name).is_none() {
        return;
    }
    let mut files = Files::default();
    match store.export(&sessions, name, &mut files) {
        Ok(_) => assert!(
            files.0.values().any(|file| file == data),
            "{name}: an export to the format is what it was made of"
        ),
        // An id that is no plain name of a file.
        Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidId, "{name}: {error}"),
    }
}
