//! Hostile names: ids are data, never paths, and never made equal by being cleaned (contract section 2.2).

use serde_json::json;

use super::support::{
    answered, assistant, charged, contents, found, messages, meta, meta_with_id, must, open,
    open_stem, shown, turn_with, user, written, written_with,
};
use super::{Check, Factory};
use crate::{
    BackgroundAppend, BackgroundAppendOutcome, SessionRef, TranscriptMessage, TranscriptPart,
    TruncateCut, session_stem,
};

pub(super) const CHECKS: &[Check] = table![
    hostile_stems_are_different_transcripts,
    hostile_session_keys_are_different_sessions,
    hostile_agent_ids_are_different_sessions,
    long_names_that_differ_late_are_different,
    hostile_thread_ids_are_different_threads,
    hostile_agent_names_are_different_agents,
    hostile_idempotency_keys_are_different_keys,
    hostile_row_ids_and_roles_read_back,
    hostile_contents_read_back,
    a_row_that_looks_like_a_record_is_a_row,
];

/// Names that a file system, a C string, a query or a careless clean-up would confuse.
const NAMES: &[&str] = &[
    "a",
    "A",
    "a ",
    "a\0",
    "a\0b",
    "a\u{1}b",
    "a/b",
    "a\\b",
    "a//b",
    "a_b",
    "a.b",
    "a-b",
    "a:b",
    "a b",
    "a%2Fb",
    ".",
    "..",
    "../a",
    "../../etc/passwd",
    "/etc/passwd",
    "C:\\a",
    "~",
    "*",
    "'; drop table log; --",
    "\"",
    "{}",
    "null",
    "🦀",
    "🦀\u{200d}",
    "e\u{301}",
    "é",
    "日本",
    "\u{feff}a",
    "a\u{202e}b",
    "\u{10ffff}",
    "a\nb",
    "a\r\nb",
];

/// Each stem is itself, byte for byte.
pub fn hostile_stems_are_different_transcripts(factory: Factory<'_>) {
    let locator = factory();
    for name in NAMES {
        let handle = open_stem(&*locator, name);
        assert_eq!(handle.stem(), *name);
        assert!(
            must("a read works", handle.read_session()).is_none(),
            "{name:?}"
        );
        must("an append succeeds", handle.append(user(name)));
    }
    for name in NAMES {
        assert_eq!(contents(&*open_stem(&*locator, name)), [*name]);
    }
    let listed = must(
        "a look-up works",
        locator.thread_transcripts("thread", None),
    );
    assert_eq!(listed.pre_identity.len(), NAMES.len());
}

/// Keys that clean to the same text.
pub fn hostile_session_keys_are_different_sessions(factory: Factory<'_>) {
    let locator = factory();
    for name in NAMES.iter().chain(&[""]) {
        let session = SessionRef::root(*name);
        assert!(
            !must("a look-up works", locator.session_exists(&session)),
            "{name:?}"
        );
        let handle = open(&*locator, &session);
        must("an append succeeds", handle.append(user(name)));
    }
    for name in NAMES.iter().chain(&[""]) {
        let session = SessionRef::root(*name);
        assert_eq!(contents(&*open(&*locator, &session)), [*name]);
        let chain = must("a look-up works", locator.session_chain(&session));
        assert_eq!(
            chain,
            [session],
            "the ref that comes back has the whole key"
        );
    }
    let listed = must(
        "a look-up works",
        locator.thread_transcripts("thread", None),
    );
    assert_eq!(listed.roots.len(), NAMES.len() + 1);
    for one in listed.roots {
        let session = one.session.expect("it was written through a ref");
        assert_eq!(one.stem, session_stem(&session));
        assert!(session.session_key.is_empty() || NAMES.contains(&&*session.session_key));
    }
}

/// The agent is part of the name.
pub fn hostile_agent_ids_are_different_sessions(factory: Factory<'_>) {
    let locator = factory();
    let sessions: Vec<_> = NAMES
        .iter()
        .flat_map(|name| {
            [
                SessionRef::scoped("k", *name),
                SessionRef::scoped(*name, "k"),
            ]
        })
        .collect();
    for (number, session) in sessions.iter().enumerate() {
        let handle = open(&*locator, session);
        must(
            "an append succeeds",
            handle.append(user(&number.to_string())),
        );
    }
    for (number, session) in sessions.iter().enumerate() {
        assert_eq!(contents(&*open(&*locator, session)), [number.to_string()]);
    }
}

/// Half a megabyte that is the same, and one byte that is not.
pub fn long_names_that_differ_late_are_different(factory: Factory<'_>) {
    let locator = factory();
    let long = "long/".repeat(100_000);
    for end in ["a", "b", "a\0"] {
        let name = format!("{long}{end}");
        let stem = open_stem(&*locator, &name);
        must("an append succeeds", stem.append(user(end)));
        let session = open_with_thread(&*locator, &SessionRef::root(&*name), &name);
        must("an append succeeds", session.append(user(end)));
    }
    for end in ["a", "b", "a\0"] {
        let name = format!("{long}{end}");
        assert_eq!(contents(&*open_stem(&*locator, &name)), [end]);
        let session = SessionRef::root(&*name);
        assert_eq!(contents(&*open(&*locator, &session)), [end]);
        let root = found(locator.root_for_thread(&name));
        assert_eq!(root, Some(session_stem(&session)));
    }
}

fn open_with_thread(
    locator: &dyn crate::TranscriptLocator,
    session: &SessionRef,
    thread: &str,
) -> std::sync::Arc<dyn crate::TranscriptHistory> {
    super::support::open_with(locator, session, meta("agent", thread))
}

