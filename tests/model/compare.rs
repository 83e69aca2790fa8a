//! Every read of the two stores, compared.

use std::collections::BTreeSet;
use std::fmt::Debug;

use transcript_redb::{
    CompactionMarker, DisplayMessage, DisplayRecord, DisplaySessionTranscript, SessionRef,
    SessionTranscript, TranscriptLocator, TranscriptMessage, TranscriptMeta, TranscriptRead,
    UsageRecord,
};
use uuid::Uuid;

use super::diff::{Checked, differ, holds, same};
use super::op::Meta;
use super::pair::{Pair, Reads, Recorded, Touched, base_of, base_of_stem, generation_of, read};
use super::recount::{self, Part};
use super::world::{AGENTS, THREADS};

impl Pair {
    /// Compares what a step touched, and some of the rest or all of it.
    pub fn compare(&mut self, touched: Option<&Touched>) -> Checked {
        if let Some(touched) = touched {
            self.note_created(&touched.base)?;
            for stem in self.generations(&touched.base)? {
                self.compare_transcript(&stem)?;
            }
            self.note_recorded(&touched.base)?;
        }
        if self.reads == Reads::All {
            return self.compare_all();
        }
        for _ in 0..2 {
            let session = self.rng.below(self.world.sessions.len());
            self.compare_session(session)?;
            let stem = self.any_stem();
            self.compare_transcript(&stem)?;
        }
        let thread = *self.rng.pick(&THREADS);
        let agent = self.rng.percent(50).then(|| *self.rng.pick(&AGENTS));
        self.compare_lookups(thread, agent)?;
        let agent = *self.rng.pick(&AGENTS);
        self.compare_latest(agent)?;
        if self.rng.percent(20) {
            self.compare_spend(thread)?;
        }
        Ok(())
    }

    /// Compares every transcript, every session and every look-up.
    pub fn compare_all(&mut self) -> Checked {
        for stem in self.all_stems()? {
            self.compare_transcript(&stem)?;
        }
        for session in 0..self.world.sessions.len() {
            self.compare_session(session)?;
        }
        for thread in THREADS {
            self.compare_lookups(thread, None)?;
            for agent in AGENTS {
                self.compare_lookups(thread, Some(agent))?;
            }
            self.compare_spend(thread)?;
        }
        AGENTS.iter().try_for_each(|agent| self.compare_latest(agent))
    }

    /// The stems of all sessions and of all that was ever written.
    pub fn all_stems(&self) -> Checked<BTreeSet<String>> {
        let mut stems: BTreeSet<String> = self.world.stems.iter().cloned().collect();
        stems.extend(self.world.sessions.iter().map(SessionRef::session_id));
        let bases: BTreeSet<String> = stems.iter().map(|it| base_of_stem(it).to_owned()).collect();
        for base in bases {
            stems.extend(self.generations(&base)?);
        }
        Ok(stems)
    }

    fn any_stem(&mut self) -> String {
        if !self.created.is_empty() && self.rng.percent(70) {
            self.rng.pick(&self.created).clone()
        } else {
            self.rng.pick(&self.world.stems).clone()
        }
    }

    /// The written generations of a session by its stem, and the one behind them.
    fn generations(&self, base: &str) -> Checked<Vec<String>> {
        let mut stems = vec![base.to_owned()];
        while self.is_written(&stems[stems.len() - 1])? {
            stems.push(format!("{base}.g{}", stems.len()));
        }
        Ok(stems)
    }

    fn is_written(&self, stem: &str) -> Checked<bool> {
        let handle = read("open_stem", self.memory.open_stem(stem, Meta::default().value()))?;
        Ok(read("read_session", handle.read_session())?.is_some())
    }

    fn note_created(&mut self, base: &str) -> Checked {
        let mut written = self.generations(base)?;
        written.pop();
        for stem in written {
            if !self.created.contains(&stem) {
                self.created.push(stem);
            }
        }
        Ok(())
    }

