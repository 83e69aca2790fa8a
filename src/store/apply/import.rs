//! The steps of an import → tables.

use std::collections::HashMap;

use redb::{ReadableTable as _, ReadableTableMetadata as _};

use super::{Place, Writer, full_stem};
use crate::session::is_subagent_stem;
use crate::store::binary;
use crate::store::database::{storage_error, table_error};
use crate::store::head::{Birth, RunTail, Totals, Transcript, encode_run};
use crate::store::import::step::{
    Adjusted, CallGroup, CountedAt, ImportStep, Publish, Published, SettledCalls, SourceChange,
    SourceEntry, SourceRef, Stage, StagedAt, StagedOrigin,
};
use crate::store::origin::{Imported, ORIGIN_CHUNK, Origin, Origins};
use crate::store::tables::{self, id_key};
use crate::{Error, Result};

/// What one step put into the log: where each record belongs, its position, the large content that it refers to,
/// and where it comes from.
type Staged = Vec<(StagedAt, u64, Vec<u128>, Option<StagedOrigin>)>;

/// What the rows of [`tables::STAGED_CALLS`] are, for errors.
const STAGED_CALLS: &str = "the calls of an import";

impl Writer<'_> {
    pub(super) fn import(&mut self, step: &ImportStep) -> Result<()> {
        match step {
            ImportStep::Stage(stage) => self.stage(stage),
            ImportStep::Publish(publish) => self.publish(publish),
            ImportStep::Restore(restored) => self.restore(restored),
            ImportStep::Sweep { import } => self.sweep(*import),
            ImportStep::Calls(calls) => self.stage_calls(calls),
        }
    }

    fn stage(&mut self, stage: &Stage) -> Result<()> {
        let open = self.transaction;
        let mut imports = open.open_table(tables::IMPORTS).map_err(table_error)?;
        imports.insert(stage.import, ()).map_err(storage_error)?;
        let mut staged: Staged = Vec::with_capacity(stage.records.len());
        for record in &stage.records {
            let position = self.next_position;
            self.next_position += 1;
            self.log
                .insert(position, record.bytes.as_slice())
                .map_err(storage_error)?;
            for blob in &record.blobs {
                self.blobs.add(blob)?;
            }
            let content = record.blobs.iter().map(|blob| blob.hash).collect();
            staged.push((record.at, position, content, record.origin));
        }
        if !staged.is_empty() {
            let mut table = open.open_table(tables::STAGED).map_err(table_error)?;
            let next = next_step(&table, stage.import)?;
            let bytes = binary::encode(&staged)?;
            table
                .insert((stage.import, next), bytes.as_slice())
                .map_err(storage_error)?;
        }
        let mut keys = open.open_table(tables::IMPORT_KEYS).map_err(table_error)?;
        for (key, uuid) in &stage.keys {
            keys.insert(key.as_slice(), (stage.import, *uuid))
                .map_err(storage_error)?;
        }
        let mut chunks = open.open_table(tables::CHUNKS).map_err(table_error)?;
        for (hash, bytes) in &stage.chunks {
            let known = chunks
                .get(hash.as_slice())
                .map_err(storage_error)?
                .is_some();
            if !known {
                chunks
                    .insert(hash.as_slice(), bytes.as_slice())
                    .map_err(storage_error)?;
            }
        }
        Ok(())
    }

    fn stage_calls(&mut self, calls: &SettledCalls) -> Result<()> {
        let open = self.transaction;
        let mut imports = open.open_table(tables::IMPORTS).map_err(table_error)?;
        imports.insert(calls.import, ()).map_err(storage_error)?;
        let mut table = open.open_table(tables::STAGED_CALLS).map_err(table_error)?;
        let next = next_step(&table, calls.import)?;
        let bytes = binary::encode(&calls.groups)?;
        table
            .insert((calls.import, next), bytes.as_slice())
            .map_err(storage_error)?;
        Ok(())
    }

    fn publish(&mut self, publish: &Publish) -> Result<()> {
        for published in &publish.transcripts {
            self.publish_head(published)?;
        }
        self.publish_records(publish.import, publish.origin)?;
        // Only now every header is there that says which thread a usage is counted under.
        for published in &publish.transcripts {
            if !published.usages.is_empty() {
                let at = self.counted_at(published.transcript)?;
                for usage in &published.usages {
                    let place = Place {
                        transcript: published.transcript,
                        session: at.session,
                        thread: at.thread,
                        agent: at.agent,
                    };
                    self.spend.add(&mut self.names, place, usage)?;
                }
            }
        }
        for adjusted in &publish.adjusted {
            self.adjust(adjusted)?;
        }
        self.publish_calls(publish)?;
        if let Some(source) = &publish.source {
            self.publish_source(source)?;
        }
        self.published(publish.import)
    }

    /// Notes that nothing of an import is unpublished any more.
    pub(super) fn published(&mut self, import: u64) -> Result<()> {
        let mut imports = self
            .transaction
            .open_table(tables::IMPORTS)
            .map_err(table_error)?;
        imports.remove(import).map_err(storage_error)?;
        Ok(())
    }

    fn publish_head(&mut self, published: &Published) -> Result<()> {
        let mut before = None;
        let mut transcript = match published.created_at {
            None => {
                let transcript = self.load(published.transcript)?;
                before = Some(std::sync::Arc::clone(&transcript.head.meta));
                transcript
            }
            Some(created_at) => {
                let session = self
                    .stems
                    .mention(&full_stem(&published.session, published.generation))?;
                self.generations
                    .insert((session, published.generation), published.transcript)
                    .map_err(storage_error)?;
                let incarnation = match published.generation.checked_sub(1) {
                    None => published.transcript,
                    Some(before) => self.incarnation_of(session, before)?,
                };
                Transcript {
                    birth: Birth {
                        session,
                        generation: published.generation,
                        incarnation,
                        subagent: is_subagent_stem(&published.session),
                        created_at,
                    },
                    head: published.head.clone(),
                    runs: RunTail::default(),
                }
            }
        };
        if let Some(parts) = &published.named {
            self.stems.name(transcript.birth.session, parts)?;
        }
        let birth = transcript.birth;
        self.index.update(
            &mut self.names,
            published.transcript,
            birth.subagent,
            before.as_deref(),
            &published.head.meta,
        )?;
        transcript.head = published.head.clone();
        self.heads.insert(published.transcript, transcript);
        if let Some(text) = &published.attributes {
            self.set_attributes(published.transcript, text)?;
        }
        for (key, seq) in &published.keys {
            let key = id_key(self.seed, key);
            self.idempotency
                .insert(
                    (birth.session, key.as_slice(), published.transcript, *seq),
                    (),
                )
                .map_err(storage_error)?;
        }
        Ok(())
    }

    /// The transcript of generation 0 of a session that has this generation.
    fn incarnation_of(&mut self, session: u64, generation: u32) -> Result<u64> {
        let found = self
            .generations
            .get((session, generation))
            .map_err(storage_error)?
            .map(|id| id.value());
        let Some(id) = found else {
            return Err(Error::Corrupted {
                what: "a generation".to_owned(),
                at: format!("stem id {session}, generation {generation} is missing"),
            });
        };
        let transcript = self.load(id)?;
        let incarnation = transcript.birth.incarnation;
        self.heads.insert(id, transcript);
        Ok(incarnation)
    }

    /// Keeps what sources told of the session of a transcript.
    pub(super) fn set_attributes(&mut self, transcript: u64, text: &str) -> Result<()> {
        let mut table = self
            .transaction
            .open_table(tables::ATTRIBUTES)
            .map_err(table_error)?;
        table.insert(transcript, text).map_err(storage_error)?;
        Ok(())
    }

    /// Gives the records of an import their places. `source` is what they come from where they do not say it.
    pub(super) fn publish_records(&mut self, import: u64, source: Option<SourceRef>) -> Result<()> {
        let open = self.transaction;
        let mut origins = OriginWriter::open(open)?;
        let mut table = open.open_table(tables::STAGED).map_err(table_error)?;
        loop {
            let first = table
                .range((import, 0)..=(import, u64::MAX))
                .map_err(storage_error)?
                .next()
                .transpose()
                .map_err(storage_error)?
                .map(|(key, bytes)| {
                    let staged = binary::decode(bytes.value(), "the steps of an import");
                    (key.value(), staged)
                });
            let Some((key, staged)) = first else {
                return origins.flush();
            };
            let staged: Staged = staged?;
            table.remove(key).map_err(storage_error)?;
            for (at, position, _, origin) in staged {
                let from = origin.and_then(|it| it.source).or(source);
                if let (Some(origin), Some(from)) = (origin, from) {
                    origins.push(at, origin, from)?;
                }
                self.records_by_uuid
                    .insert(at.uuid, position)
                    .map_err(storage_error)?;
                let mut transcript = self.load(at.transcript)?;
                let runs = &mut self.transcript_runs;
                transcript.runs.push(at.seq, position, |chunk, positions| {
                    let bytes = encode_run(positions)?;
                    runs.insert((at.transcript, chunk), bytes.as_slice())
                        .map(drop)
                        .map_err(storage_error)
                })?;
                self.heads.insert(at.transcript, transcript);
            }
        }
    }

    /// What the usages of a transcript are counted under now.
    fn counted_at(&mut self, id: u64) -> Result<CountedAt> {
        let transcript = self.load(id)?;
        let session = transcript.birth.session;
        let meta = std::sync::Arc::clone(&transcript.head.meta);
        self.heads.insert(id, transcript);
        let thread = self.thread(session, &meta)?;
        Ok(CountedAt {
            session,
            thread: self.names.id(&thread)?,
            agent: self.names.id(&meta.agent_name)?,
        })
    }

    /// Takes a usage out of the totals where it was counted, or puts it back there.
    fn adjust(&mut self, adjusted: &Adjusted) -> Result<()> {
        let place = Place {
            transcript: adjusted.transcript,
            session: adjusted.at.session,
            thread: adjusted.at.thread,
            agent: adjusted.at.agent,
        };
        if adjusted.counts {
            return self.spend.add(&mut self.names, place, &adjusted.usage);
        }
        // What is gathered has to be there before something is taken out.
        self.spend.flush()?;
        let usage = &adjusted.usage;
        let provider = self.names.id(&usage.provider)?;
        let model = self.names.id(&usage.model)?;
        let by_transcript = (place.transcript, place.agent, provider, model, usage.source);
        take_out(&mut self.spend.by_transcript, by_transcript, &usage.totals)?;
        let by_hour = (
            usage.hour,
            place.thread,
            place.session,
            place.agent,
            provider,
            model,
            usage.source,
        );
        take_out(&mut self.spend.by_hour, by_hour, &usage.totals)
    }

    fn publish_calls(&mut self, publish: &Publish) -> Result<()> {
        let open = self.transaction;
        let mut staged = open.open_table(tables::STAGED_CALLS).map_err(table_error)?;
        let of = (publish.import, 0)..=(publish.import, u64::MAX);
        let steps = staged
            .extract_from_if(of, |_, _| true)
            .map_err(storage_error)?;
        for step in steps {
            let (_, bytes) = step.map_err(storage_error)?;
            let groups: Vec<(Vec<u8>, CallGroup)> = binary::decode(bytes.value(), STAGED_CALLS)?;
            self.put_calls(&groups)?;
        }
        self.put_calls(&publish.calls)?;
        let mut marks = open.open_table(tables::SUPERSEDED).map_err(table_error)?;
        for (transcript, seq, superseded) in &publish.superseded {
            super::put(&mut marks, (*transcript, *seq), *superseded)?;
        }
        Ok(())
    }

    fn put_calls(&mut self, groups: &[(Vec<u8>, CallGroup)]) -> Result<()> {
        let open = self.transaction;
        let mut calls = open
            .open_table(tables::PROVIDER_CALLS)
            .map_err(table_error)?;
        let mut counted = HashMap::new();
        for (key, group) in groups {
            let mut group = group.clone();
            for slot in group.slots_mut() {
                if slot.at.is_none() {
                    let at = match counted.get(&slot.transcript) {
                        Some(at) => *at,
                        None => self.counted_at(slot.transcript)?,
                    };
                    counted.insert(slot.transcript, at);
                    slot.at = Some(at);
                }
            }
            let bytes = binary::encode(&group)?;
            calls
                .insert(key.as_slice(), bytes.as_slice())
                .map_err(storage_error)?;
        }
        Ok(())
    }

    pub(super) fn publish_source(&mut self, change: &SourceChange) -> Result<()> {
        let open = self.transaction;
        let mut sources = open.open_table(tables::SOURCES).map_err(table_error)?;
        let mut uses = open.open_table(tables::CHUNK_USES).map_err(table_error)?;
        let before = match sources.get(change.id).map_err(storage_error)? {
            Some(bytes) => Some(binary::decode::<SourceEntry>(bytes.value(), "a source")?),
            None => None,
        };
        for hash in &change.entry.chunks {
            let count = uses.get(hash.as_slice()).map_err(storage_error)?;
            let count = count.map_or(0, |count| count.value());
            uses.insert(hash.as_slice(), count + 1)
                .map_err(storage_error)?;
        }
        let mut chunks = open.open_table(tables::CHUNKS).map_err(table_error)?;
        for hash in before.iter().flat_map(|before| &before.chunks) {
            let count = uses.get(hash.as_slice()).map_err(storage_error)?;
            let count = count.map_or(0, |count| count.value());
            if count > 1 {
                uses.insert(hash.as_slice(), count - 1)
                    .map_err(storage_error)?;
            } else {
                uses.remove(hash.as_slice()).map_err(storage_error)?;
                chunks.remove(hash.as_slice()).map_err(storage_error)?;
            }
        }
        let bytes = binary::encode(&change.entry)?;
        sources
            .insert(change.id, bytes.as_slice())
            .map_err(storage_error)?;
        let path = id_key(self.seed, &change.entry.path);
        open.open_table(tables::SOURCES_BY_PATH)
            .map_err(table_error)?
            .insert(path.as_slice(), change.id)
            .map_err(storage_error)?;
        let mut of = open
            .open_table(tables::SOURCES_BY_TRANSCRIPT)
            .map_err(table_error)?;
        for transcript in &change.transcripts {
            of.insert((*transcript, change.id), ())
                .map_err(storage_error)?;
        }
        Ok(())
    }

    /// Removes what an import left that was never published. Costs what it left, and a look at every repeat key and chunk.
    fn sweep(&mut self, import: u64) -> Result<()> {
        let open = self.transaction;
        let mut imports = open.open_table(tables::IMPORTS).map_err(table_error)?;
        if imports.remove(import).map_err(storage_error)?.is_none() {
            return Ok(());
        }
        let mut table = open.open_table(tables::STAGED).map_err(table_error)?;
        let steps: Result<Vec<Staged>> = table
            .extract_from_if((import, 0)..=(import, u64::MAX), |_, _| true)
            .map_err(storage_error)?
            .map(|step| {
                let (_, bytes) = step.map_err(storage_error)?;
                binary::decode(bytes.value(), "the steps of an import")
            })
            .collect();
        let mut calls = open.open_table(tables::STAGED_CALLS).map_err(table_error)?;
        calls
            .retain_in((import, 0)..=(import, u64::MAX), |_, _| false)
            .map_err(storage_error)?;
        // A compaction may have been cut off that had moved some of them.
        let mut compacted = open
            .open_table(tables::LOG_COMPACTED)
            .map_err(table_error)?;
        for (_, position, content, _) in steps?.into_iter().flatten() {
            if self.log.remove(position).map_err(storage_error)?.is_none() {
                compacted.remove(position).map_err(storage_error)?;
            }
            for hash in content {
                self.blobs.release(hash)?;
            }
        }
        let unused = compacted.is_empty().map_err(storage_error)?;
        drop(compacted);
        if unused {
            open.delete_table(tables::LOG_COMPACTED)
                .map_err(table_error)?;
        }
        open.open_table(tables::IMPORT_KEYS)
            .map_err(table_error)?
            .retain(|_, (of, _)| of != import)
            .map_err(storage_error)?;
        let uses = open.open_table(tables::CHUNK_USES).map_err(table_error)?;
        let mut failed = None;
        open.open_table(tables::CHUNKS)
            .map_err(table_error)?
            .retain(|hash, _| match uses.get(hash) {
                Ok(count) => count.is_some(),
                Err(error) => {
                    failed = Some(error);
                    true
                }
            })
            .map_err(storage_error)?;
        failed.map_or(Ok(()), |error| Err(storage_error(error)))
    }
}

