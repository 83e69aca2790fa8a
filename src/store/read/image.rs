//! Taking an image: a walk over all that a snapshot holds of some sessions.

use std::collections::{BTreeSet, HashMap};

use redb::ReadableTable as _;
use uuid::Uuid;

use super::{Reader, missing};
use crate::replay::StoredRow;
use crate::session::split_generation;
use crate::spend::SpendTally;
use crate::store::apply::full_stem;
use crate::store::binary;
use crate::store::database::{storage_error, table_error};
use crate::store::head::{Range, StemInfo, Totals, Transcript, source_from_code};
use crate::store::image::ExportScope;
use crate::store::image::entry::{
    CallEntry, Entry, FailureEntry, HourEntry, More, OriginEntry, Pico, RecordEntry, RecordName,
    ReferenceEntry, RepeatEntry, RowEntry, SourceEntry, SpentEntry, StemEntry, TallyEntry,
    ToldEntry, TotalEntry, TranscriptEntry,
};
use crate::store::import::step::{CallGroup, CallSlot, RunTotal};
use crate::store::import::unknown;
use crate::store::record::{Address, Body, Kind};
use crate::store::tables::{self, id_key};
use crate::{Error, Result};

/// Sequences that are looked up at once.
const PAGE: u64 = 1024;

/// Bytes of a source in one entry: as base64, with what stands around it, less than 64 KiB.
const CHUNK_BYTES: usize = 48_000;

/// Heads that are kept for later entries.
const HEADS: usize = 256;

type Sink<'s> = &'s mut dyn FnMut(Entry) -> Result<()>;

/// What belongs to an image.
#[derive(Default)]
struct Chosen {
    /// Everything does.
    all: bool,
    /// Also those that are only named.
    stems: BTreeSet<u64>,
    sessions: BTreeSet<u64>,
    transcripts: BTreeSet<u64>,
    sources: BTreeSet<u64>,
}

