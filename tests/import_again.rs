//! What reading files anew promises: new rows in a new generation, nothing erased, nothing counted twice, whole or not at
//! all.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod support {
    pub mod whole;
}

use std::fs;
use std::path::{Path, PathBuf};

use support::whole::{exported, whole};
use tempfile::TempDir;
use transcript_redb::interchange::{
    self, CallFact, Certainty, Codec, Emit, Fact, FileReport, Kept, OneFile, Probe, RowFact, Sink,
    Source, Writer,
};
use transcript_redb::{
    Error, ErrorKind, ExportScope, RecordKind, Result, SessionRef, SpendGroup, SpendQuery, Store,
    TranscriptLocator, TranscriptMessage, TranscriptMeta,
};

/// What a later version of a codec does to what the present one tells.
#[derive(Clone, Copy)]
enum Change {
    Nothing,
    /// It says more of each row.
    Rows,
    /// It reads ten times the output of each call.
    Calls,
    /// It tells nothing of rows that begin with this.
    Without(&'static str),
    /// It fails at the end of the file.
    Fails,
}

/// A codec as it may be one day.
struct Later {
    of: &'static dyn Codec,
    version: u32,
    change: Change,
}

struct Changed<'e, 's>(&'e mut Emit<'s>, Change);

impl Sink for Changed<'_, '_> {
    fn take(&mut self, mut fact: Fact) -> Result<()> {
        let row = |row: &mut RowFact| row.message.content.insert_str(0, "better ");
        match (self.1, &mut fact) {
            (Change::Rows, Fact::Row(_, it)) => row(it),
            (Change::Rows, Fact::Context(context)) => {
                for kept in &mut context.rows {
                    if let Kept::New(_, it) = kept {
                        row(it);
                    }
                }
            }
            (Change::Calls, Fact::Call(call)) => {
                let CallFact { usage, .. } = call.as_mut();
                usage.usage.output *= 10;
            }
            (Change::Rows, Fact::Session(_, session)) => {
                session.spawned_by = Some("a better reader".to_owned());
            }
            (Change::Without(text), Fact::Row(_, it)) if it.message.content.starts_with(text) => {
                return Ok(());
            }
            _ => {}
        }
        self.0.fact(fact)
    }
}

impl Codec for Later {
    fn name(&self) -> &'static str {
        self.of.name()
    }

    fn version(&self) -> u32 {
        self.of.version() + self.version
    }

    fn names_generations(&self) -> bool {
        self.of.names_generations()
    }

    fn detect(&self, probe: &Probe<'_>) -> Option<Certainty> {
        self.of.detect(probe)
    }

    fn read(&self, source: &mut Source<'_>, emit: &mut Emit<'_>) -> Result<()> {
        let mut sink = Changed(emit, self.change);
        self.of.read(source, &mut Emit::new(&mut sink))?;
        match self.change {
            Change::Fails => Err(Error::other("the end")),
            _ => Ok(()),
        }
    }

    fn writer(&self) -> Option<Box<dyn Writer>> {
        self.of.writer()
    }
}

fn later(version: u32, change: Change) -> Later {
    let of = claude();
    Later {
        of,
        version,
        change,
    }
}

fn claude() -> &'static dyn Codec {
    interchange::codec("claude-code").unwrap()
}

/// A session, in which every second line tells of a call; two lines tell of each.
fn lines(session: &str, count: usize) -> String {
    let uuid = |at: usize| format!("00000000-0000-4000-8000-{at:012x}");
    (1..=count)
        .map(|at| {
            let (kind, more) = match at % 2 {
                1 => ("user", String::new()),
                _ => (
                    "assistant",
                    format!(
                        r#","id":"msg_{}","model":"m","usage":{{"input_tokens":3,"output_tokens":{at}}}"#,
                        at / 4
                    ),
                ),
            };
            format!(
                r#"{{"type":"{kind}","sessionId":"{session}","uuid":"{}","parentUuid":"{}","timestamp":"2026-08-01T09:00:{:02}.000Z","message":{{"role":"{kind}","content":"text {at}"{more}}}}}"#,
                uuid(at),
                uuid(at - 1),
                at % 60
            ) + "\n"
        })
        .collect()
}

