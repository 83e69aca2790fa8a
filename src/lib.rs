//! An embedded, durable transcript store for AI agent hosts.
//!
//! A [`Store`] is one file. It keeps every turn of every session, compactions and generations that never erase,
//! sub-agent trees, idempotent background appends, and what it all cost. Hosts work through three traits, so that they
//! can be tested on [`InMemoryTranscriptLocator`] and run on any store:
//!
//! - [`TranscriptLocator`] finds and opens transcripts: by session, by thread, by agent;
//! - [`TranscriptHistory`] writes one transcript, a turn at a time;
//! - [`TranscriptRead`] reads it: as the model would be sent it, and as a person would be shown it.
//!
//! ```
//! use transcript_redb::{SessionRef, Store, TranscriptLocator, TranscriptMessage, TranscriptMeta, TranscriptTurn};
//!
//! # fn main() -> transcript_redb::Result<()> {
//! let store = Store::in_memory()?;
//! let session = SessionRef::scoped("thread-1", "coder");
//! let meta = TranscriptMeta::new("coder").with_thread_id("thread-1");
//! let history = store.locator().open_session(&session, meta.clone())?;
//!
//! // A turn says what the caller believes is stored, and what shall be there afterwards.
//! let stored = history.messages()?;
//! let mut next = stored.clone();
//! next.push(TranscriptMessage::user("Why does the build fail?"));
//! next.push(TranscriptMessage::assistant("A test needs the network."));
//! history.append_turn(TranscriptTurn::new(&stored, &next, &meta))?;
//!
//! assert_eq!(history.messages()?.len(), 2);
//! assert!(store.locator().root_for_thread("thread-1")?.is_some());
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - A write that was acknowledged survives a power loss ([`Durability::Immediate`]).
//! - A turn is atomic: rows, header, tools, index entries and spend appear together, or nothing does.
//! - A stale writer is refused with [`Error::Stale`]; newer rows are never compacted away by it.
//! - What is once written stays: compactions, generations and seals hide nothing from the display.
//! - Every stored usage counts exactly once, in integers.
//! - Damage is [`Error::Corrupted`] where it is met, never a shorter answer.
//!
//! One process owns a file; the methods block, and may be called from any number of threads.
//!
//! # Features
//!
//! - `cli`: the command line `transcript-redb`.
//! - `testkit`: the contract as checks that any store can run (module `conformance`), a disk that fails on demand (module
//!   `testkit`), and the seams that they use.

pub mod background;
mod error;
pub mod interchange;
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

// In signatures of this crate.
pub use {serde_json, uuid};

pub use error::{Error, ErrorKind, Result};
pub use locator::{
    ThreadTranscript, ThreadTranscripts, TranscriptHistory, TranscriptLocator, TranscriptRead,
};
pub use memory::InMemoryTranscriptLocator;
pub use session::{SessionRef, session_stem};
pub use store::{
    AdoptedSource, Adoption, AppendRows, Attributes, CompactOptions, CompactProgress,
    CompactReport, CompactStep, Compression, Durability, ExportScope, HeadToken, Health, ListOrder,
    Origin, Record, RecordIter, RecordKind, RedbTranscriptLocator, ReservationStats, SessionQuery,
    SessionSummary, SourceInfo, SpendGroup, SpendQuery, SpendRow, Stats, Store, StoreBuilder,
    ThreadSummary,
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

/// The README's example runs as it stands.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
