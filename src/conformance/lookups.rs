//! Look-ups: what is found by agent, by thread and by session, and in which order (contract section 2, the notes).

use super::support::{
    contents, found, meta, meta_with_id, must, open, open_stem, open_with, records, shown, succeed,
    turn_with, user, written, written_with,
};
use super::{Check, Factory};
use crate::{SessionRef, ThreadTranscript, TranscriptLocator, TranscriptPartial, session_stem};

pub(super) const CHECKS: &[Check] = table![
    the_latest_of_an_agent_is_its_newest_created_root,
    an_agent_is_found_by_its_name_and_by_its_id,
    a_sub_agent_is_never_the_latest_of_its_agent,
    the_root_of_a_thread_is_the_newest_created_not_the_newest_updated,
    the_root_of_a_thread_can_be_scoped_to_an_agent_id,
    thread_ids_are_compared_trimmed_and_a_blank_one_names_nothing,
    a_sub_agent_is_never_the_root_of_its_thread,
    a_later_generation_is_newer_than_everything_before_it,
    a_reserved_generation_is_in_no_look_up,
    a_transcript_whose_meta_names_another_thread_moves_there,
    a_transcript_that_moves_keeps_its_creation_order,
    a_session_belongs_with_all_its_generations_to_the_thread_of_its_head,
    a_thread_lists_its_sessions_oldest_first_with_whole_chains,
    a_session_that_joined_a_thread_later_stands_by_its_own_age,
    roots_without_a_session_are_listed_apart,
    a_raw_root_with_a_session_id_is_a_session_root,
    a_listed_transcript_says_what_it_is,
    head_and_chain_are_the_same_from_any_generation,
    sessions_of_one_key_and_different_agents_are_different,
    a_partial_goes_to_the_newest_root_of_the_thread_at_its_head,
    a_partial_goes_to_the_head_of_a_session_that_moved_on,
    a_partial_can_be_scoped_to_an_agent_id,
    a_partial_without_a_root_or_without_text_is_not_stored,
    the_destination_of_a_store_is_its_own,
];

fn stems(listed: &[ThreadTranscript]) -> Vec<&str> {
    listed.iter().map(|one| one.stem.as_str()).collect()
}

/// "Newest" is the most recently created: a later write to an older transcript does not make it newer.
pub fn the_latest_of_an_agent_is_its_newest_created_root(factory: Factory<'_>) {
    let locator = factory();
    let first = written(&*locator, &SessionRef::root("first"));
    let second = written(&*locator, &SessionRef::root("second"));
    must("an append succeeds", first.append(user("later")));
    assert_eq!(
        found(locator.latest_for_agent("agent")).as_deref(),
        Some(second.stem())
    );
    let read = must("a look-up works", locator.latest_for_agent("agent"))
        .expect("the agent has a transcript");
    let session = must("a read works", read.read_session()).expect("it was written");
    assert_eq!(session.messages.len(), 1, "the reader reads what it names");
}

/// An agent is named by `meta.agent_name` or `meta.agent_id`, and compared as it stands.
pub fn an_agent_is_found_by_its_name_and_by_its_id(factory: Factory<'_>) {
    let locator = factory();
    let named = written_with(&*locator, &SessionRef::root("a"), meta("writer", "thread"));
    let with_id = written_with(
        &*locator,
        &SessionRef::root("b"),
        meta_with_id("editor", "writer-2", "thread"),
    );
    for (agent, expected) in [
        ("writer", Some(named.stem())),
        ("editor", Some(with_id.stem())),
        ("writer-2", Some(with_id.stem())),
        ("Writer", None),
        ("nobody", None),
        ("", None),
    ] {
        assert_eq!(
            found(locator.latest_for_agent(agent)).as_deref(),
            expected,
            "{agent:?}"
        );
    }
}

/// Only roots are the latest of an agent.
pub fn a_sub_agent_is_never_the_latest_of_its_agent(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("root");
    written_with(
        &*locator,
        &SessionRef::child_of(&root, "child"),
        meta("helper", "thread"),
    );
    assert_eq!(found(locator.latest_for_agent("helper")), None);
    let own = written_with(&*locator, &root, meta("helper", "thread"));
    written_with(
        &*locator,
        &SessionRef::child_of(&root, "later child"),
        meta("helper", "thread"),
    );
    assert_eq!(
        found(locator.latest_for_agent("helper")).as_deref(),
        Some(own.stem())
    );
}

