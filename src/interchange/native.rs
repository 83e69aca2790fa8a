//! The native format: everything that a store holds, as lines of JSON. `docs/native.md` describes it.
//!
//! A file is a header, one line a fact, and a last line that vouches for all before it. What is damaged in it is set
//! aside, and what stands without it is restored.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::codec::{Certainty, Codec, Probe};
use super::emit::Emit;
use super::framing::{Framer, Line};
use super::quarantine::{BadClass, BadLine};
use super::report::FileReport;
use super::source::{BOM, Counts, Source};
use super::split::{self, Piece};
use crate::store::{EXPORTED, Entry, ExportScope, Restore, is_misfit};
use crate::transcript::spend::pico_to_usd;
use crate::{Error, Result, Store};

/// What a header names as its format.
const FORMAT: &str = "transcript-redb";

/// The version that is written, and the newest that is read.
const VERSION: u32 = 1;

/// The longest line that is read: a row as large as a store takes, with every character escaped.
const MAX_LINE_BYTES: u64 = 2 << 30;

/// The deepest nesting of a line: that of the deepest metadata, and what stands around it.
const MAX_NESTING: usize = 160;

/// The codec of files that [`Store::export_native`] writes.
#[derive(Debug, Clone, Copy)]
pub struct Native;

/// What an export wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// Lines, with the first and the last one.
    pub lines: u64,
    /// Bytes.
    pub bytes: u64,
    /// Sessions with all their generations.
    pub sessions: u64,
    /// Records of their logs.
    pub records: u64,
}

impl Codec for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn detect(&self, probe: &Probe<'_>) -> Option<Certainty> {
        let header = probe.records().first()?;
        (header.get("format")?.as_str()? == FORMAT).then_some(Certainty::Sure)
    }

    fn read(&self, source: &mut Source<'_>, _: &mut Emit<'_>) -> Result<()> {
        let mut first = true;
        while let Some(record) = source.next(|_| true)? {
            if std::mem::take(&mut first) && check_header(&record.value).is_err() {
                match check_header(&record.value) {
                    Err(error @ Error::NewerFormat { .. }) => return Err(error),
                    _ => source.misfit(&record),
                }
            }
        }
        Ok(())
    }

    fn restores(&self) -> bool {
        true
    }
}

impl Store {
    /// Writes all that the store holds of `scope` in the native format: every generation, everything before a compaction,
    /// every sub-agent, the imported files, and what is known of providers' calls.
    ///
    /// All of it is of one moment, and writers go on meanwhile. Memory does not grow with the logs; a snapshot is held
    /// until all is written, and with it what writers replace meanwhile. Importing the file into an empty store makes a
    /// store that reads the same and exports the same bytes.
    ///
    /// # Errors
    ///
    /// [`Error::NotWritten`] if a session that was named is not written; [`Error::Io`] if `out` cannot be written;
    /// [`Error::Corrupted`] if something of it is damaged.
    pub fn export_native(
        &self,
        scope: ExportScope<'_>,
        out: &mut dyn Write,
    ) -> Result<ExportReport> {
        let mut lines = Lines {
            out,
            hash: Sha256::new(),
            buffer: Vec::new(),
            report: ExportReport::default(),
        };
        self.image(scope, &mut |entry| lines.entry(&entry))?;
        let end = EndLine {
            kind: "end",
            lines: lines.report.lines,
            sha256: lines.hash.clone().finalize().to_vec(),
        };
        lines.line(&end)?;
        lines.out.flush().map_err(unwritten)?;
        Ok(lines.report)
    }
}

#[derive(Serialize)]
struct HeaderLine<'a> {
    format: &'static str,
    version: u32,
    #[serde(flatten)]
    more: &'a Map<String, Value>,
}

#[derive(Serialize)]
struct FactLine<'a, T> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    entry: &'a T,
}

#[derive(Serialize)]
struct ChunkLine {
    #[serde(rename = "type")]
    kind: &'static str,
    data: String,
}

#[derive(Serialize)]
struct EndLine {
    #[serde(rename = "type")]
    kind: &'static str,
    lines: u64,
    #[serde(serialize_with = "hexadecimal")]
    sha256: Vec<u8>,
}

fn hexadecimal<S: serde::Serializer>(
    bytes: &[u8],
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&hex(bytes))
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .filter_map(|digit| char::from_digit(u32::from(digit), 16))
        .collect()
}

/// A file that is written.
struct Lines<'o> {
    out: &'o mut dyn Write,
    hash: Sha256,
    buffer: Vec<u8>,
    report: ExportReport,
}

