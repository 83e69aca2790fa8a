//! Generations: opening the successor of a session, the seal, and the limits of a chain (contract section 3.1).

use serde_json::json;

use super::support::{
    assert_sealed, assistant, begin, contents, live_uuids, messages, meta, must, open, open_stem,
    refused, refused_without_trace, succeed, turn_with, user, written,
};
use super::{Check, Factory};
use crate::{ErrorKind, SessionRef, TranscriptTurn, session_stem};

pub(super) const CHECKS: &[Check] = table![
    a_successor_takes_the_next_generation_and_its_stem,
    the_seed_of_a_successor_names_both_sessions,
    a_successor_becomes_the_head_at_its_first_write,
    a_successor_can_be_opened_by_an_append_or_a_replacement,
    a_successor_can_be_opened_by_a_turn_without_rows,
    a_successor_starts_without_tools,
    an_unwritten_generation_has_no_successor,
    a_written_successor_forbids_another_one,
    an_older_generation_cannot_be_succeeded_again,
    a_sealed_generation_refuses_every_write_and_still_reads,
    handles_opened_before_the_seal_are_refused_as_well,
    a_baseline_has_to_be_what_is_stored,
    a_generation_can_be_opened_by_its_ref,
    a_raw_stem_of_a_generation_is_that_generation,
    a_generation_beyond_the_next_cannot_be_written,
    a_raw_stem_beyond_the_limit_cannot_be_written,
    a_chain_ends_at_its_limit,
];

/// The successor's ref is `next_generation()` of exactly the ref given.
pub fn a_successor_takes_the_next_generation_and_its_stem(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::scoped("k", "a");
    written(&*locator, &session);
    let (successor, handle) = begin(&*locator, &session);
    assert_eq!(successor, session.next_generation());
    assert_eq!(handle.stem(), format!("{}.g1", session_stem(&session)));
    assert_eq!(messages(&*handle), [], "a successor starts empty");
}

/// The seed gets `session_id` and `parent_session_id`; a turn's own meta stays verbatim.
pub fn the_seed_of_a_successor_names_both_sessions(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    let (successor, handle) = begin(&*locator, &session);
    must("an append succeeds", handle.append(user("on")));
    let read = must("a read works", handle.read_session()).expect("it was written");
    let mut expected = meta("agent", "thread");
    expected.session_id = Some(session_stem(&successor));
    expected.parent_session_id = Some(session_stem(&session));
    assert_eq!(read.meta, expected);
    let own = meta("agent", "thread");
    turn_with(&*handle, &[user("turn")], &own);
    let read = must("a read works", handle.read_session()).expect("it was written");
    assert_eq!(read.meta, own);
}

/// From its first write the successor is head, in the chain, and its predecessor is sealed.
pub fn a_successor_becomes_the_head_at_its_first_write(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = written(&*locator, &session);
    let (successor, handle) = begin(&*locator, &session);
    turn_with(&*handle, &[user("summary")], &meta("agent", "thread"));
    let head = must("a look-up works", locator.head_generation(&session));
    assert_eq!(head, successor);
    assert!(must("a look-up works", locator.session_exists(&successor)));
    let chain = must("a look-up works", locator.session_chain(&session));
    assert_eq!(chain, [session.clone(), successor.clone()]);
    refused(
        "a seal holds",
        first.append(user("late")),
        ErrorKind::Sealed,
    );
    must("a successor goes on", handle.append(user("more")));
    assert_eq!(contents(&*open(&*locator, &successor)), ["summary", "more"]);
}

/// Every kind of first write opens a successor.
pub fn a_successor_can_be_opened_by_an_append_or_a_replacement(factory: Factory<'_>) {
    for by_append in [true, false] {
        let locator = factory();
        let session = SessionRef::root("k");
        let first = written(&*locator, &session);
        let (successor, handle) = begin(&*locator, &session);
        let write = if by_append {
            handle.append(user("on"))
        } else {
            handle.replace(&[user("on")])
        };
        must("the first write of a successor succeeds", write);
        let head = must("a look-up works", locator.head_generation(&session));
        assert_eq!(head, successor);
        assert_eq!(contents(&*handle), ["on"]);
        refused(
            "a seal holds",
            first.append(user("late")),
            ErrorKind::Sealed,
        );
    }
}

/// An empty first write is a first write.
pub fn a_successor_can_be_opened_by_a_turn_without_rows(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = written(&*locator, &session);
    let (successor, handle) = succeed(&*locator, &session, &[], &meta("agent", "thread"));
    assert!(must("a look-up works", locator.session_exists(&successor)));
    assert_eq!(messages(&*handle), []);
    refused(
        "a seal holds",
        first.append(user("late")),
        ErrorKind::Sealed,
    );
}

