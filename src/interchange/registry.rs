//! All codecs, and which of them a file is for.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::chat::Chat;
use super::checkpoint::Checkpoint;
use super::classic::Classic;
use super::claude_code::ClaudeCode;
use super::codec::{Certainty, Codec, HEAD_BYTES, Probe};
use super::codex::Codex;
use super::emit::Emit;
use super::markdown::Markdown;
use super::native::Native;
use super::record_log::RecordLog;
use super::report::FileReport;
use super::source::Source;
use super::tally::Tally;
use super::write::Writer;
use crate::{Error, Result};

/// Every codec. Of two that are equally sure of a file the first reads it.
#[must_use]
pub fn codecs() -> &'static [&'static dyn Codec] {
    &[
        &Native,
        &Classic,
        &ClaudeCode,
        &Codex,
        &RecordLog,
        &Checkpoint,
        &Chat,
    ]
}

/// The codec with this name.
#[must_use]
pub fn codec(name: &str) -> Option<&'static dyn Codec> {
    codecs().iter().copied().find(|codec| codec.name() == name)
}

/// The format for people, which is written and not read.
const MARKDOWN: &str = "markdown";

/// What writes the format with this name; None if nothing does.
#[must_use]
pub fn writer(name: &str) -> Option<Box<dyn Writer>> {
    match name {
        MARKDOWN => Some(Box::new(Markdown::default())),
        name => codec(name)?.writer(),
    }
}

/// The names of the formats that can be written.
#[must_use]
pub fn writable() -> Vec<&'static str> {
    let written = codecs()
        .iter()
        .filter(|codec| codec.restores() || codec.writer().is_some());
    let names = written.map(|codec| codec.name());
    names.chain([MARKDOWN]).collect()
}

/// The codec that is surest that bytes which begin like this, of a file with this path, are its own.
#[must_use]
pub fn detect(path: &Path, head: &[u8]) -> Option<&'static dyn Codec> {
    let probe = Probe::new(path, head);
    let mut best: Option<(Certainty, &dyn Codec)> = None;
    for codec in codecs() {
        if let Some(certainty) = codec.detect(&probe)
            && best.is_none_or(|(known, _)| certainty > known)
        {
            best = Some((certainty, *codec));
        }
    }
    best.map(|(_, codec)| codec)
}

/// The codec for the file at `path`; None if no codec knows it.
///
/// # Errors
///
/// [`Error::Io`] if the file cannot be read.
pub fn detect_file(path: &Path) -> Result<Option<&'static dyn Codec>> {
    let head = read_head(path).map_err(|error| failed(path, error))?;
    Ok(detect(path, &head))
}

/// A first line is read up to this length to see what it is.
const FIRST_LINE_BYTES: u64 = 16 << 20;

fn read_head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut file = File::open(path)?;
    (&mut file).take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    if !head.contains(&b'\n') {
        // Its first record is longer.
        let rest = FIRST_LINE_BYTES - HEAD_BYTES as u64;
        BufReader::new(file)
            .take(rest)
            .read_until(b'\n', &mut head)?;
    }
    Ok(head)
}

/// What there is to read at a path.
#[derive(Debug, Default)]
pub struct Found {
    /// The files to read, in order, each with its codec. A file without one is one that was named and that no codec knows,
    /// or one of a folder that cannot be read, which comes last: [`detect_file`] says why.
    pub files: Vec<(PathBuf, Option<&'static dyn Codec>)>,
    /// Files of a folder that no codec knows, or not the one that was named. Companions of files that are read
    /// ([`Codec::is_companion`]) are not among them.
    pub skipped: Vec<PathBuf>,
}

/// The files to read for `path`: what [`find`] finds, without what is skipped.
///
/// # Errors
///
/// [`Error::Io`] if `path` or a folder in it cannot be read.
pub fn files(
    path: &Path,
    from: Option<&'static dyn Codec>,
) -> Result<Vec<(PathBuf, Option<&'static dyn Codec>)>> {
    Ok(find(path, from)?.files)
}

/// What there is to read at `path`: the file itself, or those of a folder that a codec knows.
///
/// With `from`, that codec reads the file that is named, whatever is in it, and in a folder the files that it knows. Links
/// within folders are not followed.
///
/// # Errors
///
/// [`Error::Io`] if `path` or a folder in it cannot be read.
pub fn find(path: &Path, from: Option<&'static dyn Codec>) -> Result<Found> {
    let kind = fs::metadata(path).map_err(|error| failed(path, error))?;
    if !kind.is_dir() && !kind.is_file() {
        // It is read twice: to see what it is, and to import it.
        let error = io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is neither a file nor a folder",
        );
        return Err(failed(path, error));
    }
    if kind.is_file() {
        let codec = match from {
            Some(codec) => Some(codec),
            None => detect_file(path)?,
        };
        return Ok(Found {
            files: vec![(path.to_owned(), codec)],
            skipped: Vec::new(),
        });
    }
    let mut found = Vec::new();
    walk(path, &mut found)?;
    found.sort();
    let mut own: Vec<(&dyn Codec, Vec<PathBuf>)> =
        codecs().iter().map(|codec| (*codec, Vec::new())).collect();
    let mut unread = Vec::new();
    let mut skipped = Vec::new();
    for file in found {
        let codec = match detect_file(&file) {
            Ok(Some(codec)) => codec,
            Ok(None) => {
                skipped.push(file);
                continue;
            }
            Err(_) => {
                unread.push((file, None));
                continue;
            }
        };
        if from.is_some_and(|from| from.name() != codec.name()) {
            skipped.push(file);
            continue;
        }
        if let Some((_, files)) = own.iter_mut().find(|(own, _)| own.name() == codec.name()) {
            files.push(file);
        }
    }
    let mut files = Vec::new();
    for (codec, own) in own {
        let arranged = codec.arrange(path, own);
        files.extend(arranged.into_iter().map(|file| (file, Some(codec))));
    }
    files.extend(unread);
    skipped.retain(|file| !codecs().iter().any(|codec| codec.is_companion(file)));
    Ok(Found { files, skipped })
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| failed(&folder, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| failed(&folder, error))?;
            let kind = entry.file_type().map_err(|error| failed(&folder, error))?;
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    Ok(())
}

