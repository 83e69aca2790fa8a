//! Appends without a baseline: a single row, a partial, and the rows of a host that keeps a head token.

use super::{Address, Target, settled};
use crate::store::engine::{Engine, Planned};
use crate::store::pending::View;
use crate::store::{AppendRows, HeadToken};
use crate::transcript::limits::{check_id, check_meta, check_nesting, check_usage};
use crate::turn::{RequestId, Stamp, check_plan, plan_context, plan_partial, plan_rows};
use crate::{Error, Result, TranscriptMessage, TranscriptPartial};

/// Appends one row to what is stored at that moment.
pub(in crate::store) fn append(
    engine: &Engine,
    address: &Address,
    message: &TranscriptMessage,
) -> Result<()> {
    engine.run(&address.session, |view| {
        let target = address.target(view)?;
        row(engine, address, view, &target, message)
    })
}

/// Plans the append of one row to `target`.
pub(super) fn row(
    engine: &Engine,
    address: &Address,
    view: &View,
    target: &Target<'_>,
    message: &TranscriptMessage,
) -> Result<Planned<()>> {
    let stem = address.stem();
    let rows = std::slice::from_ref(message);
    let mut draft = address.draft(engine, target, None)?;
    if let Target::Successor(predecessor) = target {
        settled(engine, view)?;
        engine.read_under(view, |reader| {
            let mut stored = reader.live_rows(predecessor.transcript, &predecessor.head)?;
            address.check_begun(predecessor, &mut stored)?;
            let plan = plan_context(&mut stored, rows, &Stamp::AS_GIVEN)?;
            check_plan(&stem, &plan.rows, &plan.usage)?;
            draft.seal(predecessor, None, None)?;
            draft.succeed(&plan, &stored, true)
        })?;
    } else {
        let plan = plan_rows(rows, &Stamp::AS_GIVEN);
        check_plan(&stem, &plan.rows, &plan.usage)?;
        draft.rows(&plan, true)?;
    }
    Ok(draft.finish(|_| ()))
}

/// Records the text of an interrupted turn. Answers false when there is none.
pub(in crate::store) fn partial(
    engine: &Engine,
    address: &Address,
    partial: &TranscriptPartial,
    request_id: Option<&str>,
) -> Result<bool> {
    if let Some(id) = request_id {
        check_id("request id", id)?;
    }
    let Some(row) = plan_partial(partial, request_id) else {
        return Ok(false);
    };
    engine.run(&address.session, |view| {
        let target = address.target(view)?;
        let mut draft = address.draft(engine, &target, None)?;
        if let Target::Successor(predecessor) = target {
            draft.seal(predecessor, None, None)?;
        }
        draft.partial(Some(&row))?;
        Ok(draft.finish(|_| true))
    })
}

/// Appends the rows of one turn to the head that `token` names.
pub(in crate::store) fn append_rows(
    engine: &Engine,
    address: &Address,
    token: &HeadToken,
    rows: &AppendRows<'_>,
) -> Result<HeadToken> {
    let stem = address.stem();
    if let Some(id) = rows.request_id {
        check_id("request id", id)?;
    }
    if let Some(meta) = rows.meta {
        check_meta(&stem, meta)?;
    }
    if let Some(usage) = rows.usage {
        check_usage(&stem, usage)?;
    }
    rows.tools.map(check_nesting).transpose()?;
    let stamp = Stamp {
        usage: rows.usage,
        request_id: RequestId::Call(rows.request_id),
    };
    if rows.rows.is_empty() && (rows.usage.is_some() || rows.partial.is_some()) {
        return Err(Error::InvalidMessage {
            stem,
            reason: "there are no rows to store the usage or the partial with".to_owned(),
        });
    }
    let planned = plan_rows(rows.rows, &stamp);
    check_plan(&stem, &planned.rows, &planned.usage)?;
    let partial = rows
        .partial
        .and_then(|partial| plan_partial(partial, rows.request_id));
    engine.run(&address.session, |view| {
        let stale = |found: usize| Error::Stale {
            stem: stem.clone(),
            expected: crate::store::head::to_usize(token.seq),
            found,
        };
        let Some(newest) = &view.newest else {
            return Err(Error::NotWritten { stem: stem.clone() });
        };
        if newest.generation > token.generation {
            return Err(Error::Sealed { stem: stem.clone() });
        }
        if HeadToken::of(newest) != *token {
            return Err(stale(crate::store::head::to_usize(newest.head.next_seq)));
        }
        let target = address.target(view)?;
        if rows.rows.is_empty() {
            return Ok(Planned::Answer(*token));
        }
        let mut draft = address.draft(engine, &target, rows.meta)?;
        draft.rows(&planned, false)?;
        draft.tools(rows.tools)?;
        draft.partial(partial.as_ref())?;
        Ok(draft.finish(HeadToken::of))
    })
}
