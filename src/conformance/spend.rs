//! Spend of one sequence: what is counted of a usage and how it is summed (contract section 7).

use std::sync::Arc;

use super::support::{answered, charged, messages, meta, must, open, turn_to, turn_with, user};
use super::{Check, Factory};
use crate::spend::{context_tokens_of, transcript_spend};
use crate::{
    CostSplit, MessageUsage, SessionRef, ThreadSpend, TranscriptHistory, TranscriptLocator,
    TranscriptMessage, TranscriptSpend, TranscriptToolCall, TurnUsage, UsageCostSource,
};

pub(super) const CHECKS: &[Check] = table![
    the_worked_example_of_the_contract_holds,
    a_transcript_sums_its_live_context,
    a_usage_that_only_records_calls_is_skipped,
    the_context_tokens_are_those_of_the_last_call_or_an_average,
    the_last_turn_the_model_and_the_window_are_the_newest_known,
    the_model_falls_back_to_the_meta,
    money_is_exact_in_any_order,
    a_refund_lowers_the_sum,
    tokens_are_summed_saturating,
];

#[track_caller]
pub(super) fn of_thread(locator: &dyn TranscriptLocator, thread: &str) -> ThreadSpend {
    must("spend can be read", locator.thread_spend(thread))
}

#[track_caller]
pub(super) fn of_transcript(handle: &dyn TranscriptHistory) -> TranscriptSpend {
    let session = must("a read works", handle.read_session()).expect("it was written");
    transcript_spend(&session)
}

#[track_caller]
pub(super) fn talk(
    locator: &dyn TranscriptLocator,
    session: &SessionRef,
    rows: &[TranscriptMessage],
) -> Arc<dyn TranscriptHistory> {
    let handle = open(locator, session);
    turn_with(&*handle, rows, &meta("agent", "thread"));
    handle
}

fn priced(input: u64, cost: f64, source: Option<UsageCostSource>) -> TurnUsage {
    let mut usage = charged(input, 0, cost);
    usage.usage.cost_source = source;
    usage
}

/// Charged 0.10, estimated 0.20, unknown 1.00, none 2.00 with inputs 1, 2, 3, 4.
pub fn the_worked_example_of_the_contract_holds(factory: Factory<'_>) {
    let locator = factory();
    let rows = [
        answered("a", priced(1, 0.10, Some(UsageCostSource::Charged))),
        answered("b", priced(2, 0.20, Some(UsageCostSource::Estimated))),
        answered("c", priced(3, 1.00, Some(UsageCostSource::Unknown))),
        answered("d", priced(4, 2.00, None)),
    ];
    let handle = talk(&*locator, &SessionRef::root("k"), &rows);
    let expected = TranscriptSpend {
        input_tokens: 10,
        cost_usd: 3.30,
        turns: 4,
        last_input_tokens: 4,
        last_context_tokens: 4,
        last_context_input_tokens: 4,
        cost_split: CostSplit {
            priced_cost_usd: 0.30,
            priced_source: Some(UsageCostSource::Estimated),
            unpriced_turns: 2,
            unpriced_input_tokens: 7,
            ..CostSplit::default()
        },
        ..TranscriptSpend::default()
    };
    assert_eq!(of_transcript(&*handle), expected);
    assert_eq!(of_thread(&*locator, "thread").root, expected);
}

/// What was compacted away does not count for the transcript, only for its thread.
pub fn a_transcript_sums_its_live_context(factory: Factory<'_>) {
    let locator = factory();
    let rows = [
        answered("a", charged(100, 50, 1.0)),
        answered("b", charged(10, 5, 0.5)),
    ];
    let handle = talk(&*locator, &SessionRef::root("k"), &rows);
    let kept = messages(&*handle)[1].clone();
    turn_to(&*handle, &[user("summary"), kept], &meta("agent", "thread"));
    let spend = of_transcript(&*handle);
    assert_eq!(
        (spend.turns, spend.input_tokens, spend.output_tokens),
        (1, 10, 5)
    );
    assert!((spend.cost_usd - 0.5).abs() < f64::EPSILON);
    let root = of_thread(&*locator, "thread").root;
    assert_eq!(
        (root.turns, root.input_tokens, root.output_tokens),
        (2, 110, 55)
    );
}

/// Calls, no tokens, no cost: the shell of a turn that is counted elsewhere.
pub fn a_usage_that_only_records_calls_is_skipped(factory: Factory<'_>) {
    let locator = factory();
    let calls = || vec![TranscriptToolCall::default()];
    let shell = TurnUsage {
        tool_calls: calls(),
        model: "shell".into(),
        ..charged(0, 0, 0.0)
    };
    let mut cached = shell.clone();
    cached.usage.cached_input = 1;
    let costly = TurnUsage {
        tool_calls: calls(),
        ..charged(0, 0, 0.25)
    };
    let empty = charged(0, 0, 0.0);
    let session = SessionRef::root("k");
    let handle = talk(&*locator, &session, &[answered("a", shell)]);
    assert_eq!(of_transcript(&*handle), TranscriptSpend::default());
    assert_eq!(
        of_thread(&*locator, "thread").root,
        TranscriptSpend::default()
    );
    for usage in [cached, costly, empty] {
        turn_with(&*handle, &[answered("b", usage)], &meta("agent", "thread"));
    }
    assert_eq!(of_transcript(&*handle).turns, 3, "the others count");
    assert_eq!(of_thread(&*locator, "thread").root.turns, 3);
}

