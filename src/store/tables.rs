//! Every table of the database, with the types of its keys and values: the file format on one page.
//!
//! redb orders integer keys as integers and tuple keys element by element. Values that hold more than one field are
//! opaque bytes here and are decoded by `head` and `record`, whose decoders can fail; a redb value type cannot.
//!
//! Ids: a *stem id* names a session (the stem of its generation 0) and is given at the first mention of that stem;
//! a *transcript* is one generation, numbered by its creation; a *name id* stands for a thread, an agent, a
//! provider or a model. Id 0 is never given, so that 0 can mean "any" or "none".

use redb::TableDefinition;
use sha2::{Digest as _, Sha256};

use super::hash::Seed;

/// The version of the file format that this build writes.
///
/// Version 0 may still change; a file of a newer version is refused.
pub(super) const FORMAT_VERSION: u32 = 0;

/// Facts about the store: `"format"` (u32, little-endian), `"seed"` (32 bytes and their checksum), `"id"` (16 bytes and
/// their checksum) and `"state"` (see `head`).
pub(super) const STORE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("store");

/// Position → record. Positions ascend store-wide in the order of writing; only a compaction packs a record anew.
pub(super) const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");

/// The part of the log that a compaction under way has rewritten: the positions before the first of [`LOG`]. When it
/// holds them all, it takes the other's place and name.
pub(super) const LOG_COMPACTED: TableDefinition<'_, u64, &[u8]> =
    TableDefinition::new("log_compacted");

/// Hash of large content → where in the stream it lies, how it is packed, and how many records refer to it.
pub(super) const BLOBS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("blobs");

/// Unit of the stream of large content → its bytes from there on (see `blob`). A row whose block is full is never written
/// again.
pub(super) const BLOB_PAGES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("blob_pages");

/// Dictionary id → dictionary, and its checksum.
pub(super) const DICTIONARIES: TableDefinition<'_, u32, &[u8]> =
    TableDefinition::new("dictionaries");

/// Record UUID → position.
pub(super) const RECORDS_BY_UUID: TableDefinition<'_, u128, u64> =
    TableDefinition::new("records_by_uuid");

/// Transcript → information fixed at its creation, its head, and the tail of its runs.
pub(super) const TRANSCRIPTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("transcripts");

/// (transcript, chunk) → positions of the sequences `chunk * 32 .. chunk * 32 + 32`.
pub(super) const TRANSCRIPT_RUNS: TableDefinition<'_, (u64, u64), &[u8]> =
    TableDefinition::new("transcript_runs");

/// Stem of a generation 0 (as an [`id_key`]) → stem id.
pub(super) const STEMS: TableDefinition<'_, &[u8], u64> = TableDefinition::new("stems");

/// Stem id → stem, parent and, where it is known, the parts of its session reference.
pub(super) const STEM_INFO: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("stem_info");

/// fnv128 of a stem (with its generation) that is too long to stand in a child's stem → stem id and generation.
pub(super) const STEM_DIGESTS: TableDefinition<'_, u128, (u64, u32)> =
    TableDefinition::new("stem_digests");

/// (parent stem id, child stem id): the tree of sub-agents, written or only mentioned.
pub(super) const CHILDREN: TableDefinition<'_, (u64, u64), ()> = TableDefinition::new("children");

/// (stem id, generation) → transcript. The head of a session is the last entry of its range.
pub(super) const GENERATIONS: TableDefinition<'_, (u64, u32), u64> =
    TableDefinition::new("generations");

/// Name (as an [`id_key`]) → name id.
pub(super) const NAMES: TableDefinition<'_, &[u8], u64> = TableDefinition::new("names");

/// Name id → name.
pub(super) const NAME_TEXTS: TableDefinition<'_, u64, &str> = TableDefinition::new("name_texts");

/// (thread, agent id or 0 for any, transcript): root transcripts by the thread of their newest meta.
pub(super) const ROOTS_BY_THREAD: TableDefinition<'_, (u64, u64, u64), ()> =
    TableDefinition::new("roots_by_thread");

/// (thread, transcript): sub-agent transcripts by the thread of their own newest meta.
pub(super) const CHILDREN_BY_THREAD: TableDefinition<'_, (u64, u64), ()> =
    TableDefinition::new("children_by_thread");

/// (agent name or agent id, transcript): root transcripts by the agent of their newest meta.
pub(super) const ROOTS_BY_AGENT: TableDefinition<'_, (u64, u64), ()> =
    TableDefinition::new("roots_by_agent");

/// (stem id, idempotency key as an [`id_key`], transcript, sequence): every row that holds a key.
pub(super) const IDEMPOTENCY: TableDefinition<'_, (u64, &[u8], u64, u64), ()> =
    TableDefinition::new("idempotency");