/// Creation decides, not the last update.
pub fn the_root_of_a_thread_is_the_newest_created_not_the_newest_updated(factory: Factory<'_>) {
    let locator = factory();
    let first = written(&*locator, &SessionRef::root("first"));
    let second = written(&*locator, &SessionRef::root("second"));
    written_with(
        &*locator,
        &SessionRef::root("other"),
        meta("agent", "other thread"),
    );
    must("an append succeeds", first.append(user("later")));
    assert_eq!(
        found(locator.root_for_thread("thread")).as_deref(),
        Some(second.stem())
    );
    // Opening a handle creates nothing, so it makes nothing newer either.
    open(&*locator, &SessionRef::root("only opened"));
    assert_eq!(
        found(locator.root_for_thread("thread")).as_deref(),
        Some(second.stem())
    );
}

/// With a scope, `meta.agent_id` has to equal it; `meta.agent_name` does not count.
pub fn the_root_of_a_thread_can_be_scoped_to_an_agent_id(factory: Factory<'_>) {
    let locator = factory();
    let one = written_with(
        &*locator,
        &SessionRef::root("1"),
        meta_with_id("agent", "one", "thread"),
    );
    let two = written_with(
        &*locator,
        &SessionRef::root("2"),
        meta_with_id("agent", "two", "thread"),
    );
    let none = written(&*locator, &SessionRef::root("3"));
    for (scope, expected) in [
        (Some("one"), Some(one.stem())),
        (Some("two"), Some(two.stem())),
        (Some("agent"), None),
        (None, Some(none.stem())),
    ] {
        assert_eq!(
            found(locator.root_for_thread_scoped("thread", scope)).as_deref(),
            expected,
            "{scope:?}"
        );
    }
}

/// Both sides of the comparison are trimmed; a blank id is no thread, whatever a meta holds.
pub fn thread_ids_are_compared_trimmed_and_a_blank_one_names_nothing(factory: Factory<'_>) {
    let locator = factory();
    let handle = written_with(&*locator, &SessionRef::root("k"), meta("agent", "  t 1\n"));
    let mut without = meta("agent", "");
    without.thread_id = None;
    written_with(&*locator, &SessionRef::root("none"), without);
    written_with(&*locator, &SessionRef::root("blank"), meta("agent", "  "));
    for (thread, expected) in [
        ("t 1", Some(handle.stem())),
        ("\tt 1 ", Some(handle.stem())),
        ("t1", None),
        ("", None),
        ("  ", None),
    ] {
        assert_eq!(
            found(locator.root_for_thread(thread)).as_deref(),
            expected,
            "{thread:?}"
        );
        let listed = must("a look-up works", locator.thread_transcripts(thread, None));
        assert_eq!(stems(&listed.roots), Vec::from_iter(expected), "{thread:?}");
    }
}

/// Only roots are the root of a thread.
pub fn a_sub_agent_is_never_the_root_of_its_thread(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("root");
    written(&*locator, &SessionRef::child_of(&root, "child"));
    assert_eq!(found(locator.root_for_thread("thread")), None);
    let handle = written(&*locator, &root);
    written(&*locator, &SessionRef::child_of(&root, "later"));
    assert_eq!(
        found(locator.root_for_thread("thread")).as_deref(),
        Some(handle.stem())
    );
}

/// Each transcript takes the next value of the creation counter at its first write, so a generation opened late is
/// newer than a session that was created between.
pub fn a_later_generation_is_newer_than_everything_before_it(factory: Factory<'_>) {
    let locator = factory();
    let older = SessionRef::root("older");
    written(&*locator, &older);
    let newer = written(&*locator, &SessionRef::root("newer"));
    assert_eq!(
        found(locator.root_for_thread("thread")).as_deref(),
        Some(newer.stem())
    );
    let (successor, _handle) = succeed(&*locator, &older, &[user("on")], &meta("agent", "thread"));
    let stem = session_stem(&successor);
    assert_eq!(
        found(locator.root_for_thread("thread")).as_deref(),
        Some(stem.as_str())
    );
    assert_eq!(
        found(locator.latest_for_agent("agent")).as_deref(),
        Some(stem.as_str())
    );
}

