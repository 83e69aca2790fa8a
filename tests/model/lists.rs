//! The lists of sessions and threads, against what is known of each.

use std::collections::{BTreeMap, BTreeSet};

use transcript_redb::{DisplayRecord, ListOrder, SessionQuery, SessionSummary, TranscriptMeta};

use super::diff::{Checked, holds, same};
use super::pair::{Pair, read};
use super::recount::{self, Part};
use super::stems::{base_of_stem, is_root, stem_of};
use super::world::THREADS;

impl Pair {
    /// The list of sessions against what is known of each.
    pub fn check_sessions(&mut self) -> Checked {
        let bases = self.written_bases();
        for children in [false, true] {
            let query = SessionQuery {
                children,
                order: ListOrder::Created,
                ..SessionQuery::default()
            };
            let listed = read("sessions", self.store.sessions_matching(&query))?;
            let mut found: Vec<_> = listed.iter().map(|it| base_of_stem(&it.stem)).collect();
            let expected = bases.iter().rev().filter(|it| children || is_root(it));
            let mut expected: Vec<_> = expected.map(String::as_str).collect();
            if self.clock.stepped_back() {
                // The order is by the times, whatever came first.
                found.sort_unstable();
                expected.sort_unstable();
            }
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

    fn check_summary(&self, summary: &SessionSummary) -> Checked {
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
        if !self.clock.stepped_back() {
            let updated = Some(&*summary.updated);
            same(&what("the last write"), &self.last_write(base), &updated)?;
        }
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

    pub fn check_threads(&mut self) -> Checked {
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
        let mut found: BTreeMap<_, _> = listed
            .iter()
            .map(|it| (it.thread_id.clone(), (it.sessions, it.updated.clone())))
            .collect();
        if self.clock.stepped_back() {
            let updated = expected.values_mut().chain(found.values_mut());
            updated.for_each(|(_, updated)| updated.clear());
        }
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

    fn head_meta(&self, base: &str) -> &TranscriptMeta {
        let head = self.chain_of(base) - 1;
        self.metas.get(&stem_of(base, head)).expect("it is written")
    }
}

fn time(text: &str) -> jiff::Timestamp {
    text.parse().expect("a time")
}
