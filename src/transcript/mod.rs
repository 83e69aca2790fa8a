//! The vocabulary: what a transcript is made of, as plain values.
//!
//! Nothing here does I/O or knows a store. The types serialize to exactly the JSON that their fields' documentation
//! says, and ignore unknown keys when they are read from JSON.
//!
//! - [`message`], [`part`]: a row, its calls and its parts; [`normalize`] lifts the structure that older hosts packed
//!   into text, [`encode`] packs it again, and [`identity`] says when two rows are the same
//! - [`usage`], [`spend`]: what a turn cost, and sums of that
//! - [`meta`]: a transcript's header
//! - [`turn`], [`background`]: what a caller hands to a store
//! - [`display`]: what a person is shown
//! - [`limits`]: what a store refuses

mod background;
mod display;
mod encode;
mod identity;
pub(crate) mod limits;
mod message;
mod meta;
mod normalize;
mod part;
pub(crate) mod spend;
mod turn;
mod usage;

pub use background::{
    BACKGROUND_METADATA_KEY, BackgroundAppend, BackgroundAppendOutcome, BackgroundOrigin,
};
pub use display::{
    CompactionMarker, DisplayMessage, DisplayRecord, DisplaySessionTranscript, DisplaySlice,
    UsageRecord,
};
pub use identity::same_transcript_messages;
pub use message::{LegacyText, ToolFailure, TranscriptMessage, TranscriptToolCall};
pub use meta::{SessionTranscript, TranscriptMeta};
pub use part::{TranscriptMediaRef, TranscriptPart};
pub use spend::{CostSplit, ThreadSpend, TranscriptSpend};
pub use turn::{TranscriptPartial, TranscriptTurn, TruncateCut};
pub use usage::{MessageUsage, TurnUsage, UsageCostSource};
