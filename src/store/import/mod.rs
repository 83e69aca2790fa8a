//! Importing: rows of other programs' files, many at a time, seen all at once or not at all.
//!
//! An [`Import`] puts rows, and the bytes that they come from, into the store in steps that nothing shows. Its last step
//! publishes them. What an import leaves that never came so far is taken out, at once or when the store is next opened.
//! The rows are given as they are to be stored: the engine knows no format.

mod calls;
mod restore;
mod rows;
mod session;
mod source;
pub(super) mod step;
mod told;
mod totals;
pub(super) mod unknown;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, MutexGuard, PoisonError};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::attributes::Attributes;
use super::change::Change;
use super::engine::Engine;
use super::envelope::Encoded;
use super::hash::Identity;
use super::head::Head;
use super::pending::Session;
use super::read::Reader;
use super::record::{self, Address, Kind, Marker, RowRef};
use crate::transcript::limits::{check_message, check_meta};
use crate::turn::check_session;
use crate::{Error, Result, SessionRef, TranscriptMessage, TranscriptMeta, TurnUsage};
pub(crate) use restore::{EXPORTED, Restore, is_misfit};
use rows::{NO_ROW, Rows};
use session::Open;
pub use source::SourceInfo;
pub(super) use source::unpack;
pub(crate) use source::{ChunkWriter, SourceBytes, SourceText};
use step::{
    ImportStep, Publish, Published, RepeatKey, Stage, StagedAt, StagedOrigin, StagedRecord,
};
use told::Calls;

/// Bytes that are gathered before they are put into the store.
const STEP_BYTES: usize = 1 << 20;

/// Which generation of a session an import goes on in.
#[derive(Debug, Clone)]
pub(crate) enum Reading {
    /// The one that the file names.
    AsNamed,
    /// The last one that was read from files.
    Newest,
    /// The next one, if an earlier version of the codec read the last one from this path; else the last one.
    Anew {
        /// The name of the source.
        path: String,
        codec_version: u32,
    },
}

/// A row to import.
#[derive(Debug)]
pub(crate) struct ImportRow {
    pub(crate) message: TranscriptMessage,
    /// The UUID to take over, if it is free.
    pub(crate) uuid: Option<Uuid>,
    /// RFC 3339, or empty.
    pub(crate) ts: String,
    pub(crate) iteration: Option<u32>,
    /// By what it is known again.
    pub(crate) key: RepeatKey,
    /// The row that it says anew.
    pub(crate) revises: Option<usize>,
    pub(crate) span: Span,
    /// How many tokens of its own usage were written to a cache.
    pub(crate) cache_write: u64,
}

/// Where in its source something stands.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Span {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// A context to import.
#[derive(Debug)]
pub(crate) struct ImportContext {
    /// By what it is known again.
    pub(crate) key: RepeatKey,
    pub(crate) rows: Vec<ContextRow>,
    pub(crate) metadata: Option<Value>,
    /// RFC 3339, or empty.
    pub(crate) ts: String,
    /// The UUID to take over, if it is free.
    pub(crate) uuid: Option<Uuid>,
    pub(crate) span: Span,
}

/// What one record tells of a provider's call.
#[derive(Debug, Clone)]
pub(crate) struct ImportCall {
    pub(crate) session: usize,
    pub(crate) usage: TurnUsage,
    pub(crate) cache_write: u64,
    /// The counters as the source has them, JSON text.
    pub(crate) original: Option<String>,
    pub(crate) span: Span,
}

/// By what a provider's call is known.
#[derive(Debug)]
pub(crate) enum CallName {
    /// A call, and the request that it was, where that is known.
    Call(String, Option<String>),
    /// The total of a run.
    Total(String, TotalName),
}

/// Which total of a run something is.
#[derive(Debug, Clone)]
pub(crate) struct TotalName {
    pub(crate) run: String,
    pub(crate) length: u64,
    /// The runs that it goes on from and how long they were then, the last one first.
    pub(crate) after: Vec<(String, u64)>,
}

/// A row of a new context.
#[derive(Debug)]
pub(crate) enum ContextRow {
    /// By its index.
    Kept(usize),
    New(Box<ImportRow>),
}

/// What an import added.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Added {
    pub(crate) rows: u64,
    pub(crate) duplicates: u64,
    pub(crate) contexts: u64,
    /// Message ids that were not known before.
    pub(crate) message_ids: u64,
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cached_input: u64,
    pub(crate) cache_write: u64,
    /// 10^-12 USD.
    pub(crate) cost: i128,
}

