//! What a power cut leaves of a simulated disk.

use super::image::DiskImage;
use crate::StoreFile;

/// The sector of a disk, in bytes: what a power cut leaves old or new, never mixed.
pub(super) const SECTOR: usize = 512;

/// Everything that happened since the recording began.
#[derive(Debug)]
pub(super) struct History {
    pub(super) before: DiskImage,
    /// In the order in which they happened, whichever the file.
    pub(super) events: Vec<(StoreFile, Event)>,
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Sync,
    /// After this no later sync makes the writes before it durable: the system believes that they are.
    FailedSync,
}

impl History {
    /// The bytes after the first `events` events and a power cut; see [`SimDisk::power_cut`](super::SimDisk::power_cut).
    pub(super) fn power_cut(&self, events: usize, seed: u64) -> DiskImage {
        let mut choice = Choice(seed << 32);
        let mut image = self.before.clone();
        for file in [StoreFile::Database, StoreFile::Journal] {
            let bytes = image.file_mut(file);
            let mut unsynced = Vec::new();
            let happened = self.events.iter().take(events);
            for (_, event) in happened.filter(|(at, _)| *at == file) {
                match event {
                    Event::Sync => {
                        for event in unsynced.drain(..) {
                            land(bytes, event, &mut |_| true);
                        }
                    }
                    Event::FailedSync => lose(bytes, &mut unsynced, &mut choice),
                    event => unsynced.push(event),
                }
            }
            lose(bytes, &mut unsynced, &mut choice);
        }
        image
    }
}

/// Writes `data` at `offset`, extending with zeros as far as needed.
pub(super) fn put(bytes: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let end = start.saturating_add(data.len());
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    if let Some(target) = bytes.get_mut(start..end) {
        target.copy_from_slice(data);
    }
}

/// Lets an event reach the disk, of a write the sectors that `lands` says.
fn land(bytes: &mut Vec<u8>, event: &Event, lands: &mut dyn FnMut(u64) -> bool) {
    match event {
        Event::Write(offset, data) => {
            let mut at = *offset;
            let mut rest = data.as_slice();
            while !rest.is_empty() {
                let place = usize::try_from(at % SECTOR as u64).unwrap_or_default();
                let (part, behind) = rest.split_at((SECTOR - place).min(rest.len()));
                if lands(at) {
                    put(bytes, at, part);
                }
                at += part.len() as u64;
                rest = behind;
            }
        }
        Event::SetLen(len) => {
            if lands(0) {
                bytes.resize(usize::try_from(*len).unwrap_or(usize::MAX), 0);
            }
        }
        Event::Sync | Event::FailedSync => {}
    }
}

/// Lets a choice of unsynced events reach the disk, out of order where that makes a difference. Now and then it is none
/// of them or all, which single choices would hardly ever come to when there are many.
fn lose(bytes: &mut Vec<u8>, unsynced: &mut Vec<&Event>, choice: &mut Choice) {
    let lot = choice.below(8);
    for event in unsynced.drain(..) {
        match (lot, choice.below(4)) {
            (0, _) | (2.., 0) => {}
            (2.., 1) => land(bytes, event, &mut |_| choice.below(2) == 0),
            _ => land(bytes, event, &mut |_| true),
        }
    }
}

/// Pseudorandom numbers (`SplitMix64`): the same seed gives the same disk.
#[derive(Debug)]
struct Choice(u64);

impl Choice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0) % bound
    }
}

/// The `number`-th output of the generator.
pub(super) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
