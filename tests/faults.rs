//! What a broken disk does to callers, and what it never does to the store: every call of a scripted conversation to
//! its disk is made to fail, once or until the disk is healed.
//!
//! `FAULTS_STRIDE=1` tries every call; by default the dearer runs try a part of them.

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

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::reference::{Reference, reference};
use support::script::{STEPS, World};
use support::values::meta;
use transcript_redb::testkit::{DiskCall, SimDisk, SimFile};
use transcript_redb::{
    Backend, Error, ErrorKind, Health, Result, Store, StoreFile, TranscriptHistory,
    TranscriptLocator, TranscriptMessage, TranscriptTurn,
};

/// A way to break the disk at its n-th call from now.
type Break = fn(&SimDisk, u64);

/// How far apart the calls are that a run tries.
fn stride(default: usize) -> usize {
    std::env::var("FAULTS_STRIDE")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Whether the disk is to blame, and the store promises that nothing of the call will ever appear.
fn is_refused_by_disk(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Storage)
}

/// Repeats a call until the store has recovered; it tries at most ten times a second.
#[track_caller]
fn eventually<T>(mut call: impl FnMut() -> Result<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match call() {
            Ok(value) => return value,
            Err(error) if !is_refused_by_disk(&error) => panic!("it does not recover: {error}"),
            Err(error) if Instant::now() > deadline => panic!("it does not recover: {error}"),
            Err(_) => thread::park_timeout(Duration::from_millis(1)),
        }
    }
}

/// Reads until the store has recovered from whatever it met.
#[track_caller]
fn until_healthy<T>(store: &Store, mut read: impl FnMut() -> Result<T>) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while read().is_err() || !matches!(store.health(), Health::Healthy) {
        assert!(Instant::now() < deadline, "{:?}", store.health());
        thread::park_timeout(Duration::from_millis(1));
    }
}

/// The pictures that a store may show after a step that ended in `result`.
fn allowed<'r>(reference: &'r Reference, step: usize, result: &Result<()>) -> &'r [String] {
    let (before, after) = (step..=step, step + 1..=step + 1);
    let allowed = match result {
        Ok(()) => after,
        Err(error) if is_refused_by_disk(error) => before,
        Err(error) if error.kind() == ErrorKind::Indeterminate => step..=step + 1,
        Err(error) => panic!("{}: {error}", STEPS[step].0),
    };
    &reference.pictures[allowed]
}

/// Plays one step on a disk that breaks at its `nth` call, then checks the store, in this process and opened anew, and
/// goes on with it. Answers whether the fault struck.
fn play(reference: &Reference, step: usize, nth: u64, break_disk: Break, once: bool) -> bool {
    let disk = SimDisk::with_image(reference.disks[step].clone());
    let world = World::open(&disk).unwrap();
    let (name, attempt) = STEPS[step];
    let what = format!("call {nth} of {name}");

    break_disk(&disk, nth);
    let result = attempt(&world);
    // The step is acknowledged before the database has it: the calls behind that are made to fail as well.
    let covered = world.store.checkpoint();
    if disk.failures() == 0 {
        assert!(result.is_ok(), "{what}: {result:?}");
        assert!(covered.is_ok(), "{what}: {covered:?}");
        return false;
    }
    if let Err(error) = covered {
        assert!(is_refused_by_disk(&error), "{what}: {error}");
    }
    if once {
        assert_ne!(
            result.as_ref().map_err(Error::kind),
            Err(ErrorKind::Indeterminate),
            "{what}: a fault that is gone leaves nothing uncertain"
        );
    } else if matches!(&result, Err(error) if error.kind() == ErrorKind::Indeterminate) {
        let health = world.store.health();
        assert!(
            matches!(health, Health::Recovering { .. }),
            "{what}: {health:?}"
        );
    }
    disk.heal();

    let shown = eventually(|| world.picture());
    let allowed = allowed(reference, step, &result);
    assert!(allowed.contains(&shown), "{what} ended in {result:?}");
    until_healthy(&world.store, || world.picture());
    let copy = SimDisk::with_image(disk.image());
    let reopened = World::open(&copy).unwrap().picture().unwrap();
    assert_eq!(reopened, shown, "{what}, opened anew");

    // The same handles go on, whether the step has still to be done or not.
    if shown == reference.pictures[step] {
        eventually(|| attempt(&world));
    }
    if let Some((_, next)) = STEPS.get(step + 1) {
        eventually(|| next(&world));
    }
    let last = (step + 2).min(STEPS.len());
    assert_eq!(
        world.picture().unwrap(),
        reference.pictures[last],
        "{what}, going on"
    );
    drop(world);
    let reopened = World::open(&disk).unwrap().picture().unwrap();
    assert_eq!(
        reopened, reference.pictures[last],
        "{what}, closed and opened"
    );
    true
}

