//! What is on a line: one record, or several glued together, or what remained of them.

use std::ops::Range;

use serde_json::{Map, Value};

use super::quarantine::BadClass;
use super::scan;

/// The begin of an object with a member: where a record that was glued to a fragment begins.
const BEGIN: &[u8] = b"{\"";

/// A piece of a line.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// A JSON object.
    Record {
        /// Where on the line it is.
        range: Range<usize>,
        /// Its members.
        value: Map<String, Value>,
        /// Whether something of it could not be held as it is written.
        lossy: bool,
    },
    /// Bytes that are no record.
    Bad {
        /// Where on the line they are.
        range: Range<usize>,
        /// What is wrong with them.
        class: BadClass,
    },
}

/// What is on a line.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    /// Its pieces in order; none if it is blank.
    pub pieces: Vec<Piece>,
    /// How many records of it stood glued together on it, if more than one value did.
    pub glued: usize,
}

/// Takes a line apart. `ended` says whether a LF ends it, `owns` whether an object can be a whole record of the
/// format: it decides where behind a fragment a record begins.
///
/// Costs a small multiple of the line's length, whatever is on it.
pub fn split(bytes: &[u8], ended: bool, owns: impl Fn(&Map<String, Value>) -> bool) -> Split {
    // What is whole and plain, which is nearly every line, costs one pass of the fast reader.
    let whole = match serde_json::from_slice::<Value>(bytes) {
        Ok(value) => Some((value, false)),
        Err(_) => scan::parse(bytes)
            .ok()
            .filter(|parsed| is_blank(bytes.get(parsed.end..).unwrap_or_default()))
            .map(|parsed| (parsed.value, parsed.lossy)),
    };
    if let Some((value, lossy)) = whole {
        let range = 0..bytes.len();
        let piece = match value {
            Value::Object(value) => Piece::Record {
                range,
                value,
                lossy,
            },
            _ => Piece::Bad {
                range,
                class: BadClass::WrongShape,
            },
        };
        return Split {
            pieces: vec![piece],
            glued: 0,
        };
    }
    let mut splitter = Splitter {
        bytes,
        ended,
        // Looking for records behind fragments costs at most this much more.
        budget: bytes.len().saturating_mul(4).saturating_add(4096),
        pieces: Vec::new(),
        values: 0,
    };
    splitter.run(&owns);
    let records = splitter
        .pieces
        .iter()
        .filter(|piece| matches!(piece, Piece::Record { .. }))
        .count();
    let glued = if splitter.values > 1 { records } else { 0 };
    Split {
        pieces: splitter.pieces,
        glued,
    }
}

/// Whether there is nothing but white space.
#[must_use]
pub fn is_blank(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
}

struct Splitter<'b> {
    bytes: &'b [u8],
    ended: bool,
    budget: usize,
    pieces: Vec<Piece>,
    /// Records, and the fragments of such, that stand on the line.
    values: usize,
}

