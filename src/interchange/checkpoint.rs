//! Checkpoint: one JSON document for one run of an agent.
//!
//! The document names no conversation, and it is written anew with every step. A run is known by its history up to its
//! first answer, that of a resumed run up to the first answer behind the last resume point; so it stays the same session
//! while it grows. All runs that continue each other are one thread. Their totals go on over the whole chain: of each run
//! counts what it adds to those before it that are known.

mod model;
#[cfg(test)]
mod tests;
mod validate;
mod writing;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::blocks::note;
use super::codec::{Certainty, Codec, Probe};
use super::emit::Emit;
use super::fact::{
    CallFact, CallId, ContextFact, ContextReason, Kept, Place, RepeatKey, RowFact, RowNo,
    SessionFact, SessionNo,
};
use super::quarantine::{BadClass, BadLine};
use super::scan;
use super::source::Source;
use super::write::Writer;
use crate::{
    MessageUsage, Result, SessionRef, TranscriptMessage, TranscriptMeta, TurnUsage, UsageCostSource,
};

pub use model::{Compaction, ResumeInfo, SCHEMA_VERSION, Seen, Trajectory, is_notice};
pub use validate::{Broken, Checks, Rule};

/// The codec.
#[derive(Debug, Clone, Copy)]
pub struct Checkpoint;

const NAME: &str = "checkpoint";

/// The largest document that is read.
const MAX_BYTES: u64 = 1 << 30;

impl Codec for Checkpoint {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> u32 {
        1
    }

    fn detect(&self, probe: &Probe<'_>) -> Option<Certainty> {
        if let Ok(scan::Parsed {
            value: Value::Object(document),
            ..
        }) = scan::parse(probe.head())
        {
            return is_document(&document).then_some(Certainty::Sure);
        }
        // It is longer than what is looked at.
        let begins = probe.head().trim_ascii_start().starts_with(b"{");
        let marks = ["\"read_only\"", "\"task\"", "\"messages\""];
        let cut = begins && marks.iter().all(|mark| probe.holds(mark));
        cut.then_some(Certainty::Likely)
    }

    fn read(&self, source: &mut Source<'_>, emit: &mut Emit<'_>) -> Result<()> {
        let bytes = source.whole(MAX_BYTES)?;
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        let ends = |end: usize| text.get(end..).unwrap_or_default().trim_ascii().is_empty();
        let parsed = match scan::parse(text) {
            Ok(parsed) if ends(parsed.end) => parsed,
            Err(failure) if failure.cut => {
                bad(source, &bytes, BadClass::TornTail);
                return Ok(());
            }
            _ => {
                bad(source, &bytes, BadClass::Fragment);
                return Ok(());
            }
        };
        let lossy = parsed.lossy;
        let document = match parsed.value {
            Value::Object(document) if document.get("messages").is_some_and(Value::is_array) => {
                document
            }
            _ => {
                bad(source, &bytes, BadClass::WrongShape);
                return Ok(());
            }
        };
        let counts = source.counts_mut();
        counts.records = 1;
        counts.lossy = u64::from(lossy);
        let place = Place {
            length: bytes.len() as u64,
            ..Place::default()
        };
        drop(bytes);
        Reader::new(document, place, lossy).tell(emit)
    }

    fn writer(&self) -> Option<Box<dyn Writer>> {
        Some(Box::<writing::RunWriter>::default())
    }
}

fn is_document(value: &Map<String, Value>) -> bool {
    value.get("messages").is_some_and(Value::is_array)
        && ["exit_status", "schema_version", "tool_signature"]
            .iter()
            .any(|key| value.contains_key(*key))
}

/// Sets the whole source aside.
fn bad(source: &mut Source<'_>, bytes: &[u8], class: BadClass) {
    if !bytes.trim_ascii().is_empty() {
        let counts = source.counts_mut();
        counts.bad = 1;
        counts.bad_lines.push(BadLine {
            line: 1,
            offset: 0,
            length: bytes.len() as u64,
            class,
        });
    }
}

struct Reader {
    document: Map<String, Value>,
    messages: Vec<Value>,
    compactions: Vec<Compaction>,
    place: Place,
    lossy: bool,
    /// The rows of each message: the first, and how many.
    told: Vec<(RowNo, u64)>,
    /// Messages whose output was left out, and the row that stands for them.
    elided: BTreeMap<usize, RowNo>,
}

