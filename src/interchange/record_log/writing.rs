//! Facts → files of a record log.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read};

use uuid::Uuid;

use super::model::{BoundaryMeta, LogMessage, LogRecord};
use super::rows::{blocks_of, counters, joins, role_of};
use crate::interchange::fact::{ContextFact, Fact, Kept, RepeatKey, RowFact, RowNo, SessionFact};
use crate::interchange::write::{Target, UsageKept, Writer, failed, plain_name, put_line};
use crate::{Result, TranscriptMessage};

/// The time of a record that has none.
const NO_TIME: &str = "0001-01-01T00:00:00Z";

/// Writes the sessions that it is told of, each into its file.
#[derive(Default)]
pub(super) struct LogWriter {
    /// Keys of root sessions by the stems of their first generations.
    roots: HashMap<String, String>,
    file: String,
    session: String,
    agent: String,
    last_uuid: String,
    /// Whether what stands in the file does not end in a LF.
    unended: bool,
    /// Rows of the session, which a new context may name.
    rows: HashMap<RowNo, TranscriptMessage>,
    /// A message that more rows may belong to, and its last row.
    open: Option<(LogRecord, TranscriptMessage)>,
}

impl LogWriter {
    fn begin(&mut self, fact: &SessionFact) -> Result<()> {
        let session = &fact.session;
        self.rows.clear();
        self.last_uuid.clear();
        self.unended = false;
        let own = match (&session.agent_id, session.is_subagent()) {
            (None, _) => session.session_key.clone(),
            // An agent's scope of a conversation is a session of its own.
            (Some(_), _) => session.base_stem(),
        };
        plain_name(&own)?;
        match session.ancestors().first() {
            None => {
                self.roots.insert(session.base_stem(), own.clone());
                self.file = format!("{own}.jsonl");
                (self.session, self.agent) = (own, String::new());
            }
            Some(root) => {
                let (root, _) = crate::session::split_generation(root);
                let top = self.roots.get(root).map_or(root, String::as_str).to_owned();
                plain_name(&top)?;
                self.file = format!("{top}/subagents/agent-{own}.jsonl");
                (self.session, self.agent) = (top, own);
            }
        }
        Ok(())
    }

    fn record(&self, kind: &str, uuid: Uuid, ts: &str) -> LogRecord {
        let ts = ts.parse::<jiff::Timestamp>();
        LogRecord {
            uuid: uuid.simple().to_string(),
            session_id: self.session.clone(),
            agent_id: self.agent.clone(),
            is_sidechain: !self.agent.is_empty(),
            timestamp: ts.map_or_else(|_| NO_TIME.to_owned(), |ts| ts.to_string()),
            kind: kind.to_owned(),
            ..LogRecord::default()
        }
    }

    fn put(&mut self, mut record: LogRecord, target: &mut dyn Target) -> Result<()> {
        record.parent_uuid = std::mem::replace(&mut self.last_uuid, record.uuid.clone());
        let line = record.to_line()?;
        let unended = std::mem::take(&mut self.unended);
        put_line(target.file(&self.file)?, line, unended)
    }

    fn close(&mut self, target: &mut dyn Target) -> Result<()> {
        match self.open.take() {
            Some((record, _)) => self.put(record, target),
            None => Ok(()),
        }
    }

    /// Adds a row to the message that it belongs to.
    fn row(
        &mut self,
        row: &TranscriptMessage,
        cache_write: u64,
        (uuid, ts): (Uuid, &str),
        target: &mut dyn Target,
    ) -> Result<()> {
        let Some(role) = role_of(row) else {
            return Ok(());
        };
        if let Some((record, last)) = &mut self.open
            && joins(row, last)
            && let Some(message) = &mut record.message
            && message.role == role
        {
            message.content.extend(blocks_of(row));
            if let Some(more) = counters(row, cache_write) {
                record.usage.get_or_insert_default().add(&more);
            }
            last.clone_from(row);
            return Ok(());
        }
        self.close(target)?;
        let mut record = self.record("message", uuid, ts);
        record.message = Some(LogMessage {
            role: role.to_owned(),
            content: blocks_of(row),
        });
        record.usage = counters(row, cache_write);
        self.open = Some((record, row.clone()));
        Ok(())
    }

