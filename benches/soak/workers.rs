//! Who uses the store at the same time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::Result;
use common::corpus::Text;
use common::counted::read_through_gate;
use common::ours::session;
use common::work::{Turn, meta, text_bytes, thread};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;
use transcript_redb::{
    AppendRows, BackgroundAppend, BackgroundAppendOutcome, Error, SessionRef, Store,
    TranscriptHistory, TranscriptLocator as _, TranscriptMessage, TranscriptMeta, TranscriptTurn,
};

use crate::ledger::Ledger;

/// Live rows at which a writer compacts, and how many of the last it keeps beside the first.
const LONGEST: usize = 120;
const KEPT: usize = 24;
/// Turns of a generation, about.
const TURNS_OF_A_GENERATION: u32 = 400;

/// What all see.
pub struct Shared<'a> {
    pub store: Store,
    pub text: &'a Text,
    pub ledgers: Vec<Ledger>,
    pub stop_writers: AtomicBool,
    pub stop_others: AtomicBool,
    pub stop_forgotten: AtomicBool,
    /// Bytes of text that were acknowledged.
    pub content: AtomicU64,
    /// Latencies since the last sample, of turns and of reads.
    pub turns: Mutex<Vec<Duration>>,
    pub reads: Mutex<Vec<Duration>>,
}

impl<'a> Shared<'a> {
    pub fn new(store: Store, text: &'a Text, sessions: usize) -> Self {
        Self {
            store,
            text,
            ledgers: crate::ledgers(sessions),
            stop_writers: AtomicBool::new(false),
            stop_others: AtomicBool::new(false),
            stop_forgotten: AtomicBool::new(false),
            content: AtomicU64::new(0),
            turns: Mutex::default(),
            reads: Mutex::default(),
        }
    }

    fn acknowledged(&self, number: usize, rows: &[TranscriptMessage]) {
        self.ledgers[number].add_rows(rows);
        self.content
            .fetch_add(text_bytes(rows) as u64, Ordering::Relaxed);
    }
}

fn push(latencies: &Mutex<Vec<Duration>>, latency: Duration) {
    let mut latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
    latencies.push(latency);
}

/// A session as its writer knows it.
struct Writer<'a> {
    shared: &'a Shared<'a>,
    number: usize,
    session: SessionRef,
    history: Arc<dyn TranscriptHistory>,
    live: Vec<TranscriptMessage>,
    meta: TranscriptMeta,
}

/// How often somebody calls.
struct Pace {
    pause: Duration,
    due: Instant,
}

impl Pace {
    fn new(pause: Duration, random: &mut StdRng) -> Self {
        // Not all at the same moment.
        let due = Instant::now() + pause.mul_f64(random.random());
        Self { pause, due }
    }

    /// Waits until the next call is due.
    fn wait(&mut self) {
        sleep(self.due.saturating_duration_since(Instant::now()));
        self.due += self.pause;
    }
}

/// Writes one session until it shall stop, a turn every `pause` or as fast as it can; answers what its live context is then.
pub fn write(
    shared: &Shared<'_>,
    number: usize,
    pause: Duration,
) -> Result<Vec<TranscriptMessage>> {
    let random = &mut StdRng::seed_from_u64(number as u64);
    let reference = session(number);
    let mut writer = Writer {
        shared,
        number,
        history: shared
            .store
            .locator()
            .open_session(&reference, meta(number))?,
        session: reference,
        live: Vec::new(),
        meta: meta(number),
    };
    let mut pace = Pace::new(pause, random);
    for turn in 0.. {
        pace.wait();
        let last = shared.stop_writers.load(Ordering::Relaxed);
        let turn = Turn::new(turn, shared.text, random);
        let start = Instant::now();
        if !last && random.random_ratio(1, TURNS_OF_A_GENERATION) {
            writer.begin_generation()?;
        } else if !last && random.random_bool(0.5) {
            writer.append_rows(&turn)?;
        } else {
            writer.append_turn(&turn)?;
        }
        push(&shared.turns, start.elapsed());
        if last {
            break;
        }
    }
    Ok(writer.live)
}

