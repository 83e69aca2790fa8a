//! The memory itself: every transcript's log, and the writes.
//!
//! A write is refused before anything is changed: it is admitted, planned and checked first, and then applied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use serde_json::Value;
use uuid::{Builder, Uuid};

use crate::replay::{self, Entry, StoredRow, record_time};
use crate::session::split_generation;
use crate::transcript::limits::check_meta;
use crate::turn::{
    ContextPlan, PlannedRow, PlannedUsage, RequestId, Rows, RowsPlan, Slot, Stamp, TurnPlan,
    background_holder, check_baseline, check_generation, check_plan, check_turn, plan_context,
    plan_partial, plan_rows, plan_turn,
};
use crate::{
    BackgroundAppend, BackgroundAppendOutcome, Error, Result, SessionRef, TranscriptMessage,
    TranscriptMeta, TranscriptPartial, TranscriptTurn, UsageRecord,
};

/// Identifies a transcript: the stem of its session, and the generation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) session: String,
    pub(super) generation: u32,
}

impl Id {
    pub(super) fn of(session: &SessionRef) -> Self {
        Self {
            session: session.first_generation().session_id(),
            generation: session.generation,
        }
    }

    pub(super) fn of_stem(stem: &str) -> Self {
        let (session, generation) = split_generation(stem);
        Self {
            session: session.to_owned(),
            generation,
        }
    }

    pub(super) fn stem(&self) -> String {
        match self.generation {
            0 => self.session.clone(),
            generation => format!("{}.g{generation}", self.session),
        }
    }

    fn predecessor(&self) -> Option<Self> {
        Some(Self {
            session: self.session.clone(),
            generation: self.generation.checked_sub(1)?,
        })
    }

    fn successor(&self) -> Self {
        Self {
            session: self.session.clone(),
            generation: self.generation.saturating_add(1),
        }
    }
}

/// What a handle brings to each of its writes.
pub(super) struct Writer {
    pub(super) id: Id,
    pub(super) session: Option<SessionRef>,
    pub(super) seed: TranscriptMeta,
    pub(super) begun: Option<Begun>,
}

/// A handle's claim to the generation that it began.
pub(super) struct Begun {
    /// The slot is taken while this lives, in the handle and its clones.
    owner: Arc<Owner>,
    baseline: Option<Vec<TranscriptMessage>>,
}

struct Owner;

impl Writer {
    /// The store's own writes to a transcript that exists.
    fn to_written(id: Id, session: Option<SessionRef>) -> Self {
        Self {
            id,
            session,
            seed: TranscriptMeta::new(""),
            begun: None,
        }
    }
}

/// One written transcript.
pub(super) struct Transcript {
    /// Which transcript of the store it is, in the order of their first writes.
    pub(super) created: usize,
    pub(super) log: Vec<Entry>,
    /// The claim under which it was first written.
    begun_by: Option<Arc<Owner>>,
}

impl Transcript {
    pub(super) fn meta(&self) -> Option<&TranscriptMeta> {
        replay::newest_meta(&self.log)
    }
}

/// What an admitted write is.
enum Admitted {
    /// It goes to a written transcript.
    Written,
    /// It makes the transcript, on top of the predecessor of a generation above 0.
    First { predecessor: Option<Id> },
}

#[derive(Default)]
pub(super) struct State {
    pub(super) transcripts: BTreeMap<Id, Transcript>,
    /// Sessions that were ever written through a reference.
    pub(super) references: BTreeMap<String, SessionRef>,
    /// The stem of each session's parent, where a reference said it.
    pub(super) parents: BTreeMap<String, String>,
    /// Every stem that a write mentioned, as its own or as an ancestor.
    pub(super) mentioned: BTreeSet<String>,
    reservations: BTreeMap<Id, Weak<Owner>>,
    last_uuid: Uuid,
}

impl State {
    /// The log of a transcript; empty if it was never written.
    pub(super) fn log(&self, id: &Id) -> &[Entry] {
        let transcript = self.transcripts.get(id);
        transcript
            .map(|transcript| transcript.log.as_slice())
            .unwrap_or_default()
    }

    /// The newest written generation of a session.
    pub(super) fn head(&self, session: &str) -> Option<&Id> {
        let written = self.transcripts.keys();
        written.filter(|id| id.session == session).max()
    }

