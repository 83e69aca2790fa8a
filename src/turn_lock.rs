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

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::InMemoryTranscriptLocator;

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn in_use(locator: &InMemoryTranscriptLocator) -> usize {
        let destination = locator.destination_key().unwrap();
        locks()
            .keys()
            .filter(|key| key.destination == destination)
            .count()
    }

    fn taken(locator: &InMemoryTranscriptLocator, session: &SessionRef) -> SessionTurnGuard {
        match poll(pin!(lock_session_turn(locator, session))) {
            Poll::Ready(guard) => guard.unwrap(),
            Poll::Pending => panic!("the lock is held"),
        }
    }

    #[test]
    fn a_lock_that_nobody_holds_or_waits_for_leaves_nothing_in_the_table() {
        let locator = InMemoryTranscriptLocator::new();
        let session = SessionRef::root("s");
        let guard = taken(&locator, &session);
        let mut waits = Box::pin(lock_session_turn(&locator, &session));
        assert!(poll(waits.as_mut()).is_pending());
        assert_eq!(in_use(&locator), 1);
        drop(waits);
        assert_eq!(in_use(&locator), 1);
        drop(guard);
        assert_eq!(in_use(&locator), 0);
        drop(taken(&locator, &session));
        assert_eq!(in_use(&locator), 0);
    }

    #[test]
    fn a_waiter_that_goes_away_does_not_keep_the_lock_from_the_next() {
        let locator = InMemoryTranscriptLocator::new();
        let session = SessionRef::root("s");
        let guard = taken(&locator, &session);
        let mut first = Box::pin(lock_session_turn(&locator, &session));
        let next_generation = session.next_generation();
        let mut second = Box::pin(lock_session_turn(&locator, &next_generation));
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll(second.as_mut()).is_pending());
        drop(guard);
        assert!(
            poll(second.as_mut()).is_pending(),
            "the first in line has it"
        );
        drop(first);
        assert!(poll(second.as_mut()).is_ready());
    }

    #[test]
    fn futures_and_guards_may_move_between_threads() {
        fn is_send<T: Send>(_: &T) {}
        fn is_owned<T: Send + 'static>() {}
        let locator = InMemoryTranscriptLocator::new();
        let session = SessionRef::root("s");
        is_send(&lock_session_turn(&locator, &session));
        is_send(&crate::background::append_background_message_in(
            &locator,
            &session,
            crate::TranscriptMessage::assistant("a"),
            crate::BackgroundAppend::new("k", serde_json::Value::Null),
        ));
        is_owned::<SessionTurnGuard>();
    }
}
