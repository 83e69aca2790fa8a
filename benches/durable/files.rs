//! Plain files: a JSONL log a session, and the disk's own limit.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::peer::{Kind, Peer, Result, Writer};
use crate::work::{Turn, meta, preloaded};

/// A turn is appended to its session's file with one write and one fdatasync.
pub const JSONL: Kind = Kind {
    name: "JSONL, a file a session",
    make: |folder, turns, sessions| {
        for session in 0..sessions {
            let mut lines = Vec::new();
            for row in preloaded(turns, session) {
                serde_json::to_writer(&mut lines, &row)?;
                lines.push(b'\n');
            }
            let mut file = File::create(path(folder, session))?;
            file.write_all(&lines)?;
            file.sync_all()?;
        }
        File::open(folder)?.sync_all()?;
        Ok(Box::new(Jsonl(folder.to_owned())))
    },
};

fn path(folder: &Path, session: usize) -> PathBuf {
    folder.join(format!("{session}.jsonl"))
}

/// The lines of a turn: its rows, and one with its meta and usage.
fn lines(turn: &Turn, session: usize) -> Result<Vec<u8>> {
    let mut lines = Vec::with_capacity(16 << 10);
    for row in &turn.rows {
        serde_json::to_writer(&mut lines, row)?;
        lines.push(b'\n');
    }
    serde_json::to_writer(&mut lines, &(meta(session), &turn.usage))?;
    lines.push(b'\n');
    Ok(lines)
}

struct Jsonl(PathBuf);

struct JsonlWriter {
    first: usize,
    files: Vec<File>,
}

impl Peer for Jsonl {
    fn writer(&self, sessions: Range<usize>) -> Result<Box<dyn Writer + '_>> {
        let first = sessions.start;
        let files = sessions
            .map(|session| {
                Ok(OpenOptions::new()
                    .append(true)
                    .open(path(&self.0, session))?)
            })
            .collect::<Result<_>>()?;
        Ok(Box::new(JsonlWriter { first, files }))
    }
}

impl Writer for JsonlWriter {
    fn turn(&mut self, place: usize, turn: &Turn) -> Result<()> {
        let file = &mut self.files[place];
        file.write_all(&lines(turn, self.first + place)?)?;
        Ok(file.sync_data()?)
    }
}

/// The bytes of each turn's JSON, written to a file whose blocks are allocated, and one fdatasync: what the disk can do.
pub const RAW: Kind = Kind {
    name: "raw: write + fdatasync",
    make: |folder, turns, sessions| {
        let encoded: Vec<Vec<u8>> = turns
            .iter()
            .map(|turn| lines(turn, 0))
            .collect::<Result<_>>()?;
        let longest = encoded.iter().map(Vec::len).max().unwrap_or_default();
        let mut file = File::create_new(folder.join("raw"))?;
        let zeros = vec![0; longest];
        for _ in 0..sessions * crate::work::TURNS_OF_A_SESSION {
            file.write_all(&zeros)?;
        }
        file.sync_all()?;
        let end = AtomicU64::new(0);
        Ok(Box::new(Raw { file, end, encoded }))
    },
};

struct Raw {
    file: File,
    end: AtomicU64,
    encoded: Vec<Vec<u8>>,
}

struct RawWriter<'a>(&'a Raw);

impl Peer for Raw {
    fn writer(&self, _: Range<usize>) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(RawWriter(self)))
    }
}

impl Writer for RawWriter<'_> {
    fn turn(&mut self, _: usize, turn: &Turn) -> Result<()> {
        let bytes = &self.0.encoded[turn.number];
        let place = self.0.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.0.file.write_all_at(bytes, place)?;
        Ok(self.0.file.sync_data()?)
    }
}
