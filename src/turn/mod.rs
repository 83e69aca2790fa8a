//! What a turn means: how it is classified, which rows it retains, and what is stamped on the rows it stores.
//!
//! These are pure functions over values, shared by every store, so that two stores cannot disagree on them. Nothing
//! here reads a clock, mints an identity or writes.

mod retain;
mod single;
mod stamp;

use std::borrow::Cow;

use serde_json::Value;

pub(crate) use retain::{Match, Rows, StoredRows, check_baseline, common_prefix, matches};
pub(crate) use single::{
    background_holder, background_origin, cut_length, plan_partial, validate_background,
};
pub(crate) use stamp::{RequestId, Stamp};

use crate::session::{parent_part, split_generation};
use crate::transcript::limits::{
    MAX_GENERATION, check_id, check_message, check_meta, check_nesting, check_usage,
};
use crate::{Error, Result, SessionRef, TranscriptMessage, TranscriptTurn, TurnUsage};
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

/// A row in the form in which it is stored and compared, with the caller's request id and usage; a copy only where that
/// differs from what the caller gave.
fn prepare(row: &TranscriptMessage) -> Cow<'_, TranscriptMessage> {
    let mut row = row.normalized_ref();
    // `failed: false` and a JSON null read back as nothing.
    if row.tool_failure.as_ref().is_some_and(|it| !it.failed) {
        row.to_mut().tool_failure = None;
    }
    if row.extra_metadata.as_ref().is_some_and(Value::is_null) {
        row.to_mut().extra_metadata = None;
    }
    row
}

/// Refuses what a turn brings beside its rows, where no store keeps it.
pub(crate) fn check_turn(stem: &str, turn: &TranscriptTurn<'_>) -> Result<()> {
    check_meta(stem, turn.meta)?;
    if let Some(id) = turn.request_id {
        check_id("request id", id)?;
    }
    if let Some(usage) = turn.turn_usage {
        check_usage(stem, usage)?;
    }
    turn.tools
        .into_iter()
        .chain(turn.compaction)
        .try_for_each(check_nesting)
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

/// Ancestors that a raw stem may spell out.
const MAX_STEM_LEVELS: usize = 256;

/// Bytes of their stems together.
const MAX_ANCESTOR_BYTES: usize = 8 << 20;

/// Refuses a stem that cannot name a transcript.
pub(crate) fn check_stem(stem: &str) -> Result<()> {
    if stem.is_empty() {
        return Err(Error::InvalidId {
            what: "stem",
            reason: "it is empty".to_owned(),
        });
    }
    check_id("stem", stem)?;
    check_ancestors(stem)
}

/// Refuses a stem that spells out so many ancestors, or such long ones, that recording its line would be a burden to
/// everybody else. No session reference comes near: its stem holds two levels at most.
fn check_ancestors(stem: &str) -> Result<()> {
    let (mut base, _) = split_generation(stem);
    let (mut levels, mut bytes) = (0, 0);
    while let Some(parent) = parent_part(base) {
        (base, _) = split_generation(parent);
        levels += 1;
        bytes += parent.len();
        if levels > MAX_STEM_LEVELS || bytes > MAX_ANCESTOR_BYTES {
            return Err(Error::InvalidId {
                what: "stem",
                reason: format!(
                    "the stems of its ancestors are more than {MAX_STEM_LEVELS}, or more than \
                     {MAX_ANCESTOR_BYTES} bytes together"
                ),
            });
        }
    }
    Ok(())
}

/// Refuses a session whose key or agent id is too long.
pub(crate) fn check_session(session: &SessionRef) -> Result<()> {
    check_id("session key", &session.session_key)?;
    match &session.agent_id {
        Some(id) => check_id("agent id", id),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{ErrorKind, MessageUsage, ToolFailure};

    fn read(row: TranscriptMessage) -> TranscriptMessage {
        TranscriptMessage {
            preserve_request_id: true,
            ..row
        }
    }

    fn planned(stored: &[TranscriptMessage], next: &[TranscriptMessage]) -> TurnPlan {
        plan_turn(&mut Rows(stored.iter().collect()), next, &Stamp::AS_GIVEN).unwrap()
    }

    #[test]
    fn a_turn_on_all_stored_rows_is_an_extension_whatever_metadata_the_copies_carry() {
        let stored = [read(TranscriptMessage::user("a"))];
        let changed = TranscriptMessage::user("a").with_extra_metadata(json!({"other": 1}));
        let TurnPlan::Extension(plan) = planned(&stored, std::slice::from_ref(&changed)) else {
            panic!("no extension");
        };
        assert_eq!(plan, RowsPlan::default());
        let next = [changed, TranscriptMessage::assistant("b")];
        let TurnPlan::Extension(plan) = planned(&stored, &next) else {
            panic!("no extension");
        };
        assert_eq!(plan.rows.len(), 1);
        assert_eq!(plan.rows[0].message.content, "b");
    }

    #[test]
    fn a_turn_that_leaves_a_stored_row_out_is_a_compaction() {
        let stored = [
            read(TranscriptMessage::user("a")),
            read(TranscriptMessage::user("b")),
        ];
        let next = [TranscriptMessage::user("sum"), stored[1].clone()];
        let TurnPlan::Compaction(plan) = planned(&stored, &next) else {
            panic!("no compaction");
        };
        assert_eq!(plan.context, [Slot::New(0), Slot::Kept(1)]);
        assert!(matches!(
            planned(&stored, &stored[..1]),
            TurnPlan::Compaction(_)
        ));
    }

    #[test]
    fn a_row_without_a_real_failure_or_metadata_is_stored_without_either() {
        let row = TranscriptMessage::tool("r")
            .with_tool_failure(ToolFailure::default().with_detail("none"))
            .with_extra_metadata(Value::Null);
        let plan = plan_rows(&[row], &Stamp::AS_GIVEN);
        assert_eq!(plan.rows[0].message, read(TranscriptMessage::tool("r")));
    }

    #[test]
    fn a_cost_that_is_no_amount_is_refused_on_a_row_and_on_a_record() {
        let costing = |cost_usd| TurnUsage {
            usage: MessageUsage {
                cost_usd,
                ..MessageUsage::default()
            },
            ..TurnUsage::default()
        };
        let check = |role: &str, cost| {
            let row = TranscriptMessage::new(role, "").with_turn_usage(costing(cost));
            let plan = plan_rows(&[row], &Stamp::AS_GIVEN);
            check_plan("s", &plan.rows, &plan.usage).map_err(|error| error.kind())
        };
        for role in ["assistant", "user"] {
            for cost in [f64::NAN, f64::INFINITY, 1.000_001e9, -1.000_001e9] {
                assert_eq!(
                    check(role, cost),
                    Err(ErrorKind::InvalidMessage),
                    "{role} {cost}"
                );
            }
            for cost in [0.0, 1e9, -1e9] {
                assert_eq!(check(role, cost), Ok(()), "{role} {cost}");
            }
        }
    }

    #[test]
    fn an_interrupted_row_is_planned_but_its_usage_never_counts() {
        let row = TranscriptMessage {
            interrupted: true,
            ..TranscriptMessage::assistant("half").with_turn_usage(TurnUsage::default())
        };
        let plan = plan_rows(&[row], &Stamp::AS_GIVEN);
        assert!(plan.rows[0].message.turn_usage.is_some());
        assert_eq!(plan.rows[0].counted_usage(), None);
    }
}