    pub(super) fn begin(
        &mut self,
        id: &Id,
        baseline: Option<&[TranscriptMessage]>,
    ) -> Result<Begun> {
        let successor = id.successor();
        let stem = successor.stem();
        check_generation(&stem, id.generation.saturating_add(1))?;
        if !self.transcripts.contains_key(id) {
            return Err(Error::NotWritten { stem: id.stem() });
        }
        if self.transcripts.contains_key(&successor) {
            return Err(Error::GenerationExists { stem });
        }
        if self.holder(&successor).is_some() {
            return Err(Error::Reserved { stem });
        }
        if let Some(baseline) = baseline {
            check_baseline(&id.stem(), &mut rows_of(&self.context(id)), baseline)?;
        }
        let owner = Arc::new(Owner);
        self.reservations.insert(successor, Arc::downgrade(&owner));
        Ok(Begun {
            owner,
            baseline: baseline.map(<[_]>::to_vec),
        })
    }

    /// Frees the slot that a handle holds on a session.
    pub(super) fn release(&mut self, session: &str) -> bool {
        let mut released = false;
        self.reservations.retain(|id, owner| {
            let asked_for = id.session == session;
            released |= asked_for && owner.strong_count() > 0;
            !asked_for
        });
        released
    }

    pub(super) fn append_turn(
        &mut self,
        writer: &Writer,
        turn: &TranscriptTurn<'_>,
        partial: Option<&TranscriptPartial>,
    ) -> Result<()> {
        check_turn(&writer.id.stem(), turn)?;
        let stamp = Stamp {
            usage: turn.turn_usage,
            request_id: RequestId::Call(turn.request_id),
        };
        let mut write = match self.admit(writer)? {
            Admitted::Written => {
                let before = self.context(&writer.id);
                check_baseline(&writer.id.stem(), &mut rows_of(&before), turn.prev)?;
                match plan_turn(&mut rows_of(&before), turn.next, &stamp)? {
                    TurnPlan::Extension(rows) => Write::of_rows(rows),
                    TurnPlan::Compaction(context) => Write {
                        marker: Some(Marker {
                            request_id: turn.request_id,
                            metadata: turn.compaction,
                        }),
                        ..Write::of_context(context, before)
                    },
                }
            }
            Admitted::First { predecessor } => self.plan_first(predecessor, turn.next, &stamp)?,
        };
        write.meta = Some(turn.meta);
        write.tools = turn.tools;
        write.partial = partial.and_then(|partial| plan_partial(partial, turn.request_id));
        self.commit(writer, write)
    }

    pub(super) fn append(&mut self, writer: &Writer, message: &TranscriptMessage) -> Result<()> {
        let row = std::slice::from_ref(message);
        let mut write = match self.admit(writer)? {
            Admitted::Written => Write::of_rows(plan_rows(row, &Stamp::AS_GIVEN)),
            Admitted::First { predecessor } => {
                self.plan_first(predecessor, row, &Stamp::AS_GIVEN)?
            }
        };
        write.shows_time = true;
        self.commit(writer, write)
    }

    pub(super) fn replace(&mut self, writer: &Writer, next: &[TranscriptMessage]) -> Result<()> {
        let write = match self.admit(writer)? {
            Admitted::Written => {
                let before = self.context(&writer.id);
                let plan = plan_context(&mut rows_of(&before), next, &Stamp::AS_GIVEN)?;
                Write {
                    marker: Some(Marker::default()),
                    ..Write::of_context(plan, before)
                }
            }
            Admitted::First { predecessor } => {
                self.plan_first(predecessor, next, &Stamp::AS_GIVEN)?
            }
        };
        self.commit(writer, write)
    }

    pub(super) fn clear(&mut self, writer: &Writer) -> Result<()> {
        if self.transcripts.contains_key(&writer.id) {
            return self.replace(writer, &[]);
        }
        if writer
            .begun
            .as_ref()
            .is_some_and(|begun| self.holds(begun, &writer.id))
        {
            self.reservations.remove(&writer.id);
        }
        Ok(())
    }

    /// Records a partial at the head of the thread's newest root; false if there is none.
    pub(super) fn append_partial(
        &mut self,
        thread_id: &str,
        agent_id: Option<&str>,
        partial: PlannedRow,
    ) -> Result<bool> {
        let Some((root, _)) = self.newest_root_of_thread(thread_id, agent_id) else {
            return Ok(false);
        };
        let head = self.head(&root.session).unwrap_or(&root).clone();
        let writer = Writer::to_written(head, None);
        self.admit(&writer)?;
        let write = Write {
            partial: Some(partial),
            ..Write::default()
        };
        self.commit(&writer, write)?;
        Ok(true)
    }

