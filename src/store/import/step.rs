//! What the steps of an import do, as values.
//!
//! Rows and chunks of a source go to the store in steps that nothing shows; the last step publishes all of them.

use bincode::{BorrowDecode, Decode, Encode};

use crate::store::blob::NewBlob;
use crate::store::change::CountedUsage;
use crate::store::head::{Head, SessionParts};

/// A repeat key and the part of the record that it is for.
pub(in crate::store) type RepeatKey = [u8; 20];

/// The SHA-256 of a chunk.
pub(in crate::store) type ChunkHash = [u8; 32];

/// One step.
#[derive(Debug, Encode, BorrowDecode)]
pub(in crate::store) enum ImportStep {
    /// Puts records and chunks into the store, unpublished.
    Stage(Stage),
    /// Publishes all of an import at once.
    Publish(Box<Publish>),
    /// Publishes all of an image at once.
    Restore(Box<Restored>),
    /// Takes out what an import that was never published had put in.
    Sweep {
        /// The import.
        import: u64,
    },
    /// Puts what is known of calls into the store, unpublished.
    Calls(SettledCalls),
}

/// What is known of calls from the end of an import on.
#[derive(Debug, Encode, Decode)]
pub(in crate::store) struct SettledCalls {
    pub(in crate::store) import: u64,
    pub(in crate::store) groups: Vec<(Vec<u8>, CallGroup)>,
}

/// Records and chunks that nothing shows yet.
#[derive(Debug, Default, Encode, Decode)]
pub(in crate::store) struct Stage {
    pub(in crate::store) import: u64,
    pub(in crate::store) records: Vec<StagedRecord>,
    pub(in crate::store) keys: Vec<(RepeatKey, u128)>,
    /// Compressed.
    pub(in crate::store) chunks: Vec<(ChunkHash, Vec<u8>)>,
}

/// A record on its way.
#[derive(Debug, Encode, Decode)]
pub(in crate::store) struct StagedRecord {
    pub(in crate::store) at: StagedAt,
    /// The whole envelope.
    pub(in crate::store) bytes: Vec<u8>,
    /// The large content that was cut out of it.
    pub(in crate::store) blobs: Vec<NewBlob>,
    pub(in crate::store) origin: Option<StagedOrigin>,
}

/// Where a staged record comes from.
#[derive(Clone, Copy, Debug, Encode, Decode)]
pub(in crate::store) struct StagedOrigin {
    /// The source and the version of the codec that read it; None stands for those of the import.
    pub(in crate::store) source: Option<SourceRef>,
    pub(in crate::store) offset: u64,
    pub(in crate::store) length: u64,
    /// How many tokens of a row's own usage were written to a cache.
    pub(in crate::store) cache_write: u64,
}

/// A source, and the version of the codec that read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(in crate::store) struct SourceRef {
    pub(in crate::store) id: u64,
    pub(in crate::store) codec_version: u32,
}

impl StagedRecord {
    fn weight(&self) -> usize {
        let blobs = self.blobs.iter().map(|blob| 64 + blob.bytes.len());
        96 + self.bytes.len() + blobs.sum::<usize>()
    }
}

/// Where a staged record belongs.
#[derive(Clone, Copy, Debug, Encode, Decode)]
pub(in crate::store) struct StagedAt {
    pub(in crate::store) transcript: u64,
    pub(in crate::store) seq: u64,
    pub(in crate::store) uuid: u128,
}

/// The end of an import.
#[derive(Debug, Encode, BorrowDecode)]
pub(in crate::store) struct Publish {
    pub(in crate::store) import: u64,
    pub(in crate::store) transcripts: Vec<Published>,
    /// Usages of other transcripts that no longer count, or count again.
    pub(in crate::store) adjusted: Vec<Adjusted>,
    /// What is known of calls that no step before held.
    pub(in crate::store) calls: Vec<(Vec<u8>, CallGroup)>,
    /// Usage records, and whether each is superseded from now on.
    pub(in crate::store) superseded: Vec<(u64, u64, bool)>,
    pub(in crate::store) source: Option<SourceChange>,
    /// What its records come from.
    pub(in crate::store) origin: Option<SourceRef>,
}

