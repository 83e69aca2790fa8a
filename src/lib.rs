//! An embedded, durable transcript store for AI agent hosts.

pub mod background;
mod error;
mod locator;
mod memory;
mod replay;
mod session;
pub mod spend;
mod store;
mod transcript;
mod turn;
pub mod turn_lock;

#[cfg(feature = "testkit")]
pub mod conformance;
#[cfg(feature = "testkit")]
pub mod testkit;

pub use error::{Error, ErrorKind, Result};
pub use locator::{
    ThreadTranscript, ThreadTranscripts, TranscriptHistory, TranscriptLocator, TranscriptRead,
};
pub use memory::InMemoryTranscriptLocator;
pub use session::{SessionRef, session_stem};
pub use store::{
    AppendRows, Compression, Durability, HeadToken, Health, ListOrder, Record, RecordIter,
    RecordKind, RedbTranscriptLocator, ReservationStats, SessionQuery, SessionSummary, SpendGroup,
    SpendQuery, SpendRow, Stats, Store, StoreBuilder, ThreadSummary,
};
#[cfg(feature = "testkit")]
pub use store::{Backend, Environment, StoreFile};
pub use transcript::{
    BACKGROUND_METADATA_KEY, BackgroundAppend, BackgroundAppendOutcome, BackgroundOrigin,
    CompactionMarker, CostSplit, DisplayMessage, DisplayRecord, DisplaySessionTranscript,
    DisplaySlice, LegacyText, MessageUsage, SessionTranscript, ThreadSpend, ToolFailure,
    TranscriptMediaRef, TranscriptMessage, TranscriptMeta, TranscriptPart, TranscriptPartial,
    TranscriptSpend, TranscriptToolCall, TranscriptTurn, TruncateCut, TurnUsage, UsageCostSource,
    UsageRecord, same_transcript_messages,
};