/// The number of the next step of an import.
fn next_step(table: &redb::Table<'_, (u64, u64), &'static [u8]>, import: u64) -> Result<u64> {
    let last = table
        .range((import, 0)..=(import, u64::MAX))
        .map_err(storage_error)?
        .next_back()
        .transpose()
        .map_err(storage_error)?;
    Ok(last.map_or(0, |(key, _)| key.value().1 + 1))
}

/// Writes where records come from, a chunk at a time.
struct OriginWriter<'t> {
    table: redb::Table<'t, (u64, u64), &'static [u8]>,
    chunk: Option<((u64, u64), Origins)>,
}

impl<'t> OriginWriter<'t> {
    fn open(transaction: &'t redb::WriteTransaction) -> Result<Self> {
        let table = transaction.open_table(tables::ORIGINS);
        Ok(Self {
            table: table.map_err(table_error)?,
            chunk: None,
        })
    }

    fn push(&mut self, at: StagedAt, origin: StagedOrigin, source: SourceRef) -> Result<()> {
        let key = (at.transcript, at.seq / ORIGIN_CHUNK);
        if self.chunk.as_ref().is_none_or(|(held, _)| *held != key) {
            self.flush()?;
            let held = self.table.get(key).map_err(storage_error)?;
            let origins = match held {
                Some(bytes) => binary::decode(bytes.value(), "the origins of a transcript")?,
                None => Origins::default(),
            };
            self.chunk = Some((key, origins));
        }
        if let Some((_, origins)) = &mut self.chunk {
            let imported = Imported {
                origin: Origin {
                    source: source.id,
                    offset: origin.offset,
                    length: origin.length,
                    codec_version: source.codec_version,
                },
                cache_write: origin.cache_write,
            };
            origins.push(at.seq, &imported);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if let Some((key, origins)) = self.chunk.take() {
            let bytes = binary::encode(&origins)?;
            let table = &mut self.table;
            table.insert(key, bytes.as_slice()).map_err(storage_error)?;
        }
        Ok(())
    }
}

fn take_out<K: redb::Key + Copy + for<'a> std::borrow::Borrow<K::SelfType<'a>> + 'static>(
    table: &mut redb::Table<'_, K, &'static [u8]>,
    key: K,
    gone: &Totals,
) -> Result<()> {
    let total = match table.get(key).map_err(storage_error)? {
        Some(bytes) => Totals::decode(bytes.value())?,
        None => {
            return Err(Error::Corrupted {
                what: "a row of totals".to_owned(),
                at: "a usage that was counted is not in it".to_owned(),
            });
        }
    };
    let bytes = total.without(gone).encode()?;
    table.insert(key, bytes.as_slice()).map_err(storage_error)?;
    Ok(())
}