/// A transcript as it is after an import.
#[derive(Debug, Encode, BorrowDecode)]
pub(in crate::store) struct Published {
    pub(in crate::store) transcript: u64,
    /// Stem of generation 0.
    pub(in crate::store) session: String,
    pub(in crate::store) generation: u32,
    pub(in crate::store) named: Option<SessionParts>,
    /// When it was created, if this import creates it: microseconds since the Unix epoch.
    pub(in crate::store) created_at: Option<i64>,
    pub(in crate::store) head: Head,
    pub(in crate::store) usages: Vec<CountedUsage>,
    /// Idempotency keys and the sequences of the rows that hold them.
    pub(in crate::store) keys: Vec<(String, u64)>,
    /// What else sources told of the session, if that is new: JSON text.
    pub(in crate::store) attributes: Option<String>,
}

/// The end of the import of an image.
#[derive(Debug, Default, Encode, BorrowDecode)]
pub(in crate::store) struct Restored {
    pub(in crate::store) import: u64,
    /// In the order of their first mention.
    pub(in crate::store) stems: Vec<RestoredStem>,
    /// In the order of their creation.
    pub(in crate::store) transcripts: Vec<RestoredTranscript>,
    pub(in crate::store) sources: Vec<RestoredSource>,
    pub(in crate::store) calls: Vec<RestoredCall>,
    /// Usage records, and whether each is superseded from now on.
    pub(in crate::store) superseded: Vec<(u64, u64, bool)>,
    /// What is not known of the image, by what it is told of.
    pub(in crate::store) unknown: Vec<(String, String)>,
}

/// A session of an image.
#[derive(Debug, Encode, Decode)]
pub(in crate::store) struct RestoredStem {
    pub(in crate::store) stem: String,
    pub(in crate::store) parent: Option<String>,
    pub(in crate::store) session: Option<SessionParts>,
    /// Whether its totals stand for those that the store has.
    pub(in crate::store) replaces: bool,
    /// Thread, agent and totals by hour.
    pub(in crate::store) hours: Vec<(String, String, CountedUsage)>,
}

/// A transcript of an image.
#[derive(Debug, Encode, BorrowDecode)]
pub(in crate::store) struct RestoredTranscript {
    pub(in crate::store) transcript: u64,
    /// Stem of generation 0.
    pub(in crate::store) session: String,
    pub(in crate::store) generation: u32,
    pub(in crate::store) incarnation: u64,
    /// Whether the store has it, and it only goes on.
    pub(in crate::store) held: bool,
    pub(in crate::store) created_at: i64,
    pub(in crate::store) head: Head,
    /// Agent and totals; the hours mean nothing.
    pub(in crate::store) spent: Vec<(String, CountedUsage)>,
    /// Idempotency keys and the sequences of the rows that hold them.
    pub(in crate::store) keys: Vec<(String, u64)>,
    pub(in crate::store) sources: Vec<u64>,
    /// JSON text.
    pub(in crate::store) attributes: Option<String>,
}

/// A source of an image.
#[derive(Debug, Encode, Decode)]
pub(in crate::store) struct RestoredSource {
    pub(in crate::store) id: u64,
    pub(in crate::store) entry: SourceEntry,
    /// Whether its path leads to it.
    pub(in crate::store) newest: bool,
}

/// Request, usage record, and the session, thread and agent that it is counted under.
pub(in crate::store) type RestoredTold = (Option<String>, CallSlot, [String; 3]);

/// A running total, and what it is counted under if it is.
pub(in crate::store) type RestoredTotal = (RunTotal, Option<[String; 3]>);

/// A provider's call of an image.
#[derive(Debug, Encode, Decode)]
pub(in crate::store) struct RestoredCall {
    pub(in crate::store) key: Vec<u8>,
    pub(in crate::store) told: Vec<RestoredTold>,
    pub(in crate::store) totals: Vec<RestoredTotal>,
}

