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
    Row(Box<StoredRow>),
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
            Entry::Row(row) => context.push(row.as_ref()),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::TurnUsage;

    fn row(number: u128, message: TranscriptMessage) -> StoredRow {
        StoredRow {
            uuid: Uuid::from_u128(number),
            message,
            iteration: None,
            ts: None,
            written: None,
            revises: None,
        }
    }

    fn user(number: u128) -> StoredRow {
        row(number, TranscriptMessage::user(number.to_string()))
    }

    fn partial(number: u128) -> StoredRow {
        let message = TranscriptMessage {
            interrupted: true,
            ..TranscriptMessage::assistant("half")
        };
        row(number, message)
    }

    fn compaction(number: u128, replacement: Vec<StoredRow>) -> Entry {
        Entry::Compaction {
            uuid: Uuid::from_u128(number),
            replacement,
            written: record_time(0),
            request_id: None,
            metadata: None,
        }
    }

    fn uuids(rows: &[&StoredRow]) -> Vec<u128> {
        rows.iter().map(|row| row.uuid.as_u128()).collect()
    }

    #[test]
    fn a_compaction_replaces_the_context_and_partials_are_never_in_it() {
        let log = [
            Entry::Row(Box::new(user(1))),
            Entry::Row(Box::new(partial(2))),
            Entry::Row(Box::new(user(3))),
            compaction(4, vec![user(3), partial(5), user(6)]),
            Entry::Row(Box::new(user(7))),
        ];
        assert_eq!(uuids(&live_context(&log[..3])), [1, 3]);
        assert_eq!(uuids(&live_context(&log)), [3, 6, 7]);
    }

    #[test]
    fn the_display_shows_everything_in_the_order_of_the_log() {
        let meta = |name| Entry::Meta(TranscriptMeta::new(name));
        let log = [
            meta("old"),
            Entry::Row(Box::new(user(1))),
            Entry::Row(Box::new(partial(2))),
            compaction(3, vec![user(4)]),
            meta("new"),
        ];
        let display = display(&log).unwrap();
        assert_eq!(display.meta.agent_name, "new");
        let shown: Vec<_> = display
            .records
            .iter()
            .map(|record| match record {
                DisplayRecord::Message(row) => row.uuid.as_u128(),
                DisplayRecord::Compaction(marker) => {
                    assert_eq!(marker.ts.as_deref(), Some("1970-01-01T00:00:00Z"));
                    marker.uuid.as_u128()
                }
            })
            .collect();
        assert_eq!(shown, [1, 2, 3]);
    }

    #[test]
    fn the_last_tools_and_header_are_in_force_and_an_unwritten_log_is_none() {
        let log = [
            Entry::Meta(TranscriptMeta::new("a")),
            Entry::Tools(json!(1)),
            Entry::Tools(json!(2)),
            compaction(1, Vec::new()),
        ];
        let read = session(&log).unwrap();
        assert_eq!(read.tools, Some(json!(2)));
        assert_eq!(read.messages, []);
        assert_eq!(session(&[]), None);
        assert_eq!(display(&[]), None);
    }

    #[test]
    fn a_row_s_time_is_its_stamp_s_then_its_usage_s_then_the_write_s() {
        let used = TurnUsage {
            ts: "usage".to_owned(),
            iteration: 4,
            ..TurnUsage::default()
        };
        let mut row = row(1, TranscriptMessage::assistant("a").with_turn_usage(used));
        row.iteration = Some(2);
        row.ts = Some("stamp".to_owned());
        row.written = Some("write".to_owned());
        let shown = row.display();
        assert_eq!(
            (shown.ts.as_deref(), shown.iteration),
            (Some("stamp"), Some(2))
        );
        (row.ts, row.iteration) = (None, None);
        let shown = row.display();
        assert_eq!(
            (shown.ts.as_deref(), shown.iteration),
            (Some("usage"), Some(4))
        );
        row.message.turn_usage = Some(TurnUsage::default());
        let shown = row.display();
        assert_eq!(
            (shown.ts.as_deref(), shown.iteration),
            (Some("write"), None)
        );
        row.written = None;
        assert_eq!(row.display().ts, None);
    }

    #[test]
    fn reasoning_is_the_metadata_s_then_the_envelope_s_then_the_usage_s() {
        let envelope = json!({
            "content": "a",
            "reasoning_content": "envelope",
            "tool_calls": [{"id": "1", "name": "n", "arguments": "{}"}],
        });
        let used = TurnUsage {
            reasoning_content: Some("usage".to_owned()),
            ..TurnUsage::default()
        };
        let message = TranscriptMessage::from_legacy("assistant", envelope.to_string())
            .with_turn_usage(used)
            .with_extra_metadata(json!({"reasoning_content": "metadata"}));
        let shown =
            |message: &TranscriptMessage| row(1, message.clone()).display().reasoning_content;
        assert_eq!(shown(&message).as_deref(), Some("metadata"));
        let message = message.with_extra_metadata(json!({"reasoning_content": 5}));
        assert_eq!(shown(&message).as_deref(), Some("envelope"));
        let changed = TranscriptMessage {
            content: "another text".to_owned(),
            ..message
        };
        assert_eq!(shown(&changed).as_deref(), Some("usage"));
    }
}
