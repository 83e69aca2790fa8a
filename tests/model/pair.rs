//! The reference and the redb store side by side: every operation is applied to both, and what they answer compared.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use transcript_redb::{
    AppendRows, BackgroundAppend, BackgroundAppendOutcome, DisplaySessionTranscript, ErrorKind,
    HeadToken, InMemoryTranscriptLocator, RedbTranscriptLocator, Result, SessionRef, Store,
    TranscriptHistory, TranscriptLocator, TranscriptMessage, TranscriptMeta, TranscriptPartial,
    TranscriptTurn, same_transcript_messages,
};
use uuid::Uuid;

use super::clock::Clock;
use super::diff::{Checked, Divergence, differ, holds, same};
use super::expect::{self, Call};
use super::generate::SLOTS;
use super::op::{Around, At, Baseline, Edit, Gen, Keep, Meta, Next, Op, Partial};
use super::rng::Rng;
use super::world::World;

/// How much is compared after each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// What the step touched, and a sample of the rest.
    Sampled,
    /// What the step touched; the rest at the end of the sequence.
    AtEnd,
}

/// What a usage was recorded under.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub agent: String,
    pub thread: String,
}

/// Rows that are compared by their JSON: a legacy text that a row no longer means makes no difference.
#[derive(PartialEq)]
struct Rows(Vec<TranscriptMessage>);

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::to_string(&self.0).expect("rows"))
    }
}

/// How often what happened.
pub type Outcomes = BTreeMap<String, usize>;

type Handle = Arc<dyn TranscriptHistory>;

/// Two displays: a transcript's and its predecessor's.
type Before = (
    Option<DisplaySessionTranscript>,
    Option<DisplaySessionTranscript>,
);

/// A token, and what its session was like when it was given.
struct Token {
    session: usize,
    token: HeadToken,
    writes: usize,
    log: LogSize,
}

/// Changes with every record that a log takes, but tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSize {
    generations: u32,
    shown: usize,
    unattached: usize,
}

pub struct Pair {
    pub world: World,
    pub memory: InMemoryTranscriptLocator,
    pub store: Store,
    pub redb: RedbTranscriptLocator,
    file: Option<(tempfile::TempDir, PathBuf)>,
    pub clock: Arc<Clock>,
    slots: Vec<Option<(Handle, Handle)>>,
    tokens: Vec<Option<Token>>,
    /// Which record of the redb store is which one of the reference, and back.
    pub to_redb: BTreeMap<Uuid, Uuid>,
    pub to_memory: BTreeMap<Uuid, Uuid>,
    /// The stems of the written transcripts, in the order of their first writes.
    pub created: Vec<String>,
    /// The newest headers of the written transcripts, by stem.
    pub metas: BTreeMap<String, TranscriptMeta>,
    /// By record of the redb store.
    pub recorded: BTreeMap<Uuid, Recorded>,
    /// By record of the redb store: the clock at the write.
    pub written_at: BTreeMap<Uuid, String>,
    /// By the stem of generation 0: how many calls wrote, and when the last one did.
    writes: BTreeMap<String, (usize, String)>,
    pub seed: u64,
    pub rng: Rng,
    pub reads: Reads,
    /// Whether the transcript at hand is compared to the letter.
    pub strict: bool,
    /// How often each call ended how.
    pub outcomes: Outcomes,
}

/// What a step did.
pub struct Touched {
    /// Stem of generation 0.
    pub base: String,
}

