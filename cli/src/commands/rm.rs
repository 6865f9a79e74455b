//! `tabla rm`: deletes models from the cache of downloads.

use crate::hub::{self, Removal};
use crate::output::{Failure, terminal};
use clap::Args;
use std::io::{self, IsTerminal};

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct RmArgs {
    /// Downloaded models, by the names of `tabla list`; ORG/REPO deletes all files of the repository
    #[arg(
        value_name = "ORG/REPO[:QUANT]",
        required_unless_present = "incomplete"
    )]
    names: Vec<String>,
    /// Delete without asking
    #[arg(short, long)]
    yes: bool,
    /// Delete the files of interrupted downloads
    #[arg(long)]
    incomplete: bool,
}

pub(crate) fn run(args: &RmArgs) -> Result<(), Failure> {
    // An unknown name is an error before anything is deleted.
    for name in &args.names {
        Removal::of(name)?;
    }
    if !args.names.is_empty() && !args.yes && !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "standard input is not a terminal: use --yes to delete without asking".to_string(),
        ));
    }
    for name in &args.names {
        // An earlier name may have deleted the last other use of a file.
        let removal = Removal::of(name)?;
        let (bytes, shared) = (removal.bytes, removal.shared_bytes);
        if args.yes || confirm(&removal)? {
            removal.run()?;
            report(name, bytes, shared)?;
        }
    }
    if args.incomplete {
        let (count, bytes) = hub::remove_incomplete()?;
        let bytes = terminal::bytes(bytes);
        terminal::line(&format!(
            "deleted {count} interrupted downloads, {bytes} freed"
        ))?;
    }
    Ok(())
}

fn report(name: &str, bytes: u64, shared: u64) -> Result<(), Failure> {
    let name = terminal::one_line(name);
    let bytes = terminal::bytes(bytes);
    terminal::line(&format!("deleted {name}, {bytes} freed"))?;
    if shared > 0 {
        let shared = terminal::bytes(shared);
        terminal::note(&format!(
            "{shared} of it stay: another snapshot or model uses the files"
        ));
    }
    Ok(())
}

/// Asks before a removal. The end of the input is a no.
fn confirm(removal: &Removal) -> Result<bool, Failure> {
    terminal::eprint(&format!(
        "Delete {} ({})? [y/N] ",
        terminal::one_line(&removal.name),
        terminal::bytes(removal.bytes)
    ));
    let answer = terminal::answer()?.to_lowercase();
    Ok(matches!(answer.as_str(), "y" | "yes"))
}
