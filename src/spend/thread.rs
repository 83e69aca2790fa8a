//! The spend of a thread: put together from the totals of its transcripts, or by a walk over them.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::SpendTally;
use crate::{
    DisplayRecord, DisplaySessionTranscript, Result, ThreadSpend, ThreadTranscript,
    ThreadTranscripts, TranscriptLocator, TranscriptMeta, TurnUsage,
};

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
    use crate::MessageUsage;

    fn tally(input: u64) -> SpendTally {
        let mut tally = SpendTally::default();
        tally.add(&TurnUsage {
            usage: MessageUsage {
                input,
                ..MessageUsage::default()
            },
            ..TurnUsage::default()
        });
        tally
    }

    #[test]
    fn the_last_turn_of_a_thread_is_the_newest_root_s_that_counted_one() {
        let metas = ["a", "b"].map(|name| TranscriptMeta::new(name).with_updated(name));
        let parts = [
            RootPart {
                meta: &metas[0],
                tally: tally(1),
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
            tally: tally(input),
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
