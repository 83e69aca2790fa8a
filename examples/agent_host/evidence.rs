//! What the store holds of a session, read back through the traits.

use std::collections::{BTreeMap, HashSet};

use transcript_redb::{
    DisplayMessage, DisplayRecord, DisplaySessionTranscript, SessionRef, ThreadSpend,
    TranscriptLocator, TranscriptMessage, TurnUsage,
};
use uuid::Uuid;

use crate::Result;
use crate::ledger::{Ack, Kind};
use crate::plan::Session;

/// Everything that is stored of one session and its sub-agents.
#[derive(Debug, Default)]
pub struct Evidence {
    /// The newest generation; none when nothing is stored.
    pub head: Option<SessionRef>,
    pub generations: usize,
    pub turn_count: usize,
    /// The live context of the head.
    pub live: Vec<TranscriptMessage>,
    /// Every row of the session once, in log order, whatever became of it.
    pub rows: Vec<DisplayMessage>,
    pub compactions: usize,
    /// The tasks of the stored sub-agents.
    pub tasks: HashSet<String>,
    /// Every recorded usage of the session and its sub-agents.
    pub usages: Vec<Used>,
    /// How often each background report stands in the session.
    pub reports: BTreeMap<String, usize>,
    /// What the store says the thread cost.
    pub spend: ThreadSpend,
    /// Request ids of stored turns, and of stored partials.
    turns: HashSet<String>,
    partials: HashSet<String>,
}

/// One recorded usage and the agent it belongs to.
#[derive(Debug)]
pub struct Used {
    pub agent: String,
    pub subagent: bool,
    pub usage: TurnUsage,
}

impl Evidence {
    /// Reads all of `session`: its chain of generations, its sub-agents and its spend.
    pub fn gather(locator: &dyn TranscriptLocator, session: &Session) -> Result<Self> {
        let mut found = Evidence::default();
        let chain = locator.session_chain(&session.reference())?;
        let mut seen = HashSet::new();
        for generation in &chain {
            let transcript = locator
                .read_session_transcript(generation)?
                .ok_or_else(|| {
                    format!("{} is in the chain but not there", generation.session_id())
                })?;
            if let Some(display) = transcript.read_display()? {
                let rows = found.take(display, &session.agent, false, &mut seen);
                found.rows.extend(rows);
            }
            if let Some(replayed) = transcript.read_session()? {
                found.turn_count = replayed.meta.turn_count;
                found.live = replayed.messages;
            }
        }
        found.generations = chain.len();
        found.head = chain.into_iter().next_back();
        for child in locator
            .thread_transcripts(&session.thread_id, None)?
            .subagents
        {
            let reference = child
                .session
                .ok_or_else(|| format!("{} has no session", child.stem))?;
            let transcript = locator
                .read_session_transcript(&reference)?
                .ok_or_else(|| format!("{} is listed but not there", child.stem))?;
            if let Some(display) = transcript.read_display()? {
                found.take(display, &child.meta.agent_name, true, &mut seen);
                found.tasks.extend(child.meta.task_id);
            }
        }
        for row in &found.rows {
            if let Some(origin) = &row.background {
                *found
                    .reports
                    .entry(origin.idempotency_key.clone())
                    .or_default() += 1;
            } else if let Some(request) = &row.request_id {
                let names = if row.interrupted {
                    &mut found.partials
                } else {
                    &mut found.turns
                };
                names.insert(request.clone());
            }
        }
        found.spend = locator.thread_spend(&session.thread_id)?;
        Ok(found)
    }

    /// The rows of one transcript that were not seen before. A retained row is the same row wherever it stands, and a
    /// revision is a new look of one that is already counted.
    fn take(
        &mut self,
        display: DisplaySessionTranscript,
        agent: &str,
        subagent: bool,
        seen: &mut HashSet<Uuid>,
    ) -> Vec<DisplayMessage> {
        let mut rows = Vec::new();
        for record in display.records {
            match record {
                DisplayRecord::Message(row) => rows.push(*row),
                DisplayRecord::Compaction(marker) => {
                    self.compactions += 1;
                    rows.extend(marker.replacement);
                }
            }
        }
        rows.retain(|row| row.revises.is_none() && seen.insert(row.uuid));
        let of_rows = rows.iter().filter(|row| !row.interrupted);
        let of_rows = of_rows.filter_map(|row| row.turn_usage.clone());
        let alone = display.unattached.into_iter().map(|record| record.usage);
        self.usages.extend(of_rows.chain(alone).map(|usage| Used {
            agent: agent.to_owned(),
            subagent,
            usage,
        }));
        rows
    }

    /// Whether what was acknowledged is there.
    pub fn holds(&self, ack: &Ack) -> bool {
        match ack.kind {
            Kind::Turn => self.turns.contains(&ack.name),
            Kind::Task => self.tasks.contains(&ack.name),
            Kind::Report => self.reports.contains_key(&ack.name),
            Kind::Attempt => self.partials.contains(&ack.name),
        }
    }

    /// How many interrupted texts are stored.
    pub fn partials(&self) -> usize {
        self.rows.iter().filter(|row| row.interrupted).count()
    }

    /// How many turns of `session` are stored.
    pub fn turns_of(&self, session: &Session) -> usize {
        let turns = session.turns.iter();
        turns
            .filter(|turn| self.turns.contains(&turn.request))
            .count()
    }
}