/// Where a row of the import stands: new, or known from an earlier one.
#[derive(Clone, Copy, Debug)]
struct RowPlace {
    transcript: u64,
    seq: u64,
    uuid: u128,
    identity: Identity,
    /// Whether it is in the context at all.
    live: bool,
}

/// An import that runs. Dropped before it is published, it leaves nothing.
pub(crate) struct Import<'e> {
    engine: &'e Engine,
    id: u64,
    sessions: Vec<Open>,
    by_stem: HashMap<String, usize>,
    by_transcript: HashMap<u64, usize>,
    reading: Reading,
    rows: Rows,
    calls: Calls,
    stage: Stage,
    added: Added,
    staged: bool,
    published: bool,
    _alone: MutexGuard<'e, ()>,
}

impl std::fmt::Debug for Import<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Import")
            .field("id", &self.id)
            .field("added", &self.added)
            .finish_non_exhaustive()
    }
}

/// Waits until no other import runs, and gives this one its number.
fn begin_alone(engine: &Engine) -> Result<(u64, MutexGuard<'_, ()>)> {
    engine.writable()?;
    let alone = engine
        .importing
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let [id @ .., _, _, _, _, _, _, _, _] = engine.environment.random().to_le_bytes();
    // What earlier imports published is in the tables from here on, and no other import runs: later look-ups need not
    // wait for anything.
    engine.read(|_| Ok(()))?;
    Ok((u64::from_le_bytes(id), alone))
}

impl<'e> Import<'e> {
    /// Begins an import, once no other runs.
    pub(in crate::store) fn begin(engine: &'e Engine, reading: Reading) -> Result<Self> {
        let (id, alone) = begin_alone(engine)?;
        Ok(Self {
            engine,
            id,
            sessions: Vec::new(),
            by_stem: HashMap::new(),
            by_transcript: HashMap::new(),
            reading,
            rows: Rows::default(),
            calls: Calls::default(),
            stage: Stage {
                import: id,
                ..Stage::default()
            },
            added: Added::default(),
            staged: false,
            published: false,
            _alone: alone,
        })
    }

    /// What was added so far.
    pub(crate) fn added(&self) -> Added {
        self.added
    }

    /// Opens a session to import into; its index.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the session is written and no import made it, or has gone on in a later generation.
    pub(crate) fn session(
        &mut self,
        session: &SessionRef,
        meta: TranscriptMeta,
        title: Option<String>,
    ) -> Result<usize> {
        check_session(session)?;
        let stem = session.session_id();
        check_meta(&stem, &meta)?;
        if let Some(at) = self.by_stem.get(&stem) {
            if let Some(open) = self.sessions.get_mut(*at) {
                open.header(meta, title);
            }
            return Ok(*at);
        }
        let mut open = Open::new(self.engine, session, &self.reading)?;
        open.header(meta, title);
        let at = self.opened(open);
        self.by_stem.insert(stem, at);
        Ok(at)
    }

    fn opened(&mut self, open: Open) -> usize {
        let at = self.sessions.len();
        self.by_transcript.insert(open.transcript, at);
        self.sessions.push(open);
        at
    }

    /// Sets the header of a session anew.
    pub(crate) fn header(
        &mut self,
        session: usize,
        meta: TranscriptMeta,
        title: Option<String>,
    ) -> Result<()> {
        if let Some(open) = self.sessions.get_mut(session) {
            check_meta(&open.session.stem, &meta)?;
            open.header(meta, title);
        }
        Ok(())
    }

    /// Says whether a session was written before sessions had identities.
    pub(crate) fn written_before_identities(&mut self, session: usize, yes: bool) {
        if let Some(open) = self.sessions.get_mut(session) {
            open.written_before_identities(yes);
        }
    }

    /// Adds what else the source tells of a session.
    pub(crate) fn describe(&mut self, session: usize, attributes: Attributes) {
        if let Some(open) = self.sessions.get_mut(session) {
            open.describe(attributes);
        }
    }

    /// Appends a row to a session and its context, unless it is known; its index.
    pub(crate) fn row(&mut self, session: usize, mut row: ImportRow) -> Result<usize> {
        let named = row.key;
        row.key = self.key(session, &named);
        if let Some(known) = self.known(&row.key)? {
            return Ok(known);
        }
        let at = self.put_row(session, row, &named, false)?;
        self.extend(session, at);
        Ok(at)
    }