impl Reader<'_> {
    /// Tells all that the store holds of what `scope` names.
    pub(in crate::store) fn image(&mut self, scope: ExportScope<'_>, sink: Sink<'_>) -> Result<()> {
        let chosen = self.chosen(scope)?;
        let header = if chosen.all {
            self.unknown(unknown::HEADER)?
        } else {
            More::new()
        };
        sink(Entry::Header(header))?;
        self.stems_of_image(&chosen, sink)?;
        for id in &chosen.sources {
            self.source_of_image(*id, sink)?;
        }
        for transcript in &chosen.transcripts {
            self.transcript_of_image(*transcript, sink)?;
            if self.heads.len() > HEADS {
                self.heads.clear();
            }
        }
        self.repeats_of_image(&chosen, sink)?;
        self.calls_of_image(&chosen, sink)?;
        if chosen.all {
            self.others_of_image(sink)?;
        }
        Ok(())
    }

    fn chosen(&mut self, scope: ExportScope<'_>) -> Result<Chosen> {
        let mut sessions = Vec::new();
        match scope {
            ExportScope::All => return self.everything(),
            ExportScope::Thread(thread) => {
                let found = self.thread(thread, None)?;
                let chains = found.roots.iter().chain(&found.subagents);
                sessions.extend(chains.map(|chain| chain.session));
            }
            ExportScope::Sessions(stems) => {
                for stem in stems {
                    let (base, _) = split_generation(stem);
                    let written = match self.stem_id(base)? {
                        Some(id) if self.newest(id)?.is_some() => id,
                        _ => {
                            return Err(Error::NotWritten {
                                stem: (*stem).to_owned(),
                            });
                        }
                    };
                    sessions.push(written);
                }
            }
        }
        let below = self.descendants(&sessions)?;
        sessions.extend(below);
        let mut chosen = Chosen::default();
        for session in &sessions {
            for (_, transcript) in self.chain(*session)? {
                chosen.sessions.insert(*session);
                chosen.transcripts.insert(transcript);
                chosen.sources.extend(self.sources_of(transcript)?);
            }
        }
        // Whoever is named above them belongs to the image, as a name.
        let mut open = sessions;
        while let Some(id) = open.pop() {
            if !chosen.stems.insert(id) {
                continue;
            }
            let info = self.stem_info(id)?;
            open.extend(info.parent);
            for stem in info.session.iter().flat_map(|parts| &parts.ancestors) {
                open.extend(self.stem_id(split_generation(stem).0)?);
            }
        }
        Ok(chosen)
    }

    fn everything(&mut self) -> Result<Chosen> {
        let mut chosen = Chosen {
            all: true,
            ..Chosen::default()
        };
        let transcripts = self.snapshot.transcripts()?.iter().map_err(storage_error)?;
        for entry in transcripts {
            let (id, bytes) = entry.map_err(storage_error)?;
            let transcript = Transcript::decode(bytes.value())?;
            chosen.transcripts.insert(id.value());
            chosen.sessions.insert(transcript.birth.session);
        }
        let stems = self
            .snapshot
            .transaction
            .open_table(tables::STEM_INFO)
            .map_err(table_error)?;
        for entry in stems.iter().map_err(storage_error)? {
            chosen.stems.insert(entry.map_err(storage_error)?.0.value());
        }
        if let Some(sources) = self.optional(tables::SOURCES)? {
            for entry in sources.iter().map_err(storage_error)? {
                chosen
                    .sources
                    .insert(entry.map_err(storage_error)?.0.value());
            }
        }
        Ok(chosen)
    }

    fn stems_of_image(&mut self, chosen: &Chosen, sink: Sink<'_>) -> Result<()> {
        let mut hours = self.hours_of_image(chosen)?;
        for id in &chosen.stems {
            let StemInfo {
                stem,
                parent,
                session,
            } = self.stem_info(*id)?;
            let parent = match parent {
                Some(parent) => Some(self.stem_info(parent)?.stem),
                None => None,
            };
            let more = self.unknown(&unknown::stem(&stem))?;
            let session = session.filter(|_| chosen.sessions.contains(id));
            sink(Entry::Stem(StemEntry {
                stem,
                parent,
                session: session.map(|parts| ReferenceEntry {
                    key: parts.key,
                    agent: parts.agent,
                    ancestors: parts.ancestors,
                }),
                hours: hours.remove(id).unwrap_or_default(),
                more,
            }))?;
        }
        Ok(())
    }

    /// The totals by hour of the chosen sessions, in an order that no numbers decide.
    fn hours_of_image(&mut self, chosen: &Chosen) -> Result<HashMap<u64, Vec<HourEntry>>> {
        let mut cells = Vec::new();
        {
            let table = self
                .snapshot
                .transaction
                .open_table(tables::SPEND_BY_HOUR)
                .map_err(table_error)?;
            for entry in table.iter().map_err(storage_error)? {
                let (key, bytes) = entry.map_err(storage_error)?;
                if chosen.sessions.contains(&key.value().2) {
                    let totals = Totals::decode(bytes.value())?;
                    cells.push((key.value(), totals));
                }
            }
        }
        let mut hours: HashMap<u64, Vec<HourEntry>> = HashMap::new();
        for ((hour, thread, session, agent, provider, model, source), totals) in cells {
            let spent = self.spent(agent, provider, model, source, &totals)?;
            hours.entry(session).or_default().push(HourEntry {
                hour,
                thread: self.name(thread)?,
                spent,
            });
        }
        for entries in hours.values_mut() {
            entries.sort_by(|a, b| {
                (a.hour, &a.thread)
                    .cmp(&(b.hour, &b.thread))
                    .then_with(|| a.spent.names().cmp(&b.spent.names()))
            });
        }
        Ok(hours)
    }

    fn spent(
        &self,
        agent: u64,
        provider: u64,
        model: u64,
        source: u8,
        totals: &Totals,
    ) -> Result<SpentEntry> {
        Ok(SpentEntry {
            agent: self.name(agent)?,
            provider: self.name(provider)?,
            model: self.name(model)?,
            cost_source: source_from_code(source),
            turns: totals.turns,
            input: totals.input_tokens,
            output: totals.output_tokens,
            cached_input: totals.cached_input_tokens,
            cache_write: totals.cache_write_tokens,
            cost: Pico(totals.cost),
        })
    }

    /// The name with this id; empty for 0. A name has no checksum: it is right if it leads back to its id.
    pub(in crate::store) fn name(&self, id: u64) -> Result<String> {
        if id == 0 {
            return Ok(String::new());
        }
        let table = self
            .snapshot
            .transaction
            .open_table(tables::NAME_TEXTS)
            .map_err(table_error)?;
        let Some(text) = table.get(id).map_err(storage_error)? else {
            return Err(missing("a name", &format!("name id {id}")));
        };
        let text = text.value().to_owned();
        let ids = self
            .snapshot
            .transaction
            .open_table(tables::NAMES)
            .map_err(table_error)?;
        let key = id_key(self.seed, &text);
        let back = ids.get(key.as_slice()).map_err(storage_error)?;
        if back.is_none_or(|back| back.value() != id) {
            return Err(Error::Corrupted {
                what: "a name".to_owned(),
                at: format!("name id {id} does not lead back to it"),
            });
        }
        Ok(text)
    }

    fn source_of_image(&mut self, id: u64, sink: Sink<'_>) -> Result<()> {
        let absent = || missing("a source", &format!("source {id}"));
        let source = self.source(id)?.ok_or_else(absent)?;
        let by_path = self.optional(tables::SOURCES_BY_PATH)?.ok_or_else(absent)?;
        let path = id_key(self.seed, &source.path);
        let newest = by_path.get(path.as_slice()).map_err(storage_error)?;
        let name = format!("{id:016x}");
        let more = self.unknown(&unknown::source(&name))?;
        sink(Entry::Source(SourceEntry {
            id: name,
            path: source.path,
            format: source.format,
            codec_version: source.codec_version,
            length: source.length,
            sha256: hex(&source.hash),
            newest: newest.is_some_and(|newest| newest.value() == id),
            more,
        }))?;
        for hash in &source.chunks {
            for part in self.chunk(hash)?.chunks(CHUNK_BYTES) {
                sink(Entry::Chunk(part.to_vec()))?;
            }
        }
        Ok(())
    }

    fn transcript_of_image(&mut self, id: u64, sink: Sink<'_>) -> Result<()> {
        let transcript = self.transcript(id)?;
        let (birth, head) = (transcript.birth, &transcript.head);
        let stem = self.stem_info(birth.session)?.stem;
        let full = full_stem(&stem, birth.generation);
        let sources = self.sources_of(id)?;
        let told = self.attributes(id)?;
        sink(Entry::Transcript(Box::new(TranscriptEntry {
            stem,
            generation: birth.generation,
            created: birth.created_at,
            updated: head.updated_at,
            title: head.title.clone(),
            meta: head.meta.as_ref().clone(),
            referenced: head.via_session,
            sealed: head.sealed,
            next_seq: head.next_seq,
            live_rows: head.context.rows,
            spend: TallyEntry::from(&head.spend),
            spent: self.spent_of_image(id)?,
            sources: sources.iter().map(|id| format!("{id:016x}")).collect(),
            spawned_by: told.spawned_by,
            attributes: told.more,
            more: self.unknown(&unknown::transcript(&full))?,
        })))?;
        let mut first = 0;
        while first < head.next_seq {
            let end = first.saturating_add(PAGE);
            let range = Range {
                transcript: id,
                first,
                end,
            };
            for (_, position) in self.positions(range)? {
                let entry = self.record_of_image(position)?;
                sink(Entry::Record(Box::new(entry)))?;
            }
            first = end;
        }
        Ok(())
    }

    pub(in crate::store) fn spent_of_image(&mut self, id: u64) -> Result<Vec<SpentEntry>> {
        let table = self
            .snapshot
            .transaction
            .open_table(tables::SPEND_BY_TRANSCRIPT)
            .map_err(table_error)?;
        let range = (id, 0, 0, 0, 0)..=(id, u64::MAX, u64::MAX, u64::MAX, u8::MAX);
        let mut spent = Vec::new();
        for entry in table.range(range).map_err(storage_error)? {
            let (key, bytes) = entry.map_err(storage_error)?;
            let (_, agent, provider, model, source) = key.value();
            let totals = Totals::decode(bytes.value())?;
            spent.push(self.spent(agent, provider, model, source, &totals)?);
        }
        spent.sort_by(|a, b| a.names().cmp(&b.names()));
        Ok(spent)
    }

    pub(in crate::store) fn record_of_image(&mut self, position: u64) -> Result<RecordEntry> {
        let (kind, address, body) = self.record(position, |record| {
            Ok((record.kind, record.address, record.body()?))
        })?;
        let mut entry = RecordEntry::new(kind, address);
        if let Some(imported) = self.origin(address.transcript, address.seq)? {
            entry.cache_write = imported.cache_write;
            entry.origin = Some(OriginEntry {
                source: format!("{:016x}", imported.origin.source),
                offset: imported.origin.offset,
                length: imported.origin.length,
                codec_version: imported.origin.codec_version,
            });
        }
        match body {
            Body::Row(row) => entry.row = Some(Box::new(RowEntry::of(*row))),
            Body::Marker(marker) => {
                entry.rows = Some(self.runs_of_image(&marker.replacement)?);
                entry.request_id = marker.request_id;
                entry.metadata = marker.metadata;
            }
            Body::Usage(body) => {
                entry.usage = Some(body.usage.into());
                entry.cache_write = body.cache_write;
                let original = body.original.as_deref();
                entry.original = original.map(crate::store::record::json).transpose()?;
                entry.request_id = body.request_id;
                entry.superseded = self.is_superseded(address.transcript, address.seq)?;
            }
            Body::Tools(tools) => entry.tools = Some(tools),
            Body::Seal(seal) => {
                entry.request_id = seal.request_id;
                entry.metadata = seal.metadata;
            }
            Body::Retained(ranges) => entry.rows = Some(self.runs_of_image(&ranges)?),
        }
        entry.more = self.unknown(&unknown::record(entry.uuid))?;
        Ok(entry)
    }

    /// Runs of records by the UUIDs of their first and last ones.
    fn runs_of_image(&mut self, ranges: &[Range]) -> Result<Vec<(Uuid, Uuid)>> {
        let mut runs = Vec::with_capacity(ranges.len());
        for range in ranges {
            let positions = self.positions(*range)?;
            if let (Some((_, first)), Some((_, last))) = (positions.first(), positions.last()) {
                runs.push((self.uuid_at(*first)?, self.uuid_at(*last)?));
            }
        }
        Ok(runs)
    }

    fn uuid_at(&mut self, position: u64) -> Result<Uuid> {
        self.record(position, |record| Ok(Uuid::from_u128(record.address.uuid)))
    }

    fn repeats_of_image(&mut self, chosen: &Chosen, sink: Sink<'_>) -> Result<()> {
        let Some(table) = self.optional(tables::IMPORT_KEYS)? else {
            return Ok(());
        };
        let unpublished = self.unpublished()?;
        for entry in table.iter().map_err(storage_error)? {
            let (key, found) = entry.map_err(storage_error)?;
            let (import, uuid) = found.value();
            if unpublished.contains(&import) {
                continue;
            }
            if !chosen.all {
                let Some(position) = self.position_of(uuid)? else {
                    continue;
                };
                let of = self.record(position, |record| Ok(record.address.transcript))?;
                if !chosen.transcripts.contains(&of) {
                    continue;
                }
            }
            let key = hex(key.value());
            let more = self.unknown(&unknown::repeat(&key))?;
            sink(Entry::Repeat(RepeatEntry {
                key,
                record: Uuid::from_u128(uuid),
                more,
            }))?;
        }
        Ok(())
    }

    fn calls_of_image(&mut self, chosen: &Chosen, sink: Sink<'_>) -> Result<()> {
        let Some(table) = self.optional(tables::PROVIDER_CALLS)? else {
            return Ok(());
        };
        for entry in table.iter().map_err(storage_error)? {
            let (key, bytes) = entry.map_err(storage_error)?;
            let group: CallGroup = binary::decode(bytes.value(), "a provider call")?;
            let mut told = Vec::new();
            for (request, slot) in
                group.within(|slot| chosen.transcripts.contains(&slot.transcript))
            {
                told.push(self.told_of_image(request, slot)?);
            }
            let mut totals = Vec::new();
            for total in &group.totals {
                if chosen.transcripts.contains(&total.transcript) {
                    totals.push(self.total_of_image(total)?);
                }
            }
            if told.is_empty() && totals.is_empty() {
                continue;
            }
            let key = hex(key.value());
            let more = self.unknown(&unknown::call(&key))?;
            sink(Entry::Call(CallEntry {
                key,
                told,
                totals,
                more,
            }))?;
        }
        Ok(())
    }

    fn total_of_image(&mut self, total: &RunTotal) -> Result<TotalEntry> {
        let session = self.transcript(total.transcript)?.birth.session;
        Ok(TotalEntry {
            run: total.run.clone(),
            length: total.length,
            after: total.after.clone(),
            stem: self.stem_info(session)?.stem,
            input: total.input,
            output: total.output,
            cached_input: total.cached_input,
            cache_write: total.cache_write,
            cost_usd: total.cost_usd,
            adds: match &total.slot {
                Some(slot) => Some(self.told_of_image(None, slot)?),
                None => None,
            },
        })
    }

    fn told_of_image(&mut self, request: Option<&str>, slot: &CallSlot) -> Result<ToldEntry> {
        let absent = || missing("what a provider call is counted under", "it");
        let at = slot.at.ok_or_else(absent)?;
        let uuid = self.record_at(slot.transcript, slot.seq, |record| {
            Ok(Uuid::from_u128(record.address.uuid))
        })?;
        Ok(ToldEntry {
            request: request.map(str::to_owned),
            record: uuid,
            input: slot.input,
            output: slot.output,
            cached_input: slot.cached_input,
            cache_write: slot.cache_write,
            cost_usd: slot.cost_usd,
            stem: self.stem_info(at.session)?.stem,
            thread: self.name(at.thread)?,
            agent: self.name(at.agent)?,
        })
    }

    /// What images told of that this version does not know, as JSON texts.
    pub(in crate::store) fn others(&self) -> Result<Vec<String>> {
        let Some(table) = self.optional(tables::UNKNOWN)? else {
            return Ok(Vec::new());
        };
        let all = table.range(unknown::others()).map_err(storage_error)?;
        all.map(|entry| Ok(entry.map_err(storage_error)?.1.value().to_owned()))
            .collect()
    }

    fn others_of_image(&mut self, sink: Sink<'_>) -> Result<()> {
        for text in self.others()? {
            sink(Entry::Other(parse(&text)?))?;
        }
        Ok(())
    }

    /// What an image told of something that this version does not know.
    fn unknown(&self, of: &str) -> Result<More> {
        let Some(table) = self.optional(tables::UNKNOWN)? else {
            return Ok(More::new());
        };
        let found = table.get(of).map_err(storage_error)?;
        found.map_or(Ok(More::new()), |text| parse(text.value()))
    }
}

