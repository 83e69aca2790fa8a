//! What content costs on disk: equal content is stored once, space grows with new content alone, and a compaction
//! shrinks the store and changes nothing that is read.
//!
//! Contents are invented words.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod support {
    pub mod text;
}

use support::text::Text;
use tempfile::TempDir;
use transcript_redb::{
    AppendRows, SessionRef, Store, TranscriptLocator, TranscriptMessage, TranscriptMeta,
    TranscriptPart,
};

fn meta() -> TranscriptMeta {
    TranscriptMeta::new("planner")
}

/// A store in a folder of its own, on a disk with real allocation.
struct Folder {
    folder: TempDir,
    store: Store,
}

impl Folder {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let store = Store::open(folder.path().join("store.redb")).unwrap();
        Self { folder, store }
    }

    fn allocated(&self) -> u64 {
        self.store.stats().unwrap().allocated_bytes
    }

    /// Closed and opened again.
    fn reopened(self) -> Self {
        let Self { folder, store } = self;
        drop(store);
        let store = Store::open(folder.path().join("store.redb")).unwrap();
        Self { folder, store }
    }
}

/// Appends rows by token, which compares nothing, `batch` at a time.
fn append(store: &Store, session: &SessionRef, rows: &[TranscriptMessage], batch: usize) {
    let history = store.locator().open_session(session, meta()).unwrap();
    if store.head(session).unwrap().is_none() {
        history.replace(&[]).unwrap();
    }
    let mut token = store.head(session).unwrap().unwrap();
    for rows in rows.chunks(batch) {
        let rows = AppendRows {
            rows,
            ..AppendRows::default()
        };
        token = store.append_rows(session, &token, rows).unwrap();
    }
}

fn read(store: &Store, session: &SessionRef) -> Vec<TranscriptMessage> {
    let locator = store.locator();
    let history = locator.open_session(session, meta()).unwrap();
    history.messages().unwrap()
}

fn same(found: &[TranscriptMessage], expected: &[TranscriptMessage]) -> bool {
    found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| a.same_row_as(b))
}

/// `bytes` are at most 1.2 times `unique`, after what an empty store takes.
#[track_caller]
fn assert_dense(bytes: u64, unique: usize) {
    assert!(
        bytes * 10 <= unique as u64 * 12,
        "{bytes} bytes are allocated for {unique} bytes of unique content"
    );
}

#[test]
fn an_instruction_block_of_9047_bytes_in_1759_records_is_stored_once() {
    let folder = Folder::new();
    let empty = folder.allocated();
    let mut text = Text::new(1);
    let block = text.exactly(9047);
    let mut unique = block.len();
    let session = SessionRef::root("session");
    let rows: Vec<_> = (0..1759)
        .map(|n| {
            let own = text.exactly(2000);
            unique += own.len();
            let mut row = TranscriptMessage::user(own).with_id(format!("row-{n}"));
            row.parts = Some(vec![TranscriptPart::Text {
                text: block.clone(),
            }]);
            row
        })
        .collect();
    append(&folder.store, &session, &rows, 50);
    let stats = folder.store.stats().unwrap();
    assert_eq!(stats.contents, 1);
    assert_eq!(stats.content_bytes, 9047);
    assert!(stats.content_saved_bytes > 1750 * 9047);
    assert!(same(&read(&folder.store, &session), &rows));
    folder.store.compact().unwrap();
    assert_dense(folder.allocated() - empty, unique);
    assert!(same(&read(&folder.reopened().store, &session), &rows));
}

#[test]
fn unique_content_of_a_few_pages_takes_its_own_bytes_and_no_powers_of_two() {
    let folder = Folder::new();
    let empty = folder.allocated();
    let mut text = Text::new(2);
    let session = SessionRef::root("session");
    let rows: Vec<_> = (0..600)
        .map(|_| TranscriptMessage::user(text.noise(9047)))
        .collect();
    append(&folder.store, &session, &rows, 10);
    assert_dense(folder.allocated() - empty, 600 * 9047);
    folder.store.compact().unwrap();
    assert_dense(folder.allocated() - empty, 600 * 9047);
    assert!(same(&read(&folder.store, &session), &rows));
}

#[test]
fn a_tool_output_that_comes_three_times_is_stored_once() {
    let folder = Folder::new();
    let empty = folder.allocated();
    let mut text = Text::new(3);
    let session = SessionRef::root("session");
    let outputs: Vec<_> = (0..150).map(|n| text.noise(4200 + 97 * n)).collect();
    let rows: Vec<_> = (0..3)
        .flat_map(|round| {
            outputs.iter().enumerate().map(move |(n, output)| {
                TranscriptMessage::tool_result(format!("call-{round}-{n}"), output.clone())
            })
        })
        .collect();
    append(&folder.store, &session, &rows, 20);
    let unique: usize = outputs.iter().map(String::len).sum();
    assert_eq!(folder.store.stats().unwrap().contents, 150);
    folder.store.compact().unwrap();
    assert_dense(folder.allocated() - empty, unique);
    assert!(same(&read(&folder.store, &session), &rows));
}
