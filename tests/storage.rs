//! What content costs on disk: equal content is stored once, space grows with new content alone, and a compaction
//! shrinks the store and changes nothing that is read.
//!
//! Contents are invented words. `STORAGE_FULL=1` runs the largest fixtures at their full size.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod support {
    pub mod picture;
    pub mod script;
    pub mod text;
    pub mod values;
}

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use support::picture::picture;
use support::script::{STEPS, World};
use support::text::Text;
use tempfile::TempDir;
use transcript_redb::testkit::{DiskCall, SimDisk};
use transcript_redb::{
    AppendRows, CompactOptions, CompactStep, Compression, ErrorKind, SessionRef, Store,
    TranscriptLocator, TranscriptMessage, TranscriptMeta, TranscriptPart,
};

/// The largest fixtures are an eighth as large unless `STORAGE_FULL` is set.
fn scale() -> usize {
    if std::env::var_os("STORAGE_FULL").is_some() {
        1
    } else {
        8
    }
}

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

#[test]
fn an_image_that_is_kept_across_40_compactions_is_stored_once() {
    let folder = Folder::new();
    let empty = folder.allocated();
    let mut text = Text::new(4);
    let session = SessionRef::root("session");
    let url = format!("data:image/png;base64,{}", text.noise(960_000));
    let mut unique = url.len();
    let mut image = TranscriptMessage::user("See.");
    image.parts = Some(vec![TranscriptPart::Image { url }]);
    let locator = folder.store.locator();
    let history = locator.open_session(&session, meta()).unwrap();
    let mut live = vec![image];
    history.replace(&live).unwrap();
    for _ in 0..40 {
        live.truncate(1);
        for _ in 0..4 {
            let own = text.exactly(3000);
            unique += own.len();
            live.push(TranscriptMessage::assistant(own));
        }
        history.replace(&live).unwrap();
    }
    assert_eq!(folder.store.stats().unwrap().contents, 1);
    folder.store.compact().unwrap();
    assert_dense(folder.allocated() - empty, unique);
    assert!(same(&history.messages().unwrap(), &live));
    let stats = folder.store.stats().unwrap();
    assert_eq!(
        stats.content_stored_bytes, stats.content_bytes,
        "base64 stays as it is"
    );
}

#[test]
fn successor_generations_cost_what_is_new_in_them() {
    let folder = Folder::new();
    let empty = folder.allocated();
    let mut text = Text::new(5);
    let first = SessionRef::root("session");
    let mut unique = 0;
    let mut rows: Vec<_> = (0..100_000_000 / scale() / 20_000)
        .map(|_| {
            let own = text.noise(20_000);
            unique += own.len();
            TranscriptMessage::user(own)
        })
        .collect();
    append(&folder.store, &first, &rows, 50);
    rows = read(&folder.store, &first);
    let locator = folder.store.locator();
    let seeded = folder.allocated();
    let mut session = first;
    for _ in 0..470 / scale() {
        let (next, history) = locator.begin_generation(&session, meta()).unwrap();
        let own = text.noise(4_000);
        unique += own.len();
        rows.push(TranscriptMessage::assistant(own));
        history.replace(&rows).unwrap();
        session = next;
        // Rows that were read and handed back are kept as the records they are.
        rows = history.messages().unwrap();
    }
    let grown = folder.allocated() - seeded;
    let new = 470 / scale() as u64 * 4_000;
    assert!(
        grown < 8 * new,
        "{grown} bytes for {new} bytes of new content"
    );
    folder.store.compact().unwrap();
    assert_dense(folder.allocated() - empty, unique);
    assert!(same(&read(&folder.store, &session), &rows));
}

#[test]
fn space_grows_with_new_content_and_not_with_turns_times_history() {
    let mut text = Text::new(6);
    let folder = Folder::new();
    let session = SessionRef::root("session");
    let block = text.noise(30_000);
    let mut sizes = vec![folder.allocated()];
    for _ in 0..4 {
        let rows: Vec<_> = (0..200)
            .map(|_| {
                let mut row = TranscriptMessage::user(text.exactly(1500));
                row.parts = Some(vec![TranscriptPart::Text {
                    text: block.clone(),
                }]);
                row
            })
            .collect();
        append(&folder.store, &session, &rows, 5);
        folder.store.compact().unwrap();
        sizes.push(folder.allocated());
    }
    let growth: Vec<u64> = sizes.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        growth[3] < growth[1] * 2 && growth[3] < 200 * 1500,
        "{growth:?}"
    );
}

