//! What an export promises while writers go on: all of it is of one moment.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use transcript_redb::interchange::Target;
use transcript_redb::{
    AppendRows, Error, ErrorKind, Result, SessionRef, Store, TranscriptLocator, TranscriptMessage,
    TranscriptMeta,
};

/// Files in memory. Each is opened only once `wait` has answered, and what it answers fails the export.
struct Files<W>(BTreeMap<String, Vec<u8>>, W);

impl<W: FnMut() -> Result<()>> Target for Files<W> {
    fn file(&mut self, name: &str) -> Result<&mut dyn Write> {
        if !self.0.contains_key(name) {
            self.1()?;
        }
        Ok(self.0.entry(name.to_owned()).or_default())
    }
}

const SESSIONS: usize = 6;

fn sessions() -> Vec<SessionRef> {
    (0..SESSIONS)
        .map(|at| SessionRef::root(format!("s{at}")))
        .collect()
}

fn append(store: &Store, session: &SessionRef, text: &str) -> Result<()> {
    let rows = [TranscriptMessage::user(text)];
    match store.head(session)? {
        Some(token) => {
            let rows = AppendRows {
                rows: &rows,
                ..AppendRows::default()
            };
            store.append_rows(session, &token, rows).map(drop)
        }
        None => {
            let history = store
                .locator()
                .open_session(session, TranscriptMeta::new("clerk"))?;
            history.append(TranscriptMessage::user(text))
        }
    }
}

#[test]
fn all_sessions_are_of_one_moment_while_a_writer_goes_on() {
    let store = Store::in_memory().unwrap();
    for session in sessions() {
        append(&store, &session, "row 0 of it").unwrap();
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // One row to each session in turn, so that no two moments look the same.
        scope.spawn(|| {
            let mut round = 1;
            while !stop.load(Ordering::Relaxed) {
                for session in sessions() {
                    append(&store, &session, &format!("row {round} of it")).unwrap();
                }
                round += 1;
            }
        });
        for format in ["classic", "record-log", "chat"] {
            let records = || store.stats().unwrap().records;
            let wait = || {
                // The writer has gone on in every session before the next one is told of.
                let (begin, store) = (thread::current().id(), &store);
                let seen = scope.spawn(move || {
                    assert_ne!(begin, thread::current().id());
                    let from = store.stats().unwrap().records;
                    while store.stats().unwrap().records < from + 2 * SESSIONS as u64 {
                        thread::yield_now();
                    }
                });
                seen.join().unwrap();
                Ok(())
            };
            let before = records();
            let mut files = Files(BTreeMap::new(), wait);
            store.export(&sessions(), format, &mut files).unwrap();
            assert!(records() > before, "{format}: the writer went on");
            let text: Vec<u8> = files.0.into_values().flatten().collect();
            let text = String::from_utf8(text).unwrap();
            let counts: Vec<usize> = (0..1_000_000)
                .map(|row| text.matches(&format!("row {row} of it")).count())
                .take_while(|count| *count > 0)
                .collect();
            let (last, full) = counts.split_last().unwrap();
            // Only the last round is incomplete.
            assert!(
                full.iter().all(|count| *count == full[0]),
                "{format}: {counts:?}"
            );
            assert!(full.is_empty() || *last <= full[0], "{format}: {counts:?}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_target_cannot_write_to_the_store_that_is_exported() {
    let store = Store::in_memory().unwrap();
    let session = SessionRef::root("s0");
    append(&store, &session, "row").unwrap();
    let wait = || append(&store, &session, "from inside");
    let refused = store.export(
        &sessions()[..1],
        "classic",
        &mut Files(BTreeMap::new(), wait),
    );
    let error: Error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Other);
    append(&store, &session, "and on").unwrap();
    assert_eq!(store.sessions().unwrap()[0].messages, 2);
}