/// Breaks the disk at every `stride`-th call that some step makes. Answers how many faults struck.
fn play_all(stride: usize, break_disk: Break, once: bool) -> usize {
    let reference = reference();
    let mut struck = 0;
    for step in 0..STEPS.len() {
        // Every step begins at another call, so that the strides do not always meet the same place of a commit.
        let mut nth = 1 + (step % stride) as u64;
        while play(&reference, step, nth, break_disk, once) {
            struck += 1;
            nth += stride as u64;
        }
    }
    struck
}

#[test]
fn a_write_that_fails_once_leaves_its_turn_whole_or_absent_and_the_store_at_work() {
    let struck = play_all(
        stride(11),
        |disk, nth| disk.fail_once(DiskCall::Write, nth),
        true,
    );
    assert!(struck > 10, "{struck}");
}

#[test]
fn a_write_that_is_torn_leaves_its_turn_whole_or_absent_and_the_store_at_work() {
    let struck = play_all(stride(13), |disk, nth| disk.tear(nth, 100), true);
    assert!(struck > 10, "{struck}");
}

#[test]
fn a_sync_that_fails_once_leaves_its_turn_whole_or_absent_and_the_store_at_work() {
    let struck = play_all(
        stride(1),
        |disk, nth| disk.fail_once(DiskCall::Sync, nth),
        true,
    );
    assert!(struck >= 2 * STEPS.len(), "{struck}");
}

#[test]
fn a_read_that_fails_once_leaves_its_turn_whole_or_absent_and_the_store_at_work() {
    let struck = play_all(
        stride(151),
        |disk, nth| disk.fail_once(DiskCall::Read, nth),
        true,
    );
    assert!(struck > 10, "{struck}");
}

#[test]
fn a_disk_that_takes_no_writes_fails_each_turn_and_the_store_works_once_it_is_healed() {
    let struck = play_all(
        stride(13),
        |disk, nth| disk.fail_from(DiskCall::Write, nth),
        false,
    );
    assert!(struck > 10, "{struck}");
}

#[test]
fn a_disk_that_syncs_nothing_fails_each_turn_and_the_store_works_once_it_is_healed() {
    let struck = play_all(
        stride(1),
        |disk, nth| disk.fail_from(DiskCall::Sync, nth),
        false,
    );
    assert!(struck >= 2 * STEPS.len(), "{struck}");
}

#[test]
fn a_full_disk_fails_what_needs_room_and_the_store_works_once_there_is_some() {
    let struck = play_all(1, |disk, nth| disk.fail_from(DiskCall::SetLen, nth), false);
    assert!(struck >= 1, "{struck}");
}

fn row(text: &str) -> TranscriptMessage {
    TranscriptMessage::user(text)
}

fn open_stem(store: &Store, stem: &str) -> Arc<dyn TranscriptHistory> {
    let locator = store.locator();
    locator.open_stem(stem, meta("agent", "thread")).unwrap()
}

/// A store on a simulated disk, and a written transcript in it.
fn written() -> (SimDisk, Store, Arc<dyn TranscriptHistory>) {
    let disk = SimDisk::new();
    let store = disk.open(Store::builder()).unwrap();
    let history = open_stem(&store, "main");
    history.append(row("first")).unwrap();
    (disk, store, history)
}

fn contents(history: &dyn TranscriptHistory) -> Vec<String> {
    let rows = eventually(|| history.messages());
    rows.into_iter().map(|row| row.content).collect()
}

/// Waits until so many changes stand in the queue behind the group that is being committed.
fn wait_until_queued(store: &Store, changes: usize) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while store.stats().unwrap().queued_changes < changes {
        assert!(Instant::now() < deadline, "the changes never queue up");
        thread::yield_now();
    }
}