/// A store, and a file that changes.
struct Place {
    store: Store,
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            store: Store::in_memory().unwrap(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("s.jsonl")
    }

    fn write(&self, count: usize) {
        fs::write(self.path(), lines("s", count)).unwrap();
    }

    fn import(&self, count: usize) -> FileReport {
        self.write(count);
        self.store.import(self.path(), claude()).unwrap()
    }

    fn again(&self, codec: &dyn Codec) -> Result<FileReport> {
        self.store.import_again(self.path(), codec, |_| {})
    }

    fn head(&self) -> SessionRef {
        let head = self.store.locator().head_generation(&SessionRef::root("s"));
        head.unwrap()
    }

    fn texts(&self, session: &SessionRef) -> Vec<String> {
        texts(&self.store, session)
    }
}

fn texts(store: &Store, session: &SessionRef) -> Vec<String> {
    let found = store.locator().read_session_transcript(session).unwrap();
    let read = found.unwrap().read_session().unwrap().unwrap();
    read.messages.into_iter().map(|row| row.content).collect()
}

fn expected(prefix: &str, count: usize) -> Vec<String> {
    (1..=count).map(|at| format!("{prefix}text {at}")).collect()
}

/// All that a store shows of spend, by session and hour and by thread.
fn spend(store: &Store) -> String {
    let by_hour = store.spend(SpendQuery {
        group_by: vec![SpendGroup::Hour, SpendGroup::Session],
        ..SpendQuery::default()
    });
    let thread = store.locator().thread_spend("s").unwrap();
    format!("{:?} {thread:?}", by_hour.unwrap())
}

/// The same of a store into which a codec read a file of so many lines at once.
fn spend_at_once(count: usize, codec: &dyn Codec) -> String {
    let place = Place::new();
    place.write(count);
    place.store.import(place.path(), codec).unwrap();
    spend(&place.store)
}

#[test]
fn what_is_read_anew_is_the_next_generation_and_nothing_is_erased() {
    let place = Place::new();
    place.import(10);
    let totals = spend(&place.store);
    let report = place.again(&later(1, Change::Rows)).unwrap();
    assert_eq!(
        (report.messages, report.output_tokens, report.cost_usd),
        (10, 0, 0.0)
    );
    let (first, second) = (SessionRef::root("s"), place.head());
    assert_eq!(second.generation, 1);
    assert_eq!(place.texts(&first), expected("", 10));
    assert_eq!(place.texts(&second), expected("better ", 10));
    assert_eq!(spend(&place.store), totals);
    let told = place.store.attributes(&first).unwrap();
    assert_eq!(told.spawned_by.as_deref(), Some("a better reader"));
    let chain = place.store.locator().session_chain(&first).unwrap();
    assert_eq!(chain.len(), 2);
    let third = place.again(&later(2, Change::Nothing)).unwrap();
    assert_eq!(third.messages, 10);
    assert_eq!(place.head().generation, 2);
    assert_eq!(place.texts(&place.head()), expected("", 10));
    assert_eq!(spend(&place.store), totals);
    let sources = place.store.sources().unwrap();
    assert_eq!(sources.len(), 1, "it is the same file");
    assert_eq!(sources[0].codec_version, claude().version() + 2);
    let mut out = Vec::new();
    place
        .store
        .export_original(sources[0].id, &mut out)
        .unwrap();
    assert_eq!(out, fs::read(place.path()).unwrap());
}

#[test]
fn each_row_revises_the_one_that_it_says_anew() {
    let place = Place::new();
    place.import(6);
    place.again(&later(1, Change::Rows)).unwrap();
    let session = SessionRef::root("s");
    let rows = |generation| {
        let records = place.store.session_records(&session).unwrap();
        let records = records.map(|record| record.unwrap());
        records
            .filter(|it| it.kind == RecordKind::Message && it.generation == generation)
            .map(|it| (it.uuid, it.message.unwrap().revises))
            .collect::<Vec<_>>()
    };
    let (old, new) = (rows(0), rows(1));
    assert_eq!(old.len(), 6);
    let revised: Vec<_> = new.iter().map(|(_, revised)| revised.unwrap()).collect();
    assert_eq!(
        revised,
        old.iter().map(|(uuid, _)| *uuid).collect::<Vec<_>>()
    );
}

