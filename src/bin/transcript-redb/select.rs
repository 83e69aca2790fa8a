//! Which session is meant: a stem, a session key or an unambiguous prefix of one.

use std::collections::HashMap;

use transcript_redb::{ListOrder, SessionQuery, SessionSummary, Store, TranscriptLocator as _};

use crate::failure::Failure;
use crate::text::cut;

/// How many of the sessions that may be meant are named.
const NAMED: usize = 5;

/// The shortest prefix that lists show.
const SHORTEST: usize = 8;

/// Every session of a store, sub-agents too.
pub fn all(store: &Store) -> Result<Vec<SessionSummary>, Failure> {
    Ok(store.sessions_matching(&SessionQuery {
        children: true,
        order: ListOrder::Updated,
        ..SessionQuery::default()
    })?)
}

/// The session that `text` names, and the stem of the generation: the one named, else the newest.
pub fn one(store: &Store, text: &str) -> Result<(SessionSummary, String), Failure> {
    let all = all(store)?;
    if let Some(found) = by_generation(store, &all, text)? {
        return Ok(found);
    }
    let exact: Vec<&SessionSummary> = all.iter().filter(|it| names(it).contains(&text)).collect();
    let found = if exact.is_empty() {
        let begins = |it: &&SessionSummary| names(it).iter().any(|name| name.starts_with(text));
        let found: Vec<&SessionSummary> = all.iter().filter(begins).collect();
        check_unwritten(text, &found)?;
        found
    } else {
        exact
    };
    // The stems of sub-agents begin with that of their parent.
    let over_all = |one: &&&SessionSummary| found.iter().all(|it| it.stem.starts_with(base(one)));
    let found = match found.iter().find(over_all) {
        Some(root) => vec![*root],
        None => found,
    };
    match found.as_slice() {
        [] => Err(Failure::Told(format!(
            "no session begins with {text:?}; `transcript-redb sessions --children` lists them"
        ))),
        [one] => Ok(((*one).clone(), one.stem.clone())),
        several => {
            let mut names: Vec<&str> = several
                .iter()
                .take(NAMED)
                .map(|it| it.stem.as_str())
                .collect();
            if several.len() > NAMED {
                names.push("…");
            }
            Err(Failure::Told(format!(
                "{text:?} names {} sessions, say more of one:\n  {}",
                several.len(),
                names.join("\n  ")
            )))
        }
    }
}

/// Refuses what names nothing but a session that was never written: only those of its sub-agents begin so.
fn check_unwritten(text: &str, found: &[&SessionSummary]) -> Result<(), Failure> {
    let only_above = |it: &&SessionSummary| {
        let own = it.session.as_ref();
        let above = own.and_then(|session| session.parent_stem());
        let key = own.is_some_and(|session| session.session_key.starts_with(text));
        !key && above.is_some_and(|above| above.starts_with(text))
    };
    if found.is_empty() || !found.iter().all(only_above) {
        return Ok(());
    }
    let names: Vec<&str> = found
        .iter()
        .take(NAMED)
        .map(|it| it.stem.as_str())
        .collect();
    Err(Failure::Told(format!(
        "no session that begins with {text:?} was ever written, only sub-agents below one:\n  {}",
        names.join("\n  ")
    )))
}

/// The generation whose stem `text` is.
fn by_generation(
    store: &Store,
    all: &[SessionSummary],
    text: &str,
) -> Result<Option<(SessionSummary, String)>, Failure> {
    let known = |it: &&SessionSummary| text.starts_with(base(it));
    for summary in all.iter().filter(known) {
        let Some(session) = &summary.session else {
            continue;
        };
        for generation in store.locator().session_chain(session)? {
            if generation.session_id() == text {
                return Ok(Some((summary.clone(), text.to_owned())));
            }
        }
    }
    Ok(None)
}

/// The stem of generation 0.
pub fn base(summary: &SessionSummary) -> &str {
    let end = format!(".g{}", summary.generation);
    match summary.generation {
        0 => &summary.stem,
        _ => summary.stem.strip_suffix(&end).unwrap_or(&summary.stem),
    }
}

/// What a session is called by.
fn names(summary: &SessionSummary) -> Vec<&str> {
    let key = summary.session.as_ref().map(|it| it.session_key.as_str());
    key.into_iter().chain([summary.stem.as_str()]).collect()
}

/// How many sessions are called by each name.
fn callings(all: &[SessionSummary]) -> HashMap<&str, usize> {
    let mut callings = HashMap::new();
    for name in all.iter().flat_map(names) {
        *callings.entry(name).or_default() += 1;
    }
    callings
}

/// The name by which a person calls a session: its key, if that is only its own, else its stem.
fn name<'s>(summary: &'s SessionSummary, callings: &HashMap<&str, usize>) -> &'s str {
    let names = names(summary);
    let (key, stem) = (names.first(), names.last());
    let own = |key: &&&str| !key.is_empty() && callings.get(**key) == Some(&1);
    key.filter(own).or(stem).copied().unwrap_or_default()
}

/// What lists show of each session's name: the shortest prefix that is only its own, or with `whole` all of it.
pub fn handles(shown: &[SessionSummary], all: &[SessionSummary], whole: bool) -> Vec<String> {
    let mut sorted: Vec<(&str, &str)> = all
        .iter()
        .flat_map(|it| {
            names(it)
                .into_iter()
                .map(move |name| (name, it.stem.as_str()))
        })
        .collect();
    sorted.sort_unstable();
    let callings = callings(all);
    let shorten = |summary: &SessionSummary| {
        let name = name(summary, &callings);
        if whole {
            return name.to_owned();
        }
        let at = sorted.partition_point(|(other, _)| *other < name);
        // Of all names the neighbours that are another session's share the most with it.
        let before = sorted.get(..at).unwrap_or_default().iter().rev();
        let after = sorted.get(at..).unwrap_or_default().iter();
        let other = |(_, stem): &&(&str, &str)| !stem.starts_with(base(summary));
        let shared = [before.clone().find(other), after.clone().find(other)]
            .into_iter()
            .flatten()
            .map(|(other, _)| shared(name, other))
            .max()
            .unwrap_or(0);
        name.chars().take((shared + 1).max(SHORTEST)).collect()
    };
    shown.iter().map(shorten).collect()
}

/// How many characters two texts begin with in common.
fn shared(one: &str, other: &str) -> usize {
    one.chars()
        .zip(other.chars())
        .take_while(|(a, b)| a == b)
        .count()
}

/// A title that fits a line.
pub fn title(summary: &SessionSummary) -> String {
    cut(summary.title.as_deref().unwrap_or_default(), 80).into_owned()
}
