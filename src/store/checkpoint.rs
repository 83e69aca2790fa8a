//! From the journal to the tables: a thread of the store applies what was acknowledged, and from time to time commits it
//! durably, which frees the journal.
//!
//! What no durable commit of the database holds is kept in memory too, and applied again when the database has to be
//! opened anew.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redb::WriteTransaction;

use super::apply;
use super::commit::Queued;
use super::database::{Health, Level, WriteError, guarded, needs_reopening};
use super::journal::Ledger;
use super::journaled::{Journaled, Phase, RECOVERY_PAUSE, journal_error};
use crate::{Error, Result};

/// Bytes of changes that are applied together while nobody asks for them: a page that several of them touch is then
/// copied once.
const GATHER_BYTES: u64 = 512 << 10;

/// How long a change waits for others to be applied with it.
const GATHER_TIME: Duration = Duration::from_millis(10);

/// So long after somebody asked, changes are applied as they come: who reads now and then would otherwise wait for a batch
/// that could have been applied meanwhile.
const ASKED_TIME: Duration = Duration::from_millis(50);

/// How far the tables are behind the journal.
#[derive(Debug)]
pub(super) struct Tables {
    /// Acknowledged changes that no durable commit of the database holds, in order.
    uncovered: VecDeque<Arc<Queued>>,
    /// Bytes of them.
    bytes: u64,
    /// Since when there are any.
    since: Option<Instant>,
    /// All acknowledged changes up to this one are in the tables.
    applied: u64,
    /// A reader waits until they are up to this one.
    asked: u64,
    /// When one had to wait last.
    asked_at: Option<Instant>,
    /// Bytes that came since changes were taken to be applied.
    gathered: u64,
    /// When the first of them came.
    gathering: Option<Instant>,
    /// A checkpoint is wanted at once.
    wanted: bool,
    /// Counts the checkpoints.
    checkpoints: u64,
    /// Counts the journals that begin or end: a checkpoint that was planned for another one records nothing.
    journal: u64,
    /// The database says durably that nothing is in a journal.
    pub(super) clean: bool,
    stalled: Option<Stalled>,
    /// Counts what the applier tried.
    attempts: u64,
    pub(super) closing: bool,
}

/// Why the applier does not go on.
#[derive(Debug)]
struct Stalled {
    error: Error,
    /// Another attempt will not mend it.
    failed: bool,
    last_try: Instant,
    /// Somebody needs another attempt.
    retry: bool,
}

impl Tables {
    /// Continues behind the last change that the tables hold; `recovered` were found in the journal behind it.
    pub(super) fn new(applied: u64, recovered: Vec<Queued>, clean: bool) -> Self {
        Self {
            bytes: recovered.iter().map(|it| it.weight as u64).sum(),
            since: (!recovered.is_empty()).then(Instant::now),
            applied,
            asked: 0,
            asked_at: None,
            gathered: 0,
            gathering: None,
            uncovered: recovered.into_iter().map(Arc::new).collect(),
            wanted: false,
            checkpoints: 0,
            journal: 0,
            clean,
            stalled: None,
            attempts: 0,
            closing: false,
        }
    }

    /// The last change that no durable commit of the database holds.
    pub(super) fn last_uncovered(&self) -> Option<u64> {
        self.uncovered.back().map(|last| last.sequence)
    }

    /// Gives up on what cannot be applied.
    pub(super) fn fail(&mut self, error: Error) {
        self.stalled = Some(Stalled {
            error,
            failed: true,
            last_try: Instant::now(),
            retry: false,
        });
    }

    /// Takes out what a durable commit holds.
    fn cover(&mut self, up_to: u64) {
        while let Some(first) = self.uncovered.front().filter(|it| it.sequence <= up_to) {
            self.bytes = self.bytes.saturating_sub(first.weight as u64);
            self.uncovered.pop_front();
        }
        self.since = (!self.uncovered.is_empty()).then(Instant::now);
        self.note_applied(up_to);
        self.checkpoints += 1;
        self.wanted = false;
    }

    /// How long what is not applied yet is to wait for more.
    fn until_enough(&self) -> Duration {
        let enough = self.asked > self.applied
            || self.gathered >= GATHER_BYTES
            || left(self.asked_at, ASKED_TIME).is_some_and(|left| !left.is_zero());
        if enough {
            return Duration::ZERO;
        }
        left(self.gathering, GATHER_TIME).unwrap_or_default()
    }

    /// All changes up to this one are in the tables.
    fn note_applied(&mut self, sequence: u64) {
        self.applied = self.applied.max(sequence);
        if self
            .last_uncovered()
            .is_none_or(|last| last <= self.applied)
        {
            self.gathered = 0;
            self.gathering = None;
        }
    }

