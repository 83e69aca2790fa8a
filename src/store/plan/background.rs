//! Idempotent background appends.

use super::{Address, Target, append, settled};
use crate::store::engine::{Engine, Planned};
use crate::{BackgroundAppend, BackgroundAppendOutcome as Outcome, Result, TranscriptMessage};

/// Appends a validated row to the head of the session, unless its live context holds the key. `address` is of
/// generation 0.
pub(in crate::store) fn append_background(
    engine: &Engine,
    address: &Address,
    row: &TranscriptMessage,
    append: &BackgroundAppend,
) -> Result<Outcome> {
    engine.run(&address.session, |view| {
        let Some(newest) = &view.newest else {
            return Ok(Planned::Answer(Outcome::NoSession));
        };
        let head = newest.generation;
        if let Some(expected) = append
            .expected_generation
            .filter(|expected| *expected != head)
        {
            return Ok(Planned::Answer(Outcome::StaleGeneration { expected, head }));
        }
        settled(engine, view)?;
        let taken = engine.read_under(view, |reader| {
            reader.holds_key(
                &address.session.stem,
                newest.transcript,
                &newest.head,
                &append.idempotency_key,
            )
        })?;
        if taken {
            return Ok(Planned::Answer(Outcome::Duplicate { generation: head }));
        }
        let address = Address {
            generation: head,
            ..address.clone()
        };
        let target = address.target(view)?;
        debug_assert!(matches!(target, Target::Existing(_)));
        Ok(append::row(engine, &address, view, &target, row)?
            .map(|()| Outcome::Appended { generation: head }))
    })
}
