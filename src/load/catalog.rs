//! The catalog: a model's weights as tables want them, the quirks of its files resolved.

use super::hf;
use super::options::LoadOptions;
use super::quantize::{HEAD_TYPES, encode_head};
use super::source::Opened;
use super::split::{drop_shared, fused_name, split};
use super::weight::{Weight, floats};
use crate::arch::{Arch, Config, RopeScaling};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::exec::Tensors;
use crate::format::Directory;
use crate::op::builder::{WeightInfo, Weights};
use crate::op::table::{BufferId, Table};
use crate::quant::{self, Matrix, Scales};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

/// A model's weights by name and number, and the constants that loading computed.
#[derive(Debug)]
pub(super) struct Catalog {
    model: Opened,
    arch: &'static Arch,
    weights: Vec<Weight>,
    /// Elements of the weights in the files.
    parameters: u64,
    /// The one scale of each weight that is multiplied as ternary digits.
    digit_scales: Vec<Option<f32>>,
    by_name: HashMap<String, u32>,
    /// Whether `output.weight` is the token embedding.
    tied: bool,
    /// Tables of RoPE frequencies, by the number that recipes give them.
    rope_freqs: Vec<Vec<f32>>,
}

const EMBEDDING: &str = "token_embd.weight";
const HEAD: &str = "output.weight";
const ROPE_FACTORS: &str = "rope_freqs.weight";
const ROPE_SHORT: &str = "rope_factors_short.weight";
const ROPE_LONG: &str = "rope_factors_long.weight";

impl Catalog {
    /// Resolves what files of one architecture may do differently.
    ///
    /// # Errors
    ///
    /// `Format` for tensors that do not fit each other, `Unsupported` for one that no kernel
    /// reads, before a recipe stumbles over it.
    pub(super) fn resolve(
        model: Opened,
        arch: &'static Arch,
        mut config: Config,
        options: &LoadOptions,
    ) -> Result<(Self, Config)> {
        let file = &model.file;
        check_causal(file, arch)?;
        let weights = match &model.folder {
            Some(folder) => folder.weights(file, arch)?,
            None => (0..file.tensors.len())
                .map(|i| {
                    let weight = Weight::plain(file.tensors[i].name.clone(), file, i)?;
                    weight.with_i2s_layout(options.i2s_layout, file)
                })
                .collect::<Result<_>>()?,
        };
        let mut weights = split(weights, file, arch, &|layer| {
            let block = config.blocks.get(layer as usize);
            block.map_or([0; 2], |b| [b.q_dim(), b.kv_dim()])
        })?;
        drop_shared(&mut weights, &file.metadata, arch)?;
        let mut by_name = HashMap::new();
        for (i, weight) in (0..).zip(&weights) {
            if let Some(other) = by_name.insert(weight.name.clone(), i) {
                let names = [&weights[other as usize], weight].map(|w| w.tensor(file));
                bail!(
                    Format,
                    "tensors {} and {} are both {}",
                    names[0],
                    names[1],
                    weight.name
                );
            }
        }
        let said = model.folder.as_ref().map(hf::Folder::tied).transpose()?;
        let tied = said.flatten().unwrap_or(!by_name.contains_key(HEAD));
        // Only GGUF files may hold Q and K permuted.
        config.half_split = arch.half_split || model.folder.is_some();
        let digit_scales = weights.iter().map(|w| digit_scale(w, file)).collect();
        let elements = |w: &Weight| u64::from(w.rows) * u64::from(w.cols);
        let parameters = weights.iter().map(elements);
        let mut catalog = Self {
            model,
            arch,
            parameters: parameters.fold(0, u64::saturating_add),
            weights,
            digit_scales,
            by_name,
            tied,
            rope_freqs: Vec::new(),
        };
        if let Some(dtype) = options.head_type {
            catalog.encode_head(dtype, options.threads)?;
        }
        // The embedding's rows are the vocabulary; a key or a token list may be shorter.
        if let Some(embedding) = catalog.find(EMBEDDING) {
            if embedding.rows < config.vocab {
                bail!(
                    Format,
                    "tensor {} has {} rows for a vocabulary of {}",
                    catalog.spelling(EMBEDDING),
                    embedding.rows,
                    config.vocab
                );
            }
            config.vocab = embedding.rows;
        }
        Ok((catalog, config))
    }

