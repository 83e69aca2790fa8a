//! The reference and the redb store side by side: every operation is applied to both, and what they answer compared.

use std::collections::BTreeMap;
use std::sync::Arc;

use transcript_redb::{
    DisplaySessionTranscript, InMemoryTranscriptLocator, RedbTranscriptLocator, Result, SessionRef,
    Store, TranscriptHistory, TranscriptLocator, TranscriptMessage, TranscriptMeta,
    same_transcript_messages,
};
use uuid::Uuid;

use super::clock::Clock;
use super::diff::{Checked, Divergence, differ, same};
use super::expect::{self, Call, Caller};
use super::generate::SLOTS;
use super::op::{At, Gen, Meta, Op};
use super::place::{Fault, Medium, Place};
use super::rng::Rng;
use super::stems::{base_of, base_of_stem, generation_of, split, stem_of};
use super::tokens::Token;
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

/// How often what happened.
pub type Outcomes = BTreeMap<String, usize>;

pub type Handle = Arc<dyn TranscriptHistory>;

/// Two displays: a transcript's and its predecessor's.
pub type Before = (
    Option<DisplaySessionTranscript>,
    Option<DisplaySessionTranscript>,
);

pub struct Pair {
    pub world: World,
    pub memory: InMemoryTranscriptLocator,
    pub store: Store,
    pub redb: RedbTranscriptLocator,
    pub medium: Medium,
    pub clock: Arc<Clock>,
    pub slots: Vec<Option<(Handle, Handle)>>,
    pub tokens: Vec<Option<Token>>,
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
    pub writes: BTreeMap<String, (usize, String)>,
    pub seed: u64,
    pub rng: Rng,
    pub reads: Reads,
    /// Whether the transcript at hand is compared to the letter.
    pub strict: bool,
    /// Strikes the next operation that asks something of the disk.
    pub fault: Option<Fault>,
    /// Counts how often the store was opened: handles of an earlier one are of no use.
    pub life: usize,
    /// Something happened after which everything is compared.
    pub check_due: bool,
    /// How often each call ended how.
    pub outcomes: Outcomes,
}

/// The session that a step may have changed, by the stem of its generation 0.
pub type Touched = Option<String>;

impl Pair {
    pub fn new(seed: u64, place: Place, reads: Reads) -> Self {
        let clock = Arc::new(Clock::new(seed));
        let medium = Medium::new(place);
        let store = medium.open(&clock).expect("a store that opens");
        Self {
            world: World::new(),
            memory: InMemoryTranscriptLocator::new(),
            redb: store.locator(),
            store,
            medium,
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
            fault: None,
            life: 0,
            check_due: false,
            outcomes: Outcomes::new(),
        }
    }

    /// Applies one operation to both stores and compares every answer.
    pub fn step(&mut self, op: &Op) -> Checked {
        self.clock.advance(1_000);
        let life = self.life;
        let touched = self.apply(op)?;
        if self.life != life {
            // Not before the reference has made the operation that the end of the process came behind.
            self.slots.fill_with(|| None);
        }
        self.compare(touched.as_deref())?;
        if std::mem::take(&mut self.check_due) {
            self.check_all()?;
        }
        Ok(())
    }

    /// When the session was last written, by the redb store's clock.
    pub fn last_write(&self, base: &str) -> Option<&str> {
        self.writes.get(base).map(|(_, at)| at.as_str())
    }

    /// Notes that a call wrote to a session.
    pub fn wrote(&mut self, base: &str) {
        let now = self.clock.now();
        let (count, at) = self.writes.entry(base.to_owned()).or_default();
        *count += 1;
        *at = now;
    }

    /// Both stores answer the same value, or the same error: of one kind and with one text. `None` is an error.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "they are answers, made for this"
    )]
    pub fn agree<T: PartialEq + std::fmt::Debug>(
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

    /// The displays of a transcript and of the generation before it, before a write.
    pub fn before(&self, stem: &str) -> Checked<Before> {
        let (base, generation) = split(stem);
        let predecessor = match generation.checked_sub(1) {
            Some(before) => self.display(&stem_of(base, before))?,
            None => None,
        };
        Ok((self.display(stem)?, predecessor))
    }

    /// After a write the log holds what the rules say, and the live context is what the caller said.
    pub fn check_written(&mut self, call: &Call<'_>, before: &Before, stem: &str) -> Checked {
        let redb = read(
            "open_stem",
            self.redb.open_stem(stem, Meta::default().value()),
        )?;
        let after = read("read_display", redb.read_display())?.expect("it is written");
        let stored = expect::check(call, before.0.as_ref(), before.1.as_ref(), &after)?;
        for what in stored {
            self.note(what);
        }
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
        let whole = call.caller != Caller::Append && call.rows.iter().all(|row| !row.interrupted);
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

    /// The same handle on both stores, and the stem of its session.
    pub fn handles(&self, at: At, seed: &Meta) -> Checked<Option<(String, Handle, Handle)>> {
        let open = |locator: &dyn TranscriptLocator| match at {
            At::Session(session, generation) => {
                let session = self.session(session, generation);
                locator.open_session(&session, seed.value()).map(Some)
            }
            At::Stem(stem) => {
                let stem = &self.world.stems[stem];
                locator.open_stem(stem, seed.value()).map(Some)
            }
            At::Slot(_) => Ok(None),
        };
        let opened = (
            read("open", open(&self.memory))?,
            read("open", open(&self.redb))?,
        );
        let (memory, redb) = match (opened, at) {
            ((Some(memory), Some(redb)), _) => (memory, redb),
            (_, At::Slot(slot)) => match &self.slots[slot] {
                Some(kept) => kept.clone(),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        same("the stem of a handle", memory.stem(), redb.stem())?;
        let base = base_of_stem(memory.stem()).to_owned();
        Ok(Some((base, memory, redb)))
    }

    /// A generation of a session of the world.
    pub fn session(&self, index: usize, generation: Gen) -> SessionRef {
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
    pub fn rows_of(&self, stem: &str) -> Checked<Option<Vec<TranscriptMessage>>> {
        let handle = read(
            "open_stem",
            self.memory.open_stem(stem, Meta::default().value()),
        )?;
        let session = read("read_session", handle.read_session())?;
        Ok(session.map(|session| session.messages))
    }

    /// The rows that a write to a stem can keep: its own, or the predecessor's while it is unwritten.
    pub fn context(&self, stem: &str) -> Checked<Vec<TranscriptMessage>> {
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

/// A read that must not fail.
pub fn read<T>(what: &str, answer: Result<T>) -> Checked<T> {
    answer.map_err(|error| Divergence(format!("{what} fails: {error}")))
}
