//! Lists of sessions and threads.

use std::collections::BTreeMap;

use redb::ReadableTable as _;

use super::Reader;
use super::threads::reference;
use crate::Result;
use crate::replay::record_time;
use crate::spend::SpendTally;
use crate::store::apply::{full_stem, thread_of};
use crate::store::database::storage_error;
use crate::store::head::Transcript;
use crate::store::{ListOrder, SessionQuery, SessionSummary, ThreadSummary};

/// All generations of a session, folded while the table is walked.
struct Folded {
    session: u64,
    generation: u32,
    created_at: i64,
    updated_at: i64,
    newest: Transcript,
    rows: u64,
    spend: SpendTally,
}

impl Reader<'_> {
    /// Sessions as a list shows them.
    pub(in crate::store) fn sessions(
        &mut self,
        query: &SessionQuery,
    ) -> Result<Vec<SessionSummary>> {
        let mut listed = self.folded(query.children, query.thread.as_deref())?;
        match query.order {
            ListOrder::Updated => {
                listed.sort_by_key(|it| std::cmp::Reverse((it.updated_at, it.session)));
            }
            ListOrder::Created => {
                listed.sort_by_key(|it| std::cmp::Reverse((it.created_at, it.session)));
            }
        }
        listed.truncate(query.limit.unwrap_or(usize::MAX));
        listed.iter().map(|folded| self.summary(folded)).collect()
    }

    fn folded(&mut self, children: bool, thread: Option<&str>) -> Result<Vec<Folded>> {
        let table = self.snapshot.transcripts()?;
        let mut sessions: BTreeMap<u64, Folded> = BTreeMap::new();
        for entry in table.iter().map_err(storage_error)? {
            let (_, bytes) = entry.map_err(storage_error)?;
            let newest = Transcript::decode(bytes.value())?;
            if newest.birth.subagent && !children {
                continue;
            }
            let (birth, head) = (newest.birth, &newest.head);
            match sessions.get_mut(&birth.session) {
                None => {
                    sessions.insert(
                        birth.session,
                        Folded {
                            session: birth.session,
                            generation: birth.generation,
                            created_at: birth.created_at,
                            updated_at: head.updated_at,
                            rows: head.rows_stored,
                            spend: head.spend.clone(),
                            newest,
                        },
                    );
                }
                Some(folded) => {
                    folded.rows += head.rows_stored;
                    folded.updated_at = folded.updated_at.max(head.updated_at);
                    folded.spend.follow(&head.spend);
                    // Transcripts are numbered by creation, so generations come in their order.
                    folded.generation = birth.generation;
                    folded.newest = newest;
                }
            }
        }
        let thread = thread.map(str::trim);
        Ok(sessions
            .into_values()
            .filter(|it| thread.is_none() || thread_of(&it.newest.head.meta) == thread)
            .collect())
    }

    fn summary(&mut self, folded: &Folded) -> Result<SessionSummary> {
        let info = self.stem_info(folded.session)?;
        let meta = &folded.newest.head.meta;
        Ok(SessionSummary {
            stem: full_stem(&info.stem, folded.generation),
            session: reference(&info, folded.generation),
            generation: folded.generation,
            subagent: folded.newest.birth.subagent,
            thread_id: thread_of(meta).map(str::to_owned),
            agent_name: meta.agent_name.clone(),
            title: folded.newest.head.title.clone(),
            created: record_time(folded.created_at),
            updated: record_time(folded.updated_at),
            messages: folded.rows,
            live_messages: folded.newest.head.context.rows,
            spend: folded.spend.to_spend(meta.model.as_deref()),
        })
    }

    /// Threads as a list shows them, the one that was written last first.
    pub(in crate::store) fn threads(&mut self) -> Result<Vec<ThreadSummary>> {
        let mut threads: BTreeMap<String, ThreadSummary> = BTreeMap::new();
        let mut updated: BTreeMap<String, i64> = BTreeMap::new();
        let (roots, children): (Vec<_>, Vec<_>) = self
            .folded(true, None)?
            .into_iter()
            .partition(|it| !it.newest.birth.subagent);
        let mut of_root: BTreeMap<u64, Option<String>> = BTreeMap::new();
        for folded in roots {
            let meta = &folded.newest.head.meta;
            let thread = thread_of(meta);
            of_root.insert(folded.session, thread.map(str::to_owned));
            let Some(thread) = thread else {
                continue;
            };
            let summary = threads
                .entry(thread.to_owned())
                .or_insert_with(|| ThreadSummary {
                    thread_id: thread.to_owned(),
                    title: folded.newest.head.title.clone(),
                    sessions: 0,
                    messages: 0,
                    subagents: 0,
                    subagent_messages: 0,
                    updated: String::new(),
                    spend: crate::ThreadSpend::default(),
                });
            summary.sessions += 1;
            summary.messages += folded.rows;
            let newest = updated.entry(thread.to_owned()).or_insert(i64::MIN);
            *newest = (*newest).max(folded.updated_at);
        }
        for folded in children {
            let root = self.top_of(folded.session)?;
            let thread = match of_root.get(&root) {
                Some(thread) => thread.as_deref(),
                // No root is written: it is of the thread that it names itself.
                None => thread_of(&folded.newest.head.meta),
            };
            if let Some(summary) = thread.and_then(|thread| threads.get_mut(thread)) {
                summary.subagents += 1;
                summary.subagent_messages += folded.rows;
            }
        }
        let mut listed = Vec::with_capacity(threads.len());
        for (thread, mut summary) in threads {
            summary.spend = self.thread_spend(&thread)?;
            let at = updated.get(&thread).copied().unwrap_or_default();
            summary.updated = record_time(at);
            listed.push((at, summary));
        }
        listed.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        Ok(listed.into_iter().map(|(_, summary)| summary).collect())
    }
}
