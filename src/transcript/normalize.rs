//! Typed rows from text in which older hosts packed structure.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::encode::{IMAGE_CLOSE, IMAGE_OPEN, KeyOrder, MEDIA_CLOSE, MEDIA_OPEN, media_json};
use super::{LegacyText, TranscriptMessage, TranscriptPart, TranscriptToolCall};

/// The typed structure that was found in a row's text.
#[derive(Default)]
struct Lifted {
    content: String,
    tool_calls: Vec<TranscriptToolCall>,
    tool_call_id: Option<String>,
    parts: Option<Vec<TranscriptPart>>,
}

impl TranscriptMessage {
    /// The row with the structure lifted that an older host packed into its text.
    ///
    /// - an `assistant` row whose text is a JSON object with a non-empty array `tool_calls` of calls gets those calls
    /// - a `tool` row whose text is a JSON object with a string `tool_call_id` answers that call
    /// - a `user` row whose text is exactly the JSON of media parts, or has closed image markers `[OH_IMAGE:…]`, gets
    ///   those parts
    ///
    /// What was lifted leaves its text in [`legacy`](Self::legacy). A row that is typed, or in which nothing is packed,
    /// is returned as it is. A store normalizes what it is given.
    #[must_use]
    pub fn normalized(&self) -> Self {
        self.normalized_ref().into_owned()
    }

    /// As [`normalized`](Self::normalized), without a copy when nothing is lifted; of plain text that takes a look at
    /// its first bytes, or for a user row one search.
    pub(crate) fn normalized_ref(&self) -> Cow<'_, Self> {
        if self.is_typed() {
            return Cow::Borrowed(self);
        }
        let Some(lifted) = lift(&self.role, &self.content) else {
            return Cow::Borrowed(self);
        };
        let mut row = self.clone();
        let text = std::mem::replace(&mut row.content, lifted.content);
        row.tool_calls = lifted.tool_calls;
        row.tool_call_id = lifted.tool_call_id;
        row.parts = lifted.parts;
        row.legacy = LegacyText::from_option(Some(text));
        Cow::Owned(row)
    }

    /// The remembered text, while the row still means what that text parses to.
    pub(crate) fn live_legacy(&self) -> Option<&str> {
        let text = self.legacy.as_deref()?;
        let live = match lift(&self.role, text) {
            Some(lifted) => {
                self.content == lifted.content
                    && self.tool_calls == lifted.tool_calls
                    && self.tool_call_id == lifted.tool_call_id
                    && self.parts == lifted.parts
            }
            None => !self.is_typed() && self.content == text,
        };
        live.then_some(text)
    }

    /// The reasoning inside the text that the row was lifted from, while the row still means that text.
    pub(crate) fn embedded_reasoning(&self) -> Option<String> {
        let mut envelope = json_object(self.live_legacy()?)?;
        match envelope.remove("reasoning_content") {
            Some(Value::String(reasoning)) => Some(reasoning),
            _ => None,
        }
    }
}

fn lift(role: &str, content: &str) -> Option<Lifted> {
    match role {
        "assistant" => lift_calls(content),
        "tool" => lift_result(content),
        "user" => lift_media(content).or_else(|| lift_images(content)),
        _ => None,
    }
}

fn lift_calls(content: &str) -> Option<Lifted> {
    if !may_be_object_with(content, "tool_calls") {
        return None;
    }
    let mut envelope = json_object(content)?;
    let Some(Value::Array(calls)) = envelope.remove("tool_calls") else {
        return None;
    };
    if calls.is_empty() {
        return None;
    }
    let well_formed = |call: Value| {
        // Serde would also read an array as a struct.
        if !call.is_object() {
            return None;
        }
        serde_json::from_value(call).ok()
    };
    Some(Lifted {
        tool_calls: calls.into_iter().map(well_formed).collect::<Option<_>>()?,
        content: text_member(&mut envelope),
        ..Lifted::default()
    })
}

fn lift_result(content: &str) -> Option<Lifted> {
    if !may_be_object_with(content, "tool_call_id") {
        return None;
    }
    let mut envelope = json_object(content)?;
    let Some(Value::String(call_id)) = envelope.remove("tool_call_id") else {
        return None;
    };
    Some(Lifted {
        tool_call_id: Some(call_id),
        content: text_member(&mut envelope),
        ..Lifted::default()
    })
}

fn lift_media(content: &str) -> Option<Lifted> {
    let list = content
        .strip_prefix(MEDIA_OPEN)?
        .strip_suffix(MEDIA_CLOSE)?;
    let parts: Vec<TranscriptPart> = serde_json::from_str(list).ok()?;
    if !parts.iter().any(TranscriptPart::is_beyond_images) {
        return None;
    }
    // Only what this very encoding writes is taken for it: another spelling may be the user's own text.
    if content != media_json(&parts, KeyOrder::Declared)
        && content != media_json(&parts, KeyOrder::Sorted)
    {
        return None;
    }
    Some(Lifted {
        content: TranscriptPart::text_of(&parts),
        parts: Some(parts),
        ..Lifted::default()
    })
}

fn lift_images(content: &str) -> Option<Lifted> {
    let mut parts = Vec::new();
    let mut rest = content;
    while let Some((before, opened)) = rest.split_once(IMAGE_OPEN) {
        let Some((url, after)) = opened.split_once(IMAGE_CLOSE) else {
            break;
        };
        push_text(&mut parts, before);
        parts.push(TranscriptPart::Image {
            url: url.to_owned(),
        });
        rest = after;
    }
    if parts.is_empty() {
        return None;
    }
    push_text(&mut parts, rest);
    Some(Lifted {
        content: TranscriptPart::text_of(&parts),
        parts: Some(parts),
        ..Lifted::default()
    })
}

fn push_text(parts: &mut Vec<TranscriptPart>, text: &str) {
    if !text.is_empty() {
        parts.push(TranscriptPart::Text {
            text: text.to_owned(),
        });
    }
}

/// Whether a text can be a JSON object with this key: a cheap look that keeps plain text, and an answer that happens to
/// be JSON, from being parsed. A key may also be spelled with escapes.
fn may_be_object_with(content: &str, key: &str) -> bool {
    let start = content.trim_start_matches([' ', '\t', '\n', '\r']);
    start.starts_with('{') && (start.contains(key) || start.contains("\\u"))
}

fn json_object(text: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Some(object),
        _ => None,
    }
}

fn text_member(envelope: &mut Map<String, Value>) -> String {
    match envelope.remove("content") {
        Some(Value::String(text)) => text,
        _ => String::new(),
    }
}
