//! The checks after the run: each compares the store with something that the store did not compute.

use std::collections::BTreeMap;
use std::sync::Arc;

use transcript_redb::{
    InMemoryTranscriptLocator, TranscriptLocator, TranscriptSpend, same_transcript_messages,
};

use crate::Result;
use crate::evidence::{Evidence, Used};
use crate::ledger::Ack;
use crate::plan::Session;
use crate::play::{self, SUMMARY_KEY};
use crate::summary::count;

/// One statement and whether it holds.
#[derive(Debug)]
pub struct Proof {
    pub holds: bool,
    pub statement: String,
}

/// Checks everything that the example claims.
pub fn prove(sessions: &[Session], found: &[Evidence], acks: &[Ack]) -> Result<Vec<Proof>> {
    Ok(vec![
        acknowledged(found, acks),
        script(sessions, found),
        reports(sessions, found),
        spend(found),
        reference(sessions, found)?,
    ])
}

/// How many of `acks` are in the store.
pub fn kept<'a>(found: &[Evidence], acks: impl IntoIterator<Item = &'a Ack>) -> usize {
    let holds = |ack: &&Ack| found.get(ack.session).is_some_and(|found| found.holds(ack));
    acks.into_iter().filter(holds).count()
}

fn acknowledged(found: &[Evidence], acks: &[Ack]) -> Proof {
    let kept = kept(found, acks);
    Proof {
        holds: kept == acks.len(),
        statement: format!(
            "every acknowledged write is in the store: {kept} of {} (turns, sub-agents, reports, attempts)",
            acks.len()
        ),
    }
}

/// Nothing of the input is missing, doubled or out of order, and its extra keys are there too.
fn script(sessions: &[Session], found: &[Evidence]) -> Proof {
    let mut stored = sessions.iter().zip(found);
    Proof {
        holds: stored.all(|(session, found)| {
            found.turn_count == session.turns.len() && follows_script(session, found)
        }),
        statement: format!(
            "every message of the input is stored once and in order: {}",
            sessions
                .iter()
                .flat_map(|session| &session.turns)
                .map(|turn| turn.rows.len())
                .sum::<usize>()
        ),
    }
}

/// Whether the rows of the stored turns are exactly those of the plan, up to where the header says the session is.
pub fn follows_script(session: &Session, found: &Evidence) -> bool {
    let turns = session.turns.iter().take(found.turn_count);
    let planned: Vec<_> = turns.flat_map(|turn| &turn.rows).collect();
    let stored: Vec<_> = found
        .rows
        .iter()
        .filter(|row| !row.interrupted && !is_ours(row.message.extra_metadata.as_ref(), session))
        .map(|row| &row.message)
        .collect();
    planned.len() == stored.len()
        && planned.iter().zip(stored).all(|(planned, stored)| {
            planned.same_row_as(stored) && planned.extra_metadata == stored.extra_metadata
        })
}

/// Whether a row is one that the host added to the script: a summary or a report.
fn is_ours(extra: Option<&serde_json::Value>, session: &Session) -> bool {
    let Some(extra) = extra else { return false };
    let key = extra.pointer("/background_origin/idempotency_key");
    let key = key.and_then(serde_json::Value::as_str);
    let mut reports = session.turns.iter().filter_map(|turn| turn.report.as_ref());
    extra.get(SUMMARY_KEY).is_some() || reports.any(|report| Some(report.key.as_str()) == key)
}

fn reports(sessions: &[Session], found: &[Evidence]) -> Proof {
    let mut planned = 0;
    let mut once = 0;
    for (session, found) in sessions.iter().zip(found) {
        for report in session.turns.iter().filter_map(|turn| turn.report.as_ref()) {
            planned += 1;
            once += usize::from(found.reports.get(&report.key) == Some(&1));
        }
    }
    Proof {
        holds: once == planned,
        statement: format!(
            "every background report, delivered again while its row was in the live context, is there once: \
             {once} of {planned}"
        ),
    }
}

