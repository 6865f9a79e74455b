//! Options that name a model on the Hugging Face Hub.

use crate::hub::{self, Access, HubModel};
use crate::output::Failure;
use clap::Args;
use std::path::PathBuf;

/// A model on the Hugging Face Hub.
#[derive(Args, Debug)]
pub(crate) struct HubArg {
    /// Model on the Hugging Face Hub, downloaded on first use [short: -hf]
    #[arg(help_heading = "Model", long, value_name = "ORG/REPO[:QUANT]")]
    hf_repo: Option<HubModel>,
    /// Use cached models only, without network access
    #[arg(help_heading = "Model", long)]
    offline: bool,
}

impl HubArg {
    /// Whether the option is given.
    pub(crate) fn is_given(&self) -> bool {
        self.hf_repo.is_some()
    }

    /// Returns the local path of a model whose name is given by position.
    pub(crate) fn locate_named(
        &self,
        model: &HubModel,
        report: fn(&str),
    ) -> Result<PathBuf, Failure> {
        hub::locate(model, Access::new(self.offline), report)
    }

    /// Returns the local path of the model, downloaded if needed, or `None` if the option is absent.
    pub(crate) fn locate(&self, report: fn(&str)) -> Result<Option<PathBuf>, Failure> {
        let model = self.hf_repo.as_ref();
        let path = model.map(|model| hub::locate(model, Access::new(self.offline), report));
        path.transpose()
    }
}
