//! Calls of providers: which of the usage records that tell of one counts.

use super::session::counted;
use super::step::{Adjusted, CallGroup, CallSlot, ImportStep, SettledCalls, StagedOrigin};
use super::{Import, ImportCall, Reading, RepeatKey, STEP_BYTES, step};
use crate::store::origin::Imported;
use crate::store::record::{self, Body, UsageBody};
use crate::{Result, TranscriptMeta, TurnUsage};

/// A slot for a usage whose record is not stored yet.
pub(super) fn slot(call: &ImportCall) -> CallSlot {
    let usage = &call.usage;
    CallSlot {
        transcript: 0,
        seq: 0,
        output: usage.usage.output,
        input: usage.usage.input,
        cached_input: usage.usage.cached_input,
        cache_write: call.cache_write,
        cost_usd: usage.usage.cost_usd,
        at: None,
    }
}

/// When a session began; those that do not say come last.
fn began(meta: &TranscriptMeta) -> i64 {
    let created = meta.created.parse::<jiff::Timestamp>();
    created.map_or(i64::MAX, |created| created.as_microsecond())
}

/// What is known of calls after the import.
#[derive(Default)]
pub(super) struct Settled {
    /// Those that no step holds yet.
    pub(super) groups: Vec<(Vec<u8>, CallGroup)>,
    weight: usize,
    /// Usages of other transcripts that count no more or again.
    pub(super) adjusted: Vec<Adjusted>,
    /// The marks of records.
    pub(super) marks: Vec<(u64, u64, bool)>,
}

impl Settled {
    pub(super) fn push(&mut self, key: Vec<u8>, group: CallGroup) {
        self.weight += group.weight();
        self.groups.push((key, group));
    }
}

/// A usage record that is stored.
pub(super) struct StoredUsage {
    /// Its session among those of the import.
    pub(super) session: usize,
    pub(super) body: UsageBody,
    /// Write time.
    pub(super) at: i64,
    pub(super) origin: Option<Imported>,
}

