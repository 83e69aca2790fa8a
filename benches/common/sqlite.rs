//! SQLite as a host would use it for transcripts: records as JSON with the same indexes, heads and spend in tables.
//!
//! The records stand in the order of writing, which suits SQLite best; UUIDs ascend. WAL, `synchronous=FULL`: a commit
//! survives a power loss.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use transcript_redb::{TranscriptMessage, TranscriptMeta, TurnUsage};
use uuid::Uuid;

use crate::Result;
use crate::peer::{Kind, Peer, Reader, Writer};
use crate::work::{Turn, meta, thread};

/// All writers share a connection.
pub const ONE_CONNECTION: Kind = Kind {
    name: "SQLite, one connection",
    open: shared,
    build: shared,
    lookups: true,
    syncs: None,
};

/// Every writer has its own, and waits for the lock in the file.
pub const CONNECTION_PER_THREAD: Kind = Kind {
    name: "SQLite, a connection a thread",
    open: per_thread,
    build: shared,
    lookups: true,
    syncs: None,
};

fn shared(folder: &Path) -> Result<Box<dyn Peer>> {
    let path = path(folder);
    let connection = Mutex::new(open(&path)?);
    Ok(Box::new(Shared { path, connection }))
}

fn per_thread(folder: &Path) -> Result<Box<dyn Peer>> {
    let path = path(folder);
    open(&path)?;
    Ok(Box::new(PerThread { path }))
}

fn path(folder: &Path) -> PathBuf {
    folder.join("transcripts.sqlite")
}

pub fn open(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(60))?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA cache_size = -262144;
         CREATE TABLE IF NOT EXISTS records (
             position INTEGER PRIMARY KEY, session INTEGER NOT NULL, seq INTEGER NOT NULL,
             uuid BLOB NOT NULL, request_id TEXT, body TEXT NOT NULL);
         CREATE UNIQUE INDEX IF NOT EXISTS records_by_seq ON records (session, seq);
         CREATE UNIQUE INDEX IF NOT EXISTS records_by_uuid ON records (uuid);
         CREATE TABLE IF NOT EXISTS heads (
             session INTEGER PRIMARY KEY, generation INTEGER NOT NULL, thread TEXT NOT NULL, agent TEXT NOT NULL,
             next_seq INTEGER NOT NULL, meta TEXT NOT NULL);
         CREATE INDEX IF NOT EXISTS heads_by_thread ON heads (thread, session);
         CREATE TABLE IF NOT EXISTS spend (
             session INTEGER NOT NULL, hour TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL,
             turns INTEGER NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL, cached INTEGER NOT NULL,
             cost REAL NOT NULL, PRIMARY KEY (session, hour, provider, model)) WITHOUT ROWID;",
    )?;
    Ok(connection)
}

/// Where the next row of a session goes.
fn next_seq(connection: &Connection, session: usize) -> Result<usize> {
    let mut select = connection.prepare_cached("SELECT next_seq FROM heads WHERE session = ?1")?;
    let seq: Option<i64> = select
        .query_row([session as i64], |row| row.get(0))
        .optional()?;
    Ok(usize::try_from(seq.unwrap_or(0))?)
}

fn load(connection: &mut Connection, session: usize, rows: &[TranscriptMessage]) -> Result<()> {
    let rows = encode(rows)?;
    // The checkpoint makes it durable.
    connection.pragma_update(None, "synchronous", "OFF")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let first = next_seq(&transaction, session)?;
    write_rows(&transaction, session, first, None, &rows)?;
    write_head(&transaction, session, first + rows.len(), &meta(session))?;
    transaction.commit()?;
    Ok(connection.pragma_update(None, "synchronous", "FULL")?)
}

fn checkpoint(connection: &Connection) -> Result<()> {
    let busy: i64 =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if busy == 0 {
        Ok(())
    } else {
        Err("a reader held the checkpoint".into())
    }
}

fn compact(connection: &Connection) -> Result<()> {
    connection.execute_batch("VACUUM")?;
    checkpoint(connection)
}

