//! Changes → tables: the only code that writes them.
//!
//! Applying decides nothing that a caller could be told: a change was planned completely before it came here. What is
//! given here (positions, stem ids, name ids) follows from the tables and the order of the changes alone.

mod blobs;
mod import;
mod restore;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use redb::{ReadableTable as _, Table, WriteTransaction};

use super::binary;
use super::change::{Change, CountedUsage, NewRecord, SealPredecessor, TurnChange};
use super::database::{is_the_file, storage_error, table_error};
use super::hash::Seed;
use super::head::{
    Birth, RunTail, SessionParts, StemInfo, StoreState, Totals, Transcript, encode_run,
};
use super::journal::Ledger;
use super::tables::{self, HourKey, SpendKey, id_key};
pub(super) use blobs::Blobs;

use crate::session::{
    bounded, chain_digest, fnv128_u128, is_subagent_stem, parent_part, split_generation,
};
use crate::{Error, Result, TranscriptMeta};

/// Applies a group of changes, in order. Changes up to the sequence that the tables already hold are passed over.
pub(super) fn apply_group<'a>(
    transaction: &WriteTransaction,
    seed: &Seed,
    group: impl IntoIterator<Item = (u64, &'a Change)>,
) -> Result<()> {
    let mut writer = Writer::open(transaction, seed)?;
    for (sequence, change) in group {
        if sequence > writer.state.sequence {
            writer
                .apply(change)
                .map_err(|error| of_change(error, sequence))?;
            writer.state.sequence = sequence;
        }
    }
    let last = writer.state.sequence;
    writer.flush().map_err(|error| of_change(error, last))
}

/// Records which journal holds the changes behind the last one that was applied. Sequences up to `passed` that were never
/// applied never will be.
pub(super) fn record_journal(
    transaction: &WriteTransaction,
    journal: Option<Ledger>,
    passed: u64,
) -> Result<()> {
    let mut store = transaction.open_table(tables::STORE).map_err(table_error)?;
    let mut state = match store.get("state").map_err(storage_error)? {
        Some(state) => StoreState::decode(state.value())?,
        None => StoreState::default(),
    };
    state.journal = journal;
    state.sequence = state.sequence.max(passed);
    let bytes = state.encode()?;
    store
        .insert("state", bytes.as_slice())
        .map_err(storage_error)?;
    Ok(())
}

/// Names the change that damage kept from being applied, unless the file as a whole is to blame.
fn of_change(error: Error, sequence: u64) -> Error {
    match error {
        Error::Corrupted { what, at } if !is_the_file(&what) => Error::Corrupted {
            what,
            at: format!("{at}, applying changes up to {sequence}"),
        },
        error => error,
    }
}

struct Writer<'t> {
    transaction: &'t WriteTransaction,
    seed: &'t Seed,
    state: StoreState,
    store: Table<'t, &'static str, &'static [u8]>,
    log: Table<'t, u64, &'static [u8]>,
    records_by_uuid: Table<'t, u128, u64>,
    transcripts: Table<'t, u64, &'static [u8]>,
    transcript_runs: Table<'t, (u64, u64), &'static [u8]>,
    generations: Table<'t, (u64, u32), u64>,
    idempotency: Table<'t, (u64, &'static [u8], u64, u64), ()>,
    stems: StemTree<'t>,
    names: Names<'t>,
    index: Index<'t>,
    spend: Spend<'t>,
    blobs: Blobs<'t>,
    next_position: u64,
    /// Heads that this group touched; they are written once.
    heads: HashMap<u64, Transcript>,
}

