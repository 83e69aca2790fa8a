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