impl Pair {
    pub fn new(seed: u64, on_disk: bool, reads: Reads) -> Self {
        let clock = Arc::new(Clock::new(seed));
        let file = on_disk.then(|| {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("store.redb");
            (folder, path)
        });
        let store = open(&clock, file.as_ref().map(|(_, path)| path));
        Self {
            world: World::new(),
            memory: InMemoryTranscriptLocator::new(),
            redb: store.locator(),
            store,
            file,
            clock,
            slots: (0..SLOTS).map(|_| None).collect(),
            tokens: (0..SLOTS).map(|_| None).collect(),
            to_redb: BTreeMap::new(),
            to_memory: BTreeMap::new(),
            created: Vec::new(),
            metas: BTreeMap::new(),
            recorded: BTreeMap::new(),
            written_at: BTreeMap::new(),
            writes: BTreeMap::new(),
            seed,
            rng: Rng::new(seed ^ 0x5EED),
            reads,
            strict: true,
            outcomes: Outcomes::new(),
        }
    }

    /// Applies one operation to both stores and compares every answer.
    pub fn step(&mut self, op: &Op) -> Checked {
        self.clock.advance(1_000);
        let touched = self.apply(op)?;
        self.compare(touched.as_ref())
    }

    /// When the session was last written, by the redb store's clock.
    pub fn last_write(&self, base: &str) -> Option<&str> {
        self.writes.get(base).map(|(_, at)| at.as_str())
    }

    fn wrote(&mut self, base: &str) {
        let now = self.clock.now();
        let (count, at) = self.writes.entry(base.to_owned()).or_default();
        *count += 1;
        *at = now;
    }

