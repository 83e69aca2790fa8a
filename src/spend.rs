//! What transcripts and threads used and cost.
//!
//! Tokens are summed saturating. Money is summed exactly, in units of 10^-12 of a dollar to which each usage's cost is
//! rounded half to even, and becomes a floating-point number only in the answer: a total does not depend on the order
//! in which its parts were added.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use uuid::Uuid;

use crate::transcript::spend::{pico_to_usd, usd_to_pico};
use crate::{
    CostSplit, DisplayRecord, DisplaySessionTranscript, Result, SessionTranscript, ThreadSpend,
    ThreadTranscript, ThreadTranscripts, TranscriptLocator, TranscriptMeta, TranscriptSpend,
    TurnUsage, UsageCostSource,
};

/// The spend of a transcript's live context: each row's usage, in order.
///
/// A usage of a turn that only records calls (it has tool calls, no token and no cost) is skipped. The model falls
/// back to the header's. For the whole history, rows that were compacted away included, see [`thread_spend_in`].
///
/// Costs one pass over the rows.
#[must_use]
pub fn transcript_spend(transcript: &SessionTranscript) -> TranscriptSpend {
    let mut tally = SpendTally::default();
    for usage in transcript
        .messages
        .iter()
        .filter_map(|row| row.turn_usage.as_ref())
    {
        tally.add(usage);
    }
    tally.to_spend(transcript.meta.model.as_deref())
}

/// How many tokens of the context window a turn filled: those of its final provider call, and where they are unknown
/// the turn's totals over its steps, on average.
#[must_use]
pub fn context_tokens_of(usage: &TurnUsage) -> u64 {
    let totals = &usage.usage;
    if totals.last_call_input > 0 {
        return totals
            .last_call_input
            .saturating_add(totals.last_call_output);
    }
    totals.input.saturating_add(totals.output) / steps(usage)
}

/// The spend of a thread over its full history, as the store answers it: [`TranscriptLocator::thread_spend`].
///
/// A blank or unknown thread has spent nothing.
pub fn thread_spend_in(locator: &dyn TranscriptLocator, thread_id: &str) -> Result<ThreadSpend> {
    locator.thread_spend(thread_id)
}

/// The two components of [`context_tokens_of`], each with the fallback of the sum.
fn context_components_of(usage: &TurnUsage) -> (u64, u64) {
    let totals = &usage.usage;
    if totals.last_call_input > 0 {
        return (totals.last_call_input, totals.last_call_output);
    }
    (totals.input / steps(usage), totals.output / steps(usage))
}

fn steps(usage: &TurnUsage) -> u64 {
    u64::from(usage.iteration.max(1))
}

/// The UTC hour that a usage falls into, counted from the Unix epoch: that of its own time, and where that is no time
/// that of the write, which is given in microseconds since the epoch.
pub(crate) fn usage_hour(usage: &TurnUsage, written_micros: i64) -> i64 {
    let seconds = match usage.ts.parse::<Timestamp>() {
        Ok(time) => time.as_microsecond().div_euclid(1_000_000),
        Err(_) => written_micros.div_euclid(1_000_000),
    };
    seconds.div_euclid(3600)
}

/// An amount of money in units of 10^-12 USD.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Money(pub(crate) i128);

impl Money {
    /// The amount nearest to a number of USD, halves to even, from the number's exact value.
    pub(crate) fn from_usd(usd: f64) -> Self {
        Self(usd_to_pico(usd))
    }

    /// The nearest number of USD.
    pub(crate) fn to_usd(self) -> f64 {
        pico_to_usd(self.0)
    }

    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// The integer totals of a sequence of usages. All public numbers of spend derive from one.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SpendTally {
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) cached_input_tokens: u64,
    pub(crate) cost: Money,
    /// How many usages counted.
    pub(crate) turns: u64,
    /// These five are of the last usage that counted.
    pub(crate) last_input_tokens: u64,
    pub(crate) last_output_tokens: u64,
    pub(crate) last_context_tokens: u64,
    pub(crate) last_context_input_tokens: u64,
    pub(crate) last_context_output_tokens: u64,
    /// The last that was named.
    pub(crate) model: Option<String>,
    /// The last that was known.
    pub(crate) context_window: u64,
    pub(crate) priced: Money,
    pub(crate) priced_source: Option<UsageCostSource>,
    pub(crate) unpriced_turns: u64,
    pub(crate) unpriced_input_tokens: u64,
    pub(crate) unpriced_output_tokens: u64,
    pub(crate) unpriced_cached_input_tokens: u64,
}

impl SpendTally {
    /// Whether a usage counts: one that only records calls does not.
    pub(crate) fn counts(usage: &TurnUsage) -> bool {
        let totals = &usage.usage;
        let tokens = totals.input | totals.output | totals.cached_input;
        usage.tool_calls.is_empty() || tokens != 0 || totals.cost_usd != 0.0
    }

