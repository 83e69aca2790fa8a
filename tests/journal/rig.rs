//! A store on a simulated disk and handles on its sessions, for tests that say when a checkpoint is made.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use redb::{ReadableDatabase as _, ReadableTableMetadata as _, TableDefinition};
use transcript_redb::testkit::{DiskCall, DiskImage, SimDisk, SimFile};
use transcript_redb::{
    Error, ErrorKind, HeadToken, Health, Result, SessionRef, Stats, Store, StoreBuilder, StoreFile,
    TranscriptHistory, TranscriptLocator, TranscriptMessage,
};

use crate::support::values::meta;

/// How long a condition may take to come about.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a call may take that waits for nothing, on a machine that has much else to do.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Makes no checkpoint unless it is asked for one or its journal is full.
pub fn at_rest(builder: StoreBuilder) -> StoreBuilder {
    builder
        .checkpoint_bytes(u64::MAX)
        .checkpoint_interval(Duration::from_secs(86_400))
}

pub fn row(text: impl Into<String>) -> TranscriptMessage {
    TranscriptMessage::user(text)
}

pub fn session(number: usize) -> SessionRef {
    SessionRef::root(format!("session {number}"))
}

pub fn open(store: &Store, number: usize) -> Arc<dyn TranscriptHistory> {
    let locator = store.locator();
    locator
        .open_session(&session(number), meta("agent", "thread"))
        .unwrap()
}

pub fn texts(rows: Vec<TranscriptMessage>) -> Vec<String> {
    rows.into_iter().map(|row| row.content).collect()
}

pub fn contents(store: &Store, number: usize) -> Vec<String> {
    texts(open(store, number).messages().unwrap())
}

/// A disk, a store on it whose journal is begun, and what is in it: a row "first" in session 0.
pub struct Rig {
    pub disk: SimDisk,
    pub store: Store,
}

impl Rig {
    pub fn new() -> Self {
        Self::with(at_rest(Store::builder()))
    }

    pub fn with(builder: StoreBuilder) -> Self {
        let disk = SimDisk::new();
        let store = disk.open(builder).unwrap();
        let rig = Self { disk, store };
        rig.append("first");
        assert_eq!(contents(&rig.store, 0), ["first"]);
        rig
    }

    pub fn database(&self) -> SimFile {
        self.disk.file(StoreFile::Database)
    }

    pub fn journal(&self) -> SimFile {
        self.disk.file(StoreFile::Journal)
    }

    /// Appends a row to session 0.
    pub fn append(&self, text: &str) {
        open(&self.store, 0).append(row(text)).unwrap();
    }

    pub fn head(&self) -> HeadToken {
        self.store.head(&session(0)).unwrap().unwrap()
    }
}

/// Writes, syncs and changes of length so far.
pub fn costs(file: &SimFile) -> [u64; 3] {
    [DiskCall::Write, DiskCall::Sync, DiskCall::SetLen].map(|call| file.calls(call))
}

pub fn less(after: [u64; 3], before: [u64; 3]) -> [u64; 3] {
    [0, 1, 2].map(|at| after[at] - before[at])
}

/// What a process that starts now finds in session 0. The store that is open stays as it is.
pub fn found_after_kill(disk: &SimDisk) -> Vec<String> {
    found_in(disk.image())
}

pub fn found_in(image: DiskImage) -> Vec<String> {
    let disk = SimDisk::with_image(image);
    contents(&disk.open(at_rest(Store::builder())).unwrap(), 0)
}

/// How many rows the database has without any journal.
pub fn rows_in_the_database(disk: &SimDisk) -> u64 {
    const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    std::fs::write(&path, disk.image().database()).unwrap();
    let database = redb::Database::open(&path).unwrap();
    let transaction = database.begin_read().unwrap();
    transaction.open_table(LOG).unwrap().len().unwrap()
}

/// Whether the disk is to blame, and the store promises that nothing of the call will ever appear.
pub fn is_refused_by_disk(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Storage)
}

/// Repeats a call until the store has recovered; it tries at most ten times a second.
#[track_caller]
pub fn eventually<T>(mut call: impl FnMut() -> Result<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call() {
            Ok(value) => return value,
            Err(error) if !is_refused_by_disk(&error) => panic!("it does not recover: {error}"),
            Err(error) if Instant::now() > deadline => panic!("it does not recover: {error}"),
            Err(_) => thread::park_timeout(Duration::from_millis(1)),
        }
    }
}

/// Reads until the store has recovered: whatever there is to mend is tried at most ten times a second.
#[track_caller]
pub fn until_healthy(store: &Store) {
    wait_until(|| store.head(&session(0)).is_ok() && matches!(store.health(), Health::Healthy));
}

/// Waits until something is so.
#[track_caller]
pub fn wait_until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it never comes to that");
        thread::yield_now();
    }
}

/// Waits until the store's numbers are as `fits` wants them.
#[track_caller]
pub fn wait_for_stats(store: &Store, fits: impl Fn(&Stats) -> bool) {
    wait_until(|| fits(&store.stats().unwrap()));
}

/// A call that answers at once, whatever it answers.
#[track_caller]
pub fn at_once<T>(call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let answer = call();
    assert!(start.elapsed() < AT_ONCE, "it took {:?}", start.elapsed());
    answer
}
