//! Transcripts of an image: their records are stored, and their heads made from them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use uuid::Uuid;

use super::super::step::{RestoredTranscript, SourceRef, StagedAt, StagedOrigin};
use super::session::{ASIDE, Known, gone_on};
use super::{Restore, RestoredCounts, RestoredStem, damaged, is_misfit, number};
use crate::session::split_generation;
use crate::spend::{Money, SpendTally};
use crate::store::apply::full_stem;
use crate::store::attributes::Attributes;
use crate::store::envelope::Encoded;
use crate::store::head::{Context, Head, INLINE_RANGES, Range, ToolsRef};
use crate::store::image::entry::{
    RecordEntry, RecordName, RowEntry, SpentEntry, TallyEntry, TranscriptEntry,
};
use crate::store::import::unknown;
use crate::store::pending::Newest;
use crate::store::record::{self, Address, Body, Kind, Marker, RowRef, Seal, UsageBody};
use crate::transcript::limits::{MAX_GENERATION, check_message, check_meta};
use crate::turn::{background_origin, check_stem};
use crate::{Result, TurnUsage};

/// Records of the store that are held at once.
const FILLED_AT_ONCE: u64 = 64;

const OTHER_RECORD: &str = "a record of it is another one in the store";

const MICROS_PER_HOUR: i64 = 3_600_000_000;

/// A transcript the records of which are read.
pub(super) struct OpenTranscript {
    entry: TranscriptEntry,
    /// Its number in this store.
    number: u64,
    /// The head that the store has of it.
    stored: Option<Arc<Head>>,
    /// Whether the image has something of it that the store has not.
    is_grown: bool,
    /// The least sequence that its next record can have.
    from: u64,
    /// The sequence behind the last record that was stored.
    next: u64,
    /// Records that wait for those that they refer to.
    held: Vec<RecordEntry>,
    awaited: HashSet<Uuid>,
    tools: Option<ToolsRef>,
    /// Whether the last record was a compaction, or a row that came with one.
    in_marker: bool,
    rows_stored: u64,
    keys: Vec<(String, u64)>,
    base: Vec<Range>,
    base_record: u64,
    tail_from: u64,
}

