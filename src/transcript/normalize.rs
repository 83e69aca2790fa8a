//! Typed rows from text in which older hosts packed structure, and back.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    LegacyText, TranscriptMediaRef, TranscriptMessage, TranscriptPart, TranscriptToolCall,
};

/// What opens an image in the text of a user row; a `]` closes it.
const IMAGE_MARKER: &str = "[OH_IMAGE:";

/// The one key of the object that a user row with other media is packed into.
const MEDIA_KEY: &str = "_tinyagents_media_parts";

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
        Cow::Owned(Self {
            id: self.id.clone(),
            role: self.role.clone(),
            content: lifted.content,
            tool_calls: lifted.tool_calls,
            tool_call_id: lifted.tool_call_id,
            parts: lifted.parts,
            legacy: LegacyText::from_option(Some(self.content.clone())),
            extra_metadata: self.extra_metadata.clone(),
            cache_breakpoints: self.cache_breakpoints.clone(),
            turn_usage: self.turn_usage.clone(),
            request_id: self.request_id.clone(),
            preserve_request_id: self.preserve_request_id,
            interrupted: self.interrupted,
            tool_failure: self.tool_failure.clone(),
        })
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

    /// The row as one text, as older hosts encode it.
    ///
    /// That is the text the row was lifted from, byte for byte, while the row still means it. Else an assistant row with
    /// calls and a tool row that answers a call become a JSON object, parts with other media than images the JSON of
    /// the parts, images a marker in their place, and any other row its content.
    #[must_use]
    pub fn legacy_content(&self) -> String {
        match self.live_legacy() {
            Some(text) => text.to_owned(),
            None => encode(self).unwrap_or_else(|| self.content.clone()),
        }
    }

    /// The row as a person is shown it: media stands in its place as `[IMAGE:…]`, `[AUDIO:…]`, `[VIDEO:…]` or
    /// `[DOCUMENT:…]` with its address. Structure that is packed into the text is lifted first.
    #[must_use]
    pub fn display_content(&self) -> String {
        let row = self.normalized_ref();
        match row.parts.as_deref() {
            None | Some([]) => row.content.clone(),
            Some(parts) => parts.iter().fold(String::new(), |mut out, part| {
                let (word, address) = match part {
                    TranscriptPart::Text { text } => {
                        out.push_str(text);
                        return out;
                    }
                    TranscriptPart::Image { url } => ("IMAGE", url.as_str()),
                    TranscriptPart::Audio { source, .. } => ("AUDIO", source.address()),
                    TranscriptPart::Video { source, .. } => ("VIDEO", source.address()),
                    TranscriptPart::Document { source, .. } => ("DOCUMENT", source.address()),
                };
                for piece in ["[", word, ":", address, "]"] {
                    out.push_str(piece);
                }
                out
            }),
        }
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

impl TranscriptMediaRef {
    /// The path or the address.
    fn address(&self) -> &str {
        match self {
            Self::Path { path } => path,
            Self::Url { url } => url,
        }
    }
}

impl TranscriptPart {
    /// Whether the part is media that the image markers cannot express.
    fn is_beyond_images(&self) -> bool {
        !matches!(self, Self::Text { .. } | Self::Image { .. })
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
    #[derive(Deserialize)]
    struct Envelope {
        #[serde(rename = "_tinyagents_media_parts")]
        parts: Vec<TranscriptPart>,
    }
    let rest = content.strip_prefix("{\"")?.strip_prefix(MEDIA_KEY)?;
    if !rest.starts_with("\":[") {
        return None;
    }
    let Envelope { parts } = serde_json::from_str(content).ok()?;
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
    while let Some((before, opened)) = rest.split_once(IMAGE_MARKER) {
        let Some((url, after)) = opened.split_once(']') else {
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

/// The text encoding of a row's structure; `None` for a row that has none.
fn encode(row: &TranscriptMessage) -> Option<String> {
    #[derive(Serialize)]
    struct Calls<'a> {
        content: Option<&'a str>,
        tool_calls: &'a [TranscriptToolCall],
    }
    #[derive(Serialize)]
    struct Answer<'a> {
        tool_call_id: &'a str,
        content: &'a str,
    }
    let TranscriptMessage {
        role,
        content,
        tool_calls,
        tool_call_id,
        parts,
        ..
    } = row;
    match (role.as_str(), tool_call_id, parts) {
        ("assistant", ..) if !tool_calls.is_empty() => serde_json::to_string(&Calls {
            content: Some(content.as_str()).filter(|text| !text.is_empty()),
            tool_calls,
        })
        .ok(),
        ("tool", Some(tool_call_id), _) => serde_json::to_string(&Answer {
            tool_call_id,
            content,
        })
        .ok(),
        (.., Some(parts)) if parts.iter().any(TranscriptPart::is_beyond_images) => {
            Some(media_json(parts, KeyOrder::Declared))
        }
        (.., Some(parts)) if !parts.is_empty() => Some(image_text(parts)),
        _ => None,
    }
}

/// The parts as text with a marker in the place of each image.
fn image_text(parts: &[TranscriptPart]) -> String {
    let mut out = String::new();
    for part in parts {
        match part {
            TranscriptPart::Text { text } => out.push_str(text),
            TranscriptPart::Image { url } => {
                for piece in [IMAGE_MARKER, url, "]"] {
                    out.push_str(piece);
                }
            }
            _ => {}
        }
    }
    out
}

/// The two orders of keys in which older hosts wrote the JSON of media parts.
#[derive(Clone, Copy, PartialEq)]
enum KeyOrder {
    Declared,
    Sorted,
}

/// The compact JSON of media parts, in an order of keys that does not depend on how `serde_json` was built.
fn media_json(parts: &[TranscriptPart], order: KeyOrder) -> String {
    let mut out = String::new();
    out.push_str("{\"");
    out.push_str(MEDIA_KEY);
    out.push_str("\":[");
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        push_part(&mut out, part, order);
    }
    out.push_str("]}");
    out
}

fn push_part(out: &mut String, part: &TranscriptPart, order: KeyOrder) {
    let (kind, source, mime_type) = match part {
        TranscriptPart::Text { text } => {
            let members = [("type", quoted("text")), ("text", quoted(text))];
            return push_object(out, members, order);
        }
        TranscriptPart::Image { url } => {
            let members = [("type", quoted("image")), ("url", quoted(url))];
            return push_object(out, members, order);
        }
        TranscriptPart::Audio { source, mime_type } => ("audio", source, mime_type),
        TranscriptPart::Video { source, mime_type } => ("video", source, mime_type),
        TranscriptPart::Document { source, mime_type } => ("document", source, mime_type),
    };
    let mut place = String::new();
    let (place_kind, address) = match source {
        TranscriptMediaRef::Path { path } => ("path", path),
        TranscriptMediaRef::Url { url } => ("url", url),
    };
    let members = [("type", quoted(place_kind)), (place_kind, quoted(address))];
    push_object(&mut place, members, order);
    let members = [
        ("type", quoted(kind)),
        ("source", place),
        ("mime_type", quoted(mime_type)),
    ];
    push_object(out, members, order);
}

fn push_object<const N: usize>(
    out: &mut String,
    mut members: [(&str, String); N],
    order: KeyOrder,
) {
    if order == KeyOrder::Sorted {
        members.sort_by_key(|&(key, _)| key);
    }
    out.push('{');
    for (index, (key, json)) in members.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        // Writing to a string cannot fail.
        let _ = write!(out, "\"{key}\":{json}");
    }
    out.push('}');
}

/// A text as a JSON string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
