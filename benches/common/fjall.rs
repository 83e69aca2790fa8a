//! fjall, a log-structured key-value store: records as JSON with the same indexes, heads and spend in keyspaces.
//!
//! A turn is one batch with one `sync_data`, so that a commit survives a power loss. Records stand by session and
//! sequence, which suits an LSM tree.

use std::path::Path;

use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode,
    Readable as _,
};
use serde::{Deserialize, Serialize};
use transcript_redb::{TranscriptMessage, TranscriptMeta, TurnUsage};
use uuid::Uuid;

use crate::Result;
use crate::peer::{Kind, Peer, Reader, Writer};
use crate::sqlite::encode;
use crate::work::{Turn, meta, thread};

pub const FJALL: Kind = Kind {
    name: "fjall",
    open,
    build: open,
    lookups: true,
    syncs: None,
};

fn open(folder: &Path) -> Result<Box<dyn Peer>> {
    Ok(Box::new(Fjall::open(folder)?))
}

/// Bytes of the page cache, as the other stores have.
const CACHE_BYTES: u64 = 256 << 20;

struct Fjall {
    database: Database,
    /// (session, seq) → UUID, request id, JSON.
    records: Keyspace,
    /// UUID → (session, seq).
    records_by_uuid: Keyspace,
    /// session → [`Head`] as JSON.
    heads: Keyspace,
    /// (thread, session) → nothing.
    heads_by_thread: Keyspace,
    /// (session, hour, provider, model) → [`Totals`] as JSON.
    spend: Keyspace,
}

#[derive(Serialize, Deserialize)]
struct Head {
    generation: u32,
    next_seq: u64,
    meta: TranscriptMeta,
}

#[derive(Default, Serialize, Deserialize)]
struct Totals {
    turns: u64,
    input: u64,
    output: u64,
    cached: u64,
    cost: f64,
}

impl Fjall {
    fn open(folder: &Path) -> Result<Self> {
        let database = Database::builder(folder.join("transcripts.fjall"))
            .cache_size(CACHE_BYTES)
            .journal_compression(CompressionType::None)
            .open()?;
        let keyspace = |name| database.keyspace(name, KeyspaceCreateOptions::default);
        Ok(Self {
            records: keyspace("records")?,
            records_by_uuid: keyspace("records_by_uuid")?,
            heads: keyspace("heads")?,
            heads_by_thread: keyspace("heads_by_thread")?,
            spend: keyspace("spend")?,
            database,
        })
    }

    fn keyspaces(&self) -> [&Keyspace; 5] {
        [
            &self.records,
            &self.records_by_uuid,
            &self.heads,
            &self.heads_by_thread,
            &self.spend,
        ]
    }

    fn head(&self, session: usize) -> Result<Option<Head>> {
        let found = self.heads.get(key(session))?;
        Ok(found
            .map(|bytes| serde_json::from_slice(&bytes))
            .transpose()?)
    }

    fn next_seq(&self, session: usize) -> Result<u64> {
        Ok(self.head(session)?.map_or(0, |head| head.next_seq))
    }

    fn write_rows(
        &self,
        batch: &mut OwnedWriteBatch,
        session: usize,
        first: u64,
        request_id: &str,
        rows: &[String],
    ) {
        for (seq, body) in (first..).zip(rows) {
            let uuid = Uuid::now_v7();
            let address = address(session, seq);
            let mut value = Vec::with_capacity(18 + request_id.len() + body.len());
            value.extend(uuid.as_bytes());
            value.extend(u16::try_from(request_id.len()).unwrap_or(0).to_be_bytes());
            value.extend(request_id.as_bytes());
            value.extend(body.as_bytes());
            batch.insert(&self.records, address, value);
            batch.insert(&self.records_by_uuid, *uuid.as_bytes(), address);
        }
    }

    fn write_head(
        &self,
        batch: &mut OwnedWriteBatch,
        session: usize,
        next_seq: u64,
        meta: &TranscriptMeta,
    ) -> Result<()> {
        let head = Head {
            generation: 0,
            next_seq,
            meta: meta.clone(),
        };
        batch.insert(&self.heads, key(session), serde_json::to_vec(&head)?);
        batch.insert(&self.heads_by_thread, by_thread(session), Vec::new());
        Ok(())
    }

    fn write_spend(
        &self,
        batch: &mut OwnedWriteBatch,
        session: usize,
        turn: &TurnUsage,
    ) -> Result<()> {
        let mut key = key(session).to_vec();
        let hour = turn.ts.get(..13).unwrap_or_default();
        for part in [hour, &turn.provider, &turn.model] {
            key.extend(part.as_bytes());
            key.push(0);
        }
        let stored = self.spend.get(&key)?;
        let mut totals: Totals = match stored {
            Some(bytes) => serde_json::from_slice(&bytes)?,
            None => Totals::default(),
        };
        totals.turns += 1;
        totals.input += turn.usage.input;
        totals.output += turn.usage.output;
        totals.cached += turn.usage.cached_input;
        totals.cost += turn.usage.cost_usd;
        batch.insert(&self.spend, key, serde_json::to_vec(&totals)?);
        Ok(())
    }
}

