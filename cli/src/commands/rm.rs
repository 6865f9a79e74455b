//! `tabla rm`: deletes models from the cache of downloads.

use crate::hub::{self, Removal};
use crate::output::{Failure, terminal};
use clap::Args;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::path::Path;

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
    let names: BTreeSet<&String> = args.names.iter().collect();
    // An unknown name is an error before anything is deleted.
    for name in &names {
        Removal::of(name).map_err(|failure| match Path::new(name.as_str()).exists() {
            true => Failure::Usage(format!(
                "{name} is a path: rm deletes downloaded models only, by the names of `tabla list`"
            )),
            false => failure,
        })?;
    }
    if !args.yes && !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "standard input is not a terminal: use --yes to delete without asking".to_string(),
        ));
    }
    for name in names {
        // An earlier name may have deleted the last other use of a file.
        let removal = Removal::of(name)?;
        let (bytes, shared) = (removal.bytes, removal.shared_bytes);
        let size = terminal::bytes(bytes);
        if args.yes || confirm(&format!("{} ({size})", terminal::one_line(name)))? {
            removal.run()?;
            report(name, bytes, shared)?;
        }
    }
    if args.incomplete && (args.yes || confirm("the files of interrupted downloads")?) {
        let (count, bytes) = hub::remove_incomplete()?;
        let bytes = terminal::bytes(bytes);
        terminal::line(&format!(
            "deleted {}, {bytes} freed",
            terminal::counted(count, "interrupted download")
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
fn confirm(files: &str) -> Result<bool, Failure> {
    terminal::eprint(&format!("Delete {files}? [y/N] "));
    let answer = terminal::answer()?.to_lowercase();
    Ok(matches!(answer.as_str(), "y" | "yes"))
}