/// The JSON of each row.
pub fn encode(rows: &[TranscriptMessage]) -> Result<Vec<String>> {
    rows.iter()
        .map(|row| Ok(serde_json::to_string(row)?))
        .collect()
}

/// Stores rows of a session from a sequence on.
pub fn write_rows(
    connection: &Connection,
    session: usize,
    first: usize,
    request_id: Option<&str>,
    rows: &[String],
) -> Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO records (session, seq, uuid, request_id, body) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for (seq, body) in (first..).zip(rows) {
        let uuid = Uuid::now_v7();
        insert.execute(params![
            session as i64,
            seq as i64,
            uuid.as_bytes(),
            request_id,
            body
        ])?;
    }
    Ok(())
}

fn write_head(
    connection: &Connection,
    session: usize,
    next_seq: usize,
    meta: &TranscriptMeta,
) -> Result<()> {
    let mut upsert = connection.prepare_cached(
        "INSERT INTO heads (session, generation, thread, agent, next_seq, meta) VALUES (?1, 0, ?2, ?3, ?4, ?5)
         ON CONFLICT (session) DO UPDATE SET next_seq = excluded.next_seq, meta = excluded.meta",
    )?;
    upsert.execute(params![
        session as i64,
        thread(session),
        meta.agent_name,
        next_seq as i64,
        serde_json::to_string(meta)?,
    ])?;
    Ok(())
}

fn write_spend(connection: &Connection, session: usize, turn: &TurnUsage) -> Result<()> {
    let mut upsert = connection.prepare_cached(
        "INSERT INTO spend (session, hour, provider, model, turns, input, output, cached, cost)
         VALUES (?1, ?2, ?3, ?4, 1, ?5, ?6, ?7, ?8)
         ON CONFLICT (session, hour, provider, model) DO UPDATE SET turns = turns + 1,
             input = input + excluded.input, output = output + excluded.output,
             cached = cached + excluded.cached, cost = cost + excluded.cost",
    )?;
    let usage = &turn.usage;
    upsert.execute(params![
        session as i64,
        turn.ts.get(..13),
        turn.provider,
        turn.model,
        usage.input as i64,
        usage.output as i64,
        usage.cached_input as i64,
        usage.cost_usd,
    ])?;
    Ok(())
}

struct Shared {
    path: PathBuf,
    connection: Mutex<Connection>,
}

struct PerThread {
    path: PathBuf,
}

impl Shared {
    fn lock(&self) -> Result<MutexGuard<'_, Connection>> {
        lock(&self.connection)
    }
}

fn lock(connection: &Mutex<Connection>) -> Result<MutexGuard<'_, Connection>> {
    Ok(connection.lock().map_err(|_| "a writer panicked")?)
}

impl Peer for Shared {
    fn load(&self, session: usize, rows: &[TranscriptMessage]) -> Result<()> {
        load(&mut *self.lock()?, session, rows)
    }

    fn writer(&self, session: usize) -> Result<Box<dyn Writer + '_>> {
        let next_seq = next_seq(&*self.lock()?, session)?;
        let access = Access::Shared(&self.connection);
        Ok(Box::new(SqlWriter::new(access, session, next_seq)))
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(SqlReader(open(&self.path)?)))
    }

    fn checkpoint(&self) -> Result<()> {
        checkpoint(&*self.lock()?)
    }

    fn compact(&self) -> Result<()> {
        compact(&*self.lock()?)
    }
}

impl Peer for PerThread {
    fn load(&self, session: usize, rows: &[TranscriptMessage]) -> Result<()> {
        load(&mut open(&self.path)?, session, rows)
    }

    fn writer(&self, session: usize) -> Result<Box<dyn Writer + '_>> {
        let connection = Box::new(open(&self.path)?);
        let next_seq = next_seq(&connection, session)?;
        let access = Access::Own(connection);
        Ok(Box::new(SqlWriter::new(access, session, next_seq)))
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(SqlReader(open(&self.path)?)))
    }

    fn checkpoint(&self) -> Result<()> {
        checkpoint(&open(&self.path)?)
    }

    fn compact(&self) -> Result<()> {
        compact(&open(&self.path)?)
    }
}

enum Access<'a> {
    Shared(&'a Mutex<Connection>),
    Own(Box<Connection>),
}

