//! Who descends from whom, which thread a transcript belongs to, and what a thread is made of.

use std::collections::BTreeMap;

use super::state::{Id, State, Transcript};
use crate::replay;
use crate::session::{bounded, chain_digest, is_subagent_stem, parent_part, split_generation};
use crate::spend::{Counted, RootPart, SubagentPart, fold_thread};
use crate::{SessionRef, ThreadSpend, ThreadTranscript, ThreadTranscripts, TranscriptMeta};

/// The written generations of one session, oldest first.
type Generations<'a> = Vec<(&'a Id, &'a Transcript)>;

impl State {
    /// Records the stems that a write mentions: its own and those of its ancestors.
    pub(super) fn mention(&mut self, id: &Id, session: Option<&SessionRef>) {
        self.mentioned.insert(id.stem());
        let mut child = id.session.clone();
        for ancestor in session.iter().flat_map(|session| session.ancestors()).rev() {
            self.mentioned.insert(ancestor.clone());
            let parent = split_generation(ancestor).0.to_owned();
            self.parents
                .entry(child)
                .or_insert_with(|| ancestor.clone());
            child = parent;
        }
        let mut part = parent_part(&child);
        while let Some(parent) = part {
            self.mentioned.insert(parent.to_owned());
            part = parent_part(split_generation(parent).0);
        }
        if let Some(session) = session {
            self.references
                .entry(id.session.clone())
                .or_insert_with(|| session.first_generation());
        }
    }

    /// The newest written root whose header is accepted.
    pub(super) fn newest_root(
        &self,
        accepts: impl Fn(&TranscriptMeta) -> bool,
    ) -> Option<(Id, TranscriptMeta)> {
        let roots = self
            .transcripts
            .iter()
            .filter(|(id, _)| !is_subagent_stem(&id.session));
        let accepted = roots.filter(|(_, transcript)| transcript.meta().is_some_and(&accepts));
        let (id, transcript) = accepted.max_by_key(|(_, transcript)| transcript.created)?;
        Some((id.clone(), transcript.meta()?.clone()))
    }

    pub(super) fn newest_root_of_thread(
        &self,
        thread_id: &str,
        agent_id: Option<&str>,
    ) -> Option<(Id, TranscriptMeta)> {
        self.newest_root(|meta| names_thread(meta, thread_id) && is_of_agent(meta, agent_id))
    }

    pub(super) fn thread_transcripts(
        &self,
        thread_id: &str,
        agent_id: Option<&str>,
    ) -> ThreadTranscripts {
        let mut listed = ThreadTranscripts::default();
        for generations in self.sessions_by_age() {
            let Some((id, meta)) = head_of(&generations) else {
                continue;
            };
            let list = if is_subagent_stem(&id.session) {
                let accepted = match self.written_root_above(&id.session) {
                    Some(root) => names_thread(root, thread_id) && is_of_agent(root, agent_id),
                    None => agent_id.is_none() && names_thread(meta, thread_id),
                };
                accepted.then_some(&mut listed.subagents)
            } else if names_thread(meta, thread_id) && is_of_agent(meta, agent_id) {
                let is_session = self.references.contains_key(&id.session)
                    || generations.iter().any(|(_, it)| has_session_id(it.meta()));
                Some(if is_session {
                    &mut listed.roots
                } else {
                    &mut listed.pre_identity
                })
            } else {
                None
            };
            if let Some(list) = list {
                list.extend(
                    generations
                        .iter()
                        .filter_map(|(id, it)| self.listed(id, it)),
                );
            }
        }
        listed
    }

