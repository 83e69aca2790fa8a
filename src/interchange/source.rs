//! A file as a codec reads it: record by record, with everything that is none set aside.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::fact::{Place, RepeatKey};
use super::framing::{Framer, Line, MAX_LINE_BYTES};
use super::quarantine::{BadClass, BadLine};
use super::split::{self, Piece};
use crate::{Error, Result};

/// So many bad lines are listed; all are counted.
pub const MAX_LISTED: usize = 100_000;

/// The largest file beside a source that is looked at.
const MAX_BESIDE_BYTES: u64 = 1 << 20;

pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

/// A record: a JSON object that stands on a line.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Where it is.
    pub place: Place,
    /// Its members. Take what is large out of them rather than cloning it.
    pub value: Map<String, Value>,
    /// Whether something of it could not be held as it is written.
    pub lossy: bool,
    /// Where on its line it begins.
    from: usize,
}

impl Record {
    /// The text of a member; None if it is no text.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.value.get(key).and_then(Value::as_str)
    }

    /// The text of a member, or an empty one.
    #[must_use]
    pub fn owned(&self, key: &str) -> String {
        self.text(key).unwrap_or_default().to_owned()
    }

    /// Whether a member is `true`.
    #[must_use]
    pub fn is(&self, key: &str) -> bool {
        self.value.get(key) == Some(&Value::Bool(true))
    }
}

/// How much was read, whatever it said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes.
    pub bytes: u64,
    /// Lines, blank ones and the last one without an end included.
    pub lines: u64,
    /// Lines with nothing but white space.
    pub blank_lines: u64,
    /// Records.
    pub records: u64,
    /// Records that stood on one line with another, or behind a piece of one.
    pub glued_records: u64,
    /// Pieces that are no record.
    pub bad: u64,
    /// The first [`MAX_LISTED`] of these.
    pub bad_lines: Vec<BadLine>,
    /// Records of which something could not be held as it is written.
    pub lossy: u64,
}

impl Counts {
    /// Counts a piece that is no record.
    pub(super) fn set_aside(&mut self, bad: BadLine) {
        self.bad += 1;
        if self.bad_lines.len() < MAX_LISTED {
            self.bad_lines.push(bad);
        }
    }
}

/// A file, read as a stream.
pub struct Source<'a> {
    path: &'a Path,
    /// The folder to look for companions in.
    folder: Option<PathBuf>,
    framer: Framer<Box<dyn Read + 'a>>,
    line: Option<Line>,
    pieces: VecDeque<Piece>,
    counts: Counts,
}

