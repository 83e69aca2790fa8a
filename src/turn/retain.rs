//! The baseline check, and which rows of a new context are rows that are already stored.

use std::borrow::Cow;

use crate::{Error, Result, TranscriptMessage};

/// The live context that a turn is planned against, as a store can show it.
///
/// A store that keeps hashes of its rows overrides the provided methods; their answers must be these.
pub(crate) trait StoredRows {
    /// Number of rows.
    fn len(&self) -> usize;

    /// The row as a read returns it.
    fn row(&mut self, index: usize) -> Result<&TranscriptMessage>;

    /// Whether the stored row is the same row as `row`, which need not be normalized.
    fn same_row(&mut self, index: usize, row: &TranscriptMessage) -> Result<bool> {
        Ok(self.row(index)?.same_row_as(row))
    }

    /// The first row that matches and is not taken. `row` is prepared: normalized, without a failure that is none.
    fn find(
        &mut self,
        row: &TranscriptMessage,
        how: Match,
        taken: &[bool],
    ) -> Result<Option<usize>> {
        for index in 0..self.len() {
            let free = !taken.get(index).copied().unwrap_or_default();
            if free && matches(self.row(index)?, row, how) {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }
}

/// Rows in memory.
pub(crate) struct Rows<'a>(pub(crate) Vec<&'a TranscriptMessage>);

impl StoredRows for Rows<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn row(&mut self, index: usize) -> Result<&TranscriptMessage> {
        let found = self.0.get(index).copied();
        found.ok_or_else(|| Error::other("a row beyond the end of the context was asked for"))
    }
}

/// How closely a row of a new context has to match a stored one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    /// Nothing differs: the stored row itself is kept.
    Exact,
    /// The same row of the same request, changed in what row identity leaves out: a revision.
    SameRequest,
    /// The row of the same request that carries the same usage, with other content: a revision.
    SameRequestAndUsage,
}

/// Whether the prepared `row` matches `stored`.
pub(crate) fn matches(stored: &TranscriptMessage, row: &TranscriptMessage, how: Match) -> bool {
    if stored.request_id != row.request_id {
        return false;
    }
    match how {
        Match::Exact => {
            stored.turn_usage == row.turn_usage
                && stored.tool_failure == row.tool_failure
                && stored.extra_metadata == row.extra_metadata
                && stored.cache_breakpoints == row.cache_breakpoints
                && stored.same_row_as(row)
        }
        Match::SameRequest => stored.same_row_as(row),
        Match::SameRequestAndUsage => {
            row.turn_usage.is_some() && stored.turn_usage == row.turn_usage
        }
    }
}

/// Whether the live context is, row by row, what the caller believes it is.
fn same_context(stored: &mut dyn StoredRows, prev: &[TranscriptMessage]) -> Result<bool> {
    Ok(stored.len() == prev.len() && common_prefix(stored, prev)? == prev.len())
}

/// Refuses a baseline that is not the live context.
pub(crate) fn check_baseline(
    stem: &str,
    stored: &mut dyn StoredRows,
    prev: &[TranscriptMessage],
) -> Result<()> {
    if same_context(stored, prev)? {
        return Ok(());
    }
    Err(Error::Stale {
        stem: stem.to_owned(),
        expected: prev.len(),
        found: stored.len(),
    })
}

/// How many rows at the beginning of both are the same.
pub(crate) fn common_prefix(
    stored: &mut dyn StoredRows,
    next: &[TranscriptMessage],
) -> Result<usize> {
    for (index, row) in next.iter().enumerate().take(stored.len()) {
        if !stored.same_row(index, row)? {
            return Ok(index);
        }
    }
    Ok(next.len().min(stored.len()))
}

/// What becomes of a row of a new context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is the stored row.
    Kept(usize),
    /// It is stored as a revision of the stored row.
    Revision(usize),
    /// It is stored.
    New,
}

