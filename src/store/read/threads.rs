//! Threads: which sessions belong to one, who descends from whom, and what it all cost.

use std::collections::HashSet;
use std::sync::Arc;

use redb::ReadableTable as _;

use super::Reader;
use crate::session::{chain_digest, parent_part};
use crate::spend::{RootPart, SubagentPart, fold_thread};
use crate::store::apply::{full_stem, thread_of};
use crate::store::database::{storage_error, table_error};
use crate::store::head::{StemInfo, Transcript};
use crate::store::tables;
use crate::{Result, SessionRef, ThreadSpend, ThreadTranscript, ThreadTranscripts};

/// A session with all its written generations, oldest first.
pub(in crate::store) struct Chain {
    pub(in crate::store) session: u64,
    pub(in crate::store) info: StemInfo,
    pub(in crate::store) generations: Vec<(u32, u64, Arc<Transcript>)>,
}

impl Chain {
    /// Whether it was ever written through a reference, or says itself which session it is. An import may know the
    /// reference of a root that was written before there were any: that alone makes it no session.
    fn is_session(&self) -> bool {
        self.generations
            .iter()
            .any(|(_, _, it)| it.head.via_session || it.head.meta.session_id.is_some())
    }

    pub(in crate::store) fn head(&self) -> Option<&Transcript> {
        self.generations
            .last()
            .map(|(_, _, transcript)| transcript.as_ref())
    }

    /// Its place among all sessions, by their first writes.
    pub(in crate::store) fn created(&self) -> u64 {
        self.generations.first().map_or(0, |(_, id, _)| *id)
    }

    /// The reference of a generation, if the session was ever written through one.
    pub(in crate::store) fn reference(&self, generation: u32) -> Option<SessionRef> {
        reference(&self.info, generation)
    }
}

/// The reference of a generation, if the session was ever written through one.
pub(in crate::store) fn reference(info: &StemInfo, generation: u32) -> Option<SessionRef> {
    let parts = info.session.as_ref()?;
    Some(SessionRef::from_parts(
        parts.key.clone(),
        parts.agent.clone(),
        generation,
        parts.ancestors.clone(),
    ))
}

/// The sessions of a thread.
#[derive(Default)]
pub(in crate::store) struct Thread {
    pub(in crate::store) roots: Vec<Chain>,
    pub(in crate::store) subagents: Vec<Chain>,
}

