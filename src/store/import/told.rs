//! What an import is told of the calls of providers, until all was told.
//!
//! A long file tells of hundreds of thousands of calls, and only its end says which of them count. So they are kept as
//! runs: each in the order of the keys of its calls, encoded and packed in blocks. At the end the runs are merged.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::calls::slot;
use super::{CallName, ImportCall, Span, TotalName};
use crate::store::binary;
use crate::store::record::{self, UsageBody};
use crate::store::tables::call_key;
use crate::{Error, Result};

/// Roughly the bytes of the calls that become a run.
const RUN_BYTES: usize = 4 << 20;

/// Bytes of a block before it is packed, unless what is told under one id is larger.
const BLOCK_BYTES: usize = 32 << 10;

/// How hard it is tried to make a block small: speed counts.
const LEVEL: i32 = 1;

/// What this import was told of the calls under one id: the largest of each request, and of those that name none.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Boxed, as a map has room for many and nearly always holds one.
    pub(super) by_request: BTreeMap<Option<String>, Box<ImportCall>>,
    pub(super) totals: Vec<(TotalName, ImportCall)>,
}

impl Told {
    fn note(&mut self, request: Option<String>, call: Box<ImportCall>) {
        let larger = match self.by_request.get(&request) {
            Some(held) => slot(&call).outweighs(&slot(held)),
            None => true,
        };
        if larger {
            self.by_request.insert(request, call);
        }
    }

    /// Adds what was told later.
    fn take(&mut self, later: Self) {
        for (request, call) in later.by_request {
            self.note(request, call);
        }
        self.totals.extend(later.totals);
    }
}

/// All that was told so far.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// What is not in a run yet.
    open: BTreeMap<Vec<u8>, Told>,
    weight: usize,
    /// In the order in which they were told.
    runs: Vec<Run>,
}

impl Calls {
    /// Notes what one record tells of a call.
    pub(super) fn note(&mut self, name: CallName, call: ImportCall) -> Result<()> {
        let original = call.original.as_ref().map_or(0, String::len);
        self.weight += 1024 + original;
        let (CallName::Call(id, _) | CallName::Total(id, _)) = &name;
        let told = self.open.entry(call_key(id)).or_default();
        match name {
            CallName::Call(_, request) => told.note(request, Box::new(call)),
            CallName::Total(_, name) => {
                self.weight += 64 * name.after.len();
                told.totals.push((name, call));
            }
        }
        if self.weight >= RUN_BYTES {
            self.close_run()?;
        }
        Ok(())
    }

    fn close_run(&mut self) -> Result<()> {
        self.weight = 0;
        let mut run = Run::default();
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        for (key, told) in std::mem::take(&mut self.open) {
            put(&key, &told, &mut block)?;
            if block.len() >= BLOCK_BYTES {
                run.pack(&block)?;
                block.clear();
            }
        }
        run.pack(&block)?;
        self.runs.push(run);
        Ok(())
    }

    /// All that was told, by the keys of the calls.
    pub(super) fn merged(mut self) -> Result<Merged> {
        if !self.open.is_empty() {
            self.close_run()?;
        }
        let mut merged = Merged {
            next: BinaryHeap::with_capacity(self.runs.len()),
            runs: Vec::with_capacity(self.runs.len()),
        };
        for run in self.runs {
            let at = merged.runs.len();
            merged.runs.push((run, None));
            merged.advance(at)?;
        }
        Ok(merged)
    }
}

/// What was told, call by call in the order of their keys.
#[derive(Debug)]
pub(super) struct Merged {
    /// The next key of each run. Of equal ones that comes first which was told first.
    next: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    runs: Vec<(Run, Option<Told>)>,
}

impl Merged {
    /// The next call.
    pub(super) fn next(&mut self) -> Result<Option<(Vec<u8>, Told)>> {
        let Some(Reverse((key, at))) = self.next.pop() else {
            return Ok(None);
        };
        let mut told = self.take(at)?;
        while let Some(Reverse((other, at))) = self.next.peek() {
            if *other != key {
                break;
            }
            let at = *at;
            self.next.pop();
            told.take(self.take(at)?);
        }
        Ok(Some((key, told)))
    }

    fn take(&mut self, at: usize) -> Result<Told> {
        let told = self.runs.get_mut(at).and_then(|(_, told)| told.take());
        self.advance(at)?;
        Ok(told.unwrap_or_default())
    }

    fn advance(&mut self, at: usize) -> Result<()> {
        if let Some((run, held)) = self.runs.get_mut(at)
            && let Some((key, told)) = run.next()?
        {
            *held = Some(told);
            self.next.push(Reverse((key, at)));
        }
        Ok(())
    }
}

/// What was told in one stretch of the source, by the keys of the calls.
#[derive(Debug, Default)]
struct Run {
    /// Plain length, and the block packed.
    blocks: VecDeque<(usize, Vec<u8>)>,
    /// The block that is being read, and how much of it was.
    open: Vec<u8>,
    read: usize,
}