impl Lines<'_> {
    fn entry(&mut self, entry: &Entry) -> Result<()> {
        match entry {
            Entry::Header(more) => self.line(&HeaderLine {
                format: FORMAT,
                version: VERSION,
                more,
            }),
            Entry::Stem(entry) => self.fact("stem", entry),
            Entry::Source(entry) => self.fact("source", entry),
            Entry::Chunk(bytes) => self.line(&ChunkLine {
                kind: "chunk",
                data: BASE64.encode(bytes),
            }),
            Entry::Transcript(entry) => {
                self.report.sessions += u64::from(entry.generation == 0);
                self.fact("transcript", entry)
            }
            Entry::Record(entry) => {
                self.report.records += 1;
                self.fact("record", entry)
            }
            Entry::Repeat(entry) => self.fact("repeat", entry),
            Entry::Call(entry) => self.fact("call", entry),
            Entry::Other(entry) => self.line(entry),
        }
    }

    fn fact<T: Serialize>(&mut self, kind: &'static str, entry: &T) -> Result<()> {
        self.line(&FactLine { kind, entry })
    }

    fn line<T: Serialize>(&mut self, line: &T) -> Result<()> {
        // One giant line must not hold its memory to the end.
        if self.buffer.capacity() > (16 << 20) {
            self.buffer = Vec::new();
        }
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, line)
            .map_err(|_| Error::other("a fact of the store cannot be written as JSON"))?;
        self.buffer.push(b'\n');
        self.hash.update(&self.buffer);
        self.out.write_all(&self.buffer).map_err(unwritten)?;
        self.report.lines += 1;
        self.report.bytes += self.buffer.len() as u64;
        Ok(())
    }
}

fn unwritten(error: io::Error) -> Error {
    Error::Io {
        what: "writing an export".to_owned(),
        source: Arc::new(error),
    }
}

/// Imports a file: all that stands on its own in it, at once, or nothing if it fails.
pub(super) fn restore(store: &Store, path: &Path, input: impl Read) -> Result<FileReport> {
    let mut reading = Reading {
        framer: Framer::new(input, MAX_LINE_BYTES),
        restore: store.begin_restore()?,
        counts: Counts::default(),
        hash: Sha256::new(),
        lines: 0,
        named: false,
        ended: false,
    };
    loop {
        let line = reading.framer.next_line().map_err(|error| Error::Io {
            what: format!("reading {}", path.display()),
            source: Arc::new(error),
        })?;
        match line {
            Some(line) => reading.line(line)?,
            None => return reading.finish(path),
        }
    }
}

/// A file that is read.
struct Reading<'e, R> {
    framer: Framer<R>,
    restore: Restore<'e>,
    counts: Counts,
    /// Of the lines that the last one vouches for.
    hash: Sha256,
    lines: u64,
    /// Whether a header was read.
    named: bool,
    /// Whether the last line was read.
    ended: bool,
}

