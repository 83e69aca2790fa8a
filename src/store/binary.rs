//! The one module that knows bincode.
//!
//! Values are encoded with bincode's standard configuration (little-endian variable-width integers) through its own
//! derives. Every decode is bounded: without a limit a damaged length makes bincode panic or allocate without end.
//! Appending bytes to a value is an error here, not silently ignored.
//!
//! redb does not check its pages when it reads them. What stands in a table therefore ends in a checksum of its own
//! ([`encode`], [`decode`] and their fixed-width twins), except for records, whose envelope has one.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian, Varint, standard};

use crate::{Error, Result};

/// The largest value that is ever decoded, in bytes. It exceeds every record limit that a store accepts.
const DECODE_LIMIT: usize = 1 << 30;

type Config = Configuration<LittleEndian, Varint, Limit<DECODE_LIMIT>>;
type FixedConfig = Configuration<LittleEndian, Fixint, Limit<DECODE_LIMIT>>;

const fn config() -> Config {
    standard().with_limit::<DECODE_LIMIT>()
}

const fn fixed() -> FixedConfig {
    standard()
        .with_fixed_int_encoding()
        .with_limit::<DECODE_LIMIT>()
}

/// Appends the encoding of `value` to `out`.
pub(super) fn encode_into<T: bincode::Encode>(value: &T, out: &mut Vec<u8>) -> Result<()> {
    bincode::encode_into_std_write(value, out, config())
        .map(drop)
        .map_err(Error::other)
}

/// Bytes in the making, and where among them long strings and byte strings stand.
#[derive(Debug)]
pub(super) struct Noting {
    pub(super) bytes: Vec<u8>,
    pub(super) long: Vec<std::ops::Range<usize>>,
    threshold: usize,
}

impl Noting {
    /// Notes what is at least `threshold` bytes long.
    pub(super) fn new(capacity: usize, threshold: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(capacity),
            long: Vec::new(),
            threshold,
        }
    }

    /// Appends the encoding of `value`.
    pub(super) fn encode<T: bincode::Encode>(&mut self, value: &T) -> Result<()> {
        bincode::encode_into_writer(value, self, config()).map_err(Error::other)
    }
}

impl bincode::enc::write::Writer for Noting {
    fn write(&mut self, bytes: &[u8]) -> std::result::Result<(), bincode::error::EncodeError> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        // bincode writes a string in one go.
        if bytes.len() >= self.threshold {
            self.long.push(start..self.bytes.len());
        }
        Ok(())
    }
}

/// A string that is often long, encoded as any other: it is checked with vector instructions when it is read, where the
/// standard library takes several times as long over text that is not all ASCII.
pub(super) struct Text<'a>(pub(super) &'a str);

impl bincode::Encode for Text<'_> {
    fn encode<E: bincode::enc::Encoder>(
        &self,
        encoder: &mut E,
    ) -> std::result::Result<(), bincode::error::EncodeError> {
        self.0.encode(encoder)
    }
}

impl<'de, C> bincode::BorrowDecode<'de, C> for Text<'de> {
    fn borrow_decode<D: bincode::de::BorrowDecoder<'de, Context = C>>(
        decoder: &mut D,
    ) -> std::result::Result<Self, bincode::error::DecodeError> {
        let bytes = <&'de [u8]>::borrow_decode(decoder)?;
        match simdutf8::basic::from_utf8(bytes) {
            Ok(text) => Ok(Self(text)),
            Err(_) => Err(bincode::error::DecodeError::Other("text is not UTF-8")),
        }
    }
}

/// The encoding of `value` with its checksum.
pub(super) fn encode<T: bincode::Encode>(value: &T) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(256);
    encode_into(value, &mut out)?;
    Ok(sealed(out))
}

/// The encoding of `value` with fixed-width integers and its checksum: for rows of counters, whose length should not
/// change.
pub(super) fn encode_fixed<T: bincode::Encode>(value: &T) -> Result<Vec<u8>> {
    bincode::encode_to_vec(value, fixed())
        .map(sealed)
        .map_err(Error::other)
}

