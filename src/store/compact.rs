//! Compaction: packing what is stored more tightly, and giving the space back.
//!
//! Three steps, each of bounded transactions that leave the store whole, with the same content, wherever they are cut
//! off:
//!
//! 1. Records move, in order, from the log into a second table, packed on the way; a position is in one of the two.
//!    When all are there, the second table takes the first one's place. What a cut-off compaction moved stays moved.
//! 2. Large content is packed and appended to its stream anew; the blocks that it leaves are removed.
//! 3. redb moves its pages to the front of the file and cuts the file off. Only this needs the database alone.
//!
//! Rows in live contexts are packed with lz4, which a resume hardly notices, all others with zstd and a dictionary
//! that is learned from them. Each remembers that it was tried, so that nothing is tried twice.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, TryLockError};
use std::time::Duration;

use redb::{ReadableTable as _, ReadableTableMetadata as _, WriteTransaction};

use super::apply::Blobs;
use super::binary;
use super::blob::{BLOCK_BYTES, Blob};
use super::codec::{Codec, Dictionary, Zstd, pack_lz4};
use super::database::{Level, WriteError, storage_error, table_error};
use super::engine::Engine;
use super::envelope::{self, Envelope};
use super::head::Range;
use super::read::Reader;
use super::stats::FileSizes;
use super::tables;
use crate::{Error, Result};

/// Bytes that one transaction rewrites, roughly.
const BATCH_BYTES: usize = 4 << 20;

/// Rows that are looked at on one snapshot.
const PAGE_ROWS: usize = 4096;

/// The log is rewritten if more than one part in so many has something to gain.
const WORTHWHILE: u64 = 20;

/// Content up to this size moves with its neighbours even if it cannot be packed better, so that no gaps remain.
const MOVED_ALONG_BYTES: u64 = 128 << 10;

/// Records that a dictionary is learned from, at most.
const SAMPLES: u64 = 2000;
/// Bytes of each that count.
const SAMPLE_BYTES: usize = 8 << 10;
/// A dictionary is as large as a part of what it is for, within limits.
const DICTIONARY_PART: usize = 64;
const DICTIONARY_BYTES: std::ops::RangeInclusive<usize> = 16 << 10..=112 << 10;

/// The space is asked back so many times while that still makes the file smaller.
const SHRINK_ROUNDS: usize = 6;

const DEFAULT_WAIT: Duration = Duration::from_secs(5);

/// What a record or content is packed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Use {
    /// It is in a live context: it must be read fast.
    Live = 1,
    /// It is history.
    Past = 2,
}

impl Use {
    fn level(self) -> u8 {
        self as u8
    }
}

/// How to compact.
#[must_use]
pub struct CompactOptions<'a> {
    wait: Duration,
    progress: Option<Box<dyn FnMut(CompactProgress) + 'a>>,
}

impl fmt::Debug for CompactOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactOptions")
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

impl Default for CompactOptions<'_> {
    fn default() -> Self {
        Self {
            wait: DEFAULT_WAIT,
            progress: None,
        }
    }
}

impl<'a> CompactOptions<'a> {
    /// How long, while space is given back, a read waits for it before it is [`Error::Busy`], and before that the
    /// compaction for reads under way. Five seconds unless set. Writes wait as long as it takes.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Called after each step, on the calling thread.
    pub fn progress(mut self, progress: impl FnMut(CompactProgress) + 'a) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    fn report(&mut self, step: CompactStep, done: u64, total: u64) {
        if let Some(progress) = &mut self.progress {
            progress(CompactProgress { step, done, total });
        }
    }
}

/// How far a compaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactProgress {
    /// What it is doing.
    pub step: CompactStep,
    /// Units of this step that are done.
    pub done: u64,
    /// Units of this step, roughly.
    pub total: u64,
}

/// A step of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompactStep {
    /// Records are packed. Counted in records.
    Records,
    /// Large content is packed. Counted in contents.
    Content,
    /// Space is given back. Counted in rounds.
    Space,
}

