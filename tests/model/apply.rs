//! Each operation on both stores.

use std::fmt;

use serde_json::Value;
use transcript_redb::{
    BackgroundAppend, BackgroundAppendOutcome, Result, SessionRef, TranscriptLocator,
    TranscriptMessage, TranscriptTurn, TruncateCut, same_transcript_messages,
};

use super::diff::{Checked, Divergence, holds, same};
use super::expect::{Call, Caller};
use super::op::{Around, At, Baseline, Meta, Next, Op, Partial, Row, Usage};
use super::pair::{Handle, Pair, Touched, read};
use super::place::Medium;
use super::stems::{base_of, base_of_stem, generation_of};

/// Rows that are compared by their JSON: a legacy text that a row no longer means makes no difference.
#[derive(PartialEq)]
struct Rows(Vec<TranscriptMessage>);

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(&self.0).expect("rows"))
    }
}

impl Pair {
    /// Applies an operation; answers which session it may have changed.
    pub fn apply(&mut self, op: &Op) -> Checked<Touched> {
        match op {
            Op::Turn {
                at,
                prev,
                next,
                meta,
                around,
            } => self.turn(*at, prev, next, meta, around),
            Op::Append { at, seed, row } => self.append(*at, seed, row),
            Op::Replace { at, seed, next } => self.replace(*at, seed, next),
            Op::Clear { at } => self.clear(*at),
            Op::Open { at, seed, slot } => {
                if let Some((_, memory, redb)) = self.handles(*at, seed)? {
                    self.slots[*slot] = Some((memory, redb));
                }
                Ok(None)
            }
            Op::Begin {
                session,
                generation,
                baseline,
                seed,
                slot,
            } => {
                let session = self.session(*session, *generation);
                self.begin(&session, baseline.as_ref(), seed, *slot)
            }
            Op::Drop { slot } => {
                self.slots[*slot] = None;
                Ok(None)
            }
            Op::Truncate {
                session,
                generation,
                cut,
                seed,
                slot,
            } => {
                let session = self.session(*session, *generation);
                self.truncate(&session, cut, seed, *slot)
            }
            Op::Background {
                session,
                generation,
                row,
                key,
                provenance,
                expected,
            } => {
                let session = self.session(*session, *generation);
                self.background(&session, row, key, &provenance.0, *expected)
            }
            Op::Partial {
                thread,
                agent,
                partial,
                request,
            } => self.partial(thread, *agent, partial, *request),
            Op::Release { session } => {
                let session = &self.world.sessions[*session];
                let (memory, redb) = (self.memory.release(session), self.store.release(session));
                same("release", &memory, &redb)?;
                Ok(None)
            }
            Op::Head { session, token } => self.head(*session, *token),
            Op::AppendRows {
                token,
                rows,
                meta,
                around,
            } => self.append_rows(*token, rows, meta.as_ref(), around),
            Op::Look { at } => self.look(*at),
            Op::Checkpoint => self.checkpoint(),
            Op::Reopen => {
                self.reopen()?;
                Ok(None)
            }
            Op::Kill => {
                self.kill();
                Ok(None)
            }
            Op::PowerCut(seed) => {
                // It is owed only what was made to survive it.
                read("checkpoint", self.make_durable())?;
                self.cut_power(*seed);
                Ok(None)
            }
            Op::Strike(fault) => {
                self.fault = Some(*fault);
                Ok(None)
            }
            Op::Wait(seconds) => {
                self.clock.advance(seconds * 1_000_000);
                Ok(None)
            }
        }
    }

    fn turn(
        &mut self,
        at: At,
        prev: &Baseline,
        next: &Next,
        meta: &Meta,
        around: &Around,
    ) -> Checked<Touched> {
        let Some((base, memory, redb)) = self.handles(at, &Meta::default())? else {
            return Ok(None);
        };
        let stored = read("messages", memory.messages())?;
        let prev = prev.rows(&stored);
        let next = next.rows(&self.context(memory.stem())?);
        let meta = meta.value();
        let usage = around.usage.as_ref().map(Usage::value);
        let mut turn = TranscriptTurn::new(&prev, &next, &meta);
        turn.turn_usage = usage.as_ref();
        turn.request_id = around.request;
        turn.tools = around.tools.as_ref().map(|tools| &tools.0);
        turn.compaction = around.compaction.as_ref().map(|metadata| &metadata.0);
        let partial = around.partial.as_ref().map(Partial::value);
        let before = self.before(memory.stem())?;
        let write = |_: &Self| redb.append_turn_with_partial(turn, partial.as_ref());
        let Some(answer) = self.struck(Some(&base), write, |_| Ok(()))? else {
            return Ok(Some(base));
        };
        let persisted = self.agree(
            "append_turn",
            memory.append_turn_with_partial(turn, partial.as_ref()),
            answer,
        )?;
        if persisted.is_some() {
            let on_baseline = before.0.is_none() || same_transcript_messages(&stored, &prev);
            holds(on_baseline, || {
                "a turn on another baseline is accepted".to_owned()
            })?;
            let call = Call {
                rows: &next,
                usage: turn.turn_usage,
                caller: Caller::Turn(turn.request_id),
                compaction: turn.compaction,
                partial: partial.as_ref(),
            };
            self.check_written(&call, &before, memory.stem())?;
            self.wrote(&base);
        }
        Ok(Some(base))
    }