/// Transcript, agent, provider, model, source.
pub(super) type SpendKey = (u64, u64, u64, u64, u8);

/// Totals of each transcript.
pub(super) const SPEND_BY_TRANSCRIPT: TableDefinition<'_, SpendKey, &[u8]> =
    TableDefinition::new("spend_by_transcript");

/// UTC hour, thread, stem id, agent, provider, model, source.
pub(super) type HourKey = (i64, u64, u64, u64, u64, u64, u8);

/// Totals of each hour.
pub(super) const SPEND_BY_HOUR: TableDefinition<'_, HourKey, &[u8]> =
    TableDefinition::new("spend_by_hour");

/// Number of an import whose rows are not published yet.
pub(super) const IMPORTS: TableDefinition<'_, u64, ()> = TableDefinition::new("imports");

/// (import, step) → the records that the step put into the log: nothing else knows of them until they are published.
pub(super) const STAGED: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("staged");

/// (import, step) → what is known of calls once the import is published (see `import::step`).
pub(super) const STAGED_CALLS: TableDefinition<'_, (u64, u64), &[u8]> =
    TableDefinition::new("staged_calls");

/// Repeat key of a record of a source → the import that made it, and the record's UUID.
pub(super) const IMPORT_KEYS: TableDefinition<'_, &[u8], (u64, u128)> =
    TableDefinition::new("import_keys");

/// Source → path, format, length, hash and chunks (see `import::step`).
pub(super) const SOURCES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("sources");

/// Path (as an [`id_key`]) → the source that was last imported from it.
pub(super) const SOURCES_BY_PATH: TableDefinition<'_, &[u8], u64> =
    TableDefinition::new("sources_by_path");

/// (transcript, source): which sources a transcript was made of.
pub(super) const SOURCES_BY_TRANSCRIPT: TableDefinition<'_, (u64, u64), ()> =
    TableDefinition::new("sources_by_transcript");

/// SHA-256 of a chunk of a source → the chunk, compressed.
pub(super) const CHUNKS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("chunks");

/// SHA-256 of a chunk → how many places of sources it stands at.
pub(super) const CHUNK_USES: TableDefinition<'_, &[u8], u64> = TableDefinition::new("chunk_uses");

/// Provider call → what was told of it, and which usage record counts (see `import::step`).
pub(super) const PROVIDER_CALLS: TableDefinition<'_, &[u8], &[u8]> =
    TableDefinition::new("provider_calls");

/// (transcript, sequence) of usage records that do not count, since another one tells of the same call.
pub(super) const SUPERSEDED: TableDefinition<'_, (u64, u64), ()> =
    TableDefinition::new("superseded");

/// (transcript, chunk) → where the records of the sequences `chunk * 64 .. chunk * 64 + 64` were imported from (see
/// `origin`).
pub(super) const ORIGINS: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("origins");

/// Transcript → what else a source told of its session, as JSON text (see `attributes`).
pub(super) const ATTRIBUTES: TableDefinition<'_, u64, &str> = TableDefinition::new("attributes");

/// What an image told that this version does not know, by what it is told of (see `import::restore`) → JSON text.
pub(super) const UNKNOWN: TableDefinition<'_, &str, &str> = TableDefinition::new("unknown");

/// Identifiers up to this many bytes stand in keys as they are.
const WHOLE_ID_BYTES: usize = 512;

/// How an identifier of any content and length stands in a key: whole if it is short, else by a 256-bit keyed hash.
/// A leading byte keeps the two apart.
pub(super) fn id_key(seed: &Seed, id: &str) -> Vec<u8> {
    let mut key;
    if id.len() <= WHOLE_ID_BYTES {
        key = Vec::with_capacity(1 + id.len());
        key.push(0);
        key.extend_from_slice(id.as_bytes());
    } else {
        key = Vec::with_capacity(33);
        key.push(1);
        key.extend_from_slice(&seed.long_id(id.as_bytes()));
    }
    key
}

/// How the id of a provider's call stands in a key: like an [`id_key`], but the same in every store.
pub(super) fn call_key(id: &str) -> Vec<u8> {
    let mut key;
    if id.len() <= WHOLE_ID_BYTES {
        key = Vec::with_capacity(1 + id.len());
        key.push(0);
        key.extend_from_slice(id.as_bytes());
    } else {
        key = Vec::with_capacity(33);
        key.push(1);
        key.extend_from_slice(&Sha256::digest(id));
    }
    key
}

/// How many sequences one row of [`TRANSCRIPT_RUNS`] covers.
pub(super) const RUN_CHUNK: u64 = 32;
