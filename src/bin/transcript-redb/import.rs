//! `import`: files of other programs, in.

use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use transcript_redb::Store;
use transcript_redb::interchange::{self, Codec, FileReport};

use crate::adopt::{self, Adopted};
use crate::args::{Database, Import};
use crate::failure::{Failure, Outcome, complain, explain};
use crate::output::{BAD, DIM, Output};
use crate::table::Table;
use crate::text::{count, dollars, many, size};

/// `import`
pub fn run(database: &Database, args: &Import, output: &mut Output) -> Result<Outcome, Failure> {
    database.check()?;
    let mut refused = Refused::default();
    let mut skipped = Vec::new();
    let files = files(args, &mut refused, &mut skipped);
    if files.is_empty() {
        if args.output.json {
            output.json(&summary(&[], 0, &refused, &skipped, None))?;
        }
        return Ok(Outcome::Refused);
    }
    let store = database.create()?;
    let before = sessions(&store)?;
    let bytes = files.iter().map(|(path, _)| length(path)).sum();
    let bar = bar(bytes);
    let mut reports = Vec::new();
    let mut barren = false;
    for (path, codec) in files {
        bar.set_message(path.file_name().unwrap_or_default().display().to_string());
        let progress = |read| bar.inc(read);
        let imported = if args.again {
            store.import_again(&path, codec, progress)
        } else {
            store.import_watched(&path, codec, progress)
        };
        match imported {
            Ok(report) => {
                // Records of another format can look like those of the one that was named, and tell of no session.
                let named = args.from != "auto";
                let what = match (report.is_barren(), named && report.sessions == 0) {
                    (true, _) => Some("record"),
                    (false, true) => Some("session"),
                    (false, false) => None,
                };
                if let Some(what) = what {
                    barren = true;
                    let why = match report.bytes {
                        0 => "it is empty".to_owned(),
                        _ => format!("no {what} of {} is in it", codec.name()),
                    };
                    let path = path.display();
                    bar.suspend(|| complain(&format!("{path}: {why}; it is kept as a source")));
                }
                if args.output.json {
                    let json = serde_json::to_value(&report);
                    let json = json.map_err(|error| Failure::Told(error.to_string()))?;
                    bar.suspend(|| output.json(&json).and_then(|()| output.finish()))?;
                }
                reports.push(report);
            }
            Err(error) => bar.suspend(|| refused.add(&path, &explain(&error))),
        }
    }
    bar.finish_and_clear();
    let added = sessions(&store)?.saturating_sub(before);
    let adopted = args.adopt.then(|| adopt::adopt(&store)).transpose()?;
    if args.output.json {
        let adopted = adopted.as_ref();
        output.json(&summary(&reports, added, &refused, &skipped, adopted))?;
    } else {
        tell(&reports, added, output)?;
        tell_skipped(&skipped, output)?;
        if args.again && reports.iter().all(|report| report.messages == 0) {
            output.line("No session was read by an earlier version: nothing was read anew.")?;
        }
        if let Some(adopted) = &adopted {
            adopted.tell(output)?;
        }
    }
    if barren || !refused.0.is_empty() || adopted.is_some_and(|it| it.has_failed()) {
        Ok(Outcome::Refused)
    } else {
        Ok(Outcome::Done)
    }
}

/// Files that were not imported, and why.
#[derive(Debug, Default)]
struct Refused(Vec<(String, String)>);

impl Refused {
    fn add(&mut self, path: &Path, why: &str) {
        let path = path.display().to_string();
        complain(&format!("{path}: {why}"));
        self.0.push((path, why.to_owned()));
    }
}

