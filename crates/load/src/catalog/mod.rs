//! The catalog: the weights of a model by GGUF name, with differences between files resolved.

mod adapters;
mod head;
pub(crate) mod layouts;
mod resolve;
mod rope;
pub(crate) mod stored;

use crate::arch::Arch;
use crate::error::{Result, bail};
use crate::exec::{Layout, Tensors};
use crate::format::Directory;
use crate::hf;
use crate::memory;
use crate::op::table::{BufferId, Table};
use crate::options::LoadMode;
use crate::plan::builder::{WeightInfo, Weights};
use crate::quant::Scales;
use crate::source::Opened;
use crate::split::fused_name;
use crate::weight::Weight;
use layouts::{StoredWeights, TOKENIZER};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::OnceLock;

/// Weights of a model by name and index, and constants computed while loading.
#[derive(Debug)]
pub struct Catalog {
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
    /// Tensors of a compiled model; empty for other files.
    stored: StoredWeights,
    /// How a CPU reads weights that it uses in place.
    load_mode: LoadMode,
    /// Set once they were copied to memory.
    copied: OnceLock<()>,
}

const EMBEDDING: &str = "token_embd.weight";
const HEAD: &str = "output.weight";
/// End of the names of biases for the selection of experts.
pub const EXPERT_BIASES: &str = ".exp_probs_b.bias";

impl Catalog {
    /// Returns a digest of the adapters that were merged; empty without any.
    pub(crate) fn merged(&self) -> &str {
        &self.merged
    }

    /// Rejects a tensor that none of the tables uses, because ignoring one, such as a bias, would
    /// silently give wrong results. GGUF files may have unused tensors outside of the layers.
    pub(crate) fn check_all_used(&self, tables: &[&Table]) -> Result<()> {
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

    /// Returns whether weights that are used in place were copied to memory.
    pub(crate) fn is_copied(&self) -> bool {
        self.copied.get().is_some()
    }

    /// Returns whether weights that are used in place are copied to memory. Files of other machines are mapped if their
    /// weights do not fit.
    fn copies(&self, bytes: u64) -> Result<bool> {
        // Reading the free memory takes longer than opening a compiled model.
        let fits = || memory::check_copies(bytes);
        match self.load_mode {
            LoadMode::Mmap => Ok(false),
            LoadMode::Auto => Ok(self.file().is_remote() && fits().is_ok()),
            LoadMode::Read if cfg!(target_os = "linux") => fits().map(|()| true),
            LoadMode::Read => {
                tracing::warn!("files are read into memory on Linux only; the file is mapped");
                Ok(false)
            }
        }
    }

    /// Returns the architecture of the model.
    pub(crate) fn arch(&self) -> &'static Arch {
        self.arch
    }

    /// Returns the opened files of the model.
    pub fn model(&self) -> &Opened {
        &self.model
    }

    /// Returns the directory of the file.
    pub(crate) fn file(&self) -> &Directory {
        &self.model.file
    }

    /// Returns `general.name`.
    pub(crate) fn name(&self) -> &str {
        self.file()
            .metadata
            .str("general.name")
            .ok()
            .flatten()
            .unwrap_or_default()
    }

    /// Returns all weights, in the order of their indices.
    pub(crate) fn weights(&self) -> impl ExactSizeIterator<Item = &Weight> {
        self.weights.iter()
    }

    /// Returns the number of constants.
    pub(crate) fn constants(&self) -> u32 {
        u32::try_from(self.rope_freqs.len()).expect("a model has few RoPE variants")
    }

    /// Returns the number of parameters in the files.
    pub(crate) fn parameters(&self) -> u64 {
        self.parameters
    }

    /// Returns the rows of a weight.
    pub(crate) fn rows_of(&self, index: u32) -> u32 {
        self.weights[index as usize].rows
    }

    /// Returns the bytes of a weight and its scales.
    pub(crate) fn bytes_of(&self, index: u32) -> u64 {
        self.weights[index as usize].bytes(self.file())
    }

    /// Returns the storage type with the most bytes.
    pub fn dtype(&self) -> &'static str {
        let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
        for weight in &self.weights {
            *totals.entry(weight.dtype.name()).or_default() += weight.bytes(self.file());
        }
        let largest = totals.into_iter().max_by_key(|(_, bytes)| *bytes);
        largest.map_or("", |(name, _)| name)
    }

    /// Returns the total size of the files in bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file().file_bytes()
    }
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
        if self.stored.is_in_layouts_only(index) {
            return &[];
        }
        self.weights[index as usize].codes.bytes(self.file())
    }

    fn scales(&self, index: u32) -> Option<Scales<'_>> {
        self.weights[index as usize].scales(self.file())
    }

    fn in_layout(&self, index: u32, layout: Layout) -> Option<&[u8]> {
        self.stored.in_layout(self.file(), index, layout)
    }

    fn read(&self, index: u32, first: usize, to: &mut [u8]) -> Result<()> {
        let weight = &self.weights[index as usize];
        weight.codes.read(self.file(), first, to)
    }

    fn release(&self, index: u32, range: Range<usize>) {
        let weight = &self.weights[index as usize];
        weight.codes.release(self.file(), range);
    }

    fn copy_in_place(&self, weights: &BTreeSet<u32>) -> Result<()> {
        if self.load_mode == LoadMode::Mmap || self.model.in_memory {
            return Ok(());
        }
        let file = self.file();
        let own = |index: &u32| {
            let is_stored = !self.stored.is_in_layouts_only(*index);
            let tensors = is_stored.then(|| self.weights[*index as usize].tensors());
            tensors.into_iter().flatten()
        };
        let panels = |index: &u32| self.stored.tensor(*index, Layout::Panels);
        let weights = weights.iter().flat_map(|i| own(i).chain(panels(i)));
        let numbered = file.tensors.iter().enumerate();
        let tokenizer = numbered.filter(|(_, tensor)| tensor.name.starts_with(TOKENIZER));
        let all: BTreeSet<usize> = weights.chain(tokenizer.map(|(i, _)| i)).collect();
        let all: Vec<_> = all.into_iter().map(|i| &file.tensors[i]).collect();
        if self.copies(all.iter().map(|tensor| tensor.bytes).sum())? {
            file.copy_in_place(&all)?;
            let _ = self.copied.set(());
        }
        Ok(())
    }

    fn check_faults(&self) -> Result<()> {
        match self.is_copied() {
            true => Ok(()),
            false => self.file().check_faults(),
        }
    }

    fn constant(&self, index: u32) -> &[u8] {
        bytemuck::cast_slice(&self.rope_freqs[index as usize])
    }
}