impl<'a> Source<'a> {
    /// The stream `input` under the name `path`. Nothing is looked up beside it.
    pub fn new(path: &'a Path, input: impl Read + 'a) -> Self {
        Self {
            path,
            folder: None,
            framer: Framer::new(Box::new(input), MAX_LINE_BYTES),
            line: None,
            pieces: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// The same, where `path` is a real one and companions may be looked up beside it.
    #[must_use]
    pub fn with_companions(mut self) -> Self {
        self.folder = self.path.parent().map(Path::to_owned);
        self
    }

    /// The path as it was named.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.path
    }

    /// The file name without its extension.
    #[must_use]
    pub fn stem(&self) -> String {
        let stem = self.path.file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    }

    /// The name of the folder `up` levels above: 0 is the one that the file lies in.
    #[must_use]
    pub fn folder_name(&self, up: usize) -> Option<&str> {
        let folder = self.path.ancestors().nth(up + 1)?;
        folder.file_name()?.to_str()
    }

    /// The content of a small file beside this one, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it is there and cannot be read.
    pub fn companion(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let plain = Path::new(name).file_name() == Some(name.as_ref());
        let Some(folder) = self.folder.as_ref().filter(|_| plain) else {
            return Ok(None);
        };
        let read = || -> io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            std::fs::File::open(folder.join(name))?
                .take(MAX_BESIDE_BYTES)
                .read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// The next record; None at the end. Lines that hold none are counted and set aside.
    ///
    /// `owns` says of a JSON object whether it can be a whole record of the format; it decides where a record begins
    /// behind a fragment that it is glued to.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be read.
    pub fn next(&mut self, owns: impl Fn(&Map<String, Value>) -> bool) -> Result<Option<Record>> {
        loop {
            let piece = self.pieces.pop_front();
            let (Some(piece), Some(line)) = (piece, self.line) else {
                if self.advance(&owns)? {
                    continue;
                }
                return Ok(None);
            };
            match piece {
                Piece::Record {
                    range,
                    value,
                    lossy,
                } => {
                    self.counts.records += 1;
                    self.counts.lossy += u64::from(lossy);
                    return Ok(Some(Record {
                        place: Place {
                            line: line.number,
                            offset: line.offset + range.start as u64,
                            length: range.len() as u64,
                            part: 0,
                        },
                        value,
                        lossy,
                        from: range.start,
                    }));
                }
                Piece::Bad { range, class } => self.set_aside(BadLine {
                    line: line.number,
                    offset: line.offset + range.start as u64,
                    length: range.len() as u64,
                    class,
                }),
            }
        }
    }

    /// Reads the next line and takes it apart; false at the end.
    fn advance(&mut self, owns: &dyn Fn(&Map<String, Value>) -> bool) -> Result<bool> {
        let line = match self.framer.next_line() {
            Ok(line) => line,
            Err(error) => return Err(self.failed(error)),
        };
        self.line = line;
        self.counts.bytes = self.framer.offset();
        let Some(line) = line else {
            return Ok(false);
        };
        self.counts.lines += 1;
        if line.over_long {
            self.set_aside(BadLine {
                line: line.number,
                offset: line.offset,
                length: line.length,
                class: BadClass::OverLong,
            });
            return Ok(true);
        }
        let bytes = self.framer.bytes();
        let skipped = if line.number == 1 && bytes.starts_with(BOM) {
            BOM.len()
        } else {
            0
        };
        let text = bytes.get(skipped..).unwrap_or_default();
        if split::is_blank(text) {
            self.counts.blank_lines += 1;
        } else {
            let split = split::split(text, line.ended, owns);
            self.counts.glued_records += split.glued as u64;
            self.pieces.extend(split.pieces);
            for piece in &mut self.pieces {
                let (Piece::Record { range, .. } | Piece::Bad { range, .. }) = piece;
                *range = range.start + skipped..range.end + skipped;
            }
        }
        if skipped > 0 {
            self.set_aside(BadLine {
                line: line.number,
                offset: line.offset,
                length: skipped as u64,
                class: BadClass::Bom,
            });
        }
        Ok(true)
    }

    fn set_aside(&mut self, bad: BadLine) {
        self.counts.set_aside(bad);
    }

    /// Sets a record aside that is none of the format after all.
    pub fn misfit(&mut self, record: &Record) {
        self.counts.records -= 1;
        self.counts.lossy -= u64::from(record.lossy);
        self.set_aside(BadLine {
            line: record.place.line,
            offset: record.place.offset,
            length: record.place.length,
            class: BadClass::WrongShape,
        });
    }

    /// Notes that a typed part of a record could not be held, where the record itself could.
    pub fn note_lossy(&mut self) {
        self.counts.lossy += 1;
    }

    /// The bytes of the record that was read last.
    #[must_use]
    pub fn bytes(&self, record: &Record) -> &[u8] {
        let length = usize::try_from(record.place.length).unwrap_or(usize::MAX);
        let end = record.from.saturating_add(length);
        self.framer
            .bytes()
            .get(record.from..end)
            .unwrap_or_default()
    }

    /// By what the record that was read last is known when it is imported again: its id and its bytes where the format
    /// gives it an id, else all bytes of the source up to its end.
    #[must_use]
    pub fn key(&self, record: &Record, id: Option<&str>) -> RepeatKey {
        let bytes = self.bytes(record);
        match id.filter(|id| !id.is_empty()) {
            Some(id) => RepeatKey::of(&[id.as_bytes(), bytes]),
            None => RepeatKey::of(&[&self.prefix_hash(record)]),
        }
    }

    /// The SHA-256 of the source up to the end of the record that was read last.
    #[must_use]
    pub fn prefix_hash(&self, record: &Record) -> [u8; 32] {
        self.framer
            .hash_up_to(record.from + self.bytes(record).len())
    }

    /// The whole source as one document, before any record of it was asked for.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be read, [`Error::TooLarge`] if it has more than `limit` bytes.
    pub fn whole(&mut self, limit: u64) -> Result<Vec<u8>> {
        let input: Box<dyn Read + 'a> = Box::new(io::empty());
        let framer = std::mem::replace(&mut self.framer, Framer::new(input, 0));
        let mut bytes = Vec::new();
        let mut rest = framer.into_rest();
        let read = rest
            .by_ref()
            .take(limit.saturating_add(1))
            .read_to_end(&mut bytes);
        let size = match read {
            Ok(read) => read as u64,
            Err(error) => return Err(self.failed(error)),
        };
        if size > limit {
            return Err(Error::TooLarge {
                what: "document",
                size,
                limit,
            });
        }
        let ends = bytes.split(|byte| *byte == b'\n').count() as u64 - 1;
        let tail = bytes.last().is_some_and(|byte| *byte != b'\n');
        self.counts.bytes = size;
        self.counts.lines = ends + u64::from(tail);
        Ok(bytes)
    }

    /// Reads what the codec left, so that all bytes passed by.
    pub(crate) fn drain(&mut self) -> Result<()> {
        loop {
            match self.framer.next_line() {
                Ok(Some(_)) => self.counts.lines += 1,
                Ok(None) => break,
                Err(error) => return Err(self.failed(error)),
            }
        }
        self.counts.bytes = self.counts.bytes.max(self.framer.offset());
        Ok(())
    }

    /// How much was read so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// For a codec that reads a [`whole`](Self::whole) document: what it found in it.
    pub fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::Io {
            what: format!("reading {}", self.path.display()),
            source: Arc::new(error),
        }
    }
}

impl std::fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("path", &self.path)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl RepeatKey {
    /// The key that is made of these parts.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let whole: [u8; 32] = hash.finalize().into();
        let mut key = [0; 16];
        for (to, from) in key.iter_mut().zip(whole) {
            *to = from;
        }
        Self(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> (Vec<(Place, RepeatKey, RepeatKey)>, Counts) {
        let mut source = Source::new(Path::new("x.jsonl"), bytes);
        let mut found = Vec::new();
        while let Some(record) = source.next(|value| value.contains_key("id")).unwrap() {
            assert_eq!(
                source.bytes(&record),
                &bytes[usize::try_from(record.place.offset).unwrap()..]
                    [..usize::try_from(record.place.length).unwrap()]
            );
            let named = source.key(&record, Some("a"));
            found.push((record.place, source.key(&record, None), named));
        }
        (found, source.counts().clone())
    }

    #[test]
    fn everything_of_a_file_is_counted_once() {
        let bytes = b"\xef\xbb\xbf{\"id\":1}\r\n\n[1]\n{\"id\":2}{\"id\":3}\n\0\0\n{\"t\":\"x{\"id\":4}\n{\"id";
        let (found, counts) = all(bytes);
        assert_eq!(found.len(), 4);
        assert_eq!(
            (
                counts.lines,
                counts.blank_lines,
                counts.records,
                counts.glued_records
            ),
            (7, 1, 4, 3)
        );
        let classes: Vec<_> = counts
            .bad_lines
            .iter()
            .map(|bad| (bad.line, bad.offset, bad.length, bad.class.name()))
            .collect();
        assert_eq!(
            classes,
            [
                (1, 0, 3, "bom"),
                (3, 14, 3, "wrong_shape"),
                (5, 35, 2, "nul_run"),
                (6, 38, 7, "fragment"),
                (7, 54, 4, "torn_tail"),
            ]
        );
        assert_eq!(counts.bytes, bytes.len() as u64);
    }

    #[test]
    fn equal_lines_are_told_apart_and_equal_beginnings_are_not() {
        let (found, _) = all(b"{\"id\":1}\n{\"id\":1}\n");
        assert_ne!(found[0].1, found[1].1);
        assert_eq!(found[0].2, found[1].2);
        let (grown, _) = all(b"{\"id\":1}\n{\"id\":1}\n{\"id\":2}");
        assert_eq!(grown[..2], found[..]);
    }
}