/// What is to be read, each file once.
fn files(
    args: &Import,
    refused: &mut Refused,
    skipped: &mut Vec<PathBuf>,
) -> Vec<(PathBuf, &'static dyn Codec)> {
    let from = interchange::codec(&args.from);
    let mut files: Vec<(PathBuf, &'static dyn Codec)> = Vec::new();
    for path in &args.paths {
        let found = match interchange::find(path, from) {
            Ok(found) => found,
            Err(error) => {
                refused.add(path, &explain(&error));
                continue;
            }
        };
        for file in found.skipped {
            if !skipped.contains(&file) {
                skipped.push(file);
            }
        }
        let found = found.files;
        if found.is_empty() {
            refused.add(path, "no file of a known format is in this folder");
        }
        for (path, codec) in found {
            match codec {
                Some(codec) if files.iter().all(|(known, _)| *known != path) => {
                    files.push((path, codec));
                }
                Some(_) => {}
                None => match interchange::detect_file(&path) {
                    Ok(_) if length(&path) == 0 => refused.add(&path, "it is empty"),
                    Ok(_) => refused.add(&path, "its format is not known; name it with --from"),
                    Err(error) => refused.add(&path, &explain(&error)),
                },
            }
        }
    }
    files
}

fn sessions(store: &Store) -> Result<u64, Failure> {
    Ok(crate::select::all(store)?.len() as u64)
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

/// Drawn on a terminal only.
fn bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr());
    let template = "{wide_bar} {bytes}/{total_bytes}  {eta}  {msg:24!}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// The sums over all files, as programs get them.
fn summary(
    reports: &[FileReport],
    sessions: u64,
    refused: &Refused,
    skipped: &[PathBuf],
    adopted: Option<&Adopted>,
) -> Value {
    let sum = |of: fn(&FileReport) -> u64| reports.iter().map(of).sum::<u64>();
    let failed = refused
        .0
        .iter()
        .map(|(path, error)| json!({"path": path, "error": error}));
    let mut all = json!({
        "files": reports.len(),
        "bytes": sum(|report| report.bytes),
        "lines": sum(|report| report.lines),
        "blank_lines": sum(|report| report.blank_lines),
        "records": sum(|report| report.records),
        "messages": sum(|report| report.messages),
        "quarantined": sum(|report| report.bad),
        "glued_records": sum(|report| report.glued_records),
        "duplicates": sum(|report| report.duplicates),
        "compactions": sum(|report| report.compactions),
        "sessions": sessions,
        "distinct_message_ids": sum(|report| report.distinct_message_ids),
        "input_tokens": sum(|report| report.input_tokens),
        "output_tokens": sum(|report| report.output_tokens),
        "cached_input_tokens": sum(|report| report.cached_input_tokens),
        "cache_write_tokens": sum(|report| report.cache_write_tokens),
        "cost_usd": cost(reports),
        "failed": failed.collect::<Vec<_>>(),
        "skipped": skipped,
    });
    if let (Value::Object(all), Some(adopted)) = (&mut all, adopted) {
        all.insert("adopted".to_owned(), adopted.json());
    }
    all
}

fn cost(reports: &[FileReport]) -> f64 {
    reports.iter().map(|report| report.cost_usd).sum()
}

/// What was imported, for people.
fn tell(reports: &[FileReport], sessions: u64, output: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new(
        &[
            "FILE",
            "FORMAT",
            "SIZE",
            "LINES",
            "NEW MESSAGES",
            "KNOWN RECORDS",
            "DAMAGED",
            "INPUT",
            "OUTPUT",
        ],
        &[2, 3, 4, 5, 6, 7, 8],
        &[0],
    )
    .spare(&[1, 3, 2]);
    for report in reports {
        let name = Path::new(&report.path).file_name();
        table.row([
            name.map_or_else(|| report.path.clone(), |name| name.display().to_string()),
            report.format.clone(),
            size(report.bytes),
            count(report.lines),
            count(report.messages),
            count(report.duplicates),
            count(report.bad),
            count(report.input_tokens),
            count(report.output_tokens),
        ]);
    }
    if !reports.is_empty() {
        table.print(output)?;
        output.line("")?;
    }
    for report in reports {
        damage(report, output)?;
    }
    let messages = reports.iter().map(|report| report.messages).sum();
    let money = match cost(reports) {
        0.0 => String::new(),
        usd => format!(", {} told by the files", dollars(usd)),
    };
    output.line(&format!(
        "Added {} and {} from {}{money}.",
        many(messages, "message"),
        many(sessions, "session"),
        many(reports.len() as u64, "file"),
    ))?;
    Ok(())
}

/// Files of folders that were not read.
fn tell_skipped(skipped: &[PathBuf], output: &mut Output) -> Result<(), Failure> {
    const NAMED: usize = 3;
    if skipped.is_empty() {
        return Ok(());
    }
    let names = skipped.iter().take(NAMED).map(|path| {
        let name = path.file_name().unwrap_or_default();
        name.display().to_string()
    });
    let mut names = names.collect::<Vec<_>>().join(", ");
    if skipped.len() > NAMED {
        names.push_str(", …");
    }
    let files = many(skipped.len() as u64, "file");
    let names = crate::text::safe_line(&names).into_owned();
    output.styled(DIM, &format!("Skipped {files} of other formats: {names}"))?;
    Ok(())
}

/// Pieces of a file that are no record, the first of them.
fn damage(report: &FileReport, output: &mut Output) -> Result<(), Failure> {
    const SHOWN: usize = 5;
    if report.bad > 0 && report.messages == 0 && report.duplicates > 0 {
        // It was told when the file was imported.
        let pieces = many(report.bad, "damaged piece");
        let path = crate::text::safe_line(&report.path).into_owned();
        let line = format!("{path}: {pieces}, as before (--json lists them)");
        output.styled(DIM, &line)?;
        return Ok(());
    }
    for bad in report.quarantined.iter().take(SHOWN) {
        let path = crate::text::safe_line(&report.path);
        output.line(&format!(
            "{BAD}damaged{BAD:#} {path}:{}: {} at byte {}, {}; kept, not shown in any session",
            bad.line,
            bad.class.words(),
            bad.offset,
            size(bad.length)
        ))?;
    }
    let more = report.bad.saturating_sub(SHOWN as u64);
    if more > 0 {
        output.styled(
            DIM,
            &format!("… {} more in this file (--json lists them)", count(more)),
        )?;
    }
    Ok(())
}
