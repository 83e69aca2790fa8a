//! When two rows are the same row.

use super::TranscriptMessage;

impl TranscriptMessage {
    /// Whether the two rows are the same to a store.
    ///
    /// Both sides are normalized first. The same are rows with equal id, role, content, calls, answered call and parts,
    /// unless both remember the text they were lifted from, still mean it, and the texts differ. Metadata, cache
    /// breakpoints, usage, request id and failure make no difference.
    ///
    /// The relation is not transitive: a row that remembers no text is the same as two rows whose texts differ.
    #[must_use]
    pub fn same_row_as(&self, other: &Self) -> bool {
        let (left, right) = (self.normalized_ref(), other.normalized_ref());
        left.id == right.id
            && left.role == right.role
            && left.content == right.content
            && left.tool_calls == right.tool_calls
            && left.tool_call_id == right.tool_call_id
            && left.parts == right.parts
            && left.same_legacy_as(&right)
    }

    /// Whether not both have live legacy texts, or those are equal. Equal texts need no look whether they are live.
    fn same_legacy_as(&self, other: &Self) -> bool {
        match (self.legacy.as_deref(), other.legacy.as_deref()) {
            (Some(left), Some(right)) if left != right => {
                self.live_legacy().is_none() || other.live_legacy().is_none()
            }
            _ => true,
        }
    }
}

/// Whether two lists of rows are the same: of one length, and pairwise [`same_row_as`](TranscriptMessage::same_row_as).
#[must_use]
pub fn same_transcript_messages(a: &[TranscriptMessage], b: &[TranscriptMessage]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(left, right)| left.same_row_as(right))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::transcript::{ToolFailure, TranscriptPart, TranscriptToolCall, TurnUsage};

    fn with_calls() -> TranscriptMessage {
        let call = TranscriptToolCall {
            id: "c1".to_owned(),
            name: "ls".to_owned(),
            arguments: "{}".to_owned(),
            extra_content: Some(json!({"a": 1, "b": 2})),
        };
        TranscriptMessage::assistant_with_calls("hi", vec![call]).with_id("m1")
    }

    #[test]
    fn what_a_row_says_makes_it_another_row() {
        let row = TranscriptMessage {
            tool_call_id: Some("c0".to_owned()),
            parts: Some(Vec::new()),
            ..with_calls()
        };
        assert!(row.same_row_as(&row.clone()));
        let edits: [fn(&mut TranscriptMessage); 11] = [
            |row| row.id = None,
            |row| row.role = "user".to_owned(),
            |row| row.content.push('!'),
            |row| row.tool_calls[0].id.push('!'),
            |row| row.tool_calls[0].name.push('!'),
            |row| row.tool_calls[0].arguments.push('!'),
            |row| row.tool_calls[0].extra_content = None,
            |row| row.tool_calls.clear(),
            |row| row.tool_call_id = None,
            |row| row.parts = None,
            |row| {
                row.parts = Some(vec![TranscriptPart::Image {
                    url: "u".to_owned(),
                }]);
            },
        ];
        for edit in edits {
            let mut other = row.clone();
            edit(&mut other);
            assert!(!row.same_row_as(&other), "{other:?}");
            assert!(!other.same_row_as(&row), "{other:?}");
        }
    }

    #[test]
    fn what_is_said_about_a_row_leaves_it_the_same_row() {
        let row = with_calls();
        let other = TranscriptMessage {
            cache_breakpoints: vec![1],
            preserve_request_id: true,
            interrupted: true,
            ..row.clone()
        }
        .with_extra_metadata(json!(1))
        .with_turn_usage(TurnUsage::default())
        .with_request_id("rq")
        .with_tool_failure(ToolFailure::failed());
        assert!(row.same_row_as(&other));
        assert_ne!(row, other);
    }

    #[test]
    fn the_order_of_keys_in_extra_content_makes_no_difference() {
        let mut other = with_calls();
        other.tool_calls[0].extra_content = Some(serde_json::from_str(r#"{"b":2,"a":1}"#).unwrap());
        assert!(with_calls().same_row_as(&other));
    }

    #[test]
    fn a_row_is_the_same_as_its_encoding() {
        let text = with_calls().legacy_content();
        let encoded = TranscriptMessage::assistant(text).with_id("m1");
        assert!(encoded.same_row_as(&with_calls()));
        assert!(with_calls().same_row_as(&encoded));
        assert_ne!(encoded, with_calls());
    }

    #[test]
    fn two_live_texts_that_differ_make_two_rows_of_one_meaning() {
        let close =
            TranscriptMessage::from_legacy("tool", r#"{"tool_call_id":"c1","content":"o"}"#);
        let wide = TranscriptMessage::tool(r#"{ "tool_call_id": "c1", "content": "o" }"#);
        let typed = TranscriptMessage::tool_result("c1", "o");
        assert!(!close.same_row_as(&wide));
        assert!(!wide.same_row_as(&close));
        assert!(close.same_row_as(&close.clone()));
        // Not transitive: the row without a text is the same as both.
        assert!(typed.same_row_as(&close) && typed.same_row_as(&wide));
    }

    #[test]
    fn a_text_that_the_row_no_longer_means_makes_no_difference() {
        let mut close =
            TranscriptMessage::from_legacy("tool", r#"{"tool_call_id":"c1","content":"o"}"#);
        let mut wide =
            TranscriptMessage::from_legacy("tool", r#"{ "tool_call_id": "c1", "content": "o" }"#);
        close.content.push('!');
        wide.content.push('!');
        assert!(close.same_row_as(&wide));
        let live =
            TranscriptMessage::from_legacy("tool", r#"{"content":"o!","tool_call_id":"c1"}"#);
        assert!(close.same_row_as(&live));
    }

    #[test]
    fn lists_are_the_same_if_they_are_pairwise() {
        let rows = [TranscriptMessage::user("a"), with_calls()];
        let encoded = [
            TranscriptMessage::user("a"),
            TranscriptMessage::assistant(with_calls().legacy_content()).with_id("m1"),
        ];
        assert!(same_transcript_messages(&rows, &encoded));
        assert!(same_transcript_messages(&[], &[]));
        assert!(!same_transcript_messages(&rows, &rows[..1]));
        let swapped = [rows[1].clone(), rows[0].clone()];
        assert!(!same_transcript_messages(&rows, &swapped));
    }
}
