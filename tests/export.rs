//! What an export to another format keeps: imported again, it cost the same.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::fs;
use std::path::{Path, PathBuf};

use transcript_redb::interchange::{self, ExportReport, Folder, OneFile};
use transcript_redb::{
    ErrorKind, MessageUsage, SessionQuery, SessionRef, Store, TranscriptLocator as _,
    TranscriptMessage, TranscriptMeta, TranscriptTurn, TurnUsage, UsageCostSource,
};

/// Formats with a place for tokens, and whether cost has one too.
const FORMATS: [(&str, bool); 3] = [
    ("classic", true),
    ("record-log", false),
    ("checkpoint", true),
];

fn sample() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/sample"))
}

fn open(folder: &Path) -> Store {
    Store::open(folder.join("store.redb")).unwrap()
}

fn import(store: &Store, path: &Path) {
    for (path, codec) in interchange::files(path, None).unwrap() {
        if let Some(codec) = codec {
            store.import(path, codec).unwrap();
        }
    }
}

fn sessions(store: &Store) -> Vec<SessionRef> {
    let query = SessionQuery {
        children: true,
        ..SessionQuery::default()
    };
    let found = store.sessions_matching(&query).unwrap();
    found.into_iter().filter_map(|it| it.session).collect()
}

/// Input, output, cached input and USD of all sessions that have rows: others cannot be told of by any of the formats.
fn spent(store: &Store) -> ([u64; 3], f64) {
    let (mut tokens, mut cost) = ([0; 3], 0.0);
    let query = SessionQuery {
        children: true,
        ..SessionQuery::default()
    };
    for summary in store.sessions_matching(&query).unwrap() {
        if summary.messages > 0 {
            let spend = summary.spend;
            tokens[0] += spend.input_tokens;
            tokens[1] += spend.output_tokens;
            tokens[2] += spend.cached_input_tokens;
            cost += spend.cost_usd;
        }
    }
    (tokens, cost)
}

/// Exports everything, imports that into a new store, and compares what was spent.
fn goes_there_and_back(store: &Store, format: &str, costs: bool) -> ExportReport {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut target = Folder::new(&out);
    let report = store.export(&sessions(store), format, &mut target).unwrap();
    assert!(!target.finish().unwrap().is_empty());
    let second = open(folder.path());
    import(&second, &out);
    let ((tokens, cost), (after, cost_after)) = (spent(store), spent(&second));
    assert!(tokens[0] > 0);
    assert_eq!(after, tokens, "{format}");
    if costs {
        assert!((cost_after - cost).abs() < 1e-9, "{format}: {cost_after}");
        assert_eq!(report.costs_left_out, 0, "{format}");
    }
    report
}

#[test]
fn what_imported_calls_cost_goes_along_to_other_formats() {
    for (format, costs) in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        import(&store, &sample());
        let report = goes_there_and_back(&store, format, costs);
        assert_eq!(report.usages_left_out, 0, "{format}");
    }
}

#[test]
fn what_real_files_cost_goes_along_to_other_formats() {
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
    for part in ["claude-code", "codex"] {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        import(&store, &corpus.join(part));
        for (format, costs) in FORMATS {
            goes_there_and_back(&store, format, costs);
        }
    }
}

fn usage(model: &str, input: u64, cost: f64) -> TurnUsage {
    TurnUsage {
        provider: "acme".to_owned(),
        model: model.to_owned(),
        usage: MessageUsage {
            input,
            output: input / 2,
            cached_input: input / 4,
            cost_usd: cost,
            cost_source: Some(UsageCostSource::Charged),
            ..MessageUsage::default()
        },
        ts: "2026-08-04T10:00:00Z".to_owned(),
        ..TurnUsage::default()
    }
}