    fn take_unapplied(&mut self) -> Vec<Arc<Queued>> {
        self.gathered = 0;
        self.gathering = None;
        let from = self
            .uncovered
            .partition_point(|queued| queued.sequence <= self.applied);
        self.uncovered.range(from..).cloned().collect()
    }
}

impl Journaled {
    pub(super) fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the applier look whether there is something to do.
    fn call_applier(&self) {
        self.work.notify_one();
    }

    fn wait<'t>(&self, tables: MutexGuard<'t, Tables>) -> MutexGuard<'t, Tables> {
        self.moved
            .wait(tables)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over a group that is durable.
    pub(super) fn hand_on(&self, group: Vec<Arc<Queued>>) {
        let mut tables = self.tables();
        let bytes = group.iter().map(|it| it.weight as u64).sum::<u64>();
        tables.bytes += bytes;
        tables.gathered += bytes;
        // The applier sleeps until there is enough to do, or the first that it gathers has waited long enough.
        let call = tables.gathering.is_none()
            || tables.until_enough().is_zero()
            || tables.bytes >= self.pace.checkpoint_bytes;
        if call {
            let now = Instant::now();
            tables.since.get_or_insert(now);
            tables.gathering.get_or_insert(now);
        }
        tables.uncovered.extend(group);
        drop(tables);
        if call {
            self.call_applier();
        }
    }

    /// Notes that the tables hold the changes up to this one by other means.
    pub(super) fn note_applied(&self, sequence: u64) {
        self.tables().note_applied(sequence);
        self.moved.notify_all();
    }

    /// Changes and bytes that the journal holds and no durable commit of the database.
    pub(super) fn uncovered(&self) -> (usize, u64) {
        let tables = self.tables();
        (tables.uncovered.len(), tables.bytes)
    }

    /// The applier's thread.
    pub(super) fn run(&self) {
        while let Some(checkpoint) = self.next_step() {
            let done = guarded(|| self.step(checkpoint));
            let mut tables = self.tables();
            tables.attempts += 1;
            tables.stalled = done.err().map(|error| Stalled {
                failed: !needs_reopening(&error),
                error,
                last_try: Instant::now(),
                retry: false,
            });
            drop(tables);
            self.moved.notify_all();
        }
    }

    /// Waits until there is something to do, and answers whether a checkpoint is; None when the store is closing.
    fn next_step(&self) -> Option<bool> {
        let wait = |tables, left: Option<Duration>| match left {
            None => self
                .work
                .wait(tables)
                .unwrap_or_else(PoisonError::into_inner),
            Some(left) => {
                let woken = self.work.wait_timeout(tables, left);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        let mut tables = self.tables();
        loop {
            if tables.closing {
                return None;
            }
            let stalled = tables.stalled.as_ref();
            let retry = stalled.is_some_and(|stalled| stalled.retry);
            if stalled.is_some() && !retry {
                tables = wait(tables, None);
                continue;
            }
            let until_checkpoint = left(tables.since, self.pace.checkpoint_interval);
            let due = until_checkpoint.is_some_and(|left| left.is_zero())
                || tables.bytes >= self.pace.checkpoint_bytes
                || tables.wanted;
            let checkpoint = due && !tables.uncovered.is_empty();
            tables.wanted &= checkpoint;
            let behind = tables
                .last_uncovered()
                .is_some_and(|last| last > tables.applied);
            let until_enough = behind.then(|| tables.until_enough());
            if checkpoint || retry || until_enough.is_some_and(|left| left.is_zero()) {
                return Some(checkpoint);
            }
            let left = until_checkpoint.into_iter().chain(until_enough).min();
            tables = wait(tables, left);
        }
    }

    /// Applies what is not applied yet, and commits it durably if a checkpoint is due. A database that an error closed is
    /// opened again and gets a second chance.
    fn step(&self, checkpoint: bool) -> Result<()> {
        let attempt = || {
            if checkpoint {
                self.checkpoint()
            } else {
                self.apply_acknowledged()
            }
        };
        match attempt() {
            Err(error) if needs_reopening(&error) => {
                self.database.recover()?;
                attempt()
            }
            result => result,
        }
    }

    fn apply_acknowledged(&self) -> Result<()> {
        let applied = self
            .database
            .write(Level::Memory, |transaction| self.apply(transaction))
            .map_err(WriteError::into_error)?;
        self.note_applied(applied);
        Ok(())
    }

    /// Applies what is not applied yet; answers the last change that the tables then hold.
    ///
    /// What is applied is looked at within the transaction: while that is open the database cannot be opened anew, and so
    /// cannot fall behind.
    fn apply(&self, transaction: &WriteTransaction) -> Result<u64> {
        let (batch, applied) = {
            let mut tables = self.tables();
            (tables.take_unapplied(), tables.applied)
        };
        self.apply_all(transaction, &batch)?;
        Ok(batch.last().map_or(applied, |last| last.sequence))
    }

    fn apply_all(&self, transaction: &WriteTransaction, batch: &[Arc<Queued>]) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let changes = batch.iter().map(|queued| (queued.sequence, &queued.change));
        apply::apply_group(transaction, &self.seed, changes)
    }

    /// A durable commit of all that was acknowledged when it began; it frees what it covers of the journal.
    fn checkpoint(&self) -> Result<()> {
        let spent = matches!(self.desk().phase, Phase::Spent(_));
        if spent {
            // What was acknowledged can be read; the journal cannot be freed before it is clear what stands in it.
            self.apply_acknowledged()?;
        }
        let up_to = {
            let tables = self.tables();
            tables.last_uncovered().unwrap_or(tables.applied)
        };
        let (journal, ledger) = self.plan_checkpoint(up_to)?;
        let applied = self
            .database
            .write(Level::Durable, |transaction| {
                let applied = self.apply(transaction)?;
                // Write transactions come one after another: none of another journal is between this and the commit.
                if self.tables().journal == journal {
                    apply::record_journal(transaction, ledger, 0)?;
                }
                Ok(applied)
            })
            .map_err(WriteError::into_error)?;
        let mut desk = self.desk();
        let mut tables = self.tables();
        if tables.journal == journal {
            match (&mut desk.phase, ledger) {
                (Phase::Live(writer), Some(ledger)) => writer.covered(&ledger),
                _ => tables.clean = true,
            }
        }
        tables.cover(applied);
        Ok(())
    }

    /// The journal that is live, if one is, as the database is to record it with a commit of all changes up to `up_to`.
    fn plan_checkpoint(&self, up_to: u64) -> Result<(u64, Option<Ledger>)> {
        let mut desk = self.desk();
        if let Phase::Spent(_) = desk.phase {
            desk.void()?;
        }
        let journal = self.tables().journal;
        let synced = match &mut desk.phase {
            Phase::Live(writer) if self.pace.eventual => writer.sync(),
            _ => Ok(()),
        };
        if let Err(error) = synced {
            // What a failed sync has lost the next one does not tell of. What was acknowledged is in memory, and the
            // database takes it without this journal.
            desk.phase = Phase::Idle;
            return Err(journal_error(error));
        }
        let ledger = match &desk.phase {
            Phase::Live(writer) => Some(writer.checkpoint(up_to, self.environment.random())),
            Phase::Idle | Phase::Spent(_) => None,
        };
        Ok((journal, ledger))
    }

    /// Commits all changes, and `last` behind them, to the tables durably and records that no journal is in force. The
    /// caller holds the desk, so that no further change is acknowledged meanwhile.
    pub(super) fn cover_all(
        &self,
        passed: u64,
        last: Option<&Arc<Queued>>,
    ) -> std::result::Result<(), WriteError> {
        let mut changes: Vec<_> = {
            let mut tables = self.tables();
            tables.journal += 1;
            if tables.clean && tables.uncovered.is_empty() && last.is_none() {
                return Ok(());
            }
            tables.uncovered.iter().cloned().collect()
        };
        changes.extend(last.cloned());
        self.write_durably(|transaction| {
            self.apply_all(transaction, &changes)?;
            apply::record_journal(transaction, None, passed)
        })?;
        let mut tables = self.tables();
        tables.clean = true;
        if let Some(last) = changes.last() {
            tables.cover(last.sequence);
        }
        drop(tables);
        self.moved.notify_all();
        Ok(())
    }

    /// Applies again what the database lost when it was opened anew.
    pub(super) fn replay(&self, transaction: &WriteTransaction) -> Result<()> {
        let changes: Vec<_> = self.tables().uncovered.iter().cloned().collect();
        self.apply_all(transaction, &changes)?;
        if let Some(last) = changes.last() {
            // Nobody reads the tables before this is committed.
            self.note_applied(last.sequence);
        }
        Ok(())
    }

    /// The database was opened anew without what it lost.
    pub(super) fn ends_with(&self, sequence: u64) {
        self.tables().applied = sequence;
    }

    /// Waits until the tables hold the acknowledged changes up to `sequence`, or answers why they do not.
    pub(super) fn wait_applied(&self, sequence: u64) -> Result<()> {
        let mut tables = self.tables();
        if tables.applied < sequence {
            tables.asked = tables.asked.max(sequence);
            tables.asked_at = Some(Instant::now());
            self.call_applier();
        }
        while tables.applied < sequence {
            tables = if tables.stalled.is_some() {
                self.try_again(tables)?
            } else {
                self.wait(tables)
            };
        }
        Ok(())
    }

    /// Refuses a write as long as what was acknowledged before cannot be applied.
    pub(super) fn check(&self) -> Result<()> {
        let tables = self.tables();
        if tables.stalled.is_some() {
            drop(self.try_again(tables)?);
        }
        Ok(())
    }

    /// Lets the applier try again, unless it did just now.
    pub(super) fn try_later(&self) {
        if let Some(stalled) = &mut self.tables().stalled
            && !stalled.failed
            && !stalled.retry
            && stalled.last_try.elapsed() >= RECOVERY_PAUSE
        {
            stalled.retry = true;
            self.call_applier();
        }
    }

    /// Lets the applier try again, unless it did just now, and waits for what comes of it.
    fn try_again<'t>(&self, mut tables: MutexGuard<'t, Tables>) -> Result<MutexGuard<'t, Tables>> {
        let attempts = tables.attempts;
        if let Some(stalled) = &mut tables.stalled {
            if stalled.failed || stalled.last_try.elapsed() < RECOVERY_PAUSE {
                return Err(stalled.error.clone());
            }
            stalled.retry = true;
            self.call_applier();
        }
        while tables.attempts == attempts && tables.stalled.is_some() {
            tables = self.wait(tables);
        }
        match &tables.stalled {
            Some(stalled) => Err(stalled.error.clone()),
            None => Ok(tables),
        }
    }

    /// Waits until a checkpoint has freed a part of the journal.
    pub(super) fn wait_for_room(&self) -> Result<()> {
        let mut tables = self.tables();
        let checkpoints = tables.checkpoints;
        while tables.checkpoints == checkpoints {
            if tables.stalled.is_some() {
                tables = self.try_again(tables)?;
            }
            tables.wanted = true;
            self.call_applier();
            tables = self.wait(tables);
        }
        Ok(())
    }

    /// Makes the tables hold all acknowledged changes durably.
    pub(super) fn checkpoint_now(self: &Arc<Self>, durable: u64) -> Result<()> {
        // What an open found in the journal is there before anything was written.
        self.start_applier()?;
        let mut tables = self.tables();
        while tables
            .uncovered
            .front()
            .is_some_and(|it| it.sequence <= durable)
        {
            if tables.stalled.is_some() {
                tables = self.try_again(tables)?;
            }
            tables.wanted = true;
            self.call_applier();
            tables = self.wait(tables);
        }
        Ok(())
    }

    /// Whether the store works, as far as the journal and the way to the tables go.
    pub(super) fn health(&self) -> Health {
        match self.database.health() {
            Health::Healthy => {}
            health => return health,
        }
        if let Some(stalled) = &self.tables().stalled {
            let error = stalled.error.clone();
            return if stalled.failed {
                Health::Failed { error }
            } else {
                Health::Recovering { error }
            };
        }
        match self.trouble().as_ref() {
            Some(error) => Health::Recovering {
                error: error.clone(),
            },
            None => Health::Healthy,
        }
    }
}

