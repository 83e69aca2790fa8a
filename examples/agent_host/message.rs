//! From one JSON object to one row.

use serde_json::{Map, Value};
use transcript_redb::{ToolFailure, TranscriptMessage, TranscriptPart, TranscriptToolCall};

/// Why an object is no message; words of ours only, never of the input.
type Refusal = &'static str;

/// Reads a message in the common chat form: `role`, `content` as a string or as an array of blocks, `tool_calls` and
/// `tool_call_id`. What has no place in a row is kept in `extra_metadata`.
pub fn message_of(value: Value) -> Result<TranscriptMessage, Refusal> {
    let Value::Object(mut fields) = value else {
        return Err("is not an object");
    };
    let role = match fields.remove("role") {
        Some(Value::String(role)) if !role.is_empty() => role,
        Some(_) => return Err("has a `role` that is not a word"),
        None => return Err("has no `role`"),
    };
    let mut row = match fields.remove("content") {
        None | Some(Value::Null) => TranscriptMessage::new(role, ""),
        Some(Value::String(text)) => TranscriptMessage::new(role, text),
        Some(Value::Array(blocks)) => {
            let (parts, mut whole) = parts_of(&blocks);
            let mut row = TranscriptMessage::user_with_parts(parts);
            if role != "user" {
                // Only user rows have parts; what is lost with them stays as it was given.
                whole &= row.parts.take().is_none();
            }
            if !whole {
                fields.insert("content_blocks".to_owned(), Value::Array(blocks));
            }
            row.role = role;
            row
        }
        Some(_) => return Err("has a `content` that is neither text nor an array of blocks"),
    };
    match fields.remove("tool_calls") {
        None | Some(Value::Null) => {}
        Some(Value::Array(calls)) => {
            let calls = calls.into_iter().map(call_of).collect::<Option<_>>();
            row.tool_calls = calls.ok_or("has a tool call without a name")?;
        }
        Some(_) => return Err("has `tool_calls` that are not an array"),
    }
    row.tool_call_id = take_text(&mut fields, "tool_call_id");
    row.id = take_text(&mut fields, "id");
    if row.role == "tool" && fields.get("is_error") == Some(&Value::Bool(true)) {
        row.tool_failure = Some(ToolFailure::failed());
    }
    if !fields.is_empty() {
        row.extra_metadata = Some(Value::Object(fields));
    }
    Ok(row)
}

/// The text and image parts of a block array, and whether they say all that the array says.
fn parts_of(blocks: &[Value]) -> (Vec<TranscriptPart>, bool) {
    let mut whole = true;
    let mut parts = Vec::new();
    for block in blocks {
        let kind = block.get("type").and_then(Value::as_str);
        let (part, plain) = match kind {
            Some("text" | "input_text" | "output_text") => (text_part(block), size(block) == 2),
            Some("image_url") => image_url_part(block),
            Some("image") => (image_source_part(block), false),
            _ => (None, false),
        };
        whole &= plain && part.is_some();
        parts.extend(part);
    }
    (parts, whole)
}

fn text_part(block: &Value) -> Option<TranscriptPart> {
    let text = block.get("text")?.as_str()?.to_owned();
    Some(TranscriptPart::Text { text })
}

/// `{"image_url": "…"}` or `{"image_url": {"url": "…"}}`; a `detail` beside the URL has no place in a part.
fn image_url_part(block: &Value) -> (Option<TranscriptPart>, bool) {
    let image = block.get("image_url");
    let url = image.and_then(|image| image.get("url").unwrap_or(image).as_str());
    let plain = size(block) == 2 && image.is_some_and(|image| size(image) <= 1);
    let part = url.map(|url| TranscriptPart::Image {
        url: url.to_owned(),
    });
    (part, plain)
}

/// `{"source": {"url": "…"}}` or the bytes themselves as base64.
fn image_source_part(block: &Value) -> Option<TranscriptPart> {
    let source = block.get("source")?;
    let text = |key| source.get(key).and_then(Value::as_str);
    let url = match text("url") {
        Some(url) => url.to_owned(),
        None => format!("data:{};base64,{}", text("media_type")?, text("data")?),
    };
    Some(TranscriptPart::Image { url })
}

fn size(value: &Value) -> usize {
    value.as_object().map_or(0, Map::len)
}

/// `{"id", "type", "function": {"name", "arguments"}}`, or the same without the inner object.
fn call_of(value: Value) -> Option<TranscriptToolCall> {
    let Value::Object(mut outer) = value else {
        return None;
    };
    let mut call = TranscriptToolCall {
        id: take_text(&mut outer, "id").unwrap_or_default(),
        ..TranscriptToolCall::default()
    };
    let mut inner = match outer.remove("function") {
        Some(Value::Object(inner)) => {
            outer.remove("type");
            inner
        }
        _ => std::mem::take(&mut outer),
    };
    call.name = take_text(&mut inner, "name")?;
    call.arguments = match inner.remove("arguments") {
        Some(Value::String(raw)) => raw,
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    };
    outer.append(&mut inner);
    call.extra_content = match outer.remove("extra_content") {
        Some(extra) if outer.is_empty() => Some(extra),
        Some(extra) => {
            outer.insert("extra_content".to_owned(), extra);
            Some(Value::Object(outer))
        }
        None => (!outer.is_empty()).then_some(Value::Object(outer)),
    };
    Some(call)
}

/// Takes a string out of `fields`; anything else stays there.
fn take_text(fields: &mut Map<String, Value>, key: &str) -> Option<String> {
    match fields.remove(key) {
        Some(Value::String(text)) => Some(text),
        Some(other) => {
            fields.insert(key.to_owned(), other);
            None
        }
        None => None,
    }
}
