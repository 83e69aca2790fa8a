//! Reading the display page by page, newest page first (contract section 2, `read_display_before`).

use super::support::{
    assistant, messages, meta, must, open, records, succeed, turn_to, turn_with, user, written,
};
use super::{Check, Factory};
use crate::{
    DisplayRecord, DisplaySlice, SessionRef, TranscriptHistory, TranscriptLocator,
    TranscriptPartial, TranscriptRead, TranscriptTurn,
};

pub(super) const CHECKS: &[Check] = table![
    an_unwritten_transcript_has_no_page,
    the_page_without_a_cursor_is_the_newest,
    a_page_is_oldest_first,
    a_cursor_is_exclusive,
    following_the_cursor_gives_every_record_once,
    a_page_says_whether_there_are_older_records,
    a_cursor_beyond_the_end_is_the_end,
    nothing_stands_before_the_first_record,
    a_page_of_no_records_is_empty,
    an_append_does_not_shift_an_older_page,
    a_page_shows_what_the_whole_display_shows,
    an_empty_transcript_has_an_empty_page,
    a_successor_is_paged_by_itself,
];

#[track_caller]
fn page(handle: &dyn TranscriptHistory, before: Option<u64>, limit: usize) -> DisplaySlice {
    must(
        "a page can be read",
        handle.read_display_before(before, limit),
    )
    .expect("a written transcript has pages")
}

fn texts(slice: &DisplaySlice) -> Vec<&str> {
    slice
        .records
        .iter()
        .map(|(_, record)| match record {
            DisplayRecord::Message(row) => row.message.content.as_str(),
            DisplayRecord::Compaction(_) => "->",
        })
        .collect()
}

/// `count` rows named by their number, written by turns of two and single appends in turn.
#[track_caller]
fn numbered(
    locator: &dyn TranscriptLocator,
    count: usize,
) -> std::sync::Arc<dyn TranscriptHistory> {
    let handle = open(locator, &SessionRef::root("k"));
    for number in 0..count {
        must(
            "an append succeeds",
            handle.append(user(&number.to_string())),
        );
    }
    handle
}

/// None, as for the other reads.
pub fn an_unwritten_transcript_has_no_page(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    for before in [None, Some(0), Some(u64::MAX)] {
        assert!(must("a page can be read", handle.read_display_before(before, 5)).is_none());
    }
}

/// The last `limit` records.
pub fn the_page_without_a_cursor_is_the_newest(factory: Factory<'_>) {
    let locator = factory();
    let handle = numbered(&*locator, 5);
    assert_eq!(texts(&page(&*handle, None, 2)), ["3", "4"]);
    assert_eq!(texts(&page(&*handle, None, 100)).len(), 5);
    assert_eq!(texts(&page(&*handle, None, usize::MAX)).len(), 5);
}

/// Records ascend within a page, and so do their numbers.
pub fn a_page_is_oldest_first(factory: Factory<'_>) {
    let locator = factory();
    let handle = numbered(&*locator, 6);
    turn_to(&*handle, &[assistant("summary")], &meta("agent", "thread"));
    turn_with(&*handle, &[user("last")], &meta("agent", "thread"));
    let slice = page(&*handle, None, 100);
    assert_eq!(texts(&slice), ["0", "1", "2", "3", "4", "5", "->", "last"]);
    assert!(
        slice.records.is_sorted_by(|(a, _), (b, _)| a < b),
        "sequences ascend strictly"
    );
}

/// Before record n means without record n.
pub fn a_cursor_is_exclusive(factory: Factory<'_>) {
    let locator = factory();
    let handle = numbered(&*locator, 5);
    for (sequence, record) in page(&*handle, None, 5).records {
        let DisplayRecord::Message(row) = record else {
            panic!("only rows were written");
        };
        let older = page(&*handle, Some(sequence), 5);
        let number: usize = row.message.content.parse().expect("rows are numbered");
        assert_eq!(older.records.len(), number);
        assert!(older.records.iter().all(|(other, _)| *other < sequence));
    }
}

/// Whatever the limit.
pub fn following_the_cursor_gives_every_record_once(factory: Factory<'_>) {
    let locator = factory();
    let handle = numbered(&*locator, 7);
    for limit in 1..=8 {
        let mut all = Vec::new();
        let mut before = None;
        loop {
            let mut slice = page(&*handle, before, limit);
            before = slice.records.first().map(|(sequence, _)| *sequence);
            assert!(before.is_some(), "a page that has to hold more is empty");
            let more = slice.more;
            slice.records.append(&mut all);
            all = slice.records;
            assert!(all.len() <= 7, "a record is on two pages");
            if !more {
                break;
            }
        }
        let all: Vec<_> = all.into_iter().map(|(_, record)| record).collect();
        assert_eq!(all, records(&*handle), "with pages of {limit}");
    }
}

