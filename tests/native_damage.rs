//! What importing a damaged native file promises: the bad lines are named, and what stands on its own is there.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

#[allow(dead_code, reason = "other tests use the rest of it")]
mod support {
    pub mod picture;
    pub mod script;
    pub mod values;
    pub mod whole;
}

use support::script::{STEPS, World};
use support::values::meta;
use support::whole::exported;
use transcript_redb::interchange::{self, BadClass, FileReport};
use transcript_redb::{
    ErrorKind, ExportScope, Result, SessionRef, Store, TranscriptLocator, TranscriptMessage,
    TranscriptTurn,
};

fn import(store: &Store, bytes: &[u8]) -> Result<FileReport> {
    store.import_from("a file", bytes, interchange::codec("native").unwrap())
}

fn all(store: &Store) -> Vec<u8> {
    exported(store, ExportScope::All).unwrap()
}

/// Two sessions of five rows.
fn sample() -> Vec<u8> {
    let store = Store::in_memory().unwrap();
    let meta = meta("clerk", "two");
    for name in ["first", "second"] {
        let session = SessionRef::root(name);
        let history = store
            .locator()
            .open_session(&session, meta.clone())
            .unwrap();
        let rows: Vec<_> = (0..5)
            .map(|at| TranscriptMessage::user(format!("{name} {at}")))
            .collect();
        history
            .append_turn(TranscriptTurn::new(&[], &rows, &meta))
            .unwrap();
    }
    all(&store)
}

/// Appends a row.
fn turn(store: &Store, session: &str, text: &str) {
    let meta = meta("clerk", "two");
    let session = SessionRef::root(session);
    let history = store
        .locator()
        .open_session(&session, meta.clone())
        .unwrap();
    let prev = history.messages().unwrap();
    let next = [&prev[..], &[TranscriptMessage::user(text)]].concat();
    history
        .append_turn(TranscriptTurn::new(&prev, &next, &meta))
        .unwrap();
}

fn texts(store: &Store, session: &str) -> Vec<String> {
    let session = SessionRef::root(session);
    let meta = meta("clerk", "two");
    let history = store.locator().open_session(&session, meta).unwrap();
    let rows = history.messages().unwrap().into_iter();
    rows.map(|row| row.content).collect()
}

fn find(bytes: &[u8], text: &str) -> usize {
    let text = text.as_bytes();
    bytes.windows(text.len()).position(|at| at == text).unwrap()
}

/// The begin and the end of the line that `text` stands on, its LF included.
fn line_of(bytes: &[u8], text: &str) -> (usize, usize) {
    let at = find(bytes, text);
    let begin = bytes[..at].iter().rposition(|byte| *byte == b'\n');
    let end = at + find(&bytes[at..], "\n") + 1;
    (begin.map_or(0, |begin| begin + 1), end)
}

/// Lines are accounted for, and what was made is a store like every other.
fn check(report: &FileReport, store: &Store, file: &[u8]) {
    assert_eq!(report.bytes, file.len() as u64);
    let whole = report.bad == 0;
    if report.glued_records == 0 {
        let on_lines = report.records + report.blank_lines;
        assert!(on_lines <= report.lines && report.lines <= on_lines + report.bad);
        assert!(!whole || on_lines == report.lines);
    }
    for bad in &report.quarantined {
        assert!(bad.offset + bad.length <= report.bytes, "{bad:?}");
    }
    let before = all(store);
    let again = import(store, file).unwrap();
    assert_eq!((again.messages, again.input_tokens), (0, 0));
    assert_eq!(all(store), before);
    let other = Store::in_memory().unwrap();
    let report = import(&other, &before).unwrap();
    assert_eq!(report.bad, 0, "{:?}", report.quarantined);
    assert!(all(&other) == before);
}

#[test]
fn a_record_that_is_missing_leaves_a_gap_and_the_others_in_order() {
    let mut file = sample();
    let (begin, end) = line_of(&file, "first 2");
    let line = file[..begin].split(|byte| *byte == b'\n').count() as u64;
    file[begin + 3] = b'"';
    let store = Store::in_memory().unwrap();
    let report = import(&store, &file).unwrap();
    assert_eq!(report.bad, 1);
    let bad = report.quarantined[0];
    assert_eq!((bad.line, bad.offset), (line, begin as u64));
    assert_eq!(bad.length, (end - begin - 1) as u64);
    assert_eq!(
        texts(&store, "first"),
        ["first 0", "first 1", "first 3", "first 4"]
    );
    assert_eq!(texts(&store, "second").len(), 5);
    check(&report, &store, &file);
    // Cut out whole, only the last line can tell.
    let mut file = sample();
    file.drain(begin..end);
    let store = Store::in_memory().unwrap();
    let report = import(&store, &file).unwrap();
    assert_eq!(report.bad, 1);
    assert_eq!(report.quarantined[0].line, report.lines);
    assert_eq!(texts(&store, "first").len(), 4);
}

