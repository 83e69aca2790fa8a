//! This crate: turns through the traits, and rows through the fast path.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use transcript_redb::{
    AppendRows, HeadToken, SessionRef, Store, TranscriptHistory, TranscriptLocator as _,
    TranscriptMessage, TranscriptMeta, TranscriptTurn,
};

use crate::peer::{Kind, Peer, Result, Writer};
use crate::work::{Turn, meta, preloaded, thread};

pub const APPEND_TURN: Kind = Kind {
    name: "append_turn, 100 live rows",
    make: |folder, turns, sessions| Ok(Box::new(Turns(preload(&open(folder)?, turns, sessions)?))),
};

pub const APPEND_ROWS: Kind = Kind {
    name: "append_rows",
    make: |folder, turns, sessions| Ok(Box::new(Rows(preload(&open(folder)?, turns, sessions)?))),
};

fn open(folder: &Path) -> Result<Store> {
    Ok(Store::open(folder.join("transcripts.redb"))?)
}

/// Gives a store its sessions.
pub fn preload(store: &Store, turns: &[Turn], sessions: usize) -> Result<Store> {
    let locator = store.locator();
    for number in 0..sessions {
        let meta = meta(number);
        let history = locator.open_session(&session(number), meta.clone())?;
        history.append_turn(TranscriptTurn::new(&[], &preloaded(turns, number), &meta))?;
    }
    Ok(store.clone())
}

pub fn session(number: usize) -> SessionRef {
    SessionRef::scoped(thread(number), "planner")
}

/// A store whose writers use `append_turn`.
pub struct Turns(pub Store);

struct TurnWriter {
    sessions: Vec<Live>,
}

/// A session as a host keeps it: its handle, and its context as it was read and went on.
struct Live {
    history: Arc<dyn TranscriptHistory>,
    rows: Vec<TranscriptMessage>,
    meta: TranscriptMeta,
}

impl Peer for Turns {
    fn writer(&self, sessions: Range<usize>) -> Result<Box<dyn Writer + '_>> {
        let locator = self.0.locator();
        let sessions = sessions
            .map(|number| {
                let meta = meta(number);
                let history = locator.open_session(&session(number), meta.clone())?;
                let rows = history.messages()?;
                Ok(Live {
                    history,
                    rows,
                    meta,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Box::new(TurnWriter { sessions }))
    }
}

impl Writer for TurnWriter {
    fn turn(&mut self, place: usize, turn: &Turn) -> Result<()> {
        let live = &mut self.sessions[place];
        let before = live.rows.len();
        live.rows.extend(turn.rows.iter().cloned());
        live.meta.turn_count += 1;
        let next = TranscriptTurn::new(&live.rows[..before], &live.rows, &live.meta)
            .with_turn_usage(&turn.usage)
            .with_request_id(&turn.request_id);
        Ok(live.history.append_turn(next)?)
    }
}

/// A store whose writers use `append_rows`.
pub struct Rows(pub Store);

struct RowWriter {
    store: Store,
    sessions: Vec<(SessionRef, HeadToken, TranscriptMeta)>,
}

impl Peer for Rows {
    fn writer(&self, sessions: Range<usize>) -> Result<Box<dyn Writer + '_>> {
        let sessions = sessions
            .map(|number| {
                let session = session(number);
                let token = self.0.head(&session)?.ok_or("the session was preloaded")?;
                Ok((session, token, meta(number)))
            })
            .collect::<Result<_>>()?;
        Ok(Box::new(RowWriter {
            store: self.0.clone(),
            sessions,
        }))
    }
}

impl Writer for RowWriter {
    fn turn(&mut self, place: usize, turn: &Turn) -> Result<()> {
        let (session, token, meta) = &mut self.sessions[place];
        meta.turn_count += 1;
        let rows = AppendRows {
            rows: &turn.rows,
            meta: Some(meta),
            usage: Some(&turn.usage),
            request_id: Some(&turn.request_id),
            ..AppendRows::default()
        };
        *token = self.store.append_rows(session, token, rows)?;
        Ok(())
    }
}
