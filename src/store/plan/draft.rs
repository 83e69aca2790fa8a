//! A change in the making: records are encoded and the head moves with each of them.

use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use super::Target;
use crate::replay::StoredRow;
use crate::spend::{Money, SpendTally, usage_hour};
use crate::store::change::{Change, CountedUsage, Create, NewRecord, SealPredecessor, TurnChange};
use crate::store::engine::{Engine, Planned};
use crate::store::envelope::Encoded;
use crate::store::hash::Identity;
use crate::store::head::{
    Context, Head, INLINE_RANGES, Range, SessionParts, ToolsRef, Totals, source_code,
};
use crate::store::pending::Newest;
use crate::store::read::context::{LiveRows, Place};
use crate::store::record::{self, Address, Kind, Marker, RowRef, Seal, UsageBody};
use crate::turn::{ContextPlan, PlannedRow, PlannedUsage, RowsPlan, Slot, background_origin};
use crate::{Error, Result, TranscriptMeta, TurnUsage};

/// The longest title, in characters.
const TITLE_CHARS: usize = 80;

/// One transcript's part of a change.
pub(super) struct Draft<'e> {
    engine: &'e Engine,
    at: i64,
    session: &'e str,
    transcript: u64,
    generation: u32,
    incarnation: u64,
    create: Option<Create>,
    named: Option<SessionParts>,
    pub(super) head: Head,
    records: Vec<NewRecord>,
}

impl<'e> Draft<'e> {
    /// Continues the transcript that `target` is, or begins the one it is to be. `meta` becomes the newest meta; `seed`
    /// is the meta of a first write that brings none.
    pub(super) fn new(
        engine: &'e Engine,
        session: &'e str,
        target: &Target<'_>,
        parts: Option<&SessionParts>,
        meta: Option<&TranscriptMeta>,
        seed: &Arc<TranscriptMeta>,
    ) -> Self {
        let at = engine.environment.now_micros();
        let meta = meta.map(|meta| Arc::new(meta.clone()));
        let mut draft = match *target {
            Target::Existing(newest) => {
                let mut head = newest.head.as_ref().clone();
                if let Some(meta) = meta {
                    head.meta = meta;
                }
                Self {
                    engine,
                    at,
                    session,
                    transcript: newest.transcript,
                    generation: newest.generation,
                    incarnation: newest.incarnation,
                    create: None,
                    named: None,
                    head,
                    records: Vec::new(),
                }
            }
            Target::First => {
                let transcript = engine.new_transcript();
                Self {
                    engine,
                    at,
                    session,
                    transcript,
                    generation: 0,
                    incarnation: transcript,
                    create: Some(Create {
                        incarnation: transcript,
                        seal: None,
                    }),
                    named: None,
                    head: Head::new(meta.unwrap_or_else(|| Arc::clone(seed))),
                    records: Vec::new(),
                }
            }
            Target::Successor(predecessor) => {
                let mut head = Head::new(meta.unwrap_or_else(|| Arc::clone(seed)));
                head.via_session = predecessor.head.via_session;
                head.title.clone_from(&predecessor.head.title);
                Self {
                    engine,
                    at,
                    session,
                    transcript: engine.new_transcript(),
                    generation: predecessor.generation + 1,
                    incarnation: predecessor.incarnation,
                    create: Some(Create {
                        incarnation: predecessor.incarnation,
                        seal: None,
                    }),
                    named: None,
                    head,
                    records: Vec::new(),
                }
            }
        };
        if let Some(parts) = parts.filter(|_| !draft.head.via_session) {
            draft.head.via_session = true;
            draft.named = Some(parts.clone());
        }
        draft.head.updated_at = at;
        draft
    }

    /// Hands the change over.
    pub(super) fn finish<T>(self, answer: impl FnOnce(&Newest) -> T) -> Planned<T> {
        let newest = Newest {
            transcript: self.transcript,
            generation: self.generation,
            incarnation: self.incarnation,
            head: Arc::new(self.head.clone()),
        };
        Planned::Write {
            answer: answer(&newest),
            newest,
            beside: Vec::new(),
            change: Box::new(Change::Turn(Box::new(TurnChange {
                at: self.at,
                transcript: self.transcript,
                session: self.session.to_owned(),
                generation: self.generation,
                named: self.named,
                create: self.create,
                head: self.head,
                records: self.records,
            }))),
        }
    }

