//! What a realistic mix of records takes on disk, and what reading it back costs, as written and after a compaction.
//!
//! Sizes are lognormal (median 900 bytes, at most 400 KB). The text is that of real transcripts where a folder of them
//! is given (`--corpus DIR`: JSON and JSONL files, all strings of which are used), else words.

mod corpus;

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use lexopt::ValueExt as _;
use transcript_redb::{
    AppendRows, Compression, SessionRef, Store, StoreBuilder, TranscriptLocator as _,
    TranscriptMessage, TranscriptMeta,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Sessions that are written in turn, so that the records of each lie scattered.
const SESSIONS: usize = 3;
/// Rows of one before the next gets some.
const BURST: usize = 60;
/// Rows that stay live where most do not.
const KEPT: usize = 20;
const ROUNDS: usize = 9;

fn main() -> Result<()> {
    let mut rows = 6000;
    let mut corpus = None;
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            lexopt::Arg::Long("rows") => rows = parser.value()?.parse()?,
            lexopt::Arg::Long("corpus") => corpus = Some(parser.value()?),
            lexopt::Arg::Long("quick") => rows = 300,
            lexopt::Arg::Long("bench") => {}
            other => return Err(other.unexpected().into()),
        }
    }
    let texts = corpus::texts(corpus.as_deref().map(Path::new), rows)?;
    let rows: Vec<TranscriptMessage> = (0..).zip(texts).map(|(n, text)| row(n, text)).collect();
    let lines = rows
        .iter()
        .map(serde_json::to_string)
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let jsonl: usize = lines.iter().map(|line| line.len() + 1).sum();
    println!("{} records, {:.1} MB of JSONL", rows.len(), mega(jsonl));
    let parse = median(|| {
        let parsed = lines.iter().map(|line| serde_json::from_str(line));
        let parsed: std::result::Result<Vec<TranscriptMessage>, _> = parsed.collect();
        Ok(parsed?.len())
    })?;
    println!(
        "typed parse of the JSONL of all sessions: {:.2} ms",
        parse.as_secs_f64() * 1e3
    );
    for (name, compression) in [("plain", Compression::None), ("lz4", Compression::Lz4)] {
        for live in [true, false] {
            if live || compression == Compression::None {
                measure(name, compression, live, &rows, jsonl, parse)?;
            }
        }
    }
    Ok(())
}

fn row(number: usize, text: String) -> TranscriptMessage {
    match number % 3 {
        0 => TranscriptMessage::user(text),
        1 => TranscriptMessage::assistant(text),
        _ => TranscriptMessage::tool_result(format!("call_{number}"), text),
    }
}

fn measure(
    name: &str,
    compression: Compression,
    live: bool,
    rows: &[TranscriptMessage],
    jsonl: usize,
    parse: Duration,
) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("mix.redb");
    let builder = || StoreBuilder::default().compression(compression);
    let store = builder().open(&path)?;
    let kind = if live { "all live" } else { "mostly history" };
    println!("\n{name}, {kind}");
    write(&store, rows, live)?;
    report("as written", &store, rows, live, jsonl, parse)?;
    let start = Instant::now();
    store.compact()?;
    let time = start.elapsed();
    println!(
        "  compaction: {:.2} s, {:.0} MB/s",
        time.as_secs_f64(),
        mega(jsonl) / time.as_secs_f64()
    );
    report("compacted", &store, rows, live, jsonl, parse)?;
    let start = Instant::now();
    store.compact()?;
    println!("  once more: {:.2} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn session(number: usize) -> SessionRef {
    SessionRef::root(format!("session {number}"))
}

fn write(store: &Store, rows: &[TranscriptMessage], live: bool) -> Result<()> {
    let history = |number| {
        let meta = TranscriptMeta::new("planner");
        store.locator().open_session(&session(number), meta)
    };
    for number in 0..SESSIONS {
        history(number)?.replace(&[])?;
    }
    for (burst, rows) in rows.chunks(BURST).enumerate() {
        let session = session(burst % SESSIONS);
        let token = store.head(&session)?.ok_or("the session was written")?;
        let rows = AppendRows {
            rows,
            ..AppendRows::default()
        };
        store.append_rows(&session, &token, rows)?;
    }
    for number in 0..SESSIONS {
        let history = history(number)?;
        let rows = history.messages()?;
        if !live {
            history.replace(&rows[rows.len().saturating_sub(KEPT)..])?;
        }
    }
    Ok(())
}

fn report(
    when: &str,
    store: &Store,
    rows: &[TranscriptMessage],
    live: bool,
    jsonl: usize,
    parse: Duration,
) -> Result<()> {
    let stats = store.stats()?;
    println!(
        "  {when}: {:.3} x JSONL allocated ({:.1} MB), {} contents of {:.1} MB in {:.1} MB",
        stats.allocated_bytes as f64 / jsonl as f64,
        stats.allocated_bytes as f64 / 1e6,
        stats.contents,
        stats.content_bytes as f64 / 1e6,
        stats.content_stored_bytes as f64 / 1e6,
    );
    if !live {
        return Ok(());
    }
    let resume = median(|| {
        let mut found = 0;
        for number in 0..SESSIONS {
            let meta = TranscriptMeta::new("planner");
            let history = store.locator().open_session(&session(number), meta)?;
            found += history.messages()?.len();
        }
        if found == rows.len() {
            Ok(found)
        } else {
            Err("not all rows were read".into())
        }
    })?;
    println!(
        "  {when}: resume of all {:.2} ms, {:.2} x as fast as the typed parse",
        resume.as_secs_f64() * 1e3,
        parse.as_secs_f64() / resume.as_secs_f64()
    );
    Ok(())
}

fn median(mut work: impl FnMut() -> Result<usize>) -> Result<Duration> {
    work()?;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        std::hint::black_box(work()?);
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times[ROUNDS / 2])
}

fn mega(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}
