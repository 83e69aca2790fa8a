//! The journal as a file beside the database.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use transcript_redb::{Error, ErrorKind, Store, StoreBuilder};

use crate::rig::{at_rest, contents, open, row};

fn place() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("store.redb");
    let journal = folder.path().join("store.redb-journal");
    (folder, database, journal)
}

fn builder() -> StoreBuilder {
    at_rest(Store::builder())
}

/// Every file in a folder, but for locks, with its bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !path.to_str().unwrap().ends_with("-lock"))
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

/// Both files as a killed process leaves them, with two rows.
fn killed() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let (_source, from, from_journal) = place();
    let store = builder().open(&from).unwrap();
    open(&store, 0).append(row("first")).unwrap();
    open(&store, 0).append(row("second")).unwrap();
    let (folder, to, to_journal) = place();
    fs::copy(from, &to).unwrap();
    fs::copy(from_journal, &to_journal).unwrap();
    (folder, to, to_journal)
}

#[test]
fn the_journal_stands_beside_the_database_and_goes_with_a_clean_close() {
    let (_folder, path, journal) = place();
    let store = builder().open(&path).unwrap();
    open(&store, 0).append(row("first")).unwrap();
    assert!(fs::metadata(&journal).unwrap().len() > 0);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(&journal).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "it is for its owner only");
    }
    drop(store);
    assert!(!journal.exists());
    assert_eq!(contents(&builder().open(&path).unwrap(), 0), ["first"]);
    assert!(!journal.exists(), "reading needs none");
}

#[test]
fn both_files_of_a_killed_process_are_the_store_and_a_reader_leaves_them_alone() {
    let (folder, path, journal) = killed();
    let before = files(folder.path());
    let refused = builder().read_only(true).open(&path).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NeedsRecovery, "{refused}");
    assert!(files(folder.path()) == before);
    let store = builder().open(&path).unwrap();
    assert_eq!(contents(&store, 0), ["first", "second"]);
    drop(store);
    assert!(!journal.exists());
    let reader = builder().read_only(true).open(&path).unwrap();
    assert_eq!(contents(&reader, 0), ["first", "second"]);
}

#[test]
fn a_copy_of_the_database_alone_is_refused_and_gets_no_journal() {
    let (folder, path, journal) = killed();
    fs::remove_file(&journal).unwrap();
    let before = files(folder.path());
    for _ in 0..2 {
        let error = builder().open(&path).unwrap_err();
        assert!(matches!(error, Error::Corrupted { .. }), "{error}");
        assert!(files(folder.path()) == before);
    }
}

#[test]
fn a_file_that_only_has_the_name_of_a_journal_is_left_alone() {
    let (folder, path, journal) = place();
    let diary = "Dear diary, today I took a name.\n";
    fs::write(&journal, diary).unwrap();
    // Whether the store is refused at once or at its first write.
    let written = builder()
        .open(&path)
        .and_then(|store| open(&store, 0).append(row("first")));
    assert!(written.is_err());
    assert_eq!(fs::read_to_string(&journal).unwrap(), diary);
    fs::remove_file(&journal).unwrap();
    let store = builder().open(&path).unwrap();
    open(&store, 0).append(row("first")).unwrap();
    assert_eq!(contents(&store, 0), ["first"]);
    drop(store);
    assert!(files(folder.path()).len() == 1, "only the database is left");
}
