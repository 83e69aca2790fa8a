//! Planning: what a call means for the tables, as one change, computed before anything is written.

mod adopt;
mod append;
mod background;
mod draft;
mod generation;
mod turn;

use std::sync::Arc;

pub(super) use adopt::adopt;
pub(super) use append::{append, append_rows, partial};
pub(super) use background::append_background;
pub(super) use generation::{begin, truncate};
pub(super) use turn::{append_turn, clear, replace};

use super::apply::full_stem;
use super::engine::Engine;
use super::head::SessionParts;
use super::pending::{Claim, Newest, Session, View};
use super::read::context::LiveRows;
use crate::transcript::limits::{MAX_GENERATION, check_meta};
use crate::turn::check_baseline;
use crate::{Error, Result, TranscriptMessage, TranscriptMeta};

/// A generation of a session as a handle addresses it.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) session: Arc<Session>,
    pub(super) generation: u32,
    /// Set when it is addressed by a session reference.
    pub(super) parts: Option<Arc<SessionParts>>,
    /// The meta of a first write that brings none.
    pub(super) seed: Arc<TranscriptMeta>,
    /// Set on the handle of a generation that was begun.
    pub(super) begun: Option<Arc<Begun>>,
}

/// What a begun generation remembers.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) claim: Arc<Claim>,
    pub(super) baseline: Option<Baseline>,
    /// Whether a write through the handle was answered.
    pub(super) written: std::sync::atomic::AtomicBool,
}

/// The context that the predecessor has to have still when its successor is written.
#[derive(Debug)]
pub(super) struct Baseline {
    rows: Vec<TranscriptMessage>,
    /// Of the stored context when the rows were compared with it: as long as it is this, they need not be again.
    digest: u128,
}

impl Begun {
    /// Whether the handle has written the generation, once `view` shows that somebody did. Until the answer to its
    /// first write is out, the reservation tells: nobody else could write while it was held.
    fn has_written(&self, view: &View, generation: u32) -> bool {
        self.written.load(std::sync::atomic::Ordering::Acquire)
            || view.was_reserved(generation, &self.claim)
    }
}

/// What a write addressed to a generation meets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'v> {
    /// The first write of the session.
    First,
    /// The generation is written and open.
    Existing(&'v Newest),
    /// The first write of the generation behind this one.
    Successor(&'v Newest),
}

impl Address {
    /// Whether nothing was ever written to this generation, queued changes included.
    pub(super) fn is_unwritten(&self, engine: &Engine) -> Result<bool> {
        let view = engine.view(&self.session)?;
        Ok(view
            .newest
            .is_none_or(|newest| newest.generation < self.generation))
    }

    pub(super) fn stem(&self) -> String {
        full_stem(&self.session.stem, self.generation)
    }

    /// Whether and how this generation can be written now.
    pub(super) fn target<'v>(&self, view: &'v View) -> Result<Target<'v>> {
        let stem = || self.stem();
        if self.generation > MAX_GENERATION {
            return Err(Error::GenerationLimit {
                stem: stem(),
                limit: MAX_GENERATION,
            });
        }
        let Some(newest) = &view.newest else {
            return if self.generation == 0 {
                Ok(Target::First)
            } else {
                Err(Error::NotWritten {
                    stem: full_stem(&self.session.stem, self.generation - 1),
                })
            };
        };
        let reserved = view.reservation();
        let beaten = self
            .begun
            .as_ref()
            .is_some_and(|begun| !begun.has_written(view, self.generation));
        if self.generation <= newest.generation && beaten {
            return Err(Error::GenerationExists { stem: stem() });
        }
        if self.generation < newest.generation {
            return Err(Error::Sealed { stem: stem() });
        }
        if self.generation == newest.generation {
            return if newest.head.sealed || reserved.is_some() {
                Err(Error::Sealed { stem: stem() })
            } else {
                Ok(Target::Existing(newest))
            };
        }
        if self.generation > newest.generation + 1 {
            return Err(Error::NotWritten {
                stem: full_stem(&self.session.stem, self.generation - 1),
            });
        }
        let claim = self.begun.as_ref().map(|begun| &begun.claim);
        if reserved.is_some_and(|it| !claim.is_some_and(|claim| it.is_of(claim))) {
            return Err(Error::Reserved { stem: stem() });
        }
        Ok(Target::Successor(newest))
    }

    /// Refuses the first write of a begun generation whose baseline is no longer the context of its predecessor.
    ///
    /// Another digest alone does not say so: the context may have been written anew, of rows that are the same.
    fn check_begun(&self, predecessor: &Newest, stored: &mut LiveRows<'_, '_>) -> Result<()> {
        let baseline = self.begun.as_ref().and_then(|it| it.baseline.as_ref());
        match baseline.filter(|it| it.digest != predecessor.head.context.digest) {
            Some(baseline) => {
                let stem = full_stem(&self.session.stem, predecessor.generation);
                check_baseline(&stem, stored, &baseline.rows)
            }
            None => Ok(()),
        }
    }

    /// Begins a change. A first write that brings no meta takes the seed, which is checked here.
    fn draft<'e>(
        &'e self,
        engine: &'e Engine,
        target: &Target<'_>,
        meta: Option<&TranscriptMeta>,
    ) -> Result<draft::Draft<'e>> {
        if meta.is_none() && !matches!(target, Target::Existing(_)) {
            check_meta(&self.stem(), &self.seed)?;
        }
        Ok(draft::Draft::new(
            engine,
            &self.session.stem,
            target,
            self.parts.as_deref(),
            meta,
            &self.seed,
        ))
    }
}

/// Reads that a plan rests on see the tables; what is queued has to be durable before. If some of it failed, the plan
/// starts anew.
fn settled(engine: &Engine, view: &View) -> Result<()> {
    if engine.settled(view) {
        Ok(())
    } else {
        Err(Error::Busy {
            what: "a failed write",
        })
    }
}
