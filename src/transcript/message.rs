//! A row, and what it is made of.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{TranscriptPart, TurnUsage};

/// A call of a tool by the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptToolCall {
    /// The provider's id of the call, which its result repeats.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as the provider streamed them, kept even when they are not valid JSON.
    pub arguments: String,
    /// What else the provider attached to the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_content: Option<Value>,
}

/// That a tool row is the result of a call that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolFailure {
    /// Whether it failed. A row with a failure that is none reads back without it.
    #[serde(default)]
    pub failed: bool,
    /// How it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl ToolFailure {
    /// A failure without detail.
    #[must_use]
    pub fn failed() -> Self {
        Self {
            failed: true,
            detail: None,
        }
    }

    /// Sets how it failed.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

/// The text encoding that a typed row was lifted from, remembered so that the row can be written the same way again.
///
/// It is opaque: [`TranscriptMessage::legacy_content`] gives the text while the row still means it. Two of them are
/// always equal, so that `==` on rows compares what the rows say and not how they were once encoded.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LegacyText(Option<String>);

impl LegacyText {
    pub(crate) fn from_option(text: Option<String>) -> Self {
        Self(text)
    }

    pub(crate) fn as_deref(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl PartialEq for LegacyText {
    /// Always true.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for LegacyText {}

/// One row of a transcript: role, text, typed structure, metadata.
///
/// `==` compares every field but [`legacy`](Self::legacy). Whether two rows are the same row to a store is
/// [`same_row_as`](Self::same_row_as).
///
/// ```
/// use transcript_redb::TranscriptMessage;
///
/// let row: TranscriptMessage = serde_json::from_str(r#"{"role":"assistant","content":"hi"}"#)?;
/// assert_eq!(row, TranscriptMessage::assistant("hi"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct TranscriptMessage {
    /// The host's stable id of the row. Of a tool row it is traditionally the call id.
    #[serde(default)]
    pub id: Option<String>,
    /// `system`, `user`, `assistant`, `tool`, or any other word.
    pub role: String,
    /// The text, and nothing but text.
    pub content: String,
    /// The native calls of an assistant row.
    #[serde(default)]
    pub tool_calls: Vec<TranscriptToolCall>,
    /// The call that a tool row answers.
    #[serde(default)]
    pub tool_call_id: Option<String>,
    /// The ordered parts of a user row with media; `None` for text only.
    #[serde(default)]
    pub parts: Option<Vec<TranscriptPart>>,
    /// The text encoding that the row was lifted from, if it was.
    #[serde(default)]
    pub legacy: LegacyText,
    /// The caller's own JSON.
    #[serde(default)]
    pub extra_metadata: Option<Value>,
    /// Where the host marks the context for the provider's cache; opaque to a store.
    #[serde(default)]
    pub cache_breakpoints: Vec<usize>,
    /// Usage and provenance recorded with the row.
    #[serde(default)]
    pub turn_usage: Option<TurnUsage>,
    /// The turn that the row belongs to.
    #[serde(default)]
    pub request_id: Option<String>,
    /// Whether `request_id` is authoritative even when it is `None`. True on every row that a read returns, which is
    /// how a store knows its own rows again.
    #[serde(default)]
    pub preserve_request_id: bool,
    /// Whether the row is the partial of an interrupted turn, which is shown and never replayed.
    #[serde(default)]
    pub interrupted: bool,
    /// That the row is the result of a call that failed.
    #[serde(default, deserialize_with = "real_failure")]
    pub tool_failure: Option<ToolFailure>,
}

/// A failure that is none reads as absent.
fn real_failure<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ToolFailure>, D::Error> {
    let failure = Option::<ToolFailure>::deserialize(deserializer)?;
    Ok(failure.filter(|failure| failure.failed))
}

impl Serialize for TranscriptMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// The row with a legacy text only if that is live, which a rule on the field alone could not tell.
        #[derive(Serialize)]
        struct Live<'a> {
            id: &'a Option<String>,
            role: &'a str,
            content: &'a str,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            tool_calls: &'a [TranscriptToolCall],
            #[serde(skip_serializing_if = "Option::is_none")]
            tool_call_id: &'a Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            parts: &'a Option<Vec<TranscriptPart>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            legacy: Option<&'a str>,
            extra_metadata: &'a Option<Value>,
            cache_breakpoints: &'a [usize],
            #[serde(skip_serializing_if = "Option::is_none")]
            turn_usage: &'a Option<TurnUsage>,
            #[serde(skip_serializing_if = "Option::is_none")]
            request_id: &'a Option<String>,
            preserve_request_id: bool,
            interrupted: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            tool_failure: &'a Option<ToolFailure>,
        }
        // Taken apart, so that a new field cannot be forgotten.
        let Self {
            id,
            role,
            content,
            tool_calls,
            tool_call_id,
            parts,
            legacy: _,
            extra_metadata,
            cache_breakpoints,
            turn_usage,
            request_id,
            preserve_request_id,
            interrupted,
            tool_failure,
        } = self;
        Live {
            id,
            role,
            content,
            tool_calls,
            tool_call_id,
            parts,
            legacy: self.live_legacy(),
            extra_metadata,
            cache_breakpoints,
            turn_usage,
            request_id,
            preserve_request_id: *preserve_request_id,
            interrupted: *interrupted,
            tool_failure,
        }
        .serialize(serializer)
    }
}

