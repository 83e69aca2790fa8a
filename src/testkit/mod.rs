//! What tests put under a store: a disk that fails on demand, and a clock that stands still.
//!
//! Hosts use them to see how they behave when the disk is full or broken; this crate uses them to prove what
//! [`Error::Io`](crate::Error::Io) and [`Error::Indeterminate`](crate::Error::Indeterminate) promise. The contract
//! itself as checks is [`conformance`](crate::conformance).

mod calls;
mod clock;
mod disk;
mod image;
mod power;

pub use calls::DiskCall;
pub use clock::TestClock;
pub use disk::{Held, SimDisk, SimFile};
pub use image::DiskImage;