/// Where a usage was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(in crate::store) struct CountedAt {
    pub(in crate::store) session: u64,
    pub(in crate::store) thread: u64,
    pub(in crate::store) agent: u64,
}

/// A usage that is taken out of the totals or put back into them.
#[derive(Debug, Encode, Decode)]
pub(in crate::store) struct Adjusted {
    pub(in crate::store) transcript: u64,
    pub(in crate::store) at: CountedAt,
    pub(in crate::store) usage: CountedUsage,
    pub(in crate::store) counts: bool,
}

/// What was told of the calls under one id.
#[derive(Clone, Debug, Default, Encode, Decode)]
pub(in crate::store) struct CallGroup {
    /// By records that name no request.
    pub(in crate::store) unnamed: Option<CallSlot>,
    pub(in crate::store) requests: Vec<(String, CallSlot)>,
    /// Of runs that go on from each other, by run and length.
    pub(in crate::store) totals: Vec<RunTotal>,
}

/// What a run had used up to some point of its history, with all that the runs before it had.
#[derive(Clone, Debug, Encode, Decode)]
pub(in crate::store) struct RunTotal {
    pub(in crate::store) run: String,
    /// How long its history was.
    pub(in crate::store) length: u64,
    /// The runs that it goes on from and how long their history was then, the last one first.
    pub(in crate::store) after: Vec<(String, u64)>,
    pub(in crate::store) transcript: u64,
    pub(in crate::store) input: u64,
    pub(in crate::store) output: u64,
    pub(in crate::store) cached_input: u64,
    pub(in crate::store) cache_write: u64,
    pub(in crate::store) cost_usd: f64,
    /// The usage record of what it adds, of the largest total of the run.
    pub(in crate::store) slot: Option<CallSlot>,
}

/// The largest that was told of one call, and its usage record.
#[derive(Clone, Debug, Encode, Decode)]
pub(in crate::store) struct CallSlot {
    pub(in crate::store) transcript: u64,
    pub(in crate::store) seq: u64,
    pub(in crate::store) output: u64,
    pub(in crate::store) input: u64,
    pub(in crate::store) cached_input: u64,
    pub(in crate::store) cache_write: u64,
    pub(in crate::store) cost_usd: f64,
    /// Applying fills it in.
    pub(in crate::store) at: Option<CountedAt>,
}

/// A source that is new, or that has grown.
#[derive(Debug, Encode, Decode)]
pub(in crate::store) struct SourceChange {
    pub(in crate::store) id: u64,
    pub(in crate::store) entry: SourceEntry,
    /// The transcripts that it contributed to.
    pub(in crate::store) transcripts: Vec<u64>,
}

/// A file that was imported, whole.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(in crate::store) struct SourceEntry {
    pub(in crate::store) path: String,
    pub(in crate::store) format: String,
    pub(in crate::store) codec_version: u32,
    pub(in crate::store) length: u64,
    pub(in crate::store) hash: [u8; 32],
    pub(in crate::store) chunks: Vec<ChunkHash>,
}

impl ImportStep {
    /// Bytes that it holds in the queue, roughly.
    pub(in crate::store) fn weight(&self) -> usize {
        match self {
            Self::Stage(stage) => stage.weight(),
            Self::Publish(publish) => {
                let chunks = publish
                    .source
                    .as_ref()
                    .map_or(0, |it| it.entry.chunks.len());
                1024 * publish.transcripts.len() + 256 * publish.calls.len() + 32 * chunks
            }
            Self::Restore(restored) => restored.weight(),
            Self::Sweep { .. } => 0,
            Self::Calls(calls) => {
                let groups = calls.groups.iter();
                groups.map(|(_, group)| group.weight()).sum()
            }
        }
    }

    /// The sessions that it changes, by the stems of their generation 0.
    pub(in crate::store) fn sessions(&self) -> Vec<&str> {
        match self {
            Self::Publish(publish) => {
                let transcripts = publish.transcripts.iter();
                transcripts.map(|it| it.session.as_str()).collect()
            }
            Self::Restore(restored) => {
                let transcripts = restored.transcripts.iter();
                transcripts.map(|it| it.session.as_str()).collect()
            }
            Self::Stage(_) | Self::Sweep { .. } | Self::Calls(_) => Vec::new(),
        }
    }
}