    /// Remembers under which agent and thread the usages that a step stored were recorded, and when all its records
    /// were written.
    fn note_recorded(&mut self, base: &str) -> Checked {
        let mut found = Vec::new();
        let mut counted = BTreeSet::new();
        for stem in self.generations(base)? {
            if let Some(display) = self.display(&stem)? {
                let events = recount::events(&display, &mut counted);
                let agent = &display.meta.agent_name;
                found.extend(events.iter().map(|event| (event.uuid, agent.clone())));
            }
        }
        found.retain(|(uuid, _)| !self.recorded.contains_key(uuid));
        if found.is_empty() {
            return Ok(());
        }
        let thread = self.thread_of(base)?.unwrap_or_default();
        for (uuid, agent) in found {
            let thread = thread.to_owned();
            self.recorded.insert(uuid, Recorded { agent, thread });
        }
        Ok(())
    }

    /// The thread that lists a session.
    pub fn thread_of(&self, base: &str) -> Checked<Option<&'static str>> {
        for thread in THREADS.iter().filter(|it| it.trim() == **it && !it.is_empty()) {
            let listed = read("thread_transcripts", self.redb.thread_transcripts(thread, None))?;
            let mut all = listed.roots.iter().chain(&listed.pre_identity).chain(&listed.subagents);
            if all.any(|it| base_of_stem(&it.stem) == base) {
                return Ok(Some(thread));
            }
        }
        Ok(None)
    }

    /// The display of the redb store.
    pub fn display(&self, stem: &str) -> Checked<Option<DisplaySessionTranscript>> {
        let handle = read("open_stem", self.redb.open_stem(stem, Meta::default().value()))?;
        read("read_display", handle.read_display())
    }

    pub fn compare_transcript(&mut self, stem: &str) -> Checked {
        let open = |locator: &dyn TranscriptLocator| {
            read("open_stem", locator.open_stem(stem, Meta::default().value()))
        };
        let (memory, redb) = (open(&self.memory)?, open(&self.redb)?);
        same("the stem", memory.stem(), redb.stem())?;
        let sessions = (
            read("read_session", memory.read_session())?,
            read("read_session", redb.read_session())?,
        );
        compare_sessions(stem, sessions.0.as_ref(), sessions.1.as_ref())?;
        let displays = (
            read("read_display", memory.read_display())?,
            read("read_display", redb.read_display())?,
        );
        match (&displays.0, &displays.1) {
            (None, None) => {}
            (Some(expected), Some(found)) => self.compare_displays(stem, expected, found)?,
            (expected, found) => {
                return Err(differ(
                    &format!("whether {stem} has a display"),
                    &format!("{:?}", expected.is_some()),
                    &format!("{:?}", found.is_some()),
                ));
            }
        }
        if self.reads == Reads::All || self.rng.percent(25) {
            self.compare_pages(stem, redb.as_ref(), displays.1.as_ref())?;
            self.compare_pages(stem, memory.as_ref(), displays.0.as_ref())?;
        }
        Ok(())
    }

    fn compare_displays(
        &mut self,
        stem: &str,
        expected: &DisplaySessionTranscript,
        found: &DisplaySessionTranscript,
    ) -> Checked {
        let what = |part: &str| format!("{part} in the display of {stem}");
        same(&what("the header"), &expected.meta, &found.meta)?;
        for (index, (expected, found)) in expected.records.iter().zip(&found.records).enumerate() {
            let what = format!("record {index} in the display of {stem}");
            match (expected, found) {
                (DisplayRecord::Message(expected), DisplayRecord::Message(found)) => {
                    self.compare_rows(&what, expected, found)?;
                }
                (DisplayRecord::Compaction(expected), DisplayRecord::Compaction(found)) => {
                    self.compare_markers(&what, expected, found)?;
                }
                _ => return Err(differ(&what, &debug(expected), &debug(found))),
            }
        }
        same(
            &what("the number of records"),
            &expected.records.len(),
            &found.records.len(),
        )?;
        for (expected, found) in expected.unattached.iter().zip(&found.unattached) {
            self.compare_usages(&what("a usage"), expected, found)?;
        }
        same(
            &what("the number of usages"),
            &expected.unattached.len(),
            &found.unattached.len(),
        )
    }

    fn compare_rows(
        &mut self,
        what: &str,
        expected: &DisplayMessage,
        found: &DisplayMessage,
    ) -> Checked {
        let (ts, uuid, revises) = (&expected.ts, expected.uuid, expected.revises);
        let mapped = DisplayMessage {
            ts: self.mapped_time(what, ts.as_deref(), found.ts.as_deref())?,
            uuid: self.mapped(what, uuid, found.uuid)?,
            revises: match (revises, found.revises) {
                (Some(expected), Some(found)) => Some(self.mapped(what, expected, found)?),
                (_, found) => found,
            },
            ..found.clone()
        };
        same(what, expected, &mapped)?;
        same_strictly(what, &expected.message, &found.message)
    }

    fn compare_markers(
        &mut self,
        what: &str,
        expected: &CompactionMarker,
        found: &CompactionMarker,
    ) -> Checked {
        for (expected, found) in expected.replacement.iter().zip(&found.replacement) {
            self.compare_rows(what, expected, found)?;
        }
        let mapped = CompactionMarker {
            uuid: self.mapped(what, expected.uuid, found.uuid)?,
            ts: self.mapped_time(what, expected.ts.as_deref(), found.ts.as_deref())?,
            replacement: Vec::new(),
            ..found.clone()
        };
        let alone = CompactionMarker {
            replacement: Vec::new(),
            ..expected.clone()
        };
        same(what, &alone, &mapped)?;
        same(
            &format!("the length of the replacement of {what}"),
            &expected.replacement.len(),
            &found.replacement.len(),
        )
    }

    fn compare_usages(&mut self, what: &str, expected: &UsageRecord, found: &UsageRecord) -> Checked {
        let mapped = UsageRecord {
            uuid: self.mapped(what, expected.uuid, found.uuid)?,
            ts: self.mapped_time(what, expected.ts.as_deref(), found.ts.as_deref())?,
            ..found.clone()
        };
        same(what, expected, &mapped)?;
        same(what, &debug(expected), &debug(&mapped))
    }

    /// The reference's name for a record of the redb store. What is one record in one store is one in the other.
    fn mapped(&mut self, what: &str, memory: Uuid, redb: Uuid) -> Checked<Uuid> {
        let there = *self.to_redb.entry(memory).or_insert(redb);
        let back = *self.to_memory.entry(redb).or_insert(memory);
        holds(there == redb && back == memory, || {
            format!("{what}: {memory} of the reference is {there} and not {redb}, which is {back}")
        })?;
        let now = self.clock.now();
        self.written_at.entry(redb).or_insert(now);
        Ok(memory)
    }

    /// Times of writing differ between the stores, since the reference has a clock of its own.
    fn mapped_time(
        &self,
        what: &str,
        memory: Option<&str>,
        redb: Option<&str>,
    ) -> Checked<Option<String>> {
        let (Some(memory), Some(redb)) = (memory, redb) else {
            return Ok(redb.map(str::to_owned));
        };
        if memory == redb || !self.clock.showed(redb) {
            return Ok(Some(redb.to_owned()));
        }
        holds(memory.parse::<jiff::Timestamp>().is_ok(), || {
            format!("{what}: {memory:?} is no time of writing, but {redb:?} is")
        })?;
        Ok(Some(memory.to_owned()))
    }

    /// Pages to the beginning; the pages are the display.
    fn compare_pages(
        &mut self,
        stem: &str,
        handle: &dyn TranscriptRead,
        display: Option<&DisplaySessionTranscript>,
    ) -> Checked {
        let Some(display) = display else {
            let page = read("read_display_before", handle.read_display_before(None, 3))?;
            return same("the page of an unwritten transcript", &None, &page);
        };
        let what = format!("the pages of {stem}");
        let mut pages = Vec::new();
        let mut before = None;
        loop {
            let limit = self.rng.within(1..12);
            let page = read("read_display_before", handle.read_display_before(before, limit))?;
            let Some(page) = page else {
                return Err(differ(&what, "a page", "none"));
            };
            same(&what, &display.meta, &page.meta)?;
            holds(page.records.len() <= limit, || format!("{what}: one is too long"))?;
            let numbers: Vec<u64> = page.records.iter().map(|(number, _)| *number).collect();
            holds(
                numbers.is_sorted_by(|a, b| a < b)
                    && before.is_none_or(|end| numbers.iter().all(|number| *number < end)),
                || format!("{what}: the sequences {numbers:?} before {before:?}"),
            )?;
            let first = numbers.first().copied();
            pages.push(page.records);
            if !page.more {
                break;
            }
            holds(first.is_some(), || format!("{what}: an empty page has more before it"))?;
            before = first;
        }
        let paged: Vec<DisplayRecord> = pages
            .into_iter()
            .rev()
            .flatten()
            .map(|(_, record)| record)
            .collect();
        same(&what, &display.records, &paged)
    }

    pub fn compare_session(&mut self, index: usize) -> Checked {
        let session = self.world.sessions[index].clone();
        let chain = |locator: &dyn TranscriptLocator, of: &SessionRef| {
            read("session_chain", locator.session_chain(of))
        };
        let expected = chain(&self.memory, &session)?;
        let behind = u32::try_from(expected.len()).expect("a short chain");
        for generation in [0, behind.saturating_sub(1), behind, behind + 1] {
            let session = generation_of(&session, generation);
            same("session_chain", &expected, &chain(&self.redb, &session)?)?;
            let exists = generation < behind;
            for locator in [&self.memory as &dyn TranscriptLocator, &self.redb] {
                let found = read("session_exists", locator.session_exists(&session))?;
                same(&format!("whether {session:?} exists"), &exists, &found)?;
                let head = read("head_generation", locator.head_generation(&session))?;
                let expected = expected.last().unwrap_or(&session);
                same("head_generation", expected, &head)?;
                let reader = locator.read_session_transcript(&session);
                let reader = read("read_session_transcript", reader)?;
                let stem = reader.as_ref().map(|reader| reader.stem().to_owned());
                let expected = exists.then(|| session.session_id());
                same("read_session_transcript", &expected, &stem)?;
            }
        }
        let token = read("head", self.store.head(&session))?;
        let head = expected.last().map(|head| head.generation);
        same("the head of a token", &head, &token.map(|token| token.generation))
    }

    /// Looks the newest root up by a walk over everything that was ever created.
    fn newest_root(&self, accepts: impl Fn(&TranscriptMeta) -> bool) -> Checked<Option<String>> {
        for stem in self.created.iter().rev().filter(|stem| is_root(stem)) {
            let handle = read("open_stem", self.memory.open_stem(stem, Meta::default().value()))?;
            let session = read("read_session", handle.read_session())?.expect("it is written");
            if accepts(&session.meta) {
                return Ok(Some(stem.clone()));
            }
        }
        Ok(None)
    }

    fn compare_latest(&self, agent: &str) -> Checked {
        let expected = self.newest_root(|meta| {
            meta.agent_name == agent || meta.agent_id.as_deref() == Some(agent)
        })?;
        for locator in [&self.memory as &dyn TranscriptLocator, &self.redb] {
            let found = read("latest_for_agent", locator.latest_for_agent(agent))?;
            let found = found.map(|found| found.stem().to_owned());
            same(&format!("latest_for_agent {agent:?}"), &expected, &found)?;
        }
        Ok(())
    }

    fn compare_lookups(&self, thread: &str, agent: Option<&str>) -> Checked {
        let what = |call: &str| format!("{call} of {thread:?} and {agent:?}");
        let expected = self.newest_root(|meta| {
            let named = meta.thread_id.as_deref().map(str::trim);
            let of_agent = agent.is_none() || meta.agent_id.as_deref() == agent;
            !thread.trim().is_empty() && named == Some(thread.trim()) && of_agent
        })?;
        for locator in [&self.memory as &dyn TranscriptLocator, &self.redb] {
            let root = locator.root_for_thread_scoped(thread, agent);
            let root = read("root_for_thread_scoped", root)?;
            if agent.is_none() {
                let unscoped = read("root_for_thread", locator.root_for_thread(thread))?;
                let stems = [&root, &unscoped].map(|it| it.as_ref().map(|it| it.stem().to_owned()));
                same(&what("root_for_thread"), &stems[0], &stems[1])?;
            }
            let found = root.map(|root| root.stem().to_owned());
            same(&what("root_for_thread_scoped"), &expected, &found)?;
        }
        let listed = |locator: &dyn TranscriptLocator| {
            read("thread_transcripts", locator.thread_transcripts(thread, agent))
        };
        let (expected, found) = (listed(&self.memory)?, listed(&self.redb)?);
        same(&what("the roots"), &expected.roots, &found.roots)?;
        same(&what("the roots before identity"), &expected.pre_identity, &found.pre_identity)?;
        same(&what("the sub-agents"), &expected.subagents, &found.subagents)
    }

    fn compare_spend(&self, thread: &str) -> Checked {
        let what = format!("thread_spend of {thread:?}");
        let memory = read("thread_spend", self.memory.thread_spend(thread))?;
        let redb = read("thread_spend", self.redb.thread_spend(thread))?;
        same(&what, &memory, &redb)?;
        let recounted = self.recount_thread(thread)?;
        same(&format!("{what} against a recount"), &recounted, &redb)
    }

    /// The spend of a thread by a walk over all displays of the redb store.
    pub fn recount_thread(&self, thread: &str) -> Checked<transcript_redb::ThreadSpend> {
        let listed = read("thread_transcripts", self.redb.thread_transcripts(thread, None))?;
        let mut counted = BTreeSet::new();
        let mut first_stored = |stem: &str| -> Checked<Vec<recount::Event>> {
            let display = self.display(stem)?.expect("it is written");
            Ok(recount::events(&display, &mut counted))
        };
        let mut roots: Vec<_> = listed.roots.iter().chain(&listed.pre_identity).collect();
        roots.sort_by_key(|root| self.created.iter().position(|stem| *stem == root.stem));
        let mut root_parts = Vec::new();
        for root in roots {
            root_parts.push(Part {
                meta: &root.meta,
                events: first_stored(&root.stem)?,
            });
        }
        let mut subagents: Vec<(String, Vec<Part<'_>>)> = Vec::new();
        let mut bases = Vec::new();
        for child in &listed.subagents {
            let part = Part {
                meta: &child.meta,
                events: first_stored(&child.stem)?,
            };
            let base = base_of_stem(&child.stem);
            // Generations are listed together, oldest first: the last one is the head.
            if bases.last() == Some(&base) {
                let (archetype, parts) = subagents.last_mut().expect("it has one");
                archetype.clone_from(&child.meta.agent_name);
                parts.push(part);
            } else {
                holds(!bases.contains(&base), || format!("{base} is listed in two places"))?;
                bases.push(base);
                subagents.push((child.meta.agent_name.clone(), vec![part]));
            }
        }
        Ok(recount::thread(&root_parts, subagents))
    }

    /// The sessions that are written, by the stem of their generation 0, oldest first.
    pub fn written_bases(&self) -> Vec<String> {
        let mut bases = Vec::new();
        for stem in &self.created {
            let base = base_of_stem(stem).to_owned();
            if !bases.contains(&base) {
                bases.push(base);
            }
        }
        bases
    }

    /// The references of the world to a written session.
    pub fn references(&self) -> Vec<SessionRef> {
        let written = self.written_bases();
        let sessions = self.world.sessions.iter();
        sessions
            .filter(|session| written.contains(&base_of(session)))
            .cloned()
            .collect()
    }
}

