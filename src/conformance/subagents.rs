//! Sub-agent trees: descent at any depth, through unwritten and collapsed stems (contract section 3).

use super::support::{
    contents, meta, meta_with_id, must, open, open_stem, succeed, turn_with, user, written,
    written_with,
};
use super::{Check, Factory};
use crate::{SessionRef, ThreadTranscript, TranscriptLocator, session_stem};

pub(super) const CHECKS: &[Check] = table![
    a_child_is_listed_under_its_root,
    a_child_can_be_written_before_its_parent,
    descent_goes_through_parents_that_were_never_written,
    descent_reaches_any_depth_through_collapsed_stems,
    a_child_belongs_to_its_root_whatever_thread_it_names,
    a_child_moves_with_its_root,
    an_orphan_is_listed_in_the_thread_that_it_names,
    an_orphan_leaves_its_own_thread_when_a_root_is_written_above_it,
    a_raw_stem_records_its_line_of_ancestors,
    a_raw_stem_without_text_on_both_sides_is_a_root,
    a_collapsed_raw_stem_is_linked_by_its_digest,
    a_collapsed_raw_stem_is_linked_whenever_its_parent_is_mentioned,
    every_generation_of_a_child_has_the_parent_of_the_first,
    a_child_of_a_later_generation_descends_from_the_session,
    a_child_of_a_raw_root_is_listed,
    with_an_agent_scope_a_child_has_to_descend_from_an_accepted_root,
    children_of_one_key_under_different_parents_are_different,
    a_child_is_a_session_with_a_chain_of_its_own,
    the_refs_of_a_tree_carry_their_ancestors,
];

/// The sub-agent stems of a thread, sorted: the contract promises a set.
#[track_caller]
fn children(locator: &dyn TranscriptLocator, thread: &str, agent: Option<&str>) -> Vec<String> {
    let mut stems: Vec<_> = listed(locator, thread, agent)
        .into_iter()
        .map(|child| child.stem)
        .collect();
    stems.sort();
    stems
}

#[track_caller]
fn listed(
    locator: &dyn TranscriptLocator,
    thread: &str,
    agent: Option<&str>,
) -> Vec<ThreadTranscript> {
    must(
        "a thread can be listed",
        locator.thread_transcripts(thread, agent),
    )
    .subagents
}

fn sorted<const N: usize>(sessions: [&SessionRef; N]) -> Vec<String> {
    let mut stems: Vec<_> = sessions.into_iter().map(session_stem).collect();
    stems.sort();
    stems
}

/// Children and grandchildren, and nobody else's.
pub fn a_child_is_listed_under_its_root(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::scoped("k", "a");
    let child = SessionRef::child_of(&root, "c");
    let grandchild = SessionRef::child_of(&child, "g");
    let other = SessionRef::root("other");
    let stranger = SessionRef::child_of(&other, "c");
    for session in [&root, &child, &grandchild] {
        written(&*locator, session);
    }
    for session in [&other, &stranger] {
        written_with(&*locator, session, meta("agent", "other thread"));
    }
    assert_eq!(
        children(&*locator, "thread", None),
        sorted([&child, &grandchild])
    );
    assert_eq!(
        children(&*locator, "other thread", None),
        sorted([&stranger])
    );
}

/// A parent's turn is persisted when it ends, after its children's.
pub fn a_child_can_be_written_before_its_parent(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    let child = SessionRef::child_of(&root, "c");
    let grandchild = SessionRef::child_of(&child, "g");
    written_with(&*locator, &grandchild, meta("agent", "g's thread"));
    written_with(&*locator, &child, meta("agent", "c's thread"));
    written(&*locator, &root);
    assert_eq!(
        children(&*locator, "thread", None),
        sorted([&child, &grandchild])
    );
    assert_eq!(children(&*locator, "g's thread", None), [] as [&str; 0]);
    assert_eq!(children(&*locator, "c's thread", None), [] as [&str; 0]);
}

/// A parent is known by its stem from its first mention, written or not.
pub fn descent_goes_through_parents_that_were_never_written(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    let unwritten = SessionRef::child_of(&root, "u1");
    let unwritten_too = SessionRef::child_of(&unwritten, "u2");
    let leaf = SessionRef::child_of(&unwritten_too, "leaf");
    written(&*locator, &root);
    written_with(&*locator, &leaf, meta("agent", "elsewhere"));
    let listed = listed(&*locator, "thread", None);
    let [one] = listed.as_slice() else {
        panic!("one descendant was written, but {listed:?} are listed");
    };
    assert_eq!(one.stem, session_stem(&leaf));
    assert_eq!(one.parent, Some(session_stem(&unwritten_too)));
    assert!(!must("a look-up works", locator.session_exists(&unwritten)));
}