    fn context(&mut self, context: ContextFact, target: &mut dyn Target) -> Result<()> {
        self.close(target)?;
        let meta = context
            .metadata
            .and_then(|it| serde_json::from_value::<BoundaryMeta>(it).ok())
            .unwrap_or_default();
        let uuid = context.uuid.unwrap_or_else(|| made(context.key, 0));
        let mut boundary = self.record("boundary", uuid, &context.ts);
        boundary.boundary = Some(meta.clone());
        self.put(boundary, target)?;
        // What the working set repeats needs ids of its own, the same in every export.
        let seed = RepeatKey::of(&[uuid.as_bytes()]);
        let mut marker = self.record("message", made(seed, 1), &context.ts);
        marker.message = Some(LogMessage::marker(&meta));
        self.put(marker, target)?;
        for (at, kept) in (2..).zip(context.rows) {
            let (row, cache_write, uuid, ts) = match kept {
                Kept::Row(no) => {
                    let Some(mut row) = self.rows.get(&no).cloned() else {
                        continue;
                    };
                    // It was counted where it first stood.
                    row.turn_usage = None;
                    (row, 0, None, context.ts.clone())
                }
                Kept::New(no, fact) => {
                    self.rows.insert(no, fact.message.clone());
                    (fact.message, fact.cache_write, fact.uuid, fact.ts)
                }
            };
            let uuid = uuid.unwrap_or_else(|| made(seed, at));
            self.row(&row, cache_write, (uuid, &ts), target)?;
        }
        self.close(target)
    }

    fn note(&mut self, fact: Fact) {
        match fact {
            Fact::Row(no, row) => {
                self.rows.insert(no, row.message);
            }
            Fact::Context(context) => {
                for kept in context.rows {
                    if let Kept::New(no, row) = kept {
                        self.rows.insert(no, row.message);
                    }
                }
            }
            _ => {}
        }
    }
}

impl Writer for LogWriter {
    fn write(&mut self, fact: Fact, target: &mut dyn Target) -> Result<()> {
        match fact {
            Fact::Session(_, session) => {
                self.close(target)?;
                self.begin(&session)
            }
            Fact::Row(no, row) => {
                let RowFact {
                    message,
                    uuid,
                    ts,
                    key,
                    cache_write,
                    ..
                } = *row;
                let uuid = uuid.unwrap_or_else(|| made(key, 0));
                self.row(&message, cache_write, (uuid, &ts), target)?;
                self.rows.insert(no, message);
                Ok(())
            }
            Fact::Context(context) => self.context(*context, target),
            _ => Ok(()),
        }
    }

    fn usage_kept(&self) -> UsageKept {
        UsageKept::Tokens
    }

    fn takes_originals(&self) -> bool {
        true
    }

    fn original(&mut self, bytes: &mut dyn Read, target: &mut dyn Target) -> Result<bool> {
        self.close(target)?;
        let file = target.file(&self.file)?;
        let mut bytes = BufReader::new(bytes);
        let mut line = Vec::new();
        let mut last = LogRecord::default();
        loop {
            line.clear();
            if bytes.read_until(b'\n', &mut line).map_err(failed)? == 0 {
                break;
            }
            file.write_all(&line).map_err(failed)?;
            self.unended = !line.ends_with(b"\n");
            if let Ok(record) = serde_json::from_slice(&line) {
                last = record;
            }
        }
        self.last_uuid = last.uuid;
        Ok(true)
    }

    fn known(&mut self, fact: Fact) {
        self.note(fact);
    }

    fn finish(&mut self, target: &mut dyn Target) -> Result<()> {
        self.close(target)
    }
}

/// An id for a record that has none.
fn made(key: RepeatKey, at: u64) -> Uuid {
    let RepeatKey(bytes) = RepeatKey::of(&[&key.0, &at.to_le_bytes()]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}
