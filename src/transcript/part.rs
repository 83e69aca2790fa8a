//! The parts of a user row with media.

use serde::{Deserialize, Serialize};

/// Where media is. It never holds the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TranscriptMediaRef {
    /// A file of the host.
    Path {
        /// Its path, in the host's words.
        path: String,
    },
    /// A resource elsewhere.
    Url {
        /// Its address.
        url: String,
    },
}

/// One part of a user row with media.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TranscriptPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// Its address.
        url: String,
    },
    /// Sound.
    Audio {
        /// Where it is.
        source: TranscriptMediaRef,
        /// Its MIME type.
        mime_type: String,
    },
    /// Moving pictures.
    Video {
        /// Where it is.
        source: TranscriptMediaRef,
        /// Its MIME type.
        mime_type: String,
    },
    /// A document.
    Document {
        /// Where it is.
        source: TranscriptMediaRef,
        /// Its MIME type.
        mime_type: String,
    },
}

impl TranscriptMediaRef {
    /// The path or the address.
    pub(super) fn address(&self) -> &str {
        match self {
            Self::Path { path } => path,
            Self::Url { url } => url,
        }
    }
}

impl TranscriptPart {
    /// The text of a text part.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            _ => None,
        }
    }

    /// The text of all text parts, put together.
    pub(super) fn text_of(parts: &[Self]) -> String {
        parts.iter().filter_map(Self::text).collect()
    }

    /// Whether the part is media that the image markers cannot express.
    pub(super) fn is_beyond_images(&self) -> bool {
        !matches!(self, Self::Text { .. } | Self::Image { .. })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, to_string};

    use super::*;

    #[test]
    fn parts_and_places_are_tagged_by_their_type() {
        let url = TranscriptMediaRef::Url {
            url: "https://ex.org/v".to_owned(),
        };
        let parts = vec![
            TranscriptPart::Text {
                text: "t".to_owned(),
            },
            TranscriptPart::Image {
                url: "u".to_owned(),
            },
            TranscriptPart::Audio {
                source: url.clone(),
                mime_type: "audio/wav".to_owned(),
            },
            TranscriptPart::Video {
                source: url,
                mime_type: "video/mp4".to_owned(),
            },
        ];
        let json = to_string(&parts).unwrap();
        assert_eq!(
            json,
            concat!(
                r#"[{"type":"text","text":"t"},{"type":"image","url":"u"},"#,
                r#"{"type":"audio","source":{"type":"url","url":"https://ex.org/v"},"mime_type":"audio/wav"},"#,
                r#"{"type":"video","source":{"type":"url","url":"https://ex.org/v"},"mime_type":"video/mp4"}]"#
            )
        );
        assert_eq!(from_str::<Vec<TranscriptPart>>(&json).unwrap(), parts);
    }
}