    /// Appends a validated row to the head of a session unless the head's live context holds its key.
    pub(super) fn append_background(
        &mut self,
        session: &SessionRef,
        row: &TranscriptMessage,
        append: &BackgroundAppend,
    ) -> Result<BackgroundAppendOutcome> {
        let Some(head) = self.head(&Id::of(session).session).cloned() else {
            return Ok(BackgroundAppendOutcome::NoSession);
        };
        let generation = head.generation;
        if let Some(expected) = append.expected_generation
            && expected != generation
        {
            return Ok(BackgroundAppendOutcome::StaleGeneration {
                expected,
                head: generation,
            });
        }
        let context = replay::live_context(self.log(&head));
        let messages = context.iter().map(|row| &row.message);
        if background_holder(messages, &append.idempotency_key) {
            return Ok(BackgroundAppendOutcome::Duplicate { generation });
        }
        let writer = Writer::to_written(head, Some(session.clone()));
        self.append(&writer, row)?;
        Ok(BackgroundAppendOutcome::Appended { generation })
    }

    /// Whether the writer may write now, and what its write would be.
    fn admit(&self, writer: &Writer) -> Result<Admitted> {
        let id = &writer.id;
        let stem = id.stem();
        check_generation(&stem, id.generation)?;
        if let Some(transcript) = self.transcripts.get(id) {
            let claims = writer.begun.as_ref().map(|begun| &begun.owner);
            let by_another = claims.is_some_and(|owner| {
                let wrote = transcript.begun_by.as_ref();
                !wrote.is_some_and(|wrote| Arc::ptr_eq(wrote, owner))
            });
            if by_another {
                return Err(Error::GenerationExists { stem });
            }
            let successor = id.successor();
            if self.transcripts.contains_key(&successor) || self.holder(&successor).is_some() {
                return Err(Error::Sealed { stem });
            }
            return Ok(Admitted::Written);
        }
        let ours = writer
            .begun
            .as_ref()
            .is_some_and(|begun| self.holds(begun, id));
        if self.holder(id).is_some() && !ours {
            return Err(Error::Reserved { stem });
        }
        let predecessor = id.predecessor();
        if let Some(predecessor) = &predecessor {
            let stem = predecessor.stem();
            if !self.transcripts.contains_key(predecessor) {
                return Err(Error::NotWritten { stem });
            }
            if let Some(baseline) = writer.begun.as_ref().and_then(|it| it.baseline.as_deref()) {
                check_baseline(&stem, &mut rows_of(&self.context(predecessor)), baseline)?;
            }
        }
        Ok(Admitted::First { predecessor })
    }

    /// The handle that holds a slot, if one does that still lives.
    fn holder(&self, slot: &Id) -> Option<Arc<Owner>> {
        self.reservations.get(slot)?.upgrade()
    }

    fn holds(&self, begun: &Begun, slot: &Id) -> bool {
        let holder = self.holder(slot);
        holder.is_some_and(|holder| Arc::ptr_eq(&holder, &begun.owner))
    }

    fn context(&self, id: &Id) -> Vec<StoredRow> {
        let context = replay::live_context(self.log(id));
        context.into_iter().cloned().collect()
    }

