//! Pending heads: what each session will be once every queued change is applied.
//!
//! A call plans against the pending head without a lock. It then takes the session's sequencer, a mutex that is never
//! held over I/O, checks that the head is still the one it planned on, and enqueues. If the head moved, it plans again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::head::Head;

/// Marks the owner of a reserved generation: alive as long as the handle that `begin_generation` returned.
#[derive(Debug, Default)]
pub(super) struct Claim;

/// A generation that a handle is about to write.
#[derive(Clone, Debug)]
pub(super) struct Reservation {
    pub(super) generation: u32,
    /// Never upgraded: whoever held the claim for a moment would keep the slot taken after its handle is gone.
    pub(super) owner: Weak<Claim>,
    /// Microseconds since the Unix epoch.
    pub(super) since: i64,
}

impl Reservation {
    /// Whether it is the one that `claim` holds.
    pub(super) fn is_of(&self, claim: &Arc<Claim>) -> bool {
        std::ptr::eq(self.owner.as_ptr(), Arc::as_ptr(claim))
    }
}

/// The newest written generation of a session.
#[derive(Clone, Debug)]
pub(super) struct Newest {
    pub(super) transcript: u64,
    pub(super) generation: u32,
    pub(super) incarnation: u64,
    pub(super) head: Arc<Head>,
}

/// A session as a plan sees it.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// The store's epoch at which the state was loaded.
    pub(super) epoch: u64,
    /// Moves with every change that is enqueued.
    pub(super) version: u64,
    /// The last change that the state rests on; 0 if the tables held it all when the session was first looked at.
    pub(super) sequence: u64,
    pub(super) newest: Option<Newest>,
    reservation: Option<Reservation>,
}

impl View {
    /// The reservation in force: its owner lives, and the generation is not written yet.
    pub(super) fn reservation(&self) -> Option<&Reservation> {
        in_force(self.reservation.as_ref(), self.newest.as_ref())
    }

    /// Whether the last reservation was of this generation by this claim, in force or not.
    pub(super) fn was_reserved(&self, generation: u32, claim: &Arc<Claim>) -> bool {
        self.reservation
            .as_ref()
            .is_some_and(|it| it.generation == generation && it.is_of(claim))
    }
}

/// One session: its stem, its pending head, its reservation.
#[derive(Debug)]
pub(super) struct Session {
    /// Stem of generation 0.
    pub(super) stem: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    loaded: Option<Loaded>,
    /// The last change of this session that was ever enqueued.
    last_sequence: u64,
    version: u64,
    reservation: Option<Reservation>,
}

#[derive(Debug)]
struct Loaded {
    epoch: u64,
    sequence: u64,
    newest: Option<Newest>,
}