/// A reserved generation is not head, not in the chain, in no look-up.
pub fn a_reserved_generation_is_in_no_look_up(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = written(&*locator, &session);
    let (successor, handle) = must(
        "a written head can be succeeded",
        locator.begin_generation(&session, meta("agent", "thread")),
    );
    assert!(!must("a look-up works", locator.session_exists(&successor)));
    let chain = must("a look-up works", locator.session_chain(&successor));
    assert_eq!(chain, std::slice::from_ref(&session));
    let head = must("a look-up works", locator.head_generation(&session));
    assert_eq!(head, session);
    for stem in [
        found(locator.latest_for_agent("agent")),
        found(locator.root_for_thread("thread")),
    ] {
        assert_eq!(stem.as_deref(), Some(first.stem()));
    }
    let listed = must(
        "a look-up works",
        locator.thread_transcripts("thread", None),
    );
    assert_eq!(stems(&listed.roots), [first.stem()]);
    assert!(must("a read works", handle.read_session()).is_none());
}

/// The thread of a transcript is that of its newest meta.
pub fn a_transcript_whose_meta_names_another_thread_moves_there(factory: Factory<'_>) {
    let locator = factory();
    let handle = written(&*locator, &SessionRef::root("k"));
    turn_with(&*handle, &[user("moving")], &meta("agent", "elsewhere"));
    assert_eq!(found(locator.root_for_thread("thread")), None);
    assert_eq!(
        found(locator.root_for_thread("elsewhere")).as_deref(),
        Some(handle.stem())
    );
    let left = must(
        "a look-up works",
        locator.thread_transcripts("thread", None),
    );
    assert!(
        left.roots.is_empty(),
        "it is listed in the thread that it left"
    );
    let mut nowhere = meta("agent", "");
    nowhere.thread_id = None;
    turn_with(&*handle, &[user("leaving")], &nowhere);
    assert_eq!(found(locator.root_for_thread("elsewhere")), None);
}

/// A move does not make a transcript newer.
pub fn a_transcript_that_moves_keeps_its_creation_order(factory: Factory<'_>) {
    let locator = factory();
    let older = written_with(
        &*locator,
        &SessionRef::root("a"),
        meta("agent", "elsewhere"),
    );
    let newer = written(&*locator, &SessionRef::root("b"));
    turn_with(&*older, &[user("moving")], &meta("agent", "thread"));
    assert_eq!(
        found(locator.root_for_thread("thread")).as_deref(),
        Some(newer.stem())
    );
    let listed = must(
        "a look-up works",
        locator.thread_transcripts("thread", None),
    );
    assert_eq!(stems(&listed.roots), [older.stem(), newer.stem()]);
}

/// The head's newest meta decides for the whole chain, also for generations that name another thread.
pub fn a_session_belongs_with_all_its_generations_to_the_thread_of_its_head(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    written_with(&*locator, &session, meta("agent", "old"));
    let (successor, _handle) = succeed(&*locator, &session, &[], &meta("agent", "new"));
    let listed = must("a look-up works", locator.thread_transcripts("new", None));
    assert_eq!(
        stems(&listed.roots),
        [session_stem(&session), session_stem(&successor)]
    );
    let left = must("a look-up works", locator.thread_transcripts("old", None));
    assert!(left.roots.is_empty());
}

/// Sessions stand by the creation of the session, and each chain stands together, oldest generation first.
pub fn a_thread_lists_its_sessions_oldest_first_with_whole_chains(factory: Factory<'_>) {
    let locator = factory();
    let a = SessionRef::root("a");
    let b = SessionRef::scoped("b", "agent");
    written(&*locator, &a);
    written(&*locator, &b);
    let (b1, _b1) = succeed(&*locator, &b, &[], &meta("agent", "thread"));
    let (a1, _a1) = succeed(&*locator, &a, &[], &meta("agent", "thread"));
    let (a2, _a2) = succeed(&*locator, &a1, &[], &meta("agent", "thread"));
    let listed = must(
        "a look-up works",
        locator.thread_transcripts("thread", None),
    );
    let order = [&a, &a1, &a2, &b, &b1];
    assert_eq!(stems(&listed.roots), order.map(session_stem));
    let sessions: Vec<_> = listed.roots.iter().map(|one| one.session.clone()).collect();
    assert_eq!(sessions, order.map(|session| Some(session.clone())));
    let generations: Vec<_> = listed.roots.iter().map(|one| one.generation).collect();
    assert_eq!(generations, [0, 1, 2, 0, 1]);
}

