//! What a turn of `append_turn` costs over the length of the live context.

use std::sync::Arc;
use std::time::Duration;

use common::Result;
use common::command::Command;
use common::corpus::Text;
use common::measure::{self, of_rounds, quantile, timed};
use common::ours::session;
use common::places::scratch;
use common::report::{Cell, Report, Table, time};
use common::work::{self, RECORDS, Turn, meta};
use rand::{SeedableRng as _, rngs::StdRng};
use transcript_redb::{
    AppendRows, HeadToken, SessionRef, Store, TranscriptHistory, TranscriptLocator as _,
    TranscriptMessage, TranscriptMeta, TranscriptTurn,
};

/// One session for each number of live rows. They take turns, one each, so that the disk is the same for all.
pub fn run(command: &Command, text: &Text, report: &mut Report) -> Result<()> {
    let lengths: &[usize] = command.pick(&[10, 100, 1_000, 10_000], &[10, 100, 1_000]);
    let turns = command.pick(300, 5);
    let rounds = command.rounds(5);
    let mut times: Vec<Vec<Vec<Duration>>> = lengths.iter().map(|_| Vec::new()).collect();
    let mut rows_alone = Vec::new();
    let mut syncs = Vec::new();
    for round in 0..rounds {
        let place = scratch(&command.folder)?;
        let store = super::alone(place.path())?;
        let random = &mut StdRng::seed_from_u64(round as u64);
        let mut sessions = lengths
            .iter()
            .enumerate()
            .map(|(number, &length)| Live::new(&store, text, number, length))
            .collect::<Result<Vec<_>>>()?;
        let mut fast = Fast::new(&store, text, lengths.len())?;
        let mut of_round = vec![Vec::new(); lengths.len() + 1];
        for number in 0..turns {
            for (session, times) in sessions.iter_mut().zip(&mut of_round) {
                times.push(session.turn(Turn::new(number, text, random))?);
            }
            of_round[lengths.len()].push(fast.turn(&Turn::new(number, text, random))?);
        }
        for times in &mut of_round {
            times.sort_unstable();
        }
        rows_alone.extend(of_round.pop());
        for (all, times) in times.iter_mut().zip(of_round) {
            all.push(times);
        }
        syncs.extend(measure::disk_syncs(&command.folder)?);
    }
    syncs.sort_unstable();

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
    table.note(format!(
        "the disk alone: overwrite of 4 KiB + fdatasync {}",
        time(quantile(&syncs, 0.5))
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
    report.table(&table);
    Ok(())
}

/// A session that is kept near a length.
struct Live {
    history: Arc<dyn TranscriptHistory>,
    meta: TranscriptMeta,
    rows: Vec<TranscriptMessage>,
    shortest: usize,
    longest: usize,
}

impl Live {
    fn new(store: &Store, text: &Text, number: usize, length: usize) -> Result<Self> {
        let random = &mut StdRng::seed_from_u64(number as u64);
        let meta = meta(number);
        let history = store
            .locator()
            .open_session(&session(number), meta.clone())?;
        // Turns may add a tenth of the length, or one turn where that is less; then it is cut back.
        let room = (length / 10).max(RECORDS);
        let shortest = length.saturating_sub(room / 2);
        let first = work::rows(shortest, text, random);
        history.append_turn(TranscriptTurn::new(&[], &first, &meta))?;
        let rows = history.messages()?;
        Ok(Self {
            history,
            meta,
            rows,
            shortest,
            longest: shortest + room,
        })
    }

    fn turn(&mut self, turn: Turn) -> Result<Duration> {
        let before = self.rows.len();
        self.rows.extend(turn.rows);
        self.meta.turn_count += 1;
        let next = TranscriptTurn::new(&self.rows[..before], &self.rows, &self.meta)
            .with_turn_usage(&turn.usage)
            .with_request_id(&turn.request_id);
        let ((), time) = timed(|| Ok(self.history.append_turn(next)?))?;
        if self.rows.len() >= self.longest {
            self.rows = self.history.messages()?;
            self.rows.drain(..self.rows.len() - self.shortest);
            self.history.replace(&self.rows)?;
        }
        Ok(time)
    }
}

/// The same turns through the fast path.
struct Fast {
    store: Store,
    session: SessionRef,
    token: HeadToken,
    meta: TranscriptMeta,
}

impl Fast {
    fn new(store: &Store, text: &Text, number: usize) -> Result<Self> {
        let live = Live::new(store, text, number, RECORDS)?;
        let session = session(number);
        Ok(Self {
            token: store.head(&session)?.ok_or("the session was written")?,
            store: store.clone(),
            session,
            meta: live.meta,
        })
    }

    fn turn(&mut self, turn: &Turn) -> Result<Duration> {
        self.meta.turn_count += 1;
        let rows = AppendRows {
            rows: &turn.rows,
            meta: Some(&self.meta),
            usage: Some(&turn.usage),
            request_id: Some(&turn.request_id),
            ..AppendRows::default()
        };
        let (token, time) =
            timed(|| Ok(self.store.append_rows(&self.session, &self.token, rows)?))?;
        self.token = token;
        Ok(time)
    }
}
