//! `append_turn`: extension, compaction, first write.

use std::sync::Arc;

use super::{Address, Target, settled};
use crate::store::engine::{Engine, Planned};
use crate::store::hash::Seed;
use crate::store::pending::View;
use crate::turn::{
    PlannedRow, RequestId, Stamp, StoredRows as _, check_baseline, check_plan, check_turn,
    common_prefix, plan_context, plan_partial, plan_rows,
};
use crate::{Result, TranscriptMessage, TranscriptPartial, TranscriptTurn};

/// What the caller's two lists say, computed once a call.
struct Digests {
    /// Of `prev`.
    prev: u128,
    /// Whether `next` begins with the rows of `prev`, by hash.
    carried: bool,
}

impl Digests {
    fn new(seed: &Seed, turn: &TranscriptTurn<'_>) -> Self {
        let beginning = turn.next.get(..turn.prev.len());
        // A turn mostly carries its baseline on: as the same rows in memory, or as copies. Comparing a copy costs less
        // than hashing it.
        let same = beginning.is_some_and(|rows| std::ptr::eq(rows, turn.prev));
        let mut digests = Self {
            prev: 0,
            carried: beginning.is_some(),
        };
        for (index, row) in turn.prev.iter().enumerate() {
            let identity = seed.identity(&row.normalized_ref());
            digests.prev = seed.extend(digests.prev, &identity);
            digests.carried = digests.carried
                && (same
                    || turn.next.get(index).is_some_and(|carried| {
                        same_value(row, carried)
                            || seed.identity(&carried.normalized_ref()) == identity
                    }));
        }
        digests
    }
}

/// Equal in everything, legacy strings included.
fn same_value(a: &TranscriptMessage, b: &TranscriptMessage) -> bool {
    a == b && a.legacy.as_deref() == b.legacy.as_deref()
}

/// Persists one turn.
pub(in crate::store) fn append_turn(
    engine: &Engine,
    address: &Address,
    turn: &TranscriptTurn<'_>,
    partial: Option<&TranscriptPartial>,
) -> Result<()> {
    let stem = address.stem();
    check_turn(&stem, turn)?;
    let partial = partial.and_then(|partial| plan_partial(partial, turn.request_id));
    let stamp = Stamp {
        usage: turn.turn_usage,
        request_id: RequestId::Call(turn.request_id),
    };
    let digests = Digests::new(&engine.seed, turn);
    engine.run(&address.session, |view| {
        plan(
            engine,
            address,
            view,
            &stem,
            turn,
            &stamp,
            partial.as_ref(),
            &digests,
        )
    })
}

#[expect(
    clippy::too_many_arguments,
    reason = "one call site; each is a different thing"
)]
fn plan(
    engine: &Engine,
    address: &Address,
    view: &View,
    stem: &str,
    turn: &TranscriptTurn<'_>,
    stamp: &Stamp<'_>,
    partial: Option<&PlannedRow>,
    digests: &Digests,
) -> Result<Planned<()>> {
    let target = address.target(view)?;
    let mut draft = address.draft(engine, &target, Some(turn.meta))?;
    match target {
        Target::First => {
            let rows = plan_rows(turn.next, stamp);
            check_plan(stem, &rows.rows, &rows.usage)?;
            draft.rows(&rows, false)?;
        }
        Target::Successor(predecessor) => {
            settled(engine, view)?;
            engine.read_under(view, |reader| {
                let mut stored = reader.live_rows(predecessor.transcript, &predecessor.head)?;
                address.check_begun(predecessor, &mut stored)?;
                let plan = plan_context(&mut stored, turn.next, stamp)?;
                check_plan(stem, &plan.rows, &plan.usage)?;
                draft.seal(predecessor, turn.request_id, turn.compaction)?;
                draft.succeed(&plan, &stored, false)
            })?;
        }
        Target::Existing(newest) => {
            let head = &newest.head;
            let matches =
                head.context.rows == turn.prev.len() as u64 && head.context.digest == digests.prev;
            if matches && digests.carried {
                let added = turn.next.get(turn.prev.len()..).unwrap_or_default();
                let rows = plan_rows(added, stamp);
                check_plan(stem, &rows.rows, &rows.usage)?;
                draft.rows(&rows, false)?;
            } else {
                settled(engine, view)?;
                engine.read_under(view, |reader| {
                    let mut stored = reader.live_rows(newest.transcript, head)?;
                    if !matches {
                        check_baseline(stem, &mut stored, turn.prev)?;
                    }
                    let common = common_prefix(&mut stored, turn.next)?;
                    if common == stored.len() {
                        let rows = plan_rows(turn.next.get(common..).unwrap_or_default(), stamp);
                        check_plan(stem, &rows.rows, &rows.usage)?;
                        draft.rows(&rows, false)
                    } else {
                        let plan = plan_context(&mut stored, turn.next, stamp)?;
                        check_plan(stem, &plan.rows, &plan.usage)?;
                        draft.compact(&plan, &stored, turn.request_id, turn.compaction)
                    }
                })?;
            }
        }
    }
    draft.tools(turn.tools)?;
    draft.partial(partial)?;
    Ok(draft.finish(|_| ()))
}

/// Replaces the whole context: `replace`, and `clear` with no rows.
pub(in crate::store) fn replace(
    engine: &Engine,
    address: &Address,
    rows: &[TranscriptMessage],
) -> Result<()> {
    let stem = address.stem();
    let stamp = Stamp::AS_GIVEN;
    engine.run(&address.session, |view| {
        let target = address.target(view)?;
        let mut draft = address.draft(engine, &target, None)?;
        match target {
            Target::First => {
                let rows = plan_rows(rows, &stamp);
                check_plan(&stem, &rows.rows, &rows.usage)?;
                draft.rows(&rows, false)?;
            }
            Target::Existing(newest) | Target::Successor(newest) => {
                settled(engine, view)?;
                engine.read_under(view, |reader| {
                    let mut stored = reader.live_rows(newest.transcript, &newest.head)?;
                    if matches!(target, Target::Successor(_)) {
                        address.check_begun(newest, &mut stored)?;
                    }
                    let plan = plan_context(&mut stored, rows, &stamp)?;
                    check_plan(&stem, &plan.rows, &plan.usage)?;
                    if matches!(target, Target::Successor(_)) {
                        draft.seal(newest, None, None)?;
                        draft.succeed(&plan, &stored, false)
                    } else {
                        draft.compact(&plan, &stored, None, None)
                    }
                })?;
            }
        }
        Ok(draft.finish(|_| ()))
    })
}

/// Empties the context. An unwritten transcript stays unwritten, and a begun one frees its slot. Answers whether
/// anything was written.
pub(in crate::store) fn clear(engine: &Engine, address: &Address) -> Result<bool> {
    engine.writable()?;
    if address.is_unwritten(engine)? {
        if let Some(begun) = &address.begun {
            let claim = Arc::as_ptr(&begun.claim);
            address
                .session
                .release(|held| std::ptr::eq(held.owner.as_ptr(), claim));
        }
        return Ok(false);
    }
    replace(engine, address, &[])?;
    Ok(true)
}
