//! The group committer: one durable write for all changes that wait.
//!
//! There is no thread of its own. The first caller that waits becomes the leader: it takes what is queued, makes it
//! durable and answers everybody in the group, then hands the lead to the first caller that queued up meanwhile. While
//! one group is being made durable the next gathers, so groups grow with the load and nobody waits for a timer.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::change::Change;
use super::database::guarded;
use super::journal::{MAX_GROUP_BYTES, Payload, frame_bytes};
use super::pending::Session;
use crate::{Error, Result};

/// Bytes that may wait in the queue before callers are held back.
const QUEUE_BYTES: usize = 32 << 20;

/// Bytes of one group, unless a single change is larger: half a segment of the journal.
pub(super) const GROUP_BYTES: usize = 2 << 20;

// Changes weigh at least a kilobyte, so the headers of their frames take far less than as much again.
const _: () = assert!(GROUP_BYTES as u64 + GROUP_BYTES as u64 / 2 < MAX_GROUP_BYTES);

/// Changes smaller than this are planned anew when another creation overtook them.
const PLANNED_ANEW_BYTES: usize = 1 << 20;

/// How making a group durable failed. No change behind the group was written.
#[derive(Debug)]
pub(super) enum GroupError {
    /// Nothing of the group will ever appear.
    Refused(Error),
    /// Each change of the group is there wholly or not at all.
    Indeterminate(Error),
}

/// A change with its place in the order of the store.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) sequence: u64,
    pub(super) change: Change,
    /// As the journal stores it; None once it does, in memory, and where the change is too large for it.
    payload: Mutex<Option<Payload>>,
    /// Bytes of its frame in the journal; None if it has none.
    pub(super) frame_bytes: Option<u64>,
    /// Bytes that it holds in the queue and in memory, roughly.
    pub(super) weight: usize,
    /// Kept, so that its pending head is known as long as the tables lag behind it.
    _sessions: Vec<Arc<Session>>,
    ticket: Arc<Ticket>,
}

impl Queued {
    pub(super) fn new(sequence: u64, enqueued: Enqueued) -> Self {
        let payload = enqueued.payload.as_ref().map(Payload::len);
        Self {
            sequence,
            weight: payload.unwrap_or(0).max(enqueued.change.weight()),
            change: enqueued.change,
            frame_bytes: payload.map(frame_bytes),
            payload: Mutex::new(enqueued.payload),
            _sessions: enqueued.sessions,
            ticket: Arc::default(),
        }
    }
}

impl Queued {
    /// Its payload, if it still has one.
    pub(super) fn payload(&self) -> MutexGuard<'_, Option<Payload>> {
        lock(&self.payload)
    }
}

/// A change before it has its place.
pub(super) struct Enqueued {
    pub(super) change: Change,
    pub(super) payload: Option<Payload>,
    pub(super) sessions: Vec<Arc<Session>>,
}

/// The claim of a caller on the answer to its change.
#[derive(Debug, Default)]
pub(super) struct Ticket {
    state: Mutex<TicketState>,
    moved: Condvar,
}

#[derive(Debug, Default)]
enum TicketState {
    #[default]
    Waiting,
    Leading,
    Done(Result<()>),
}

#[derive(Debug)]
struct Queue {
    entries: VecDeque<Queued>,
    bytes: usize,
    /// Callers that wait for room, or for changes to be durable.
    waiting: usize,
    led: bool,
    next_sequence: u64,
    /// All changes up to this one are durable.
    durable: u64,
    /// Counts the groups that failed: with each, every pending head is void.
    epoch: u64,
    /// The newest transcript that a queued change creates.
    created: u64,
}

/// The queue of changes and the order of the store.
#[derive(Debug)]
pub(super) struct Committer {
    queue: Mutex<Queue>,
    space: Condvar,
    settled: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How much waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    /// Changes in the queue.
    pub(super) changes: usize,
    /// Bytes of them and of the group that is being committed.
    pub(super) bytes: usize,
    /// Callers that wait for room in the queue, or for changes that their answer rests on.
    pub(super) callers: usize,
}

/// Waits for `moved` as long as `holds`, and counts the caller meanwhile.
fn wait_while<'q>(
    moved: &Condvar,
    mut queue: MutexGuard<'q, Queue>,
    holds: impl Fn(&Queue) -> bool,
) -> MutexGuard<'q, Queue> {
    queue.waiting += 1;
    queue = moved
        .wait_while(queue, |queue| holds(queue))
        .unwrap_or_else(PoisonError::into_inner);
    queue.waiting -= 1;
    queue
}

impl Committer {
    /// Continues behind the last durable change.
    pub(super) fn new(durable: u64) -> Self {
        Self {
            queue: Mutex::new(Queue {
                entries: VecDeque::new(),
                bytes: 0,
                waiting: 0,
                led: false,
                next_sequence: durable + 1,
                durable,
                epoch: 0,
                created: 0,
            }),
            space: Condvar::new(),
            settled: Condvar::new(),
        }
    }

    /// The number of failed groups so far.
    pub(super) fn epoch(&self) -> u64 {
        lock(&self.queue).epoch
    }

    /// The last change that is durable.
    pub(super) fn durable(&self) -> u64 {
        lock(&self.queue).durable
    }

    /// How much waits now.
    pub(super) fn depth(&self) -> Depth {
        let queue = lock(&self.queue);
        Depth {
            changes: queue.entries.len(),
            bytes: queue.bytes,
            callers: queue.waiting,
        }
    }

