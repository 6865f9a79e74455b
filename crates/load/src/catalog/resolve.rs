//! Builds the catalog of a model: its weights by name, and the hyperparameters that depend on them.

use super::layouts::StoredWeights;
use super::{Catalog, EMBEDDING, EXPERT_BIASES, HEAD};
use crate::arch::{Arch, Config, DENSE_MODULES, EAGLE3, RopePairs};
use crate::error::{Result, bail};
use crate::format::Directory;
use crate::options::{DraftingHead, LoadOptions};
use crate::plan::builder::Weights;
use crate::quant::{self, Matrix};
use crate::source::Opened;
use crate::weight::Weight;
use crate::{collect, drafter, hf, speech_model};
use std::collections::HashMap;
use std::sync::OnceLock;

impl Catalog {
    /// Builds the catalog: maps names, splits fused tensors, detects tied embeddings.
    ///
    /// # Errors
    ///
    /// `Format` for inconsistent tensors, `Unsupported` for a type without kernels.
    pub(crate) fn resolve(
        mut model: Opened,
        arch: &'static Arch,
        mut config: Config,
        options: &LoadOptions,
    ) -> Result<(Self, Config)> {
        if let Some(header) = model.compiled.clone() {
            return Self::restore(model, &header, arch, config, options);
        }
        if arch.name == EAGLE3 {
            bail!(
                Unsupported,
                "the files are an EAGLE-3 drafter, not a model: load them as the drafting head of one"
            );
        }
        let mut weights = collect::weights(&model, arch, &config, options)?;
        let parameters = parameters(&weights);
        let tied = !weights.iter().any(|weight| weight.name == HEAD);
        check_vocab(&weights, &model.file, &mut config)?;
        match &options.drafting_head {
            DraftingHead::None => {}
            DraftingHead::Mtp => config.enable_mtp(arch)?,
            DraftingHead::Eagle3(path) => {
                weights.extend(drafter::add(path, &mut model, &mut config, options)?);
            }
        }
        let file = &model.file;
        let by_name = indices(&weights, file)?;
        let configured = model.folder.as_ref().map(hf::Folder::tied).transpose()?;
        let tied = configured.flatten().unwrap_or(tied);
        let digit_scales = weights.iter().map(|w| digit_scale(w, file)).collect();
        let mut catalog = Self {
            model,
            arch,
            parameters,
            weights,
            digit_scales,
            by_name,
            tied,
            rope_freqs: Vec::new(),
            merged: String::new(),
            stored: StoredWeights::default(),
            load_mode: options.load_mode,
            copied: OnceLock::new(),
        };
        complete(&mut config, &catalog);
        catalog.merge_adapters(&config, options)?;
        if let Some(dtype) = options.lm_head_type {
            catalog.encode_head(dtype, options.threads)?;
        }
        if config.speech.is_some() {
            let positions = catalog.find("position_embd.weight");
            speech_model::complete(&catalog.model, positions, &mut config)?;
        }
        let (_, dense) = DENSE_MODULES[0];
        if arch.dense_modules && catalog.find(&format!("{dense}.weight")).is_none() {
            tracing::warn!(
                "the file lacks the Dense modules of the model (tensors {dense}.weight, ...), which its \
                 converter did not write: its embeddings are not those of the model"
            );
        }
        Ok((catalog, config))
    }
}

/// Sets the vocabulary size to the rows of the embedding; the key or the token list may be smaller.
///
/// # Errors
///
/// `Format` if it is larger.
pub(super) fn check_vocab(weights: &[Weight], file: &Directory, config: &mut Config) -> Result<()> {
    if let Some(embedding) = weights.iter().find(|weight| weight.name == EMBEDDING) {
        if embedding.rows < config.vocab {
            bail!(
                Format,
                "tensor {} has {} rows, expected at least the vocabulary size of {}",
                embedding.tensor(file),
                embedding.rows,
                config.vocab
            );
        }
        config.vocab = embedding.rows;
    }
    Ok(())
}

/// Completes the hyperparameters that depend on how the weights are stored.
pub(super) fn complete(config: &mut Config, catalog: &Catalog) {
    config.rope.half_split = match catalog.arch.rope_pairs {
        RopePairs::HalfSplit => true,
        RopePairs::Permuted => !catalog.model.may_permute_heads(),
        RopePairs::Adjacent => false,
    };
    if catalog
        .by_name
        .keys()
        .any(|name| name.ends_with(EXPERT_BIASES))
    {
        config.complete_biased_router();
    }
}

/// Returns the index of each weight by name.
pub(super) fn indices(weights: &[Weight], file: &Directory) -> Result<HashMap<String, u32>> {
    let mut by_name = HashMap::new();
    for (i, weight) in (0..).zip(weights) {
        if let Some(other) = by_name.insert(weight.name.clone(), i) {
            let names = [&weights[other as usize], weight].map(|w| w.tensor(file));
            bail!(
                Format,
                "tensors {} and {} both map to {}",
                names[0],
                names[1],
                weight.name
            );
        }
    }
    Ok(by_name)
}

/// Returns the number of elements of all weights.
fn parameters(weights: &[Weight]) -> u64 {
    let elements = weights
        .iter()
        .map(|w| u64::from(w.rows) * u64::from(w.cols));
    elements.fold(0, u64::saturating_add)
}

/// Returns the scale of a ternary weight, whose activations are quantized to int8. `TQ1_0` and
/// `TQ2_0` weights have one scale in all blocks only if the model was trained with ternary weights.
fn digit_scale(weight: &Weight, file: &Directory) -> Option<f32> {
    let matrix = Matrix {
        bytes: weight.codes.bytes(file),
        scales: weight.scales(file),
        rows: weight.rows as usize,
        cols: weight.cols as usize,
    };
    quant::one_scale(weight.dtype, &matrix)
}
