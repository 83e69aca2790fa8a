//! The rows that an import knows, in a few bytes each: a file may have hundreds of thousands of them.
//!
//! By which key a row is known stands in the store once the step that has it is applied. Only the keys of the last steps
//! are held.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

use hashbrown::HashTable;

use super::RowPlace;
use super::step::RepeatKey;
use crate::store::hash::Identity;
use crate::{Error, Result};

/// What is known by a key and is no row: a context, or tool declarations.
pub(super) const NO_ROW: usize = usize::MAX;

/// So many steps may wait to be applied before their keys are looked for in the tables.
const HELD_STEPS: usize = 8;

/// A row.
#[derive(Clone, Copy)]
struct Packed {
    uuid: [u8; 16],
    identity: [u8; 16],
    seq: u32,
    /// Its transcript among those that rows are of, and in the lowest bit whether it is live.
    owner: u32,
}

#[derive(Default)]
pub(super) struct Rows {
    packed: Vec<Packed>,
    /// The second hashes of those that have one.
    legacy: HashMap<u32, u128>,
    transcripts: Vec<u64>,
    numbers: HashMap<u64, u32>,
    /// Places in `packed`.
    by_uuid: HashTable<u32>,
    hasher: RandomState,
    /// UUIDs of what is no row.
    others: HashSet<u128>,
    /// The rows of steps that may not be applied yet.
    recent: HashMap<RepeatKey, usize>,
    /// The keys of the step that is gathered.
    gathered: Vec<RepeatKey>,
    /// The steps before it, with their keys.
    steps: VecDeque<(u64, Vec<RepeatKey>)>,
}

