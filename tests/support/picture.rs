//! Everything that a store shows, as text: two stores with the same picture hold the same.
//!
//! What a retried call may get anew stands in no picture: UUIDs; and with a clock that stands still no time differs.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use transcript_redb::{
    DisplayMessage, DisplayRecord, Record, Result, SessionQuery, SpendGroup, SpendQuery, Store,
    ThreadTranscript, TranscriptLocator, TranscriptMeta,
};

/// What `store` shows of these threads and stems. Panics where two reads contradict each other.
pub fn picture(store: &Store, threads: &[&str], stems: &[&str]) -> Result<String> {
    let mut out = String::new();
    for thread in threads {
        show_thread(store, thread, &mut out)?;
    }
    for stem in stems {
        show_transcript(store, stem, &mut out)?;
    }
    let mut summaries = store.sessions_matching(&SessionQuery {
        children: true,
        ..SessionQuery::default()
    })?;
    summaries.sort_by(|a, b| a.stem.cmp(&b.stem));
    for summary in summaries {
        writeln!(out, "summary {summary:?}").unwrap();
    }
    let groups = [
        SpendGroup::Thread,
        SpendGroup::Session,
        SpendGroup::Agent,
        SpendGroup::Model,
        SpendGroup::Hour,
    ];
    for row in store.spend(&SpendQuery {
        group_by: groups.to_vec(),
        ..SpendQuery::default()
    })? {
        writeln!(out, "spent {row:?}").unwrap();
    }
    writeln!(out, "{} records", store.stats()?.records).unwrap();
    Ok(out)
}

fn show_thread(store: &Store, thread: &str, out: &mut String) -> Result<()> {
    let locator = store.locator();
    let listed = locator.thread_transcripts(thread, None)?;
    let all: Vec<_> = listed
        .roots
        .iter()
        .chain(&listed.pre_identity)
        .chain(&listed.subagents)
        .collect();
    let newest = locator.root_for_thread(thread)?;
    let newest = newest.as_ref().map(|root| root.stem());
    writeln!(out, "thread {thread}: newest root {newest:?}").unwrap();
    for transcript in &all {
        writeln!(out, "  lists {transcript:?}").unwrap();
    }
    let spend = locator.thread_spend(thread)?;
    let subagents: usize = spend.subagents.values().map(|(sum, _)| sum.turns).sum();
    assert_eq!(
        spend.root.turns + subagents,
        recount(store, &all)?,
        "the turns that the spend of {thread} counts are those that are stored"
    );
    writeln!(out, "  spend {spend:?}").unwrap();
    Ok(())
}

/// The usages that the transcripts of a thread hold, each once.
fn recount(store: &Store, transcripts: &[&ThreadTranscript]) -> Result<usize> {
    let mut counted = BTreeSet::new();
    for transcript in transcripts {
        for record in store.records_of_stem(&transcript.stem)? {
            let record = record?;
            let row = record.message.filter(|row| !row.interrupted);
            let usage = match row {
                Some(row) if row.revises.is_none() => row.turn_usage,
                Some(_) => None,
                None => record.usage,
            };
            if usage.is_some() {
                counted.insert(record.uuid);
            }
        }
    }
    Ok(counted.len())
}

fn show_transcript(store: &Store, stem: &str, out: &mut String) -> Result<()> {
    let handle = store.locator().open_stem(stem, TranscriptMeta::new(""))?;
    let (Some(session), Some(display)) = (handle.read_session()?, handle.read_display()?) else {
        assert_eq!(store.records_of_stem(stem)?.count(), 0, "{stem}");
        writeln!(out, "transcript {stem}: unwritten").unwrap();
        return Ok(());
    };
    assert_eq!(session.meta, display.meta, "{stem}");
    writeln!(out, "transcript {stem}: {session:?}").unwrap();
    for record in &display.records {
        match record {
            DisplayRecord::Message(row) => show_row("shows", row, out),
            DisplayRecord::Compaction(marker) => {
                writeln!(
                    out,
                    "  compacts {:?} {:?}",
                    marker.request_id, marker.metadata
                )
                .unwrap();
                for row in &marker.replacement {
                    show_row("  to", row, out);
                }
            }
        }
    }
    for usage in &display.unattached {
        writeln!(out, "  uses {:?} {:?}", usage.usage, usage.request_id).unwrap();
    }
    let records = store.records_of_stem(stem)?.collect::<Result<Vec<_>>>()?;
    let mut parent = None;
    for record in &records {
        assert_eq!(
            record.parent, parent,
            "{stem}: a record names the one before it"
        );
        parent = Some(record.uuid);
        show_record(record, out);
        assert_eq!(
            store.record(record.uuid)?.as_ref(),
            Some(record),
            "{stem}: by UUID"
        );
    }
    Ok(())
}

fn show_row(how: &str, row: &DisplayMessage, out: &mut String) {
    let mut row = row.clone();
    row.uuid = uuid::Uuid::nil();
    row.revises = row.revises.map(|_| uuid::Uuid::nil());
    writeln!(out, "  {how} {row:?}").unwrap();
}

fn show_record(record: &Record, out: &mut String) {
    writeln!(
        out,
        "  records {} {:?} {:?}, keeps {}",
        record.seq,
        record.kind,
        record.request_id,
        record.retained.len()
    )
    .unwrap();
}
