//! `stats` and `compact`.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use transcript_redb::{CompactOptions, CompactStep, Health};

use crate::args::{Database, Json};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::text::{count, many, size};

/// `stats`
pub fn stats(database: &Database, args: &Json, output: &mut Output) -> Result<Outcome, Failure> {
    let store = database.read()?;
    let stats = store.stats()?;
    let sources = store.sources()?;
    let source_bytes: u64 = sources.iter().map(|source| source.length).sum();
    let health = match stats.health {
        Health::Healthy => "healthy".to_owned(),
        Health::Recovering { error } => format!("recovering: {error}"),
        Health::Failed { error } => format!("failed: {error}"),
        _ => "unknown".to_owned(),
    };
    if args.json {
        output.json(&json!({
            "records": stats.records,
            "transcripts": stats.transcripts,
            "file_bytes": stats.file_bytes,
            "allocated_bytes": stats.allocated_bytes,
            "contents": stats.contents,
            "content_bytes": stats.content_bytes,
            "content_stored_bytes": stats.content_stored_bytes,
            "content_saved_bytes": stats.content_saved_bytes,
            "journaled_changes": stats.journaled_changes,
            "journaled_bytes": stats.journaled_bytes,
            "sources": sources.len(),
            "source_bytes": source_bytes,
            "health": health,
        }))?;
        return Ok(Outcome::Done);
    }
    output.field("records", &count(stats.records))?;
    let transcripts = count(stats.transcripts);
    output.field(
        "transcripts",
        &format!("{transcripts} (each generation is one)"),
    )?;
    let sources = count(sources.len() as u64);
    output.field(
        "sources",
        &format!("{sources} imported files, {}", size(source_bytes)),
    )?;
    output.field(
        "file",
        &format!(
            "{}, {} on disk",
            size(stats.file_bytes),
            size(stats.allocated_bytes)
        ),
    )?;
    output.field(
        "content",
        &format!(
            "{} large contents of {} in {}; {} saved by storing equal ones once",
            count(stats.contents),
            size(stats.content_bytes),
            size(stats.content_stored_bytes),
            size(stats.content_saved_bytes)
        ),
    )?;
    output.field("health", &health)?;
    Ok(Outcome::Done)
}

/// `compact`
pub fn compact(database: &Database, args: &Json, output: &mut Output) -> Result<Outcome, Failure> {
    let store = database.change()?;
    // Drawn on a terminal only.
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3}%") {
        bar.set_style(style);
    }
    let options = CompactOptions::default().progress(|at| {
        bar.set_message(match at.step {
            CompactStep::Records => "packing records",
            CompactStep::Content => "packing content",
            _ => "giving space back",
        });
        bar.set_length(at.total);
        bar.set_position(at.done);
    });
    let compacted = store.compact_with(options);
    bar.finish_and_clear();
    let report = compacted?;
    if args.json {
        output.json(&json!({
            "records": report.records,
            "contents": report.contents,
            "allocated_before": report.allocated_before,
            "allocated_after": report.allocated_after,
        }))?;
        return Ok(Outcome::Done);
    }
    output.line(&format!(
        "Packed {} and {}: {} before, {} now.",
        many(report.records, "record"),
        many(report.contents, "large content"),
        size(report.allocated_before),
        size(report.allocated_after)
    ))?;
    Ok(Outcome::Done)
}
