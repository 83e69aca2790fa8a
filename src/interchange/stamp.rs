//! Times and UUIDs as files write them.

use uuid::Uuid;

/// The text, if it is an RFC 3339 time; else an empty one.
#[must_use]
pub fn rfc3339(text: &str) -> String {
    match text.parse::<jiff::Timestamp>() {
        Ok(_) => text.to_owned(),
        Err(_) => String::new(),
    }
}

/// The UUID that a text is, with dashes or as 32 hex digits; None for any other id, and for the nil UUID.
#[must_use]
pub fn uuid(text: &str) -> Option<Uuid> {
    if !matches!(text.len(), 32 | 36) {
        return None;
    }
    Uuid::try_parse(text).ok().filter(|uuid| !uuid.is_nil())
}

/// The first and the last of the times that were met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Span {
    /// The earliest, or empty.
    pub first: String,
    /// The latest, or empty.
    pub last: String,
}

impl Span {
    /// Notes a time, unless it is empty.
    pub fn note(&mut self, ts: &str) {
        let Ok(time) = ts.parse::<jiff::Timestamp>() else {
            return;
        };
        let differs = |held: &str, earlier: bool| match held.parse::<jiff::Timestamp>() {
            Ok(held) => (time < held) == earlier && time != held,
            Err(_) => true,
        };
        if differs(&self.first, true) {
            ts.clone_into(&mut self.first);
        }
        if differs(&self.last, false) {
            ts.clone_into(&mut self.last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_goes_from_the_earliest_to_the_latest_whatever_the_order() {
        let mut span = Span::default();
        for ts in [
            "2026-01-02T00:00:00Z",
            "",
            "2026-01-01T00:00:00.5Z",
            "x",
            "2026-01-01T23:00:00Z",
        ] {
            span.note(&rfc3339(ts));
        }
        assert_eq!(span.first, "2026-01-01T00:00:00.5Z");
        assert_eq!(span.last, "2026-01-02T00:00:00Z");
    }

    #[test]
    fn only_a_uuid_is_a_uuid() {
        assert!(uuid("8f651100be6749e270555eaa703e3db0").is_some());
        assert!(uuid("8f651100-be67-49e2-7055-5eaa703e3db0").is_some());
        for other in [
            "",
            "u1",
            "{8f651100be6749e270555eaa703e3db0}",
            "00000000000000000000000000000000",
        ] {
            assert_eq!(uuid(other), None);
        }
    }
}