impl<'t> Writer<'t> {
    fn open(transaction: &'t WriteTransaction, seed: &'t Seed) -> Result<Self> {
        let store = transaction.open_table(tables::STORE).map_err(table_error)?;
        let state = match store.get("state").map_err(storage_error)? {
            Some(state) => StoreState::decode(state.value())?,
            None => StoreState::default(),
        };
        let log = transaction.open_table(tables::LOG).map_err(table_error)?;
        let next_position = log
            .last()
            .map_err(storage_error)?
            .map_or(1, |(last, _)| last.value() + 1);
        Ok(Self {
            transaction,
            seed,
            state,
            store,
            log,
            next_position,
            records_by_uuid: transaction
                .open_table(tables::RECORDS_BY_UUID)
                .map_err(table_error)?,
            transcripts: transaction
                .open_table(tables::TRANSCRIPTS)
                .map_err(table_error)?,
            transcript_runs: transaction
                .open_table(tables::TRANSCRIPT_RUNS)
                .map_err(table_error)?,
            generations: transaction
                .open_table(tables::GENERATIONS)
                .map_err(table_error)?,
            idempotency: transaction
                .open_table(tables::IDEMPOTENCY)
                .map_err(table_error)?,
            stems: StemTree::open(transaction, seed)?,
            names: Names::open(transaction, seed)?,
            index: Index::open(transaction)?,
            spend: Spend::open(transaction)?,
            blobs: Blobs::open(transaction)?,
            heads: HashMap::new(),
        })
    }

    fn apply(&mut self, change: &Change) -> Result<()> {
        match change {
            Change::Turn(change) => self.turn(change),
            Change::Import(step) => self.import(step),
        }
    }

    fn turn(&mut self, change: &TurnChange) -> Result<()> {
        let mut transcript = match &change.create {
            None => self.load(change.transcript)?,
            Some(create) => {
                let session = self
                    .stems
                    .mention(&full_stem(&change.session, change.generation))?;
                if let Some(seal) = &create.seal {
                    self.seal(seal)?;
                }
                self.generations
                    .insert((session, change.generation), change.transcript)
                    .map_err(storage_error)?;
                Transcript {
                    birth: Birth {
                        session,
                        generation: change.generation,
                        incarnation: create.incarnation,
                        subagent: is_subagent_stem(&change.session),
                        created_at: change.at,
                    },
                    head: change.head.clone(),
                    runs: RunTail::default(),
                }
            }
        };
        if let Some(parts) = &change.named {
            self.stems.name(transcript.birth.session, parts)?;
        }
        let birth = transcript.birth;
        let before = change
            .create
            .is_none()
            .then(|| Arc::clone(&transcript.head.meta));
        self.index.update(
            &mut self.names,
            change.transcript,
            birth.subagent,
            before.as_deref(),
            &change.head.meta,
        )?;
        transcript.head = change.head.clone();
        for record in &change.records {
            self.append(change.transcript, &mut transcript, record)?;
        }
        let mut usages = change.records.iter().filter_map(|it| it.usage.as_ref());
        if let Some(first) = usages.next() {
            let meta = &transcript.head.meta;
            let thread = self.thread(birth.session, meta)?;
            let place = Place {
                transcript: change.transcript,
                session: birth.session,
                thread: self.names.id(&thread)?,
                agent: self.names.id(&meta.agent_name)?,
            };
            for usage in std::iter::once(first).chain(usages) {
                self.spend.add(&mut self.names, place, usage)?;
            }
        }
        self.heads.insert(change.transcript, transcript);
        Ok(())
    }

    fn seal(&mut self, seal: &SealPredecessor) -> Result<()> {
        let mut transcript = self.load(seal.transcript)?;
        transcript.head = seal.head.clone();
        self.append(seal.transcript, &mut transcript, &seal.record)?;
        self.heads.insert(seal.transcript, transcript);
        Ok(())
    }

    fn load(&mut self, id: u64) -> Result<Transcript> {
        if let Some(transcript) = self.heads.remove(&id) {
            return Ok(transcript);
        }
        match self.transcripts.get(id).map_err(storage_error)? {
            Some(bytes) => Transcript::decode(bytes.value()),
            None => Err(missing_head(id)),
        }
    }