/// What is left of `time`, which runs since then.
fn left(since: Option<Instant>, time: Duration) -> Option<Duration> {
    since.map(|since| time.saturating_sub(since.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathering(bytes: u64) -> Tables {
        let mut tables = Tables::new(7, Vec::new(), true);
        tables.gathered = bytes;
        tables.gathering = Some(Instant::now() + GATHER_TIME);
        tables
    }

    #[test]
    fn changes_are_due_when_there_are_enough_or_the_first_has_waited() {
        assert!(!gathering(GATHER_BYTES - 1).until_enough().is_zero());
        assert!(gathering(GATHER_BYTES).until_enough().is_zero());
        let mut tables = gathering(1);
        tables.gathering = Instant::now().checked_sub(GATHER_TIME);
        assert!(tables.until_enough().is_zero());
    }

    #[test]
    fn changes_are_due_when_somebody_asks_for_them_and_while_somebody_asked_just_now() {
        let mut tables = gathering(1);
        tables.asked = 8;
        assert!(tables.until_enough().is_zero());
        tables.applied = 8;
        assert!(!tables.until_enough().is_zero());
        tables.asked_at = Some(Instant::now() + ASKED_TIME);
        assert!(tables.until_enough().is_zero());
        tables.asked_at = Instant::now().checked_sub(ASKED_TIME);
        assert!(!tables.until_enough().is_zero());
    }

    #[test]
    fn nothing_is_gathered_once_the_tables_hold_it_by_other_means() {
        let mut tables = gathering(GATHER_BYTES);
        tables.note_applied(8);
        assert_eq!((tables.gathered, tables.gathering), (0, None));
    }
}
