//! Spend of a thread: every usage of its history once, in the right thread and under the right name (contract section 7).

use serde_json::json;

use super::spend::{of_thread, of_transcript, talk};
use super::support::{
    answered, assistant, charged, messages, meta, meta_with_id, must, open, open_stem, succeed,
    turn_to, turn_with, user, written, written_with,
};
use super::{Check, Factory};
use crate::spend::thread_spend_in;
use crate::{
    SessionRef, ThreadSpend, TranscriptHistory, TranscriptPartial, TranscriptSpend, TranscriptTurn,
    TruncateCut, TurnUsage, UsageCostSource,
};

pub(super) const CHECKS: &[Check] = table![
    a_blank_or_unknown_thread_has_spent_nothing,
    a_thread_that_was_written_without_usage_is_found,
    a_thread_counts_what_was_compacted_away,
    a_retained_row_counts_once_in_every_compaction_and_generation,
    a_revision_is_not_counted_again,
    a_row_that_is_stored_again_as_new_counts_again,
    a_usage_record_counts,
    interrupted_rows_never_count,
    a_thread_sums_all_its_roots,
    the_last_turn_of_a_thread_is_that_of_its_newest_root_that_counted_one,
    a_generation_opened_last_has_the_last_turn_of_its_thread,
    the_update_time_of_a_thread_is_that_of_its_newest_root,
    sub_agents_are_grouped_by_name_and_counted_in_runs,
    a_chain_of_generations_is_one_run,
    a_run_is_grouped_by_the_name_in_its_newest_meta,
    a_sub_agent_counts_in_the_thread_of_its_root_alone,
    an_orphan_counts_in_the_thread_that_it_names,
    a_sub_agent_has_no_last_turn,
    a_move_to_another_thread_takes_all_totals_along,
    raw_roots_and_their_children_count,
    the_free_function_answers_like_the_locator,
];

/// All defaults.
pub fn a_blank_or_unknown_thread_has_spent_nothing(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    talk(&*locator, &session, &[answered("a", charged(1, 1, 1.0))]);
    written_with(&*locator, &SessionRef::root("blank"), meta("agent", " "));
    for thread in ["", " ", "unknown"] {
        assert_eq!(of_thread(&*locator, thread), ThreadSpend::default());
    }
}

/// `found_transcript`: any root is listed.
pub fn a_thread_that_was_written_without_usage_is_found(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    let child = SessionRef::child_of(&root, "c");
    written(&*locator, &child);
    let orphaned = of_thread(&*locator, "thread");
    assert!(!orphaned.found_transcript, "a child is no root");
    assert_eq!(orphaned.subagents.len(), 1);
    written(&*locator, &root);
    let spend = of_thread(&*locator, "thread");
    assert!(spend.found_transcript);
    assert_eq!(spend.root, TranscriptSpend::default());
}

/// The full append history: compactions, replacements and clears take nothing back.
pub fn a_thread_counts_what_was_compacted_away(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let one = answered("a", charged(10, 5, 0.5));
    let handle = talk(&*locator, &session, std::slice::from_ref(&one));
    turn_to(&*handle, &[user("summary")], &meta("agent", "thread"));
    turn_with(
        &*handle,
        std::slice::from_ref(&one),
        &meta("agent", "thread"),
    );
    must("a replacement succeeds", handle.replace(&[user("x")]));
    must("an append succeeds", handle.append(one));
    must("a clear succeeds", handle.clear());
    let root = of_thread(&*locator, "thread").root;
    assert_eq!((root.turns, root.input_tokens), (3, 30));
    assert_eq!(of_transcript(&*handle).turns, 0);
}

/// Retained rows are the same stored rows, in whatever compaction or generation they stand.
pub fn a_retained_row_counts_once_in_every_compaction_and_generation(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let rows = [user("q"), answered("a", charged(10, 5, 0.5)), user("x")];
    let handle = talk(&*locator, &session, &rows);
    let stored = messages(&*handle);
    turn_to(&*handle, &stored[..2], &meta("agent", "thread"));
    must("a replacement succeeds", handle.replace(&stored[1..2]));
    let (g1, next) = succeed(
        &*locator,
        &session,
        &messages(&*handle),
        &meta("agent", "thread"),
    );
    turn_to(
        &*next,
        &[user("summary"), messages(&*next)[0].clone()],
        &meta("agent", "thread"),
    );
    must(
        "a written session can be truncated",
        locator.truncate_into_next_generation(
            &g1,
            TruncateCut::BeforeIndex(2),
            meta("agent", "thread"),
        ),
    );
    let root = of_thread(&*locator, "thread").root;
    assert_eq!(
        (root.turns, root.input_tokens, root.output_tokens),
        (1, 10, 5)
    );
    assert!((root.cost_usd - 0.5).abs() < f64::EPSILON);
    assert_eq!(root.last_input_tokens, 10);
}