/// A session of a host: usages with rows and without, a compaction, a successor, a sub-agent.
fn host(store: &Store) -> SessionRef {
    let session = SessionRef::root("host-1");
    let child = SessionRef::child_of(&session, "helper-1");
    for (session, name) in [(&session, "coder"), (&child, "helper")] {
        let meta = TranscriptMeta::new("coder").with_thread_id("thread-1");
        let history = store.locator().open_session(session, meta.clone()).unwrap();
        let mut rows = Vec::new();
        for turn in 0..4 {
            let stored = rows.clone();
            rows.push(TranscriptMessage::user(format!(
                "question {turn} of {name}"
            )));
            if turn != 2 {
                rows.push(TranscriptMessage::assistant(format!("answer {turn}")));
            }
            if turn == 3 {
                // A compaction: a summary, and the last two rows.
                let kept = rows.split_off(rows.len() - 2);
                rows = vec![TranscriptMessage::system("summary")];
                rows.extend(kept);
            }
            let spent = usage("m-1", 100 + turn, 0.25);
            let turn = TranscriptTurn::new(&stored, &rows, &meta).with_turn_usage(&spent);
            history.append_turn(turn).unwrap();
        }
    }
    session
}

#[test]
fn what_a_host_was_told_goes_along_too_also_without_a_row_of_its_own() {
    for (format, costs) in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        host(&store);
        assert_eq!(spent(&store), ([812, 404, 200], 2.0));
        let report = goes_there_and_back(&store, format, costs);
        assert_eq!(report.usages_left_out, 0, "{format}");
        assert_eq!(report.costs_left_out > 0, !costs, "{format}");
    }
}

#[test]
fn what_a_format_has_no_place_for_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = host(&store);
    for format in ["chat", "markdown"] {
        let mut target = OneFile::new(Vec::new());
        let report = store
            .export(std::slice::from_ref(&session), format, &mut target)
            .unwrap();
        assert_eq!(
            (report.sessions, report.usages_left_out),
            (2, 8),
            "{format}"
        );
    }
    // A session whose only usage is of no row of the model.
    let lone = SessionRef::root("lone");
    let meta = TranscriptMeta::new("coder");
    let history = store.locator().open_session(&lone, meta.clone()).unwrap();
    let rows = [TranscriptMessage::user("question")];
    let spent = usage("m-1", 10, 0.0);
    let turn = TranscriptTurn::new(&[], &rows, &meta).with_turn_usage(&spent);
    history.append_turn(turn).unwrap();
    let mut target = OneFile::new(Vec::new());
    let report = store.export(&[lone], "classic", &mut target).unwrap();
    assert_eq!(report.usages_left_out, 1);
}

#[test]
fn sessions_that_are_several_files_do_not_go_into_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = host(&store);
    for (format, _) in FORMATS {
        let mut target = OneFile::new(Vec::new());
        let refused = store
            .export(std::slice::from_ref(&session), format, &mut target)
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidId, "{format}");
        assert!(target.into_inner().is_empty(), "{format}");
    }
    let child = SessionRef::child_of(&session, "helper-1");
    for (format, _) in FORMATS {
        let mut target = OneFile::new(Vec::new());
        let report = store
            .export(std::slice::from_ref(&child), format, &mut target)
            .unwrap();
        assert_eq!(report.sessions, 1, "{format}");
    }
}

#[test]
fn all_originals_are_there_also_of_files_that_made_no_session() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let path = folder.path().join("empty.jsonl");
    fs::write(&path, "no record\n").unwrap();
    let codec = interchange::codec("chat").unwrap();
    let report = store.import(&path, codec).unwrap();
    assert_eq!((report.sessions, report.quarantined.len()), (0, 1));
    fs::write(&path, "no record\nnone either\n").unwrap();
    store.import(&path, codec).unwrap();
    assert!(store.originals(&sessions(&store)).unwrap().is_empty());
    let originals = store.all_originals().unwrap();
    assert_eq!(originals.len(), 1);
    let mut bytes = Vec::new();
    store.export_original(originals[0].id, &mut bytes).unwrap();
    assert_eq!(bytes, b"no record\nnone either\n");
}