    pub(super) fn thread_spend(&self, thread_id: &str) -> ThreadSpend {
        let listed = self.thread_transcripts(thread_id, None);
        let mut counted = Counted::default();
        let mut tally = |transcript: &ThreadTranscript| {
            let display = replay::display(self.log(&Id::of_stem(&transcript.stem)));
            display
                .map(|display| counted.tally(&display))
                .unwrap_or_default()
        };
        let mut roots: Vec<_> = listed.roots.iter().chain(&listed.pre_identity).collect();
        roots.sort_by_key(|root| {
            let transcript = self.transcripts.get(&Id::of_stem(&root.stem));
            transcript.map(|transcript| transcript.created)
        });
        let roots: Vec<_> = roots
            .into_iter()
            .map(|root| RootPart {
                meta: &root.meta,
                tally: tally(root),
            })
            .collect();
        let subagents = listed.subagents.iter().map(|child| SubagentPart {
            archetype: self.archetype(child.session_stem()),
            run: child.session_stem(),
            model: child.meta.model.as_deref(),
            tally: tally(child),
        });
        fold_thread(roots, subagents)
    }

    /// The agent name of the head of a session.
    fn archetype(&self, session: &str) -> &str {
        let head = self
            .head(session)
            .and_then(|id| self.transcripts.get(id)?.meta());
        head.map(|meta| meta.agent_name.as_str())
            .unwrap_or_default()
    }

    /// All sessions with a written generation, in the order of their first writes.
    fn sessions_by_age(&self) -> Vec<Generations<'_>> {
        let mut sessions: BTreeMap<&str, Generations<'_>> = BTreeMap::new();
        for (id, transcript) in &self.transcripts {
            sessions
                .entry(&id.session)
                .or_default()
                .push((id, transcript));
        }
        let mut sessions: Vec<_> = sessions.into_values().collect();
        sessions.sort_by_key(|generations| generations.first().map(|(_, first)| first.created));
        sessions
    }

    fn listed(&self, id: &Id, transcript: &Transcript) -> Option<ThreadTranscript> {
        let reference = self.references.get(&id.session);
        Some(ThreadTranscript {
            stem: id.stem(),
            session: reference.map(|first| first.with_generation(id.generation)),
            generation: id.generation,
            meta: transcript.meta()?.clone(),
            parent: self.parent(&id.session),
        })
    }

    /// The stem of a session's parent: as a reference said it, else as the session's own stem says it, where a digest
    /// stands for the stem that it is of, once that was mentioned.
    fn parent(&self, session: &str) -> Option<String> {
        if let Some(parent) = self.parents.get(session) {
            return Some(parent.clone());
        }
        let part = parent_part(session)?;
        let meant = chain_digest(part).and_then(|_| {
            self.mentioned
                .iter()
                .find(|stem| bounded(stem) == part && *stem != part)
        });
        Some(meant.map_or(part, String::as_str).to_owned())
    }

    /// The head's header of the root that a sub-agent's session descends from, if that root is written.
    fn written_root_above(&self, session: &str) -> Option<&TranscriptMeta> {
        // A forged digest can make a session its own ancestor.
        let mut passed = Vec::new();
        let mut session = session.to_owned();
        while let Some(parent) = self.parent(&session) {
            let parent = split_generation(&parent).0.to_owned();
            passed.push(session);
            if passed.contains(&parent) {
                return None;
            }
            session = parent;
        }
        self.transcripts.get(self.head(&session)?)?.meta()
    }
}

fn head_of<'a>(generations: &Generations<'a>) -> Option<(&'a Id, &'a TranscriptMeta)> {
    let (id, transcript) = generations.last()?;
    Some((id, transcript.meta()?))
}

/// Whether a header names a thread; both are compared trimmed, and blank is no thread.
fn names_thread(meta: &TranscriptMeta, thread_id: &str) -> bool {
    let thread_id = thread_id.trim();
    let named = meta.thread_id.as_deref().map(str::trim);
    !thread_id.is_empty() && named == Some(thread_id)
}

fn is_of_agent(meta: &TranscriptMeta, agent_id: Option<&str>) -> bool {
    agent_id.is_none() || meta.agent_id.as_deref() == agent_id
}

fn has_session_id(meta: Option<&TranscriptMeta>) -> bool {
    meta.is_some_and(|meta| meta.session_id.is_some())
}

