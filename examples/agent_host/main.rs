//! A small agent host over the transcript store.
//!
//! It reads conversations, plays them in concurrent sessions through the traits alone, as an agent host would: lock
//! the session's turn, read where it stands, run the turn, store it. Now and then a context is compacted, a session
//! goes on in a new generation, a sub-agent works, a report comes in from the side, a user interrupts.
//!
//! Half-way the host is killed without warning. Started again, it finds from the store how far every session got, and
//! finishes. Then it proves, against what was acknowledged before the kill and against recounts of its own, that
//! nothing is missing and nothing is there twice.
//!
//! ```text
//! cargo run --release --example agent_host
//! cargo run --release --example agent_host -- --sessions 32 --db /var/tmp/agents.redb my-chats.jsonl
//! ```
//!
//! The parts: `reader` and `message` make rows of files, `plan` says what each session does, `play` is the host,
//! `player` runs it as a child process that reports through `ledger`, `evidence` reads the store back, `proof` checks
//! it, and `summary` prints.

mod args;
mod evidence;
mod host;
mod ledger;
mod message;
mod plan;
mod play;
mod player;
mod price;
mod proof;
mod reader;
mod summary;
mod wait;

use std::process::ExitCode;

use args::Args;

/// Any error, as text for a person.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args_os().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            println!("{}", args::HELP);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("agent_host: {error}\n\n{}", args::HELP);
            return ExitCode::from(2);
        }
    };
    match host::run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("agent_host: {error}");
            ExitCode::FAILURE
        }
    }
}