/// Reads a file and reports what importing it into an empty store would add. Nothing is stored.
///
/// # Errors
///
/// [`Error::Io`] if the file cannot be read.
pub fn inspect(path: &Path, codec: &dyn Codec) -> Result<FileReport> {
    let file = File::open(path).map_err(|error| failed(path, error))?;
    let mut source = Source::new(path, file).with_companions();
    let mut tally = Tally::default();
    codec.read(&mut source, &mut Emit::new(&mut tally))?;
    let mut report = FileReport::of(path.display().to_string(), codec.name(), source.counts());
    tally.add_to(&mut report);
    Ok(report)
}

pub(super) fn failed(path: &Path, error: io::Error) -> Error {
    Error::Io {
        what: format!("reading {}", path.display()),
        source: Arc::new(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(head: &str) -> Option<&'static str> {
        detect(Path::new("x.jsonl"), head.as_bytes()).map(Codec::name)
    }

    #[test]
    fn a_file_is_read_by_the_codec_that_knows_it() {
        for (head, codec) in [
            (
                r#"{"type":"user","sessionId":"s","uuid":"u","message":{"content":"x"}}"#,
                Some("claude-code"),
            ),
            (
                r#"{"type":"summary","summary":"x","leafUuid":"u"}"#,
                Some("claude-code"),
            ),
            (
                r#"{"timestamp":"t","type":"session_meta","payload":{"id":"x"}}"#,
                Some("codex"),
            ),
            (
                r#"{"id":"x","timestamp":"t","instructions":null}"#,
                Some("codex"),
            ),
            (
                r#"{"uuid":"u","session_id":"s","type":"message","message":{}}"#,
                Some("record-log"),
            ),
            (r#"{"messages":[]}"#, Some("chat")),
            (r#"{"role":"user","content":"x"}"#, Some("chat")),
            (r#"{"messages":[],"exit_status":""}"#, Some("checkpoint")),
            ("", None),
            ("# a note", None),
            ("[1]", None),
        ] {
            assert_eq!(named(head), codec, "{head}");
        }
    }

    #[test]
    fn a_file_is_known_by_a_first_line_of_any_usual_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.jsonl");
        let text = "x".repeat(2 * HEAD_BYTES);
        let line = format!(r#"{{"messages":[{{"role":"user","content":"{text}"}}]}}"#);
        fs::write(&path, format!("{line}\n{line}\n")).unwrap();
        assert_eq!(detect_file(&path).unwrap().map(Codec::name), Some("chat"));
    }

    #[cfg(unix)]
    #[test]
    fn what_is_neither_a_file_nor_a_folder_is_an_error_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.jsonl");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        for from in [None, super::codec("chat")] {
            assert!(matches!(files(&path, from), Err(Error::Io { .. })));
        }
        assert!(files(folder.path(), None).unwrap().is_empty());
    }

    #[test]
    fn codecs_have_names_of_their_own() {
        for codec in codecs() {
            assert_eq!(
                super::codec(codec.name()).map(Codec::name),
                Some(codec.name())
            );
        }
        assert!(super::codec("none").is_none());
    }

    #[test]
    fn a_folder_gives_its_files_in_the_order_of_their_codecs() {
        let folder = tempfile::tempdir().unwrap();
        let line = r#"{"type":"user","sessionId":"s","uuid":"u","message":{"content":"x"}}"#;
        let below = folder.path().join("a/subagents");
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join("agent-1.jsonl"), line).unwrap();
        fs::write(folder.path().join("z.jsonl"), line).unwrap();
        fs::write(folder.path().join("b.jsonl"), r#"{"messages":[]}"#).unwrap();
        fs::write(folder.path().join("notes.txt"), "notes").unwrap();
        let names = |from| -> Vec<String> {
            let files = files(folder.path(), from).unwrap();
            let name =
                |(path, _): (PathBuf, _)| path.file_name().unwrap().to_str().unwrap().to_owned();
            files.into_iter().map(name).collect()
        };
        assert_eq!(names(None), ["z.jsonl", "agent-1.jsonl", "b.jsonl"]);
        assert_eq!(names(super::codec("chat")), ["b.jsonl"]);
        fs::write(below.join("agent-1.meta.json"), "{}").unwrap();
        let skipped = |from| find(folder.path(), from).unwrap().skipped.len();
        assert_eq!(
            skipped(None),
            1,
            "the notes, and not what belongs to an agent"
        );
        assert_eq!(skipped(super::codec("chat")), 3);
        let notes = folder.path().join("notes.txt");
        assert!(files(&notes, None).unwrap()[0].1.is_none());
        assert!(files(&notes, super::codec("chat")).unwrap()[0].1.is_some());
    }
}
