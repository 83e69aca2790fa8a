//! Where the redb store of a sequence lives, and what its disk does to it.

use std::sync::Arc;
use std::time::Duration;

use transcript_redb::testkit::{DiskCall, SimDisk};
use transcript_redb::{Durability, Result, Store, StoreFile};

use super::clock::Clock;
use super::rng::Rng;

/// Where the store lives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Place {
    Memory,
    File,
    Disk(Pace),
}

/// How a store on a simulated disk goes about it. Time never makes a checkpoint due, so that a sequence repeats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// None for the default.
    pub checkpoint_bytes: Option<u64>,
    pub cache_bytes: usize,
    pub eventual: bool,
}

impl Pace {
    pub const DEFAULT: Self = Self {
        checkpoint_bytes: None,
        cache_bytes: 4 << 20,
        eventual: false,
    };
}

impl Place {
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0xD15C);
        match rng.below(100) {
            0..62 => Self::Memory,
            62..70 => Self::File,
            _ => Self::Disk(Pace {
                checkpoint_bytes: *rng.pick(&[None, None, Some(1), Some(20_000)]),
                cache_bytes: rng.weighted(&[(3, 4 << 20), (1, 0)]),
                eventual: rng.percent(12),
            }),
        }
    }

    pub fn is_disk(self) -> bool {
        matches!(self, Self::Disk(_))
    }
}

/// What holds the bytes of a store while it is closed.
pub enum Medium {
    Memory,
    File(tempfile::TempDir),
    Disk(SimDisk, Pace),
}

impl Medium {
    pub fn new(at: Place) -> Self {
        match at {
            Place::Memory => Self::Memory,
            Place::File => Self::File(tempfile::tempdir().expect("a folder")),
            Place::Disk(pace) => {
                let disk = SimDisk::new();
                disk.record();
                Self::Disk(disk, pace)
            }
        }
    }

    pub fn open(&self, clock: &Arc<Clock>) -> Result<Store> {
        let builder = Store::builder()
            .cache_bytes(4 << 20)
            .environment(Arc::clone(clock) as Arc<_>);
        match self {
            Self::Memory => builder.in_memory(),
            Self::File(folder) => builder.open(folder.path().join("store.redb")),
            Self::Disk(disk, pace) => {
                let mut builder = builder
                    .cache_bytes(pace.cache_bytes)
                    .checkpoint_interval(Duration::from_secs(86_400));
                if let Some(bytes) = pace.checkpoint_bytes {
                    builder = builder.checkpoint_bytes(bytes);
                }
                if pace.eventual {
                    builder = builder.durability(Durability::Eventual);
                }
                disk.open(builder)
            }
        }
    }
}

/// Which calls fail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Extent {
    Once,
    /// All from the one that is counted.
    From,
    /// One write, of which so many bytes arrive.
    Torn(usize),
}

/// What is done about it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum After {
    /// The disk works again, and the store goes on.
    Heal,
    /// The process ends while the disk is broken.
    Kill,
    /// The power fails while the disk is broken; the number chooses what of the unsynced bytes is left.
    PowerCut(u64),
}

/// A fault of the disk during one operation, and what comes of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fault {
    pub call: DiskCall,
    /// None for both.
    pub file: Option<StoreFile>,
    /// Counted from the begin of the operation.
    pub nth: u64,
    pub extent: Extent,
    pub after: After,
}

impl Fault {
    pub fn random(rng: &mut Rng) -> Self {
        let extent = rng.weighted(&[
            (9, Extent::Once),
            (7, Extent::From),
            (1, Extent::Torn(1)),
            (1, Extent::Torn(40)),
            (1, Extent::Torn(600)),
            (1, Extent::Torn(5_000)),
        ]);
        let call = match extent {
            Extent::Torn(_) => DiskCall::Write,
            _ => rng.weighted(&[
                (7, DiskCall::Write),
                (7, DiskCall::Sync),
                (2, DiskCall::SetLen),
                (3, DiskCall::Read),
            ]),
        };
        Self {
            call,
            file: rng.weighted(&[
                (1, None),
                (2, Some(StoreFile::Journal)),
                (2, Some(StoreFile::Database)),
            ]),
            nth: *rng.pick(&[1, 1, 1, 2, 2, 3, 4, 6, 10]),
            extent,
            after: match rng.below(10) {
                0..6 => After::Heal,
                6..8 => After::Kill,
                _ => After::PowerCut(rng.next() >> 40),
            },
        }
    }

    pub fn arm(&self, disk: &SimDisk) {
        let Self { call, nth, .. } = *self;
        match (self.file.map(|file| disk.file(file)), self.extent) {
            (None, Extent::Once) => disk.fail_once(call, nth),
            (None, Extent::From) => disk.fail_from(call, nth),
            (None, Extent::Torn(bytes)) => disk.tear(nth, bytes),
            (Some(file), Extent::Once) => file.fail_once(call, nth),
            (Some(file), Extent::From) => file.fail_from(call, nth),
            (Some(file), Extent::Torn(bytes)) => file.tear(nth, bytes),
        }
    }
}
