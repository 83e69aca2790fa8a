//! `export`: sessions in a format of other programs, or the files that they came from.

use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use transcript_redb::interchange::{ExportReport, Folder, OneFile, Target};
use transcript_redb::{ExportScope, SessionQuery, SessionRef, SourceInfo, Store};

use crate::args::{Database, Export};
use crate::failure::{Failure, Outcome, complain};
use crate::output::Output;
use crate::select;
use crate::text::many;

/// `export`
pub fn run(database: &Database, args: &Export, output: &mut Output) -> Result<Outcome, Failure> {
    let store = database.read()?;
    let sessions = chosen(&store, args)?;
    if sessions.is_empty() && !(args.all && args.original) {
        return Err(Failure::Told(
            "there is nothing to export; `transcript-redb threads` lists the threads".to_owned(),
        ));
    }
    let originals = if args.original {
        Some(originals(&store, args, &sessions)?)
    } else {
        None
    };
    let write = |target: &mut dyn Target| match (&originals, args.to.as_str()) {
        (Some(originals), _) => write_originals(&store, originals, target),
        (None, NATIVE) => write_native(&store, args, &sessions, target),
        (None, format) => store.export(&sessions, format, target).map_err(one_file),
    };
    let Some(path) = &args.output else {
        if originals
            .as_ref()
            .is_some_and(|originals| originals.len() > 1)
        {
            return Err(Failure::Told(
                "these sessions came from several files; name a folder for them with -o DIR/"
                    .to_owned(),
            ));
        }
        let mut target = OneFile::new(std::io::BufWriter::new(output.raw()?));
        let report = write(&mut target).map_err(unpipe)?;
        target.into_inner().flush()?;
        warn(&report, &args.to);
        return Ok(Outcome::Done);
    };
    let several = originals
        .as_ref()
        .is_some_and(|originals| originals.len() > 1);
    let report = if path.is_dir() || ends_with_separator(path) || several {
        let mut target = Folder::new(path);
        let report = write(&mut target)?;
        target.finish()?;
        report
    } else {
        to_file(path, write)?
    };
    let what = match (report.sessions, report.sources) {
        (sessions, 0) => many(sessions, "session"),
        (0, sources) => many(sources, "original file"),
        (sessions, sources) => format!(
            "{} and {}",
            many(sessions, "session"),
            many(sources, "original file")
        ),
    };
    complain(&format!("wrote {what} to {}", path.display()));
    warn(&report, &args.to);
    Ok(Outcome::Done)
}

/// Says what is not in the files.
fn warn(report: &ExportReport, format: &str) {
    let lost = |count: u64, what: &str| {
        if count > 0 {
            complain(&format!(
                "{format} has no place for {what}: {} left out; --to native keeps everything",
                many(count, "usage")
            ));
        }
    };
    lost(report.usages_left_out, "tokens and cost");
    lost(report.costs_left_out, "the cost of calls");
}

/// The format that holds a store as it is, in one file whatever is chosen.
const NATIVE: &str = "native";

fn write_native(
    store: &Store,
    args: &Export,
    sessions: &[SessionRef],
    target: &mut dyn Target,
) -> Result<ExportReport, Failure> {
    let stems: Vec<String> = sessions.iter().map(SessionRef::session_id).collect();
    let stems: Vec<&str> = stems.iter().map(String::as_str).collect();
    let scope = match &args.thread {
        _ if args.all => ExportScope::All,
        Some(thread) if args.sessions.is_empty() => ExportScope::Thread(thread),
        _ => ExportScope::Sessions(&stems),
    };
    store.export_native(scope, target.file("transcripts.jsonl")?)?;
    Ok(ExportReport {
        sessions: sessions.len() as u64,
        ..ExportReport::default()
    })
}

/// The sessions that were named, with their sub-agents.
fn chosen(store: &Store, args: &Export) -> Result<Vec<SessionRef>, Failure> {
    let mut named = Vec::new();
    if args.all || args.thread.is_some() {
        let query = SessionQuery {
            thread: args.thread.clone(),
            children: true,
            ..SessionQuery::default()
        };
        let found = store.sessions_matching(&query)?;
        named.extend(found.into_iter().filter_map(|it| it.session));
    }
    for text in &args.sessions {
        let (summary, stem) = select::one(store, text)?;
        let session = summary.session.ok_or_else(|| {
            Failure::Told(format!(
                "{stem} was written without a reference; it cannot be exported alone"
            ))
        })?;
        named.push(session);
    }
    Ok(store.with_subagents(&named)?)
}

fn originals(
    store: &Store,
    args: &Export,
    sessions: &[SessionRef],
) -> Result<Vec<SourceInfo>, Failure> {
    let originals = if args.all {
        // Files that made no session too.
        store.all_originals()?
    } else {
        store.originals(sessions)?
    };
    if originals.is_empty() {
        return Err(Failure::Told(
            "no import made these sessions, so there is no original; name a format with --to"
                .to_owned(),
        ));
    }
    Ok(originals)
}

fn write_originals(
    store: &Store,
    originals: &[SourceInfo],
    target: &mut dyn Target,
) -> Result<ExportReport, Failure> {
    let mut report = ExportReport::default();
    let mut names = HashSet::new();
    for source in originals {
        let name = source.path.rsplit(['/', '\\']).next().unwrap_or_default();
        let mut own = name.to_owned();
        if !names.insert(own.clone()) {
            own = format!("{}-{name}", source.id);
            names.insert(own.clone());
        }
        store.export_original(source.id, target.file(&own)?)?;
        report.sources += 1;
    }
    Ok(report)
}

/// Writes a new file, under another name until it is whole.
fn to_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Target) -> Result<ExportReport, Failure>,
) -> Result<ExportReport, Failure> {
    let told =
        |error: std::io::Error| Failure::Told(format!("cannot write {}: {error}", path.display()));
    if path.exists() {
        return Err(Failure::Told(format!(
            "{} is there already; remove it or name another file",
            path.display()
        )));
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!("-new-{}", std::process::id()));
    let new = path.with_file_name(name);
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&new).map_err(told)?;
    let mut target = OneFile::new(std::io::BufWriter::new(file));
    let written = write(&mut target).and_then(|report| {
        let mut out = target.into_inner();
        out.flush()
            .and_then(|()| out.get_ref().sync_all())
            .map_err(told)?;
        // Unlike a rename, this never takes the place of another file.
        fs::hard_link(&new, path)
            .or_else(|_| fs::rename(&new, path))
            .map_err(told)?;
        Ok(report)
    });
    let _ = fs::remove_file(&new);
    written
}

fn ends_with_separator(path: &Path) -> bool {
    path.as_os_str()
        .as_encoded_bytes()
        .last()
        .is_some_and(|last| *last == b'/' || *last == std::path::MAIN_SEPARATOR as u8)
}

/// Says what to do where sessions do not go into one file.
fn one_file(error: transcript_redb::Error) -> Failure {
    match error {
        transcript_redb::Error::InvalidId {
            what: "target",
            reason: _,
        } => Failure::Told(
            "these sessions are several files in this format; name a folder for them with -o DIR/"
                .to_owned(),
        ),
        error => error.into(),
    }
}

/// A reader that has seen enough is no failure of the store.
fn unpipe(failure: Failure) -> Failure {
    let broken = match &failure {
        Failure::Store(transcript_redb::Error::Io { source, .. }) => source
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe),
        _ => false,
    };
    if broken {
        return Failure::Output(std::io::ErrorKind::BrokenPipe.into());
    }
    failure
}