    fn append(&mut self, id: u64, transcript: &mut Transcript, record: &NewRecord) -> Result<()> {
        let position = self.next_position;
        self.next_position += 1;
        self.log
            .insert(position, record.bytes.as_slice())
            .map_err(storage_error)?;
        for blob in &record.blobs {
            self.blobs.add(blob)?;
        }
        self.records_by_uuid
            .insert(record.uuid, position)
            .map_err(storage_error)?;
        self.state.last_uuid = self.state.last_uuid.max(record.uuid);
        let runs = &mut self.transcript_runs;
        transcript
            .runs
            .push(record.seq, position, |chunk, positions| {
                let bytes = encode_run(positions)?;
                runs.insert((id, chunk), bytes.as_slice())
                    .map(drop)
                    .map_err(storage_error)
            })?;
        let session = transcript.birth.session;
        if let Some(key) = &record.key {
            let key = id_key(self.seed, key);
            self.idempotency
                .insert((session, key.as_slice(), id, record.seq), ())
                .map_err(storage_error)?;
        }
        Ok(())
    }

    /// The thread that a usage is recorded under: that of the written root above its session, whose header is `own`,
    /// else that of its own header.
    fn thread(&self, session: u64, own: &TranscriptMeta) -> Result<String> {
        let named = |meta: &TranscriptMeta| thread_of(meta).unwrap_or_default().to_owned();
        let mut passed = HashSet::from([session]);
        let mut top = session;
        while let Some(parent) = self.stems.get(top)?.parent {
            // A forged digest can make a session its own ancestor.
            if !passed.insert(parent) {
                return Ok(named(own));
            }
            top = parent;
        }
        let mut generations = self
            .generations
            .range((top, 0)..=(top, u32::MAX))
            .map_err(storage_error)?;
        let Some(head) = generations.next_back().filter(|_| top != session) else {
            return Ok(named(own));
        };
        let head = head.map_err(storage_error)?.1.value();
        if let Some(transcript) = self.heads.get(&head) {
            return Ok(named(&transcript.head.meta));
        }
        match self.transcripts.get(head).map_err(storage_error)? {
            Some(bytes) => Ok(named(&Transcript::decode(bytes.value())?.head.meta)),
            None => Err(missing_head(head)),
        }
    }

    fn flush(mut self) -> Result<()> {
        for (id, transcript) in &self.heads {
            let bytes = transcript.encode()?;
            self.transcripts
                .insert(*id, bytes.as_slice())
                .map_err(storage_error)?;
        }
        self.spend.flush()?;
        self.blobs.flush()?;
        let state = self.state.encode()?;
        self.store
            .insert("state", state.as_slice())
            .map_err(storage_error)?;
        Ok(())
    }
}

fn missing_head(id: u64) -> Error {
    Error::Corrupted {
        what: "the head of a transcript".to_owned(),
        at: format!("transcript {id} is missing"),
    }
}

/// The stem of a generation.
pub(super) fn full_stem(base: &str, generation: u32) -> String {
    if generation == 0 {
        base.to_owned()
    } else {
        format!("{base}.g{generation}")
    }
}

/// Stems, and who descends from whom.
struct StemTree<'t> {
    seed: &'t Seed,
    ids: Table<'t, &'static [u8], u64>,
    info: Table<'t, u64, &'static [u8]>,
    digests: Table<'t, u128, (u64, u32)>,
    children: Table<'t, (u64, u64), ()>,
    next: u64,
}

impl<'t> StemTree<'t> {
    fn open(transaction: &'t WriteTransaction, seed: &'t Seed) -> Result<Self> {
        let info = transaction
            .open_table(tables::STEM_INFO)
            .map_err(table_error)?;
        let next = info
            .last()
            .map_err(storage_error)?
            .map_or(1, |(last, _)| last.value() + 1);
        Ok(Self {
            seed,
            info,
            next,
            ids: transaction.open_table(tables::STEMS).map_err(table_error)?,
            digests: transaction
                .open_table(tables::STEM_DIGESTS)
                .map_err(table_error)?,
            children: transaction
                .open_table(tables::CHILDREN)
                .map_err(table_error)?,
        })
    }

