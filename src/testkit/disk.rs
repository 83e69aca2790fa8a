//! A disk in memory that fails, tears, waits and loses power on demand.
//!
//! ```
//! use transcript_redb::testkit::{DiskCall, SimDisk};
//! use transcript_redb::{ErrorKind, Store, TranscriptLocator, TranscriptMessage, TranscriptMeta};
//!
//! # fn main() -> transcript_redb::Result<()> {
//! let disk = SimDisk::new();
//! let store = disk.open(Store::builder())?;
//! let history = store.locator().open_stem("chat", TranscriptMeta::new("guide"))?;
//!
//! history.append(TranscriptMessage::user("hello"))?;
//!
//! disk.fail_from(DiskCall::Sync, 1);
//! let refused = history.append(TranscriptMessage::user("is it there?")).unwrap_err();
//! assert_eq!(refused.kind(), ErrorKind::Indeterminate);
//! disk.heal();
//! # Ok(())
//! # }
//! ```

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::calls::{Calls, DiskCall, Fault, Traffic};
use super::image::DiskImage;
use super::power::{Event, History, put};
use crate::{Backend, Result, Store, StoreBuilder, StoreFile};

/// A disk in memory with the two files of a store. Clones are the same disk.
///
/// Calls are counted from 1 when a fault is set, so that "the n-th write from now" can be named. The calls to both files
/// are in one order; [`file`](Self::file) limits what is asked for to one of them.
#[derive(Clone, Debug, Default)]
pub struct SimDisk(Arc<Shared>);

/// A file of a [`SimDisk`]: the backend for it, and a way to count, fail and hold the calls to this file alone. Any
/// number of them may be the same file.
#[derive(Clone, Debug)]
pub struct SimFile {
    disk: SimDisk,
    file: StoreFile,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    image: DiskImage,
    database: Unsynced,
    journal: Unsynced,
    traffic: Traffic,
    history: Option<History>,
}