/// Live rows, history and repeated content, large and small.
fn fill(store: &Store) {
    let mut text = Text::new(7);
    let block = text.exactly(20_000);
    for number in 0..3 {
        let session = SessionRef::root(format!("session {number}"));
        let rows: Vec<_> = (0..60)
            .map(|n| match n % 4 {
                0 => TranscriptMessage::user(format!("{n} {}", text.exactly(200))),
                1 => TranscriptMessage::assistant(block.clone()),
                2 => TranscriptMessage::tool_result(format!("call {n}"), text.exactly(6_000)),
                _ => TranscriptMessage::assistant(text.noise(5_000)),
            })
            .collect();
        append(store, &session, &rows, 20);
        let locator = store.locator();
        let history = locator.open_session(&session, meta()).unwrap();
        let rows = history.messages().unwrap();
        if number > 0 {
            history.replace(&rows[50..]).unwrap();
        }
    }
}

const STEMS: [&str; 3] = ["session 0", "session 1", "session 2"];

fn shown(store: &Store) -> String {
    let stems: Vec<_> = STEMS
        .iter()
        .map(|key| SessionRef::root(*key).session_id())
        .collect();
    let stems: Vec<_> = stems.iter().map(String::as_str).collect();
    let mut shown = picture(store, &[], &stems).unwrap();
    // By UUID as well: the picture holds none.
    for stem in stems {
        for record in store.records_of_stem(stem).unwrap() {
            let record = record.unwrap();
            assert_eq!(store.record(record.uuid).unwrap(), Some(record.clone()));
            writeln!(shown, "{record:?}").unwrap();
        }
    }
    shown
}

#[test]
fn a_compaction_changes_nothing_that_is_read_and_may_be_repeated() {
    let disk = SimDisk::new();
    let world = World::open(&disk).unwrap();
    for (name, step) in STEPS {
        step(&world).unwrap_or_else(|error| panic!("{name}: {error}"));
        let before = world.picture().unwrap();
        for _ in 0..2 {
            world.store.compact().unwrap();
            assert_eq!(world.picture().unwrap(), before, "after {name}");
        }
    }
    let before = world.picture().unwrap();
    drop(world);
    assert_eq!(World::open(&disk).unwrap().picture().unwrap(), before);
}

#[test]
fn a_compaction_packs_what_is_new_since_the_last_one_alone() {
    let folder = Folder::new();
    fill(&folder.store);
    let before = shown(&folder.store);
    let first = folder.store.compact().unwrap();
    assert!(first.records > 180 && first.contents > 60, "{first:?}");
    assert!(first.allocated_after < first.allocated_before / 4 * 3);
    assert_eq!(shown(&folder.store), before);
    let again = folder.store.compact().unwrap();
    assert_eq!((again.records, again.contents), (0, 0));
    let folder = folder.reopened();
    assert_eq!(shown(&folder.store), before);
    fill(&folder.store);
    let before = shown(&folder.store);
    folder.store.compact().unwrap();
    assert_eq!(shown(&folder.store), before);
}

#[test]
fn a_store_packed_with_lz4_is_smaller_and_reads_the_same() {
    let plain = SimDisk::new();
    let packed = SimDisk::new();
    let store = |disk: &SimDisk, compression| {
        let store = disk
            .open(Store::builder().compression(compression))
            .unwrap();
        fill(&store);
        store
    };
    let session = SessionRef::root("session 0");
    let plainly = read(&store(&plain, Compression::None), &session);
    let store = store(&packed, Compression::Lz4);
    assert!(same(&read(&store, &session), &plainly));
    let stats = store.stats().unwrap();
    assert!(stats.content_stored_bytes < stats.content_bytes * 3 / 4);
    drop(store);
    let store = packed.open(Store::builder()).unwrap();
    assert!(same(&read(&store, &session), &plainly));
}

