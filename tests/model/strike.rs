//! Operations that a fault of the disk strikes, processes that end, and power that fails: what was acknowledged stays,
//! what was refused leaves nothing, and what is uncertain is whole or absent.

use std::fmt::Write as _;

use std::thread;
use std::time::{Duration, Instant};

use transcript_redb::testkit::SimDisk;
use transcript_redb::{ErrorKind, Health, Result, SessionQuery, Store};

use super::diff::{Checked, Divergence, holds};
use super::pair::{Pair, read};
use super::place::{After, Fault, Medium, Pace};
use super::stems::{base_of_stem, stem_of};

/// How long a store may take to recover once its disk works.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether the disk is to blame, and nothing of the call may ever appear.
fn is_refused_by_disk(kind: Option<ErrorKind>) -> bool {
    matches!(kind, Some(ErrorKind::Io | ErrorKind::Storage))
}

impl Pair {
    /// Calls the redb store while the fault that was asked for is in force, and answers what it answers in the end; None
    /// if nothing came of the call because the process ended.
    ///
    /// A call that is refused by the disk is repeated once the store has recovered. Of one that is `Indeterminate` the
    /// store is asked whether it came about; `found` then makes the answer. `base` is the session that it writes to.
    pub fn struck<T>(
        &mut self,
        base: Option<&str>,
        call: impl Fn(&Self) -> Result<T>,
        found: impl FnOnce(&Self) -> Checked<T>,
    ) -> Checked<Option<Result<T>>> {
        let Some((disk, pace, fault)) = self.fault() else {
            return Ok(Some(call(self)));
        };
        self.settled()?;
        let before = self.picture(base)?;
        let failures = disk.failures();
        fault.arm(&disk);
        let answer = call(self);
        let was_struck = disk.failures() > failures;
        let kind = answer.as_ref().err().map(transcript_redb::Error::kind);
        let blamed = is_refused_by_disk(kind) || kind == Some(ErrorKind::Indeterminate);
        holds(was_struck || !blamed, || {
            format!("an error of a disk that works: {kind:?}")
        })?;
        if was_struck {
            self.note(format!("struck: {:?} {:?}", fault.file, fault.call));
        }
        let ended = self.follow(&disk, pace, fault.after)?;
        self.check_due |= was_struck || ended;
        if !blamed {
            self.note_if(was_struck, "done in spite of a fault");
            return Ok(Some(answer));
        }
        if kind == Some(ErrorKind::Indeterminate) && self.picture(base)? != before {
            self.note("indeterminate, and whole");
            return Ok(Some(Ok(found(self)?)));
        }
        self.note(match kind {
            Some(ErrorKind::Indeterminate) => "indeterminate, and absent",
            _ => "refused by the disk",
        });
        // The reference has not heard of the call.
        self.check_all()?;
        Ok((!ended).then(|| call(self)))
    }

    /// The fault that is to strike now.
    pub fn fault(&mut self) -> Option<(SimDisk, Pace, Fault)> {
        match &self.medium {
            Medium::Disk(disk, pace) => Some((disk.clone(), *pace, self.fault.take()?)),
            _ => None,
        }
    }

    /// Mends the disk, or ends the process; answers whether it did.
    fn follow(&mut self, disk: &SimDisk, pace: Pace, after: After) -> Checked<bool> {
        match after {
            After::Heal => {
                disk.heal();
                self.settled()?;
                return Ok(false);
            }
            // What was not synced on purpose is not owed after a power cut.
            After::PowerCut(seed) if !pace.eventual => self.cut_power(seed),
            After::Kill | After::PowerCut(_) => self.kill(),
        }
        Ok(true)
    }

    /// Ends the process: the next one finds what was written.
    pub fn kill(&mut self) {
        if let Medium::Disk(disk, pace) = &self.medium {
            self.go_on(SimDisk::with_image(disk.image()), *pace);
            self.note("a kill");
        }
    }

