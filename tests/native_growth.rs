//! What importing a native file promises to a store that has a part of it: what is new in the file is added, all at once,
//! and what has become something else is refused.

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

use std::fmt::Write as _;

use serde_json::json;
use support::script::{STEPS, World};
use support::values::meta;
use support::whole::{exported, whole};
use transcript_redb::interchange::{self, FileReport};
use transcript_redb::testkit::SimDisk;
use transcript_redb::{
    ErrorKind, ExportScope, Result, SessionRef, SpendQuery, Store, TranscriptLocator,
    TranscriptMessage, TranscriptTurn, serde_json,
};

fn import(store: &Store, bytes: &[u8]) -> Result<FileReport> {
    store.import_from("a file", bytes, interchange::codec("native").unwrap())
}

fn all(store: &Store) -> Vec<u8> {
    exported(store, ExportScope::All).unwrap()
}

fn assert_same(store: &Store, other: &Store) {
    let [left, right] = [store, other].map(|store| whole(store).unwrap());
    for (left, right) in left.lines().zip(right.lines()) {
        assert_eq!(left, right);
    }
    assert_eq!(left.len(), right.len());
    let [left, right] = [store, other].map(|store| String::from_utf8(all(store)).unwrap());
    for (left, right) in left.lines().zip(right.lines()) {
        assert_eq!(left, right);
    }
    assert_eq!(left.len(), right.len());
}

/// Imports what `store` holds now, twice, and checks that `other` is the same then.
fn follow(store: &Store, other: &Store) -> FileReport {
    let bytes = all(store);
    let report = import(other, &bytes).unwrap();
    assert_same(store, other);
    let again = import(other, &bytes).unwrap();
    assert_eq!(
        (again.messages, again.compactions, again.input_tokens),
        (0, 0, 0)
    );
    assert_eq!((again.output_tokens, again.distinct_message_ids), (0, 0));
    assert_same(store, other);
    report
}

/// A session of another tool: turns whose responses have usages, some of them told twice.
fn claude(session: &str, turns: usize) -> String {
    let mut text = String::new();
    for at in 1..=turns {
        let uuid = |at: usize| format!("00000000-0000-4000-8000-{at:012x}");
        let message = match at % 2 {
            1 => json!({"role": "user", "content": format!("text {at}")}),
            _ => {
                json!({"role": "assistant", "content": [{"type": "text", "text": format!("text {at}")}],
                "id": format!("msg_{}", at / 4), "model": "m",
                "usage": {"input_tokens": 3, "cache_read_input_tokens": 7, "output_tokens": at}})
            }
        };
        let line = json!({"type": message["role"], "sessionId": session, "uuid": uuid(at),
            "parentUuid": uuid(at - 1), "timestamp": format!("2026-08-01T09:00:{:02}.000Z", at % 60),
            "message": message});
        writeln!(text, "{line}").unwrap();
    }
    text
}

fn give(store: &Store, name: &str, text: &str) {
    let codec = interchange::codec("claude-code").unwrap();
    store.import_from(name, text.as_bytes(), codec).unwrap();
}

/// Appends a turn to a root session of a host.
fn turn(store: &Store, session: &str, text: &str) {
    let meta = meta("clerk", "two");
    let history = store
        .locator()
        .open_session(&SessionRef::root(session), meta.clone())
        .unwrap();
    let prev = history.messages().unwrap();
    let new = [
        TranscriptMessage::user(format!("{text}?")),
        TranscriptMessage::assistant(format!("{text}.")),
    ];
    let next = [&prev[..], &new].concat();
    history
        .append_turn(TranscriptTurn::new(&prev, &next, &meta))
        .unwrap();
}

#[test]
fn every_kind_of_write_can_be_followed() {
    let world = World::over(World::builder().in_memory().unwrap()).unwrap();
    let other = Store::in_memory().unwrap();
    for (name, step) in STEPS {
        step(&world).unwrap_or_else(|error| panic!("{name}: {error}"));
        follow(&world.store, &other);
    }
    // The heads that the imports left are those that a host goes on from.
    let other = World::over(other).unwrap();
    assert_eq!(other.picture().unwrap(), world.picture().unwrap());
}

#[test]
fn imports_of_other_formats_can_be_followed() {
    let store = Store::in_memory().unwrap();
    let other = Store::in_memory().unwrap();
    let fork = claude("s", 23).replace("\"s\"", "\"fork\"");
    let larger = claude("s", 24).replace("\"output_tokens\":24", "\"output_tokens\":2400");
    let steps = [
        ("s.jsonl", claude("s", 9)),
        ("s.jsonl", claude("s", 20)),
        // The same calls in another session, one of them larger.
        (
            "fork.jsonl",
            fork.replace("\"output_tokens\":12", "\"output_tokens\":1200"),
        ),
        ("s.jsonl", larger),
        // Rewritten in place, and told by a second file.
        ("fork.jsonl", claude("t", 4)),
        ("copy.jsonl", claude("s", 26)),
        ("large.jsonl", claude("large", 1_500)),
        ("large.jsonl", claude("large", 3_000)),
    ];
    for (name, text) in steps {
        give(&store, name, &text);
        follow(&store, &other);
        let [left, right] = [&store, &other].map(|it| it.spend(SpendQuery::default()).unwrap());
        assert_eq!(left, right, "{name}");
        let [left, right] = [&store, &other].map(|it| it.sources().unwrap());
        assert_eq!(left, right, "{name}");
    }
}

