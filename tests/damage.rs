//! Damaged files: every answer is the right one or an error, and nothing ends in a panic.
//!
//! redb checks its pages only when it repairs a file, so an open does not find everything. What a table holds has a
//! checksum of its own, and what two tables say of each other is compared. What is left is a damaged key of an index:
//! its entry is not found. Then a conversation, or a record by its UUID, seems not to be there.
//!
//! `DAMAGE_STRIDE` sets how far apart the bytes and lengths are that are tried.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod support {
    pub mod picture;
    pub mod reference;
    pub mod script;
    pub mod values;
}

use std::fmt::Debug;
use std::sync::Once;

use support::reference::reference;
use support::script::World;
use transcript_redb::testkit::{DiskCall, DiskImage, SimDisk};
use transcript_redb::{
    DisplaySessionTranscript, ErrorKind, Record, Result, SessionTranscript, Store,
    TranscriptLocator, TranscriptMeta,
};

fn stride(default: usize) -> usize {
    std::env::var("DAMAGE_STRIDE")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Keeps the panics of the database, which are caught, out of the output: there are many.
fn hush() {
    static HUSHED: Once = Once::new();
    HUSHED.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic
                .location()
                .is_some_and(|at| at.file().starts_with("tests"))
            {
                report(panic);
            }
        }));
    });
}

/// A store that was closed, and the same as a crash would leave it.
fn images() -> [DiskImage; 2] {
    let reference = reference();
    let unclean = reference.disks.last().unwrap().clone();
    let disk = SimDisk::with_image(unclean.clone());
    drop(World::open(&disk).unwrap());
    [disk.image(), unclean]
}

/// A conversation as it is read.
type Told = (
    Result<Option<SessionTranscript>>,
    Result<Option<DisplaySessionTranscript>>,
    Result<Vec<Record>>,
);

/// All conversations of the store, which answer whatever they can.
fn told(store: &Store, stems: &[String]) -> Vec<Told> {
    let locator = store.locator();
    stems
        .iter()
        .map(|stem| {
            let history = locator.open_stem(stem, TranscriptMeta::new("")).unwrap();
            (
                history.read_session(),
                history.read_display(),
                store.records_of_stem(stem).and_then(Iterator::collect),
            )
        })
        .collect()
}

/// Compares an answer with the right one. Answers whether it is missing instead.
#[track_caller]
fn check<T: Debug + PartialEq>(
    what: &str,
    answer: Result<T>,
    right: &T,
    is_missing: impl Fn(&T) -> bool,
) -> bool {
    match answer {
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupted, "{what}: {error}");
            false
        }
        Ok(answer) if answer == *right => false,
        Ok(answer) => {
            assert!(is_missing(&answer), "{what}: {answer:?}");
            true
        }
    }
}

#[test]
fn a_store_that_is_cut_short_is_damaged_whatever_its_length() {
    hush();
    let pictures = reference().pictures;
    let whole = pictures.last().unwrap();
    let mut refused = 0;
    for (image, clean) in images().into_iter().zip([true, false]) {
        let lengths = (1..image.database().len()).step_by(stride(9_973));
        for len in lengths.chain((4096..image.database().len()).step_by(65_536)) {
            let mut cut = image.clone();
            cut.database_mut().truncate(len);
            let disk = SimDisk::with_image(cut.clone());
            match disk.open(Store::builder()) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupted, "{len} bytes: {error}");
                    assert!(disk.image() == cut, "{len} bytes: it was changed");
                    refused += 1;
                }
                // What the file grew by since its last checkpoint is in the journal.
                Ok(store) => {
                    drop(store);
                    let shown = World::open(&disk).unwrap().picture().unwrap();
                    assert!(shown == *whole, "{len} bytes: something is lost");
                    assert!(!clean, "{len} bytes: a closed store has no journal");
                }
            }
        }
    }
    assert!(refused > 0, "most lengths are too short");
}

#[test]
fn a_flipped_bit_is_an_error_or_changes_no_conversation() {
    hush();
    let [image, unclean] = images();
    let (mut tried, mut refused, mut missing) = (0, 0, 0);
    let store = SimDisk::with_image(image.clone())
        .open(Store::builder())
        .unwrap();
    let stems: Vec<_> = store
        .locator()
        .thread_transcripts("one", None)
        .map(|listed| [listed.roots, listed.subagents].concat())
        .unwrap()
        .into_iter()
        .map(|transcript| transcript.stem)
        .chain(["raw".to_owned()])
        .collect();
    let right = told(&store, &stems);
    assert_eq!(right.len(), 5);
    for (name, image) in [("closed", image), ("killed", unclean)] {
        for at in (0..image.database().len()).step_by(stride(2_999)) {
            if image
                .database()
                .iter()
                .skip(at)
                .take(64)
                .all(|byte| *byte == 0)
            {
                continue;
            }
            tried += 1;
            let what = format!("{name}, byte {at}");
            let mut damaged = image.clone();
            damaged.database_mut()[at] ^= 1 << (at % 8);
            let disk = SimDisk::with_image(damaged.clone());
            let store = match disk.open(Store::builder().cache_bytes(0)) {
                Ok(store) => store,
                Err(error) => {
                    let kinds = [ErrorKind::Corrupted, ErrorKind::NewerFormat];
                    assert!(kinds.contains(&error.kind()), "{what}: {error}");
                    assert!(disk.image() == damaged, "{what}: it was changed");
                    refused += 1;
                    continue;
                }
            };
            for (answer, right) in told(&store, &stems).into_iter().zip(&right) {
                let (session, display, records) = answer;
                let unfound = [
                    check(&what, session, right.0.as_ref().unwrap(), Option::is_none),
                    check(&what, display, right.1.as_ref().unwrap(), Option::is_none),
                    check(&what, records, right.2.as_ref().unwrap(), Vec::is_empty),
                ];
                missing += usize::from(unfound.contains(&true));
            }
            // A store whose disk is gone closes without a commit. redb 4.6 aborts the process in one if the damage is
            // in its own lists of free pages.
            disk.fail_from(DiskCall::Read, 1);
        }
    }
    assert!(refused > 0, "some damage is found at once");
    assert!(
        missing * 100 <= tried,
        "{missing} conversations missing in {tried} damaged stores"
    );
}
