//! Checkpoints of Hugging Face and MLX: safetensors, and what stands beside them in the folder.
//!
//! Everything is turned into what a GGUF file would have: keys ([`keys`]), names ([`names`])
//! and weights ([`weights`]), so that whatever comes after loading's first stages knows one form.

mod config;
mod embedding;
mod keys;
mod layers;
mod names;
mod quantization;
mod rope;
#[cfg(test)]
pub(super) mod tests;
mod weights;
mod write;

use super::weight::Weight;
use crate::arch::{self, Arch, HEAD};
use crate::error::{Context, Result, bail};
use crate::format::write::Writer;
use crate::format::{self, Directory, Metadata};
use config::Config;
pub(crate) use names::to_hf;
pub(super) use names::to_hf_among;
use quantization::Quantization;
use std::path::{Path, PathBuf};
use weights::Special;
pub(super) use write::{Shape, check_written, config};

const CONFIG: &str = "config.json";
const GENERATION: &str = "generation_config.json";

/// Bytes of a configuration; the lists of quantized layers of large models make a megabyte.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// What stands beside the tensors of a model.
#[derive(Debug)]
pub(super) struct Folder {
    folder: PathBuf,
    config: Config,
    generation: Option<Config>,
}

impl Folder {
    /// Reads the configuration beside these files.
    ///
    /// # Errors
    ///
    /// `Io` where there is no `config.json`, `Format` for one that is damaged.
    pub(super) fn of(file: &Directory) -> Result<Self> {
        let first = file.paths().next().and_then(Path::parent);
        let folder = first.unwrap_or(Path::new("")).to_path_buf();
        let Some(config) = read(&folder.join(CONFIG))? else {
            bail!(
                Io,
                "{}: no such file; safetensors are weights only and need it beside them",
                folder.join(CONFIG).display()
            );
        };
        Ok(Self {
            generation: read(&folder.join(GENERATION))?,
            folder,
            config,
        })
    }

    /// The keys that a GGUF file of this model would have, but for the tokenizer's.
    ///
    /// # Errors
    ///
    /// `Format` for a value of the wrong type, `Unsupported` for one that is not known.
    pub(super) fn metadata(&self) -> Result<Metadata> {
        let mut w = Writer::new();
        let written = self.config.write(&self.name(), &mut w);
        written.context(self.path(CONFIG).display())?;
        if let Some(arch) = arch::of_model_type(self.config.model_type()?) {
            self.write_embedding(arch, &mut w)?;
        }
        Ok(format::open_bytes("the configuration", w.finish()?)?.metadata)
    }

    /// The weights of a model, by their names in GGUF files.
    ///
    /// # Errors
    ///
    /// `Format` for tensors that do not fit each other or the configuration, `Unsupported` for one
    /// that is not known.
    pub(super) fn weights(&self, file: &Directory, arch: &Arch) -> Result<Vec<Weight>> {
        let quantization = Quantization::read(&self.config);
        let quantization = quantization.context(self.path(CONFIG).display())?;
        let said = ["quantization_config", "quantization"].map(|name| self.config.find(name));
        if arch.ternary && said == [None; 2] {
            bail!(
                Unsupported,
                "{}: no quantization_config: weights that are made ternary while the model runs",
                self.path(CONFIG).display()
            );
        }
        let offset = self.config.position_offset();
        let special = Special {
            // Some files repeat the embedding as the head.
            without: (self.tied()? == Some(true)).then_some(HEAD),
            position_offset: offset.context(self.path(CONFIG).display())?,
        };
        weights::collect(file, arch, &quantization, &special)
    }

    /// Whether the head is the embedding; `None` where the tensors decide.
    pub(super) fn tied(&self) -> Result<Option<bool>> {
        self.config.tied().context(self.path(CONFIG).display())
    }

    /// The tokens that end a text, of both configurations.
    pub(super) fn ends(&self) -> Result<Vec<u32>> {
        let mut ends = self.config.ends().context(self.path(CONFIG).display())?;
        if let Some(generation) = &self.generation {
            let more = generation.ends();
            ends.extend(more.context(self.path(GENERATION).display())?);
        }
        Ok(ends)
    }

    /// The path of a file beside the tensors.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The text of a file beside the tensors; `None` where there is no such file.
    pub(super) fn text(&self, name: &str, bytes_max: u64) -> Result<Option<String>> {
        format::read_text(&self.path(name), bytes_max)
    }

    /// The folder's own name; in the cache of the Hub, whose folders are
    /// `models--ORG--REPO/snapshots/COMMIT`, that of the repository.
    fn name(&self) -> String {
        let folder = self.folder.canonicalize();
        let folder = folder.unwrap_or_else(|_| self.folder.clone());
        let name = |path: &Path| path.file_name()?.to_str().map(str::to_string);
        let cached = folder.ancestors().nth(2).and_then(name);
        let cached =
            cached.and_then(|name| Some(name.strip_prefix("models--")?.replace("--", "/")));
        cached.or_else(|| name(&folder)).unwrap_or_default()
    }
}

fn read(path: &Path) -> Result<Option<Config>> {
    let Some(text) = format::read_text(path, CONFIG_BYTES_MAX)? else {
        return Ok(None);
    };
    Config::parse(&text).map(Some).context(path.display())
}
