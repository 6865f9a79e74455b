//! Weights of recurrent layers, whose form differs between files.

use super::row_order::RowOrder;
use super::weight::{Data, Weight, f32_bytes, floats};
use crate::arch::{Config, DeltaNet, FUSED_BY_KEY_HEAD};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::format::{Directory, TensorInfo};
use crate::plan::builder::{DeltaHeads, SsmHeads};

/// Norm of the output, which has no offset in any file.
pub(super) const NORM: &str = "ssm_norm";

/// Convolutions: `[channels, taps]` in GGUF files.
const CONVS: [&str; 2] = [".ssm_conv1d.weight", ".shortconv.conv.weight"];

/// Vectors, which are matrices in some files.
const VECTORS: [&str; 3] = [".ssm_a", ".ssm_d", ".ssm_norm.weight"];

/// Decay rates, of which Hugging Face stores `ln(-a)`.
const RATE: &str = ".ssm_a";

/// Ends of the names of convolutions in checkpoints.
const CHECKPOINT_CONVS: [&str; 2] = [".conv1d.weight", ".conv.conv.weight"];

/// Norm before the feed-forward part of layers with attention and a state, in GGUF files, and in other models.
const FFN_NORM: (&str, &str) = (".ffn_norm", ".ffn_norm.weight");

/// Names in some GGUF files, and those of others.
const ALIASES: [(&str, &str); 2] = [(".ssm_dt", ".ssm_dt.bias"), FFN_NORM];

/// Returns whether the checkpoint was converted by `mlx-lm`, which stores convolutions as `[channels, taps, 1]` and
/// norms without an offset; Hugging Face stores `[channels, 1, taps]`.
pub(super) fn is_converted(file: &Directory) -> bool {
    let conv = file
        .tensors
        .iter()
        .find(|t| has_end(&t.name, &CHECKPOINT_CONVS));
    conv.is_some_and(is_of_mlx)
}

/// Returns whether a name has one of these ends.
fn has_end(name: &str, ends: &[&str]) -> bool {
    ends.iter().any(|end| name.ends_with(end))
}

/// Returns whether a convolution is `[channels, taps, 1]`; dimensions of `TensorInfo` are in reverse order.
fn is_of_mlx(tensor: &TensorInfo) -> bool {
    matches!(*tensor.dims, [1, taps, _] if taps > 1)
}

/// Converts a weight of a checkpoint to the form of GGUF files.
///
/// # Errors
///
/// `Unsupported` for a quantized tensor.
pub(super) fn in_gguf_form(weight: Weight, file: &Directory) -> Result<Weight> {
    let tensor = &file.tensors[weight.codes.tensor];
    if has_end(&weight.name, &CONVS) {
        let shape = match *tensor.dims {
            [taps, 1, channels] | [1, taps, channels] => [channels, taps],
            [taps, channels] => [channels, taps],
            _ => bail!(
                Format,
                "tensor {}: expected a convolution [channels, 1, taps], got shape {:?}",
                tensor.name,
                tensor.dims
            ),
        };
        let [rows, cols] = shape.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        return Ok(Weight {
            dtype: DType::F32,
            rows,
            cols,
            stack: 1,
            codes: Data::computed(weight.codes.tensor, f32_bytes(&floats(file, tensor)?)),
            ..weight
        });
    }
    if weight.name.ends_with(RATE) {
        let rates: Vec<f32> = floats(file, tensor)?.iter().map(|a| -a.exp()).collect();
        return Ok(Weight {
            dtype: DType::F32,
            codes: Data::computed(weight.codes.tensor, f32_bytes(&rates)),
            ..weight
        });
    }
    Ok(weight)
}

/// Returns the shape that GGUF files give a vector of a state-space model, fastest dimension first; `None` for other
/// tensors.
pub fn gguf_shape(name: &str, at: &SsmHeads) -> Option<[u64; 2]> {
    let groups = u64::from(at.groups);
    if has_end(name, &[".ssm_a", ".ssm_d"]) {
        return Some([1, at.heads.into()]);
    }
    let norm = name.ends_with(".ssm_norm.weight");
    norm.then(|| [u64::from(at.width()) / groups, groups])
}

