//! The child process: opens the store, plays every session on a thread, and may die in the middle.

use std::path::Path;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use transcript_redb::{Store, TranscriptLocator};

use crate::Result;
use crate::args::Phase;
use crate::ledger::{Entry, Kind};
use crate::plan::Session;
use crate::play;

/// Plays `sessions`, `threads` at a time, from where the store stands, and writes a line for what is acknowledged.
pub fn run(db: &Path, sessions: &[Session], threads: usize, phase: Phase) -> Result<()> {
    let locator: Arc<dyn TranscriptLocator> = Arc::new(Store::open(db)?.locator());
    let began = Instant::now();
    let turns = AtomicUsize::new(0);
    let note = |ack: crate::ledger::Ack| -> Result<()> {
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let is_turn = ack.kind == Kind::Turn;
        Entry { ack, micros }.write()?;
        if is_turn {
            let count = turns.fetch_add(1, Ordering::SeqCst) + 1;
            if phase == Phase::Until(count) {
                // As a power cut would: no destructor runs, the other threads stop wherever they are.
                process::abort();
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let players: Vec<_> = (0..threads)
            .map(|first| {
                let mut own = sessions.iter().skip(first).step_by(threads);
                let (locator, note) = (&locator, &note);
                scope.spawn(move || own.try_for_each(|session| play::play(locator, session, note)))
            })
            .collect();
        let played = players.into_iter().map(|player| match player.join() {
            Ok(played) => played,
            Err(_) => Err("a session panicked".into()),
        });
        played.collect()
    })
}