    fn address(&self) -> Address {
        Address {
            transcript: self.transcript,
            seq: self.head.next_seq,
            uuid: self.engine.uuids.mint(),
            at: self.at,
        }
    }

    fn push(
        &mut self,
        address: Address,
        encoded: Encoded,
        key: Option<String>,
        usage: Option<&TurnUsage>,
    ) -> Result<()> {
        let record = self.new_record(address, encoded, key, usage)?;
        if let Some(usage) = usage {
            self.head.spend.add(usage);
        }
        self.head.next_seq = address.seq + 1;
        self.records.push(record);
        Ok(())
    }

    fn new_record(
        &self,
        address: Address,
        encoded: Encoded,
        key: Option<String>,
        usage: Option<&TurnUsage>,
    ) -> Result<NewRecord> {
        if encoded.size > self.engine.record_limit {
            return Err(Error::TooLarge {
                what: "record",
                size: encoded.size,
                limit: self.engine.record_limit,
            });
        }
        let usage = usage
            .filter(|usage| SpendTally::counts(usage))
            .map(|turn| CountedUsage {
                hour: usage_hour(turn, address.at),
                provider: turn.provider.clone(),
                model: turn.model.clone(),
                source: source_code(turn.usage.cost_source),
                totals: Totals {
                    turns: 1,
                    input_tokens: turn.usage.input,
                    output_tokens: turn.usage.output,
                    cached_input_tokens: turn.usage.cached_input,
                    cache_write_tokens: 0,
                    cost: Money::from_usd(turn.usage.cost_usd).0,
                },
            });
        Ok(NewRecord {
            seq: address.seq,
            uuid: address.uuid,
            bytes: encoded.bytes,
            blobs: encoded.blobs,
            key,
            usage,
        })
    }

    /// Stores a row at the next sequence, without touching the context. Answers its identity.
    fn row(
        &mut self,
        in_marker: bool,
        row: &PlannedRow,
        shows_write_time: bool,
        revises: Option<Uuid>,
    ) -> Result<Identity> {
        let message = &row.message;
        let kind = match (in_marker, message.interrupted) {
            (false, false) => Kind::Row,
            (true, false) => Kind::MarkerRow,
            (false, true) => Kind::Partial,
            (true, true) => Kind::MarkerPartial,
        };
        let address = self.address();
        let hashes = self.engine.seed.row(message);
        let encoded = record::encode_row(
            self.engine.packing(),
            kind,
            address,
            &RowRef {
                message,
                hashes,
                iteration: row.iteration,
                ts: row.ts.as_deref(),
                shows_write_time,
                revises,
            },
        )?;
        if self.head.title.is_none() && message.role == "user" {
            self.head.title = title(&message.content);
        }
        self.head.rows_stored += 1;
        // An interrupted row is in no live context, so it holds no key.
        let origin = background_origin(message).filter(|_| !message.interrupted);
        let key = origin.map(|origin| origin.idempotency_key);
        self.push(address, encoded, key, row.counted_usage())?;
        Ok(hashes.identity())
    }

    fn extend(&mut self, identity: &Identity) {
        let context = &mut self.head.context;
        context.digest = self.engine.seed.extend(context.digest, identity);
        context.rows += 1;
    }

    /// Appends rows to the context.
    pub(super) fn rows(&mut self, plan: &RowsPlan, shows_write_time: bool) -> Result<()> {
        for row in &plan.rows {
            let identity = self.row(false, row, shows_write_time, None)?;
            if !row.message.interrupted {
                self.extend(&identity);
            }
        }
        self.usages(&plan.usage)
    }

    /// Takes over a row of another session, as a revision of it: it reads back as it stands there, and its usage stays
    /// counted there.
    pub(super) fn adopt(&mut self, index: usize, row: StoredRow) -> Result<()> {
        let usage = row.message.turn_usage.as_ref();
        // The display shows the time of a usage before that of the write.
        let written = row
            .written
            .filter(|_| usage.is_none_or(|usage| usage.ts.is_empty()));
        let adopted = PlannedRow {
            ts: row.ts.or(written),
            message: row.message,
            iteration: row.iteration,
            revises: Some(index),
        };
        let identity = self.row(false, &adopted, false, Some(row.uuid))?;
        self.extend(&identity);
        Ok(())
    }