impl Restored {
    fn weight(&self) -> usize {
        let stems = self.stems.iter();
        let stems = stems.map(|it| 128 + it.stem.len() + 128 * it.hours.len());
        let transcripts = self.transcripts.iter();
        let transcripts = transcripts.map(|it| 1024 + 128 * it.spent.len() + 64 * it.keys.len());
        let chunks = self.sources.iter().map(|it| 32 * it.entry.chunks.len());
        let unknown = self.unknown.iter().map(|(_, text)| 64 + text.len());
        stems
            .chain(transcripts)
            .chain(chunks)
            .chain(unknown)
            .sum::<usize>()
            + 256 * self.calls.len()
    }
}

impl Stage {
    pub(in crate::store) fn weight(&self) -> usize {
        let records = self.records.iter().map(StagedRecord::weight);
        let chunks = self.chunks.iter().map(|(_, bytes)| 64 + bytes.len());
        records.chain(chunks).sum::<usize>() + 48 * self.keys.len()
    }

    pub(in crate::store) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.keys.is_empty() && self.chunks.is_empty()
    }
}

impl CallSlot {
    /// Whether this counts rather than `other`. It makes no difference which was met first.
    pub(in crate::store) fn outweighs(&self, other: &Self) -> bool {
        let counts = |it: &Self| (it.output, it.input, it.cached_input, it.cache_write);
        counts(self)
            .cmp(&counts(other))
            .then(self.cost_usd.total_cmp(&other.cost_usd))
            .is_gt()
    }
}

impl CallGroup {
    /// Bytes that it holds, roughly.
    pub(in crate::store) fn weight(&self) -> usize {
        let after = self.totals.iter().map(|total| total.after.len());
        256 * (1 + self.requests.len() + self.totals.len()) + 64 * after.sum::<usize>()
    }

    /// The usage records that count: the largest of each request. What names no request is of the largest that does.
    pub(in crate::store) fn counted(&self) -> Vec<&CallSlot> {
        let mut counted: Vec<&CallSlot> = self.requests.iter().map(|(_, slot)| slot).collect();
        let mut largest = None;
        for (at, slot) in counted.iter().enumerate() {
            if largest.is_none_or(|(_, known): (usize, &CallSlot)| slot.outweighs(known)) {
                largest = Some((at, *slot));
            }
        }
        match (&self.unnamed, largest) {
            (Some(unnamed), None) => counted.push(unnamed),
            (Some(unnamed), Some((at, known))) if unnamed.outweighs(known) => {
                if let Some(slot) = counted.get_mut(at) {
                    *slot = unnamed;
                }
            }
            _ => {}
        }
        counted
    }

    /// What was told by the usage records that `within` takes, with their requests. If it does not take all, what does not
    /// count is left out: it is for the others to say that it does not.
    pub(in crate::store) fn within(
        &self,
        within: impl Fn(&CallSlot) -> bool,
    ) -> Vec<(Option<&str>, &CallSlot)> {
        let named = self.requests.iter();
        let all = self.unnamed.iter().map(|slot| (None, slot));
        let all: Vec<_> = all
            .chain(named.map(|(request, slot)| (Some(request.as_str()), slot)))
            .collect();
        if all.iter().all(|(_, slot)| within(slot)) {
            return all;
        }
        let counted = self.counted();
        let counts = |slot: &CallSlot| counted.iter().any(|it| std::ptr::eq(*it, slot));
        all.into_iter()
            .filter(|(_, slot)| within(slot) && counts(slot))
            .collect()
    }

    /// All usage records of the group.
    pub(in crate::store) fn slots_mut(&mut self) -> impl Iterator<Item = &mut CallSlot> {
        let named = self.requests.iter_mut().map(|(_, slot)| slot);
        let totals = self.totals.iter_mut().filter_map(|it| it.slot.as_mut());
        self.unnamed.iter_mut().chain(named).chain(totals)
    }
}
