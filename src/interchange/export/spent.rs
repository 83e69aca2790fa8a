//! What the store keeps of calls apart from rows. Formats that have no other place for it get it on rows.

use std::collections::HashMap;

use uuid::Uuid;

use crate::{DisplayMessage, Record, RecordKind, Result, TurnUsage};

/// How many rows around its place a usage is offered to.
const AROUND: usize = 32;

/// What a row costs: its usage, and how many tokens of its input were written to a cache.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cost {
    pub(super) usage: TurnUsage,
    pub(super) cache_write: u64,
}

/// Where a usage or a row is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    /// A file of those that the session was imported from; None for what a host wrote.
    file: Option<u64>,
    /// Where in the file, or in the log.
    place: u64,
}

/// A row of the model, which can have a usage.
#[derive(Debug)]
struct Slot {
    origin: Origin,
    row: Uuid,
    /// What it has.
    cost: Option<Cost>,
    /// Whether that is more than it came with.
    given: bool,
}

/// The usages of a session, each on a row.
#[derive(Debug, Default)]
pub(super) struct Spent {
    on: HashMap<Uuid, Cost>,
    /// The files of usages that count and that no row could take; None for those of a host.
    pub(super) left_out: Vec<Option<u64>>,
}

impl Spent {
    /// Puts the usage records of a session, all that count, on rows: the nearest row of the model before it that has
    /// none, or one of the same model. What was imported goes on rows of the same file only, and what a host wrote on rows
    /// of the host.
    ///
    /// `file` says which file a source is, as one that has grown is several.
    pub(super) fn gather(
        records: impl Iterator<Item = Result<Record>>,
        file: impl Fn(u64) -> Option<u64>,
    ) -> Result<Self> {
        let mut slots: Vec<Slot> = Vec::new();
        let mut usages: Vec<(Origin, Cost)> = Vec::new();
        for (at, record) in (0..).zip(records) {
            let record = record?;
            let imported = record.origin;
            let origin = Origin {
                file: imported.and_then(|origin| file(origin.source)),
                place: imported.map_or(at, |origin| origin.offset),
            };
            let cache_write = record.cache_write_tokens;
            match record.kind {
                RecordKind::Usage if !record.superseded => {
                    if let Some(usage) = record.usage {
                        usages.push((origin, Cost { usage, cache_write }));
                    }
                }
                RecordKind::Message => {
                    let row = record.message.filter(takes_usage);
                    slots.extend(row.map(|row| Slot {
                        origin,
                        row: record.uuid,
                        // The sums alone: the row brings the rest along when it is written.
                        cost: (row.turn_usage).map(|usage| Cost {
                            usage: TurnUsage {
                                reasoning_content: None,
                                tool_calls: Vec::new(),
                                ..usage
                            },
                            cache_write,
                        }),
                        given: false,
                    }));
                }
                _ => {}
            }
        }
        // Rows of a file stand in their own order even where another file came between them.
        slots.sort_by_key(|slot| slot.origin);
        let mut left_out = Vec::new();
        for (origin, cost) in usages {
            if !give(&mut slots, origin, cost) {
                left_out.push(origin.file);
            }
        }
        let given = slots.into_iter().filter(|slot| slot.given);
        let on = given.filter_map(|slot| Some((slot.row, slot.cost?)));
        Ok(Self {
            on: on.collect(),
            left_out,
        })
    }

    /// What a row costs with what usage records add to `own`, and how many tokens of that were written to a cache.
    pub(super) fn on(
        &self,
        row: Uuid,
        own: Option<TurnUsage>,
        cache_write: u64,
    ) -> (Option<TurnUsage>, u64) {
        let Some(cost) = self.on.get(&row) else {
            return (own, cache_write);
        };
        let usage = match own {
            Some(own) => TurnUsage {
                usage: cost.usage.usage.clone(),
                ..own
            },
            None => cost.usage.clone(),
        };
        (Some(usage), cost.cache_write)
    }
}

/// Revisions do not: their usage counts no more.
fn takes_usage(row: &DisplayMessage) -> bool {
    row.message.role == "assistant" && !row.interrupted && row.revises.is_none()
}

/// Puts a usage on a row near `origin`; false if none takes it.
fn give(slots: &mut [Slot], origin: Origin, cost: Cost) -> bool {
    let behind = slots.partition_point(|slot| slot.origin <= origin);
    let before = behind.saturating_sub(AROUND)..behind;
    let after = behind..slots.len().min(behind + AROUND);
    for at in before.rev().chain(after) {
        let Some(slot) = slots.get_mut(at) else {
            continue;
        };
        if slot.origin.file != origin.file {
            continue;
        }
        match &mut slot.cost {
            None => slot.cost = Some(cost),
            Some(held) if held.goes_with(&cost) => held.add(&cost),
            Some(_) => continue,
        }
        slot.given = true;
        return true;
    }
    false
}

impl Cost {
    /// Whether nothing is lost if both are one usage.
    fn goes_with(&self, other: &Self) -> bool {
        let source = |it: &Self| it.usage.usage.cost_source;
        self.usage.provider == other.usage.provider
            && self.usage.model == other.usage.model
            && source(self) == source(other)
    }

    fn add(&mut self, other: &Self) {
        let (sum, more) = (&mut self.usage.usage, &other.usage.usage);
        sum.input = sum.input.saturating_add(more.input);
        sum.output = sum.output.saturating_add(more.output);
        sum.cached_input = sum.cached_input.saturating_add(more.cached_input);
        sum.cost_usd += more.cost_usd;
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
    }
}