/// In the same transcript and in a successor.
pub fn a_revision_is_not_counted_again(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = talk(
        &*locator,
        &session,
        &[user("q"), answered("a", charged(10, 5, 0.5))],
    );
    let edit = |handle: &dyn TranscriptHistory, value: u32| {
        let mut row = messages(handle).pop().expect("a row is live");
        row.extra_metadata = Some(json!({ "edit": value }));
        row
    };
    let revised = edit(&*handle, 1);
    turn_to(&*handle, &[revised], &meta("agent", "thread"));
    let revised = edit(&*handle, 2);
    succeed(&*locator, &session, &[revised], &meta("agent", "thread"));
    assert_eq!(of_thread(&*locator, "thread").root.turns, 1);
}

/// A fresh copy of a row is another row: the host says that it was paid twice.
pub fn a_row_that_is_stored_again_as_new_counts_again(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let row = answered("a", charged(10, 5, 0.5));
    talk(&*locator, &session, &[user("q"), row.clone()]);
    succeed(&*locator, &session, &[row], &meta("agent", "thread"));
    assert_eq!(of_thread(&*locator, "thread").root.turns, 2);
}

/// In the thread, not in the live context.
pub fn a_usage_record_counts(factory: Factory<'_>) {
    let locator = factory();
    let handle = written(&*locator, &SessionRef::root("k"));
    let rows = messages(&*handle);
    let usage = charged(10, 5, 0.5);
    let meta = meta("agent", "thread");
    must(
        "a turn succeeds",
        handle.append_turn(TranscriptTurn {
            turn_usage: Some(&usage),
            ..TranscriptTurn::new(&rows, &rows, &meta)
        }),
    );
    let root = of_thread(&*locator, "thread").root;
    assert_eq!((root.turns, root.input_tokens), (1, 10));
    assert_eq!(root.last_input_tokens, 10);
    assert_eq!(of_transcript(&*handle), TranscriptSpend::default());
}

/// A partial carries no usage.
pub fn interrupted_rows_never_count(factory: Factory<'_>) {
    let locator = factory();
    written(&*locator, &SessionRef::root("k"));
    let partial = TranscriptPartial::new("half");
    for _ in 0..2 {
        must(
            "a partial is stored",
            locator.append_interrupted_partial("thread", None, &partial, None),
        );
    }
    assert_eq!(
        of_thread(&*locator, "thread").root,
        TranscriptSpend::default()
    );
}

/// Sessions, generations and raw roots.
pub fn a_thread_sums_all_its_roots(factory: Factory<'_>) {
    let locator = factory();
    let a = SessionRef::root("a");
    talk(&*locator, &a, &[answered("a", charged(1, 0, 0.5))]);
    succeed(
        &*locator,
        &a,
        &[answered("b", charged(2, 0, 0.5))],
        &meta("agent", "thread"),
    );
    talk(
        &*locator,
        &SessionRef::scoped("b", "x"),
        &[answered("c", charged(4, 0, 0.5))],
    );
    let raw = open_stem(&*locator, "raw");
    must(
        "an append succeeds",
        raw.append(answered("d", charged(8, 0, 0.5))),
    );
    let other = open(&*locator, &SessionRef::root("other"));
    turn_with(
        &*other,
        &[answered("e", charged(16, 0, 0.5))],
        &meta("agent", "other thread"),
    );
    let root = of_thread(&*locator, "thread").root;
    assert_eq!((root.turns, root.input_tokens), (4, 15));
    assert!((root.cost_usd - 2.0).abs() < f64::EPSILON);
    assert_eq!(of_thread(&*locator, " other thread ").root.input_tokens, 16);
}

/// Newest means created last; a root that counted nothing is passed over.
pub fn the_last_turn_of_a_thread_is_that_of_its_newest_root_that_counted_one(factory: Factory<'_>) {
    let locator = factory();
    let named = |model: &str, window, input| {
        let mut usage = TurnUsage {
            model: model.to_owned(),
            ..charged(input, 1, 0.5)
        };
        usage.usage.context_window = window;
        usage
    };
    let older = talk(
        &*locator,
        &SessionRef::root("a"),
        &[answered("a", named("m-1", 1000, 10))],
    );
    talk(
        &*locator,
        &SessionRef::root("b"),
        &[answered("b", named("", 0, 20))],
    );
    written(&*locator, &SessionRef::root("c"));
    must(
        "an append succeeds",
        older.append(answered("c", named("m-2", 500, 30))),
    );
    let root = of_thread(&*locator, "thread").root;
    assert_eq!((root.last_input_tokens, root.last_output_tokens), (20, 1));
    assert_eq!(root.last_context_tokens, 21);
    assert_eq!(root.model.as_deref(), Some("m-2"), "the last that is known");
    assert_eq!(root.context_window, 500, "the last that is known");
    assert_eq!((root.turns, root.input_tokens), (3, 60));
}