/// What happened to a file since its last sync.
#[derive(Debug, Default)]
struct Unsynced {
    written: bool,
    resized: bool,
}

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk with these bytes.
    #[must_use]
    pub fn with_image(image: DiskImage) -> Self {
        let disk = Self::new();
        disk.state().image = image;
        disk
    }

    /// Opens the store on this disk, or makes a new one if it is empty.
    pub fn open(&self, builder: StoreBuilder) -> Result<Store> {
        let disk = self.clone();
        builder.with_backend(move |file| Ok(Box::new(disk.file(file))))
    }

    /// One of the files.
    #[must_use]
    pub fn file(&self, file: StoreFile) -> SimFile {
        SimFile {
            disk: self.clone(),
            file,
        }
    }

    /// All bytes, as a process that starts now would read them.
    #[must_use]
    pub fn image(&self) -> DiskImage {
        self.state().image.clone()
    }

    /// Lets the `nth` call of this kind from now fail without effect, and no other.
    pub fn fail_once(&self, call: DiskCall, nth: u64) {
        self.set(Calls { call, file: None }, nth, true, 0);
    }

    /// Lets the `nth` call of this kind from now and all after it fail without effect, until [`heal`](Self::heal).
    pub fn fail_from(&self, call: DiskCall, nth: u64) {
        self.set(Calls { call, file: None }, nth, false, 0);
    }

    /// Lets the `nth` write from now fail when its first `bytes` bytes are written.
    pub fn tear(&self, nth: u64, bytes: usize) {
        let call = DiskCall::Write;
        self.set(Calls { call, file: None }, nth, true, bytes);
    }

    fn set(&self, calls: Calls, nth: u64, once: bool, torn: usize) {
        self.state().traffic.set(Fault {
            calls,
            countdown: nth.max(1),
            once,
            torn,
        });
    }

    /// Takes back all faults, those of single files too.
    pub fn heal(&self) {
        self.state().traffic.heal(None);
    }

    /// Calls of one kind so far, those that failed included.
    #[must_use]
    pub fn calls(&self, call: DiskCall) -> u64 {
        self.state().traffic.count(Calls { call, file: None }).calls
    }

    /// Calls that failed so far.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.state().traffic.failures(None)
    }

    /// Lets calls of one kind wait until the answer is dropped.
    pub fn hold(&self, call: DiskCall) -> Held {
        self.hold_from(call, 1)
    }

    /// The same from the `nth` call from now on.
    pub fn hold_from(&self, call: DiskCall, nth: u64) -> Held {
        self.hold_calls(Calls { call, file: None }, nth)
    }

    fn hold_calls(&self, calls: Calls, nth: u64) -> Held {
        Held {
            disk: self.clone(),
            calls,
            id: self.state().traffic.hold(calls, nth),
        }
    }

    /// Begins to record what happens, for [`power_cut`](Self::power_cut). What is on the disk now counts as durable.
    pub fn record(&self) {
        let mut state = self.state();
        state.history = Some(History {
            before: state.image.clone(),
            events: Vec::new(),
        });
    }

    /// How many events were recorded: writes, changes of length and syncs.
    #[must_use]
    pub fn events(&self) -> usize {
        let state = self.state();
        state
            .history
            .as_ref()
            .map_or(0, |history| history.events.len())
    }

    /// Recorded events that are syncs, by number: `power_cut` with one of these is the moment before it.
    #[must_use]
    pub fn syncs(&self) -> Vec<usize> {
        let state = self.state();
        let events = state.history.iter().flat_map(|history| &history.events);
        events
            .enumerate()
            .filter(|(_, (_, event))| matches!(event, Event::Sync))
            .map(|(number, _)| number)
            .collect()
    }

    /// What a power cut after the first `events` recorded events could leave: of each file all that a sync of that file
    /// made durable, and of the rest a choice that `seed` makes, whole writes or single sectors of them, in any order.
    ///
    /// Of writes before a failed sync each may be lost for good, although reads still show it.
    #[must_use]
    pub fn power_cut(&self, events: usize, seed: u64) -> Self {
        let state = self.state();
        let history = state.history.as_ref();
        Self::with_image(history.map_or_else(DiskImage::default, |it| it.power_cut(events, seed)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.0
            .moved
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call: waits while its kind is held, and answers the fault that strikes it.
    fn begin(&self, file: StoreFile, call: DiskCall) -> (MutexGuard<'_, State>, Option<Fault>) {
        let mut state = self.state();
        state.traffic.count_mut(file, call).calls += 1;
        if let Some(id) = state.traffic.held(file, call) {
            state.traffic.count_mut(file, call).waiting += 1;
            self.0.moved.notify_all();
            while state.traffic.is_held(id) {
                state = self.wait(state);
            }
            state.traffic.count_mut(file, call).waiting -= 1;
        }
        let fault = state.traffic.strike(file, call);
        (state, fault)
    }
}

impl SimFile {
    fn all(&self, call: DiskCall) -> Calls {
        Calls {
            call,
            file: Some(self.file),
        }
    }

    /// [`SimDisk::fail_once`], counting the calls to this file only.
    pub fn fail_once(&self, call: DiskCall, nth: u64) {
        self.disk.set(self.all(call), nth, true, 0);
    }

    /// [`SimDisk::fail_from`], counting the calls to this file only.
    pub fn fail_from(&self, call: DiskCall, nth: u64) {
        self.disk.set(self.all(call), nth, false, 0);
    }

    /// [`SimDisk::tear`], counting the writes to this file only.
    pub fn tear(&self, nth: u64, bytes: usize) {
        self.disk.set(self.all(DiskCall::Write), nth, true, bytes);
    }

    /// Takes back the faults that were set on this file alone.
    pub fn heal(&self) {
        self.disk.state().traffic.heal(Some(self.file));
    }

    /// Calls of one kind to this file so far, those that failed included.
    #[must_use]
    pub fn calls(&self, call: DiskCall) -> u64 {
        self.disk.state().traffic.count(self.all(call)).calls
    }

    /// Calls to this file that failed so far.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.disk.state().traffic.failures(Some(self.file))
    }

    /// Bytes that were read from this file, or written to it, so far.
    #[must_use]
    pub fn bytes(&self, call: DiskCall) -> u64 {
        self.disk.state().traffic.count(self.all(call)).bytes
    }

    /// [`SimDisk::hold`] for calls to this file.
    pub fn hold(&self, call: DiskCall) -> Held {
        self.hold_from(call, 1)
    }

    /// [`SimDisk::hold_from`] for calls to this file.
    pub fn hold_from(&self, call: DiskCall, nth: u64) -> Held {
        self.disk.hold_calls(self.all(call), nth)
    }
}

impl State {
    fn unsynced(&mut self, file: StoreFile) -> &mut Unsynced {
        match file {
            StoreFile::Database => &mut self.database,
            StoreFile::Journal => &mut self.journal,
        }
    }

    fn note(&mut self, file: StoreFile, event: impl FnOnce() -> Event) {
        if let Some(history) = &mut self.history {
            history.events.push((file, event()));
        }
    }

    /// What a sync counts as now.
    fn kind_of_sync(&mut self, file: StoreFile) -> DiskCall {
        match self.unsynced(file) {
            Unsynced {
                resized: true,
                written: false,
            } => DiskCall::SetLen,
            _ => DiskCall::Sync,
        }
    }

    fn write(&mut self, file: StoreFile, offset: u64, data: &[u8]) {
        self.unsynced(file).written = true;
        self.traffic.count_mut(file, DiskCall::Write).bytes += data.len() as u64;
        self.note(file, || Event::Write(offset, data.to_vec()));
        put(self.image.file_mut(file), offset, data);
    }
}

impl Backend for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().image.file(self.file).len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (mut state, fault) = self.disk.begin(self.file, DiskCall::Read);
        if fault.is_some() {
            return Err(DiskCall::Read.broken());
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(out.len());
        let found = state.image.file(self.file).get(start..end);
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        let count = state.traffic.count_mut(self.file, DiskCall::Read);
        count.bytes += out.len() as u64;
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let (mut state, fault) = self.disk.begin(self.file, DiskCall::SetLen);
        if fault.is_some() {
            return Err(DiskCall::SetLen.broken());
        }
        state.unsynced(self.file).resized = true;
        state.note(self.file, || Event::SetLen(len));
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::StorageFull)?;
        state.image.file_mut(self.file).resize(len, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let kind = self.disk.state().kind_of_sync(self.file);
        let (mut state, fault) = self.disk.begin(self.file, kind);
        *state.unsynced(self.file) = Unsynced::default();
        if fault.is_some() {
            state.note(self.file, || Event::FailedSync);
            return Err(kind.broken());
        }
        state.note(self.file, || Event::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (mut state, fault) = self.disk.begin(self.file, DiskCall::Write);
        match fault {
            None => {
                state.write(self.file, offset, data);
                Ok(())
            }
            Some(fault) => {
                let arrived = data.get(..fault.torn.min(data.len()));
                if let Some(arrived) = arrived.filter(|arrived| !arrived.is_empty()) {
                    state.write(self.file, offset, arrived);
                }
                Err(DiskCall::Write.broken())
            }
        }
    }
}

/// Calls of one kind are held; dropping it lets them go on.
#[derive(Debug)]
#[must_use = "the calls go on when this is dropped"]
pub struct Held {
    disk: SimDisk,
    calls: Calls,
    id: u64,
}

impl Held {
    /// Waits until so many calls wait here.
    pub fn wait_for(&self, calls: usize) {
        let mut state = self.disk.state();
        while state.traffic.count(self.calls).waiting < calls {
            state = self.disk.wait(state);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.disk.state().traffic.let_go(self.id);
        self.disk.0.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::power::SECTOR;

    fn database(disk: &SimDisk) -> SimFile {
        disk.file(StoreFile::Database)
    }

    fn journal(disk: &SimDisk) -> SimFile {
        disk.file(StoreFile::Journal)
    }

    fn written(file: &SimFile, byte: u8) {
        file.write(0, &[byte; 4 * SECTOR]).unwrap();
    }

    /// What a power cut now would leave.
    fn cut(disk: &SimDisk, seed: u64) -> DiskImage {
        disk.power_cut(disk.events(), seed).image()
    }

    #[test]
    fn a_power_cut_keeps_what_was_synced_and_a_choice_of_the_rest_in_whole_sectors() {
        for name in [StoreFile::Database, StoreFile::Journal] {
            let disk = SimDisk::new();
            let file = disk.file(name);
            disk.record();
            written(&file, 1);
            file.sync_data().unwrap();
            written(&file, 2);
            assert_eq!(disk.syncs(), [1]);
            let (mut old, mut new, mut torn) = (0, 0, 0);
            for seed in 0..100 {
                let image = cut(&disk, seed);
                assert_eq!(image, cut(&disk, seed), "seed {seed}");
                let synced = disk.power_cut(2, seed).image();
                assert_eq!(synced.file(name), [1; 4 * SECTOR], "seed {seed}");
                let left = image.file(name);
                for sector in left.chunks(SECTOR) {
                    assert!(
                        sector == [1; SECTOR] || sector == [2; SECTOR],
                        "seed {seed}"
                    );
                }
                match (left.contains(&1), left.contains(&2)) {
                    (true, true) => torn += 1,
                    (true, false) => old += 1,
                    _ => new += 1,
                }
            }
            assert!(
                old > 0 && new > 0 && torn > 0,
                "{old} old, {new} new, {torn} torn"
            );
        }
    }

    #[test]
    fn a_sync_keeps_nothing_of_the_other_file_and_each_loses_what_it_will() {
        let disk = SimDisk::new();
        disk.record();
        written(&database(&disk), 1);
        written(&journal(&disk), 1);
        journal(&disk).sync_data().unwrap();
        let lost = |seed| cut(&disk, seed).database().is_empty();
        assert!((0..100).any(lost) && !(0..100).all(lost));
        assert!((0..100).all(|seed| cut(&disk, seed).journal() == [1; 4 * SECTOR]));

        written(&journal(&disk), 2);
        let mut seen = [[false; 2]; 2];
        for image in (0..200).map(|seed| cut(&disk, seed)) {
            let whole = image.database() == [1; 4 * SECTOR];
            let newest = image.journal() == [2; 4 * SECTOR];
            seen[usize::from(whole)][usize::from(newest)] = true;
        }
        assert_eq!(seen, [[true; 2]; 2], "every combination is met");
    }

    #[test]
    fn of_many_writes_a_power_cut_may_lose_all_or_none() {
        let disk = SimDisk::new();
        disk.record();
        for number in 0..100 {
            journal(&disk).write(number * 512, &[1; SECTOR]).unwrap();
        }
        let landed = |seed| {
            let image = cut(&disk, seed);
            let sectors = image.journal().chunks(SECTOR);
            sectors.filter(|sector| *sector == [1; SECTOR]).count()
        };
        let landed: Vec<_> = (0..100).map(landed).collect();
        assert!(landed.contains(&0) && landed.contains(&100));
        assert!(landed.iter().any(|sectors| (1..100).contains(sectors)));
    }

    #[test]
    fn what_a_failed_sync_lost_no_later_sync_brings_back() {
        let disk = SimDisk::new();
        let file = database(&disk);
        disk.record();
        written(&file, 1);
        disk.fail_once(DiskCall::Sync, 1);
        assert!(file.sync_data().is_err());
        file.write(4096, &[2]).unwrap();
        file.sync_data().unwrap();
        assert_eq!(disk.image().database()[0], 1, "reads show it");
        let lost = |seed| cut(&disk, seed).database()[0] == 0;
        assert!((0..100).any(lost) && !(0..100).all(lost));
        assert!((0..100).all(|seed| cut(&disk, seed).database()[4096] == 2));
    }

    #[test]
    fn the_named_call_fails_once_or_until_the_disk_is_healed() {
        let disk = SimDisk::new();
        let file = database(&disk);
        written(&file, 1);
        disk.fail_once(DiskCall::Write, 2);
        disk.tear(3, 5);
        written(&file, 2);
        assert!(file.write(0, &[3; 9]).is_err());
        assert!(file.write(0, &[4; 9]).is_err());
        assert_eq!(disk.image().database()[..9], [4, 4, 4, 4, 4, 2, 2, 2, 2]);
        disk.fail_from(DiskCall::SetLen, 1);
        for _ in 0..3 {
            let full = file.set_len(9000).unwrap_err();
            assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        }
        assert_eq!(disk.failures(), 5);
        disk.heal();
        file.set_len(9000).unwrap();
        assert_eq!(file.len().unwrap(), 9000);
    }

    #[test]
    fn calls_are_counted_and_fail_in_the_order_of_both_files_or_on_one_alone() {
        let disk = SimDisk::new();
        let (database, journal) = (database(&disk), journal(&disk));
        disk.fail_once(DiskCall::Write, 2);
        journal.fail_from(DiskCall::Write, 3);
        written(&database, 1);
        assert!(journal.write(0, &[1; 9]).is_err(), "the second of both");
        written(&journal, 1);
        written(&database, 2);
        for _ in 0..2 {
            assert!(journal.write(0, &[2; 9]).is_err(), "the third of its own");
        }
        written(&database, 3);
        database.heal();
        assert!(journal.write(0, &[2; 9]).is_err(), "not its fault");
        journal.heal();
        written(&journal, 2);
        journal.read(0, &mut [0; 7]).unwrap();

        assert_eq!((disk.calls(DiskCall::Write), disk.failures()), (9, 4));
        assert_eq!((journal.calls(DiskCall::Write), journal.failures()), (6, 4));
        assert_eq!(
            (database.calls(DiskCall::Write), database.failures()),
            (3, 0)
        );
        assert_eq!(journal.bytes(DiskCall::Write), 2 * 4 * SECTOR as u64);
        assert_eq!(journal.bytes(DiskCall::Read), 7);
        assert_eq!(database.bytes(DiskCall::Read), 0);
    }

    #[test]
    fn calls_to_one_file_are_held_while_the_other_works() {
        let disk = SimDisk::new();
        let (database, journal) = (database(&disk), journal(&disk));
        std::thread::scope(|scope| {
            let held = database.hold_from(DiskCall::Write, 2);
            written(&database, 1);
            let waiting = scope.spawn(|| written(&database, 2));
            held.wait_for(1);
            written(&journal, 3);
            assert_eq!(disk.image().database()[0], 1);
            drop(held);
            waiting.join().unwrap();
        });
        assert_eq!(disk.image().database()[0], 2);
        assert_eq!(disk.image().journal()[0], 3);
    }
}