    fn apply(&mut self, op: &Op) -> Checked<Option<Touched>> {
        match op {
            Op::Turn {
                at,
                prev,
                next,
                meta,
                around,
            } => self.turn(*at, prev, next, meta, around),
            Op::Append { at, seed, row } => {
                let Some((base, memory, redb)) = self.handles(*at, seed)? else {
                    return Ok(None);
                };
                let row = row.message();
                let before = self.before(memory.stem())?;
                let wrote = self.agree(
                    "append",
                    memory.append(row.clone()),
                    redb.append(row.clone()),
                )?;
                if wrote.is_some() {
                    let call = Call {
                        rows: &[row],
                        append: true,
                        ..Call::default()
                    };
                    self.check_written(&call, before, &redb)?;
                }
                self.touch(base, wrote.is_some())
            }
            Op::Replace { at, seed, next } => {
                let Some((base, memory, redb)) = self.handles(*at, seed)? else {
                    return Ok(None);
                };
                let next = next_rows(next, &self.context(memory.stem())?);
                let before = self.before(memory.stem())?;
                let wrote = self.agree("replace", memory.replace(&next), redb.replace(&next))?;
                if wrote.is_some() {
                    let call = Call {
                        rows: &next,
                        ..Call::default()
                    };
                    self.check_written(&call, before, &redb)?;
                }
                self.touch(base, wrote.is_some())
            }
            Op::Clear { at } => {
                let Some((base, memory, redb)) = self.handles(*at, &Meta::default())? else {
                    return Ok(None);
                };
                let before = self.before(memory.stem())?;
                let written = before.0.is_some();
                let cleared = self.agree("clear", memory.clear(), redb.clear())?.is_some();
                if cleared && written {
                    self.check_written(&Call::default(), before, &redb)?;
                }
                self.touch(base, cleared && written)
            }
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
            } => self.begin(*session, *generation, baseline.as_ref(), seed, *slot),
            Op::Drop { slot } => {
                self.slots[*slot] = None;
                Ok(None)
            }
            Op::Truncate {
                session,
                generation,
                cut,
                seed,
            } => {
                let session = self.session(*session, *generation);
                let seed = seed.value();
                let memory =
                    self.memory
                        .truncate_into_next_generation(&session, cut.clone(), seed.clone());
                let redb = self
                    .redb
                    .truncate_into_next_generation(&session, cut.clone(), seed);
                let shown = |(session, handle, kept): (SessionRef, Handle, Vec<_>)| {
                    (session, handle.stem().to_owned(), Rows(kept))
                };
                let wrote = self.agree("truncate", memory.map(shown), redb.map(shown))?;
                self.touch(base_of(&session), wrote.is_some())
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
                let mut append = BackgroundAppend::new(*key, provenance.clone());
                append.expected_generation = *expected;
                let row = row.message();
                let outcome = self.agree(
                    "append_background",
                    self.memory
                        .append_background(&session, row.clone(), &append),
                    self.redb.append_background(&session, row, &append),
                )?;
                let Some(outcome) = outcome else {
                    return self.touch(base_of(&session), false);
                };
                self.note(match outcome {
                    BackgroundAppendOutcome::Appended { .. } => "appended in the background",
                    BackgroundAppendOutcome::Duplicate { .. } => "a duplicate",
                    BackgroundAppendOutcome::StaleGeneration { .. } => "a stale generation",
                    BackgroundAppendOutcome::NoSession => "no session",
                });
                let wrote = matches!(outcome, BackgroundAppendOutcome::Appended { .. });
                self.touch(base_of(&session), wrote)
            }
            Op::Partial {
                thread,
                agent,
                partial,
                request,
            } => {
                let root = self.memory.root_for_thread_scoped(thread, *agent);
                let root = read("root_for_thread_scoped", root)?;
                let partial = partial.value();
                let call = |locator: &dyn TranscriptLocator| {
                    locator.append_interrupted_partial(thread, *agent, &partial, *request)
                };
                let recorded = self.agree(
                    "append_interrupted_partial",
                    call(&self.memory),
                    call(&self.redb),
                )?;
                match root {
                    Some(root) => {
                        let base = base_of_stem(root.stem()).to_owned();
                        self.touch(base, recorded == Some(true))
                    }
                    None => Ok(None),
                }
            }
            Op::Release { session } => {
                let session = &self.world.sessions[*session];
                let memory = self.memory.release(session);
                let redb = self.store.release(session);
                same("release", &memory, &redb)?;
                Ok(None)
            }
            Op::Head { session, token } => self.head(*session, *token),
            Op::AppendRows {
                token,
                rows,
                meta,
                around,
            } => {
                let rows: Vec<_> = rows.iter().map(super::op::Row::message).collect();
                self.append_rows(*token, &rows, meta.as_ref(), around)
            }
            Op::Reopen => {
                self.reopen();
                Ok(None)
            }
            Op::Wait(seconds) => {
                self.clock.advance(seconds * 1_000_000);
                Ok(None)
            }
        }
    }

    /// Both stores answer the same value, or the same error: of one kind and with one text. `None` is an error.
    fn agree<T: PartialEq + std::fmt::Debug>(
        &mut self,
        what: &'static str,
        memory: Result<T>,
        redb: Result<T>,
    ) -> Checked<Option<T>> {
        let texts = [&memory, &redb].map(|answer| match answer {
            Ok(value) => format!("Ok({value:?})"),
            Err(error) => format!("Err({:?}: {error})", error.kind()),
        });
        if texts[0] != texts[1] {
            return Err(differ(what, &texts[0], &texts[1]));
        }
        let outcome = memory.as_ref().err().map(transcript_redb::Error::kind);
        match outcome {
            None => self.note(format!("{what}: done")),
            Some(kind) => self.note(format!("{what}: {kind:?}")),
        }
        Ok(memory.ok())
    }

    /// Notes that something happened, so that a run can tell whether it met all that it should.
    pub fn note(&mut self, what: impl Into<String>) {
        *self.outcomes.entry(what.into()).or_default() += 1;
    }

    fn touch(&mut self, base: String, wrote: bool) -> Checked<Option<Touched>> {
        if wrote {
            self.wrote(&base);
        }
        Ok(Some(Touched { base }))
    }

    fn turn(
        &mut self,
        at: At,
        prev: &Baseline,
        next: &Next,
        meta: &Meta,
        around: &Around,
    ) -> Checked<Option<Touched>> {
        let Some((base, memory, redb)) = self.handles(at, &Meta::default())? else {
            return Ok(None);
        };
        let stored = read("messages", memory.messages())?;
        let prev = baseline_rows(prev, &stored);
        let next = next_rows(next, &self.context(memory.stem())?);
        let meta = meta.value();
        let usage = around.usage.as_ref().map(super::op::Usage::value);
        let mut turn = TranscriptTurn::new(&prev, &next, &meta);
        turn.turn_usage = usage.as_ref();
        turn.request_id = around.request;
        turn.tools = around.tools.as_ref();
        turn.compaction = around.compaction.as_ref();
        let partial = around.partial.as_ref().map(Partial::value);
        let before = self.before(memory.stem())?;
        let wrote = self.agree(
            "append_turn",
            memory.append_turn_with_partial(turn.clone(), partial.as_ref()),
            redb.append_turn_with_partial(turn, partial.as_ref()),
        )?;
        if wrote.is_some() {
            holds(
                before.0.is_none() || same_transcript_messages(&stored, &prev),
                || "a turn on another baseline is accepted".to_owned(),
            )?;
            let call = Call {
                rows: &next,
                usage: turn.turn_usage,
                turn: Some(turn.request_id),
                compaction: turn.compaction,
                partial: partial.as_ref(),
                append: false,
            };
            self.check_written(&call, before, &redb)?;
        }
        self.touch(base, wrote.is_some())
    }

    /// The displays of a transcript and of the generation before it, before a write.
    fn before(&self, stem: &str) -> Checked<Before> {
        let (base, generation) = split(stem);
        let predecessor = match generation.checked_sub(1) {
            Some(before) => self.display(&stem_of(base, before))?,
            None => None,
        };
        Ok((self.display(stem)?, predecessor))
    }

    /// After a write the log holds what the rules say, and the live context is what the caller said.
    fn check_written(&mut self, call: &Call<'_>, before: Before, redb: &Handle) -> Checked {
        let after = read("read_display", redb.read_display())?.expect("it is written");
        let stored = expect::check(call, before.0.as_ref(), before.1.as_ref(), &after)?;
        stored.into_iter().for_each(|what| self.note(what));
        let context = read("messages", redb.messages())?;
        let replayed = expect::live(&after)
            .into_iter()
            .map(|row| row.message.clone());
        same(
            "the context against a replay of the display",
            &replayed.collect(),
            &context,
        )?;
        // Interrupted rows are no part of a context, unless they stand for rows that are stored.
        let whole = !call.append && call.rows.iter().all(|row| !row.interrupted);
        if whole && !same_transcript_messages(&context, call.rows) {
            let (said, found) = (format!("{:?}", call.rows), format!("{context:?}"));
            return Err(differ(
                "the context against what the call said",
                &said,
                &found,
            ));
        }
        Ok(())
    }

    fn begin(
        &mut self,
        session: usize,
        generation: Gen,
        baseline: Option<&Baseline>,
        seed: &Meta,
        slot: usize,
    ) -> Checked<Option<Touched>> {
        let session = self.session(session, generation);
        let stored = self.rows_of(&session.session_id())?.unwrap_or_default();
        let baseline = baseline.map(|baseline| baseline_rows(baseline, &stored));
        let begin = |locator: &dyn TranscriptLocator| match &baseline {
            None => locator.begin_generation(&session, seed.value()),
            Some(baseline) => {
                locator.begin_generation_from_baseline(&session, seed.value(), baseline)
            }
        };
        let (memory, redb) = (begin(&self.memory), begin(&self.redb));
        let shown = |begun: &Result<(SessionRef, Handle)>| match begun {
            Ok((session, handle)) => Ok((session.clone(), handle.stem().to_owned())),
            Err(error) => Err(error.clone()),
        };
        self.agree("begin_generation", shown(&memory), shown(&redb))?;
        if let (Ok((_, memory)), Ok((_, redb))) = (memory, redb) {
            self.slots[slot] = Some((memory, redb));
        }
        Ok(Some(Touched {
            base: base_of(&session),
        }))
    }

    fn head(&mut self, session: usize, slot: usize) -> Checked<Option<Touched>> {
        let reference = self.world.sessions[session].clone();
        let found = read("head", self.store.head(&reference))?;
        let head = self.chain_of(&base_of(&reference)).checked_sub(1);
        same(
            "the generation of a token",
            &head,
            &found.map(|it| it.generation),
        )?;
        if let Some(token) = found {
            self.tokens[slot] = Some(Token {
                session,
                token,
                writes: self.count_of_writes(&reference),
                log: self.log_size(&reference)?,
            });
        }
        Ok(None)
    }

    fn count_of_writes(&self, session: &SessionRef) -> usize {
        self.writes
            .get(&base_of(session))
            .map_or(0, |(count, _)| *count)
    }

    fn log_size(&self, session: &SessionRef) -> Checked<LogSize> {
        let generations = self.chain_of(&base_of(session));
        let mut size = LogSize {
            generations,
            shown: 0,
            unattached: 0,
        };
        if let Some(head) = generations.checked_sub(1) {
            let head = generation_of(session, head);
            let handle = read(
                "open",
                self.memory.open_session(&head, Meta::default().value()),
            )?;
            let display = read("display", handle.read_display())?.expect("it is written");
            size.shown = display.records.len();
            size.unattached = display.unattached.len();
        }
        Ok(size)
    }

    /// What `append_rows` does is what a turn on the context as it is does.
    fn append_rows(
        &mut self,
        slot: usize,
        rows: &[TranscriptMessage],
        meta: Option<&Meta>,
        around: &Around,
    ) -> Checked<Option<Touched>> {
        let Some(kept) = &self.tokens[slot] else {
            return Ok(None);
        };
        let session = self.world.sessions[kept.session].clone();
        let base = base_of(&session);
        let now = self.log_size(&session)?;
        let changed = now != kept.log;
        let untouched = self.count_of_writes(&session) == kept.writes;
        let succeeded = now.generations != kept.log.generations;

        let meta = meta.map(Meta::value);
        let usage = around.usage.as_ref().map(super::op::Usage::value);
        let partial = around.partial.as_ref().map(Partial::value);
        let append = AppendRows {
            rows,
            meta: meta.as_ref(),
            usage: usage.as_ref(),
            request_id: around.request,
            tools: around.tools.as_ref(),
            partial: partial.as_ref(),
        };
        let token = kept.token;
        let answer = self.store.append_rows(&session, &token, append);
        let kind = answer.as_ref().err().map(transcript_redb::Error::kind);
        let invalid = matches!(
            kind,
            Some(ErrorKind::InvalidMessage | ErrorKind::TooLarge | ErrorKind::InvalidId)
        );
        if changed {
            self.note("an old token");
            let expected = if succeeded {
                ErrorKind::Sealed
            } else {
                ErrorKind::Stale
            };
            holds(invalid || kind == Some(expected), || {
                format!("append_rows by an old token answers {answer:?}, not {expected:?}")
            })?;
            return self.touch(base, false);
        }
        // A header or tools alone may or may not move the head.
        if !untouched && kind == Some(ErrorKind::Stale) {
            return self.touch(base, false);
        }
        if rows.is_empty() {
            let same_token = answer.as_ref().ok() == Some(&token);
            let sealed = kind == Some(ErrorKind::Sealed);
            holds(same_token || sealed || invalid, || {
                format!("append_rows without rows answers {answer:?}")
            })?;
            return self.touch(base, false);
        }
        let head = read("head_generation", self.memory.head_generation(&session))?;
        let handle = read(
            "open",
            self.memory.open_session(&head, Meta::default().value()),
        )?;
        let stored = read("read_session", handle.read_session())?.expect("it is written");
        let mut next = stored.messages.clone();
        next.extend_from_slice(rows);
        let mut turn =
            TranscriptTurn::new(&stored.messages, &next, append.meta.unwrap_or(&stored.meta));
        turn.turn_usage = append.usage;
        turn.request_id = append.request_id;
        turn.tools = append.tools;
        let mirrored = handle.append_turn_with_partial(turn, append.partial);
        let shown = answer.clone().map(drop);
        let wrote = self.agree("append_rows", mirrored, shown)?.is_some();
        if wrote {
            self.wrote(&base);
        }
        if let Ok(token) = answer {
            let head = read("head", self.store.head(&session))?;
            same("the token after append_rows", &head, &Some(token))?;
            let index = kept_session(&self.tokens, slot);
            self.tokens[slot] = Some(Token {
                session: index,
                token,
                writes: self.count_of_writes(&session),
                log: self.log_size(&session)?,
            });
        }
        Ok(Some(Touched { base }))
    }

    fn reopen(&mut self) {
        self.slots.fill_with(|| None);
        if let Some((_, path)) = &self.file {
            // Whatever keeps the old store open is gone before the new one opens.
            let spare = Store::in_memory().expect("a store in memory");
            self.redb = spare.locator();
            self.store = spare;
            self.store = open(&self.clock, Some(path));
            self.redb = self.store.locator();
        }
    }

    /// The same handle on both stores, and the stem of its session.
    fn handles(&self, at: At, seed: &Meta) -> Checked<Option<(String, Handle, Handle)>> {
        let open = |locator: &dyn TranscriptLocator| match at {
            At::Session(session, generation) => {
                let session = self.session(session, generation);
                Some(read(
                    "open_session",
                    locator.open_session(&session, seed.value()),
                ))
            }
            At::Stem(stem) => {
                let stem = &self.world.stems[stem];
                Some(read("open_stem", locator.open_stem(stem, seed.value())))
            }
            At::Slot(_) => None,
        };
        let (memory, redb) = match (open(&self.memory), open(&self.redb)) {
            (Some(memory), Some(redb)) => (memory?, redb?),
            _ => match at {
                At::Slot(slot) => match &self.slots[slot] {
                    Some(kept) => kept.clone(),
                    None => return Ok(None),
                },
                _ => return Ok(None),
            },
        };
        same("the stem of a handle", memory.stem(), redb.stem())?;
        let base = base_of_stem(memory.stem()).to_owned();
        Ok(Some((base, memory, redb)))
    }

    fn session(&self, index: usize, generation: Gen) -> SessionRef {
        let session = &self.world.sessions[index];
        let written = self.chain_of(&base_of(session));
        let number = match generation {
            Gen::Head => written.saturating_sub(1),
            Gen::Next => written,
            Gen::Number(number) => number,
        };
        generation_of(session, number)
    }

    /// The live context of a stem, if it is written.
    fn rows_of(&self, stem: &str) -> Checked<Option<Vec<TranscriptMessage>>> {
        let handle = read(
            "open_stem",
            self.memory.open_stem(stem, Meta::default().value()),
        )?;
        let session = read("read_session", handle.read_session())?;
        Ok(session.map(|session| session.messages))
    }

    /// The rows that a write to a stem can keep: its own, or the predecessor's while it is unwritten.
    fn context(&self, stem: &str) -> Checked<Vec<TranscriptMessage>> {
        if let Some(rows) = self.rows_of(stem)? {
            return Ok(rows);
        }
        let (base, generation) = split(stem);
        match generation.checked_sub(1) {
            None => Ok(Vec::new()),
            Some(before) => Ok(self.rows_of(&stem_of(base, before))?.unwrap_or_default()),
        }
    }
}

