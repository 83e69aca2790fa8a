//! A tour of the library: turns, a compaction, a new generation, a sub-agent, a background report, history, spend.
//!
//! `cargo run --example tour`

use std::error::Error;
use std::io::{self, Write};

use transcript_redb::serde_json::json;
use transcript_redb::{
    AppendRows, BackgroundAppend, BackgroundAppendOutcome, MessageUsage, RecordKind, SessionRef,
    SpendGroup, SpendQuery, Store, TranscriptLocator as _, TranscriptMessage, TranscriptMeta,
    TranscriptTurn, TruncateCut, TurnUsage, UsageCostSource,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout();
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path().join("transcripts.redb"))?;
    let session = SessionRef::root("build-42");
    converse(&store, &session, &mut out)?;
    go_on(&store, &session, &mut out)?;
    look_back(&store, &session, &mut out)
}

/// Turns, and a compaction.
fn converse(
    store: &Store,
    session: &SessionRef,
    out: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    let locator = store.locator();
    // A session begins with its first turn. A handle is cheap; a host may keep it or open one for each turn.
    let meta = TranscriptMeta::new("coder").with_thread_id("thread-7");
    let history = locator.open_session(session, meta.clone())?;
    let mut rows = vec![
        TranscriptMessage::system("You mend builds."),
        TranscriptMessage::user("Why does the build fail?"),
        TranscriptMessage::assistant("A test needs the network."),
    ];
    let spent = usage(1200, 80, 0.0042);
    let turn = TranscriptTurn::new(&[], &rows, &meta).with_turn_usage(&spent);
    history.append_turn(turn.with_request_id("turn-1"))?;

    // The fast path behind it: a token names the head, and only new rows are handed over. Another writer in between
    // makes the token stale, and the call an error.
    let token = store.head(session)?.ok_or("the session is written")?;
    let new = [
        TranscriptMessage::user("Mend it."),
        TranscriptMessage::assistant("It is mocked now."),
    ];
    let spent = usage(1500, 60, 0.0051);
    let appended = AppendRows {
        rows: &new,
        usage: Some(&spent),
        request_id: Some("turn-2"),
        ..AppendRows::default()
    };
    store.append_rows(session, &token, appended)?;

    // A compaction is a turn whose context does not go on from the one before. Rows that are handed back as they were
    // read are kept as the records they are; nothing that is left out is lost.
    rows = history.messages()?;
    let mut compacted = vec![TranscriptMessage::system(
        "You mend builds. So far: a test was mocked.",
    )];
    compacted.extend(rows.iter().skip(3).cloned());
    let why = json!({"trigger": "auto", "tokens_before": 1500});
    let turn = TranscriptTurn::new(&rows, &compacted, &meta).with_compaction(&why);
    history.append_turn(turn)?;
    writeln!(
        out,
        "live rows after the compaction: {}",
        history.messages()?.len()
    )?;
    Ok(())
}

/// A new generation, a sub-agent, and a background report.
fn go_on(store: &Store, session: &SessionRef, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let locator = store.locator();
    let meta = TranscriptMeta::new("coder").with_thread_id("thread-7");
    // Taking back the last answer makes a new generation. The one before is sealed and stays.
    let (second, history, kept) = locator.truncate_into_next_generation(
        session,
        TruncateCut::LastAssistantTurn,
        meta.clone(),
    )?;
    writeln!(
        out,
        "generation {} begins with {} rows",
        second.generation,
        kept.len()
    )?;
    let mut next = kept.clone();
    next.push(TranscriptMessage::assistant(
        "It runs against a recorded answer now.",
    ));
    let spent = usage(900, 40, 0.0031);
    history.append_turn(TranscriptTurn::new(&kept, &next, &meta).with_turn_usage(&spent))?;

    // A sub-agent is a session below the generation that called it. What it costs counts for the thread.
    let child = SessionRef::child_of(&second, "reviewer-1");
    let child_meta = TranscriptMeta::new("reviewer");
    let reviewer = locator.open_session(&child, child_meta.clone())?;
    let review = [
        TranscriptMessage::user("Review the change."),
        TranscriptMessage::assistant("Looks right."),
    ];
    let spent = usage(700, 20, 0.0019);
    let turn = TranscriptTurn::new(&[], &review, &child_meta).with_turn_usage(&spent);
    reviewer.append_turn(turn)?;

    // A report from outside of a turn, delivered twice, stored once.
    let report = TranscriptMessage::assistant("The nightly build is green.");
    let append = BackgroundAppend::new("nightly-17", json!({"kind": "cron"}));
    for _ in 0..2 {
        let outcome = locator.append_background(session, report.clone(), &append)?;
        let again = matches!(outcome, BackgroundAppendOutcome::Duplicate { .. });
        writeln!(
            out,
            "background report: {}",
            if again { "known" } else { "appended" }
        )?;
    }
    Ok(())
}

/// History, and what it cost.
fn look_back(
    store: &Store,
    session: &SessionRef,
    out: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    // History over all generations, newest first, each record once. A page is read at a time: take what is to be shown.
    let mut shown = 0;
    for record in store.session_records(session)?.rev() {
        let record = record?;
        if let (RecordKind::Message, Some(row)) = (record.kind, record.message) {
            let message = row.message;
            writeln!(
                out,
                "  g{} {}: {}",
                record.generation, message.role, message.content
            )?;
            shown += 1;
        }
        if shown == 4 {
            break;
        }
    }

    // What it cost: of the thread, sub-agents included, and by whatever else is asked for.
    let thread = store.locator().thread_spend("thread-7")?;
    let reviewers = thread.subagents.get("reviewer");
    let below = reviewers.map_or(0.0, |(spend, _runs)| spend.cost_usd);
    writeln!(
        out,
        "thread: ${:.4}, and ${below:.4} below it",
        thread.root.cost_usd
    )?;
    let by = SpendQuery {
        group_by: vec![SpendGroup::Agent, SpendGroup::Model],
        ..SpendQuery::default()
    };
    for row in store.spend(by)? {
        let agent = row.agent.unwrap_or_default();
        writeln!(
            out,
            "  {agent}: {} in, {} out, ${:.4}",
            row.input_tokens, row.output_tokens, row.cost_usd
        )?;
    }
    Ok(())
}

/// What a host knows of the call behind a turn. A cost that it does not know has the source `Unknown`.
fn usage(input: u64, output: u64, cost_usd: f64) -> TurnUsage {
    TurnUsage {
        provider: "acme".to_owned(),
        model: "fern-2".to_owned(),
        usage: MessageUsage {
            input,
            output,
            cost_usd,
            cost_source: Some(UsageCostSource::Charged),
            ..MessageUsage::default()
        },
        ts: "2026-08-04T10:00:00Z".to_owned(),
        ..TurnUsage::default()
    }
}
