//! `tabla pull`: downloads a model into the cache and prints its path.

use crate::hub::{self, Access, HubModel};
use crate::output::Failure;
use crate::output::terminal;
use clap::Args;

#[derive(Args, Debug)]
pub(crate) struct PullArgs {
    /// Model on the Hugging Face Hub, with a file name or a quantization
    #[arg(value_name = "ORG/REPO[:FILE-OR-QUANT]")]
    pub(crate) model: HubModel,
    /// Use cached models only, without network access
    #[arg(long)]
    pub(crate) offline: bool,
}

pub(crate) fn run(args: &PullArgs) -> Result<(), Failure> {
    let path = hub::locate(&args.model, Access::new(args.offline), terminal::note)?;
    terminal::line(&path.display().to_string())
}
