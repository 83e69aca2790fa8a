//! A session while it is imported into.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::step::{Published, RepeatKey};
use super::{Reading, key_in};
use crate::spend::{Money, SpendTally, usage_hour};
use crate::store::apply::full_stem;
use crate::store::attributes::Attributes;
use crate::store::change::CountedUsage;
use crate::store::engine::Engine;
use crate::store::hash::Identity;
use crate::store::head::{Context, Head, INLINE_RANGES, Range, SessionParts, Totals, source_code};
use crate::store::pending::{Newest, Session, View};
use crate::store::read::Reader;
use crate::store::record::Address;
use crate::turn::{background_origin, check_generation};
use crate::{Error, Result, SessionRef, TranscriptMessage, TranscriptMeta, TurnUsage};

/// The longest title, in characters.
const TITLE_CHARS: usize = 80;

/// Hour, provider, model and source: what usages of one transcript are summed by.
type UsageKey = (i64, String, String, u8);

/// What the store has of a generation that is imported into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Nothing.
    New,
    /// It is the last one.
    Open,
    /// The session has gone on in a later one, so that nothing can be added to it.
    Ended,
}

/// What a generation knows its records by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// As the file names them.
    Named,
    /// As the file names them, for this generation.
    OfGeneration,
    /// The same, and it reads the generation before anew.
    Anew,
}

pub(super) struct Open {
    pub(super) session: Arc<Session>,
    /// The session as it was when the import met it.
    pub(super) view: View,
    parts: SessionParts,
    pub(super) transcript: u64,
    pub(super) generation: u32,
    incarnation: u64,
    standing: Standing,
    /// The generation before, if this one is its successor from now on, with the head that it had.
    pub(super) predecessor: Option<(u64, Arc<Head>)>,
    /// Rows of the predecessor's context that cost something, by all that they say: a successor begins with copies.
    kept: HashMap<u128, Vec<u128>>,
    keys_of: Keys,
    pub(super) head: Head,
    usages: BTreeMap<UsageKey, Totals>,
    /// Idempotency keys and the sequences of the rows that hold them.
    keys: Vec<(String, u64)>,
    /// The times of its records, microseconds since the Unix epoch.
    span: Option<(i64, i64)>,
    attributes: Attributes,
    /// Whether sources told more of it than is stored.
    told: bool,
    changed: bool,
    /// Whether it was written before sessions had identities: the import knows its reference, but its writer did not.
    pre_identity: bool,
}

impl Open {
    pub(super) fn new(engine: &Engine, session: &SessionRef, reading: &Reading) -> Result<Self> {
        let stem = session.base_stem();
        let held = engine.sessions.get(&stem);
        let view = loop {
            let view = engine.view(&held)?;
            if engine.settled(&view) {
                break view;
            }
        };
        let conflict = |reason: &str| Error::Conflict {
            stem: stem.clone(),
            reason: reason.to_owned(),
        };
        if view.reservation().is_some() {
            return Err(conflict("a later generation of it is being written"));
        }
        let (generation, keys_of) = choose(engine, session, reading, view.newest.as_ref())?;
        let mut predecessor = None;
        let mut kept = HashMap::new();
        let (transcript, incarnation, state, standing) = match &view.newest {
            None if generation == 0 => {
                let transcript = engine.new_transcript();
                let meta = Arc::new(TranscriptMeta::new(""));
                (transcript, transcript, Head::new(meta), Standing::New)
            }
            Some(newest) if newest.generation == generation => {
                let state = newest.head.as_ref().clone();
                (newest.transcript, newest.incarnation, state, Standing::Open)
            }
            Some(newest) if newest.generation + 1 == generation => {
                let mut state = Head::new(Arc::new(TranscriptMeta::new("")));
                state.via_session = newest.head.via_session;
                state.title.clone_from(&newest.head.title);
                predecessor = Some((newest.transcript, Arc::clone(&newest.head)));
                kept = rows_with_usage(engine, newest)?;
                (
                    engine.new_transcript(),
                    newest.incarnation,
                    state,
                    Standing::New,
                )
            }
            Some(newest) if newest.generation > generation => {
                let (transcript, state) = engine.read(|reader| {
                    let id = match reader.stem_id(&stem)? {
                        Some(id) => reader.generation(id, generation)?,
                        None => None,
                    };
                    let id = id.ok_or_else(|| conflict("a generation of it is missing"))?;
                    Ok((id, reader.transcript(id)?.head.clone()))
                })?;
                (transcript, newest.incarnation, state, Standing::Ended)
            }
            _ => return Err(conflict("the generation before it is not there")),
        };
        let written = match (standing, &predecessor) {
            (Standing::New, None) => None,
            (Standing::New, Some((before, _))) => Some(*before),
            (Standing::Open | Standing::Ended, _) => Some(transcript),
        };
        if let Some(written) = written
            && !engine.read(|reader| reader.is_imported(written))?
        {
            return Err(conflict("it was written by a host and not imported"));
        }
        let attributes = if standing == Standing::New {
            Attributes::default()
        } else {
            engine.read(|reader| reader.attributes(transcript))?
        };
        Ok(Self {
            attributes,
            told: false,
            parts: SessionParts {
                key: session.session_key.clone(),
                agent: session.agent_id.clone(),
                ancestors: session.ancestors().to_vec(),
            },
            session: held,
            view,
            transcript,
            generation,
            incarnation,
            standing,
            predecessor,
            kept,
            keys_of,
            head: state,
            usages: BTreeMap::new(),
            keys: Vec::new(),
            span: None,
            changed: false,
            pre_identity: false,
        })
    }