/// Newest is the transcript, not the session: a chain that goes on after another session began has the last turn.
pub fn a_generation_opened_last_has_the_last_turn_of_its_thread(factory: Factory<'_>) {
    let locator = factory();
    let older = SessionRef::root("older");
    let row = |input| answered("a", charged(input, 0, 0.5));
    talk(&*locator, &older, &[row(10)]);
    talk(&*locator, &SessionRef::root("newer"), &[row(20)]);
    assert_eq!(of_thread(&*locator, "thread").root.last_input_tokens, 20);
    let (_, handle) = succeed(&*locator, &older, &[], &meta("agent", "thread"));
    assert_eq!(
        of_thread(&*locator, "thread").root.last_input_tokens,
        20,
        "a generation that counted no turn has no last one"
    );
    must("an append succeeds", handle.append(row(30)));
    let root = of_thread(&*locator, "thread").root;
    assert_eq!((root.last_input_tokens, root.input_tokens), (30, 60));
}

/// Whether it counted a turn or not, and whatever it says.
pub fn the_update_time_of_a_thread_is_that_of_its_newest_root(factory: Factory<'_>) {
    let locator = factory();
    for (key, updated) in [("a", "2026-03-03"), ("b", "some time"), ("c", "2026-01-01")] {
        let mut meta = meta("agent", "thread");
        updated.clone_into(&mut meta.updated);
        written_with(&*locator, &SessionRef::root(key), meta);
    }
    assert_eq!(
        of_thread(&*locator, "thread").updated.as_deref(),
        Some("2026-01-01")
    );
}

/// Archetype → (sum, runs).
pub fn sub_agents_are_grouped_by_name_and_counted_in_runs(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    written(&*locator, &root);
    let one = SessionRef::child_of(&root, "1");
    for (session, agent, input) in [
        (one.clone(), "search", 1),
        (SessionRef::child_of(&root, "2"), "search", 2),
        (SessionRef::child_of(&one, "deep"), "write", 4),
    ] {
        let handle = open(&*locator, &session);
        turn_with(
            &*handle,
            &[answered("a", charged(input, 0, 0.25))],
            &meta(agent, "elsewhere"),
        );
    }
    written_with(
        &*locator,
        &SessionRef::child_of(&root, "idle"),
        meta("idle", "thread"),
    );
    let spend = of_thread(&*locator, "thread");
    let sums: Vec<_> = spend
        .subagents
        .iter()
        .map(|(agent, (sum, runs))| (agent.as_str(), sum.turns, sum.input_tokens, *runs))
        .collect();
    assert_eq!(
        sums,
        [("idle", 0, 0, 1), ("search", 2, 3, 2), ("write", 1, 4, 1)]
    );
    assert_eq!(spend.root.turns, 0, "children do not count in the root");
    let (search, _) = &spend.subagents["search"];
    assert!((search.cost_usd - 0.5).abs() < f64::EPSILON);
    assert_eq!(
        search.cost_split.priced_source,
        Some(UsageCostSource::Charged)
    );
}

/// Retained rows count once in it as well.
pub fn a_chain_of_generations_is_one_run(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    let child = SessionRef::child_of(&root, "c");
    written(&*locator, &root);
    let first = open(&*locator, &child);
    turn_with(
        &*first,
        &[answered("a", charged(1, 0, 0.5))],
        &meta("helper", "thread"),
    );
    let mut rows = messages(&*first);
    rows.push(answered("b", charged(2, 0, 0.5)));
    succeed(&*locator, &child, &rows, &meta("helper", "thread"));
    let spend = of_thread(&*locator, "thread");
    let (sum, runs) = &spend.subagents["helper"];
    assert_eq!((sum.turns, sum.input_tokens, *runs), (2, 3, 1));
}

/// The archetype is what the head says, for all that the run spent before.
pub fn a_run_is_grouped_by_the_name_in_its_newest_meta(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    let child = SessionRef::child_of(&root, "c");
    written(&*locator, &root);
    let first = open(&*locator, &child);
    let row = |input| answered("a", charged(input, 0, 0.5));
    turn_with(&*first, &[row(1)], &meta("old", "thread"));
    turn_with(&*first, &[row(2)], &meta("older", "thread"));
    succeed(&*locator, &child, &[row(4)], &meta("new", "thread"));
    let spend = of_thread(&*locator, "thread");
    let sums: Vec<_> = spend
        .subagents
        .iter()
        .map(|(agent, (sum, runs))| (agent.as_str(), sum.input_tokens, *runs))
        .collect();
    assert_eq!(sums, [("new", 7, 1)]);
}

