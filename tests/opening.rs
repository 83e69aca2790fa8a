//! Opening and closing: one process owns a store, and nothing that is not a store is touched.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod support {
    pub mod child;
    pub mod picture;
    pub mod script;
    pub mod values;
}

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::thread;

use redb::{ReadableDatabase as _, ReadableTable as _, TableDefinition};
use serde_json::json;
use support::child::{Process, listen, say, task};
use support::script::{STEPS, World};
use support::values::meta;
use transcript_redb::testkit::SimDisk;
use transcript_redb::{
    AppendRows, BackgroundAppend, Error, ErrorKind, Result, SessionRef, Store, TranscriptHistory,
    TranscriptLocator, TranscriptMessage, TranscriptPartial, TranscriptTurn, TruncateCut,
};

/// A folder of its own, and the path of a store in it.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    (folder, path)
}

fn row(text: &str) -> TranscriptMessage {
    TranscriptMessage::user(text)
}

fn open_stem(store: &Store, stem: &str) -> Arc<dyn TranscriptHistory> {
    let locator = store.locator();
    locator.open_stem(stem, meta("agent", "thread")).unwrap()
}

/// A store with one row, closed.
fn written(path: &Path) {
    let store = Store::open(path).unwrap();
    open_stem(&store, "main").append(row("first")).unwrap();
}

fn contents(store: &Store) -> Vec<String> {
    let rows = open_stem(store, "main").messages().unwrap();
    rows.into_iter().map(|row| row.content).collect()
}

fn read_only(path: &Path) -> Result<Store> {
    Store::builder().read_only(true).open(path)
}

#[track_caller]
fn refused<T>(result: Result<T>, kind: ErrorKind) -> Error {
    match result {
        Ok(_) => panic!("it succeeds instead of answering {kind:?}"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{error}");
            error
        }
    }
}

/// Every file in a folder with its bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

/// The process that holds a store, by the error of an open.
#[track_caller]
fn holder(result: Result<Store>) -> Option<u32> {
    match result {
        Err(Error::AlreadyOpen { holder, .. }) => holder,
        other => panic!("it is not already open: {other:?}"),
    }
}

// --- Where a store can be ---

#[test]
fn a_folder_that_is_missing_is_an_error_and_is_not_made() {
    let (folder, _) = place();
    let missing = folder.path().join("missing");
    refused(Store::open(missing.join("store.redb")), ErrorKind::Io);
    assert!(!missing.exists());
}