    fn append(&mut self, at: At, seed: &Meta, row: &Row) -> Checked<Touched> {
        let Some((base, memory, redb)) = self.handles(at, seed)? else {
            return Ok(None);
        };
        let row = row.message();
        let before = self.before(memory.stem())?;
        let write = |_: &Self| redb.append(row.clone());
        let Some(answer) = self.struck(Some(&base), write, |_| Ok(()))? else {
            return Ok(Some(base));
        };
        let memory_answer = memory.append(row.clone());
        if self.agree("append", memory_answer, answer)?.is_some() {
            self.check_written(&Call::new(Caller::Append, &[row]), &before, memory.stem())?;
            self.wrote(&base);
        }
        Ok(Some(base))
    }

    fn replace(&mut self, at: At, seed: &Meta, next: &Next) -> Checked<Touched> {
        let Some((base, memory, redb)) = self.handles(at, seed)? else {
            return Ok(None);
        };
        let next = next.rows(&self.context(memory.stem())?);
        let before = self.before(memory.stem())?;
        let Some(answer) = self.struck(Some(&base), |_| redb.replace(&next), |_| Ok(()))? else {
            return Ok(Some(base));
        };
        if self
            .agree("replace", memory.replace(&next), answer)?
            .is_some()
        {
            self.check_written(&Call::new(Caller::Replace, &next), &before, memory.stem())?;
            self.wrote(&base);
        }
        Ok(Some(base))
    }

    fn clear(&mut self, at: At) -> Checked<Touched> {
        let Some((base, memory, redb)) = self.handles(at, &Meta::default())? else {
            return Ok(None);
        };
        let before = self.before(memory.stem())?;
        let Some(answer) = self.struck(Some(&base), |_| redb.clear(), |_| Ok(()))? else {
            return Ok(Some(base));
        };
        let cleared = self.agree("clear", memory.clear(), answer)?;
        if cleared.is_some() && before.0.is_some() {
            self.check_written(&Call::new(Caller::Replace, &[]), &before, memory.stem())?;
            self.wrote(&base);
        }
        Ok(Some(base))
    }

    fn begin(
        &mut self,
        session: &SessionRef,
        baseline: Option<&Baseline>,
        seed: &Meta,
        slot: usize,
    ) -> Checked<Touched> {
        let stored = self.rows_of(&session.session_id())?.unwrap_or_default();
        let baseline = baseline.map(|baseline| baseline.rows(&stored));
        let begin = |locator: &dyn TranscriptLocator| match &baseline {
            None => locator.begin_generation(session, seed.value()),
            Some(baseline) => {
                locator.begin_generation_from_baseline(session, seed.value(), baseline)
            }
        };
        let base = base_of(session);
        let never = |_: &Self| Err(Divergence("nothing is written by a begin".to_owned()));
        let life = self.life;
        let Some(redb) = self.struck(Some(&base), |pair| begin(&pair.redb), never)? else {
            return Ok(Some(base));
        };
        let memory = begin(&self.memory);
        let shown = |begun: &Result<(SessionRef, Handle)>| match begun {
            Ok((session, handle)) => Ok((session.clone(), handle.stem().to_owned())),
            Err(error) => Err(error.clone()),
        };
        self.agree("begin_generation", shown(&memory), shown(&redb))?;
        if let (Ok((_, memory)), Ok((_, redb))) = (memory, redb)
            && self.life == life
        {
            self.slots[slot] = Some((memory, redb));
        }
        Ok(Some(base))
    }

