//! Messages and parts in the shape that chat APIs share.

use serde_json::{Map, Value};

use super::blocks::{note, take_text, to_text};
use crate::{TranscriptMediaRef, TranscriptMessage, TranscriptPart, TranscriptToolCall};

/// The row that a message becomes: `role`, `content`, `tool_calls` with their functions or flat, `tool_call_id`,
/// reasoning under its several names. What no field holds stays in the metadata under its own key.
#[must_use]
pub fn row_of(mut message: Map<String, Value>) -> TranscriptMessage {
    let role = take_text(&mut message, "role");
    let (text, parts, others) = content_of(message.remove("content").unwrap_or(Value::Null));
    let mut row = match (role.as_str(), parts) {
        ("user", Some(parts)) => TranscriptMessage::user_with_parts(parts),
        _ => TranscriptMessage::new(role, text),
    };
    row.tool_calls = calls_of(&mut message);
    if let Some(call) = message.remove("tool_call_id") {
        row.tool_call_id = Some(to_text(call));
    }
    for key in ["reasoning_content", "reasoning"] {
        if let Some(Value::String(text)) = message.get(key)
            && !text.is_empty()
        {
            note(&mut row, "reasoning_content", text.clone());
            message.remove(key);
            break;
        }
    }
    if !others.is_empty() {
        note(&mut row, "parts", others);
    }
    message.remove("role");
    for (key, value) in message {
        if !value.is_null() {
            note(&mut row, &key, value);
        }
    }
    row
}

/// Text, media parts if there are any, and parts of no known kind.
#[must_use]
pub fn content_of(content: Value) -> (String, Option<Vec<TranscriptPart>>, Vec<Value>) {
    let items = match content {
        Value::Array(items) => items,
        other => return (to_text(other), None, Vec::new()),
    };
    let mut parts = Vec::new();
    let mut others = Vec::new();
    for item in items {
        match item {
            Value::Object(part) => match part_of(part) {
                Ok(part) => parts.push(part),
                Err(part) => others.push(Value::Object(part)),
            },
            Value::String(text) => parts.push(TranscriptPart::Text { text }),
            other => others.push(other),
        }
    }
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| match part {
            TranscriptPart::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    let media = texts.len() < parts.len();
    (texts.concat(), media.then_some(parts), others)
}

fn part_of(mut part: Map<String, Value>) -> Result<TranscriptPart, Map<String, Value>> {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "text" | "input_text" | "output_text" | "summary_text" | "refusal" => {
            let key = if kind == "refusal" { "refusal" } else { "text" };
            Ok(TranscriptPart::Text {
                text: take_text(&mut part, key),
            })
        }
        "image_url" | "input_image" => {
            let url = match part.get("image_url") {
                Some(Value::String(url)) => Some(url.clone()),
                Some(Value::Object(image)) => {
                    image.get("url").and_then(Value::as_str).map(str::to_owned)
                }
                _ => None,
            };
            url.map(|url| TranscriptPart::Image { url }).ok_or(part)
        }
        "audio_url" | "video_url" => {
            let url = part.get(kind).and_then(|media| media.get("url"));
            let Some(url) = url.and_then(Value::as_str).map(str::to_owned) else {
                return Err(part);
            };
            let source = TranscriptMediaRef::Url { url };
            let mime_type = String::new();
            Ok(if kind == "audio_url" {
                TranscriptPart::Audio { source, mime_type }
            } else {
                TranscriptPart::Video { source, mime_type }
            })
        }
        _ => Err(part),
    }
}

/// The calls of a message, with a `function` of their own, flat, or the one of the old `function_call`.
fn calls_of(message: &mut Map<String, Value>) -> Vec<TranscriptToolCall> {
    let mut calls = Vec::new();
    if let Some(Value::Array(items)) = message.get_mut("tool_calls").map(Value::take) {
        message.remove("tool_calls");
        for item in items {
            if let Value::Object(mut call) = item {
                let id = take_text(&mut call, "id");
                let function = match call.remove("function") {
                    Some(Value::Object(function)) => function,
                    _ => call,
                };
                calls.push(call_of(id, function));
            }
        }
    }
    if let Some(Value::Object(function)) = message.get_mut("function_call").map(Value::take) {
        message.remove("function_call");
        calls.push(call_of(String::new(), function));
    }
    calls
}

fn call_of(id: String, mut function: Map<String, Value>) -> TranscriptToolCall {
    TranscriptToolCall {
        id,
        name: take_text(&mut function, "name"),
        arguments: function
            .remove("arguments")
            .map(to_text)
            .unwrap_or_default(),
        extra_content: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(message: Value) -> TranscriptMessage {
        match message {
            Value::Object(message) => row_of(message),
            _ => panic!("no object"),
        }
    }

    #[test]
    fn calls_are_read_in_all_their_shapes() {
        for message in [
            json!({"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}),
            json!({"role":"assistant","content":"","tool_calls":[{"id":"c","name":"f","arguments":{}}]}),
        ] {
            let row = row(message);
            assert_eq!(row.content, "");
            assert_eq!(
                (
                    row.tool_calls[0].id.as_str(),
                    row.tool_calls[0].arguments.as_str()
                ),
                ("c", "{}")
            );
            assert_eq!(row.extra_metadata, None);
        }
        let old = row(
            json!({"role":"assistant","content":null,"function_call":{"name":"f","arguments":"x"}}),
        );
        assert_eq!(old.tool_calls[0].arguments, "x");
    }

    #[test]
    fn what_no_field_holds_stays_in_the_metadata() {
        let row = row(
            json!({"role":"assistant","content":"a","weight":0,"reasoning":"because","name":"n"}),
        );
        assert_eq!(
            row.extra_metadata,
            Some(json!({"weight":0,"reasoning_content":"because","name":"n"}))
        );
    }

    #[test]
    fn media_of_a_user_row_are_parts() {
        let row = row(json!({"role":"user","content":[
            {"type":"text","text":"What "},{"type":"text","text":"is it?"},
            {"type":"image_url","image_url":{"url":"https://ex.org/a.png"}}]}));
        assert_eq!(row.content, "What is it?");
        assert_eq!(row.parts.unwrap().len(), 3);
    }
}
