//! An embedded, durable transcript store for AI agent hosts.

pub mod background;
mod error;
mod locator;
mod memory;
mod replay;
mod session;
pub mod spend;
mod store;
mod transcript;
mod turn;
pub mod turn_lock;

#[cfg(feature = "testkit")]
pub mod conformance;
