//! What an image consists of: neutral values, each complete in itself, that name one another by stems and UUIDs.
//!
//! Nothing in them depends on how a store numbers its transcripts and names, on its seed, or on what else it holds.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{
    MessageUsage, ToolFailure, TranscriptMessage, TranscriptMeta, TranscriptPart,
    TranscriptToolCall, TurnUsage, UsageCostSource,
};

/// Keys that this version does not know. They are kept, and written again.
pub(crate) type More = Map<String, Value>;

/// One fact of an image. They stand in the order in which the variants do; records follow their transcript, chunks their
/// source.
#[derive(Debug)]
pub(crate) enum Entry {
    /// What the image says of itself that this version does not know. It stands first.
    Header(More),
    Stem(StemEntry),
    Source(SourceEntry),
    Chunk(Vec<u8>),
    Transcript(Box<TranscriptEntry>),
    Record(Box<RecordEntry>),
    Repeat(RepeatEntry),
    Call(CallEntry),
    /// A fact of a kind that this version does not know.
    Other(More),
}

/// A session, written or only mentioned as an ancestor, in the order of their first mention.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StemEntry {
    pub(crate) stem: String,
    /// The stem of the session that it was delegated by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    /// The reference that it was written through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<ReferenceEntry>,
    /// What it spent in each hour, under the names of that time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) hours: Vec<HourEntry>,
    #[serde(flatten)]
    pub(crate) more: More,
}

/// The parts of a session reference, apart from its generation.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReferenceEntry {
    pub(crate) key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ancestors: Vec<String>,
}

/// Totals of one hour.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HourEntry {
    /// UTC hours since the Unix epoch.
    pub(crate) hour: i64,
    pub(crate) thread: String,
    #[serde(flatten)]
    pub(crate) spent: SpentEntry,
}

/// Totals by who spent them on what.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SpentEntry {
    pub(crate) agent: String,
    pub(crate) provider: String,
    pub(crate) model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cost_source: Option<UsageCostSource>,
    pub(crate) turns: u64,
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cached_input: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) cache_write: u64,
    /// 10^-12 USD.
    pub(crate) cost: Pico,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over references"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// An amount of money in units of 10^-12 USD, written as text: it is larger than what every reader of JSON holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pico(pub(crate) i128);

impl Serialize for Pico {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Pico {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// A file that was imported. Its bytes follow, in chunks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SourceEntry {
    /// Hexadecimal.
    pub(crate) id: String,
    pub(crate) path: String,
    pub(crate) format: String,
    pub(crate) codec_version: u32,
    pub(crate) length: u64,
    /// SHA-256, hexadecimal.
    pub(crate) sha256: String,
    /// Whether nothing was imported from its path since.
    pub(crate) newest: bool,
    #[serde(flatten)]
    pub(crate) more: More,
}

/// One generation of a session, as it is after its last record.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TranscriptEntry {
    /// Stem of generation 0.
    pub(crate) stem: String,
    pub(crate) generation: u32,
    /// Microseconds since the Unix epoch, as all times of an image.
    pub(crate) created: i64,
    pub(crate) updated: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    pub(crate) meta: TranscriptMeta,
    /// Whether it was written through a session reference.
    pub(crate) referenced: bool,
    pub(crate) sealed: bool,
    /// The sequence that its next record would have.
    pub(crate) next_seq: u64,
    /// Rows of its live context.
    pub(crate) live_rows: u64,
    pub(crate) spend: TallyEntry,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) spent: Vec<SpentEntry>,
    /// The sources that it was made of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sources: Vec<String>,
    /// The call of the parent that spawned it, as its sources tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) spawned_by: Option<String>,
    /// What else its sources tell.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) attributes: Map<String, Value>,
    #[serde(flatten)]
    pub(crate) more: More,
}

/// The totals of a transcript, and what is known of the last usage in it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TallyEntry {
    pub(crate) turns: u64,
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cached_input: u64,
    pub(crate) cost: Pico,
    pub(crate) last_input: u64,
    pub(crate) last_output: u64,
    pub(crate) last_context: u64,
    pub(crate) last_context_input: u64,
    pub(crate) last_context_output: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    pub(crate) context_window: u64,
    pub(crate) priced: Pico,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) priced_source: Option<UsageCostSource>,
    pub(crate) unpriced_turns: u64,
    pub(crate) unpriced_input: u64,
    pub(crate) unpriced_output: u64,
    pub(crate) unpriced_cached_input: u64,
}

/// One record of the transcript that it stands behind.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordEntry {
    pub(crate) uuid: Uuid,
    pub(crate) seq: u64,
    /// Write time.
    pub(crate) at: i64,
    pub(crate) kind: RecordName,
    /// Of a row or a partial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) row: Option<Box<RowEntry>>,
    /// Of a marker or what a successor retained: runs of records, each by its first and last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rows: Option<Vec<(Uuid, Uuid)>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<UsageEntry>,
    /// Of a usage record, or a row with a usage: tokens of the input that were written to a cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) cache_write: u64,
    /// Of a usage record: the counters as the source has them.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub(crate) original: Option<Value>,
    /// Of a usage record: whether another one tells of the same call, so that this one does not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) superseded: bool,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub(crate) tools: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request_id: Option<String>,
    /// Of a marker or a seal.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub(crate) metadata: Option<Value>,
    /// Of an imported record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<OriginEntry>,
    #[serde(flatten)]
    pub(crate) more: More,
}

