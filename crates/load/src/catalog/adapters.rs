//! LoRA adapters that are merged into the weights.

use super::Catalog;
use crate::adapter::{self, AdapterBase, Merge};
use crate::arch::Config;
use crate::encode::encode_weight;
use crate::error::{Result, bail};
use crate::model::AdapterWeights;
use crate::options::LoadOptions;
use crate::plan::builder::Weights;
use blake3::Hasher;
use std::collections::BTreeMap;
use std::path::Path;

impl Catalog {
    /// Merges the adapters of the options into the weights.
    pub(super) fn merge_adapters(&mut self, config: &Config, options: &LoadOptions) -> Result<()> {
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
            let merged =
                encode_weight(weight, weight.dtype, &merges, self.file(), options.threads)?;
            self.weights[index as usize] = merged;
        }
        self.merged = hasher.finalize().to_hex()[..16].to_string();
        Ok(())
    }

    /// Reads an adapter for the model.
    pub(crate) fn read_adapter(&self, path: &Path, config: &Config) -> Result<AdapterWeights> {
        if config.speech.is_some() {
            bail!(Unsupported, "adapters of speech models are not supported");
        }
        let base = AdapterBase {
            arch: self.arch,
            layers: &config.layer_configs,
            half_split: !self.arch.permutes_heads() || !self.model.may_permute_heads(),
            shape: &|name| {
                let weight = self.find(&format!("{name}.weight"))?;
                Some([weight.rows, weight.cols])
            },
        };
        adapter::read(path, &base)
    }
}
