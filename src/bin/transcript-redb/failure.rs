//! How a command ends: its exit status, and what standard error says.

use std::io::{self, Write as _};
use std::process::ExitCode;

use transcript_redb::Error;

use crate::text::safe;

/// How a command ended that came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All was done.
    Done,
    /// Some was refused, and has been told.
    Refused,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::SUCCESS,
            Outcome::Refused => Self::from(1),
        }
    }
}

/// Why a command came to no end.
#[derive(Debug)]
pub enum Failure {
    /// The library refused.
    Store(Error),
    /// It was called wrongly.
    Usage(clap::Error),
    /// For a reason that says what to do.
    Told(String),
    /// The output cannot be written.
    Output(io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl Failure {
    /// Tells on standard error, and gives the exit status.
    pub fn tell(self) -> ExitCode {
        match self {
            Self::Usage(error) => error.exit(),
            // Whoever read the output has seen enough.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return ExitCode::SUCCESS;
            }
            Self::Output(error) => complain(&format!("cannot write the output: {error}")),
            Self::Told(what) => complain(&what),
            Self::Store(error) => complain(&explain(&error)),
        }
        ExitCode::from(1)
    }
}

/// One line on standard error. If that is closed, there is nobody to tell.
pub fn complain(what: &str) {
    let _ = writeln!(io::stderr(), "transcript-redb: {}", safe(what).trim_end());
}

/// What the library refused, in the words of somebody at a terminal.
pub fn explain(error: &Error) -> String {
    match error {
        Error::AlreadyOpen { path, holder } => {
            let holder = match holder {
                Some(pid) => format!("a running process (pid {pid})"),
                None => "another process".to_owned(),
            };
            format!(
                "the store {} is in use by {holder}; repeat the command when that has closed it",
                path.display()
            )
        }
        // Nothing of it is damaged: it is another file.
        Error::Corrupted { what, at } if what.ends_with(NOT_A_STORE) => {
            format!("{what} ({at}); name the store with --db")
        }
        error => error.to_string(),
    }
}

/// What the library says of files that never were a store.
const NOT_A_STORE: &str = "the file is not a transcript store";
