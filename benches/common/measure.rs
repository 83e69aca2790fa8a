//! Running writers and reading the clock.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::{SeedableRng as _, rngs::StdRng};

use crate::Result;
use crate::corpus::Text;
use crate::peer::Peer;
use crate::places::{scratch, written};
use crate::work::Turn;

/// What one round of writing gave.
pub struct Round {
    /// Until the checkpoint at the end was done.
    pub turns_per_second: f64,
    /// How long that checkpoint took.
    pub checkpoint: Duration,
    pub turns: usize,
    pub latencies: Vec<Duration>,
    /// Bytes that the process handed to the system to write, a turn; where the system says so.
    pub written: Option<f64>,
}

/// One writer a session, all at once for a time; then a checkpoint, whose time counts.
pub fn round(peer: &dyn Peer, text: &Text, sessions: usize, time: Duration) -> Result<Round> {
    let ready = Barrier::new(sessions + 1);
    let before = written();
    let (start, latencies) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..sessions)
            .map(|session| {
                let ready = &ready;
                scope.spawn(move || {
                    let writer = peer.writer(session);
                    ready.wait();
                    let mut writer = writer?;
                    let mut latencies = Vec::new();
                    let end = Instant::now() + time;
                    let random = &mut StdRng::seed_from_u64(session as u64);
                    for number in 0.. {
                        let turn = Turn::new(number, text, random);
                        let start = Instant::now();
                        if start >= end {
                            break;
                        }
                        writer.turn(&turn)?;
                        latencies.push(start.elapsed());
                    }
                    Ok(latencies)
                })
            })
            .collect();
        ready.wait();
        let start = Instant::now();
        let mut latencies = Vec::new();
        for worker in workers {
            let of_worker: Result<Vec<Duration>> =
                worker.join().map_err(|_| "a writer panicked")?;
            latencies.extend(of_worker?);
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((start, latencies))
    })?;
    let mut latencies = latencies;
    let stopped = Instant::now();
    peer.checkpoint()?;
    let end = Instant::now();
    latencies.sort_unstable();
    let turns = latencies.len();
    Ok(Round {
        turns_per_second: turns as f64 / (end - start).as_secs_f64(),
        checkpoint: end - stopped,
        turns,
        latencies,
        written: written()
            .zip(before)
            .map(|(after, before)| (after - before) as f64 / turns as f64),
    })
}

/// Runs `act` while writers go on in sessions `0..writers`; answers also how many turns they wrote a second.
pub fn beside_writers<T>(
    peer: &dyn Peer,
    text: &Text,
    writers: usize,
    act: impl FnOnce() -> Result<T>,
) -> Result<(T, f64)> {
    let stop = AtomicBool::new(false);
    let turns = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..writers)
            .map(|session| {
                let (stop, turns) = (&stop, &turns);
                scope.spawn(move || -> Result<()> {
                    let mut writer = peer.writer(session)?;
                    let random = &mut StdRng::seed_from_u64(session as u64);
                    for number in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        writer.turn(&Turn::new(number, text, random))?;
                        turns.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        let start = Instant::now();
        let before = turns.load(Ordering::Relaxed);
        let given = act();
        let written = turns.load(Ordering::Relaxed) - before;
        let speed = written as f64 / start.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().map_err(|_| "a writer panicked")??;
        }
        Ok((given?, speed))
    })
}

/// How long something takes.
pub fn timed<T>(act: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = Instant::now();
    let given = act()?;
    Ok((given, start.elapsed()))
}

/// The value below which a share of the sorted values lies.
pub fn quantile(sorted: &[Duration], share: f64) -> Duration {
    let last = sorted.len().saturating_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a count"
    )]
    let place = (last as f64 * share).round() as usize;
    sorted.get(place).copied().unwrap_or_default()
}

/// The median over rounds of a quantile within each, in seconds.
pub fn of_rounds<'a>(rounds: impl IntoIterator<Item = &'a Vec<Duration>>, share: f64) -> f64 {
    let each = rounds.into_iter();
    median(each.map(|sorted| quantile(sorted, share).as_secs_f64()))
}

/// The middle of some numbers.
pub fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.into_iter().collect();
    numbers.sort_by(f64::total_cmp);
    match (
        numbers.get((numbers.len().max(1) - 1) / 2),
        numbers.get(numbers.len() / 2),
    ) {
        (Some(low), Some(high)) => f64::midpoint(*low, *high),
        _ => f64::NAN,
    }
}

/// The times of 4 KiB overwrites of a file, each with an fdatasync, sorted: the disk's own speed at this moment.
pub fn disk_syncs(folder: &Path) -> Result<Vec<Duration>> {
    const PAGE: [u8; 4096] = [0x5A; 4096];
    let place = scratch(folder)?;
    let file = File::create_new(place.path().join("probe"))?;
    file.write_all_at(&vec![0; 64 * PAGE.len()], 0)?;
    file.sync_all()?;
    let begun = Instant::now();
    let mut times = Vec::new();
    for number in 0..200 {
        let start = Instant::now();
        file.write_all_at(&PAGE, (number % 64) * PAGE.len() as u64)?;
        file.sync_data()?;
        times.push(start.elapsed());
        // A slow disk has been asked often enough sooner.
        if begun.elapsed() > Duration::from_millis(100) {
            break;
        }
    }
    times.sort_unstable();
    Ok(times)
}