/// Threads are equal only when they are, apart from white space around them.
pub fn hostile_thread_ids_are_different_threads(factory: Factory<'_>) {
    let locator = factory();
    let threads: Vec<_> = NAMES.iter().filter(|name| name.trim() == **name).collect();
    for thread in &threads {
        let handle = open_with_thread(&*locator, &SessionRef::root(**thread), thread);
        turn_with(
            &*handle,
            &[answered("x", charged(1, 1, 0.5))],
            &meta("agent", thread),
        );
    }
    for thread in &threads {
        let stem = session_stem(&SessionRef::root(**thread));
        assert_eq!(found(locator.root_for_thread(thread)), Some(stem));
        let spend = must("spend can be read", locator.thread_spend(thread));
        assert_eq!(spend.root.turns, 1, "{thread:?}");
        let listed = must("a look-up works", locator.thread_transcripts(thread, None));
        assert_eq!(listed.roots.len(), 1, "{thread:?}");
    }
}

/// By name and by id, neither trimmed.
pub fn hostile_agent_names_are_different_agents(factory: Factory<'_>) {
    let locator = factory();
    for name in NAMES {
        written_with(
            &*locator,
            &SessionRef::scoped("name", *name),
            meta(name, "thread"),
        );
        written_with(
            &*locator,
            &SessionRef::scoped("id", *name),
            meta_with_id("other", &format!("id of {name}"), "thread"),
        );
    }
    for name in NAMES {
        let stem = session_stem(&SessionRef::scoped("name", *name));
        assert_eq!(
            found(locator.latest_for_agent(name)),
            Some(stem),
            "{name:?}"
        );
        let id = format!("id of {name}");
        let stem = session_stem(&SessionRef::scoped("id", *name));
        assert_eq!(
            found(locator.root_for_thread_scoped("thread", Some(&id))),
            Some(stem),
            "{name:?}"
        );
    }
}

/// Every key delivers once.
pub fn hostile_idempotency_keys_are_different_keys(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    for expected in [
        BackgroundAppendOutcome::Appended { generation: 0 },
        BackgroundAppendOutcome::Duplicate { generation: 0 },
    ] {
        for name in NAMES {
            let outcome = must(
                "a background append is answered",
                locator.append_background(
                    &session,
                    assistant(name),
                    &BackgroundAppend::new(*name, json!({ (*name): name })),
                ),
            );
            assert_eq!(outcome, expected, "{name:?}");
        }
    }
}

/// And a row is found by its id.
pub fn hostile_row_ids_and_roles_read_back(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = open(&*locator, &session);
    let rows: Vec<_> = NAMES
        .iter()
        .map(|name| {
            TranscriptMessage::new(*name, "x")
                .with_id(*name)
                .with_request_id(*name)
        })
        .collect();
    must("a replacement succeeds", handle.replace(&rows));
    for (row, name) in messages(&*handle).iter().zip(NAMES) {
        assert_eq!(row.role, *name);
        assert_eq!(row.id.as_deref(), Some(*name));
        assert_eq!(row.request_id.as_deref(), Some(*name));
    }
    let place = NAMES.len() / 2;
    let (_, _, kept) = must(
        "a row is found by its id",
        locator.truncate_into_next_generation(
            &session,
            TruncateCut::BeforeMessageId(NAMES[place].into()),
            meta("agent", "thread"),
        ),
    );
    assert_eq!(kept.len(), place);
}

/// Byte for byte, whatever is in them; no text is special.
pub fn hostile_contents_read_back(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let long = "\0🦀".repeat(200_000);
    let texts: Vec<_> = NAMES.iter().copied().chain(["", &long]).collect();
    let rows: Vec<_> = texts.iter().map(|text| assistant(text)).collect();
    turn_with(&*handle, &rows, &meta("agent", "thread"));
    for text in &texts {
        must("an append succeeds", handle.append(user(text)));
    }
    let read = contents(&*handle);
    assert!(read[..texts.len()] == texts, "a text of a turn has changed");
    assert!(read[texts.len()..] == texts, "an appended text has changed");
}

/// Text that looks like an older encoding, but is none, stays text.
pub fn a_row_that_looks_like_a_record_is_a_row(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let rows = [
        assistant(r#"{"tool_calls":[]}"#),
        assistant(r#"{"tool_calls":"none","content":"x"}"#),
        assistant(r#"{"_compaction":true,"messages":[]}"#),
        TranscriptMessage::tool(r#"{"tool_call_id":7}"#),
        user("[OH_IMAGE:never closed"),
        user(r#"{"_tinyagents_media_parts":[]}"#),
        TranscriptMessage::system(r#"{"tool_calls":[{"id":"c","name":"n","arguments":""}]}"#),
    ];
    turn_with(&*handle, &rows, &meta("agent", "thread"));
    let read = messages(&*handle);
    assert_eq!(shown(&*handle).len(), rows.len());
    for (row, given) in read.iter().zip(&rows) {
        assert_eq!(row.content, given.content);
        assert!(!row.is_typed(), "{}", row.content);
    }
    // And text parts alone make a plain row.
    let parts = TranscriptMessage::user_with_parts(vec![TranscriptPart::Text { text: "x".into() }]);
    must("an append succeeds", handle.append(parts));
    let last = messages(&*handle).pop().expect("a row was appended");
    assert_eq!((last.content.as_str(), last.parts), ("x", None));
}
