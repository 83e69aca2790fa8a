//! The command line of a transcript store: a face of the library, in which all work is done.

mod adopt;
mod args;
mod export;
mod failure;
mod generate;
mod import;
mod lists;
mod output;
mod record;
mod select;
mod show;
mod spend;
mod stats;
mod table;
mod text;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Command};
use failure::{Failure, Outcome};
use output::Output;

fn main() -> ExitCode {
    hush();
    let args = Args::parse();
    match run(args) {
        Ok(outcome) => outcome.into(),
        Err(failure) => failure.tell(),
    }
}

/// Keeps quiet about panics of the database: the library makes errors of them, and these are told.
fn hush() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let database = panic.location().map(|at| at.file().contains("redb-"));
        if database != Some(true) {
            tell(panic);
        }
    }));
}

fn run(args: Args) -> Result<Outcome, Failure> {
    let mut output = Output::new(args.utc);
    let database = args::Database(args.db);
    let outcome = match args.command {
        Command::Import(args) => import::run(&database, &args, &mut output),
        Command::Export(args) => export::run(&database, &args, &mut output),
        Command::Sessions(args) => lists::sessions(&database, &args, &mut output),
        Command::Threads(args) => lists::threads(&database, &args, &mut output),
        Command::Show(args) => show::run(&database, &args, &mut output),
        Command::Record(args) => record::run(&database, &args, &mut output),
        Command::Spend(args) => spend::run(&database, &args, &mut output),
        Command::Stats(args) => stats::stats(&database, &args, &mut output),
        Command::Compact(args) => stats::compact(&database, &args, &mut output),
        Command::Completions { shell } => generate::completions(shell, &mut output),
        Command::Man { folder } => generate::man(folder.as_deref(), &mut output),
    }?;
    output.finish()?;
    Ok(outcome)
}