    /// Puts the head in this type in the place of the one that the model has; an embedding that was
    /// the head too keeps its own.
    fn encode_head(&mut self, dtype: DType, threads: u32) -> Result<()> {
        if !HEAD_TYPES.contains(&dtype) {
            let known = HEAD_TYPES.map(DType::name).join(", ");
            bail!(Argument, "a head of type {dtype}: known are {known}");
        }
        if self.arch.encoder {
            bail!(
                Argument,
                "a head of type {dtype}: {} models have no head",
                self.arch.name
            );
        }
        // Where there is none at all, the recipe says so.
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
        let head = encode_head(&self.weights[index as usize], dtype, self.file(), threads)?;
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

    /// Computes the RoPE frequencies for a cache of `context` positions, with the file's factors
    /// where it has some.
    pub(super) fn add_rope(&mut self, config: &mut Config, context: u32) -> Result<()> {
        let floats = |name: &str| {
            let tensor = self.file().tensor(name);
            tensor.map(|t| floats(self.file(), t)).transpose()
        };
        let factors = floats(ROPE_FACTORS)?;
        let (short_list, long_list) = (floats(ROPE_SHORT)?, floats(ROPE_LONG)?);
        let mut freqs = Vec::new();
        for (i, rotation) in config.ropes.iter_mut().enumerate() {
            if i == 0 && !matches!(rotation.scaling, RopeScaling::Long { .. }) {
                let lists = [(ROPE_SHORT, &short_list), (ROPE_LONG, &long_list)];
                if let Some((name, _)) = lists.iter().find(|(_, list)| list.is_some()) {
                    bail!(
                        Format,
                        "{}.rope.scaling.attn_factor is missing, which goes with tensor {name}",
                        config.architecture
                    );
                }
            }
            if let RopeScaling::Long { short, long, .. } = &mut rotation.scaling {
                for (list, found) in [(short, &short_list), (long, &long_list)] {
                    if let Some(found) = found {
                        list.clone_from(found);
                    }
                }
            }
            // A file's divisors are those of the layers that see all positions.
            let factors = factors.as_deref().filter(|_| i == 0);
            freqs.push(rotation.freqs(factors, context)?);
        }
        self.rope_freqs = freqs;
        Ok(())
    }

    /// Refuses a tensor that the table leaves out: a bias that the recipe does not know would
    /// make every answer wrong without a word. GGUF files may have more outside of the layers.
    pub(super) fn check_all_used(&self, table: &Table) -> Result<()> {
        let used = table.slots.iter().filter_map(|slot| match slot.place {
            BufferId::Weight(index, _) => Some(index),
            _ => None,
        });
        let used: HashSet<u32> = used.collect();
        for (index, weight) in (0..).zip(&self.weights) {
            let counts = self.model.folder.is_some() || weight.name.starts_with("blk.");
            if counts && !used.contains(&index) {
                bail!(
                    Unsupported,
                    "tensor {} is no part of this architecture as it is built here",
                    weight.tensor(self.file())
                );
            }
        }
        Ok(())
    }

    /// The files and what stands beside them.
    pub(super) fn model(&self) -> &Opened {
        &self.model
    }

    /// The file.
    pub(super) fn file(&self) -> &Directory {
        &self.model.file
    }

    /// `general.name`.
    pub(super) fn name(&self) -> &str {
        self.file()
            .metadata
            .str("general.name")
            .ok()
            .flatten()
            .unwrap_or_default()
    }

    /// All weights, by their numbers.
    pub(super) fn weights(&self) -> impl Iterator<Item = &Weight> {
        self.weights.iter()
    }

    /// Elements of all weights of the files.
    pub(super) fn parameters(&self) -> u64 {
        self.parameters
    }

    /// Bytes of all weights and their scales.
    pub(super) fn weight_bytes(&self) -> u64 {
        self.weights.iter().map(|w| w.bytes(self.file())).sum()
    }

    /// Rows of a weight.
    pub(super) fn rows_of(&self, index: u32) -> u32 {
        self.weights[index as usize].rows
    }

    /// Bytes of a weight and its scales.
    pub(super) fn bytes_of(&self, index: u32) -> u64 {
        self.weights[index as usize].bytes(self.file())
    }

    /// The storage type that most bytes of the weights have.
    pub(super) fn dtype(&self) -> &'static str {
        let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
        for weight in &self.weights {
            *totals.entry(weight.dtype.name()).or_default() += weight.bytes(self.file());
        }
        let largest = totals.into_iter().max_by_key(|(_, bytes)| *bytes);
        largest.map_or("", |(name, _)| name)
    }

    /// Bytes of the file or files.
    pub(super) fn file_bytes(&self) -> u64 {
        self.file().file_bytes()
    }
}

/// Refuses a decoder that was trained to see both ways, and an encoder that was not: their tensors
/// are the same.
fn check_causal(file: &Directory, arch: &Arch) -> Result<()> {
    let key = format!("{}.attention.causal", arch.name);
    match file.metadata.bool(&key)? {
        Some(said) if said == arch.encoder => bail!(Unsupported, "{key}: {said}, wanted {}", !said),
        _ => Ok(()),
    }
}

/// The one scale of a weight of ternary digits, whose activations go to int8. `TQ1_0` and `TQ2_0`
/// are made of any model's weights; all of their blocks have one scale only where the model was
/// trained so.
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
        let found = self.find(name).map(|w| &self.weights[w.index as usize]);
        // Of experts that a folder has apart it is the first one's.
        let whole = |w: &&Weight| w.stack == 1 || self.model.folder.is_none();
        if let Some(weight) = found.filter(whole) {
            return weight.tensor(file).to_string();
        }
        let other = match &self.model.folder {
            Some(_) => hf::to_hf_among(&file.tensors, self.arch, name),
            None => fused_name(&file.tensors, self.arch, name),
        };
        other.unwrap_or_else(|| name.to_string())
    }
}

impl Tensors for Catalog {
    fn weight(&self, index: u32) -> &[u8] {
        self.weights[index as usize].codes.bytes(self.file())
    }

    fn scales(&self, index: u32) -> Option<Scales<'_>> {
        self.weights[index as usize].scales(self.file())
    }

    fn release(&self, index: u32, range: Range<usize>) {
        let weight = &self.weights[index as usize];
        weight.codes.release(self.file(), range);
    }

    fn constant(&self, index: u32) -> &[u8] {
        bytemuck::cast_slice(&self.rope_freqs[index as usize])
    }
}
