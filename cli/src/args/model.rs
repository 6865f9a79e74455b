//! LoadOptions that name a model: a file, a model of the Hub, or the built-in one.

use super::hub::HubArg;
use crate::hub;
use crate::output::{Failure, terminal};
use clap::Args;
use std::path::PathBuf;
use tabla::Source;

/// Which model, as an option.
#[derive(Args, Debug)]
pub(crate) struct ModelArg {
    /// Model: a GGUF file, or a folder or file of safetensors; without one, the built-in story model
    #[arg(short, long, value_name = "FILE", conflicts_with = "hf_repo")]
    model: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) hub: HubArg,
}

/// Which model, by position or as an option.
#[derive(Args, Debug)]
pub(crate) struct FileArg {
    /// Model: a GGUF file, or a folder or file of safetensors; without one, the built-in story model
    #[arg(value_name = "FILE", conflicts_with_all = ["model", "hf_repo"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArg,
}

impl ModelArg {
    /// The model, fetched if need be; `say` hears of that.
    pub(crate) fn source(&self, say: fn(&str)) -> Result<Source, Failure> {
        let path = match &self.model {
            Some(path) => Some(path.clone()),
            None => self.hub.locate(say)?,
        };
        Ok(path.map_or(Source::BuiltIn, Source::Path))
    }
}

impl FileArg {
    /// The file, fetched if need be.
    pub(crate) fn source(&self) -> Result<Source, Failure> {
        match &self.file {
            Some(path) => Ok(Source::Path(path.clone())),
            None => self.model.source(terminal::note),
        }
    }
}

/// The file's name, for people; of a folder of the Hub's cache the model's.
pub(crate) fn source_name(source: &Source) -> String {
    match source {
        Source::Path(path) => hub::repo_of(path).unwrap_or_else(|| {
            let name = path.file_name().unwrap_or(path.as_os_str());
            name.to_string_lossy().into_owned()
        }),
        Source::BuiltIn => "built-in story model".to_string(),
    }
}
