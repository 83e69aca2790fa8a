//! Look-ups that no record is decoded for.

use std::sync::Arc;

use super::{Reader, missing};
use crate::Result;
use crate::store::head::Course;
use crate::store::pending::Newest;

impl Reader<'_> {
    /// The newest written generation of the session with this stem, with its head.
    pub(in crate::store) fn newest_of(&mut self, stem: &str) -> Result<Option<Newest>> {
        let Some((transcript, course)) = self.newest_course(stem)? else {
            return Ok(None);
        };
        Ok(Some(Newest {
            transcript,
            generation: course.birth.generation,
            incarnation: course.birth.incarnation,
            head: Arc::new(self.transcript(transcript)?.head.clone()),
        }))
    }

    /// The transcript of the newest written generation of the session with this stem.
    pub(in crate::store) fn newest_course(
        &mut self,
        stem: &str,
    ) -> Result<Option<(u64, Arc<Course>)>> {
        let Some(session) = self.stem_id(stem)? else {
            return Ok(None);
        };
        let Some((generation, transcript)) = self.newest(session)? else {
            return Ok(None);
        };
        let found = self.course(transcript)?;
        if found.birth.session != session || found.birth.generation != generation {
            return Err(missing(
                "a generation",
                &format!("the transcript of generation {generation}"),
            ));
        }
        if found.sealed {
            return Err(missing(
                "a generation",
                &format!("the successor of generation {generation}"),
            ));
        }
        Ok(Some((transcript, found)))
    }
}