/// Appends the checksum that [`unsealed`] checks.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// Checks and takes off the checksum.
fn unsealed<'a>(bytes: &'a [u8], what: &'static str) -> Result<&'a [u8]> {
    match bytes.split_last_chunk() {
        Some((value, crc)) if u32::from_le_bytes(*crc) == crc32fast::hash(value) => Ok(value),
        _ => Err(Error::Corrupted {
            what: what.to_owned(),
            at: "the checksum does not match".to_owned(),
        }),
    }
}

/// Decodes a value from the start of `bytes` and returns it with the bytes behind it.
pub(super) fn decode_prefix<'a, T: bincode::BorrowDecode<'a, ()>>(
    bytes: &'a [u8],
    what: &'static str,
) -> Result<(T, &'a [u8])> {
    let (value, used) =
        bincode::borrow_decode_from_slice(bytes, config()).map_err(|_| damaged(what))?;
    let rest = bytes.get(used..).ok_or_else(|| damaged(what))?;
    Ok((value, rest))
}

/// Decodes a value that fills `bytes` exactly and has no checksum.
pub(super) fn decode_all<'a, T: bincode::BorrowDecode<'a, ()>>(
    bytes: &'a [u8],
    what: &'static str,
) -> Result<T> {
    match decode_prefix(bytes, what)? {
        (value, []) => Ok(value),
        _ => Err(damaged(what)),
    }
}

/// Decodes a value that [`encode`] wrote.
pub(super) fn decode<'a, T: bincode::BorrowDecode<'a, ()>>(
    bytes: &'a [u8],
    what: &'static str,
) -> Result<T> {
    decode_all(unsealed(bytes, what)?, what)
}

/// Decodes the first field of a value that [`encode`] wrote.
pub(super) fn decode_first<'a, T: bincode::BorrowDecode<'a, ()>>(
    bytes: &'a [u8],
    what: &'static str,
) -> Result<T> {
    decode_prefix(unsealed(bytes, what)?, what).map(|(value, _)| value)
}

/// Decodes a value that [`encode_fixed`] wrote.
pub(super) fn decode_fixed<'a, T: bincode::BorrowDecode<'a, ()>>(
    bytes: &'a [u8],
    what: &'static str,
) -> Result<T> {
    let bytes = unsealed(bytes, what)?;
    match bincode::borrow_decode_from_slice(bytes, fixed()) {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        _ => Err(damaged(what)),
    }
}

