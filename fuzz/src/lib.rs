//! What is fuzzed: every surface of the crate that takes bytes from somebody else.
//!
//! A target is a function of bytes that panics where a promise does not hold. libFuzzer drives it through the programs
//! in `fuzz_targets`, and a stable compiler through `tests/stable.rs`, which replays the corpus and varies it.

mod codecs;
mod image;
mod message;
mod stems;

pub use codecs::codecs;
pub use image::image;
pub use message::message;
pub use stems::stems;

/// A target with the name of its corpus folder.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 4] = [
    ("message", message),
    ("stems", stems),
    ("image", image),
    ("codecs", codecs),
];