/// From the third level on a parent's stem collapses to `chain-…`: descent is never found by prefix.
pub fn descent_reaches_any_depth_through_collapsed_stems(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::scoped("thread-1", "orchestrator");
    let mut line = vec![root.clone()];
    for depth in 0..12 {
        let parent = line.last().unwrap_or(&root);
        line.push(SessionRef::child_of(parent, format!("worker-{depth}")));
    }
    let deepest = line.last().unwrap_or(&root);
    assert!(session_stem(deepest).starts_with("chain-"));
    // The deepest first, every third one, the root last: all others stay unwritten.
    let written_ones = line.iter().rev().step_by(3);
    let written_ones: Vec<_> = written_ones.filter(|session| **session != root).collect();
    for session in &written_ones {
        written_with(&*locator, session, meta("agent", "elsewhere"));
    }
    written(&*locator, &root);
    let mut expected: Vec<_> = written_ones.into_iter().map(session_stem).collect();
    expected.sort();
    assert_eq!(children(&*locator, "thread", None), expected);
    assert_eq!(children(&*locator, "elsewhere", None), [] as [&str; 0]);
}

/// The root decides to which thread a tree belongs.
pub fn a_child_belongs_to_its_root_whatever_thread_it_names(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    let child = SessionRef::child_of(&root, "c");
    let blank = SessionRef::child_of(&root, "blank");
    let mut nowhere = meta("agent", "");
    nowhere.thread_id = None;
    written(&*locator, &root);
    written_with(&*locator, &child, meta("agent", "elsewhere"));
    written_with(&*locator, &blank, nowhere);
    assert_eq!(
        children(&*locator, "thread", None),
        sorted([&child, &blank])
    );
    assert_eq!(children(&*locator, "elsewhere", None), [] as [&str; 0]);
}

/// When a root's meta names another thread, the tree below goes with it.
pub fn a_child_moves_with_its_root(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    let child = SessionRef::child_of(&root, "c");
    let handle = written(&*locator, &root);
    written(&*locator, &child);
    turn_with(&*handle, &[user("moving")], &meta("agent", "elsewhere"));
    assert_eq!(children(&*locator, "thread", None), [] as [&str; 0]);
    assert_eq!(children(&*locator, "elsewhere", None), sorted([&child]));
}

/// No written root above it: the child's own header counts.
pub fn an_orphan_is_listed_in_the_thread_that_it_names(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("never written");
    let orphan = SessionRef::child_of(&root, "o");
    let below = SessionRef::child_of(&orphan, "b");
    written(&*locator, &orphan);
    written_with(&*locator, &below, meta("agent", "elsewhere"));
    assert_eq!(children(&*locator, "thread", None), sorted([&orphan]));
    assert_eq!(children(&*locator, "elsewhere", None), sorted([&below]));
    let listed = must(
        "a look-up works",
        locator.thread_transcripts("thread", None),
    );
    assert!(listed.roots.is_empty() && listed.pre_identity.is_empty());
}

/// An orphan is one only as long as no root is written above it.
pub fn an_orphan_leaves_its_own_thread_when_a_root_is_written_above_it(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    let orphan = SessionRef::child_of(&root, "o");
    written(&*locator, &orphan);
    assert_eq!(children(&*locator, "thread", None), sorted([&orphan]));
    written_with(&*locator, &root, meta("agent", "the root's"));
    assert_eq!(children(&*locator, "thread", None), [] as [&str; 0]);
    assert_eq!(children(&*locator, "the root's", None), sorted([&orphan]));
}

/// `a__b__c` has the parent `a__b`, which has the parent `a`.
pub fn a_raw_stem_records_its_line_of_ancestors(factory: Factory<'_>) {
    let locator = factory();
    let leaf = open_stem(&*locator, "a__b__c");
    must("an append succeeds", leaf.append(user("hi")));
    assert_eq!(
        children(&*locator, "thread", None),
        ["a__b__c"],
        "an orphan"
    );
    let root = must(
        "a stem opens",
        locator.open_stem("a", meta("agent", "root's")),
    );
    must("an append succeeds", root.append(user("hi")));
    let listed = listed(&*locator, "root's", None);
    let [one] = listed.as_slice() else {
        panic!("one descendant was written, but {listed:?} are listed");
    };
    assert_eq!(one.stem, "a__b__c");
    assert_eq!(one.parent.as_deref(), Some("a__b"));
    assert_eq!(children(&*locator, "thread", None), [] as [&str; 0]);
}

