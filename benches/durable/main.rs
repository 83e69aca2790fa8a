//! Durable turns a second and the time to resume, beside what hosts use instead, on the same disk in the same run.
//!
//! ```text
//! cargo bench --manifest-path benches/Cargo.toml --bench durable -- [--quick] [--dir PATH]
//! ```
//!
//! A turn is 6 records of 2 KB of text on average, with UUIDs, a head, a header and spend, and is durable when its call
//! returns. All stores of a round run one after the other, so that a disk that gets slower does so for all; a line gives
//! the median over the rounds. The last two columns are ratios: `append_turn` and `append_rows` to the line's own store,
//! and so in the last line the fraction of what the disk can do. `--quick` is for a look whether it works: its figures
//! mean little.

mod counted;
mod files;
mod measure;
mod ours;
mod peer;
mod resume;
mod sqlite;
mod work;

use std::path::{Path, PathBuf};
use std::time::Duration;

use measure::{Round, median, quantile};
use peer::{Kind, Result};
use work::{RECORDS, TURNS_OF_A_SESSION, Turn};

const HELP: &str = "\
durable - durable turns a second and the time to resume, beside SQLite, JSONL and the raw disk

  --quick      few turns, one round: whether it works, not how fast it is
  --dir PATH   write there (default: cargo's target folder)";

/// How much is written.
struct Plan {
    rounds: usize,
    /// Threads, and sessions of each. Every session gets [`TURNS_OF_A_SESSION`] turns.
    loads: [(usize, usize); 3],
    messages: usize,
    readings: usize,
}

const FULL: Plan = Plan {
    rounds: 5,
    loads: [(1, 150), (8, 30), (64, 8)],
    messages: 10_000,
    readings: 15,
};

const QUICK: Plan = Plan {
    rounds: 1,
    loads: [(1, 5), (8, 1), (64, 1)],
    messages: 1_000,
    readings: 3,
};

fn main() -> Result<()> {
    let mut plan = FULL;
    let mut folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            lexopt::Arg::Long("quick") => plan = QUICK,
            lexopt::Arg::Long("dir") => folder = arguments.value()?.into(),
            // Cargo says so of its own accord.
            lexopt::Arg::Long("bench") => {}
            lexopt::Arg::Long("help") => {
                println!("{HELP}");
                return Ok(());
            }
            other => return Err(other.unexpected().into()),
        }
    }
    run(&plan, &folder)
}

fn run(plan: &Plan, folder: &Path) -> Result<()> {
    let turns = work::turns(64);
    let texts = turns.iter().flat_map(|turn| &turn.rows);
    let bytes: usize = texts.map(|row| row.content.len()).sum();
    println!(
        "a turn: {RECORDS} records of {} bytes of text on average; in {}; medians of {} rounds",
        bytes / (turns.len() * RECORDS),
        folder.display(),
        plan.rounds,
    );
    for (threads, sessions_of_a_thread) in plan.loads {
        durable_turns(plan, folder, &turns, threads, sessions_of_a_thread)?;
    }
    resume(plan, folder, &turns)
}

/// A new folder that goes with its guard.
fn scratch(folder: &Path) -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new()
        .prefix("durable-")
        .tempdir_in(folder)?)
}

fn durable_turns(
    plan: &Plan,
    folder: &Path,
    turns: &[Turn],
    threads: usize,
    sessions_of_a_thread: usize,
) -> Result<()> {
    let mut kinds = vec![ours::APPEND_TURN, ours::APPEND_ROWS, sqlite::ONE_CONNECTION];
    if threads > 1 {
        kinds.push(sqlite::CONNECTION_PER_THREAD);
    }
    kinds.extend([files::JSONL, files::RAW]);

    let mut rounds: Vec<Vec<Round>> = kinds.iter().map(|_| Vec::new()).collect();
    let mut syncs = Vec::new();
    for _ in 0..plan.rounds {
        let probe = scratch(folder)?;
        syncs.extend(measure::disk_syncs(probe.path())?);
        for (kind, rounds) in kinds.iter().zip(&mut rounds) {
            let place = scratch(folder)?;
            let peer = (kind.make)(place.path(), turns, threads * sessions_of_a_thread)?;
            rounds.push(measure::round(
                &*peer,
                turns,
                threads,
                sessions_of_a_thread,
            )?);
        }
    }
    let place = scratch(folder)?;
    let counted = counted::per_turn(place.path(), turns, threads, sessions_of_a_thread)?;

    syncs.sort_unstable();
    let each = sessions_of_a_thread * TURNS_OF_A_SESSION;
    println!("\ndurable turns, {threads} session(s) at a time, {each} turns each");
    println!(
        "the disk alone: overwrite of 4 KiB + fdatasync {} (p99 {})",
        time(quantile(&syncs, 0.5)),
        time(quantile(&syncs, 0.99))
    );
    print_rounds(&kinds, &rounds);
    for (kind, (syncs, bytes)) in kinds.iter().zip(counted) {
        println!(
            "{}: {syncs:.2} syncs and {:.1} KiB written a turn",
            kind.name,
            bytes / 1024.0
        );
    }
    Ok(())
}

/// One line a store; behind it, how many times as many turns our two ways make.
fn print_rounds(kinds: &[Kind], rounds: &[Vec<Round>]) {
    let speed = |rounds: &[Round]| median(rounds.iter().map(|round| round.turns_per_second));
    let speeds: Vec<f64> = rounds.iter().map(|rounds| speed(rounds)).collect();
    println!(
        "{:34} {:>9} {:>19} {:>9} {:>9} {:>10} {:>12} {:>12}",
        "", "turns/s", "(lowest-highest)", "p50", "p99", "KiB/turn", "append_turn:", "append_rows:"
    );
    for ((kind, rounds), own) in kinds.iter().zip(rounds).zip(&speeds) {
        let all = || rounds.iter().map(|round| round.turns_per_second);
        let at = |share| {
            let micros = rounds
                .iter()
                .map(|round| quantile(&round.latencies, share).as_secs_f64());
            time(Duration::from_secs_f64(median(micros)))
        };
        let written = median(rounds.iter().filter_map(|round| round.written)) / 1024.0;
        let [turn, row] = [0, 1].map(|ours| speeds.get(ours).copied().unwrap_or(f64::NAN) / own);
        println!(
            "{:34} {own:>9.0} {:>19} {:>9} {:>9} {written:>10.1} {turn:>11.2}x {row:>11.2}x",
            kind.name,
            format!(
                "({:.0}-{:.0})",
                all().fold(f64::INFINITY, f64::min),
                all().fold(0.0, f64::max)
            ),
            at(0.5),
            at(0.99),
        );
    }
}

fn resume(plan: &Plan, folder: &Path, turns: &[Turn]) -> Result<()> {
    let place = scratch(folder)?;
    let readings = resume::read(place.path(), turns, plan.messages, plan.readings)?;
    println!(
        "\nresume of {} messages that lie among three other sessions, warm, median of {}",
        plan.messages, plan.readings
    );
    let ours = readings
        .first()
        .map_or(Duration::ZERO, |reading| quantile(&reading.times, 0.5));
    for reading in &readings {
        let middle = quantile(&reading.times, 0.5);
        println!(
            "{:34} {:>9} (p99 {}) {:>7.2}x the time of read_session",
            reading.name,
            time(middle),
            time(quantile(&reading.times, 0.99)),
            middle.as_secs_f64() / ours.as_secs_f64()
        );
    }
    Ok(())
}

fn time(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    if micros < 1_000.0 {
        format!("{micros:.0} us")
    } else {
        format!("{:.2} ms", micros / 1_000.0)
    }
}
