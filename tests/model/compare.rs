//! Every read of the two stores, compared.

use std::collections::BTreeSet;

use transcript_redb::{
    DisplaySessionTranscript, SessionRef, SessionTranscript, TranscriptLocator, TranscriptMeta,
};

use super::diff::{Checked, holds, same};
use super::op::Meta;
use super::pair::{Pair, Reads, Recorded, read};
use super::recount::{self, Part};
use super::stems::{base_of, base_of_stem, generation_of, is_root, stem_of};
use super::world::{AGENTS, THREADS};

impl Pair {
    /// Compares what a step touched, and some of the rest or all of it.
    pub fn compare(&mut self, touched: Option<&str>) -> Checked {
        if let Some(base) = touched {
            self.compare_touched(base)?;
        }
        if self.reads == Reads::AtEnd {
            return Ok(());
        }
        if self.rng.percent(50) {
            let session = self.rng.below(self.world.sessions.len());
            let distance = *self.rng.pick(&[i64::MIN, -1, 0, 1]);
            self.compare_session(session, distance)?;
        }
        if self.rng.percent(40) {
            let stem = self.any_stem();
            self.compare_transcript(&stem)?;
        }
        if self.rng.percent(50) {
            return Ok(());
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
        for stem in self.all_stems() {
            self.compare_transcript(&stem)?;
        }
        for session in 0..self.world.sessions.len() {
            for distance in [i64::MIN, -1, 0, 1] {
                self.compare_session(session, distance)?;
            }
        }
        for thread in THREADS {
            self.compare_lookups(thread, None)?;
            for agent in AGENTS {
                self.compare_lookups(thread, Some(agent))?;
            }
            self.compare_spend(thread)?;
        }
        AGENTS
            .iter()
            .try_for_each(|agent| self.compare_latest(agent))
    }

    /// The stems of all sessions and of all that was ever written.
    pub fn all_stems(&self) -> BTreeSet<String> {
        let mut stems: BTreeSet<String> = self.world.stems.iter().cloned().collect();
        stems.extend(self.world.sessions.iter().map(SessionRef::session_id));
        let bases: BTreeSet<String> = stems.iter().map(|it| base_of_stem(it).to_owned()).collect();
        for base in bases {
            stems.extend(self.generations(&base));
        }
        stems
    }

    fn any_stem(&mut self) -> String {
        if !self.created.is_empty() && self.rng.percent(70) {
            self.rng.pick(&self.created).clone()
        } else {
            self.rng.pick(&self.world.stems).clone()
        }
    }

    /// Compares the end of a session's chain, and remembers what a step has created and recorded there.
    fn compare_touched(&mut self, base: &str) -> Checked {
        let known = self.chain_of(base);
        let back = if self.rng.percent(20) { 2 } else { 1 };
        let mut generation = known.saturating_sub(back);
        loop {
            let stem = stem_of(base, generation);
            let Some(display) = self.compare_transcript(&stem)? else {
                return Ok(());
            };
            if generation >= self.chain_of(base) {
                self.created.push(stem.clone());
            }
            self.metas.insert(stem, display.meta.clone());
            self.note_recorded(base, &display)?;
            generation += 1;
        }
    }

    /// How many generations of a session are written.
    pub fn chain_of(&self, base: &str) -> u32 {
        let written =
            (0..).take_while(|generation| self.metas.contains_key(&stem_of(base, *generation)));
        u32::try_from(written.count()).expect("a short chain")
    }

    /// The stems of the written generations of a session, and of the one behind them.
    fn generations(&self, base: &str) -> impl Iterator<Item = String> {
        let base = base.to_owned();
        (0..=self.chain_of(&base)).map(move |generation| stem_of(&base, generation))
    }

    /// Remembers under which agent and thread the usages that a step stored were recorded.
    fn note_recorded(&mut self, base: &str, display: &DisplaySessionTranscript) -> Checked {
        let mut new = recount::events(display, &mut BTreeSet::new());
        new.retain(|event| !self.recorded.contains_key(&event.uuid));
        if new.is_empty() {
            return Ok(());
        }
        let recorded = Recorded {
            agent: display.meta.agent_name.clone(),
            thread: self.thread_of(base)?.unwrap_or_default().to_owned(),
        };
        let new = new.into_iter().map(|event| (event.uuid, recorded.clone()));
        self.recorded.extend(new);
        Ok(())
    }

    /// The thread that lists a session.
    pub fn thread_of(&self, base: &str) -> Checked<Option<&'static str>> {
        for thread in THREADS
            .iter()
            .filter(|it| it.trim() == **it && !it.is_empty())
        {
            let listed = read(
                "thread_transcripts",
                self.redb.thread_transcripts(thread, None),
            )?;
            let mut all = listed
                .roots
                .iter()
                .chain(&listed.pre_identity)
                .chain(&listed.subagents);
            if all.any(|it| base_of_stem(&it.stem) == base) {
                return Ok(Some(thread));
            }
        }
        Ok(None)
    }