impl Import<'_> {
    /// Stores usage records of what is larger than what was known, and says which of all records count.
    pub(super) fn settle_calls(&mut self) -> Result<Settled> {
        // In the order of their keys, so that an import is the same whenever it runs.
        let mut all = std::mem::take(&mut self.calls).merged()?;
        let mut settled = Settled::default();
        while let Some((key, told)) = all.next()? {
            self.flush_calls(&mut settled)?;
            let before = self.engine.read(|reader| reader.provider_call(&key))?;
            let new_id = before.is_none();
            let before = before.unwrap_or_default();
            if !told.totals.is_empty() {
                self.settle_totals(key, before, told.totals, &mut settled)?;
                continue;
            }
            let mut group = before.clone();
            let mut fresh: Vec<(u64, u64, ImportCall, i64)> = Vec::new();
            for (request, call) in told.by_request {
                let mut slot = slot(&call);
                let held = match &request {
                    None => group.unnamed.as_ref(),
                    Some(request) => {
                        let mut slots = group.requests.iter();
                        slots
                            .find(|(known, _)| known == request)
                            .map(|(_, slot)| slot)
                    }
                };
                if let Some(held) = held
                    && !slot.outweighs(held)
                    && (held.outweighs(&slot) || !self.precedes(&call, held)?)
                {
                    continue;
                }
                let at = self.time(&call.usage.ts);
                let name = [&key, request.as_deref().unwrap_or_default().as_bytes()].concat();
                let origin = call.span.origin(0);
                let (transcript, seq) = self.put_usage(&name, &call, at, origin)?;
                (slot.transcript, slot.seq) = (transcript, seq);
                match request {
                    None => group.unnamed = Some(slot),
                    Some(request) => {
                        group.requests.retain(|(known, _)| *known != request);
                        let at = group
                            .requests
                            .partition_point(|(known, _)| *known < request);
                        group.requests.insert(at, (request, slot));
                    }
                }
                fresh.push((transcript, seq, *call, at));
            }
            if fresh.is_empty() {
                self.added.duplicates += 1;
                continue;
            }
            // An id that starts with this letter is a provider's message id.
            if new_id && key.get(1) == Some(&b'm') {
                self.added.message_ids += 1;
            }
            let place = |slot: &CallSlot| (slot.transcript, slot.seq);
            let counted_before: Vec<_> = before.counted().into_iter().map(place).collect();
            let counted_after: Vec<_> = group.counted().into_iter().map(place).collect();
            for (transcript, seq, call, at) in fresh {
                if counted_after.contains(&(transcript, seq)) {
                    self.count_call(&call, at);
                } else {
                    settled.marks.push((transcript, seq, true));
                }
            }
            for slot in before.counted() {
                if !counted_after.contains(&place(slot)) {
                    settled.adjusted.extend(self.adjust(slot, false)?);
                    settled.marks.push((slot.transcript, slot.seq, true));
                }
            }
            for slot in group.counted() {
                if slot.at.is_some() && !counted_before.contains(&place(slot)) {
                    settled.adjusted.extend(self.adjust(slot, true)?);
                    settled.marks.push((slot.transcript, slot.seq, false));
                }
            }
            settled.push(key, group);
        }
        Ok(settled)
    }

    /// Whether a call is told of by a session that began before the one that holds it: of sessions that tell the same of it,
    /// as a fork does of what it inherits, the first has spent it, whichever was imported first.
    fn precedes(&self, call: &ImportCall, held: &CallSlot) -> Result<bool> {
        let Some(open) = self.sessions.get(call.session) else {
            return Ok(false);
        };
        if open.transcript == held.transcript {
            return Ok(false);
        }
        let own = (began(&open.head.meta), open.session.stem.clone());
        let known = self.by_transcript.get(&held.transcript);
        let other = match known.and_then(|index| self.sessions.get(*index)) {
            Some(other) => (began(&other.head.meta), other.session.stem.clone()),
            None => self.engine.read(|reader| {
                let transcript = reader.transcript(held.transcript)?;
                let (session, began) = (transcript.birth.session, began(&transcript.head.meta));
                Ok((began, reader.stem_of(session, 0)?))
            })?,
        };
        Ok(own.1 != other.1 && own < other)
    }

    /// Puts what was settled into the store, if it is much.
    fn flush_calls(&mut self, settled: &mut Settled) -> Result<()> {
        if settled.weight < STEP_BYTES {
            return Ok(());
        }
        settled.weight = 0;
        let calls = SettledCalls {
            import: self.id,
            groups: std::mem::take(&mut settled.groups),
        };
        self.staged = true;
        step(self.engine, ImportStep::Calls(calls)).map(drop)
    }

    /// Counts a usage record of this import.
    pub(super) fn count_call(&mut self, call: &ImportCall, at: i64) {
        self.added.count(&call.usage, call.cache_write);
        if let Some(open) = self.sessions.get_mut(call.session) {
            open.count(&call.usage, call.cache_write, at);
        }
    }

    /// Stores a usage record in the log of its session. `of` is what it is told of.
    pub(super) fn put_usage(
        &mut self,
        of: &[u8],
        call: &ImportCall,
        at: i64,
        origin: StagedOrigin,
    ) -> Result<(u64, u64)> {
        let mut name: RepeatKey = [0; 20];
        let told = [of, &call.usage.usage.output.to_le_bytes()];
        let hash = self.engine.seed.long_id(&told.concat());
        for (to, from) in name.iter_mut().zip(hash) {
            *to = from;
        }
        let uuid = self.free_uuid(None, &name)?;
        self.rows.give(uuid);
        let Some(open) = self.sessions.get_mut(call.session) else {
            return Err(crate::Error::other(
                "a call of a session that was not opened",
            ));
        };
        let address = open.next(uuid, at);
        open.touch(at);
        let body = UsageBody {
            usage: call.usage.clone(),
            request_id: None,
            cache_write: call.cache_write,
            original: call.original.clone(),
        };
        let encoded = record::encode_usage(self.engine.packing(), address, &body)?;
        self.put_record(address, encoded, Some(origin))?;
        Ok((address.transcript, address.seq))
    }

    /// A usage record of the store. Its session is then one that this import changes.
    pub(super) fn stored_usage(&mut self, slot: &CallSlot) -> Result<StoredUsage> {
        let (transcript, seq) = (slot.transcript, slot.seq);
        let (session, body, at, origin) = self.engine.read(|reader| {
            let birth = reader.transcript(transcript)?.birth;
            let (body, at) = reader.record_at(transcript, seq, |record| {
                Ok(match record.body()? {
                    Body::Usage(body) => (Some(*body), record.address.at),
                    _ => (None, record.address.at),
                })
            })?;
            let origin = reader.origin(transcript, seq)?;
            let session = reader.session_ref(birth.session, birth.generation)?;
            Ok((session, body, at, origin))
        })?;
        let (Some(body), Some(session)) = (body, session) else {
            return Err(crate::Error::Corrupted {
                what: "a provider call".to_owned(),
                at: format!("sequence {seq} of transcript {transcript} is no usage record"),
            });
        };
        let session = match self.by_transcript.get(&transcript) {
            Some(index) => *index,
            None => self.opened(super::Open::new(self.engine, &session, &Reading::AsNamed)?),
        };
        Ok(StoredUsage {
            session,
            body,
            at,
            origin,
        })
    }

    /// Takes a usage record out of the totals, or puts it back.
    pub(super) fn adjust(&mut self, slot: &CallSlot, counts: bool) -> Result<Option<Adjusted>> {
        let Some(at) = slot.at else { return Ok(None) };
        let stored = self.stored_usage(slot)?;
        let (usage, cache_write) = (&stored.body.usage, stored.body.cache_write);
        if let Some(open) = self.sessions.get_mut(stored.session) {
            if counts {
                open.head.spend.add(usage);
                self.added.count(usage, cache_write);
            } else {
                open.head.spend.take_out(usage);
                self.added.take_out(usage, cache_write);
            }
            open.mark_changed();
        }
        let counted = counted(usage, cache_write, stored.at);
        Ok(counted.map(|usage| Adjusted {
            transcript: slot.transcript,
            at,
            usage,
            counts,
        }))
    }
}

impl super::Added {
    fn take_out(&mut self, usage: &TurnUsage, cache_write: u64) {
        let totals = &usage.usage;
        self.cache_write = self.cache_write.saturating_sub(cache_write);
        self.input = self.input.saturating_sub(totals.input);
        self.output = self.output.saturating_sub(totals.output);
        self.cached_input = self.cached_input.saturating_sub(totals.cached_input);
        self.cost = self
            .cost
            .saturating_sub(crate::spend::Money::from_usd(totals.cost_usd).0);
    }
}
