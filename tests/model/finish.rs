//! What is checked at the end of a sequence: everything that was compared on the way, the records as they lie in the
//! log, the lists, and every way to sum spend.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use transcript_redb::{
    DisplayMessage, DisplayRecord, ListOrder, Record, RecordIter, RecordKind, SessionQuery,
    SessionRef, SpendGroup, SpendQuery, SpendRow, UsageCostSource,
};
use uuid::Uuid;

use super::compare::is_root;
use super::diff::{Checked, holds, same};
use super::pair::{Pair, base_of, base_of_stem, generation_of, read, stem_of};
use super::recount::{self, Event, Part};
use super::rng::Rng;
use super::values::TIMES;
use super::world::THREADS;

/// Queries of spend at the end of each sequence.
const QUERIES: usize = 12;

impl Pair {
    /// Compares everything.
    pub fn finish(&mut self) -> Checked {
        // The same choices, however a sequence was shortened.
        self.rng = Rng::new(self.seed);
        self.compare_all()?;
        for base in self.written_bases() {
            self.check_records(&base)?;
        }
        self.check_sessions()?;
        self.check_threads()?;
        let counted = self.counted()?;
        for _ in 0..QUERIES {
            let query = self.spend_query();
            let found = read("spend", self.store.spend(&query))?;
            let expected = sums(&counted, &query);
            same(&format!("{query:?}"), &expected, &found)?;
        }
        Ok(())
    }

    /// The records of a session: complete, in the order of the log, each once, and in agreement with the displays.
    fn check_records(&mut self, base: &str) -> Checked {
        let reference = self
            .world
            .sessions
            .iter()
            .find(|it| base_of(it) == base)
            .cloned();
        let mut all = Vec::new();
        let mut shown = BTreeSet::new();
        for generation in 0..self.chain_of(base) {
            let stem = stem_of(base, generation);
            let records = collected(read("records_of_stem", self.store.records_of_stem(&stem))?)?;
            self.check_log(&stem, generation, &records, &mut shown)?;
            if let Some(session) = &reference {
                let by_session = self.store.records(&generation_of(session, generation));
                let by_session = collected(read("records", by_session)?)?;
                same(&format!("records of {stem}"), &records, &by_session)?;
            }
            all.extend(records);
        }
        if all.len() > 128 {
            self.note("a log of many pages");
        }
        if let Some(session) = reference {
            self.check_chain(&session, &all)?;
        }
        for record in &all {
            let found = read("record", self.store.record(record.uuid))?;
            same(
                &format!("record {}", record.uuid),
                &Some(record),
                &found.as_ref(),
            )?;
        }
        Ok(())
    }

    /// The chain's records come in both directions, from both ends at once, and behind any of them.
    fn check_chain(&mut self, session: &SessionRef, all: &[Record]) -> Checked {
        let what = format!("session_records of {}", session.session_id());
        let records = || read("session_records", self.store.session_records(session));
        same(&what, all, &collected(records()?)?)?;
        let mut backwards = records()?.rev().collect::<Result<Vec<_>, _>>();
        if let Ok(backwards) = &mut backwards {
            backwards.reverse();
        }
        same(&what, all, &read(&what, backwards)?)?;

        let mut iter = records()?;
        let (mut front, mut back) = (Vec::new(), VecDeque::new());
        let mut rng = self.rng.clone();
        loop {
            let next = if rng.percent(50) {
                iter.next().map(|next| next.map(|next| front.push(next)))
            } else {
                iter.next_back()
                    .map(|next| next.map(|next| back.push_front(next)))
            };
            match next {
                None => break,
                Some(next) => read(&what, next)?,
            }
        }
        front.extend(back);
        same(&format!("{what} from both ends"), all, &front)?;

        for _ in 0..3.min(all.len()) {
            let index = rng.below(all.len());
            let behind = read("after", records()?.after(all[index].uuid))?;
            let behind = collected(behind)?;
            same(&format!("{what} after {index}"), &all[index + 1..], &behind)?;
        }
        let stranger = records()?.after(Uuid::from_u128(7));
        holds(stranger.is_err(), || {
            format!("{what} after a record of no log")
        })?;
        self.rng = rng;
        Ok(())
    }

