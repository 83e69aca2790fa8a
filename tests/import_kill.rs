//! A process that is killed in the middle of an import: when the store opens again, the file is there whole or not at
//! all, and importing it then makes it whole.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod support {
    pub mod child;
}

use std::fmt::Write as _;
use std::io::{self, Read};

use support::child::{Process, say, task};
use transcript_redb::{SessionRef, SpendQuery, Store, TranscriptLocator, interchange};

const LINES: usize = 4_000;
const CHILDREN: usize = 3;

/// A file of a session with some sub-agents, each line with a usage of its own.
fn text() -> String {
    let mut text = String::new();
    for at in 0..LINES {
        let agent = match at % (CHILDREN + 1) {
            0 => String::new(),
            child => format!(r#""isSidechain":true,"agentId":"agent {child}","#),
        };
        writeln!(
            text,
            r#"{{"type":"assistant",{agent}"sessionId":"s","uuid":"00000000-0000-4000-8000-{at:012x}","timestamp":"2026-08-01T09:00:00Z","message":{{"id":"msg_{at}","content":"{}","usage":{{"input_tokens":1,"output_tokens":2}}}}}}"#,
            "some text ".repeat(40)
        )
        .unwrap();
    }
    text
}

/// Says how far it was read.
struct Said<'t> {
    text: &'t [u8],
    read: usize,
}

impl Read for Said<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.text.read(buffer)?;
        self.read += 1;
        say(&format!("read {}", self.read));
        Ok(read)
    }
}

fn import(store: &Store, input: impl Read) -> interchange::FileReport {
    let codec = interchange::codec("claude-code").unwrap();
    store.import_from("s.jsonl", input, codec).unwrap()
}

#[test]
#[ignore = "a child process of the test below"]
fn imports() {
    let store = Store::open(task()).unwrap();
    let text = text();
    import(
        &store,
        Said {
            text: text.as_bytes(),
            read: 0,
        },
    );
    say("imported");
    // To be killed before it closes the store.
    std::thread::park();
}

/// How many rows the file's sessions have; all of them or none.
fn rows(store: &Store) -> usize {
    let top = SessionRef::root("s");
    let children = (1..=CHILDREN).map(|at| SessionRef::child_of(&top, format!("agent {at}")));
    let counts: Vec<usize> = std::iter::once(top.clone())
        .chain(children)
        .map(|session| {
            let found = store.locator().read_session_transcript(&session).unwrap();
            found.map_or(0, |found| {
                found.read_session().unwrap().unwrap().messages.len()
            })
        })
        .collect();
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    counts.iter().sum()
}

fn output(store: &Store) -> u64 {
    let spend = store.spend(SpendQuery::default()).unwrap();
    spend.iter().map(|row| row.output_tokens).sum()
}

#[test]
fn after_a_kill_a_file_is_there_whole_or_not_at_all() {
    let whole = text();
    let reads = whole.len().div_ceil(64 << 10);
    let mut nothing = 0;
    // From the first read to the publication, which follows the last one.
    for round in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let mut child = Process::start("imports", path.to_str().unwrap());
        let until = match round {
            0 => "read 1".to_owned(),
            9 => "imported".to_owned(),
            round => format!("read {}", (reads * round).div_ceil(8).max(2)),
        };
        while let Some(said) = child.hear() {
            if said == until {
                break;
            }
        }
        let acknowledged = child.kill().iter().any(|said| said == "imported") || round == 9;

        let store = Store::open(&path).unwrap();
        let found = rows(&store);
        assert!(found == 0 || found == LINES, "{found} rows");
        assert!(found == LINES || !acknowledged);
        let uuid = "00000000-0000-4000-8000-000000000001".parse().unwrap();
        assert_eq!(store.record(uuid).unwrap().is_some(), found > 0);
        assert_eq!(store.sources().unwrap().len(), usize::from(found > 0));
        assert_eq!(store.threads().unwrap().len(), usize::from(found > 0));
        assert_eq!(output(&store), 2 * found as u64);
        nothing += usize::from(found == 0);

        let report = import(&store, whole.as_bytes());
        assert_eq!(report.messages, (LINES - found) as u64);
        assert_eq!(rows(&store), LINES);
        assert_eq!(output(&store), 2 * LINES as u64);
        let mut out = Vec::new();
        let source = &store.sources().unwrap()[0];
        store.export_original(source.id, &mut out).unwrap();
        assert!(out == whole.as_bytes());
    }
    assert!(
        (1..10).contains(&nothing),
        "{nothing} of 10 were killed before the end"
    );
}