/// Appends a row to each of six transcripts while the disk breaks with `break_disk`: the first is a group of its own, in
/// its sync when the others queue up behind it. Answers the result of the first and those of the others.
fn append_in_two_groups(
    break_disk: impl FnOnce(&SimDisk),
) -> (SimDisk, Store, Result<()>, Vec<Result<()>>) {
    let (disk, store, first) = written();
    let others: Vec<_> = (0..5)
        .map(|number| open_stem(&store, &format!("other {number}")))
        .collect();
    let (led, followed) = thread::scope(|scope| {
        let held = disk.hold(DiskCall::Sync);
        let leader = scope.spawn(|| first.append(row("led")));
        held.wait_for(1);
        let followers: Vec<_> = others
            .iter()
            .map(|other| scope.spawn(|| other.append(row("followed"))))
            .collect();
        wait_until_queued(&store, others.len());
        break_disk(&disk);
        drop(held);
        let followed = followers.into_iter().map(|it| it.join().unwrap()).collect();
        (leader.join().unwrap(), followed)
    });
    (disk, store, led, followed)
}

/// Nothing of the followers appears, and their writes go through once the disk is healed.
fn assert_followers_left_nothing(store: &Store) {
    for number in 0..5 {
        let other = open_stem(store, &format!("other {number}"));
        assert!(eventually(|| other.read_session()).is_none());
        eventually(|| other.append(row("followed")));
        assert_eq!(contents(other.as_ref()), ["followed"]);
    }
}

#[test]
fn a_failed_commit_reaches_every_caller_of_its_group() {
    let mut alone = 0;
    for nth in 1.. {
        let (disk, store, led, followed) =
            append_in_two_groups(|disk| disk.fail_once(DiskCall::Sync, nth));
        if disk.failures() == 0 {
            break;
        }
        let failed = followed.iter().filter(|result| result.is_err()).count();
        assert!(
            failed == 0 || failed == followed.len(),
            "sync {nth}: {followed:?}"
        );
        let errors = followed
            .iter()
            .chain([&led])
            .filter_map(|it| it.as_ref().err());
        for error in errors {
            assert!(is_refused_by_disk(error), "sync {nth}: {error}");
        }
        if led.is_ok() && failed > 0 {
            alone += 1;
            assert_eq!(
                contents(open_stem(&store, "main").as_ref()),
                ["first", "led"]
            );
        }
        if failed > 0 {
            assert_followers_left_nothing(&store);
        }
    }
    assert!(
        alone > 0,
        "the group of the followers fails by itself at some sync"
    );
}

#[test]
fn a_failed_commit_reaches_every_caller_that_queued_behind_it() {
    let (disk, store, led, followed) =
        append_in_two_groups(|disk| disk.fail_from(DiskCall::Sync, 1));
    assert_eq!(led.unwrap_err().kind(), ErrorKind::Indeterminate);
    for result in followed {
        let error = result.unwrap_err();
        assert!(
            is_refused_by_disk(&error),
            "of a follower nothing was written: {error}"
        );
    }
    assert!(matches!(store.health(), Health::Recovering { .. }));
    disk.heal();
    assert_followers_left_nothing(&store);
    assert!(matches!(store.health(), Health::Healthy));
    let shown = contents(open_stem(&store, "main").as_ref());
    assert!(shown == ["first"] || shown == ["first", "led"], "{shown:?}");
}

