//! A store under everything at once, for as long as one likes: does it stay within bounds, and is everything there?
//!
//! ```text
//! cargo bench --manifest-path benches/Cargo.toml --bench soak -- [--seconds N] [--rate N] [--quick] [--json] [--dir PATH]
//! ```
//!
//! 64 writers (turns through both calls, compactions, successor generations), background appends, readers, compactions of
//! the store, and a reader that forgets to end. Files, memory, queue and latency are sampled; the last third of the run
//! is compared with the middle one. In the end the store is opened again, and all that was acknowledged is looked for.
//! The exit status says whether all of it held. See `docs/performance.md`.

mod ledger;
mod samples;
mod workers;

use std::sync::atomic::Ordering;
use std::thread::{ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

use common::Result;
use common::command::Command;
use common::corpus::Text;
use common::counted::Counters;
use common::ours::{compact, session};
use common::places::scratch;
use common::report::{Cell, Report, Table};
use common::work::meta;
use ledger::Ledger;
use samples::{Sample, Sampler};
use transcript_redb::{Store, StoreBuilder, TranscriptLocator as _, TranscriptTurn};
use workers::Shared;

const ABOUT: &str = "\
soak - a store under everything at once; exit status 0 if it stayed within bounds and kept all it acknowledged

  --seconds N is 60 unless given (5 with --quick)
  --rate N    turns a second of all writers together, and as many reads; without it nobody pauses, and an hour
              fills some 100 GB";

const WRITERS: usize = 64;
const READERS: usize = 4;

/// Small, so that reads go to the disk and memory that grows is seen.
const CACHE_BYTES: usize = 16 << 20;
/// In a short run there is less to read.
const QUICK_CACHE_BYTES: usize = 2 << 20;

fn main() -> Result<()> {
    let Some(command) = Command::read(ABOUT)? else {
        return Ok(());
    };
    let text = Text::load();
    let mut report = Report::new("soak", command.json, &text.source, &command.folder);
    let mut verdict = Verdict::default();
    soak(&command, text, &mut report, &mut verdict)?;
    let failed = verdict.failed;
    report.table(&verdict.table());
    report.finish()?;
    if failed == 0 {
        return Ok(());
    }
    Err(format!("{failed} of the checks failed").into())
}

/// What was checked.
#[derive(Default)]
pub struct Verdict {
    rows: Vec<(String, String, bool)>,
    failed: usize,
}

impl Verdict {
    pub fn check(&mut self, what: &str, found: impl Into<String>, holds: bool) {
        self.failed += usize::from(!holds);
        self.rows.push((what.to_owned(), found.into(), holds));
    }

    fn table(self) -> Table {
        let mut table = Table::new("checks", &["", "found", "holds"]);
        for (what, found, holds) in self.rows {
            let holds = if holds { "yes" } else { "NO" };
            table.row(vec![Cell::Text(what), Cell::Text(found), holds.into()]);
        }
        table
    }
}

fn builder(command: &Command) -> StoreBuilder {
    Store::builder().cache_bytes(command.pick(CACHE_BYTES, QUICK_CACHE_BYTES))
}

fn soak(command: &Command, text: &Text, report: &mut Report, verdict: &mut Verdict) -> Result<()> {
    let duration = command.time(60.0, 5.0);
    let place = scratch(&command.folder)?;
    let counters = Counters::default();
    let store = counters.open(builder(command), place.path())?;
    for number in 0..WRITERS {
        let meta = meta(number);
        let history = store
            .locator()
            .open_session(&session(number), meta.clone())?;
        history.append_turn(TranscriptTurn::new(&[], &[], &meta))?;
    }
    let everything = Shared::new(store, text, WRITERS);
    let shared = &everything;
    let pause = |callers: usize| {
        let pause = command.rate.map(|rate| callers as f64 / rate);
        Duration::from_secs_f64(pause.unwrap_or(0.0))
    };
    let (samples, last) = std::thread::scope(|scope| -> Result<_> {
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| scope.spawn(move || workers::write(shared, number, pause(WRITERS))))
            .collect();
        let mut others = vec![scope.spawn(|| workers::append_in_background(shared, pause(1)))];
        for number in 0..READERS {
            others.push(scope.spawn(move || workers::read(shared, number, pause(READERS))));
        }
        let observed = observe(shared, &counters, place.path(), duration, verdict);
        shared.stop_others.store(true, Ordering::Relaxed);
        let others: Vec<_> = others.into_iter().map(ScopedJoinHandle::join).collect();
        shared.stop_writers.store(true, Ordering::Relaxed);
        let writers: Vec<_> = writers.into_iter().map(ScopedJoinHandle::join).collect();
        for other in others {
            other.map_err(|_| "a reader or a background task panicked")??;
        }
        let writers = writers
            .into_iter()
            .map(|writer| writer.map_err(|_| "a writer panicked")?)
            .collect::<Result<Vec<_>>>()?;
        Ok((observed?, writers))
    })?;
    samples::tables(report, &samples);
    samples::check(&samples, verdict);

    let Shared { store, ledgers, .. } = everything;
    drop(store);
    let store = counters.open(builder(command), place.path())?;
    ledger::check(&store, &ledgers, &last, verdict)
}

