//! The vocabulary: what a transcript is made of, as plain values.
//!
//! Nothing here does I/O or knows a store. The types serialize to exactly the JSON that their fields' documentation
//! says, and ignore unknown keys when they are read from JSON.
//!
//! - [`message`]: a row, its calls and its parts; [`normalize`] lifts rows that older hosts packed into text, and
//!   [`identity`] says when two rows are the same
//! - [`usage`], [`spend`]: what a turn cost, and sums of that
//! - [`meta`]: a transcript's header
//! - [`turn`], [`background`]: what a caller hands to a store
//! - [`display`]: what a person is shown
//! - [`limits`]: what a store refuses

pub(crate) mod background;
pub(crate) mod display;
pub(crate) mod identity;
pub(crate) mod limits;
pub(crate) mod message;
pub(crate) mod meta;
pub(crate) mod normalize;
pub(crate) mod spend;
pub(crate) mod turn;
pub(crate) mod usage;

pub use background::{
    BACKGROUND_METADATA_KEY, BackgroundAppend, BackgroundAppendOutcome, BackgroundOrigin,
};
pub use display::{
    CompactionMarker, DisplayMessage, DisplayRecord, DisplaySessionTranscript, DisplaySlice,
    UsageRecord,
};
pub use identity::same_transcript_messages;
pub use message::{
    LegacyText, ToolFailure, TranscriptMediaRef, TranscriptMessage, TranscriptPart,
    TranscriptToolCall,
};
pub use meta::{SessionTranscript, TranscriptMeta};
pub use spend::{CostSplit, ThreadSpend, TranscriptSpend};
pub use turn::{TranscriptPartial, TranscriptTurn, TruncateCut};
pub use usage::{MessageUsage, TurnUsage, UsageCostSource};