    pub(super) fn written_before_identities(&mut self, yes: bool) {
        self.pre_identity = yes;
    }

    pub(super) fn header(&mut self, meta: TranscriptMeta, title: Option<String>) {
        self.head.meta = Arc::new(meta);
        if let Some(title) = title {
            self.head.title = short(&title);
        }
    }

    /// Adds what else a source tells of the session.
    pub(super) fn describe(&mut self, attributes: Attributes) {
        self.told |= self.attributes.take(attributes);
    }

    /// The address of the next record.
    pub(super) fn next(&mut self, uuid: u128, at: i64) -> Address {
        let seq = self.head.next_seq;
        self.head.next_seq += 1;
        Address {
            transcript: self.transcript,
            seq,
            uuid,
            at,
        }
    }

    /// Notes that something was written at a time.
    pub(super) fn touch(&mut self, at: i64) {
        self.changed = true;
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
        self.head.updated_at = self.head.updated_at.max(at);
    }

    pub(super) fn note_row(&mut self, message: &TranscriptMessage, address: Address) {
        self.touch(address.at);
        self.head.rows_stored += 1;
        if self.head.title.is_none() && message.role == "user" {
            self.head.title = short(&message.content);
        }
        let origin = background_origin(message).filter(|_| !message.interrupted);
        if let Some(origin) = origin {
            self.keys.push((origin.idempotency_key, address.seq));
        }
    }

    /// Adds a usage that this transcript is the first to store.
    pub(super) fn count(&mut self, usage: &TurnUsage, cache_write: u64, at: i64) {
        self.head.spend.add(usage);
        if let Some(counted) = counted(usage, cache_write, at) {
            self.usages
                .entry((
                    counted.hour,
                    counted.provider,
                    counted.model,
                    counted.source,
                ))
                .or_default()
                .add(&counted.totals);
        }
    }

    pub(super) fn extend(&mut self, engine: &Engine, identity: &Identity) {
        let context = &mut self.head.context;
        context.digest = engine.seed.extend(context.digest, identity);
        context.rows += 1;
    }

    /// Begins a new context, the rows of which are added one by one.
    pub(super) fn replace_context(&mut self, record: u64, ranges: Vec<Range>) {
        let inline = ranges.len() <= INLINE_RANGES;
        self.head.context = Context {
            base: if inline { ranges } else { Vec::new() },
            base_record: (!inline).then_some(record),
            tail_from: self.head.next_seq,
            rows: 0,
            digest: 0,
        };
    }

    /// The row of the predecessor that a row which costs something is a copy of, if it is one; each only once.
    pub(super) fn copied(&mut self, message: &TranscriptMessage, whole: u128) -> Option<u128> {
        message.turn_usage.as_ref()?;
        self.kept.get_mut(&whole)?.pop()
    }

    /// Refuses to publish rows behind the end of a generation.
    pub(super) fn check_end(&self) -> Result<()> {
        if self.standing == Standing::Ended && self.span.is_some() {
            return Err(Error::Conflict {
                stem: full_stem(&self.session.stem, self.generation),
                reason: "it has gone on in a later generation".to_owned(),
            });
        }
        Ok(())
    }

    /// Whether it is the last generation of its session, or will be.
    pub(super) fn is_newest(&self) -> bool {
        self.standing != Standing::Ended
    }

    /// The key under which this generation knows what a file names so.
    pub(super) fn key(&self, named: &RepeatKey) -> RepeatKey {
        let generation = match self.keys_of {
            Keys::Named => 0,
            Keys::OfGeneration | Keys::Anew => self.generation,
        };
        key_in(named, &self.session.stem, generation)
    }

    /// The key under which the generation that this one reads anew knows it.
    pub(super) fn former_key(&self, named: &RepeatKey) -> Option<RepeatKey> {
        let anew = self.keys_of == Keys::Anew;
        let former = self.generation.checked_sub(1).filter(|_| anew)?;
        Some(key_in(named, &self.session.stem, former))
    }

    /// Notes that its totals changed.
    pub(super) fn mark_changed(&mut self) {
        self.changed = true;
    }

    /// Whether anything was written.
    pub(super) fn is_changed(&self) -> bool {
        self.changed
    }

