//! What a store refuses, checked before anything of a call is encoded or hashed.

use serde_json::Value;

use super::{BackgroundOrigin, TranscriptMessage, TranscriptMeta, TranscriptToolCall, TurnUsage};
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
        if let Some(origin) = BackgroundOrigin::in_metadata(Some(metadata)) {
            check_id("idempotency key", &origin.idempotency_key)?;
        }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::ErrorKind;
    use crate::transcript::MessageUsage;

    /// Arrays and objects in turn, so many levels of them.
    fn nested(levels: usize) -> Value {
        (0..levels).fold(Value::Null, |inner, level| match level % 2 {
            0 => json!([inner]),
            _ => json!({ "k": inner }),
        })
    }

    fn costing(cost_usd: f64) -> TurnUsage {
        TurnUsage {
            usage: MessageUsage {
                cost_usd,
                ..MessageUsage::default()
            },
            ..TurnUsage::default()
        }
    }

    fn with_extra(levels: usize) -> TranscriptToolCall {
        TranscriptToolCall {
            extra_content: Some(nested(levels)),
            ..TranscriptToolCall::default()
        }
    }

    fn refusal(message: &TranscriptMessage) -> Option<ErrorKind> {
        check_message("s", message).err().map(|error| error.kind())
    }

    #[test]
    fn an_id_may_have_a_mebibyte_and_no_more() {
        let id = "x".repeat(MAX_ID_BYTES);
        assert!(check_id("thread id", &id).is_ok());
        assert!(check_id("thread id", "").is_ok());
        let error = check_id("thread id", &format!("{id}x")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidId);
        assert_eq!(
            error.to_string(),
            "invalid thread id: 1048577 bytes, the limit is 1048576"
        );
    }

    #[test]
    fn json_may_have_128_levels_and_no_more() {
        assert!(check_nesting(&json!("scalar")).is_ok());
        assert!(check_nesting(&nested(MAX_NESTING)).is_ok());
        let error = check_nesting(&json!({"a": [], "b": nested(128), "c": 1})).unwrap_err();
        assert!(matches!(
            error,
            Error::TooLarge {
                what: "nesting",
                size: 129,
                limit: 128
            }
        ));
    }

    #[test]
    fn depth_counts_levels_of_arrays_and_objects() {
        assert!(!json_depth_exceeds(&json!(7), 0));
        assert!(json_depth_exceeds(&json!([]), 0));
        assert!(!json_depth_exceeds(&json!({"a": 1}), 1));
        assert!(json_depth_exceeds(&json!([1, {"a": 1}]), 1));
        assert_eq!(json_depth(&json!(7)), 0);
        assert_eq!(json_depth(&json!([1, {"a": []}, []])), 3);
    }

    #[test]
    fn every_id_of_a_row_is_limited() {
        let long = "x".repeat(MAX_ID_BYTES + 1);
        let plain = TranscriptMessage::user("hi");
        let call = TranscriptToolCall {
            id: long.clone(),
            ..TranscriptToolCall::default()
        };
        let usage = TurnUsage {
            tool_calls: vec![call.clone()],
            ..TurnUsage::default()
        };
        assert_eq!(refusal(&plain), None);
        for row in [
            TranscriptMessage::new(long.clone(), ""),
            plain.clone().with_id(long.clone()),
            plain.clone().with_request_id(long.clone()),
            TranscriptMessage::tool_result(long.clone(), ""),
            TranscriptMessage::assistant_with_calls("", vec![call]),
            plain.with_turn_usage(usage),
        ] {
            assert_eq!(refusal(&row), Some(ErrorKind::InvalidId));
        }
        assert_eq!(refusal(&TranscriptMessage::user(long)), None);
    }

    #[test]
    fn all_json_of_a_row_is_limited() {
        let rows = |levels| {
            let plain = TranscriptMessage::assistant("hi");
            let usage = TurnUsage {
                tool_calls: vec![with_extra(levels)],
                ..TurnUsage::default()
            };
            [
                plain.clone().with_extra_metadata(nested(levels)),
                TranscriptMessage::assistant_with_calls("", vec![with_extra(levels)]),
                plain.with_turn_usage(usage),
            ]
        };
        for row in rows(128) {
            assert_eq!(refusal(&row), None);
        }
        for row in rows(129) {
            assert_eq!(refusal(&row), Some(ErrorKind::TooLarge));
        }
    }

    #[test]
    fn a_cost_is_a_finite_amount_within_the_limit_and_may_be_a_refund() {
        for cost in [0.0, 1e9, -1e9, -0.02] {
            assert!(check_usage("s", &costing(cost)).is_ok(), "{cost}");
        }
        for cost in [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            1e9 + 1.0,
            -1e9 - 1.0,
        ] {
            let error = check_usage("s", &costing(cost)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{cost}");
            let row = TranscriptMessage::assistant("a").with_turn_usage(costing(cost));
            assert_eq!(refusal(&row), Some(ErrorKind::InvalidMessage), "{cost}");
        }
    }

    #[test]
    fn a_header_with_an_amount_that_is_no_number_is_refused() {
        let meta = TranscriptMeta::new("planner");
        assert!(check_meta("s", &meta.clone().with_charged_amount_usd(1e300)).is_ok());
        for amount in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let meta = meta.clone().with_charged_amount_usd(amount);
            let error = check_meta("s", &meta).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{amount}");
        }
    }

    #[test]
    fn every_id_of_a_header_is_limited() {
        let long = "x".repeat(MAX_ID_BYTES + 1);
        let meta = TranscriptMeta::new("planner");
        for meta in [
            TranscriptMeta::new(long.clone()),
            meta.clone().with_agent_id(long.clone()),
            meta.clone().with_thread_id(long.clone()),
            meta.clone().with_task_id(long.clone()),
            meta.clone().with_session_id(long.clone()),
            meta.with_parent_session_id(long),
        ] {
            let error = check_meta("s", &meta).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidId);
        }
    }
}
