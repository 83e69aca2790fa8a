//! `show`: a session as a conversation.

use std::collections::{HashMap, HashSet};
use std::io;

use serde_json::Value;
use textwrap::Options;
use transcript_redb::uuid::Uuid;
use transcript_redb::{
    Attributes, DisplayMessage, DisplayRecord, RecordKind, SessionSummary, Store,
    TranscriptLocator as _, TranscriptMessage, TranscriptMeta, TranscriptPart, TurnUsage,
};

use crate::args::{Database, Show, View};
use crate::failure::{Failure, Outcome};
use crate::lists;
use crate::output::{ASSISTANT, BAD, DIM, Output, TOOL, USER};
use crate::select;
use crate::text::{count, cut, decimals, many, safe, safe_line, source_name, spend_cost};

/// Lines of a tool's result that are shown without `--full`.
const RESULT_LINES: usize = 8;
/// Columns of a call's arguments that are.
const CALL_COLUMNS: usize = 300;
/// Columns of what a file tells of its session that are.
const ATTRIBUTE_COLUMNS: usize = 120;

/// `show`
pub fn run(database: &Database, args: &Show, output: &mut Output) -> Result<Outcome, Failure> {
    let store = database.read()?;
    let (summary, stem) = select::one(&store, &args.session)?;
    let rows = match args.view {
        View::Model => model_rows(&store, &stem)?,
        View::Display => display_rows(&store, &summary, &stem)?,
    };
    let hidden = args
        .limit
        .map_or(0, |limit| rows.len().saturating_sub(limit));
    let shown = rows.get(hidden..).unwrap_or_default();
    if args.output.json {
        for row in shown.iter().filter(|row| !row.json.is_null()) {
            output.json(&row.json)?;
        }
        return Ok(Outcome::Done);
    }
    let below = lists::below(&store, [&summary])?;
    header(&summary, &stem, below, output)?;
    attributes(&store, &summary, output)?;
    if hidden > 0 {
        let hidden = many(hidden as u64, "record");
        let more = format!("… {hidden} before these (a larger --limit, or none, shows them)");
        output.styled(DIM, &more)?;
        output.line("")?;
    }
    let written = match args.view {
        View::Display => write_times(&store, &summary, shown)?,
        View::Model => HashMap::new(),
    };
    for row in shown {
        row.print(args, &written, output)?;
    }
    Ok(Outcome::Done)
}

/// When rows were written that do not say when they were said.
fn write_times(
    store: &Store,
    summary: &SessionSummary,
    rows: &[Row],
) -> Result<HashMap<Uuid, String>, Failure> {
    let untimed = |row: &Row| match &row.shown {
        Shown::Message(row) => row.ts.is_none(),
        _ => false,
    };
    let mut written = HashMap::new();
    if let Some(session) = summary
        .session
        .as_ref()
        .filter(|_| rows.iter().any(untimed))
    {
        for record in store.session_records(session)? {
            let record = record?;
            // Of an import it says nothing.
            if record.kind == RecordKind::Message && record.origin.is_none() {
                written.insert(record.uuid, record.written_at);
            }
        }
    }
    Ok(written)
}

/// What is shown, and what programs get of it.
struct Row {
    shown: Shown,
    /// Null of what only people are shown.
    json: Value,
}

enum Shown {
    Message(Box<DisplayMessage>),
    Live(Box<TranscriptMessage>),
    Compaction {
        ts: Option<String>,
        kept: usize,
        metadata: Option<Value>,
    },
    /// A generation begins, with so many rows of the one before.
    Generation {
        number: u32,
        kept: usize,
    },
}

fn to_json(value: &impl serde::Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|error| Failure::Told(error.to_string()))
}

/// What the model would be sent.
fn model_rows(store: &Store, stem: &str) -> Result<Vec<Row>, Failure> {
    let read = store.locator().open_stem(stem, TranscriptMeta::new(""))?;
    let messages = read.read_session()?.map(|session| session.messages);
    let rows = messages.unwrap_or_default().into_iter().map(|message| {
        let json = to_json(&message)?;
        let shown = Shown::Live(Box::new(message));
        Ok(Row { shown, json })
    });
    rows.collect()
}

