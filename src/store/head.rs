//! What the store knows of a transcript without reading its records, and its encoding.

use std::sync::Arc;

use bincode::de::BorrowDecoder;
use bincode::enc::Encoder;
use bincode::error::{DecodeError, EncodeError};
use bincode::{BorrowDecode, Decode, Encode};

use super::binary;
use super::journal::Ledger;
use super::tables::RUN_CHUNK;
use crate::spend::{Money, SpendTally};
use crate::{Error, Result, TranscriptMeta, UsageCostSource};

/// A run of sequences of one transcript's log. It stands for the rows among them: records of other kinds inside the
/// run are passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct Range {
    pub(super) transcript: u64,
    pub(super) first: u64,
    /// The sequence behind the last one.
    pub(super) end: u64,
}

/// How many ranges of a context stand in the head; more are read from the record that set the context.
pub(super) const INLINE_RANGES: usize = 8;

/// The live context: the rows that the last compaction (or a successor's first write) left, then the rows appended since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(super) struct Context {
    /// The ranges of the base, when there are at most [`INLINE_RANGES`].
    pub(super) base: Vec<Range>,
    /// The sequence of the marker or retained record that holds the ranges, when there are more.
    pub(super) base_record: Option<u64>,
    /// Rows from this sequence on are appended rows.
    pub(super) tail_from: u64,
    /// Number of rows.
    pub(super) rows: u64,
    /// Digest of the identities of the rows, in order.
    pub(super) digest: u128,
}

/// The tools record in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct ToolsRef {
    pub(super) seq: u64,
    /// Hash of the declarations: equal ones are not stored again.
    pub(super) hash: u128,
}

/// Fixed when the transcript is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct Birth {
    /// Stem id of the session.
    pub(super) session: u64,
    pub(super) generation: u32,
    /// The transcript of generation 0.
    pub(super) incarnation: u64,
    pub(super) subagent: bool,
    /// Microseconds since the Unix epoch.
    pub(super) created_at: i64,
}

/// All that an append needs to know of a transcript, and all that listings and totals show of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Head {
    pub(super) meta: Arc<TranscriptMeta>,
    /// Whether it was ever written through a session reference.
    pub(super) via_session: bool,
    pub(super) sealed: bool,
    pub(super) next_seq: u64,
    pub(super) context: Context,
    /// The tools record in force.
    pub(super) tools: Option<ToolsRef>,
    /// Rows and partials that this transcript was the first to store.
    pub(super) rows_stored: u64,
    /// First line of the first user row of the session.
    pub(super) title: Option<String>,
    /// Microseconds since the Unix epoch of the last write.
    pub(super) updated_at: i64,
    /// Totals over every usage that this transcript was the first to store.
    pub(super) spend: SpendTally,
}

impl Head {
    pub(super) fn new(meta: Arc<TranscriptMeta>) -> Self {
        Self {
            meta,
            via_session: false,
            sealed: false,
            next_seq: 0,
            context: Context::default(),
            tools: None,
            rows_stored: 0,
            title: None,
            updated_at: 0,
            spend: SpendTally::default(),
        }
    }
}

/// Where the last sequences of a transcript stand in the log: the chunk of `TRANSCRIPT_RUNS` that is not full yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RunTail {
    /// Sequence of the first slot, a multiple of [`RUN_CHUNK`].
    pub(super) first: u64,
    /// One position a sequence; `None` where the sequence is a retained row of another transcript.
    pub(super) positions: Vec<Option<u64>>,
}

impl RunTail {
    /// Places `position` at `seq`, which lies behind all sequences placed before. Chunks that are full are handed to
    /// `full`; a chunk without any position is not.
    pub(super) fn push(
        &mut self,
        seq: u64,
        position: u64,
        mut full: impl FnMut(u64, &[Option<u64>]) -> Result<()>,
    ) -> Result<()> {
        let chunk_first = seq - seq % RUN_CHUNK;
        if chunk_first != self.first {
            if self.positions.iter().any(Option::is_some) {
                full(self.first / RUN_CHUNK, &self.positions)?;
            }
            self.first = chunk_first;
            self.positions.clear();
        }
        let slot = usize::try_from(seq - chunk_first).unwrap_or_default();
        self.positions.resize(slot, None);
        self.positions.push(Some(position));
        Ok(())
    }
}

/// Encodes a chunk of positions: per slot the distance to the position before plus one, 0 for none.
pub(super) fn encode_run(positions: &[Option<u64>]) -> Result<Vec<u8>> {
    binary::encode(&pack(positions))
}

/// Decodes a chunk of positions.
pub(super) fn decode_run(bytes: &[u8]) -> Result<Vec<Option<u64>>> {
    unpack(&binary::decode::<Vec<u64>>(
        bytes,
        "the positions of a transcript",
    )?)
}

