//! This crate: turns through the traits, and rows through the fast path.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use transcript_redb::{
    AppendRows, CompactOptions, Durability, HeadToken, SessionRef, Store, TranscriptHistory,
    TranscriptLocator as _, TranscriptMessage, TranscriptMeta, TranscriptTurn,
};
use uuid::Uuid;

use crate::Result;
use crate::peer::{Kind, Peer, Reader, Writer};
use crate::work::{Turn, meta, thread};

/// Live rows of a session whose turns go through `append_turn`, on average: it grows to half as many again, and then a
/// turn compacts it to half as many.
pub const LIVE: usize = 100;

pub const APPEND_ROWS: Kind = Kind {
    name: "append_rows",
    open: |folder| Ok(Box::new(Ours::open(folder, Way::Rows)?)),
    build,
    lookups: true,
    syncs: None,
};

/// The same without a sync a group.
pub const APPEND_ROWS_RELAXED: Kind = Kind {
    name: "append_rows, Eventual",
    open: build,
    build,
    lookups: true,
    syncs: None,
};

/// Makes the store's files as small as it can.
pub fn compact(store: &Store) -> Result<()> {
    // Whoever reads meanwhile waits rather than being told that it is busy.
    store.compact_with(CompactOptions::default().wait(Duration::from_secs(300)))?;
    Ok(())
}

fn build(folder: &Path) -> Result<Box<dyn Peer>> {
    let builder = Store::builder().durability(Durability::Eventual);
    let store = builder.open(folder.join("transcripts.redb"))?;
    let way = Way::Rows;
    Ok(Box::new(Ours { store, way }))
}

pub const APPEND_TURN: Kind = Kind {
    name: "append_turn",
    open: |folder| Ok(Box::new(Ours::open(folder, Way::Turns)?)),
    build,
    lookups: true,
    syncs: None,
};

/// How turns are written.
#[derive(Clone, Copy)]
pub enum Way {
    Rows,
    Turns,
}

pub struct Ours {
    pub store: Store,
    pub way: Way,
}

/// Rows of one call when many are loaded: about a megabyte.
const LOADED_AT_ONCE: usize = 500;

pub fn session(number: usize) -> SessionRef {
    SessionRef::scoped(thread(number), "planner")
}

impl Ours {
    fn open(folder: &Path, way: Way) -> Result<Self> {
        let store = Store::open(folder.join("transcripts.redb"))?;
        Ok(Self { store, way })
    }

    fn history(&self, number: usize) -> Result<Arc<dyn TranscriptHistory>> {
        let locator = self.store.locator();
        Ok(locator.open_session(&session(number), meta(number))?)
    }

    fn token(&self, number: usize) -> Result<HeadToken> {
        let token = self.store.head(&session(number))?;
        Ok(token.ok_or("the session has no rows")?)
    }
}

impl Peer for Ours {
    fn load(&self, session: usize, rows: &[TranscriptMessage]) -> Result<()> {
        let reference = self::session(session);
        for rows in rows.chunks(LOADED_AT_ONCE) {
            if let Some(token) = self.store.head(&reference)? {
                let rows = AppendRows {
                    rows,
                    ..AppendRows::default()
                };
                self.store.append_rows(&reference, &token, rows)?;
            } else {
                let meta = meta(session);
                let turn = TranscriptTurn::new(&[], rows, &meta);
                self.history(session)?.append_turn(turn)?;
            }
        }
        Ok(())
    }

    fn writer(&self, session: usize) -> Result<Box<dyn Writer + '_>> {
        let meta = meta(session);
        Ok(match self.way {
            Way::Rows => Box::new(RowWriter {
                store: &self.store,
                session: self::session(session),
                token: self.token(session)?,
                meta,
            }),
            Way::Turns => {
                let history = self.history(session)?;
                let rows = history.messages()?;
                Box::new(TurnWriter {
                    history,
                    rows,
                    meta,
                })
            }
        })
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(OurReader(self)))
    }

    fn checkpoint(&self) -> Result<()> {
        Ok(self.store.checkpoint()?)
    }

    fn compact(&self) -> Result<()> {
        compact(&self.store)
    }
}

struct RowWriter<'a> {
    store: &'a Store,
    session: SessionRef,
    token: HeadToken,
    meta: TranscriptMeta,
}

impl Writer for RowWriter<'_> {
    fn turn(&mut self, turn: &Turn) -> Result<()> {
        self.meta.turn_count += 1;
        let rows = AppendRows {
            rows: &turn.rows,
            meta: Some(&self.meta),
            usage: Some(&turn.usage),
            request_id: Some(&turn.request_id),
            ..AppendRows::default()
        };
        self.token = self.store.append_rows(&self.session, &self.token, rows)?;
        Ok(())
    }
}

/// A session as a host keeps it: its handle, and its context as it was read and went on.
struct TurnWriter {
    history: Arc<dyn TranscriptHistory>,
    rows: Vec<TranscriptMessage>,
    meta: TranscriptMeta,
}

impl Writer for TurnWriter {
    fn turn(&mut self, turn: &Turn) -> Result<()> {
        self.meta.turn_count += 1;
        let before = self.rows.len();
        if before < LIVE * 3 / 2 {
            self.rows.extend(turn.rows.iter().cloned());
            let next = TranscriptTurn::new(&self.rows[..before], &self.rows, &self.meta)
                .with_turn_usage(&turn.usage)
                .with_request_id(&turn.request_id);
            return Ok(self.history.append_turn(next)?);
        }
        // What is kept is what was read; other rows would be stored again.
        self.rows = self.history.messages()?;
        let mut kept = self.rows[before - LIVE / 2..].to_vec();
        kept.extend(turn.rows.iter().cloned());
        let next = TranscriptTurn::new(&self.rows, &kept, &self.meta)
            .with_turn_usage(&turn.usage)
            .with_request_id(&turn.request_id);
        self.history.append_turn(next)?;
        self.rows = kept;
        Ok(())
    }
}

struct OurReader<'a>(&'a Ours);

impl Reader for OurReader<'_> {
    fn resume(&mut self, session: usize) -> Result<Vec<TranscriptMessage>> {
        Ok(self.0.history(session)?.messages()?)
    }

    fn page(&mut self, session: usize, limit: usize) -> Result<usize> {
        let page = self.0.history(session)?.read_display_before(None, limit)?;
        Ok(page.map_or(0, |page| page.records.len()))
    }

    fn uuids(&mut self, session: usize, limit: usize) -> Result<Vec<Uuid>> {
        let records = self.0.store.records(&self::session(session))?;
        records.take(limit).map(|record| Ok(record?.uuid)).collect()
    }

    fn head(&mut self, session: usize) -> Result<u32> {
        let head = self
            .0
            .store
            .locator()
            .head_generation(&self::session(session))?;
        Ok(head.generation)
    }

    fn record(&mut self, uuid: Uuid) -> Result<usize> {
        let record = self.0.store.record(uuid)?.ok_or("the record is there")?;
        Ok(record
            .message
            .map_or(0, |message| message.message.content.len()))
    }

    fn spend(&mut self, session: usize) -> Result<u64> {
        let spend = self.0.store.locator().thread_spend(&thread(session))?;
        Ok(spend.root.input_tokens)
    }
}
