//! LoRA adapters in GGUF files of llama.cpp.
//!
//! Tensors have the name of the weight with the suffix `.lora_a` or `.lora_b`. The scale is
//! `adapter.lora.alpha / rank`; without a value, or with 0, it is 1. Rows of Q and K have the order
//! of a GGUF file of the model.

use super::base::AdapterBase;
use super::pair::{Pairs, Role, Target};
use crate::error::{Context, Result, bail};
use crate::format::{self, Directory, Metadata};
use crate::model::AdapterModule;
use std::path::Path;

const ALPHA: &str = "adapter.lora.alpha";
/// Tokens after which an activated LoRA applies.
const INVOCATION: &str = "adapter.alora.invocation_tokens";

/// Reads the modules of a file.
pub(super) fn read(path: &Path, base: &AdapterBase<'_>) -> Result<Vec<AdapterModule>> {
    let file = format::open(path)?;
    let modules = modules(&file, base).context(path.display())?;
    // Pages that were missing were read as zeros.
    file.check_unchanged()?;
    Ok(modules)
}

/// Returns the modules of an open file.
pub(super) fn modules(file: &Directory, base: &AdapterBase<'_>) -> Result<Vec<AdapterModule>> {
    check_metadata(&file.metadata, base)?;
    let alpha = f64::from(file.metadata.f32(ALPHA)?.unwrap_or(0.0));
    let mut pairs = Pairs::default();
    for tensor in &file.tensors {
        let name = tensor.name.as_str();
        let a = name.strip_suffix(".lora_a").map(|weight| (weight, Role::A));
        let b = || name.strip_suffix(".lora_b").map(|weight| (weight, Role::B));
        let Some((weight, role)) = a.or_else(b) else {
            bail!(
                Unsupported,
                "tensor {name}: expected a name that ends in .lora_a or .lora_b"
            );
        };
        pairs.add(weight, role, tensor)?;
    }
    let mut modules = Vec::new();
    for pair in pairs.complete()? {
        let (layer, kind) = weight_of(pair.module)?;
        let rank = f64::from(pair.rank()?);
        let target = Target {
            layer,
            kind: kind.to_string(),
            scale: if alpha == 0.0 { 1.0 } else { alpha / rank },
            half_split: !base.arch.permutes_heads(),
        };
        modules.extend(pair.modules(&target, file, base)?);
    }
    Ok(modules)
}

fn check_metadata(metadata: &Metadata, base: &AdapterBase<'_>) -> Result<()> {
    for (key, expected) in [("general.type", "adapter"), ("adapter.type", "lora")] {
        match metadata.str(key)? {
            Some(value) if value == expected => {}
            Some(value) => bail!(Unsupported, "{key} is {value:?}, expected {expected:?}"),
            None => bail!(Format, "{key} is missing, expected {expected:?}"),
        }
    }
    let arch = metadata.str("general.architecture")?.unwrap_or_default();
    if arch != base.arch.name {
        bail!(
            Argument,
            "the adapter belongs to a model of architecture {arch:?}, the model has {:?}",
            base.arch.name
        );
    }
    let tokens = metadata.get(INVOCATION).and_then(|v| v.array());
    if tokens.is_some_and(|tokens| !tokens.is_empty()) {
        bail!(Unsupported, "{INVOCATION}: activated LoRA is not supported");
    }
    Ok(())
}

/// Returns layer and module of a weight: 3 and `attn_q` for `blk.3.attn_q.weight`.
fn weight_of(weight: &str) -> Result<(u32, &str)> {
    let in_layer = weight.strip_prefix("blk.").and_then(|rest| {
        let (layer, kind) = rest.strip_suffix(".weight")?.split_once('.')?;
        Some((layer.parse().ok()?, kind))
    });
    match in_layer {
        Some((_, kind)) if kind.ends_with("_exps") => bail!(
            Unsupported,
            "module {weight}: LoRA of experts is not supported"
        ),
        Some(found) => Ok(found),
        None => bail!(
            Unsupported,
            "module {weight}: expected a weight of a layer, such as blk.0.attn_q.weight; LoRA of \
             embeddings and the output projection is not supported"
        ),
    }
}