/// `__x`, `x__` and `__` name no parent and no child.
pub fn a_raw_stem_without_text_on_both_sides_is_a_root(factory: Factory<'_>) {
    let locator = factory();
    for stem in ["__x", "x__", "__", "_", "a_b"] {
        let handle = open_stem(&*locator, stem);
        must("an append succeeds", handle.append(user("hi")));
    }
    let listed = must(
        "a look-up works",
        locator.thread_transcripts("thread", None),
    );
    let stems: Vec<_> = listed.pre_identity.iter().map(|one| &*one.stem).collect();
    assert_eq!(stems, ["__x", "x__", "__", "_", "a_b"]);
    assert!(listed.subagents.is_empty());
}

/// The stem of a child whose parent's stem is long, as an older host would have written it by name.
fn collapsed() -> (SessionRef, SessionRef) {
    let root = SessionRef::scoped("thread-1", "orchestrator");
    let parent = SessionRef::child_of(&root, "worker-7");
    let child = SessionRef::child_of(&parent, "w2");
    assert!(session_stem(&child).starts_with("chain-"));
    (parent, child)
}

/// `chain-` and 32 hex digits stand for the stem with that digest.
pub fn a_collapsed_raw_stem_is_linked_by_its_digest(factory: Factory<'_>) {
    let locator = factory();
    let (parent, child) = collapsed();
    written(&*locator, &SessionRef::scoped("thread-1", "orchestrator"));
    written(&*locator, &parent);
    let raw = must(
        "a stem opens",
        locator.open_stem(&session_stem(&child), meta("agent", "elsewhere")),
    );
    must("an append succeeds", raw.append(user("hi")));
    assert_eq!(
        children(&*locator, "thread", None),
        sorted([&parent, &child])
    );
}

/// The link is made as soon as a stem of that digest is mentioned, also when that is later.
pub fn a_collapsed_raw_stem_is_linked_whenever_its_parent_is_mentioned(factory: Factory<'_>) {
    let locator = factory();
    let (parent, child) = collapsed();
    let raw = must(
        "a stem opens",
        locator.open_stem(&session_stem(&child), meta("agent", "own")),
    );
    must("an append succeeds", raw.append(user("hi")));
    assert_eq!(
        children(&*locator, "own", None),
        sorted([&child]),
        "an orphan"
    );
    written(&*locator, &SessionRef::scoped("thread-1", "orchestrator"));
    // A sibling mentions the parent, which is itself never written.
    let sibling = SessionRef::child_of(&parent, "sibling");
    written(&*locator, &sibling);
    assert_eq!(
        children(&*locator, "thread", None),
        sorted([&child, &sibling])
    );
    assert_eq!(children(&*locator, "own", None), [] as [&str; 0]);
}

/// Generation 0 of a child stands for its spawn.
pub fn every_generation_of_a_child_has_the_parent_of_the_first(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    let child = SessionRef::child_of(&root, "c");
    written(&*locator, &root);
    written(&*locator, &child);
    let (next, _handle) = succeed(&*locator, &child, &[user("on")], &meta("agent", "thread"));
    let listed = listed(&*locator, "thread", None);
    assert_eq!(children(&*locator, "thread", None), sorted([&child, &next]));
    for one in &listed {
        assert_eq!(one.parent, Some(session_stem(&root)));
    }
    let mut generations: Vec<_> = listed.iter().map(|one| one.generation).collect();
    generations.sort_unstable();
    assert_eq!(generations, [0, 1]);
}

/// A child spawned by generation 1 of a root is in the root's tree.
pub fn a_child_of_a_later_generation_descends_from_the_session(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    written(&*locator, &root);
    let (next, _handle) = succeed(&*locator, &root, &[user("on")], &meta("agent", "thread"));
    let child = SessionRef::child_of(&next, "c");
    written_with(&*locator, &child, meta("agent", "elsewhere"));
    let listed = listed(&*locator, "thread", None);
    let [one] = listed.as_slice() else {
        panic!("one descendant was written, but {listed:?} are listed");
    };
    assert_eq!(one.session.as_ref(), Some(&child));
    assert_eq!(one.parent, Some(session_stem(&next)));
}