    fn usages(&mut self, usages: &[PlannedUsage]) -> Result<()> {
        for planned in usages {
            let address = self.address();
            let body = UsageBody {
                usage: planned.usage.clone(),
                request_id: planned.request_id.clone(),
                ..UsageBody::default()
            };
            let encoded = record::encode_usage(self.engine.packing(), address, &body)?;
            self.push(address, encoded, None, Some(&planned.usage))?;
        }
        Ok(())
    }

    /// Replaces the context by a compaction.
    pub(super) fn compact(
        &mut self,
        plan: &ContextPlan,
        stored: &LiveRows<'_, '_>,
        request_id: Option<&str>,
        metadata: Option<&Value>,
    ) -> Result<()> {
        let first_row = self.head.next_seq + 1;
        let mut ranges = Ranges::new(self.transcript, true);
        for slot in &plan.context {
            match *slot {
                Slot::Kept(index) => ranges.kept(index, place(stored, index)?),
                Slot::New(index) => ranges.new_row(first_row + index as u64),
            }
        }
        let replacement = ranges.done;
        let address = self.address();
        let marker = Marker {
            replacement,
            request_id: request_id.map(str::to_owned),
            metadata: metadata.cloned(),
        };
        let encoded = record::encode_marker(self.engine.packing(), address, &marker)?;
        self.push(address, encoded, None, None)?;
        let mut new = Vec::with_capacity(plan.rows.len());
        for row in &plan.rows {
            let revises = revises(row, stored)?;
            new.push(self.row(true, row, false, revises)?);
        }
        self.replace_context(plan, stored, &new, marker.replacement, address.seq)?;
        self.usages(&plan.usage)
    }

    /// The first context of a successor: kept rows of the predecessor among new ones.
    pub(super) fn succeed(
        &mut self,
        plan: &ContextPlan,
        stored: &LiveRows<'_, '_>,
        shows_write_time: bool,
    ) -> Result<()> {
        if !plan
            .context
            .iter()
            .any(|slot| matches!(slot, Slot::Kept(_)))
        {
            // Nothing is kept: every row is new, but may revise one of the predecessor's.
            for row in &plan.rows {
                let revised = revises(row, stored)?;
                let identity = self.row(false, row, shows_write_time, revised)?;
                if !row.message.interrupted {
                    self.extend(&identity);
                }
            }
            return self.usages(&plan.usage);
        }
        let record_seq = self.head.next_seq;
        let first_row = record_seq + 1;
        let mut ranges = Ranges::new(self.transcript, false);
        for (seq, slot) in (first_row..).zip(&plan.context) {
            match *slot {
                Slot::Kept(index) => ranges.kept(index, place(stored, index)?),
                Slot::New(_) => ranges.new_row(seq),
            }
        }
        let layout = ranges.done;
        let address = self.address();
        let encoded = record::encode_retained(self.engine.packing(), address, &layout)?;
        self.push(address, encoded, None, None)?;
        let mut new = Vec::with_capacity(plan.rows.len());
        for (seq, slot) in (first_row..).zip(&plan.context) {
            if let Slot::New(index) = *slot
                && let Some(row) = plan.rows.get(index)
            {
                self.head.next_seq = seq;
                new.push(self.row(false, row, shows_write_time, revises(row, stored)?)?);
            }
        }
        self.head.next_seq = first_row + plan.context.len() as u64;
        self.replace_context(plan, stored, &new, layout, record_seq)?;
        self.usages(&plan.usage)
    }