fn kept_session(tokens: &[Option<Token>], slot: usize) -> usize {
    tokens[slot].as_ref().expect("a kept token").session
}

fn open(clock: &Arc<Clock>, path: Option<&PathBuf>) -> Store {
    let builder = Store::builder()
        .cache_bytes(4 << 20)
        .environment(Arc::clone(clock) as Arc<_>);
    let store = match path {
        Some(path) => builder.open(path),
        None => builder.in_memory(),
    };
    store.expect("a store that opens")
}

/// The given generation of a session.
pub fn generation_of(session: &SessionRef, generation: u32) -> SessionRef {
    let mut session = session.first_generation();
    session.generation = generation;
    session
}

/// The stem of a session's generation 0.
pub fn base_of(session: &SessionRef) -> String {
    session.first_generation().session_id()
}

pub fn base_of_stem(stem: &str) -> &str {
    split(stem).0
}

/// The stem of a generation.
pub fn stem_of(base: &str, generation: u32) -> String {
    match generation {
        0 => base.to_owned(),
        _ => format!("{base}.g{generation}"),
    }
}

/// Parts a stem of the world: none of its names ends like a generation.
pub fn split(stem: &str) -> (&str, u32) {
    let parts = stem
        .rsplit_once(".g")
        .and_then(|(base, digits)| Some((base, digits.parse().ok()?)));
    parts.unwrap_or((stem, 0))
}

