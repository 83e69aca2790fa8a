//! `SessionRef`: the identity of a conversation, and the stem that names each of its transcripts.

/// Stems longer than this many bytes stand in their children's stems by a digest.
const BOUNDED_BYTES: usize = 110;

/// How many characters of a key are kept readable in a stem.
const COMPONENT_CHARS: usize = 80;

/// The identity of one generation of a session.
///
/// A session is a conversation. It has generations 0, 1, 2 …, each a transcript of its own whose unique name is the
/// *stem*, [`SessionRef::session_id`]. A session is a root, or it is the sub-agent session of a parent.
///
/// Keys and agent ids are data: any text is allowed, and two different texts give two different stems, because a stem
/// carries a digest of each. The ancestors of a sub-agent session are part of its equality.
///
/// ```
/// use transcript_redb::SessionRef;
///
/// let session = SessionRef::root("thread-1");
/// assert_eq!(session.session_id(), "thread-1-2c9d1afa3c382fdf440b08a5f1f46fef");
///
/// let worker = SessionRef::child_of(&session, "worker-7");
/// assert!(worker.is_subagent());
/// assert_eq!(worker.parent_stem(), Some(session.session_id().as_str()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionRef {
    /// The host's key of the conversation.
    pub session_key: String,
    /// The agent that the session is scoped to, if it is. A blank one is a scope of its own, not the absence of one.
    pub agent_id: Option<String>,
    /// The generation, 0 for the first.
    pub generation: u32,
    /// The stems from the outermost root session down to the direct parent; empty for a root.
    ancestors: Vec<String>,
}

impl SessionRef {
    /// Generation 0 of the root session with this key.
    pub fn root(session_key: impl Into<String>) -> Self {
        Self::from_parts(session_key.into(), None, 0, Vec::new())
    }

    /// Generation 0 of the root session with this key and agent. The agent is part of the identity even when blank.
    pub fn scoped(session_key: impl Into<String>, agent_id: impl Into<String>) -> Self {
        Self::from_parts(session_key.into(), Some(agent_id.into()), 0, Vec::new())
    }

    /// Generation 0 of the sub-agent session with this key under `parent`.
    ///
    /// The child belongs to exactly the generation of the parent that is given; of the parent's generation the child
    /// keeps what its ancestors' stems say, and nothing else. The parent need not be written, then or ever: the child's thread
    /// is the one that its parent names, and until that is written the one that its own header names.
    pub fn child_of(parent: &Self, child_key: impl Into<String>) -> Self {
        let mut ancestors = parent.ancestors.clone();
        ancestors.push(parent.session_id());
        Self::from_parts(child_key.into(), None, 0, ancestors)
    }

    /// Generation 0 of the same session.
    #[must_use]
    pub fn first_generation(&self) -> Self {
        self.with_generation(0)
    }

    /// The following generation of the same session; the last possible one is its own successor.
    #[must_use]
    pub fn next_generation(&self) -> Self {
        self.with_generation(self.generation.saturating_add(1))
    }

    /// Whether the session has a parent.
    #[must_use]
    pub fn is_subagent(&self) -> bool {
        !self.ancestors.is_empty()
    }

    /// The stem of this generation: the unique name of its transcript.
    #[must_use]
    pub fn session_id(&self) -> String {
        let mut stem = self.base_stem();
        if self.generation > 0 {
            stem.push_str(".g");
            stem.push_str(&self.generation.to_string());
        }
        stem
    }

    /// The stem of the generation before this one; `None` at generation 0.
    ///
    /// This is the predecessor generation and not the session that delegated to this one, which is
    /// [`parent_stem`](Self::parent_stem).
    #[must_use]
    pub fn parent_session_id(&self) -> Option<String> {
        let previous = self.generation.checked_sub(1)?;
        Some(self.with_generation(previous).session_id())
    }

    /// The stem of the session that delegated to this one; `None` for a root.
    #[must_use]
    pub fn parent_stem(&self) -> Option<&str> {
        self.ancestors.last().map(String::as_str)
    }

    /// The ancestors' stems, outermost first.
    pub(crate) fn ancestors(&self) -> &[String] {
        &self.ancestors
    }

    /// A reference as a store has kept it.
    pub(crate) fn from_parts(
        session_key: String,
        agent_id: Option<String>,
        generation: u32,
        ancestors: Vec<String>,
    ) -> Self {
        Self {
            session_key,
            agent_id,
            generation,
            ancestors,
        }
    }

