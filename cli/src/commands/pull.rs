//! `tabla pull`: downloads a model into the cache and prints its path.

use crate::args::OfflineArg;
use crate::hub::{self, HubModel};
use crate::output::Failure;
use crate::output::terminal;
use clap::Args;

#[derive(Args, Debug)]
pub(crate) struct PullArgs {
    /// Model on the Hugging Face Hub, with a file name or a quantization
    #[arg(value_name = "ORG/REPO[:FILE-OR-QUANT]")]
    pub(crate) model: HubModel,
    #[command(flatten)]
    pub(crate) offline: OfflineArg,
}

pub(crate) fn run(args: &PullArgs) -> Result<(), Failure> {
    let path = hub::locate(&args.model, args.offline.access(), terminal::note)?;
    terminal::line(&path.display().to_string())
}
