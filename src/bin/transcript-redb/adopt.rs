//! `import --adopt`: sessions for the threads of before there were any.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use transcript_redb::{Adoption, SessionRef, Store, TranscriptLocator as _, TranscriptMeta};

use crate::failure::{Failure, complain, explain};
use crate::output::Output;
use crate::table::Table;
use crate::text::count;

/// What was adopted, and what could not be.
#[derive(Debug, Default)]
pub struct Adopted {
    adoptions: Vec<Adoption>,
    /// Thread, and why.
    failed: Vec<(String, String)>,
}

/// Adopts in every thread, for each agent, what was written before there were sessions.
///
/// The session is the one of the thread's id and the agent's, or of the thread's alone where the older headers name no
/// agent: so hosts name the session of a conversation.
pub fn adopt(store: &Store) -> Result<Adopted, Failure> {
    let mut adopted = Adopted::default();
    for thread in store.threads()? {
        let listed = store
            .locator()
            .thread_transcripts(&thread.thread_id, None)?;
        let mut agents: BTreeSet<Option<String>> = BTreeSet::new();
        for root in &listed.pre_identity {
            agents.insert(root.meta.agent_id.clone());
        }
        for agent in agents {
            // The header goes on where the newest one was.
            let newest = listed.pre_identity.iter().rev();
            let newest = newest.map(|it| &it.meta).find(|it| it.agent_id == agent);
            let Some(seed) = newest.cloned() else {
                continue;
            };
            let session = session(&thread.thread_id, agent.as_deref());
            match store.adopt(&session, &thread.thread_id, seed_of(seed)) {
                Ok(adoption) => adopted.adoptions.extend(adoption),
                Err(error) => {
                    let why = explain(&error);
                    let thread = thread.thread_id.clone();
                    complain(&format!("thread {thread}: nothing was adopted: {why}"));
                    adopted.failed.push((thread, why));
                }
            }
        }
    }
    Ok(adopted)
}

fn session(thread: &str, agent: Option<&str>) -> SessionRef {
    match agent {
        Some(agent) => SessionRef::scoped(thread, agent),
        None => SessionRef::root(thread),
    }
}

/// A header without what only its own transcript had.
fn seed_of(newest: TranscriptMeta) -> TranscriptMeta {
    TranscriptMeta {
        task_id: None,
        ..newest
    }
}

impl Adopted {
    /// Whether something could not be adopted.
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// For programs: one object for each session.
    pub fn json(&self) -> Value {
        let adoptions = self.adoptions.iter().map(|adoption| {
            let sources = adoption.sources.iter();
            let sources = sources
                .map(|it| json!({"stem": it.stem, "created": it.created, "messages": it.rows}));
            json!({
                "session": adoption.session.session_id(),
                "thread_id": adoption.meta.thread_id,
                "agent_id": adoption.session.agent_id,
                "messages": adoption.rows(),
                "sources": sources.collect::<Vec<_>>(),
            })
        });
        let failed = self.failed.iter();
        let failed = failed.map(|(thread, error)| json!({"thread_id": thread, "error": error}));
        json!({
            "sessions": adoptions.collect::<Vec<_>>(),
            "failed": failed.collect::<Vec<_>>(),
        })
    }

    /// For people.
    pub fn tell(&self, output: &mut Output) -> Result<(), Failure> {
        if self.adoptions.is_empty() {
            return output.line("Nothing to adopt.").map_err(Failure::from);
        }
        let columns = ["ADOPTED BY", "THREAD", "TRANSCRIPTS", "MESSAGES"];
        let mut table = Table::new(&columns, &[2, 3], &[0]).spare(&[1]);
        for adoption in &self.adoptions {
            table.row([
                adoption.session.session_id(),
                adoption.meta.thread_id.clone().unwrap_or_default(),
                count(adoption.sources.len() as u64),
                count(adoption.rows()),
            ]);
        }
        output.line("")?;
        table.print(output)?;
        Ok(())
    }
}