    /// The given generation of the same session.
    pub(crate) fn with_generation(&self, generation: u32) -> Self {
        Self {
            generation,
            ..self.clone()
        }
    }

    /// The stem of generation 0, which names the session.
    pub(crate) fn base_stem(&self) -> String {
        let mut stem = String::new();
        if let Some(parent) = self.parent_stem() {
            stem.push_str(&bounded(parent));
            stem.push_str("__");
        }
        stem.push_str(&component(&self.session_key));
        if let Some(agent_id) = &self.agent_id {
            stem.push('.');
            stem.push_str(&component(agent_id));
        }
        stem
    }
}

/// The stem of a session's generation: the same as [`SessionRef::session_id`].
#[must_use]
pub fn session_stem(session: &SessionRef) -> String {
    session.session_id()
}

/// Splits a stem into the session's stem and the generation.
///
/// Only a canonical `.g<decimal>` (no leading zero, at least 1, a `u32`) behind something else is a generation;
/// any other ending belongs to the name.
pub(crate) fn split_generation(stem: &str) -> (&str, u32) {
    let split = || {
        let (base, digits) = stem.rsplit_once(".g")?;
        let canonical = !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
        let generation = digits.parse().ok().filter(|_| canonical)?;
        (!base.is_empty()).then_some((base, generation))
    };
    split().unwrap_or((stem, 0))
}

/// Whether a stem is a sub-agent's: something before its first `__`, and something after it.
pub(crate) fn is_subagent_stem(stem: &str) -> bool {
    stem.split_once("__")
        .is_some_and(|(before, after)| !before.is_empty() && !after.is_empty())
}

/// The part of a sub-agent's stem that names its parent: what stands before the last `__`. `None` for a root's stem.
pub(crate) fn parent_part(stem: &str) -> Option<&str> {
    if !is_subagent_stem(stem) {
        return None;
    }
    stem.rsplit_once("__").map(|(parent, _)| parent)
}

/// The digest in a stem part that stands for a long stem: `chain-` and 32 lowercase hex digits.
pub(crate) fn chain_digest(stem: &str) -> Option<u128> {
    let hex = stem.strip_prefix("chain-")?;
    let lowercase_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if hex.len() != 32 || !hex.bytes().all(lowercase_hex) {
        return None;
    }
    u128::from_str_radix(hex, 16).ok()
}

/// The digest that stands for a text in stems.
pub(crate) fn fnv128_u128(bytes: &[u8]) -> u128 {
    let high = fnv64(bytes, 0xcbf2_9ce4_8422_2325);
    let low = fnv64(bytes, 0x9e37_79b9_7f4a_7c15);
    u128::from(high) << 64 | u128::from(low)
}