/// Where a record comes from.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OriginEntry {
    /// One of the sources of its transcript.
    pub(crate) source: String,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) codec_version: u32,
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordName {
    Row,
    MarkerRow,
    Partial,
    MarkerPartial,
    Marker,
    Usage,
    Tools,
    Seal,
    Retained,
}

/// A row, whole.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RowEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    pub(crate) role: String,
    pub(crate) content: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<ToolCallEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool_call_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parts: Option<Vec<TranscriptPart>>,
    /// The text that the row was lifted from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) legacy: Option<String>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub(crate) extra_metadata: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) cache_breakpoints: Vec<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<UsageEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request_id: Option<String>,
    /// Of a tool call that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<FailureEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) iteration: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ts: Option<String>,
    /// Whether the write time is shown as its time where it has none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) shows_write_time: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revises: Option<Uuid>,
}

/// Why a tool call failed.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FailureEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolCallEntry {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub(crate) extra_content: Option<Value>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct UsageEntry {
    pub(crate) provider: String,
    pub(crate) model: String,
    pub(crate) usage: MessageUsage,
    pub(crate) ts: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_content: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<ToolCallEntry>,
    pub(crate) iteration: u32,
}

/// By what a record of a source is known when the source is imported again.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RepeatEntry {
    /// Hexadecimal.
    pub(crate) key: String,
    pub(crate) record: Uuid,
    #[serde(flatten)]
    pub(crate) more: More,
}

/// What was told of the provider's calls under one id.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CallEntry {
    /// The key of the call; hexadecimal.
    pub(crate) key: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) told: Vec<ToldEntry>,
    /// Running totals, by run and length.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) totals: Vec<TotalEntry>,
    #[serde(flatten)]
    pub(crate) more: More,
}

/// The largest that was told of one request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ToldEntry {
    /// None stands for all that name no request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<String>,
    /// Its usage record.
    pub(crate) record: Uuid,
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cached_input: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) cache_write: u64,
    pub(crate) cost_usd: f64,
    /// What it is counted under, or would be.
    pub(crate) stem: String,
    pub(crate) thread: String,
    pub(crate) agent: String,
}

/// What a run had used up to some point, with all that the runs before it had.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TotalEntry {
    pub(crate) run: String,
    pub(crate) length: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) after: Vec<(String, u64)>,
    /// The session that it was told of.
    pub(crate) stem: String,
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cached_input: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) cache_write: u64,
    pub(crate) cost_usd: f64,
    /// What the run adds, of its largest total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) adds: Option<ToldEntry>,
}

/// Reads what is there as a value, `null` included.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl From<TranscriptToolCall> for ToolCallEntry {
    fn from(call: TranscriptToolCall) -> Self {
        Self {
            id: call.id,
            name: call.name,
            arguments: call.arguments,
            extra_content: call.extra_content,
        }
    }
}

impl From<ToolCallEntry> for TranscriptToolCall {
    fn from(call: ToolCallEntry) -> Self {
        Self {
            id: call.id,
            name: call.name,
            arguments: call.arguments,
            extra_content: call.extra_content,
        }
    }
}

impl From<TurnUsage> for UsageEntry {
    fn from(turn: TurnUsage) -> Self {
        Self {
            provider: turn.provider,
            model: turn.model,
            usage: turn.usage,
            ts: turn.ts,
            reasoning_content: turn.reasoning_content,
            tool_calls: turn.tool_calls.into_iter().map(Into::into).collect(),
            iteration: turn.iteration,
        }
    }
}

impl From<UsageEntry> for TurnUsage {
    fn from(entry: UsageEntry) -> Self {
        Self {
            provider: entry.provider,
            model: entry.model,
            usage: entry.usage,
            ts: entry.ts,
            reasoning_content: entry.reasoning_content,
            tool_calls: entry.tool_calls.into_iter().map(Into::into).collect(),
            iteration: entry.iteration,
        }
    }
}

impl RecordEntry {
    /// Whether this is what the store has under the same address. That a usage counts no more, and what is not known, are
    /// no part of the record; what it refers to, and whether it came with a compaction, others have to compare.
    pub(crate) fn is(&self, mut stored: Self) -> bool {
        if stored.kind.alone() == self.kind.alone() {
            stored.kind = self.kind;
        }
        stored.rows.clone_from(&self.rows);
        stored.superseded = self.superseded;
        stored.more.clone_from(&self.more);
        *self == stored
    }
}

impl RowEntry {
    /// The message of the row.
    pub(crate) fn message(self, interrupted: bool) -> TranscriptMessage {
        TranscriptMessage {
            id: self.id,
            role: self.role,
            content: self.content,
            tool_calls: self.tool_calls.into_iter().map(Into::into).collect(),
            tool_call_id: self.tool_call_id,
            parts: self.parts,
            legacy: crate::transcript::LegacyText::from_option(self.legacy),
            extra_metadata: self.extra_metadata,
            cache_breakpoints: self.cache_breakpoints,
            turn_usage: self.usage.map(Into::into),
            request_id: self.request_id,
            preserve_request_id: true,
            interrupted,
            tool_failure: self.failure.map(|failure| ToolFailure {
                failed: true,
                detail: failure.detail,
            }),
        }
    }
}

impl RecordName {
    /// What it is if it did not come with a compaction.
    pub(crate) fn alone(self) -> Self {
        match self {
            Self::MarkerRow => Self::Row,
            Self::MarkerPartial => Self::Partial,
            kind => kind,
        }
    }

    pub(crate) fn is_interrupted(self) -> bool {
        matches!(self, Self::Partial | Self::MarkerPartial)
    }
}
