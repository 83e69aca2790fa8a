//! Durable turns a second, beside what hosts use instead, on the same disk in the same run.
//!
//! ```text
//! cargo bench --manifest-path benches/Cargo.toml --bench durable -- [--quick] [--json] [--dir PATH]
//! ```
//!
//! A turn is 6 records of 2 KB of text on average, with UUIDs, a head, a header and spend, and is durable when its call
//! returns. One thread a session writes as fast as it can. All stores of a round run one after the other, so that a disk
//! that gets slower does so for all; a line gives the medians over the rounds. A round ends with a checkpoint, whose
//! time counts. See `docs/performance.md`.

mod curve;

use std::path::Path;
use std::time::Duration;

use common::command::Command;
use common::corpus::Text;
use common::counted::Counters;
use common::measure::{self, Round, median, of_rounds, quantile};
use common::ours::{LIVE, Ours, Way};
use common::peer::{Kind, Peer, load_all};
use common::places::scratch;
use common::report::{Cell, Report, Table, time};
use common::work::{self, RECORDS};
use common::{Result, files, fjall, ours, sqlite};
use rand::{SeedableRng as _, rngs::StdRng};
use transcript_redb::Store;

const ABOUT: &str = "\
durable - durable turns a second, beside SQLite, fjall, JSONL and the raw disk

sections: \"1 session\", \"8 sessions\", \"64 sessions\", \"512 sessions\", \"curve\"";

fn main() -> Result<()> {
    let Some(command) = Command::read(ABOUT)? else {
        return Ok(());
    };
    let text = Text::load();
    let mut report = Report::new("durable", command.json, &text.source, &command.folder);
    let sample = work::rows(100 * RECORDS, text, &mut StdRng::seed_from_u64(1));
    report.fact(
        "a turn",
        &format!(
            "{RECORDS} records of {} bytes of text on average",
            work::text_bytes(&sample) / sample.len()
        ),
    );
    let sessions: &[usize] = command.pick(&[1, 8, 64, 512], &[1, 8]);
    for &sessions in sessions {
        let plural = if sessions == 1 { "" } else { "s" };
        let name = format!("{sessions} session{plural}");
        if command.wants(&name) {
            turns(&command, text, &mut report, sessions, &name)?;
        }
    }
    if command.wants("curve") {
        curve::run(&command, text, &mut report)?;
    }
    report.finish()
}

/// Gives every session its first rows.
fn preload(peer: &dyn Peer, text: &Text, sessions: usize) -> Result<()> {
    let sessions: Vec<_> = (0..sessions).map(|session| (session, LIVE)).collect();
    load_all(peer, text, &sessions)
}

fn kinds(command: &Command, sessions: usize) -> Vec<Kind> {
    let mut kinds = vec![
        ours::APPEND_TURN,
        ours::APPEND_ROWS,
        ours::APPEND_ROWS_RELAXED,
        sqlite::ONE_CONNECTION,
    ];
    // With hundreds of connections most of the time goes into waiting for the lock in the file.
    if (2..=64).contains(&sessions) {
        kinds.push(sqlite::CONNECTION_PER_THREAD);
    }
    kinds.extend([fjall::FJALL, files::JSONL, files::RAW]);
    kinds.retain(|kind| command.wants_store(kind.name));
    kinds
}