    fn truncate(
        &mut self,
        session: &SessionRef,
        cut: &TruncateCut,
        seed: &Meta,
        slot: Option<usize>,
    ) -> Checked<Touched> {
        let truncate = |locator: &dyn TranscriptLocator| {
            locator.truncate_into_next_generation(session, cut.clone(), seed.value())
        };
        let base = base_of(session);
        let life = self.life;
        let successor = generation_of(session, self.chain_of(&base));
        let found = |pair: &Self| {
            let handle = pair.redb.open_session(&successor, seed.value());
            let handle = read("open", handle)?;
            let kept = read("messages", handle.messages())?;
            Ok((successor.clone(), handle, kept))
        };
        let Some(redb) = self.struck(Some(&base), |pair| truncate(&pair.redb), found)? else {
            return Ok(Some(base));
        };
        let memory = truncate(&self.memory);
        let shown = |truncated: &Result<(SessionRef, Handle, Vec<_>)>| match truncated {
            Ok((session, handle, kept)) => {
                let stem = handle.stem().to_owned();
                Ok((session.clone(), stem, Rows(kept.clone())))
            }
            Err(error) => Err(error.clone()),
        };
        self.agree("truncate", shown(&memory), shown(&redb))?;
        if let (Ok((_, memory, _)), Ok((_, redb, _))) = (memory, redb) {
            self.wrote(&base);
            if let Some(slot) = slot.filter(|_| self.life == life) {
                self.slots[slot] = Some((memory, redb));
            }
        }
        Ok(Some(base))
    }

    fn background(
        &mut self,
        session: &SessionRef,
        row: &Row,
        key: &str,
        provenance: &Value,
        expected: Option<u32>,
    ) -> Checked<Touched> {
        let mut append = BackgroundAppend::new(key, provenance.clone());
        append.expected_generation = expected;
        let call = |locator: &dyn TranscriptLocator| {
            locator.append_background(session, row.message(), &append)
        };
        let base = base_of(session);
        let generation = self.chain_of(&base).saturating_sub(1);
        let found = |_: &Self| Ok(BackgroundAppendOutcome::Appended { generation });
        let Some(redb) = self.struck(Some(&base), |pair| call(&pair.redb), found)? else {
            return Ok(Some(base));
        };
        let memory = call(&self.memory);
        if let Some(outcome) = self.agree("append_background", memory, redb)? {
            self.note(match outcome {
                BackgroundAppendOutcome::Appended { .. } => "appended in the background",
                BackgroundAppendOutcome::Duplicate { .. } => "a duplicate",
                BackgroundAppendOutcome::StaleGeneration { .. } => "a stale generation",
                BackgroundAppendOutcome::NoSession => "no session",
            });
            if matches!(outcome, BackgroundAppendOutcome::Appended { .. }) {
                self.wrote(&base);
            }
        }
        Ok(Some(base))
    }

    fn partial(
        &mut self,
        thread: &str,
        agent: Option<&str>,
        partial: &Partial,
        request: Option<&str>,
    ) -> Checked<Touched> {
        let root = self.memory.root_for_thread_scoped(thread, agent);
        let root = read("root_for_thread_scoped", root)?;
        let partial = partial.value();
        let call = |locator: &dyn TranscriptLocator| {
            locator.append_interrupted_partial(thread, agent, &partial, request)
        };
        let base = root.map(|root| base_of_stem(root.stem()).to_owned());
        let write = |pair: &Self| call(&pair.redb);
        let Some(redb) = self.struck(base.as_deref(), write, |_| Ok(true))? else {
            return Ok(base);
        };
        let recorded = self.agree("append_interrupted_partial", call(&self.memory), redb)?;
        holds(base.is_some() || recorded != Some(true), || {
            "a partial is recorded of a thread without a root".to_owned()
        })?;
        if let Some(base) = &base
            && recorded == Some(true)
        {
            self.wrote(base);
        }
        Ok(base)
    }

    fn look(&mut self, at: At) -> Checked<Touched> {
        let Some((_, memory, redb)) = self.handles(at, &Meta::default())? else {
            return Ok(None);
        };
        let never = |_: &Self| Err(Divergence("nothing is written by a read".to_owned()));
        let look = |handle: &Handle| {
            let session = handle.read_session()?;
            Ok(session.map(|session| Rows(session.messages)))
        };
        let Some(found) = self.struck(None, |_| look(&redb), never)? else {
            return Ok(None);
        };
        self.agree("read_session", look(&memory), found)?;
        Ok(None)
    }

    fn checkpoint(&mut self) -> Checked<Touched> {
        let never = |_: &Self| Err(Divergence("nothing is written by a checkpoint".to_owned()));
        if let Some(answer) = self.struck(None, |pair| pair.store.checkpoint(), never)? {
            read("checkpoint", answer)?;
            self.note("a checkpoint");
        }
        Ok(None)
    }

    /// What a power cut must leave, where not every write does.
    fn make_durable(&self) -> Result<()> {
        match &self.medium {
            Medium::Disk(_, pace) if pace.eventual => self.store.checkpoint(),
            _ => Ok(()),
        }
    }
}
