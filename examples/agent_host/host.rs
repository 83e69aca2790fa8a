//! One run from end to end: play, be killed, go on, prove.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use transcript_redb::{Store, TranscriptLocator};

use crate::args::{Args, Phase};
use crate::evidence::Evidence;
use crate::ledger::{Ack, Entry, Kind};
use crate::plan::{self, Session};
use crate::proof::{self, Proof};
use crate::{Result, player, reader, summary};

/// Runs what the command line asks for; false when a proof failed.
pub fn run(args: &Args) -> Result<bool> {
    let (conversations, files) = reader::read(&args.files)?;
    let sessions = plan::plan(&conversations, args.sessions.get(), args.seed);
    if let Some(phase) = args.phase {
        let db = args.db.as_deref().ok_or("--phase needs --db")?;
        player::run(db, &sessions, args.sessions.get(), phase)?;
        return Ok(true);
    }

    let messages: usize = conversations.iter().map(|each| each.messages.len()).sum();
    let turns: usize = sessions.iter().map(|session| session.turns.len()).sum();
    println!(
        "read     {messages} messages in {} conversations from {files} files",
        conversations.len()
    );
    println!(
        "plan     {} sessions, {} at a time, {turns} turns, seed {}",
        sessions.len(),
        args.sessions,
        args.seed
    );
    let Some(db) = &args.db else {
        let folder = tempfile::tempdir()?;
        println!("store    in a temporary folder, removed at the end\n");
        return play_and_prove(args, &sessions, &folder.path().join("agents.redb"));
    };
    if fs::metadata(db).is_ok_and(|found| found.len() > 0 || !found.is_file()) {
        let db = db.display();
        let advice = "The run needs a store of its own: give another path";
        return Err(format!("{db} exists and is not empty. {advice}").into());
    }
    println!("store    {}\n", db.display());
    play_and_prove(args, &sessions, db)
}

fn play_and_prove(args: &Args, sessions: &[Session], db: &Path) -> Result<bool> {
    let turns: usize = sessions.iter().map(|session| session.turns.len()).sum();
    let limit = plan::kill_after(args.seed, turns);
    let (first, status) = child(args, Phase::Until(limit), db)?;
    // An abort is a signal or a code of the system's; 0 to 2 is an end of our own.
    if status.code().is_some_and(|code| (0..=2).contains(&code)) || count_turns(&first) < limit {
        return Err(format!("the first run was to be killed, but ended with {status}").into());
    }
    println!("before the kill    {}", rate_of(&first));
    let acked = acks(&first);
    let whole = after_the_kill(sessions, db, &acked)?;

    let (second, status) = child(args, Phase::ToTheEnd, db)?;
    if !status.success() {
        return Err(format!("the second run ended with {status}").into());
    }
    println!("after the restart  {}\n", rate_of(&second));

    let all: Vec<Ack> = acked.into_iter().chain(acks(&second)).collect();
    let (_, found) = look(sessions, db)?;
    println!("{}", summary::heads(sessions, &found));
    println!("{}", summary::spend_by_agent(sessions, &found));
    println!("{}", summary::spend_by_model(&found));
    println!("{}\n", summary::events(&found));
    let mut proofs = vec![whole];
    proofs.extend(proof::prove(sessions, &found, &all)?);
    println!("proofs");
    for Proof { holds, statement } in &proofs {
        let mark = if *holds { "ok    " } else { "FAILED" };
        println!("  {mark}  {statement}");
    }
    Ok(proofs.iter().all(|proof| proof.holds))
}

/// Says what the store holds right after the kill, before anything is written again.
fn after_the_kill(sessions: &[Session], db: &Path, acked: &[Ack]) -> Result<Proof> {
    let (opened, found) = look(sessions, db)?;
    let turns = acked.iter().filter(|ack| ack.kind == Kind::Turn);
    let (acked_turns, kept_turns) = (turns.clone().count(), proof::kept(&found, turns));
    let kept = proof::kept(&found, acked);
    let stored: usize = sessions
        .iter()
        .zip(&found)
        .map(|(session, found)| found.turns_of(session))
        .sum();
    let landed = stored.saturating_sub(kept_turns);
    println!(
        "restart            opened in {:.1} ms: {kept_turns} of {acked_turns} acknowledged turns are there, \
         and {landed} that were in flight",
        opened.as_secs_f64() * 1e3
    );
    // A turn lands whole or not at all: its number in the header and all of its rows, or nothing.
    let whole = sessions.iter().zip(&found).all(|(session, found)| {
        found.turns_of(session) == found.turn_count && proof::follows_script(session, found)
    });
    Ok(Proof {
        holds: whole && kept == acked.len(),
        statement: format!(
            "right after the kill every acknowledged write was there and every turn whole: {kept} of {}",
            acked.len()
        ),
    })
}

/// Opens the store, reads everything back, and closes it. The time is that of the opening.
fn look(sessions: &[Session], db: &Path) -> Result<(Duration, Vec<Evidence>)> {
    let began = Instant::now();
    let store = Store::open(db)?;
    let opened = began.elapsed();
    let locator: Arc<dyn TranscriptLocator> = Arc::new(store.locator());
    let found = sessions
        .iter()
        .map(|session| Evidence::gather(locator.as_ref(), session));
    Ok((opened, found.collect::<Result<_>>()?))
}

/// Starts this program again for one phase and reads what it says was acknowledged, until it ends.
fn child(args: &Args, phase: Phase, db: &Path) -> Result<(Vec<Entry>, ExitStatus)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(args.for_phase(phase, db.to_owned()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut entries = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        for line in BufReader::new(pipe).lines() {
            entries.extend(Entry::parse(&line?));
        }
    }
    Ok((entries, child.wait()?))
}

fn acks(entries: &[Entry]) -> Vec<Ack> {
    entries.iter().map(|entry| entry.ack.clone()).collect()
}

fn count_turns(entries: &[Entry]) -> usize {
    let turns = entries.iter().filter(|entry| entry.ack.kind == Kind::Turn);
    turns.count()
}

fn rate_of(entries: &[Entry]) -> String {
    let turns = count_turns(entries);
    summary::rate(turns, entries.len() - turns, time_of(entries))
}

/// From the start of the run to its last acknowledgement.
fn time_of(entries: &[Entry]) -> Duration {
    let last = entries.iter().map(|entry| entry.micros).max();
    Duration::from_micros(last.unwrap_or_default())
}