impl Reader<'_> {
    /// The newest written root transcript of a thread, and of an agent if one is given.
    pub(in crate::store) fn root_of_thread(
        &mut self,
        thread: &str,
        agent: Option<&str>,
    ) -> Result<Option<u64>> {
        let Some(thread) = self.name_id(thread.trim())? else {
            return Ok(None);
        };
        let agent = match agent {
            None => 0,
            // An empty agent id has no name id of its own.
            Some("") => return self.root_with_empty_agent(thread),
            Some(agent) => match self.name_id(agent)? {
                Some(agent) => agent,
                None => return Ok(None),
            },
        };
        let table = self.snapshot.roots_by_thread()?;
        let mut range = table
            .range((thread, agent, 0)..=(thread, agent, u64::MAX))
            .map_err(storage_error)?;
        match range.next_back() {
            None => Ok(None),
            Some(entry) => Ok(Some(entry.map_err(storage_error)?.0.value().2)),
        }
    }

    fn root_with_empty_agent(&mut self, thread: u64) -> Result<Option<u64>> {
        for id in self.roots_by_thread(thread)?.into_iter().rev() {
            if self.transcript(id)?.head.meta.agent_id.as_deref() == Some("") {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    fn roots_by_thread(&self, thread: u64) -> Result<Vec<u64>> {
        let table = self.snapshot.roots_by_thread()?;
        table
            .range((thread, 0, 0)..=(thread, 0, u64::MAX))
            .map_err(storage_error)?
            .map(|entry| Ok(entry.map_err(storage_error)?.0.value().2))
            .collect()
    }

    /// The newest written root transcript whose agent name or agent id is `agent`.
    pub(in crate::store) fn latest_of_agent(&mut self, agent: &str) -> Result<Option<u64>> {
        if agent.is_empty() {
            return self.latest_with_empty_agent();
        }
        let Some(agent) = self.name_id(agent)? else {
            return Ok(None);
        };
        let table = self
            .snapshot
            .transaction
            .open_table(tables::ROOTS_BY_AGENT)
            .map_err(table_error)?;
        let mut range = table
            .range((agent, 0)..=(agent, u64::MAX))
            .map_err(storage_error)?;
        match range.next_back() {
            None => Ok(None),
            Some(entry) => Ok(Some(entry.map_err(storage_error)?.0.value().1)),
        }
    }

    /// The empty name stands in no index: a scan from the newest finds it.
    fn latest_with_empty_agent(&mut self) -> Result<Option<u64>> {
        let table = self.snapshot.transcripts()?;
        for entry in table.iter().map_err(storage_error)?.rev() {
            let (id, bytes) = entry.map_err(storage_error)?;
            let transcript = Transcript::decode(bytes.value())?;
            let meta = &transcript.head.meta;
            let empty = meta.agent_name.is_empty() || meta.agent_id.as_deref() == Some("");
            if empty && !transcript.birth.subagent {
                return Ok(Some(id.value()));
            }
        }
        Ok(None)
    }

    /// A session with all its generations.
    pub(in crate::store) fn session_chain(&mut self, session: u64) -> Result<Chain> {
        let mut generations = Vec::new();
        for (generation, id) in self.chain(session)? {
            generations.push((generation, id, self.transcript(id)?));
        }
        Ok(Chain {
            session,
            info: self.stem_info(session)?,
            generations,
        })
    }

    /// The sessions of a thread, oldest first.
    pub(in crate::store) fn thread(&mut self, thread: &str, agent: Option<&str>) -> Result<Thread> {
        let thread = thread.trim();
        let mut found = Thread::default();
        let Some(id) = self.name_id(thread)? else {
            return Ok(found);
        };
        found.roots = self.roots(id, |head| accepts(head, thread, agent))?;
        let roots: Vec<u64> = found.roots.iter().map(|root| root.session).collect();
        for session in self.descendants(&roots)? {
            let chain = self.session_chain(session)?;
            if !chain.generations.is_empty() {
                found.subagents.push(chain);
            }
        }
        if agent.is_none() {
            for session in self.orphans(id, thread)? {
                found.subagents.push(self.session_chain(session)?);
            }
        }
        found.subagents.sort_by_key(Chain::created);
        Ok(found)
    }

    /// The root sessions that the index has under a thread and whose heads are accepted, oldest first.
    fn roots(&mut self, thread: u64, accepts: impl Fn(&Transcript) -> bool) -> Result<Vec<Chain>> {
        let mut roots = Vec::new();
        let mut seen = HashSet::new();
        for transcript in self.roots_by_thread(thread)? {
            let session = self.transcript(transcript)?.birth.session;
            if !seen.insert(session) {
                continue;
            }
            let chain = self.session_chain(session)?;
            if chain.head().is_some_and(&accepts) {
                roots.push(chain);
            }
        }
        roots.sort_by_key(Chain::created);
        Ok(roots)
    }

    /// The roots of a thread that were written before sessions had identities, of exactly this agent, oldest first.
    pub(in crate::store) fn pre_identity_roots(
        &mut self,
        thread: &str,
        agent: Option<&str>,
    ) -> Result<Vec<Chain>> {
        let thread = thread.trim();
        let Some(id) = self.name_id(thread)? else {
            return Ok(Vec::new());
        };
        let mut roots = self.roots(id, |head| {
            thread_of(&head.head.meta) == Some(thread)
                && head.head.meta.agent_id.as_deref() == agent
        })?;
        roots.retain(|chain| !chain.is_session());
        Ok(roots)
    }

    /// The sessions below `roots` at any depth, written or not.
    pub(super) fn descendants(&self, roots: &[u64]) -> Result<Vec<u64>> {
        let table = self.snapshot.children()?;
        let mut seen: HashSet<u64> = roots.iter().copied().collect();
        let mut open = roots.to_vec();
        let mut found = Vec::new();
        while let Some(parent) = open.pop() {
            for entry in table
                .range((parent, 0)..=(parent, u64::MAX))
                .map_err(storage_error)?
            {
                let child = entry.map_err(storage_error)?.0.value().1;
                if seen.insert(child) {
                    open.push(child);
                    found.push(child);
                }
            }
        }
        Ok(found)
    }

    /// The written sub-agent sessions whose own header names the thread and that have no written root above them.
    fn orphans(&mut self, thread_id: u64, thread: &str) -> Result<Vec<u64>> {
        let table = self.snapshot.children_by_thread()?;
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for entry in table
            .range((thread_id, 0)..=(thread_id, u64::MAX))
            .map_err(storage_error)?
        {
            let transcript = entry.map_err(storage_error)?.0.value().1;
            let session = self.transcript(transcript)?.birth.session;
            if !seen.insert(session) {
                continue;
            }
            let Some((_, head)) = self.newest(session)? else {
                continue;
            };
            let head = self.transcript(head)?;
            if thread_of(&head.head.meta) == Some(thread) && !self.has_written_root(session)? {
                found.push(session);
            }
        }
        Ok(found)
    }

    fn has_written_root(&mut self, session: u64) -> Result<bool> {
        let top = self.top_of(session)?;
        Ok(top != session && self.newest(top)?.is_some())
    }

    /// The session that stands above all that delegated to this one, written or not; itself if there is none.
    pub(super) fn top_of(&self, session: u64) -> Result<u64> {
        let mut passed = HashSet::from([session]);
        let mut top = session;
        while let Some(parent) = self.stem_info(top)?.parent {
            // A forged digest can make a session its own ancestor.
            if !passed.insert(parent) {
                return Ok(session);
            }
            top = parent;
        }
        Ok(top)
    }

    /// The stem of the transcript that a session was delegated by.
    fn parent_stem(&self, info: &StemInfo) -> Result<Option<String>> {
        if let Some(parent) = info
            .session
            .as_ref()
            .and_then(|parts| parts.ancestors.last())
        {
            return Ok(Some(parent.clone()));
        }
        let Some(part) = parent_part(&info.stem) else {
            return Ok(None);
        };
        if let Some(digest) = chain_digest(part) {
            let digests = self
                .snapshot
                .transaction
                .open_table(tables::STEM_DIGESTS)
                .map_err(table_error)?;
            if let Some(found) = digests.get(digest).map_err(storage_error)? {
                let (session, generation) = found.value();
                let table = self.snapshot.stem_info()?;
                if let Some(bytes) = table.get(session).map_err(storage_error)? {
                    let parent: StemInfo = super::binary::decode(bytes.value(), "a stem")?;
                    return Ok(Some(full_stem(&parent.stem, generation)));
                }
            }
        }
        Ok(Some(part.to_owned()))
    }

    /// The transcripts of a thread.
    pub(in crate::store) fn thread_transcripts(
        &mut self,
        thread: &str,
        agent: Option<&str>,
    ) -> Result<ThreadTranscripts> {
        let found = self.thread(thread, agent)?;
        let mut listed = ThreadTranscripts::default();
        for chain in &found.roots {
            let list = if chain.is_session() {
                &mut listed.roots
            } else {
                &mut listed.pre_identity
            };
            list.extend(self.listed(chain)?);
        }
        for chain in &found.subagents {
            let mut chain = self.listed(chain)?;
            listed.subagents.append(&mut chain);
        }
        Ok(listed)
    }

    fn listed(&self, chain: &Chain) -> Result<Vec<ThreadTranscript>> {
        let parent = self.parent_stem(&chain.info)?;
        Ok(chain
            .generations
            .iter()
            .map(|(generation, _, transcript)| ThreadTranscript {
                stem: full_stem(&chain.info.stem, *generation),
                session: chain.reference(*generation),
                generation: *generation,
                meta: transcript.head.meta.as_ref().clone(),
                parent: parent.clone(),
            })
            .collect())
    }

    /// What a thread cost: the totals in the heads of its transcripts.
    pub(in crate::store) fn thread_spend(&mut self, thread: &str) -> Result<ThreadSpend> {
        let found = self.thread(thread, None)?;
        let mut roots: Vec<_> = found
            .roots
            .iter()
            .flat_map(|chain| &chain.generations)
            .collect();
        roots.sort_by_key(|(_, id, _)| *id);
        let roots = roots.into_iter().map(|(_, _, transcript)| RootPart {
            meta: &transcript.head.meta,
            tally: transcript.head.spend.clone(),
        });
        let subagents = found.subagents.iter().flat_map(|chain| {
            let archetype = chain
                .head()
                .map_or("", |head| head.head.meta.agent_name.as_str());
            chain
                .generations
                .iter()
                .map(move |(_, _, transcript)| SubagentPart {
                    archetype,
                    run: chain.session,
                    model: transcript.head.meta.model.as_deref(),
                    tally: transcript.head.spend.clone(),
                })
        });
        Ok(fold_thread(roots, subagents))
    }
}

fn accepts(head: &Transcript, thread: &str, agent: Option<&str>) -> bool {
    let meta = &head.head.meta;
    thread_of(meta) == Some(thread)
        && agent.is_none_or(|agent| meta.agent_id.as_deref() == Some(agent))
}
