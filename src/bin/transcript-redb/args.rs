//! What can be said on the command line. Completions and the man page come from here too.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args as Group, CommandFactory as _, Parser, Subcommand, ValueEnum};
use transcript_redb::interchange;
use transcript_redb::uuid::Uuid;
use transcript_redb::{Error, Store};

use crate::failure::Failure;

/// Keeps, shows and converts the transcripts of AI agents.
///
/// A store is one file, named with --db or the variable `TRANSCRIPT_REDB`. Exit status: 0 done, 1 refused or damaged, 2
/// wrong usage.
#[derive(Debug, Parser)]
#[command(name = "transcript-redb", version, max_term_width = 100)]
pub struct Args {
    /// The store's file
    #[arg(
        long,
        value_name = "FILE",
        env = "TRANSCRIPT_REDB",
        hide_env_values = true,
        global = true
    )]
    pub db: Option<PathBuf>,
    /// Show times in UTC instead of local time
    #[arg(long, global = true)]
    pub utc: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Read files and folders of other programs into the store, which is created if there is none
    Import(Import),
    /// Write sessions in a format of other programs, or the files that they were imported from
    Export(Export),
    /// List sessions, the one written last first (of files without times, the one imported last)
    Sessions(Sessions),
    /// List threads with all that is in them, sub-agents included, the one written last first
    Threads(Json),
    /// Show a session as a conversation
    Show(Show),
    /// Show one record
    Record(Record),
    /// Sum tokens and cost
    Spend(Spend),
    /// Show sizes and counts
    Stats(Json),
    /// Pack the store more tightly and give the space back
    Compact(Json),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write those of all commands into a folder
    Man {
        /// The folder, which must exist
        folder: Option<PathBuf>,
    },
}

/// Only the choice between people and programs.
#[derive(Debug, Group)]
pub struct Json {
    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,
}

/// `import`
#[derive(Debug, Group)]
#[command(override_usage = "transcript-redb import [OPTIONS] <PATH>...")]
pub struct Import {
    /// The format; auto finds it out for each file
    #[arg(long, value_name = "FORMAT", default_value = "auto", value_parser = PossibleValuesParser::new(readable()))]
    pub from: String,
    /// Go on in sessions: make the transcripts of before there were any, of classic files, the beginning of a session for
    /// each thread and agent that has none
    #[arg(long)]
    pub adopt: bool,
    /// Read files anew whose sessions were imported by an earlier version of this program: what it makes of them now becomes
    /// the next generation of each session. Nothing is erased, and nothing is counted twice
    #[arg(long)]
    pub again: bool,
    #[command(flatten)]
    pub output: Json,
    /// Files, and folders in which the files of known formats are read
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// `export`
#[derive(Debug, Group)]
#[command(override_usage = "transcript-redb export [OPTIONS] <SESSION...|--thread <ID>|--all>")]
#[command(group(clap::ArgGroup::new("what").required(true).args(["sessions", "thread", "all"])))]
pub struct Export {
    /// Stems, session keys or unambiguous prefixes of one; their sub-agents come along
    #[arg(value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// All sessions of a thread
    #[arg(long, value_name = "ID")]
    pub thread: Option<String>,
    /// All sessions
    #[arg(long)]
    pub all: bool,
    /// The format
    ///
    /// What a format has no place for (UUIDs, idempotency keys, metadata of compactions, calls apart from rows) only native
    /// keeps; imported again from another format, messages may be counted otherwise.
    #[arg(long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(writable()), default_value = "native")]
    pub to: String,
    /// Write the files that the sessions were imported from, byte for byte, under their own names into one folder; with --all
    /// also those that made no session
    #[arg(long, conflicts_with = "to")]
    pub original: bool,
    /// A new file, or a folder; standard output without it
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
}

/// `sessions`
#[derive(Debug, Group)]
pub struct Sessions {
    /// Only this thread
    #[arg(long, value_name = "ID")]
    pub thread: Option<String>,
    /// Sub-agents too
    #[arg(long)]
    pub children: bool,
    /// At most this many
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    #[command(flatten)]
    pub output: Json,
}

/// `show`
#[derive(Debug, Group)]
#[command(override_usage = "transcript-redb show [OPTIONS] <SESSION>")]
pub struct Show {
    /// A stem, a session key or an unambiguous prefix of one
    pub session: String,
    /// All that was ever stored, or what the model would be sent
    #[arg(long, value_enum, default_value = "display")]
    pub view: View,
    /// Only the last messages
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// With the UUID of each record, which `record` shows
    #[arg(long)]
    pub uuids: bool,
    /// Long tool calls and results whole
    #[arg(long)]
    pub full: bool,
    #[command(flatten)]
    pub output: Json,
}

/// What of a session to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum View {
    /// What the model would be sent
    Model,
    /// All that was ever stored
    Display,
}

