//! `tabla completions`: the completions of a shell.

use crate::output::{Failure, terminal};
use clap::{Args, Command};
use clap_complete::Shell;

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "tabla", &mut script);
    terminal::write(&String::from_utf8_lossy(&script))
}