#[test]
fn a_power_cut_at_any_moment_of_a_compaction_loses_nothing_and_it_can_be_done_again() {
    let disk = SimDisk::new();
    let store = disk.open(Store::builder()).unwrap();
    fill(&store);
    let before = shown(&store);
    disk.record();
    store.compact().unwrap();
    drop(store);
    let events = disk.events();
    assert!(events > 40, "{events}");
    let step = (events / 40).max(1);
    let syncs = disk.syncs();
    let moments = (0..=events).filter(|at| at % step == 0 || syncs.contains(at));
    for at in moments {
        let image = disk.power_cut(at, at as u64);
        let store = image.open(Store::builder()).unwrap();
        assert_eq!(shown(&store), before, "after {at} of {events} events");
        if at % (4 * step) == 0 {
            // What was cut off goes on, and rows come in meanwhile.
            append(
                &store,
                &SessionRef::root("another"),
                &[TranscriptMessage::user("Go on.")],
                1,
            );
            store.compact().unwrap();
            drop(store);
            let store = image.open(Store::builder()).unwrap();
            assert!(shown(&store).starts_with(before.split("summary").next().unwrap()));
        }
    }
}

#[test]
fn a_compaction_that_meets_a_broken_disk_fails_and_loses_nothing() {
    let disk = SimDisk::new();
    let store = disk.open(Store::builder().cache_bytes(128 << 10)).unwrap();
    fill(&store);
    let before = shown(&store);
    let mut failed = 0;
    for call in [DiskCall::Read, DiskCall::Write, DiskCall::Sync] {
        for nth in [1, 3, 10, 40] {
            disk.fail_from(call, nth);
            let result = store.compact();
            disk.heal();
            if let Err(error) = result {
                assert!(
                    matches!(
                        error.kind(),
                        ErrorKind::Io | ErrorKind::Storage | ErrorKind::Indeterminate
                    ),
                    "{error}"
                );
                failed += 1;
            }
            let store = retried(|| store.stats().map(|_| store.clone()));
            assert_eq!(shown(&store), before, "{call:?} {nth}");
        }
    }
    assert!(failed > 3, "{failed}");
    retried(|| store.compact());
    assert_eq!(shown(&store), before);
}

/// The database is opened again at most ten times a second.
fn retried<T>(mut call: impl FnMut() -> transcript_redb::Result<T>) -> T {
    loop {
        match call() {
            Ok(value) => return value,
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::Io | ErrorKind::Storage),
                "{error}"
            ),
        }
    }
}

#[test]
fn readers_and_writers_go_on_beside_a_compaction() {
    let folder = Folder::new();
    let store = &folder.store;
    fill(store);
    let expected = read(store, &SessionRef::root("session 0"));
    let done = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !done.load(Ordering::Acquire) {
                let session = SessionRef::root("session 0");
                assert!(same(&read(store, &session), &expected));
                reads += 1;
            }
            reads
        });
        let writer = scope.spawn(|| {
            let mut text = Text::new(8);
            let mut rows = Vec::new();
            while !done.load(Ordering::Acquire) {
                let row = TranscriptMessage::user(text.exactly(5_000));
                append(
                    store,
                    &SessionRef::root("busy"),
                    std::slice::from_ref(&row),
                    1,
                );
                rows.push(row);
            }
            rows
        });
        for _ in 0..8 {
            store.compact().unwrap();
        }
        done.store(true, Ordering::Release);
        assert!(reader.join().unwrap() > 0);
        writer.join().unwrap()
    });
    assert!(!written.is_empty());
    let busy = SessionRef::root("busy");
    assert!(same(&read(store, &busy), &written));
    let folder = folder.reopened();
    assert!(same(&read(&folder.store, &busy), &written));
}

