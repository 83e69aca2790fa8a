//! Rows that are not part of a turn's context: partials and background appends; and where a truncation cuts.

use serde_json::{Map, Value, json};

use super::{PlannedRow, prepare};
use crate::transcript::limits::{check_id, check_message};
use crate::{
    BACKGROUND_METADATA_KEY, BackgroundAppend, BackgroundOrigin, Error, Result, TranscriptMessage,
    TranscriptPartial, TruncateCut,
};

/// The row that records a partial; `None` when there is no text to record.
pub(crate) fn plan_partial(
    partial: &TranscriptPartial,
    request_id: Option<&str>,
) -> Option<PlannedRow> {
    if partial.content.is_empty() {
        return None;
    }
    let reasoning = partial.reasoning_content.as_deref().map(str::trim);
    let reasoning = reasoning.filter(|text| !text.is_empty());
    // Not normalized: the text of an interrupted answer is shown as it came, even when it looks like an envelope.
    let message = TranscriptMessage {
        interrupted: true,
        request_id: request_id.map(str::to_owned),
        preserve_request_id: true,
        extra_metadata: reasoning.map(|text| json!({ "reasoning_content": text })),
        ..TranscriptMessage::assistant(partial.content.clone())
    };
    Some(PlannedRow {
        message,
        iteration: partial.iteration.filter(|&iteration| iteration > 0),
        ts: None,
        revises: None,
    })
}

/// Checks a background append and returns the row to store, which carries the append's origin.
pub(crate) fn validate_background(
    stem: &str,
    message: &TranscriptMessage,
    append: &BackgroundAppend,
) -> Result<TranscriptMessage> {
    let refuse = |reason: &str| {
        Err(Error::InvalidMessage {
            stem: stem.to_owned(),
            reason: reason.to_owned(),
        })
    };
    if append.idempotency_key.trim().is_empty() {
        return refuse("the idempotency key of a background append is blank");
    }
    check_id("idempotency key", &append.idempotency_key)?;
    let mut row = prepare(message).into_owned();
    if row.role != "assistant" {
        return refuse("a background row has to be an assistant's");
    }
    if row.is_typed() {
        return refuse("a background row must not carry calls, results or media");
    }
    if row.interrupted {
        return refuse("a background row must not be interrupted");
    }
    if row.tool_failure.is_some() {
        return refuse("a background row must not carry a tool failure");
    }
    if row
        .turn_usage
        .as_ref()
        .is_some_and(|usage| !usage.tool_calls.is_empty())
    {
        return refuse("the usage of a background row must not carry tool calls");
    }
    let mut metadata = match row.extra_metadata.take() {
        None => Map::new(),
        Some(Value::Object(metadata)) => metadata,
        Some(_) => return refuse("the metadata of a background row is not an object"),
    };
    let origin = json!({
        "idempotency_key": append.idempotency_key,
        "provenance": append.provenance,
    });
    metadata.insert(BACKGROUND_METADATA_KEY.to_owned(), origin);
    row.extra_metadata = Some(Value::Object(metadata));
    if !row.preserve_request_id {
        row.request_id = None;
    }
    row.preserve_request_id = true;
    check_message(stem, &row)?;
    Ok(row)
}

/// The origin of a row that was appended in the background; a malformed one is none.
pub(crate) fn background_origin(message: &TranscriptMessage) -> Option<BackgroundOrigin> {
    BackgroundOrigin::in_metadata(message.extra_metadata.as_ref())
}

/// Whether one of the rows of a live context holds an idempotency key.
pub(crate) fn background_holder<'a>(
    context: impl IntoIterator<Item = &'a TranscriptMessage>,
    key: &str,
) -> bool {
    let mut origins = context.into_iter().filter_map(background_origin);
    origins.any(|origin| origin.idempotency_key == key)
}

