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
