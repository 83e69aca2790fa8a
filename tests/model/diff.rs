//! What the two stores disagree on.

use std::fmt::{self, Debug};

/// A disagreement, short enough to read.
#[derive(Clone)]
pub struct Divergence(pub String);

impl Debug for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub type Checked<T = ()> = Result<T, Divergence>;

/// Characters shown around the first difference.
const SHOWN: usize = 160;

/// Compares what the reference and the redb store (or a recount and a store) answer.
pub fn same<T: PartialEq + Debug + ?Sized>(what: &str, expected: &T, found: &T) -> Checked {
    if expected == found {
        return Ok(());
    }
    Err(differ(
        what,
        &format!("{expected:?}"),
        &format!("{found:?}"),
    ))
}

/// The report of a difference between two texts.
pub fn differ(what: &str, expected: &str, found: &str) -> Divergence {
    let common = expected
        .chars()
        .zip(found.chars())
        .take_while(|(a, b)| a == b)
        .count();
    let from = common.saturating_sub(SHOWN / 2);
    let part = |text: &str| {
        let part: String = text.chars().skip(from).take(2 * SHOWN).collect();
        format!("{}{part}", if from > 0 { "…" } else { "" })
    };
    Divergence(format!(
        "{what}\n  expected: {}\n  found:    {}",
        part(expected),
        part(found)
    ))
}

/// Fails unless it holds.
pub fn holds(condition: bool, what: impl FnOnce() -> String) -> Checked {
    if condition {
        Ok(())
    } else {
        Err(Divergence(what()))
    }
}