/// Finds the stored row of each of the prepared `rows`.
///
/// Exact matches are taken first, by all rows, so that a changed row earlier in the context cannot take the stored row
/// that a later one is.
pub(super) fn fates(
    stored: &mut dyn StoredRows,
    rows: &[Cow<'_, TranscriptMessage>],
) -> Result<Vec<Fate>> {
    let mut fates = vec![Fate::New; rows.len()];
    let mut taken = vec![false; stored.len()];
    let mut take = |row: &TranscriptMessage,
                    how,
                    fate: &mut Fate,
                    as_fate: fn(usize) -> Fate|
     -> Result<bool> {
        let Some(index) = stored.find(row, how, &taken)? else {
            return Ok(false);
        };
        if let Some(taken) = taken.get_mut(index) {
            *taken = true;
        }
        *fate = as_fate(index);
        Ok(true)
    };

    // Only a row that came from a read can be a stored row, and a read of the live context gives no partial.
    let candidate = |row: &TranscriptMessage| row.preserve_request_id && !row.interrupted;
    for (row, fate) in rows
        .iter()
        .zip(&mut fates)
        .filter(|(row, _)| candidate(row))
    {
        take(row, Match::Exact, fate, Fate::Kept)?;
    }
    for (row, fate) in rows
        .iter()
        .zip(&mut fates)
        .filter(|(row, _)| candidate(row))
    {
        if *fate == Fate::New && !take(row, Match::SameRequest, fate, Fate::Revision)? {
            take(row, Match::SameRequestAndUsage, fate, Fate::Revision)?;
        }
    }
    Ok(fates)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{MessageUsage, ToolFailure, TurnUsage};

    fn read(role: &str, content: &str, request: Option<&str>) -> TranscriptMessage {
        TranscriptMessage {
            request_id: request.map(str::to_owned),
            preserve_request_id: true,
            ..TranscriptMessage::new(role, content)
        }
    }

    fn usage(input: u64) -> TurnUsage {
        TurnUsage {
            usage: MessageUsage {
                input,
                ..MessageUsage::default()
            },
            ..TurnUsage::default()
        }
    }

    fn fates_of(stored: &[TranscriptMessage], next: &[TranscriptMessage]) -> Vec<Fate> {
        let next: Vec<_> = next.iter().map(Cow::Borrowed).collect();
        fates(&mut Rows(stored.iter().collect()), &next).unwrap()
    }

    #[test]
    fn every_field_outside_row_identity_turns_an_exact_match_into_a_revision() {
        let stored = TranscriptMessage {
            turn_usage: Some(usage(1)),
            ..read("assistant", "a", Some("r"))
        };
        let changes: [fn(&mut TranscriptMessage); 4] = [
            |row| row.turn_usage = Some(usage(2)),
            |row| {
                row.tool_failure = Some(ToolFailure {
                    failed: true,
                    detail: None,
                });
            },
            |row| row.extra_metadata = Some(json!({"a": 1})),
            |row| row.cache_breakpoints = vec![3],
        ];
        assert!(matches(&stored, &stored, Match::Exact));
        for change in changes {
            let mut row = stored.clone();
            change(&mut row);
            assert!(!matches(&stored, &row, Match::Exact));
            assert!(matches(&stored, &row, Match::SameRequest));
        }
    }

    #[test]
    fn no_level_matches_across_requests() {
        let stored = TranscriptMessage {
            turn_usage: Some(usage(1)),
            ..read("assistant", "a", Some("r"))
        };
        let other = TranscriptMessage {
            request_id: None,
            ..stored.clone()
        };
        for how in [Match::Exact, Match::SameRequest, Match::SameRequestAndUsage] {
            assert!(!matches(&stored, &other, how), "{how:?}");
        }
    }

    #[test]
    fn equal_usage_matches_other_content_only_when_there_is_usage() {
        let with = |content, usage| TranscriptMessage {
            turn_usage: usage,
            ..read("assistant", content, Some("r"))
        };
        let how = Match::SameRequestAndUsage;
        assert!(matches(
            &with("long", Some(usage(1))),
            &with("short", Some(usage(1))),
            how
        ));
        assert!(!matches(
            &with("long", Some(usage(1))),
            &with("short", Some(usage(2))),
            how
        ));
        assert!(!matches(&with("long", None), &with("short", None), how));
    }

    #[test]
    fn equal_rows_are_taken_one_by_one_wherever_they_stand() {
        let ok = read("user", "ok", None);
        let stored = [ok.clone(), read("user", "else", None), ok.clone()];
        let next = [ok.clone(), ok.clone(), ok];
        assert_eq!(
            fates_of(&stored, &next),
            [Fate::Kept(0), Fate::Kept(2), Fate::New]
        );
    }

    #[test]
    fn a_changed_row_never_takes_the_stored_row_of_a_later_one() {
        let original = read("user", "same", None);
        let changed = TranscriptMessage {
            extra_metadata: Some(json!({"seen": true})),
            ..original.clone()
        };
        let stored = [original.clone()];
        assert_eq!(
            fates_of(&stored, &[changed.clone(), original]),
            [Fate::New, Fate::Kept(0)]
        );
        assert_eq!(fates_of(&stored, &[changed]), [Fate::Revision(0)]);
    }

    #[test]
    fn a_row_that_did_not_come_from_a_read_is_new_whatever_it_equals() {
        let stored = [read("user", "same", None)];
        assert_eq!(
            fates_of(&stored, &[TranscriptMessage::user("same")]),
            [Fate::New]
        );
    }

    #[test]
    fn a_partial_is_no_stored_row() {
        let partial = TranscriptMessage {
            interrupted: true,
            ..read("user", "same", None)
        };
        assert_eq!(
            fates_of(&[read("user", "same", None)], &[partial]),
            [Fate::New]
        );
    }

    #[test]
    fn a_baseline_is_refused_with_both_row_counts() {
        let stored = [read("user", "a", None), read("user", "b", None)];
        let mut rows = Rows(stored.iter().collect());
        assert!(check_baseline("s", &mut rows, &stored).is_ok());
        let refused = check_baseline("s", &mut rows, &stored[..1]);
        assert!(matches!(
            refused,
            Err(Error::Stale { stem, expected: 1, found: 2 }) if stem == "s"
        ));
        let other = [stored[1].clone(), stored[0].clone()];
        assert!(check_baseline("s", &mut rows, &other).is_err());
    }
}