/// What a compaction came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactReport {
    /// Records that were rewritten.
    pub records: u64,
    /// Large contents that were rewritten.
    pub contents: u64,
    /// Bytes that the file occupied on disk before; 0 in memory.
    pub allocated_before: u64,
    /// Bytes that it occupies now; 0 in memory.
    pub allocated_after: u64,
}

impl Engine {
    /// Packs everything and gives the space back.
    pub(super) fn compact(&self, mut options: CompactOptions<'_>) -> Result<CompactReport> {
        self.writable()?;
        let _only = match self.compacting.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Busy {
                    what: "another compaction is under way",
                });
            }
        };
        // What is only in the journal yet is packed as well.
        self.checkpoint()?;
        let sizes = || FileSizes::of(self.path.as_deref());
        let before = sizes()?;
        // What is written from here on is as it should be, and left alone.
        let bounds = self.read(|reader| {
            let last = reader.log()?.rest().last().map_err(storage_error)?;
            Ok(Bounds {
                last: last.map_or(0, |(last, _)| last.value()),
                stream: reader.large_contents()?.1,
            })
        })?;
        let live = self.live_positions()?;
        let survey = self.survey(bounds, &live)?;
        let mut packer = Packer::new(self, &survey)?;
        let records = self.move_records(&live, &survey, &mut packer, &mut options)?;
        let contents = self.move_contents(&survey, &mut packer, &mut options)?;
        let mut last = sizes()?.file;
        let mut futile = 0;
        for round in 1..=SHRINK_ROUNDS {
            self.database.compact(options.wait)?;
            options.report(CompactStep::Space, round as u64, SHRINK_ROUNDS as u64);
            let now = sizes()?.file;
            // A page near the end that finds no room stays in the way, but the next commits may have moved what it needs.
            futile = if now < last { 0 } else { futile + 1 };
            if futile > 1 {
                break;
            }
            last = now;
        }
        Ok(CompactReport {
            records,
            contents,
            allocated_before: before.allocated,
            allocated_after: sizes()?.allocated,
        })
    }

    fn change<T>(&self, change: impl Fn(&WriteTransaction) -> Result<T>) -> Result<T> {
        // What was rewritten is the same content: it does not matter whether a commit that failed took effect.
        self.database
            .write(Level::Durable, change)
            .map_err(WriteError::into_error)
    }

    /// The positions of all records that a live context is made of, ascending.
    fn live_positions(&self) -> Result<Vec<u64>> {
        let mut live = Vec::new();
        let mut next = 0;
        while let Some(from) = self.read(|reader| {
            let page = reader.transcript_ids(next, PAGE_ROWS / 16)?;
            for id in &page {
                live_of(reader, *id, &mut live)?;
            }
            Ok(page.last().map(|last| last + 1))
        })? {
            next = from;
        }
        live.sort_unstable();
        live.dedup();
        Ok(live)
    }

    /// Looks at every record, without unpacking any but some samples.
    fn survey(&self, bounds: Bounds, live: &[u64]) -> Result<Survey> {
        let mut survey = Survey {
            bounds,
            ..Survey::default()
        };
        let mut next = 0;
        loop {
            let page = self.read(|reader| {
                let log = reader.log()?;
                let compacted = log.compacted()?;
                let rows = log.rest().len().map_err(storage_error)?;
                let moved = compacted
                    .as_ref()
                    .map_or(Ok(0), |table| table.len().map_err(storage_error))?;
                survey.unfinished = compacted.is_some();
                survey.stride = ((rows + moved) / SAMPLES).max(1);
                let mut seen = 0;
                for table in compacted.iter().chain([log.rest()]) {
                    for entry in table.range(next..=bounds.last).map_err(storage_error)? {
                        if seen == PAGE_ROWS {
                            break;
                        }
                        let (position, bytes) = entry.map_err(storage_error)?;
                        survey.look(reader, live, position.value(), bytes.value())?;
                        next = position.value() + 1;
                        seen += 1;
                    }
                }
                Ok(seen)
            })?;
            if page < PAGE_ROWS {
                return Ok(survey);
            }
        }
    }

    /// Moves the log into a table of packed records that takes its place.
    fn move_records(
        &self,
        live: &[u64],
        survey: &Survey,
        packer: &mut Packer,
        options: &mut CompactOptions<'_>,
    ) -> Result<u64> {
        if !survey.unfinished && survey.wanting <= survey.bytes / WORTHWHILE {
            return Ok(0);
        }
        let mut moved = 0;
        loop {
            let batch = self.read(|reader| {
                let mut batch = Vec::new();
                let mut bytes = 0;
                // The last record stays until the end: an append looks there for the next position.
                for entry in reader
                    .log()?
                    .rest()
                    .range(..survey.bounds.last)
                    .map_err(storage_error)?
                {
                    let (position, record) = entry.map_err(storage_error)?;
                    let position = position.value();
                    let record = packer.record(reader, record.value(), use_of(live, position))?;
                    bytes += record.len();
                    batch.push((position, record));
                    if bytes > BATCH_BYTES || batch.len() >= PAGE_ROWS {
                        break;
                    }
                }
                Ok(batch)
            })?;
            if batch.is_empty() {
                break;
            }
            self.change(|transaction| move_batch(transaction, &batch))?;
            moved += batch.len() as u64;
            options.report(CompactStep::Records, moved, survey.records);
        }
        self.change(take_place)?;
        Ok(moved)
    }

    /// Packs large content anew and lets it move together.
    fn move_contents(
        &self,
        survey: &Survey,
        packer: &mut Packer,
        options: &mut CompactOptions<'_>,
    ) -> Result<u64> {
        let end = survey.bounds.stream;
        let (mut entries, _) = self.read(|reader| reader.large_contents())?;
        entries.retain(|(_, entry)| entry.offset < end);
        let starts: Vec<u64> = entries.iter().map(|(_, it)| it.offset).collect();
        let mut rewritten = 0;
        let mut kept_to = 0;
        let mut gap = false;
        let mut rest = entries.iter().zip(1_usize..).peekable();
        while rest.peek().is_some() {
            let mut batch = Vec::new();
            self.read(|reader| {
                let mut bytes = 0;
                while bytes <= BATCH_BYTES && batch.len() < PAGE_ROWS {
                    let Some(((hash, entry), next)) = rest.next() else {
                        break;
                    };
                    let wanted = if survey.live_contents.contains(hash) {
                        Use::Live
                    } else {
                        Use::Past
                    };
                    let Some(rewrite) = packer.content(reader, entry, wanted, gap)? else {
                        kept_to = entry.blocks().end() + 1;
                        gap = false;
                        continue;
                    };
                    let mut freed = Vec::new();
                    if rewrite.bytes.is_some() {
                        let shared = starts.get(next).copied().unwrap_or(end) / BLOCK_BYTES;
                        freed.extend(
                            entry
                                .blocks()
                                .filter(|block| (kept_to..).contains(block) && *block != shared),
                        );
                        gap = true;
                    } else {
                        kept_to = entry.blocks().end() + 1;
                        gap = false;
                    }
                    bytes += 64 + rewrite.bytes.as_ref().map_or(0, Vec::len);
                    batch.push(Repacked {
                        hash: *hash,
                        offset: entry.offset,
                        rewrite,
                        freed,
                    });
                }
                Ok(())
            })?;
            if !batch.is_empty() {
                self.change(|transaction| repack_contents(transaction, &batch))?;
            }
            rewritten += batch.iter().filter(|it| it.rewrite.bytes.is_some()).count() as u64;
            let done = rest.peek().map_or(entries.len(), |(_, next)| next - 1);
            options.report(CompactStep::Content, done as u64, entries.len() as u64);
        }
        Ok(rewritten)
    }
}

