//! What the engine under test offers beyond reads and appends: the one place to change when it learns more.

use std::time::Duration;

use transcript_redb::{CompactOptions, Durability, Store, StoreBuilder};

use crate::Result;

/// Whether [`compact`] does anything.
pub const COMPACTS: bool = true;

/// Whether [`relaxed`] does anything.
pub const RELAXES: bool = true;

/// Applies and syncs what the store put off.
pub fn checkpoint(store: &Store) -> Result<()> {
    Ok(store.checkpoint()?)
}

/// Makes the store's files as small as it can.
pub fn compact(store: &Store) -> Result<()> {
    // Whoever reads meanwhile waits rather than being told that it is busy.
    store.compact_with(CompactOptions::default().wait(Duration::from_secs(300)))?;
    Ok(())
}

/// Bytes of the store's file in use, where the store says so.
pub fn allocated_bytes(store: &Store) -> Result<Option<u64>> {
    Ok(Some(store.stats()?.allocated_bytes))
}

/// Acknowledged writes survive the end of the process, but not a power loss before the next checkpoint.
pub fn relaxed(builder: StoreBuilder) -> StoreBuilder {
    builder.durability(Durability::Eventual)
}