#[test]
fn a_folder_or_a_device_in_place_of_the_file_is_an_error_and_leaves_nothing_beside_it() {
    let (folder, path) = place();
    fs::create_dir(&path).unwrap();
    refused(Store::open(&path), ErrorKind::Io);
    refused(read_only(&path), ErrorKind::Io);
    assert!(files(folder.path()).is_empty());
    if cfg!(unix) {
        refused(Store::open("/dev/null"), ErrorKind::Io);
        refused(read_only(Path::new("/dev/null")), ErrorKind::Io);
        assert!(!Path::new("/dev/null-lock").exists());
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_in_place_of_a_file_beside_the_store_is_an_error_and_is_not_waited_for() {
    let pipe = |path: &Path, end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        let made = std::process::Command::new("mkfifo").arg(name).status();
        assert!(made.unwrap().success());
    };
    for end in ["-lock", "-new"] {
        let (_folder, path) = place();
        pipe(&path, end);
        refused(Store::open(&path), ErrorKind::Io);
    }
    let (_folder, path) = place();
    let store = Store::open(&path).unwrap();
    pipe(&path, "-journal");
    refused(open_stem(&store, "s").append(row("a")), ErrorKind::Io);
    drop(store);

    // As after a crash, with a pipe where the journal was.
    let (folder, path) = place();
    let store = Store::open(&path).unwrap();
    open_stem(&store, "s").append(row("a")).unwrap();
    let copy = folder.path().join("copy.redb");
    fs::copy(&path, &copy).unwrap();
    pipe(&copy, "-journal");
    refused(Store::open(&copy), ErrorKind::Io);
}

#[test]
fn a_read_only_open_needs_a_store_and_creates_nothing() {
    let (folder, path) = place();
    refused(read_only(&path), ErrorKind::Io);
    assert!(files(folder.path()).is_empty());
    fs::write(&path, "").unwrap();
    refused(read_only(&path), ErrorKind::ReadOnly);
    assert_eq!(files(folder.path()), BTreeMap::from([(path, Vec::new())]));
}

#[test]
fn an_empty_file_is_a_new_store() {
    let (_folder, path) = place();
    fs::write(&path, "").unwrap();
    written(&path);
    assert_eq!(contents(&Store::open(&path).unwrap()), ["first"]);
}

#[cfg(unix)]
mod on_unix {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn the_files_of_a_store_are_for_their_owner_only() {
        let (folder, path) = place();
        let _store = Store::open(&path).unwrap();
        for file in files(folder.path()).keys() {
            let mode = fs::metadata(file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", file.display());
        }
    }

    #[test]
    fn a_file_that_may_not_be_written_is_an_error() {
        let (_folder, path) = place();
        written(&path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        if fs::OpenOptions::new().write(true).open(&path).is_ok() {
            eprintln!("skipped: this user may write every file");
            return;
        }
        refused(Store::open(&path), ErrorKind::Io);
        assert_eq!(contents(&read_only(&path).unwrap()), ["first"]);
    }

    #[test]
    fn all_names_of_a_file_are_one_store() {
        let (folder, path) = place();
        let linked = folder.path().join("linked");
        symlink("store.redb", &linked).unwrap();
        // The link leads nowhere yet: the store comes into being where it leads.
        let store = Store::open(&linked).unwrap();
        open_stem(&store, "main").append(row("first")).unwrap();
        assert!(fs::symlink_metadata(&linked).unwrap().is_symlink());

        let hard = folder.path().join("hard");
        fs::hard_link(&path, &hard).unwrap();
        let dotted = folder.path().join(".").join("store.redb");
        for name in [&path, &linked, &hard, &dotted] {
            refused(Store::open(name), ErrorKind::AlreadyOpen);
            refused(read_only(name), ErrorKind::AlreadyOpen);
        }
        let key = store.locator().destination_key();
        drop(store);
        for name in [&path, &linked, &dotted] {
            let store = Store::open(name).unwrap();
            assert_eq!(store.locator().destination_key(), key);
            assert_eq!(contents(&store), ["first"]);
        }
    }
}

// --- One process owns a store ---

#[test]
fn a_second_open_in_the_process_is_refused_and_names_the_holder() {
    let (_folder, path) = place();
    let store = Store::open(&path).unwrap();
    let own = Some(std::process::id());
    assert_eq!(holder(Store::open(&path)), own);
    assert_eq!(holder(read_only(&path)), own);
    drop(store);
    Store::open(&path).unwrap();
}

/// Opens the store that it is told of when it is told to, says how that ended, and holds it until its input ends.
#[test]
#[ignore = "a child process of other tests"]
fn child_that_opens() {
    let path = task();
    say("ready");
    listen().unwrap();
    match Store::open(&path) {
        Ok(store) => {
            open_stem(&store, "main")
                .append(row("from a child"))
                .unwrap();
            say("open");
            while listen().is_some() {}
            drop(store);
        }
        Err(Error::AlreadyOpen { .. }) => say("already open"),
        Err(error) => say(&error.to_string()),
    }
}

fn start_opener(path: &Path) -> Process {
    let mut child = Process::start("child_that_opens", path.to_str().unwrap());
    assert_eq!(child.hear().as_deref(), Some("ready"));
    child
}

#[test]
fn a_second_process_is_refused_and_the_holder_is_named() {
    let (_folder, path) = place();
    let mut child = start_opener(&path);
    child.tell("go");
    assert_eq!(child.hear().as_deref(), Some("open"));
    assert_eq!(holder(Store::open(&path)), Some(child.id()));
    assert_eq!(holder(read_only(&path)), Some(child.id()));
    child.finish();
    assert_eq!(contents(&Store::open(&path).unwrap()), ["from a child"]);
}

#[test]
fn a_killed_process_holds_nothing() {
    let (_folder, path) = place();
    let mut child = start_opener(&path);
    child.tell("go");
    assert_eq!(child.hear().as_deref(), Some("open"));
    child.kill();
    let before = fs::read(&path).unwrap();
    refused(read_only(&path), ErrorKind::NeedsRecovery);
    assert_eq!(
        fs::read(&path).unwrap(),
        before,
        "a read-only open recovers nothing"
    );
    assert_eq!(contents(&Store::open(&path).unwrap()), ["from a child"]);
    assert_eq!(contents(&read_only(&path).unwrap()), ["from a child"]);
}

#[test]
fn of_threads_that_open_a_new_store_at_once_one_wins() {
    for _ in 0..20 {
        let (_folder, path) = place();
        let barrier = Barrier::new(8);
        let results: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        Store::open(&path)
                    })
                })
                .collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1);
        for result in lost {
            refused(result, ErrorKind::AlreadyOpen);
        }
        let store = won.into_iter().next().unwrap().unwrap();
        open_stem(&store, "main").append(row("first")).unwrap();
        drop(store);
        assert_eq!(contents(&Store::open(&path).unwrap()), ["first"]);
    }
}

