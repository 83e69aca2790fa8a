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
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use support::child::{Process, say, task};
use transcript_redb::interchange::{Certainty, Codec, Emit, Probe, Source};
use transcript_redb::{
    ExportScope, Result, SessionRef, SpendQuery, Store, TranscriptLocator, interchange,
};

const LINES: usize = 2_000;
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
    store.import_from("s.jsonl", input, claude()).unwrap()
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

fn sessions() -> Vec<SessionRef> {
    let top = SessionRef::root("s");
    let children = (1..=CHILDREN).map(|at| SessionRef::child_of(&top, format!("agent {at}")));
    std::iter::once(top.clone()).chain(children).collect()
}

/// How many rows the file's sessions have; all of them or none.
fn rows(store: &Store) -> usize {
    let counts: Vec<usize> = sessions()
        .iter()
        .map(|session| {
            let locator = store.locator();
            let head = locator.head_generation(session).unwrap();
            let found = locator.read_session_transcript(&head).unwrap();
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
        let acknowledged = killed("imports", &path, round, reads);

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

/// The codec as it may be one day.
struct Later;

impl Codec for Later {
    fn name(&self) -> &'static str {
        claude().name()
    }

    fn version(&self) -> u32 {
        claude().version() + 1
    }

    fn detect(&self, probe: &Probe<'_>) -> Option<Certainty> {
        claude().detect(probe)
    }

    fn read(&self, source: &mut Source<'_>, emit: &mut Emit<'_>) -> Result<()> {
        claude().read(source, emit)
    }
}

fn claude() -> &'static dyn Codec {
    interchange::codec("claude-code").unwrap()
}

fn native() -> &'static dyn Codec {
    interchange::codec("native").unwrap()
}

fn exported(store: &Store) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.export_native(ExportScope::All, &mut bytes).unwrap();
    bytes
}

/// Does what the task's folder is for, and says how far it was read.
#[test]
#[ignore = "a child process of the tests below"]
fn goes_on() {
    let folder = task();
    let folder = Path::new(&folder);
    let store = Store::open(folder.join("store")).unwrap();
    let mut read = 0;
    let progress = |_| {
        read += 1;
        say(&format!("read {read}"));
    };
    if folder.join("grown").exists() {
        store.import_watched(folder.join("grown"), native(), progress)
    } else {
        store.import_again(folder.join("s.jsonl"), &Later, progress)
    }
    .unwrap();
    say("imported");
    std::thread::park();
}

/// Kills a child when it has read so much, an eighth more each round; answers whether it had said that it is done.
fn killed(name: &str, task: &Path, round: usize, reads: usize) -> bool {
    let mut child = Process::start(name, task.to_str().unwrap());
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
    child.kill().iter().any(|said| said == "imported") || round == 9
}

/// How many reads a whole import takes.
fn reads_of(import: impl FnOnce(&mut dyn FnMut(u64))) -> usize {
    let mut reads = 0;
    import(&mut |_| reads += 1);
    reads
}

#[test]
fn after_a_kill_what_a_native_file_adds_is_there_whole_or_not_at_all() {
    let text = text();
    let half = text.lines().take(LINES / 2).map(|it| it.len() + 1).sum();
    let first = Store::in_memory().unwrap();
    import(&first, &text.as_bytes()[..half]);
    let before = exported(&first);
    import(&first, text.as_bytes());
    let grown = exported(&first);
    let reads = {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("grown");
        fs::write(&path, &grown).unwrap();
        reads_of(|progress| {
            let store = Store::in_memory().unwrap();
            store.import_watched(&path, native(), progress).unwrap();
        })
    };
    let mut nothing = 0;
    for round in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("grown"), &grown).unwrap();
        let path = folder.path().join("store");
        let store = Store::open(&path).unwrap();
        store
            .import_from("before", before.as_slice(), native())
            .unwrap();
        drop(store);
        let acknowledged = killed("goes_on", folder.path(), round, reads);

        let store = Store::open(&path).unwrap();
        let found = rows(&store);
        assert!(found == LINES / 2 || found == LINES, "{found} rows");
        assert!(found == LINES || !acknowledged);
        assert_eq!(output(&store), 2 * found as u64);
        let expected = if found == LINES { &grown } else { &before };
        assert!(exported(&store) == *expected);
        nothing += usize::from(found < LINES);
        store
            .import_from("grown", grown.as_slice(), native())
            .unwrap();
        assert!(exported(&store) == grown);
    }
    assert!(
        (1..10).contains(&nothing),
        "{nothing} of 10 were killed before the end"
    );
}

#[test]
fn after_a_kill_a_file_is_read_anew_whole_or_not_at_all() {
    let text = text();
    let mut nothing = 0;
    for round in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("s.jsonl");
        fs::write(&file, &text).unwrap();
        let path = folder.path().join("store");
        let store = Store::open(&path).unwrap();
        let reads = reads_of(|progress| {
            store.import_watched(&file, claude(), progress).unwrap();
        });
        drop(store);
        let acknowledged = killed("goes_on", folder.path(), round, reads);

        let store = Store::open(&path).unwrap();
        let generations: Vec<u32> = sessions()
            .iter()
            .map(|session| store.locator().head_generation(session).unwrap().generation)
            .collect();
        assert!(
            generations.iter().all(|it| *it == generations[0]),
            "{generations:?}"
        );
        assert!(generations[0] == 1 || !acknowledged);
        assert_eq!((rows(&store), output(&store)), (LINES, 2 * LINES as u64));
        nothing += usize::from(generations[0] == 0);
        store.import_again(&file, &Later, |_| {}).unwrap();
        let head = store.locator().head_generation(&sessions()[0]).unwrap();
        assert_eq!(head.generation, 1);
        assert_eq!((rows(&store), output(&store)), (LINES, 2 * LINES as u64));
    }
    assert!(
        (1..10).contains(&nothing),
        "{nothing} of 10 were killed before the end"
    );
}