#[test]
fn an_older_file_adds_nothing() {
    let store = Store::in_memory().unwrap();
    let other = Store::in_memory().unwrap();
    give(&store, "s.jsonl", &claude("s", 8));
    turn(&store, "hosted", "one");
    let older = all(&store);
    give(&store, "s.jsonl", &claude("s", 30));
    turn(&store, "hosted", "two");
    turn(&store, "new", "one");
    follow(&store, &other);
    let report = import(&other, &older).unwrap();
    assert_eq!((report.messages, report.input_tokens), (0, 0));
    assert_same(&store, &other);
}

#[test]
fn only_what_is_new_is_reported() {
    let store = Store::in_memory().unwrap();
    let other = Store::in_memory().unwrap();
    turn(&store, "hosted", "one");
    let first = follow(&store, &other);
    turn(&store, "hosted", "two");
    turn(&store, "new", "one");
    let second = follow(&store, &other);
    assert_eq!((first.messages, first.duplicates), (2, 0));
    assert_eq!((second.messages, second.duplicates), (4, 2));
    // Into the store that went on itself, too.
    let before = whole(&store).unwrap();
    assert_eq!(import(&store, &all(&other)).unwrap().messages, 0);
    assert_eq!(whole(&store).unwrap(), before);
}

#[test]
fn what_both_have_gone_on_with_is_a_conflict() {
    let store = Store::in_memory().unwrap();
    turn(&store, "hosted", "one");
    let shared = all(&store);
    let diverged = |theirs: &str, mine: &str, reason: &str| {
        let [a, b] = [theirs, mine].map(|text| {
            let store = Store::in_memory().unwrap();
            import(&store, &shared).unwrap();
            for line in text.split('+').filter(|line| !line.is_empty()) {
                turn(&store, "hosted", line);
            }
            turn(&store, text, "beside it");
            store
        });
        let before = whole(&b).unwrap();
        let refused = import(&b, &all(&a)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict, "{reason}");
        let text = refused.to_string();
        assert!(
            text.contains("hosted") && !text.contains("secret"),
            "{text}"
        );
        assert_eq!(whole(&b).unwrap(), before, "{reason}");
    };
    diverged("secret", "other", "as long in both");
    diverged("secret+secret", "other", "longer in the file");
    diverged("secret", "other+other", "longer in the store");
    // Made by a host, under the same name.
    let other = Store::in_memory().unwrap();
    turn(&other, "hosted", "one");
    let before = whole(&other).unwrap();
    assert_eq!(
        import(&other, &shared).unwrap_err().kind(),
        ErrorKind::Conflict
    );
    assert_eq!(whole(&other).unwrap(), before);
}

#[test]
fn a_record_that_says_something_else_is_a_conflict() {
    let store = Store::in_memory().unwrap();
    turn(&store, "hosted", "one");
    let other = Store::in_memory().unwrap();
    import(&other, &all(&store)).unwrap();
    turn(&store, "hosted", "two");
    let text = String::from_utf8(all(&store)).unwrap();
    let changed = text.replace("\"one?\"", "\"eins\"");
    let (lines, _) = changed.trim_end().rsplit_once('\n').unwrap();
    let file = vouched(lines);
    assert_eq!(
        import(&other, &file).unwrap_err().kind(),
        ErrorKind::Conflict
    );
}

fn vouched(lines: &str) -> Vec<u8> {
    use sha2::Digest as _;
    let text = format!("{lines}\n");
    let hash = format!("{:x}", sha2::Sha256::digest(&text));
    let end = json!({"type": "end", "lines": lines.lines().count(), "sha256": hash});
    format!("{text}{end}\n").into_bytes()
}

#[test]
fn a_power_cut_in_the_middle_leaves_the_former_or_all() {
    let store = Store::in_memory().unwrap();
    give(&store, "s.jsonl", &claude("s", 40));
    turn(&store, "hosted", "one");
    let former = all(&store);
    give(&store, "s.jsonl", &claude("s", 600));
    turn(&store, "hosted", "two");
    turn(&store, "new", "one");
    let grown = all(&store);
    let disk = SimDisk::new();
    let other = disk.open(World::builder()).unwrap();
    import(&other, &former).unwrap();
    disk.record();
    import(&other, &grown).unwrap();
    let acknowledged = disk.events();
    let syncs = disk.syncs();
    let first = syncs.len().saturating_sub(6);
    let moments = syncs.into_iter().enumerate();
    let moments = moments.filter(|(at, _)| *at >= first || at % 8 == 0);
    let mut seen = [0; 2];
    for events in moments
        .flat_map(|(_, event)| [event, event + 1])
        .chain([acknowledged])
    {
        let image = disk.power_cut(events.min(disk.events()), events as u64);
        let after = image.open(World::builder()).unwrap();
        let found = all(&after);
        let is_grown = found == grown;
        seen[usize::from(is_grown)] += 1;
        if !is_grown {
            assert!(found == former, "after {events} events");
            assert!(events < acknowledged);
            import(&after, &grown).unwrap();
            assert!(all(&after) == grown, "after {events} events");
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}
