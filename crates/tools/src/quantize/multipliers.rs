//! Multiplies weights by the multipliers of a checkpoint (Falcon-H1), which GGUF files have in their weights.

use super::mix::{EMBEDDING, OUTPUT_MATRIX};
use super::source_tensor::SourceTensor;
use crate::arch::{Config, PROJECTION_SCALE, Recurrent};
use crate::error::Result;
use crate::load::source::Opened;
use crate::load::weight::Weight;

/// Input projection of a state-space model.
const INPUT_PROJECTION: &str = "ssm_in";

/// Keys of multipliers that weights contain after [`fold`]; those of projections begin with [`PROJECTION_SCALE`].
const FOLDED: [&str; 2] = ["embedding_scale", "logit_scale"];

/// Returns whether a model has multipliers that GGUF files have in their weights.
pub(super) fn are_present(config: &Config) -> bool {
    let scales = match config.recurrent {
        Some(Recurrent::Ssm(ssm)) => ssm.scales,
        _ => [1.0; 5],
    };
    !config.scales.projections.is_empty() || scales != [1.0; 5]
}

/// Returns whether weights contain the value of a key, without the prefix of the architecture, after [`fold`].
pub(super) fn is_folded(key: &str) -> bool {
    FOLDED.contains(&key) || key.starts_with(PROJECTION_SCALE)
}

/// Sets the factors of the rows of all tensors. A tied output projection, whose factor differs from that of the
/// embedding, becomes a tensor of its own.
pub(super) fn fold<'a>(
    tensors: &mut Vec<SourceTensor<'a>>,
    config: &Config,
    model: &'a Opened,
    weights: &'a [Weight],
) -> Result<()> {
    if !tensors.iter().any(|tensor| tensor.name == OUTPUT_MATRIX)
        && let Some(embedding) = weights.iter().find(|weight| weight.name == EMBEDDING)
    {
        tensors.push(SourceTensor {
            name: OUTPUT_MATRIX.to_string(),
            ..SourceTensor::of_weight(&model.file, embedding)?
        });
    }
    for tensor in tensors.iter_mut().filter(|tensor| tensor.dims.len() > 1) {
        let name = tensor.name.strip_suffix(".weight").unwrap_or(&tensor.name);
        let module = name.rsplit('.').next().unwrap_or(name);
        let rows = tensor.matrix.rows;
        tensor.row_factors = match (tensor.name.as_str(), config.recurrent) {
            (EMBEDDING, _) => vec![config.scales.embedding; rows],
            (OUTPUT_MATRIX, _) => vec![1.0 / config.output.logit_scale; rows],
            (_, Some(Recurrent::Ssm(ssm))) if module == INPUT_PROJECTION => {
                let (width, keys) = (ssm.at.width(), ssm.at.groups * ssm.at.key_dim);
                let sections = [width, width, keys, keys, ssm.at.heads];
                let parts = sections.into_iter().zip(ssm.scales);
                parts
                    .flat_map(|(rows, factor)| vec![factor; rows as usize])
                    .collect()
            }
            _ => vec![config.projection_scale(module); rows],
        };
        if tensor.row_factors.iter().all(|factor| *factor == 1.0) {
            tensor.row_factors.clear();
        }
    }
    Ok(())
}
