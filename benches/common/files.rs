//! Plain files: a JSONL log a session, and the disk's own limit.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rand::{SeedableRng as _, rngs::StdRng};
use transcript_redb::TranscriptMessage;

use crate::Result;
use crate::corpus::Text;
use crate::peer::{Kind, Peer, Reader, Writer};
use crate::work::{Turn, meta};

/// A turn is appended to its session's file with one write and one fdatasync.
pub const JSONL: Kind = Kind {
    name: "JSONL, a file a session",
    open: |folder| Ok(Box::new(Jsonl(folder.to_owned()))),
    build: |folder| Ok(Box::new(Jsonl(folder.to_owned()))),
    lookups: false,
    syncs: Some(1.0),
};

struct Jsonl(PathBuf);

impl Jsonl {
    fn path(&self, session: usize) -> PathBuf {
        self.0.join(format!("{session}.jsonl"))
    }

    fn append(&self, session: usize) -> Result<File> {
        let mut options = OpenOptions::new();
        Ok(options.append(true).create(true).open(self.path(session))?)
    }
}

/// The lines of a turn: its rows, and one with its meta and usage.
fn lines(turn: &Turn, session: usize) -> Result<Vec<u8>> {
    let mut lines = rows(&turn.rows)?;
    serde_json::to_writer(&mut lines, &(meta(session), &turn.usage))?;
    lines.push(b'\n');
    Ok(lines)
}

/// A line for each row.
pub fn rows(rows: &[TranscriptMessage]) -> Result<Vec<u8>> {
    let mut lines = Vec::with_capacity(16 << 10);
    for row in rows {
        serde_json::to_writer(&mut lines, row)?;
        lines.push(b'\n');
    }
    Ok(lines)
}

impl Peer for Jsonl {
    fn load(&self, session: usize, rows: &[TranscriptMessage]) -> Result<()> {
        Ok(self.append(session)?.write_all(&self::rows(rows)?)?)
    }

    fn writer(&self, session: usize) -> Result<Box<dyn Writer + '_>> {
        let file = self.append(session)?;
        Ok(Box::new(JsonlWriter { session, file }))
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(JsonlReader(self)))
    }

    fn checkpoint(&self) -> Result<()> {
        for entry in fs::read_dir(&self.0)? {
            File::open(entry?.path())?.sync_all()?;
        }
        Ok(File::open(&self.0)?.sync_all()?)
    }

    fn compact(&self) -> Result<()> {
        Ok(())
    }
}

struct JsonlWriter {
    session: usize,
    file: File,
}

impl Writer for JsonlWriter {
    fn turn(&mut self, turn: &Turn) -> Result<()> {
        self.file.write_all(&lines(turn, self.session)?)?;
        Ok(self.file.sync_data()?)
    }
}

struct JsonlReader<'a>(&'a Jsonl);

/// A message; `None` for the line of a turn's meta and usage.
fn message(line: &str) -> Result<Option<TranscriptMessage>> {
    if line.starts_with('[') {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(line)?))
}

impl Reader for JsonlReader<'_> {
    fn resume(&mut self, session: usize) -> Result<Vec<TranscriptMessage>> {
        let text = fs::read_to_string(self.0.path(session))?;
        let messages = text.lines().map(message);
        messages.filter_map(Result::transpose).collect()
    }

    fn page(&mut self, session: usize, limit: usize) -> Result<usize> {
        let mut file = File::open(self.0.path(session))?;
        let end = file.metadata()?.len();
        let mut window = 64 << 10;
        loop {
            let start = end.saturating_sub(window);
            file.seek(SeekFrom::Start(start))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            // The first line of a window is cut, unless the window is the whole file.
            let cut = usize::from(start > 0);
            let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').skip(cut).collect();
            let whole = lines.iter().filter(|line| line.starts_with(b"{"));
            if start == 0 || whole.clone().count() >= limit {
                let mut messages: Vec<TranscriptMessage> = whole
                    .rev()
                    .take(limit)
                    .map(|line| Ok(serde_json::from_slice(line)?))
                    .collect::<Result<_>>()?;
                messages.reverse();
                return Ok(messages.len());
            }
            window *= 2;
        }
    }
}

/// The bytes of turns' JSON, written to a file whose blocks are allocated, and one fdatasync each: what the disk can do.
pub const RAW: Kind = Kind {
    name: "raw: write + fdatasync",
    open: raw,
    build: raw,
    lookups: false,
    syncs: Some(1.0),
};

fn raw(folder: &Path) -> Result<Box<dyn Peer>> {
    Ok(Box::new(Raw::open(folder)?))
}

/// Bytes of the file; writing starts over at its end.
const RAW_BYTES: u64 = 64 << 20;

struct Raw {
    file: File,
    end: AtomicU64,
    /// Encoded before anything is timed.
    encoded: Vec<Vec<u8>>,
}

impl Raw {
    fn open(folder: &Path) -> Result<Self> {
        let text = Text::load();
        let random = &mut StdRng::seed_from_u64(11);
        let encoded = (0..64)
            .map(|number| lines(&Turn::new(number, text, random), 0))
            .collect::<Result<_>>()?;
        let mut file = File::create(folder.join("raw"))?;
        let zeros = vec![0; 1 << 20];
        for _ in 0..RAW_BYTES / zeros.len() as u64 {
            file.write_all(&zeros)?;
        }
        file.sync_all()?;
        let end = AtomicU64::new(0);
        Ok(Self { file, end, encoded })
    }
}

impl Peer for Raw {
    fn load(&self, _: usize, _: &[TranscriptMessage]) -> Result<()> {
        Ok(())
    }

    fn writer(&self, session: usize) -> Result<Box<dyn Writer + '_>> {
        let turns = self
            .encoded
            .iter()
            .cycle()
            .skip(session % self.encoded.len());
        Ok(Box::new(RawWriter { raw: self, turns }))
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Err("nothing is read back".into())
    }

    fn checkpoint(&self) -> Result<()> {
        Ok(self.file.sync_all()?)
    }

    fn compact(&self) -> Result<()> {
        Ok(())
    }
}

struct RawWriter<'a, T> {
    raw: &'a Raw,
    turns: T,
}

impl<'a, T: Iterator<Item = &'a Vec<u8>> + Send> Writer for RawWriter<'a, T> {
    fn turn(&mut self, _: &Turn) -> Result<()> {
        let bytes = self.turns.next().ok_or("the turns go on for ever")?;
        let length = bytes.len() as u64;
        let place = self.raw.end.fetch_add(length, Ordering::Relaxed) % (RAW_BYTES - (1 << 20));
        self.raw.file.write_all_at(bytes, place)?;
        Ok(self.raw.file.sync_data()?)
    }
}