#[test]
fn a_turn_of_uncertain_end_is_there_or_not_and_its_retry_says_so() {
    let (mut kept, mut lost) = (0, 0);
    let ways: [(&str, Break); 3] = [
        ("no sync", |disk, nth| disk.fail_from(DiskCall::Sync, nth)),
        ("no write", |disk, nth| disk.fail_from(DiskCall::Write, nth)),
        ("no sync and no second write", |disk, nth| {
            disk.fail_from(DiskCall::Sync, nth);
            disk.fail_from(DiskCall::Write, nth + 1);
        }),
    ];
    for (way, break_disk) in ways {
        for nth in 1.. {
            let (disk, store, history) = written();
            let prev = history.messages().unwrap();
            let next = [prev.clone(), vec![row("second")]].concat();
            let meta = meta("agent", "thread");
            let turn = TranscriptTurn::new(&prev, &next, &meta);
            break_disk(&disk, nth);
            let result = history.append_turn(turn);
            if disk.failures() == 0 {
                break;
            }
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Indeterminate, "{way} {nth}");
            let killed = SimDisk::with_image(disk.image());
            let restarted = killed.open(Store::builder()).unwrap();
            disk.heal();
            // This process takes it back once it can; a new one may find it.
            for (store, may_be_there) in [(&store, false), (&restarted, true)] {
                let history = open_stem(store, "main");
                let shown = contents(history.as_ref());
                if shown == ["first"] {
                    lost += 1;
                    eventually(|| history.append_turn(turn));
                } else {
                    assert!(may_be_there, "{way} {nth}");
                    kept += 1;
                    let error = history.append_turn(turn).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Stale, "{way} {nth}");
                }
                assert_eq!(
                    contents(history.as_ref()),
                    ["first", "second"],
                    "{way} {nth}"
                );
            }
            let reopened = SimDisk::with_image(disk.image())
                .open(Store::builder())
                .unwrap();
            let history = open_stem(&reopened, "main");
            assert_eq!(contents(history.as_ref()), ["first", "second"]);
        }
    }
    assert!(
        kept > 0 && lost > 0,
        "both ends are met: {kept} kept, {lost} lost"
    );
}

#[test]
fn a_disk_that_reads_nothing_is_an_error_and_never_an_empty_transcript() {
    let (disk, store, _) = written();
    drop(store);
    let store = disk.open(Store::builder().cache_bytes(0)).unwrap();
    let (locator, history) = (store.locator(), open_stem(&store, "main"));
    disk.fail_from(DiskCall::Read, 1);
    let failed = [
        history.read_session().map(drop),
        history.read_display().map(drop),
        history.messages().map(drop),
        locator.root_for_thread("thread").map(drop),
        locator.latest_for_agent("agent").map(drop),
        locator.thread_spend("thread").map(drop),
        locator.thread_transcripts("thread", None).map(drop),
        store.records_of_stem("main").map(drop),
        store.threads().map(drop),
        history.append(row("second")),
        history.clear(),
    ];
    for (number, result) in failed.into_iter().enumerate() {
        let error = result.expect_err("reading is not possible");
        assert!(is_refused_by_disk(&error), "{number}: {error}");
    }
    disk.heal();
    assert_eq!(contents(history.as_ref()), ["first"]);
}

#[test]
fn a_full_disk_loses_nothing_that_was_acknowledged_and_refuses_the_rest() {
    let (disk, store, history) = written();
    let other = open_stem(&store, "other");
    other.append(row("small")).unwrap();
    store.checkpoint().unwrap();
    disk.fail_from(DiskCall::SetLen, 1);
    let large = "x".repeat(1 << 20);
    // The journal has room for it, the database has none.
    history.append(row(&large)).unwrap();
    let error = history.messages().unwrap_err();
    assert!(is_refused_by_disk(&error), "{error}");
    assert!(disk.failures() > 0);
    for _ in 0..3 {
        let error = other.append(row("refused")).unwrap_err();
        assert!(is_refused_by_disk(&error), "{error}");
    }
    assert_eq!(contents(other.as_ref()), ["small"]);
    let killed = SimDisk::with_image(disk.image());
    disk.heal();
    assert_eq!(contents(history.as_ref()), ["first", &large]);
    eventually(|| other.append(row("at last")));
    assert_eq!(contents(other.as_ref()), ["small", "at last"]);
    until_healthy(&store, || history.messages());

    let reopened = killed.open(Store::builder()).unwrap();
    assert_eq!(
        contents(open_stem(&reopened, "main").as_ref()),
        ["first", &large]
    );
}

#[test]
fn a_broken_store_is_opened_again_at_most_ten_times_a_second() {
    let disk = SimDisk::new();
    let opened = Arc::new(AtomicUsize::new(0));
    let (made, counter) = (disk.clone(), Arc::clone(&opened));
    let store = Store::builder()
        .with_backend(move |file| {
            if file == StoreFile::Database {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Box::new(made.file(file)))
        })
        .unwrap();
    let history = open_stem(&store, "main");
    history.append(row("first")).unwrap();

    disk.fail_from(DiskCall::Write, 1);
    let before = opened.load(Ordering::Relaxed);
    let start = Instant::now();
    assert!(store.checkpoint().is_err());
    let mut refused = 0;
    while start.elapsed() < Duration::from_millis(250) {
        assert!(history.append(row("never")).is_err());
        assert!(history.messages().is_err());
        refused += 1;
    }
    let tries = opened.load(Ordering::Relaxed) - before;
    let most = start.elapsed().as_millis() as usize / 100 + 1;
    assert!(
        tries <= most && tries < refused,
        "{tries} tries for {refused} calls"
    );
    disk.heal();
    assert_eq!(contents(history.as_ref()), ["first"]);
}

