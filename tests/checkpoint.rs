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
use transcript_redb::serde_json::{Value, json};
use transcript_redb::{
    SessionRef, SpendGroup, SpendQuery, SpendRow, Store, TranscriptLocator, TranscriptMessage,
    TranscriptMeta,
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

/// A document of a run: what was said, where it was resumed, the oldest first, and what it had used.
struct Run(&'static [&'static str], &'static [usize], u32);

/// A run as it grew, two that were resumed from it, one that was resumed from one of these, and one of which the run that
/// it was resumed from is known only as it was before.
const RUNS: [Run; 6] = [
    Run(&["a", "b"], &[], 8),
    Run(&["a", "b", "c", "d"], &[], 11),
    Run(&["a", "b", "c", "d", "on", "e"], &[4], 13),
    Run(&["a", "b", "c", "d", "on", "f"], &[4], 20),
    Run(&["a", "b", "c", "d", "on", "e", "on", "g"], &[4, 6], 29),
    Run(
        &["a", "b", "c", "d", "on", "f", "h", "i", "on", "j"],
        &[4, 8],
        41,
    ),
];

impl Run {
    fn document(&self) -> String {
        let messages = self.0.iter().enumerate().map(|(at, text)| {
            let role = if at % 2 == 0 { "user" } else { "assistant" };
            json!({"role": role, "content": text})
        });
        let mut resume = Value::Null;
        for point in self.1 {
            let mut info = json!({"source": "x", "exit_status": "", "steps": 1, "message": point});
            if !resume.is_null() {
                info["previous"] = resume;
            }
            resume = info;
        }
        let total = self.2;
        json!({"task": "t", "model": "m", "messages": messages.collect::<Vec<_>>(), "steps": 1,
            "cost": f64::from(total) / 64.0, "input_tokens": 10 * total, "output_tokens": total,
            "cache_read_tokens": 3 * total, "cache_write_tokens": 2 * total, "exit_status": "",
            "resume": resume})
        .to_string()
    }

    /// Whether another document is an earlier one of the same conversation: all that it says is said in this one, too.
    fn goes_on_from(&self, other: &Self) -> bool {
        self.0.len() > other.0.len() && self.0.starts_with(other.0)
    }
}

/// What documents used together, counted apart from the store: each what it adds to the longest that it goes on from.
fn used(runs: &[&Run]) -> u32 {
    let adds = runs.iter().map(|run| {
        let before = runs.iter().filter(|other| run.goes_on_from(other));
        run.2
            - before
                .max_by_key(|other| other.0.len())
                .map_or(0, |other| other.2)
    });
    adds.sum()
}

#[test]
fn totals_of_runs_that_go_on_from_each_other_count_once_in_any_order() {
    // All orders of all of them would take long: each choice of documents, in several orders.
    for chosen in 1..(1_usize << RUNS.len()) {
        let runs: Vec<&Run> = (0..RUNS.len())
            .filter(|at| chosen >> at & 1 == 1)
            .map(|at| &RUNS[at])
            .collect();
        let expected = used(&runs);
        for order in 0..4 {
            let mut runs = runs.clone();
            if order % 2 == 1 {
                runs.reverse();
            }
            let by = order / 2 * runs.len() / 2;
            runs.rotate_left(by);
            let store = Store::in_memory().unwrap();
            let mut added = 0;
            for (at, run) in runs.iter().enumerate() {
                let text = run.document();
                let report = store.import_from(format!("{at}.json"), text.as_bytes(), codec());
                added += report.unwrap().messages;
            }
            assert!(added > 0);
            for group_by in [vec![], vec![SpendGroup::Hour, SpendGroup::Session]] {
                let rows = store.spend(SpendQuery {
                    group_by,
                    ..SpendQuery::default()
                });
                let rows = rows.unwrap();
                let sum = |of: fn(&SpendRow) -> u64| rows.iter().map(of).sum::<u64>();
                let sums = [
                    sum(|row| row.output_tokens),
                    sum(|row| row.input_tokens),
                    sum(|row| row.cached_input_tokens),
                    sum(|row| row.cache_write_tokens),
                ];
                let times = [1, 10, 3, 2].map(|times| u64::from(times * expected));
                assert_eq!(sums, times, "documents {chosen:b}, order {order}");
                let cost: f64 = rows.iter().map(|row| row.cost_usd).sum();
                assert!((cost - f64::from(expected) / 64.0).abs() < 1e-9);
            }
            // What sessions are told is what their threads are.
            let locator = store.locator();
            let thread = store.threads().unwrap().remove(0).thread_id;
            let told = locator.thread_spend(&thread).unwrap();
            assert_eq!(told.root.output_tokens, u64::from(expected));
        }
    }
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