/// A read that must not fail.
pub fn read<T>(what: &str, answer: Result<T>) -> Checked<T> {
    answer.map_err(|error| Divergence(format!("{what} fails: {error}")))
}

fn encoded(row: &TranscriptMessage) -> TranscriptMessage {
    TranscriptMessage {
        id: row.id.clone(),
        ..TranscriptMessage::new(&*row.role, row.legacy_content())
    }
}

fn patched(row: &TranscriptMessage, patch: &serde_json::Value) -> TranscriptMessage {
    let mut fields = serde_json::to_value(row).expect("a row");
    for (key, value) in patch.as_object().expect("an object") {
        fields[key] = value.clone();
    }
    serde_json::from_value(fields).expect("a row")
}

fn baseline_rows(baseline: &Baseline, stored: &[TranscriptMessage]) -> Vec<TranscriptMessage> {
    let mut rows = stored.to_vec();
    match baseline {
        Baseline::Current => {}
        Baseline::Encoded => rows = stored.iter().map(encoded).collect(),
        Baseline::Empty => rows.clear(),
        Baseline::Shorter => drop(rows.pop()),
        Baseline::Longer(row) => rows.push(row.message()),
        Baseline::Patched(index, patch) => {
            if !rows.is_empty() {
                let index = index % rows.len();
                rows[index] = patched(&rows[index], patch);
            }
        }
    }
    rows
}

