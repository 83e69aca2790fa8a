//! Facts → classic files.

use std::collections::HashMap;
use std::io::Read;

use serde::Serialize;
use serde_json::Value;

use super::line::{Line, MetaLine};
use super::markdown::HEAD;
use crate::interchange::fact::{Fact, Kept, RowFact, RowNo};
use crate::interchange::write::{Target, UsageKept, Writer, failed, plain_name, put_line};
use crate::{Error, Result, SessionRef, TranscriptMessage, TranscriptMeta};

/// So much of an original is held at once.
const PART_BYTES: u64 = 64 << 10;

/// Writes each session into its file.
#[derive(Default)]
pub(super) struct ClassicWriter {
    file: String,
    /// The header, while it is still to be written.
    meta: Option<TranscriptMeta>,
    unended: bool,
    /// The name of the file that the session was imported from, if that is not its stem.
    raw: Option<String>,
    /// Rows of the session, which a new context repeats.
    rows: HashMap<RowNo, RowFact>,
    /// The session that they are of.
    session: Option<SessionRef>,
    /// Whether the file has rows.
    begun: bool,
    /// The header as it is now, for behind an original.
    newest: Option<TranscriptMeta>,
    /// Whether something was written behind an original.
    grown: bool,
}

#[derive(Serialize)]
struct Headed {
    #[serde(rename = "_meta")]
    meta: MetaLine,
}

#[derive(Serialize)]
struct CompactionLine {
    kind: &'static str,
    replacement: Vec<Line>,
    #[serde(skip_serializing_if = "String::is_empty")]
    ts: String,
}

#[derive(Serialize)]
struct ToolsLine {
    kind: &'static str,
    tools: Value,
}

impl ClassicWriter {
    fn put(&mut self, line: &impl Serialize, target: &mut dyn Target) -> Result<()> {
        let text = serde_json::to_string(line).map_err(Error::other)?;
        self.grown = true;
        let unended = std::mem::take(&mut self.unended);
        put_line(target.file(&self.file)?, text, unended)
    }

    fn head(&mut self, target: &mut dyn Target) -> Result<()> {
        match self.meta.take() {
            Some(meta) => {
                let meta = MetaLine::of(&meta);
                self.put(&Headed { meta }, target)
            }
            None => Ok(()),
        }
    }

    /// Behind what was written after an original stands the header as it is now: the last one of a file counts.
    fn end(&mut self, target: &mut dyn Target) -> Result<()> {
        self.head(target)?;
        match self.newest.take().filter(|_| self.grown) {
            Some(meta) => {
                let meta = MetaLine::of(&meta);
                self.put(&Headed { meta }, target)
            }
            None => Ok(()),
        }
    }

    fn note(&mut self, fact: Fact) {
        match fact {
            Fact::Row(no, row) => {
                self.rows.insert(no, *row);
            }
            Fact::Context(context) => {
                for kept in context.rows {
                    if let Kept::New(no, row) = kept {
                        self.rows.insert(no, *row);
                    }
                }
            }
            _ => {}
        }
    }
}

fn line_of(row: &RowFact) -> Line {
    Line::of(&row.message, &row.ts, row.iteration)
}

impl Writer for ClassicWriter {
    fn write(&mut self, fact: Fact, target: &mut dyn Target) -> Result<()> {
        if let Fact::Session(_, session) = fact {
            self.end(target)?;
            let stem = session.session.session_id();
            plain_name(&stem)?;
            self.file = format!("session_raw/{stem}.jsonl");
            let key = session.session.session_key.as_str();
            let root = session.session.agent_id.is_none() && !session.session.is_subagent();
            let raw = root && session.meta.thread_id.as_deref() != Some(key);
            self.raw = (raw && plain_name(key).is_ok()).then(|| match session.session.generation {
                0 => key.to_owned(),
                generation => format!("{key}.g{generation}"),
            });
            let first = session.session.first_generation();
            if self.session.as_ref() != Some(&first) {
                // A later generation begins with rows of the one before.
                self.rows.clear();
                self.session = Some(first);
            }
            self.unended = false;
            self.begun = false;
            self.newest = None;
            self.meta = Some(session.meta);
            return Ok(());
        }
        self.head(target)?;
        match &fact {
            Fact::Row(_, row) => self.put(&line_of(row), target)?,
            Fact::Context(context) => {
                let rows = context.rows.iter().filter_map(|kept| match kept {
                    Kept::Row(no) => self.rows.get(no),
                    Kept::New(_, row) => Some(row.as_ref()),
                });
                let replacement: Vec<Line> = rows.map(line_of).collect();
                if self.begun {
                    let line = CompactionLine {
                        kind: "compaction",
                        replacement,
                        ts: context.ts.clone(),
                    };
                    self.put(&line, target)?;
                } else {
                    // What a file begins with replaces nothing.
                    for line in replacement {
                        self.put(&line, target)?;
                    }
                }
            }
            Fact::Tools { tools, .. } => {
                let line = ToolsLine {
                    kind: "tools",
                    tools: tools.clone(),
                };
                self.put(&line, target)?;
            }
            Fact::Partial {
                partial,
                request_id,
                ts,
                ..
            } => {
                let mut row = TranscriptMessage::assistant(partial.content.as_str());
                row.interrupted = true;
                row.request_id.clone_from(request_id);
                let mut line = Line::of(&row, ts, partial.iteration);
                line.reasoning_content
                    .clone_from(&partial.reasoning_content);
                self.put(&line, target)?;
            }
            _ => {}
        }
        self.begun |= matches!(&fact, Fact::Row(..) | Fact::Context(_));
        self.note(fact);
        Ok(())
    }

    fn splits_generations(&self) -> bool {
        true
    }

    fn usage_kept(&self) -> UsageKept {
        UsageKept::Whole
    }

    fn takes_originals(&self) -> bool {
        true
    }

    fn original(&mut self, bytes: &mut dyn Read, target: &mut dyn Target) -> Result<bool> {
        let mut buffer = Vec::new();
        let mut part = |buffer: &mut Vec<u8>| {
            buffer.clear();
            (&mut *bytes)
                .take(PART_BYTES)
                .read_to_end(buffer)
                .map_err(failed)
        };
        part(&mut buffer)?;
        // The older format is not written any more.
        if buffer.trim_ascii_start().starts_with(HEAD.as_bytes()) {
            return Ok(false);
        }
        if let Some(name) = self.raw.take() {
            self.file = format!("session_raw/{name}.jsonl");
        }
        let file = target.file(&self.file)?;
        while let Some(last) = buffer.last() {
            self.unended = *last != b'\n';
            file.write_all(&buffer).map_err(failed)?;
            part(&mut buffer)?;
        }
        self.newest = self.meta.take();
        self.grown = false;
        self.begun = true;
        Ok(true)
    }

    fn known(&mut self, fact: Fact) {
        self.note(fact);
    }

    fn finish(&mut self, target: &mut dyn Target) -> Result<()> {
        self.end(target)
    }
}