#[test]
fn of_processes_that_open_a_new_store_at_once_one_wins() {
    for _ in 0..3 {
        let (_folder, path) = place();
        let mut children: Vec<_> = (0..4).map(|_| start_opener(&path)).collect();
        for child in &mut children {
            child.tell("go");
        }
        let mut said: Vec<_> = children.iter_mut().map(|it| it.hear().unwrap()).collect();
        said.sort();
        let expected = ["already open", "already open", "already open", "open"];
        assert_eq!(said, expected);
        children.into_iter().for_each(Process::finish);
        assert_eq!(contents(&Store::open(&path).unwrap()), ["from a child"]);
    }
}

/// Takes something from a store that keeps it open.
type Keep = fn(&Store, &SessionRef) -> Box<dyn std::any::Any + Send>;

#[test]
fn whatever_came_from_a_store_keeps_it_open_and_the_last_to_go_closes_it() {
    let (_folder, path) = place();
    written(&path);
    let session = SessionRef::root("session");
    let kept: [(&str, Keep); 6] = [
        ("a clone", |store, _| Box::new(store.clone())),
        ("a locator", |store, _| Box::new(store.locator())),
        ("a handle", |store, _| Box::new(open_stem(store, "main"))),
        ("a handle that was found", |store, _| {
            Box::new(store.locator().root_for_thread("thread").unwrap().unwrap())
        }),
        ("an iterator", |store, _| {
            Box::new(store.records_of_stem("main").unwrap())
        }),
        ("a begun generation", |store, session| {
            let locator = store.locator();
            let history = locator
                .open_session(session, meta("agent", "thread"))
                .unwrap();
            history.replace(&[]).unwrap();
            Box::new(
                locator
                    .begin_generation(session, meta("agent", "thread"))
                    .unwrap(),
            )
        }),
    ];
    for (what, keep) in kept {
        let store = Store::open(&path).unwrap();
        let keeper = keep(&store, &session);
        drop(store);
        assert_eq!(
            holder(Store::open(&path)),
            Some(std::process::id()),
            "{what}"
        );
        thread::spawn(move || drop(keeper)).join().unwrap();
        // Closed cleanly, too: a reader has nothing to recover.
        assert_eq!(contents(&read_only(&path).unwrap()), ["first"], "{what}");
    }
}

// --- Reading only ---

#[test]
fn a_read_only_store_reads_everything_and_changes_nothing() {
    let disk = SimDisk::new();
    let world = World::open(&disk).unwrap();
    for (_, step) in STEPS {
        step(&world).unwrap();
    }
    let shown = world.picture().unwrap();
    drop(world);
    let (folder, path) = place();
    let image = disk.image();
    assert!(image.journal().is_empty(), "it was closed");
    fs::write(&path, image.database()).unwrap();
    let before = files(folder.path());

    let first = World::over(read_only(&path).unwrap()).unwrap();
    let second = World::over(read_only(&path).unwrap()).unwrap();
    assert_eq!(first.picture().unwrap(), shown);
    assert_eq!(second.picture().unwrap(), shown);
    assert_eq!(
        holder(Store::open(&path)),
        None,
        "readers do not say who they are"
    );
    drop(first);
    refused(Store::open(&path), ErrorKind::AlreadyOpen);
    assert_eq!(second.picture().unwrap(), shown);
    drop(second);
    let lock = folder.path().join("store.redb-lock");
    fs::remove_file(lock).unwrap();
    assert_eq!(files(folder.path()), before);
}

