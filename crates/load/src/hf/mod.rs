//! Hugging Face and MLX checkpoints: safetensors, and the other files of the folder.
//!
//! Everything is mapped to GGUF: keys (`keys.rs`), names (`names.rs`) and weights (`weights.rs`), so
//! that later loading stages handle a single representation.

mod bitsandbytes;
mod classifier;
mod config;
mod embedding;
mod experts;
mod gptq;
mod group_codes;
mod keys;
mod latent;
mod layers;
mod masters;
mod mixers;
mod module;
mod multipliers;
mod names;
mod packed;
mod quantization;
mod rope;
mod speech;
mod speech_files;
#[cfg(test)]
pub(super) mod tests;
mod weights;
mod write;

use super::recurrent;
use super::weight::Weight;
use crate::arch::{self, Arch, HEAD};
use crate::error::{Context, Result, bail};
use crate::format::write::Writer;
use crate::format::{self, Directory, Metadata};
use config::HfConfig;
pub(super) use embedding::{RANK, transformer_folder};
pub use names::to_hf;
pub(super) use names::{to_gguf, to_hf_among};
use quantization::{Quantization, TernaryForm};
pub use speech::{GENERATION_KEYS, SpeechFacts, speech_config};
pub use speech_files::{generation_config, preprocessor_config, speech_tokenizer_config};
use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use weights::Adjustments;
pub use write::{TensorFacts, check_exportable, config};

/// File with the hyperparameters.
pub const CONFIG: &str = "config.json";
/// File with the defaults of generations.
pub const GENERATION: &str = "generation_config.json";

/// Maximum size in bytes of a configuration file. Large models list their quantized layers, about
/// 1 MB.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// Maximum number of files in a folder inside that of a model, such as that of chat templates.
const INNER_FILES_MAX: usize = 256;

/// Folder of a safetensors model.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The folder with the files of sentence-transformers, which may have the model in a folder of its own.
    root: PathBuf,
    config: HfConfig,
    generation: Option<HfConfig>,
}

impl Folder {
    /// Reads the configuration in the folder of a safetensors file.
    ///
    /// # Errors
    ///
    /// `Io` if there is no `config.json`, `Format` if it is invalid.
    pub fn of(file: &Directory) -> Result<Self> {
        let first = file.paths().next().and_then(Path::parent);
        Self::within(first.unwrap_or(Path::new("")), file)
    }

    /// As [`of`](Self::of), for a model of the sentence-transformers folder `root`.
    pub(super) fn within(root: &Path, file: &Directory) -> Result<Self> {
        let first = file.paths().next().and_then(Path::parent);
        let path = first.unwrap_or(Path::new("")).to_path_buf();
        let Some(mut config) = read(&path.join(CONFIG))? else {
            bail!(
                Io,
                "{}: no such file; safetensors models require a config.json in the same folder",
                path.join(CONFIG).display()
            );
        };
        config.is_converted = recurrent::is_converted(file);
        let has_predictor = has_predictor(&config, file);
        let has_predictor = has_predictor.context(path.join(CONFIG).display())?;
        config.predictors = u32::from(has_predictor);
        Ok(Self {
            generation: read(&path.join(GENERATION))?,
            root: root.to_path_buf(),
            path,
            config,
        })
    }

    /// Returns the GGUF keys of this model, except those of the tokenizer.
    ///
    /// # Errors
    ///
    /// `Format` for a value of the wrong type, `Unsupported` for an unsupported value.
    pub fn metadata(&self) -> Result<Metadata> {
        let mut w = Writer::new();
        let written = self.config.write(&self.name(), &mut w);
        written.context(self.path(CONFIG).display())?;
        if let Some(arch) = self.config.arch()? {
            self.write_embedding(arch, &mut w)?;
            self.write_classifier(arch, &mut w)?;
        }
        Ok(format::open_bytes("the configuration", w.finish()?)?.metadata)
    }

    /// Returns the weights of the model, with GGUF names.
    ///
    /// # Errors
    ///
    /// `Format` for tensors that contradict each other or the configuration, `Unsupported` for an
    /// unexpected tensor.
    pub fn weights(&self, file: &Directory, arch: &Arch) -> Result<Vec<Weight>> {
        let quantization = Quantization::read(&self.config);
        let mut quantization = quantization.context(self.path(CONFIG).display())?;
        let configured = ["quantization_config", "quantization"].map(|name| self.config.find(name));
        if arch.ternary && configured == [None; 2] {
            quantization.ternary = TernaryForm::Masters;
        }
        let offset = self.config.position_offset();
        let adjustments = Adjustments {
            // Some files contain a copy of a tied output projection.
            skipped_module: (self.tied()? == Some(true)).then_some(HEAD),
            position_offset: offset.context(self.path(CONFIG).display())?,
            predicts_after: self.config.predicts_after(arch)?,
        };
        weights::collect(file, arch, &quantization, &adjustments)
    }

