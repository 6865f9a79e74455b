//! Splits fused modules, such as `attn_qkv`, into the weights that recipes use.

use super::weight::Weight;
use crate::arch::{Arch, FUSED_BY_KEY_HEAD, FUSED_KEYS_VALUES};
use crate::error::{Result, bail};
use crate::format::{Directory, Metadata, TensorInfo};
use std::collections::HashSet;
use std::ops::Range;

/// Internal name and GGUF name of a fused gate. In GGUF files, a fused gate is an `ffn_up` without
/// an `ffn_gate`.
pub const FUSED_GATE: [&str; 2] = ["ffn_gate_up", "ffn_up"];

/// Modules that files may contain for layers that share the KV cache of another layer.
const SHARED: &[&str] = &["attn_k", "attn_v", "attn_k_norm"];

/// Stacked matrices outside of the layers, which become separate weights: `altup_proj.0.weight`.
const STACKED: [&str; 2] = ["altup_proj", "altup_unembd_proj"];

/// Splits the fused weights of an architecture, without a copy if the rows of a part are contiguous.
/// `rows` returns the rows of Q and of K of a layer.
///
/// # Errors
///
/// `Format` for a wrong number of rows, `Unsupported` for a type that cannot be split.
pub fn split(
    weights: Vec<Weight>,
    file: &Directory,
    arch: &Arch,
    rows: &dyn Fn(u32) -> [u32; 2],
) -> Result<Vec<Weight>> {
    let names: HashSet<String> = weights.iter().map(|w| w.name.clone()).collect();
    let mut parts = Vec::new();
    for weight in weights {
        let fused = LayerTensor::parse(&weight.name).and_then(|tensor| {
            let modules = tensor.fused(arch, &|name| names.contains(name))?;
            Some((tensor, modules))
        });
        if weight.stack > 1 && STACKED.iter().any(|name| is_of(&weight.name, name)) {
            parts.extend(unstacked(&weight, file)?);
            continue;
        }
        match fused {
            Some((tensor, modules)) => {
                parts.extend(split_weight(&weight, tensor, modules, file, rows)?);
            }
            None => parts.push(weight),
        }
    }
    Ok(parts)
}

/// Returns the tensors that a tensor with `total` rows is split into, with their rows; the tensor
/// itself if it is not fused. `has` returns whether the file has a tensor of this name, `rows` is as
/// for [`split`].
pub fn parts(
    arch: &Arch,
    name: &str,
    total: u32,
    has: &dyn Fn(&str) -> bool,
    rows: &dyn Fn(u32) -> [u32; 2],
) -> Vec<(String, Range<u32>)> {
    let tensor = LayerTensor::parse(name);
    let fused = tensor.and_then(|tensor| Some((tensor, tensor.fused(arch, has)?)));
    let Some((tensor, modules)) = fused else {
        return vec![(name.to_string(), 0..total)];
    };
    let mut first = 0u32;
    let counts = tensor.row_counts(modules, total, rows);
    let parts = modules.iter().zip(counts).map(|(part, count)| {
        let rows = first..first.saturating_add(count);
        first = rows.end;
        (tensor.sibling(part), rows)
    });
    parts.collect()
}

/// Returns the name of the fused tensor that would contain `name`, if the GGUF file has that fused
/// module in any layer.
pub(super) fn fused_name(tensors: &[TensorInfo], arch: &Arch, name: &str) -> Option<String> {
    if let Some(stack) = STACKED.iter().find(|stack| is_of(name, stack)) {
        return Some(format!("{stack}.weight"));
    }
    let tensor = LayerTensor::parse(name)?;
    let others = FUSED_BY_KEY_HEAD.iter().chain([&FUSED_KEYS_VALUES]);
    let mut fused = arch.fused.iter().chain(others);
    let (module, _) = fused.find(|(_, parts)| parts.contains(&tensor.module))?;
    let [gate, up] = FUSED_GATE;
    let module = if *module == gate { up } else { module };
    let mut others = tensors.iter().filter_map(|t| LayerTensor::parse(&t.name));
    let present = others.any(|other| other.module == module);
    present.then(|| tensor.sibling(module))
}

/// Drops K and V weights of layers that share the KV cache of other layers.
///
/// # Errors
///
/// `Format` for keys that are not integers.
pub fn drop_shared(
    mut weights: Vec<Weight>,
    metadata: &Metadata,
    arch: &Arch,
) -> Result<Vec<Weight>> {
    let number = |key: &str| Ok(metadata.u32(&format!("{}.{key}", arch.name))?.unwrap_or(0));
    let shared = number("attention.shared_kv_layers")?;
    let first = number("block_count")?.saturating_sub(shared);
    weights.retain(|weight| {
        let used = |tensor: LayerTensor<'_>| {
            let layer: u32 = tensor.layer.parse().unwrap_or(0);
            layer < first || !SHARED.contains(&tensor.module)
        };
        LayerTensor::parse(&weight.name).is_none_or(used)
    });
    Ok(weights)
}

