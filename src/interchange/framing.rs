//! Lines of a file: framed by the byte 0x0A and nothing else, one at a time, in bounded memory.

use std::io::{self, BufRead, BufReader, Read};

use sha2::{Digest, Sha256};

/// How many bytes are read at once.
const READ_BYTES: usize = 64 << 10;

/// The longest line that is read whole, unless a [`Framer`] is told otherwise: what the store takes as one record.
pub const MAX_LINE_BYTES: u64 = 256 << 20;

/// One line, without what ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Its number, 1 for the first.
    pub number: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// Its length without the LF, and without a CR before that.
    pub length: u64,
    /// Whether a LF ends it. Only the last line of a file can lack it.
    pub ended: bool,
    /// Whether it was too long to be read; its bytes are not there.
    pub over_long: bool,
}

/// Cuts a stream of bytes into lines. Holds one line at a time.
///
/// It also hashes what it reads, so that a line can be named by everything up to its end: two files with equal
/// beginnings give equal names to the lines of it, and equal lines in one file have different ones.
pub struct Framer<R> {
    input: BufReader<R>,
    limit: u64,
    /// The bytes of the line as read, with its end.
    raw: Vec<u8>,
    /// Where the next line begins.
    offset: u64,
    number: u64,
    /// The hash of everything before the current line.
    before: Sha256,
    /// Whether `raw` is hashed already: it is when the line was too long to be held.
    hashed: bool,
}

impl<R: Read> Framer<R> {
    /// Frames `input`. Lines of more than `limit` bytes are skipped, and said to be over-long.
    pub fn new(input: R, limit: u64) -> Self {
        Self {
            input: BufReader::with_capacity(READ_BYTES, input),
            limit,
            raw: Vec::new(),
            offset: 0,
            number: 0,
            before: Sha256::new(),
            hashed: true,
        }
    }

    /// The next line; None at the end. Its bytes are in [`bytes`](Self::bytes) until the next call.
    ///
    /// # Errors
    ///
    /// What reading answers.
    pub fn next_line(&mut self) -> io::Result<Option<Line>> {
        if !self.hashed {
            self.before.update(&self.raw);
        }
        // One giant line must not hold its memory to the end of the file.
        if self.raw.capacity() > (16 << 20) {
            self.raw = Vec::new();
        }
        self.raw.clear();
        self.hashed = false;
        // A CR and a LF may stand behind the bytes that count.
        let most = self.limit.saturating_add(2);
        let mut read = io::Read::by_ref(&mut self.input)
            .take(most)
            .read_until(b'\n', &mut self.raw)? as u64;
        if read == 0 {
            self.hashed = true;
            return Ok(None);
        }
        let mut ended = self.raw.last() == Some(&b'\n');
        let mut last = self.before_end();
        if !ended && read == most {
            self.before.update(&self.raw);
            self.hashed = true;
            self.raw.clear();
            (read, ended, last) = self.skip_rest(read)?;
        }
        let ends = u64::from(ended) + u64::from(ended && last == Some(b'\r'));
        let line = Line {
            number: self.number + 1,
            offset: self.offset,
            length: read - ends,
            ended,
            over_long: read - ends > self.limit,
        };
        self.number += 1;
        self.offset += read;
        Ok(Some(line))
    }

    /// The byte before the LF of the line in the buffer.
    fn before_end(&self) -> Option<u8> {
        let at = self.raw.len().checked_sub(2)?;
        self.raw.get(at).copied()
    }

    /// Reads on to the end of a line that is not kept: its length, whether a LF ends it, and the byte before that.
    fn skip_rest(&mut self, mut read: u64) -> io::Result<(u64, bool, Option<u8>)> {
        let mut last = None;
        loop {
            let held = self.input.fill_buf()?;
            if held.is_empty() {
                return Ok((read, false, last));
            }
            let end = held.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(held.len(), |end| end + 1);
            let part = held.get(..taken).unwrap_or_default();
            let text = part.len() - usize::from(end.is_some());
            last = part
                .get(..text)
                .and_then(|text| text.last().copied())
                .or(last);
            self.before.update(part);
            self.input.consume(taken);
            read += taken as u64;
            if end.is_some() {
                return Ok((read, true, last));
            }
        }
    }

