//! Completions and the man page, from the definitions of the commands.

use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Args;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// `completions`
pub fn completions(shell: Shell, output: &mut Output) -> Result<Outcome, Failure> {
    let mut command = Args::command();
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    print(&text, output)
}

/// `man`
pub fn man(folder: Option<&Path>, output: &mut Output) -> Result<Outcome, Failure> {
    if let Some(folder) = folder {
        return match clap_mangen::generate_to(Args::command(), folder) {
            Ok(()) => Ok(Outcome::Done),
            Err(error) => Err(Failure::Told(format!(
                "cannot write man pages into {}: {error}",
                folder.display()
            ))),
        };
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(Args::command()).render(&mut text)?;
    print(&text, output)
}

fn print(text: &[u8], output: &mut Output) -> Result<Outcome, Failure> {
    std::io::Write::write_all(&mut output.raw()?, text)?;
    Ok(Outcome::Done)
}