    /// Returns whether the output projection is tied to the embedding; `None` if not configured.
    pub(super) fn tied(&self) -> Result<Option<bool>> {
        self.config.tied().context(self.path(CONFIG).display())
    }

    /// Returns the `eos_token_id` values of `config.json` and `generation_config.json`.
    pub fn eos_tokens(&self) -> Result<Vec<u32>> {
        let ids = self.config.eos_tokens();
        let mut ids = ids.context(self.path(CONFIG).display())?;
        if let Some(generation) = &self.generation {
            let more = generation.eos_tokens();
            ids.extend(more.context(self.path(GENERATION).display())?);
        }
        Ok(ids)
    }

    /// Returns the `alignment_heads` of `generation_config.json`: layers and heads.
    pub(super) fn alignment_heads(&self) -> Result<Option<Vec<(u32, u32)>>> {
        let Some(generation) = &self.generation else {
            return Ok(None);
        };
        let number = |value: &serde_json::Value| u32::try_from(value.as_u64()?).ok();
        let pair =
            |value: &serde_json::Value| Some((number(value.get(0)?)?, number(value.get(1)?)?));
        let heads = generation.typed("alignment_heads", "a list of layers and heads", |value| {
            value.as_array()?.iter().map(pair).collect()
        });
        heads.context(self.path(GENERATION).display())
    }

    /// Returns the path of a file in the folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads a text file of the folder; `None` if there is no such file.
    pub fn text(&self, name: &str, bytes_max: u64) -> Result<Option<String>> {
        format::read_text(&self.path(name), bytes_max)
    }

    /// Returns the names of the files in a folder inside, sorted; empty if there is no such folder.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be read, `Format` if it has over [`INNER_FILES_MAX`] files.
    pub(super) fn files(&self, inner: &str) -> Result<Vec<String>> {
        let path = self.path(inner);
        if !path.is_dir() {
            return Ok(Vec::new());
        }
        let entries = path.read_dir().and_then(Iterator::collect);
        let entries: Vec<DirEntry> = match entries {
            Ok(entries) => entries,
            Err(e) => bail!(Io, "{}: reading the directory failed: {e}", path.display()),
        };
        if entries.len() > INNER_FILES_MAX {
            bail!(
                Format,
                "{}: {} files are over the limit of {INNER_FILES_MAX}",
                path.display(),
                entries.len()
            );
        }
        let names = entries
            .iter()
            .filter_map(|e| e.file_name().into_string().ok());
        let mut names: Vec<_> = names.collect();
        names.sort();
        Ok(names)
    }

    /// Returns the folder name. In the Hugging Face cache, whose folders are
    /// `models--ORG--REPO/snapshots/COMMIT`, returns the repository name.
    fn name(&self) -> String {
        let folder = self.path.canonicalize();
        let folder = folder.unwrap_or_else(|_| self.path.clone());
        let name = |path: &Path| path.file_name()?.to_str().map(str::to_string);
        let cached = folder.ancestors().nth(2).and_then(name);
        let cached =
            cached.and_then(|name| Some(name.strip_prefix("models--")?.replace("--", "/")));
        cached.or_else(|| name(&folder)).unwrap_or_default()
    }
}

/// Returns whether the files have a block that predicts later tokens, which can draft tokens.
fn has_predictor(config: &HfConfig, file: &Directory) -> Result<bool> {
    let Some(arch) = config.arch()?.map(arch::find).transpose()? else {
        return Ok(false);
    };
    let Some(layers) = config.predicts_after(arch)? else {
        return Ok(false);
    };
    let is_part = |name: &str| match arch.names.predictor {
        Some(_) => names::of_predictor(arch, name, layers).is_some(),
        None => names::layer_of(arch, name) == Some(layers),
    };
    Ok(arch.mtp.is_some() && file.tensors.iter().any(|tensor| is_part(&tensor.name)))
}

fn read(path: &Path) -> Result<Option<HfConfig>> {
    let Some(text) = format::read_text(path, CONFIG_BYTES_MAX)? else {
        return Ok(None);
    };
    HfConfig::parse(&text).map(Some).context(path.display())
}
