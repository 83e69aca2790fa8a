//! The bytes of a source: chunks that are stored once by their hash.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

use super::step::{ChunkHash, ImportStep, SourceChange, SourceEntry, SourceRef, Stage};
use super::{Import, STEP_BYTES, step};
use crate::store::engine::Engine;
use crate::{Error, Result};

/// Bytes of a chunk. A file that has grown shares all chunks of its former length but the last.
const CHUNK_BYTES: usize = 256 << 10;

/// A file that was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceInfo {
    /// Its number in this store.
    pub id: u64,
    /// The path that it was imported from: the folder's name from the root on, without links, and the file's.
    pub path: String,
    /// The format that it was read as.
    pub format: String,
    /// The version of the codec that read it.
    pub codec_version: u32,
    /// Its length in bytes.
    pub length: u64,
    /// The SHA-256 of its bytes.
    pub hash: [u8; 32],
}

/// The bytes of a source, as they are put into the store.
pub(crate) struct ChunkWriter<'e> {
    engine: &'e Engine,
    import: u64,
    buffer: Vec<u8>,
    stage: Stage,
    staged: bool,
    whole: Sha256,
    length: u64,
    chunks: Vec<ChunkHash>,
}

/// What a source is known by once all of it was read.
pub(crate) struct SourceText {
    pub(crate) path: String,
    pub(crate) format: String,
    pub(crate) codec_version: u32,
    length: u64,
    hash: [u8; 32],
    chunks: Vec<ChunkHash>,
    stage: Stage,
    staged: bool,
}

impl std::fmt::Debug for ChunkWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkWriter")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl<'e> ChunkWriter<'e> {
    /// Writes the source of an import.
    pub(crate) fn new(import: &Import<'e>) -> Self {
        Self::of(import.engine, import.id)
    }

    /// Writes a source of the import with this number.
    pub(super) fn of(engine: &'e Engine, import: u64) -> Self {
        Self {
            engine,
            import,
            buffer: Vec::with_capacity(CHUNK_BYTES),
            stage: Stage {
                import,
                ..Stage::default()
            },
            staged: false,
            whole: Sha256::new(),
            length: 0,
            chunks: Vec::new(),
        }
    }

    /// Takes the next bytes.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.whole.update(bytes);
        self.length += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = CHUNK_BYTES - self.buffer.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == CHUNK_BYTES {
                self.chunk()?;
            }
        }
        Ok(())
    }

    fn chunk(&mut self) -> Result<()> {
        let hash: ChunkHash = Sha256::digest(&self.buffer).into();
        if !self.engine.snapshot(|reader| reader.has_chunk(&hash))? {
            let packed = lz4_flex::compress_prepend_size(&self.buffer);
            self.stage.chunks.push((hash, packed));
        }
        self.chunks.push(hash);
        self.buffer.clear();
        if self.stage.weight() >= STEP_BYTES {
            let next = Stage {
                import: self.import,
                ..Stage::default()
            };
            let stage = std::mem::replace(&mut self.stage, next);
            self.staged = true;
            step(self.engine, ImportStep::Stage(stage))?;
        }
        Ok(())
    }

    /// The source, all of which was written.
    pub(crate) fn finish(
        mut self,
        path: String,
        format: &str,
        codec_version: u32,
    ) -> Result<SourceText> {
        if !self.buffer.is_empty() {
            self.chunk()?;
        }
        Ok(SourceText {
            path,
            format: format.to_owned(),
            codec_version,
            length: self.length,
            hash: self.whole.finalize().into(),
            chunks: self.chunks,
            stage: self.stage,
            staged: self.staged,
        })
    }
}

impl SourceText {
    /// The source, the chunks that are still to be stored, and whether some are stored already.
    pub(super) fn into_parts(self) -> (SourceEntry, Stage, bool) {
        let entry = SourceEntry {
            path: self.path,
            format: self.format,
            codec_version: self.codec_version,
            length: self.length,
            hash: self.hash,
            chunks: self.chunks,
        };
        (entry, self.stage, self.staged)
    }
}

