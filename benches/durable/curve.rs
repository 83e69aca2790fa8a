//! What a turn of `append_turn` costs over the length of the live context.

use std::time::{Duration, Instant};

use common::Result;
use common::command::Command;
use common::corpus::Text;
use common::measure::{of_rounds, quantile};
use common::ours::session;
use common::places::scratch;
use common::report::{Cell, Report, Table, time};
use common::work::{self, RECORDS, Turn, meta};
use rand::{SeedableRng as _, rngs::StdRng};
use transcript_redb::{AppendRows, Store, TranscriptLocator as _, TranscriptTurn};

/// One session for each number of live rows. All take turns within a round, so that the disk is the same for all.
pub fn run(command: &Command, text: &Text, report: &mut Report) -> Result<()> {
    let lengths: &[usize] = command.pick(&[10, 100, 1_000, 10_000], &[10, 100, 1_000]);
    let turns = command.pick(400, 5);
    let rounds = command.rounds(5);
    let mut times: Vec<Vec<Vec<Duration>>> = lengths.iter().map(|_| Vec::new()).collect();
    let mut rows_alone = Vec::new();
    for _ in 0..rounds {
        let place = scratch(&command.folder)?;
        let store = super::alone(place.path())?;
        for (number, (&length, times)) in lengths.iter().zip(&mut times).enumerate() {
            times.push(append_turns(&store, text, number, length, turns)?);
        }
        rows_alone.push(append_rows(&store, text, lengths.len(), turns)?);
    }

    let mut table = Table::new(
        "curve: one turn of one session over its live rows",
        &[
            "live rows",
            "p50",
            "p99",
            "turns/s at p50",
            "to append_rows",
        ],
    );
    table.note(format!(
        "{turns} turns a round, medians of {rounds} rounds; compactions between them are not timed"
    ));
    let base = of_rounds(&rows_alone, 0.5);
    let mut add = |name: String, rounds: &Vec<Vec<Duration>>| {
        let middle = of_rounds(rounds, 0.5);
        table.row(vec![
            Cell::Text(name),
            Cell::seconds(middle),
            Cell::seconds(of_rounds(rounds, 0.99)),
            Cell::Number(1.0 / middle, 0),
            Cell::ratio(base, middle),
        ]);
    };
    for (length, times) in lengths.iter().zip(&times) {
        add(length.to_string(), times);
    }
    add("append_rows".to_owned(), &rows_alone);
    let syncs = common::measure::disk_syncs(&command.folder)?;
    table.note(format!("the disk alone: {}", time(quantile(&syncs, 0.5))));
    report.table(&table);
    Ok(())
}

/// Times turns of a session that is kept near a length.
fn append_turns(
    store: &Store,
    text: &Text,
    number: usize,
    length: usize,
    turns: usize,
) -> Result<Vec<Duration>> {
    let random = &mut StdRng::seed_from_u64(number as u64);
    let mut meta = meta(number);
    let history = store
        .locator()
        .open_session(&session(number), meta.clone())?;
    // Turns may add a tenth of the length, or one turn where that is less; then it is cut back.
    let room = (length / 10).max(RECORDS);
    let first = work::rows(length.saturating_sub(room / 2), text, random);
    history.append_turn(TranscriptTurn::new(&[], &first, &meta))?;
    let mut live = history.messages()?;
    let mut times = Vec::with_capacity(turns);
    for number in 0..turns {
        let turn = Turn::new(number, text, random);
        let before = live.len();
        live.extend(turn.rows);
        meta.turn_count += 1;
        let next = TranscriptTurn::new(&live[..before], &live, &meta)
            .with_turn_usage(&turn.usage)
            .with_request_id(&turn.request_id);
        let start = Instant::now();
        history.append_turn(next)?;
        times.push(start.elapsed());
        if live.len() >= first.len() + room {
            live = history.messages()?;
            live.drain(..live.len() - first.len());
            history.replace(&live)?;
            live = history.messages()?;
        }
    }
    times.sort_unstable();
    Ok(times)
}

/// Times the same turns through the fast path.
fn append_rows(store: &Store, text: &Text, number: usize, turns: usize) -> Result<Vec<Duration>> {
    let random = &mut StdRng::seed_from_u64(number as u64);
    let session = session(number);
    let mut meta = meta(number);
    let history = store.locator().open_session(&session, meta.clone())?;
    let first = work::rows(RECORDS, text, random);
    history.append_turn(TranscriptTurn::new(&[], &first, &meta))?;
    let mut token = store.head(&session)?.ok_or("the session was written")?;
    let mut times = Vec::with_capacity(turns);
    for number in 0..turns {
        let turn = Turn::new(number, text, random);
        meta.turn_count += 1;
        let rows = AppendRows {
            rows: &turn.rows,
            meta: Some(&meta),
            usage: Some(&turn.usage),
            request_id: Some(&turn.request_id),
            ..AppendRows::default()
        };
        let start = Instant::now();
        token = store.append_rows(&session, &token, rows)?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}