/// How many rows of the live context a truncation keeps.
pub(crate) fn cut_length(
    stem: &str,
    context: &[TranscriptMessage],
    cut: &TruncateCut,
) -> Result<usize> {
    match cut {
        TruncateCut::BeforeIndex(index) => Ok((*index).min(context.len())),
        TruncateCut::BeforeMessageId(id) => context
            .iter()
            .position(|row| row.id.as_ref() == Some(id))
            .ok_or_else(|| Error::UnknownMessageId {
                stem: stem.to_owned(),
            }),
        TruncateCut::LastAssistantTurn => Ok(context
            .iter()
            .rposition(|row| row.role == "user")
            .map_or(0, |last| last + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, ToolFailure, TranscriptPart, TranscriptToolCall, TurnUsage};

    fn validated(message: &TranscriptMessage) -> Result<TranscriptMessage> {
        validate_background(
            "s",
            message,
            &BackgroundAppend::new("key", json!({"job": 1})),
        )
    }

    #[test]
    fn a_background_row_carries_its_origin_beside_its_other_metadata() {
        let message = TranscriptMessage::assistant("done")
            .with_extra_metadata(json!({"kept": true, "background_origin": "replaced"}));
        let row = validated(&message).unwrap();
        assert_eq!(
            row.extra_metadata,
            Some(json!({
                "kept": true,
                "background_origin": {"idempotency_key": "key", "provenance": {"job": 1}},
            }))
        );
        assert!(background_holder([&row], "key"));
        assert!(!background_holder([&row], " key"));
    }

    #[test]
    fn a_background_row_keeps_a_request_id_only_if_it_preserves_it() {
        let fresh = TranscriptMessage::assistant("done").with_request_id("r");
        let preserved = TranscriptMessage {
            preserve_request_id: true,
            ..fresh.clone()
        };
        assert_eq!(validated(&fresh).unwrap().request_id, None);
        assert_eq!(
            validated(&preserved).unwrap().request_id.as_deref(),
            Some("r")
        );
    }

    #[test]
    fn a_background_row_is_plain_assistant_text_and_nothing_else() {
        let plain = TranscriptMessage::assistant("done");
        let call = TranscriptToolCall::default();
        let with_calls = TurnUsage {
            tool_calls: vec![call.clone()],
            ..TurnUsage::default()
        };
        let envelope = r#"{"content":"a","tool_calls":[{"id":"1","name":"n","arguments":"{}"}]}"#;
        let refused = [
            TranscriptMessage::user("done"),
            TranscriptMessage::assistant_with_calls("done", vec![call]),
            TranscriptMessage::assistant(envelope),
            TranscriptMessage {
                parts: Some(vec![TranscriptPart::Image {
                    url: "u".to_owned(),
                }]),
                ..plain.clone()
            },
            TranscriptMessage {
                interrupted: true,
                ..plain.clone()
            },
            plain.clone().with_tool_failure(ToolFailure::failed()),
            plain.clone().with_turn_usage(with_calls),
            plain.clone().with_extra_metadata(json!([1])),
        ];
        for message in refused {
            let error = validated(&message).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{message:?}");
        }
        let no_failure = plain.clone().with_tool_failure(ToolFailure::default());
        assert!(validated(&no_failure).is_ok());
        assert!(validated(&plain.with_turn_usage(TurnUsage::default())).is_ok());
    }

    #[test]
    fn a_blank_key_is_refused_and_a_padded_one_is_used_as_it_is() {
        let message = TranscriptMessage::assistant("done");
        let append = |key: &str| {
            validate_background("s", &message, &BackgroundAppend::new(key, Value::Null))
        };
        assert_eq!(append(" \n").unwrap_err().kind(), ErrorKind::InvalidMessage);
        assert!(background_holder([&append(" k ").unwrap()], " k "));
    }

    #[test]
    fn a_partial_keeps_its_text_as_it_came_and_its_reasoning_trimmed() {
        let envelope = r#"{"tool_calls":[{"id":"1","name":"n","arguments":"{}"}]}"#;
        let partial = TranscriptPartial::new(envelope)
            .with_reasoning_content(" why ")
            .with_iteration(3);
        let row = plan_partial(&partial, Some("r")).unwrap();
        assert_eq!(row.message.content, envelope);
        assert!(row.message.interrupted && row.message.tool_calls.is_empty());
        assert_eq!(
            row.message.extra_metadata,
            Some(json!({"reasoning_content": "why"}))
        );
        assert_eq!(row.message.request_id.as_deref(), Some("r"));
        assert_eq!(row.iteration, Some(3));

        let blank = TranscriptPartial::new("text").with_reasoning_content(" \t");
        assert_eq!(
            plan_partial(&blank, None).unwrap().message.extra_metadata,
            None
        );
        assert_eq!(plan_partial(&TranscriptPartial::new(""), None), None);
    }

    #[test]
    fn a_cut_keeps_what_stands_before_it() {
        let context = [
            TranscriptMessage::system("s"),
            TranscriptMessage::user("q").with_id("x"),
            TranscriptMessage::assistant("a").with_id("x"),
        ];
        let cut = |cut| cut_length("s", &context, &cut);
        assert_eq!(cut(TruncateCut::BeforeIndex(2)).unwrap(), 2);
        assert_eq!(cut(TruncateCut::BeforeIndex(9)).unwrap(), 3);
        assert_eq!(
            cut(TruncateCut::BeforeMessageId("x".to_owned())).unwrap(),
            1
        );
        assert_eq!(cut(TruncateCut::LastAssistantTurn).unwrap(), 2);
        assert_eq!(
            cut_length("s", &context[..1], &TruncateCut::LastAssistantTurn).unwrap(),
            0
        );
        let unknown = cut(TruncateCut::BeforeMessageId("y".to_owned())).unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::UnknownMessageId);
    }
}