impl TranscriptMessage {
    /// A row of plain text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            id: None,
            role: role.into(),
            content: content.into(),
            tool_calls: Vec::new(),
            tool_call_id: None,
            parts: None,
            legacy: LegacyText::default(),
            extra_metadata: None,
            cache_breakpoints: Vec::new(),
            turn_usage: None,
            request_id: None,
            preserve_request_id: false,
            interrupted: false,
            tool_failure: None,
        }
    }

    /// A `system` row of plain text.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// A `user` row of plain text.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// An `assistant` row of plain text.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }

    /// A `tool` row of plain text, which names no call. See [`tool_result`](Self::tool_result).
    pub fn tool(content: impl Into<String>) -> Self {
        Self::new("tool", content)
    }

    /// An `assistant` row that issues calls.
    pub fn assistant_with_calls(text: impl Into<String>, calls: Vec<TranscriptToolCall>) -> Self {
        Self {
            tool_calls: calls,
            ..Self::assistant(text)
        }
    }

    /// A `tool` row that answers a call. Its [`id`](Self::id) stays `None`.
    pub fn tool_result(call_id: impl Into<String>, output: impl Into<String>) -> Self {
        Self {
            tool_call_id: Some(call_id.into()),
            ..Self::tool(output)
        }
    }

    /// A `user` row of ordered parts. Its content is the text parts put together; the parts are kept only if one of
    /// them is not text.
    #[must_use]
    pub fn user_with_parts(parts: Vec<TranscriptPart>) -> Self {
        let content = TranscriptPart::text_of(&parts);
        let media = parts.iter().any(|part| part.text().is_none());
        Self {
            parts: media.then_some(parts),
            ..Self::user(content)
        }
    }

    /// A row from text in which an older host may have packed structure: `new(role, content).normalized()`.
    pub fn from_legacy(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self::new(role, content).normalized()
    }

    /// Sets the host's id of the row.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the caller's own JSON.
    #[must_use]
    pub fn with_extra_metadata(mut self, metadata: Value) -> Self {
        self.extra_metadata = Some(metadata);
        self
    }

    /// Sets the usage recorded with the row.
    #[must_use]
    pub fn with_turn_usage(mut self, usage: TurnUsage) -> Self {
        self.turn_usage = Some(usage);
        self
    }

    /// Sets the turn that the row belongs to. A turn's own request id takes its place when the row is stored, unless
    /// [`preserve_request_id`](Self::preserve_request_id) is set too.
    #[must_use]
    pub fn with_request_id(mut self, request_id: impl Into<String>) -> Self {
        self.request_id = Some(request_id.into());
        self
    }

    /// Sets that the row is the result of a call that failed.
    #[must_use]
    pub fn with_tool_failure(mut self, failure: ToolFailure) -> Self {
        self.tool_failure = Some(failure);
        self
    }

    /// Whether the row has typed structure: calls, a call that it answers, or parts.
    #[must_use]
    pub fn is_typed(&self) -> bool {
        !self.tool_calls.is_empty() || self.tool_call_id.is_some() || self.parts.is_some()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, json, to_string};

    use super::*;
    use crate::transcript::{MessageUsage, TranscriptMediaRef};

    fn call() -> TranscriptToolCall {
        TranscriptToolCall {
            id: "c1".to_owned(),
            name: "ls".to_owned(),
            arguments: "{\"dir\":".to_owned(),
            extra_content: None,
        }
    }

    fn document() -> TranscriptPart {
        TranscriptPart::Document {
            source: TranscriptMediaRef::Path {
                path: "/tmp/a.pdf".to_owned(),
            },
            mime_type: "application/pdf".to_owned(),
        }
    }

    fn text(text: &str) -> TranscriptPart {
        TranscriptPart::Text {
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_plain_row_serializes_its_ever_present_fields_only() {
        assert_eq!(
            to_string(&TranscriptMessage::user("hi")).unwrap(),
            r#"{"id":null,"role":"user","content":"hi","extra_metadata":null,"cache_breakpoints":[],"preserve_request_id":false,"interrupted":false}"#
        );
    }

    #[test]
    fn a_full_row_serializes_every_field_and_reads_back_equal() {
        let row = TranscriptMessage {
            id: Some("m1".to_owned()),
            tool_calls: vec![TranscriptToolCall {
                extra_content: Some(json!({"sig": 1})),
                ..call()
            }],
            tool_call_id: Some("c0".to_owned()),
            parts: Some(vec![document()]),
            extra_metadata: Some(json!({"k": [1.5]})),
            cache_breakpoints: vec![0, 7],
            turn_usage: Some(TurnUsage::default()),
            request_id: Some("rq".to_owned()),
            preserve_request_id: true,
            interrupted: true,
            tool_failure: Some(ToolFailure::failed().with_detail("denied")),
            ..TranscriptMessage::assistant("a")
        };
        let json = to_string(&row).unwrap();
        assert_eq!(
            json,
            concat!(
                r#"{"id":"m1","role":"assistant","content":"a","#,
                r#""tool_calls":[{"id":"c1","name":"ls","arguments":"{\"dir\":","extra_content":{"sig":1}}],"#,
                r#""tool_call_id":"c0","#,
                r#""parts":[{"type":"document","source":{"type":"path","path":"/tmp/a.pdf"},"mime_type":"application/pdf"}],"#,
                r#""extra_metadata":{"k":[1.5]},"cache_breakpoints":[0,7],"#,
                r#""turn_usage":{"provider":"","model":"","usage":{"input":0,"output":0,"cached_input":0,"context_window":0,"cost_usd":0.0,"last_call_input":0,"last_call_output":0},"ts":"","tool_calls":[],"iteration":0},"#,
                r#""request_id":"rq","preserve_request_id":true,"interrupted":true,"#,
                r#""tool_failure":{"failed":true,"detail":"denied"}}"#
            )
        );
        assert_eq!(from_str::<TranscriptMessage>(&json).unwrap(), row);
    }

    #[test]
    fn a_row_of_role_and_content_alone_reads_as_the_constructor_makes_it() {
        let row: TranscriptMessage = from_str(r#"{"role":"assistant","content":"hi"}"#).unwrap();
        assert_eq!(row, TranscriptMessage::assistant("hi"));
        assert!(row.legacy.as_deref().is_none());
    }

    #[test]
    fn unknown_keys_are_ignored_and_required_ones_are_not_made_up() {
        let row: TranscriptMessage =
            from_str(r#"{"content":"hi","v":3,"role":"user","shape":{"x":[1]}}"#).unwrap();
        assert_eq!(row, TranscriptMessage::user("hi"));
        assert!(from_str::<TranscriptMessage>(r#"{"role":"user"}"#).is_err());
        assert!(from_str::<TranscriptMessage>(r#"{"content":"hi"}"#).is_err());
        assert!(from_str::<TranscriptMessage>(r#"{"role":"user","content":null}"#).is_err());
        assert!(from_str::<TranscriptToolCall>(r#"{"id":"c","name":"n"}"#).is_err());
    }

    #[test]
    fn a_failure_that_is_none_reads_back_as_absent() {
        let row = TranscriptMessage::tool_result("c1", "ok").with_tool_failure(ToolFailure {
            failed: false,
            detail: Some("left over".to_owned()),
        });
        let back: TranscriptMessage = from_str(&to_string(&row).unwrap()).unwrap();
        assert_eq!(back, TranscriptMessage::tool_result("c1", "ok"));
        let bare: TranscriptMessage =
            from_str(r#"{"role":"tool","content":"","tool_failure":{}}"#).unwrap();
        assert_eq!(bare.tool_failure, None);
        let null: TranscriptMessage =
            from_str(r#"{"role":"tool","content":"","tool_failure":null}"#).unwrap();
        assert_eq!(null.tool_failure, None);
    }

    #[test]
    fn a_live_legacy_text_is_a_bare_string_that_survives_json() {
        let envelope =
            r#"{ "tool_calls": [{"id":"c1","name":"ls","arguments":""}], "extra": true }"#;
        let row = TranscriptMessage::from_legacy("assistant", envelope);
        let json = to_string(&row).unwrap();
        let value: Value = from_str(&json).unwrap();
        assert_eq!(value["legacy"], envelope);
        let back: TranscriptMessage = from_str(&json).unwrap();
        assert_eq!(back.legacy_content(), envelope);
    }

    #[test]
    fn a_legacy_text_that_the_row_no_longer_means_is_not_serialized() {
        let mut row = TranscriptMessage::from_legacy("user", "see [OH_IMAGE:u]");
        row.content.push_str(" too");
        assert!(row.legacy.as_deref().is_some());
        assert!(!to_string(&row).unwrap().contains("legacy"));
    }

    #[test]
    fn how_a_row_was_once_encoded_makes_no_difference_to_equality() {
        let envelope = r#"{"tool_call_id":"c1","content":"out"}"#;
        assert_eq!(
            TranscriptMessage::from_legacy("tool", envelope),
            TranscriptMessage::tool_result("c1", "out")
        );
        assert_eq!(
            LegacyText::from_option(Some("a".to_owned())),
            LegacyText::default()
        );
    }

    #[test]
    fn constructors_set_what_they_say_and_nothing_else() {
        assert_eq!(TranscriptMessage::system("s").role, "system");
        assert_eq!(
            TranscriptMessage::tool("t"),
            TranscriptMessage::new("tool", "t")
        );
        let calls = TranscriptMessage::assistant_with_calls("a", vec![call()]);
        assert_eq!(calls.tool_calls, [call()]);
        assert_eq!((&*calls.role, &*calls.content), ("assistant", "a"));
        let answer = TranscriptMessage::tool_result("c1", "out");
        assert_eq!(answer.tool_call_id.as_deref(), Some("c1"));
        assert_eq!(answer.id, None);
        let row = TranscriptMessage::user("u").with_id("m1");
        assert_eq!(row.id.as_deref(), Some("m1"));
        let usage = TurnUsage {
            usage: MessageUsage {
                input: 1,
                ..MessageUsage::default()
            },
            ..TurnUsage::default()
        };
        let row = row
            .with_request_id("rq")
            .with_extra_metadata(json!(1))
            .with_turn_usage(usage.clone());
        assert_eq!(row.request_id.as_deref(), Some("rq"));
        assert!(!row.preserve_request_id);
        assert_eq!(row.extra_metadata, Some(json!(1)));
        assert_eq!(row.turn_usage, Some(usage));
    }

    #[test]
    fn parts_of_a_user_row_are_kept_only_with_media() {
        let row = TranscriptMessage::user_with_parts(vec![text("a "), document(), text("b")]);
        assert_eq!(row.content, "a b");
        assert_eq!(row.parts.as_ref().map(Vec::len), Some(3));
        assert_eq!(
            TranscriptMessage::user_with_parts(vec![text("a "), text("b")]),
            TranscriptMessage::user("a b")
        );
        assert_eq!(
            TranscriptMessage::user_with_parts(Vec::new()),
            TranscriptMessage::user("")
        );
    }

    #[test]
    fn a_row_with_any_structure_is_typed() {
        assert!(!TranscriptMessage::assistant("a").is_typed());
        assert!(!TranscriptMessage::assistant_with_calls("a", Vec::new()).is_typed());
        assert!(TranscriptMessage::assistant_with_calls("a", vec![call()]).is_typed());
        assert!(TranscriptMessage::tool_result("c", "o").is_typed());
        assert!(TranscriptMessage::user_with_parts(vec![document()]).is_typed());
    }
}