    /// Replaces the context of a session, unless that is known.
    pub(crate) fn context(&mut self, session: usize, context: ImportContext) -> Result<Vec<usize>> {
        let ImportContext { key, rows, .. } = context;
        let key = self.key(session, &key);
        let known = self.known(&key)?.is_some();
        let Some(open) = self.sessions.get_mut(session) else {
            return Ok(Vec::new());
        };
        if known {
            let mut found = Vec::new();
            for row in rows {
                found.push(match row {
                    ContextRow::Kept(at) => at,
                    ContextRow::New(row) => self.row(session, *row)?,
                });
            }
            return Ok(found);
        }
        let seq = open.head.next_seq;
        open.head.next_seq += 1;
        let transcript = open.transcript;
        // The marker stands before the rows that are new with it, and tells where they will be.
        let mut slots = Vec::with_capacity(rows.len());
        let mut places = Vec::with_capacity(rows.len());
        let mut next = seq + 1;
        for row in rows {
            let slot = match row {
                ContextRow::Kept(at) => Ok(at),
                ContextRow::New(mut row) => {
                    let named = row.key;
                    row.key = self.key(session, &named);
                    match self.known(&row.key)? {
                        Some(known) => Ok(known),
                        None => Err((row, named)),
                    }
                }
            };
            match &slot {
                Ok(at) => {
                    let place = self.rows.get(*at);
                    let own = place.filter(|it| it.live && it.transcript == transcript);
                    places.extend(own.map(|place| (place.transcript, place.seq)));
                }
                Err((row, _)) => {
                    if !row.message.interrupted {
                        places.push((transcript, next));
                    }
                    next += 1;
                }
            }
            slots.push(slot);
        }
        let marker = Marker {
            replacement: session::ranges(&places),
            request_id: None,
            metadata: context.metadata,
        };
        let at = self.time(&context.ts);
        let uuid = self.free_uuid(context.uuid, &key)?;
        self.rows.give(uuid);
        let address = Address {
            transcript,
            seq,
            uuid,
            at,
        };
        let encoded = record::encode_marker(self.engine.packing(), address, &marker)?;
        self.added.contexts += 1;
        self.put(address, encoded, &key, NO_ROW, context.span.origin(0))?;
        let mut found = Vec::with_capacity(slots.len());
        for slot in slots {
            found.push(match slot {
                Ok(at) => at,
                Err((row, named)) => self.put_row(session, *row, &named, true)?,
            });
        }
        if let Some(open) = self.sessions.get_mut(session) {
            open.replace_context(seq, marker.replacement);
            open.touch(at);
            let rows = found.iter().filter_map(|at| self.rows.get(*at));
            for place in rows.filter(|place| place.live && place.transcript == transcript) {
                open.extend(self.engine, &place.identity);
            }
        }
        Ok(found)
    }

    /// Records tool declarations, unless they are known or in force.
    pub(crate) fn tools(
        &mut self,
        session: usize,
        tools: &Value,
        key: RepeatKey,
        span: Span,
    ) -> Result<()> {
        let key = self.key(session, &key);
        if self.known(&key)?.is_some() {
            return Ok(());
        }
        let hash = self.engine.seed.json_text(tools);
        let uuid = self.free_uuid(None, &key)?;
        self.rows.give(uuid);
        let now = self.engine.environment.now_micros();
        let Some(open) = self.sessions.get_mut(session) else {
            return Ok(());
        };
        if open.head.tools.is_some_and(|known| known.hash == hash) {
            return Ok(());
        }
        let address = open.next(uuid, now);
        open.head.tools = Some(super::head::ToolsRef {
            seq: address.seq,
            hash,
        });
        open.touch(now);
        let encoded = record::encode_tools(self.engine.packing(), address, tools)?;
        self.put(address, encoded, &key, NO_ROW, span.origin(0))
    }

    /// Notes what one record tells of a provider's call. Nothing of it counts before all was told.
    pub(crate) fn call(&mut self, name: CallName, call: ImportCall) -> Result<()> {
        self.calls.note(name, call)
    }

    /// The key under which the generation that a session is read into knows what the file names so.
    fn key(&self, session: usize, named: &RepeatKey) -> RepeatKey {
        match self.sessions.get(session) {
            Some(open) => open.key(named),
            None => *named,
        }
    }

    /// The row with this key, of this import or an earlier one; notes it as a duplicate.
    fn known(&mut self, key: &RepeatKey) -> Result<Option<usize>> {
        let found = match self.rows.recent(key) {
            Some(at) => Some(at),
            None => self.look_up(key)?,
        };
        self.added.duplicates += u64::from(found.is_some());
        Ok(found)
    }