fn pack(positions: &[Option<u64>]) -> Vec<u64> {
    let mut last = 0;
    positions
        .iter()
        .map(|position| match position {
            None => 0,
            Some(position) => {
                let step = position.wrapping_sub(last).wrapping_add(1);
                last = *position;
                step
            }
        })
        .collect()
}

fn unpack(steps: &[u64]) -> Result<Vec<Option<u64>>> {
    if steps.len() as u64 > RUN_CHUNK {
        return Err(damaged("the positions of a transcript"));
    }
    let mut last = 0u64;
    Ok(steps
        .iter()
        .map(|step| {
            (*step > 0).then(|| {
                last = last.wrapping_add(step - 1);
                last
            })
        })
        .collect())
}

fn damaged(what: &str) -> Error {
    Error::Corrupted {
        what: what.to_owned(),
        at: "its encoding does not parse".to_owned(),
    }
}

/// One row of the table `transcripts`.
#[derive(Clone, Debug)]
pub(super) struct Transcript {
    pub(super) birth: Birth,
    pub(super) head: Head,
    pub(super) runs: RunTail,
}

/// What such a row says of the log of its transcript.
#[derive(Clone, Debug)]
pub(super) struct Course {
    pub(super) birth: Birth,
    pub(super) sealed: bool,
    pub(super) next_seq: u64,
    pub(super) runs: RunTail,
}

#[derive(Encode, BorrowDecode)]
struct TranscriptV0<'a> {
    /// 0, so that heads of another layout can stand beside these.
    format: u8,
    birth: Birth,
    head: HeadV0<'a>,
    run_first: u64,
    run_steps: Vec<u64>,
}

/// A head as it stands in the row of its transcript and in a journaled change.
#[derive(Encode, BorrowDecode)]
struct HeadV0<'a> {
    meta: MetaV0<'a>,
    via_session: bool,
    sealed: bool,
    next_seq: u64,
    context: Context,
    tools: Option<ToolsRef>,
    rows_stored: u64,
    title: Option<&'a str>,
    updated_at: i64,
    spend: TallyV0<'a>,
}

impl<'a> From<&'a Head> for HeadV0<'a> {
    fn from(head: &'a Head) -> Self {
        Self {
            meta: MetaV0::from(head.meta.as_ref()),
            via_session: head.via_session,
            sealed: head.sealed,
            next_seq: head.next_seq,
            context: head.context.clone(),
            tools: head.tools,
            rows_stored: head.rows_stored,
            title: head.title.as_deref(),
            updated_at: head.updated_at,
            spend: TallyV0::from(&head.spend),
        }
    }
}

impl From<HeadV0<'_>> for Head {
    fn from(head: HeadV0<'_>) -> Self {
        Self {
            meta: Arc::new(head.meta.into()),
            via_session: head.via_session,
            sealed: head.sealed,
            next_seq: head.next_seq,
            context: head.context,
            tools: head.tools,
            rows_stored: head.rows_stored,
            title: head.title.map(str::to_owned),
            updated_at: head.updated_at,
            spend: head.spend.into(),
        }
    }
}

impl Encode for Head {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> std::result::Result<(), EncodeError> {
        HeadV0::from(self).encode(encoder)
    }
}

impl<'de, C> BorrowDecode<'de, C> for Head {
    fn borrow_decode<D: BorrowDecoder<'de, Context = C>>(
        decoder: &mut D,
    ) -> std::result::Result<Self, DecodeError> {
        HeadV0::borrow_decode(decoder).map(Self::from)
    }
}

#[derive(Encode, BorrowDecode)]
struct MetaV0<'a> {
    agent_name: &'a str,
    dispatcher: &'a str,
    created: &'a str,
    updated: &'a str,
    turn_count: u64,
    input_tokens: u64,
    output_tokens: u64,
    cached_input_tokens: u64,
    charged_amount_usd: f64,
    agent_id: Option<&'a str>,
    agent_type: Option<&'a str>,
    provider: Option<&'a str>,
    model: Option<&'a str>,
    prefix_message_count: Option<u64>,
    thread_id: Option<&'a str>,
    task_id: Option<&'a str>,
    session_id: Option<&'a str>,
    parent_session_id: Option<&'a str>,
}

#[derive(Encode, BorrowDecode)]
struct TallyV0<'a> {
    input_tokens: u64,
    output_tokens: u64,
    cached_input_tokens: u64,
    cost: i128,
    turns: u64,
    last_input_tokens: u64,
    last_output_tokens: u64,
    last_context_tokens: u64,
    last_context_input_tokens: u64,
    last_context_output_tokens: u64,
    model: Option<&'a str>,
    context_window: u64,
    priced: i128,
    priced_source: u8,
    unpriced_turns: u64,
    unpriced_input_tokens: u64,
    unpriced_output_tokens: u64,
    unpriced_cached_input_tokens: u64,
}