fn turns(
    command: &Command,
    text: &Text,
    report: &mut Report,
    sessions: usize,
    name: &str,
) -> Result<()> {
    let duration = command.time(30.0, 0.1);
    let kinds = kinds(command, sessions);
    let mut rounds: Vec<Vec<Round>> = kinds.iter().map(|_| Vec::new()).collect();
    let mut syncs = Vec::new();
    for _ in 0..command.rounds(3) {
        for (kind, rounds) in kinds.iter().zip(&mut rounds) {
            syncs.extend(measure::disk_syncs(&command.folder)?);
            let place = scratch(&command.folder)?;
            let peer = (kind.open)(place.path())?;
            preload(&*peer, text, sessions)?;
            rounds.push(measure::round(&*peer, text, sessions, duration)?);
        }
    }
    syncs.sort_unstable();

    let mut table = Table::new(
        format!("durable turns, {name} at a time"),
        &[
            "",
            "turns/s",
            "lowest",
            "highest",
            "p50",
            "p99",
            "checkpoint",
            "written/turn",
            "syncs/turn",
            "append_turn to it",
            "append_rows to it",
            "of raw",
        ],
    );
    table.note(format!(
        "the disk alone: overwrite of 4 KiB + fdatasync {} (p99 {})",
        time(quantile(&syncs, 0.5)),
        time(quantile(&syncs, 0.99))
    ));
    table.note(format!(
        "{} s a round, medians of {} rounds; append_turn has {LIVE} live rows on average, and one turn in 17 compacts",
        duration.as_secs_f64(),
        command.rounds(3)
    ));
    let speeds = kinds.iter().zip(&rounds);
    let speeds = Speeds(
        speeds
            .map(|(kind, rounds)| (kind.name, speed(rounds)))
            .collect(),
    );
    for (kind, rounds) in kinds.iter().zip(&rounds) {
        let counted = match kind.name {
            name if name == ours::APPEND_TURN.name => {
                Some(counted(command, text, sessions, Way::Turns)?)
            }
            name if name == ours::APPEND_ROWS.name => {
                Some(counted(command, text, sessions, Way::Rows)?)
            }
            _ => None,
        };
        table.row(line(kind, rounds, &speeds, counted));
    }
    report.table(&table);
    Ok(())
}

fn speed(rounds: &[Round]) -> f64 {
    median(rounds.iter().map(|round| round.turns_per_second))
}

/// Turns a second of each store.
struct Speeds(Vec<(&'static str, f64)>);

impl Speeds {
    fn of(&self, kind: &Kind) -> f64 {
        let found = self.0.iter().find(|(name, _)| *name == kind.name);
        found.map_or(f64::NAN, |(_, speed)| *speed)
    }
}

fn line(kind: &Kind, rounds: &[Round], speeds: &Speeds, counted: Option<(f64, f64)>) -> Vec<Cell> {
    let own = speeds.of(kind);
    let all = || rounds.iter().map(|round| round.turns_per_second);
    let latencies = || rounds.iter().map(|round| &round.latencies);
    let checkpoint = rounds.iter().map(|round| round.checkpoint.as_secs_f64());
    let written = median(rounds.iter().filter_map(|round| round.written));
    let syncs = counted.map(|(syncs, _)| syncs).or(kind.syncs);
    let mut cells = vec![
        kind.name.into(),
        Cell::Number(own, 0),
        Cell::Number(all().fold(f64::INFINITY, f64::min), 0),
        Cell::Number(all().fold(0.0, f64::max), 0),
        Cell::seconds(of_rounds(latencies(), 0.5)),
        Cell::seconds(of_rounds(latencies(), 0.99)),
        Cell::seconds(median(checkpoint)),
        Cell::Bytes(counted.map_or(written, |(_, bytes)| bytes)),
        syncs.map_or(Cell::None, |syncs| Cell::Number(syncs, 2)),
    ];
    let ours = [ours::APPEND_TURN, ours::APPEND_ROWS];
    cells.extend(ours.map(|ours| Cell::ratio(speeds.of(&ours), own)));
    cells.push(Cell::ratio(own, speeds.of(&files::RAW)));
    cells
}

/// Syncs and bytes written a turn, of both files, counted in a round of its own; the checkpoint's among them.
fn counted(command: &Command, text: &Text, sessions: usize, way: Way) -> Result<(f64, f64)> {
    let place = scratch(&command.folder)?;
    let counters = Counters::default();
    let store = counters.open(Store::builder(), place.path())?;
    let peer = Ours { store, way };
    preload(&peer, text, sessions)?;
    let before = counters.all();
    let time = command.time(30.0, 0.1).min(Duration::from_secs(10));
    let round = measure::round(&peer, text, sessions, time)?;
    let work = counters.all().since(before);
    let turns = round.turns as f64;
    Ok((work.syncs as f64 / turns, work.bytes as f64 / turns))
}

/// Opens a store of ours alone in a new folder.
fn alone(folder: &Path) -> Result<Store> {
    Ok(Store::open(folder.join("transcripts.redb"))?)
}