    /// Cuts the power: the next process finds what was synced, and a choice of the rest.
    pub fn cut_power(&mut self, seed: u64) {
        if let Medium::Disk(disk, pace) = &self.medium {
            self.go_on(disk.power_cut(disk.events(), seed), *pace);
            self.note("a power cut");
        }
    }

    /// Opens the store on another disk. The one before never touches it.
    fn go_on(&mut self, disk: SimDisk, pace: Pace) {
        disk.record();
        self.life += 1;
        self.medium = Medium::Disk(disk, pace);
        self.install(self.medium.open(&self.clock).expect("a store that opens"));
        self.check_due = true;
    }

    fn install(&mut self, store: Store) {
        self.redb = store.locator();
        self.store = store;
    }

    /// Closes the store and opens it again. A fault strikes the close and the first attempt to open.
    pub fn reopen(&mut self) -> Checked {
        self.slots.fill_with(|| None);
        if matches!(self.medium, Medium::Memory) {
            return Ok(());
        }
        let fault = self.fault();
        if let Some((disk, _, fault)) = &fault {
            fault.arm(disk);
        }
        // Whatever keeps the old store open is gone before the new one opens.
        self.install(Store::in_memory().expect("a store in memory"));
        self.life += 1;
        let mut opened = self.medium.open(&self.clock);
        if let Some((disk, pace, fault)) = fault {
            let kind = opened.as_ref().err().map(transcript_redb::Error::kind);
            self.note_if(kind.is_some(), "an open that is refused by the disk");
            let left = match fault.after {
                After::PowerCut(seed) if !pace.eventual => disk.power_cut(disk.events(), seed),
                _ => SimDisk::with_image(disk.image()),
            };
            if kind.is_none() && fault.after == After::Heal {
                disk.heal();
            } else if kind.is_none() || is_refused_by_disk(kind) {
                left.record();
                self.medium = Medium::Disk(left, pace);
                opened = self.medium.open(&self.clock);
            }
        }
        self.install(read("opening", opened)?);
        self.check_due = true;
        self.settled()
    }

    /// Waits until the store is well and has nothing to do.
    pub fn settled(&self) -> Checked {
        let Medium::Disk(_, pace) = &self.medium else {
            return Ok(());
        };
        let deadline = Instant::now() + PATIENCE;
        let due = pace.checkpoint_bytes.unwrap_or(u64::MAX);
        loop {
            let error = match self.store.stats() {
                Ok(stats) => {
                    let healthy = matches!(stats.health, Health::Healthy);
                    if healthy && stats.journaled_bytes < due {
                        return Ok(());
                    }
                    format!("{:?}", stats.health)
                }
                Err(error) if is_refused_by_disk(Some(error.kind())) => format!("{error}"),
                Err(error) => return Err(Divergence(format!("it does not recover: {error}"))),
            };
            holds(Instant::now() < deadline, || {
                format!("it does not recover: {error}")
            })?;
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// All that a write to a session changes.
    fn picture(&self, base: Option<&str>) -> Checked<String> {
        let Some(base) = base else {
            return Ok(String::new());
        };
        let mut picture = String::new();
        for generation in 0..=self.chain_of(base) {
            let stem = stem_of(base, generation);
            let records = read("records_of_stem", self.store.records_of_stem(&stem))?;
            let records = read("a record", records.collect::<Result<Vec<_>>>())?;
            writeln!(picture, "{stem} {records:?}").expect("a string takes everything");
            let meta = self.display(&stem)?.map(|display| display.meta);
            writeln!(picture, "{meta:?}").expect("a string takes everything");
        }
        let query = SessionQuery {
            children: true,
            ..SessionQuery::default()
        };
        let mut listed = read("sessions", self.store.sessions_matching(&query))?;
        listed.retain(|summary| base_of_stem(&summary.stem) == base);
        Ok(picture + &format!("{listed:?}"))
    }

    fn note_if(&mut self, happened: bool, what: &str) {
        if happened {
            self.note(what);
        }
    }
}