impl Import<'_> {
    /// What the records of the import come from, and what publishing that changes; nothing if the store has it already
    /// and it tells of nothing new.
    pub(super) fn source_change(
        &mut self,
        text: SourceText,
    ) -> Result<(Option<SourceRef>, Option<SourceChange>)> {
        self.staged |= text.staged;
        let before = self.engine.read(|reader| reader.source_at(&text.path))?;
        let touched: Vec<u64> = self.sessions.iter().map(|open| open.transcript).collect();
        let codec_version = text.codec_version;
        let of = |id| Some(SourceRef { id, codec_version });
        let mut id = self.id;
        if let Some((known, entry)) = before {
            let same = entry.format == text.format;
            if same && entry.hash == text.hash {
                let told = self.engine.read(|reader| reader.transcripts_of(known))?;
                if touched.iter().all(|transcript| told.contains(transcript)) && !self.staged {
                    return Ok((of(known), None));
                }
                id = known;
            } else if same && self.is_grown(&entry, &text)? {
                // It is the same file with more in it: its former bytes need not be kept twice.
                id = known;
            }
        }
        self.stage.chunks.extend(text.stage.chunks);
        let change = SourceChange {
            id,
            entry: SourceEntry {
                path: text.path,
                format: text.format,
                codec_version: text.codec_version,
                length: text.length,
                hash: text.hash,
                chunks: text.chunks,
            },
            transcripts: touched,
        };
        Ok((of(id), Some(change)))
    }

    /// Whether a source begins with all that it was before.
    fn is_grown(&self, before: &SourceEntry, after: &SourceText) -> Result<bool> {
        let Some((last, whole)) = before.chunks.split_last() else {
            return Ok(true);
        };
        if before.length > after.length || after.chunks.get(..whole.len()) != Some(whole) {
            return Ok(false);
        }
        let Some(new) = after.chunks.get(whole.len()) else {
            return Ok(false);
        };
        if new == last {
            return Ok(true);
        }
        let last = self.engine.read(|reader| reader.chunk(last))?;
        let staged = after.stage.chunks.iter().find(|(hash, _)| hash == new);
        let new = match staged {
            Some((_, packed)) => unpack(packed)?,
            None => self.engine.read(|reader| reader.chunk(new))?,
        };
        Ok(new.starts_with(&last))
    }
}

/// The content of a stored chunk.
pub(in crate::store) fn unpack(packed: &[u8]) -> Result<Vec<u8>> {
    let damaged = || Error::Corrupted {
        what: "a chunk of a source".to_owned(),
        at: "it does not unpack".to_owned(),
    };
    // The size in front is damaged bytes, too, if the chunk is.
    let size = packed
        .first_chunk::<4>()
        .map(|size| u32::from_le_bytes(*size));
    if size.is_none_or(|size| size as usize > CHUNK_BYTES) {
        return Err(damaged());
    }
    lz4_flex::decompress_size_prepended(packed).map_err(|_| damaged())
}

/// A source, read from the store chunk by chunk.
#[derive(Debug)]
pub(crate) struct SourceBytes<'e> {
    engine: &'e Engine,
    chunks: std::vec::IntoIter<ChunkHash>,
    held: io::Cursor<Vec<u8>>,
}

impl<'e> SourceBytes<'e> {
    pub(in crate::store) fn new(engine: &'e Engine, entry: SourceEntry) -> Self {
        Self {
            engine,
            chunks: entry.chunks.into_iter(),
            held: io::Cursor::default(),
        }
    }
}

impl Read for SourceBytes<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.held.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(hash) = self.chunks.next() else {
                return Ok(0);
            };
            let chunk = self.engine.read(|reader| reader.chunk(&hash));
            self.held = io::Cursor::new(chunk.map_err(io::Error::other)?);
        }
    }
}
