//! The operations, as values that print and that mean something in any state, so that a sequence still runs when some
//! of it is left out.

use std::fmt;

use serde_json::{Map, Value};
use transcript_redb::{
    LegacyText, TranscriptMessage, TranscriptMeta, TranscriptPartial, TruncateCut, TurnUsage,
};

use super::place::Fault;

/// A row of a caller as JSON. Keys that are left out have their defaults; a content of `long:<number>` stands for so many
/// characters.
#[derive(Clone, PartialEq)]
pub struct Row(pub Value);

impl Row {
    pub fn message(&self) -> TranscriptMessage {
        let mut row: TranscriptMessage = serde_json::from_value(self.0.clone()).expect("a row");
        if let Some(length) = row.content.strip_prefix("long:") {
            row.content = "x".repeat(length.parse().expect("a length"));
        }
        row
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |value: &Value| {
            !value.is_null() && *value != Value::Bool(false) && *value != Value::Array(Vec::new())
        };
        let fields = self.0.as_object().expect("an object");
        let short: Map<_, _> = fields
            .iter()
            .filter(|(key, value)| said(value) || !ABSENT.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        write!(f, "row(json!({}))", Value::Object(short))
    }
}

const ABSENT: [&str; 6] = [
    "id",
    "extra_metadata",
    "cache_breakpoints",
    "preserve_request_id",
    "interrupted",
    "tool_failure",
];

/// Any JSON.
#[derive(Clone, PartialEq)]
pub struct Json(pub Value);

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json(json!({}))", self.0)
    }
}

/// A usage as JSON.
#[derive(Clone, PartialEq)]
pub struct Usage(pub Value);

impl Usage {
    pub fn value(&self) -> TurnUsage {
        serde_json::from_value(self.0.clone()).expect("a usage")
    }
}

impl fmt::Debug for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Usage(json!({}))", self.0)
    }
}

/// A header, by what matters of it to look-ups and sums.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Meta {
    pub agent_name: &'static str,
    pub agent_id: Option<&'static str>,
    pub thread: Option<&'static str>,
    pub model: Option<&'static str>,
    pub session_id: Option<&'static str>,
    pub updated: &'static str,
}

/// Which generation of a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Gen {
    Head,
    /// The one behind the head; 0 while nothing is written.
    Next,
    Number(u32),
}

/// Through which handle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum At {
    /// A fresh handle on a generation of a session of the world.
    Session(usize, Gen),
    /// A fresh handle on a raw stem of the world.
    Stem(usize),
    /// A handle that was kept. Without one the operation does nothing.
    Slot(usize),
}

/// What a caller believes is stored.
#[derive(Debug, Clone, PartialEq)]
pub enum Baseline {
    /// The rows as they were read.
    Current,
    /// The same rows in the old encoding, without anything around them.
    Encoded,
    /// The same, but not in the text that is remembered where the encoding says it in its own way.
    Recoded,
    Empty,
    /// Without the last row.
    Shorter,
    /// With one more.
    Longer(Row),
    /// One of the rows changed.
    Patched(usize, Json),
}

/// Where the rows of a new context begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Keep {
    All,
    /// The same rows in the old encoding, without anything around them.
    AllEncoded,
    /// The same, but not in the text that is remembered.
    AllRecoded,
    First(usize),
    Nothing,
}

/// What follows. Indexes count in the stored context; one beyond its end gives no row.
#[derive(Debug, Clone, PartialEq)]
pub enum Edit {
    /// A stored row, as it was read.
    Kept(usize),
    /// A row that looks like a stored one, but does not come from a read.
    Copied(usize),
    /// A stored row, as it was read, with some fields changed.
    Patched(usize, Json),
    New(Row),
}

