//! Records as they lie in the log: by UUID, by generation, by session; both directions, from a cursor.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use super::{Reader, missing};
use crate::store::database::storage_error;
use crate::store::engine::Engine;
use crate::store::head::Range;
use crate::store::record::{Body, Kind, json};
use crate::store::tables;
use crate::store::{Record, RecordKind};
use crate::{Error, Result};

/// Sequences that one snapshot of an iterator reads.
const PAGE: u64 = 128;

impl Reader<'_> {
    /// The record with this UUID.
    pub(in crate::store) fn record_by_uuid(&mut self, uuid: Uuid) -> Result<Option<Record>> {
        let table = self.snapshot.records_by_uuid()?;
        let Some(position) = table.get(uuid.as_u128()).map_err(storage_error)? else {
            return Ok(None);
        };
        let record = self.full_record(position.value(), None)?;
        if record.uuid != uuid {
            return Err(misplaced(uuid));
        }
        Ok(Some(record))
    }

    /// Where a record stands: transcript and sequence.
    fn address_of(&mut self, uuid: Uuid) -> Result<Option<(u64, u64)>> {
        let table = self.snapshot.records_by_uuid()?;
        let Some(position) = table.get(uuid.as_u128()).map_err(storage_error)? else {
            return Ok(None);
        };
        let position = position.value();
        self.record(position, |record| {
            if record.address.uuid != uuid.as_u128() {
                return Err(misplaced(uuid));
            }
            Ok(Some((record.address.transcript, record.address.seq)))
        })
    }

    /// A record with its surroundings. `parent` is the record before it, where the caller knows.
    fn full_record(&mut self, position: u64, parent: Option<Uuid>) -> Result<Record> {
        let (kind, address, body) = self.record(position, |record| {
            Ok((record.kind, record.address, record.body()?))
        })?;
        let birth = self.course(address.transcript)?.birth;
        let stem = self.stem_of(birth.session, birth.generation)?;
        let parent = match parent {
            Some(parent) => Some(parent),
            None => self.uuid_before(address.transcript, address.seq)?,
        };
        let mut record = Record {
            uuid: Uuid::from_u128(address.uuid),
            parent,
            stem,
            generation: birth.generation,
            seq: address.seq,
            written_at: crate::replay::record_time(address.at),
            kind: RecordKind::Message,
            request_id: None,
            message: None,
            usage: None,
            superseded: false,
            cache_write_tokens: 0,
            original_usage: None,
            tools: None,
            metadata: None,
            retained: Vec::new(),
            origin: None,
        };
        if let Some(imported) = self.origin(address.transcript, address.seq)? {
            record.origin = Some(imported.origin);
            record.cache_write_tokens = imported.cache_write;
        }
        match body {
            Body::Row(row) => {
                let display = row.display();
                record.kind = match kind {
                    Kind::Partial | Kind::MarkerPartial => RecordKind::Partial,
                    _ => RecordKind::Message,
                };
                record.request_id.clone_from(&display.request_id);
                record.message = Some(display);
            }
            Body::Marker(marker) => {
                record.kind = RecordKind::Compaction;
                record.request_id = marker.request_id;
                record.metadata = marker.metadata;
                record.retained = self.uuids(&marker.replacement)?;
            }
            Body::Usage(body) => {
                record.kind = RecordKind::Usage;
                record.request_id = body.request_id;
                record.usage = Some(body.usage);
                record.superseded = self.is_superseded(address.transcript, address.seq)?;
                record.cache_write_tokens = body.cache_write;
                record.original_usage = body.original.as_deref().map(json).transpose()?;
            }
            Body::Tools(tools) => {
                record.kind = RecordKind::Tools;
                record.tools = Some(tools);
            }
            Body::Seal(seal) => {
                record.kind = RecordKind::Seal;
                record.request_id = seal.request_id;
                record.metadata = seal.metadata;
            }
            Body::Retained(ranges) => {
                record.kind = RecordKind::Retained;
                let kept: Vec<_> = ranges
                    .into_iter()
                    .filter(|range| range.transcript != address.transcript)
                    .collect();
                record.retained = self.uuids(&kept)?;
            }
        }
        Ok(record)
    }

    /// The UUIDs of the rows in some ranges.
    fn uuids(&mut self, ranges: &[Range]) -> Result<Vec<Uuid>> {
        let mut uuids = Vec::new();
        for range in ranges {
            let positions = self.positions(*range)?;
            self.records(&positions, |record| {
                if record.is_row() || record.kind == Kind::MarkerPartial {
                    uuids.push(Uuid::from_u128(record.address.uuid));
                }
                Ok(())
            })?;
        }
        Ok(uuids)
    }

    /// The record of the same log before a sequence.
    fn uuid_before(&mut self, transcript: u64, seq: u64) -> Result<Option<Uuid>> {
        let mut end = seq;
        while end > 0 {
            // No more than one chunk at a time.
            let first = (end - 1) / tables::RUN_CHUNK * tables::RUN_CHUNK;
            if let Some((_, position)) = self
                .positions(Range {
                    transcript,
                    first,
                    end,
                })?
                .last()
            {
                let uuid = self.record(*position, |record| Ok(record.address.uuid))?;
                return Ok(Some(Uuid::from_u128(uuid)));
            }
            end = first;
        }
        Ok(None)
    }

    /// The records at `positions`, which follow each other in one log.
    fn full_records(&mut self, positions: &[(u64, u64)]) -> Result<Vec<Record>> {
        let mut records: Vec<Record> = Vec::with_capacity(positions.len());
        for (_, position) in positions {
            let parent = records.last().map(|record| record.uuid);
            records.push(self.full_record(*position, parent)?);
        }
        Ok(records)
    }
}