/// `more` is exact, also when the page ends at the first record.
pub fn a_page_says_whether_there_are_older_records(factory: Factory<'_>) {
    let locator = factory();
    let handle = numbered(&*locator, 4);
    for (limit, more) in [(1, true), (3, true), (4, false), (5, false)] {
        assert_eq!(page(&*handle, None, limit).more, more, "a page of {limit}");
    }
    let newest = page(&*handle, None, 2);
    let oldest = page(&*handle, Some(newest.records[0].0), 2);
    assert!(newest.more && !oldest.more);
}

/// Like no cursor at all.
pub fn a_cursor_beyond_the_end_is_the_end(factory: Factory<'_>) {
    let locator = factory();
    let handle = numbered(&*locator, 3);
    let last = page(&*handle, None, 1).records[0].0;
    for before in [last + 1, last + 1000, u64::MAX] {
        assert_eq!(page(&*handle, Some(before), 2), page(&*handle, None, 2));
    }
}

/// An empty page and the end.
pub fn nothing_stands_before_the_first_record(factory: Factory<'_>) {
    let locator = factory();
    let handle = numbered(&*locator, 3);
    let first = page(&*handle, None, 3).records[0].0;
    for before in [first, 0] {
        let slice = page(&*handle, Some(before), 10);
        assert_eq!(slice.records, []);
        assert!(!slice.more);
        assert_eq!(slice.meta, meta("agent", "thread"));
    }
}

/// A limit of zero is honoured.
pub fn a_page_of_no_records_is_empty(factory: Factory<'_>) {
    let locator = factory();
    let handle = numbered(&*locator, 3);
    let slice = page(&*handle, None, 0);
    assert_eq!(slice.records, []);
    assert_eq!(slice.meta, meta("agent", "thread"));
}

/// Numbers are for ever.
pub fn an_append_does_not_shift_an_older_page(factory: Factory<'_>) {
    let locator = factory();
    let handle = numbered(&*locator, 6);
    let newest = page(&*handle, None, 2);
    let cursor = Some(newest.records[0].0);
    let older = page(&*handle, cursor, 3);
    must("an append succeeds", handle.append(user("late")));
    turn_to(&*handle, &[assistant("summary")], &meta("agent", "thread"));
    must("a clear succeeds", handle.clear());
    assert_eq!(page(&*handle, cursor, 3), older);
    let again = page(&*handle, Some(older.records[0].0), 3);
    assert_eq!(texts(&again), ["0"]);
}

/// Rows, partials and markers, equal to those of `read_display`.
pub fn a_page_shows_what_the_whole_display_shows(factory: Factory<'_>) {
    let locator = factory();
    let handle = written(&*locator, &SessionRef::root("k"));
    let rows = messages(&*handle);
    let meta = meta("agent", "thread");
    must(
        "a turn succeeds",
        handle.append_turn_with_partial(
            TranscriptTurn {
                request_id: Some("r"),
                ..TranscriptTurn::new(&rows, &[assistant("summary"), rows[0].clone()], &meta)
            },
            Some(&TranscriptPartial::new("half")),
        ),
    );
    must("a replacement succeeds", handle.replace(&[user("x")]));
    let whole = records(&*handle);
    let slice = page(&*handle, None, 100);
    let paged: Vec<_> = slice
        .records
        .into_iter()
        .map(|(_, record)| record)
        .collect();
    assert_eq!(paged, whole);
    assert_eq!(paged.len(), 4);
}

/// Written, but without a record.
pub fn an_empty_transcript_has_an_empty_page(factory: Factory<'_>) {
    let locator = factory();
    let handle = open(&*locator, &SessionRef::root("k"));
    turn_with(&*handle, &[], &meta("agent", "thread"));
    let slice = page(&*handle, None, 10);
    assert_eq!(slice.records, []);
    assert!(!slice.more);
}

/// A page never reaches into the predecessor; the rows that were kept are the successor's own first records.
pub fn a_successor_is_paged_by_itself(factory: Factory<'_>) {
    let locator = factory();
    let first = numbered(&*locator, 5);
    let session = SessionRef::root("k");
    let rows = messages(&*first);
    let (_, next) = succeed(&*locator, &session, &rows[3..], &meta("agent", "thread"));
    must("an append succeeds", next.append(user("5")));
    let slice = page(&*next, None, 100);
    assert_eq!(texts(&slice), ["3", "4", "5"]);
    assert!(!slice.more);
    let newest = page(&*next, None, 1);
    assert!(newest.more);
    let older = page(&*next, Some(newest.records[0].0), 100);
    assert_eq!(texts(&older), ["3", "4"]);
    assert!(!older.more);
    let reader: &dyn TranscriptRead = &*first;
    let sealed = must("a page can be read", reader.read_display_before(None, 2));
    assert_eq!(texts(&sealed.expect("it was written")), ["3", "4"]);
}