#[test]
fn the_health_can_be_asked_while_the_disk_hangs_in_recovery() {
    let (disk, store, history) = written();
    disk.fail_from(DiskCall::Sync, 1);
    assert_eq!(
        history.append(row("second")).unwrap_err().kind(),
        ErrorKind::Indeterminate
    );
    disk.heal();
    thread::scope(|scope| {
        let held = disk.hold(DiskCall::Sync);
        let reader = scope.spawn(|| contents(history.as_ref()));
        held.wait_for(1);
        assert!(matches!(store.health(), Health::Recovering { .. }));
        drop(held);
        assert!(!reader.join().unwrap().is_empty());
    });
    until_healthy(&store, || history.messages());
}

/// A file whose writes panic once.
#[derive(Debug)]
struct Panicking {
    file: SimFile,
    armed: Arc<AtomicBool>,
}

impl Backend for Panicking {
    fn len(&self) -> std::io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        assert!(
            !self.armed.swap(false, Ordering::Relaxed),
            "the backend panics"
        );
        self.file.write(offset, data)
    }
}

#[test]
fn a_panic_under_a_commit_is_an_error_of_its_callers_and_the_store_goes_on() {
    let armed = Arc::new(AtomicBool::new(false));
    let (disk, arm) = (SimDisk::new(), Arc::clone(&armed));
    let store = Store::builder()
        .with_backend(move |file| {
            Ok(Box::new(Panicking {
                file: disk.file(file),
                armed: Arc::clone(&arm),
            }))
        })
        .unwrap();
    let history = open_stem(&store, "main");
    history.append(row("first")).unwrap();
    armed.store(true, Ordering::Relaxed);
    let refused = history.append(row("second")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Indeterminate, "{refused}");
    assert_eq!(contents(history.as_ref()), ["first"]);
    history.append(row("third")).unwrap();
    assert_eq!(contents(history.as_ref()), ["first", "third"]);
}

#[test]
fn a_file_that_has_become_another_is_never_taken_for_the_store_that_was_open() {
    let [disk, empty, other] = [(); 3].map(|()| SimDisk::new());
    drop(other.open(Store::builder()).unwrap());
    let shown = Arc::new(AtomicUsize::new(0));
    let (disks, which) = ([disk.clone(), empty, other], Arc::clone(&shown));
    let store = Store::builder()
        .with_backend(move |file| match disks.get(which.load(Ordering::Relaxed)) {
            Some(disk) => Ok(Box::new(disk.file(file))),
            None => Err(std::io::ErrorKind::NotFound.into()),
        })
        .unwrap();
    let history = open_stem(&store, "main");
    history.append(row("first")).unwrap();

    for (number, kind) in [
        (1, ErrorKind::Corrupted),
        (2, ErrorKind::Corrupted),
        (3, ErrorKind::Io),
    ] {
        eventually(|| history.append(row("more")));
        shown.store(number, Ordering::Relaxed);
        disk.fail_from(DiskCall::Sync, 1);
        assert!(store.checkpoint().is_err());
        disk.heal();
        let deadline = Instant::now() + Duration::from_secs(20);
        while history.messages().unwrap_err().kind() != kind {
            assert!(Instant::now() < deadline, "file {number} is not looked at");
        }
        match store.health() {
            Health::Failed { error } => {
                assert_eq!((error.kind(), kind), (kind, ErrorKind::Corrupted));
            }
            Health::Recovering { error } => {
                assert_eq!((error.kind(), kind), (kind, ErrorKind::Io));
            }
            health => panic!("file {number}: {health:?}"),
        }
        // Once the file is the right one again, all is well again.
        shown.store(0, Ordering::Relaxed);
        let deadline = Instant::now() + Duration::from_secs(20);
        while history.messages().is_err() {
            assert!(Instant::now() < deadline, "it does not recover");
        }
        until_healthy(&store, || history.messages());
    }
    assert_eq!(
        contents(history.as_ref()),
        ["first", "more", "more", "more"]
    );
}