impl Rows {
    /// Adds a row; its index.
    pub(super) fn push(&mut self, place: RowPlace) -> Result<usize> {
        let too_many = || Error::other("an import of more rows than can be told apart");
        let index = u32::try_from(self.packed.len()).map_err(|_| too_many())?;
        let number = match self.numbers.get(&place.transcript) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(self.transcripts.len()).map_err(|_| too_many())?;
                self.transcripts.push(place.transcript);
                self.numbers.insert(place.transcript, number);
                number
            }
        };
        let owner = number.checked_mul(2).ok_or_else(too_many)? | u32::from(place.live);
        if let Some(legacy) = place.identity.legacy {
            self.legacy.insert(index, legacy);
        }
        let Self {
            packed,
            by_uuid,
            hasher,
            ..
        } = self;
        let uuid = place.uuid.to_le_bytes();
        packed.push(Packed {
            uuid,
            identity: place.identity.identity.to_le_bytes(),
            seq: u32::try_from(place.seq).map_err(|_| too_many())?,
            owner,
        });
        let hash_of = |at: &u32| hasher.hash_one(packed.get(*at as usize).map(|row| row.uuid));
        by_uuid.insert_unique(hasher.hash_one(Some(uuid)), index, hash_of);
        Ok(index as usize)
    }

    /// The row with this index.
    pub(super) fn get(&self, index: usize) -> Option<RowPlace> {
        let packed = self.packed.get(index)?;
        let legacy = u32::try_from(index).ok();
        Some(RowPlace {
            transcript: *self.transcripts.get((packed.owner >> 1) as usize)?,
            seq: u64::from(packed.seq),
            uuid: u128::from_le_bytes(packed.uuid),
            identity: Identity {
                identity: u128::from_le_bytes(packed.identity),
                legacy: legacy.and_then(|index| self.legacy.get(&index).copied()),
            },
            live: packed.owner & 1 == 1,
        })
    }

    /// The index of the row with this UUID.
    pub(super) fn with_uuid(&self, uuid: u128) -> Option<usize> {
        let uuid = uuid.to_le_bytes();
        let is_it = |at: &u32| {
            let row = self.packed.get(*at as usize);
            row.is_some_and(|row| row.uuid == uuid)
        };
        let found = self.by_uuid.find(self.hasher.hash_one(Some(uuid)), is_it);
        found.map(|at| *at as usize)
    }

    /// Notes a UUID that was given to what is no row.
    pub(super) fn give(&mut self, uuid: u128) {
        self.others.insert(uuid);
    }

    /// Whether the import has given this UUID.
    pub(super) fn has_given(&self, uuid: u128) -> bool {
        self.others.contains(&uuid) || self.with_uuid(uuid).is_some()
    }

    /// What is known by a key since the last steps.
    pub(super) fn recent(&self, key: &RepeatKey) -> Option<usize> {
        self.recent.get(key).copied()
    }

    /// Notes by which key a row of the step under way is known.
    pub(super) fn note(&mut self, key: RepeatKey, index: usize) {
        self.recent.insert(key, index);
        self.gathered.push(key);
    }

    /// Notes that the step under way is the change `sequence`. Answers the last of the changes that must be applied now, so that what
    /// was known by them is found in the tables.
    pub(super) fn close_step(&mut self, sequence: u64) -> Option<u64> {
        let keys = std::mem::take(&mut self.gathered);
        self.steps.push_back((sequence, keys));
        if self.steps.len() <= HELD_STEPS {
            return None;
        }
        let (sequence, keys) = self.steps.pop_front()?;
        for key in keys {
            self.recent.remove(&key);
        }
        Some(sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(seq: u64) -> RowPlace {
        RowPlace {
            transcript: (1 << 40) | (seq % 3),
            seq,
            uuid: u128::from(seq) << 70,
            identity: Identity {
                identity: u128::MAX - u128::from(seq),
                legacy: seq.is_multiple_of(5).then_some(u128::from(seq) << 64),
            },
            live: seq.is_multiple_of(2),
        }
    }

    #[test]
    fn rows_come_back_as_they_were_put() {
        let mut rows = Rows::default();
        for seq in 0..1_000 {
            assert_eq!(
                rows.push(place(seq)).unwrap(),
                usize::try_from(seq).unwrap()
            );
        }
        for seq in 0..1_000 {
            let index = rows.with_uuid(place(seq).uuid).unwrap();
            let (found, put) = (rows.get(index).unwrap(), place(seq));
            assert_eq!(format!("{found:?}"), format!("{put:?}"));
        }
        assert!(rows.get(1_000).is_none() && !rows.has_given(3));
        rows.give(3);
        assert!(rows.has_given(3) && rows.with_uuid(3).is_none());
    }

    #[test]
    fn a_row_takes_less_than_a_hundred_bytes() {
        /// One more than what was room for.
        const ROWS: usize = (1 << 16) + 1;
        const ROWS_A_STEP: usize = 512;
        let mut rows = Rows::default();
        for at in 0..ROWS {
            let seq = at as u64;
            let mut row = place(seq);
            row.identity.legacy = None;
            let index = rows.push(row).unwrap();
            let mut key = [0; 20];
            key[..8].copy_from_slice(&seq.to_le_bytes());
            rows.note(key, index);
            if at % ROWS_A_STEP == 0 {
                rows.close_step(seq);
            }
        }
        let held = rows.packed.capacity() * size_of::<Packed>() + rows.by_uuid.allocation_size();
        assert!(held < 100 * ROWS, "{held} bytes");
        // What else there is does not grow with the rows.
        let keys: usize = rows.steps.iter().map(|(_, keys)| keys.len()).sum();
        assert_eq!(keys + rows.gathered.len(), rows.recent.len());
        assert!(rows.recent.len() <= (HELD_STEPS + 1) * ROWS_A_STEP);
        assert!(rows.legacy.is_empty() && rows.others.is_empty() && rows.transcripts.len() == 3);
    }

    #[test]
    fn keys_are_held_until_their_step_is_to_be_applied() {
        let mut rows = Rows::default();
        let steps = HELD_STEPS as u64 + 2;
        let mut applied = Vec::new();
        for step in 0..steps {
            rows.note([u8::try_from(step).unwrap(); 20], NO_ROW);
            applied.extend(rows.close_step(100 + step));
        }
        assert_eq!(applied, [100, 101]);
        assert_eq!(rows.recent(&[1; 20]), None);
        assert_eq!(rows.recent(&[2; 20]), Some(NO_ROW));
    }
}