    /// A first write: of a session all rows are new, a successor's may be its predecessor's.
    fn plan_first<'a>(
        &self,
        predecessor: Option<Id>,
        next: &[TranscriptMessage],
        stamp: &Stamp<'_>,
    ) -> Result<Write<'a>> {
        let Some(predecessor) = predecessor else {
            return Ok(Write::of_rows(plan_rows(next, stamp)));
        };
        let before = self.context(&predecessor);
        let plan = plan_context(&mut rows_of(&before), next, stamp)?;
        Ok(Write::of_context(plan, before))
    }

    /// Checks a planned write, and applies it.
    fn commit(&mut self, writer: &Writer, write: Write<'_>) -> Result<()> {
        let first = !self.transcripts.contains_key(&writer.id);
        let meta = write.meta.or(first.then_some(&writer.seed));
        write.check(&writer.id.stem(), meta)?;

        let now = record_time(Timestamp::now().as_microsecond());
        let mut entries: Vec<_> = meta.cloned().map(Entry::Meta).into_iter().collect();
        let marker = write.marker.map(|marker| (self.mint(), marker));
        let row_time = write.shows_time.then_some(&now);
        let stored: Vec<_> = write
            .plan
            .rows
            .into_iter()
            .map(|row| self.store(row, &write.before, row_time))
            .collect();
        let context = write.plan.context.iter().filter_map(|slot| match slot {
            Slot::Kept(index) => write.before.get(*index).cloned(),
            Slot::New(index) => stored.get(*index).cloned(),
        });
        match marker {
            Some((uuid, marker)) => entries.push(Entry::Compaction {
                uuid,
                replacement: context.collect(),
                written: now.clone(),
                request_id: marker.request_id.map(str::to_owned),
                metadata: marker.metadata.cloned(),
            }),
            None => entries.extend(context.map(Box::new).map(Entry::Row)),
        }
        for PlannedUsage { usage, request_id } in write.plan.usage {
            entries.push(Entry::Usage(UsageRecord {
                uuid: self.mint(),
                usage,
                request_id,
                ts: Some(now.clone()),
            }));
        }
        entries.extend(write.tools.cloned().map(Entry::Tools));
        if let Some(partial) = write.partial {
            let partial = self.store(partial, &[], Some(&now));
            entries.push(Entry::Row(Box::new(partial)));
        }

        self.mention(&writer.id, writer.session.as_ref());
        let created = self.transcripts.len();
        let transcript = self.transcripts.entry(writer.id.clone());
        let transcript = transcript.or_insert_with(|| Transcript {
            created,
            log: Vec::new(),
            begun_by: writer.begun.as_ref().map(|begun| Arc::clone(&begun.owner)),
        });
        transcript.log.extend(entries);
        self.reservations.remove(&writer.id);
        Ok(())
    }

    fn store(&mut self, row: PlannedRow, before: &[StoredRow], time: Option<&String>) -> StoredRow {
        let revised = row.revises.and_then(|index| before.get(index));
        StoredRow {
            uuid: self.mint(),
            message: row.message,
            iteration: row.iteration,
            ts: row.ts,
            written: time.cloned(),
            revises: revised.map(|row| row.uuid),
        }
    }

    /// A new identity of version 7, greater than all before it.
    fn mint(&mut self) -> Uuid {
        let millis = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
        let mut random = [0; 10];
        random.copy_from_slice(Uuid::new_v4().as_bytes().split_at(6).1);
        let by_time = Builder::from_unix_timestamp_millis(millis, &random).into_uuid();
        let next = Uuid::from_u128(self.last_uuid.as_u128() + 1);
        self.last_uuid = by_time.max(next);
        self.last_uuid
    }
}

/// A planned write.
#[derive(Default)]
struct Write<'a> {
    /// The context that the plan's indexes mean.
    before: Vec<StoredRow>,
    plan: ContextPlan,
    /// With a marker the planned context takes the place of the live context, else it is added.
    marker: Option<Marker<'a>>,
    /// Whether the display shows the time of the write with the rows.
    shows_time: bool,
    meta: Option<&'a TranscriptMeta>,
    tools: Option<&'a Value>,
    partial: Option<PlannedRow>,
}

/// What is recorded with a compaction; nothing for `replace` and `clear`.
#[derive(Default)]
struct Marker<'a> {
    request_id: Option<&'a str>,
    metadata: Option<&'a Value>,
}

impl Write<'_> {
    fn of_rows(RowsPlan { rows, usage }: RowsPlan) -> Self {
        let context = (0..rows.len()).map(Slot::New).collect();
        Self::of_context(
            ContextPlan {
                context,
                rows,
                usage,
            },
            Vec::new(),
        )
    }

    fn of_context(plan: ContextPlan, before: Vec<StoredRow>) -> Self {
        Self {
            before,
            plan,
            ..Self::default()
        }
    }

    fn check(&self, stem: &str, meta: Option<&TranscriptMeta>) -> Result<()> {
        meta.map_or(Ok(()), |meta| check_meta(stem, meta))?;
        check_plan(stem, &self.plan.rows, &self.plan.usage)?;
        check_plan(stem, self.partial.as_slice(), &[])
    }
}

