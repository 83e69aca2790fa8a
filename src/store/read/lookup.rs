//! Look-ups that no record is decoded for.

use std::sync::Arc;

use super::{Reader, missing};
use crate::Result;
use crate::store::pending::Newest;

impl Reader<'_> {
    /// The newest written generation of the session with this stem.
    pub(in crate::store) fn newest_of(&mut self, stem: &str) -> Result<Option<Newest>> {
        let Some(session) = self.stem_id(stem)? else {
            return Ok(None);
        };
        let Some((generation, transcript)) = self.newest(session)? else {
            return Ok(None);
        };
        let found = self.transcript(transcript)?;
        if found.birth.session != session || found.birth.generation != generation {
            return Err(missing(
                "a generation",
                &format!("the transcript of generation {generation}"),
            ));
        }
        if found.head.sealed {
            return Err(missing(
                "a generation",
                &format!("the successor of generation {generation}"),
            ));
        }
        Ok(Some(Newest {
            transcript,
            generation,
            incarnation: found.birth.incarnation,
            head: Arc::new(found.head.clone()),
        }))
    }
}