/// All generations up to the one with this stem, oldest first, each row once.
fn display_rows(store: &Store, summary: &SessionSummary, stem: &str) -> Result<Vec<Row>, Failure> {
    let locator = store.locator();
    let mut stems = Vec::new();
    if let Some(session) = &summary.session {
        for generation in locator.session_chain(session)? {
            stems.push((generation.generation, generation.session_id()));
            if stems.last().is_some_and(|(_, it)| it == stem) {
                break;
            }
        }
    }
    if stems.is_empty() {
        stems.push((0, stem.to_owned()));
    }
    let mut seen = HashSet::new();
    let mut rows = Vec::new();
    for (number, stem) in stems {
        let read = locator.open_stem(&stem, TranscriptMeta::new(""))?;
        let Some(display) = read.read_display()? else {
            continue;
        };
        if number > 0 {
            let known = display.records.iter().filter(|record| match record {
                DisplayRecord::Message(row) => seen.contains(&row.uuid),
                DisplayRecord::Compaction(_) => false,
            });
            let kept = known.count();
            rows.push(Row {
                shown: Shown::Generation { number, kept },
                json: Value::Null,
            });
        }
        for record in display.records {
            let json = to_json(&record)?;
            match record {
                DisplayRecord::Message(message) => {
                    if seen.insert(message.uuid) {
                        rows.push(Row {
                            shown: Shown::Message(message),
                            json,
                        });
                    }
                }
                DisplayRecord::Compaction(marker) => {
                    let kept = marker.replacement.len();
                    rows.push(Row {
                        shown: Shown::Compaction {
                            ts: marker.ts,
                            kept,
                            metadata: marker.metadata,
                        },
                        json,
                    });
                    // Rows that the compaction itself stored stand nowhere else.
                    for message in marker.replacement {
                        if seen.insert(message.uuid) {
                            let json = to_json(&message)?;
                            let shown = Shown::Message(Box::new(message));
                            rows.push(Row { shown, json });
                        }
                    }
                }
            }
        }
    }
    Ok(rows)
}

fn header(summary: &SessionSummary, stem: &str, below: u64, output: &mut Output) -> io::Result<()> {
    if let Some(session) = &summary.session {
        output.field("session", &session.session_key)?;
        if let Some(parent) = session.parent_stem() {
            output.field("sub-agent of", parent)?;
        }
    }
    output.field("stem", stem)?;
    if let Some(thread) = &summary.thread_id {
        output.field("thread", thread)?;
    }
    output.field("agent", &summary.agent_name)?;
    if let Some(model) = &summary.spend.model {
        output.field("model", model)?;
    }
    let created = output.time(&summary.created, false);
    let updated = output.time(&summary.updated, false);
    output.field("time", &format!("{created} to {updated}"))?;
    output.field("messages", &count(summary.messages))?;
    if below > 0 {
        let below = many(below, "session");
        let how = "`sessions --children` lists them, `show` shows one";
        output.field("sub-agents", &format!("{below} below it; {how}"))?;
    }
    let spend = &summary.spend;
    output.field(
        "spend",
        &format!(
            "{} input ({} cached), {} output, {}",
            count(spend.input_tokens),
            count(spend.cached_input_tokens),
            count(spend.output_tokens),
            spend_cost(spend, decimals([spend]))
        ),
    )
}

/// What the files that a session was imported from tell of it.
fn attributes(store: &Store, summary: &SessionSummary, output: &mut Output) -> Result<(), Failure> {
    let told = match &summary.session {
        Some(session) => store.attributes(session)?,
        None => Attributes::default(),
    };
    if let Some(call) = &told.spawned_by {
        output.field("spawned by", call)?;
    }
    for (key, value) in &told.more {
        let text = match value {
            Value::String(text) => safe_line(text),
            value => safe_line(&value.to_string()).into_owned().into(),
        };
        output.field(&safe_line(key), &cut(&text, ATTRIBUTE_COLUMNS))?;
    }
    output.line("")?;
    Ok(())
}

impl Row {
    fn print(
        &self,
        args: &Show,
        written: &HashMap<Uuid, String>,
        output: &mut Output,
    ) -> io::Result<()> {
        let full = args.full;
        match &self.shown {
            Shown::Message(row) => {
                let written = written.get(&row.uuid).map(String::as_str);
                let face = Face {
                    ts: row.ts.as_deref().or(written),
                    uuid: args.uuids.then_some(row.uuid),
                    interrupted: row.interrupted,
                    failed: row.failure,
                    revised: row.revises.is_some(),
                    reasoning: row.reasoning_content.as_deref(),
                    usage: row.turn_usage.as_ref(),
                };
                message(&row.message, &face, full, output)
            }
            Shown::Live(row) => {
                let failed = row.tool_failure.as_ref();
                let noted = row.extra_metadata.as_ref();
                let face = Face {
                    ts: None,
                    uuid: None,
                    interrupted: row.interrupted,
                    failed: failed.is_some_and(|failure| failure.failed),
                    revised: false,
                    reasoning: noted.and_then(|noted| noted.get("reasoning_content")?.as_str()),
                    usage: row.turn_usage.as_ref(),
                };
                message(row, &face, full, output)
            }
            Shown::Compaction { ts, kept, metadata } => {
                let time = ts.as_deref().map(|ts| output.time(ts, true));
                let time = time.unwrap_or_default();
                let kept = many(*kept as u64, "row");
                let line = format!("──── context replaced by {kept} ──── {time}");
                output.styled(DIM, line.trim_end())?;
                if let Some(metadata) = metadata {
                    let text = safe_line(&metadata.to_string()).into_owned();
                    output.styled(DIM, &format!("     {}", cut(&text, ATTRIBUTE_COLUMNS)))?;
                }
                output.line("")
            }
            Shown::Generation { number, kept } => {
                let kept = many(*kept as u64, "row");
                let line =
                    format!("──── generation {number} begins with {kept} of the one before ────");
                output.styled(DIM, &line)?;
                output.line("")
            }
        }
    }
}

