//! Messages made of content blocks, the way Anthropic's API has them.

use serde_json::{Map, Value};

use crate::{
    ToolFailure, TranscriptMediaRef, TranscriptMessage, TranscriptPart, TranscriptToolCall,
};

/// The rows that a message becomes: a tool row for each result in it, and one row for each run of what else it says.
///
/// `thinking` becomes `reasoning_content` of the metadata, with its signature beside it; blocks that no field holds are
/// kept there as `blocks`.
#[must_use]
pub fn rows_of(role: &str, content: Value) -> Vec<TranscriptMessage> {
    let blocks = match content {
        Value::Array(blocks) => blocks,
        Value::String(text) => return vec![TranscriptMessage::new(role, text)],
        _ => return vec![TranscriptMessage::new(role, "")],
    };
    let mut rows = Vec::new();
    let mut run = Run::default();
    for block in blocks {
        match block {
            Value::Object(block) if kind_of(&block) == "tool_result" => {
                rows.extend(std::mem::take(&mut run).finish(role));
                rows.push(tool_result(block));
            }
            block => run.add(block),
        }
    }
    let last = run.finish(role);
    if last.is_some() || rows.is_empty() {
        rows.push(last.unwrap_or_else(|| TranscriptMessage::new(role, "")));
    }
    rows
}

fn kind_of(block: &Map<String, Value>) -> &str {
    block
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Takes a text member out of an object; an empty text if it is none.
pub fn take_text(object: &mut Map<String, Value>, key: &str) -> String {
    match object.get_mut(key).map(Value::take) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    }
}

/// JSON as text: a text as it is, everything else written out.
#[must_use]
pub fn to_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        value => value.to_string(),
    }
}

/// Sets a member of a row's metadata.
pub fn note(message: &mut TranscriptMessage, key: &str, value: impl Into<Value>) {
    let metadata = message
        .extra_metadata
        .get_or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(members) = metadata {
        members.insert(key.to_owned(), value.into());
    }
}

/// What a run of blocks says together.
#[derive(Default)]
struct Run {
    any: bool,
    parts: Vec<TranscriptPart>,
    calls: Vec<TranscriptToolCall>,
    reasoning: Vec<String>,
    signature: Option<String>,
    others: Vec<Value>,
}

impl Run {
    fn add(&mut self, block: Value) {
        self.any = true;
        let mut block = match block {
            Value::Object(block) => block,
            Value::String(text) => return self.parts.push(TranscriptPart::Text { text }),
            other => return self.others.push(other),
        };
        match kind_of(&block) {
            "text" => {
                let text = take_text(&mut block, "text");
                self.parts.push(TranscriptPart::Text { text });
            }
            "thinking" => {
                let mut text = take_text(&mut block, "thinking");
                if text.is_empty() {
                    text = take_text(&mut block, "text");
                }
                let signature = take_text(&mut block, "signature");
                if !signature.is_empty() {
                    self.signature = Some(signature);
                }
                self.reasoning.push(text);
            }
            "tool_use" => {
                let input = block.get_mut("input").map(Value::take);
                self.calls.push(TranscriptToolCall {
                    id: take_text(&mut block, "id"),
                    name: take_text(&mut block, "name"),
                    arguments: input.map(to_text).unwrap_or_default(),
                    extra_content: None,
                });
            }
            "image" => match image_url(&mut block) {
                Some(url) => self.parts.push(TranscriptPart::Image { url }),
                None => self.others.push(Value::Object(block)),
            },
            "document" => match document(&block) {
                Some(part) => self.parts.push(part),
                None => self.others.push(Value::Object(block)),
            },
            _ => self.others.push(Value::Object(block)),
        }
    }

    fn finish(self, role: &str) -> Option<TranscriptMessage> {
        if !self.any {
            return None;
        }
        let mut message = if role == "user" {
            TranscriptMessage::user_with_parts(self.parts)
        } else {
            let texts = self.parts.into_iter().filter_map(|part| match part {
                TranscriptPart::Text { text } => Some(text),
                _ => None,
            });
            TranscriptMessage::new(role, texts.collect::<Vec<_>>().join("\n\n"))
        };
        message.tool_calls = self.calls;
        if !self.reasoning.is_empty() {
            note(
                &mut message,
                "reasoning_content",
                self.reasoning.join("\n\n"),
            );
        }
        if let Some(signature) = self.signature {
            note(&mut message, "reasoning_signature", signature);
        }
        if !self.others.is_empty() {
            note(&mut message, "blocks", self.others);
        }
        Some(message)
    }
}

