//! Spend counted anew from what is shown, by the rules of the contract and with arithmetic of its own.

use std::collections::{BTreeMap, BTreeSet};

use transcript_redb::{
    DisplayRecord, DisplaySessionTranscript, ThreadSpend, TranscriptMeta, TranscriptSpend,
    TurnUsage, UsageCostSource,
};
use uuid::Uuid;

/// A usage that counts, and the record that it stands on.
#[derive(Debug, Clone)]
pub struct Event {
    pub uuid: Uuid,
    pub usage: TurnUsage,
}

/// The usages that a display shows for the first time, in the order of the log.
///
/// Interrupted rows and revisions do not count, nor do usages that only record calls.
pub fn events(display: &DisplaySessionTranscript, counted: &mut BTreeSet<Uuid>) -> Vec<Event> {
    let rows = display.records.iter().flat_map(|record| match record {
        DisplayRecord::Message(row) => std::slice::from_ref(row.as_ref()),
        DisplayRecord::Compaction(marker) => marker.replacement.as_slice(),
    });
    let on_rows = rows
        .filter(|row| !row.interrupted && row.revises.is_none())
        .filter_map(|row| Some((row.uuid, row.turn_usage.as_ref()?)));
    let alone = display
        .unattached
        .iter()
        .map(|record| (record.uuid, &record.usage));
    let mut events: Vec<Event> = on_rows
        .chain(alone)
        .filter(|(uuid, _)| counted.insert(*uuid))
        .filter(|(_, usage)| counts(usage))
        .map(|(uuid, usage)| Event {
            uuid,
            usage: usage.clone(),
        })
        .collect();
    // Identities ascend with the writes.
    events.sort_by_key(|event| event.uuid);
    events
}

fn counts(usage: &TurnUsage) -> bool {
    let sums = &usage.usage;
    let nothing =
        sums.input == 0 && sums.output == 0 && sums.cached_input == 0 && sums.cost_usd == 0.0;
    usage.tool_calls.is_empty() || !nothing
}

/// An amount in units of 10^-12 USD, rounded half to even from the exact value of the number: its decimal form, which
/// ends after 1074 places at most.
pub fn units(usd: f64) -> i128 {
    let exact = format!("{:.1074}", usd.abs());
    let (whole, decimals) = exact.split_once('.').expect("a decimal point");
    let (kept, cut) = decimals.split_at(12);
    let mut units: i128 = format!("{whole}{kept}").parse().expect("a whole number");
    let half = format!("{:0<width$}", '5', width = cut.len());
    if cut > half.as_str() || cut == half && units % 2 == 1 {
        units += 1;
    }
    if usd < 0.0 { -units } else { units }
}

/// A sum of units as a number of USD.
pub fn usd(units: i128) -> f64 {
    let sign = if units < 0 { "-" } else { "" };
    let digits = format!("{:013}", units.unsigned_abs());
    let (whole, decimals) = digits.split_at(digits.len() - 12);
    format!("{sign}{whole}.{decimals}")
        .parse()
        .expect("a number")
}

/// One transcript of a thread: its newest header, and the usages that it was the first to store.
#[derive(Debug)]
pub struct Part<'a> {
    pub meta: &'a TranscriptMeta,
    pub events: Vec<Event>,
}