struct SqlWriter<'a> {
    access: Access<'a>,
    session: usize,
    next_seq: usize,
    meta: TranscriptMeta,
}

impl<'a> SqlWriter<'a> {
    fn new(access: Access<'a>, session: usize, next_seq: usize) -> Self {
        Self {
            access,
            session,
            next_seq,
            meta: meta(session),
        }
    }
}

impl Writer for SqlWriter<'_> {
    fn turn(&mut self, turn: &Turn) -> Result<()> {
        self.meta.turn_count += 1;
        // Encoding goes on outside the lock, as a careful host would have it. The usage stands in the last row.
        let mut rows = turn.rows.clone();
        if let Some(last) = rows.last_mut() {
            last.turn_usage = Some(turn.usage.clone());
        }
        let rows = encode(&rows)?;
        let mut guard;
        let connection = match &mut self.access {
            Access::Shared(connection) => {
                guard = lock(connection)?;
                &mut *guard
            }
            Access::Own(connection) => &mut **connection,
        };
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let request_id = Some(turn.request_id.as_str());
        write_rows(&transaction, self.session, self.next_seq, request_id, &rows)?;
        self.next_seq += rows.len();
        write_head(&transaction, self.session, self.next_seq, &self.meta)?;
        write_spend(&transaction, self.session, &turn.usage)?;
        Ok(transaction.commit()?)
    }
}

struct SqlReader(Connection);

impl Reader for SqlReader {
    fn resume(&mut self, session: usize) -> Result<Vec<TranscriptMessage>> {
        let mut select = self
            .0
            .prepare_cached("SELECT body FROM records WHERE session = ?1 ORDER BY seq")?;
        let mut found = select.query([session as i64])?;
        let mut messages = Vec::new();
        while let Some(row) = found.next()? {
            messages.push(serde_json::from_str(row.get_ref(0)?.as_str()?)?);
        }
        Ok(messages)
    }

    fn page(&mut self, session: usize, limit: usize) -> Result<usize> {
        let mut select = self.0.prepare_cached(
            "SELECT seq, body FROM records WHERE session = ?1 ORDER BY seq DESC LIMIT ?2",
        )?;
        let mut found = select.query([session as i64, limit as i64])?;
        let mut messages: Vec<(i64, TranscriptMessage)> = Vec::with_capacity(limit);
        while let Some(row) = found.next()? {
            messages.push((
                row.get(0)?,
                serde_json::from_str(row.get_ref(1)?.as_str()?)?,
            ));
        }
        messages.reverse();
        Ok(messages.len())
    }

    fn uuids(&mut self, session: usize, limit: usize) -> Result<Vec<Uuid>> {
        let mut select = self
            .0
            .prepare_cached("SELECT uuid FROM records WHERE session = ?1 ORDER BY seq LIMIT ?2")?;
        let found = select.query_map([session as i64, limit as i64], |row| row.get(0))?;
        found.map(|bytes| Ok(Uuid::from_bytes(bytes?))).collect()
    }

    fn head(&mut self, session: usize) -> Result<u32> {
        let mut select = self
            .0
            .prepare_cached("SELECT generation FROM heads WHERE session = ?1")?;
        Ok(select.query_row([session as i64], |row| row.get(0))?)
    }

    fn record(&mut self, uuid: Uuid) -> Result<usize> {
        let mut select = self
            .0
            .prepare_cached("SELECT body FROM records WHERE uuid = ?1")?;
        let mut found = select.query([uuid.as_bytes()])?;
        let row = found.next()?.ok_or("the record is there")?;
        let message: TranscriptMessage = serde_json::from_str(row.get_ref(0)?.as_str()?)?;
        Ok(message.content.len())
    }

    fn spend(&mut self, session: usize) -> Result<u64> {
        let mut select = self.0.prepare_cached(
            "SELECT COALESCE(SUM(input), 0) FROM spend
             WHERE session IN (SELECT session FROM heads WHERE thread = ?1)",
        )?;
        let input: i64 = select.query_row([thread(session)], |row| row.get(0))?;
        Ok(u64::try_from(input)?)
    }
}