    /// What the tables know by a key.
    fn look_up(&mut self, key: &RepeatKey) -> Result<Option<usize>> {
        let (own, rows) = (self.id, &self.rows);
        let found = self.engine.snapshot(|reader| {
            let Some((import, uuid)) = reader.import_key(key)? else {
                return Ok(None);
            };
            if import == own {
                return Ok(Some(Ok(rows.with_uuid(uuid).unwrap_or(NO_ROW))));
            }
            if reader.is_unpublished(import)? {
                return Ok(None);
            }
            match rows.with_uuid(uuid) {
                Some(at) => Ok(Some(Ok(at))),
                None => Ok(reader.imported_row(uuid)?.map(Err)),
            }
        })?;
        match found {
            None => Ok(None),
            Some(Ok(at)) => Ok(Some(at)),
            Some(Err(place)) => Ok(Some(self.rows.push(place)?)),
        }
    }

    /// Stores a row at the next sequence, without touching the context.
    fn put_row(
        &mut self,
        session: usize,
        row: ImportRow,
        named: &RepeatKey,
        in_marker: bool,
    ) -> Result<usize> {
        let uuid = self.free_uuid(row.uuid, &row.key)?;
        let at = self.time(&row.ts);
        let mut revised = row
            .revises
            .and_then(|at| self.rows.get(at))
            .map(|place| place.uuid);
        let former = self.sessions.get(session);
        if let Some(former) = former.and_then(|open| open.former_key(named))
            && revised.is_none()
        {
            let found = self
                .engine
                .snapshot(|reader| reader.imported_uuid(&former))?;
            revised = found.map(|uuid| uuid.as_u128());
        }
        let Some(open) = self.sessions.get_mut(session) else {
            return Err(Error::other("a row of a session that was not opened"));
        };
        let message = fit(&open.session.stem, row.message);
        let hashes = self.engine.seed.row(&message);
        let revised = revised.or_else(|| open.copied(&message, hashes.whole));
        let kind = match (in_marker, message.interrupted) {
            (false, false) => Kind::Row,
            (true, false) => Kind::MarkerRow,
            (false, true) => Kind::Partial,
            (true, true) => Kind::MarkerPartial,
        };
        let address = open.next(uuid, at);
        let plain = record::plain_row(
            kind,
            address,
            &RowRef {
                message: &message,
                hashes,
                iteration: row.iteration,
                ts: Some(row.ts.as_str()).filter(|ts| !ts.is_empty()),
                shows_write_time: false,
                revises: revised.map(Uuid::from_u128),
            },
        )?;
        open.note_row(&message, address);
        let counted = message
            .turn_usage
            .as_ref()
            .filter(|_| revised.is_none() && !message.interrupted);
        if let Some(usage) = counted {
            self.added.count(usage, row.cache_write);
        }
        let usage = counted.cloned();
        let cache_write = usage.as_ref().map_or(0, |_| row.cache_write);
        let place = RowPlace {
            transcript: address.transcript,
            seq: address.seq,
            uuid,
            identity: hashes.identity(),
            live: !message.interrupted,
        };
        if let Some(usage) = usage {
            open.count(&usage, cache_write, at);
        }
        drop(message);
        let encoded = plain.seal(self.engine.packing())?;
        let index = self.rows.push(place)?;
        self.added.rows += 1;
        let origin = row.span.origin(cache_write);
        self.put(address, encoded, &row.key, index, origin)?;
        Ok(index)
    }

    fn extend(&mut self, session: usize, at: usize) {
        if let (Some(open), Some(place)) = (self.sessions.get_mut(session), self.rows.get(at))
            && place.live
        {
            open.extend(self.engine, &place.identity);
        }
    }

    fn put(
        &mut self,
        address: Address,
        encoded: Encoded,
        key: &RepeatKey,
        row: usize,
        origin: StagedOrigin,
    ) -> Result<()> {
        self.rows.note(*key, row);
        self.stage.keys.push((*key, address.uuid));
        self.put_record(address, encoded, Some(origin))
    }