impl Reader {
    fn new(mut document: Map<String, Value>, place: Place, lossy: bool) -> Self {
        let mut take = |key: &str| match document.get_mut(key).map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        let messages = take("messages");
        let compactions = take("compactions");
        Self {
            document,
            messages,
            compactions: compactions
                .into_iter()
                .filter_map(|it| serde_json::from_value(it).ok())
                .collect(),
            place,
            lossy,
            told: Vec::new(),
            elided: BTreeMap::new(),
        }
    }

    fn text(&self, key: &str) -> String {
        let text = self.document.get(key).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    }

    fn count(&self, key: &str) -> u64 {
        self.document.get(key).and_then(Value::as_u64).unwrap_or(0)
    }

    /// The name of the run whose last resume point is the given message, and whose history is as long as given.
    fn name(&self, resumed_at: usize, length: usize) -> String {
        let mut hash = Sha256::new();
        for (at, message) in self.messages.iter().enumerate().take(length) {
            hash.update(message.to_string().as_bytes());
            hash.update([0]);
            let answer = message.get("role").and_then(Value::as_str) == Some("assistant");
            if answer && at >= resumed_at {
                break;
            }
        }
        hex(&hash.finalize(), 16)
    }

    /// By what its totals are known: those of the runs that it was resumed from are in them.
    fn total(&self, name: &str, thread: &str) -> CallId {
        let mut after = Vec::new();
        let mut info = self.document.get("resume");
        let mut end = self.messages.len();
        while let Some(point) = info {
            let message = point.get("message").and_then(Value::as_u64);
            let message = message.and_then(|at| usize::try_from(at).ok());
            // Each lies before the one that was told before it.
            let Some(message) = message.filter(|at| *at < end) else {
                break;
            };
            end = message;
            info = point.get("previous");
            let begun = info.and_then(|it| it.get("message")?.as_u64());
            let begun = begun.and_then(|at| usize::try_from(at).ok());
            after.push((self.name(begun.unwrap_or(0), end), end as u64));
        }
        CallId::Total {
            family: format!("checkpoint {thread}"),
            run: name.to_owned(),
            length: self.messages.len() as u64,
            after,
        }
    }

    /// The totals as the document has them.
    fn counters(&self) -> Value {
        let counters = self.document.iter().filter(|(key, _)| {
            matches!(
                key.as_str(),
                "steps"
                    | "cost"
                    | "input_tokens"
                    | "output_tokens"
                    | "cache_read_tokens"
                    | "cache_write_tokens"
            )
        });
        let counters = counters.map(|(key, value)| (key.clone(), value.clone()));
        Value::Object(counters.collect())
    }

    fn tell(mut self, emit: &mut Emit<'_>) -> Result<()> {
        let resume = self.document.get("resume");
        let resumed_at = resume.and_then(|it| it.get("message")?.as_u64());
        let resumed_at = resumed_at.and_then(|at| usize::try_from(at).ok());
        let length = self.messages.len();
        let name = self.name(resumed_at.unwrap_or(0), length);
        let thread = self.name(0, length);
        let total = self.total(&name, &thread);
        // The format has no times, and a session that is imported twice has to look the same.
        let mut meta = TranscriptMeta::new(NAME)
            .with_thread_id(&thread)
            .with_dispatcher(NAME)
            .with_created("")
            .with_updated("");
        meta.turn_count = usize::try_from(self.count("steps")).unwrap_or(0);
        let model = self.text("model");
        if !model.is_empty() {
            meta = meta.with_model(&model);
        }
        let mut fact = SessionFact::new(SessionRef::root(&name), meta);
        fact.title = Some(self.text("task")).filter(|task| !task.is_empty());
        let mut attributes = self.document.clone();
        attributes.retain(|_, value| !value.is_null());
        fact.attributes = attributes;
        let session = emit.session(fact)?;
        if let Some(tools) = self.document.remove("tools") {
            let key = RepeatKey::of(&[name.as_bytes(), b"tools", tools.to_string().as_bytes()]);
            emit.tools(session, tools, self.place, key)?;
        }
        self.history(session, &name, emit)?;
        self.usage(session, total, &model, emit)
    }