    /// Adds the next usage of the sequence, if it counts.
    pub(crate) fn add(&mut self, usage: &TurnUsage) {
        if Self::counts(usage) {
            self.follow(&Self::of(usage));
        }
    }

    /// The totals of one usage that counts.
    fn of(usage: &TurnUsage) -> Self {
        let totals = &usage.usage;
        let cost = Money::from_usd(totals.cost_usd);
        let (context_input, context_output) = context_components_of(usage);
        let mut tally = Self {
            input_tokens: totals.input,
            output_tokens: totals.output,
            cached_input_tokens: totals.cached_input,
            cost,
            turns: 1,
            last_input_tokens: totals.input,
            last_output_tokens: totals.output,
            last_context_tokens: context_tokens_of(usage),
            last_context_input_tokens: context_input,
            last_context_output_tokens: context_output,
            model: Some(usage.model.clone()).filter(|model| !model.is_empty()),
            context_window: totals.context_window,
            ..Self::default()
        };
        match totals.cost_source {
            Some(source @ (UsageCostSource::Charged | UsageCostSource::Estimated)) => {
                tally.priced = cost;
                tally.priced_source = Some(source);
            }
            Some(UsageCostSource::Unknown) | None => {
                tally.unpriced_turns = 1;
                tally.unpriced_input_tokens = totals.input;
                tally.unpriced_output_tokens = totals.output;
                tally.unpriced_cached_input_tokens = totals.cached_input;
            }
        }
        tally
    }

    /// Adds the totals of a sequence that comes after this one.
    pub(crate) fn follow(&mut self, later: &Self) {
        if later.turns > 0 {
            self.last_input_tokens = later.last_input_tokens;
            self.last_output_tokens = later.last_output_tokens;
            self.last_context_tokens = later.last_context_tokens;
            self.last_context_input_tokens = later.last_context_input_tokens;
            self.last_context_output_tokens = later.last_context_output_tokens;
        }
        if later.model.is_some() {
            self.model.clone_from(&later.model);
        }
        if later.context_window > 0 {
            self.context_window = later.context_window;
        }
        for (sum, part) in [
            (&mut self.input_tokens, later.input_tokens),
            (&mut self.output_tokens, later.output_tokens),
            (&mut self.cached_input_tokens, later.cached_input_tokens),
            (&mut self.turns, later.turns),
            (&mut self.unpriced_turns, later.unpriced_turns),
            (&mut self.unpriced_input_tokens, later.unpriced_input_tokens),
            (
                &mut self.unpriced_output_tokens,
                later.unpriced_output_tokens,
            ),
            (
                &mut self.unpriced_cached_input_tokens,
                later.unpriced_cached_input_tokens,
            ),
        ] {
            *sum = sum.saturating_add(part);
        }
        self.cost = self.cost.plus(later.cost);
        self.priced = self.priced.plus(later.priced);
        self.priced_source = self.priced_source.max(later.priced_source);
    }

    /// The answer that the totals give.
    pub(crate) fn to_spend(&self, fallback_model: Option<&str>) -> TranscriptSpend {
        TranscriptSpend {
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            cached_input_tokens: self.cached_input_tokens,
            cost_usd: self.cost.to_usd(),
            turns: to_count(self.turns),
            last_input_tokens: self.last_input_tokens,
            last_output_tokens: self.last_output_tokens,
            last_context_tokens: self.last_context_tokens,
            last_context_input_tokens: self.last_context_input_tokens,
            last_context_output_tokens: self.last_context_output_tokens,
            model: self
                .model
                .clone()
                .or_else(|| fallback_model.map(str::to_owned)),
            context_window: self.context_window,
            cost_split: CostSplit {
                priced_cost_usd: self.priced.to_usd(),
                priced_source: self.priced_source,
                unpriced_turns: to_count(self.unpriced_turns),
                unpriced_input_tokens: self.unpriced_input_tokens,
                unpriced_output_tokens: self.unpriced_output_tokens,
                unpriced_cached_input_tokens: self.unpriced_cached_input_tokens,
            },
        }
    }

    /// The same totals, with a transcript's model where no usage names one.
    fn or_model(&self, model: Option<&str>) -> Self {
        Self {
            model: self.model.clone().or_else(|| model.map(str::to_owned)),
            ..self.clone()
        }
    }

    /// The sums alone, without what is of the last usage.
    fn without_last(self) -> Self {
        Self {
            last_input_tokens: 0,
            last_output_tokens: 0,
            last_context_tokens: 0,
            last_context_input_tokens: 0,
            last_context_output_tokens: 0,
            ..self
        }
    }
}

fn to_count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// What a root transcript adds to its thread's spend.
#[derive(Debug, Clone)]
pub(crate) struct RootPart<'a> {
    /// The newest header.
    pub(crate) meta: &'a TranscriptMeta,
    /// Over every usage that the transcript was the first to store.
    pub(crate) tally: SpendTally,
}

