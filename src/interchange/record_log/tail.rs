//! Which messages of a new working set repeat those before the compaction.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::interchange::fact::{Place, RepeatKey, RowNo};

/// The longest tail that is recognised. Writers keep eight messages.
const MAX_TAIL: usize = 256;

const SUMMARY: &str = "[conversation summarized to save context]";

const SKILL: &str = "<invoked-skill name=\"";

/// A message that was told of.
#[derive(Clone, Copy)]
pub(super) struct Said {
    pub(super) hash: [u8; 16],
    /// Its first row; the others follow.
    pub(super) row: RowNo,
    /// How many rows it is.
    pub(super) count: u32,
}

/// What a message in front of a tail can be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Summary,
    Skill,
    Other,
}

pub(super) enum Step {
    /// The working set may go on.
    More,
    /// It is complete.
    Done,
}

/// A compaction whose working set is being told.
pub(super) struct Group<M> {
    /// The last messages before it.
    before: Vec<Said>,
    metadata: Option<Value>,
    uuid: Option<uuid::Uuid>,
    ts: String,
    place: Place,
    key: RepeatKey,
    /// Summary and skills.
    fresh: Vec<(M, [u8; 16])>,
    summarized: bool,
    /// What may repeat the tail.
    told: Vec<(M, [u8; 16])>,
    /// Lengths of tails that what was told so far is the begin of.
    open: Vec<usize>,
    /// The longest tail that is complete.
    longest: usize,
}

/// A compaction with its whole working set.
pub(super) struct Done<M> {
    pub(super) metadata: Option<Value>,
    pub(super) uuid: Option<uuid::Uuid>,
    pub(super) ts: String,
    pub(super) place: Place,
    pub(super) key: RepeatKey,
    pub(super) fresh: Vec<(M, [u8; 16])>,
    pub(super) copies: Vec<Said>,
    /// Messages behind it.
    pub(super) births: Vec<(M, [u8; 16])>,
}

impl<M> Group<M> {
    pub(super) fn new(
        mut before: Vec<Said>,
        metadata: Option<Value>,
        uuid: Option<uuid::Uuid>,
        ts: String,
        place: Place,
        key: RepeatKey,
    ) -> Self {
        let older = before.len().saturating_sub(MAX_TAIL);
        before.drain(..older);
        Self {
            open: (1..=before.len()).collect(),
            before,
            metadata,
            uuid,
            ts,
            place,
            key,
            fresh: Vec::new(),
            summarized: false,
            told: Vec::new(),
            longest: 0,
        }
    }

    /// Takes the next message.
    pub(super) fn take(&mut self, message: M, hash: [u8; 16], kind: Kind) -> Step {
        if self.told.is_empty() {
            let summary = kind == Kind::Summary && !self.summarized;
            if summary || kind == Kind::Skill {
                self.summarized |= summary;
                self.fresh.push((message, hash));
                return Step::More;
            }
        }
        let at = self.told.len();
        self.told.push((message, hash));
        let before = &self.before;
        self.open.retain(|length| {
            let from = before.len() - length;
            before.get(from + at).is_some_and(|said| said.hash == hash)
        });
        let whole = at + 1;
        if self.open.first() == Some(&whole) {
            self.longest = whole;
            self.open.remove(0);
        }
        if self.open.is_empty() {
            Step::Done
        } else {
            Step::More
        }
    }

    pub(super) fn finish(self) -> Done<M> {
        let from = self.before.len().saturating_sub(self.longest);
        let copies = self.before.get(from..).unwrap_or_default().to_vec();
        // A group that was cut short by the end of the file is another one than when it is whole.
        let parts = [self.fresh.len() as u64, copies.len() as u64].map(u64::to_le_bytes);
        let [fresh, kept] = &parts;
        Done {
            metadata: self.metadata,
            uuid: self.uuid,
            ts: self.ts,
            place: self.place,
            key: RepeatKey::of(&[&self.key.0, fresh, kept]),
            fresh: self.fresh,
            copies,
            births: self.told.into_iter().skip(self.longest).collect(),
        }
    }
}

/// What a message says, in short.
pub(super) fn hash(role: &str, content: &Value) -> [u8; 16] {
    let mut hash = Sha256::new();
    hash.update(role.as_bytes());
    hash.update([0]);
    hash.update(content.to_string().as_bytes());
    let whole: [u8; 32] = hash.finalize().into();
    let mut short = [0; 16];
    for (to, from) in short.iter_mut().zip(whole) {
        *to = from;
    }
    short
}

pub(super) fn kind(role: &str, content: &Value) -> Kind {
    let text = match content.as_array().map(Vec::as_slice) {
        Some([block]) => block.get("text").and_then(Value::as_str),
        _ => None,
    };
    match text.filter(|_| role == "user") {
        Some(text) if text.starts_with(SUMMARY) => Kind::Summary,
        Some(text) if text.contains(SKILL) => Kind::Skill,
        _ => Kind::Other,
    }
}