    /// One generation's log against its display. `shown` holds what earlier generations have shown.
    fn check_log(
        &self,
        stem: &str,
        generation: u32,
        records: &[Record],
        shown: &mut BTreeSet<Uuid>,
    ) -> Checked {
        let what = |part: &str| format!("{part} in the log of {stem}");
        let mut parent = None;
        let mut last: Option<&Record> = None;
        for record in records {
            same(&what("the parent"), &parent, &record.parent)?;
            same(&what("the stem"), stem, &record.stem)?;
            same(&what("the generation"), &generation, &record.generation)?;
            if let Some(last) = last {
                holds(last.uuid < record.uuid && last.seq < record.seq, || {
                    what("a record that is not behind the one before")
                })?;
            }
            same(
                &what("the version of an id"),
                &7,
                &record.uuid.get_version_num(),
            )?;
            holds(self.clock.showed(&record.written_at), || {
                what("a strange time")
            })?;
            if let Some(at) = self.written_at.get(&record.uuid) {
                same(&what("the time of a write"), at, &record.written_at)?;
            }
            parent = Some(record.uuid);
            last = Some(record);
        }

        let of = |kinds: &[RecordKind]| -> Vec<&Record> {
            let kept = records.iter().filter(|record| kinds.contains(&record.kind));
            kept.collect()
        };
        let display = self.display(stem)?.expect("it is written");
        let (mut rows, mut markers, mut retained) = (Vec::new(), Vec::new(), Vec::new());
        for record in &display.records {
            let stored = rows.len();
            match record {
                DisplayRecord::Message(row) if shown.contains(&row.uuid) => retained.push(row.uuid),
                DisplayRecord::Message(row) => rows.push(row.as_ref()),
                // What a marker keeps was shown before, in this log or in one before.
                DisplayRecord::Compaction(marker) => {
                    let new = |row: &&DisplayMessage| !shown.contains(&row.uuid);
                    rows.extend(marker.replacement.iter().filter(new));
                    markers.push(marker);
                }
            }
            shown.extend(rows[stored..].iter().map(|row| row.uuid));
        }
        let stored = of(&[RecordKind::Message, RecordKind::Partial]);
        let messages: Vec<_> = stored.iter().filter_map(|it| it.message.as_ref()).collect();
        same(&what("the rows"), &rows, &messages)?;
        for record in stored {
            let interrupted = record.message.as_ref().is_some_and(|row| row.interrupted);
            same(
                &what("a partial"),
                &interrupted,
                &(record.kind == RecordKind::Partial),
            )?;
        }
        let compactions = of(&[RecordKind::Compaction]);
        same(
            &what("the number of compactions"),
            &markers.len(),
            &compactions.len(),
        )?;
        for (marker, record) in markers.iter().zip(compactions) {
            let replacement: Vec<_> = marker.replacement.iter().map(|row| row.uuid).collect();
            let said = (
                marker.uuid,
                &marker.request_id,
                &marker.metadata,
                &replacement,
            );
            let found = (
                record.uuid,
                &record.request_id,
                &record.metadata,
                &record.retained,
            );
            same(&what("a compaction"), &said, &found)?;
            same(
                &what("its time"),
                &marker.ts.as_ref(),
                &Some(&record.written_at),
            )?;
        }
        let usages = of(&[RecordKind::Usage]);
        let usages: Vec<_> = usages
            .iter()
            .map(|it| (it.uuid, it.usage.clone()))
            .collect();
        let unattached = display.unattached.iter();
        let unattached: Vec<_> = unattached
            .map(|it| (it.uuid, Some(it.usage.clone())))
            .collect();
        same(&what("the usages"), &unattached, &usages)?;
        let kept: Vec<_> = of(&[RecordKind::Retained])
            .iter()
            .flat_map(|it| it.retained.clone())
            .collect();
        same(
            &what("the rows kept from the generation before"),
            &retained,
            &kept,
        )?;
        let sealed = generation + 1 < self.chain_of(base_of_stem(stem));
        let seals = of(&[RecordKind::Seal]);
        same(
            &what("the number of seals"),
            &usize::from(sealed),
            &seals.len(),
        )?;
        if sealed {
            holds(seals.last() == records.last().as_ref(), || {
                what("a record behind the seal")
            })?;
        }
        let tools = of(&[RecordKind::Tools])
            .last()
            .and_then(|record| record.tools.clone());
        let handle = self.memory_session(stem)?;
        same(&what("the last tools"), &handle.tools, &tools)
    }