fn parse(text: &str) -> Result<More> {
    crate::store::record::json(text).and_then(|value| match value {
        serde_json::Value::Object(more) => Ok(more),
        _ => Err(missing("what an image told", "an object")),
    })
}

pub(in crate::store) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl SpentEntry {
    /// What such totals are ordered by.
    fn names(&self) -> (&str, &str, &str, u8) {
        let source = crate::store::head::source_code(self.cost_source);
        (&self.agent, &self.provider, &self.model, source)
    }
}

impl From<&SpendTally> for TallyEntry {
    fn from(tally: &SpendTally) -> Self {
        Self {
            turns: tally.turns,
            input: tally.input_tokens,
            output: tally.output_tokens,
            cached_input: tally.cached_input_tokens,
            cost: Pico(tally.cost.0),
            last_input: tally.last_input_tokens,
            last_output: tally.last_output_tokens,
            last_context: tally.last_context_tokens,
            last_context_input: tally.last_context_input_tokens,
            last_context_output: tally.last_context_output_tokens,
            model: tally.model.clone(),
            context_window: tally.context_window,
            priced: Pico(tally.priced.0),
            priced_source: tally.priced_source,
            unpriced_turns: tally.unpriced_turns,
            unpriced_input: tally.unpriced_input_tokens,
            unpriced_output: tally.unpriced_output_tokens,
            unpriced_cached_input: tally.unpriced_cached_input_tokens,
        }
    }
}