    /// Waits until the queue has room. Callers come here before they take a sequencer.
    pub(super) fn wait_for_space(&self) {
        let queue = lock(&self.queue);
        drop(wait_while(&self.space, queue, |queue| {
            queue.bytes >= QUEUE_BYTES
        }));
    }

    /// Gives a change its sequence number, unless a group failed since `epoch`.
    pub(super) fn enqueue(&self, epoch: u64, enqueued: Enqueued) -> Option<(u64, Arc<Ticket>)> {
        let mut queue = lock(&self.queue);
        if queue.epoch != epoch {
            return None;
        }
        let change = &enqueued.change;
        if let Some(transcript) = change.creates() {
            // Transcripts are numbered in the order of their first writes. Only a large one keeps the number that it was
            // planned with: planning it anew for each small one that overtakes it might never end.
            if transcript < queue.created && change.weight() < PLANNED_ANEW_BYTES {
                return None;
            }
            queue.created = queue.created.max(transcript);
        }
        let sequence = queue.next_sequence;
        queue.next_sequence += 1;
        let queued = Queued::new(sequence, enqueued);
        let ticket = Arc::clone(&queued.ticket);
        queue.bytes += queued.weight;
        queue.entries.push_back(queued);
        Some((sequence, ticket))
    }

    /// Waits until it is known what became of the change, making groups durable with `commit` when it is this caller's
    /// turn to lead. `commit` leaves the changes that it made durable behind.
    pub(super) fn finish(
        &self,
        ticket: &Ticket,
        commit: impl Fn(Vec<Arc<Queued>>) -> std::result::Result<(), GroupError>,
    ) -> Result<()> {
        {
            let mut queue = lock(&self.queue);
            let mut state = lock(&ticket.state);
            if matches!(*state, TicketState::Waiting) && !queue.led {
                queue.led = true;
                *state = TicketState::Leading;
            }
        }
        loop {
            let mut state = lock(&ticket.state);
            loop {
                match &*state {
                    TicketState::Done(answer) => return answer.clone(),
                    TicketState::Leading => break,
                    TicketState::Waiting => {
                        state = ticket
                            .moved
                            .wait(state)
                            .unwrap_or_else(PoisonError::into_inner);
                    }
                }
            }
            // Unless the group answers this ticket, it goes back to waiting.
            *state = TicketState::Waiting;
            drop(state);
            self.lead(&commit);
        }
    }

    /// Makes one group durable, answers its callers and hands the lead on.
    fn lead(&self, commit: &impl Fn(Vec<Arc<Queued>>) -> std::result::Result<(), GroupError>) {
        let group: Vec<_> = {
            let mut queue = lock(&self.queue);
            let mut bytes = 0;
            let count = queue
                .entries
                .iter()
                .take_while(|entry| {
                    let first = bytes == 0;
                    bytes += entry.weight;
                    first || bytes <= GROUP_BYTES
                })
                .count();
            queue.entries.drain(..count).map(Arc::new).collect()
        };
        let outcome = if group.is_empty() {
            Ok(())
        } else {
            // A leader that panics must not leave the others waiting.
            guarded(|| Ok(commit(group.clone())))
                .unwrap_or_else(|error| Err(GroupError::Indeterminate(error)))
        };

        let mut queue = lock(&self.queue);
        let mut behind = VecDeque::new();
        if outcome.is_err() {
            // Every pending head may rest on what was not written.
            queue.epoch += 1;
            behind = std::mem::take(&mut queue.entries);
        } else if let Some(last) = group.last() {
            queue.durable = last.sequence;
        }
        let freed: usize = group.iter().map(|entry| entry.weight).sum();
        let freed_behind: usize = behind.iter().map(|entry| entry.weight).sum();
        queue.bytes = queue.bytes.saturating_sub(freed + freed_behind);
        let (answer, for_behind) = match outcome {
            Ok(()) => (Ok(()), Ok(())),
            Err(GroupError::Refused(error)) => (Err(error.clone()), Err(error)),
            Err(GroupError::Indeterminate(error)) => {
                (Err(indeterminate(error.clone())), Err(error))
            }
        };
        // Answers are given under the lock: a caller that has its answer must not take the lead.
        for entry in &group {
            *lock(&entry.ticket.state) = TicketState::Done(answer.clone());
        }
        for entry in &behind {
            *lock(&entry.ticket.state) = TicketState::Done(for_behind.clone());
        }
        let next = queue.entries.front().map(|entry| Arc::clone(&entry.ticket));
        queue.led = next.is_some();
        if let Some(next) = &next {
            *lock(&next.state) = TicketState::Leading;
        }
        drop(queue);

        self.space.notify_all();
        self.settled.notify_all();
        let answered = group.iter().map(|entry| &entry.ticket);
        let failed = behind.iter().map(|entry| &entry.ticket);
        for ticket in next.iter().chain(answered).chain(failed) {
            ticket.moved.notify_one();
        }
    }

    /// Waits until all changes up to `sequence` are durable. Answers false if a group failed since `epoch`.
    pub(super) fn wait_durable(&self, epoch: u64, sequence: u64) -> bool {
        let queue = lock(&self.queue);
        let queue = wait_while(&self.settled, queue, |queue| {
            queue.epoch == epoch && queue.durable < sequence
        });
        queue.epoch == epoch
    }
}

/// The error of a change of which it is not known whether it was written.
fn indeterminate(error: Error) -> Error {
    match error {
        Error::Io { what, source } | Error::Storage { what, source } => {
            Error::Indeterminate { what, source }
        }
        other => Error::Indeterminate {
            what: "a write".to_owned(),
            source: Arc::new(other),
        },
    }
}
