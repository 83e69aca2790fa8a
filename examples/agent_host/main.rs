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

use std::io::{self, Write};
use std::process::ExitCode;

use args::Args;

/// Any error, as text for a person.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args_os().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            return end_of(writeln!(io::stdout(), "{}", args::HELP).map(|()| true));
        }
        Err(error) => {
            eprintln!("agent_host: {error}\n\n{}", args::HELP);
            return ExitCode::from(2);
        }
    };
    end_of(host::run(&args))
}

/// The exit code of a run, after saying why it failed.
fn end_of(run: std::result::Result<bool, impl Into<Error>>) -> ExitCode {
    match run.map_err(Into::into) {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => {}
        // Whoever read the output has had enough of it, as `head` does: there is no one to tell.
        Err(error) if is_closed_pipe(&error) => {}
        Err(error) => eprintln!("agent_host: {error}"),
    }
    ExitCode::FAILURE
}

fn is_closed_pipe(error: &Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
