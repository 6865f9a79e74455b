//! Fused modules: the rows of one tensor are several weights of a recipe.

use super::weight::Weight;
use crate::arch::Arch;
use crate::error::{Result, bail};
use crate::format::{Directory, Metadata, TensorInfo};
use std::collections::HashSet;
use std::ops::Range;

/// What a fused gate is called here, and in GGUF files, where nothing tells it from `ffn_up` but
/// that there is no `ffn_gate`.
pub(super) const FUSED_GATE: [&str; 2] = ["ffn_gate_up", "ffn_up"];

/// Modules of layers that files may have although the layer reads another's cache.
const SHARED: &[&str] = &["attn_k", "attn_v", "attn_k_norm"];

/// Takes the fused weights of this family apart, without a copy where their rows lie together.
/// `rows` are those of Q and of K of a layer.
///
/// # Errors
///
/// `Format` for rows that are not those of the parts, `Unsupported` for a type that cannot be
/// taken apart.
pub(super) fn split(
    weights: Vec<Weight>,
    file: &Directory,
    arch: &Arch,
    rows: &dyn Fn(u32) -> [u32; 2],
) -> Result<Vec<Weight>> {
    let names: HashSet<String> = weights.iter().map(|w| w.name.clone()).collect();
    let mut parts = Vec::new();
    for weight in weights {
        let fused = Place::of(&weight.name).and_then(|place| {
            let gate = place.sibling("ffn_gate");
            let module = match place.module {
                up if up == FUSED_GATE[1] && !names.contains(&gate) => FUSED_GATE[0],
                other => other,
            };
            let (_, found) = arch.fused.iter().find(|(fused, _)| *fused == module)?;
            Some((place, *found))
        });
        match fused {
            Some((place, found)) => parts.extend(apart(&weight, place, found, file, rows)?),
            None => parts.push(weight),
        }
    }
    Ok(parts)
}

/// The tensor that would hold this one among others, in a GGUF file that has other layers so.
pub(super) fn fused_name(tensors: &[TensorInfo], arch: &Arch, name: &str) -> Option<String> {
    let place = Place::of(name)?;
    let mut fused = arch.fused.iter();
    let (module, _) = fused.find(|(_, parts)| parts.contains(&place.module))?;
    let [gate, up] = FUSED_GATE;
    let module = if *module == gate { up } else { module };
    let mut places = tensors.iter().filter_map(|t| Place::of(&t.name));
    let known = places.any(|other| other.module == module);
    known.then(|| place.sibling(module))
}

/// Drops what the last layers have no use for where they share the keys and values of others.
///
/// # Errors
///
/// `Format` for keys that are no numbers.
pub(super) fn drop_shared(
    weights: &mut Vec<Weight>,
    metadata: &Metadata,
    arch: &Arch,
) -> Result<()> {
    let number = |key: &str| Ok(metadata.u32(&format!("{}.{key}", arch.name))?.unwrap_or(0));
    let shared = number("attention.shared_kv_layers")?;
    let first = number("block_count")?.saturating_sub(shared);
    weights.retain(|weight| {
        let own = |place: Place<'_>| {
            let layer: u32 = place.layer.parse().unwrap_or(0);
            layer < first || !SHARED.contains(&place.module)
        };
        shared == 0 || Place::of(&weight.name).is_none_or(own)
    });
    Ok(())
}

/// `blk.3.attn_qkv.weight`: layer, module, part.
#[derive(Clone, Copy)]
struct Place<'a> {
    layer: &'a str,
    module: &'a str,
    part: &'a str,
}

impl<'a> Place<'a> {
    fn of(name: &'a str) -> Option<Self> {
        let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
        let (module, part) = rest.split_once('.')?;
        Some(Self {
            layer,
            module,
            part,
        })
    }

    /// The same part of another module of the layer.
    fn sibling(self, module: &str) -> String {
        format!("blk.{}.{module}.{}", self.layer, self.part)
    }
}

