//! Long transcripts and large rows: what holds for two rows holds for hundreds (contract sections 3.1, 4 and 5).

use std::sync::Arc;

use serde_json::json;

use super::support::{
    answered, assistant, charged, contents, live_uuids, messages, meta, must, open, records,
    succeed, turn_to, turn_with, user,
};
use super::{Check, Factory};
use crate::{
    BackgroundAppend, BackgroundAppendOutcome, DisplayRecord, ErrorKind, SessionRef,
    TranscriptHistory, TranscriptLocator, TranscriptMessage, TranscriptTurn,
};

pub(super) const CHECKS: &[Check] = table![
    every_other_row_of_a_long_context_can_be_kept,
    a_long_context_can_be_turned_around,
    a_long_context_can_be_kept_piece_by_piece_in_a_successor,
    a_row_deep_in_a_long_context_makes_a_baseline_stale,
    a_row_deep_in_a_long_context_holds_its_key,
    a_long_log_is_paged_whole,
    a_long_log_is_shown_in_its_order,
    a_large_row_reads_back,
    equal_large_rows_of_many_sessions_are_rows_of_their_own,
];

const ROWS: usize = 150;

/// A transcript of [`ROWS`] numbered rows, written by turns of ten.
#[track_caller]
fn long(locator: &dyn TranscriptLocator, session: &SessionRef) -> Arc<dyn TranscriptHistory> {
    let handle = open(locator, session);
    for first in (0..ROWS).step_by(10) {
        let rows: Vec<_> = (first..first + 10)
            .map(|number| user(&number.to_string()))
            .collect();
        turn_with(&*handle, &rows, &meta("agent", "thread"));
    }
    handle
}

/// Every second one.
fn every_other<T: Clone>(rows: &[T]) -> Vec<T> {
    rows.iter().step_by(2).cloned().collect()
}

/// And of those every other one again; what is written behind them is behind them.
pub fn every_other_row_of_a_long_context_can_be_kept(factory: Factory<'_>) {
    let locator = factory();
    let handle = long(&*locator, &SessionRef::root("k"));
    for _ in 0..3 {
        let (rows, uuids) = (messages(&*handle), live_uuids(&*handle));
        turn_to(&*handle, &every_other(&rows), &meta("agent", "thread"));
        assert_eq!(messages(&*handle), every_other(&rows));
        assert_eq!(live_uuids(&*handle), every_other(&uuids));
        must("an append succeeds", handle.append(user("behind")));
        let mut after = contents(&*handle);
        assert_eq!(after.pop().as_deref(), Some("behind"));
        assert_eq!(after.len(), rows.len().div_ceil(2));
    }
}

/// No two rows stand beside each other as they were stored; and back again.
pub fn a_long_context_can_be_turned_around(factory: Factory<'_>) {
    let locator = factory();
    let handle = long(&*locator, &SessionRef::root("k"));
    for _ in 0..2 {
        let (mut rows, mut uuids) = (messages(&*handle), live_uuids(&*handle));
        rows.reverse();
        uuids.reverse();
        turn_to(&*handle, &rows, &meta("agent", "thread"));
        assert_eq!(messages(&*handle), rows);
        assert_eq!(live_uuids(&*handle), uuids);
    }
}

/// With new rows between the kept ones, in two generations, of which the second also compacts.
pub fn a_long_context_can_be_kept_piece_by_piece_in_a_successor(factory: Factory<'_>) {
    let locator = factory();
    let mut session = SessionRef::root("k");
    let mut handle = long(&*locator, &session);
    for _ in 0..2 {
        let (rows, uuids) = (messages(&*handle), live_uuids(&*handle));
        let mut next: Vec<TranscriptMessage> = Vec::new();
        for row in every_other(&rows) {
            next.extend([row, assistant("between")]);
        }
        (session, handle) = succeed(&*locator, &session, &next, &meta("agent", "thread"));
        let texts: Vec<_> = next.into_iter().map(|row| row.content).collect();
        assert_eq!(contents(&*handle), texts);
        assert_eq!(every_other(&live_uuids(&*handle)), every_other(&uuids));
        assert_eq!(records(&*handle).len(), texts.len());
    }
    let (rows, uuids) = (messages(&*handle), live_uuids(&*handle));
    turn_to(&*handle, &every_other(&rows), &meta("agent", "thread"));
    assert_eq!(live_uuids(&*handle), every_other(&uuids));
}

/// One row of many, in a context that is in pieces.
pub fn a_row_deep_in_a_long_context_makes_a_baseline_stale(factory: Factory<'_>) {
    let locator = factory();
    let handle = long(&*locator, &SessionRef::root("k"));
    let kept = every_other(&messages(&*handle));
    turn_to(&*handle, &kept, &meta("agent", "thread"));
    for place in [0, kept.len() / 2, kept.len() - 1] {
        let mut prev = messages(&*handle);
        prev[place].content.push('!');
        let mut next = prev.clone();
        next.push(user("more"));
        let stale = handle.append_turn(TranscriptTurn::new(&prev, &next, &meta("agent", "thread")));
        assert_eq!(
            stale.map_err(|error| error.kind()),
            Err(ErrorKind::Stale),
            "row {place} differs"
        );
    }
    assert_eq!(messages(&*handle), kept);
}

