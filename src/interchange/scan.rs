//! A JSON reader for what a strict reader refuses.
//!
//! [`parse`] reads one JSON value from the front of some bytes, iteratively and in one pass. It takes what files in
//! the field hold and `serde_json` does not: a lone surrogate and a byte that is not UTF-8 become U+FFFD, a part nested
//! deeper than [`MAX_DEPTH`] and a number that no `f64` holds become their own text. Whatever was changed so is
//! flagged. Of duplicate keys the last counts. It never recurses; its memory is a small multiple of the input.

use serde_json::{Map, Number, Value};

/// The deepest nesting that is read as structure; what lies deeper is kept as text.
pub const MAX_DEPTH: usize = 128;

/// A value, read from the front of some bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The value.
    pub value: Value,
    /// Where it ends: the rest begins there.
    pub end: usize,
    /// Whether something of it could not be held as it is written.
    pub lossy: bool,
}

/// That the bytes do not begin with a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Where reading stopped.
    pub at: usize,
    /// Whether the bytes ended there, so that more of them could have made a value.
    pub cut: bool,
}

/// Reads the value that `bytes` begin with, after any white space.
///
/// # Errors
///
/// [`Failure`] with the place of the first byte that no JSON value could have there.
pub fn parse(bytes: &[u8]) -> Result<Parsed, Failure> {
    Parser {
        bytes,
        at: 0,
        lossy: false,
        open: Vec::new(),
        deep: Vec::new(),
        deep_from: 0,
    }
    .run()
}

/// A container whose end was not read yet.
enum Open {
    Array(Vec<Value>),
    Object(Map<String, Value>, String),
}

/// What stands next.
enum Next {
    /// A value; an array may also end here.
    Value { or_end: bool },
    /// The key of a member; an object may also end here.
    Key { or_end: bool },
    /// A comma or the end of the container.
    More,
}

struct Parser<'b> {
    bytes: &'b [u8],
    at: usize,
    lossy: bool,
    /// The containers that are built.
    open: Vec<Open>,
    /// The containers below [`MAX_DEPTH`], a byte each: true for an object.
    deep: Vec<bool>,
    /// Where the outermost of these begins.
    deep_from: usize,
}

