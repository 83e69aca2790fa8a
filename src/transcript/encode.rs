//! Rows as text: for older hosts, and for a person.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use super::{TranscriptMediaRef, TranscriptMessage, TranscriptPart, TranscriptToolCall};

/// What stands around the address of an image in the text of a user row.
pub(super) const IMAGE_OPEN: &str = "[OH_IMAGE:";
pub(super) const IMAGE_CLOSE: &str = "]";

/// What stands around the list of parts of a user row with other media.
pub(super) const MEDIA_OPEN: &str = "{\"_tinyagents_media_parts\":";
pub(super) const MEDIA_CLOSE: &str = "}";

impl TranscriptMessage {
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
                for piece in [IMAGE_OPEN, url, IMAGE_CLOSE] {
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
pub(super) enum KeyOrder {
    Declared,
    Sorted,
}

/// The compact JSON of media parts, in an order of keys that does not depend on how `serde_json` was built.
pub(super) fn media_json(parts: &[TranscriptPart], order: KeyOrder) -> String {
    let mut out = String::from(MEDIA_OPEN);
    out.push('[');
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        push_part(&mut out, part, order);
    }
    out.push(']');
    out.push_str(MEDIA_CLOSE);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> TranscriptPart {
        TranscriptPart::Text {
            text: text.to_owned(),
        }
    }

    fn image(url: &str) -> TranscriptPart {
        TranscriptPart::Image {
            url: url.to_owned(),
        }
    }

    fn path(path: &str) -> TranscriptMediaRef {
        TranscriptMediaRef::Path {
            path: path.to_owned(),
        }
    }

    fn every_kind() -> TranscriptMessage {
        TranscriptMessage::user_with_parts(vec![
            text("a "),
            image("i"),
            TranscriptPart::Audio {
                source: path("/p \"q\""),
                mime_type: "audio/wav".to_owned(),
            },
            TranscriptPart::Video {
                source: TranscriptMediaRef::Url {
                    url: "v".to_owned(),
                },
                mime_type: "video/mp4".to_owned(),
            },
            text(" b\n"),
            TranscriptPart::Document {
                source: path("d"),
                mime_type: "application/pdf".to_owned(),
            },
        ])
    }

    fn with_calls(text: &str) -> TranscriptMessage {
        let call = TranscriptToolCall {
            id: "c1".to_owned(),
            name: "ls".to_owned(),
            arguments: "{\"d\":1}".to_owned(),
            extra_content: Some(serde_json::json!({"s": 1})),
        };
        TranscriptMessage::assistant_with_calls(text, vec![call])
    }

    #[test]
    fn structure_is_encoded_as_older_hosts_encode_it() {
        let cases = [
            (
                with_calls("hi"),
                r#"{"content":"hi","tool_calls":[{"id":"c1","name":"ls","arguments":"{\"d\":1}","extra_content":{"s":1}}]}"#,
            ),
            (
                with_calls(""),
                r#"{"content":null,"tool_calls":[{"id":"c1","name":"ls","arguments":"{\"d\":1}","extra_content":{"s":1}}]}"#,
            ),
            (
                TranscriptMessage::tool_result("c1", "out\n"),
                r#"{"tool_call_id":"c1","content":"out\n"}"#,
            ),
            (
                TranscriptMessage::user_with_parts(vec![text("see "), image("u"), text(" ok?")]),
                "see [OH_IMAGE:u] ok?",
            ),
            (
                every_kind(),
                concat!(
                    r#"{"_tinyagents_media_parts":[{"type":"text","text":"a "},{"type":"image","url":"i"},"#,
                    r#"{"type":"audio","source":{"type":"path","path":"/p \"q\""},"mime_type":"audio/wav"},"#,
                    r#"{"type":"video","source":{"type":"url","url":"v"},"mime_type":"video/mp4"},"#,
                    r#"{"type":"text","text":" b\n"},"#,
                    r#"{"type":"document","source":{"type":"path","path":"d"},"mime_type":"application/pdf"}]}"#
                ),
            ),
            (TranscriptMessage::assistant("plain"), "plain"),
            (TranscriptMessage::tool("plain"), "plain"),
            (TranscriptMessage::system("{}"), "{}"),
        ];
        for (row, encoded) in cases {
            assert_eq!(row.legacy_content(), encoded);
            // What was encoded is lifted to the same row again.
            let back = TranscriptMessage::from_legacy(row.role.clone(), encoded);
            assert_eq!(back, row);
            assert!(back.same_row_as(&row));
        }
    }

    #[test]
    fn a_lifted_row_is_encoded_byte_for_byte_as_it_was_until_it_is_edited() {
        let odd = "{ \"content\": \"out\", \"x\": 1e2, \"tool_call_id\": \"c1\" }";
        let mut row = TranscriptMessage::from_legacy("tool", odd);
        assert_eq!(row.legacy_content(), odd);
        row.content = "other".to_owned();
        assert_eq!(
            row.legacy_content(),
            r#"{"tool_call_id":"c1","content":"other"}"#
        );
    }

    #[test]
    fn an_empty_list_of_parts_is_no_structure() {
        let row = TranscriptMessage {
            parts: Some(Vec::new()),
            ..TranscriptMessage::user("hi")
        };
        assert_eq!(row.legacy_content(), "hi");
        assert_eq!(row.display_content(), "hi");
    }

    #[test]
    fn the_media_json_is_what_serde_writes_where_keys_keep_their_order() {
        let parts = every_kind().parts.unwrap();
        assert_eq!(
            media_json(&parts, KeyOrder::Declared),
            format!(
                "{MEDIA_OPEN}{}{MEDIA_CLOSE}",
                serde_json::to_string(&parts).unwrap()
            )
        );
    }

    #[test]
    fn a_person_is_shown_media_in_its_place() {
        assert_eq!(
            every_kind().display_content(),
            "a [IMAGE:i][AUDIO:/p \"q\"][VIDEO:v] b\n[DOCUMENT:d]"
        );
        assert_eq!(TranscriptMessage::user("hi").display_content(), "hi");
        assert_eq!(with_calls("hi").display_content(), "hi");
    }

    #[test]
    fn a_person_is_shown_text_and_not_its_encoding() {
        assert_eq!(
            TranscriptMessage::user("see [OH_IMAGE:u]").display_content(),
            "see [IMAGE:u]"
        );
        let encoded = with_calls("hi").legacy_content();
        assert_eq!(
            TranscriptMessage::assistant(encoded).display_content(),
            "hi"
        );
    }
}