#[test]
fn every_kind_of_write_to_a_read_only_store_is_refused_before_anything_else_is_looked_at() {
    let (folder, path) = place();
    let session = SessionRef::root("session");
    let meta = meta("agent", "thread");
    let token = {
        let store = Store::open(&path).unwrap();
        let locator = store.locator();
        let history = locator.open_session(&session, meta.clone()).unwrap();
        history.append(row("first")).unwrap();
        store.head(&session).unwrap().unwrap()
    };
    let before = fs::read(&path).unwrap();
    let store = read_only(&path).unwrap();
    let locator = store.locator();
    let history = locator.open_session(&session, meta.clone()).unwrap();
    let unwritten = open_stem(&store, "unwritten");
    let rows = [row("second")];
    let partial = TranscriptPartial::new("parti");
    let background = BackgroundAppend::new("key", json!(null));
    let answer = TranscriptMessage::assistant("news");
    let writes: Vec<Result<()>> = vec![
        history.append_turn(TranscriptTurn::new(&[], &rows, &meta)),
        history.append_turn_with_partial(TranscriptTurn::new(&[], &rows, &meta), Some(&partial)),
        history.append(row("second")),
        history.replace(&rows),
        history.clear(),
        unwritten.append(row("second")),
        unwritten.clear(),
        locator.begin_generation(&session, meta.clone()).map(drop),
        locator
            .begin_generation_from_baseline(&session, meta.clone(), &[])
            .map(drop),
        locator
            .truncate_into_next_generation(&session, TruncateCut::BeforeIndex(0), meta.clone())
            .map(drop),
        locator
            .append_interrupted_partial("thread", None, &partial, None)
            .map(drop),
        locator
            .append_background(&session, answer, &background)
            .map(drop),
        store
            .append_rows(
                &session,
                &token,
                AppendRows {
                    rows: &rows,
                    ..AppendRows::default()
                },
            )
            .map(drop),
    ];
    for (number, write) in writes.into_iter().enumerate() {
        let error = write.expect_err("it is open for reading only");
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "write {number}: {error}");
    }
    drop((store, locator, history, unwritten));
    assert_eq!(files(folder.path()).get(&path), Some(&before));
}

// --- Files that are no stores ---

/// Opens a file of these bytes in both ways. Answers the two errors, and makes sure that it is left as it was.
fn open_foreign(bytes: &[u8]) -> [Error; 2] {
    let (_folder, path) = place();
    fs::write(&path, bytes).unwrap();
    let errors = [Store::open(&path).map(drop), read_only(&path).map(drop)];
    assert!(fs::read(&path).unwrap() == bytes, "it was changed");
    errors.map(|result| result.expect_err("it is not a store"))
}

/// The bytes of a redb database that `fill` filled, closed cleanly and as a crash would leave it.
fn redb_database(fill: impl Fn(&redb::WriteTransaction)) -> [Vec<u8>; 2] {
    let (_folder, path) = place();
    let database = redb::Database::create(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    fill(&transaction);
    transaction.commit().unwrap();
    let unclean = fs::read(&path).unwrap();
    drop(database);
    [fs::read(&path).unwrap(), unclean]
}

#[test]
fn a_file_that_is_no_store_is_refused_and_left_byte_for_byte() {
    const NOTES: TableDefinition<'_, &str, u64> = TableDefinition::new("notes");
    const STORE: TableDefinition<'_, &str, u64> = TableDefinition::new("store");
    const STRINGS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("store");
    let random: Vec<u8> = (0..100_000u32)
        .map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2])
        .collect();
    let mut sqlite = b"SQLite format 3\0".to_vec();
    sqlite.resize(8192, 1);
    let mut files = vec![
        vec![0],
        b"redb".to_vec(),
        b"Dear diary, today I opened a store.\n".to_vec(),
        vec![0; 1 << 20],
        random,
        sqlite,
    ];
    files.extend(redb_database(|_| {}));
    files.extend(redb_database(|transaction| {
        transaction
            .open_table(NOTES)
            .unwrap()
            .insert("a", 1)
            .unwrap();
    }));
    files.extend(redb_database(|transaction| {
        transaction
            .open_table(STORE)
            .unwrap()
            .insert("format", 0)
            .unwrap();
    }));
    files.extend(redb_database(|transaction| {
        let mut table = transaction.open_table(STRINGS).unwrap();
        table.insert("format", b"one".as_slice()).unwrap();
    }));
    for (number, bytes) in files.iter().enumerate() {
        for error in open_foreign(bytes) {
            assert_eq!(error.kind(), ErrorKind::Corrupted, "file {number}: {error}");
        }
    }
}

