//! SQLite as a host would use it for transcripts: records as JSON with the same indexes, heads and spend in tables.
//!
//! The records stand in the order of writing, which suits SQLite best; UUIDs ascend. WAL, `synchronous=FULL`: a commit
//! survives a power loss.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior, params};
use transcript_redb::{TranscriptMessage, TranscriptMeta, TurnUsage};
use uuid::Uuid;

use crate::peer::{Kind, Peer, Result, Writer};
use crate::work::{Turn, meta, preloaded, thread};

pub const ONE_CONNECTION: Kind = Kind {
    name: "SQLite, one connection",
    make: |folder, turns, sessions| {
        let path = folder.join("transcripts.sqlite");
        let connection = Mutex::new(preload(&path, turns, sessions)?);
        Ok(Box::new(Shared { connection }))
    },
};

pub const CONNECTION_PER_THREAD: Kind = Kind {
    name: "SQLite, a connection a thread",
    make: |folder, turns, sessions| {
        let path = folder.join("transcripts.sqlite");
        preload(&path, turns, sessions)?;
        Ok(Box::new(PerThread { path }))
    },
};

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
             session INTEGER PRIMARY KEY, thread TEXT NOT NULL, agent TEXT NOT NULL, next_seq INTEGER NOT NULL,
             meta TEXT NOT NULL);
         CREATE INDEX IF NOT EXISTS heads_by_thread ON heads (thread, session);
         CREATE TABLE IF NOT EXISTS spend (
             session INTEGER NOT NULL, hour TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL,
             turns INTEGER NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL, cached INTEGER NOT NULL,
             cost REAL NOT NULL, PRIMARY KEY (session, hour, provider, model)) WITHOUT ROWID;",
    )?;
    Ok(connection)
}

fn preload(path: &Path, turns: &[Turn], sessions: usize) -> Result<Connection> {
    let mut connection = open(path)?;
    let transaction = connection.transaction()?;
    for session in 0..sessions {
        let rows = encode(&preloaded(turns, session))?;
        write_rows(&transaction, session, 0, None, &rows)?;
        write_head(&transaction, session, rows.len(), &meta(session))?;
    }
    transaction.commit()?;
    Ok(connection)
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
        "INSERT INTO heads (session, thread, agent, next_seq, meta) VALUES (?1, ?2, ?3, ?4, ?5)
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
    connection: Mutex<Connection>,
}

struct PerThread {
    path: PathBuf,
}

enum Access<'a> {
    Shared(&'a Mutex<Connection>),
    Own(Box<Connection>),
}

enum Guard<'a> {
    Shared(MutexGuard<'a, Connection>),
    Own(&'a mut Connection),
}

struct SqlWriter<'a> {
    access: Access<'a>,
    first: usize,
    heads: Vec<(usize, TranscriptMeta)>,
}

impl Peer for Shared {
    fn writer(&self, sessions: Range<usize>) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(SqlWriter::new(
            Access::Shared(&self.connection),
            sessions,
        )))
    }
}

impl Peer for PerThread {
    fn writer(&self, sessions: Range<usize>) -> Result<Box<dyn Writer + '_>> {
        let connection = Box::new(open(&self.path)?);
        Ok(Box::new(SqlWriter::new(Access::Own(connection), sessions)))
    }
}

impl<'a> SqlWriter<'a> {
    fn new(access: Access<'a>, sessions: Range<usize>) -> Self {
        Self {
            access,
            first: sessions.start,
            heads: sessions
                .map(|session| (crate::work::PRELOADED, meta(session)))
                .collect(),
        }
    }
}

impl Writer for SqlWriter<'_> {
    fn turn(&mut self, place: usize, turn: &Turn) -> Result<()> {
        let (next_seq, meta) = &mut self.heads[place];
        let session = self.first + place;
        meta.turn_count += 1;
        // Encoding goes on outside the lock, as a careful host would have it. The usage stands in the last row.
        let mut rows = turn.rows.clone();
        if let Some(last) = rows.last_mut() {
            last.turn_usage = Some(turn.usage.clone());
        }
        let rows = encode(&rows)?;
        let mut guard = match &mut self.access {
            Access::Shared(connection) => {
                Guard::Shared(connection.lock().map_err(|_| "a writer panicked")?)
            }
            Access::Own(connection) => Guard::Own(connection),
        };
        let connection = match &mut guard {
            Guard::Shared(connection) => connection,
            Guard::Own(connection) => &mut **connection,
        };
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        write_rows(
            &transaction,
            session,
            *next_seq,
            Some(&turn.request_id),
            &rows,
        )?;
        *next_seq += rows.len();
        write_head(&transaction, session, *next_seq, meta)?;
        write_spend(&transaction, session, &turn.usage)?;
        Ok(transaction.commit()?)
    }
}