impl Parser<'_> {
    fn run(mut self) -> Result<Parsed, Failure> {
        let mut next = Next::Value { or_end: false };
        loop {
            self.skip_space();
            let byte = self.peek()?;
            let done = match next {
                Next::Value { or_end } if byte == b']' && or_end => self.close(false)?,
                Next::Value { .. } => match byte {
                    b'[' | b'{' => {
                        next = self.enter(byte == b'{');
                        continue;
                    }
                    _ => self.scalar(byte)?,
                },
                Next::Key { or_end } if byte == b'}' && or_end => self.close(true)?,
                Next::Key { .. } => {
                    self.key()?;
                    next = Next::Value { or_end: false };
                    continue;
                }
                Next::More => match byte {
                    b',' => {
                        self.at += 1;
                        next = if self.in_object() {
                            Next::Key { or_end: false }
                        } else {
                            Next::Value { or_end: false }
                        };
                        continue;
                    }
                    b']' => self.close(false)?,
                    b'}' => self.close(true)?,
                    _ => return Err(self.wrong()),
                },
            };
            if let Some(value) = done {
                match self.open.last_mut() {
                    None => {
                        return Ok(Parsed {
                            value,
                            end: self.at,
                            lossy: self.lossy,
                        });
                    }
                    Some(Open::Array(items)) => items.push(value),
                    Some(Open::Object(members, key)) => {
                        members.insert(std::mem::take(key), value);
                    }
                }
            }
            next = Next::More;
        }
    }

    fn in_object(&self) -> bool {
        match self.deep.last() {
            Some(object) => *object,
            None => matches!(self.open.last(), Some(Open::Object(..))),
        }
    }

    fn enter(&mut self, object: bool) -> Next {
        if self.deep.is_empty() && self.open.len() < MAX_DEPTH {
            self.open.push(if object {
                Open::Object(Map::new(), String::new())
            } else {
                Open::Array(Vec::new())
            });
        } else {
            if self.deep.is_empty() {
                self.deep_from = self.at;
            }
            self.deep.push(object);
        }
        self.at += 1;
        if object {
            Next::Key { or_end: true }
        } else {
            Next::Value { or_end: true }
        }
    }

    /// Ends the innermost container: what it became, unless it lies within one that is kept as text.
    fn close(&mut self, object: bool) -> Result<Option<Value>, Failure> {
        if self.in_object() != object || (self.open.is_empty() && self.deep.is_empty()) {
            return Err(self.wrong());
        }
        self.at += 1;
        if self.deep.pop().is_some() {
            if !self.deep.is_empty() {
                return Ok(None);
            }
            self.lossy = true;
            let text = self.bytes.get(self.deep_from..self.at).unwrap_or_default();
            return Ok(Some(Value::String(
                String::from_utf8_lossy(text).into_owned(),
            )));
        }
        Ok(Some(match self.open.pop() {
            Some(Open::Array(items)) => Value::Array(items),
            Some(Open::Object(members, _)) => Value::Object(members),
            None => Value::Null,
        }))
    }

    /// Reads the key of a member and the colon behind it.
    fn key(&mut self) -> Result<(), Failure> {
        if self.peek()? != b'"' {
            return Err(self.wrong());
        }
        let key = self.string()?;
        if self.deep.is_empty()
            && let Some(Open::Object(_, held)) = self.open.last_mut()
        {
            *held = key;
        }
        self.skip_space();
        if self.peek()? != b':' {
            return Err(self.wrong());
        }
        self.at += 1;
        Ok(())
    }

    /// Reads a value that is no container: None within a part that is kept as text.
    fn scalar(&mut self, byte: u8) -> Result<Option<Value>, Failure> {
        let value = match byte {
            b'"' => Value::String(self.string()?),
            b't' => self.word(b"true", Value::Bool(true))?,
            b'f' => self.word(b"false", Value::Bool(false))?,
            b'n' => self.word(b"null", Value::Null)?,
            b'-' | b'0'..=b'9' => self.number()?,
            _ => return Err(self.wrong()),
        };
        Ok(self.deep.is_empty().then_some(value))
    }

    fn word(&mut self, word: &[u8], value: Value) -> Result<Value, Failure> {
        for expected in word {
            if self.peek()? != *expected {
                return Err(self.wrong());
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, Failure> {
        let from = self.at;
        if self.peek()? == b'-' {
            self.at += 1;
        }
        if self.peek()? == b'0' {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek()?, b'+' | b'-') {
                self.at += 1;
            }
            self.digits()?;
        }
        let text = self.bytes.get(from..self.at).unwrap_or_default();
        Ok(match serde_json::from_slice::<Number>(text) {
            Ok(number) => Value::Number(number),
            Err(_) => {
                self.lossy = true;
                Value::String(String::from_utf8_lossy(text).into_owned())
            }
        })
    }

    fn digits(&mut self) -> Result<(), Failure> {
        if !self.peek()?.is_ascii_digit() {
            return Err(self.wrong());
        }
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> Result<String, Failure> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let from = self.at;
            while !matches!(self.peek()?, b'"' | b'\\' | 0..=0x1f) {
                self.at += 1;
            }
            let plain = self.bytes.get(from..self.at).unwrap_or_default();
            match std::str::from_utf8(plain) {
                Ok(plain) => text.push_str(plain),
                Err(_) => {
                    self.lossy = true;
                    text.push_str(&String::from_utf8_lossy(plain));
                }
            }
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Ok(text);
                }
                b'\\' => {
                    self.at += 1;
                    text.push(self.escape()?);
                }
                _ => return Err(self.wrong()),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Failure> {
        let plain = match self.peek()? {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                self.at += 1;
                return self.unicode();
            }
            _ => return Err(self.wrong()),
        };
        self.at += 1;
        Ok(plain)
    }

    /// Reads the four digits of an escaped UTF-16 unit, and the second of a pair.
    fn unicode(&mut self) -> Result<char, Failure> {
        let first = self.unit()?;
        if let Some(plain) = char::from_u32(first) {
            return Ok(plain);
        }
        let high = (0xd800..0xdc00).contains(&first);
        if high && self.bytes.get(self.at..self.at + 2) == Some(b"\\u") {
            let back = self.at;
            self.at += 2;
            let second = self.unit()?;
            if (0xdc00..0xe000).contains(&second) {
                let scalar = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(scalar).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            // The second stands for itself.
            self.at = back;
        }
        self.lossy = true;
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn unit(&mut self) -> Result<u32, Failure> {
        let mut unit = 0;
        for _ in 0..4 {
            let Some(digit) = char::from(self.peek()?).to_digit(16) else {
                return Err(self.wrong());
            };
            unit = unit * 16 + digit;
            self.at += 1;
        }
        Ok(unit)
    }

    fn skip_space(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Result<u8, Failure> {
        self.bytes.get(self.at).copied().ok_or(Failure {
            at: self.at,
            cut: true,
        })
    }

    fn wrong(&self) -> Failure {
        Failure {
            at: self.at,
            cut: self.at >= self.bytes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Parsed {
        parse(text).unwrap()
    }

    #[test]
    fn what_a_strict_reader_takes_reads_the_same() {
        for text in [
            r#"{"a":[1,-2.5e3,true,false,null,"x\n\u00e9\ud83d\ude00"],"b":{},"c":[]}"#,
            r#"  [ 1 , { "k" : "v" } ] "#,
            "0",
            r#""""#,
        ] {
            let parsed = read(text.as_bytes());
            assert_eq!(parsed.value, serde_json::from_str::<Value>(text).unwrap());
            assert!(!parsed.lossy);
        }
    }

    #[test]
    fn what_no_text_can_hold_becomes_a_replacement_character_and_is_flagged() {
        for text in [
            &br#""a\ud83db""#[..],
            br#""a\ude00b""#,
            b"\"a\xffb\"",
            br#""a\ud83d""#,
        ] {
            let parsed = read(text);
            assert!(parsed.lossy);
            assert!(parsed.value.as_str().unwrap().contains('\u{fffd}'));
        }
        assert_eq!(read(br#""\ud83d\u0041""#).value, "\u{fffd}A");
        assert_eq!(read(br#""\ud83d\ud83d\ude00""#).value, "\u{fffd}\u{1f600}");
    }

    #[test]
    fn a_number_that_is_too_large_becomes_its_text() {
        let parsed = read(br#"{"n":1e400}"#);
        assert!(parsed.lossy);
        assert_eq!(parsed.value["n"], "1e400");
    }

    #[test]
    fn the_last_of_duplicate_keys_counts() {
        assert_eq!(read(br#"{"a":1,"a":2}"#).value["a"], 2);
    }

    #[test]
    fn nesting_of_any_depth_is_read_and_what_lies_too_deep_is_text() {
        let deep = format!("{}{}", "[".repeat(300_000), "]".repeat(300_000));
        let parsed = read(deep.as_bytes());
        assert!(parsed.lossy);
        assert_eq!(parsed.end, deep.len());
        let mut at = &parsed.value;
        for _ in 0..MAX_DEPTH {
            at = &at[0];
        }
        assert_eq!(at.as_str().unwrap().len(), deep.len() - 2 * MAX_DEPTH);

        let fits = format!("{}1{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        assert!(!read(fits.as_bytes()).lossy);
        let open = "{\"a\":".repeat(300_000);
        assert!(parse(open.as_bytes()).unwrap_err().cut);
    }

    #[test]
    fn a_failure_says_where_and_whether_the_bytes_ended() {
        let cases: [(&[u8], usize, bool); 9] = [
            (b"", 0, true),
            (br#"{"a":1"#, 6, true),
            (br#"{"a":"x"#, 7, true),
            (br#"{"a" 1}"#, 5, false),
            (b"[1,]", 3, false),
            (b"[}", 1, false),
            (b"]", 0, false),
            (b"\"a\nb\"", 2, false),
            (b"{,}", 1, false),
        ];
        for (text, at, cut) in cases {
            assert_eq!(parse(text), Err(Failure { at, cut }), "{text:?}");
        }
    }

    #[test]
    fn the_rest_behind_a_value_is_left() {
        assert_eq!(read(br#"{"a":1}{"b":2}"#).end, 7);
        assert_eq!(read(b"12 x").end, 2);
    }
}
