//! Running totals of runs that go on from each other: of each run counts what it adds to those before it.
//!
//! A total has in it what the runs had used that it goes on from. What it adds is the rest: it less the total of the last
//! of them that is known, up to the point where it was gone on from. Which totals are known decides what counts, never the order
//! in which they came to be.

use std::collections::HashMap;

use super::calls::Settled;
use super::step::{CallGroup, CallSlot, RunTotal, SourceRef, StagedOrigin};
use super::{Import, ImportCall, TotalName};
use crate::Result;
use crate::spend::Money;

impl Import<'_> {
    /// Notes totals, and stores usage records of what changes by them.
    pub(super) fn settle_totals(
        &mut self,
        key: Vec<u8>,
        mut group: CallGroup,
        told: Vec<(TotalName, ImportCall)>,
        settled: &mut Settled,
    ) -> Result<()> {
        let mut fresh = HashMap::new();
        for (name, call) in told {
            let Some(open) = self.sessions.get(call.session) else {
                continue;
            };
            let place = (name.run.clone(), name.length);
            if group.note(RunTotal::new(name, &call, open.transcript)) {
                fresh.insert(place, call);
            }
        }
        if fresh.is_empty() {
            self.added.duplicates += 1;
            return Ok(());
        }
        let mut gone = Vec::new();
        for at in group.largest() {
            let Some(total) = group.totals.get(at).cloned() else {
                continue;
            };
            let adds = total.less(group.before(&total));
            let counted = group.counted_of(&total.run);
            if let Some((of, held)) = &counted
                && *of == at
                && held.has_counts_of(&adds)
            {
                continue;
            }
            let fresh = fresh.get(&(total.run.clone(), total.length));
            let (mut call, time, origin) = match (fresh, &counted) {
                (Some(call), _) => {
                    let time = self.time(&call.usage.ts);
                    (call.clone(), time, call.span.origin(0))
                }
                (None, Some((_, held))) => self.told_before(held)?,
                (None, None) => continue,
            };
            if let Some((of, held)) = counted {
                gone.push(held);
                if let Some(total) = group.totals.get_mut(of) {
                    total.slot = None;
                }
            }
            adds.set_counts(&mut call);
            let name = format!("{} {} {:?}", total.run, total.length, adds.counts());
            let name = [&key, name.as_bytes()].concat();
            let (transcript, seq) = self.put_usage(&name, &call, time, origin)?;
            self.count_call(&call, time);
            if let Some(total) = group.totals.get_mut(at) {
                total.slot = Some(CallSlot {
                    transcript,
                    seq,
                    ..adds
                });
            }
        }
        // Behind all that is added, as what an import added is told without what it took out.
        for held in gone {
            settled.adjusted.extend(self.adjust(&held, false)?);
            settled.marks.push((held.transcript, held.seq, true));
        }
        settled.push(key, group);
        Ok(())
    }

    /// What a usage record of the store tells, to be told anew with other counts.
    fn told_before(&mut self, slot: &CallSlot) -> Result<(ImportCall, i64, StagedOrigin)> {
        let stored = self.stored_usage(slot)?;
        let from = stored.origin.map(|it| it.origin);
        let origin = StagedOrigin {
            source: from.map(|it| SourceRef {
                id: it.source,
                codec_version: it.codec_version,
            }),
            offset: from.map_or(0, |it| it.offset),
            length: from.map_or(0, |it| it.length),
            cache_write: 0,
        };
        let call = ImportCall {
            session: stored.session,
            usage: stored.body.usage,
            cache_write: stored.body.cache_write,
            original: stored.body.original,
            span: super::Span::default(),
        };
        Ok((call, stored.at, origin))
    }
}

impl CallGroup {
    /// Notes a total, unless one that is as large is known of the same point. Answers whether it is new.
    fn note(&mut self, mut told: RunTotal) -> bool {
        let place = |it: &RunTotal| (it.run.clone(), it.length);
        let found = self.totals.binary_search_by_key(&place(&told), place);
        match found.map(|at| self.totals.get_mut(at)) {
            Ok(Some(held)) if told.whole().outweighs(&held.whole()) => {
                told.slot = held.slot.take();
                *held = told;
                true
            }
            Ok(_) => false,
            Err(at) => {
                self.totals.insert(at, told);
                true
            }
        }
    }

    /// The largest total of each run.
    fn largest(&self) -> Vec<usize> {
        let mut largest: Vec<(usize, &RunTotal)> = Vec::new();
        for (at, total) in self.totals.iter().enumerate() {
            match largest.last_mut() {
                Some(held) if held.1.run == total.run => {
                    if !held.1.whole().outweighs(&total.whole()) {
                        *held = (at, total);
                    }
                }
                _ => largest.push((at, total)),
            }
        }
        largest.into_iter().map(|(at, _)| at).collect()
    }

    /// The last total that is known of the runs that this one goes on from.
    fn before(&self, total: &RunTotal) -> Option<&RunTotal> {
        let others = || self.totals.iter().filter(|it| it.run != total.run);
        let mut after = total.after.iter();
        after.find_map(|(run, length)| {
            // They ascend by length.
            others().rfind(|it| it.run == *run && it.length <= *length)
        })
    }

    /// The total of a run that has a usage record, and where that is.
    fn counted_of(&self, run: &str) -> Option<(usize, CallSlot)> {
        let totals = self.totals.iter().enumerate();
        let mut of = totals.filter(|(_, it)| it.run == run);
        of.find_map(|(at, it)| it.slot.clone().map(|slot| (at, slot)))
    }
}

impl RunTotal {
    fn new(name: TotalName, call: &ImportCall, transcript: u64) -> Self {
        let usage = &call.usage.usage;
        Self {
            run: name.run,
            length: name.length,
            after: name.after,
            transcript,
            input: usage.input,
            output: usage.output,
            cached_input: usage.cached_input,
            cache_write: call.cache_write,
            cost_usd: usage.cost_usd,
            slot: None,
        }
    }

    fn whole(&self) -> CallSlot {
        self.less(None)
    }

    /// This total without what another one has in it.
    fn less(&self, before: Option<&Self>) -> CallSlot {
        let less = |of: fn(&Self) -> u64| of(self).saturating_sub(before.map_or(0, of));
        let cost = |of: &Self| Money::from_usd(of.cost_usd).0;
        let cost = match before {
            None => self.cost_usd,
            Some(before) => Money(cost(self).saturating_sub(cost(before)).max(0)).to_usd(),
        };
        CallSlot {
            transcript: self.transcript,
            seq: 0,
            output: less(|it| it.output),
            input: less(|it| it.input),
            cached_input: less(|it| it.cached_input),
            cache_write: less(|it| it.cache_write),
            cost_usd: cost,
            at: None,
        }
    }
}

impl CallSlot {
    fn counts(&self) -> [u64; 5] {
        let cost = self.cost_usd.to_bits();
        [
            self.output,
            self.input,
            self.cached_input,
            self.cache_write,
            cost,
        ]
    }

    fn has_counts_of(&self, other: &Self) -> bool {
        self.counts() == other.counts()
    }

    fn set_counts(&self, call: &mut ImportCall) {
        let usage = &mut call.usage.usage;
        usage.output = self.output;
        usage.input = self.input;
        usage.cached_input = self.cached_input;
        usage.cost_usd = self.cost_usd;
        call.cache_write = self.cache_write;
    }
}