    pub(super) fn newest(&self) -> Newest {
        Newest {
            transcript: self.transcript,
            generation: self.generation,
            incarnation: self.incarnation,
            head: Arc::new(self.final_head()),
        }
    }

    pub(super) fn final_head(&self) -> Head {
        let mut head = self.head.clone();
        head.via_session |= !self.pre_identity;
        head
    }

    pub(super) fn published(&self) -> Published {
        let usages = self.usages.iter();
        Published {
            transcript: self.transcript,
            session: self.session.stem.clone(),
            generation: self.generation,
            named: (!self.head.via_session).then(|| self.parts.clone()),
            created_at: (self.standing == Standing::New)
                .then(|| self.span.map_or(self.head.updated_at, |(first, _)| first)),
            head: self.final_head(),
            usages: usages
                .map(|((hour, provider, model, source), totals)| CountedUsage {
                    hour: *hour,
                    provider: provider.clone(),
                    model: model.clone(),
                    source: *source,
                    totals: *totals,
                })
                .collect(),
            keys: self.keys.clone(),
            attributes: self.told.then(|| self.attributes.to_text()),
        }
    }
}

/// Which generation of a session an import goes on in.
fn choose(
    engine: &Engine,
    session: &SessionRef,
    reading: &Reading,
    newest: Option<&Newest>,
) -> Result<(u32, Keys)> {
    let named = (session.generation, Keys::Named);
    let (Reading::Newest | Reading::Anew { .. }, Some(newest)) = (reading, newest) else {
        return Ok(named);
    };
    if !engine.read(|reader| reader.is_imported(newest.transcript))? {
        return Ok(named);
    }
    if let Reading::Anew {
        path,
        codec_version,
    } = reading
    {
        let outdated = engine.read(|reader| reader.is_outdated(newest, path, *codec_version))?;
        let outdated = outdated.map_err(|reason| Error::Conflict {
            stem: session.base_stem(),
            reason: reason.to_owned(),
        })?;
        if outdated {
            let next = newest.generation.saturating_add(1);
            check_generation(&full_stem(&session.base_stem(), next), next)?;
            return Ok((next, Keys::Anew));
        }
    }
    Ok((newest.generation, Keys::OfGeneration))
}

impl Reader<'_> {
    /// Whether a generation was read from this path by an earlier version of the codec; or why it cannot be read anew.
    fn is_outdated(
        &self,
        read: &Newest,
        path: &str,
        codec_version: u32,
    ) -> Result<std::result::Result<bool, &'static str>> {
        let (readings, records) = self.readings_of(read.transcript)?;
        if readings
            .iter()
            .all(|(_, version)| *version >= codec_version)
        {
            return Ok(Ok(false));
        }
        let source = self.source_at(path)?.map(|(id, _)| id);
        if readings.iter().any(|(id, _)| Some(*id) != source) {
            return Ok(Err("it was not read from this file alone"));
        }
        if records < read.head.next_seq {
            return Ok(Err("it has records that were not read from a file"));
        }
        Ok(Ok(true))
    }
}

/// The rows of a context that cost something, by the hashes of all that they say; of equal ones the first comes last.
fn rows_with_usage(engine: &Engine, newest: &Newest) -> Result<HashMap<u128, Vec<u128>>> {
    let rows = engine.read(|reader| {
        reader.stored_rows(newest.transcript, &newest.head, |row| {
            let used = row.message.turn_usage.is_some();
            used.then(|| (engine.seed.row(&row.message).whole, row.uuid.as_u128()))
        })
    })?;
    let mut kept: HashMap<u128, Vec<u128>> = HashMap::new();
    for (whole, uuid) in rows.into_iter().flatten().rev() {
        kept.entry(whole).or_default().push(uuid);
    }
    Ok(kept)
}

/// A usage as the totals see it; None if it does not count.
pub(super) fn counted(usage: &TurnUsage, cache_write: u64, at: i64) -> Option<CountedUsage> {
    SpendTally::counts(usage).then(|| CountedUsage {
        hour: usage_hour(usage, at),
        provider: usage.provider.clone(),
        model: usage.model.clone(),
        source: source_code(usage.usage.cost_source),
        totals: Totals {
            turns: 1,
            input_tokens: usage.usage.input,
            output_tokens: usage.usage.output,
            cached_input_tokens: usage.usage.cached_input,
            cache_write_tokens: cache_write,
            cost: Money::from_usd(usage.usage.cost_usd).0,
        },
    })
}

/// The ranges that some rows are, given as transcript and sequence.
pub(super) fn ranges(places: &[(u64, u64)]) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for (transcript, seq) in places.iter().copied() {
        match ranges.last_mut() {
            Some(last) if last.transcript == transcript && last.end == seq => last.end += 1,
            _ => ranges.push(Range {
                transcript,
                first: seq,
                end: seq + 1,
            }),
        }
    }
    ranges
}

fn short(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(TITLE_CHARS).collect())
}
