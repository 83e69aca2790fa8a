//! Questions that are answered by few records: heads, records by UUID, spend, the newest page.

use std::hint::black_box;
use std::time::{Duration, Instant};

use common::Result;
use common::command::Command;
use common::corpus::Text;
use common::measure::{self, of_rounds, timed};
use common::peer::{Kind, Peer, Reader, load_all};
use common::places::scratch;
use common::report::{Cell, Report, Table};
use common::work::Turn;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use uuid::Uuid;

use crate::{KINDS, spread};

const PAGE: usize = 50;
const QUESTIONS: [&str; 4] = [
    "head generation",
    "record by UUID",
    "thread spend",
    "newest page of 50",
];

/// Sessions with spend and known identities, which are asked about.
const ASKED: usize = 500;

/// What is asked of a store.
struct Asked {
    sessions: Vec<usize>,
    uuids: Vec<Uuid>,
}

/// A store in its folder, with the times of each question.
struct Entry {
    kind: Kind,
    peer: Box<dyn Peer>,
    asked: Asked,
    times: [Vec<Vec<Duration>>; QUESTIONS.len()],
    // Goes last.
    _folder: tempfile::TempDir,
}

impl Entry {
    fn new(
        command: &Command,
        kind: Kind,
        text: &Text,
        sessions: &[(usize, usize)],
    ) -> Result<Self> {
        let folder = scratch(&command.folder)?;
        let peer = (kind.build)(folder.path())?;
        load_all(&*peer, text, sessions)?;
        drop(peer);
        let peer = (kind.open)(folder.path())?;
        let random = &mut StdRng::seed_from_u64(5);
        let asked = command.pick(ASKED, 10);
        let step = sessions.len().div_ceil(asked);
        let some: Vec<usize> = sessions
            .iter()
            .step_by(step)
            .map(|(session, _)| *session)
            .collect();
        for &session in &some {
            let mut writer = peer.writer(session)?;
            writer.turn(&Turn::new(session, text, random))?;
        }
        let mut reader = peer.reader()?;
        let mut uuids = Vec::new();
        for &session in &some {
            uuids.extend(reader.uuids(session, 20_000 / some.len())?);
        }
        drop(reader);
        peer.checkpoint()?;
        Ok(Self {
            kind,
            peer,
            asked: Asked {
                sessions: some,
                uuids,
            },
            times: Default::default(),
            _folder: folder,
        })
    }
}

/// Times one question often.
fn ask(
    reader: &mut dyn Reader,
    asked: &Asked,
    question: usize,
    times: usize,
    seed: u64,
) -> Result<Vec<Duration>> {
    let random = &mut StdRng::seed_from_u64(seed);
    let mut found = Vec::with_capacity(times);
    for _ in 0..times {
        let session = *asked.sessions.choose(random).ok_or("no session")?;
        let uuid = asked.uuids.choose(random).copied().unwrap_or_default();
        let start = Instant::now();
        match question {
            0 => drop(black_box(reader.head(session)?)),
            1 => drop(black_box(reader.record(uuid)?)),
            2 => drop(black_box(reader.spend(session)?)),
            // The first session is the long one where one is longer.
            _ => drop(black_box(reader.page(asked.sessions[0], PAGE)?)),
        }
        found.push(start.elapsed());
    }
    found.sort_unstable();
    Ok(found)
}

/// Questions to a store at rest, warm.
pub fn alone(
    command: &Command,
    text: &Text,
    report: &mut Report,
    title: &str,
    sessions: &[(usize, usize)],
) -> Result<()> {
    let mut entries = KINDS
        .iter()
        // Hundred thousand files would measure the file system.
        .filter(|kind| command.wants_store(kind.name))
        .filter(|kind| kind.lookups || sessions.len() <= 1_000)
        .map(|kind| Entry::new(command, *kind, text, sessions))
        .collect::<Result<Vec<_>>>()?;
    let rounds = command.rounds(5);
    for round in 0..rounds {
        for entry in &mut entries {
            let mut reader = entry.peer.reader()?;
            for question in 0..QUESTIONS.len() {
                if !entry.kind.lookups && question < 3 {
                    continue;
                }
                let times = command.pick([4_000, 4_000, 4_000, 400][question], 50);
                // Once to warm up.
                ask(
                    &mut *reader,
                    &entry.asked,
                    question,
                    times / 4,
                    round as u64,
                )?;
                let times = ask(&mut *reader, &entry.asked, question, times, round as u64)?;
                entry.times[question].push(times);
            }
        }
    }
    let mut table = Table::new(title, &["", "", "p50", "p99", "to this crate"]);
    table.note(format!(
        "warm, one thread, medians of {rounds} rounds; typed answers from every store"
    ));
    add(&mut table, &entries);
    report.table(&table);
    Ok(())
}

