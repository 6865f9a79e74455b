//! LoRA adapters of `peft`: a folder with `adapter_config.json` and `adapter_model.safetensors`.
//!
//! Matrices have the names of the modules of Hugging Face and the order of its weights. `Conv1D`
//! modules, whose weights are stored as `[in, out]`, have matrices like those of linear modules.

use super::base::AdapterBase;
use super::pair::{Pairs, Role, Target};
use super::peft_config::PeftConfig;
use crate::error::{Context, Result, bail};
use crate::format::{self, Directory};
use crate::hf;
use crate::model::AdapterModule;
use std::path::Path;

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
/// Weights as a pickle.
const PICKLE: &str = "adapter_model.bin";

/// Prefix of the names of modules: the classes of `peft` that contain the model.
const PREFIX: &str = "base_model.model.";

/// Maximum size of the configuration in bytes.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// Reads the modules of a folder.
pub(super) fn read(folder: &Path, base: &AdapterBase<'_>) -> Result<Vec<AdapterModule>> {
    let path = folder.join(CONFIG);
    let Some(text) = format::read_text(&path, CONFIG_BYTES_MAX)? else {
        bail!(
            Io,
            "{}: no such file; an adapter of peft has it next to {WEIGHTS}",
            path.display()
        );
    };
    let config = PeftConfig::parse(&text).context(path.display())?;
    let path = folder.join(WEIGHTS);
    if !path.exists() && folder.join(PICKLE).exists() {
        bail!(
            Unsupported,
            "{}: pickles can execute code; convert it to {WEIGHTS}",
            folder.join(PICKLE).display()
        );
    }
    let file = format::open(&path)?;
    let modules = modules(&file, &config, base).context(path.display())?;
    // Pages that were missing were read as zeros.
    file.check_unchanged()?;
    Ok(modules)
}

/// Returns the modules of an open file.
pub(super) fn modules(
    file: &Directory,
    config: &PeftConfig,
    base: &AdapterBase<'_>,
) -> Result<Vec<AdapterModule>> {
    let mut pairs = Pairs::default();
    for tensor in &file.tensors {
        let (module, role) = matrix_of(&tensor.name)?;
        pairs.add(module, role, tensor)?;
    }
    let mut modules: Vec<AdapterModule> = Vec::new();
    for pair in pairs.complete()? {
        let (layer, kind) = target_of(pair.module, base)?;
        let (rank, expected) = (pair.rank()?, config.rank(pair.module)?);
        if rank != expected {
            bail!(
                Format,
                "module {}: rank {rank}, expected {expected} as in {CONFIG}",
                pair.module
            );
        }
        let target = Target {
            layer,
            kind,
            scale: config.scale(pair.module, rank)?,
            half_split: true,
        };
        for module in pair.modules(&target, file, base)? {
            if modules.iter().any(|other| other.tensor == module.tensor) {
                bail!(
                    Format,
                    "module {}: another module maps to {} too",
                    pair.module,
                    module.tensor
                );
            }
            modules.push(module);
        }
    }
    Ok(modules)
}

/// Returns the module and the role of a tensor, such as
/// `base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight`. The name of the adapter can
/// follow `lora_A`.
fn matrix_of(tensor: &str) -> Result<(&str, Role)> {
    let refused = [
        (".lora_embedding_", "LoRA of embeddings"),
        (".lora_magnitude_vector", "DoRA"),
        (".modules_to_save.", "modules that are stored whole"),
        (".token_adapter.", "trained tokens"),
    ];
    if let Some((_, what)) = refused.iter().find(|(part, _)| tensor.contains(part)) {
        bail!(Unsupported, "tensor {tensor}: {what} is not supported");
    }
    let matrix = [(".lora_A.", Role::A), (".lora_B.", Role::B)];
    let found = matrix.iter().find_map(|(part, role)| {
        let (module, rest) = tensor.split_once(part)?;
        let weight = rest == "weight" || rest.strip_suffix(".weight")?.find('.').is_none();
        weight.then_some((module, *role))
    });
    match found {
        Some((module, role)) => Ok((module.strip_prefix(PREFIX).unwrap_or(module), role)),
        None => bail!(
            Unsupported,
            "unexpected tensor {tensor}: expected a name that ends in .lora_A.weight or \
             .lora_B.weight"
        ),
    }
}

/// Returns layer and GGUF name of a module of Hugging Face.
fn target_of(module: &str, base: &AdapterBase<'_>) -> Result<(u32, String)> {
    let Some(gguf) = hf::to_gguf(base.arch, module) else {
        bail!(
            Argument,
            "module {module} is not part of the architecture {:?}",
            base.arch.name
        );
    };
    if gguf.expert.is_some() || gguf.name.ends_with("_exps") {
        bail!(
            Unsupported,
            "module {module}: LoRA of experts is not supported"
        );
    }
    let in_layer = gguf.name.strip_prefix("blk.").and_then(|rest| {
        let (layer, kind) = rest.split_once('.')?;
        Some((layer.parse().ok()?, kind.to_string()))
    });
    match in_layer {
        Some(found) => Ok(found),
        None => bail!(
            Unsupported,
            "module {module}: LoRA of embeddings and the output projection is not supported, only of \
             modules of layers"
        ),
    }
}
