//! The calls to a simulated disk: how they are counted, struck by faults, and held.

use std::collections::HashMap;
use std::io;

use crate::StoreFile;

/// What a store asks of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DiskCall {
    /// Reading bytes.
    Read,
    /// Writing bytes.
    Write,
    /// Changing the length of a file, and a sync with nothing else to make durable: what fails when the disk is full.
    SetLen,
    /// Making what was written to a file durable.
    Sync,
}

impl DiskCall {
    /// The error of a call that a fault strikes.
    pub(super) fn broken(self) -> io::Error {
        match self {
            Self::SetLen => io::ErrorKind::StorageFull.into(),
            _ => io::Error::other("a simulated fault of the disk"),
        }
    }
}

/// Calls of one kind, on one file or on whichever.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calls {
    pub(super) call: DiskCall,
    pub(super) file: Option<StoreFile>,
}

impl Calls {
    fn include(self, file: StoreFile, call: DiskCall) -> bool {
        self.call == call && self.file.is_none_or(|only| only == file)
    }
}

/// A fault that is set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) calls: Calls,
    /// Calls until it strikes, 1 for the next one.
    pub(super) countdown: u64,
    /// Whether it strikes once only.
    pub(super) once: bool,
    /// How many bytes of a write arrive all the same.
    pub(super) torn: usize,
}

/// Calls that wait.
#[derive(Debug)]
struct Hold {
    id: u64,
    calls: Calls,
    /// Calls that go on before the first one waits.
    pass: u64,
}

/// What is known of the calls of one kind on one file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub(super) calls: u64,
    pub(super) failures: u64,
    /// Bytes that were read or written.
    pub(super) bytes: u64,
    /// Calls that wait at present.
    pub(super) waiting: usize,
}

/// All calls so far, and what is in the way of those to come.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    counts: HashMap<(StoreFile, DiskCall), Count>,
    faults: Vec<Fault>,
    holds: Vec<Hold>,
    last_hold: u64,
}

impl Traffic {
    pub(super) fn count_mut(&mut self, file: StoreFile, call: DiskCall) -> &mut Count {
        self.counts.entry((file, call)).or_default()
    }

    /// The counts that `belongs` picks, added up.
    fn sum(&self, belongs: impl Fn(StoreFile, DiskCall) -> bool) -> Count {
        let counts = self.counts.iter();
        let picked = counts.filter(|((file, call), _)| belongs(*file, *call));
        picked.fold(Count::default(), |sum, (_, count)| Count {
            calls: sum.calls + count.calls,
            failures: sum.failures + count.failures,
            bytes: sum.bytes + count.bytes,
            waiting: sum.waiting + count.waiting,
        })
    }

    pub(super) fn count(&self, calls: Calls) -> Count {
        self.sum(|file, call| calls.include(file, call))
    }

    /// Calls of any kind that failed on a file, or on both.
    pub(super) fn failures(&self, only: Option<StoreFile>) -> u64 {
        self.sum(|file, _| only.is_none_or(|only| only == file))
            .failures
    }

    pub(super) fn set(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Takes back all faults, or those that were set on one file alone.
    pub(super) fn heal(&mut self, only: Option<StoreFile>) {
        self.faults
            .retain(|fault| only.is_some() && fault.calls.file != only);
    }

    /// The fault that strikes a call.
    pub(super) fn strike(&mut self, file: StoreFile, call: DiskCall) -> Option<Fault> {
        let mut struck = None;
        self.faults.retain_mut(|fault| {
            if !fault.calls.include(file, call) {
                return true;
            }
            fault.countdown = fault.countdown.saturating_sub(1);
            let strikes = fault.countdown == 0;
            if strikes {
                struck = Some(*fault);
            }
            !(strikes && fault.once)
        });
        self.count_mut(file, call).failures += u64::from(struck.is_some());
        struck
    }

    /// Lets calls wait from the `nth` on. Answers the number of the hold.
    pub(super) fn hold(&mut self, calls: Calls, nth: u64) -> u64 {
        self.last_hold += 1;
        self.holds.push(Hold {
            id: self.last_hold,
            calls,
            pass: nth.saturating_sub(1),
        });
        self.last_hold
    }

    /// The hold that a call has to wait for.
    pub(super) fn held(&mut self, file: StoreFile, call: DiskCall) -> Option<u64> {
        let mut held = None;
        for hold in &mut self.holds {
            if !hold.calls.include(file, call) {
                continue;
            }
            match hold.pass.checked_sub(1) {
                Some(left) => hold.pass = left,
                None => held = Some(hold.id),
            }
        }
        held
    }

    pub(super) fn is_held(&self, id: u64) -> bool {
        self.holds.iter().any(|hold| hold.id == id)
    }

    pub(super) fn let_go(&mut self, id: u64) {
        self.holds.retain(|hold| hold.id != id);
    }
}
