//! `tabla man`: writes the man pages, for packages.

use crate::output::Failure;
use clap::{Args, Command};
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Folder for the pages: tabla.1, and a page per command
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

pub(crate) fn run(args: &ManArgs, command: Command) -> Result<(), Failure> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder).map_err(|cause| Failure::file("create", folder, cause))?;
    let written = clap_mangen::generate_to(command, folder);
    written.map_err(|cause| Failure::file("write man pages to", folder, cause))
}