fn key(session: usize) -> [u8; 8] {
    (session as u64).to_be_bytes()
}

fn address(session: usize, seq: u64) -> [u8; 16] {
    ((session as u128) << 64 | u128::from(seq)).to_be_bytes()
}

fn by_thread(session: usize) -> Vec<u8> {
    let mut found = thread(session).into_bytes();
    found.push(0);
    found.extend(key(session));
    found
}

/// The JSON in a record.
fn body(value: &[u8]) -> Result<TranscriptMessage> {
    let (length, rest) = value
        .get(16..)
        .and_then(|rest| rest.split_first_chunk())
        .ok_or("a record is too short")?;
    let length = usize::from(u16::from_be_bytes(*length));
    Ok(serde_json::from_slice(
        rest.get(length..).ok_or("a record is too short")?,
    )?)
}

impl Peer for Fjall {
    fn load(&self, session: usize, rows: &[TranscriptMessage]) -> Result<()> {
        let rows = encode(rows)?;
        let first = self.next_seq(session)?;
        let mut batch = self.database.batch();
        self.write_rows(&mut batch, session, first, "", &rows);
        let next_seq = first + rows.len() as u64;
        self.write_head(&mut batch, session, next_seq, &meta(session))?;
        Ok(batch.commit()?)
    }

    fn writer(&self, session: usize) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(FjallWriter {
            store: self,
            session,
            next_seq: self.next_seq(session)?,
            meta: meta(session),
        }))
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(FjallReader(self)))
    }

    fn checkpoint(&self) -> Result<()> {
        for keyspace in self.keyspaces() {
            keyspace.rotate_memtable_and_wait()?;
        }
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    fn compact(&self) -> Result<()> {
        self.checkpoint()?;
        for keyspace in self.keyspaces() {
            keyspace.major_compact()?;
        }
        Ok(())
    }
}

struct FjallWriter<'a> {
    store: &'a Fjall,
    session: usize,
    next_seq: u64,
    meta: TranscriptMeta,
}

impl Writer for FjallWriter<'_> {
    fn turn(&mut self, turn: &Turn) -> Result<()> {
        self.meta.turn_count += 1;
        let mut rows = turn.rows.clone();
        if let Some(last) = rows.last_mut() {
            last.turn_usage = Some(turn.usage.clone());
        }
        let rows = encode(&rows)?;
        let (store, session) = (self.store, self.session);
        let mut batch = store
            .database
            .batch()
            .durability(Some(PersistMode::SyncData));
        store.write_rows(&mut batch, session, self.next_seq, &turn.request_id, &rows);
        self.next_seq += rows.len() as u64;
        store.write_head(&mut batch, session, self.next_seq, &self.meta)?;
        store.write_spend(&mut batch, session, &turn.usage)?;
        Ok(batch.commit()?)
    }
}

struct FjallReader<'a>(&'a Fjall);

impl Reader for FjallReader<'_> {
    fn resume(&mut self, session: usize) -> Result<Vec<TranscriptMessage>> {
        let snapshot = self.0.database.snapshot();
        let found = snapshot.prefix(&self.0.records, key(session));
        found.map(|guard| body(&guard.value()?)).collect()
    }

    fn page(&mut self, session: usize, limit: usize) -> Result<usize> {
        let snapshot = self.0.database.snapshot();
        let found = snapshot.prefix(&self.0.records, key(session)).rev();
        let mut messages: Vec<TranscriptMessage> = found
            .take(limit)
            .map(|guard| body(&guard.value()?))
            .collect::<Result<_>>()?;
        messages.reverse();
        Ok(messages.len())
    }

    fn uuids(&mut self, session: usize, limit: usize) -> Result<Vec<Uuid>> {
        let found = self.0.records.prefix(key(session)).take(limit);
        found
            .map(|guard| {
                let value = guard.value()?;
                Ok(Uuid::from_slice(value.get(..16).unwrap_or_default())?)
            })
            .collect()
    }

    fn head(&mut self, session: usize) -> Result<u32> {
        let head = self.0.head(session)?.ok_or("the session is there")?;
        Ok(head.generation)
    }

    fn record(&mut self, uuid: Uuid) -> Result<usize> {
        let address = self.0.records_by_uuid.get(uuid.as_bytes())?;
        let address = address.ok_or("the record is indexed")?;
        let record = self.0.records.get(address)?.ok_or("the record is there")?;
        Ok(body(&record)?.content.len())
    }

    fn spend(&mut self, session: usize) -> Result<u64> {
        let mut prefix = thread(session).into_bytes();
        prefix.push(0);
        let mut input = 0;
        for session in self.0.heads_by_thread.prefix(&prefix) {
            let key = session.key()?;
            let session = key.get(prefix.len()..).unwrap_or_default();
            for totals in self.0.spend.prefix(session) {
                let totals: Totals = serde_json::from_slice(&totals.value()?)?;
                input += totals.input;
            }
        }
        Ok(input)
    }
}