impl Session {
    fn new(stem: &str) -> Self {
        Self {
            stem: stem.to_owned(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session as it stands, if it was loaded in this epoch.
    pub(super) fn view(&self, epoch: u64) -> Option<View> {
        let state = self.state();
        let loaded = state
            .loaded
            .as_ref()
            .filter(|loaded| loaded.epoch == epoch)?;
        Some(View {
            epoch,
            version: state.version,
            sequence: loaded.sequence,
            newest: loaded.newest.clone(),
            reservation: state.reservation.clone(),
        })
    }

    /// The last change of this session that was enqueued, whatever became of it; 0 for none.
    pub(super) fn last_sequence(&self) -> u64 {
        self.state().last_sequence
    }

    /// Notes a change that was found in the journal.
    pub(super) fn recover(&self, sequence: u64) {
        self.state().last_sequence = sequence;
    }

    /// Installs what was read from the tables in `epoch`, unless another call was first. They held all changes up to
    /// `sequence`.
    pub(super) fn install(&self, epoch: u64, sequence: u64, newest: Option<Newest>) {
        let mut state = self.state();
        if state
            .loaded
            .as_ref()
            .is_none_or(|loaded| loaded.epoch < epoch)
        {
            state.version += 1;
            state.loaded = Some(Loaded {
                epoch,
                sequence,
                newest,
            });
        }
    }

    /// If all sessions are still as their views saw them, runs `enqueue` under their sequencers and moves the pending
    /// heads. `enqueue` answers the sequence that the change received, or None if the store's epoch has moved.
    pub(super) fn advance_all<T>(
        moves: Vec<(&Self, &View, Newest)>,
        enqueue: impl FnOnce() -> Option<(u64, T)>,
    ) -> Option<T> {
        Self::advance_beside(moves, &[], enqueue)
    }

    /// Like [`advance_all`](Self::advance_all), if the sessions `beside` them are still as they were seen too; these do
    /// not move. No session may be given twice.
    pub(super) fn advance_beside<T>(
        moves: Vec<(&Self, &View, Newest)>,
        beside: &[(Arc<Self>, View)],
        enqueue: impl FnOnce() -> Option<(u64, T)>,
    ) -> Option<T> {
        let moves = moves
            .into_iter()
            .map(|(session, view, newest)| (session, view, Some(newest)));
        let beside = beside
            .iter()
            .map(|(session, view)| (session.as_ref(), view, None));
        let mut all: Vec<_> = moves.chain(beside).collect();
        // Whoever locks several does it in one order; everybody else locks one.
        all.sort_by(|(a, ..), (b, ..)| a.stem.cmp(&b.stem));
        let mut states = Vec::with_capacity(all.len());
        for (session, view, newest) in all {
            let state = session.state();
            if !state.is(view) {
                return None;
            }
            states.push((state, newest));
        }
        let (sequence, answer) = enqueue()?;
        for (state, newest) in &mut states {
            let Some(newest) = newest else { continue };
            state.version += 1;
            state.last_sequence = sequence;
            if let Some(loaded) = state.loaded.as_mut() {
                loaded.sequence = sequence;
                loaded.newest = Some(newest.clone());
            }
        }
        Some(answer)
    }

    /// Reserves a generation for `owner`, if the session is still as `view` saw it.
    pub(super) fn reserve(
        &self,
        view: &View,
        generation: u32,
        owner: &Arc<Claim>,
        since: i64,
    ) -> bool {
        let mut state = self.state();
        let fits = state.is(view);
        if fits {
            state.version += 1;
            state.reservation = Some(Reservation {
                generation,
                owner: Arc::downgrade(owner),
                since,
            });
        }
        fits
    }

    /// Frees the reservation that `held` accepts. Answers whether there was one.
    pub(super) fn release(&self, held: impl FnOnce(&Reservation) -> bool) -> bool {
        let mut state = self.state();
        let freed = state
            .reservation
            .take_if(|reservation| held(reservation))
            .is_some();
        if freed {
            state.version += 1;
        }
        freed
    }

    /// The reservation in force.
    pub(super) fn reservation(&self) -> Option<Reservation> {
        let state = self.state();
        let newest = state
            .loaded
            .as_ref()
            .and_then(|loaded| loaded.newest.as_ref());
        in_force(state.reservation.as_ref(), newest).cloned()
    }
}

/// A reservation, if its owner lives and the generation is not written yet.
fn in_force<'r>(
    reservation: Option<&'r Reservation>,
    newest: Option<&Newest>,
) -> Option<&'r Reservation> {
    reservation.filter(|reservation| {
        let written = newest.is_some_and(|newest| newest.generation >= reservation.generation);
        !written && reservation.owner.strong_count() > 0
    })
}

impl State {
    fn is(&self, view: &View) -> bool {
        self.version == view.version
            && self
                .loaded
                .as_ref()
                .is_some_and(|loaded| loaded.epoch == view.epoch)
    }
}

/// The sessions that handles or queued changes hold, by the stem of their generation 0.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    by_stem: HashMap<String, Weak<Session>>,
    sweep_at: usize,
}

impl Sessions {
    /// The session of a stem without its generation.
    pub(super) fn get(&self, stem: &str) -> Arc<Session> {
        let mut registry = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = registry.by_stem.get(stem).and_then(Weak::upgrade) {
            return session;
        }
        if registry.by_stem.len() >= registry.sweep_at {
            registry
                .by_stem
                .retain(|_, session| session.strong_count() > 0);
            registry.sweep_at = 2 * registry.by_stem.len() + 64;
        }
        let session = Arc::new(Session::new(stem));
        registry
            .by_stem
            .insert(stem.to_owned(), Arc::downgrade(&session));
        session
    }

    /// The session of a stem without its generation, if anybody holds it.
    pub(super) fn held(&self, stem: &str) -> Option<Arc<Session>> {
        let registry = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        registry.by_stem.get(stem).and_then(Weak::upgrade)
    }

    /// All sessions that are held now.
    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        let registry = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        registry
            .by_stem
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }
}