fn spend(found: &[Evidence]) -> Proof {
    let mut total = 0.0;
    let holds = found.iter().all(|found| {
        let root = sum(found.usages.iter().filter(|used| !used.subagent));
        let mut agents: BTreeMap<&str, Vec<&Used>> = BTreeMap::new();
        for used in found.usages.iter().filter(|used| used.subagent) {
            agents.entry(&used.agent).or_default().push(used);
        }
        let children = &found.spend.subagents;
        total += found.spend.root.cost_usd;
        total += children
            .values()
            .map(|(spend, _)| spend.cost_usd)
            .sum::<f64>();
        same_totals(&found.spend.root, &root)
            && children.len() == agents.len()
            && children.iter().all(|(agent, (spend, _))| {
                let used = agents.get(agent.as_str()).into_iter().flatten();
                same_totals(spend, &sum(used.copied()))
            })
    });
    Proof {
        holds,
        statement: format!(
            "the spend of {} is what the displays add up to: {total:.6} USD",
            count(found.len(), "thread")
        ),
    }
}

/// The own recount: what the contract says a thread costs, from the displays alone.
pub fn sum<'a>(usages: impl IntoIterator<Item = &'a Used>) -> TranscriptSpend {
    let mut sum = TranscriptSpend::default();
    for Used {
        usage: recorded, ..
    } in usages
    {
        let usage = &recorded.usage;
        sum.turns += 1;
        sum.input_tokens += usage.input;
        sum.output_tokens += usage.output;
        sum.cached_input_tokens += usage.cached_input;
        sum.cost_usd += usage.cost_usd;
        let split = &mut sum.cost_split;
        match usage.cost_source {
            Some(source) if source != transcript_redb::UsageCostSource::Unknown => {
                split.priced_cost_usd += usage.cost_usd;
                split.priced_source = split.priced_source.max(Some(source));
            }
            _ => {
                split.unpriced_turns += 1;
                split.unpriced_input_tokens += usage.input;
                split.unpriced_output_tokens += usage.output;
                split.unpriced_cached_input_tokens += usage.cached_input;
            }
        }
    }
    sum
}

/// Equal in every total. Money may differ by what adding floating point numbers in another order does.
fn same_totals(a: &TranscriptSpend, b: &TranscriptSpend) -> bool {
    let money = |a: f64, b: f64| (a - b).abs() < 1e-9;
    let tokens = |spend: &TranscriptSpend| {
        let split = &spend.cost_split;
        (
            [spend.turns, split.unpriced_turns],
            [
                spend.input_tokens,
                spend.output_tokens,
                spend.cached_input_tokens,
                split.unpriced_input_tokens,
                split.unpriced_output_tokens,
                split.unpriced_cached_input_tokens,
            ],
            split.priced_source,
        )
    };
    tokens(a) == tokens(b)
        && money(a.cost_usd, b.cost_usd)
        && money(a.cost_split.priced_cost_usd, b.cost_split.priced_cost_usd)
}

/// Plays the same plan, without a kill, on the in-memory reference and compares where it ends.
fn reference(sessions: &[Session], found: &[Evidence]) -> Result<Proof> {
    let memory: Arc<dyn TranscriptLocator> = Arc::new(InMemoryTranscriptLocator::new());
    let mut holds = sessions.len() == found.len();
    for (session, found) in sessions.iter().zip(found) {
        play::play(&memory, session, &|_| Ok(()))?;
        let expected = Evidence::gather(memory.as_ref(), session)?;
        holds &= expected.head == found.head
            && expected.turn_count == found.turn_count
            && expected.compactions == found.compactions
            && expected.partials() == found.partials()
            && expected.tasks == found.tasks
            && same_transcript_messages(&expected.live, &found.live)
            && same_totals(&expected.spend.root, &found.spend.root);
    }
    Ok(Proof {
        holds,
        statement: format!(
            "the in-memory reference, never killed, ends in the same state: {}",
            count(sessions.len(), "session")
        ),
    })
}