fn image_url(block: &mut Map<String, Value>) -> Option<String> {
    let source = block.get_mut("source")?.as_object_mut()?;
    if let Some(Value::String(url)) = source.get("url") {
        return Some(url.clone());
    }
    let media_type = source.get("media_type")?.as_str()?;
    let data = source.get("data")?.as_str()?;
    Some(format!("data:{media_type};base64,{data}"))
}

/// A document that is named by its address. One that is written out stays a block.
fn document(block: &Map<String, Value>) -> Option<TranscriptPart> {
    let source = block.get("source")?;
    let url = source.get("url")?.as_str()?.to_owned();
    let mime_type = source.get("media_type").and_then(Value::as_str);
    Some(TranscriptPart::Document {
        source: TranscriptMediaRef::Url { url },
        mime_type: mime_type.unwrap_or_default().to_owned(),
    })
}

fn tool_result(mut block: Map<String, Value>) -> TranscriptMessage {
    let call = take_text(&mut block, "tool_use_id");
    let mut others = Vec::new();
    let output = match block.get_mut("content").map(Value::take) {
        Some(Value::Array(items)) => {
            let mut texts = Vec::new();
            for item in items {
                match item {
                    Value::Object(mut item) if kind_of(&item) == "text" => {
                        texts.push(take_text(&mut item, "text"));
                    }
                    other => others.push(other),
                }
            }
            texts.join("\n")
        }
        content => content.map(to_text).unwrap_or_default(),
    };
    let mut message = TranscriptMessage::tool_result(call, output);
    if block.get("is_error") == Some(&Value::Bool(true)) {
        message.tool_failure = Some(ToolFailure::failed());
    }
    if !others.is_empty() {
        note(&mut message, "blocks", others);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_assistant_message_is_one_row_with_its_calls_and_its_reasoning() {
        let rows = rows_of(
            "assistant",
            json!([
                {"type":"thinking","thinking":"Look.","signature":"c2ln"},
                {"type":"text","text":"Looking."},
                {"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}},
                {"type":"redacted_thinking","data":"x"}
            ]),
        );
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].content, "Looking.");
        assert_eq!(rows[0].tool_calls[0].arguments, r#"{"command":"ls"}"#);
        let metadata = rows[0].extra_metadata.as_ref().unwrap();
        assert_eq!(metadata["reasoning_content"], "Look.");
        assert_eq!(metadata["blocks"][0]["data"], "x");
    }

    #[test]
    fn results_are_rows_of_their_own_in_their_place() {
        let rows = rows_of(
            "user",
            json!([
                {"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
                {"type":"text","text":"and"},
                {"type":"tool_result","tool_use_id":"t2","content":"no","is_error":true}
            ]),
        );
        let told: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    row.role.as_str(),
                    row.content.as_str(),
                    row.tool_call_id.as_deref(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                ("tool", "a\nb", Some("t1")),
                ("user", "and", None),
                ("tool", "no", Some("t2"))
            ]
        );
        assert!(rows[2].tool_failure.is_some());
    }

    #[test]
    fn an_image_is_a_part_of_a_user_row() {
        let rows = rows_of(
            "user",
            json!([
                {"type":"text","text":"see"},
                {"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}
            ]),
        );
        let parts = rows[0].parts.as_ref().unwrap();
        assert_eq!(
            parts[1],
            TranscriptPart::Image {
                url: "data:image/png;base64,AAAA".to_owned()
            }
        );
    }

    #[test]
    fn every_shape_of_content_gives_a_row() {
        for content in [Value::Null, json!([]), json!(5), json!([5]), json!({"a":1})] {
            assert_eq!(rows_of("user", content).len(), 1);
        }
        assert_eq!(rows_of("user", json!("x"))[0], TranscriptMessage::user("x"));
    }
}