/// Whether the row is kept decides, not how far back it was stored.
pub fn a_row_deep_in_a_long_context_holds_its_key(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = long(&*locator, &session);
    let deliver = |key: usize| {
        let append = BackgroundAppend::new(key.to_string(), json!(null));
        must(
            "a background append is answered",
            locator.append_background(&session, assistant("done"), &append),
        )
    };
    for key in 0..20 {
        deliver(key);
    }
    let kept = every_other(&messages(&*handle));
    turn_to(&*handle, &kept, &meta("agent", "thread"));
    // The rows of the jobs stand behind an even number of others, so the even ones are kept.
    let generation = 0;
    for key in 0..20 {
        let expected = if key % 2 == 0 {
            BackgroundAppendOutcome::Duplicate { generation }
        } else {
            BackgroundAppendOutcome::Appended { generation }
        };
        assert_eq!(deliver(key), expected, "job {key}");
    }
}

/// In pages of any size, over markers and kept rows.
pub fn a_long_log_is_paged_whole(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let first = long(&*locator, &session);
    let kept = every_other(&messages(&*first));
    let (_, handle) = succeed(&*locator, &session, &kept, &meta("agent", "thread"));
    for number in 0..100 {
        must(
            "an append succeeds",
            handle.append(user(&number.to_string())),
        );
        if number % 40 == 0 {
            let kept = every_other(&messages(&*handle));
            turn_to(&*handle, &kept, &meta("agent", "thread"));
        }
    }
    for handle in [first, handle] {
        let whole = records(&*handle);
        for limit in [1, 7, 64, 100, whole.len(), usize::MAX] {
            let mut place = whole.len();
            let mut before = None;
            while place > 0 {
                let page = must(
                    "a page can be read",
                    handle.read_display_before(before, limit),
                )
                .expect("it was written");
                let start = place.saturating_sub(limit);
                let shown: Vec<_> = page.records.iter().map(|(_, record)| record).collect();
                let expected: Vec<_> = whole[start..place].iter().collect();
                assert_eq!(shown, expected, "pages of {limit}");
                assert_eq!(page.more, start > 0, "pages of {limit}");
                before = page.records.first().map(|(sequence, _)| *sequence);
                place = start;
            }
        }
    }
}

/// Rows and markers, hundreds of them.
pub fn a_long_log_is_shown_in_its_order(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    let mut expected = Vec::new();
    for number in 0..200 {
        let text = number.to_string();
        must("an append succeeds", handle.append(user(&text)));
        expected.push(text);
        if number % 50 == 49 {
            must("a clear succeeds", handle.clear());
            expected.push("cleared".into());
        }
    }
    let shown: Vec<_> = records(&*handle)
        .into_iter()
        .map(|record| match record {
            DisplayRecord::Message(row) => row.message.content,
            DisplayRecord::Compaction(_) => "cleared".into(),
        })
        .collect();
    assert_eq!(shown, expected);
}

/// Text of some megabytes that repeats itself, and such that does not.
fn large_texts() -> [String; 2] {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let noise = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from_u32(u32::try_from(state >> 48).unwrap_or_default() % 0xd000).unwrap_or('?')
    });
    ["repeat ".repeat(500_000), noise.take(1_000_000).collect()]
}

/// Content, metadata and arguments of any size, also where the row is kept.
pub fn a_large_row_reads_back(factory: Factory<'_>) {
    let locator = factory();
    let session = SessionRef::root("k");
    let handle = open(&*locator, &session);
    let rows: Vec<_> = large_texts()
        .iter()
        .map(|text| user(text).with_extra_metadata(json!({ "text": text })))
        .collect();
    turn_with(&*handle, &rows, &meta("agent", "thread"));
    // Whole rows are compared without printing them.
    let read = messages(&*handle);
    let same = |a: &TranscriptMessage, b: &TranscriptMessage| {
        a.content == b.content && a.extra_metadata == b.extra_metadata
    };
    assert_eq!(read.len(), rows.len());
    assert!(read.iter().zip(&rows).all(|(a, b)| same(a, b)));
    let (_, next) = succeed(&*locator, &session, &read[1..], &meta("agent", "thread"));
    assert_eq!(live_uuids(&*next), live_uuids(&*handle)[1..]);
    assert!(same(&messages(&*next)[0], &rows[1]));
}

/// A store may keep equal content once; that must not show.
pub fn equal_large_rows_of_many_sessions_are_rows_of_their_own(factory: Factory<'_>) {
    let locator = factory();
    let text = "the same long file ".repeat(5_000);
    let mut uuids = Vec::new();
    for number in 0..5 {
        let handle = open(&*locator, &SessionRef::root(number.to_string()));
        let row = answered(&text, charged(1, 1, 0.5));
        turn_with(&*handle, &[row.clone(), row], &meta("agent", "thread"));
        uuids.extend(live_uuids(&*handle));
    }
    uuids.sort_unstable();
    uuids.dedup();
    assert_eq!(uuids.len(), 10);
    must(
        "a clear succeeds",
        open(&*locator, &SessionRef::root("0")).clear(),
    );
    for number in 1..5 {
        let handle = open(&*locator, &SessionRef::root(number.to_string()));
        assert!(contents(&*handle).iter().all(|content| *content == text));
    }
    let spend = must("spend can be read", locator.thread_spend("thread"));
    assert_eq!(spend.root.turns, 10);
}
