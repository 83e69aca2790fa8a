//! The agent host itself: it plays a session against the traits and knows no store.

use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};
use transcript_redb::background::append_background_message_in;
use transcript_redb::turn_lock::lock_session_turn;
use transcript_redb::{
    BackgroundAppend, BackgroundAppendOutcome, DisplayRecord, SessionRef, TranscriptHistory,
    TranscriptLocator, TranscriptMessage, TranscriptMeta, TranscriptPartial, TranscriptTurn,
    TurnUsage,
};

use crate::Result;
use crate::ledger::{Ack, Kind};
use crate::plan::{Report, Session, Shape, Task, Turn};
use crate::price;
use crate::wait::block_on;

/// The key of `extra_metadata` that marks a row as a summary of dropped rows.
pub const SUMMARY_KEY: &str = "summary_of";

/// Called with what the store has acknowledged.
pub type Note<'a> = &'a (dyn Fn(Ack) -> Result<()> + Sync);

/// How many turns of `session` the store holds. Every turn writes its number into the header, in the same commit.
pub fn position(locator: &dyn TranscriptLocator, session: &Session) -> Result<usize> {
    let head = locator.head_generation(&session.reference())?;
    let Some(transcript) = locator.read_session_transcript(&head)? else {
        return Ok(0);
    };
    let stored = transcript.read_session()?;
    Ok(stored.map_or(0, |stored| stored.meta.turn_count))
}

/// Plays `session` from where the store stands to its end.
pub fn play(locator: &Arc<dyn TranscriptLocator>, session: &Session, note: Note<'_>) -> Result<()> {
    let player = Player {
        locator: locator.as_ref(),
        session,
        note,
    };
    let done = position(player.locator, session)?;
    // A run that ended between a turn and its report left the report to this one. If it did arrive, its row
    // is still in the live context and holds the idempotency key, which makes it safe to deliver it again.
    let last = done.checked_sub(1).and_then(|last| session.turns.get(last));
    if let Some(report) = last.and_then(|last| last.report.as_ref()) {
        player.deliver_twice(report, true)?;
    }
    for (turn, number) in session.turns.iter().zip(1..).skip(done) {
        player.play_turn(turn, number)?;
        if let Some(report) = &turn.report {
            player.deliver_twice(report, false)?;
        }
    }
    Ok(())
}

struct Player<'a> {
    locator: &'a dyn TranscriptLocator,
    session: &'a Session,
    note: Note<'a>,
}

