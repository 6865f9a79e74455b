//! Stacks experts that a file stores as separate tensors.

use super::weight::{Data, Weight, f32_bytes, floats};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::format::{Directory, Metadata};
use std::collections::BTreeMap;

/// Weights of single experts, by the name of the stacked weight and the index of the expert.
#[derive(Default)]
pub(super) struct SeparateExperts(BTreeMap<String, BTreeMap<u32, Weight>>);

impl SeparateExperts {
    /// Adds the weight of one expert. Its name is that of the stacked weight.
    ///
    /// # Errors
    ///
    /// `Format` for a duplicate index.
    pub(super) fn add(&mut self, index: u32, weight: Weight, file: &Directory) -> Result<()> {
        let experts = self.0.entry(weight.name.clone()).or_default();
        if let Some(other) = experts.insert(index, weight) {
            let tensor = other.tensor(file);
            bail!(Format, "tensor {tensor}: duplicate expert index {index}");
        }
        Ok(())
    }

    /// Returns the stacked weights.
    ///
    /// # Errors
    ///
    /// `Format` for a missing expert or experts that differ.
    pub(super) fn stacked(self, file: &Directory, arch: &str) -> Result<Vec<Weight>> {
        let count = expert_count(&file.metadata, arch)?;
        let mut stacked = Vec::with_capacity(self.0.len());
        for (name, experts) in self.0 {
            // Bounded by the number of tensors: the search stops at the first missing index.
            let last = experts.keys().last().map_or(0, |n| n.saturating_add(1));
            let missing = (0..count.max(last)).find(|n| !experts.contains_key(n));
            if let (Some(missing), Some((index, one))) = (missing, experts.first_key_value()) {
                let tensor = with_index(one.tensor(file), *index, missing);
                bail!(Format, "tensor {tensor} is missing");
            }
            let parts: Vec<_> = experts.into_values().collect();
            stacked.push(Weight::stacked(name, &parts, file)?);
        }
        Ok(stacked)
    }
}

/// End of the names of the biases of all experts, `[experts, rows]`.
const BIASES: &str = "_exps.bias";

/// Converts a weight to the form that kernels read: biases of experts are a single vector in F32.
///
/// # Errors
///
/// `Unsupported` for a quantized bias, `TooLarge` for a length over 32 bits.
pub(super) fn in_kernel_form(weight: Weight, file: &Directory) -> Result<Weight> {
    if !weight.name.ends_with(BIASES) {
        return Ok(weight);
    }
    let tensor = &file.tensors[weight.codes.tensor];
    let Some(cols) = weight.rows.checked_mul(weight.cols) else {
        bail!(
            TooLarge,
            "tensor {}: {} biases of {} elements do not fit 32 bits",
            tensor.name,
            weight.rows,
            weight.cols
        );
    };
    let bytes = f32_bytes(&floats(file, tensor)?);
    Ok(Weight {
        dtype: DType::F32,
        rows: 1,
        cols,
        stack: 1,
        codes: Data::computed(weight.codes.tensor, bytes),
        ..weight
    })
}

/// Returns the number of experts, for all layers or the largest of a list.
fn expert_count(metadata: &Metadata, arch: &str) -> Result<u32> {
    let key = format!("{arch}.expert_count");
    let list = metadata.get(&key).is_some_and(|v| v.array().is_some());
    Ok(match list {
        true => metadata.u32s(&key)?.unwrap_or_default().into_iter().max(),
        false => metadata.u32(&key)?,
    }
    .unwrap_or(0))
}

/// Returns the name of the same tensor of another expert. The expert index is the last index.
fn with_index(tensor: &str, index: u32, other: u32) -> String {
    match tensor.rsplit_once(&format!(".{index}.")) {
        Some((module, part)) => format!("{module}.{other}.{part}"),
        None => tensor.to_string(),
    }
}

/// Feed-forward modules with one tensor per expert in early GGUF files of Mixtral,
/// `blk.N.ffn_gate.EXPERT.weight`, and their stacked modules.
const MODULES: [(&str, &str); 3] = [
    ("ffn_gate", "ffn_gate_exps"),
    ("ffn_up", "ffn_up_exps"),
    ("ffn_down", "ffn_down_exps"),
];

/// Stacks the experts of a GGUF file.
///
/// # Errors
///
/// Those of [`SeparateExperts`].
pub(super) fn stack(weights: Vec<Weight>, file: &Directory, arch: &str) -> Result<Vec<Weight>> {
    let mut experts = SeparateExperts::default();
    let mut others = Vec::with_capacity(weights.len());
    for weight in weights {
        match stacked_name(&weight.name) {
            Some((name, index)) => experts.add(index, Weight { name, ..weight }, file)?,
            None => others.push(weight),
        }
    }
    others.extend(experts.stacked(file, arch)?);
    Ok(others)
}

/// Returns the name of the stacked weight and the index of the expert.
fn stacked_name(name: &str) -> Option<(String, u32)> {
    let mut parts = name.split('.');
    let mut next = || parts.next();
    let (block, layer, module, index, suffix) = (next()?, next()?, next()?, next()?, next()?);
    let (_, stacked) = MODULES.iter().find(|(one, _)| *one == module)?;
    let plain = block == "blk" && suffix == "weight" && next().is_none();
    let index: u32 = index.parse().ok().filter(|_| plain)?;
    Some((format!("blk.{layer}.{stacked}.weight"), index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::format::open_bytes;
    use crate::format::write::Writer;

    /// Returns the stacked weights of a file with these tensors of one row, and their values.
    fn stacked(names: &[&str]) -> Result<Vec<(String, u32, Vec<u8>)>> {
        let mut w = Writer::new();
        w.set("general.architecture", "llama")
            .set("llama.expert_count", 2u32);
        for (i, name) in (0u8..).zip(names) {
            w.tensor(name, DType::F32, &[2, 1], vec![i; 8]);
        }
        let file = open_bytes("test", w.finish()?)?;
        let weights = (0..file.tensors.len())
            .map(|i| Weight::plain(file.tensors[i].name.clone(), &file, i))
            .collect::<Result<_>>()?;
        let weights = stack(weights, &file, "llama")?;
        let facts = |w: &Weight| (w.name.clone(), w.stack, w.codes.bytes(&file).to_vec());
        Ok(weights.iter().map(facts).collect())
    }

    #[test]
    fn stacks_tensors_of_early_files() {
        let up = ["blk.0.ffn_up.1.weight", "blk.0.ffn_up.0.weight"];
        let dense = "blk.1.ffn_up.weight";
        let expected = [
            (dense.to_string(), 1, vec![1; 8]),
            ("blk.0.ffn_up_exps.weight".to_string(), 2, {
                let mut bytes = vec![2; 8];
                bytes.extend([0; 8]);
                bytes
            }),
        ];
        assert_eq!(stacked(&[up[0], dense, up[1]]).unwrap(), expected);
    }

    #[test]
    fn names_missing_experts() {
        let e = stacked(&["blk.1.ffn_down.1.weight"]).unwrap_err();
        assert_eq!(e.message(), "tensor blk.1.ffn_down.0.weight is missing");
        let e = stacked(&["blk.0.ffn_gate.0.weight", "blk.0.ffn_gate.00.weight"]).unwrap_err();
        let expected = "tensor blk.0.ffn_gate.0.weight: duplicate expert index 0";
        assert_eq!(e.message(), expected);
    }
}
