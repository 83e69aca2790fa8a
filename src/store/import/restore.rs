//! Putting an image into a store: all of it at once, or nothing.
//!
//! Heads are made anew from the records, as the writes made them. A session that the store has already is compared first:
//! what it has is not added twice, and what differs is refused. A fact that does not fit to those before it is refused
//! alone, and what is missing in a damaged image leaves a gap.

mod replay;
mod session;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, MutexGuard};

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::source::ChunkWriter;
use super::step::{
    CallGroup, CallSlot, CountedAt, ImportStep, RepeatKey, Restored, RestoredCall, RestoredSource,
    RestoredStem, RestoredTold, RestoredTotal, RunTotal, SourceEntry as StoredSource, Stage,
    StagedAt, StagedOrigin, StagedRecord,
};
use super::{STEP_BYTES, step, unknown};
use crate::session::split_generation;
use crate::store::change::{Change, CountedUsage};
use crate::store::engine::Engine;
use crate::store::envelope::Encoded;
use crate::store::head::{SessionParts, Totals, source_code};
use crate::store::image::entry::{
    CallEntry, Entry, More, RepeatEntry, SourceEntry, SpentEntry, StemEntry, ToldEntry, TotalEntry,
};
use crate::store::pending::Session;
use crate::store::read::image::hex;
use crate::turn::{check_session, check_stem};
use crate::{Error, Result, SessionRef};
use replay::OpenTranscript;
use session::Known;

/// What the import of an image added.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RestoredCounts {
    /// Sessions that it tells of.
    pub(crate) sessions: u64,
    pub(crate) rows: u64,
    pub(crate) contexts: u64,
    /// Records that the store had already.
    pub(crate) duplicates: u64,
    pub(crate) message_ids: u64,
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cached_input: u64,
    pub(crate) cache_write: u64,
    /// 10^-12 USD.
    pub(crate) cost: i128,
}

/// An import of an image that runs. Dropped before it is published, it leaves nothing.
pub(crate) struct Restore<'e> {
    engine: &'e Engine,
    restored: Restored,
    stage: Stage,
    staged: bool,
    published: bool,
    /// The place of the last entry in the order of all.
    rank: u8,
    /// Whether something is missing in the transcript that is read, or its begin is.
    missed: bool,
    stems: HashSet<String>,
    sessions: HashMap<String, Known>,
    /// Whether the source with this id is new.
    sources: HashMap<String, bool>,
    source: Option<OpenSource<'e>>,
    transcript: Option<Box<OpenTranscript>>,
    /// The records that are new.
    uuids: HashSet<u128>,
    /// The transcripts of the image that the store has.
    known: HashSet<u64>,
    /// Where the usage records of the image stand.
    usages: HashMap<u128, (u64, u64)>,
    /// Usage records that count in the image and not in the store, with the stems of their sessions.
    revived: HashMap<(u64, u64), String>,
    others: Vec<String>,
    counts: RestoredCounts,
    _alone: MutexGuard<'e, ()>,
}

/// A source the chunks of which are read.
struct OpenSource<'e> {
    entry: SourceEntry,
    id: u64,
    /// How many of its bytes were read.
    read: u64,
    /// None if the store has it.
    writer: Option<ChunkWriter<'e>>,
    /// What the store has of it, if that is less: its length and hash, and what was read up to there.
    former: Option<(u64, [u8; 32], Sha256)>,
}