impl Player<'_> {
    fn play_turn(&self, turn: &Turn, number: usize) -> Result<()> {
        let session = self.session;
        // Held from before the resume read until after the turn is stored: a background report cannot come between.
        let _guard = block_on(lock_session_turn(self.locator, &session.reference()));
        let head = self.locator.head_generation(&session.reference())?;
        let meta = TranscriptMeta::new(session.agent.clone())
            .with_agent_id(session.agent.clone())
            .with_provider(session.provider.clone())
            .with_model(session.model.clone())
            .with_thread_id(session.thread_id.clone())
            .with_turn_count(number);
        let handle = self.locator.open_session(&head, meta.clone())?;
        let stored = handle.read_session()?;
        let stored = stored.map(|stored| stored.messages).unwrap_or_default();

        self.record_attempt(turn, handle.as_ref())?;
        for task in &turn.tasks {
            self.run_task(task, &head)?;
        }

        let (mut next, compaction) = match turn.shape {
            Shape::Extend => (stored.clone(), None),
            Shape::Compact | Shape::Succeed => compacted(&stored),
        };
        let cached = if compaction.is_some() { 0 } else { next.len() };
        let context = next.len();
        next.extend(turn.rows.iter().cloned());
        let (provider, model) =
            model_of(&turn.rows).unwrap_or((session.provider.as_str(), session.model.as_str()));
        let stopped = turn.cut_off.as_ref();
        let usage = usage_of(&next, context, cached, stopped, provider, model);

        let declare = number == 1 || turn.shape == Shape::Succeed;
        let mut change = TranscriptTurn::new(&stored, &next, &meta).with_request_id(&turn.request);
        change.turn_usage = usage.as_ref();
        change.tools = declare.then_some(&session.tools);
        change.compaction = compaction.as_ref();
        let target = if turn.shape == Shape::Succeed {
            let (_, successor) =
                self.locator
                    .begin_generation_from_baseline(&head, meta.clone(), &stored)?;
            successor
        } else {
            handle
        };
        target.append_turn_with_partial(change, stopped)?;
        self.acknowledge(Kind::Turn, &turn.request)
    }

    /// Keeps the text of an attempt that the user stopped, unless an earlier run did so before it was killed.
    fn record_attempt(&self, turn: &Turn, handle: &dyn TranscriptHistory) -> Result<()> {
        let Some(partial) = &turn.attempt else {
            return Ok(());
        };
        let newest = handle.read_display_before(None, 1)?;
        let newest = newest.and_then(|mut slice| slice.records.pop());
        if let Some((_, DisplayRecord::Message(message))) = newest
            && message.interrupted
            && message.request_id.as_ref() == Some(&turn.request)
        {
            return Ok(());
        }
        let session = self.session;
        let recorded = self.locator.append_interrupted_partial(
            &session.thread_id,
            Some(&session.agent),
            partial,
            Some(&turn.request),
        )?;
        if !recorded {
            return Err(format!("{}: the attempt found no transcript", turn.request).into());
        }
        self.acknowledge(Kind::Attempt, &turn.request)
    }

    /// Runs a sub-agent. Its transcript is written before the turn that asked for it, in one piece.
    fn run_task(&self, task: &Task, parent: &SessionRef) -> Result<()> {
        let child = SessionRef::child_of(parent, task.key.clone());
        if self.locator.session_exists(&child)? {
            return Ok(());
        }
        let (provider, model) = ("fjord", "fjord-small-2");
        let meta = TranscriptMeta::new(task.agent.clone())
            .with_agent_id(task.agent.clone())
            .with_provider(provider)
            .with_model(model)
            .with_thread_id(self.session.thread_id.clone())
            .with_task_id(task.key.clone())
            .with_turn_count(1);
        let handle = self.locator.open_session(&child, meta.clone())?;
        let usage = usage_of(&task.rows, 0, 0, None, provider, model);
        let mut change = TranscriptTurn::new(&[], &task.rows, &meta).with_request_id(&task.key);
        change.turn_usage = usage.as_ref();
        handle.append_turn(change)?;
        self.acknowledge(Kind::Task, &task.key)
    }

    /// Delivers a report from two threads at once, as a queue that repeats itself would. One of them must be told
    /// that it came second; after a restart it may be both.
    fn deliver_twice(&self, report: &Report, restarted: bool) -> Result<()> {
        let deliver = || {
            let append = BackgroundAppend::new(report.key.clone(), report.provenance.clone());
            let message = TranscriptMessage::assistant(report.text.clone());
            let reference = self.session.reference();
            block_on(append_background_message_in(
                self.locator,
                &reference,
                message,
                append,
            ))
        };
        let (here, there) = thread::scope(|scope| {
            let there = scope.spawn(deliver);
            (deliver(), there.join())
        });
        let there = there.map_err(|_| "a delivery panicked")?;
        match (here?, there?) {
            (
                BackgroundAppendOutcome::Appended { .. },
                BackgroundAppendOutcome::Duplicate { .. },
            )
            | (
                BackgroundAppendOutcome::Duplicate { .. },
                BackgroundAppendOutcome::Appended { .. },
            ) => {}
            (
                BackgroundAppendOutcome::Duplicate { .. },
                BackgroundAppendOutcome::Duplicate { .. },
            ) if restarted => {}
            (one, other) => {
                let key = &report.key;
                return Err(format!("report {key}: answered {one:?} and {other:?}").into());
            }
        }
        self.acknowledge(Kind::Report, &report.key)
    }

    fn acknowledge(&self, kind: Kind, name: &str) -> Result<()> {
        (self.note)(Ack {
            kind,
            session: self.session.index,
            name: name.to_owned(),
        })
    }
}

