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
//! disk.fail_from(DiskCall::Sync, 1);
//! let refused = history.append(TranscriptMessage::user("hello")).unwrap_err();
//! assert_eq!(refused.kind(), ErrorKind::Indeterminate);
//! disk.heal();
//! # Ok(())
//! # }
//! ```

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::power::{Event, History, put};
use crate::{Backend, Result, Store, StoreBuilder};

/// What a store asks of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DiskCall {
    /// Reading bytes.
    Read,
    /// Writing bytes.
    Write,
    /// Changing the length of the file, and a sync with nothing else to make durable: what fails when the disk is full.
    SetLen,
    /// Making what was written durable.
    Sync,
}

/// A disk in memory with one file. Clones are the same disk.
///
/// Calls are counted from 1 when a fault is set, so that "the n-th write from now" can be named.
#[derive(Clone, Debug, Default)]
pub struct SimDisk(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    /// Whether anything was written, or only the length changed, since the last sync.
    written: bool,
    resized: bool,
    calls: Vec<(DiskCall, u64)>,
    faults: Vec<Fault>,
    failures: u64,
    holds: Vec<Hold>,
    next_hold: u64,
    waiting: Vec<(DiskCall, usize)>,
    history: Option<History>,
}

/// A fault that is set.
#[derive(Debug)]
struct Fault {
    call: DiskCall,
    /// Calls until it strikes, 1 for the next one.
    countdown: u64,
    /// Whether it strikes once only.
    once: bool,
    /// How many bytes of a write arrive all the same.
    torn: usize,
}