/// Adds the positions of what the live context of a transcript is made of.
fn live_of(reader: &mut Reader<'_>, id: u64, live: &mut Vec<u64>) -> Result<()> {
    let transcript = reader.transcript(id)?;
    let head = &transcript.head;
    if head.sealed {
        return Ok(());
    }
    let single = |seq: u64| Range {
        transcript: id,
        first: seq,
        end: seq + 1,
    };
    let mut ranges = reader.context_ranges(id, head)?;
    ranges.extend(head.tools.map(|tools| single(tools.seq)));
    ranges.extend(head.context.base_record.map(single));
    for range in ranges {
        live.extend(reader.positions(range)?.into_iter().map(|(_, at)| at));
    }
    Ok(())
}

fn use_of(live: &[u64], position: u64) -> Use {
    match live.binary_search(&position) {
        Ok(_) => Use::Live,
        Err(_) => Use::Past,
    }
}

fn move_batch(transaction: &WriteTransaction, batch: &[(u64, Vec<u8>)]) -> Result<()> {
    let mut log = transaction.open_table(tables::LOG).map_err(table_error)?;
    let mut compacted = transaction
        .open_table(tables::LOG_COMPACTED)
        .map_err(table_error)?;
    for (position, record) in batch {
        if log.remove(*position).map_err(storage_error)?.is_some() {
            compacted
                .insert(*position, record.as_slice())
                .map_err(storage_error)?;
        }
    }
    Ok(())
}