impl Writer<'_> {
    /// Reads the session again after somebody else has written to it.
    fn catch_up(&mut self) -> Result<()> {
        self.live = self.history.messages()?;
        Ok(())
    }

    fn append_rows(&mut self, turn: &Turn) -> Result<()> {
        loop {
            let token = self
                .shared
                .store
                .head(&self.session)?
                .ok_or("it is written")?;
            let rows = AppendRows {
                rows: &turn.rows,
                meta: Some(&self.meta),
                usage: Some(&turn.usage),
                request_id: Some(&turn.request_id),
                ..AppendRows::default()
            };
            match self.shared.store.append_rows(&self.session, &token, rows) {
                Ok(_) => break,
                Err(Error::Stale { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.book(turn);
        // Background rows may stand before these.
        self.catch_up()
    }

    fn append_turn(&mut self, turn: &Turn) -> Result<()> {
        if self.live.len() > LONGEST {
            // What is kept is what was read; other rows would be stored again.
            self.catch_up()?;
        }
        loop {
            let mut next = self.live.clone();
            if next.len() > LONGEST {
                next.drain(1..next.len() - KEPT);
            }
            next.extend(turn.rows.iter().cloned());
            let call = TranscriptTurn::new(&self.live, &next, &self.meta)
                .with_turn_usage(&turn.usage)
                .with_request_id(&turn.request_id);
            match self.history.append_turn(call) {
                Ok(()) => {
                    self.live = next;
                    break;
                }
                Err(Error::Stale { .. }) => self.catch_up()?,
                Err(error) => return Err(error.into()),
            }
        }
        self.book(turn);
        Ok(())
    }

    /// Keeps the last rows in a successor.
    fn begin_generation(&mut self) -> Result<()> {
        let locator = self.shared.store.locator();
        self.catch_up()?;
        loop {
            let begun = locator.begin_generation_from_baseline(
                &self.session,
                self.meta.clone(),
                &self.live,
            );
            let (successor, history) = match begun {
                Ok(begun) => begun,
                Err(Error::Stale { .. }) => {
                    self.catch_up()?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let kept = &self.live[self.live.len().saturating_sub(KEPT)..];
            history.append_turn(TranscriptTurn::new(&[], kept, &self.meta))?;
            (self.session, self.history) = (successor, history);
            let ledger = &self.shared.ledgers[self.number];
            ledger.generation.fetch_add(1, Ordering::Relaxed);
            return self.catch_up();
        }
    }

    fn book(&mut self, turn: &Turn) {
        self.shared.acknowledged(self.number, &turn.rows);
        let tokens = &self.shared.ledgers[self.number].input_tokens;
        tokens.fetch_add(turn.usage.usage.input, Ordering::Relaxed);
    }
}

/// Appends rows outside turns, each twice: the second time it must be a duplicate or find the first compacted away.
pub fn append_in_background(shared: &Shared<'_>, pause: Duration) -> Result<()> {
    let random = &mut StdRng::seed_from_u64(1_000);
    let locator = shared.store.locator();
    let mut calls = Pace::new(pause, random);
    for number in 0u64.. {
        calls.wait();
        if shared.stop_others.load(Ordering::Relaxed) {
            break;
        }
        let place = random.random_range(0..shared.ledgers.len());
        let bytes = random.random_range(200..2_000);
        let row = TranscriptMessage::assistant(shared.text.piece(random, bytes));
        let append = BackgroundAppend::new(format!("report-{number}"), json!({"job": number}));
        for _ in 0..2 {
            match locator.append_background(&session(place), row.clone(), &append) {
                Ok(BackgroundAppendOutcome::Appended { .. }) => {
                    shared.acknowledged(place, std::slice::from_ref(&row));
                }
                // A successor is about to be written: nothing was stored.
                Ok(BackgroundAppendOutcome::Duplicate { .. }) | Err(Error::Sealed { .. }) => {}
                Ok(outcome) => return Err(format!("unexpected outcome {outcome:?}").into()),
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Reads whatever there is to read.
pub fn read(shared: &Shared<'_>, number: usize, pause: Duration) -> Result<()> {
    let random = &mut StdRng::seed_from_u64(2_000 + number as u64);
    let locator = shared.store.locator();
    let mut calls = Pace::new(pause, random);
    while !shared.stop_others.load(Ordering::Relaxed) {
        calls.wait();
        let place = random.random_range(0..shared.ledgers.len());
        let start = Instant::now();
        let head = locator.head_generation(&session(place))?;
        let history = locator.open_session(&head, meta(place))?;
        match random.random_range(0..4) {
            0 => drop(history.messages()?),
            1 => drop(history.read_display_before(None, 50)?),
            2 => drop(locator.thread_spend(&thread(place))?),
            _ => drop(shared.store.records(&head)?.take(50).collect::<Vec<_>>()),
        }
        push(&shared.reads, start.elapsed());
    }
    Ok(())
}

/// Reads whole displays until one needs the disk and waits at the gate.
pub fn forget_to_end(shared: &Shared<'_>) -> Result<()> {
    read_through_gate();
    let locator = shared.store.locator();
    for place in (0..shared.ledgers.len()).cycle() {
        if shared.stop_forgotten.load(Ordering::Relaxed) {
            break;
        }
        drop(
            locator
                .open_session(&session(place), meta(place))?
                .read_display()?,
        );
    }
    Ok(())
}
