//! `tabla pull`: fetches a model into the cache and prints where it is.

use crate::args::OfflineArg;
use crate::hub::{self, Wanted};
use crate::output::Failure;
use crate::output::terminal;
use clap::Args;

#[derive(Args, Debug)]
pub(crate) struct PullArgs {
    /// Model, and which of its files: by name, by quantisation, or what suits most
    #[arg(value_name = "ORG/REPO[:FILE-OR-QUANT]")]
    pub(crate) model: Wanted,
    #[command(flatten)]
    pub(crate) offline: OfflineArg,
}

pub(crate) fn run(args: &PullArgs) -> Result<(), Failure> {
    let path = hub::locate(&args.model, args.offline.reach(), terminal::note)?;
    terminal::line(&path.display().to_string())
}
