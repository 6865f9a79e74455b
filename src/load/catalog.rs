//! The catalog: the weights of a model by GGUF name, with differences between files resolved.

use super::adapter::{self, AdapterBase, Merge};
use super::collect;
use super::drafter;
use super::hf;
use super::options::{DraftingHead, LoadOptions};
use super::quantize::{LM_HEAD_TYPES, encode_weight};
use super::source::Opened;
use super::speech;
use super::split::fused_name;
use super::weight::{Weight, floats};
use crate::arch::{Arch, Config, DENSE_MODULES, EAGLE3, RopePairs, RopeScaling};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::exec::Tensors;
use crate::format::Directory;
use crate::model::AdapterWeights;
use crate::op::table::{BufferId, Table};
use crate::plan::builder::{WeightInfo, Weights};
use crate::quant::{self, Matrix, Scales};
use blake3::Hasher;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::path::Path;

/// Weights of a model by name and index, and constants computed while loading.
#[derive(Debug)]
pub(super) struct Catalog {
    model: Opened,
    arch: &'static Arch,
    weights: Vec<Weight>,
    /// Number of parameters in the files.
    parameters: u64,
    /// For each weight with ternary digits, its single scale.
    digit_scales: Vec<Option<f32>>,
    by_name: HashMap<String, u32>,
    /// Whether `output.weight` is the token embedding.
    tied: bool,
    /// RoPE frequencies, by the index that recipes use.
    rope_freqs: Vec<Vec<f32>>,
    /// Digest of the adapters that were merged; empty without any.
    merged: String,
}

const EMBEDDING: &str = "token_embd.weight";
const HEAD: &str = "output.weight";
/// End of the names of biases for the selection of experts.
pub(super) const EXPERT_BIASES: &str = ".exp_probs_b.bias";
const ROPE_FACTORS: &str = "rope_freqs.weight";
const ROPE_SHORT: &str = "rope_factors_short.weight";
const ROPE_LONG: &str = "rope_factors_long.weight";

