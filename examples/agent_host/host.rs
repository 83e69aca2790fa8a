//! One run from end to end: play, be killed, go on, prove.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
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
use crate::summary::{self, count};
use crate::{Result, player, reader};

/// Runs what the command line asks for; false when a proof failed, or when a child has said why it could not go on.
pub fn run(args: &Args) -> Result<bool> {
    if let (Some(db), None) = (&args.db, args.phase) {
        check_place(db)?;
    }
    let (conversations, files) = reader::read(&args.files)?;
    let sessions = plan::plan(&conversations, args.sessions.get(), args.seed);
    if let Some(phase) = args.phase {
        let db = args.db.as_deref().ok_or("--phase needs --db")?;
        player::run(db, &sessions, args.sessions.get(), phase)?;
        return Ok(true);
    }

    let messages: usize = conversations.iter().map(|each| each.messages.len()).sum();
    let turns: usize = sessions.iter().map(|session| session.turns.len()).sum();
    // Written with `?`: printing would panic when the output is closed.
    let mut out = io::stdout();
    writeln!(
        out,
        "read     {} in {} from {}",
        count(messages, "message"),
        count(conversations.len(), "conversation"),
        count(files, "file")
    )?;
    writeln!(
        out,
        "plan     {}, {} at a time, {}, seed {}",
        count(sessions.len(), "session"),
        args.sessions,
        count(turns, "turn"),
        args.seed
    )?;
    if let Some(db) = &args.db {
        writeln!(out, "store    {}\n", db.display())?;
        return play_and_prove(args, &sessions, db, &mut out);
    }
    let folder = tempfile::tempdir()?;
    writeln!(out, "store    in a temporary folder, removed at the end\n")?;
    let db = folder.path().join("agents.redb");
    play_and_prove(args, &sessions, &db, &mut out)
}

/// Whether a store can be made at `db`: its folder is there, and nothing that would be lost.
fn check_place(db: &Path) -> Result<()> {
    let folder = db.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder
        && !folder.is_dir()
    {
        let (db, folder) = (db.display(), folder.display());
        return Err(format!("--db {db}: there is no folder {folder}").into());
    }
    if fs::metadata(db).is_ok_and(|found| found.len() > 0 || !found.is_file()) {
        let db = db.display();
        let advice = "The run needs a store of its own: give another path";
        return Err(format!("--db {db}: exists and is not empty. {advice}").into());
    }
    Ok(())
}

fn play_and_prove(
    args: &Args,
    sessions: &[Session],
    db: &Path,
    out: &mut impl Write,
) -> Result<bool> {
    let turns: usize = sessions.iter().map(|session| session.turns.len()).sum();
    let limit = plan::kill_after(args.seed, turns);
    let (first, status) = child(args, Phase::Until(limit), db)?;
    if gave_up(status) {
        return Ok(false);
    }
    if status.success() || count_turns(&first) < limit {
        return Err(format!("the first run was to be killed, but ended with {status}").into());
    }
    writeln!(out, "before the kill    {}", rate_of(&first))?;
    let acked = acks(&first);
    let whole = after_the_kill(sessions, db, &acked, out)?;

    let (second, status) = child(args, Phase::ToTheEnd, db)?;
    if gave_up(status) {
        return Ok(false);
    }
    if !status.success() {
        return Err(format!("the second run ended with {status}").into());
    }
    writeln!(out, "after the restart  {}\n", rate_of(&second))?;

    let all: Vec<Ack> = acked.into_iter().chain(acks(&second)).collect();
    let (_, found) = look(sessions, db)?;
    writeln!(out, "{}", summary::heads(sessions, &found))?;
    writeln!(out, "{}", summary::spend_by_agent(sessions, &found))?;
    writeln!(out, "{}", summary::spend_by_model(&found))?;
    writeln!(out, "{}\n", summary::events(&found))?;
    let mut proofs = vec![whole];
    proofs.extend(proof::prove(sessions, &found, &all)?);
    writeln!(out, "proofs")?;
    for Proof { holds, statement } in &proofs {
        let mark = if *holds { "ok    " } else { "FAILED" };
        writeln!(out, "  {mark}  {statement}")?;
    }
    Ok(proofs.iter().all(|proof| proof.holds))
}

/// Says what the store holds right after the kill, before anything is written again.
fn after_the_kill(
    sessions: &[Session],
    db: &Path,
    acked: &[Ack],
    out: &mut impl Write,
) -> Result<Proof> {
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
    writeln!(
        out,
        "restart            opened in {:.1} ms: {kept_turns} of {} there, {landed} more in flight at the kill",
        opened.as_secs_f64() * 1e3,
        count(acked_turns, "acknowledged turn")
    )?;
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

/// Whether a child ended by itself with a failure, which it has explained. An abort is a signal, or a code of the
/// system's that is none of ours.
fn gave_up(status: ExitStatus) -> bool {
    matches!(status.code(), Some(1 | 2))
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