    /// The id of the session that a stem belongs to; new stems are linked to the parents that they spell out.
    fn mention(&mut self, stem: &str) -> Result<u64> {
        let (id, mut new) = self.intern(stem)?;
        let (mut child, mut base) = (id, split_generation(stem).0);
        while let Some(parent) = parent_part(base).filter(|_| new) {
            let known = match chain_digest(parent) {
                Some(digest) => self
                    .digests
                    .get(digest)
                    .map_err(storage_error)?
                    .map(|it| it.value().0),
                None => None,
            };
            let parent_id;
            (parent_id, new) = match known {
                Some(id) => (id, false),
                None => self.intern(parent)?,
            };
            self.link(parent_id, child)?;
            (child, base) = (parent_id, split_generation(parent).0);
        }
        Ok(id)
    }

    /// The id of the session of a stem, and whether it was given just now.
    fn intern(&mut self, stem: &str) -> Result<(u64, bool)> {
        let (base, _) = split_generation(stem);
        let key = id_key(self.seed, base);
        let known = self
            .ids
            .get(key.as_slice())
            .map_err(storage_error)?
            .map(|id| id.value());
        let (id, new) = match known {
            Some(id) => (id, false),
            None => {
                let id = self.next;
                self.next += 1;
                self.ids.insert(key.as_slice(), id).map_err(storage_error)?;
                self.put(
                    id,
                    &StemInfo {
                        stem: base.to_owned(),
                        ..StemInfo::default()
                    },
                )?;
                (id, true)
            }
        };
        let shown = bounded(stem);
        if shown != stem {
            self.resolve(stem, &shown, id)?;
        }
        Ok((id, new))
    }

    /// A long stem stands in its children's stems by its digest. Children that were written before it was mentioned
    /// hang from the digest until now.
    fn resolve(&mut self, stem: &str, shown: &str, id: u64) -> Result<()> {
        let digest = fnv128_u128(stem.as_bytes());
        let generation = split_generation(stem).1;
        if self
            .digests
            .insert(digest, (id, generation))
            .map_err(storage_error)?
            .is_some()
        {
            return Ok(());
        }
        let key = id_key(self.seed, shown);
        let Some(alias) = self
            .ids
            .get(key.as_slice())
            .map_err(storage_error)?
            .map(|id| id.value())
        else {
            return Ok(());
        };
        let waiting = self
            .children
            .range((alias, 0)..=(alias, u64::MAX))
            .map_err(storage_error)?
            .map(|entry| entry.map(|(key, _)| key.value().1).map_err(storage_error))
            .collect::<Result<Vec<_>>>();
        for child in waiting? {
            self.link(id, child)?;
        }
        Ok(())
    }

    /// Records the session reference of a stem and its line of ancestors.
    fn name(&mut self, id: u64, parts: &SessionParts) -> Result<()> {
        let mut above = None;
        for stem in &parts.ancestors {
            let ancestor = self.mention(stem)?;
            if let Some(above) = above {
                self.link(above, ancestor)?;
            }
            above = Some(ancestor);
        }
        if let Some(above) = above {
            self.link(above, id)?;
        }
        let mut info = self.get(id)?;
        info.session = Some(parts.clone());
        self.put(id, &info)
    }

    /// Makes a session the child of this parent, or of none.
    fn place(&mut self, child: u64, parent: Option<u64>) -> Result<()> {
        if let Some(parent) = parent {
            return self.link(parent, child);
        }
        let mut info = self.get(child)?;
        if let Some(former) = info.parent.take() {
            self.children
                .remove((former, child))
                .map_err(storage_error)?;
            self.put(child, &info)?;
        }
        Ok(())
    }

    fn link(&mut self, parent: u64, child: u64) -> Result<()> {
        let mut info = self.get(child)?;
        if info.parent == Some(parent) || parent == child {
            return Ok(());
        }
        if let Some(former) = info.parent {
            self.children
                .remove((former, child))
                .map_err(storage_error)?;
        }
        info.parent = Some(parent);
        self.children
            .insert((parent, child), ())
            .map_err(storage_error)?;
        self.put(child, &info)
    }