/// Moves what is left of the log as it is, and the table that then holds all of it to the log's place.
fn take_place(transaction: &WriteTransaction) -> Result<()> {
    let log = transaction.open_table(tables::LOG).map_err(table_error)?;
    let mut compacted = transaction
        .open_table(tables::LOG_COMPACTED)
        .map_err(table_error)?;
    for entry in log.iter().map_err(storage_error)? {
        let (position, record) = entry.map_err(storage_error)?;
        compacted
            .insert(position.value(), record.value())
            .map_err(storage_error)?;
    }
    drop((log, compacted));
    transaction.delete_table(tables::LOG).map_err(table_error)?;
    transaction
        .rename_table(tables::LOG_COMPACTED, tables::LOG)
        .map_err(table_error)
}

/// Large content that was looked at, and the blocks that become free if it moves.
struct Repacked {
    hash: u128,
    /// Where it was.
    offset: u64,
    rewrite: Rewrite,
    freed: Vec<u64>,
}

fn repack_contents(transaction: &WriteTransaction, batch: &[Repacked]) -> Result<()> {
    let mut blobs = Blobs::open(transaction)?;
    for it in batch {
        // Its references may have changed meanwhile.
        let Some(entry) = blobs.get(it.hash)?.filter(|now| now.offset == it.offset) else {
            continue;
        };
        match &it.rewrite.bytes {
            None => blobs.mark(it.hash, it.rewrite.entry(entry, it.offset, entry.stored)),
            Some(bytes) => blobs.store(it.hash, bytes, |offset| {
                it.rewrite.entry(entry, offset, bytes.len() as u64)
            })?,
        }
        for block in &it.freed {
            blobs.remove_block(*block)?;
        }
    }
    blobs.flush()
}

/// Where log and stream of large content end when a compaction begins.
#[derive(Clone, Copy, Default)]
struct Bounds {
    /// The position of the last record.
    last: u64,
    stream: u64,
}

/// What is in the log.
#[derive(Default)]
struct Survey {
    records: u64,
    bytes: u64,
    /// Bytes of records that were not packed for what they are now.
    wanting: u64,
    bounds: Bounds,
    /// Whether a compaction was cut off.
    unfinished: bool,
    live_contents: HashSet<u128>,
    /// Bytes of records that are history.
    past: usize,
    /// Every how many-th record is a sample.
    stride: u64,
    samples: Vec<Vec<u8>>,
}