/// Drops the weights of blocks after the first `layers`, which predict later tokens.
pub fn drop_beyond(mut weights: Vec<Weight>, layers: u32) -> Vec<Weight> {
    weights.retain(|weight| {
        let layer = LayerTensor::parse(&weight.name).and_then(|tensor| tensor.layer.parse().ok());
        layer.is_none_or(|layer: u32| layer < layers)
    });
    weights
}

/// Parsed name of a layer's tensor, such as `blk.3.attn_qkv.weight`.
#[derive(Clone, Copy)]
struct LayerTensor<'a> {
    layer: &'a str,
    module: &'a str,
    suffix: &'a str,
}

impl<'a> LayerTensor<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
        let (module, suffix) = rest.split_once('.')?;
        Some(Self {
            layer,
            module,
            suffix,
        })
    }

    /// Returns the name of the same tensor of another module of the layer.
    fn sibling(self, module: &str) -> String {
        format!("blk.{}.{module}.{}", self.layer, self.suffix)
    }

    /// Returns the parts of a fused module. `has` returns whether there is a tensor of this name.
    fn fused(self, arch: &Arch, has: &dyn Fn(&str) -> bool) -> Option<&'static [&'static str]> {
        let module = match self.module {
            up if up == FUSED_GATE[1] && !has(&self.sibling("ffn_gate")) => FUSED_GATE[0],
            other => other,
        };
        let mut fused = arch.fused.iter();
        let (_, modules) = fused.find(|(name, _)| *name == module)?;
        Some(modules)
    }

    /// Returns the rows of each part of a fused module with `total` rows.
    fn row_counts(self, parts: &[&str], total: u32, rows: &dyn Fn(u32) -> [u32; 2]) -> Vec<u32> {
        // An invalid layer number has no rows.
        let [q, k] = rows(self.layer.parse().unwrap_or(u32::MAX));
        let rows = |part: &&str| match *part {
            "attn_q" => q,
            "attn_k" | "attn_v" => k,
            _ => total / 2,
        };
        parts.iter().map(rows).collect()
    }
}

/// Returns whether a tensor is one of the module `name` or of its parts.
fn is_of(tensor: &str, name: &str) -> bool {
    let rest = tensor.strip_prefix(name);
    rest.is_some_and(|rest| rest.starts_with('.'))
}

/// Returns the matrices of a stacked weight, with their index after the name of the module.
fn unstacked(weight: &Weight, file: &Directory) -> Result<Vec<Weight>> {
    let (module, suffix) = weight.name.rsplit_once('.').unwrap_or((&weight.name, ""));
    let rows = weight.rows / weight.stack;
    let parts = (0..weight.stack).map(|index| {
        let name = format!("{module}.{index}.{suffix}");
        weight.slice_rows(name, index * rows..(index + 1) * rows, file)
    });
    parts.collect()
}