    /// The list of sessions against what is known of each.
    fn check_sessions(&mut self) -> Checked {
        let bases = self.written_bases();
        for children in [false, true] {
            let query = SessionQuery {
                children,
                order: ListOrder::Created,
                ..SessionQuery::default()
            };
            let listed = read("sessions", self.store.sessions_matching(&query))?;
            let found: Vec<_> = listed.iter().map(|it| base_of_stem(&it.stem)).collect();
            let expected = bases.iter().rev().filter(|it| children || is_root(it));
            let expected: Vec<_> = expected.map(String::as_str).collect();
            same("the sessions, newest first", &expected, &found)?;
            for summary in &listed {
                self.check_summary(summary)?;
            }
            let query = SessionQuery {
                children,
                ..SessionQuery::default()
            };
            let updated = read("sessions", self.store.sessions_matching(&query))?;
            let times: Vec<_> = updated.iter().map(|it| time(&it.updated)).collect();
            holds(times.is_sorted_by(|a, b| a >= b), || {
                format!("the sessions, last written first: {times:?}")
            })?;
            same("both orders", &listed.len(), &updated.len())?;
            let query = SessionQuery {
                limit: Some(2),
                ..query
            };
            let limited = read("sessions", self.store.sessions_matching(&query))?;
            same(
                "the first sessions",
                &updated[..updated.len().min(2)],
                &limited,
            )?;
        }
        for thread in THREADS {
            let query = SessionQuery {
                children: true,
                thread: Some(thread.to_owned()),
                ..SessionQuery::default()
            };
            let listed = read("sessions", self.store.sessions_matching(&query))?;
            let found: BTreeSet<_> = listed.iter().map(|it| base_of_stem(&it.stem)).collect();
            let named = |base: &&String| {
                let head = self.head_meta(base).thread_id.as_deref().map(str::trim);
                head == Some(thread.trim()) && !thread.trim().is_empty()
            };
            let expected: BTreeSet<_> = bases.iter().filter(named).map(String::as_str).collect();
            same(
                &format!("the sessions that name {thread:?}"),
                &expected,
                &found,
            )?;
        }
        Ok(())
    }

    fn check_summary(&self, summary: &transcript_redb::SessionSummary) -> Checked {
        let base = base_of_stem(&summary.stem);
        let what = |part: &str| format!("{part} of {base} in the list of sessions");
        let generations = self.chain_of(base);
        same(
            &what("the head"),
            &stem_of(base, generations - 1),
            &summary.stem,
        )?;
        same(
            &what("the generation"),
            &(generations - 1),
            &summary.generation,
        )?;
        same(&what("the kind"), &!is_root(base), &summary.subagent)?;
        let meta = self.head_meta(base);
        same(&what("the agent"), &meta.agent_name, &summary.agent_name)?;
        let thread = meta
            .thread_id
            .as_deref()
            .map(str::trim)
            .filter(|it| !it.is_empty());
        same(&what("the thread"), &thread, &summary.thread_id.as_deref())?;
        same(
            &what("the last write"),
            &self.last_write(base),
            &Some(&*summary.updated),
        )?;
        let mut counted = BTreeSet::new();
        let mut events = Vec::new();
        let mut rows = BTreeMap::new();
        for generation in 0..generations {
            let stem = stem_of(base, generation);
            let display = self.display(&stem)?.expect("it is written");
            events.extend(recount::events(&display, &mut counted));
            for record in display.records {
                let shown = match record {
                    DisplayRecord::Message(row) => vec![*row],
                    DisplayRecord::Compaction(marker) => marker.replacement,
                };
                rows.extend(shown.into_iter().map(|row| (row.uuid, row)));
            }
        }
        same(
            &what("the rows"),
            &rows.len(),
            &usize::try_from(summary.messages).expect("few"),
        )?;
        let live = self.memory_session(&summary.stem)?.messages.len();
        same(
            &what("the live rows"),
            &live,
            &usize::try_from(summary.live_messages).expect("few"),
        )?;
        same(
            &what("the spend"),
            &recount::spend(&[Part { meta, events }]),
            &summary.spend,
        )?;
        let mut users = rows.values().filter(|row| row.message.role == "user");
        let title = users.find_map(|row| {
            let mut lines = row.message.content.lines().map(str::trim);
            lines
                .find(|line| !line.is_empty())
                .map(|line| line.chars().take(80).collect::<String>())
        });
        same(&what("the title"), &title, &summary.title)
    }

