//! Running writers and reading the clock.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::peer::{Peer, Result};
use crate::work::{TURNS_OF_A_SESSION, Turn};

/// What one round of a store gave.
pub struct Round {
    pub turns_per_second: f64,
    pub latencies: Vec<Duration>,
    /// Bytes that the process handed to the system to write, a turn; where the system says so.
    pub written: Option<f64>,
}

/// Writes `sessions` sessions a thread, each thread its own, all at the same time.
pub fn round(
    peer: &dyn Peer,
    turns: &[Turn],
    threads: usize,
    sessions_of_a_thread: usize,
) -> Result<Round> {
    let ready = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let ready = &ready;
                scope.spawn(move || -> Result<(Instant, Vec<Duration>)> {
                    let first = thread * sessions_of_a_thread;
                    let writer = peer.writer(first..first + sessions_of_a_thread);
                    ready.wait();
                    let mut writer = writer?;
                    let mut latencies =
                        Vec::with_capacity(sessions_of_a_thread * TURNS_OF_A_SESSION);
                    let mut pool = turns.iter().cycle().skip(thread * 17);
                    for place in 0..sessions_of_a_thread {
                        for turn in pool.by_ref().take(TURNS_OF_A_SESSION) {
                            let start = Instant::now();
                            writer.turn(place, turn)?;
                            latencies.push(start.elapsed());
                        }
                    }
                    Ok((Instant::now(), latencies))
                })
            })
            .collect();
        ready.wait();
        let (start, written) = (Instant::now(), bytes_written());
        let mut latencies = Vec::new();
        let mut end = start;
        for worker in workers {
            let (finished, of_worker) = worker.join().map_err(|_| "a writer panicked")??;
            end = end.max(finished);
            latencies.extend(of_worker);
        }
        let count = latencies.len() as f64;
        latencies.sort_unstable();
        Ok(Round {
            turns_per_second: count / (end - start).as_secs_f64(),
            latencies,
            written: bytes_written()
                .zip(written)
                .map(|(after, before)| (after - before) as f64 / count),
        })
    })
}

/// Bytes that this process wrote so far, whoever reads them.
fn bytes_written() -> Option<u64> {
    let io = std::fs::read_to_string("/proc/self/io").ok()?;
    let line = io.lines().find_map(|line| line.strip_prefix("wchar: "))?;
    line.trim().parse().ok()
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
    let file = File::create_new(folder.join("probe"))?;
    file.write_all_at(&vec![0; 64 * PAGE.len()], 0)?;
    file.sync_all()?;
    let mut times = (0..200u64)
        .map(|number| {
            let start = Instant::now();
            file.write_all_at(&PAGE, (number % 64) * PAGE.len() as u64)?;
            file.sync_data()?;
            Ok(start.elapsed())
        })
        .collect::<Result<Vec<_>>>()?;
    std::fs::remove_file(folder.join("probe"))?;
    times.sort_unstable();
    Ok(times)
}