/// `record`
#[derive(Debug, Group)]
#[command(override_usage = "transcript-redb record [OPTIONS] <UUID>")]
pub struct Record {
    /// The record
    pub uuid: Uuid,
    #[command(flatten)]
    pub output: Json,
}

/// `spend`
#[derive(Debug, Group)]
pub struct Spend {
    /// Only this thread, its sub-agents included
    #[arg(long, value_name = "ID")]
    pub thread: Option<String>,
    /// One line for each; of several, such as `thread,model`, one line for each combination
    #[arg(long, value_enum, value_delimiter = ',')]
    pub by: Vec<By>,
    /// Only from this hour on: a date, a time, or how long ago, such as 7d
    #[arg(long, value_name = "T")]
    pub since: Option<String>,
    /// Only before the end of this hour
    #[arg(long, value_name = "T")]
    pub until: Option<String>,
    #[command(flatten)]
    pub output: Json,
}

/// By what spend is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// The thread, its sub-agents included
    Thread,
    /// The session, without its sub-agents
    Session,
    /// The agent's name
    Agent,
    /// The model
    Model,
    /// The provider
    Provider,
    /// Where the cost comes from
    Source,
    /// The day
    Day,
    /// The hour
    Hour,
}

fn writable() -> Vec<PossibleValue> {
    let names = interchange::writable().into_iter();
    names
        .map(|name| {
            let value = PossibleValue::new(name);
            match name {
                "native" => {
                    value.help("One file that holds everything; its import is the same again")
                }
                "classic" => {
                    value.help("A file for each generation of a session, with tokens and cost")
                }
                "record-log" => value.help("A file for each session, with tokens and without cost"),
                "checkpoint" => value.help("A document for each session, with tokens and cost"),
                "chat" => value.help("What the model would be sent, and nothing else"),
                "markdown" => value.help("Everything that was ever stored, for people"),
                _ => value,
            }
        })
        .collect()
}

fn readable() -> Vec<&'static str> {
    let names = interchange::codecs().iter().map(|codec| codec.name());
    std::iter::once("auto").chain(names).collect()
}

/// The store that was named, if one was.
#[derive(Debug)]
pub struct Database(pub Option<PathBuf>);

impl Database {
    fn path(&self) -> Result<&PathBuf, Failure> {
        let named = self.0.as_ref().filter(|path| !path.as_os_str().is_empty());
        named.ok_or_else(|| usage("name the store with --db FILE or the variable TRANSCRIPT_REDB"))
    }

    /// Opens the store for reading. One that was not closed cleanly is recovered first.
    pub fn read(&self) -> Result<Store, Failure> {
        let path = self.path()?;
        if !path.exists() {
            return Err(Failure::Told(format!(
                "there is no store at {}; import something into it, or name another with --db",
                path.display()
            )));
        }
        match Store::builder().read_only(true).open(path) {
            Err(Error::NeedsRecovery { .. }) => Ok(Store::open(path)?),
            Err(Error::ReadOnly { .. }) => Err(Failure::Told(format!(
                "{} is empty and not a store yet; import something into it",
                path.display()
            ))),
            opened => Ok(opened?),
        }
    }

    /// Opens a store that exists for writing.
    pub fn change(&self) -> Result<Store, Failure> {
        let path = self.path()?;
        if !path.exists() {
            return self.read();
        }
        Ok(Store::open(path)?)
    }

    /// Opens the store for writing, and makes it if there is none.
    pub fn create(&self) -> Result<Store, Failure> {
        Ok(Store::open(self.path()?)?)
    }

    /// Whether a store was named at all.
    pub fn check(&self) -> Result<(), Failure> {
        self.path().map(|_| ())
    }
}

/// What is wrong with how the command was called.
pub fn usage(what: impl std::fmt::Display) -> Failure {
    let error = Args::command().error(clap::error::ErrorKind::ValueValidation, what);
    Failure::Usage(error)
}
