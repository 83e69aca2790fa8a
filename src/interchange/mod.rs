//! Interchange: files of other programs in, and out again.
//!
//! A [`Codec`] knows one format. It reads a [`Source`] and tells [facts](fact), which carry nothing of the format any
//! more; a [`Sink`] takes them: the store, or a [`Tally`] that only counts. Writing is the same the other way round: a
//! [`Writer`] is handed facts and makes files of them. Codecs know no store, and the store knows no codec.
//!
//! # For the author of a codec
//!
//! A codec is one file and one line in [`codecs`].
//!
//! **Detection.** [`Codec::detect`] is given a [`Probe`]: the path, the first bytes, and the JSON objects on the first
//! lines. Answer `Sure` for what no other format has, `Likely` for a good guess, `Maybe` for what you would take if
//! nobody else does, None for all else; and look at what the other codecs claim. With a folder every file is probed;
//! [`Codec::arrange`] then says which of yours are read and in which order (leave out what another file supersedes, put
//! parents before children).
//!
//! **Reading.** Loop over [`Source::next`]. It frames, takes glued lines apart, repairs what no text can hold, sets bad
//! lines aside and counts; you see JSON objects with their [`Place`]. Of an object that is no record of yours say
//! [`Source::misfit`]. Formats that are one document use [`Source::whole`], and tell what they counted through
//! [`Source::counts_mut`]. Damage is never an error; the only errors are those of the source, of the sink, and a newer
//! version. Take large texts out of a record instead of cloning them: a line may have 100 MB. Keep a few bytes a record
//! if you must keep anything. Never recurse on input, never index, never let time grow faster than the file.
//!
//! What you tell goes through [`Emit`]:
//!
//! - [`Emit::session`] once for each session, before its rows, and [`Emit::header`] at the end with what was learned
//!   since (title, model, times). The [`SessionRef`](crate::SessionRef) is made of the format's ids: a root's key is its
//!   session id, a sub-agent is `child_of` its parent, or of the root where the format does not say. Ids are data; they
//!   never become paths. `meta.thread_id` is the conversation's id, `meta.agent_name` the tool's name or the sub-agent's
//!   type. Times are those of the records, or empty, never now: what is imported twice has to be equal.
//! - [`Emit::row`] for each row, in the order of the file. It is appended to the log and to the live context of its
//!   session. [`stamp::uuid`] gives the UUID if the id is one, [`stamp::rfc3339`] the time if it is one. One record may
//!   make several rows: give each its [`Place::part`].
//! - [`Source::key`] is by what a record is known when it is imported again: pass the format's id if there is one.
//! - [`Emit::context`] replaces the live context: a compaction, a rewind, a clear. Name rows that were told before by
//!   their numbers ([`Kept::Row`]); rows that are new with the context come from [`Emit::new_row`]. A row that the file
//!   repeats (a re-recorded tail) is the row that it repeats, not a new one.
//! - **Usage** that one record tells of, once: put it into the row's `turn_usage`. Usage that several lines or files
//!   repeat: leave the row without, and tell [`Emit::call`] each time that you see it, with the [`CallId`] that groups
//!   them. A call counts once, the largest output of it, over all files and in any order. Input always includes what was
//!   read from and written to the cache. A cost that the file does not have stays 0 with
//!   [`UsageCostSource::Unknown`](crate::UsageCostSource::Unknown) or none; price nothing.
//! - [`Emit::tools`], [`Emit::partial`], [`Fact::Seal`]: as their names say. Add a fact if your format knows something
//!   that none of these can say; the sinks then have to be taught it.
//!
//! [`blocks`] and [`openai`] make rows of the two ways in which messages are written; use them.
//!
//! **What you need not do.** The bytes of the source are kept by whoever opened it, whole, so no unknown key and no odd
//! spelling is lost by not being told, and an export to the same format gives the same bytes back.
//!
//! **Writing.** If the format can be written, [`Codec::writer`] gives a [`Writer`]. It is handed facts session by
//! session, in the order of their logs, and opens its files through a [`Target`]. Names of files are made of ids: refuse
//! those that are not plain file names.
//!
//! **Tests.** The module `testing` runs a codec on bytes: `rows`, `sessions`, `context`, `report`. Fixtures are
//! invented.

pub mod blocks;
pub mod calls;
pub mod chat;
pub mod checkpoint;
pub mod classic;
pub mod claude_code;
pub mod codec;
pub mod codex;
pub mod emit;
mod export;
pub mod fact;
pub mod framing;
mod import;
pub mod markdown;
pub mod native;
pub mod openai;
pub mod quarantine;
pub mod record_log;
pub mod registry;
pub mod report;
pub mod scan;
pub mod source;
pub mod split;
pub mod stamp;
pub mod tally;
pub mod target;
#[cfg(test)]
mod testing;
pub mod write;

pub use codec::{Certainty, Codec, Probe};
pub use emit::{Emit, Sink};
pub use export::ExportReport;
pub use fact::{
    CallFact, CallId, ContextFact, ContextReason, Fact, Kept, Place, RepeatKey, RowFact, RowNo,
    SessionFact, SessionNo,
};
pub use quarantine::{BadClass, BadLine};
pub use registry::{
    Found, codec, codecs, detect, detect_file, files, find, inspect, writable, writer,
};
pub use report::FileReport;
pub use source::{Counts, Record, Source};
pub use tally::Tally;
pub use target::{Folder, OneFile};
pub use write::{Target, UsageKept, Writer, plain_name};