/// Returns the order of the rows and of the columns of a tensor that puts interleaved value heads in the
/// place of those of a checkpoint.
pub fn value_head_order(name: &str, delta: &DeltaNet) -> [RowOrder; 2] {
    let at = delta.at;
    let order = |first: u32, size: u32| RowOrder::ValueHeads {
        first: first as usize,
        key_heads: at.key_heads as usize,
        values: (at.heads / at.key_heads) as usize,
        size: size as usize,
    };
    let layer_tensor = name
        .strip_prefix("blk.")
        .and_then(|name| name.split_once('.'));
    let rows = match layer_tensor.map_or("", |(_, kind)| kind) {
        "attn_qkv.weight" | "ssm_conv1d.weight" => {
            order(2 * at.key_heads * at.key_dim, at.value_dim)
        }
        "attn_gate.weight" => order(0, at.value_dim),
        "ssm_alpha.weight" | "ssm_beta.weight" | "ssm_a" | "ssm_dt.bias" => order(0, 1),
        "ssm_out.weight" => return [RowOrder::Same, order(0, at.value_dim)],
        _ => RowOrder::Same,
    };
    [rows, RowOrder::Same]
}

/// Splits the projections that are interleaved by key head.
///
/// # Errors
///
/// `Format` for a wrong number of rows, `Unsupported` for a type that cannot be split.
pub fn split_by_key_head(
    weights: Vec<Weight>,
    config: &Config,
    file: &Directory,
) -> Result<Vec<Weight>> {
    let Some(delta) = config.recurrent.and_then(|recurrent| recurrent.delta()) else {
        return Ok(weights);
    };
    let mut split = Vec::with_capacity(weights.len());
    for weight in weights {
        let module = weight.name.strip_suffix(".weight");
        let fused = module.and_then(|module| {
            let (layer, kind) = module.rsplit_once('.')?;
            let mut all = FUSED_BY_KEY_HEAD.iter();
            let (_, parts) = all.find(|(fused, _)| *fused == kind)?;
            Some((layer, *parts))
        });
        match fused {
            Some((layer, parts)) => {
                split_weight(&weight, layer, parts, &delta, file, &mut split)?;
            }
            None => split.push(weight),
        }
    }
    Ok(split)
}

fn split_weight(
    weight: &Weight,
    layer: &str,
    parts: &[&str],
    delta: &DeltaNet,
    file: &Directory,
    split: &mut Vec<Weight>,
) -> Result<()> {
    let DeltaHeads {
        key_heads,
        heads,
        key_dim,
        value_dim,
        ..
    } = delta.at;
    let values = heads / key_heads;
    let width = values * value_dim;
    // Row counts of a key head in each part.
    let counts: [&[u32]; 2] = match parts.contains(&"attn_qkv") {
        true => [&[key_dim, key_dim, width], &[width]],
        false => [&[values], &[values]],
    };
    let head: u32 = counts.iter().copied().flatten().sum();
    if weight.rows != head * key_heads {
        bail!(
            Format,
            "tensor {} has {} rows, expected {head} for each of {key_heads} key heads",
            weight.tensor(file),
            weight.rows
        );
    }
    let mut first = 0;
    for (part, counts) in parts.iter().zip(counts) {
        let mut ranges = Vec::new();
        for count in counts {
            ranges.extend((0..key_heads).map(|h| h * head + first..h * head + first + count));
            first += count;
        }
        let name = format!("{layer}.{part}.weight");
        split.push(weight.gathered(&name, ranges.into_iter(), file)?);
    }
    Ok(())
}

/// Replaces names of other programs, and gives vectors that are matrices in some files a single row.
pub fn unify(weight: &mut Weight) {
    if has_end(&weight.name, &VECTORS) {
        (weight.rows, weight.cols) = (1, weight.rows.saturating_mul(weight.cols));
    }
    let mut aliases = ALIASES.iter();
    if let Some((alias, name)) = aliases.find(|(alias, _)| weight.name.ends_with(alias)) {
        let layer = weight.name.strip_suffix(alias).unwrap_or_default();
        weight.name = format!("{layer}{name}");
    }
}

/// Returns the name in GGUF files of a tensor of a model whose layers have attention and a state, if it differs from
/// that of other models.
pub fn name_next_to_attention(name: &str) -> Option<String> {
    let layer = name.strip_suffix(FFN_NORM.1)?;
    Some(format!("{layer}{}", FFN_NORM.0))
}

/// Converts a weight to the form that kernels read: convolutions are vectors of `[taps, channels]` in F32.
///
/// # Errors
///
/// `Unsupported` for a quantized convolution.
pub(super) fn in_kernel_form(mut weight: Weight, file: &Directory) -> Result<Weight> {
    unify(&mut weight);
    if has_end(&weight.name, &CONVS) {
        if weight.dtype != DType::F32 {
            let tensor = &file.tensors[weight.codes.tensor];
            weight.codes = Data::computed(weight.codes.tensor, f32_bytes(&floats(file, tensor)?));
            weight.dtype = DType::F32;
        }
        let weight = weight.transposed(file)?;
        return Ok(Weight {
            rows: 1,
            cols: weight.rows * weight.cols,
            ..weight
        });
    }
    Ok(weight)
}