impl<R: Read> Reading<'_, R> {
    fn line(&mut self, line: Line) -> Result<()> {
        self.counts.lines += 1;
        self.counts.bytes = self.framer.offset();
        if line.over_long {
            self.set_aside(line, 0, line.length, BadClass::OverLong);
            return Ok(());
        }
        let bytes = self.framer.bytes();
        let bom = line.number == 1 && bytes.starts_with(BOM);
        let skipped = if bom { BOM.len() } else { 0 };
        let text = bytes.get(skipped..).unwrap_or_default();
        if bom {
            self.set_aside(line, 0, skipped as u64, BadClass::Bom);
        } else if split::is_blank(text) {
            self.counts.blank_lines += 1;
            return Ok(());
        }
        let text = self.framer.bytes().get(skipped..).unwrap_or_default();
        if let Ok(value) = parse(text) {
            let length = text.len();
            self.piece(line, skipped..skipped + length, value)?;
        } else if !split::is_blank(text) {
            let owns =
                |it: &Map<String, Value>| it.contains_key("type") || it.contains_key("format");
            let split = split::split(text, line.ended, owns);
            self.counts.glued_records += split.glued as u64;
            for piece in split.pieces {
                match piece {
                    Piece::Record {
                        range,
                        value,
                        lossy: false,
                    } => self.piece(line, range.start + skipped..range.end + skipped, value)?,
                    Piece::Record { range, .. } => {
                        let from = (range.start + skipped) as u64;
                        self.set_aside(line, from, range.len() as u64, BadClass::WrongShape);
                    }
                    Piece::Bad { range, class } => {
                        let from = (range.start + skipped) as u64;
                        self.set_aside(line, from, range.len() as u64, class);
                    }
                }
            }
        }
        self.hash.update(self.framer.bytes());
        self.hash.update(b"\n");
        self.lines += 1;
        Ok(())
    }

    /// Takes the value of a line, or sets it aside if it is no fact or does not fit to those before it.
    fn piece(&mut self, line: Line, range: Range<usize>, value: Map<String, Value>) -> Result<()> {
        match self.value(value) {
            Ok(()) => self.counts.records += 1,
            Err(error) if is_misfit(&error) => {
                let from = range.start as u64;
                self.set_aside(line, from, range.len() as u64, BadClass::WrongShape);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn value(&mut self, mut value: Map<String, Value>) -> Result<()> {
        if self.ended {
            return Err(damaged("it stands behind the last line"));
        }
        if !self.named && value.contains_key("format") {
            check_header(&value)?;
            self.named = true;
            value.remove("format");
            value.remove("version");
            return self.restore.take(Entry::Header(value));
        }
        if value.get("type").and_then(Value::as_str) == Some("end") {
            self.ended = true;
            // What is set aside already explains why the lines are others.
            return match check_end(&value, self.lines, &self.hash) {
                Err(error) if self.counts.bad == 0 => Err(error),
                _ => Ok(()),
            };
        }
        let entry = entry(value)?;
        if matches!(entry, Entry::Other(_)) && !self.named {
            return Err(damaged("it is no fact of an exported store"));
        }
        self.restore.take(entry)
    }

    fn set_aside(&mut self, line: Line, from: u64, length: u64, class: BadClass) {
        self.counts.set_aside(BadLine {
            line: line.number,
            offset: line.offset + from,
            length,
            class,
        });
        self.restore.missed();
    }

    fn finish(mut self, path: &Path) -> Result<FileReport> {
        let torn = self.counts.bad_lines.last();
        let torn = torn.is_some_and(|bad| bad.class == BadClass::TornTail);
        if !self.ended && !torn && self.counts.records > 0 {
            self.counts.set_aside(BadLine {
                line: self.counts.lines,
                offset: self.counts.bytes,
                length: 0,
                class: BadClass::TornTail,
            });
        }
        let mut report = FileReport::of(path.display().to_string(), Native.name(), &self.counts);
        if report.is_barren() {
            return Ok(report);
        }
        let added = self.restore.publish()?;
        report.messages = added.rows;
        report.duplicates = added.duplicates;
        report.compactions = added.contexts;
        report.sessions = added.sessions;
        report.distinct_message_ids = added.message_ids;
        report.input_tokens = added.input;
        report.output_tokens = added.output;
        report.cached_input_tokens = added.cached_input;
        report.cache_write_tokens = added.cache_write;
        report.cost_usd = pico_to_usd(added.cost);
        Ok(report)
    }
}

fn check_header(header: &Map<String, Value>) -> Result<()> {
    if header.get("format").and_then(Value::as_str) != Some(FORMAT) {
        return Err(damaged("it is no header of an exported store"));
    }
    let version = header.get("version").and_then(Value::as_u64);
    match version.map(u32::try_from) {
        Some(Ok(VERSION)) => Ok(()),
        Some(Ok(found)) if found > VERSION => Err(Error::NewerFormat {
            found,
            supported: VERSION,
        }),
        Some(Err(_)) => Err(Error::NewerFormat {
            found: u32::MAX,
            supported: VERSION,
        }),
        _ => Err(damaged("its header names no version")),
    }
}

/// Whether the last line vouches for those before it.
fn check_end(end: &Map<String, Value>, lines: u64, hash: &Sha256) -> Result<()> {
    let fits = end.get("lines").and_then(Value::as_u64) == Some(lines)
        && end.get("sha256").and_then(Value::as_str) == Some(&hex(&hash.clone().finalize()));
    if fits {
        Ok(())
    } else {
        Err(damaged(
            "the lines before it are not those that were written",
        ))
    }
}

/// Reads a line. Nesting is limited before, since the parser recurses.
fn parse(bytes: &[u8]) -> Result<Map<String, Value>> {
    let wrong = || damaged("it is no JSON object");
    if nesting(bytes) > MAX_NESTING {
        return Err(damaged("it is nested too deeply"));
    }
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    parser.disable_recursion_limit();
    let value = Value::deserialize(&mut parser).map_err(|_| wrong())?;
    parser.end().map_err(|_| wrong())?;
    match value {
        Value::Object(line) => Ok(line),
        _ => Err(wrong()),
    }
}

/// How deep the arrays and objects in a text of JSON are nested.
fn nesting(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let (mut in_text, mut escaped) = (false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn entry(mut line: Map<String, Value>) -> Result<Entry> {
    let kind = match line.get("type") {
        Some(Value::String(kind)) => kind.clone(),
        _ => return Err(damaged("it names no type")),
    };
    match kind.as_str() {
        "stem" | "source" | "chunk" | "transcript" | "record" | "repeat" | "call" => {
            line.remove("type");
        }
        _ => return Ok(Entry::Other(line)),
    }
    Ok(match kind.as_str() {
        "stem" => Entry::Stem(typed(line)?),
        "source" => Entry::Source(typed(line)?),
        "transcript" => Entry::Transcript(Box::new(typed(line)?)),
        "record" => Entry::Record(Box::new(typed(line)?)),
        "repeat" => Entry::Repeat(typed(line)?),
        "call" => Entry::Call(typed(line)?),
        _ => {
            let data = line.get("data").and_then(Value::as_str);
            let bytes = data.and_then(|data| BASE64.decode(data).ok());
            Entry::Chunk(bytes.ok_or_else(|| damaged("its data are no base64"))?)
        }
    })
}

/// What the parser says of a wrong value holds parts of it, so it is not told.
fn typed<T: DeserializeOwned>(line: Map<String, Value>) -> Result<T> {
    serde_json::from_value(Value::Object(line))
        .map_err(|_| damaged("it lacks a key of its type, or has one of another shape"))
}

fn damaged(reason: &str) -> Error {
    Error::Corrupted {
        what: EXPORTED.to_owned(),
        at: reason.to_owned(),
    }
}
