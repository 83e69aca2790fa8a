//! What a turn means: how it is classified, which rows it retains, and what is stamped on the rows it stores.
//!
//! These are pure functions over values, shared by every store, so that two stores cannot disagree on them. Nothing
//! here reads a clock, mints an identity or writes.

mod retain;
mod single;
mod stamp;

pub(crate) use retain::{
    Match, Rows, StoredRows, check_baseline, common_prefix, matches, same_context,
};
pub(crate) use single::{
    background_holder, background_origin, cut_length, plan_partial, validate_background,
};
pub(crate) use stamp::{RequestId, Stamp};

use crate::transcript::limits::{MAX_GENERATION, check_id, check_message, check_usage};
use crate::{Error, Result, SessionRef, TranscriptMessage, TurnUsage};
use retain::Fate;

/// A row that a call stores.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlannedRow {
    /// The row as it reads back: normalized, with its final request id and usage, `preserve_request_id` set.
    ///
    /// An `interrupted` row stands in the log and the display alone, never in the live context.
    pub(crate) message: TranscriptMessage,
    /// The step stamp.
    pub(crate) iteration: Option<u32>,
    /// The time of the step stamp.
    pub(crate) ts: Option<String>,
    /// The stored row, by its index in the context before, that this one is a revision of.
    pub(crate) revises: Option<usize>,
}

impl PlannedRow {
    /// The usage that counts in spend: a revision's was counted with the row it revises, a partial's never counts.
    pub(crate) fn counted_usage(&self) -> Option<&TurnUsage> {
        if self.revises.is_some() || self.message.interrupted {
            return None;
        }
        self.message.turn_usage.as_ref()
    }
}

/// A usage that no stored row carries: it becomes a record of its own.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlannedUsage {
    pub(crate) usage: TurnUsage,
    pub(crate) request_id: Option<String>,
}

/// What a first write or an extension stores. The log takes the rows first, then the usage records.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RowsPlan {
    pub(crate) rows: Vec<PlannedRow>,
    pub(crate) usage: Vec<PlannedUsage>,
}

/// A row of a new context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The stored row with this index in the context before.
    Kept(usize),
    /// The row with this index in the plan's `rows`.
    New(usize),
}

/// What a compaction, a `replace` or a successor's first write stores.
///
/// `context` is the whole replacement in order. The live context is the same without the new rows that are
/// `interrupted`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ContextPlan {
    pub(crate) context: Vec<Slot>,
    pub(crate) rows: Vec<PlannedRow>,
    pub(crate) usage: Vec<PlannedUsage>,
}

/// What a turn on a written transcript is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TurnPlan {
    /// Every stored row stands at the beginning of the new context: the rows behind are added.
    Extension(RowsPlan),
    /// Anything else: the context is replaced.
    Compaction(ContextPlan),
}

/// Plans the storing of `rows`, none of which is a stored row: a first write or an extension.
pub(crate) fn plan_rows(rows: &[TranscriptMessage], stamp: &Stamp<'_>) -> RowsPlan {
    let rows = rows.iter().map(prepare).collect();
    let ContextPlan { rows, usage, .. } = stamp::plan(rows, &[], stamp);
    RowsPlan { rows, usage }
}

/// Plans a context that takes the place of `stored`: a compaction, a `replace`, or a successor's first write with the
/// predecessor's context as `stored`.
pub(crate) fn plan_context(
    stored: &mut dyn StoredRows,
    next: &[TranscriptMessage],
    stamp: &Stamp<'_>,
) -> Result<ContextPlan> {
    let rows: Vec<_> = next.iter().map(prepare).collect();
    let fates: Vec<Fate> = retain::fates(stored, &rows)?;
    Ok(stamp::plan(rows, &fates, stamp))
}

/// Plans a turn on a written transcript whose baseline has been checked.
pub(crate) fn plan_turn(
    stored: &mut dyn StoredRows,
    next: &[TranscriptMessage],
    stamp: &Stamp<'_>,
) -> Result<TurnPlan> {
    let common = common_prefix(stored, next)?;
    if common == stored.len() {
        let added = next.get(common..).unwrap_or_default();
        return Ok(TurnPlan::Extension(plan_rows(added, stamp)));
    }
    Ok(TurnPlan::Compaction(plan_context(stored, next, stamp)?))
}

/// A row in the form in which it is stored and compared, with the caller's request id and usage.
fn prepare(row: &TranscriptMessage) -> TranscriptMessage {
    let mut row = row.normalized();
    // `failed: false` and a JSON null read back as nothing.
    row.tool_failure = row.tool_failure.filter(|failure| failure.failed);
    row.extra_metadata = row.extra_metadata.filter(|metadata| !metadata.is_null());
    row
}

/// Refuses planned rows and usage records that no store keeps: ids too long, JSON too deep, costs that are no amount.
pub(crate) fn check_plan(stem: &str, rows: &[PlannedRow], usage: &[PlannedUsage]) -> Result<()> {
    for row in rows {
        check_message(stem, &row.message)?;
    }
    for record in usage {
        check_usage(stem, &record.usage)?;
        if let Some(id) = &record.request_id {
            check_id("request id", id)?;
        }
    }
    Ok(())
}

/// Refuses a generation beyond the last. `stem` is its own.
pub(crate) fn check_generation(stem: &str, generation: u32) -> Result<()> {
    if generation <= MAX_GENERATION {
        return Ok(());
    }
    Err(Error::GenerationLimit {
        stem: stem.to_owned(),
        limit: MAX_GENERATION,
    })
}

/// Refuses a stem that cannot name a transcript.
pub(crate) fn check_stem(stem: &str) -> Result<()> {
    if stem.is_empty() {
        return Err(Error::InvalidId {
            what: "stem",
            reason: "it is empty".to_owned(),
        });
    }
    check_id("stem", stem)
}

/// Refuses a session whose key or agent id is too long.
pub(crate) fn check_session(session: &SessionRef) -> Result<()> {
    check_id("session key", &session.session_key)?;
    match &session.agent_id {
        Some(id) => check_id("agent id", id),
        None => Ok(()),
    }
}
