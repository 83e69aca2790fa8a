//! The one module that knows bincode.
//!
//! Values are encoded with bincode's standard configuration (little-endian variable-width integers) through its own
//! derives. Every decode is bounded: without a limit a damaged length makes bincode panic or allocate without end.
//! Appending bytes to a value is an error here, not silently ignored.

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

/// The encoding of `value`.
pub(super) fn encode<T: bincode::Encode>(value: &T) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(256);
    encode_into(value, &mut out)?;
    Ok(out)
}

/// The encoding of `value` with fixed-width integers: for rows of counters, whose length should not change.
pub(super) fn encode_fixed<T: bincode::Encode>(value: &T) -> Result<Vec<u8>> {
    bincode::encode_to_vec(value, fixed()).map_err(Error::other)
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

/// Decodes a value that fills `bytes` exactly.
pub(super) fn decode<'a, T: bincode::BorrowDecode<'a, ()>>(
    bytes: &'a [u8],
    what: &'static str,
) -> Result<T> {
    match decode_prefix(bytes, what)? {
        (value, []) => Ok(value),
        _ => Err(damaged(what)),
    }
}

/// Decodes a value that [`encode_fixed`] wrote.
pub(super) fn decode_fixed<'a, T: bincode::BorrowDecode<'a, ()>>(
    bytes: &'a [u8],
    what: &'static str,
) -> Result<T> {
    match bincode::borrow_decode_from_slice(bytes, fixed()) {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        _ => Err(damaged(what)),
    }
}

fn damaged(what: &'static str) -> Error {
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
        let ours = encode(&ours::value(text)).unwrap();
        let next = bincode_next::encode_to_vec(next::value(text), next_config).unwrap();
        assert_eq!(ours, next);

        let read: ours::Value<'_> = decode(&next, "a value").unwrap();
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
        let ours = encode_fixed(&value).unwrap();
        assert_eq!(
            ours,
            bincode_next::encode_to_vec(value, next_config).unwrap()
        );
        assert_eq!(decode_fixed::<[u64; 4]>(&ours, "a value").unwrap(), value);
    }

    #[test]
    fn bytes_behind_a_value_and_lengths_that_lie_are_damage() {
        let mut bytes = encode(&"text").unwrap();
        bytes.push(0);
        assert!(matches!(
            decode::<&str>(&bytes, "a value"),
            Err(Error::Corrupted { .. })
        ));
        // A vector that claims 2^64 - 1 elements.
        let lie = [0xFD, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF];
        assert!(matches!(
            decode::<Vec<u64>>(&lie, "a value"),
            Err(Error::Corrupted { .. })
        ));
    }
}