#[test]
fn what_the_store_has_is_not_missing() {
    let store = Store::in_memory().unwrap();
    import(&store, &sample()).unwrap();
    let other = Store::in_memory().unwrap();
    import(&other, &all(&store)).unwrap();
    turn(&store, "first", "and on");
    let mut file = all(&store);
    let (begin, _) = line_of(&file, "first 2");
    file[begin] = b'x';
    let (begin, _) = line_of(&file, "second 4");
    file.truncate(begin);
    let report = import(&other, &file).unwrap();
    assert_eq!((report.bad, report.messages), (2, 1));
    assert!(all(&other) == all(&store));
    turn(&other, "first", "by a host");
    assert_eq!(texts(&other, "first").len(), 7);
}

#[test]
fn records_of_a_transcript_that_is_missing_are_given_to_no_other() {
    let mut file = sample();
    let first = line_of(&file, "\"type\":\"transcript\"").1;
    let begin = first + line_of(&file[first..], "\"type\":\"transcript\"").0;
    file[begin] = b'x';
    let store = Store::in_memory().unwrap();
    let report = import(&store, &file).unwrap();
    assert_eq!(report.bad, 6);
    assert_eq!(texts(&store, "first").len(), 5);
    assert_eq!(store.sessions().unwrap().len(), 1);
    check(&report, &store, &file);
}

#[test]
fn a_cut_file_goes_on_when_all_of_it_is_there() {
    let whole = sample();
    for cut in (0..whole.len()).step_by(7) {
        let store = Store::in_memory().unwrap();
        let report = import(&store, &whole[..cut]).unwrap();
        assert_eq!(report.is_barren(), report.records == 0);
        assert!(report.records == 0 || report.bad > 0, "at {cut}");
        check(&report, &store, &whole[..cut]);
        import(&store, &whole).unwrap();
        assert!(all(&store) == whole, "after a cut at {cut}");
    }
}

#[test]
fn what_is_around_lines_is_told_apart() {
    let whole = sample();
    let text = String::from_utf8(whole.clone()).unwrap();
    let glued = {
        let (_, end) = line_of(&whole, "first 2");
        [&whole[..end - 1], &whole[end..]].concat()
    };
    let (begin, _) = line_of(&whole, "first 3");
    let nul = [&whole[..begin], b"\0\0\0\0\n", &whole[begin..]].concat();
    let bom = [b"\xef\xbb\xbf", &whole[..]].concat();
    let blank = text.replace('\n', "\r\n\n").into_bytes();
    let shape = [&whole[..begin], b"[1]\n", &whole[begin..]].concat();
    let cases: [(&[u8], Option<BadClass>); 5] = [
        (&glued, None),
        (&nul, Some(BadClass::NulRun)),
        (&bom, Some(BadClass::Bom)),
        (&blank, None),
        (&shape, Some(BadClass::WrongShape)),
    ];
    for (file, class) in cases {
        let store = Store::in_memory().unwrap();
        let report = import(&store, file).unwrap();
        let found = report
            .quarantined
            .iter()
            .find(|bad| bad.line < report.lines);
        assert_eq!(found.map(|bad| bad.class), class);
        assert!(all(&store) == whole, "{class:?}");
        check(&report, &store, file);
    }
}

#[test]
fn what_is_no_export_makes_nothing() {
    let others: [&[u8]; 5] = [
        b"",
        b"\n\n",
        b"{\"type\":\"user\",\"message\":{}}\n{}\n",
        b"\xff\xfe\0\0",
        b"{\"format\":\"other\",\"version\":1}\n",
    ];
    for file in others {
        let store = Store::in_memory().unwrap();
        let report = import(&store, file).unwrap();
        assert!(report.is_barren());
        assert!(store.sessions().unwrap().is_empty());
    }
    let store = Store::in_memory().unwrap();
    let newer = b"{\"format\":\"transcript-redb\",\"version\":2}\n";
    assert_eq!(
        import(&store, newer).unwrap_err().kind(),
        ErrorKind::NewerFormat
    );
}

#[test]
fn any_damage_leaves_a_store_like_every_other() {
    let world = World::over(World::builder().in_memory().unwrap()).unwrap();
    for (name, step) in STEPS {
        step(&world).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let whole = all(&world.store);
    let mut random = 7u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % below as u64).unwrap()
    };
    for round in 0..120 {
        let mut file = whole.clone();
        match round % 5 {
            0 => file.truncate(next(whole.len())),
            1 => {
                let at = next(file.len());
                file[at] ^= 1 << next(8);
            }
            2 => {
                let at = next(file.len());
                file.insert(at, u8::try_from(next(256)).unwrap());
            }
            3 => {
                for _ in 0..20 {
                    let at = next(file.len());
                    file[at] = u8::try_from(next(256)).unwrap();
                }
            }
            _ => {
                let from = next(file.len());
                let to = (from + next(5_000) + 1).min(file.len());
                file.drain(from..to);
            }
        }
        let store = Store::in_memory().unwrap();
        match import(&store, &file) {
            Ok(report) => {
                assert!(report.bad > 0 || all(&store) == whole, "round {round}");
                check(&report, &store, &file);
            }
            Err(error) => assert_eq!(
                error.kind(),
                ErrorKind::NewerFormat,
                "round {round}: {error}"
            ),
        }
    }
}
