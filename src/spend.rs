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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MessageUsage, TranscriptMessage, TranscriptToolCall};

    fn usage(input: u64, cost_usd: f64, cost_source: Option<UsageCostSource>) -> TurnUsage {
        TurnUsage {
            usage: MessageUsage {
                input,
                cost_usd,
                cost_source,
                ..MessageUsage::default()
            },
            ..TurnUsage::default()
        }
    }

    fn tally(usages: &[TurnUsage]) -> SpendTally {
        let mut tally = SpendTally::default();
        usages.iter().for_each(|usage| tally.add(usage));
        tally
    }

    /// Usages of many magnitudes, for which sums of floating-point numbers would depend on the order.
    fn mixed() -> Vec<TurnUsage> {
        let costs = [
            1e9,
            0.1,
            -1e9,
            0.2,
            1e-12,
            5e-13,
            0.3,
            -0.000_000_7,
            123_456_789.123,
        ];
        let sources = [
            None,
            Some(UsageCostSource::Charged),
            Some(UsageCostSource::Estimated),
            Some(UsageCostSource::Unknown),
        ];
        let sources = sources.into_iter().cycle();
        (1..)
            .zip(costs)
            .zip(sources)
            .map(|((input, cost), source)| usage(input, cost, source))
            .collect()
    }

    #[test]
    fn the_contract_s_example_adds_up() {
        let spend = tally(&[
            usage(1, 0.10, Some(UsageCostSource::Charged)),
            usage(2, 0.20, Some(UsageCostSource::Estimated)),
            usage(3, 1.00, Some(UsageCostSource::Unknown)),
            usage(4, 2.00, None),
        ])
        .to_spend(None);
        assert_eq!(spend.cost_usd.to_bits(), 3.30_f64.to_bits());
        assert_eq!(
            spend.cost_split,
            CostSplit {
                priced_cost_usd: 0.30,
                priced_source: Some(UsageCostSource::Estimated),
                unpriced_turns: 2,
                unpriced_input_tokens: 7,
                ..CostSplit::default()
            }
        );
        assert_eq!((spend.turns, spend.last_input_tokens), (4, 4));
    }

    #[test]
    fn sums_do_not_depend_on_the_order() {
        let forward = mixed();
        let backward: Vec<_> = forward.iter().rev().cloned().collect();
        let sums = |usages: &[TurnUsage]| tally(usages).without_last();
        assert_eq!(sums(&forward), sums(&backward));
    }

    #[test]
    fn a_tally_of_parts_is_the_tally_of_the_whole_wherever_it_is_cut() {
        let usages = mixed();
        for cut in 0..=usages.len() {
            let mut parts = tally(&usages[..cut]);
            parts.follow(&tally(&usages[cut..]));
            assert_eq!(parts, tally(&usages), "cut at {cut}");
        }
    }

    #[test]
    fn a_later_part_that_names_nothing_leaves_what_is_known() {
        let known = TurnUsage {
            model: "m".to_owned(),
            usage: MessageUsage {
                context_window: 8,
                ..usage(5, 0.0, None).usage
            },
            ..TurnUsage::default()
        };
        let mut whole = tally(&[known]);
        whole.follow(&SpendTally::default());
        assert_eq!(whole.last_input_tokens, 5);
        whole.follow(&tally(&[usage(6, 0.0, None)]));
        assert_eq!(whole.last_input_tokens, 6);
        assert_eq!(
            (whole.model.as_deref(), whole.context_window),
            (Some("m"), 8)
        );
    }

    #[test]
    fn tokens_stop_at_the_largest_number() {
        let spend = tally(&[usage(u64::MAX, 0.0, None), usage(2, 0.0, None)]).to_spend(None);
        assert_eq!(spend.input_tokens, u64::MAX);
        assert_eq!(spend.cost_split.unpriced_input_tokens, u64::MAX);
    }

    #[test]
    fn only_a_usage_that_does_nothing_but_record_calls_is_skipped() {
        let calls = TurnUsage {
            tool_calls: vec![TranscriptToolCall::default()],
            ..TurnUsage::default()
        };
        let mut cached = calls.clone();
        cached.usage.cached_input = 1;
        let mut refund = calls.clone();
        refund.usage.cost_usd = -0.5;
        assert_eq!(tally(std::slice::from_ref(&calls)), SpendTally::default());
        assert_eq!(
            tally(&[calls, cached, refund, TurnUsage::default()]).turns,
            3
        );
    }

    #[test]
    fn the_context_is_the_last_call_s_else_the_average_of_the_steps() {
        let mut used = TurnUsage {
            usage: MessageUsage {
                input: 90,
                output: 11,
                ..MessageUsage::default()
            },
            iteration: 4,
            ..TurnUsage::default()
        };
        assert_eq!(
            (context_tokens_of(&used), context_components_of(&used)),
            (25, (22, 2))
        );
        used.iteration = 0;
        assert_eq!(
            (context_tokens_of(&used), context_components_of(&used)),
            (101, (90, 11))
        );
        used.usage.last_call_output = 5;
        assert_eq!(
            context_tokens_of(&used),
            101,
            "an output alone is no last call"
        );
        used.usage.last_call_input = 30;
        assert_eq!(
            (context_tokens_of(&used), context_components_of(&used)),
            (35, (30, 5))
        );
    }

    #[test]
    fn a_live_context_s_model_falls_back_to_the_header_s() {
        let mut transcript = SessionTranscript {
            meta: TranscriptMeta::new("agent").with_model("from header"),
            messages: vec![TranscriptMessage::assistant("a").with_turn_usage(usage(1, 0.5, None))],
            tools: None,
        };
        assert_eq!(
            transcript_spend(&transcript).model.as_deref(),
            Some("from header")
        );
        let mut named = usage(1, 0.5, None);
        named.model = "named".to_owned();
        transcript
            .messages
            .push(TranscriptMessage::assistant("b").with_turn_usage(named));
        let spend = transcript_spend(&transcript);
        assert_eq!((spend.model.as_deref(), spend.turns), (Some("named"), 2));
    }

    #[test]
    fn an_hour_is_the_usage_s_own_in_utc_else_that_of_the_write() {
        let hour = |ts: &str, micros| {
            let ts = ts.to_owned();
            usage_hour(
                &TurnUsage {
                    ts,
                    ..TurnUsage::default()
                },
                micros,
            )
        };
        assert_eq!(hour("1970-01-01T02:59:59.9Z", 0), 2);
        assert_eq!(hour("1970-01-01T02:30:00+02:00", 0), 0);
        assert_eq!(hour("1969-12-31T23:59:59.5Z", 0), -1);
        assert_eq!(hour("", 7_200_000_000), 2);
        assert_eq!(hour("yesterday", 7_199_999_999), 1);
        assert_eq!(hour("", -1), -1);
    }

    #[test]
    fn the_last_turn_of_a_thread_is_the_newest_root_s_that_counted_one() {
        let metas = ["a", "b"].map(|name| TranscriptMeta::new(name).with_updated(name));
        let parts = [
            RootPart {
                meta: &metas[0],
                tally: tally(&[usage(1, 0.0, None)]),
            },
            RootPart {
                meta: &metas[1],
                tally: SpendTally::default(),
            },
        ];
        let spend = fold_thread(parts, Vec::<SubagentPart<'_, u8>>::new());
        assert_eq!(spend.root.last_input_tokens, 1);
        assert_eq!(spend.updated.as_deref(), Some("b"));
        assert!(spend.found_transcript);
    }

    #[test]
    fn generations_of_a_sub_agent_are_one_run_and_have_no_last_turn() {
        let part = |archetype, run, input| SubagentPart {
            archetype,
            run,
            model: None,
            tally: tally(&[usage(input, 0.0, None)]),
        };
        let spend = fold_thread(
            [],
            [
                part("w", 1, 1),
                part("w", 1, 2),
                part("w", 2, 4),
                part("x", 3, 8),
            ],
        );
        let (workers, runs) = &spend.subagents["w"];
        assert_eq!((workers.input_tokens, workers.turns, *runs), (7, 3, 2));
        assert_eq!(
            (workers.last_input_tokens, workers.last_context_tokens),
            (0, 0)
        );
        assert_eq!(spend.subagents["x"].1, 1);
        assert!(!spend.found_transcript);
    }
}
