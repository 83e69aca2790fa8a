//! The command line that all benchmarks share.

use std::path::PathBuf;
use std::time::Duration;

use lexopt::ValueExt as _;

use crate::Result;

/// What was asked for.
pub struct Command {
    /// Only whether it works.
    pub quick: bool,
    /// JSON instead of tables.
    pub json: bool,
    /// Where to write.
    pub folder: PathBuf,
    /// How long one measurement goes on, if not as long as usual.
    pub seconds: Option<f64>,
    /// How often each is repeated, if not as often as usual.
    pub rounds: Option<usize>,
    /// Turns a second of all writers together, if not as many as they can.
    pub rate: Option<f64>,
    /// Only sections whose name contains this.
    pub only: Option<String>,
    /// Only stores whose name contains this.
    pub store: Option<String>,
    /// For the benchmark itself, when it starts itself again: a role and its arguments.
    pub child: Option<Vec<String>>,
}

const OPTIONS: &str = "
  --quick        little work, one round: whether it works, not how fast it is
  --json         the report as JSON (times in microseconds, sizes in bytes)
  --dir PATH     write there (default: cargo's target folder)
  --seconds N    how long a measurement goes on
  --rounds N     how often it is repeated; medians of the rounds are printed
  --only NAME    only sections whose name contains this
  --store NAME   only stores whose name contains this, for a profile";

impl Command {
    /// Reads the command line; None if it asked for help, which is printed.
    pub fn read(about: &str) -> Result<Option<Self>> {
        let mut command = Self {
            quick: false,
            json: false,
            folder: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target"),
            seconds: None,
            rounds: None,
            rate: None,
            only: None,
            store: None,
            child: None,
        };
        if let Some(target) = option_env!("CARGO_TARGET_DIR").map(PathBuf::from) {
            command.folder = target;
        }
        let mut arguments = lexopt::Parser::from_env();
        while let Some(argument) = arguments.next()? {
            match argument {
                lexopt::Arg::Long("quick") => command.quick = true,
                lexopt::Arg::Long("json") => command.json = true,
                lexopt::Arg::Long("dir") => command.folder = arguments.value()?.into(),
                lexopt::Arg::Long("seconds") => command.seconds = Some(arguments.value()?.parse()?),
                lexopt::Arg::Long("rounds") => command.rounds = Some(arguments.value()?.parse()?),
                lexopt::Arg::Long("rate") => command.rate = Some(arguments.value()?.parse()?),
                lexopt::Arg::Long("only") => command.only = Some(arguments.value()?.string()?),
                lexopt::Arg::Long("store") => command.store = Some(arguments.value()?.string()?),
                lexopt::Arg::Long("child") => {
                    let rest = arguments.raw_args()?.map(lexopt::ValueExt::string);
                    command.child = Some(rest.collect::<std::result::Result<_, _>>()?);
                }
                // Cargo says so of its own accord.
                lexopt::Arg::Long("bench") => {}
                lexopt::Arg::Long("help") => {
                    println!("{about}\n{OPTIONS}");
                    return Ok(None);
                }
                other => return Err(other.unexpected().into()),
            }
        }
        std::fs::create_dir_all(&command.folder)?;
        Ok(Some(command))
    }

    /// Whether to run the section with this name.
    pub fn wants(&self, section: &str) -> bool {
        let only = self.only.as_deref();
        only.is_none_or(|only| section.contains(only))
    }

    /// Whether to measure the store with this name.
    pub fn wants_store(&self, name: &str) -> bool {
        let store = self.store.as_deref();
        store.is_none_or(|store| name.contains(store))
    }

    /// One of two values.
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// How long one measurement goes on, in seconds unless said otherwise.
    pub fn time(&self, full: f64, quick: f64) -> Duration {
        Duration::from_secs_f64(self.seconds.unwrap_or(self.pick(full, quick)))
    }

    /// How often each is repeated unless said otherwise.
    pub fn rounds(&self, full: usize) -> usize {
        self.rounds.unwrap_or(self.pick(full, 1)).max(1)
    }
}