    fn get(&self, id: u64) -> Result<StemInfo> {
        match self.info.get(id).map_err(storage_error)? {
            Some(bytes) => binary::decode(bytes.value(), "a stem"),
            None => Err(Error::Corrupted {
                what: "a stem".to_owned(),
                at: format!("stem id {id} is missing"),
            }),
        }
    }

    fn put(&mut self, id: u64, info: &StemInfo) -> Result<()> {
        let bytes = binary::encode(info)?;
        self.info
            .insert(id, bytes.as_slice())
            .map(drop)
            .map_err(storage_error)
    }
}

/// Names of threads, agents, providers and models.
struct Names<'t> {
    seed: &'t Seed,
    ids: Table<'t, &'static [u8], u64>,
    texts: Table<'t, u64, &'static str>,
    next: u64,
    seen: HashMap<String, u64>,
}

impl<'t> Names<'t> {
    fn open(transaction: &'t WriteTransaction, seed: &'t Seed) -> Result<Self> {
        let texts = transaction
            .open_table(tables::NAME_TEXTS)
            .map_err(table_error)?;
        let next = texts
            .last()
            .map_err(storage_error)?
            .map_or(1, |(last, _)| last.value() + 1);
        Ok(Self {
            seed,
            texts,
            next,
            ids: transaction.open_table(tables::NAMES).map_err(table_error)?,
            seen: HashMap::new(),
        })
    }

    /// The id of a name; 0 for the empty one.
    fn id(&mut self, name: &str) -> Result<u64> {
        if name.is_empty() {
            return Ok(0);
        }
        if let Some(id) = self.seen.get(name) {
            return Ok(*id);
        }
        let key = id_key(self.seed, name);
        let known = self
            .ids
            .get(key.as_slice())
            .map_err(storage_error)?
            .map(|id| id.value());
        let id = match known {
            Some(id) => id,
            None => {
                let id = self.next;
                self.next += 1;
                self.ids.insert(key.as_slice(), id).map_err(storage_error)?;
                self.texts.insert(id, name).map_err(storage_error)?;
                id
            }
        };
        self.seen.insert(name.to_owned(), id);
        Ok(id)
    }
}

/// The thread that a meta names: trimmed, and none if nothing is left.
pub(super) fn thread_of(meta: &TranscriptMeta) -> Option<&str> {
    meta.thread_id
        .as_deref()
        .map(str::trim)
        .filter(|thread| !thread.is_empty())
}

/// Look-ups by thread and agent.
struct Index<'t> {
    roots_by_thread: Table<'t, (u64, u64, u64), ()>,
    children_by_thread: Table<'t, (u64, u64), ()>,
    roots_by_agent: Table<'t, (u64, u64), ()>,
}

impl<'t> Index<'t> {
    fn open(transaction: &'t WriteTransaction) -> Result<Self> {
        Ok(Self {
            roots_by_thread: transaction
                .open_table(tables::ROOTS_BY_THREAD)
                .map_err(table_error)?,
            children_by_thread: transaction
                .open_table(tables::CHILDREN_BY_THREAD)
                .map_err(table_error)?,
            roots_by_agent: transaction
                .open_table(tables::ROOTS_BY_AGENT)
                .map_err(table_error)?,
        })
    }

    /// Moves a transcript from where its meta put it before to where it puts it now.
    fn update(
        &mut self,
        names: &mut Names<'_>,
        transcript: u64,
        subagent: bool,
        before: Option<&TranscriptMeta>,
        after: &TranscriptMeta,
    ) -> Result<()> {
        if before.is_some_and(|before| {
            before.thread_id == after.thread_id
                && before.agent_id == after.agent_id
                && before.agent_name == after.agent_name
        }) {
            return Ok(());
        }
        if let Some(before) = before {
            self.place(names, transcript, subagent, before, false)?;
        }
        self.place(names, transcript, subagent, after, true)
    }

