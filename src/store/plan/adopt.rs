//! Adoption: roots of before there were session identities become the beginning of a session.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::{Address, Target, settled};
use crate::replay::StoredRow;
use crate::store::apply::full_stem;
use crate::store::engine::{Engine, Planned};
use crate::store::pending::{Session, View};
use crate::store::read::Reader;
use crate::store::{AdoptedSource, Adoption};
use crate::transcript::limits::check_meta;
use crate::{Result, SessionRef, TranscriptMeta};

/// Sessions as they were seen.
type Seen = Vec<(Arc<Session>, View)>;

/// A root that is folded in.
struct Candidate {
    /// Stem of its generation 0.
    session: String,
    generation: u32,
    /// Its place among all sessions, by their first writes.
    created: u64,
    next_seq: u64,
    meta: Arc<TranscriptMeta>,
    rows: Vec<StoredRow>,
    tools: Option<Value>,
}

/// Folds the roots of `thread` that were written before there were identities into `session`, of which `address` is
/// generation 0. Answers None if it is written, or if there are no such roots of `agent`.
pub(in crate::store) fn adopt(
    engine: &Engine,
    address: &Address,
    session: &SessionRef,
    thread: &str,
    agent: Option<&str>,
) -> Result<Option<Adoption>> {
    let stem = address.stem();
    engine.run(&address.session, |view| {
        if view.newest.is_some() {
            return Ok(Planned::Answer(None));
        }
        let (candidates, beside) = candidates(engine, &stem, thread, agent)?;
        if candidates.is_empty() {
            return Ok(Planned::Answer(None));
        }
        let meta = meta(&address.seed, session, thread, &candidates);
        check_meta(&stem, &meta)?;
        let mut draft = address.draft(engine, &Target::First, Some(&meta))?;
        let tools = candidates.last().and_then(|newest| newest.tools.clone());
        let mut adoption = Adoption {
            session: session.clone(),
            meta,
            sources: Vec::with_capacity(candidates.len()),
        };
        let mut index = 0;
        for candidate in candidates {
            adoption.sources.push(AdoptedSource {
                stem: full_stem(&candidate.session, candidate.generation),
                created: candidate.meta.created.clone(),
                rows: candidate.rows.len() as u64,
            });
            for row in candidate.rows {
                draft.adopt(index, row)?;
                index += 1;
            }
        }
        draft.tools(tools.as_ref())?;
        Ok(draft.finish(|_| Some(adoption)).beside(beside))
    })
}

/// The roots to fold in, in the order of their rows, and their sessions as they were seen.
fn candidates(
    engine: &Engine,
    stem: &str,
    thread: &str,
    agent: Option<&str>,
) -> Result<(Vec<Candidate>, Seen)> {
    loop {
        let stems = engine.read(|reader| {
            let roots = reader.pre_identity_roots(thread, agent)?;
            Ok(roots
                .into_iter()
                .map(|root| root.info.stem)
                .collect::<Vec<_>>())
        })?;
        let mut seen = Vec::with_capacity(stems.len());
        // If the session itself has been written meanwhile, the plan is made anew.
        for stem in stems.iter().filter(|it| *it != stem) {
            let session = engine.sessions.get(stem);
            let view = engine.view(&session)?;
            settled(engine, &view)?;
            seen.push((session, view));
        }
        let found = engine.read(|reader| read(reader, stem, thread, agent))?;
        // What was queued when the roots were listed is durable now: rows and views have to agree.
        let agrees = |(candidate, (session, view)): (&Candidate, &(Arc<Session>, View))| {
            candidate.session == session.stem
                && view.newest.as_ref().is_some_and(|newest| {
                    newest.generation == candidate.generation
                        && newest.head.next_seq == candidate.next_seq
                        && newest.head.meta == candidate.meta
                })
        };
        if found.len() == seen.len() && found.iter().zip(&seen).all(agrees) {
            let mut found = found;
            found.sort_by(|a, b| {
                instants(&a.meta.created, &b.meta.created).then(a.created.cmp(&b.created))
            });
            return Ok((found, seen));
        }
    }
}

fn read(
    reader: &mut Reader<'_>,
    stem: &str,
    thread: &str,
    agent: Option<&str>,
) -> Result<Vec<Candidate>> {
    let mut found = Vec::new();
    for root in reader.pre_identity_roots(thread, agent)? {
        if root.info.stem == stem {
            continue;
        }
        let created = root.created();
        // Every chain has a head: it was found by it.
        let Some((generation, id, transcript)) = root.generations.last() else {
            continue;
        };
        let head = &transcript.head;
        found.push(Candidate {
            generation: *generation,
            created,
            next_seq: head.next_seq,
            meta: Arc::clone(&head.meta),
            rows: reader.stored_rows(*id, head, |row| row)?,
            tools: reader.tools(*id, head)?,
            session: root.info.stem,
        });
    }
    Ok(found)
}

/// The header: that of the seed, with what the sources say.
fn meta(
    seed: &TranscriptMeta,
    session: &SessionRef,
    thread: &str,
    sources: &[Candidate],
) -> TranscriptMeta {
    let metas = || sources.iter().map(|source| source.meta.as_ref());
    let sum = |of: fn(&TranscriptMeta) -> u64| metas().map(of).fold(0, u64::saturating_add);
    let told = |of: fn(&TranscriptMeta) -> &str| metas().map(of).filter(|time| !time.is_empty());
    let created = told(|meta| &meta.created).min_by(|a, b| instants(a, b));
    // A text that is no time only counts where there is none.
    let timed = |time: &&str| time.parse::<Timestamp>().is_ok();
    let updated = told(|meta| &meta.updated)
        .filter(timed)
        .max_by(|a, b| instants(a, b))
        .or_else(|| told(|meta| &meta.updated).max());
    TranscriptMeta {
        session_id: Some(session.session_id()),
        parent_session_id: session.parent_session_id(),
        thread_id: Some(thread.to_owned()),
        turn_count: metas()
            .map(|meta| meta.turn_count)
            .fold(0, usize::saturating_add),
        input_tokens: sum(|meta| meta.input_tokens),
        output_tokens: sum(|meta| meta.output_tokens),
        cached_input_tokens: sum(|meta| meta.cached_input_tokens),
        charged_amount_usd: metas().map(|meta| meta.charged_amount_usd).sum(),
        created: created.unwrap_or(&seed.created).to_owned(),
        updated: updated.unwrap_or(&seed.updated).to_owned(),
        prefix_message_count: metas().next().and_then(|meta| meta.prefix_message_count),
        ..seed.clone()
    }
}

/// The order of two times as headers have them. What is no time stands behind all that are, by its text.
fn instants(a: &str, b: &str) -> Ordering {
    match (a.parse::<Timestamp>(), b.parse::<Timestamp>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_ordered_by_the_instant_that_they_name() {
        let mut times = [
            "",
            "yesterday",
            "2026-03-01T10:00:00Z",
            "2026-03-01T10:30:00+01:00",
            "2026-02-28T23:59:59.5Z",
        ];
        times.sort_by(|a, b| instants(a, b));
        assert_eq!(
            times,
            [
                "2026-02-28T23:59:59.5Z",
                "2026-03-01T10:30:00+01:00",
                "2026-03-01T10:00:00Z",
                "",
                "yesterday",
            ]
        );
    }
}
