//! A log, and what is read from it: the live context and the display projection.

use uuid::Uuid;

use crate::turn::background_origin;
use crate::{
    CompactionMarker, DisplayMessage, DisplayRecord, DisplaySessionTranscript, SessionTranscript,
    TranscriptMessage, TranscriptMeta, UsageRecord,
};
use jiff::Timestamp;
use serde_json::Value;

/// A row as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredRow {
    pub(crate) uuid: Uuid,
    /// The row as a read returns it.
    pub(crate) message: TranscriptMessage,
    /// The step stamp.
    pub(crate) iteration: Option<u32>,
    /// The time of the step stamp.
    pub(crate) ts: Option<String>,
    /// The time of the write, kept for rows of `append`, `append_background` and partials alone.
    pub(crate) written: Option<String>,
    pub(crate) revises: Option<Uuid>,
}

impl StoredRow {
    /// The row as the display shows it.
    pub(crate) fn display(&self) -> DisplayMessage {
        let message = &self.message;
        let usage = message.turn_usage.as_ref();
        let failure = message
            .tool_failure
            .as_ref()
            .filter(|failure| failure.failed);
        let usage_ts = usage.map(|usage| &usage.ts).filter(|ts| !ts.is_empty());
        let usage_iteration = usage.map(|usage| usage.iteration).filter(|&n| n > 0);
        DisplayMessage {
            interrupted: message.interrupted,
            request_id: message.request_id.clone(),
            iteration: self.iteration.or(usage_iteration),
            ts: self
                .ts
                .as_ref()
                .or(usage_ts)
                .or(self.written.as_ref())
                .cloned(),
            turn_usage: message.turn_usage.clone(),
            reasoning_content: reasoning(message),
            failure: failure.is_some(),
            failure_detail: failure.and_then(|failure| failure.detail.clone()),
            background: background_origin(message),
            uuid: self.uuid,
            revises: self.revises,
            message: message.clone(),
        }
    }
}

/// What the model reasoned: the row's metadata say it first, then the envelope it was lifted from, then its usage.
fn reasoning(message: &TranscriptMessage) -> Option<String> {
    let metadata = message.extra_metadata.as_ref();
    let noted = metadata.and_then(|metadata| metadata.get("reasoning_content")?.as_str());
    let used = || message.turn_usage.as_ref()?.reasoning_content.clone();
    noted
        .map(str::to_owned)
        .or_else(|| message.embedded_reasoning())
        .or_else(used)
}

/// One entry of a log that is kept as values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Entry {
    /// The header from here on.
    Meta(TranscriptMeta),
    /// A row, or a partial.
    Row(StoredRow),
    /// The live context is replaced. Rows that were stored before stand in the replacement as they were stored.
    Compaction {
        uuid: Uuid,
        replacement: Vec<StoredRow>,
        written: String,
        request_id: Option<String>,
        metadata: Option<Value>,
    },
    /// A usage that stands on no row.
    Usage(UsageRecord),
    /// The tools from here on.
    Tools(Value),
}

/// The live context: what replay of the log gives.
pub(crate) fn live_context(log: &[Entry]) -> Vec<&StoredRow> {
    let mut context = Vec::new();
    for entry in log {
        match entry {
            Entry::Row(row) => context.push(row),
            Entry::Compaction { replacement, .. } => context = replacement.iter().collect(),
            Entry::Meta(_) | Entry::Usage(_) | Entry::Tools(_) => {}
        }
    }
    context.retain(|row| !row.message.interrupted);
    context
}

/// The newest header; `None` of a log that was never written.
pub(crate) fn newest_meta(log: &[Entry]) -> Option<&TranscriptMeta> {
    log.iter().rev().find_map(|entry| match entry {
        Entry::Meta(meta) => Some(meta),
        _ => None,
    })
}

/// What the model would be sent now; `None` of a log that was never written.
pub(crate) fn session(log: &[Entry]) -> Option<SessionTranscript> {
    Some(SessionTranscript {
        meta: newest_meta(log)?.clone(),
        messages: live_context(log)
            .iter()
            .map(|row| row.message.clone())
            .collect(),
        tools: log.iter().rev().find_map(|entry| match entry {
            Entry::Tools(tools) => Some(tools.clone()),
            _ => None,
        }),
    })
}

/// What a person is shown; `None` of a log that was never written.
pub(crate) fn display(log: &[Entry]) -> Option<DisplaySessionTranscript> {
    let mut display = DisplaySessionTranscript {
        meta: newest_meta(log)?.clone(),
        records: Vec::new(),
        unattached: Vec::new(),
    };
    for entry in log {
        match entry {
            Entry::Row(row) => display
                .records
                .push(DisplayRecord::Message(Box::new(row.display()))),
            Entry::Compaction {
                uuid,
                replacement,
                written,
                request_id,
                metadata,
            } => {
                display
                    .records
                    .push(DisplayRecord::Compaction(CompactionMarker {
                        uuid: *uuid,
                        replacement: replacement.iter().map(StoredRow::display).collect(),
                        ts: Some(written.clone()),
                        request_id: request_id.clone(),
                        metadata: metadata.clone(),
                    }));
            }
            Entry::Usage(record) => display.unattached.push(record.clone()),
            Entry::Meta(_) | Entry::Tools(_) => {}
        }
    }
    Some(display)
}

/// A time of writing, in microseconds since the Unix epoch, as the display shows it: RFC 3339 in UTC.
pub(crate) fn record_time(micros: i64) -> String {
    Timestamp::from_microsecond(micros)
        .unwrap_or_default()
        .to_string()
}