pub(super) fn damaged(what: &'static str) -> Error {
    Error::Corrupted {
        what: what.to_owned(),
        at: "its encoding does not parse".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same types derived for both crates, with every kind of field that the format is made of.
    macro_rules! twin {
        ($name:ident, $crate_name:ident) => {
            mod $name {
                use $crate_name::{BorrowDecode, Decode, Encode};

                #[derive(Debug, PartialEq, Encode, Decode)]
                pub(super) enum Kind {
                    Plain,
                    Named { number: u32 },
                }

                #[derive(Debug, PartialEq, Encode, BorrowDecode)]
                pub(super) struct Value<'a> {
                    pub(super) flag: bool,
                    pub(super) code: u8,
                    pub(super) small: u32,
                    pub(super) counts: Vec<u64>,
                    pub(super) time: i64,
                    pub(super) money: i128,
                    pub(super) digest: u128,
                    pub(super) cost: f64,
                    pub(super) uuid: [u8; 16],
                    pub(super) text: &'a str,
                    pub(super) optional: Option<&'a str>,
                    pub(super) none: Option<u64>,
                    pub(super) kinds: Vec<Kind>,
                }

                pub(super) fn value(text: &str) -> Value<'_> {
                    Value {
                        flag: true,
                        code: 3,
                        small: 70_000,
                        counts: vec![0, 250, 251, 65_535, 65_536, 1 << 32, u64::MAX],
                        time: -1_732_965_300_000_000,
                        money: -12_500_000_000,
                        digest: u128::MAX - 1,
                        cost: 0.012_5,
                        uuid: *b"0123456789abcdef",
                        text,
                        optional: Some(text),
                        none: None,
                        kinds: vec![Kind::Plain, Kind::Named { number: 251 }],
                    }
                }
            }
        };
    }

    twin!(ours, bincode);
    twin!(next, bincode_next);

    /// The way out if bincode has to go: its successor reads what it wrote and writes what it reads.
    #[test]
    fn bincode_next_writes_and_reads_the_same_bytes() {
        let text = "h\u{e9}llo \u{65e5}";
        let next_config = bincode_next::config::standard().with_limit::<DECODE_LIMIT>();
        let mut ours = Vec::new();
        encode_into(&ours::value(text), &mut ours).unwrap();
        let next = bincode_next::encode_to_vec(next::value(text), next_config).unwrap();
        assert_eq!(ours, next);

        let read: ours::Value<'_> = decode_all(&next, "a value").unwrap();
        assert_eq!(read, ours::value(text));
        let (read, used): (next::Value<'_>, _) =
            bincode_next::borrow_decode_from_slice(&ours, next_config).unwrap();
        assert_eq!((read, used), (next::value(text), ours.len()));
    }

    #[test]
    fn bincode_next_writes_and_reads_the_same_fixed_width_bytes() {
        let next_config = bincode_next::config::standard()
            .with_fixed_int_encoding()
            .with_limit::<DECODE_LIMIT>();
        let value = [0u64, 250, 65_536, u64::MAX];
        let next = bincode_next::encode_to_vec(value, next_config).unwrap();
        assert_eq!(encode_fixed(&value).unwrap(), sealed(next.clone()));
        assert_eq!(
            decode_fixed::<[u64; 4]>(&sealed(next), "a value").unwrap(),
            value
        );
    }

    fn is_damage<T>(result: &Result<T>) -> bool {
        matches!(result, Err(Error::Corrupted { .. }))
    }

    #[test]
    fn bytes_behind_a_value_and_lengths_that_lie_are_damage() {
        let mut bytes = Vec::new();
        encode_into(&"text", &mut bytes).unwrap();
        bytes.push(0);
        assert!(is_damage(&decode_all::<&str>(&bytes, "a value")));
        assert!(is_damage(&decode::<&str>(&sealed(bytes), "a value")));
        // A vector that claims 2^64 - 1 elements.
        let lie = [0xFD, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF];
        assert!(is_damage(&decode_all::<Vec<u64>>(&lie, "a value")));
    }

    #[test]
    fn a_long_text_is_encoded_as_any_other_and_has_to_be_utf8() {
        let text = "high water \u{2014} \u{6f6e} ".repeat(200);
        let (mut bytes, mut plain) = (Vec::new(), Vec::new());
        encode_into(&Text(&text), &mut bytes).unwrap();
        encode_into(&text.as_str(), &mut plain).unwrap();
        assert_eq!(bytes, plain);
        let read: Text<'_> = decode_all(&bytes, "a value").unwrap();
        assert_eq!(read.0, text);
        let middle = bytes.len() / 2;
        bytes[middle] = 0xFF;
        assert!(is_damage(&decode_all::<Text<'_>>(&bytes, "a value")));
    }

    #[test]
    fn a_changed_bit_anywhere_in_a_value_is_damage() {
        let variable = encode(&(7u64, "text")).unwrap();
        let fixed = encode_fixed(&[7u64, 8]).unwrap();
        assert_eq!(
            decode::<(u64, &str)>(&variable, "a value").unwrap(),
            (7, "text")
        );
        for bit in 0..variable.len() * 8 {
            let mut bytes = variable.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(is_damage(&decode::<(u64, &str)>(&bytes, "a value")));
        }
        for bit in 0..fixed.len() * 8 {
            let mut bytes = fixed.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(is_damage(&decode_fixed::<[u64; 2]>(&bytes, "a value")));
        }
    }
}
