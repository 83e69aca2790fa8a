//! What a source would add to an empty store, in numbers.

use std::collections::HashSet;
use std::hash::Hash;

use super::calls::{CallBook, CallCost};
use super::emit::Sink;
use super::fact::{CallFact, ContextReason, Fact, Kept, Place, RepeatKey, RowFact};
use super::report::FileReport;
use crate::{Result, SessionRef, TurnUsage};

/// Counts facts and keeps none of them.
#[derive(Debug, Default)]
pub struct Tally {
    known: HashSet<(RepeatKey, u32)>,
    sessions: HashSet<SessionRef>,
    messages: u64,
    duplicates: u64,
    compactions: u64,
    lossy: u64,
    /// Usage that counts with its row.
    rows: CallCost,
    calls: CallBook,
}

impl Tally {
    /// Adds the counts to a report.
    pub fn add_to(&self, report: &mut FileReport) {
        let calls = self.calls.sum();
        report.messages += self.messages;
        report.duplicates += self.duplicates;
        report.compactions += self.compactions;
        report.sessions += self.sessions.len() as u64;
        report.lossy += self.lossy;
        report.distinct_message_ids += self.calls.message_ids();
        report.input_tokens += self.rows.input.saturating_add(calls.input);
        report.output_tokens += self.rows.output.saturating_add(calls.output);
        report.cached_input_tokens += self.rows.cached_input.saturating_add(calls.cached_input);
        report.cache_write_tokens += self.rows.cache_write.saturating_add(calls.cache_write);
        report.cost_usd += self.rows.cost_usd + calls.cost_usd;
    }

    fn row(&mut self, row: &RowFact) {
        if !self.is_new(row.key, row.place) {
            return;
        }
        self.messages += 1;
        self.lossy += u64::from(row.lossy);
        if let (Some(usage), None) = (&row.message.turn_usage, row.revises) {
            let cost = cost_of(usage, row.cache_write);
            self.rows.input = self.rows.input.saturating_add(cost.input);
            self.rows.output = self.rows.output.saturating_add(cost.output);
            self.rows.cached_input = self.rows.cached_input.saturating_add(cost.cached_input);
            self.rows.cache_write = self.rows.cache_write.saturating_add(cost.cache_write);
            self.rows.cost_usd += cost.cost_usd;
        }
    }

    fn is_new(&mut self, key: RepeatKey, place: Place) -> bool {
        let new = insert(&mut self.known, (key, place.part));
        self.duplicates += u64::from(!new);
        new
    }

    fn call(&mut self, call: &CallFact) {
        self.calls
            .note(&call.id, cost_of(&call.usage, call.cache_write));
    }
}

fn insert<T: Eq + Hash>(known: &mut HashSet<T>, item: T) -> bool {
    known.insert(item)
}

fn cost_of(usage: &TurnUsage, cache_write: u64) -> CallCost {
    CallCost {
        output: usage.usage.output,
        input: usage.usage.input,
        cached_input: usage.usage.cached_input,
        cache_write,
        cost_usd: usage.usage.cost_usd,
    }
}

impl Sink for Tally {
    fn take(&mut self, fact: Fact) -> Result<()> {
        match fact {
            Fact::Session(_, session) => {
                self.sessions.insert(session.session);
            }
            Fact::Row(_, row) => self.row(&row),
            Fact::Context(context) => {
                if self.is_new(context.key, context.place)
                    && context.reason == ContextReason::Compaction
                {
                    self.compactions += 1;
                }
                for kept in &context.rows {
                    if let Kept::New(_, row) = kept {
                        self.row(row);
                    }
                }
            }
            Fact::Call(call) => self.call(&call),
            Fact::Tools { .. } | Fact::Partial { .. } | Fact::Seal { .. } | Fact::Bad(_) => {}
        }
        Ok(())
    }
}