impl Transcript {
    /// The value of the table row.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        binary::encode(&TranscriptV0 {
            format: 0,
            birth: self.birth,
            head: HeadV0::from(&self.head),
            run_first: self.runs.first,
            run_steps: pack(&self.runs.positions),
        })
    }

    /// Reads the value of the table row.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let value = TranscriptV0::decode(bytes)?;
        Ok(Self {
            birth: value.birth,
            runs: value.runs()?,
            head: value.head.into(),
        })
    }
}

impl Course {
    /// Reads it out of the value of the table row.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let value = TranscriptV0::decode(bytes)?;
        Ok(Self {
            birth: value.birth,
            sealed: value.head.sealed,
            next_seq: value.head.next_seq,
            runs: value.runs()?,
        })
    }
}

impl<'a> TranscriptV0<'a> {
    fn decode(bytes: &'a [u8]) -> Result<Self> {
        const WHAT: &str = "the head of a transcript";
        let value: Self = binary::decode(bytes, WHAT)?;
        if value.format == 0 {
            Ok(value)
        } else {
            Err(damaged(WHAT))
        }
    }

    fn runs(&self) -> Result<RunTail> {
        Ok(RunTail {
            first: self.run_first,
            positions: unpack(&self.run_steps)?,
        })
    }
}

impl<'a> From<&'a TranscriptMeta> for MetaV0<'a> {
    fn from(meta: &'a TranscriptMeta) -> Self {
        Self {
            agent_name: &meta.agent_name,
            dispatcher: &meta.dispatcher,
            created: &meta.created,
            updated: &meta.updated,
            turn_count: meta.turn_count as u64,
            input_tokens: meta.input_tokens,
            output_tokens: meta.output_tokens,
            cached_input_tokens: meta.cached_input_tokens,
            charged_amount_usd: meta.charged_amount_usd,
            agent_id: meta.agent_id.as_deref(),
            agent_type: meta.agent_type.as_deref(),
            provider: meta.provider.as_deref(),
            model: meta.model.as_deref(),
            prefix_message_count: meta.prefix_message_count.map(|count| count as u64),
            thread_id: meta.thread_id.as_deref(),
            task_id: meta.task_id.as_deref(),
            session_id: meta.session_id.as_deref(),
            parent_session_id: meta.parent_session_id.as_deref(),
        }
    }
}

/// Saturates, so that a count written on a 64-bit host reads on a 32-bit one.
pub(super) fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl From<MetaV0<'_>> for TranscriptMeta {
    fn from(meta: MetaV0<'_>) -> Self {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Self {
            agent_name: meta.agent_name.to_owned(),
            dispatcher: meta.dispatcher.to_owned(),
            created: meta.created.to_owned(),
            updated: meta.updated.to_owned(),
            turn_count: to_usize(meta.turn_count),
            input_tokens: meta.input_tokens,
            output_tokens: meta.output_tokens,
            cached_input_tokens: meta.cached_input_tokens,
            charged_amount_usd: meta.charged_amount_usd,
            agent_id: owned(meta.agent_id),
            agent_type: owned(meta.agent_type),
            provider: owned(meta.provider),
            model: owned(meta.model),
            prefix_message_count: meta.prefix_message_count.map(to_usize),
            thread_id: owned(meta.thread_id),
            task_id: owned(meta.task_id),
            session_id: owned(meta.session_id),
            parent_session_id: owned(meta.parent_session_id),
        }
    }
}

/// A cost source as it stands in keys and records; 0 is none.
pub(super) fn source_code(source: Option<UsageCostSource>) -> u8 {
    match source {
        None => 0,
        Some(UsageCostSource::Charged) => 1,
        Some(UsageCostSource::Estimated) => 2,
        Some(UsageCostSource::Unknown) => 3,
    }
}

/// The cost source that a code stands for.
pub(super) fn source_from_code(code: u8) -> Option<UsageCostSource> {
    match code {
        1 => Some(UsageCostSource::Charged),
        2 => Some(UsageCostSource::Estimated),
        3 => Some(UsageCostSource::Unknown),
        _ => None,
    }
}

impl<'a> From<&'a SpendTally> for TallyV0<'a> {
    fn from(tally: &'a SpendTally) -> Self {
        Self {
            input_tokens: tally.input_tokens,
            output_tokens: tally.output_tokens,
            cached_input_tokens: tally.cached_input_tokens,
            cost: tally.cost.0,
            turns: tally.turns,
            last_input_tokens: tally.last_input_tokens,
            last_output_tokens: tally.last_output_tokens,
            last_context_tokens: tally.last_context_tokens,
            last_context_input_tokens: tally.last_context_input_tokens,
            last_context_output_tokens: tally.last_context_output_tokens,
            model: tally.model.as_deref(),
            context_window: tally.context_window,
            priced: tally.priced.0,
            priced_source: source_code(tally.priced_source),
            unpriced_turns: tally.unpriced_turns,
            unpriced_input_tokens: tally.unpriced_input_tokens,
            unpriced_output_tokens: tally.unpriced_output_tokens,
            unpriced_cached_input_tokens: tally.unpriced_cached_input_tokens,
        }
    }
}

