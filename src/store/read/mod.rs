//! Reading: every look-up and every walk over the log, each on one snapshot.

pub(super) mod contents;
pub(super) mod context;
pub(super) mod display;
pub(super) mod image;
mod imports;
pub(super) mod lists;
pub(super) mod log;
pub(super) mod lookup;
pub(super) mod records;
pub(super) mod threads;

use std::collections::HashMap;
use std::sync::Arc;

use super::apply::full_stem;
use super::binary;
use super::codec::Dictionaries;
use super::database::storage_error;
use super::hash::Seed;
use super::head::{Course, Range, StemInfo, Transcript, decode_run};
use super::record::{self, Opened};
use super::snapshot::Snapshot;
use super::tables::{RUN_CHUNK, id_key};
use crate::{Error, Result};
pub(super) use contents::Contents;
use log::Log;

/// A read of one snapshot.
pub(super) struct Reader<'t> {
    pub(super) snapshot: &'t Snapshot,
    pub(super) seed: &'t Seed,
    contents: Contents<'t>,
    /// Heads that were read before on this snapshot.
    heads: HashMap<u64, Arc<Transcript>>,
    /// The same, without what is known of their records' content.
    courses: HashMap<u64, Arc<Course>>,
}

impl<'t> Reader<'t> {
    pub(super) fn new(
        snapshot: &'t Snapshot,
        seed: &'t Seed,
        dictionaries: &'t Dictionaries,
    ) -> Self {
        Self {
            snapshot,
            seed,
            contents: Contents::new(snapshot, dictionaries),
            heads: HashMap::new(),
            courses: HashMap::new(),
        }
    }

    /// The id of the session whose generation 0 has this stem. It is taken as it is: of `a.g1.g1`, which no session can
    /// have, the caller has split off the generation, and what is left must not be taken for a generation of `a`.
    pub(super) fn stem_id(&self, base: &str) -> Result<Option<u64>> {
        let stems = self.snapshot.stems()?;
        let key = id_key(self.seed, base);
        Ok(stems
            .get(key.as_slice())
            .map_err(storage_error)?
            .map(|id| id.value()))
    }

    /// What is known of a stem.
    pub(super) fn stem_info(&self, id: u64) -> Result<StemInfo> {
        let table = self.snapshot.stem_info()?;
        match table.get(id).map_err(storage_error)? {
            Some(bytes) => binary::decode(bytes.value(), "a stem"),
            None => Err(missing("a stem", &format!("stem id {id}"))),
        }
    }

    /// The stem of a generation of a session.
    pub(super) fn stem_of(&self, session: u64, generation: u32) -> Result<String> {
        let table = self.snapshot.stem_info()?;
        match table.get(session).map_err(storage_error)? {
            // It stands first in what is known of it.
            Some(bytes) => {
                let base = binary::decode_first(bytes.value(), "a stem")?;
                Ok(full_stem(base, generation))
            }
            None => Err(missing("a stem", &format!("stem id {session}"))),
        }
    }

    /// The id of a name, if anything was ever written under it.
    pub(super) fn name_id(&self, name: &str) -> Result<Option<u64>> {
        if name.is_empty() {
            return Ok(None);
        }
        let names = self.snapshot.names()?;
        let key = id_key(self.seed, name);
        Ok(names
            .get(key.as_slice())
            .map_err(storage_error)?
            .map(|id| id.value()))
    }

    /// The newest written generation of a session: generation and transcript.
    pub(super) fn newest(&self, session: u64) -> Result<Option<(u32, u64)>> {
        let generations = self.snapshot.generations()?;
        let mut range = generations
            .range((session, 0)..=(session, u32::MAX))
            .map_err(storage_error)?;
        match range.next_back() {
            None => Ok(None),
            Some(entry) => {
                let (key, transcript) = entry.map_err(storage_error)?;
                Ok(Some((key.value().1, transcript.value())))
            }
        }
    }

    /// The transcript of one generation.
    pub(super) fn generation(&self, session: u64, generation: u32) -> Result<Option<u64>> {
        let generations = self.snapshot.generations()?;
        let found = generations
            .get((session, generation))
            .map_err(storage_error)?;
        Ok(found.map(|transcript| transcript.value()))
    }

    /// All written generations of a session, oldest first.
    pub(super) fn chain(&self, session: u64) -> Result<Vec<(u32, u64)>> {
        let generations = self.snapshot.generations()?;
        generations
            .range((session, 0)..=(session, u32::MAX))
            .map_err(storage_error)?
            .zip(0..)
            .map(|(entry, expected)| {
                let (key, transcript) = entry.map_err(storage_error)?;
                let generation = key.value().1;
                if generation != expected {
                    let at = format!("stem id {session}, generation {expected}");
                    return Err(missing("a generation", &at));
                }
                Ok((generation, transcript.value()))
            })
            .collect()
    }

    /// The head of a transcript that exists.
    pub(super) fn transcript(&mut self, id: u64) -> Result<Arc<Transcript>> {
        if let Some(transcript) = self.heads.get(&id) {
            return Ok(Arc::clone(transcript));
        }
        let transcript = Arc::new(self.in_transcripts(id, Transcript::decode)?);
        self.heads.insert(id, Arc::clone(&transcript));
        Ok(transcript)
    }

