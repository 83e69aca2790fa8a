//! Reads that are all of one moment, though each of them is a call of its own.
//!
//! What runs on a thread at one moment reads one snapshot, whatever it calls. Nothing can be written from there: a plan
//! would rest on heads that are no longer in force.

use std::cell::RefCell;
use std::sync::Arc;

use super::Store;
use super::engine::Engine;
use super::snapshot::Snapshot;
use crate::Result;

thread_local! {
    static HELD: RefCell<Vec<(*const Engine, Arc<Snapshot>)>> = const { RefCell::new(Vec::new()) };
}

/// A snapshot that the reads of this thread are answered from, until this is dropped.
struct Held;

impl Held {
    fn new(engine: &Engine, snapshot: Arc<Snapshot>) -> Self {
        HELD.with_borrow_mut(|held| held.push((std::ptr::from_ref(engine), snapshot)));
        Self
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.with_borrow_mut(Vec::pop);
    }
}

/// The snapshot that reads of `engine` on this thread are answered from, if it is a held one.
pub(super) fn held(engine: &Engine) -> Option<Arc<Snapshot>> {
    HELD.with_borrow(|held| {
        let own = held.iter().rev().find(|(of, _)| std::ptr::eq(*of, engine));
        own.map(|(_, snapshot)| Arc::clone(snapshot))
    })
}

impl Store {
    /// Runs `read`, all reads of which on this thread are of the same moment: that of everything acknowledged before.
    /// Writers go on meanwhile; what they replace is kept until `read` returns.
    pub(crate) fn at_one_moment<T>(&self, read: impl FnOnce() -> Result<T>) -> Result<T> {
        let engine = &self.engine;
        if held(engine).is_some() {
            return read();
        }
        engine.read_snapshot(engine.acknowledged(), |snapshot| {
            let _held = Held::new(engine, Arc::clone(snapshot));
            read()
        })
    }
}