/// Trees below roots without a session are listed as well.
pub fn a_child_of_a_raw_root_is_listed(factory: Factory<'_>) {
    let locator = factory();
    for stem in ["2024_raw", "2024_raw__helper"] {
        let handle = open_stem(&*locator, stem);
        must("an append succeeds", handle.append(user("hi")));
    }
    assert_eq!(children(&*locator, "thread", None), ["2024_raw__helper"]);
}

/// A scope accepts roots by `meta.agent_id`; children follow their root, and orphans have none.
pub fn with_an_agent_scope_a_child_has_to_descend_from_an_accepted_root(factory: Factory<'_>) {
    let locator = factory();
    let one = SessionRef::scoped("k", "one");
    let two = SessionRef::scoped("k", "two");
    let child_of_one = SessionRef::child_of(&one, "c");
    let child_of_two = SessionRef::child_of(&two, "c");
    let orphan = SessionRef::child_of(&SessionRef::root("unwritten"), "o");
    written_with(&*locator, &one, meta_with_id("agent", "one", "thread"));
    written_with(&*locator, &two, meta_with_id("agent", "two", "thread"));
    written_with(
        &*locator,
        &child_of_one,
        meta_with_id("helper", "two", "thread"),
    );
    written(&*locator, &child_of_two);
    written_with(&*locator, &orphan, meta_with_id("agent", "one", "thread"));
    assert_eq!(
        children(&*locator, "thread", Some("one")),
        sorted([&child_of_one])
    );
    assert_eq!(
        children(&*locator, "thread", Some("two")),
        sorted([&child_of_two])
    );
    assert_eq!(
        children(&*locator, "thread", Some("three")),
        [] as [&str; 0]
    );
    assert_eq!(
        children(&*locator, "thread", None),
        sorted([&child_of_one, &child_of_two, &orphan])
    );
    let scoped = must(
        "a thread can be listed",
        locator.thread_transcripts("thread", Some("one")),
    );
    assert_eq!(scoped.roots.len(), 1);
}

/// The parent is part of a child's identity.
pub fn children_of_one_key_under_different_parents_are_different(factory: Factory<'_>) {
    let locator = factory();
    let parents = [
        SessionRef::root("p"),
        SessionRef::scoped("p", "a"),
        SessionRef::child_of(&SessionRef::root("p"), "p"),
    ];
    for (number, parent) in parents.iter().enumerate() {
        let handle = open(&*locator, &SessionRef::child_of(parent, "c"));
        must(
            "an append succeeds",
            handle.append(user(&number.to_string())),
        );
    }
    for (number, parent) in parents.iter().enumerate() {
        let handle = open(&*locator, &SessionRef::child_of(parent, "c"));
        assert_eq!(contents(&*handle), [number.to_string()]);
    }
}

/// Head, chain and existence of a child are its own.
pub fn a_child_is_a_session_with_a_chain_of_its_own(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    let child = SessionRef::child_of(&root, "c");
    written(&*locator, &root);
    succeed(&*locator, &root, &[], &meta("agent", "thread"));
    assert!(!must("a look-up works", locator.session_exists(&child)));
    written(&*locator, &child);
    let (next, _handle) = succeed(&*locator, &child, &[], &meta("agent", "thread"));
    let chain = must("a look-up works", locator.session_chain(&child));
    assert_eq!(chain, [child.clone(), next.clone()]);
    let head = must("a look-up works", locator.head_generation(&child));
    assert_eq!(head, next);
    let chain = must("a look-up works", locator.session_chain(&root));
    assert_eq!(chain.len(), 2);
}

/// Every ref that a store returns equals the one that wrote the transcript, so a child of it has the right stem.
pub fn the_refs_of_a_tree_carry_their_ancestors(factory: Factory<'_>) {
    let locator = factory();
    let (parent, child) = collapsed();
    written(&*locator, &SessionRef::scoped("thread-1", "orchestrator"));
    written(&*locator, &parent);
    written(&*locator, &child);
    let deeper = SessionRef::child_of(&child, "deeper");
    let found: Vec<_> = listed(&*locator, "thread", None)
        .into_iter()
        .filter_map(|one| one.session)
        .collect();
    assert_eq!(found.len(), 2);
    for expected in [&parent, &child] {
        assert!(found.contains(expected), "{expected:?} is not in {found:?}");
    }
    let again = found
        .iter()
        .find(|session| **session == child)
        .expect("the child was just found");
    assert_eq!(
        session_stem(&SessionRef::child_of(again, "deeper")),
        session_stem(&deeper)
    );
    let head = must("a look-up works", locator.head_generation(&child));
    assert_eq!(head.parent_stem(), child.parent_stem());
}