impl Splitter<'_> {
    fn run(&mut self, owns: &dyn Fn(&Map<String, Value>) -> bool) {
        let mut at = 0;
        while let Some(rest) = self.bytes.get(at..).filter(|rest| !is_blank(rest)) {
            let space = rest
                .iter()
                .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
                .count();
            let nul = rest
                .iter()
                .skip(space)
                .take_while(|byte| **byte == 0)
                .count();
            if nul > 0 {
                let from = at + space;
                self.bad(from..from + nul, BadClass::NulRun);
                at = from + nul;
                continue;
            }
            at = match scan::parse(rest) {
                Ok(parsed) => {
                    let range = at + space..at + parsed.end;
                    self.value(range, parsed.value, parsed.lossy);
                    at + parsed.end
                }
                Err(failure) => {
                    let next = self.next_record(at, at + failure.at, failure.cut, owns);
                    let end = next.unwrap_or(self.bytes.len());
                    self.fragment(at + space..end);
                    end
                }
            };
        }
    }

    fn value(&mut self, range: Range<usize>, value: Value, lossy: bool) {
        match value {
            Value::Object(value) => {
                self.values += 1;
                self.pieces.push(Piece::Record {
                    range,
                    value,
                    lossy,
                });
            }
            // A scalar with something behind it is the begin or the end of something.
            _ => self.bad(range, BadClass::Fragment),
        }
    }

    /// A piece without an end, up to the begin of a record or of a run of zero bytes within it.
    fn fragment(&mut self, range: Range<usize>) {
        let text = self.bytes.get(range.clone()).unwrap_or_default();
        let tail = text.iter().rev().take_while(|byte| **byte == 0).count();
        let end = range.end - tail;
        let at_end = range.end == self.bytes.len();
        let class = if at_end && !self.ended {
            BadClass::TornTail
        } else if std::str::from_utf8(text).is_err() {
            BadClass::InvalidUtf8
        } else {
            BadClass::Fragment
        };
        self.values += 1;
        self.bad(range.start..end, class);
        if tail > 0 {
            self.bad(end..range.end, BadClass::NulRun);
        }
    }

    /// Notes bytes that are no record, together with such before them.
    fn bad(&mut self, range: Range<usize>, class: BadClass) {
        if let Some(Piece::Bad {
            range: before,
            class: known,
        }) = self.pieces.last_mut()
            && *known != BadClass::NulRun
            && class != BadClass::NulRun
        {
            before.end = range.end;
            *known = class;
            return;
        }
        self.pieces.push(Piece::Bad { range, class });
    }

    /// Where the record begins that a fragment from `from` on runs into; reading the fragment failed at `failed`.
    ///
    /// If the record began within a string of the fragment, its first quote ended that string and the failure lies two
    /// bytes behind its begin; if it began elsewhere, the failure is its begin. Only where a record could stand as a
    /// value (the fragment ends in a colon) nothing fails but the end: then it is the record that reaches to the end.
    fn next_record(
        &mut self,
        from: usize,
        failed: usize,
        cut: bool,
        owns: &dyn Fn(&Map<String, Value>) -> bool,
    ) -> Option<usize> {
        let mut at = if cut {
            from + 1
        } else {
            failed.saturating_sub(2).max(from + 1)
        };
        loop {
            let rest = self.bytes.get(at..)?;
            at += rest.windows(BEGIN.len()).position(|two| two == BEGIN)?;
            let rest = self.bytes.get(at..)?;
            let (read, whole) = match scan::parse(rest) {
                Ok(parsed) => {
                    let owned = matches!(&parsed.value, Value::Object(value) if owns(value));
                    let last = is_blank(rest.get(parsed.end..).unwrap_or_default());
                    (parsed.end, owned && (last || !cut))
                }
                Err(failure) => (failure.at, false),
            };
            if whole {
                return Some(at);
            }
            self.budget = self.budget.checked_sub(read.max(1))?;
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a line as text: a record in brackets, else the class.
    fn pieces(line: &[u8], ended: bool) -> (Vec<String>, usize) {
        let split = split(line, ended, |value| value.contains_key("id"));
        let mut covered = 0;
        let shown = split
            .pieces
            .iter()
            .map(|piece| {
                let (range, class) = match piece {
                    Piece::Record { range, .. } => (range, None),
                    Piece::Bad { range, class } => (range, Some(class.name())),
                };
                assert!(is_blank(&line[covered..range.start]), "nothing is left out");
                covered = range.end;
                let text = String::from_utf8_lossy(&line[range.clone()]).into_owned();
                class.map_or(format!("<{text}>"), |class| format!("{class}:{text}"))
            })
            .collect();
        assert!(is_blank(&line[covered..]), "nothing is left over");
        (shown, split.glued)
    }

    fn check(line: &[u8], expected: &[&str], glued: usize) {
        let (shown, found) = pieces(line, true);
        assert_eq!(shown, expected);
        assert_eq!(found, glued, "{}", String::from_utf8_lossy(line));
    }

    #[test]
    fn glued_records_are_all_found() {
        check(
            br#"{"id":1}{"id":2}"#,
            &[r#"<{"id":1}>"#, r#"<{"id":2}>"#],
            2,
        );
        check(
            br#"{"id":1} {"x":2}{"id":3}"#,
            &[r#"<{"id":1}>"#, r#"<{"x":2}>"#, r#"<{"id":3}>"#],
            3,
        );
    }

    #[test]
    fn a_record_is_found_behind_a_fragment_that_ends_anywhere() {
        let whole = r#"{"id":7,"inner":{"id":8},"text":"a{\"id\":9}"}"#;
        let torn = r#"{"key":"some \"text\"","n":12,"list":[1,"x"],"o":{"id":3}}"#;
        for cut in 1..torn.len() {
            let line = format!("{}{whole}", &torn[..cut]);
            let (shown, glued) = pieces(line.as_bytes(), true);
            assert_eq!(shown.last().unwrap(), &format!("<{whole}>"), "{line}");
            assert_eq!(shown.len(), 2, "{line}");
            assert_eq!(glued, 1, "{line}");
        }
    }

    #[test]
    fn a_fragment_is_not_taken_apart_into_records_that_it_holds() {
        check(
            br#"{"type":"x","inner":{"name":1}"#,
            &[r#"fragment:{"type":"x","inner":{"name":1}"#],
            0,
        );
        check(
            br#"{"type":"x","inner":{"id":1},"more":"#,
            &[r#"fragment:{"type":"x","inner":{"id":1},"more":"#],
            0,
        );
        check(br#"tail of","id":5}"#, &[r#"fragment:tail of","id":5}"#], 0);
        check(br#""a":1}"#, &[r#"fragment:"a":1}"#], 0);
    }

    #[test]
    fn the_end_of_a_file_is_torn_unless_it_is_whole() {
        assert_eq!(pieces(br#"{"id":1"#, false).0, [r#"torn_tail:{"id":1"#]);
        assert_eq!(pieces(br#"{"id":1}"#, false).0, [r#"<{"id":1}>"#]);
        assert_eq!(
            pieces(br#"{"id":1}{"id""#, false).0,
            [r#"<{"id":1}>"#, r#"torn_tail:{"id""#]
        );
    }

    #[test]
    fn runs_of_zero_bytes_are_set_apart() {
        check(b"\0\0\0", &["nul_run:\0\0\0"], 0);
        check(b"\0\0{\"id\":1}", &["nul_run:\0\0", r#"<{"id":1}>"#], 0);
        check(b"{\"id\":1}\0", &[r#"<{"id":1}>"#, "nul_run:\0"], 0);
        check(
            b"{\"a\":\"x\0\0{\"id\":1}",
            &["fragment:{\"a\":\"x", "nul_run:\0\0", r#"<{"id":1}>"#],
            1,
        );
    }

    #[test]
    fn json_of_another_shape_is_no_record() {
        for line in ["42", "null", "\"x\"", "[1]", "true"] {
            check(line.as_bytes(), &[&format!("wrong_shape:{line}")], 0);
        }
        check(b"  ", &[], 0);
        assert!(matches!(
            &split(b"\xff\xfe", true, |_| true).pieces[..],
            [Piece::Bad {
                class: BadClass::InvalidUtf8,
                ..
            }]
        ));
    }

    #[test]
    fn a_hostile_line_costs_a_multiple_of_its_length() {
        let begun = std::time::Instant::now();
        for line in [r#"{"a":"#.repeat(400_000), r#"{"a" "#.repeat(400_000)] {
            let split = split(line.as_bytes(), true, |_| true);
            assert_eq!(split.pieces.len(), 1);
        }
        // Quadratic time would be hours.
        assert!(begun.elapsed().as_secs() < 60);
    }
}