    /// The bytes of the current line, without its end; empty if it was too long.
    pub fn bytes(&self) -> &[u8] {
        let text = self
            .raw
            .strip_suffix(b"\n")
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        text.unwrap_or(&self.raw)
    }

    /// The hash of the whole file up to byte `end` of the current line.
    pub fn hash_up_to(&self, end: usize) -> [u8; 32] {
        let mut hash = self.before.clone();
        if !self.hashed {
            hash.update(self.raw.get(..end).unwrap_or(&self.raw));
        }
        hash.finalize().into()
    }

    /// How many bytes the lines so far have.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Everything that was not read yet.
    pub fn into_rest(self) -> impl Read {
        self.input
    }
}

impl<R> std::fmt::Debug for Framer<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Framer")
            .field("line", &self.number)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8], limit: u64) -> Vec<(Line, Vec<u8>)> {
        let mut framer = Framer::new(bytes, limit);
        let mut lines = Vec::new();
        while let Some(line) = framer.next_line().unwrap() {
            lines.push((line, framer.bytes().to_vec()));
        }
        assert_eq!(framer.offset(), bytes.len() as u64);
        lines
    }

    #[test]
    fn only_the_byte_0a_ends_a_line() {
        let text = "a\u{2028}b\rc\u{85}d\r\n\n\r\nlast".as_bytes();
        let found = lines(text, 100);
        let texts: Vec<_> = found.iter().map(|(_, bytes)| bytes.as_slice()).collect();
        assert_eq!(
            texts,
            ["a\u{2028}b\rc\u{85}d".as_bytes(), b"", b"", b"last"]
        );
        let places: Vec<_> = found
            .iter()
            .map(|(line, _)| (line.number, line.offset, line.length, line.ended))
            .collect();
        assert_eq!(
            places,
            [
                (1, 0, 10, true),
                (2, 12, 0, true),
                (3, 13, 0, true),
                (4, 15, 4, false)
            ]
        );
    }

    #[test]
    fn an_over_long_line_is_skipped_and_the_next_is_read() {
        let text = [&vec![b'x'; 200_000][..], b"\r\nok\n", &[b'y'; 11]].concat();
        let found = lines(&text, 10);
        assert_eq!(found.len(), 3);
        assert!(found[0].0.over_long && found[0].1.is_empty());
        assert_eq!(found[0].0.length, 200_000);
        assert_eq!(found[1].1, b"ok");
        assert!(found[2].0.over_long && !found[2].0.ended);
        for (line, ending) in [
            ("0123456789", "\r\n"),
            ("0123456789", "\n"),
            ("0123456789", ""),
        ] {
            let found = lines(format!("{line}{ending}").as_bytes(), 10);
            assert!(!found[0].0.over_long, "{ending:?}");
            assert_eq!(found[0].1, line.as_bytes());
        }
    }

    #[test]
    fn a_line_is_named_by_everything_up_to_its_end() {
        let name = |bytes: &[u8], line: u64| {
            let mut framer = Framer::new(bytes, 4);
            loop {
                let found = framer.next_line().unwrap().unwrap();
                if found.number == line {
                    return framer.hash_up_to(framer.bytes().len());
                }
            }
        };
        let whole: [u8; 32] = Sha256::digest(b"too long a line\nab\nab").into();
        assert_eq!(name(b"too long a line\nab\nab\nc", 3), whole);
        assert_eq!(name(b"a\nb\n", 2), name(b"a\nb", 2));
        assert_ne!(name(b"a\na\n", 1), name(b"a\na\n", 2));
        assert_ne!(name(b"x\na\n", 2), name(b"y\na\n", 2));
    }
}