#[test]
fn what_this_version_read_is_not_read_anew_and_what_is_new_is_imported() {
    let place = Place::new();
    place.write(10);
    assert_eq!(place.again(claude()).unwrap().messages, 10);
    for (codec, generation) in [
        (later(0, Change::Rows), 0),
        (later(1, Change::Rows), 1),
        (later(1, Change::Rows), 1),
        (later(0, Change::Nothing), 1),
    ] {
        place.again(&codec).unwrap();
        assert_eq!(place.head().generation, generation);
    }
    let before = whole(&place.store).unwrap();
    let report = place.again(&later(1, Change::Rows)).unwrap();
    assert_eq!((report.messages, report.duplicates >= 10), (0, true));
    assert!(whole(&place.store).unwrap() == before);
}

#[test]
fn afterwards_the_same_file_adds_nothing_and_a_grown_one_its_new_lines() {
    // The last call of eight lines is told of once more, with a larger output, by the next ones.
    let at_once = spend_at_once(12, claude());
    let place = Place::new();
    place.import(8);
    place.again(&later(1, Change::Rows)).unwrap();
    let before = whole(&place.store).unwrap();
    assert_eq!(place.import(8).messages, 0);
    assert!(whole(&place.store).unwrap() == before);
    assert_eq!(place.import(12).messages, 4);
    let mut all = expected("better ", 8);
    all.extend(expected("", 12).split_off(8));
    assert_eq!(place.head().generation, 1);
    assert_eq!(place.texts(&place.head()), all);
    assert_eq!(spend(&place.store), at_once);
    // Grown and read anew at once.
    let both = Place::new();
    both.import(8);
    both.write(12);
    let report = both.again(&later(1, Change::Rows)).unwrap();
    assert_eq!(report.messages, 12);
    assert_eq!(both.texts(&both.head()), expected("better ", 12));
    assert_eq!(spend(&both.store), at_once);
}

#[test]
fn a_call_of_which_more_is_read_counts_as_much_as_was_read_last() {
    let place = Place::new();
    place.import(12);
    let report = place.again(&later(1, Change::Calls)).unwrap();
    assert_eq!(report.messages, 12);
    assert_eq!(
        spend(&place.store),
        spend_at_once(12, &later(1, Change::Calls))
    );
    let session = SessionRef::root("s");
    assert_eq!(place.texts(&session), expected("", 12));
    let chain = place.store.locator().session_chain(&session).unwrap();
    assert_eq!(chain.len(), 2);
    place.again(&later(2, Change::Nothing)).unwrap();
    assert_eq!(
        spend(&place.store),
        spend_at_once(12, &later(1, Change::Calls)),
        "what was counted stays counted"
    );
}

#[test]
fn a_row_that_a_version_no_longer_tells_stays_in_the_generation_before() {
    let place = Place::new();
    place.import(6);
    place.again(&later(1, Change::Without("text 3"))).unwrap();
    let mut left = expected("", 6);
    left.remove(2);
    assert_eq!(place.texts(&place.head()), left);
    assert_eq!(place.texts(&SessionRef::root("s")), expected("", 6));
}

#[test]
fn a_native_file_of_it_makes_an_equal_store() {
    let place = Place::new();
    place.import(8);
    place.again(&later(1, Change::Calls)).unwrap();
    let native = exported(&place.store, ExportScope::All).unwrap();
    let codec = interchange::codec("native").unwrap();
    let copy = Place::new();
    copy.store
        .import_from("n", native.as_slice(), codec)
        .unwrap();
    assert!(exported(&copy.store, ExportScope::All).unwrap() == native);
    assert!(whole(&copy.store).unwrap() == whole(&place.store).unwrap());
    // The copy knows the keys of the generation, too.
    fs::write(place.path(), lines("s", 12)).unwrap();
    let grown = copy.store.import(place.path(), claude()).unwrap();
    assert_eq!((grown.messages, copy.head().generation), (4, 1));
}

