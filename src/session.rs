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
    /// keeps what its ancestors' stems say, and nothing else.
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
