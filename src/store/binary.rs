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
        .map_err(|error| Error::other(error))
}

/// The encoding of `value`.
pub(super) fn encode<T: bincode::Encode>(value: &T) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(256);
    encode_into(value, &mut out)?;
    Ok(out)
}

/// The encoding of `value` with fixed-width integers: for rows of counters, whose length should not change.
pub(super) fn encode_fixed<T: bincode::Encode>(value: &T) -> Result<Vec<u8>> {
    bincode::encode_to_vec(value, fixed()).map_err(|error| Error::other(error))
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
