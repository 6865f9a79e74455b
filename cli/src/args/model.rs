//! Options that name a model: a file, a model on the Hub, or the built-in model.

use super::hub::HubArg;
use crate::hub::{self, HubModel};
use crate::output::{Failure, terminal};
use clap::Args;
use std::path::PathBuf;
use tabla::Source;

/// A model, given by options.
#[derive(Args, Debug)]
pub(crate) struct ModelArg {
    /// Model: a GGUF file, a safetensors file, a model folder or a ggml file of whisper.cpp [default: the
    /// built-in story model, except for transcribe]
    #[arg(
        help_heading = "Model",
        short,
        long,
        value_name = "FILE",
        conflicts_with = "hf_repo"
    )]
    model: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) hub: HubArg,
}

/// A model, given by position or by options.
#[derive(Args, Debug)]
pub(crate) struct FileArg {
    /// Model: a GGUF file, a safetensors file or a model folder [default: the built-in story model]
    #[arg(value_name = "FILE", conflicts_with_all = ["model", "hf_repo"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArg,
}

/// A model, given by position or by options: a file or a name on the Hub.
#[derive(Args, Debug)]
pub(crate) struct NameArg {
    /// Model: a GGUF file, a safetensors file, a model folder, or a name on the Hugging Face Hub
    #[arg(value_name = "FILE|ORG/REPO[:QUANT]", conflicts_with_all = ["model", "hf_repo"])]
    name: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArg,
}

impl NameArg {
    /// Whether a model is given.
    pub(crate) fn is_given(&self) -> bool {
        self.name.is_some() || self.model.model.is_some() || self.model.hub.is_given()
    }

    /// Returns the model, downloaded if needed. `report` receives messages about the download.
    pub(crate) fn source(&self, report: fn(&str)) -> Result<Source, Failure> {
        let Some(name) = &self.name else {
            return self.model.source(report);
        };
        Ok(Source::Path(match HubModel::of_argument(name) {
            Some(model) => self.model.hub.locate_named(&model, report)?,
            None if name.exists() || hub::is_model_file(name) => name.clone(),
            // Neither a file nor a valid name: the error lists similar names.
            None => hub::path(&name.to_string_lossy())?,
        }))
    }
}

impl ModelArg {
    /// Returns the model, downloaded if needed. `report` receives messages about the download.
    pub(crate) fn source(&self, report: fn(&str)) -> Result<Source, Failure> {
        let path = match &self.model {
            Some(path) => Some(path.clone()),
            None => self.hub.locate(report)?,
        };
        Ok(path.map_or(Source::BuiltIn, Source::Path))
    }
}

impl FileArg {
    /// Returns the model, downloaded if needed.
    pub(crate) fn source(&self) -> Result<Source, Failure> {
        match &self.file {
            Some(path) => Ok(Source::Path(path.clone())),
            None => self.model.source(terminal::note),
        }
    }
}

/// Returns the display name of a model: the file name, or `ORG/REPO` of a cached Hub model.
pub(crate) fn source_name(source: &Source) -> String {
    match source {
        Source::Path(path) => hub::repo_of(path).unwrap_or_else(|| {
            let name = path.file_name().unwrap_or(path.as_os_str());
            name.to_string_lossy().into_owned()
        }),
        Source::Bytes(_) => "model in memory".to_string(),
        Source::BuiltIn => "built-in story model".to_string(),
    }
}