    fn put_record(
        &mut self,
        address: Address,
        encoded: Encoded,
        origin: Option<StagedOrigin>,
    ) -> Result<()> {
        if encoded.size > self.engine.record_limit {
            return Err(Error::TooLarge {
                what: "record",
                size: encoded.size,
                limit: self.engine.record_limit,
            });
        }
        self.stage.records.push(StagedRecord {
            at: StagedAt {
                transcript: address.transcript,
                seq: address.seq,
                uuid: address.uuid,
            },
            bytes: encoded.bytes,
            blobs: encoded.blobs,
            origin,
        });
        if self.stage.weight() >= STEP_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Puts what was gathered into the store.
    fn flush(&mut self) -> Result<()> {
        if self.stage.is_empty() {
            return Ok(());
        }
        let next = Stage {
            import: self.id,
            ..Stage::default()
        };
        let stage = std::mem::replace(&mut self.stage, next);
        self.staged = true;
        let sequence = step(self.engine, ImportStep::Stage(stage))?;
        match self.rows.close_step(sequence) {
            Some(applied) => self.engine.read_behind(applied, |_| Ok(())),
            None => Ok(()),
        }
    }

    /// The given UUID if nothing has it, else one that is made of the key.
    fn free_uuid(&mut self, wanted: Option<Uuid>, key: &RepeatKey) -> Result<u128> {
        let mut made = [0; 16];
        for (to, from) in made.iter_mut().zip(self.engine.seed.long_id(key)) {
            *to = from;
        }
        let made = uuid::Builder::from_custom_bytes(made).into_uuid();
        for uuid in wanted.into_iter().chain([made]).map(|uuid| uuid.as_u128()) {
            let held = self.rows.has_given(uuid)
                || self
                    .engine
                    .snapshot(|reader| reader.position_of(uuid))?
                    .is_some();
            if !held {
                return Ok(uuid);
            }
        }
        Ok(self.engine.uuids.mint())
    }

    /// The time of a record; now, where it has none.
    fn time(&self, ts: &str) -> i64 {
        match ts.parse::<jiff::Timestamp>() {
            Ok(time) => time.as_microsecond(),
            Err(_) => self.engine.environment.now_micros(),
        }
    }

    /// Ends the generation before `open`.
    fn seal(&mut self, open: &Open, transcript: u64, mut head: Head) -> Result<Published> {
        let address = Address {
            transcript,
            seq: head.next_seq,
            uuid: self.engine.uuids.mint(),
            at: self.engine.environment.now_micros(),
        };
        let encoded =
            record::encode_seal(self.engine.packing(), address, &record::Seal::default())?;
        // No line of a source says so.
        self.put_record(address, encoded, None)?;
        head.next_seq += 1;
        head.sealed = true;
        Ok(Published {
            transcript,
            session: open.session.stem.clone(),
            generation: open.generation.saturating_sub(1),
            named: None,
            created_at: None,
            attributes: None,
            head,
            usages: Vec::new(),
            keys: Vec::new(),
        })
    }

    /// Publishes all that was imported. `source` is where it came from, with chunks that are still to be stored.
    pub(crate) fn publish(mut self, source: Option<SourceText>) -> Result<Added> {
        let settled = self.settle_calls()?;
        let (origin, source) = match source {
            Some(text) => self.source_change(text)?,
            None => (None, None),
        };
        if self.stage.is_empty() && !self.staged && source.is_none() && settled.groups.is_empty() {
            self.published = true;
            return Ok(self.added);
        }
        let engine = self.engine;
        let opened = std::mem::take(&mut self.sessions);
        let changed: Vec<Open> = opened.into_iter().filter(Open::is_changed).collect();
        let ended = |open: &Open| open.predecessor.as_ref().map(|(before, _)| *before);
        let ended: HashSet<u64> = changed.iter().filter_map(ended).collect();
        let mut transcripts = Vec::with_capacity(changed.len());
        for open in &changed {
            open.check_end()?;
            if let Some((before, head)) = &open.predecessor {
                // Its totals may have changed, too.
                let of = changed.iter().find(|open| open.transcript == *before);
                let head = of.map_or_else(|| head.as_ref().clone(), Open::final_head);
                transcripts.push(self.seal(open, *before, head)?);
            }
            if !ended.contains(&open.transcript) {
                transcripts.push(open.published());
            }
        }
        self.flush()?;
        let moves = changed
            .iter()
            .filter(|open| open.is_newest() && !ended.contains(&open.transcript))
            .map(|open| (open.session.as_ref(), &open.view, open.newest()))
            .collect();
        let sessions = changed
            .iter()
            .map(|open| Arc::clone(&open.session))
            .collect();
        let publish = Publish {
            import: self.id,
            transcripts,
            adjusted: settled.adjusted,
            calls: settled.groups,
            superseded: settled.marks,
            source,
            origin,
        };
        let change = Change::Import(ImportStep::Publish(Box::new(publish)));
        let epoch = engine.committer.epoch();
        engine.submit(change, sessions, |enqueued| {
            Session::advance_all(moves, || engine.committer.enqueue(epoch, enqueued))
        })?;
        self.published = true;
        Ok(self.added)
    }
}

impl Added {
    fn count(&mut self, usage: &TurnUsage, cache_write: u64) {
        let totals = &usage.usage;
        self.cache_write = self.cache_write.saturating_add(cache_write);
        self.input = self.input.saturating_add(totals.input);
        self.output = self.output.saturating_add(totals.output);
        self.cached_input = self.cached_input.saturating_add(totals.cached_input);
        self.cost = self
            .cost
            .saturating_add(crate::spend::Money::from_usd(totals.cost_usd).0);
    }
}

impl Span {
    /// That something comes from here, in the source of the import.
    fn origin(self, cache_write: u64) -> StagedOrigin {
        StagedOrigin {
            source: None,
            offset: self.offset,
            length: self.length,
            cache_write,
        }
    }
}

impl Drop for Import<'_> {
    fn drop(&mut self) {
        if !self.published && self.staged {
            // If this fails too, the next open of the store does it.
            let _ = step(self.engine, ImportStep::Sweep { import: self.id });
        }
    }
}