impl Survey {
    fn look(
        &mut self,
        reader: &Reader<'_>,
        live: &[u64],
        position: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let wanted = use_of(live, position);
        let (level, contents) = envelope::packing_of(bytes)?;
        self.records += 1;
        self.bytes += bytes.len() as u64;
        if level < wanted.level() {
            self.wanting += bytes.len() as u64;
        }
        if wanted == Use::Live {
            self.live_contents.extend(contents);
            return Ok(());
        }
        self.past += bytes.len();
        if position.is_multiple_of(self.stride) {
            let record = Envelope::open(bytes, reader.contents())?;
            let mut room = Vec::new();
            let whole = record.whole(reader.contents(), &mut room)?;
            let sample = whole.get(..SAMPLE_BYTES).unwrap_or(whole);
            self.samples.push(sample.to_vec());
        }
        Ok(())
    }
}

/// Packs records and content for what they are now.
struct Packer {
    zstd: Zstd,
}

/// What becomes of large content.
struct Rewrite {
    codec: Codec,
    level: u8,
    /// None if it stays as and where it is.
    bytes: Option<Vec<u8>>,
}

impl Rewrite {
    fn entry(&self, entry: Blob, offset: u64, stored: u64) -> Blob {
        entry.moved(offset, stored, self.codec, self.level)
    }
}

impl Packer {
    /// With the newest dictionary, or a new one if there is none and enough to learn it from.
    fn new(engine: &Engine, survey: &Survey) -> Result<Self> {
        let newest = engine.read(|reader| reader.newest_dictionary())?;
        let dictionary = match newest {
            Some(dictionary) => dictionary,
            None => match learn(survey) {
                None => Arc::new(Dictionary::new(0, Vec::new())),
                Some(bytes) => {
                    let row = binary::encode(&bytes)?;
                    engine.change(|transaction| {
                        let mut table = transaction
                            .open_table(tables::DICTIONARIES)
                            .map_err(table_error)?;
                        table.insert(1, row.as_slice()).map_err(storage_error)?;
                        Ok(())
                    })?;
                    Arc::new(Dictionary::new(1, bytes))
                }
            },
        };
        Ok(Self {
            zstd: Zstd::new(&dictionary)?,
        })
    }

    fn record(&mut self, reader: &Reader<'_>, bytes: &[u8], wanted: Use) -> Result<Vec<u8>> {
        let (level, _) = envelope::packing_of(bytes)?;
        if level >= wanted.level() {
            return Ok(bytes.to_vec());
        }
        let zstd = (wanted == Use::Past).then_some(&mut self.zstd);
        envelope::repack(bytes, wanted.level(), zstd, reader.contents())
    }

    /// None if it needs no look. `gap` says that there is one in front of it.
    fn content(
        &mut self,
        reader: &Reader<'_>,
        entry: &Blob,
        wanted: Use,
        gap: bool,
    ) -> Result<Option<Rewrite>> {
        let moves = gap && entry.stored <= MOVED_ALONG_BYTES;
        let wants = entry.level() < wanted.level();
        let codec = entry.codec()?;
        let level = entry.level().max(wanted.level());
        if wants {
            let mut plain = Vec::new();
            reader.contents().plain(entry, &mut plain)?;
            let (codec, packed) = match wanted {
                Use::Live => (Codec::Lz4, pack_lz4(&plain)?),
                Use::Past => (Codec::Zstd, self.zstd.pack(&plain)?),
            };
            if (packed.len() as u64) < entry.stored && codec.pays(plain.len(), packed.len()) {
                reader.contents().verify(codec, &packed, &plain)?;
                return Ok(Some(Rewrite {
                    codec,
                    level,
                    bytes: Some(packed),
                }));
            }
        } else if !moves {
            return Ok(None);
        }
        let bytes = if moves {
            let mut stored = Vec::new();
            reader.contents().stored(entry, &mut stored)?;
            Some(stored)
        } else {
            None
        };
        Ok(Some(Rewrite {
            codec,
            level,
            bytes,
        }))
    }
}

fn learn(survey: &Survey) -> Option<Vec<u8>> {
    let size = (survey.past / DICTIONARY_PART).min(*DICTIONARY_BYTES.end());
    if size < *DICTIONARY_BYTES.start() {
        return None;
    }
    Dictionary::train(&survey.samples, size)
}
