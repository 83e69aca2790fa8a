//! A session of an image, as the store knows it.

use std::collections::HashMap;
use std::sync::Arc;

use uuid::Uuid;

use super::damaged;
use crate::store::engine::Engine;
use crate::store::hash::Identity;
use crate::store::head::Range;
use crate::store::pending::{Newest, Session, View};
use crate::{Error, Result};

/// What is known of a session while the image that tells of it is read.
pub(super) struct Known {
    pub(super) session: Arc<Session>,
    /// The session as it was when the import met it.
    view: View,
    /// Generations that the store has.
    held: Vec<u64>,
    /// Whether the store has something that the image has not.
    pub(super) is_ahead: bool,
    /// Whether the image has something that the store has not.
    pub(super) is_grown: bool,
    /// The generation that has to come next.
    pub(super) next: u32,
    pub(super) incarnation: Option<u64>,
    /// The last generation that was read, once all of it was.
    pub(super) newest: Option<Newest>,
    /// Where its records stand, as long as more may refer to them.
    pub(super) places: HashMap<Uuid, (u64, u64)>,
    /// The rows of contexts among them, by transcript, ascending by sequence.
    pub(super) rows: HashMap<u64, Vec<(u64, Identity)>>,
}

impl Known {
    pub(super) fn new(engine: &Engine, stem: &str) -> Result<Self> {
        let session = engine.sessions.get(stem);
        let view = loop {
            let view = engine.view(&session)?;
            if engine.settled(&view) {
                break view;
            }
        };
        let held = engine.read_under(&view, |reader| {
            let chain = match reader.stem_id(stem)? {
                Some(id) => reader.chain(id)?,
                None => Vec::new(),
            };
            Ok(chain
                .into_iter()
                .map(|(_, transcript)| transcript)
                .collect())
        })?;
        Ok(Self {
            session,
            view,
            held,
            is_ahead: false,
            is_grown: false,
            next: 0,
            incarnation: None,
            newest: None,
            places: HashMap::new(),
            rows: HashMap::new(),
        })
    }

    /// Whether the store has it.
    pub(super) fn is_known(&self) -> bool {
        !self.held.is_empty()
    }

    /// The transcript that the store has of a generation.
    pub(super) fn held(&self, generation: u32) -> Option<u64> {
        self.held.get(usize::try_from(generation).ok()?).copied()
    }

    /// Unseals the last generation that was read, if it is to be published and sealed; its transcript.
    pub(super) fn reopen(&mut self) -> Option<u64> {
        let sealed = self.newest.as_mut().filter(|it| it.head.sealed);
        let newest = sealed.filter(|_| self.is_grown)?;
        let mut head = newest.head.as_ref().clone();
        head.sealed = false;
        newest.head = Arc::new(head);
        Some(newest.transcript)
    }

    /// The head that publishing gives it; None if the store has all of it.
    pub(super) fn moved(&self) -> Result<Option<(&Session, &View, Newest)>> {
        if !self.is_grown {
            return Ok(None);
        }
        let read = usize::try_from(self.next).unwrap_or(usize::MAX);
        if self.is_ahead || read < self.held.len() {
            return Err(gone_on(&self.session.stem, ASIDE));
        }
        match &self.newest {
            Some(newest) if !newest.head.sealed => {
                Ok(Some((&self.session, &self.view, newest.clone())))
            }
            _ => Err(damaged("the last generation of a session is missing")),
        }
    }

    /// The run from one record to another; None if one of them is missing, or they are no run.
    pub(super) fn range(&self, first: &Uuid, last: &Uuid) -> Option<Range> {
        let ((transcript, first), (of, last)) =
            self.places.get(first).zip(self.places.get(last))?;
        (transcript == of && first <= last).then(|| Range {
            transcript: *transcript,
            first: *first,
            end: last + 1,
        })
    }

    /// The rows of contexts in a run.
    pub(super) fn rows_of(&self, range: Range) -> &[(u64, Identity)] {
        let Some(rows) = self.rows.get(&range.transcript) else {
            return &[];
        };
        let first = rows.partition_point(|(seq, _)| *seq < range.first);
        let end = rows.partition_point(|(seq, _)| *seq < range.end);
        rows.get(first..end).unwrap_or_default()
    }
}

/// Why a session is refused that both have gone on with.
pub(super) const ASIDE: &str = "the store and the file have each gone on with it in their own way";

/// That the store has a session which is not the one of the image.
pub(super) fn gone_on(stem: &str, reason: &str) -> Error {
    Error::Conflict {
        stem: stem.to_owned(),
        reason: reason.to_owned(),
    }
}