/// `last_call_*` when the host knows them, else the totals divided by the steps.
pub fn the_context_tokens_are_those_of_the_last_call_or_an_average(factory: Factory<'_>) {
    let usage = |last: (u64, u64), iteration| TurnUsage {
        iteration,
        usage: MessageUsage {
            input: 100,
            output: 31,
            last_call_input: last.0,
            last_call_output: last.1,
            ..MessageUsage::default()
        },
        ..TurnUsage::default()
    };
    let table = [
        (usage((40, 7), 3), (47, 40, 7)),
        (usage((40, 0), 0), (40, 40, 0)),
        (usage((0, 7), 0), (131, 100, 31)),
        (usage((0, 0), 1), (131, 100, 31)),
        (usage((0, 0), 3), (43, 33, 10)),
    ];
    for (usage, (tokens, input, output)) in table {
        assert_eq!(context_tokens_of(&usage), tokens);
        let locator = factory();
        talk(&*locator, &SessionRef::root("k"), &[answered("a", usage)]);
        let root = of_thread(&*locator, "thread").root;
        assert_eq!(root.last_context_tokens, tokens);
        assert_eq!(root.last_context_input_tokens, input);
        assert_eq!(root.last_context_output_tokens, output);
    }
}

/// The newest counted turn; a model or a window that a later turn does not know stays.
pub fn the_last_turn_the_model_and_the_window_are_the_newest_known(factory: Factory<'_>) {
    let locator = factory();
    let mut first = TurnUsage {
        model: "m-1".into(),
        ..charged(10, 5, 0.5)
    };
    first.usage.context_window = 1000;
    let mut second = TurnUsage {
        model: "m-2".into(),
        ..charged(20, 6, 0.5)
    };
    second.usage.context_window = 2000;
    let third = charged(30, 7, 0.5);
    let rows = [
        answered("a", first),
        answered("b", second),
        answered("c", third),
    ];
    let handle = talk(&*locator, &SessionRef::root("k"), &rows);
    for spend in [of_transcript(&*handle), of_thread(&*locator, "thread").root] {
        assert_eq!((spend.last_input_tokens, spend.last_output_tokens), (30, 7));
        assert_eq!(spend.model.as_deref(), Some("m-2"));
        assert_eq!(spend.context_window, 2000);
    }
}

/// No usage named one.
pub fn the_model_falls_back_to_the_meta(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let mut with_model = meta("agent", "thread");
    with_model.model = Some("of the meta".into());
    turn_with(&*handle, &[answered("a", charged(1, 1, 0.0))], &with_model);
    assert_eq!(
        of_transcript(&*handle).model.as_deref(),
        Some("of the meta")
    );
    assert_eq!(
        of_thread(&*locator, "thread").root.model.as_deref(),
        Some("of the meta")
    );
}

/// Money is summed in whole units of 10^-12 USD, so the order of the parts does not show.
pub fn money_is_exact_in_any_order(factory: Factory<'_>) {
    let costs = [1e9, 0.1, 1e-12, 0.2, -1e9, 1e-12, 0.3, 3e-6];
    let mut sums = Vec::new();
    for rotation in 0..costs.len() {
        let locator = factory();
        let mut rotated = costs;
        rotated.rotate_left(rotation);
        let rows: Vec<_> = rotated
            .into_iter()
            .map(|cost| answered("a", charged(1, 0, cost)))
            .collect();
        let (first, second) = rows.split_at(rotation);
        talk(&*locator, &SessionRef::root("a"), first);
        talk(&*locator, &SessionRef::root("b"), second);
        sums.push(of_thread(&*locator, "thread").root.cost_usd.to_string());
    }
    assert_eq!(sums, vec!["0.600003000002"; costs.len()]);
}

/// A negative cost is a refund.
pub fn a_refund_lowers_the_sum(factory: Factory<'_>) {
    let locator = factory();
    let rows = [
        answered("a", charged(1, 0, 0.75)),
        answered("b", charged(0, 0, -0.5)),
    ];
    let handle = talk(&*locator, &SessionRef::root("k"), &rows);
    for spend in [of_transcript(&*handle), of_thread(&*locator, "thread").root] {
        assert!((spend.cost_usd - 0.25).abs() < f64::EPSILON);
        assert!((spend.cost_split.priced_cost_usd - 0.25).abs() < f64::EPSILON);
        assert_eq!(spend.turns, 2);
    }
}

/// Absurd counts do not wrap around.
pub fn tokens_are_summed_saturating(factory: Factory<'_>) {
    let locator = factory();
    let mut usage = charged(u64::MAX, u64::MAX - 1, 0.0);
    usage.usage.cached_input = u64::MAX;
    usage.usage.last_call_input = u64::MAX;
    usage.usage.last_call_output = u64::MAX;
    usage.usage.cost_source = None;
    let rows = [answered("a", usage.clone()), answered("b", usage)];
    let handle = talk(&*locator, &SessionRef::root("k"), &rows);
    for spend in [of_transcript(&*handle), of_thread(&*locator, "thread").root] {
        assert_eq!(spend.input_tokens, u64::MAX);
        assert_eq!(spend.output_tokens, u64::MAX);
        assert_eq!(spend.cached_input_tokens, u64::MAX);
        assert_eq!(spend.last_context_tokens, u64::MAX);
        assert_eq!(spend.cost_split.unpriced_input_tokens, u64::MAX);
    }
}
