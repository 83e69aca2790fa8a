//! What every store under test does.

use std::path::Path;

use rand::{SeedableRng as _, rngs::StdRng};
use transcript_redb::TranscriptMessage;
use uuid::Uuid;

use crate::Result;
use crate::corpus::Text;
use crate::work::{self, Turn};

/// A store that is open. Dropping it closes it.
pub trait Peer: Sync {
    /// Stores many rows at the end of a session at once, as an import would; durable after
    /// [`checkpoint`](Self::checkpoint) at the latest.
    fn load(&self, session: usize, rows: &[TranscriptMessage]) -> Result<()>;

    /// A writer of one session, which has rows.
    fn writer(&self, session: usize) -> Result<Box<dyn Writer + '_>>;

    /// A reader of all sessions.
    fn reader(&self) -> Result<Box<dyn Reader + '_>>;

    /// Brings everything durably to the place where it stays: what the store put off, it does now.
    fn checkpoint(&self) -> Result<()>;

    /// Makes the store as small as it can make itself.
    fn compact(&self) -> Result<()>;
}

/// Writes turns, each durable when the call returns.
pub trait Writer: Send {
    fn turn(&mut self, turn: &Turn) -> Result<()>;
}

/// Answers questions. A store without look-ups (plain files) answers [`resume`](Self::resume) and [`page`](Self::page)
/// only.
pub trait Reader: Send {
    /// The messages of a session, typed.
    fn resume(&mut self, session: usize) -> Result<Vec<TranscriptMessage>>;

    /// The last messages of a session, typed; how many there are.
    fn page(&mut self, session: usize, limit: usize) -> Result<usize>;

    /// Identities of some records of a session.
    fn uuids(&mut self, _session: usize, _limit: usize) -> Result<Vec<Uuid>> {
        Ok(Vec::new())
    }

    /// The newest generation of a session.
    fn head(&mut self, _session: usize) -> Result<u32> {
        Err("no look-ups".into())
    }

    /// Bytes of text in the record with this identity.
    fn record(&mut self, _uuid: Uuid) -> Result<usize> {
        Err("no look-ups".into())
    }

    /// Input tokens that the thread of a session used.
    fn spend(&mut self, _session: usize) -> Result<u64> {
        Err("no look-ups".into())
    }
}

/// Loads sessions, given with the number of their rows, from several threads at once; then a checkpoint.
pub fn load_all(peer: &dyn Peer, text: &Text, sessions: &[(usize, usize)]) -> Result<()> {
    const THREADS: usize = 16;
    const ROWS: usize = 500;
    std::thread::scope(|scope| {
        let share = sessions.len().div_ceil(THREADS).max(1);
        let workers: Vec<_> = sessions
            .chunks(share)
            .map(|sessions| {
                scope.spawn(move || -> Result<()> {
                    for &(session, rows) in sessions {
                        let random = &mut StdRng::seed_from_u64(session as u64);
                        for first in (0..rows).step_by(ROWS) {
                            let rows = work::rows(ROWS.min(rows - first), text, random);
                            peer.load(session, &rows)?;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        for worker in workers {
            worker.join().map_err(|_| "a loader panicked")??;
        }
        peer.checkpoint()
    })
}

/// Opens a store in a folder.
pub type Open = fn(&Path) -> Result<Box<dyn Peer>>;

/// A kind of store.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    /// Opens the store in a folder, or creates it there.
    pub open: Open,
    /// The same for loading, where what is written need not be durable before the checkpoint.
    pub build: Open,
    /// Whether its reader answers more than [`Reader::resume`] and [`Reader::page`].
    pub lookups: bool,
    /// Syncs a turn, where it is known without counting.
    pub syncs: Option<f64>,
}