    fn history(&mut self, session: SessionNo, name: &str, emit: &mut Emit<'_>) -> Result<()> {
        // A message is known by all that was said up to it, as two may be equal.
        let mut said = Sha256::new();
        said.update(name.as_bytes());
        let compactions = std::mem::take(&mut self.compactions);
        let mut due = compactions.iter().enumerate().peekable();
        let mut from = 0;
        for (at, message) in std::mem::take(&mut self.messages).into_iter().enumerate() {
            said.update(message.to_string().as_bytes());
            said.update([0]);
            let hash: [u8; 32] = said.clone().finalize().into();
            let key = RepeatKey::of(&[&hash]);
            let rows = match message {
                Value::Object(message) => validate::rows(message),
                other => vec![TranscriptMessage::new("unknown", other.to_string())],
            };
            let mut first = None;
            let mut count = 0;
            for (part, row) in (0..).zip(rows) {
                let no = emit.row(self.row(session, row, part, key))?;
                first = first.or(Some(no));
                count += 1;
            }
            self.told.push((first.unwrap_or(RowNo(0)), count));
            while let Some((number, compaction)) = due.next_if(|(_, it)| newest(it).max(from) <= at)
            {
                from = newest(compaction).max(from);
                self.compaction(session, name, number, compaction, emit)?;
            }
        }
        for (number, compaction) in due {
            self.compaction(session, name, number, compaction, emit)?;
        }
        Ok(())
    }

    fn row(
        &self,
        session: SessionNo,
        message: TranscriptMessage,
        part: u32,
        key: RepeatKey,
    ) -> RowFact {
        RowFact {
            session,
            message,
            uuid: None,
            ts: String::new(),
            iteration: None,
            place: self.place.part(part),
            key,
            revises: None,
            cache_write: 0,
            lossy: self.lossy,
        }
    }

    fn compaction(
        &mut self,
        session: SessionNo,
        name: &str,
        number: usize,
        compaction: &Compaction,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let metadata = serde_json::to_value(compaction).unwrap_or(Value::Null);
        let text = metadata.to_string();
        let key = RepeatKey::of(&[
            name.as_bytes(),
            b"compaction",
            &(number as u64).to_le_bytes(),
            text.as_bytes(),
        ]);
        let left_out: BTreeSet<usize> = compaction
            .elided
            .iter()
            .filter_map(|it| usize::try_from(*it).ok())
            .collect();
        let mut rows = Vec::new();
        let mut part = 1;
        for index in compaction.view.iter().flatten() {
            let Ok(at) = usize::try_from(*index) else {
                let mut row = TranscriptMessage::user(compaction.summary.as_str());
                note(&mut row, "summary", true);
                let (_, kept) = emit.new_row(self.row(session, row, part, key));
                part += 1;
                rows.push(kept);
                continue;
            };
            let Some((first, count)) = self.told.get(at).copied() else {
                continue;
            };
            if let Some(no) = self.elided.get(&at) {
                rows.push(Kept::Row(*no));
            } else if left_out.contains(&at) && count == 1 {
                // The text that is sent in its place is not in the file.
                let mut row = TranscriptMessage::tool("");
                note(&mut row, "elided", at);
                let mut fact = self.row(session, row, part, key);
                fact.revises = Some(first);
                let (no, kept) = emit.new_row(fact);
                part += 1;
                self.elided.insert(at, no);
                rows.push(kept);
            } else {
                let last = first.0.saturating_add(count);
                rows.extend((first.0..last).map(|no| Kept::Row(RowNo(no))));
            }
        }
        emit.context(ContextFact {
            session,
            reason: ContextReason::Compaction,
            rows,
            metadata: Some(metadata),
            ts: String::new(),
            uuid: None,
            place: self.place,
            key,
        })
    }

    fn usage(
        &self,
        session: SessionNo,
        id: CallId,
        model: &str,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let cost = self.document.get("cost").and_then(Value::as_f64);
        let cost = cost.filter(|cost| cost.is_finite()).unwrap_or(0.0);
        let (input, output) = (self.count("input_tokens"), self.count("output_tokens"));
        if input == 0 && output == 0 && cost == 0.0 {
            return Ok(());
        }
        let source = if cost == 0.0 {
            UsageCostSource::Unknown
        } else {
            UsageCostSource::Estimated
        };
        let usage = MessageUsage {
            input,
            output,
            cached_input: self.count("cache_read_tokens"),
            cost_usd: cost,
            cost_source: Some(source),
            ..MessageUsage::default()
        };
        emit.call(CallFact {
            session,
            row: None,
            id,
            usage: TurnUsage {
                model: model.to_owned(),
                usage,
                ..TurnUsage::default()
            },
            cache_write: self.count("cache_write_tokens"),
            original: Some(self.counters()),
            place: self.place,
        })
    }
}

/// The newest message that a compaction's view has.
fn newest(compaction: &Compaction) -> usize {
    let view = compaction.view.iter().flatten();
    let newest = view.filter_map(|it| usize::try_from(*it).ok()).max();
    newest.unwrap_or(0)
}

fn hex(bytes: &[u8], count: usize) -> String {
    let mut text = String::new();
    for byte in bytes.iter().take(count) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