fn next_rows(next: &Next, stored: &[TranscriptMessage]) -> Vec<TranscriptMessage> {
    let mut rows = match next.keep {
        Keep::All => stored.to_vec(),
        Keep::AllEncoded => stored.iter().map(encoded).collect(),
        Keep::First(count) => stored.iter().take(count).cloned().collect(),
        Keep::Nothing => Vec::new(),
    };
    rows.extend(next.edits.iter().filter_map(|edit| match edit {
        Edit::Kept(index) => stored.get(*index).cloned(),
        Edit::Copied(index) => stored.get(*index).map(|row| TranscriptMessage {
            preserve_request_id: false,
            ..row.clone()
        }),
        Edit::Patched(index, patch) => stored.get(*index).map(|row| patched(row, patch)),
        Edit::New(row) => Some(row.message()),
    }));
    rows
}

impl Meta {
    pub fn value(&self) -> TranscriptMeta {
        let mut meta = TranscriptMeta::new(self.agent_name)
            .with_created("c")
            .with_updated(self.updated);
        meta.agent_id = self.agent_id.map(str::to_owned);
        meta.thread_id = self.thread.map(str::to_owned);
        meta.model = self.model.map(str::to_owned);
        meta.session_id = self.session_id.map(str::to_owned);
        meta
    }
}

impl Partial {
    pub fn value(&self) -> TranscriptPartial {
        TranscriptPartial {
            content: self.content.to_owned(),
            reasoning_content: self.reasoning.map(str::to_owned),
            iteration: self.iteration,
        }
    }
}
