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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::transcript::{ToolFailure, TranscriptMediaRef, TurnUsage};

    fn call(id: &str) -> TranscriptToolCall {
        TranscriptToolCall {
            id: id.to_owned(),
            name: "ls".to_owned(),
            arguments: "{}".to_owned(),
            extra_content: None,
        }
    }

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

    fn audio() -> TranscriptPart {
        TranscriptPart::Audio {
            source: TranscriptMediaRef::Path {
                path: "/a.wav".to_owned(),
            },
            mime_type: "audio/wav".to_owned(),
        }
    }

    /// Asserts that the text stays text.
    fn assert_plain(role: &str, content: &str) {
        let row = TranscriptMessage::new(role, content);
        assert!(
            matches!(row.normalized_ref(), Cow::Borrowed(_)),
            "{content}"
        );
        assert!(row.normalized().legacy.as_deref().is_none(), "{content}");
    }

    /// Asserts that the text is lifted to the parts, and remembered.
    fn assert_parts(content: &str, text: &str, parts: &[TranscriptPart]) {
        let row = TranscriptMessage::from_legacy("user", content);
        assert_eq!(row.content, text, "{content}");
        assert_eq!(row.parts.as_deref(), Some(parts), "{content}");
        assert_eq!(row.live_legacy(), Some(content));
    }

    #[test]
    fn calls_of_an_assistant_row_are_lifted() {
        let content = concat!(
            " \n{\"tool_calls\":[{\"id\":\"c1\",\"name\":\"ls\",\"arguments\":\"{}\",\"index\":0},",
            "{\"id\":\"c2\",\"name\":\"ls\",\"arguments\":\"{}\",\"extra_content\":{\"s\":[1]}}],",
            "\"reasoning_content\":\"hm\",\"content\":\"looking\"}\t"
        );
        let row = TranscriptMessage::from_legacy("assistant", content);
        assert_eq!(row.content, "looking");
        let mut second = call("c2");
        second.extra_content = Some(json!({"s": [1]}));
        assert_eq!(row.tool_calls, [call("c1"), second]);
        assert_eq!(row.live_legacy(), Some(content));
        assert_eq!(row.extra_metadata, None);
        assert_eq!(row.embedded_reasoning().as_deref(), Some("hm"));
    }

    #[test]
    fn a_content_that_is_no_string_is_lifted_as_empty() {
        for content in [
            r#"{"content":null,"tool_calls":[{"id":"c1","name":"ls","arguments":"{}"}]}"#,
            r#"{"content":["x"],"tool_calls":[{"id":"c1","name":"ls","arguments":"{}"}]}"#,
            r#"{"tool_calls":[{"id":"c1","name":"ls","arguments":"{}"}]}"#,
        ] {
            let row = TranscriptMessage::from_legacy("assistant", content);
            assert_eq!(
                row,
                TranscriptMessage::assistant_with_calls("", vec![call("c1")])
            );
            let row = TranscriptMessage::from_legacy(
                "tool",
                content.replace(
                    r#""tool_calls":[{"id":"c1","name":"ls","arguments":"{}"}]"#,
                    r#""tool_call_id":"c1""#,
                ),
            );
            assert_eq!(row, TranscriptMessage::tool_result("c1", ""));
        }
    }

    #[test]
    fn an_assistant_text_without_well_formed_calls_stays_text() {
        for content in [
            "",
            "plain",
            "{",
            "{}",
            r#"{"tool_calls":[]}"#,
            r#"{"tool_calls":null,"content":"x"}"#,
            r#"{"tool_calls":{"id":"c1","name":"ls","arguments":"{}"}}"#,
            r#"{"tool_calls":[{"id":"c1","name":"ls"}]}"#,
            r#"{"tool_calls":[{"id":"c1","name":"ls","arguments":{}}]}"#,
            r#"{"tool_calls":[["c1","ls","{}"]]}"#,
            r#"{"tool_calls":[{"id":"c1","name":"ls","arguments":"{}"},{"id":"c2"}]}"#,
            r#"[{"tool_calls":[{"id":"c1","name":"ls","arguments":"{}"}]}]"#,
            r#"{"tool_calls":[{"id":"c1","name":"ls","arguments":"{}"}]} and more"#,
            "\u{feff}{\"tool_calls\":[{\"id\":\"c1\",\"name\":\"ls\",\"arguments\":\"{}\"}]}",
            r#"{"content":{"tool_calls":[{"id":"c1","name":"ls","arguments":"{}"}]}}"#,
            r#"{"tool_call_id":"c1","content":"out"}"#,
            "[OH_IMAGE:u]",
        ] {
            assert_plain("assistant", content);
        }
    }

    #[test]
    fn a_key_that_is_spelled_with_escapes_is_the_same_key() {
        let content = r#"{"tool\u005fcall_id":"c1","content":"out"}"#;
        let row = TranscriptMessage::from_legacy("tool", content);
        assert_eq!(row, TranscriptMessage::tool_result("c1", "out"));
    }

    #[test]
    fn the_call_that_a_tool_row_answers_is_lifted() {
        let content = r#"{"name":"ls","content":"out","tool_call_id":"c1"}"#;
        let row = TranscriptMessage::from_legacy("tool", content);
        assert_eq!(row.tool_call_id.as_deref(), Some("c1"));
        assert_eq!(row.content, "out");
        assert_eq!(row.id, None);
        assert_eq!(row.live_legacy(), Some(content));
        for content in [
            "out",
            r#"{"tool_call_id":7,"content":"out"}"#,
            r#"{"content":"out"}"#,
            r#"["tool_call_id","c1"]"#,
        ] {
            assert_plain("tool", content);
        }
    }

    #[test]
    fn media_parts_are_lifted_in_either_order_of_keys() {
        for content in [
            concat!(
                r#"{"_tinyagents_media_parts":[{"type":"text","text":"a é\n"},{"type":"image","url":"u"},"#,
                r#"{"type":"audio","source":{"type":"path","path":"/a.wav"},"mime_type":"audio/wav"},{"type":"text","text":"b"}]}"#
            ),
            concat!(
                r#"{"_tinyagents_media_parts":[{"text":"a é\n","type":"text"},{"type":"image","url":"u"},"#,
                r#"{"mime_type":"audio/wav","source":{"path":"/a.wav","type":"path"},"type":"audio"},{"text":"b","type":"text"}]}"#
            ),
        ] {
            let parts = [text("a é\n"), image("u"), audio(), text("b")];
            assert_parts(content, "a é\nb", &parts);
        }
        for kind in ["audio", "video", "document"] {
            let content = format!(
                r#"{{"_tinyagents_media_parts":[{{"type":"{kind}","source":{{"type":"url","url":"u"}},"mime_type":"m"}}]}}"#
            );
            let row = TranscriptMessage::from_legacy("user", content);
            assert_eq!(row.parts.map(|parts| parts.len()), Some(1), "{kind}");
            assert_eq!(row.content, "");
        }
    }

    #[test]
    fn anything_but_the_exact_json_of_media_parts_is_the_users_own_text() {
        let audio =
            r#"{"type":"audio","source":{"type":"path","path":"/a.wav"},"mime_type":"audio/wav"}"#;
        let exact = format!(r#"{{"_tinyagents_media_parts":[{audio}]}}"#);
        assert_ne!(TranscriptMessage::from_legacy("user", &*exact).parts, None);
        for content in [
            // An extra key.
            exact.replace("]}", r#"],"v":1}"#),
            exact.replace(r#","mime_type""#, r#","id":"x","mime_type""#),
            // Other spacing.
            format!("{exact}\n"),
            format!(" {exact}"),
            exact.replace(":[", ": ["),
            exact.replace(r#""type":"audio","#, r#""type":"audio", "#),
            // Another spelling of the same string.
            exact.replace("audio/wav", r"audio\/wav"),
            // Orders that are neither, or a mix of both.
            exact.replace(audio, r#"{"source":{"type":"path","path":"/a.wav"},"type":"audio","mime_type":"audio/wav"}"#),
            exact.replace(audio, &format!(r#"{{"text":"t","type":"text"}},{audio}"#)),
            // A kind that is not known, a list of images, an empty list, no list.
            exact.replace(r#""audio","#, r#""hologram","#),
            exact.replace(audio, r#"{"type":"image","url":"u"}"#),
            exact.replace(audio, ""),
            exact.replace(&format!("[{audio}]"), audio),
            exact.replace("_tinyagents", "tinyagents"),
        ] {
            assert_plain("user", &content);
        }
        assert_plain("assistant", &exact);
    }

    #[test]
    fn image_markers_split_a_user_text_in_its_order() {
        let cases: &[(&str, &str, &[TranscriptPart])] = &[
            ("[OH_IMAGE:u]", "", &[image("u")]),
            (
                "see [OH_IMAGE:u] ok?",
                "see  ok?",
                &[text("see "), image("u"), text(" ok?")],
            ),
            ("[OH_IMAGE:a][OH_IMAGE:b]", "", &[image("a"), image("b")]),
            // An unterminated marker stays text, one part with the text around it.
            (
                "[OH_IMAGE:a] x [OH_IMAGE:b",
                " x [OH_IMAGE:b",
                &[image("a"), text(" x [OH_IMAGE:b")],
            ),
            (
                "é[OH_IMAGE:data:image/png;base64,日]é]",
                "éé]",
                &[text("é"), image("data:image/png;base64,日"), text("é]")],
            ),
            ("[OH_IMAGE:[OH_IMAGE:a]", "", &[image("[OH_IMAGE:a")]),
            ("[OH_IMAGE:]", "", &[image("")]),
            (
                "\n[OH_IMAGE:a]\n",
                "\n\n",
                &[text("\n"), image("a"), text("\n")],
            ),
        ];
        for (content, text, parts) in cases {
            assert_parts(content, text, parts);
        }
    }

    #[test]
    fn a_user_text_without_a_closed_marker_stays_text() {
        for content in [
            "",
            "hi",
            "[OH_IMAGE:u",
            "[OH_IMAGE",
            "[oh_image:u]",
            "] [OH_IMAGE:",
            "[IMAGE:u]",
        ] {
            assert_plain("user", content);
        }
    }

    #[test]
    fn other_roles_are_never_lifted() {
        for role in ["system", "developer", "function", "User", ""] {
            assert_plain(role, "[OH_IMAGE:u]");
            assert_plain(role, r#"{"tool_call_id":"c1","content":"out"}"#);
        }
    }

    #[test]
    fn a_typed_row_is_left_as_it_is() {
        let mut row = TranscriptMessage::assistant_with_calls("", vec![call("c1")]);
        row.content = r#"{"tool_calls":[{"id":"c9","name":"x","arguments":""}]}"#.to_owned();
        assert!(matches!(row.normalized_ref(), Cow::Borrowed(_)));
        let row = TranscriptMessage::tool_result("c1", r#"{"tool_call_id":"c2"}"#);
        assert!(matches!(row.normalized_ref(), Cow::Borrowed(_)));
        let lifted = TranscriptMessage::from_legacy("user", "[OH_IMAGE:u]");
        assert!(matches!(lifted.normalized_ref(), Cow::Borrowed(_)));
    }

    #[test]
    fn lifting_keeps_every_other_field() {
        let row = TranscriptMessage {
            id: Some("m1".to_owned()),
            cache_breakpoints: vec![3],
            preserve_request_id: true,
            interrupted: true,
            ..TranscriptMessage::tool(r#"{"tool_call_id":"c1","content":"out"}"#)
        }
        .with_request_id("rq")
        .with_extra_metadata(json!({"k": 1}))
        .with_turn_usage(TurnUsage::default())
        .with_tool_failure(ToolFailure::failed());
        let lifted = TranscriptMessage {
            content: "out".to_owned(),
            tool_call_id: Some("c1".to_owned()),
            ..row.clone()
        };
        assert_eq!(row.normalized(), lifted);
    }

    #[test]
    fn a_remembered_text_is_live_only_while_the_row_means_it() {
        let lifted = TranscriptMessage::from_legacy(
            "assistant",
            r#"{"tool_calls":[{"id":"c1","name":"ls","arguments":"{}"}],"content":"a"}"#,
        );
        assert!(lifted.live_legacy().is_some());
        let edits: [fn(&mut TranscriptMessage); 5] = [
            |row| row.content.push('!'),
            |row| row.tool_calls.clear(),
            |row| row.tool_calls[0].extra_content = Some(json!(1)),
            |row| row.tool_call_id = Some("c1".to_owned()),
            |row| row.role = "user".to_owned(),
        ];
        for edit in edits {
            let mut row = lifted.clone();
            edit(&mut row);
            assert_eq!(row.live_legacy(), None, "{row:?}");
        }
        // What is no part of the row's meaning can change.
        let row = lifted.clone().with_id("m1").with_request_id("rq");
        assert!(row.live_legacy().is_some());
    }

    #[test]
    fn reasoning_is_found_only_in_a_text_that_is_live() {
        let content =
            r#"{"tool_calls":[{"id":"c1","name":"ls","arguments":"{}"}],"reasoning_content":"hm"}"#;
        let mut row = TranscriptMessage::from_legacy("assistant", content);
        assert_eq!(row.embedded_reasoning().as_deref(), Some("hm"));
        row.content.push('x');
        assert_eq!(row.embedded_reasoning(), None);
        let row = TranscriptMessage::from_legacy("assistant", content.replace("\"hm\"", "7"));
        assert!(row.is_typed());
        assert_eq!(row.embedded_reasoning(), None);
        assert_eq!(TranscriptMessage::assistant("a").embedded_reasoning(), None);
    }

    #[test]
    fn json_that_is_nested_beyond_any_stack_is_text() {
        let content = format!("{{\"tool_calls\":{}", "[".repeat(1 << 20));
        assert_plain("assistant", &content);
        let content = format!("{MEDIA_OPEN}{}{MEDIA_CLOSE}", "[".repeat(1 << 20));
        assert_plain("user", &content);
    }
}