fn rows_of(context: &[StoredRow]) -> Rows<'_> {
    Rows(context.iter().map(|row| &row.message).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, InMemoryTranscriptLocator, TranscriptLocator as _};

    fn meta() -> TranscriptMeta {
        TranscriptMeta::new("agent").with_thread_id("t")
    }

    fn written(locator: &InMemoryTranscriptLocator) -> SessionRef {
        let session = SessionRef::root("s");
        let history = locator.open_session(&session, meta()).unwrap();
        history.append(TranscriptMessage::user("q")).unwrap();
        session
    }

    #[test]
    fn identities_ascend_and_are_of_version_seven() {
        let mut state = State::default();
        let minted: Vec<_> = (0..1000).map(|_| state.mint()).collect();
        assert!(minted.is_sorted_by(|a, b| a < b));
        assert!(minted.iter().all(|uuid| uuid.get_version_num() == 7));
    }

    #[test]
    fn a_stem_with_a_canonical_ending_is_a_generation_of_its_session() {
        for (stem, session, generation) in [("a.g2", "a", 2), ("a.g02", "a.g02", 0), ("a", "a", 0)]
        {
            let id = Id::of_stem(stem);
            assert_eq!((id.session.as_str(), id.generation), (session, generation));
            assert_eq!(id.stem(), stem);
        }
    }

    #[test]
    fn a_released_handle_takes_the_slot_again_and_loses_it_to_a_faster_one() {
        let locator = InMemoryTranscriptLocator::new();
        let session = written(&locator);
        let (_, slow) = locator.begin_generation(&session, meta()).unwrap();
        let second = locator.begin_generation(&session, meta());
        assert_eq!(second.unwrap_err().kind(), ErrorKind::Reserved);
        assert!(locator.release(&session.next_generation()));
        assert!(!locator.release(&session));

        let (successor, fast) = locator.begin_generation(&session, meta()).unwrap();
        let refused = slow.append(TranscriptMessage::user("slow"));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Reserved);
        fast.append(TranscriptMessage::user("fast")).unwrap();
        let refused = slow.append(TranscriptMessage::user("slow"));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::GenerationExists);
        fast.append(TranscriptMessage::user("more")).unwrap();
        assert_eq!(locator.head_generation(&session).unwrap(), successor);
    }

    #[test]
    fn only_the_holder_gives_a_slot_back_by_clearing() {
        let locator = InMemoryTranscriptLocator::new();
        let session = written(&locator);
        let history = locator.open_session(&session, meta()).unwrap();
        let (successor, held) = locator.begin_generation(&session, meta()).unwrap();
        let other = locator.open_session(&successor, meta()).unwrap();
        other.clear().unwrap();
        let refused = history.append(TranscriptMessage::user("q"));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Sealed);
        held.clear().unwrap();
        history.append(TranscriptMessage::user("q")).unwrap();
        held.replace(&[]).unwrap();
        assert!(locator.session_exists(&successor).unwrap());
    }

    #[test]
    fn a_baseline_is_checked_again_by_the_first_write_after_the_slot_was_free() {
        let locator = InMemoryTranscriptLocator::new();
        let session = written(&locator);
        let history = locator.open_session(&session, meta()).unwrap();
        let baseline = history.messages().unwrap();
        let (successor, begun) = locator
            .begin_generation_from_baseline(&session, meta(), &baseline)
            .unwrap();
        begun.clear().unwrap();
        history.append(TranscriptMessage::user("between")).unwrap();
        let refused = begun.append(TranscriptMessage::user("q"));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Stale);
        assert!(!locator.session_exists(&successor).unwrap());
        history
            .append(TranscriptMessage::user("still open"))
            .unwrap();
    }

    #[test]
    fn every_generation_up_to_the_limit_can_be_written_and_none_beyond() {
        let locator = InMemoryTranscriptLocator::new();
        let session = SessionRef::root("s");
        for generation in 0..=4096 {
            let history = locator.open_session(&session.with_generation(generation), meta());
            history.unwrap().replace(&[]).unwrap();
        }
        let last = session.with_generation(4096);
        let refused = locator.begin_generation(&last, meta());
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::GenerationLimit);
        let beyond = locator
            .open_session(&last.next_generation(), meta())
            .unwrap();
        assert_eq!(
            beyond.replace(&[]).unwrap_err().kind(),
            ErrorKind::GenerationLimit
        );
        assert_eq!(locator.head_generation(&session).unwrap(), last);
    }

    #[test]
    fn a_successor_s_kept_rows_are_the_predecessor_s_records() {
        let locator = InMemoryTranscriptLocator::new();
        let session = written(&locator);
        let before = locator.open_session(&session, meta()).unwrap();
        let kept = before.messages().unwrap();
        let (_, after) = locator.begin_generation(&session, meta()).unwrap();
        after.append(kept[0].clone()).unwrap();
        let records = |history: &dyn crate::TranscriptHistory| {
            history.read_display().unwrap().unwrap().records
        };
        assert_eq!(records(after.as_ref()), records(before.as_ref()));
    }
}