    /// How the log of a transcript runs.
    pub(super) fn course(&mut self, id: u64) -> Result<Arc<Course>> {
        if let Some(course) = self.courses.get(&id) {
            return Ok(Arc::clone(course));
        }
        let course = Arc::new(self.in_transcripts(id, Course::decode)?);
        self.courses.insert(id, Arc::clone(&course));
        Ok(course)
    }

    fn in_transcripts<T>(&self, id: u64, decode: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        let table = self.snapshot.transcripts()?;
        match table.get(id).map_err(storage_error)? {
            Some(bytes) => decode(bytes.value()),
            None => Err(missing(
                "the head of a transcript",
                &format!("transcript {id}"),
            )),
        }
    }

    /// The log.
    pub(super) fn log(&self) -> Result<Log<'t>> {
        Log::of(self.snapshot)
    }

    /// What records refer to.
    pub(super) fn contents(&self) -> &Contents<'t> {
        &self.contents
    }

    /// Where the records of a range stand in the log, ascending by sequence. Sequences that are no record of this
    /// transcript (the rows that a successor kept) are left out.
    pub(super) fn positions(&mut self, range: Range) -> Result<Vec<(u64, u64)>> {
        let course = self.course(range.transcript)?;
        let end = range.end.min(course.next_seq);
        let mut found = Vec::new();
        if range.first >= end {
            return Ok(found);
        }
        let mut collect = |chunk_first: u64, positions: &[Option<u64>]| {
            let slots = (chunk_first..).zip(positions);
            found.extend(
                slots
                    .filter(|(seq, _)| (range.first..end).contains(seq))
                    .filter_map(|(seq, position)| Some((seq, (*position)?))),
            );
        };
        let first_chunk = range.first / RUN_CHUNK;
        let tail_chunk = course.runs.first / RUN_CHUNK;
        if first_chunk < tail_chunk {
            let last_chunk = ((end - 1) / RUN_CHUNK).min(tail_chunk - 1);
            let runs = self.snapshot.transcript_runs()?;
            let mut chunk = |number: u64, bytes: &[u8]| {
                collect(number * RUN_CHUNK, &decode_run(bytes)?);
                Ok::<_, Error>(())
            };
            if first_chunk == last_chunk {
                let key = (range.transcript, first_chunk);
                if let Some(bytes) = runs.get(key).map_err(storage_error)? {
                    chunk(first_chunk, bytes.value())?;
                }
            } else {
                let chunks = runs
                    .range((range.transcript, first_chunk)..=(range.transcript, last_chunk))
                    .map_err(storage_error)?;
                for entry in chunks {
                    let (key, bytes) = entry.map_err(storage_error)?;
                    chunk(key.value().1, bytes.value())?;
                }
            }
        }
        collect(course.runs.first, &course.runs.positions);
        Ok(found)
    }

    /// Where one record stands in the log.
    pub(super) fn position(&mut self, transcript: u64, seq: u64) -> Result<Option<u64>> {
        let range = Range {
            transcript,
            first: seq,
            end: seq + 1,
        };
        Ok(self
            .positions(range)?
            .first()
            .map(|(_, position)| *position))
    }

    /// Opens the records at `positions`, in order; neighbours in the log are read with one range.
    pub(super) fn records(
        &self,
        positions: &[(u64, u64)],
        mut visit: impl FnMut(Opened<'_>) -> Result<()>,
    ) -> Result<()> {
        let log = self.log()?;
        let mut rest = positions;
        while let Some((_, first)) = rest.first() {
            let run = rest
                .iter()
                .zip(*first..)
                .take_while(|((_, position), expected)| position == expected)
                .count();
            let last = first + run as u64 - 1;
            let gap = || {
                let at = format!("one of log positions {first} to {last}");
                missing("a record", &at)
            };
            let mut expected = rest.iter().take(run);
            log.range(*first, last, |position, bytes| {
                let record = record::open(bytes, position, &self.contents)?;
                if expected.next() != Some(&(record.address.seq, position)) {
                    return Err(gap());
                }
                visit(record)
            })?;
            if expected.next().is_some() {
                return Err(gap());
            }
            rest = rest.get(run..).unwrap_or_default();
        }
        Ok(())
    }

    /// Opens the record at a position.
    pub(super) fn record<T>(
        &self,
        position: u64,
        visit: impl FnOnce(Opened<'_>) -> Result<T>,
    ) -> Result<T> {
        self.log()?.get(position, |bytes| {
            visit(record::open(bytes, position, &self.contents)?)
        })
    }

    /// Opens the record of a transcript that stands at a sequence.
    pub(super) fn record_at<T>(
        &mut self,
        transcript: u64,
        seq: u64,
        visit: impl FnOnce(Opened<'_>) -> Result<T>,
    ) -> Result<T> {
        match self.position(transcript, seq)? {
            Some(position) => self.record(position, visit),
            None => Err(missing(
                "a record",
                &format!("transcript {transcript}, sequence {seq}"),
            )),
        }
    }
}

pub(super) fn missing(what: &str, at: &str) -> Error {
    Error::Corrupted {
        what: what.to_owned(),
        at: format!("{at} is missing"),
    }
}