fn fnv64(bytes: &[u8], seed: u64) -> u64 {
    bytes.iter().fold(seed, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A parent's stem as its children's stems carry it: whole while it is short, else a digest of it.
pub(crate) fn bounded(stem: &str) -> String {
    if stem.len() <= BOUNDED_BYTES {
        stem.to_owned()
    } else {
        format!("chain-{:032x}", fnv128_u128(stem.as_bytes()))
    }
}

/// One key in a stem: a readable form of it, and a digest that tells it from every other.
fn component(key: &str) -> String {
    let readable = if key.is_empty() { "session" } else { key };
    let mut out = String::new();
    for c in readable.chars() {
        if out.len() == COMPONENT_CHARS {
            break;
        }
        match c {
            '.' | '-' => out.push('-'),
            c if c.is_ascii_alphanumeric() => out.push(c),
            _ if out.ends_with('_') => {}
            _ => out.push('_'),
        }
    }
    format!("{out}-{:032x}", fnv128_u128(key.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn stems_are_those_that_exist_in_the_field() {
        let worker =
            SessionRef::child_of(&SessionRef::scoped("thread-1", "orchestrator"), "worker-7");
        let cases = [
            (
                SessionRef::root("thread-1"),
                "thread-1-2c9d1afa3c382fdf440b08a5f1f46fef",
            ),
            (
                SessionRef::scoped("thread-1", "orchestrator"),
                "thread-1-2c9d1afa3c382fdf440b08a5f1f46fef.orchestrator-57c4fd2d66355aa9fd1aea283ce94119",
            ),
            (
                SessionRef::scoped("thread-1", "orchestrator").next_generation(),
                "thread-1-2c9d1afa3c382fdf440b08a5f1f46fef.orchestrator-57c4fd2d66355aa9fd1aea283ce94119.g1",
            ),
            (
                SessionRef::scoped("thread-1", ""),
                "thread-1-2c9d1afa3c382fdf440b08a5f1f46fef.session-cbf29ce4842223259e3779b97f4a7c15",
            ),
            (
                SessionRef::root(""),
                "session-cbf29ce4842223259e3779b97f4a7c15",
            ),
            (
                SessionRef::root("a__b"),
                "a_b-148734836b861140caec286747020670",
            ),
            (
                SessionRef::root("../../etc/passwd"),
                "--_--_etc_passwd-2bef2c0bbbdefdfa5ec48241c1e174ca",
            ),
            (
                SessionRef::root("héllo 日"),
                "h_llo_-ece530477c4e17eeedf0565e9ea3e7fe",
            ),
            (
                SessionRef::child_of(&SessionRef::scoped("t1", "o"), "r1"),
                "t1-08c7ff07b56a5e169df6ae2967fa0806.o-af63e24c8601f6be22c050334b91834e__r1-08dc8307b57be76c9e0b3229680b915c",
            ),
            (
                worker.clone(),
                "thread-1-2c9d1afa3c382fdf440b08a5f1f46fef.orchestrator-57c4fd2d66355aa9fd1aea283ce94119__worker-7-249138c59027e1bb5888cc2ad52dc12b",
            ),
            (
                SessionRef::child_of(&worker, "w2"),
                "chain-58d53e16948578369fa97e8bbfd7e106__w2-08cb8407b56d75ec9dfa332967fd1fdc",
            ),
        ];
        for (session, stem) in cases {
            assert_eq!(session.session_id(), stem);
            assert_eq!(session_stem(&session), stem);
        }
    }

    #[test]
    fn a_stem_shows_at_most_eighty_characters_of_a_key() {
        let readable = |key: &str| {
            let stem = SessionRef::root(key).session_id();
            stem.rsplit_once('-').unwrap().0.to_owned()
        };
        assert_eq!(readable(&"x".repeat(81)), "x".repeat(80));
        // Dropped underscores do not count.
        assert_eq!(
            readable(&format!("a{}{}", "_".repeat(100), "b".repeat(100))),
            format!("a_{}", "b".repeat(78))
        );
        assert_eq!(readable(&"日".repeat(200)), "_");
        assert_eq!(readable("a_._b"), "a_-_b");
    }

    #[test]
    fn keys_that_look_alike_in_a_stem_are_still_told_apart() {
        let keys = [
            "a b", "a_b", "a/b", "a__b", "a\0b", "a.b", "a-b", " ", "", "session",
        ];
        let stems: HashSet<_> = keys.map(|key| SessionRef::root(key).session_id()).into();
        assert_eq!(stems.len(), keys.len());
    }

    #[test]
    fn a_blank_agent_is_a_scope_of_its_own() {
        let (root, blank) = (SessionRef::root("k"), SessionRef::scoped("k", ""));
        assert_eq!(blank.agent_id.as_deref(), Some(""));
        assert_ne!(root, blank);
        assert_ne!(root.session_id(), blank.session_id());
    }

    #[test]
    fn generations_count_up_and_lead_back() {
        let first = SessionRef::scoped("k", "a");
        let third = first.next_generation().next_generation();
        assert_eq!(third.generation, 2);
        assert_eq!(third.first_generation(), first);
        assert_eq!(third.base_stem(), first.session_id());
        assert_eq!(third.session_id(), format!("{}.g2", first.session_id()));
        assert_eq!(
            third.parent_session_id(),
            Some(first.next_generation().session_id())
        );
        assert_eq!(
            first.next_generation().parent_session_id(),
            Some(first.session_id())
        );
        assert_eq!(first.parent_session_id(), None);
    }

    #[test]
    fn the_last_generation_is_its_own_successor() {
        let last = SessionRef::root("k").with_generation(u32::MAX);
        assert_eq!(last.next_generation(), last);
    }

    #[test]
    fn a_child_carries_the_whole_line_of_its_ancestors() {
        let root = SessionRef::root("k").next_generation();
        let child = SessionRef::child_of(&root, "c");
        let grandchild = SessionRef::child_of(&child.next_generation(), "g");
        assert!(!root.is_subagent());
        assert_eq!(root.parent_stem(), None);
        assert!(child.is_subagent());
        assert_eq!(child.generation, 0);
        assert_eq!(child.parent_stem(), Some(root.session_id().as_str()));
        assert_eq!(
            grandchild.ancestors(),
            [root.session_id(), child.next_generation().session_id()]
        );
        assert_eq!(
            grandchild.next_generation().ancestors(),
            grandchild.ancestors()
        );
        // The predecessor generation is not the delegating session.
        assert_eq!(child.parent_session_id(), None);
    }

    #[test]
    fn ancestors_are_part_of_equality_even_where_the_stem_is_the_same() {
        let child = SessionRef::child_of(&SessionRef::root("k"), "c");
        let kept = |ancestors| SessionRef::from_parts("c".to_owned(), None, 0, ancestors);
        assert_eq!(kept(child.ancestors().to_vec()), child);
        let mut deeper = vec!["elsewhere".to_owned()];
        deeper.extend_from_slice(child.ancestors());
        assert_eq!(kept(deeper.clone()).session_id(), child.session_id());
        assert_ne!(kept(deeper), child);
    }

    #[test]
    fn only_a_canonical_ending_of_a_stem_is_its_generation() {
        let cases = [
            ("s.g1", ("s", 1)),
            ("s.g4294967295", ("s", u32::MAX)),
            ("s.g4294967296", ("s.g4294967296", 0)),
            ("s.g0", ("s.g0", 0)),
            ("s.g01", ("s.g01", 0)),
            ("s.g", ("s.g", 0)),
            ("s.g+1", ("s.g+1", 0)),
            ("s.g1x", ("s.g1x", 0)),
            ("s.g١", ("s.g١", 0)),
            (".g1", (".g1", 0)),
            ("s.g1.g2", ("s.g1", 2)),
            ("s.g1__c", ("s.g1__c", 0)),
            ("s__c.g3", ("s__c", 3)),
            ("", ("", 0)),
        ];
        for (stem, parts) in cases {
            assert_eq!(split_generation(stem), parts, "{stem}");
        }
    }

    #[test]
    fn a_stem_is_a_subagents_if_something_stands_on_both_sides_of_its_first_separator() {
        let cases = [
            ("a__b", Some("a")),
            ("a__b__c", Some("a__b")),
            ("a__b.g1", Some("a")),
            ("a___b", Some("a_")),
            ("a__b__", Some("a__b")),
            ("__a__b", None),
            ("a__", None),
            ("__", None),
            ("a_b", None),
            ("", None),
        ];
        for (stem, parent) in cases {
            assert_eq!(is_subagent_stem(stem), parent.is_some(), "{stem}");
            assert_eq!(parent_part(stem), parent, "{stem}");
        }
    }

    #[test]
    fn the_stem_of_a_ref_says_the_same_as_the_ref() {
        let root = SessionRef::scoped("a__b.g7", "__x__");
        let child = SessionRef::child_of(&root.next_generation(), "c__d.g9");
        assert!(!is_subagent_stem(&root.session_id()));
        assert_eq!(split_generation(&root.session_id()).1, 0);
        assert!(is_subagent_stem(&child.session_id()));
        let stem = child.next_generation().session_id();
        assert_eq!(split_generation(&stem), (child.session_id().as_str(), 1));
        assert_eq!(
            parent_part(&stem),
            Some(bounded(&root.next_generation().session_id()).as_str())
        );
    }

    #[test]
    fn a_long_stem_stands_in_its_childrens_by_a_digest() {
        let (fits, long) = ("s".repeat(110), "s".repeat(111));
        assert_eq!(bounded(&fits), fits);
        let digest = chain_digest(&bounded(&long));
        assert_eq!(digest, Some(fnv128_u128(long.as_bytes())));
    }

    #[test]
    fn only_an_exact_digest_stands_for_a_long_stem() {
        let hex = "58d53e16948578369fa97e8bbfd7e106";
        assert_eq!(
            chain_digest(&format!("chain-{hex}")),
            Some(0x58d5_3e16_9485_7836_9fa9_7e8b_bfd7_e106)
        );
        for stem in [
            format!("chain-{}", hex.to_uppercase()),
            format!("chain-{hex}0"),
            format!("chain-{}", &hex[1..]),
            format!("chain-+{}", &hex[1..]),
            format!("chain-{hex}__c"),
            hex.to_owned(),
        ] {
            assert_eq!(chain_digest(&stem), None, "{stem}");
        }
    }
}
