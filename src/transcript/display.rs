//! What a person is shown of a transcript: every row ever stored, in the order of the log.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::{BackgroundOrigin, TranscriptMessage, TranscriptMeta, TurnUsage};

/// A stored row with all that is known of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DisplayMessage {
    /// The row.
    pub message: TranscriptMessage,
    /// Whether it is the partial of an interrupted turn, which replay leaves out.
    pub interrupted: bool,
    /// The turn that the row belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The step of the agent's loop: the row's stamp, else its usage's where that was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iteration: Option<u32>,
    /// When, in RFC 3339: the row's step stamp, else its usage's, else for rows of `append`, background rows and
    /// partials the time of the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ts: Option<String>,
    /// The usage recorded with the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_usage: Option<TurnUsage>,
    /// What the model reasoned: from the row's metadata, else from the legacy text that it was lifted from, else from
    /// its usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Whether the row is the result of a call that failed.
    pub failure: bool,
    /// How the call failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_detail: Option<String>,
    /// Where a background row came from. The same object stays in the row's metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<BackgroundOrigin>,
    /// The record's id.
    pub uuid: Uuid,
    /// The record that this one is a revision of. The usage of a revision is not counted again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revises: Option<Uuid>,
}

/// A compaction, a replacement or a clearing of the live context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompactionMarker {
    /// The record's id.
    pub uuid: Uuid,
    /// The whole live context after it, rows that were stored before included.
    pub replacement: Vec<DisplayMessage>,
    /// When it was written, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ts: Option<String>,
    /// The turn that it belongs to; `None` for a replacement and a clearing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// What the host knew of the compaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// A usage that stands on no row. It counts in spend and is part of no context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// The record's id.
    pub uuid: Uuid,
    /// The usage.
    pub usage: TurnUsage,
    /// The turn that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// When, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ts: Option<String>,
}

/// One record of the display, in the order of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisplayRecord {
    /// A row.
    Message(Box<DisplayMessage>),
    /// A change of the whole live context.
    Compaction(CompactionMarker),
}

/// A whole transcript as a person is shown it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DisplaySessionTranscript {
    /// The newest header.
    pub meta: TranscriptMeta,
    /// Every row ever stored and every compaction, in the order of the log. A row that was first stored by a
    /// compaction stands in that compaction's replacement alone.
    pub records: Vec<DisplayRecord>,
    /// The usages that stand on no row, in the order of the log.
    pub unattached: Vec<UsageRecord>,
}

/// A stretch of the display, oldest record first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DisplaySlice {
    /// The newest header.
    pub meta: TranscriptMeta,
    /// The records, each with its sequence in its log.
    pub records: Vec<(u64, DisplayRecord)>,
    /// Whether there are records before the first of these.
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, json, to_string};

    use super::*;

    fn message() -> DisplayMessage {
        DisplayMessage {
            message: TranscriptMessage::user("hi"),
            interrupted: false,
            request_id: None,
            iteration: None,
            ts: None,
            turn_usage: None,
            reasoning_content: None,
            failure: false,
            failure_detail: None,
            background: None,
            uuid: Uuid::from_u128(7),
            revises: None,
        }
    }

    #[test]
    fn a_shown_row_leaves_out_what_is_not_known_of_it() {
        let row = to_string(&message().message).unwrap();
        assert_eq!(
            to_string(&message()).unwrap(),
            format!(
                r#"{{"message":{row},"interrupted":false,"failure":false,"uuid":"00000000-0000-0000-0000-000000000007"}}"#
            )
        );
    }

    #[test]
    fn a_display_reads_back_equal() {
        let full = DisplayMessage {
            request_id: Some("rq".to_owned()),
            iteration: Some(2),
            ts: Some("t".to_owned()),
            turn_usage: Some(TurnUsage::default()),
            reasoning_content: Some("hm".to_owned()),
            failure: true,
            failure_detail: Some("denied".to_owned()),
            background: Some(BackgroundOrigin {
                idempotency_key: "k".to_owned(),
                provenance: json!({"n": 1.5}),
            }),
            revises: Some(Uuid::from_u128(6)),
            ..message()
        };
        let marker = CompactionMarker {
            uuid: Uuid::from_u128(8),
            replacement: vec![full, message()],
            ts: Some("t".to_owned()),
            request_id: None,
            metadata: Some(json!({"trigger": "auto"})),
        };
        let records = vec![
            DisplayRecord::Message(Box::new(message())),
            DisplayRecord::Compaction(marker),
        ];
        let display = DisplaySessionTranscript {
            meta: TranscriptMeta::new("planner"),
            records: records.clone(),
            unattached: vec![UsageRecord {
                uuid: Uuid::from_u128(9),
                usage: TurnUsage::default(),
                request_id: None,
                ts: None,
            }],
        };
        let json = to_string(&display).unwrap();
        let back: DisplaySessionTranscript = from_str(&json).unwrap();
        assert_eq!(back, display);
        let slice = DisplaySlice {
            meta: display.meta,
            records: (4..).zip(records).collect(),
            more: true,
        };
        let json = to_string(&slice).unwrap();
        assert_eq!(from_str::<DisplaySlice>(&json).unwrap(), slice);
    }
}