/// A kind of calls that wait.
#[derive(Debug)]
struct Hold {
    id: u64,
    call: DiskCall,
    /// Calls that go on before the first one waits.
    pass: u64,
}

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk with these bytes.
    #[must_use]
    pub fn with_bytes(bytes: Vec<u8>) -> Self {
        let disk = Self::new();
        disk.state().bytes = bytes;
        disk
    }

    /// Opens the store on this disk, or makes a new one if it is empty.
    pub fn open(&self, builder: StoreBuilder) -> Result<Store> {
        let disk = self.clone();
        builder.with_backend(move |_| Ok(Box::new(disk.clone())))
    }

    /// All bytes, as a process that starts now would read them.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    /// Lets the `nth` call of this kind from now fail without effect, and no other.
    pub fn fail_once(&self, call: DiskCall, nth: u64) {
        self.set(call, nth, true, 0);
    }

    /// Lets the `nth` call of this kind from now and all after it fail without effect, until [`heal`](Self::heal).
    pub fn fail_from(&self, call: DiskCall, nth: u64) {
        self.set(call, nth, false, 0);
    }

    /// Lets the `nth` write from now fail when its first `bytes` bytes are written.
    pub fn tear(&self, nth: u64, bytes: usize) {
        self.set(DiskCall::Write, nth, true, bytes);
    }

    fn set(&self, call: DiskCall, countdown: u64, once: bool, torn: usize) {
        self.state().faults.push(Fault {
            call,
            countdown: countdown.max(1),
            once,
            torn,
        });
    }

    /// Takes back all faults.
    pub fn heal(&self) {
        self.state().faults.clear();
    }

    /// Calls of one kind so far, those that failed included.
    #[must_use]
    pub fn calls(&self, call: DiskCall) -> u64 {
        count(&self.state().calls, call)
    }

    /// Calls that failed so far.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.state().failures
    }

    /// Lets calls of one kind wait until the answer is dropped.
    pub fn hold(&self, call: DiskCall) -> Held {
        self.hold_from(call, 1)
    }

    /// The same from the `nth` call from now on.
    pub fn hold_from(&self, call: DiskCall, nth: u64) -> Held {
        let mut state = self.state();
        state.next_hold += 1;
        let id = state.next_hold;
        state.holds.push(Hold {
            id,
            call,
            pass: nth.saturating_sub(1),
        });
        Held {
            disk: self.clone(),
            call,
            id,
        }
    }

    /// Begins to record what happens, for [`power_cut`](Self::power_cut). What is on the disk now counts as durable.
    pub fn record(&self) {
        let mut state = self.state();
        state.history = Some(History {
            before: state.bytes.clone(),
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
            .filter(|(_, event)| matches!(event, Event::Sync))
            .map(|(number, _)| number)
            .collect()
    }

    /// What a power cut after the first `events` recorded events could leave: all that was synced, and of the rest a
    /// choice that `seed` makes, whole writes or single sectors of them, in any order.
    ///
    /// Of writes before a failed sync each may be lost for good, although reads still show it.
    #[must_use]
    pub fn power_cut(&self, events: usize, seed: u64) -> Self {
        let state = self.state();
        let history = state.history.as_ref();
        Self::with_bytes(history.map_or_else(Vec::new, |it| it.power_cut(events, seed)))
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
    fn begin(&self, call: DiskCall) -> (MutexGuard<'_, State>, Option<Fault>) {
        let mut state = self.state();
        bump(&mut state.calls, call, |calls| calls + 1);
        if let Some(id) = state.held(call) {
            bump(&mut state.waiting, call, |waiting| waiting + 1);
            self.0.moved.notify_all();
            while state.holds.iter().any(|hold| hold.id == id) {
                state = self.wait(state);
            }
            bump(&mut state.waiting, call, |waiting| waiting - 1);
        }
        let fault = state.strike(call);
        (state, fault)
    }
}

impl State {
    /// The hold that a call has to wait for.
    fn held(&mut self, call: DiskCall) -> Option<u64> {
        let mut held = None;
        for hold in self.holds.iter_mut().filter(|hold| hold.call == call) {
            match hold.pass.checked_sub(1) {
                Some(left) => hold.pass = left,
                None => held = Some(hold.id),
            }
        }
        held
    }

    fn strike(&mut self, call: DiskCall) -> Option<Fault> {
        let mut struck = None;
        self.faults.retain_mut(|fault| {
            if fault.call != call {
                return true;
            }
            fault.countdown = fault.countdown.saturating_sub(1);
            let strikes = fault.countdown == 0;
            if strikes {
                struck = Some(Fault { ..*fault });
            }
            !(strikes && fault.once)
        });
        self.failures += u64::from(struck.is_some());
        struck
    }

    fn note(&mut self, event: impl FnOnce() -> Event) {
        if let Some(history) = &mut self.history {
            history.events.push(event());
        }
    }

    /// What a sync counts as now.
    fn kind_of_sync(&self) -> DiskCall {
        if self.resized && !self.written {
            DiskCall::SetLen
        } else {
            DiskCall::Sync
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        self.written = true;
        self.note(|| Event::Write(offset, data.to_vec()));
        put(&mut self.bytes, offset, data);
    }
}

fn broken(call: DiskCall) -> io::Error {
    match call {
        DiskCall::SetLen => io::ErrorKind::StorageFull.into(),
        _ => io::Error::other("a simulated fault of the disk"),
    }
}

impl Backend for SimDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (state, fault) = self.begin(DiskCall::Read);
        if fault.is_some() {
            return Err(broken(DiskCall::Read));
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(out.len());
        let found = state.bytes.get(start..end);
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let (mut state, fault) = self.begin(DiskCall::SetLen);
        if fault.is_some() {
            return Err(broken(DiskCall::SetLen));
        }
        state.resized = true;
        state.note(|| Event::SetLen(len));
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::StorageFull)?;
        state.bytes.resize(len, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let kind = self.state().kind_of_sync();
        let (mut state, fault) = self.begin(kind);
        (state.written, state.resized) = (false, false);
        if fault.is_some() {
            state.note(|| Event::FailedSync);
            return Err(broken(kind));
        }
        state.note(|| Event::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (mut state, fault) = self.begin(DiskCall::Write);
        match fault {
            None => {
                state.write(offset, data);
                Ok(())
            }
            Some(fault) => {
                let arrived = data.get(..fault.torn.min(data.len()));
                if let Some(arrived) = arrived.filter(|arrived| !arrived.is_empty()) {
                    state.write(offset, arrived);
                }
                Err(broken(DiskCall::Write))
            }
        }
    }
}

/// Calls of one kind are held; dropping it lets them go on.
#[derive(Debug)]
#[must_use = "the calls go on when this is dropped"]
pub struct Held {
    disk: SimDisk,
    call: DiskCall,
    id: u64,
}

impl Held {
    /// Waits until so many calls wait here.
    pub fn wait_for(&self, calls: usize) {
        let mut state = self.disk.state();
        while count(&state.waiting, self.call) < calls {
            state = self.disk.wait(state);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.disk.state().holds.retain(|hold| hold.id != self.id);
        self.disk.0.moved.notify_all();
    }
}

fn count<N: Copy + Default>(counts: &[(DiskCall, N)], call: DiskCall) -> N {
    let found = counts.iter().find(|(kind, _)| *kind == call);
    found.map_or_else(N::default, |(_, count)| *count)
}

fn bump<N: Copy + Default>(
    counts: &mut Vec<(DiskCall, N)>,
    call: DiskCall,
    change: impl Fn(N) -> N,
) {
    match counts.iter_mut().find(|(kind, _)| *kind == call) {
        Some((_, count)) => *count = change(*count),
        None => counts.push((call, change(N::default()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::power::SECTOR;

    fn written(disk: &SimDisk, byte: u8) {
        Backend::write(disk, 0, &[byte; 4 * SECTOR]).unwrap();
    }

    #[test]
    fn a_power_cut_keeps_what_was_synced_and_a_choice_of_the_rest_in_whole_sectors() {
        let disk = SimDisk::new();
        disk.record();
        written(&disk, 1);
        disk.sync_data().unwrap();
        written(&disk, 2);
        assert_eq!(disk.syncs(), [1]);
        let (mut old, mut new, mut torn) = (0, 0, 0);
        for seed in 0..100 {
            let left = disk.power_cut(disk.events(), seed).bytes();
            assert_eq!(
                left,
                disk.power_cut(disk.events(), seed).bytes(),
                "seed {seed}"
            );
            assert_eq!(
                disk.power_cut(2, seed).bytes(),
                [1; 4 * SECTOR],
                "seed {seed}"
            );
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

    #[test]
    fn what_a_failed_sync_lost_no_later_sync_brings_back() {
        let disk = SimDisk::new();
        disk.record();
        written(&disk, 1);
        disk.fail_once(DiskCall::Sync, 1);
        assert!(disk.sync_data().is_err());
        Backend::write(&disk, 4096, &[2]).unwrap();
        disk.sync_data().unwrap();
        assert_eq!(disk.bytes()[0], 1, "reads show it");
        let lost = |seed| disk.power_cut(disk.events(), seed).bytes()[0] == 0;
        assert!((0..100).any(lost) && !(0..100).all(lost));
        assert!((0..100).all(|seed| disk.power_cut(disk.events(), seed).bytes()[4096] == 2));
    }

    #[test]
    fn the_named_call_fails_once_or_until_the_disk_is_healed() {
        let disk = SimDisk::new();
        written(&disk, 1);
        disk.fail_once(DiskCall::Write, 2);
        disk.tear(3, 5);
        written(&disk, 2);
        assert!(Backend::write(&disk, 0, &[3; 9]).is_err());
        assert!(Backend::write(&disk, 0, &[4; 9]).is_err());
        assert_eq!(disk.bytes()[..9], [4, 4, 4, 4, 4, 2, 2, 2, 2]);
        disk.fail_from(DiskCall::SetLen, 1);
        for _ in 0..3 {
            let full = disk.set_len(9000).unwrap_err();
            assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        }
        assert_eq!(disk.failures(), 5);
        disk.heal();
        disk.set_len(9000).unwrap();
        assert_eq!(Backend::len(&disk).unwrap(), 9000);
    }
}
