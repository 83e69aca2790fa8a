//! `record`: one record by its UUID.

use serde_json::{Value, json};
use transcript_redb::{Record, RecordKind, SourceInfo};

use crate::args;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::text::{count, many, safe, safe_line, size};

/// `record`
pub fn run(
    database: &args::Database,
    args: &args::Record,
    output: &mut Output,
) -> Result<Outcome, Failure> {
    let store = database.read()?;
    let Some(record) = store.record(args.uuid)? else {
        return Err(Failure::Told(format!(
            "there is no record {}; `transcript-redb show SESSION --json` names those of a session",
            args.uuid
        )));
    };
    let source = match &record.origin {
        Some(origin) => store.source(origin.source)?,
        None => None,
    };
    let json = record_json(&record, source.as_ref())?;
    if args.output.json {
        output.json(&json)?;
        return Ok(Outcome::Done);
    }
    output.field("record", &record.uuid.to_string())?;
    output.field("kind", kind_name(record.kind))?;
    output.field("session", &record.stem)?;
    output.field("sequence", &record.seq.to_string())?;
    output.field("written", &output.time(&record.written_at, true))?;
    let parent = record.parent.map(|uuid| uuid.to_string());
    output.field("parent", &parent.unwrap_or_default())?;
    output.field("turn", record.request_id.as_deref().unwrap_or_default())?;
    if let (Some(origin), Some(source)) = (&record.origin, &source) {
        let (path, format) = (safe_line(&source.path), safe_line(&source.format));
        let piece = format!("{} at byte {}", size(origin.length), origin.offset);
        let codec = format!("{format} {}", origin.codec_version);
        output.field("from", &format!("{path}, {piece}, read as {codec}"))?;
    }
    if record.cache_write_tokens > 0 {
        output.field("to cache", &count(record.cache_write_tokens))?;
    }
    if !record.retained.is_empty() {
        output.field("keeps", &many(record.retained.len() as u64, "row"))?;
    }
    for key in ["message", "usage", "original_usage", "tools", "metadata"] {
        let Some(value) = json.get(key).filter(|value| !value.is_null()) else {
            continue;
        };
        let text = serde_json::to_string_pretty(value);
        let text = text.map_err(|error| Failure::Told(error.to_string()))?;
        output.line("")?;
        output.line(&format!("{key}:"))?;
        output.line(&safe(&text))?;
    }
    Ok(Outcome::Done)
}

fn kind_name(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Message => "message",
        RecordKind::Partial => "partial",
        RecordKind::Compaction => "compaction",
        RecordKind::Usage => "usage",
        RecordKind::Tools => "tools",
        RecordKind::Retained => "retained",
        RecordKind::Seal => "seal",
        _ => "other",
    }
}

fn record_json(record: &Record, source: Option<&SourceInfo>) -> Result<Value, Failure> {
    let failed = |error: serde_json::Error| Failure::Told(error.to_string());
    let origin = record.origin.map(|origin| {
        json!({
            "source": origin.source,
            "path": source.map(|source| &source.path),
            "format": source.map(|source| &source.format),
            "offset": origin.offset,
            "length": origin.length,
            "codec_version": origin.codec_version,
        })
    });
    Ok(json!({
        "uuid": record.uuid,
        "parent": record.parent,
        "stem": record.stem,
        "generation": record.generation,
        "seq": record.seq,
        "written_at": record.written_at,
        "kind": kind_name(record.kind),
        "request_id": record.request_id,
        "message": serde_json::to_value(&record.message).map_err(failed)?,
        "usage": serde_json::to_value(&record.usage).map_err(failed)?,
        "superseded": record.superseded,
        "cache_write_tokens": record.cache_write_tokens,
        "original_usage": record.original_usage,
        "tools": record.tools,
        "metadata": record.metadata,
        "retained": record.retained,
        "origin": origin,
    }))
}