    fn check_threads(&mut self) -> Checked {
        let listed = read("threads", self.store.threads())?;
        let mut expected: BTreeMap<String, (u64, String)> = BTreeMap::new();
        for base in self.written_bases().iter().filter(|base| is_root(base)) {
            let thread = self.head_meta(base).thread_id.as_deref().map(str::trim);
            if let Some(thread) = thread.filter(|it| !it.is_empty()) {
                let (sessions, updated) = expected.entry(thread.to_owned()).or_default();
                *sessions += 1;
                let written = self.last_write(base).expect("it is written");
                if updated.is_empty() || time(updated) < time(written) {
                    written.clone_into(updated);
                }
            }
        }
        let found: BTreeMap<_, _> = listed
            .iter()
            .map(|it| (it.thread_id.clone(), (it.sessions, it.updated.clone())))
            .collect();
        same("the threads", &expected, &found)?;
        holds(
            listed.is_sorted_by(|a, b| time(&a.updated) >= time(&b.updated)),
            || "the threads are not listed last written first".to_owned(),
        )?;
        for thread in &listed {
            let spend = self.recount_thread(&thread.thread_id)?;
            same(
                &format!("the spend of {} in the list of threads", thread.thread_id),
                &spend,
                &thread.spend,
            )?;
        }
        Ok(())
    }

    fn head_meta(&self, base: &str) -> &transcript_redb::TranscriptMeta {
        let head = self.chain_of(base) - 1;
        self.metas.get(&stem_of(base, head)).expect("it is written")
    }

    /// Every usage of the store, with what it is summed by.
    fn counted(&self) -> Checked<Vec<Counted>> {
        let mut all = Vec::new();
        for base in self.written_bases() {
            let thread = self.thread_of(&base)?.unwrap_or_default();
            let mut counted = BTreeSet::new();
            for generation in 0..self.chain_of(&base) {
                let display = self
                    .display(&stem_of(&base, generation))?
                    .expect("it is written");
                for Event { uuid, usage } in recount::events(&display, &mut counted) {
                    let recorded = &self.recorded[&uuid];
                    let hour = match hour_of(&usage.ts) {
                        Some(hour) => hour,
                        None => hour_of(&self.written_at[&uuid]).expect("a time of writing"),
                    };
                    all.push(Counted {
                        thread: thread.to_owned(),
                        thread_then: recorded.thread.clone(),
                        session: base.clone(),
                        agent: recorded.agent.clone(),
                        hour,
                        usage,
                    });
                }
            }
        }
        Ok(all)
    }

    fn spend_query(&mut self) -> SpendQuery {
        use SpendGroup::{Agent, Day, Hour, Model, Provider, Session, Source, Thread};
        let rng = &mut self.rng;
        let mut group_by: Vec<_> = [Thread, Session, Agent, Provider, Model, Source, Hour, Day]
            .into_iter()
            .filter(|_| rng.percent(30))
            .collect();
        if group_by.contains(&Hour) {
            // Both name the same column.
            group_by.retain(|group| *group != Day);
        }
        let text = |choices: &[&str], rng: &mut Rng| {
            rng.percent(15).then(|| (*rng.pick(choices)).to_owned())
        };
        let hour = |rng: &mut Rng| {
            let hour = hour_of(TIMES[rng.within(1..6)]).expect("a time");
            rng.percent(12).then_some(hour + [0, 0, 1][rng.below(3)])
        };
        SpendQuery {
            thread: text(&THREADS, rng),
            session: rng
                .percent(15)
                .then(|| rng.pick(&self.world.sessions).clone()),
            agent: text(&["orch", "worker", "", "nobody"], rng),
            provider: text(&["p1", "p2", ""], rng),
            model: text(&["m1", "m2", ""], rng),
            since_hour: hour(rng),
            until_hour: hour(rng),
            group_by,
        }
    }
}