/// Returns the index of each weight by name.
fn indices(weights: &[Weight], file: &Directory) -> Result<HashMap<String, u32>> {
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

impl Catalog {
    /// Builds the catalog: maps names, splits fused tensors, detects tied embeddings.
    ///
    /// # Errors
    ///
    /// `Format` for inconsistent tensors, `Unsupported` for a type without kernels.
    pub(super) fn resolve(
        mut model: Opened,
        arch: &'static Arch,
        mut config: Config,
        options: &LoadOptions,
    ) -> Result<(Self, Config)> {
        if arch.name == EAGLE3 {
            bail!(
                Unsupported,
                "the files are an EAGLE-3 drafter, not a model: load them as the drafting head of one"
            );
        }
        let mut weights = collect::weights(&model, arch, &config, options)?;
        let parameters = parameters(&weights);
        let tied = !weights.iter().any(|weight| weight.name == HEAD);
        // The rows of the embedding are the vocabulary size; the key or the token list may be smaller.
        if let Some(embedding) = weights.iter().find(|weight| weight.name == EMBEDDING) {
            if embedding.rows < config.vocab {
                bail!(
                    Format,
                    "tensor {} has {} rows, expected at least the vocabulary size of {}",
                    embedding.tensor(&model.file),
                    embedding.rows,
                    config.vocab
                );
            }
            config.vocab = embedding.rows;
        }
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
        // Only GGUF files may store permuted Q and K.
        config.rope.half_split = match arch.rope_pairs {
            RopePairs::HalfSplit => true,
            RopePairs::Permuted => model.folder.is_some(),
            RopePairs::Adjacent => false,
        };
        if by_name.keys().any(|name| name.ends_with(EXPERT_BIASES)) {
            config.complete_biased_router();
        }
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
        };
        catalog.merge_adapters(&config, options)?;
        if let Some(dtype) = options.lm_head_type {
            catalog.encode_head(dtype, options.threads)?;
        }
        if config.speech.is_some() {
            let positions = catalog.find("position_embd.weight");
            speech::complete(&catalog.model, positions, &mut config)?;
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

    /// Merges the adapters of the options into the weights.
    fn merge_adapters(&mut self, config: &Config, options: &LoadOptions) -> Result<()> {
        if options.lora.is_empty() {
            return Ok(());
        }
        let mut hasher = Hasher::new();
        let mut adapters = Vec::with_capacity(options.lora.len());
        for (path, scale) in &options.lora {
            if !scale.is_finite() {
                bail!(
                    Argument,
                    "{}: the scale of the adapter is {scale}, expected a finite number",
                    path.display()
                );
            }
            adapters.push((self.read_adapter(path, config)?, *scale));
        }
        let mut merges: BTreeMap<u32, Vec<Merge<'_>>> = BTreeMap::new();
        for (adapter, scale) in &adapters {
            hasher.update(&scale.to_le_bytes());
            for module in &adapter.modules {
                hasher.update(module.tensor.as_bytes());
                hasher.update(bytemuck::cast_slice(&module.a));
                hasher.update(bytemuck::cast_slice(&module.b));
                let weight = self.find(&format!("{}.weight", module.tensor));
                let index = weight.map(|weight| weight.index);
                let index = index.expect("the adapter was read for these weights");
                merges.entry(index).or_default().push(Merge {
                    module,
                    scale: *scale,
                    first_row: 0,
                });
            }
        }
        for (index, merges) in merges {
            let weight = &self.weights[index as usize];
            let name = weight.tensor(self.file()).to_string();
            if self.digit_scales[index as usize].is_some() {
                bail!(
                    Unsupported,
                    "tensor {name}: an adapter cannot be merged into ternary weights"
                );
            }
            let target = (weight.dtype, &merges[..]);
            let merged = encode_weight(weight, target, self.file(), options.threads)?;
            self.weights[index as usize] = merged;
        }
        self.merged = hasher.finalize().to_hex()[..16].to_string();
        Ok(())
    }

    /// Reads an adapter for the model.
    pub(super) fn read_adapter(&self, path: &Path, config: &Config) -> Result<AdapterWeights> {
        if config.speech.is_some() {
            bail!(Unsupported, "adapters of speech models are not supported");
        }
        let base = AdapterBase {
            arch: self.arch,
            layers: &config.layer_configs,
            half_split: !self.arch.permutes_heads() || self.model.folder.is_some(),
            shape: &|name| {
                let weight = self.find(&format!("{name}.weight"))?;
                Some([weight.rows, weight.cols])
            },
        };
        adapter::read(path, &base)
    }

    /// Returns a digest of the adapters that were merged; empty without any.
    pub(super) fn merged(&self) -> &str {
        &self.merged
    }

    /// Requantizes the output projection (`lm_head`). A tied embedding keeps its own type.
    fn encode_head(&mut self, dtype: DType, threads: u32) -> Result<()> {
        if !LM_HEAD_TYPES.contains(&dtype) {
            let known = LM_HEAD_TYPES.map(DType::name).join(", ");
            bail!(
                Argument,
                "unsupported lm_head type {dtype}; supported types are {known}"
            );
        }
        if self.arch.encoder {
            bail!(
                Argument,
                "lm_head type {dtype}: {} models have no output projection",
                self.arch.name
            );
        }
        // The recipe reports a missing output projection.
        let Some(WeightInfo {
            index,
            dtype: stored,
            ..
        }) = self.find(HEAD)
        else {
            return Ok(());
        };
        if stored == dtype {
            return Ok(());
        }
        let head = &self.weights[index as usize];
        let head = encode_weight(head, (dtype, &[]), self.file(), threads)?;
        if !self.tied {
            self.weights[index as usize] = head;
            self.digit_scales[index as usize] = None;
            return Ok(());
        }
        let Ok(added) = u32::try_from(self.weights.len()) else {
            bail!(TooLarge, "{} tensors", self.weights.len());
        };
        self.tied = false;
        self.by_name.insert(HEAD.to_string(), added);
        self.digit_scales.push(None);
        self.weights.push(Weight {
            name: HEAD.to_string(),
            ..head
        });
        Ok(())
    }

    /// Computes the RoPE frequencies for `context` positions, with the factors of the file if any.
    pub(super) fn add_rope(&mut self, config: &mut Config, context: u32) -> Result<()> {
        let floats = |name: &str| {
            let tensor = self.file().tensor(name);
            tensor.map(|t| floats(self.file(), t)).transpose()
        };
        let factors = floats(ROPE_FACTORS)?;
        let (short_list, long_list) = (floats(ROPE_SHORT)?, floats(ROPE_LONG)?);
        let mut freqs = Vec::new();
        for (i, rotation) in config.rope.rotations.iter_mut().enumerate() {
            if i == 0 && !matches!(rotation.scaling, RopeScaling::Long { .. }) {
                let lists = [(ROPE_SHORT, &short_list), (ROPE_LONG, &long_list)];
                if let Some((name, _)) = lists.iter().find(|(_, list)| list.is_some()) {
                    bail!(
                        Format,
                        "{}.rope.scaling.attn_factor is missing, but tensor {name} requires it",
                        config.architecture
                    );
                }
            }
            if let RopeScaling::Long { short, long, .. } = &mut rotation.scaling {
                for (list, tensor) in [(short, &short_list), (long, &long_list)] {
                    if let Some(values) = tensor {
                        list.clone_from(values);
                    }
                }
            }
            // The factors of a file apply to layers with full attention.
            let factors = factors.as_deref().filter(|_| i == 0);
            freqs.push(rotation.freqs(factors, context)?);
            rotation.select_magnitude(context);
        }
        self.rope_freqs = freqs;
        config.share_ropes();
        Ok(())
    }

    /// Rejects a tensor that none of the tables uses, because ignoring one, such as a bias, would
    /// silently give wrong results. GGUF files may have unused tensors outside of the layers.
    pub(super) fn check_all_used(&self, tables: &[&Table]) -> Result<()> {
        let slots = tables.iter().flat_map(|table| &table.slots);
        let used = slots.filter_map(|slot| match slot.buffer {
            BufferId::Weight(index, _) => Some(index),
            _ => None,
        });
        let used: HashSet<u32> = used.collect();
        for (index, weight) in (0..).zip(&self.weights) {
            // The step table of a model with Dense modules does not use them.
            let is_dense = weight.name.starts_with("dense_");
            let required =
                self.model.folder.is_some() && !is_dense || weight.name.starts_with("blk.");
            if required && !used.contains(&index) {
                bail!(
                    Unsupported,
                    "unexpected tensor {}: not used by the architecture {:?}",
                    weight.tensor(self.file()),
                    self.arch.name
                );
            }
        }
        Ok(())
    }

    /// Returns the architecture of the model.
    pub(super) fn arch(&self) -> &'static Arch {
        self.arch
    }

    /// Returns the opened files of the model.
    pub(super) fn model(&self) -> &Opened {
        &self.model
    }

    /// Returns the directory of the file.
    pub(super) fn file(&self) -> &Directory {
        &self.model.file
    }

    /// Returns `general.name`.
    pub(super) fn name(&self) -> &str {
        self.file()
            .metadata
            .str("general.name")
            .ok()
            .flatten()
            .unwrap_or_default()
    }

    /// Returns all weights, in the order of their indices.
    pub(super) fn weights(&self) -> impl ExactSizeIterator<Item = &Weight> {
        self.weights.iter()
    }

    /// Returns the number of constants.
    pub(super) fn constants(&self) -> u32 {
        u32::try_from(self.rope_freqs.len()).expect("a model has few RoPE variants")
    }

    /// Returns the number of parameters in the files.
    pub(super) fn parameters(&self) -> u64 {
        self.parameters
    }

    /// Returns the rows of a weight.
    pub(super) fn rows_of(&self, index: u32) -> u32 {
        self.weights[index as usize].rows
    }

    /// Returns the bytes of a weight and its scales.
    pub(super) fn bytes_of(&self, index: u32) -> u64 {
        self.weights[index as usize].bytes(self.file())
    }

    /// Returns the storage type with the most bytes.
    pub(super) fn dtype(&self) -> &'static str {
        let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
        for weight in &self.weights {
            *totals.entry(weight.dtype.name()).or_default() += weight.bytes(self.file());
        }
        let largest = totals.into_iter().max_by_key(|(_, bytes)| *bytes);
        largest.map_or("", |(name, _)| name)
    }

    /// Returns the total size of the files in bytes.
    pub(super) fn file_bytes(&self) -> u64 {
        self.file().file_bytes()
    }
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

impl Weights for Catalog {
    fn find(&self, name: &str) -> Option<WeightInfo> {
        let name = if self.tied && name == HEAD {
            EMBEDDING
        } else {
            name
        };
        let index = *self.by_name.get(name)?;
        let Weight {
            dtype, rows, cols, ..
        } = self.weights[index as usize];
        Some(WeightInfo {
            index,
            dtype,
            rows,
            cols,
            scale: self.digit_scales[index as usize],
        })
    }

    fn spelling(&self, name: &str) -> String {
        let file = self.file();
        let weight = self.find(name).map(|w| &self.weights[w.index as usize]);
        // Experts in separate tensors have no common tensor name.
        let one_tensor = |w: &&Weight| w.stack == 1 || self.model.folder.is_none();
        if let Some(weight) = weight.filter(one_tensor) {
            return weight.tensor(file).to_string();
        }
        let mut aliases = self.arch.aliases.iter();
        let alias = aliases.find(|(_, own)| *own == name);
        let name = alias.map_or(name, |(alias, _)| alias);
        let other = match &self.model.folder {
            Some(_) => hf::to_hf_among(&file.tensors, self.arch, name),
            None => fused_name(&file.tensors, self.arch, name),
        };
        let name = other.unwrap_or_else(|| name.to_string());
        match file.missing_file(&name) {
            Some(missing) => format!("{name}, which the index of the folder lists in {missing},"),
            None => name,
        }
    }
}

impl Tensors for Catalog {
    fn weight(&self, index: u32) -> &[u8] {
        self.weights[index as usize].codes.bytes(self.file())
    }

    fn scales(&self, index: u32) -> Option<Scales<'_>> {
        self.weights[index as usize].scales(self.file())
    }

    fn read(&self, index: u32, first: usize, to: &mut [u8]) -> Result<()> {
        let weight = &self.weights[index as usize];
        weight.codes.read(self.file(), first, to)
    }

    fn release(&self, index: u32, range: Range<usize>) {
        let weight = &self.weights[index as usize];
        weight.codes.release(self.file(), range);
    }

    fn constant(&self, index: u32) -> &[u8] {
        bytemuck::cast_slice(&self.rope_freqs[index as usize])
    }
}