#[test]
fn one_compaction_runs_at_a_time() {
    let folder = Folder::new();
    fill(&folder.store);
    let mut steps = Vec::new();
    let options = CompactOptions::default().progress(|progress| {
        let second = folder.store.compact().unwrap_err();
        assert_eq!(second.kind(), ErrorKind::Busy);
        if steps.last() != Some(&progress.step) {
            steps.push(progress.step);
        }
    });
    folder.store.compact_with(options).unwrap();
    assert_eq!(
        steps,
        [
            CompactStep::Records,
            CompactStep::Content,
            CompactStep::Space
        ]
    );
}

#[test]
fn while_space_is_given_back_a_read_waits_so_long_and_no_longer() {
    let disk = SimDisk::new();
    let store = disk.open(Store::builder()).unwrap();
    fill(&store);
    store.compact().unwrap();
    let session = SessionRef::root("session 0");
    std::thread::scope(|scope| {
        // There is nothing left to pack: the first sync is that of the last step.
        let held = disk.hold(DiskCall::Sync);
        let compaction = scope.spawn(|| {
            let options = CompactOptions::default().wait(Duration::from_millis(20));
            store.compact_with(options)
        });
        held.wait_for(1);
        let error = store.head(&session).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        let writer = scope.spawn(|| {
            let locator = store.locator();
            let history = locator.open_session(&SessionRef::root("new"), meta())?;
            history.replace(&[])
        });
        drop(held);
        compaction.join().unwrap().unwrap();
        // It may have come too early to plan, but then it was told so.
        if let Err(error) = writer.join().unwrap() {
            assert_eq!(error.kind(), ErrorKind::Busy);
        }
    });
    assert!(store.head(&session).unwrap().is_some());
}

#[test]
fn a_changed_bit_in_large_content_is_damage_wherever_it_is_read() {
    let disk = SimDisk::new();
    let store = disk.open(Store::builder()).unwrap();
    let session = SessionRef::root("session");
    let block = Text::new(10).exactly(9_000);
    let rows = [
        TranscriptMessage::user(block.clone()),
        TranscriptMessage::user("What is small stays readable."),
    ];
    append(&store, &session, &rows, 1);
    let small = store.records(&session).unwrap().next_back();
    let small = small.unwrap().unwrap();
    drop(store);
    let mut image = disk.image();
    let bytes = image.database_mut();
    let start = &block.as_bytes()[..2_000];
    let at = bytes.windows(start.len()).position(|it| it == start);
    bytes[at.unwrap() + 1_000] ^= 1;
    let store = SimDisk::with_image(image).open(Store::builder()).unwrap();
    let locator = store.locator();
    let history = locator.open_session(&session, meta()).unwrap();
    let damaged = |kind| assert_eq!(kind, ErrorKind::Corrupted);
    damaged(history.messages().unwrap_err().kind());
    damaged(history.read_display().unwrap_err().kind());
    assert_eq!(store.record(small.uuid).unwrap(), Some(small.clone()));
    let large = store.record(small.parent.unwrap());
    damaged(large.unwrap_err().kind());
    damaged(store.compact().unwrap_err().kind());
}

#[test]
fn a_store_from_before_large_content_was_stored_once_is_opened_and_goes_on() {
    let folder = Folder::new();
    let session = SessionRef::root("session");
    let old = [TranscriptMessage::user("What was written before.")];
    append(&folder.store, &session, &old, 1);
    let Folder { folder, store } = folder;
    drop(store);
    let path = folder.path().join("store.redb");
    let database = redb::Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    for table in transaction.list_tables().unwrap().collect::<Vec<_>>() {
        let name = redb::TableHandle::name(&table).to_owned();
        if ["blobs", "blob_pages", "dictionaries"].contains(&name.as_str()) {
            assert!(transaction.delete_table(table).unwrap());
        }
    }
    transaction.commit().unwrap();
    drop(database);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.stats().unwrap().contents, 0);
    store.compact().unwrap();
    let new = [TranscriptMessage::user(Text::new(9).exactly(50_000))];
    append(&store, &session, &new, 1);
    assert!(same(&read(&store, &session), &[old, new].concat()));
    store.compact().unwrap();
    assert_eq!(store.stats().unwrap().contents, 1);
}