/// The tools record of the predecessor is not inherited.
pub fn a_successor_starts_without_tools(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let tools = json!(["search"]);
    let meta = meta("agent", "thread");
    let first = open(&*locator, &session);
    let next = [user("hi")];
    let turn = TranscriptTurn {
        tools: Some(&tools),
        ..TranscriptTurn::new(&[], &next, &meta)
    };
    must("a turn succeeds", first.append_turn(turn));
    let (_, handle) = succeed(&*locator, &session, &messages(&*first), &meta);
    let read = must("a read works", handle.read_session()).expect("it was written");
    assert_eq!(read.tools, None);
    let read = must("a read works", first.read_session()).expect("it was written");
    assert_eq!(read.tools, Some(tools), "the predecessor keeps its own");
}

/// A chain has no gaps.
pub fn an_unwritten_generation_has_no_successor(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let seed = || meta("agent", "thread");
    refused(
        "nothing is written",
        locator.begin_generation(&session, seed()),
        ErrorKind::NotWritten,
    );
    refused(
        "nothing is written",
        locator.begin_generation_from_baseline(&session, seed(), &[]),
        ErrorKind::NotWritten,
    );
    written(&*locator, &session);
    refused(
        "generation 1 is not written",
        locator.begin_generation(&session.next_generation(), seed()),
        ErrorKind::NotWritten,
    );
}

/// One successor for one generation, for ever.
pub fn a_written_successor_forbids_another_one(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    succeed(&*locator, &session, &[user("on")], &meta("agent", "thread"));
    refused_without_trace(
        &*locator,
        &session,
        "a sealed generation has its successor",
        ErrorKind::GenerationExists,
        || locator.begin_generation(&session, meta("agent", "thread")),
    );
}

/// `begin_generation` acts on exactly the generation given and resolves no head.
pub fn an_older_generation_cannot_be_succeeded_again(factory: Factory<'_>) {
    let locator = factory();
    let g0 = SessionRef::root("k");
    let first = written(&*locator, &g0);
    let (g1, _handle1) = succeed(&*locator, &g0, &[user("on")], &meta("agent", "thread"));
    let (g2, _handle2) = succeed(&*locator, &g1, &[user("and on")], &meta("agent", "thread"));
    let rows = messages(&*first);
    for stale in [&g0, &g1] {
        refused(
            "an older generation has its successor",
            locator.begin_generation(stale, meta("agent", "thread")),
            ErrorKind::GenerationExists,
        );
    }
    refused(
        "an older generation has its successor",
        locator.begin_generation_from_baseline(&g0, meta("agent", "thread"), &rows),
        ErrorKind::GenerationExists,
    );
    let (g3, _handle3) = begin(&*locator, &g2);
    assert_eq!(g3.generation, 3);
}

/// Rows and meta of a sealed generation never change; it reads back as it was.
pub fn a_sealed_generation_refuses_every_write_and_still_reads(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = written(&*locator, &session);
    turn_with(&*first, &[assistant("hello")], &meta("agent", "thread"));
    let read = must("a read works", first.read_session());
    let display = must("a read works", first.read_display());
    succeed(
        &*locator,
        &session,
        &messages(&*first),
        &meta("other", "thread"),
    );
    assert_sealed(&*locator, &session, &*first);
    for handle in [&first, &open(&*locator, &session)] {
        assert_eq!(must("a read works", handle.read_session()), read);
        assert_eq!(must("a read works", handle.read_display()), display);
    }
}

/// The seal is a state of the transcript, not of a handle.
pub fn handles_opened_before_the_seal_are_refused_as_well(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written(&*locator, &session);
    let early = open(&*locator, &session);
    let raw = open_stem(&*locator, &session_stem(&session));
    succeed(&*locator, &session, &[user("on")], &meta("agent", "thread"));
    refused("a seal holds", early.append(user("x")), ErrorKind::Sealed);
    refused("a seal holds", raw.append(user("x")), ErrorKind::Sealed);
    let late = open(&*locator, &session);
    refused("a seal holds", late.append(user("x")), ErrorKind::Sealed);
}

/// `begin_generation_from_baseline` refuses a caller that has not seen the newest rows.
pub fn a_baseline_has_to_be_what_is_stored(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = written(&*locator, &session);
    let old = messages(&*first);
    must("an append succeeds", first.append(user("newer")));
    refused_without_trace(
        &*locator,
        &session,
        "a stale baseline is refused",
        ErrorKind::Stale,
        || locator.begin_generation_from_baseline(&session, meta("agent", "thread"), &old),
    );
    let (successor, handle) = must(
        "the stored rows are a baseline",
        locator.begin_generation_from_baseline(
            &session,
            meta("agent", "thread"),
            &messages(&*first),
        ),
    );
    must("the first write succeeds", handle.append(user("on")));
    let head = must("a look-up works", locator.head_generation(&session));
    assert_eq!(head, successor);
}