fn collected(iter: RecordIter) -> Checked<Vec<Record>> {
    read("a record", iter.collect())
}

/// A usage with what it is summed by.
#[derive(Debug)]
struct Counted {
    thread: String,
    thread_then: String,
    session: String,
    agent: String,
    hour: i64,
    usage: transcript_redb::TurnUsage,
}

fn time(text: &str) -> jiff::Timestamp {
    text.parse().expect("a time")
}

/// The UTC hour of a time, counted from the epoch.
fn hour_of(ts: &str) -> Option<i64> {
    let time: jiff::Timestamp = ts.parse().ok()?;
    Some(
        time.as_nanosecond()
            .div_euclid(3_600_000_000_000)
            .try_into()
            .expect("an hour"),
    )
}

/// The key of a group, in the order in which groups are listed.
type Key = (String, String, String, String, String, u8, i64);

/// The answer to a query, from all usages.
fn sums(counted: &[Counted], query: &SpendQuery) -> Vec<SpendRow> {
    let by = |group| query.group_by.contains(&group);
    let timed = query.since_hour.is_some()
        || query.until_hour.is_some()
        || by(SpendGroup::Hour)
        || by(SpendGroup::Day);
    let session = query.session.as_ref().map(base_of);
    let fits =
        |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|it| it == found);
    let mut groups: BTreeMap<Key, (SpendRow, i128)> = BTreeMap::new();
    for it in counted {
        let thread = if timed { &it.thread_then } else { &it.thread };
        let accepted = query
            .thread
            .as_deref()
            .is_none_or(|wanted| wanted.trim() == thread)
            && fits(&session, &it.session)
            && fits(&query.agent, &it.agent)
            && fits(&query.provider, &it.usage.provider)
            && fits(&query.model, &it.usage.model)
            && query.since_hour.is_none_or(|since| it.hour >= since)
            && query.until_hour.is_none_or(|until| it.hour < until);
        if !accepted {
            continue;
        }
        let text = |group, value: &str| by(group).then(|| value.to_owned());
        let source = it.usage.usage.cost_source;
        let hour = match (by(SpendGroup::Hour), by(SpendGroup::Day)) {
            (true, _) => Some(it.hour),
            (false, true) => Some(it.hour.div_euclid(24) * 24),
            (false, false) => None,
        };
        let row = SpendRow {
            thread: text(SpendGroup::Thread, thread),
            session: text(SpendGroup::Session, &it.session),
            agent: text(SpendGroup::Agent, &it.agent),
            provider: text(SpendGroup::Provider, &it.usage.provider),
            model: text(SpendGroup::Model, &it.usage.model),
            source: by(SpendGroup::Source).then_some(source),
            hour,
            ..SpendRow::default()
        };
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        let key = (
            name(&row.thread),
            name(&row.session),
            name(&row.agent),
            name(&row.provider),
            name(&row.model),
            row.source.map_or(0, rank),
            row.hour.unwrap_or_default(),
        );
        let (sum, cost) = groups.entry(key).or_insert((row, 0));
        let totals = &it.usage.usage;
        sum.turns += 1;
        sum.input_tokens = sum.input_tokens.saturating_add(totals.input);
        sum.output_tokens = sum.output_tokens.saturating_add(totals.output);
        sum.cached_input_tokens = sum.cached_input_tokens.saturating_add(totals.cached_input);
        *cost += recount::units(totals.cost_usd);
    }
    groups
        .into_values()
        .map(|(row, cost)| SpendRow {
            cost_usd: recount::usd(cost),
            ..row
        })
        .collect()
}

/// No source comes first.
fn rank(source: Option<UsageCostSource>) -> u8 {
    match source {
        None => 0,
        Some(UsageCostSource::Charged) => 1,
        Some(UsageCostSource::Estimated) => 2,
        Some(UsageCostSource::Unknown) => 3,
    }
}
