//! The turn lock: at most one turn of a session is in flight in this process.
//!
//! A live turn holds the lock from before its resume read to after its persist. All generations of a session and all
//! locators over one store share a lock; other sessions, agents and stores have their own. It is fair: waiters get it
//! in the order in which they asked. It is not reentrant: a turn that asks for its own lock waits for ever.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as FairMutex, OwnedMutexGuard};

use crate::{SessionRef, TranscriptLocator};

/// A session's turn lock, held. Dropping it hands the lock to whoever waits longest.
#[derive(Debug)]
#[must_use = "the turn lock is released when the guard is dropped"]
pub struct SessionTurnGuard {
    // Before the place, and so dropped first: whoever gives up the last place leaves a lock that nobody holds.
    _held: OwnedMutexGuard<()>,
    _place: Place,
}

/// Waits for the turn lock of a session, the same for all its generations; `None` at once if the locator is anonymous.
///
/// The future is `Send`, depends on no runtime, and may be dropped while it waits.
pub async fn lock_session_turn(
    locator: &dyn TranscriptLocator,
    session: &SessionRef,
) -> Option<SessionTurnGuard> {
    let (lock, place) = Place::take(Key {
        destination: locator.destination_key()?,
        session: session.first_generation().session_id(),
    });
    Some(SessionTurnGuard {
        _held: lock.lock_owned().await,
        _place: place,
    })
}

/// What a lock is of: a session of a store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    destination: String,
    session: String,
}

/// A lock that somebody holds or waits for.
struct InUse {
    lock: Arc<FairMutex<()>>,
    /// How many hold it or wait for it.
    places: usize,
}

/// All locks in use in this process.
static LOCKS: LazyLock<Mutex<HashMap<Key, InUse>>> = LazyLock::new(Mutex::default);

fn locks() -> MutexGuard<'static, HashMap<Key, InUse>> {
    LOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place at a lock, held from the first wait to the release. The last one to leave takes the lock out of the table.
#[derive(Debug)]
struct Place(Key);

impl Place {
    fn take(key: Key) -> (Arc<FairMutex<()>>, Self) {
        let mut locks = locks();
        let in_use = locks.entry(key.clone()).or_insert_with(|| InUse {
            lock: Arc::default(),
            places: 0,
        });
        in_use.places += 1;
        (Arc::clone(&in_use.lock), Self(key))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut locks = locks();
        if let Some(in_use) = locks.get_mut(&self.0) {
            in_use.places -= 1;
            if in_use.places == 0 {
                locks.remove(&self.0);
            }
        }
    }
}