/// Whatever thread its own header names.
pub fn a_sub_agent_counts_in_the_thread_of_its_root_alone(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    written(&*locator, &root);
    written_with(
        &*locator,
        &SessionRef::root("other"),
        meta("agent", "elsewhere"),
    );
    let child = open(&*locator, &SessionRef::child_of(&root, "c"));
    turn_with(
        &*child,
        &[answered("a", charged(1, 0, 0.5))],
        &meta("helper", "elsewhere"),
    );
    assert_eq!(
        of_thread(&*locator, "thread").subagents["helper"].0.turns,
        1
    );
    assert_eq!(of_thread(&*locator, "elsewhere").subagents.len(), 0);
}

/// Until a root is written above it.
pub fn an_orphan_counts_in_the_thread_that_it_names(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    let orphan = open(&*locator, &SessionRef::child_of(&root, "c"));
    turn_with(
        &*orphan,
        &[answered("a", charged(1, 0, 0.5))],
        &meta("helper", "own"),
    );
    assert_eq!(of_thread(&*locator, "own").subagents["helper"].0.turns, 1);
    written(&*locator, &root);
    assert_eq!(of_thread(&*locator, "own"), ThreadSpend::default());
    assert_eq!(
        of_thread(&*locator, "thread").subagents["helper"].0.turns,
        1
    );
}

/// `last_*` of sub-agents stay 0.
pub fn a_sub_agent_has_no_last_turn(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    written(&*locator, &root);
    let child = open(&*locator, &SessionRef::child_of(&root, "c"));
    turn_with(
        &*child,
        &[answered("a", charged(7, 3, 0.5))],
        &meta("helper", "thread"),
    );
    let spend = of_thread(&*locator, "thread");
    let (sum, _) = &spend.subagents["helper"];
    assert_eq!((sum.input_tokens, sum.output_tokens), (7, 3));
    assert_eq!(
        [
            sum.last_input_tokens,
            sum.last_output_tokens,
            sum.last_context_tokens,
            sum.last_context_input_tokens,
            sum.last_context_output_tokens,
        ],
        [0; 5]
    );
}

/// All generations of the session, and the tree below it.
pub fn a_move_to_another_thread_takes_all_totals_along(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    let child = SessionRef::child_of(&root, "c");
    talk(&*locator, &root, &[answered("a", charged(1, 0, 0.5))]);
    talk(&*locator, &child, &[answered("b", charged(2, 0, 0.5))]);
    let (_, head) = succeed(
        &*locator,
        &root,
        &[answered("c", charged(4, 0, 0.5))],
        &meta("agent", "thread"),
    );
    let before = of_thread(&*locator, "thread");
    assert_eq!((before.root.input_tokens, before.root.turns), (5, 2));
    for (from, to) in [("thread", "elsewhere"), ("elsewhere", "thread")] {
        turn_with(&*head, &[], &meta("agent", to));
        assert_eq!(of_thread(&*locator, to), before, "moved to {to}");
        assert_eq!(of_thread(&*locator, from), ThreadSpend::default());
    }
}

/// Spend always includes transcripts from before sessions.
pub fn raw_roots_and_their_children_count(factory: Factory<'_>) {
    let locator = factory();
    for (stem, input) in [("raw", 1), ("raw__child", 2), ("raw__child__deep", 4)] {
        let handle = open_stem(&*locator, stem);
        must(
            "an append succeeds",
            handle.append(answered("a", charged(input, 0, 0.5))),
        );
    }
    let spend = of_thread(&*locator, "thread");
    assert_eq!(spend.root.input_tokens, 1);
    let (sum, runs) = &spend.subagents["agent"];
    assert_eq!((sum.input_tokens, *runs), (6, 2));
}

/// `thread_spend_in` is the same question.
pub fn the_free_function_answers_like_the_locator(factory: Factory<'_>) {
    let locator = factory();
    let root = SessionRef::root("k");
    let handle = open(&*locator, &root);
    let mut with_id = meta_with_id("agent", "id", "thread");
    with_id.model = Some("m".into());
    turn_with(&*handle, &[answered("a", charged(1, 2, 0.5))], &with_id);
    turn_to(&*handle, &[assistant("summary")], &with_id);
    talk(
        &*locator,
        &SessionRef::child_of(&root, "c"),
        &[answered("b", charged(3, 4, 0.25))],
    );
    let by_function = must("spend can be read", thread_spend_in(&*locator, "thread"));
    assert_eq!(by_function, of_thread(&*locator, "thread"));
    assert_eq!(by_function.root.turns, 1);
}