fn add(table: &mut Table, entries: &[Entry]) {
    for (question, name) in QUESTIONS.iter().enumerate() {
        let first = entries
            .first()
            .map_or(f64::NAN, |entry| of_rounds(&entry.times[question], 0.5));
        for entry in entries
            .iter()
            .filter(|entry| !entry.times[question].is_empty())
        {
            let mut row = vec![(*name).into(), entry.kind.name.into()];
            row.extend(spread(&entry.times[question], first));
            table.row(row);
        }
    }
}

/// Reads while 64 sessions are being written.
pub fn beside_writers(command: &Command, text: &Text, report: &mut Report) -> Result<()> {
    const QUIET: usize = 8;
    let (writers, length) = command.pick((64, 1_000), (8, 100));
    let duration = command.time(5.0, 0.1);
    let rounds = command.rounds(3);
    // Writers have the first sessions; others, which nobody writes, are resumed.
    let sessions: Vec<_> = (0..writers)
        .map(|session| (session, 100))
        .chain((writers..writers + QUIET).map(|session| (session, length)))
        .collect();
    let mut entries = KINDS
        .iter()
        .filter(|kind| kind.lookups && command.wants_store(kind.name))
        .map(|kind| Entry::new(command, *kind, text, &sessions))
        .collect::<Result<Vec<_>>>()?;
    let mut long_reads: Vec<Vec<Vec<Duration>>> = entries.iter().map(|_| Vec::new()).collect();
    let mut speeds: Vec<Vec<f64>> = entries.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for (place, entry) in entries.iter_mut().enumerate() {
            let (peer, asked) = (&*entry.peer, &entry.asked);
            let (times, speed) = measure::beside_writers(peer, text, writers, || {
                ask_in_turn(
                    peer,
                    asked,
                    writers..writers + QUIET,
                    duration,
                    round as u64,
                )
            })?;
            let (questions, long) = times;
            for (all, times) in entry.times.iter_mut().zip(questions) {
                all.push(times);
            }
            long_reads[place].push(long);
            speeds[place].push(speed);
        }
    }
    let mut table = Table::new(
        format!("beside writers: reads of one thread beside {writers} writers"),
        &["", "", "p50", "p99", "to this crate"],
    );
    table.note(format!(
        "{} s a round, medians of {rounds} rounds; questions are about the sessions being written",
        duration.as_secs_f64()
    ));
    for (entry, speeds) in entries.iter().zip(&speeds) {
        table.note(format!(
            "{}: {:.0} turns/s were written meanwhile",
            entry.kind.name,
            measure::median(speeds.iter().copied())
        ));
    }
    add(&mut table, &entries);
    let first = long_reads
        .first()
        .map_or(f64::NAN, |times| of_rounds(times, 0.5));
    for (entry, times) in entries.iter().zip(&long_reads) {
        let name = format!("resume of {length}");
        let mut row = vec![Cell::Text(name), entry.kind.name.into()];
        row.extend(spread(times, first));
        table.row(row);
    }
    report.table(&table);
    Ok(())
}

type Times = ([Vec<Duration>; QUESTIONS.len()], Vec<Duration>);

/// Asks one question after the other for a time.
fn ask_in_turn(
    peer: &dyn Peer,
    asked: &Asked,
    quiet: std::ops::Range<usize>,
    duration: Duration,
    seed: u64,
) -> Result<Times> {
    let mut reader = peer.reader()?;
    let random = &mut StdRng::seed_from_u64(seed);
    let mut times = Times::default();
    let end = Instant::now() + duration;
    while times.1.is_empty() || Instant::now() < end {
        for (question, times) in times.0.iter_mut().enumerate() {
            times.extend(ask(&mut *reader, asked, question, 5, random.random())?);
        }
        let session = random.random_range(quiet.clone());
        times.1.push(timed(|| reader.resume(session))?.1);
    }
    times.0.iter_mut().for_each(|times| times.sort_unstable());
    times.1.sort_unstable();
    Ok(times)
}
