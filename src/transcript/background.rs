//! Rows that arrive outside a turn, such as the report of a scheduled job, each at most once.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The key of a row's `extra_metadata` under which the origin of a background row is kept.
pub const BACKGROUND_METADATA_KEY: &str = "background_origin";

/// Where a background row came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundOrigin {
    /// The key that makes a second append of the same row a duplicate, compared as it is.
    pub idempotency_key: String,
    /// What the host says of the origin.
    #[serde(default)]
    pub provenance: Value,
}

impl BackgroundOrigin {
    /// The origin in a row's metadata; `None` when there is none, or what is there is not one.
    pub(crate) fn in_metadata(extra_metadata: Option<&Value>) -> Option<Self> {
        let origin = extra_metadata?.get(BACKGROUND_METADATA_KEY)?;
        // Serde would also read an array as a struct.
        if !origin.is_object() {
            return None;
        }
        Self::deserialize(origin).ok()
    }
}

/// A request to append a row to a session outside a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundAppend {
    /// The key that makes a second append of the same row a duplicate. It must not be blank, and is compared as it is.
    pub idempotency_key: String,
    /// What the host says of the origin.
    #[serde(default)]
    pub provenance: Value,
    /// The head generation that the caller has seen; with another head nothing is appended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_generation: Option<u32>,
}

impl BackgroundAppend {
    /// A request to append to whatever generation is the head.
    pub fn new(idempotency_key: impl Into<String>, provenance: Value) -> Self {
        Self {
            idempotency_key: idempotency_key.into(),
            provenance,
            expected_generation: None,
        }
    }

    /// Appends only if the head is this generation.
    #[must_use]
    pub fn expecting_generation(mut self, generation: u32) -> Self {
        self.expected_generation = Some(generation);
        self
    }
}

/// What came of a [`BackgroundAppend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackgroundAppendOutcome {
    /// The row was appended.
    Appended {
        /// The head generation, which has it now.
        generation: u32,
    },
    /// A row of the live context holds the key already; nothing was appended.
    Duplicate {
        /// The head generation, which has that row.
        generation: u32,
    },
    /// The head is not the generation that was expected; nothing was appended.
    StaleGeneration {
        /// The generation that was expected.
        expected: u32,
        /// The head generation.
        head: u32,
    },
    /// Nothing was ever written to the session; nothing was created.
    NoSession,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, json, to_string};

    use super::*;

    #[test]
    fn an_origin_is_read_from_a_rows_metadata() {
        let origin = |provenance| {
            Some(BackgroundOrigin {
                idempotency_key: "run-9".to_owned(),
                provenance,
            })
        };
        let read = |value| BackgroundOrigin::in_metadata(Some(&value));
        assert_eq!(
            read(json!({"other": 1, "background_origin": {
                "idempotency_key": "run-9", "provenance": {"n": 1.5}, "unknown": true
            }})),
            origin(json!({"n": 1.5}))
        );
        assert_eq!(
            read(json!({"background_origin": {"idempotency_key": "run-9"}})),
            origin(Value::Null)
        );
    }

    #[test]
    fn a_malformed_origin_is_none() {
        assert_eq!(BackgroundOrigin::in_metadata(None), None);
        for metadata in [
            json!(null),
            json!([]),
            json!("background_origin"),
            json!({}),
            json!({"background_origin": null}),
            json!({"background_origin": "run-9"}),
            json!({"background_origin": ["run-9", null]}),
            json!({"background_origin": {"provenance": 1}}),
            json!({"background_origin": {"idempotency_key": 9}}),
        ] {
            assert_eq!(
                BackgroundOrigin::in_metadata(Some(&metadata)),
                None,
                "{metadata}"
            );
        }
    }

    #[test]
    fn an_origin_always_serializes_its_provenance() {
        let origin = BackgroundOrigin {
            idempotency_key: "k".to_owned(),
            provenance: Value::Null,
        };
        let json = r#"{"idempotency_key":"k","provenance":null}"#;
        assert_eq!(to_string(&origin).unwrap(), json);
        assert_eq!(from_str::<BackgroundOrigin>(json).unwrap(), origin);
    }

    #[test]
    fn a_request_expects_a_generation_only_when_told_to() {
        let append = BackgroundAppend::new(" k ", json!(1));
        assert_eq!(append.idempotency_key, " k ");
        assert_eq!(append.expected_generation, None);
        assert_eq!(
            to_string(&append).unwrap(),
            r#"{"idempotency_key":" k ","provenance":1}"#
        );
        let append = append.expecting_generation(0);
        let json = r#"{"idempotency_key":" k ","provenance":1,"expected_generation":0}"#;
        assert_eq!(to_string(&append).unwrap(), json);
        assert_eq!(from_str::<BackgroundAppend>(json).unwrap(), append);
    }

    #[test]
    fn every_outcome_reads_back_equal() {
        for (outcome, json) in [
            (
                BackgroundAppendOutcome::Appended { generation: 1 },
                r#"{"appended":{"generation":1}}"#,
            ),
            (
                BackgroundAppendOutcome::Duplicate { generation: 2 },
                r#"{"duplicate":{"generation":2}}"#,
            ),
            (
                BackgroundAppendOutcome::StaleGeneration {
                    expected: 1,
                    head: 2,
                },
                r#"{"stale_generation":{"expected":1,"head":2}}"#,
            ),
            (BackgroundAppendOutcome::NoSession, r#""no_session""#),
        ] {
            assert_eq!(to_string(&outcome).unwrap(), json);
            assert_eq!(from_str::<BackgroundAppendOutcome>(json).unwrap(), outcome);
        }
    }
}
