//! Tensors of speech models, with the names of OpenAI.

use super::source_tensor::{ComputedTensor, SourceTensor};
use super::tensor_plan::TensorPlan;
use crate::arch::{self, Config};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::format::{Directory, TensorInfo};
use crate::load::source::Opened;
use crate::load::speech_model;
use crate::load::speech_names::{self, ENCODER_POSITIONS};
use crate::load::weight::f32_bytes;

/// Returns the tensors of a speech model with the names of OpenAI. `computed` replaces tensors of the
/// file with the same name.
pub(super) fn tensors<'a>(
    model: &'a Opened,
    computed: &'a [ComputedTensor],
) -> Result<Vec<SourceTensor<'a>>> {
    let mut all = Vec::new();
    for tensor in &model.file.tensors {
        let Some(name) = speech_names::file_name(&tensor.name)? else {
            continue;
        };
        if computed.iter().any(|computed| computed.name == name) {
            continue;
        }
        let mut source = SourceTensor::of_tensor(&model.file, tensor)?;
        // A vector in every format, although ggml files have matrices of one column.
        if name.ends_with("bias") {
            source.dims = vec![source.dims.iter().product()];
        }
        source.name = name;
        all.push(source);
    }
    all.extend(computed.iter().map(SourceTensor::of_computed));
    Ok(all)
}

/// Returns the tensors of a speech model that differ between MLX files and others: convolutions, which
/// MLX stores with the channels innermost, and the positions of the encoder, which MLX files do not
/// contain. Empty for other models.
///
/// # Errors
///
/// `Unsupported` for a quantized convolution or an unexpected tensor.
pub(super) fn computed_tensors(model: &Opened) -> Result<Vec<ComputedTensor>> {
    let (file, mut computed) = (&model.file, Vec::new());
    if !model.is_speech()? {
        return Ok(computed);
    }
    let mut has_positions = false;
    for tensor in &file.tensors {
        let Some(name) = speech_names::file_name(&tensor.name)? else {
            continue;
        };
        has_positions |= name == ENCODER_POSITIONS;
        if name.contains(".conv")
            && let [channels, 3, rows] = tensor.dims[..]
            && channels != 3
        {
            computed.push(convolution(file, tensor, name, channels, rows)?);
        }
    }
    if !has_positions {
        let config = Config::read(&file.metadata)?;
        let arch = arch::find(&config.architecture)?;
        let config = config.validate(arch)?;
        let rows = config.speech.map_or(0, |encoder| encoder.context);
        computed.push(ComputedTensor {
            name: ENCODER_POSITIONS.to_string(),
            dims: vec![config.dim.into(), rows.into()],
            dtype: DType::F32,
            bytes: f32_bytes(&speech_model::sinusoids(rows, config.dim)),
        });
    }
    Ok(computed)
}

/// Transposes a convolution of an MLX file.
fn convolution(
    file: &Directory,
    tensor: &TensorInfo,
    name: String,
    channels: u64,
    rows: u64,
) -> Result<ComputedTensor> {
    let dtype = tensor.dtype.known();
    let dtype = dtype.filter(|dtype| matches!(dtype, DType::F32 | DType::F16 | DType::Bf16));
    let (Some(dtype), Ok(width)) = (dtype, usize::try_from(channels)) else {
        bail!(
            Unsupported,
            "tensor {}: expected a convolution of f32, f16 or bf16, got {}",
            tensor.name,
            tensor.dtype
        );
    };
    Ok(ComputedTensor {
        name,
        dims: vec![3, channels, rows],
        dtype,
        bytes: speech_model::taps_last(file.bytes(tensor), dtype.facts().bytes, width),
    })
}

/// Returns the number of rows of a tensor.
///
/// # Errors
///
/// `Format` if it is missing.
pub(super) fn rows(plans: &[TensorPlan<'_>], name: &str) -> Result<u32> {
    let plan = plans.iter().find(|plan| plan.tensor.name == name);
    match plan.and_then(|plan| u32::try_from(plan.tensor.matrix.rows).ok()) {
        Some(rows) => Ok(rows),
        None => bail!(Format, "tensor {name} is missing"),
    }
}
