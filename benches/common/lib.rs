//! What the benchmarks share: records to write, the stores that take them, the clock, and the tables of results.

pub mod command;
pub mod corpus;
pub mod counted;
pub mod files;
pub mod fjall;
pub mod measure;
pub mod ours;
pub mod peer;
pub mod places;
pub mod report;
pub mod sqlite;
pub mod work;

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