#[cfg(test)]
mod tests {
    use crate::{
        InMemoryTranscriptLocator, SessionRef, TranscriptLocator as _, TranscriptMessage,
        TranscriptMeta,
    };

    fn write_stem(locator: &InMemoryTranscriptLocator, stem: &str, thread: &str) {
        let meta = TranscriptMeta::new("agent").with_thread_id(thread);
        let history = locator.open_stem(stem, meta).unwrap();
        history.append(TranscriptMessage::user("q")).unwrap();
    }

    fn write(locator: &InMemoryTranscriptLocator, session: &SessionRef, thread: &str) {
        let meta = TranscriptMeta::new("agent").with_thread_id(thread);
        let history = locator.open_session(session, meta).unwrap();
        history.append(TranscriptMessage::user("q")).unwrap();
    }

    fn subagents(locator: &InMemoryTranscriptLocator, thread: &str) -> Vec<String> {
        let listed = locator.thread_transcripts(thread, None).unwrap();
        listed
            .subagents
            .into_iter()
            .map(|child| child.stem)
            .collect()
    }

    /// A root, its child, and a grandchild whose stem holds but a digest of the child's.
    fn family() -> [SessionRef; 3] {
        let root = SessionRef::scoped("thread-1", "orchestrator");
        let child = SessionRef::child_of(&root, "worker-7");
        let grandchild = SessionRef::child_of(&child, "w2");
        assert!(grandchild.session_id().starts_with("chain-"));
        [root, child, grandchild]
    }

    #[test]
    fn a_digest_is_linked_once_the_stem_that_it_is_of_is_mentioned() {
        let [root, child, grandchild] = family();
        let locator = InMemoryTranscriptLocator::new();
        write_stem(&locator, &grandchild.session_id(), "own");
        write(&locator, &root, "t");
        assert_eq!(subagents(&locator, "t"), Vec::<String>::new());
        assert_eq!(subagents(&locator, "own"), [grandchild.session_id()]);
        // A sibling's first write mentions the child, which itself is never written.
        let sibling = SessionRef::child_of(&child, "w3");
        write(&locator, &sibling, "elsewhere");
        assert_eq!(
            subagents(&locator, "t"),
            [grandchild.session_id(), sibling.session_id()]
        );
        assert_eq!(subagents(&locator, "own"), Vec::<String>::new());
        let listed = locator.thread_transcripts("t", None).unwrap();
        assert_eq!(listed.subagents[0].parent, Some(child.session_id()));
    }

    #[test]
    fn a_reference_links_a_session_that_was_written_by_its_stem_before() {
        let [root, _, grandchild] = family();
        let locator = InMemoryTranscriptLocator::new();
        write(&locator, &root, "t");
        write_stem(&locator, &grandchild.session_id(), "own");
        write(&locator, &grandchild, "own");
        assert_eq!(subagents(&locator, "t"), [grandchild.session_id()]);
    }

    #[test]
    fn a_child_of_a_later_generation_belongs_to_the_session() {
        let root = SessionRef::root("r");
        let locator = InMemoryTranscriptLocator::new();
        write(&locator, &root, "t");
        write(&locator, &root.next_generation(), "t");
        let child = SessionRef::child_of(&root.next_generation(), "c");
        write(&locator, &child, "elsewhere");
        assert_eq!(subagents(&locator, "t"), [child.session_id()]);
    }

    #[test]
    fn raw_stems_say_their_own_line_and_a_root_elsewhere_decides() {
        let locator = InMemoryTranscriptLocator::new();
        write_stem(&locator, "a__b__c", "t");
        assert_eq!(subagents(&locator, "t"), ["a__b__c"]);
        write_stem(&locator, "a", "other");
        assert_eq!(subagents(&locator, "t"), Vec::<String>::new());
        assert_eq!(subagents(&locator, "other"), ["a__b__c"]);
    }
}