impl Run {
    fn pack(&mut self, block: &[u8]) -> Result<()> {
        if !block.is_empty() {
            let mut packed = zstd::bulk::compress(block, LEVEL).map_err(Error::other)?;
            // It was given room for the worst case.
            packed.shrink_to_fit();
            self.blocks.push_back((block.len(), packed));
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<(Vec<u8>, Told)>> {
        if self.read >= self.open.len() {
            self.read = 0;
            self.open = match self.blocks.pop_front() {
                Some((len, packed)) => {
                    zstd::bulk::decompress(&packed, len).map_err(Error::other)?
                }
                None => return Ok(None),
            };
        }
        let rest = self.open.get(self.read..).unwrap_or_default();
        let (key, told, rest) = take(rest)?;
        self.read = self.open.len() - rest.len();
        Ok(Some((key, told)))
    }
}

const WHAT: &str = "a call that was told";

fn put(key: &[u8], told: &Told, out: &mut Vec<u8>) -> Result<()> {
    let counts = (told.by_request.len(), told.totals.len());
    binary::encode_into(&(key, counts), out)?;
    for (request, call) in &told.by_request {
        binary::encode_into(request, out)?;
        put_call(call, out)?;
    }
    for (name, call) in &told.totals {
        binary::encode_into(&(&name.run, name.length, &name.after), out)?;
        put_call(call, out)?;
    }
    Ok(())
}

fn put_call(call: &ImportCall, out: &mut Vec<u8>) -> Result<()> {
    let Span { offset, length } = call.span;
    binary::encode_into(&(call.session, offset, length), out)?;
    record::put_usage(&call.usage, call.cache_write, call.original.as_deref(), out)
}

fn take(bytes: &[u8]) -> Result<(Vec<u8>, Told, &[u8])> {
    type Head = (Vec<u8>, (usize, usize));
    let ((key, (calls, totals)), mut rest): (Head, _) = binary::decode_prefix(bytes, WHAT)?;
    let mut told = Told::default();
    for _ in 0..calls {
        let (request, call);
        (request, rest) = binary::decode_prefix(rest, WHAT)?;
        (call, rest) = take_call(rest)?;
        told.by_request.insert(request, Box::new(call));
    }
    for _ in 0..totals {
        let ((run, length, after), call);
        ((run, length, after), rest) = binary::decode_prefix(rest, WHAT)?;
        (call, rest) = take_call(rest)?;
        told.totals.push((TotalName { run, length, after }, call));
    }
    Ok((key, told, rest))
}

fn take_call(bytes: &[u8]) -> Result<(ImportCall, &[u8])> {
    let ((session, offset, length), rest) = binary::decode_prefix(bytes, WHAT)?;
    let (body, rest) = record::take_usage(rest)?;
    let UsageBody {
        usage,
        cache_write,
        original,
        ..
    } = body;
    let call = ImportCall {
        session,
        usage,
        cache_write,
        original,
        span: Span { offset, length },
    };
    Ok((call, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MessageUsage, TurnUsage};

    fn call(output: u64, offset: u64) -> ImportCall {
        ImportCall {
            session: 3,
            usage: TurnUsage {
                provider: "p".to_owned(),
                model: "m".to_owned(),
                usage: MessageUsage {
                    output,
                    ..MessageUsage::default()
                },
                ts: "2026-01-01T00:00:00Z".to_owned(),
                ..TurnUsage::default()
            },
            cache_write: 5,
            original: Some("{\"output\":1}".to_owned()),
            span: Span { offset, length: 9 },
        }
    }

    /// What is told, a run closed behind every `every`th of it.
    fn merged(every: usize) -> Vec<String> {
        let mut calls = Calls::default();
        for at in 0..2_000_usize {
            let size = (at * 7 % 11) as u64;
            let request = (at % 3 > 0).then(|| format!("r{}", at % 3));
            let name = CallName::Call(format!("m{}", at * 31 % 400), request);
            calls.note(name, call(size, at as u64)).unwrap();
            let total = TotalName {
                run: format!("run{}", at % 5),
                length: at as u64,
                after: vec![("before".to_owned(), 1)],
            };
            calls
                .note(CallName::Total("tfamily".to_owned(), total), call(size, 0))
                .unwrap();
            if at % every == every - 1 {
                calls.close_run().unwrap();
            }
        }
        let mut merged = calls.merged().unwrap();
        let mut found = Vec::new();
        while let Some((key, told)) = merged.next().unwrap() {
            found.push(format!("{key:?} {told:?}"));
        }
        found
    }

    #[test]
    fn what_was_told_is_the_same_in_one_run_and_in_many() {
        let whole = merged(usize::MAX);
        assert_eq!(whole.len(), 401);
        for every in [1, 7, 500] {
            assert_eq!(merged(every), whole);
        }
    }
}
