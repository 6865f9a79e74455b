//! LoRA adapters that are merged into the written weights.

use super::source_tensor::SourceTensor;
use super::tensor_plan::TensorPlan;
use crate::arch::{self, Arch, Config};
use crate::dtype::DType;
use crate::error::{Context, Result, bail};
use crate::load::adapter::{self, AdapterBase, Merge};
use crate::load::source::Opened;
use crate::load::split;
use crate::model::AdapterWeights;
use crate::quant;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;

/// Types of ternary weights, which a model multiplies with int8 activations.
const TERNARY: [DType; 4] = [DType::I2S, DType::Ternary, DType::Tq1_0, DType::Tq2_0];

const SUFFIX: &str = ".weight";

/// The rows of a tensor that are a weight of the model.
struct Part {
    /// Index of the tensor.
    tensor: usize,
    rows: Range<u32>,
    cols: u32,
}

/// Reads the adapters for the model of these tensors, with their factors.
///
/// # Errors
///
/// As [`adapter::read`]; `Argument` for a factor that is not finite, `Unsupported` for a speech model
/// and a model of ternary weights.
pub(super) fn read(
    model: &Opened,
    tensors: &[SourceTensor<'_>],
    lora: &[(PathBuf, f32)],
) -> Result<Vec<(AdapterWeights, f32)>> {
    if lora.is_empty() {
        return Ok(Vec::new());
    }
    if let Some((path, scale)) = lora.iter().find(|(_, scale)| !scale.is_finite()) {
        bail!(
            Argument,
            "{}: the scale of the adapter is {scale}, expected a finite number",
            path.display()
        );
    }
    if model.is_speech()? {
        bail!(Unsupported, "adapters of speech models are not supported");
    }
    let (arch, config) = config_of(model)?;
    if arch.ternary {
        bail!(
            Unsupported,
            "adapters cannot be merged into ternary weights of the architecture {:?}",
            arch.name
        );
    }
    let parts = parts(arch, &config, tensors)?;
    let base = AdapterBase {
        arch,
        layers: &config.layer_configs,
        // As in the catalog: only GGUF files may store permuted Q and K.
        half_split: !arch.permutes_heads() || model.folder.is_some(),
        shape: &|name| {
            let part = parts.get(name)?;
            Some([part.rows.end - part.rows.start, part.cols])
        },
    };
    let read = |(path, scale): &(PathBuf, f32)| Ok((adapter::read(path, &base)?, *scale));
    lora.iter().map(read).collect()
}

/// Sets the adapter modules of each tensor.
///
/// # Errors
///
/// `Format` for fused tensors with a wrong number of rows.
pub(super) fn assign<'a>(
    model: &Opened,
    tensors: &mut [SourceTensor<'a>],
    adapters: &'a [(AdapterWeights, f32)],
) -> Result<()> {
    if adapters.is_empty() {
        return Ok(());
    }
    let (arch, config) = config_of(model)?;
    let parts = parts(arch, &config, tensors)?;
    for (adapter, scale) in adapters {
        for module in &adapter.modules {
            let Some(part) = parts.get(&module.tensor) else {
                bail!(
                    Internal,
                    "adapter {}: no tensor {}",
                    adapter.name,
                    module.tensor
                );
            };
            tensors[part.tensor].merges.push(Merge {
                module,
                scale: *scale,
                first_row: part.rows.start as usize,
            });
        }
    }
    Ok(())
}

/// Rejects a tensor with adapter modules that cannot be decoded, or encoded as its new type.
///
/// # Errors
///
/// `Unsupported`, with the type.
pub(super) fn check_target(plan: &TensorPlan<'_>) -> Result<()> {
    let TensorPlan { tensor, to, .. } = plan;
    if tensor.merges.is_empty() {
        return Ok(());
    }
    let from = tensor.dtype.known();
    let Some(from) = from.filter(|from| !TERNARY.contains(from)) else {
        bail!(
            Unsupported,
            "tensor {}: an adapter cannot be merged into weights of type {}",
            tensor.name,
            tensor.dtype
        );
    };
    match to.known() {
        Some(to) if quant::encoder(to).is_some() => Ok(()),
        _ => bail!(
            Unsupported,
            "tensor {}: {to} cannot be encoded after an adapter is merged into {from}; set another \
             type, such as F16 or Q8_0",
            tensor.name
        ),
    }
}

fn config_of(model: &Opened) -> Result<(&'static Arch, Config)> {
    let config = Config::read(&model.file.metadata)?;
    let arch = arch::find(&config.architecture)?;
    let config = config.validate(arch).context("adapter")?;
    Ok((arch, config))
}

/// Returns the weights of the model by name without suffix, with fused tensors split.
fn parts(
    arch: &Arch,
    config: &Config,
    tensors: &[SourceTensor<'_>],
) -> Result<HashMap<String, Part>> {
    let names: HashSet<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
    let has = |name: &str| names.contains(name);
    let rows = |layer: u32| {
        let layer = config.layer_configs.get(layer as usize);
        layer.map_or([0; 2], |l| [l.q_dim(), l.kv_dim()])
    };
    let mut parts = HashMap::new();
    for (index, tensor) in tensors.iter().enumerate() {
        let [Ok(cols), Ok(total)] = [0, 1].map(|at| {
            let dim = tensor.dims.get(at).copied().unwrap_or(0);
            u32::try_from(dim)
        }) else {
            continue;
        };
        if tensor.dims.len() != 2 || !tensor.name.ends_with(SUFFIX) {
            continue;
        }
        let split = split::parts(arch, &tensor.name, total, &has, &rows);
        let end = split.last().map_or(0, |(_, rows)| rows.end);
        if end != total {
            bail!(
                Format,
                "tensor {} has {total} rows, expected {end}",
                tensor.name
            );
        }
        for (name, rows) in split {
            let name = name.strip_suffix(SUFFIX).unwrap_or(&name).to_string();
            let part = Part {
                tensor: index,
                rows,
                cols,
            };
            parts.insert(name, part);
        }
    }
    Ok(parts)
}