fn apart(
    weight: &Weight,
    place: Place<'_>,
    parts: &[&str],
    file: &Directory,
    rows: &dyn Fn(u32) -> [u32; 2],
) -> Result<Vec<Weight>> {
    // A bias has an element for each row.
    let total = match weight.rows {
        1 => weight.cols,
        rows => rows / weight.stack,
    };
    // No layer has the number that does not fit, and none has rows.
    let [q, k] = rows(place.layer.parse().unwrap_or(u32::MAX));
    let rows = |part: &str| match part {
        "attn_q" => q,
        "attn_k" | "attn_v" => k,
        _ => total / 2,
    };
    let counts: Vec<u32> = parts.iter().map(|part| rows(part)).collect();
    let wanted = counts.iter().map(|n| u64::from(*n)).sum::<u64>();
    if wanted != u64::from(total) {
        let list: Vec<_> = parts
            .iter()
            .zip(&counts)
            .map(|(p, n)| format!("{n} of {p}"))
            .collect();
        bail!(
            Format,
            "tensor {} has {total} rows of {} columns, wanted {wanted}: {}",
            weight.tensor(file),
            weight.cols,
            list.join(", ")
        );
    }
    let mut first = 0;
    let mut found = Vec::new();
    for (part, count) in parts.iter().zip(counts) {
        let rows = first..first + count;
        found.push(one_part(weight, place.sibling(part), rows, total, file)?);
        first += count;
    }
    Ok(found)
}

/// Rows of each of a weight's matrices, which have `each` rows.
fn one_part(
    weight: &Weight,
    name: String,
    rows: Range<u32>,
    each: u32,
    file: &Directory,
) -> Result<Weight> {
    if weight.stack == 1 {
        return weight.stretch(name, rows, file);
    }
    let of = |n: u32| n * each + rows.start..n * each + rows.end;
    let experts = (0..weight.stack).map(|n| weight.stretch(name.clone(), of(n), file));
    Weight::stacked(name.clone(), &experts.collect::<Result<Vec<_>>>()?, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;
    use crate::load::hf::tests::{checkpoint, counted, shapes, weights_of};
    use serde_json::json;

    #[test]
    fn fused_modules_are_taken_apart_in_place() {
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
        let found = shapes("phi3", &[qkv, gate_up]);
        let name = |module: &str| format!("blk.0.{module}.weight");
        let wanted = [
            (name("attn_q"), [1, 4, 3], counted(0, 12)),
            (name("attn_k"), [1, 2, 3], counted(12, 6)),
            (name("attn_v"), [1, 2, 3], counted(18, 6)),
            (name("ffn_gate"), [1, 2, 3], counted(0, 6)),
            (name("ffn_up"), [1, 2, 3], counted(6, 6)),
        ];
        assert_eq!(found, wanted);
        let bias = ("transformer.h.1.attn.c_attn.bias", "F32", 4, [8].as_slice());
        let weight = (
            "transformer.h.1.attn.c_attn.weight",
            "F32",
            4,
            [3, 8].as_slice(),
        );
        let found = shapes("gpt2", &[weight, bias]);
        let biases = found.iter().filter(|(name, ..)| name.ends_with("bias"));
        let lengths: Vec<_> = biases
            .map(|(name, shape, _)| (name.as_str(), *shape))
            .collect();
        let wanted = [
            ("blk.1.attn_q.bias", [1, 1, 4]),
            ("blk.1.attn_k.bias", [1, 1, 2]),
            ("blk.1.attn_v.bias", [1, 1, 2]),
        ];
        assert_eq!(lengths, wanted);
    }

    #[test]
    fn a_fused_module_has_the_rows_of_its_parts() {
        let file = checkpoint(&[(
            "model.layers.0.self_attn.qkv_proj.weight",
            "F32",
            4,
            &[9, 3],
        )]);
        let arch = arch::find("phi3").unwrap();
        let found = weights_of(arch.name, &file, &json!({})).unwrap();
        let e = split(found, &file, arch, &|_| [4, 2]).unwrap_err();
        let wanted = "tensor model.layers.0.self_attn.qkv_proj.weight has 9 rows of 3 columns, \
            wanted 8: 4 of attn_q, 2 of attn_k, 2 of attn_v";
        assert_eq!(e.message(), wanted);
    }

    #[test]
    fn parts_of_quantized_matrices_keep_their_scales() {
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
        let found = weights_of(arch.name, &file, &config).unwrap();
        let whole = found[0].clone();
        let parts = split(found, &file, arch, &|_| [4, 2]).unwrap();
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
        let e = whole.stretch("x".into(), 7..9, &file).unwrap_err();
        assert!(e.message().contains("has 8 rows, wanted 7 to 9"), "{e}");
    }

    #[test]
    fn codes_that_run_over_rows_are_not_taken_apart() {
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
        let found = weights_of(arch.name, &file, &json!({})).unwrap();
        let e = split(found, &file, arch, &|_| [4, 2]).unwrap_err();
        assert!(
            e.message()
                .contains("is ternary, whose codes run over rows"),
            "{e}"
        );
    }
}
