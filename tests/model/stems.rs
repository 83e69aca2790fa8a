//! Stems, generations, and what they say of each other.

use transcript_redb::SessionRef;

/// The given generation of a session.
pub fn generation_of(session: &SessionRef, generation: u32) -> SessionRef {
    let mut session = session.first_generation();
    session.generation = generation;
    session
}

/// The stem of a session's generation 0.
pub fn base_of(session: &SessionRef) -> String {
    session.first_generation().session_id()
}

pub fn base_of_stem(stem: &str) -> &str {
    split(stem).0
}

/// The stem of a generation.
pub fn stem_of(base: &str, generation: u32) -> String {
    match generation {
        0 => base.to_owned(),
        _ => format!("{base}.g{generation}"),
    }
}

/// Parts a stem of the world: none of its names ends like a generation.
pub fn split(stem: &str) -> (&str, u32) {
    let parts = stem
        .rsplit_once(".g")
        .and_then(|(base, digits)| Some((base, digits.parse().ok()?)));
    parts.unwrap_or((stem, 0))
}

/// Whether a stem is a root's.
pub fn is_root(stem: &str) -> bool {
    !stem
        .split_once("__")
        .is_some_and(|(before, after)| !before.is_empty() && !after.is_empty())
}
