//! Reading a long session back as typed messages, warm.

use std::path::Path;
use std::time::{Duration, Instant};

use transcript_redb::{AppendRows, Store, TranscriptLocator as _, TranscriptMessage};

use crate::ours::session;
use crate::peer::Result;
use crate::sqlite;
use crate::work::{Turn, meta};

/// Sessions that are written in turn, so that the records of the one that is read lie scattered.
const INTERLEAVED: usize = 4;
/// Rows of one session before the next gets some.
const BURST: usize = 60;

type Read<'a> = &'a dyn Fn() -> Result<Vec<TranscriptMessage>>;

/// A way to read the session, with its times, sorted.
pub struct Reading {
    pub name: &'static str,
    pub times: Vec<Duration>,
}

/// Reads a session of `messages` messages `rounds` times in every way, in turn.
pub fn read(folder: &Path, turns: &[Turn], messages: usize, rounds: usize) -> Result<Vec<Reading>> {
    let rows: Vec<TranscriptMessage> = turns
        .iter()
        .cycle()
        .flat_map(|turn| turn.rows.iter().cloned())
        .take(messages)
        .collect();
    let ours = write_ours(folder, &rows)?;
    let sqlite = write_sqlite(folder, &rows)?;
    let jsonl = folder.join("long.jsonl");
    let lines = sqlite::encode(&rows)?;
    std::fs::write(&jsonl, lines.join("\n"))?;

    let history = ours.locator().open_session(&session(0), meta(0))?;
    let from_ours = || Ok(history.messages()?);
    let from_jsonl = || -> Result<Vec<TranscriptMessage>> {
        let text = std::fs::read_to_string(&jsonl)?;
        let lines = text.lines();
        lines.map(|line| Ok(serde_json::from_str(line)?)).collect()
    };
    let from_sqlite = || -> Result<Vec<TranscriptMessage>> {
        let mut select =
            sqlite.prepare_cached("SELECT body FROM records WHERE session = 0 ORDER BY seq")?;
        let mut found = select.query([])?;
        let mut messages = Vec::new();
        while let Some(row) = found.next()? {
            messages.push(serde_json::from_str(row.get_ref(0)?.as_str()?)?);
        }
        Ok(messages)
    };
    let ways: [(&'static str, Read<'_>); 3] = [
        ("read_session", &from_ours),
        ("SQLite rows of JSON", &from_sqlite),
        ("JSONL, typed parse", &from_jsonl),
    ];
    let mut readings = ways.map(|(name, _)| Reading {
        name,
        times: Vec::new(),
    });
    // The first round warms the caches and checks that all read the same.
    for round in 0..=rounds {
        for ((_, way), reading) in ways.iter().zip(&mut readings) {
            let start = Instant::now();
            let found = way()?;
            let time = start.elapsed();
            if round == 0 {
                let same =
                    |(found, row): (&TranscriptMessage, &TranscriptMessage)| found.same_row_as(row);
                if found.len() != rows.len() || !found.iter().zip(&rows).all(same) {
                    return Err(format!("{} read other messages", reading.name).into());
                }
            } else {
                reading.times.push(time);
            }
        }
    }
    for reading in &mut readings {
        reading.times.sort_unstable();
    }
    Ok(readings.into())
}

fn write_ours(folder: &Path, rows: &[TranscriptMessage]) -> Result<Store> {
    let store = Store::open(folder.join("long.redb"))?;
    for number in 0..INTERLEAVED {
        let history = store
            .locator()
            .open_session(&session(number), meta(number))?;
        history.replace(&[])?;
    }
    for burst in rows.chunks(BURST) {
        for number in 0..INTERLEAVED {
            let session = session(number);
            let token = store.head(&session)?.ok_or("the session was written")?;
            let rows = AppendRows {
                rows: burst,
                ..AppendRows::default()
            };
            store.append_rows(&session, &token, rows)?;
        }
    }
    Ok(store)
}

fn write_sqlite(folder: &Path, rows: &[TranscriptMessage]) -> Result<rusqlite::Connection> {
    let mut connection = sqlite::open(&folder.join("long.sqlite"))?;
    let transaction = connection.transaction()?;
    for (number, burst) in rows.chunks(BURST).enumerate() {
        let burst = sqlite::encode(burst)?;
        for session in 0..INTERLEAVED {
            sqlite::write_rows(&transaction, session, number * BURST, None, &burst)?;
        }
    }
    transaction.commit()?;
    Ok(connection)
}
