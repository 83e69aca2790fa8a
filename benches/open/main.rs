//! How long it takes until the first session has been read, after a clean close and after a kill.
//!
//! ```text
//! cargo bench --manifest-path benches/Cargo.toml --bench open -- [--quick] [--json] [--dir PATH]
//! ```
//!
//! A store of each kind is built at each size. Then, in turn: it is opened and read after a clean close; a child process
//! writes to it from eight threads until it has acknowledged some hundred turns and is killed (`SIGKILL`), and it is
//! opened and read again. See `docs/performance.md`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use common::command::Command;
use common::corpus::Text;
use common::measure::{median, quantile, timed};
use common::peer::{Kind, load_all};
use common::places::{allocated, drop_cached, scratch};
use common::report::{Cell, Report, Table, bytes};
use common::work::Turn;
use common::{Result, fjall, ours, sqlite};
use rand::{SeedableRng as _, rngs::StdRng};

const ABOUT: &str = "\
open - the time until the first session has been read, after a clean close and after a kill

sections are sizes: \"100 MB\", \"1000 MB\", \"4000 MB\"";

/// Rows of each session.
const ROWS: usize = 100;
/// Bytes of text in each, on average.
const ROW_BYTES: usize = 2_000;
/// Sessions that the child writes.
const WRITERS: usize = 8;

const KINDS: [Kind; 3] = [
    Kind {
        name: "this crate",
        ..ours::APPEND_ROWS
    },
    Kind {
        name: "SQLite",
        ..sqlite::ONE_CONNECTION
    },
    fjall::FJALL,
];

fn main() -> Result<()> {
    let Some(command) = Command::read(ABOUT)? else {
        return Ok(());
    };
    let text = Text::load();
    if let Some(arguments) = &command.child {
        return child(text, arguments);
    }
    let mut report = Report::new("open", command.json, &text.source, &command.folder);
    let sizes = command.pick(&[100, 1_000, 4_000][..], &[4]);
    for &megabytes in sizes {
        if command.wants(&format!("{megabytes} MB")) {
            run(&command, text, &mut report, megabytes)?;
        }
    }
    report.finish()
}

/// What was measured, in the order of the table.
const CASES: [(&str, bool, bool); 4] = [
    ("clean close", false, false),
    ("clean close, cold", false, true),
    ("kill", true, false),
    ("kill, cold", true, true),
];

fn run(command: &Command, text: &Text, report: &mut Report, megabytes: usize) -> Result<()> {
    let count = (megabytes * 1_000_000 / (ROWS * ROW_BYTES)).max(2 * WRITERS);
    let sessions: Vec<_> = (0..count).map(|session| (session, ROWS)).collect();
    let mut places = Vec::new();
    for kind in KINDS {
        let place = scratch(&command.folder)?;
        let peer = (kind.build)(place.path())?;
        load_all(&*peer, text, &sessions)?;
        drop(peer);
        places.push((kind, place));
    }
    let rounds = command.rounds(5);
    let turns = command.pick(400, 20);
    let mut times = vec![CASES.map(|_| Vec::new()); KINDS.len()];
    for round in 0..rounds {
        for ((kind, place), times) in places.iter().zip(&mut times) {
            for ((_, kill, cold), times) in CASES.iter().zip(times.iter_mut()) {
                // A session that the child does not write.
                let session = WRITERS + round % (count - WRITERS);
                if *kill {
                    write_until_killed(kind, place.path(), turns)?;
                } else {
                    // The case before may have left the pages dropped.
                    open_and_read(kind, place.path(), session)?;
                }
                if *cold {
                    drop_cached(place.path())?;
                }
                times.push(open_and_read(kind, place.path(), session)?);
            }
        }
    }

    let mut table = Table::new(
        format!(
            "open: {megabytes} MB of text in {count} sessions, until a session of {ROWS} rows was read"
        ),
        &["", "after", "median", "slowest", "to this crate"],
    );
    table.note(format!(
        "{rounds} rounds; kill: SIGKILL after {turns} turns of {WRITERS} writers; cold: pages dropped by posix_fadvise"
    ));
    for (kind, place) in &places {
        let size = bytes(allocated(place.path())? as f64);
        table.note(format!("{}: {size} on the disk", kind.name));
    }
    for (case, (name, ..)) in CASES.iter().enumerate() {
        let middle = |kind: usize| median(times[kind][case].iter().map(Duration::as_secs_f64));
        for (place, (kind, _)) in places.iter().enumerate() {
            let mut sorted = times[place][case].clone();
            sorted.sort_unstable();
            table.row(vec![
                kind.name.into(),
                (*name).into(),
                Cell::seconds(middle(place)),
                Cell::Time(quantile(&sorted, 1.0)),
                Cell::ratio(middle(place), middle(0)),
            ]);
        }
    }
    report.table(&table);
    Ok(())
}

/// Opens the store and reads one session. Closing it again is not timed.
fn open_and_read(kind: &Kind, folder: &Path, session: usize) -> Result<Duration> {
    let ((peer, found), time) = timed(|| {
        let peer = (kind.open)(folder)?;
        let found = peer.reader()?.resume(session)?.len();
        Ok((peer, found))
    })?;
    drop(peer);
    if found == ROWS {
        return Ok(time);
    }
    Err(format!("{found} messages were read instead of {ROWS}").into())
}

/// Starts this program again to write turns to a store, and kills it once that many were acknowledged.
fn write_until_killed(kind: &Kind, folder: &Path, turns: usize) -> Result<()> {
    let mut process = Process::new(std::env::current_exe()?)
        .arg("--child")
        .arg(kind.name)
        .arg(folder)
        .stdout(Stdio::piped())
        .spawn()?;
    let output = process.stdout.take().ok_or("the child has an output")?;
    let acknowledged = BufReader::new(output)
        .lines()
        .map_while(std::result::Result::ok);
    let seen = acknowledged.take(turns).count();
    process.kill()?;
    process.wait()?;
    if seen == turns {
        return Ok(());
    }
    Err(format!("the child ended by itself after {seen} turns").into())
}

/// Writes until it is killed, and prints a line for each acknowledged turn.
fn child(text: &Text, arguments: &[String]) -> Result<()> {
    let [name, folder] = arguments else {
        return Err("a child is given a store's name and folder".into());
    };
    let kind = KINDS.iter().find(|kind| kind.name == name);
    let peer = (kind.ok_or("no such store")?.open)(Path::new(folder))?;
    let peer = &*peer;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|session| {
                scope.spawn(move || -> Result<()> {
                    let mut writer = peer.writer(session)?;
                    let random = &mut StdRng::seed_from_u64(u64::from(std::process::id()));
                    for number in 0.. {
                        writer.turn(&Turn::new(number, text, random))?;
                        writeln!(std::io::stdout().lock(), "{session}")?;
                    }
                    Ok(())
                })
            })
            .collect();
        for writer in writers {
            writer.join().map_err(|_| "a writer panicked")??;
        }
        Ok(())
    })
}