/// `open_session` of the next generation does what a reserved first write does.
pub fn a_generation_can_be_opened_by_its_ref(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = written(&*locator, &session);
    let successor = session.next_generation();
    let handle = open(&*locator, &successor);
    must("opening reserves nothing", first.append(user("second")));
    let kept = messages(&*first);
    must(
        "the first write of a successor succeeds",
        handle.append_turn(TranscriptTurn::new(&[], &kept, &meta("agent", "thread"))),
    );
    assert_eq!(
        live_uuids(&*handle),
        live_uuids(&*first),
        "the rows of the predecessor are retained"
    );
    refused("a seal holds", first.append(user("x")), ErrorKind::Sealed);
    let head = must("a look-up works", locator.head_generation(&session));
    assert_eq!(head, successor);
}

/// A stem without its trailing `.g<decimal>` names the session.
pub fn a_raw_stem_of_a_generation_is_that_generation(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = written(&*locator, &session);
    let raw = open_stem(&*locator, &format!("{}.g1", session_stem(&session)));
    must(
        "the first write of a successor succeeds",
        raw.append(user("on")),
    );
    refused("a seal holds", first.append(user("x")), ErrorKind::Sealed);
    let head = must("a look-up works", locator.head_generation(&session));
    assert_eq!(head, session.next_generation());

    let base = open_stem(&*locator, "raw");
    let next = open_stem(&*locator, "raw.g1");
    refused("no gaps", next.append(user("x")), ErrorKind::NotWritten);
    must("a raw stem can be written", base.append(user("hi")));
    must("its successor can be written", next.append(user("on")));
    refused("a seal holds", base.append(user("x")), ErrorKind::Sealed);
}

/// `NotWritten` when the generation before it is unwritten, by any way to it.
pub fn a_generation_beyond_the_next_cannot_be_written(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let gap = session.next_generation().next_generation();
    let before_anything = open(&*locator, &session.next_generation());
    refused(
        "generation 0 is unwritten",
        before_anything.append(user("x")),
        ErrorKind::NotWritten,
    );
    written(&*locator, &session);
    let handle = open(&*locator, &gap);
    refused_without_trace(
        &*locator,
        &session,
        "generation 1 is unwritten",
        ErrorKind::NotWritten,
        || handle.append(user("x")),
    );
    // A reserved generation is not written.
    let (_, holder) = begin(&*locator, &session);
    refused(
        "generation 1 is only reserved",
        handle.append(user("x")),
        ErrorKind::NotWritten,
    );
    drop(holder);
}

/// No writer gets past generation 4096, whatever its stem says.
pub fn a_raw_stem_beyond_the_limit_cannot_be_written(factory: Factory<'_>) {
    let locator = factory();
    written(&*locator, &SessionRef::root("k"));
    let base = session_stem(&SessionRef::root("k"));
    for number in ["4097", "4294967295"] {
        let write = locator
            .open_stem(&format!("{base}.g{number}"), meta("agent", "thread"))
            .and_then(|handle| handle.append(user("x")));
        let error = write.expect_err("a generation beyond the limit was written");
        assert!(
            matches!(
                error.kind(),
                ErrorKind::GenerationLimit | ErrorKind::NotWritten
            ),
            "{error}"
        );
    }
    let chain = must(
        "a look-up works",
        locator.session_chain(&SessionRef::root("k")),
    );
    assert_eq!(chain.len(), 1);
}

/// Generation 4096 is the last: it can be written, and its successor is refused by every way to it.
pub fn a_chain_ends_at_its_limit(factory: Factory<'_>) {
    const LIMIT: u32 = 4096;
    let locator = factory();
    let mut session = SessionRef::root("k");
    written(&*locator, &session);
    for _ in 0..LIMIT {
        let (successor, handle) = begin(&*locator, &session);
        must("an append succeeds", handle.append(user("on")));
        session = successor;
    }
    assert_eq!(session.generation, LIMIT);
    refused(
        "the chain is at its limit",
        locator.begin_generation(&session, meta("agent", "thread")),
        ErrorKind::GenerationLimit,
    );
    let raw = format!("{}.g4097", session_stem(&session.first_generation()));
    let write = locator
        .open_stem(&raw, meta("agent", "thread"))
        .and_then(|handle| handle.append(user("x")));
    refused(
        "the chain is at its limit",
        write,
        ErrorKind::GenerationLimit,
    );
    let head = must(
        "a look-up works",
        locator.head_generation(&session.first_generation()),
    );
    assert_eq!(head, session);
    must(
        "the last generation is writable",
        open(&*locator, &head).append(user("more")),
    );
}