fn split_weight(
    weight: &Weight,
    tensor: LayerTensor<'_>,
    parts: &[&str],
    file: &Directory,
    rows: &dyn Fn(u32) -> [u32; 2],
) -> Result<Vec<Weight>> {
    // A bias has an element for each row.
    let total = match weight.rows {
        1 => weight.cols,
        rows => rows,
    };
    let counts = tensor.row_counts(parts, total, rows);
    let expected = counts.iter().map(|n| u64::from(*n)).sum::<u64>();
    if expected != u64::from(total) {
        let list: Vec<_> = parts
            .iter()
            .zip(&counts)
            .map(|(p, n)| format!("{n} for {p}"))
            .collect();
        bail!(
            Format,
            "tensor {} has {total} rows of {} columns, expected {expected}: {}",
            weight.tensor(file),
            weight.cols,
            list.join(", ")
        );
    }
    let mut first = 0;
    let mut weights = Vec::new();
    for (part, count) in parts.iter().zip(counts) {
        let rows = first..first + count;
        weights.push(weight.slice_rows(tensor.sibling(part), rows, file)?);
        first += count;
    }
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;
    use crate::hf::tests::{checkpoint, counted, shapes, weights_of};
    use serde_json::json;

    #[test]
    fn splits_fused_modules_in_place() {
        let qkv = (
            "model.layers.0.self_attn.qkv_proj.weight",
            "F32",
            4,
            [8, 3].as_slice(),
        );
        let gate_up = (
            "model.layers.0.mlp.gate_up_proj.weight",
            "F32",
            4,
            [4, 3].as_slice(),
        );
        let actual = shapes("phi3", &[qkv, gate_up]);
        let name = |module: &str| format!("blk.0.{module}.weight");
        let expected = [
            (name("attn_q"), [1, 4, 3], counted(0, 12)),
            (name("attn_k"), [1, 2, 3], counted(12, 6)),
            (name("attn_v"), [1, 2, 3], counted(18, 6)),
            (name("ffn_gate"), [1, 2, 3], counted(0, 6)),
            (name("ffn_up"), [1, 2, 3], counted(6, 6)),
        ];
        assert_eq!(actual, expected);
        let bias = ("transformer.h.1.attn.c_attn.bias", "F32", 4, [8].as_slice());
        let weight = (
            "transformer.h.1.attn.c_attn.weight",
            "F32",
            4,
            [3, 8].as_slice(),
        );
        let actual = shapes("gpt2", &[weight, bias]);
        let biases = actual.iter().filter(|(name, ..)| name.ends_with("bias"));
        let lengths: Vec<_> = biases
            .map(|(name, shape, _)| (name.as_str(), *shape))
            .collect();
        let expected = [
            ("blk.1.attn_q.bias", [1, 1, 4]),
            ("blk.1.attn_k.bias", [1, 1, 2]),
            ("blk.1.attn_v.bias", [1, 1, 2]),
        ];
        assert_eq!(lengths, expected);
    }

    #[test]
    fn rejects_a_fused_module_with_a_wrong_number_of_rows() {
        let file = checkpoint(&[(
            "model.layers.0.self_attn.qkv_proj.weight",
            "F32",
            4,
            &[9, 3],
        )]);
        let arch = arch::find("phi3").unwrap();
        let weights = weights_of(arch.name, &file, &json!({})).unwrap();
        let e = split(weights, &file, arch, &|_| [4, 2]).unwrap_err();
        let expected = "tensor model.layers.0.self_attn.qkv_proj.weight has 9 rows of 3 columns, \
            expected 8: 4 for attn_q, 2 for attn_k, 2 for attn_v";
        assert_eq!(e.message(), expected);
    }

    #[test]
    fn split_quantized_weights_keep_their_scales() {
        let file = checkpoint(&[
            (
                "model.layers.0.self_attn.qkv_proj.weight",
                "U32",
                4,
                &[8, 8],
            ),
            (
                "model.layers.0.self_attn.qkv_proj.scales",
                "F16",
                2,
                &[8, 2],
            ),
            (
                "model.layers.0.self_attn.qkv_proj.biases",
                "F16",
                2,
                &[8, 2],
            ),
        ]);
        let arch = arch::find("phi3").unwrap();
        let config = json!({ "quantization": { "group_size": 32, "bits": 4 } });
        let weights = weights_of(arch.name, &file, &config).unwrap();
        let whole = weights[0].clone();
        let parts = split(weights, &file, arch, &|_| [4, 2]).unwrap();
        let (k, all) = (
            parts[1].scales(&file).unwrap(),
            whole.scales(&file).unwrap(),
        );
        assert_eq!((parts[1].rows, parts[1].cols), (2, 64));
        assert_eq!(
            (k.bytes, k.biases),
            (&all.bytes[16..24], &all.biases[16..24])
        );
        let codes = whole.codes.bytes(&file);
        assert_eq!(parts[1].codes.bytes(&file), &codes[4 * 32..6 * 32]);
        let e = whole.slice_rows("x".into(), 7..9, &file).unwrap_err();
        assert!(
            e.message().contains("has 8 rows, expected rows 7 to 9"),
            "{e}"
        );
    }

    #[test]
    fn rejects_splitting_types_packed_across_rows() {
        let file = checkpoint(&[
            (
                "model.layers.0.self_attn.qkv_proj.weight",
                "U8",
                1,
                &[2, 32],
            ),
            (
                "model.layers.0.self_attn.qkv_proj.weight_scale",
                "F32",
                4,
                &[1],
            ),
        ]);
        let arch = arch::find("phi3").unwrap();
        let weights = weights_of(arch.name, &file, &json!({})).unwrap();
        let e = split(weights, &file, arch, &|_| [4, 2]).unwrap_err();
        assert!(
            e.message()
                .contains("is ternary, which is packed across rows"),
            "{e}"
        );
    }
}
