//! The command line.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use lexopt::prelude::*;

/// What `--help` prints.
pub const HELP: &str = "\
agent_host - plays conversations as an agent host would, is killed half-way, goes on, and checks that nothing is lost

usage: cargo run --example agent_host -- [OPTIONS] [FILES…]

  FILES            chat JSONL, a conversation a line or a message a line, or JSON with a `messages` or `history`
                   array, or a JSON array of messages; without any, a bundled sample is played
  --sessions N     sessions that run at the same time (1 or more, default 8); each conversation is played at least once
  --db PATH        keep the store at PATH, in a folder that exists; no file or an empty one may be there
                   (default: in a temporary folder)
  --seed N         moves the compactions, reports, interruptions and the kill (0 or more, default 1)
  --help           this text";

/// A parsed command line.
#[derive(Debug)]
pub struct Args {
    pub files: Vec<PathBuf>,
    pub sessions: NonZeroUsize,
    pub db: Option<PathBuf>,
    pub seed: u64,
    /// Set by the program when it starts itself.
    pub phase: Option<Phase>,
}

/// What a child process is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Play until this many turns are acknowledged, then die without warning.
    Until(usize),
    /// Play to the end.
    ToTheEnd,
}

impl Args {
    /// Parses the command line; `None` when help was asked for.
    pub fn parse(
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<Option<Self>, lexopt::Error> {
        let mut args = Args {
            files: Vec::new(),
            sessions: NonZeroUsize::MIN.saturating_add(7),
            db: None,
            seed: 1,
            phase: None,
        };
        let mut parser = lexopt::Parser::from_args(arguments);
        while let Some(argument) = parser.next()? {
            match argument {
                Long("sessions") => {
                    args.sessions = number(&mut parser, "--sessions", "from 1 up")?;
                }
                Long("db") => args.db = Some(parser.value()?.into()),
                Long("seed") => {
                    let range = format!("from 0 to {}", u64::MAX);
                    args.seed = number(&mut parser, "--seed", &range)?;
                }
                Long("phase") => {
                    args.phase = Some(match parser.value()?.parse()? {
                        0 => Phase::ToTheEnd,
                        turns => Phase::Until(turns),
                    });
                }
                Long("help") | Short('h') => return Ok(None),
                Value(file) => args.files.push(file.into()),
                _ => return Err(argument.unexpected()),
            }
        }
        Ok(Some(args))
    }

    /// The command line for a child that plays a phase of the same run on the store at `db`.
    pub fn for_phase(&self, phase: Phase, db: PathBuf) -> Vec<OsString> {
        let turns = match phase {
            Phase::Until(turns) => turns,
            Phase::ToTheEnd => 0,
        };
        let mut line: Vec<OsString> = vec![
            "--phase".into(),
            turns.to_string().into(),
            "--sessions".into(),
            self.sessions.to_string().into(),
            "--seed".into(),
            self.seed.to_string().into(),
            "--db".into(),
            db.into(),
            "--".into(),
        ];
        line.extend(self.files.iter().map(OsString::from));
        line
    }
}

/// The value of `option`, which takes a whole number in `range`.
fn number<T: FromStr>(
    parser: &mut lexopt::Parser,
    option: &str,
    range: &str,
) -> Result<T, lexopt::Error> {
    let refused = || format!("{option} takes a whole number {range}");
    let parse = |text: &str| text.parse().map_err(|_| refused());
    parser.value()?.parse_with(parse)
}