impl Restore<'_> {
    fn session_of(&mut self, stem: &str) -> Result<&mut Known> {
        let known = self.sessions.get_mut(stem);
        known.ok_or_else(|| damaged("a transcript of no session"))
    }

    pub(super) fn begin_transcript(&mut self, mut entry: TranscriptEntry) -> Result<()> {
        self.end_part()?;
        self.missed = false;
        let stem = &entry.stem;
        check_stem(stem)?;
        check_meta(stem, &entry.meta)?;
        check_time(entry.created)?;
        check_time(entry.updated)?;
        if !self.stems.contains(stem) {
            self.bare_stem(&mut entry)?;
        }
        let stem = &entry.stem;
        if !self.sessions.contains_key(stem) {
            let known = Known::new(self.engine, stem)?;
            self.sessions.insert(stem.clone(), known);
            self.counts.sessions += 1;
        }
        let engine = self.engine;
        let session = self.session_of(stem)?;
        let known = session.held(entry.generation);
        let follows = match &session.newest {
            None => entry.generation == 0,
            Some(before) => before.head.sealed && entry.generation == session.next,
        };
        if !follows || entry.generation > MAX_GENERATION {
            return Err(damaged("a generation does not follow the one before it"));
        }
        if known.is_none() && session.is_ahead {
            return Err(gone_on(stem, ASIDE));
        }
        session.next = entry.generation + 1;
        session.is_grown |= known.is_none();
        let number = known.unwrap_or_else(|| engine.new_transcript());
        session.incarnation.get_or_insert(number);
        let mut is_grown = known.is_none();
        let mut stored = None;
        if known.is_some() {
            let (head, sources) = engine.snapshot(|reader| {
                let head = Arc::new(reader.transcript(number)?.head.clone());
                Ok((head, reader.sources_of(number)?))
            })?;
            session.is_ahead |= entry.next_seq < head.next_seq || head.sealed && !entry.sealed;
            if session.is_ahead && entry.next_seq > head.next_seq {
                return Err(gone_on(stem, ASIDE));
            }
            let sources: HashSet<String> = sources.iter().map(|id| format!("{id:016x}")).collect();
            let added = entry.sources.iter().any(|id| !sources.contains(id));
            is_grown |= !session.is_ahead && added;
            stored = Some(head);
            self.known.insert(number);
        } else {
            let full = full_stem(stem, entry.generation);
            let more = entry.more.clone();
            self.keep(unknown::transcript(&full), &more);
        }
        self.transcript = Some(Box::new(OpenTranscript {
            entry,
            number,
            stored,
            is_grown,
            from: 0,
            next: 0,
            held: Vec::new(),
            awaited: HashSet::new(),
            tools: None,
            in_marker: false,
            rows_stored: 0,
            keys: Vec::new(),
            base: Vec::new(),
            base_record: 0,
            tail_from: 0,
        }));
        Ok(())
    }

    /// Makes up for the line of a session that is missing: what it spent is told by its transcripts, the hour is lost.
    fn bare_stem(&mut self, entry: &mut TranscriptEntry) -> Result<()> {
        if split_generation(&entry.stem).1 != 0 {
            return Err(damaged("the stem of a session names a generation"));
        }
        let hour = entry.updated.div_euclid(MICROS_PER_HOUR);
        let thread = entry.meta.thread_id.clone().unwrap_or_default();
        let spent = entry.spent.iter().cloned();
        let hours = spent.map(|spent| {
            let (agent, counted) = spent.counted(hour);
            (thread.clone(), agent, counted)
        });
        self.stems.insert(entry.stem.clone());
        self.restored.stems.push(RestoredStem {
            stem: entry.stem.clone(),
            parent: None,
            session: None,
            replaces: false,
            hours: hours.collect(),
        });
        entry.referenced = false;
        Ok(())
    }

    pub(super) fn record(&mut self, entry: RecordEntry) -> Result<()> {
        let Some(mut open) = self.transcript.take() else {
            return Err(damaged("a record of no transcript"));
        };
        if self.missed && !open.may_have(&entry) {
            // The begin of another transcript is missing, and what follows is of that one.
            self.transcript = Some(open);
            self.end_transcript()?;
            return Err(damaged("a record of no transcript"));
        }
        let done = self.record_of(&mut open, entry);
        self.transcript = Some(open);
        done
    }

    fn record_of(&mut self, open: &mut OpenTranscript, entry: RecordEntry) -> Result<()> {
        if entry.seq < open.from || entry.seq >= open.entry.next_seq {
            return Err(damaged("a record does not follow the one before it"));
        }
        check_time(entry.at)?;
        self.fill(open, entry.seq)?;
        let uuid = entry.uuid.as_u128();
        let held = self.engine.snapshot(|reader| {
            let Some(position) = reader.position_of(uuid)? else {
                return Ok(None);
            };
            reader.record(position, |record| {
                let address = record.address;
                Ok(Some((address.transcript, address.seq)))
            })
        })?;
        if open.has(entry.seq) {
            self.compare(open, &entry, held)?;
        } else {
            if held.is_some() {
                let stem = &open.entry.stem;
                return Err(gone_on(stem, "a record of it is elsewhere in the store"));
            }
            if !self.uuids.insert(uuid) {
                return Err(damaged("a record stands twice"));
            }
            open.is_grown = true;
            self.keep(unknown::record(entry.uuid), &entry.more);
        }
        open.from = entry.seq + 1;
        self.replay(open, entry)
    }

    /// Takes a record once all that it refers to is known.
    fn replay(&mut self, open: &mut OpenTranscript, entry: RecordEntry) -> Result<()> {
        let session = self.session_of(&open.entry.stem)?;
        session.places.insert(entry.uuid, (open.number, entry.seq));
        open.awaited.remove(&entry.uuid);
        let ends = entry.rows.iter().flatten();
        let ends = ends.flat_map(|(first, last)| [*first, *last]);
        open.awaited
            .extend(ends.filter(|end| !session.places.contains_key(end)));
        open.held.push(entry);
        if open.awaited.is_empty() {
            return self.store_held(open);
        }
        Ok(())
    }

    fn store_held(&mut self, open: &mut OpenTranscript) -> Result<()> {
        let mut done = Ok(());
        for entry in std::mem::take(&mut open.held) {
            let uuid = entry.uuid;
            done = self.store(open, entry);
            if done.is_err() {
                self.uuids.remove(&uuid.as_u128());
                self.session_of(&open.entry.stem)?.places.remove(&uuid);
            }
        }
        done
    }

    /// Replays what a damaged image lacks and the store has, up to a sequence.
    fn fill(&mut self, open: &mut OpenTranscript, until: u64) -> Result<()> {
        let stored = open.stored.as_ref().map_or(0, |head| head.next_seq);
        let last = until.min(stored);
        while open.from < last {
            let end = last.min(open.from + FILLED_AT_ONCE);
            let range = Range {
                transcript: open.number,
                first: open.from,
                end,
            };
            let missing: Vec<RecordEntry> = self.engine.snapshot(|reader| {
                let positions = reader.positions(range)?;
                let records = positions.into_iter();
                records
                    .map(|(_, position)| reader.record_of_image(position))
                    .collect()
            })?;
            open.from = end;
            for entry in missing {
                self.replay(open, entry)?;
            }
        }
        Ok(())
    }

    /// Compares a record with the one that the store has in its place.
    fn compare(
        &mut self,
        open: &mut OpenTranscript,
        entry: &RecordEntry,
        held: Option<(u64, u64)>,
    ) -> Result<()> {
        let stem = &open.entry.stem;
        let place = (open.number, entry.seq);
        let stored = self.engine.snapshot(|reader| {
            if held != Some(place) {
                return Ok(None);
            }
            let position = reader.position_of(entry.uuid.as_u128())?;
            position
                .map(|position| reader.record_of_image(position))
                .transpose()
        })?;
        let Some(stored) = stored else {
            return Err(gone_on(stem, "the store has other records of it"));
        };
        match (stored.superseded, entry.superseded) {
            (false, true) => {
                self.restored.superseded.push((place.0, place.1, true));
                open.is_grown = true;
            }
            (true, false) => {
                self.revived.insert(place, stem.clone());
            }
            _ => {}
        }
        if !entry.is(stored) {
            return Err(gone_on(stem, OTHER_RECORD));
        }
        self.counts.duplicates += 1;
        Ok(())
    }

    /// Stores a record, all that it refers to being known.
    fn store(&mut self, open: &mut OpenTranscript, mut entry: RecordEntry) -> Result<()> {
        // A gap is where a successor kept a row, or a record is missing. Rows that came with a compaction of which nothing is
        // known are like all others.
        let follows = entry.seq == open.next && open.in_marker;
        let kind = match entry.kind {
            kind if !follows => kind.alone(),
            kind => kind,
        };
        open.in_marker = matches!(
            kind,
            RecordName::Marker | RecordName::MarkerRow | RecordName::MarkerPartial
        );
        open.next = entry.seq + 1;
        let address = Address {
            transcript: open.number,
            seq: entry.seq,
            uuid: entry.uuid.as_u128(),
            at: entry.at,
        };
        let origin = self.origin_of(open, &entry);
        let packing = self.engine.packing();
        let is_new = !open.has(entry.seq);
        let encoded = match kind {
            RecordName::Row
            | RecordName::MarkerRow
            | RecordName::Partial
            | RecordName::MarkerPartial => {
                let row = entry.row.take().ok_or_else(bare)?;
                self.row(open, kind, address, *row)?
            }
            RecordName::Marker => {
                let replacement = self.ranges(open, &entry)?;
                self.counts.contexts += u64::from(is_new);
                open.base.clone_from(&replacement);
                open.base_record = entry.seq;
                open.tail_from = entry.seq + 1;
                let marker = Marker {
                    replacement,
                    request_id: entry.request_id,
                    metadata: entry.metadata,
                };
                record::encode_marker(packing, address, &marker)?
            }
            RecordName::Retained => {
                let ranges = self.ranges(open, &entry)?;
                let slots: u64 = ranges.iter().map(|range| range.end - range.first).sum();
                open.base.clone_from(&ranges);
                open.base_record = entry.seq;
                // Each of its rows has a sequence here, also those that are stored elsewhere.
                open.tail_from = entry.seq.saturating_add(1).saturating_add(slots);
                record::encode_retained(packing, address, &ranges)?
            }
            RecordName::Usage => {
                let usage = TurnUsage::from(entry.usage.ok_or_else(bare)?);
                let place = (address.transcript, address.seq);
                self.usages.insert(address.uuid, place);
                if entry.superseded && is_new {
                    self.restored.superseded.push((place.0, place.1, true));
                }
                let body = UsageBody {
                    usage,
                    request_id: entry.request_id,
                    cache_write: entry.cache_write,
                    original: entry.original.map(|original| original.to_string()),
                };
                record::encode_usage(packing, address, &body)?
            }
            RecordName::Tools => {
                let tools = entry.tools.ok_or_else(bare)?;
                open.tools = Some(ToolsRef {
                    seq: entry.seq,
                    hash: self.engine.seed.json_text(&tools),
                });
                record::encode_tools(packing, address, &tools)?
            }
            RecordName::Seal => {
                let seal = Seal {
                    request_id: entry.request_id,
                    metadata: entry.metadata,
                };
                record::encode_seal(packing, address, &seal)?
            }
        };
        if !is_new {
            return Ok(());
        }
        let at = StagedAt {
            transcript: address.transcript,
            seq: address.seq,
            uuid: address.uuid,
        };
        self.put(at, encoded, origin)
    }

    /// Where a record comes from; None also if that is no source of its transcript, or one that is missing from a damaged
    /// file.
    fn origin_of(&self, open: &OpenTranscript, entry: &RecordEntry) -> Option<StagedOrigin> {
        let origin = entry.origin.as_ref()?;
        if !open.entry.sources.contains(&origin.source)
            || !self.sources.contains_key(&origin.source)
        {
            return None;
        }
        // A usage record has that itself.
        let of_row = !matches!(entry.kind, RecordName::Usage);
        Some(StagedOrigin {
            source: Some(SourceRef {
                id: number(&origin.source).ok()?,
                codec_version: origin.codec_version,
            }),
            offset: origin.offset,
            length: origin.length,
            cache_write: if of_row { entry.cache_write } else { 0 },
        })
    }

    fn ranges(&mut self, open: &OpenTranscript, entry: &RecordEntry) -> Result<Vec<Range>> {
        let ranges = self.resolved(open, entry)?;
        if open.has(entry.seq) {
            let stored = self.engine.snapshot(|reader| {
                reader.record_at(open.number, entry.seq, |record| {
                    Ok(match record.body()? {
                        Body::Marker(marker) => marker.replacement,
                        Body::Retained(ranges) => ranges,
                        _ => Vec::new(),
                    })
                })
            })?;
            if stored != ranges {
                return Err(gone_on(&open.entry.stem, OTHER_RECORD));
            }
        }
        Ok(ranges)
    }

    fn resolved(&mut self, open: &OpenTranscript, entry: &RecordEntry) -> Result<Vec<Range>> {
        let session = self.session_of(&open.entry.stem)?;
        let runs = entry.rows.as_ref().ok_or_else(bare)?;
        // What is missing in a damaged image is in no context.
        let runs = runs.iter();
        Ok(runs
            .filter_map(|(first, last)| session.range(first, last))
            .collect())
    }

    fn row(
        &mut self,
        open: &mut OpenTranscript,
        name: RecordName,
        address: Address,
        mut row: RowEntry,
    ) -> Result<Encoded> {
        let (iteration, ts) = (row.iteration, row.ts.take());
        let (shows_write_time, revises) = (row.shows_write_time, row.revises);
        let message = row.message(name.is_interrupted());
        check_message(&open.entry.stem, &message)?;
        let hashes = self.engine.seed.row(&message);
        let kind = match name {
            RecordName::MarkerRow => Kind::MarkerRow,
            RecordName::MarkerPartial => Kind::MarkerPartial,
            RecordName::Partial => Kind::Partial,
            _ => Kind::Row,
        };
        if matches!(kind, Kind::MarkerRow | Kind::MarkerPartial) {
            open.tail_from = open.tail_from.max(address.seq + 1);
        }
        open.rows_stored += 1;
        let is_new = !open.has(address.seq);
        self.counts.rows += u64::from(is_new);
        if !message.interrupted {
            let session = self.session_of(&open.entry.stem)?;
            let rows = session.rows.entry(address.transcript).or_default();
            rows.push((address.seq, hashes.identity()));
            if let Some(origin) = background_origin(&message).filter(|_| is_new) {
                open.keys.push((origin.idempotency_key, address.seq));
            }
        }
        let plain = record::plain_row(
            kind,
            address,
            &RowRef {
                message: &message,
                hashes,
                iteration,
                ts: ts.as_deref(),
                shows_write_time,
                revises,
            },
        )?;
        drop(message);
        plain.seal(self.engine.packing())
    }

    /// Counts what a transcript has spent beyond what the store has of it.
    fn count_spent(&mut self, open: &OpenTranscript) -> Result<()> {
        let cache_writes = |spent: &[SpentEntry]| {
            let sum = |sum: u64, it: &SpentEntry| sum.saturating_add(it.cache_write);
            spent.iter().fold(0, sum)
        };
        let after = SpendTally::from(open.entry.spend.clone());
        let (before, cached) = match &open.stored {
            Some(head) => {
                let number = open.number;
                let spent = self
                    .engine
                    .snapshot(|reader| reader.spent_of_image(number))?;
                (head.spend.clone(), cache_writes(&spent))
            }
            None => (SpendTally::default(), 0),
        };
        self.counts.count(&before, &after);
        let added = cache_writes(&open.entry.spent).saturating_sub(cached);
        self.counts.cache_write = self.counts.cache_write.saturating_add(added);
        Ok(())
    }

    /// Makes the head of the transcript that was read, and compares it with what the image says.
    pub(super) fn end_transcript(&mut self) -> Result<()> {
        let Some(mut open) = self.transcript.take() else {
            return Ok(());
        };
        let next_seq = open.entry.next_seq;
        self.fill(&mut open, next_seq)?;
        // What still waits refers to what is missing.
        let waiting = self.store_held(&mut open);
        waiting.or_else(|error| {
            if is_misfit(&error) {
                Ok(())
            } else {
                Err(error)
            }
        })?;
        let was_open = open.stored.as_ref().is_some_and(|head| !head.sealed);
        let is_grown = open.is_grown || was_open && open.entry.sealed;
        if is_grown {
            self.count_spent(&open)?;
        }
        let stored = open.stored.as_ref().map_or(0, |head| head.next_seq);
        let next_seq = open.next.max(open.tail_from);
        let next_seq = next_seq.max(stored.min(open.entry.next_seq));
        let seed = &self.engine.seed;
        let open = *open;
        let entry = open.entry;
        let known = self.sessions.get_mut(&entry.stem);
        let session = known.ok_or_else(|| damaged("a transcript of no session"))?;
        let inline = open.base.len() <= INLINE_RANGES;
        let tail = Range {
            transcript: open.number,
            first: open.tail_from,
            end: next_seq,
        };
        let mut context = Context {
            base: Vec::new(),
            base_record: (!inline).then_some(open.base_record),
            tail_from: open.tail_from,
            rows: 0,
            digest: 0,
        };
        for range in open.base.iter().chain([&tail]) {
            for (_, identity) in session.rows_of(*range) {
                context.digest = seed.extend(context.digest, identity);
                context.rows += 1;
            }
        }
        if inline {
            context.base = open.base;
        }
        let spend = SpendTally::from(entry.spend);
        session.is_grown |= is_grown;
        let head = Head {
            meta: Arc::new(entry.meta),
            via_session: entry.referenced,
            sealed: entry.sealed,
            next_seq,
            context,
            tools: open.tools,
            rows_stored: open.rows_stored,
            title: entry.title,
            updated_at: entry.updated,
            spend,
        };
        if !head.sealed {
            // Nothing more refers to its records.
            session.places = HashMap::new();
            session.rows = HashMap::new();
        }
        let incarnation = session.incarnation.unwrap_or(open.number);
        session.newest = Some(Newest {
            transcript: open.number,
            generation: entry.generation,
            incarnation,
            head: Arc::new(head.clone()),
        });
        let mut sources = Vec::new();
        for id in &entry.sources {
            if self.sources.contains_key(id) {
                sources.push(number(id)?);
            }
        }
        let attributes = Attributes {
            spawned_by: entry.spawned_by,
            more: entry.attributes,
        };
        let by_agent = entry.spent.into_iter();
        // Its totals may be others than before, also where nothing else is: all of a session is restored or nothing.
        self.restored.transcripts.push(RestoredTranscript {
            held: open.stored.is_some(),
            transcript: open.number,
            session: entry.stem,
            generation: entry.generation,
            incarnation,
            created_at: entry.created,
            head,
            spent: by_agent.map(|it| it.counted(0)).collect(),
            keys: open.keys,
            sources,
            attributes: (!attributes.is_empty()).then(|| attributes.to_text()),
        });
        Ok(())
    }
}

