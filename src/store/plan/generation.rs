//! Generations: reserving a successor, and truncating into one.

use std::sync::Arc;

use super::{Address, Baseline, Begun, Target, settled};
use crate::store::apply::full_stem;
use crate::store::engine::Engine;
use crate::store::pending::{Claim, View};
use crate::transcript::limits::MAX_GENERATION;
use crate::turn::{Stamp, check_baseline, cut_length, plan_context};
use crate::{Error, Result, TranscriptMessage, TruncateCut};

/// Reserves the generation behind `address`, whose context must be `baseline` if one is given.
pub(in crate::store) fn begin(
    engine: &Engine,
    address: &Address,
    baseline: Option<&[TranscriptMessage]>,
) -> Result<Begun> {
    engine.writable()?;
    loop {
        let view = engine.view(&address.session)?;
        if !engine.settled(&view) {
            continue;
        }
        let newest = free(address, &view)?;
        if let Some(baseline) = baseline {
            engine.read_under(&view, |reader| {
                let mut stored = reader.live_rows(newest.transcript, &newest.head)?;
                check_baseline(&address.stem(), &mut stored, baseline)
            })?;
        }
        let claim = Arc::new(Claim);
        let since = engine.environment.now_micros();
        if address
            .session
            .reserve(&view, address.generation + 1, &claim, since)
        {
            return Ok(Begun {
                claim,
                baseline: baseline.map(|rows| Baseline {
                    rows: rows.to_vec(),
                    digest: newest.head.context.digest,
                }),
                written: false.into(),
            });
        }
    }
}

/// The head that `address` names, if a successor of it can be written or reserved.
fn free<'v>(address: &Address, view: &'v View) -> Result<&'v crate::store::pending::Newest> {
    let successor = || full_stem(&address.session.stem, address.generation.saturating_add(1));
    if address.generation >= MAX_GENERATION {
        return Err(Error::GenerationLimit {
            stem: successor(),
            limit: MAX_GENERATION,
        });
    }
    let Some(newest) = view
        .newest
        .as_ref()
        .filter(|it| it.generation >= address.generation)
    else {
        return Err(Error::NotWritten {
            stem: address.stem(),
        });
    };
    if newest.generation > address.generation {
        return Err(Error::GenerationExists { stem: successor() });
    }
    if view.reservation().is_some() {
        return Err(Error::Reserved { stem: successor() });
    }
    Ok(newest)
}

/// Cuts the head of a session and writes what is kept into the next generation. Answers that generation and the kept
/// rows. `next` makes the address of the new generation from its number.
pub(in crate::store) fn truncate(
    engine: &Engine,
    session: &Address,
    cut: &TruncateCut,
    next: impl Fn(u32) -> Address,
) -> Result<(u32, Vec<TranscriptMessage>)> {
    engine.run(&session.session, |view| {
        settled(engine, view)?;
        let Some(newest) = &view.newest else {
            return Err(Error::NotWritten {
                stem: session.stem(),
            });
        };
        let head = Address {
            generation: newest.generation,
            ..session.clone()
        };
        let kept = engine.read_under(view, |reader| {
            let mut messages = reader.messages(newest.transcript, &newest.head)?;
            messages.truncate(cut_length(&head.stem(), &messages, cut)?);
            Ok(messages)
        })?;
        let newest = free(&head, view)?;
        let address = next(newest.generation + 1);
        let mut draft = address.draft(engine, &Target::Successor(newest), None)?;
        engine.read_under(view, |reader| {
            let mut stored = reader.live_rows(newest.transcript, &newest.head)?;
            let plan = plan_context(&mut stored, &kept, &Stamp::AS_GIVEN)?;
            draft.seal(newest, None, None)?;
            draft.succeed(&plan, &stored, false)
        })?;
        let generation = newest.generation + 1;
        Ok(draft.finish(|_| (generation, kept)))
    })
}