#[test]
fn what_did_not_come_from_the_file_alone_is_not_left_behind() {
    let place = Place::new();
    place.import(4);
    let session = SessionRef::root("s");
    let history = place
        .store
        .locator()
        .open_session(&session, TranscriptMeta::new("host"));
    let by_host = TranscriptMessage::user("by the host");
    history.unwrap().append(by_host).unwrap();
    let before = whole(&place.store).unwrap();
    let refused = place.again(&later(1, Change::Rows)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(whole(&place.store).unwrap() == before);

    let two = Place::new();
    two.import(4);
    let other = two.folder.path().join("other.jsonl");
    fs::write(&other, lines("s", 6)).unwrap();
    two.store.import(&other, claude()).unwrap();
    let before = whole(&two.store).unwrap();
    let refused = two.again(&later(1, Change::Rows)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(whole(&two.store).unwrap() == before);
}

#[test]
fn files_that_name_generations_and_images_are_refused() {
    let place = Place::new();
    place.write(2);
    for name in ["native", "classic"] {
        let codec = interchange::codec(name).unwrap();
        let refused = place.again(codec).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Other, "{name}");
    }
    assert!(place.store.sources().unwrap().is_empty());
}

#[test]
fn an_import_that_fails_leaves_what_was_there() {
    let place = Place::new();
    place.import(9_000);
    let before = whole(&place.store).unwrap();
    assert!(place.again(&later(1, Change::Fails)).is_err());
    assert!(whole(&place.store).unwrap() == before);
    assert_eq!(place.import(9_000).messages, 0);
    let done = place.again(&later(1, Change::Rows)).unwrap();
    assert_eq!((done.messages, place.head().generation), (9_000, 1));
}

/// Invented files of all formats whose sessions can be read anew.
fn fixtures() -> [(&'static str, &'static str); 4] {
    [
        ("claude-code", "src/interchange/claude_code/fixture.jsonl"),
        ("codex", "src/interchange/codex/fixture.jsonl"),
        ("record-log", "src/interchange/record_log/session.jsonl"),
        ("checkpoint", "src/interchange/checkpoint/run.json"),
    ]
}

#[test]
fn of_every_format_the_new_generation_reads_like_the_first_and_exports_the_same_bytes() {
    for (format, path) in fixtures() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let of = interchange::codec(format).unwrap();
        let store = Store::in_memory().unwrap();
        store.import(&path, of).unwrap();
        let sessions = store.sessions().unwrap();
        let sessions: Vec<SessionRef> = sessions.into_iter().filter_map(|it| it.session).collect();
        let exports = |of: &SessionRef| {
            let mut target = OneFile::new(Vec::new());
            let done = store.export(std::slice::from_ref(of), format, &mut target);
            done.map(|_| target.into_inner())
                .map_err(|error| error.kind())
        };
        let totals = |of: &SessionRef| {
            let query = SpendQuery {
                session: Some(of.first_generation()),
                ..SpendQuery::default()
            };
            format!("{:?}", store.spend(query).unwrap())
        };
        let before: Vec<_> = sessions
            .iter()
            .map(|it| (texts(&store, it), exports(it), totals(it)))
            .collect();
        assert!(!before.is_empty(), "{format}");
        let change = Change::Nothing;
        let version = 1;
        let codec = Later {
            of,
            version,
            change,
        };
        let report = store.import_again(&path, &codec, |_| {}).unwrap();
        assert!(report.messages > 0, "{format}");
        assert_eq!(report.output_tokens, 0, "{format}");
        for (session, before) in sessions.iter().zip(before) {
            let head = store.locator().head_generation(session).unwrap();
            assert_eq!(head.generation, session.generation + 1, "{format}");
            let after = (texts(&store, &head), exports(session), totals(session));
            assert_eq!(after, before, "{format}");
        }
    }
}