/// The spend of a sequence of transcripts. `last_*` are of the last that counted a turn.
pub fn spend(parts: &[Part<'_>]) -> TranscriptSpend {
    let mut sum = TranscriptSpend::default();
    let (mut cost, mut priced) = (0, 0);
    for part in parts {
        let mut model = None;
        for event in &part.events {
            let usage = &event.usage;
            let totals = &usage.usage;
            add(&mut sum, totals.input, totals.output, totals.cached_input);
            cost += units(totals.cost_usd);
            sum.turns += 1;
            match totals.cost_source {
                Some(source @ (UsageCostSource::Charged | UsageCostSource::Estimated)) => {
                    priced += units(totals.cost_usd);
                    sum.cost_split.priced_source = sum.cost_split.priced_source.max(Some(source));
                }
                Some(UsageCostSource::Unknown) | None => {
                    let split = &mut sum.cost_split;
                    split.unpriced_turns += 1;
                    add_to(&mut split.unpriced_input_tokens, totals.input);
                    add_to(&mut split.unpriced_output_tokens, totals.output);
                    add_to(&mut split.unpriced_cached_input_tokens, totals.cached_input);
                }
            }
            last(&mut sum, usage);
            if !usage.model.is_empty() {
                model = Some(usage.model.clone());
            }
        }
        sum.model = model.or_else(|| part.meta.model.clone()).or(sum.model);
    }
    sum.cost_usd = usd(cost);
    sum.cost_split.priced_cost_usd = usd(priced);
    sum
}

fn add(sum: &mut TranscriptSpend, input: u64, output: u64, cached: u64) {
    add_to(&mut sum.input_tokens, input);
    add_to(&mut sum.output_tokens, output);
    add_to(&mut sum.cached_input_tokens, cached);
}

fn add_to(sum: &mut u64, tokens: u64) {
    *sum = sum.saturating_add(tokens);
}

fn last(sum: &mut TranscriptSpend, usage: &TurnUsage) {
    let totals = &usage.usage;
    sum.last_input_tokens = totals.input;
    sum.last_output_tokens = totals.output;
    let steps = u64::from(usage.iteration).max(1);
    let of_last_call = totals.last_call_input > 0;
    let (context, input, output) = if of_last_call {
        let (input, output) = (totals.last_call_input, totals.last_call_output);
        (input.saturating_add(output), input, output)
    } else {
        let (input, output) = (totals.input, totals.output);
        (
            input.saturating_add(output) / steps,
            input / steps,
            output / steps,
        )
    };
    sum.last_context_tokens = context;
    sum.last_context_input_tokens = input;
    sum.last_context_output_tokens = output;
    if totals.context_window > 0 {
        sum.context_window = totals.context_window;
    }
}

/// The spend of a thread: its roots in the order of their creation, and of each sub-agent session the archetype and
/// the generations.
pub fn thread(roots: &[Part<'_>], subagents: Vec<(String, Vec<Part<'_>>)>) -> ThreadSpend {
    let mut archetypes: BTreeMap<String, (Vec<Part<'_>>, usize)> = BTreeMap::new();
    for (archetype, generations) in subagents {
        let (parts, runs) = archetypes.entry(archetype).or_default();
        parts.extend(generations);
        *runs += 1;
    }
    let of_subagents = |parts: &[Part<'_>]| TranscriptSpend {
        last_input_tokens: 0,
        last_output_tokens: 0,
        last_context_tokens: 0,
        last_context_input_tokens: 0,
        last_context_output_tokens: 0,
        ..spend(parts)
    };
    ThreadSpend {
        root: spend(roots),
        subagents: archetypes
            .into_iter()
            .map(|(archetype, (parts, runs))| (archetype, (of_subagents(&parts), runs)))
            .collect(),
        updated: roots.last().map(|newest| newest.meta.updated.clone()),
        found_transcript: !roots.is_empty(),
    }
}

#[test]
fn amounts_are_rounded_half_to_even_from_their_exact_value() {
    let unit = 1.0 / 8192.0;
    let cases = [
        (0.0, 0),
        (-0.0, 0),
        (0.1, 100_000_000_000),
        (-2.5, -2_500_000_000_000),
        // Halves: n / 2^13 is n * 122070312.5 units.
        (unit, 122_070_312),
        (3.0 * unit, 366_210_938),
        (-3.0 * unit, -366_210_938),
        (1e9, 1_000_000_000_000_000_000_000),
        (1e9 + 0.1, 1_000_000_000_100_000_023_842),
        (f64::from_bits(1), 0),
    ];
    for (amount, expected) in cases {
        assert_eq!(units(amount), expected, "{amount:e}");
    }
    for (units, expected) in [(3_300_000_000_000, 3.3), (-1, -1e-12), (0, 0.0)] {
        assert_eq!(usd(units).to_bits(), f64::to_bits(expected), "{units}");
    }
}

/// The worked example of the contract, in the live context and in the thread, from both stores.
#[test]
fn the_worked_example_of_the_split_adds_up() {
    use transcript_redb::{
        CostSplit, InMemoryTranscriptLocator, MessageUsage, SessionRef, Store, TranscriptLocator,
        TranscriptMessage, spend,
    };
    let usages = [
        (1, 0.10, Some(UsageCostSource::Charged)),
        (2, 0.20, Some(UsageCostSource::Estimated)),
        (3, 1.00, Some(UsageCostSource::Unknown)),
        (4, 2.00, None),
    ];
    let rows = usages.map(|(input, cost_usd, cost_source)| {
        TranscriptMessage::assistant("a").with_turn_usage(TurnUsage {
            usage: MessageUsage {
                input,
                cost_usd,
                cost_source,
                ..MessageUsage::default()
            },
            ..TurnUsage::default()
        })
    });
    let store = Store::in_memory().expect("a store");
    let locators: [&dyn TranscriptLocator; 2] =
        [&InMemoryTranscriptLocator::new(), &store.locator()];
    for locator in locators {
        let meta = TranscriptMeta::new("agent").with_thread_id("t");
        let session = SessionRef::root("s");
        let history = locator.open_session(&session, meta).expect("a handle");
        for row in &rows {
            history.append(row.clone()).expect("an append");
        }
        let live = history.read_session().expect("a read").expect("a session");
        let thread = locator.thread_spend("t").expect("a sum");
        for spend in [spend::transcript_spend(&live), thread.root] {
            let split = CostSplit {
                priced_cost_usd: 0.30,
                priced_source: Some(UsageCostSource::Estimated),
                unpriced_turns: 2,
                unpriced_input_tokens: 7,
                ..CostSplit::default()
            };
            assert_eq!(spend.cost_split, split);
            assert_eq!((spend.cost_usd, spend.turns), (3.30, 4));
        }
    }
}