impl From<TallyV0<'_>> for SpendTally {
    fn from(tally: TallyV0<'_>) -> Self {
        Self {
            input_tokens: tally.input_tokens,
            output_tokens: tally.output_tokens,
            cached_input_tokens: tally.cached_input_tokens,
            cost: Money(tally.cost),
            turns: tally.turns,
            last_input_tokens: tally.last_input_tokens,
            last_output_tokens: tally.last_output_tokens,
            last_context_tokens: tally.last_context_tokens,
            last_context_input_tokens: tally.last_context_input_tokens,
            last_context_output_tokens: tally.last_context_output_tokens,
            model: tally.model.map(str::to_owned),
            context_window: tally.context_window,
            priced: Money(tally.priced),
            priced_source: source_from_code(tally.priced_source),
            unpriced_turns: tally.unpriced_turns,
            unpriced_input_tokens: tally.unpriced_input_tokens,
            unpriced_output_tokens: tally.unpriced_output_tokens,
            unpriced_cached_input_tokens: tally.unpriced_cached_input_tokens,
        }
    }
}

/// What the store as a whole remembers, rewritten with every group of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreState {
    /// Sequence number of the last change that was applied.
    pub(super) sequence: u64,
    /// The last record UUID that this store minted.
    pub(super) last_uuid: u128,
    /// The journal that holds the changes behind `sequence`; None if there are none: the store is clean.
    pub(super) journal: Option<Ledger>,
}

impl StoreState {
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        binary::encode(&(self.sequence, self.last_uuid, self.journal))
    }

    /// Reads the state; one that was written before there was a journal ends before it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let what = "the state of the store";
        let without_journal = binary::decode::<(u64, u128)>(bytes, what);
        if let Ok((sequence, last_uuid)) = without_journal {
            return Ok(Self {
                sequence,
                last_uuid,
                journal: None,
            });
        }
        let (sequence, last_uuid, journal) = binary::decode(bytes, what)?;
        Ok(Self {
            sequence,
            last_uuid,
            journal,
        })
    }
}

/// A stem that was mentioned: as itself or as somebody's ancestor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(super) struct StemInfo {
    /// Stem of generation 0.
    pub(super) stem: String,
    /// Stem id of the delegating session.
    pub(super) parent: Option<u64>,
    /// The session reference it was written through, if it was.
    pub(super) session: Option<SessionParts>,
}

/// The parts of a session reference, apart from its generation.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct SessionParts {
    pub(super) key: String,
    pub(super) agent: Option<String>,
    /// Stems of the ancestors, outermost first.
    pub(super) ancestors: Vec<String>,
}

/// Totals of one row of a spend table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(super) struct Totals {
    pub(super) turns: u64,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) cached_input_tokens: u64,
    /// 10^-12 USD.
    pub(super) cost: i128,
    /// Known of imports alone.
    pub(super) cache_write_tokens: u64,
}

impl Totals {
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        binary::encode_fixed(self)
    }

    /// Reads a row of totals; one of before there were tokens written to a cache ends before them.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let what = "a row of totals";
        let without_cache = binary::decode_fixed::<([u64; 4], i128)>(bytes, what);
        if let Ok(([turns, input_tokens, output_tokens, cached_input_tokens], cost)) = without_cache
        {
            return Ok(Self {
                turns,
                input_tokens,
                output_tokens,
                cached_input_tokens,
                cost,
                cache_write_tokens: 0,
            });
        }
        binary::decode_fixed(bytes, what)
    }

    /// These without others that were added before.
    pub(super) fn without(&self, other: &Self) -> Self {
        Self {
            turns: self.turns.saturating_sub(other.turns),
            input_tokens: self.input_tokens.saturating_sub(other.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(other.output_tokens),
            cached_input_tokens: self
                .cached_input_tokens
                .saturating_sub(other.cached_input_tokens),
            cache_write_tokens: self
                .cache_write_tokens
                .saturating_sub(other.cache_write_tokens),
            cost: self.cost.saturating_sub(other.cost),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.turns = self.turns.saturating_add(other.turns);
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_input_tokens = self
            .cached_input_tokens
            .saturating_add(other.cached_input_tokens);
        self.cache_write_tokens = self
            .cache_write_tokens
            .saturating_add(other.cache_write_tokens);
        self.cost = self.cost.saturating_add(other.cost);
    }
}