/// A shorter context: the instructions, a summary of what is dropped, and everything from the last user row on. What
/// is kept are the rows as they were read, so that the store knows them again.
fn compacted(stored: &[TranscriptMessage]) -> (Vec<TranscriptMessage>, Option<Value>) {
    let is_summary = |row: &TranscriptMessage| {
        let extra = row.extra_metadata.as_ref();
        extra.is_some_and(|extra| extra.get(SUMMARY_KEY).is_some())
    };
    let recent = stored
        .iter()
        .rposition(|row| row.role == "user")
        .unwrap_or(stored.len());
    let (old, recent) = stored.split_at_checked(recent).unwrap_or((stored, &[]));
    let mut kept: Vec<_> = old
        .iter()
        .take_while(|row| row.role == "system" && !is_summary(row))
        .cloned()
        .collect();
    let dropped = old.get(kept.len()..).unwrap_or_default();
    if dropped.is_empty() {
        return (stored.to_vec(), None);
    }
    let asked = dropped.iter().filter(|row| row.role == "user");
    let asked: Vec<String> = asked
        .map(|row| row.content.chars().take(60).collect())
        .collect();
    let mut summary = TranscriptMessage::system(format!(
        "Earlier, {} messages: {}",
        dropped.len(),
        asked.join(" / ")
    ));
    summary.extra_metadata = Some(json!({ SUMMARY_KEY: dropped.len() }));
    kept.push(summary);
    kept.extend(recent.iter().cloned());
    let facts = json!({"trigger": "size", "rows_before": stored.len(), "rows_after": kept.len()});
    (kept, Some(facts))
}

/// Provider and model of the newest answer that names both.
fn model_of(rows: &[TranscriptMessage]) -> Option<(&str, &str)> {
    rows.iter().rev().find_map(|row| {
        let extra = row.extra_metadata.as_ref()?;
        let word = |key| extra.get(key).and_then(Value::as_str);
        (row.role == "assistant").then_some(())?;
        word("provider").zip(word("model"))
    })
}

/// What the provider calls of a turn used: one call for each assistant row from `context` on, and one that was
/// stopped, each of which is sent everything before it. The first `cached` rows are in the provider's cache.
fn usage_of(
    rows: &[TranscriptMessage],
    context: usize,
    cached: usize,
    stopped: Option<&TranscriptPartial>,
    provider: &str,
    model: &str,
) -> Option<TurnUsage> {
    let cached = rows.iter().take(cached).map(price::tokens).sum();
    let mut before = 0;
    let mut calls = Vec::new();
    let mut reasoning = None;
    for (index, row) in rows.iter().enumerate() {
        if index >= context && row.role == "assistant" {
            calls.push((before, cached, price::tokens(row)));
            let extra = row.extra_metadata.as_ref();
            reasoning = extra.and_then(|extra| extra.get("reasoning_content")?.as_str());
        }
        before += price::tokens(row);
    }
    // The steps that the turn's rows stand for; a stopped call is paid for, but leaves no row.
    let iteration = u32::try_from(calls.len()).unwrap_or(u32::MAX).max(1);
    if let Some(partial) = stopped {
        let heard = TranscriptMessage::assistant(partial.content.clone());
        calls.push((before, cached, price::tokens(&heard)));
    }
    (!calls.is_empty()).then(|| TurnUsage {
        provider: provider.to_owned(),
        model: model.to_owned(),
        usage: price::usage(provider, model, &calls),
        ts: jiff::Timestamp::now().to_string(),
        reasoning_content: reasoning.map(str::to_owned),
        iteration,
        ..TurnUsage::default()
    })
}