pub fn is_root(stem: &str) -> bool {
    !stem
        .split_once("__")
        .is_some_and(|(before, after)| !before.is_empty() && !after.is_empty())
}

fn debug(value: &impl Debug) -> String {
    format!("{value:?}")
}

fn compare_sessions(
    stem: &str,
    expected: Option<&SessionTranscript>,
    found: Option<&SessionTranscript>,
) -> Checked {
    let what = format!("the live context of {stem}");
    same(&what, &expected, &found)?;
    if let (Some(expected), Some(found)) = (expected, found) {
        for (expected, found) in expected.messages.iter().zip(&found.messages) {
            same_strictly(&what, expected, found)?;
            holds(found.preserve_request_id, || {
                format!("{what}: a row that does not preserve its request id")
            })?;
        }
        same(&what, &debug(&expected.tools), &debug(&found.tools))?;
    }
    Ok(())
}

/// Equal down to the legacy text and the sign of a zero, which equality passes over.
fn same_strictly(what: &str, expected: &TranscriptMessage, found: &TranscriptMessage) -> Checked {
    let json = |row: &TranscriptMessage| serde_json::to_string(row).expect("a row");
    let (expected, found) = (json(expected), json(found));
    if expected == found {
        return Ok(());
    }
    Err(differ(what, &expected, &found))
}
