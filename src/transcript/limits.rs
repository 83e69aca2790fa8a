//! What a store refuses, checked before anything of a call is encoded or hashed.

use serde_json::Value;

use super::{TranscriptMessage, TranscriptMeta, TranscriptToolCall, TurnUsage};
use crate::error::{Error, Result};

/// The longest id, key, stem or role, in bytes.
pub(crate) const MAX_ID_BYTES: usize = 1 << 20;

/// The deepest nesting of JSON that is stored.
pub(crate) const MAX_NESTING: usize = 128;

/// The highest generation of a session.
pub(crate) const MAX_GENERATION: u32 = 4096;

/// The largest cost of one usage in US dollars, in either direction.
pub(crate) const MAX_COST_USD: f64 = 1e9;

/// Refuses an id that is too long.
pub(crate) fn check_id(what: &'static str, id: &str) -> Result<()> {
    if id.len() <= MAX_ID_BYTES {
        return Ok(());
    }
    Err(Error::InvalidId {
        what,
        reason: format!("{} bytes, the limit is {MAX_ID_BYTES}", id.len()),
    })
}

fn check_optional_id(what: &'static str, id: Option<&str>) -> Result<()> {
    id.map_or(Ok(()), |id| check_id(what, id))
}

/// Refuses JSON that is nested too deeply to be read back.
pub(crate) fn check_nesting(json: &Value) -> Result<()> {
    if !json_depth_exceeds(json, MAX_NESTING) {
        return Ok(());
    }
    Err(Error::TooLarge {
        what: "nesting",
        size: u64::try_from(json_depth(json)).unwrap_or(u64::MAX),
        limit: u64::try_from(MAX_NESTING).unwrap_or(u64::MAX),
    })
}

/// Whether JSON has more levels of arrays and objects than `max`. A scalar has none.
///
/// Does not recurse deeper than `max`, so any value can be asked about on any stack.
pub(crate) fn json_depth_exceeds(json: &Value, max: usize) -> bool {
    match (json, max.checked_sub(1)) {
        (Value::Array(items), Some(max)) => items.iter().any(|item| json_depth_exceeds(item, max)),
        (Value::Object(members), Some(max)) => members
            .values()
            .any(|member| json_depth_exceeds(member, max)),
        (Value::Array(_) | Value::Object(_), None) => true,
        _ => false,
    }
}

/// How many levels of arrays and objects JSON has, without recursion.
fn json_depth(json: &Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(json, 1)];
    while let Some((value, level)) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, level + 1))),
            Value::Object(members) => open.extend(members.values().map(|item| (item, level + 1))),
            _ => continue,
        }
        deepest = deepest.max(level);
    }
    deepest
}

/// Refuses a row that cannot be stored: ids or role too long, JSON too deep, or a usage that [`check_usage`] refuses.
pub(crate) fn check_message(stem: &str, message: &TranscriptMessage) -> Result<()> {
    check_id("role", &message.role)?;
    check_optional_id("message id", message.id.as_deref())?;
    check_optional_id("tool call id", message.tool_call_id.as_deref())?;
    check_optional_id("request id", message.request_id.as_deref())?;
    check_calls(&message.tool_calls)?;
    if let Some(metadata) = &message.extra_metadata {
        check_nesting(metadata)?;
    }
    match &message.turn_usage {
        Some(usage) => check_usage(stem, usage),
        None => Ok(()),
    }
}

/// Refuses a usage whose cost is not a number or beyond the limit, or whose calls cannot be stored.
pub(crate) fn check_usage(stem: &str, usage: &TurnUsage) -> Result<()> {
    let cost = usage.usage.cost_usd;
    if !cost.is_finite() || cost.abs() > MAX_COST_USD {
        return Err(Error::InvalidMessage {
            stem: stem.to_owned(),
            reason: format!(
                "the usage's cost of {cost} USD is not a finite amount within {MAX_COST_USD}"
            ),
        });
    }
    check_calls(&usage.tool_calls)
}

/// Refuses a header with ids that are too long or an amount that is not a number.
pub(crate) fn check_meta(stem: &str, meta: &TranscriptMeta) -> Result<()> {
    check_id("agent name", &meta.agent_name)?;
    check_optional_id("agent id", meta.agent_id.as_deref())?;
    check_optional_id("thread id", meta.thread_id.as_deref())?;
    check_optional_id("task id", meta.task_id.as_deref())?;
    check_optional_id("session id", meta.session_id.as_deref())?;
    check_optional_id("parent session id", meta.parent_session_id.as_deref())?;
    if !meta.charged_amount_usd.is_finite() {
        return Err(Error::InvalidMessage {
            stem: stem.to_owned(),
            reason: "the header's charged amount is not a finite number".to_owned(),
        });
    }
    Ok(())
}

fn check_calls(calls: &[TranscriptToolCall]) -> Result<()> {
    for call in calls {
        check_id("tool call id", &call.id)?;
        if let Some(extra) = &call.extra_content {
            check_nesting(extra)?;
        }
    }
    Ok(())
}