/// What is known of a message beside itself.
struct Face<'r> {
    ts: Option<&'r str>,
    uuid: Option<Uuid>,
    interrupted: bool,
    failed: bool,
    revised: bool,
    reasoning: Option<&'r str>,
    usage: Option<&'r TurnUsage>,
}

fn message(
    row: &TranscriptMessage,
    face: &Face<'_>,
    full: bool,
    output: &mut Output,
) -> io::Result<()> {
    let style = match row.role.as_str() {
        "user" => USER,
        "assistant" => ASSISTANT,
        _ => TOOL,
    };
    let mut about = Vec::new();
    if let Some(ts) = face.ts.filter(|ts| !ts.is_empty()) {
        about.push(output.time(ts, true));
    }
    if let Some(usage) = face.usage {
        about.extend(usage_notes(usage));
    }
    if face.interrupted {
        about.push("interrupted".to_owned());
    }
    if face.revised {
        about.push("revised".to_owned());
    }
    about.extend(face.uuid.map(|uuid| uuid.to_string()));
    let role = safe_line(&row.role);
    let failed = if face.failed {
        format!(" {BAD}failed{BAD:#}")
    } else {
        String::new()
    };
    let about = match about.join(" · ") {
        about if about.is_empty() => about,
        about => format!(" {DIM}{about}{DIM:#}"),
    };
    output.line(&format!("{style}{role}{style:#}{failed}{about}"))?;
    if let Some(reasoning) = face.reasoning.filter(|text| !text.trim().is_empty()) {
        let limit = (!full).then_some(RESULT_LINES);
        body(reasoning, "  ~ ", limit, Some(DIM), output)?;
    }
    let limit = (row.role == "tool" && !full).then_some(RESULT_LINES);
    match &row.parts {
        None => body(&row.content, "  ", limit, None, output)?,
        Some(parts) => {
            for part in parts {
                match part {
                    TranscriptPart::Text { text } => body(text, "  ", limit, None, output)?,
                    TranscriptPart::Image { url } => medium("image", url, output)?,
                    TranscriptPart::Audio { mime_type, .. } => medium("audio", mime_type, output)?,
                    TranscriptPart::Video { mime_type, .. } => medium("video", mime_type, output)?,
                    TranscriptPart::Document { mime_type, .. } => {
                        medium("document", mime_type, output)?;
                    }
                }
            }
        }
    }
    for call in &row.tool_calls {
        let arguments = if full {
            safe(&call.arguments)
        } else {
            let line = safe_line(&call.arguments);
            cut(&line, CALL_COLUMNS).into_owned().into()
        };
        let text = format!("{} {arguments}", safe_line(&call.name));
        body(&text, "  → ", None, Some(TOOL), output)?;
    }
    output.line("")
}

fn usage_notes(usage: &TurnUsage) -> Vec<String> {
    let mut notes = Vec::new();
    if !usage.model.is_empty() {
        notes.push(safe_line(&usage.model).into_owned());
    }
    let tokens = &usage.usage;
    if tokens.input > 0 || tokens.output > 0 {
        notes.push(format!(
            "{} in, {} out",
            count(tokens.input),
            count(tokens.output)
        ));
    }
    if tokens.cost_usd != 0.0 {
        let source = source_name(tokens.cost_source);
        notes.push(format!(
            "{} {source}",
            crate::text::dollars(tokens.cost_usd)
        ));
    }
    notes
}

fn medium(kind: &str, what: &str, output: &mut Output) -> io::Result<()> {
    // Of data in the address, only its kind.
    let what = match what.split_once(',') {
        Some((head, data)) if head.starts_with("data:") => {
            format!("{head}, {}", many(data.len() as u64, "character"))
        }
        _ => what.to_owned(),
    };
    output.styled(DIM, &format!("  [{kind} {}]", cut(&safe_line(&what), 100)))
}

/// Text, wrapped and indented; only its first lines if there is a limit.
fn body(
    text: &str,
    indent: &str,
    limit: Option<usize>,
    style: Option<anstyle::Style>,
    output: &mut Output,
) -> io::Result<()> {
    let text = safe(text.trim_end());
    if text.is_empty() {
        return Ok(());
    }
    let total = text.lines().count();
    let shown = limit.filter(|limit| total > limit + 1).unwrap_or(total);
    let next = " ".repeat(indent.chars().count());
    let width = output.prose();
    for (at, line) in text.lines().take(shown).enumerate() {
        let first = if at == 0 { indent } else { next.as_str() };
        let line = match limit {
            Some(_) => cut(line, width.saturating_mul(4)),
            None => line.into(),
        };
        let options = Options::new(width)
            .initial_indent(first)
            .subsequent_indent(&next);
        for line in textwrap::wrap(&line, options) {
            match style {
                Some(style) => output.styled(style, &line)?,
                None => output.line(&line)?,
            }
        }
    }
    if shown < total {
        let more = many((total - shown) as u64, "more line");
        output.styled(DIM, &format!("{next}… {more} (--full)"))?;
    }
    Ok(())
}