/// What a transcript of a sub-agent adds to its thread's spend.
#[derive(Debug, Clone)]
pub(crate) struct SubagentPart<'a, Run> {
    /// The agent name in the header of the session's head.
    pub(crate) archetype: &'a str,
    /// Whatever identifies the session: all its generations are one run.
    pub(crate) run: Run,
    /// The model in the transcript's newest header.
    pub(crate) model: Option<&'a str>,
    /// Over every usage that the transcript was the first to store.
    pub(crate) tally: SpendTally,
}

/// Puts the spend of a thread together from its root transcripts, in the order of their creation, and those of its
/// sub-agents, in the order in which a thread lists them.
pub(crate) fn fold_thread<'a, Run: Ord>(
    roots: impl IntoIterator<Item = RootPart<'a>>,
    subagents: impl IntoIterator<Item = SubagentPart<'a, Run>>,
) -> ThreadSpend {
    let mut spend = ThreadSpend::default();
    let mut root = SpendTally::default();
    for part in roots {
        root.follow(&part.tally.or_model(part.meta.model.as_deref()));
        spend.updated = Some(part.meta.updated.clone());
        spend.found_transcript = true;
    }
    spend.root = root.to_spend(None);

    let mut archetypes: BTreeMap<&str, (SpendTally, BTreeSet<Run>)> = BTreeMap::new();
    for part in subagents {
        let (sum, runs) = archetypes.entry(part.archetype).or_default();
        sum.follow(&part.tally.or_model(part.model));
        runs.insert(part.run);
    }
    for (archetype, (sum, runs)) in archetypes {
        let sum = sum.without_last().to_spend(None);
        spend
            .subagents
            .insert(archetype.to_owned(), (sum, runs.len()));
    }
    spend
}

/// The spend of a thread by a walk over the displays of all its transcripts.
///
/// A walk cannot see in which order the transcripts of different sessions were created, but for the newest.
pub(crate) fn walk_thread<L: TranscriptLocator + ?Sized>(
    locator: &L,
    thread_id: &str,
) -> Result<ThreadSpend> {
    let ThreadTranscripts {
        roots,
        pre_identity,
        subagents,
    } = locator.thread_transcripts(thread_id, None)?;
    let newest = locator.root_for_thread(thread_id)?;
    let newest = newest.as_ref().map(|newest| newest.stem());
    let mut roots: Vec<_> = pre_identity.into_iter().chain(roots).collect();
    roots.sort_by_key(|root| newest == Some(&root.stem));

    let mut counted = Counted::default();
    let mut tally = |transcript: &ThreadTranscript| -> Result<SpendTally> {
        let display = transcript.open(locator)?.read_display()?;
        Ok(display.map_or_else(SpendTally::default, |display| counted.tally(&display)))
    };
    let mut root_parts = Vec::new();
    for root in &roots {
        root_parts.push(RootPart {
            meta: &root.meta,
            tally: tally(root)?,
        });
    }
    // The generations of a child are listed oldest first, so the last one of a session is its head.
    let heads: BTreeMap<&str, &str> = subagents
        .iter()
        .map(|child| (child.session_stem(), child.meta.agent_name.as_str()))
        .collect();
    let mut child_parts = Vec::new();
    for child in &subagents {
        let run = child.session_stem();
        child_parts.push(SubagentPart {
            archetype: heads.get(run).copied().unwrap_or(&child.meta.agent_name),
            run,
            model: child.meta.model.as_deref(),
            tally: tally(child)?,
        });
    }
    Ok(fold_thread(root_parts, child_parts))
}

/// The records whose usage has been counted: a retained row stands in the displays of several transcripts.
#[derive(Debug, Default)]
pub(crate) struct Counted(BTreeSet<Uuid>);

impl Counted {
    /// The totals of what `display` is the first to show.
    pub(crate) fn tally(&mut self, display: &DisplaySessionTranscript) -> SpendTally {
        let mut tally = SpendTally::default();
        // Identities ascend along a log, which is how usages that stand on no row find their place between the rows.
        let mut unattached = display.unattached.iter().peekable();
        for record in &display.records {
            let (uuid, rows) = match record {
                DisplayRecord::Message(row) => (row.uuid, std::slice::from_ref(row.as_ref())),
                DisplayRecord::Compaction(marker) => (marker.uuid, marker.replacement.as_slice()),
            };
            while let Some(record) = unattached.next_if(|record| record.uuid < uuid) {
                self.count(record.uuid, &record.usage, &mut tally);
            }
            for row in rows
                .iter()
                .filter(|row| !row.interrupted && row.revises.is_none())
            {
                if let Some(usage) = &row.turn_usage {
                    self.count(row.uuid, usage, &mut tally);
                }
            }
        }
        for record in unattached {
            self.count(record.uuid, &record.usage, &mut tally);
        }
        tally
    }

    fn count(&mut self, uuid: Uuid, usage: &TurnUsage, tally: &mut SpendTally) {
        if self.0.insert(uuid) {
            tally.add(usage);
        }
    }
}