#[test]
fn a_store_that_was_closed_before_there_was_a_journal_opens_and_goes_on() {
    const STORE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("store");
    let (_folder, path) = place();
    written(&path);
    let before = {
        let store = Store::open(&path).unwrap();
        store.sessions().unwrap()
    };
    let database = redb::Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut table = transaction.open_table(STORE).unwrap();
        let state = table.get("state").unwrap().unwrap().value().to_vec();
        // Its last byte before the checksum says that no journal is in force; it was not there.
        let (old, end) = state.split_at(state.len() - 5);
        assert_eq!(end[0], 0);
        let sum = crc32fast::hash(old).to_le_bytes();
        table
            .insert("state", [old, &sum].concat().as_slice())
            .unwrap();
    }
    transaction.commit().unwrap();
    drop(database);

    let read_only = Store::builder().read_only(true).open(&path).unwrap();
    assert_eq!(read_only.sessions().unwrap(), before);
    drop(read_only);
    for _ in 0..2 {
        written(&path);
    }
    let store = Store::open(&path).unwrap();
    assert_eq!(contents(&store), ["first", "first", "first"]);
}

#[test]
fn a_store_of_a_newer_format_is_refused_with_both_versions_and_left_byte_for_byte() {
    const STORE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("store");
    let (_folder, path) = place();
    written(&path);
    let database = redb::Database::open(&path).unwrap();
    let format = {
        let transaction = database.begin_read().unwrap();
        let table = transaction.open_table(STORE).unwrap();
        let format = table.get("format").unwrap().unwrap();
        u32::from_le_bytes(format.value().try_into().unwrap())
    };
    let transaction = database.begin_write().unwrap();
    {
        let mut table = transaction.open_table(STORE).unwrap();
        let newer = (format + 1).to_le_bytes();
        table.insert("format", newer.as_slice()).unwrap();
        // It may say the rest in a way of its own.
        table.remove("state").unwrap();
    }
    transaction.commit().unwrap();
    let unclean = fs::read(&path).unwrap();
    drop(database);

    for error in open_foreign(&fs::read(&path).unwrap()) {
        assert!(
            matches!(error, Error::NewerFormat { found, supported } if found == format + 1 && supported == format),
            "{error}"
        );
    }
    for error in open_foreign(&unclean) {
        assert_eq!(error.kind(), ErrorKind::NewerFormat, "{error}");
    }
}

#[test]
fn what_a_crash_leaves_of_a_creation_is_no_obstacle() {
    let disk = SimDisk::new();
    disk.record();
    drop(disk.open(Store::builder()).unwrap());
    for events in 0..=disk.events() {
        let (folder, path) = place();
        let left = folder.path().join("store.redb-new");
        let image = disk.power_cut(events, events as u64).image();
        fs::write(&left, image.database()).unwrap();
        written(&path);
        assert!(!left.exists(), "after {events} events");
        assert_eq!(contents(&Store::open(&path).unwrap()), ["first"]);
    }
}

#[test]
fn a_file_that_only_has_the_name_of_a_helper_is_left_alone() {
    for suffix in ["-new", "-lock"] {
        let (folder, path) = place();
        let taken = folder.path().join(format!("store.redb{suffix}"));
        fs::write(&taken, "Dear diary, today I took a name.\n").unwrap();
        let before = files(folder.path());
        refused(Store::open(&path), ErrorKind::Io);
        assert_eq!(files(folder.path()).get(&taken), before.get(&taken));
        assert!(!path.exists());

        // Another store, closed or open.
        fs::remove_file(&taken).unwrap();
        written(&taken);
        assert!(Store::open(&path).is_err(), "{suffix}");
        let store = Store::open(&taken).unwrap();
        assert!(Store::open(&path).is_err(), "{suffix}");
        assert_eq!(contents(&store), ["first"]);
        drop(store);
        assert_eq!(contents(&Store::open(&taken).unwrap()), ["first"]);
    }
}