    /// The display of the redb store.
    pub fn display(&self, stem: &str) -> Checked<Option<DisplaySessionTranscript>> {
        let handle = read(
            "open_stem",
            self.redb.open_stem(stem, Meta::default().value()),
        )?;
        read("read_display", handle.read_display())
    }

    /// Compares the answers about a session when one of its generations is given: so far behind the head.
    pub fn compare_session(&self, index: usize, distance: i64) -> Checked {
        let session = &self.world.sessions[index];
        let written = self.chain_of(&base_of(session));
        let given = i64::from(written).saturating_add(distance).max(0);
        let given = u32::try_from(given).expect("a small number");
        let session = generation_of(session, given);
        let expected: Vec<_> = (0..written).map(|it| generation_of(&session, it)).collect();
        let exists = given < written;
        for locator in [&self.memory as &dyn TranscriptLocator, &self.redb] {
            let chain = read("session_chain", locator.session_chain(&session))?;
            same("session_chain", &expected, &chain)?;
            let found = read("session_exists", locator.session_exists(&session))?;
            same(&format!("whether {session:?} exists"), &exists, &found)?;
            let head = read("head_generation", locator.head_generation(&session))?;
            same(
                "head_generation",
                expected.last().unwrap_or(&session),
                &head,
            )?;
            let reader = locator.read_session_transcript(&session);
            let reader = read("read_session_transcript", reader)?;
            let stem = reader.as_ref().map(|reader| reader.stem().to_owned());
            same(
                "read_session_transcript",
                &exists.then(|| session.session_id()),
                &stem,
            )?;
        }
        let token = read("head", self.store.head(&session))?;
        let head = expected.last().map(|head| head.generation);
        same(
            "the head of a token",
            &head,
            &token.map(|token| token.generation),
        )
    }

    /// The newest root among everything that was ever created.
    fn newest_root(&self, accepts: impl Fn(&TranscriptMeta) -> bool) -> Option<String> {
        let mut roots = self.created.iter().rev().filter(|stem| is_root(stem));
        roots
            .find(|stem| self.metas.get(*stem).is_some_and(&accepts))
            .cloned()
    }

    fn compare_latest(&self, agent: &str) -> Checked {
        let expected = self.newest_root(|meta| {
            meta.agent_name == agent || meta.agent_id.as_deref() == Some(agent)
        });
        let mut read_back = Vec::new();
        for locator in [&self.memory as &dyn TranscriptLocator, &self.redb] {
            let found = read("latest_for_agent", locator.latest_for_agent(agent))?;
            let stem = found.as_ref().map(|found| found.stem().to_owned());
            same(&format!("latest_for_agent {agent:?}"), &expected, &stem)?;
            if let Some(found) = found {
                read_back.push(read("read_session", found.read_session())?);
            }
        }
        holds(read_back.iter().all(|it| *it == read_back[0]), || {
            format!("latest_for_agent {agent:?} reads differently")
        })
    }

    fn compare_lookups(&self, thread: &str, agent: Option<&str>) -> Checked {
        let what = |call: &str| format!("{call} of {thread:?} and {agent:?}");
        let expected = self.newest_root(|meta| {
            let named = meta.thread_id.as_deref().map(str::trim);
            let of_agent = agent.is_none() || meta.agent_id.as_deref() == agent;
            !thread.trim().is_empty() && named == Some(thread.trim()) && of_agent
        });
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
            read(
                "thread_transcripts",
                locator.thread_transcripts(thread, agent),
            )
        };
        let (expected, found) = (listed(&self.memory)?, listed(&self.redb)?);
        same(&what("the roots"), &expected.roots, &found.roots)?;
        same(
            &what("the roots before identity"),
            &expected.pre_identity,
            &found.pre_identity,
        )?;
        same(
            &what("the sub-agents"),
            &expected.subagents,
            &found.subagents,
        )
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
        let listed = read(
            "thread_transcripts",
            self.redb.thread_transcripts(thread, None),
        )?;
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
                holds(!bases.contains(&base), || {
                    format!("{base} is listed in two places")
                })?;
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

    /// The live context and what stands around it, of a written transcript of the reference.
    pub fn memory_session(&self, stem: &str) -> Checked<SessionTranscript> {
        let handle = read(
            "open_stem",
            self.memory.open_stem(stem, Meta::default().value()),
        )?;
        Ok(read("read_session", handle.read_session())?.expect("it is written"))
    }
}
