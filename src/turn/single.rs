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
    let mut row = prepare(message);
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
