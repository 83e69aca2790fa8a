//! Reading a session back as typed messages, warm and cold.

use std::time::Duration;

use common::command::Command;
use common::corpus::Text;
use common::measure::{median, of_rounds, timed};
use common::peer::{Kind, Peer};
use common::places::{drop_cached, fetched, scratch};
use common::report::{Cell, Report, Table};
use common::{Result, work};
use rand::{SeedableRng as _, rngs::StdRng};

use crate::{KINDS, spread};

/// Sessions that are written in turn, so that the records of the one that is read lie scattered.
const INTERLEAVED: usize = 4;
/// Rows of one session before the next gets some.
const BURST: usize = 60;

/// A store, closed, with what was measured on it.
struct Entry {
    kind: Kind,
    compacted: bool,
    folder: tempfile::TempDir,
    warm: Vec<Vec<Duration>>,
    cold: Vec<Vec<Duration>>,
    fetched: Vec<f64>,
}

pub fn run(command: &Command, text: &Text, report: &mut Report) -> Result<()> {
    let lengths: &[usize] = command.pick(&[100, 1_000, 10_000], &[100, 1_000]);
    let mut entries = Vec::new();
    for kind in KINDS {
        if !command.wants_store(kind.name) {
            continue;
        }
        // What `compact` changes about reads is of interest for this crate alone.
        let again = entries.is_empty();
        for compacted in [false, true].into_iter().take(1 + usize::from(again)) {
            let folder = scratch(&command.folder)?;
            let peer = (kind.build)(folder.path())?;
            write(&*peer, text, lengths)?;
            if compacted {
                peer.compact()?;
            }
            drop(peer);
            entries.push(Entry {
                kind,
                compacted,
                folder,
                warm: Vec::new(),
                cold: Vec::new(),
                fetched: Vec::new(),
            });
        }
    }
    for (place, &length) in lengths.iter().enumerate() {
        let session = place * INTERLEAVED;
        for entry in &mut entries {
            (entry.warm, entry.cold, entry.fetched) = (Vec::new(), Vec::new(), Vec::new());
        }
        for _ in 0..command.rounds(5) {
            for entry in &mut entries {
                read_cold(command, entry, session, length)?;
                let readings = command.pick((40_000 / length).clamp(9, 200), 3);
                let warm = read_warm(entry, session, length, readings)?;
                entry.warm.push(warm);
            }
        }
        report.table(&table(command, &entries, length));
    }
    Ok(())
}

/// Sessions of each length, in bursts one after the other.
fn write(peer: &dyn Peer, text: &Text, lengths: &[usize]) -> Result<()> {
    for (place, &length) in lengths.iter().enumerate() {
        let random = &mut StdRng::seed_from_u64(place as u64);
        for first in (0..length).step_by(BURST) {
            for number in 0..INTERLEAVED {
                let rows = work::rows(BURST.min(length - first), text, random);
                peer.load(place * INTERLEAVED + number, &rows)?;
            }
        }
    }
    peer.checkpoint()
}

fn read_warm(
    entry: &Entry,
    session: usize,
    length: usize,
    readings: usize,
) -> Result<Vec<Duration>> {
    let peer = (entry.kind.open)(entry.folder.path())?;
    let mut reader = peer.reader()?;
    check(reader.resume(session)?.len(), length)?;
    let mut times = (0..readings)
        .map(|_| Ok(timed(|| reader.resume(session))?.1))
        .collect::<Result<Vec<_>>>()?;
    times.sort_unstable();
    Ok(times)
}

/// Once a round: the store is closed, the system forgets its files, the store is opened, and then the clock runs.
fn read_cold(command: &Command, entry: &mut Entry, session: usize, length: usize) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..command.pick(3, 1) {
        drop_cached(entry.folder.path())?;
        let peer = (entry.kind.open)(entry.folder.path())?;
        let mut reader = peer.reader()?;
        let before = fetched();
        let (messages, time) = timed(|| reader.resume(session))?;
        let bytes = fetched().zip(before).map(|(after, before)| after - before);
        entry.fetched.extend(bytes.map(|bytes| bytes as f64));
        check(messages.len(), length)?;
        times.push(time);
    }
    times.sort_unstable();
    entry.cold.push(times);
    Ok(())
}

fn check(found: usize, length: usize) -> Result<()> {
    if found == length {
        return Ok(());
    }
    Err(format!("{found} messages were read instead of {length}").into())
}

fn table(command: &Command, entries: &[Entry], length: usize) -> Table {
    let mut table = Table::new(
        format!("resume of {length} live messages"),
        &[
            "",
            "warm p50",
            "warm p99",
            "to read_session",
            "cold p50",
            "cold p99",
            "to cold read_session",
            "fetched cold",
        ],
    );
    table.note(format!(
        "the session lies in bursts of {BURST} rows among three others; medians of {} rounds",
        command.rounds(5)
    ));
    table.note(
        "cold: closed, pages dropped by posix_fadvise, opened, then timed; fetched: bytes read from the disk meanwhile",
    );
    let warm = entries
        .first()
        .map_or(f64::NAN, |entry| of_rounds(&entry.warm, 0.5));
    let cold = entries
        .first()
        .map_or(f64::NAN, |entry| of_rounds(&entry.cold, 0.5));
    for entry in entries {
        let after = if entry.compacted {
            " after compact"
        } else {
            ""
        };
        let mut row = vec![Cell::Text(format!("{}{after}", entry.kind.name))];
        row.extend(spread(&entry.warm, warm));
        row.extend(spread(&entry.cold, cold));
        row.push(Cell::Bytes(median(entry.fetched.iter().copied())));
        table.row(row);
    }
    table
}
