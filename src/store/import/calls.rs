//! Calls of providers: which of the usage records that tell of one counts.

use std::collections::BTreeMap;

use super::session::counted;
use super::step::{Adjusted, CallGroup, CallSlot};
use super::{Import, RepeatKey};
use crate::store::record::{self, Body};
use crate::{Result, TurnUsage};

/// What this import was told of the calls under one id: the largest of each request, and of those that name none.
#[derive(Debug, Default)]
pub(super) struct Told {
    by_request: BTreeMap<Option<String>, (usize, TurnUsage)>,
}

impl Told {
    pub(super) fn note(&mut self, session: usize, request: Option<&str>, usage: TurnUsage) {
        let request = request.map(str::to_owned);
        let larger = match self.by_request.get(&request) {
            Some((_, held)) => slot(&usage).outweighs(&slot(held)),
            None => true,
        };
        if larger {
            self.by_request.insert(request, (session, usage));
        }
    }
}

/// A slot for a usage whose record is not stored yet.
fn slot(usage: &TurnUsage) -> CallSlot {
    CallSlot {
        transcript: 0,
        seq: 0,
        output: usage.usage.output,
        input: usage.usage.input,
        cached_input: usage.usage.cached_input,
        cost_usd: usage.usage.cost_usd,
        at: None,
    }
}

/// The groups after the import, usages of other transcripts that count no more or again, and the marks of records.
type Settled = (
    Vec<(Vec<u8>, CallGroup)>,
    Vec<Adjusted>,
    Vec<(u64, u64, bool)>,
);

impl Import<'_> {
    /// Stores usage records of what is larger than what was known, and says which of all records count.
    pub(super) fn settle_calls(&mut self) -> Result<Settled> {
        let mut told: Vec<(Vec<u8>, Told)> = std::mem::take(&mut self.calls).into_iter().collect();
        // In the order of their keys, so that an import is the same whenever it runs.
        told.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut groups = Vec::new();
        let mut adjusted = Vec::new();
        let mut marks = Vec::new();
        for (key, told) in told {
            let before = self.engine.read(|reader| reader.provider_call(&key))?;
            let new_id = before.is_none();
            let before = before.unwrap_or_default();
            let mut group = before.clone();
            let mut fresh: Vec<(u64, u64, usize, TurnUsage, i64)> = Vec::new();
            for (request, (session, usage)) in told.by_request {
                let mut slot = slot(&usage);
                let held = match &request {
                    None => group.unnamed.as_ref(),
                    Some(request) => {
                        let mut slots = group.requests.iter();
                        slots
                            .find(|(known, _)| known == request)
                            .map(|(_, slot)| slot)
                    }
                };
                if held.is_some_and(|held| !slot.outweighs(held)) {
                    continue;
                }
                let at = self.time(&usage.ts);
                let (transcript, seq) =
                    self.put_usage(session, &key, request.as_deref(), &usage, at)?;
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
                fresh.push((transcript, seq, session, usage, at));
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
            for (transcript, seq, session, usage, at) in fresh {
                if counted_after.contains(&(transcript, seq)) {
                    self.added.count(&usage);
                    if let Some(open) = self.sessions.get_mut(session) {
                        open.count(&usage, at);
                    }
                } else {
                    marks.push((transcript, seq, true));
                }
            }
            for slot in before.counted() {
                if !counted_after.contains(&place(slot)) {
                    adjusted.extend(self.adjust(slot, false)?);
                    marks.push((slot.transcript, slot.seq, true));
                }
            }
            for slot in group.counted() {
                if slot.at.is_some() && !counted_before.contains(&place(slot)) {
                    adjusted.extend(self.adjust(slot, true)?);
                    marks.push((slot.transcript, slot.seq, false));
                }
            }
            groups.push((key, group));
        }
        Ok((groups, adjusted, marks))
    }

    /// Stores a usage record in the log of a session.
    fn put_usage(
        &mut self,
        session: usize,
        key: &[u8],
        request: Option<&str>,
        usage: &TurnUsage,
        at: i64,
    ) -> Result<(u64, u64)> {
        let mut name: RepeatKey = [0; 20];
        let told = [
            key,
            request.unwrap_or_default().as_bytes(),
            &usage.usage.output.to_le_bytes(),
        ];
        let hash = self.engine.seed.long_id(&told.concat());
        for (to, from) in name.iter_mut().zip(hash) {
            *to = from;
        }
        let uuid = self.free_uuid(None, &name)?;
        let Some(open) = self.sessions.get_mut(session) else {
            return Err(crate::Error::other(
                "a call of a session that was not opened",
            ));
        };
        let address = open.next(uuid, at);
        open.touch(at);
        let encoded = record::encode_usage(self.engine.packing(), address, usage, None)?;
        self.put_record(address, encoded)?;
        Ok((address.transcript, address.seq))
    }

    /// Takes a usage record out of the totals, or puts it back. Its session is then one that this import changes.
    fn adjust(&mut self, slot: &CallSlot, counts: bool) -> Result<Option<Adjusted>> {
        let Some(at) = slot.at else { return Ok(None) };
        let (transcript, seq) = (slot.transcript, slot.seq);
        let (session, usage, written) = self.engine.read(|reader| {
            let birth = reader.transcript(transcript)?.birth;
            let (usage, written) = reader.record_at(transcript, seq, |record| {
                Ok(match record.body()? {
                    Body::Usage(body) => (Some(body.usage), record.address.at),
                    _ => (None, record.address.at),
                })
            })?;
            Ok((reader.session_ref(birth.session)?, usage, written))
        })?;
        let (Some(usage), Some(session)) = (usage, session) else {
            return Err(crate::Error::Corrupted {
                what: "a provider call".to_owned(),
                at: format!("sequence {seq} of transcript {transcript} is no usage record"),
            });
        };
        let stem = session.session_id();
        let index = match self.by_stem.get(&stem) {
            Some(index) => *index,
            None => {
                let open = super::Open::new(self.engine, &session)?;
                self.sessions.push(open);
                let index = self.sessions.len() - 1;
                self.by_stem.insert(stem, index);
                index
            }
        };
        if let Some(open) = self.sessions.get_mut(index) {
            if counts {
                open.head.spend.add(&usage);
                self.added.count(&usage);
            } else {
                open.head.spend.take_out(&usage);
                self.added.take_out(&usage);
            }
            open.mark_changed();
        }
        Ok(counted(&usage, written).map(|usage| Adjusted {
            transcript,
            at,
            usage,
            counts,
        }))
    }
}

impl super::Added {
    fn take_out(&mut self, usage: &TurnUsage) {
        let totals = &usage.usage;
        self.input = self.input.saturating_sub(totals.input);
        self.output = self.output.saturating_sub(totals.output);
        self.cached_input = self.cached_input.saturating_sub(totals.cached_input);
        self.cost = self
            .cost
            .saturating_sub(crate::spend::Money::from_usd(totals.cost_usd).0);
    }
}