/// Samples until the time is over. In the first third a reader is forgotten; at each sixth the store is compacted.
fn observe(
    shared: &Shared<'_>,
    counters: &Counters,
    folder: &std::path::Path,
    duration: Duration,
    verdict: &mut Verdict,
) -> Result<Vec<Sample>> {
    let interval = (duration / 30).max(Duration::from_millis(100));
    let mut probe = Sampler::new(shared, folder);
    let start = Instant::now();
    let mut samples = Vec::new();
    let sample_until = |share: f64, probe: &mut Sampler<'_>, samples: &mut Vec<Sample>| {
        while start.elapsed() < duration.mul_f64(share) {
            sleep(interval);
            samples.push(probe.sample()?);
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    };

    sample_until(0.1, &mut probe, &mut samples)?;
    std::thread::scope(|scope| -> Result<()> {
        let gate = counters.gate.lock().map_err(|_| "nobody panics with it")?;
        let begun = Instant::now();
        let reader = scope.spawn(|| workers::forget_to_end(shared));
        let outcome = sample_until(0.25, &mut probe, &mut samples);
        let stats = shared.store.stats();
        let held = begun.elapsed();
        shared.stop_forgotten.store(true, Ordering::Relaxed);
        drop(gate);
        reader
            .join()
            .map_err(|_| "the forgotten reader panicked")??;
        outcome?;
        let stats = stats?;
        let oldest = stats.oldest_reader.unwrap_or_default();
        verdict.check(
            "the forgotten reader shows in stats",
            format!(
                "{} readers, the oldest for {:.1} s of {:.1} s",
                stats.readers,
                oldest.as_secs_f64(),
                held.as_secs_f64()
            ),
            stats.readers > 0 && oldest > held.mul_f64(0.7),
        );
        Ok(())
    })?;
    let stats = shared.store.stats()?;
    let oldest = stats.oldest_reader.unwrap_or_default();
    verdict.check(
        "it is gone from stats once it has ended",
        format!("the oldest for {:.2} s", oldest.as_secs_f64()),
        oldest < duration.mul_f64(0.1),
    );
    for sixth in 2..=6 {
        sample_until(f64::from(sixth) / 6.0, &mut probe, &mut samples)?;
        compact(&shared.store)?;
    }
    // Thirds are thirds of the samples, and so of the time.
    Ok(samples)
}

/// The sessions' ledgers, for the workers.
pub fn ledgers(count: usize) -> Vec<Ledger> {
    (0..count).map(|_| Ledger::default()).collect()
}
