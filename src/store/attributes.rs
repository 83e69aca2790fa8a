//! What sources tell of a session beside its header.

use serde_json::{Map, Value};

use super::record::json;
use crate::{Error, Result};

/// What the files that a session was imported from tell of it beside its header.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes {
    /// The call of the parent that spawned it.
    pub spawned_by: Option<String>,
    /// What else is known, under the names that the format has for it: working directory, branch, version of the tool.
    pub more: Map<String, Value>,
}

const SPAWNED_BY: &str = "spawned_by";
const MORE: &str = "attributes";

impl Attributes {
    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spawned_by.is_none() && self.more.is_empty()
    }

    /// Adds what is told later: it stands for what was told of the same before. Answers whether that changes anything.
    pub(super) fn take(&mut self, later: Self) -> bool {
        let mut changed = false;
        if later.spawned_by.is_some() && later.spawned_by != self.spawned_by {
            self.spawned_by = later.spawned_by;
            changed = true;
        }
        for (key, value) in later.more {
            if self.more.get(&key) != Some(&value) {
                self.more.insert(key, value);
                changed = true;
            }
        }
        changed
    }

    /// As it is stored: JSON, and on a second line its checksum. Stores of before have no second line.
    pub(super) fn to_text(&self) -> String {
        let mut whole = Map::new();
        if let Some(call) = &self.spawned_by {
            whole.insert(SPAWNED_BY.to_owned(), call.as_str().into());
        }
        if !self.more.is_empty() {
            whole.insert(MORE.to_owned(), Value::Object(self.more.clone()));
        }
        let text = Value::Object(whole).to_string();
        let crc = crc32fast::hash(text.as_bytes());
        format!("{text}\n{crc:08x}")
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let text = match text.split_once('\n') {
            None => text,
            Some((text, crc)) if crc == format!("{:08x}", crc32fast::hash(text.as_bytes())) => text,
            Some(_) => {
                return Err(Error::Corrupted {
                    what: "what sources told of a session".to_owned(),
                    at: "its checksum does not match".to_owned(),
                });
            }
        };
        let mut whole = match json(text)? {
            Value::Object(whole) => whole,
            _ => Map::new(),
        };
        Ok(Self {
            spawned_by: match whole.remove(SPAWNED_BY) {
                Some(Value::String(call)) => Some(call),
                _ => None,
            },
            more: match whole.remove(MORE) {
                Some(Value::Object(more)) => more,
                _ => Map::new(),
            },
        })
    }
}