impl OpenTranscript {
    /// Whether a record can be of this transcript, where something before it is missing.
    fn may_have(&self, entry: &RecordEntry) -> bool {
        let times = self.entry.created..=self.entry.updated;
        (self.from..self.entry.next_seq).contains(&entry.seq) && times.contains(&entry.at)
    }

    /// Whether the store has a record with this sequence.
    fn has(&self, seq: u64) -> bool {
        self.stored.as_ref().is_some_and(|head| seq < head.next_seq)
    }
}

impl RestoredCounts {
    /// Adds what was spent since.
    fn count(&mut self, before: &SpendTally, after: &SpendTally) {
        let add = |sum: &mut u64, before: u64, after: u64| {
            *sum = sum.saturating_add(after.saturating_sub(before));
        };
        add(&mut self.input, before.input_tokens, after.input_tokens);
        add(&mut self.output, before.output_tokens, after.output_tokens);
        add(
            &mut self.cached_input,
            before.cached_input_tokens,
            after.cached_input_tokens,
        );
        self.cost = self
            .cost
            .saturating_add(after.cost.0.saturating_sub(before.cost.0));
    }
}

/// Refuses what no clock shows.
fn check_time(micros: i64) -> Result<()> {
    match jiff::Timestamp::from_microsecond(micros) {
        Ok(_) => Ok(()),
        Err(_) => Err(damaged("a time is none")),
    }
}

/// That a record lacks what its kind has.
fn bare() -> crate::Error {
    damaged("a record lacks what records of its kind have")
}

impl From<TallyEntry> for SpendTally {
    fn from(entry: TallyEntry) -> Self {
        Self {
            input_tokens: entry.input,
            output_tokens: entry.output,
            cached_input_tokens: entry.cached_input,
            cost: Money(entry.cost.0),
            turns: entry.turns,
            last_input_tokens: entry.last_input,
            last_output_tokens: entry.last_output,
            last_context_tokens: entry.last_context,
            last_context_input_tokens: entry.last_context_input,
            last_context_output_tokens: entry.last_context_output,
            model: entry.model,
            context_window: entry.context_window,
            priced: Money(entry.priced.0),
            priced_source: entry.priced_source,
            unpriced_turns: entry.unpriced_turns,
            unpriced_input_tokens: entry.unpriced_input,
            unpriced_output_tokens: entry.unpriced_output,
            unpriced_cached_input_tokens: entry.unpriced_cached_input,
        }
    }
}