    fn place(
        &mut self,
        names: &mut Names<'_>,
        transcript: u64,
        subagent: bool,
        meta: &TranscriptMeta,
        insert: bool,
    ) -> Result<()> {
        let thread = thread_of(meta).map(|thread| names.id(thread)).transpose()?;
        if subagent {
            if let Some(thread) = thread {
                put(&mut self.children_by_thread, (thread, transcript), insert)?;
            }
            return Ok(());
        }
        let agent_id = match &meta.agent_id {
            Some(agent) => names.id(agent)?,
            None => 0,
        };
        if let Some(thread) = thread {
            put(&mut self.roots_by_thread, (thread, 0, transcript), insert)?;
            if agent_id != 0 {
                put(
                    &mut self.roots_by_thread,
                    (thread, agent_id, transcript),
                    insert,
                )?;
            }
        }
        for agent in [names.id(&meta.agent_name)?, agent_id] {
            if agent != 0 {
                put(&mut self.roots_by_agent, (agent, transcript), insert)?;
            }
        }
        Ok(())
    }
}

fn put<K: redb::Key + 'static>(
    table: &mut Table<'_, K, ()>,
    key: impl for<'a> std::borrow::Borrow<K::SelfType<'a>>,
    insert: bool,
) -> Result<()> {
    if insert {
        table.insert(key, ()).map_err(storage_error)?;
    } else {
        table.remove(key).map_err(storage_error)?;
    }
    Ok(())
}

/// Totals; the additions of a group are gathered, so that each row is written once.
struct Spend<'t> {
    by_transcript: Table<'t, SpendKey, &'static [u8]>,
    by_hour: Table<'t, HourKey, &'static [u8]>,
    transcript_totals: BTreeMap<SpendKey, Totals>,
    hour_totals: BTreeMap<HourKey, Totals>,
}

/// Where the usages of a change are added.
#[derive(Clone, Copy)]
struct Place {
    transcript: u64,
    session: u64,
    thread: u64,
    agent: u64,
}

impl<'t> Spend<'t> {
    fn open(transaction: &'t WriteTransaction) -> Result<Self> {
        Ok(Self {
            by_transcript: transaction
                .open_table(tables::SPEND_BY_TRANSCRIPT)
                .map_err(table_error)?,
            by_hour: transaction
                .open_table(tables::SPEND_BY_HOUR)
                .map_err(table_error)?,
            transcript_totals: BTreeMap::new(),
            hour_totals: BTreeMap::new(),
        })
    }

    fn add(&mut self, names: &mut Names<'_>, at: Place, usage: &CountedUsage) -> Result<()> {
        self.add_transcript(names, at, usage)?;
        self.add_hour(names, at, usage)
    }

    fn add_transcript(
        &mut self,
        names: &mut Names<'_>,
        at: Place,
        usage: &CountedUsage,
    ) -> Result<()> {
        let provider = names.id(&usage.provider)?;
        let model = names.id(&usage.model)?;
        self.transcript_totals
            .entry((at.transcript, at.agent, provider, model, usage.source))
            .or_default()
            .add(&usage.totals);
        Ok(())
    }

    fn add_hour(&mut self, names: &mut Names<'_>, at: Place, usage: &CountedUsage) -> Result<()> {
        let provider = names.id(&usage.provider)?;
        let model = names.id(&usage.model)?;
        let source = usage.source;
        self.hour_totals
            .entry((
                usage.hour, at.thread, at.session, at.agent, provider, model, source,
            ))
            .or_default()
            .add(&usage.totals);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        merge(
            &mut self.by_transcript,
            std::mem::take(&mut self.transcript_totals),
        )?;
        merge(&mut self.by_hour, std::mem::take(&mut self.hour_totals))
    }
}

fn merge<K: redb::Key + Copy + for<'a> std::borrow::Borrow<K::SelfType<'a>> + 'static>(
    table: &mut Table<'_, K, &'static [u8]>,
    totals: BTreeMap<K, Totals>,
) -> Result<()> {
    for (key, added) in totals {
        let mut total = match table.get(key).map_err(storage_error)? {
            Some(bytes) => Totals::decode(bytes.value())?,
            None => Totals::default(),
        };
        total.add(&added);
        let bytes = total.encode()?;
        table.insert(key, bytes.as_slice()).map_err(storage_error)?;
    }
    Ok(())
}
