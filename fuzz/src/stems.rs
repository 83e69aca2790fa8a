//! Identifiers of any content: keys, agents, stems, threads.

use std::collections::BTreeSet;

use transcript_redb::{
    InMemoryTranscriptLocator, Result, SessionRef, Store, TranscriptLocator, TranscriptMessage,
    TranscriptMeta,
};

/// The first of these many identifiers are used; each costs a few commits.
const IDS: usize = 6;

/// Identifiers, one a line. Different ones never meet in one transcript, and the store in a file's format answers as
/// the store in plain memory does.
pub fn stems(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let ids: Vec<&str> = text
        .split('\n')
        .collect::<BTreeSet<_>>()
        .into_iter()
        .take(IDS)
        .collect();
    let sessions = sessions(&ids);
    let stems: BTreeSet<String> = sessions.iter().map(SessionRef::session_id).collect();
    assert_eq!(stems.len(), sessions.len(), "one stem, one session");
    for session in &sessions {
        check_reference(session);
    }

    let store = Store::in_memory()
        .expect("a store in memory opens")
        .locator();
    let reference = InMemoryTranscriptLocator::new();
    for (number, session) in sessions.iter().enumerate() {
        let ours = write(&store, session, number);
        ours.expect("any short key, agent or thread is data");
        write(&reference, session, number).expect("in memory too");
    }
    // A raw stem may be a session's own, or name a generation that cannot be written: both stores must say the same.
    for (number, id) in ids.iter().enumerate() {
        let row = || TranscriptMessage::user(format!("raw {number}"));
        let ours = store
            .open_stem(id, meta(id))
            .and_then(|history| history.append(row()));
        let theirs = reference
            .open_stem(id, meta(id))
            .and_then(|history| history.append(row()));
        assert_eq!(
            ours.map_err(|error| error.kind()),
            theirs.map_err(|error| error.kind()),
            "raw stem {id:?}"
        );
    }

    for (number, session) in sessions.iter().enumerate() {
        let rows = rows(&store, session).expect("it reads back");
        assert_eq!(rows.first(), Some(&content(number)), "each has its own row");
        assert_eq!(
            rows,
            self::rows(&reference, session).expect("in memory too")
        );
    }
    for id in &ids {
        assert_eq!(
            look_up(&store, id),
            look_up(&reference, id),
            "look-ups of {id:?}"
        );
    }
}

/// Roots, scoped roots and children of every pair of neighbours.
fn sessions(ids: &[&str]) -> Vec<SessionRef> {
    let mut sessions = Vec::new();
    for (at, id) in ids.iter().enumerate() {
        let neighbour = ids.get(at + 1).copied().unwrap_or("");
        let root = SessionRef::root(*id);
        let scoped = SessionRef::scoped(*id, neighbour);
        let child = SessionRef::child_of(&root, neighbour);
        let grandchild = SessionRef::child_of(&child, *id);
        sessions.extend([root, scoped, child, grandchild]);
    }
    sessions
}

fn check_reference(session: &SessionRef) {
    let stem = session.session_id();
    assert!(
        stem.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte)),
        "a stem is a plain name"
    );
    let next = session.next_generation();
    assert_eq!(next.session_id(), format!("{stem}.g1"));
    assert_eq!(next.parent_session_id(), Some(stem));
    assert_eq!(&next.first_generation(), session);
    assert_eq!(session.is_subagent(), session.parent_stem().is_some());
}

fn meta(id: &str) -> TranscriptMeta {
    TranscriptMeta::new(id)
        .with_thread_id(id)
        .with_created("2024-11-30T11:00:00Z")
        .with_updated("2024-11-30T11:00:00Z")
}

fn content(number: usize) -> String {
    format!("row of session {number}")
}

fn write(locator: &dyn TranscriptLocator, session: &SessionRef, number: usize) -> Result<()> {
    locator
        .open_session(session, meta(&session.session_key))?
        .append(TranscriptMessage::user(content(number)))
}

fn rows(locator: &dyn TranscriptLocator, session: &SessionRef) -> Result<Vec<String>> {
    let history = locator.open_session(session, TranscriptMeta::new("reader"))?;
    let rows = history.messages()?;
    Ok(rows.into_iter().map(|row| row.content).collect())
}

/// What the two stores must agree on: the stems that each look-up of an identifier finds.
fn look_up(locator: &dyn TranscriptLocator, id: &str) -> [Vec<String>; 5] {
    let stem = |found: Result<Option<std::sync::Arc<dyn transcript_redb::TranscriptRead>>>| {
        let found = found.expect("a look-up works");
        found.iter().map(|read| read.stem().to_owned()).collect()
    };
    let thread = locator
        .thread_transcripts(id, None)
        .expect("a thread can be listed");
    let stems = |list: Vec<transcript_redb::ThreadTranscript>| {
        list.into_iter().map(|transcript| transcript.stem).collect()
    };
    [
        stem(locator.latest_for_agent(id)),
        stem(locator.root_for_thread(id)),
        stems(thread.roots),
        stems(thread.pre_identity),
        stems(thread.subagents),
    ]
}