/// The creation of the session counts, not that of the generation that named the thread.
pub fn a_session_that_joined_a_thread_later_stands_by_its_own_age(factory: Factory<'_>) {
    let locator = factory();
    let older = SessionRef::root("older");
    let newer = SessionRef::root("newer");
    written_with(&*locator, &older, meta("agent", "elsewhere"));
    written(&*locator, &newer);
    let (next, _handle) = succeed(&*locator, &older, &[], &meta("agent", "thread"));
    let listed = must(
        "a look-up works",
        locator.thread_transcripts("thread", None),
    );
    assert_eq!(
        stems(&listed.roots),
        [&older, &next, &newer].map(session_stem)
    );
}

/// A root that was only ever written by its raw stem, and whose meta has no session id, is from before sessions.
pub fn roots_without_a_session_are_listed_apart(factory: Factory<'_>) {
    let locator = factory();
    let raw = open_stem(&*locator, "2024_raw");
    must("an append succeeds", raw.append(user("hi")));
    let session = written(&*locator, &SessionRef::root("k"));
    let listed = must(
        "a look-up works",
        locator.thread_transcripts("thread", None),
    );
    assert_eq!(stems(&listed.roots), [session.stem()]);
    assert_eq!(stems(&listed.pre_identity), ["2024_raw"]);
    assert!(listed.subagents.is_empty());
}

/// A session root was ever written through a `SessionRef` or has `meta.session_id`.
pub fn a_raw_root_with_a_session_id_is_a_session_root(factory: Factory<'_>) {
    let locator = factory();
    let mut seed = meta("agent", "thread");
    seed.session_id = Some("s".into());
    let raw = must("a stem opens", locator.open_stem("raw", seed));
    must("an append succeeds", raw.append(user("hi")));
    let session = SessionRef::root("k");
    let promoted = open_stem(&*locator, &session_stem(&session));
    must("an append succeeds", promoted.append(user("hi")));
    let listed = must(
        "a look-up works",
        locator.thread_transcripts("thread", None),
    );
    assert_eq!(stems(&listed.roots), ["raw"]);
    assert_eq!(stems(&listed.pre_identity), [promoted.stem()]);
    let typed = open(&*locator, &session);
    must("an append succeeds", typed.append(user("more")));
    let listed = must(
        "a look-up works",
        locator.thread_transcripts("thread", None),
    );
    assert_eq!(stems(&listed.roots), ["raw", promoted.stem()]);
    assert!(listed.pre_identity.is_empty());
}

/// The fields of a listed transcript.
pub fn a_listed_transcript_says_what_it_is(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::scoped("k", "a");
    let child = SessionRef::child_of(&root, "c");
    written(&*locator, &root);
    written_with(&*locator, &child, meta("helper", "thread"));
    let listed = must(
        "a look-up works",
        locator.thread_transcripts("thread", None),
    );
    let [one] = listed.roots.as_slice() else {
        panic!("one root was written, but {:?} are listed", listed.roots);
    };
    assert_eq!(one.stem, session_stem(&root));
    assert_eq!(one.session.as_ref(), Some(&root));
    assert_eq!(one.generation, 0);
    assert_eq!(one.meta, meta("agent", "thread"));
    assert_eq!(one.parent, None);
    let [one] = listed.subagents.as_slice() else {
        panic!(
            "one child was written, but {:?} are listed",
            listed.subagents
        );
    };
    assert_eq!(one.stem, session_stem(&child));
    assert_eq!(
        one.session.as_ref(),
        Some(&child),
        "a ref carries its ancestors"
    );
    assert_eq!(one.meta, meta("helper", "thread"));
    assert_eq!(one.parent, Some(session_stem(&root)));
}

/// Head and chain do not depend on the generation by which one asks.
pub fn head_and_chain_are_the_same_from_any_generation(factory: Factory<'_>) {
    let locator = factory();
    let first = SessionRef::scoped("k", "a");
    written(&*locator, &first);
    let (second, _second) = succeed(&*locator, &first, &[], &meta("agent", "thread"));
    let (third, _third) = succeed(&*locator, &second, &[], &meta("agent", "thread"));
    let unwritten = third.next_generation();
    for asked in [&first, &second, &third, &unwritten] {
        let head = must("a look-up works", locator.head_generation(asked));
        assert_eq!(head, third);
        let chain = must("a look-up works", locator.session_chain(asked));
        assert_eq!(chain, [first.clone(), second.clone(), third.clone()]);
    }
}