/// Makes a step that concerns no session durable; its sequence.
fn step(engine: &Engine, step: ImportStep) -> Result<u64> {
    let epoch = engine.committer.epoch();
    let mut given = 0;
    engine.submit(Change::Import(step), Vec::new(), |enqueued| {
        let (sequence, ticket) = engine.committer.enqueue(epoch, enqueued)?;
        given = sequence;
        Some(ticket)
    })?;
    Ok(given)
}

/// Takes out what imports left that were never published.
pub(super) fn sweep(engine: &Engine) -> Result<()> {
    let left = engine.read(|reader| reader.unpublished())?;
    for import in left {
        step(engine, ImportStep::Sweep { import })?;
    }
    Ok(())
}

/// A row as the store takes it. What it refuses is left out; the source has it.
fn fit(stem: &str, given: TranscriptMessage) -> TranscriptMessage {
    let lifted = match given.normalized_ref() {
        Cow::Owned(lifted) => Some(lifted),
        Cow::Borrowed(_) => None,
    };
    // It may be large, and is not copied.
    let mut message = lifted.unwrap_or(given);
    message.preserve_request_id = true;
    if check_message(stem, &message).is_ok() {
        return message;
    }
    let role = if message.role.len() > 64 {
        "unknown".to_owned()
    } else {
        message.role
    };
    let mut plain = TranscriptMessage::new(role, message.content);
    plain.preserve_request_id = true;
    plain.interrupted = message.interrupted;
    plain
}

/// The key under which a generation knows what a file names so. A generation that was read anew has keys of its own, which
/// are the same in every store.
pub(super) fn key_in(named: &RepeatKey, stem: &str, generation: u32) -> RepeatKey {
    if generation == 0 {
        return *named;
    }
    let hash = Sha256::new()
        .chain_update(named)
        .chain_update(generation.to_le_bytes())
        .chain_update(stem)
        .finalize();
    let mut key: RepeatKey = [0; 20];
    for (to, from) in key.iter_mut().zip(hash) {
        *to = from;
    }
    key
}

impl Reader<'_> {
    /// The record with this repeat key.
    pub(super) fn imported_uuid(&mut self, key: &RepeatKey) -> Result<Option<Uuid>> {
        let Some((import, uuid)) = self.import_key(key)? else {
            return Ok(None);
        };
        if self.is_unpublished(import)? {
            return Ok(None);
        }
        let found = self.imported_row(uuid)?;
        Ok(found.map(|place| Uuid::from_u128(place.uuid)))
    }

    /// The record with this UUID, if it is there.
    fn imported_row(&mut self, uuid: u128) -> Result<Option<RowPlace>> {
        let Some(position) = self.position_of(uuid)? else {
            return Ok(None);
        };
        self.record(position, |record| {
            let live = record.is_row();
            let identity = if live {
                record.hashes()?.identity()
            } else {
                Identity {
                    identity: 0,
                    legacy: None,
                }
            };
            Ok(Some(RowPlace {
                transcript: record.address.transcript,
                seq: record.address.seq,
                uuid,
                identity,
                live,
            }))
        })
    }
}
