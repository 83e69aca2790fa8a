//! By what it is kept that an image told more than this version knows.

use uuid::Uuid;

pub(in crate::store) const HEADER: &str = "header";

pub(in crate::store) fn stem(stem: &str) -> String {
    format!("stem {stem}")
}

pub(in crate::store) fn source(id: &str) -> String {
    format!("source {id}")
}

pub(in crate::store) fn transcript(stem: &str) -> String {
    format!("transcript {stem}")
}

pub(in crate::store) fn record(uuid: Uuid) -> String {
    format!("record {uuid}")
}

pub(in crate::store) fn repeat(key: &str) -> String {
    format!("repeat {key}")
}

pub(in crate::store) fn call(key: &str) -> String {
    format!("call {key}")
}

/// A fact of an unknown kind.
pub(in crate::store) fn other(number: u64) -> String {
    format!("other {number:016x}")
}

/// All facts of unknown kinds, in their order.
pub(in crate::store) fn others() -> std::ops::Range<&'static str> {
    "other ".."other!"
}