/// `agent_id` is part of a session's identity, also when it is blank.
pub fn sessions_of_one_key_and_different_agents_are_different(factory: Factory<'_>) {
    let locator = factory();
    let sessions = [
        SessionRef::root("k"),
        SessionRef::scoped("k", ""),
        SessionRef::scoped("k", "a"),
        SessionRef::scoped("k", "b"),
        SessionRef::child_of(&SessionRef::root("k"), "k"),
    ];
    for (number, session) in sessions.iter().enumerate() {
        assert!(!must("a look-up works", locator.session_exists(session)));
        let handle = open(&*locator, session);
        must(
            "an append succeeds",
            handle.append(user(&number.to_string())),
        );
    }
    for (number, session) in sessions.iter().enumerate() {
        assert_eq!(contents(&*open(&*locator, session)), [number.to_string()]);
        let chain = must("a look-up works", locator.session_chain(session));
        assert_eq!(chain, std::slice::from_ref(session));
    }
}

/// The text of an interrupted turn finds its transcript by the thread.
pub fn a_partial_goes_to_the_newest_root_of_the_thread_at_its_head(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let older = written(&*locator, &SessionRef::root("older"));
    written(&*locator, &session);
    let (_, head) = succeed(&*locator, &session, &[user("on")], &meta("agent", "thread"));
    let stored = must(
        "a partial is stored",
        locator.append_interrupted_partial(
            " thread ",
            None,
            &TranscriptPartial::new("half a sen"),
            Some("r"),
        ),
    );
    assert!(stored);
    let rows = shown(&*head);
    let partial = rows.last().expect("the head shows its partial");
    assert_eq!(partial.message.content, "half a sen");
    assert!(partial.interrupted);
    assert_eq!(partial.request_id.as_deref(), Some("r"));
    assert_eq!(contents(&*head), ["on"], "a partial is never replayed");
    assert_eq!(records(&*older).len(), 1);
}

/// The newest root of the thread may be an older generation, whose head names another thread by now: the older one is
/// sealed, so the text goes to the head.
pub fn a_partial_goes_to_the_head_of_a_session_that_moved_on(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = written(&*locator, &session);
    let (_, head) = succeed(
        &*locator,
        &session,
        &[user("on")],
        &meta("agent", "elsewhere"),
    );
    let partial = TranscriptPartial::new("half");
    let stored = must(
        "a partial is stored",
        locator.append_interrupted_partial("thread", None, &partial, None),
    );
    assert!(stored);
    assert_eq!(shown(&*first).len(), 1);
    assert_eq!(shown(&*head).len(), 2);
}

/// With a scope the partial goes to the newest root of that agent.
pub fn a_partial_can_be_scoped_to_an_agent_id(factory: Factory<'_>) {
    let locator = factory();
    let one = open_with(
        &*locator,
        &SessionRef::root("1"),
        meta_with_id("agent", "one", "thread"),
    );
    must("an append succeeds", one.append(user("hi")));
    let two = written_with(
        &*locator,
        &SessionRef::root("2"),
        meta_with_id("agent", "two", "thread"),
    );
    let partial = TranscriptPartial::new("half");
    let store = |scope| locator.append_interrupted_partial("thread", Some(scope), &partial, None);
    assert!(must("a partial is stored", store("one")));
    assert!(!must("nothing is found", store("three")));
    assert_eq!(shown(&*one).len(), 2);
    assert_eq!(shown(&*two).len(), 1);
}

/// No such root, a blank thread or no text: false, and nothing is stored.
pub fn a_partial_without_a_root_or_without_text_is_not_stored(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    let handle = written(&*locator, &root);
    let child = written_with(
        &*locator,
        &SessionRef::child_of(&root, "c"),
        meta("agent", "only a child's"),
    );
    let store = |locator: &dyn TranscriptLocator, thread: &str, text: &str| {
        let partial = TranscriptPartial::new(text);
        must(
            "there is nothing to store",
            locator.append_interrupted_partial(thread, None, &partial, None),
        )
    };
    assert!(!store(&*locator, "unknown", "half"));
    assert!(!store(&*locator, "", "half"));
    assert!(!store(&*locator, "  ", "half"));
    assert!(!store(&*locator, "thread", ""));
    assert!(!store(&*locator, "only a child's", "half"));
    assert_eq!(records(&*handle).len(), 1);
    assert_eq!(records(&*child).len(), 1);
}

/// A destination key is stable and names one store; an anonymous store has none.
pub fn the_destination_of_a_store_is_its_own(factory: Factory<'_>) {
    let (one, other) = (factory(), factory());
    assert_eq!(one.destination_key(), one.destination_key());
    if let (Some(one), Some(other)) = (one.destination_key(), other.destination_key()) {
        assert_ne!(one, other, "two stores have the same destination");
    }
}