impl RecordEntry {
    fn new(kind: Kind, address: Address) -> Self {
        Self {
            uuid: Uuid::from_u128(address.uuid),
            seq: address.seq,
            at: address.at,
            kind: match kind {
                Kind::Row => RecordName::Row,
                Kind::MarkerRow => RecordName::MarkerRow,
                Kind::Partial => RecordName::Partial,
                Kind::MarkerPartial => RecordName::MarkerPartial,
                Kind::Marker => RecordName::Marker,
                Kind::Usage => RecordName::Usage,
                Kind::Tools => RecordName::Tools,
                Kind::Seal => RecordName::Seal,
                Kind::Retained => RecordName::Retained,
            },
            row: None,
            rows: None,
            usage: None,
            cache_write: 0,
            original: None,
            superseded: false,
            tools: None,
            request_id: None,
            metadata: None,
            origin: None,
            more: More::new(),
        }
    }
}

impl RowEntry {
    fn of(row: StoredRow) -> Self {
        let message = row.message;
        Self {
            legacy: message.live_legacy().map(str::to_owned),
            id: message.id,
            role: message.role,
            content: message.content,
            tool_calls: message.tool_calls.into_iter().map(Into::into).collect(),
            tool_call_id: message.tool_call_id,
            parts: message.parts,
            extra_metadata: message.extra_metadata,
            cache_breakpoints: message.cache_breakpoints,
            usage: message.turn_usage.map(Into::into),
            request_id: message.request_id,
            failure: message.tool_failure.map(|failure| FailureEntry {
                detail: failure.detail,
            }),
            iteration: row.iteration,
            ts: row.ts,
            shows_write_time: row.written.is_some(),
            revises: row.revises,
        }
    }
}