/// The index of UUIDs leads to another record.
fn misplaced(uuid: Uuid) -> Error {
    missing("a record", &format!("the record {uuid}"))
}

/// Records of one or more logs, read a page at a time: no snapshot is held between two pages.
///
/// Records that were written when the iterator was made are all given, each once; later ones are not. After an error
/// the iteration is over.
pub struct RecordIter {
    engine: Arc<Engine>,
    /// The tables have to hold the changes up to this one.
    behind: u64,
    /// The logs as they were when the iterator was made.
    logs: Vec<Range>,
    /// What is still to be read, oldest first.
    spans: VecDeque<Range>,
    front: VecDeque<Record>,
    /// Newest last.
    back: VecDeque<Record>,
}

impl fmt::Debug for RecordIter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordIter")
            .field("spans", &self.spans)
            .finish_non_exhaustive()
    }
}

impl RecordIter {
    /// The records of the logs of `transcripts`, in this order.
    pub(in crate::store) fn new(
        engine: &Arc<Engine>,
        reader: &mut Reader<'_>,
        transcripts: &[u64],
    ) -> Result<Self> {
        let mut logs = Vec::with_capacity(transcripts.len());
        for transcript in transcripts {
            let end = reader.transcript(*transcript)?.head.next_seq;
            logs.push(Range {
                transcript: *transcript,
                first: 0,
                end,
            });
        }
        Ok(Self {
            engine: Arc::clone(engine),
            // What a snapshot shows is acknowledged.
            behind: engine.acknowledged(),
            spans: logs.iter().copied().collect(),
            logs,
            front: VecDeque::new(),
            back: VecDeque::new(),
        })
    }

    /// Begins anew behind the record with this UUID: what is at or before it is not given, from either end.
    ///
    /// [`Error::InvalidCursor`] if it is no record of these logs.
    pub fn after(mut self, uuid: Uuid) -> Result<Self> {
        let unknown = || Error::InvalidCursor {
            reason: "no record of this transcript has this id".to_owned(),
        };
        let engine = Arc::clone(&self.engine);
        let (transcript, seq) = engine
            .read_behind(self.behind, |reader| reader.address_of(uuid))?
            .ok_or_else(unknown)?;
        let at = self
            .logs
            .iter()
            .position(|log| log.transcript == transcript);
        self.spans = self
            .logs
            .iter()
            .skip(at.ok_or_else(unknown)?)
            .copied()
            .collect();
        if let Some(span) = self.spans.front_mut() {
            span.first = span.first.max(seq + 1).min(span.end);
        }
        self.front.clear();
        self.back.clear();
        Ok(self)
    }

    /// Reads the next page at the front.
    fn fill_front(&mut self) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        while let Some(span) = self.spans.front().copied() {
            let first = span.first;
            let end = span.end.min(first.saturating_add(PAGE));
            let records = engine.read_behind(self.behind, |reader| {
                let positions = reader.positions(Range { end, ..span })?;
                reader.full_records(&positions)
            })?;
            match self.spans.front_mut() {
                Some(rest) if end < span.end => rest.first = end,
                _ => drop(self.spans.pop_front()),
            }
            if !records.is_empty() {
                self.front.extend(records);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads the next page at the back.
    fn fill_back(&mut self) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        while let Some(span) = self.spans.back().copied() {
            let first = span.first.max(span.end.saturating_sub(PAGE));
            let records = engine.read_behind(self.behind, |reader| {
                let positions = reader.positions(Range { first, ..span })?;
                reader.full_records(&positions)
            })?;
            match self.spans.back_mut() {
                Some(rest) if first > span.first => rest.end = first,
                _ => drop(self.spans.pop_back()),
            }
            if !records.is_empty() {
                self.back.extend(records);
                return Ok(());
            }
        }
        Ok(())
    }

    fn fail(&mut self, error: Error) -> Result<Record> {
        self.spans.clear();
        self.front.clear();
        self.back.clear();
        Err(error)
    }
}

impl Iterator for RecordIter {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.front.is_empty()
            && let Err(error) = self.fill_front()
        {
            return Some(self.fail(error));
        }
        self.front
            .pop_front()
            .or_else(|| self.back.pop_front())
            .map(Ok)
    }
}

impl DoubleEndedIterator for RecordIter {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.back.is_empty()
            && let Err(error) = self.fill_back()
        {
            return Some(self.fail(error));
        }
        self.back
            .pop_back()
            .or_else(|| self.front.pop_back())
            .map(Ok)
    }
}