    fn replace_context(
        &mut self,
        plan: &ContextPlan,
        stored: &LiveRows<'_, '_>,
        new: &[Identity],
        ranges: Vec<Range>,
        record: u64,
    ) -> Result<()> {
        let inline = ranges.len() <= INLINE_RANGES;
        self.head.context = Context {
            base: if inline { ranges } else { Vec::new() },
            base_record: (!inline).then_some(record),
            tail_from: self.head.next_seq,
            rows: 0,
            digest: 0,
        };
        for slot in &plan.context {
            match *slot {
                Slot::Kept(index) => {
                    let identity = place(stored, index)?.hashes.identity();
                    self.extend(&identity);
                }
                Slot::New(index) => {
                    let shown = plan
                        .rows
                        .get(index)
                        .is_some_and(|row| !row.message.interrupted);
                    if let Some(identity) = new.get(index).filter(|_| shown) {
                        self.extend(identity);
                    }
                }
            }
        }
        Ok(())
    }

    /// Records tool declarations, unless they are the ones in force.
    pub(super) fn tools(&mut self, tools: Option<&Value>) -> Result<()> {
        let Some(tools) = tools else { return Ok(()) };
        let hash = self.engine.seed.json_text(tools);
        if self.head.tools.is_some_and(|known| known.hash == hash) {
            return Ok(());
        }
        let address = self.address();
        let encoded = record::encode_tools(self.engine.packing(), address, tools)?;
        self.push(address, encoded, None, None)?;
        self.head.tools = Some(ToolsRef {
            seq: address.seq,
            hash,
        });
        Ok(())
    }

    /// Records the text of an interrupted turn.
    pub(super) fn partial(&mut self, row: Option<&PlannedRow>) -> Result<()> {
        if let Some(row) = row {
            self.row(false, row, true, None)?;
        }
        Ok(())
    }

    /// Seals the predecessor, in the same change.
    pub(super) fn seal(
        &mut self,
        predecessor: &Newest,
        request_id: Option<&str>,
        metadata: Option<&Value>,
    ) -> Result<()> {
        let mut head = predecessor.head.as_ref().clone();
        let address = Address {
            transcript: predecessor.transcript,
            seq: head.next_seq,
            uuid: self.engine.uuids.mint(),
            at: self.at,
        };
        let seal = Seal {
            request_id: request_id.map(str::to_owned),
            metadata: metadata.cloned(),
        };
        let encoded = record::encode_seal(self.engine.packing(), address, &seal)?;
        let record = self.new_record(address, encoded, None, None)?;
        head.next_seq += 1;
        head.sealed = true;
        if let Some(create) = &mut self.create {
            create.seal = Some(SealPredecessor {
                transcript: predecessor.transcript,
                head,
                record,
            });
        }
        Ok(())
    }
}

fn place<'p>(stored: &'p LiveRows<'_, '_>, index: usize) -> Result<&'p Place> {
    stored
        .place(index)
        .ok_or_else(|| Error::other("a kept row is not in the context before"))
}

fn revises(row: &PlannedRow, stored: &LiveRows<'_, '_>) -> Result<Option<Uuid>> {
    row.revises
        .map(|index| Ok(Uuid::from_u128(place(stored, index)?.uuid)))
        .transpose()
}

fn title(content: &str) -> Option<String> {
    let line = content
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())?;
    Some(line.chars().take(TITLE_CHARS).collect())
}

/// Ranges in the making.
struct Ranges {
    done: Vec<Range>,
    transcript: u64,
    /// Whether a range may pass over records that are no rows.
    loose: bool,
    last_kept: Option<usize>,
}

impl Ranges {
    fn new(transcript: u64, loose: bool) -> Self {
        Self {
            done: Vec::new(),
            transcript,
            loose,
            last_kept: None,
        }
    }

    fn kept(&mut self, index: usize, place: &Place) {
        let follows = self.loose && place.joins && index > 0 && self.last_kept == Some(index - 1);
        self.push(place.transcript, place.seq, follows);
        self.last_kept = Some(index);
    }

    fn new_row(&mut self, seq: u64) {
        self.push(self.transcript, seq, false);
        self.last_kept = None;
    }

    fn push(&mut self, transcript: u64, seq: u64, follows: bool) {
        match self.done.last_mut() {
            Some(last) if last.transcript == transcript && (follows || last.end == seq) => {
                last.end = seq + 1;
            }
            _ => self.done.push(Range {
                transcript,
                first: seq,
                end: seq + 1,
            }),
        }
    }
}