impl std::fmt::Debug for Restore<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Restore")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl<'e> Restore<'e> {
    /// Begins an import, once no other runs.
    pub(in crate::store) fn begin(engine: &'e Engine) -> Result<Self> {
        let (import, alone) = super::begin_alone(engine)?;
        Ok(Self {
            engine,
            restored: Restored {
                import,
                ..Restored::default()
            },
            stage: Stage {
                import,
                ..Stage::default()
            },
            staged: false,
            published: false,
            rank: 0,
            missed: false,
            stems: HashSet::new(),
            sessions: HashMap::new(),
            sources: HashMap::new(),
            source: None,
            transcript: None,
            uuids: HashSet::new(),
            known: HashSet::new(),
            usages: HashMap::new(),
            revived: HashMap::new(),
            others: Vec::new(),
            counts: RestoredCounts::default(),
            _alone: alone,
        })
    }

    /// Takes the next entry.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`] of an [`EXPORTED`] store if the entry does not fit to those before it: it is left out, and others
    /// may follow; [`Error::Conflict`] if the store has a session
    /// of the image that has become another one.
    pub(crate) fn take(&mut self, entry: Entry) -> Result<()> {
        let rank = match &entry {
            Entry::Header(_) | Entry::Stem(_) => 0,
            Entry::Source(_) | Entry::Chunk(_) => 1,
            Entry::Transcript(_) | Entry::Record(_) => 2,
            Entry::Repeat(_) => 3,
            Entry::Call(_) => 4,
            // Whatever became unreadable may look like this, so it ends nothing.
            Entry::Other(_) => self.rank,
        };
        if rank < self.rank {
            return Err(damaged("it stands behind what has to follow it"));
        }
        if rank > self.rank {
            self.end_part()?;
        }
        self.rank = rank;
        match entry {
            Entry::Header(more) => {
                self.keep(unknown::HEADER.to_owned(), &more);
                Ok(())
            }
            Entry::Stem(stem) => self.stem(stem),
            Entry::Source(source) => self.source(source),
            Entry::Chunk(bytes) => self.chunk(&bytes),
            Entry::Transcript(transcript) => self.begin_transcript(*transcript),
            Entry::Record(record) => self.record(*record),
            Entry::Repeat(repeat) => self.repeat(&repeat),
            Entry::Call(call) => self.call(call),
            Entry::Other(other) => {
                self.others
                    .push(serde_json::Value::Object(other).to_string());
                Ok(())
            }
        }
    }

    /// Notes that something stood here that cannot be read.
    pub(crate) fn missed(&mut self) {
        self.missed = true;
    }

    fn end_part(&mut self) -> Result<()> {
        self.end_source()?;
        self.end_transcript()
    }

    /// Keeps what this version does not know.
    fn keep(&mut self, of: String, more: &More) {
        if !more.is_empty() {
            let text = serde_json::Value::Object(more.clone()).to_string();
            self.restored.unknown.push((of, text));
        }
    }

    fn stem(&mut self, entry: StemEntry) -> Result<()> {
        check_stem(&entry.stem)?;
        if split_generation(&entry.stem).1 != 0 {
            return Err(damaged("the stem of a session names a generation"));
        }
        if self.stems.contains(&entry.stem) {
            return Err(damaged("a session stands twice"));
        }
        let session = entry.session.map(|parts| SessionParts {
            key: parts.key,
            agent: parts.agent,
            ancestors: parts.ancestors,
        });
        if let Some(parts) = &session {
            let (key, agent) = (parts.key.clone(), parts.agent.clone());
            let session = SessionRef::from_parts(key, agent, 0, parts.ancestors.clone());
            check_session(&session)?;
            if session.base_stem() != entry.stem {
                return Err(damaged("a session reference is not that of its stem"));
            }
        }
        for hour in &entry.hours {
            let seconds = hour.hour.checked_mul(3600);
            if seconds.is_none_or(|it| jiff::Timestamp::from_second(it).is_err()) {
                return Err(damaged("an hour is none"));
            }
        }
        self.stems.insert(entry.stem.clone());
        self.keep(unknown::stem(&entry.stem), &entry.more);
        let hours = entry.hours.into_iter();
        self.restored.stems.push(RestoredStem {
            stem: entry.stem,
            parent: entry.parent,
            session,
            replaces: false,
            hours: hours
                .map(|hour| {
                    let (agent, counted) = hour.spent.counted(hour.hour);
                    (hour.thread, agent, counted)
                })
                .collect(),
        });
        Ok(())
    }

    fn source(&mut self, entry: SourceEntry) -> Result<()> {
        self.end_source()?;
        let id = number(&entry.id)?;
        if self.sources.contains_key(&entry.id) {
            return Err(damaged("a source stands twice"));
        }
        let held = self.engine.snapshot(|reader| reader.source(id))?;
        let mut former = None;
        let new = match held {
            None => true,
            Some(held) => {
                let grown = entry.length > held.length;
                let same = held.path == entry.path
                    && held.format == entry.format
                    && (grown || hex(&self.hash_of(&held, entry.length)?) == entry.sha256);
                if !same {
                    return Err(other_source(entry.path));
                }
                if grown {
                    former = Some((held.length, held.hash, Sha256::new()));
                }
                grown
            }
        };
        self.sources.insert(entry.id.clone(), new);
        let writer = new.then(|| ChunkWriter::of(self.engine, self.restored.import));
        self.source = Some(OpenSource {
            entry,
            id,
            read: 0,
            writer,
            former,
        });
        Ok(())
    }

    /// The hash of the first bytes of a source that the store has.
    fn hash_of(&self, held: &StoredSource, length: u64) -> Result<[u8; 32]> {
        if length == held.length {
            return Ok(held.hash);
        }
        let mut hash = Sha256::new();
        let mut left = usize::try_from(length).unwrap_or(usize::MAX);
        for chunk in &held.chunks {
            let bytes = self.engine.snapshot(|reader| reader.chunk(chunk))?;
            let taken = bytes.get(..left).unwrap_or(&bytes);
            hash.update(taken);
            left -= taken.len();
            if left == 0 {
                break;
            }
        }
        Ok(hash.finalize().into())
    }

    fn chunk(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.source {
            None => Err(damaged("bytes of no source")),
            Some(source) if source.entry.length - source.read < bytes.len() as u64 => {
                Err(damaged("bytes beyond the end of a source"))
            }
            Some(OpenSource {
                writer: None, read, ..
            }) => {
                *read += bytes.len() as u64;
                Ok(())
            }
            Some(OpenSource {
                writer: Some(writer),
                former,
                read,
                ..
            }) => {
                *read += bytes.len() as u64;
                if let Some((left, _, hash)) = former {
                    let most = usize::try_from(*left).unwrap_or(usize::MAX);
                    let taken = bytes.get(..most).unwrap_or(bytes);
                    hash.update(taken);
                    *left -= taken.len() as u64;
                }
                // Some of it may be stored already should this import end early.
                self.staged = true;
                writer.write(bytes)
            }
        }
    }

    fn end_source(&mut self) -> Result<()> {
        let Some(OpenSource {
            entry,
            id,
            writer,
            former,
            ..
        }) = self.source.take()
        else {
            return Ok(());
        };
        let Some(writer) = writer else {
            return Ok(());
        };
        let text = writer.finish(entry.path, &entry.format, entry.codec_version)?;
        let (stored, stage, _) = text.into_parts();
        if stored.length != entry.length || hex(&stored.hash) != entry.sha256 {
            // Whatever the source was, these are not its bytes.
            self.sources.remove(&entry.id);
            return Ok(());
        }
        let before = former.map(|(_, held, read)| read.finalize().as_slice() == held);
        if before == Some(false) {
            return Err(other_source(stored.path));
        }
        self.stage.chunks.extend(stage.chunks);
        self.keep(unknown::source(&entry.id), &entry.more);
        self.restored.sources.push(RestoredSource {
            id,
            entry: stored,
            newest: entry.newest,
        });
        self.flush_if_full()
    }

    fn repeat(&mut self, entry: &RepeatEntry) -> Result<()> {
        let bytes = bytes(&entry.key)?;
        let key: RepeatKey = bytes
            .try_into()
            .map_err(|_| damaged("a repeat key has another length"))?;
        let uuid = entry.record.as_u128();
        if !self.uuids.contains(&uuid) {
            self.known_record(entry.record)?;
        }
        let held = self.engine.snapshot(|reader| reader.import_key(&key))?;
        if held.is_none() {
            self.stage.keys.push((key, uuid));
            self.keep(unknown::repeat(&entry.key), &entry.more);
        }
        self.flush_if_full()
    }

    /// Whether the store has a record that is not new.
    fn known_record(&self, uuid: Uuid) -> Result<()> {
        let held = self
            .engine
            .snapshot(|reader| reader.position_of(uuid.as_u128()))?;
        match held {
            Some(_) => Ok(()),
            None => Err(damaged("it names a record that is not there")),
        }
    }

    fn call(&mut self, entry: CallEntry) -> Result<()> {
        let key = bytes(&entry.key)?;
        let mut told = Vec::new();
        let mut is_new = false;
        for it in entry.told {
            is_new |= self.uuids.contains(&it.record.as_u128());
            told.extend(self.told(it)?);
        }
        let mut totals = self.totals(entry.totals)?;
        let mut held = self.engine.read(|reader| reader.provider_call(&key))?;
        let held_totals = held.iter().flat_map(|held| &held.totals);
        is_new |= totals.iter().any(|(total, _)| {
            let mut same = held_totals.clone();
            same.all(|it| (&it.run, it.length) != (&total.run, total.length))
        });
        if !is_new {
            self.counts.duplicates += 1;
            return Ok(());
        }
        let all_known = held_totals
            .clone()
            .all(|total| self.known.contains(&total.transcript))
            && held
                .iter_mut()
                .flat_map(CallGroup::slots_mut)
                .all(|slot| self.known.contains(&slot.transcript));
        if all_known {
            // The image tells of all sessions that the store knows the call from.
            let of_totals = totals.iter().filter_map(|(total, _)| total.slot.as_ref());
            for slot in told.iter().map(|(_, slot, _)| slot).chain(of_totals) {
                let place = (slot.transcript, slot.seq);
                if self.revived.remove(&place).is_some() {
                    self.restored.superseded.push((place.0, place.1, false));
                }
            }
        } else if let Some(held) = &held {
            told.retain(|(_, slot, _)| !self.known.contains(&slot.transcript));
            totals.retain(|(total, _)| !self.known.contains(&total.transcript));
            let unnamed = held.unnamed.is_some() || told.iter().any(|(it, ..)| it.is_none());
            let both = |(request, _): &(String, _)| {
                told.iter().any(|(it, ..)| it.as_deref() == Some(request))
            };
            let goes_on = !held.totals.is_empty() && !totals.is_empty();
            if unnamed || goes_on || held.requests.iter().any(both) {
                let names = told.pop().map(|(.., [stem, ..])| stem);
                let stem = names.unwrap_or_else(|| "checkpoint".to_owned());
                return Err(Error::Conflict {
                    stem,
                    reason: COUNTED_ELSEWHERE.to_owned(),
                });
            }
        }
        if held.is_none() && key.get(1) == Some(&b'm') {
            self.counts.message_ids += 1;
        }
        self.keep(unknown::call(&entry.key), &entry.more);
        self.restored.calls.push(RestoredCall { key, told, totals });
        Ok(())
    }

    /// A usage record of a call and what it is counted under; None if the store has it.
    fn told(&self, it: ToldEntry) -> Result<Option<RestoredTold>> {
        let Some((transcript, seq)) = self.usages.get(&it.record.as_u128()).copied() else {
            self.known_record(it.record)?;
            return Ok(None);
        };
        if !self.stems.contains(&it.stem) {
            return Err(damaged("a call is counted under no session of the image"));
        }
        let slot = CallSlot {
            transcript,
            seq,
            output: it.output,
            input: it.input,
            cached_input: it.cached_input,
            cache_write: it.cache_write,
            cost_usd: it.cost_usd,
            at: None,
        };
        Ok(Some((it.request, slot, [it.stem, it.thread, it.agent])))
    }

    /// The totals of runs, each with the usage record of what it adds.
    fn totals(&self, entries: Vec<TotalEntry>) -> Result<Vec<RestoredTotal>> {
        let ascend = entries.windows(2).all(|pair| match pair {
            [a, b] => (&a.run, a.length) < (&b.run, b.length),
            _ => true,
        });
        if !ascend {
            return Err(damaged("the totals of runs are not in their order"));
        }
        let mut totals = Vec::new();
        for it in entries {
            let session = self.sessions.get(&it.stem);
            let session = session.ok_or_else(|| damaged("a total of no session"))?;
            let told = match it.adds {
                Some(adds) => self.told(adds)?,
                None => None,
            };
            let (slot, names) = told.map(|(_, slot, names)| (slot, names)).unzip();
            let total = RunTotal {
                run: it.run,
                length: it.length,
                after: it.after,
                transcript: session.incarnation.unwrap_or_default(),
                input: it.input,
                output: it.output,
                cached_input: it.cached_input,
                cache_write: it.cache_write,
                cost_usd: it.cost_usd,
                slot,
            };
            totals.push((total, names));
        }
        Ok(totals)
    }

    fn put(&mut self, at: StagedAt, encoded: Encoded, origin: Option<StagedOrigin>) -> Result<()> {
        if encoded.size > self.engine.record_limit {
            return Err(Error::TooLarge {
                what: "record",
                size: encoded.size,
                limit: self.engine.record_limit,
            });
        }
        self.stage.records.push(StagedRecord {
            at,
            bytes: encoded.bytes,
            blobs: encoded.blobs,
            origin,
        });
        self.flush_if_full()
    }

    fn flush_if_full(&mut self) -> Result<()> {
        if self.stage.weight() >= STEP_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.stage.is_empty() {
            return Ok(());
        }
        let next = Stage {
            import: self.restored.import,
            ..Stage::default()
        };
        let stage = std::mem::replace(&mut self.stage, next);
        self.staged = true;
        step(self.engine, ImportStep::Stage(stage)).map(drop)
    }

    /// Publishes all that is new.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if a host wrote one of its sessions meanwhile.
    pub(crate) fn publish(mut self) -> Result<RestoredCounts> {
        self.end_part()?;
        self.keep_others()?;
        let sessions = &self.sessions;
        let grown = |stem: &str| sessions.get(stem).is_some_and(|it| it.is_grown);
        self.restored.transcripts.retain(|it| grown(&it.session));
        let restored = &self.restored;
        let is_empty = restored.transcripts.is_empty()
            && restored.sources.is_empty()
            && restored.calls.is_empty()
            && self.stage.is_empty()
            && !self.staged
            && restored.unknown.is_empty();
        // Stems of sessions that are known say nothing new, unless they were never mentioned.
        let mentions = !restored.stems.is_empty() && self.mentions_anew()?;
        if is_empty && !mentions {
            return Ok(self.counts);
        }
        self.flush()?;
        let mut restored = std::mem::take(&mut self.restored);
        // What the store has of a session stays as it is, and who is only named spent nothing.
        for stem in &mut restored.stems {
            let session = self.sessions.get(&stem.stem);
            if let Some(session) = session.filter(|session| session.is_grown) {
                stem.replaces = session.is_known();
            } else {
                stem.session = None;
                stem.hours.clear();
            }
        }
        // The path of a source leads to it, unless it leads to one that the image does not know.
        for source in restored.sources.iter_mut().filter(|it| it.newest) {
            let path = &source.entry.path;
            let held = self.engine.read(|reader| reader.source_at(path))?;
            let known = |id: u64| self.sources.contains_key(&format!("{id:016x}"));
            source.newest = held.is_none_or(|(id, _)| known(id));
        }
        let revived = self.revived.values();
        let mut counted = revived.filter_map(|stem| self.sessions.get_key_value(stem));
        if let Some((stem, _)) = counted.find(|(_, session)| session.is_grown) {
            return Err(session::gone_on(stem, COUNTED_ELSEWHERE));
        }
        // A generation the successor of which is missing is the last one.
        for session in self.sessions.values_mut() {
            if let Some(open) = session.reopen() {
                let mut heads = restored.transcripts.iter_mut();
                if let Some(last) = heads.find(|it| it.transcript == open) {
                    last.head.sealed = false;
                }
            }
        }
        let import = restored.import;
        let mut moves = Vec::new();
        let mut sessions = Vec::new();
        for session in self.sessions.values() {
            if let Some(moved) = session.moved()? {
                moves.push(moved);
                sessions.push(Arc::clone(&session.session));
            }
        }
        let change = Change::Import(ImportStep::Restore(Box::new(restored)));
        let engine = self.engine;
        let epoch = engine.committer.epoch();
        let done = engine.submit(change, sessions, |enqueued| {
            Session::advance_all(moves, || engine.committer.enqueue(epoch, enqueued))
        });
        // Should it have failed, this is what has to be taken out.
        self.restored.import = import;
        done?;
        self.published = true;
        Ok(self.counts)
    }

    fn mentions_anew(&self) -> Result<bool> {
        self.engine.snapshot(|reader| {
            for stem in &self.restored.stems {
                if reader.stem_id(&stem.stem)?.is_none() {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    /// Numbers the facts of unknown kinds behind those that the store has.
    fn keep_others(&mut self) -> Result<()> {
        if self.others.is_empty() {
            return Ok(());
        }
        let held = self.engine.read(|reader| reader.others())?;
        let mut next = held.len() as u64;
        for text in std::mem::take(&mut self.others) {
            if !held.contains(&text) {
                self.restored.unknown.push((unknown::other(next), text));
                next += 1;
            }
        }
        Ok(())
    }
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        if !self.published && self.staged {
            let import = self.restored.import;
            // If this fails too, the next open of the store does it.
            let _ = step(self.engine, ImportStep::Sweep { import });
        }
    }
}

impl SpentEntry {
    /// The agent, and the totals as the tables take them.
    fn counted(self, hour: i64) -> (String, CountedUsage) {
        let counted = CountedUsage {
            hour,
            provider: self.provider,
            model: self.model,
            source: source_code(self.cost_source),
            totals: Totals {
                turns: self.turns,
                input_tokens: self.input,
                output_tokens: self.output,
                cached_input_tokens: self.cached_input,
                cache_write_tokens: self.cache_write,
                cost: self.cost.0,
            },
        };
        (self.agent, counted)
    }
}

impl RestoredCall {
    /// The group that it is together with what the store has.
    pub(in crate::store) fn group(
        &self,
        held: Option<CallGroup>,
        mut at: impl FnMut(&[String; 3]) -> Result<CountedAt>,
    ) -> Result<CallGroup> {
        let mut group = held.unwrap_or_default();
        for (request, slot, names) in &self.told {
            let slot = CallSlot {
                at: Some(at(names)?),
                ..slot.clone()
            };
            match request {
                None => group.unnamed = Some(slot),
                Some(request) => {
                    group.requests.retain(|(known, _)| known != request);
                    let to = group.requests.partition_point(|(known, _)| known < request);
                    group.requests.insert(to, (request.clone(), slot));
                }
            }
        }
        for (total, names) in &self.totals {
            let mut total = total.clone();
            if let (Some(slot), Some(names)) = (&mut total.slot, names) {
                slot.at = Some(at(names)?);
            }
            let key = |it: &RunTotal| (it.run.clone(), it.length);
            group.totals.retain(|known| key(known) != key(&total));
            let to = group
                .totals
                .partition_point(|known| key(known) < key(&total));
            group.totals.insert(to, total);
        }
        Ok(group)
    }
}

/// Whether an error says that a fact is none, or does not fit to those before it.
pub(crate) fn is_misfit(error: &Error) -> bool {
    match error {
        Error::Corrupted { what, .. } => what == EXPORTED,
        Error::InvalidId { .. } | Error::InvalidMessage { .. } => true,
        _ => false,
    }
}

/// What an error is about that says of a fact that it is none, or does not fit to those before it.
pub(crate) const EXPORTED: &str = "an exported store";

const COUNTED_ELSEWHERE: &str = "a provider call of it is counted in another session";

/// That the store has a source which is not the one of the image.
fn other_source(path: String) -> Error {
    Error::Conflict {
        stem: path,
        reason: "the store has another version of this source".to_owned(),
    }
}

/// That an image is not one, or not whole.
fn damaged(reason: &str) -> Error {
    Error::Corrupted {
        what: EXPORTED.to_owned(),
        at: reason.to_owned(),
    }
}

/// The bytes that hexadecimal digits stand for.
fn bytes(text: &str) -> Result<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let pairs = digits.as_deref().map(<[u32]>::as_chunks::<2>);
    match pairs {
        Some((pairs, [])) => Ok(pairs
            .iter()
            .map(|[high, low]| u8::try_from(high * 16 + low).unwrap_or_default())
            .collect()),
        _ => Err(damaged("it is not hexadecimal")),
    }
}

/// A number of a source.
fn number(text: &str) -> Result<u64> {
    let bytes: Option<[u8; 8]> = bytes(text)?.try_into().ok();
    let bytes = bytes.ok_or_else(|| damaged("the number of a source has another length"))?;
    Ok(u64::from_be_bytes(bytes))
}