/// A new context.
#[derive(Debug, Clone, PartialEq)]
pub struct Next {
    pub keep: Keep,
    pub edits: Vec<Edit>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Partial {
    pub content: &'static str,
    pub reasoning: Option<&'static str>,
    pub iteration: Option<u32>,
}

/// What a turn brings beside its rows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Around {
    pub usage: Option<Usage>,
    pub request: Option<&'static str>,
    pub tools: Option<Json>,
    pub compaction: Option<Json>,
    pub partial: Option<Partial>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    Turn {
        at: At,
        prev: Baseline,
        next: Next,
        meta: Meta,
        around: Around,
    },
    Append {
        at: At,
        seed: Meta,
        row: Row,
    },
    Replace {
        at: At,
        seed: Meta,
        next: Next,
    },
    Clear {
        at: At,
    },
    /// Opens a handle and keeps it.
    Open {
        at: At,
        seed: Meta,
        slot: usize,
    },
    /// Begins a generation and keeps its handle; whatever the slot held is dropped afterwards.
    Begin {
        session: usize,
        generation: Gen,
        baseline: Option<Baseline>,
        seed: Meta,
        slot: usize,
    },
    Drop {
        slot: usize,
    },
    /// Truncates a session, and keeps the handle if a slot is given.
    Truncate {
        session: usize,
        generation: Gen,
        cut: TruncateCut,
        seed: Meta,
        slot: Option<usize>,
    },
    Background {
        session: usize,
        generation: Gen,
        row: Row,
        key: &'static str,
        provenance: Json,
        expected: Option<u32>,
    },
    Partial {
        thread: &'static str,
        agent: Option<&'static str>,
        partial: Partial,
        request: Option<&'static str>,
    },
    Release {
        session: usize,
    },
    /// Takes a token of a session's head and keeps it.
    Head {
        session: usize,
        token: usize,
    },
    /// Appends rows to the head that a kept token names.
    AppendRows {
        token: usize,
        rows: Vec<Row>,
        meta: Option<Meta>,
        around: Around,
    },
    /// Reads a live context.
    Look {
        at: At,
    },
    /// Makes a checkpoint.
    Checkpoint,
    /// Drops every handle and the store, and opens it again. Only the handles are dropped of a store in memory.
    Reopen,
    /// Ends the process of a store on a simulated disk; another opens what it left.
    Kill,
    /// Cuts the power of a store on a simulated disk; the number chooses what of the unsynced bytes is left.
    PowerCut(u64),
    /// Lets a fault of the simulated disk strike the next operation that asks something of it.
    Strike(Fault),
    /// Moves the clock of the redb store by so many seconds.
    Wait(i64),
}

fn encoded(row: &TranscriptMessage) -> TranscriptMessage {
    TranscriptMessage {
        id: row.id.clone(),
        ..TranscriptMessage::new(&*row.role, row.legacy_content())
    }
}

fn recoded(row: &TranscriptMessage) -> TranscriptMessage {
    encoded(&TranscriptMessage {
        legacy: LegacyText::default(),
        ..row.clone()
    })
}

fn patched(row: &TranscriptMessage, Json(patch): &Json) -> TranscriptMessage {
    let mut fields = serde_json::to_value(row).expect("a row");
    for (key, value) in patch.as_object().expect("an object") {
        fields[key] = value.clone();
    }
    serde_json::from_value(fields).expect("a row")
}

impl Baseline {
    /// The rows that the caller gives, when these are stored.
    pub fn rows(&self, stored: &[TranscriptMessage]) -> Vec<TranscriptMessage> {
        let mut rows = stored.to_vec();
        match self {
            Baseline::Current => {}
            Baseline::Encoded => rows = stored.iter().map(encoded).collect(),
            Baseline::Recoded => rows = stored.iter().map(recoded).collect(),
            Baseline::Empty => rows.clear(),
            Baseline::Shorter => drop(rows.pop()),
            Baseline::Longer(row) => rows.push(row.message()),
            Baseline::Patched(index, patch) => {
                if !rows.is_empty() {
                    let index = index % rows.len();
                    rows[index] = patched(&rows[index], patch);
                }
            }
        }
        rows
    }
}

impl Next {
    /// The rows that the caller gives, when these are stored.
    pub fn rows(&self, stored: &[TranscriptMessage]) -> Vec<TranscriptMessage> {
        let mut rows = match self.keep {
            Keep::All => stored.to_vec(),
            Keep::AllEncoded => stored.iter().map(encoded).collect(),
            Keep::AllRecoded => stored.iter().map(recoded).collect(),
            Keep::First(count) => stored.iter().take(count).cloned().collect(),
            Keep::Nothing => Vec::new(),
        };
        rows.extend(self.edits.iter().filter_map(|edit| match edit {
            Edit::Kept(index) => stored.get(*index).cloned(),
            Edit::Copied(index) => stored.get(*index).map(|row| TranscriptMessage {
                preserve_request_id: false,
                ..row.clone()
            }),
            Edit::Patched(index, patch) => stored.get(*index).map(|row| patched(row, patch)),
            Edit::New(row) => Some(row.message()),
        }));
        rows
    }
}

impl Meta {
    pub fn value(&self) -> TranscriptMeta {
        let mut meta = TranscriptMeta::new(self.agent_name)
            .with_created("c")
            .with_updated(self.updated);
        meta.agent_id = self.agent_id.map(str::to_owned);
        meta.thread_id = self.thread.map(str::to_owned);
        meta.model = self.model.map(str::to_owned);
        meta.session_id = self.session_id.map(str::to_owned);
        meta
    }
}

impl Partial {
    pub fn value(&self) -> TranscriptPartial {
        TranscriptPartial {
            content: self.content.to_owned(),
            reasoning_content: self.reasoning.map(str::to_owned),
            iteration: self.iteration,
        }
    }
}
