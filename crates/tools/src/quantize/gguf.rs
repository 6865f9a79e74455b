//! Quantizes a model: writes it as a GGUF file in other storage types.

use super::mix::{self, ModelTraits, QuantMix};
use super::source_tensor::{self, ComputedTensor, SourceTensor};
use super::tensor_plan::TensorPlan;
use super::{exact, ggml, keys, lora, multipliers, speech_tensors};
use crate::arch::{self, MixerRule};
use crate::dtype::DType;
use crate::error::{Context, Error, ErrorKind, Result, bail};
use crate::format::write::{Body, Writer};
use crate::format::{Importance, TensorType};
use crate::load::recurrent;
use crate::load::row_order::RowOrder;
use crate::load::rows::{EncodedChunk, Target};
use crate::load::source::{Opened, Source, detect, open};
use crate::load::tensor_scales::{SCALE, TensorScales};
use crate::load::weight::Weight;
use crate::output::Output;
use crate::quant;
use std::collections::HashSet;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tabla_core::reserve::threads;

tabla_core::options! {
    /// Options of [`quantize`](crate::quantize()).
    pub struct QuantizeOptions<'a> {
        /// Quantization mix, which sets the type of each tensor. `None` keeps the types that GGUF
        /// supports and converts others to the smallest type that has all of their values, ternary weights of
        /// Hugging Face checkpoints to `I2_S`.
        pub mix: Option<&'static QuantMix>,
        /// Type of the output projection; overrides the mix.
        pub output: Option<DType>,
        /// Type of the token embedding; overrides the mix.
        pub embedding: Option<DType>,
        /// Returns the type of the matrix with this name to override the mix.
        pub choose: &'a dyn Fn(&str) -> Option<DType>,
        /// Importance matrix: weights of quantization errors, per column.
        pub importance: Option<&'a Importance>,
        /// LoRA adapters to merge into the weights: a folder of `peft` or a GGUF file, and the factor of
        /// its change.
        pub lora: Vec<(PathBuf, f32)>,
        /// Number of threads; 0 uses every core.
        pub threads: u32,
    }
}

impl Default for QuantizeOptions<'_> {
    /// Keeps the types that GGUF supports.
    fn default() -> Self {
        Self {
            mix: None,
            output: None,
            embedding: None,
            choose: &|_| None,
            importance: None,
            lora: Vec::new(),
            threads: 0,
        }
    }
}

/// Result of [`quantize`](crate::quantize()) and [`export`](crate::export()).
#[derive(Clone, Debug)]
pub struct ConversionReport {
    /// The written tensors.
    pub tensors: Vec<TensorReport>,
    /// Parts of the model that were not written, with reasons, and tensors that became larger.
    pub notes: Vec<String>,
}

/// Result of converting a tensor.
#[derive(Clone, Debug)]
pub struct TensorReport {
    /// Name in the new file.
    pub name: String,
    /// Original type.
    pub from: TensorType,
    /// New type.
    pub to: TensorType,
    /// Requested type, if its blocks do not fit the rows.
    pub requested: Option<DType>,
    /// Number of elements.
    pub elements: u64,
    /// Original size in bytes.
    pub bytes_before: u64,
    /// New size in bytes.
    pub bytes: u64,
    /// Root mean square of the error, relative to that of the original values.
    pub error: f64,
    /// Whether an importance matrix was used.
    pub weighted: bool,
}

/// Keys that are rewritten or become invalid.
const REPLACED: [&str; 6] = [
    "general.alignment",
    "general.file_type",
    "general.quantization_version",
    "split.no",
    "split.count",
    "split.tensors.count",
];

/// Keys whose lists are stored as tensors in GGUF files.
const LISTS: [&str; 2] = [".rope.scaling.long_factor", ".rope.scaling.short_factor"];

/// Keys that only checkpoints have.
const CHECKPOINT_KEYS: [&str; 4] = [
    arch::INTERLEAVED_HEADS,
    arch::TIME_STEP_LIMIT,
    arch::NORM_BEFORE_GATE,
    arch::SSM_SCALES,
];

/// Version of ggml's block formats since 2023.
const QUANTIZATION_VERSION: u32 = 2;

/// Writes the model of `source` to `path` in other storage types.
///
/// The file is replaced only when the new one is complete; an error leaves an existing file
/// unchanged. `progress` receives the number of processed elements and the total, and can cancel.
///
/// # Errors
///
/// As [`open_directory`](crate::open_directory); `Argument` for a type without an encoder, and if
/// `path` is a file of the source; `Unsupported` for a ggml file (`.bin`)
/// of a model that is no speech model, and for an adapter that cannot be merged; `Format` for a value
/// that is not finite; `Io` if writing fails; `Cancelled` if `progress` cancels.
pub fn quantize(
    source: &Source,
    path: &Path,
    options: &QuantizeOptions<'_>,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<ConversionReport> {
    let model = open(source, detect(source)?)?.uncompiled()?;
    if ggml::is_ggml(path) && !model.is_speech()? {
        bail!(
            Unsupported,
            "{}: ggml files are written of speech models only; expected a name that ends in .gguf",
            path.display()
        );
    }
    let weights = model.scaled_weights()?;
    let computed = computed_tensors(&model, &weights)?;
    let mut tensors = tensors(&model, &weights, &computed)?;
    let adapters = lora::read(&model, &tensors, &options.lora)?;
    lora::assign(&model, &mut tensors, &adapters)?;
    let traits = ModelTraits::of(&model.file.metadata, &tensors, options.importance);
    let plans = tensors.iter().map(|tensor| plan(tensor, options, &traits));
    let mut plans = plans.collect::<Result<Vec<_>>>()?;
    if model.is_speech()? {
        plans.iter_mut().for_each(ggml::adjust);
    }
    plans.iter().try_for_each(lora::check_target)?;
    drop_unused_scales(&model, &mut plans);
    let adapters = options.lora.iter().map(|(path, _)| path.as_path());
    let mut output = Output::create(path, model.file.paths().chain(adapters))?;
    let mut notes = Vec::new();
    if options.mix.is_none() {
        notes.extend(note_of_larger(&plans));
        notes.extend(note_of_ternary(&plans));
    }
    let mut body = if ggml::is_ggml(path) {
        let header = ggml::header(&model, &plans)?;
        (&mut output)
            .write_all(&header)
            .map_err(|e| Error::new(ErrorKind::Io, path.display()).caused_by(e))?;
        FileBody::Ggml(&mut output)
    } else {
        let mut header = header(&model, &plans, options)?;
        write_tokenizer(&model, &tensors, &mut header, &mut notes)?;
        FileBody::Gguf(header.begin(&mut output).context(path.display())?)
    };
    let elements = plans.iter().map(|plan| plan.tensor.elements());
    let all = elements.fold(0, u64::saturating_add);
    let mut done = 0;
    let mut results = Vec::new();
    for plan in &plans {
        let mut advance = |elements: u64| {
            done += elements;
            match progress(done, all) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => bail!(Cancelled, "quantization was cancelled"),
            }
        };
        let writer = TensorWriter {
            plan,
            importance: options.importance,
            threads: threads(options.threads),
        };
        body.begin_tensor(plan).context(path.display())?;
        results.push(writer.write(
            &mut |bytes| body.write(bytes).context(path.display()),
            &mut advance,
        )?);
    }
    body.end()?;
    model.file.check_unchanged()?;
    output.commit()?;
    Ok(ConversionReport {
        tensors: results,
        notes,
    })
}

/// Drops the scales of `NVFP4` matrices that are written in another type.
fn drop_unused_scales(model: &Opened, plans: &mut Vec<TensorPlan<'_>>) {
    let scales = TensorScales::of(&model.file);
    let converted = plans
        .iter()
        .filter(|plan| plan.tensor.dtype == DType::Nvfp4.into() && plan.to != plan.tensor.dtype);
    let converted: HashSet<String> = converted.map(|plan| plan.tensor.name.clone()).collect();
    plans.retain(|plan| {
        let name = &plan.tensor.name;
        if model.folder.is_some() {
            let module = name.strip_suffix(SCALE);
            return module.is_none_or(|module| !converted.contains(&format!("{module}.weight")));
        }
        let matrix = scales.matrix_of(name);
        matrix.is_none_or(|matrix| !converted.contains(matrix))
    });
}

/// Writes the tokenizer of a folder, and its chat template.
fn write_tokenizer(
    model: &Opened,
    tensors: &[SourceTensor<'_>],
    header: &mut Writer<'_>,
    notes: &mut Vec<String>,
) -> Result<()> {
    match model.is_speech()? {
        true => ggml::write_tokens(model, tensors, header),
        false => keys::write(model, tensors, header, notes),
    }
}

/// The tensor data of the new file.
enum FileBody<'a> {
    Gguf(Body<&'a mut Output>),
    Ggml(&'a mut Output),
}

impl FileBody<'_> {
    /// Starts a tensor. The header of a GGUF file has declared it.
    fn begin_tensor(&mut self, plan: &TensorPlan<'_>) -> Result<()> {
        match self {
            Self::Gguf(_) => Ok(()),
            Self::Ggml(_) => self.write(&ggml::tensor_header(plan)?),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Gguf(body) => body.write(bytes),
            Self::Ggml(output) => (&mut **output)
                .write_all(bytes)
                .map_err(|e| Error::new(ErrorKind::Io, "writing failed").caused_by(e)),
        }
    }

    fn end(self) -> Result<()> {
        match self {
            Self::Gguf(body) => body.end().map(drop),
            Self::Ggml(_) => Ok(()),
        }
    }
}

/// Returns the tensors that the files of the source do not contain in this form.
fn computed_tensors(model: &Opened, weights: &[Weight]) -> Result<Vec<ComputedTensor>> {
    match &model.folder {
        _ if model.is_speech()? => speech_tensors::computed_tensors(model),
        Some(_) => {
            let mut computed = source_tensor::rope_factors(&model.file.metadata)?;
            computed.extend(source_tensor::matrix_scales(weights, &model.file, SCALE));
            Ok(computed)
        }
        None => Ok(Vec::new()),
    }
}

/// Returns the tensors to write, in the row order of GGUF.
fn tensors<'a>(
    model: &'a Opened,
    weights: &'a [Weight],
    computed: &'a [ComputedTensor],
) -> Result<Vec<SourceTensor<'a>>> {
    let file = &model.file;
    if model.is_speech()? {
        return speech_tensors::tensors(model, computed);
    }
    if model.folder.is_none() {
        let tensors = file.tensors.iter();
        return tensors
            .map(|t| SourceTensor::of_gguf(file, t, weights))
            .collect();
    }
    let name = file.metadata.str("general.architecture")?;
    let arch = arch::find(name.unwrap_or_default())?;
    let tensors = weights.iter().map(|w| SourceTensor::of_weight(file, w));
    let mut tensors = tensors.collect::<Result<Vec<_>>>()?;
    source_tensor::check_names(&tensors)?;
    if arch.permutes_heads() {
        for tensor in &mut tensors {
            tensor.permute_heads(&file.metadata, RowOrder::Interleaved)?;
        }
    }
    let config = arch::Config::read(&file.metadata)?.validate(arch)?;
    if multipliers::are_present(&config) {
        multipliers::fold(&mut tensors, &config, model, weights)?;
    }
    let mut fused = weights
        .iter()
        .filter(|w| w.name.contains("ffn_gate_up_exps"));
    if let (Some(_), Some(weight)) = (config.experts.glu_clamp, fused.next()) {
        bail!(
            Unsupported,
            "cannot convert the folder to GGUF: tensor {} has the rows of gate and up in turn, which GGUF files store \
             as ffn_gate_exps and ffn_up_exps",
            weight.tensor(file)
        );
    }
    if let Some(delta) = config
        .recurrent
        .and_then(|recurrent| recurrent.delta())
        .filter(|delta| arch.interleaved_heads && !delta.at.interleaved)
    {
        tensors
            .iter_mut()
            .for_each(|tensor| tensor.permute_value_heads(&delta));
    }
    if let Some(arch::Recurrent::Ssm(ssm)) = config.recurrent {
        for tensor in &mut tensors {
            if let Some(shape) = recurrent::gguf_shape(&tensor.name, &ssm.at) {
                tensor.dims = shape.to_vec();
            }
            if arch.mixers == MixerRule::Both
                && let Some(name) = recurrent::name_next_to_attention(&tensor.name)
            {
                tensor.name = name;
            }
        }
    }
    tensors.extend(computed.iter().map(SourceTensor::of_computed));
    Ok(tensors)
}

fn plan<'a>(
    tensor: &'a SourceTensor<'a>,
    options: &QuantizeOptions<'_>,
    traits: &ModelTraits,
) -> Result<TensorPlan<'a>> {
    let name = &tensor.name;
    let unquantized = TensorPlan {
        tensor,
        to: tensor.dtype,
        requested: None,
    };
    if !mix::is_quantized(name, &tensor.dims) {
        return unchanged(unquantized, options);
    }
    let requested = match name.as_str() {
        mix::OUTPUT_MATRIX => options.output,
        mix::EMBEDDING => options
            .embedding
            .or(options.output.filter(|_| traits.is_output(name))),
        _ => None,
    };
    let requested = requested
        .or_else(|| (options.choose)(name))
        .or_else(|| options.mix.map(|mix| mix.choose(name, traits)));
    let Some(requested) = requested else {
        return unchanged(unquantized, options);
    };
    if quant::encoder(requested).is_none() && requested != DType::I2S {
        bail!(
            Argument,
            "tensor {name}: quantizing to {requested} is not supported"
        );
    }
    let rows = tensor.dims.iter().skip(1).product();
    let is_ternary = [DType::Ternary, DType::I2S]
        .map(TensorType::from)
        .contains(&tensor.dtype);
    let to = match is_ternary && tensor.is_unchanged() {
        true => mix::fitting_ternary(requested, rows, tensor.dims[0]),
        false => mix::fitting(requested, rows, tensor.dims[0]),
    };
    Ok(TensorPlan {
        tensor,
        to: to.into(),
        requested: (to != requested).then_some(requested),
    })
}

/// Selects the type of a tensor without a requested type: its own, or the smallest that has all of its values.
/// Merged adapters change the values: quantized types become F16, as do ternary weights that do not fit the blocks of
/// `I2_S`.
fn unchanged<'a>(plan: TensorPlan<'a>, options: &QuantizeOptions<'_>) -> Result<TensorPlan<'a>> {
    let tensor = plan.tensor;
    let to = match tensor.dtype.known() {
        // They are small, and llama.cpp reads them as f32.
        Some(DType::F16 | DType::Bf16) if is_vector(tensor) => DType::F32,
        // The scales are tensors of GGUF files, too.
        Some(DType::Nvfp4) => return Ok(plan),
        // The only type of files with a scale in f32; activations stay in int8.
        Some(DType::Ternary) if tensor.is_unchanged() => {
            let rows = tensor.dims.iter().skip(1).product();
            mix::fitting(DType::I2S, rows, tensor.dims[0])
        }
        Some(DType::Ternary) => DType::F16,
        Some(_) if !tensor.row_factors.is_empty() => {
            exact::smallest_type(tensor, &[], threads(options.threads))?
        }
        Some(_) if tensor.matrix.scales.is_some() && tensor.merges.is_empty() => {
            let blocks = match mix::is_quantized(&tensor.name, &tensor.dims) {
                true => &quant::EXACT_TYPES[..],
                false => &[],
            };
            exact::smallest_type(tensor, blocks, threads(options.threads))?
        }
        _ if tensor.matrix.scales.is_some() || tensor.dtype.gguf().is_none() => DType::F16,
        _ => return Ok(plan),
    };
    Ok(TensorPlan {
        to: to.into(),
        ..plan
    })
}

/// Matrices whose rows or columns are used like vectors.
const VECTORS: [&str; 4] = [
    "position_embd.weight",
    "token_types.weight",
    ".ssm_conv1d.weight",
    ".shortconv.conv.weight",
];

fn is_vector(tensor: &SourceTensor<'_>) -> bool {
    tensor.dims.len() == 1 || VECTORS.iter().any(|name| tensor.name.ends_with(name))
}

/// Returns a note about tensors that were written as F32 because no smaller type has their values.
fn note_of_larger(plans: &[TensorPlan<'_>]) -> Option<String> {
    let is_larger = |plan: &&TensorPlan<'_>| {
        plan.tensor.matrix.scales.is_some() && plan.to == DType::F32.into()
    };
    let mut larger = plans.iter().filter(is_larger);
    let first = larger.next()?;
    let count = 1 + larger.count();
    Some(format!(
        "tensors that became f32, because no smaller type has all of their values: {count}, such as {}; --dtype \
         converts them with loss",
        first.tensor.name
    ))
}

/// Returns a note about ternary matrices that were written as F16, whose products do not have int8 activations.
fn note_of_ternary(plans: &[TensorPlan<'_>]) -> Option<String> {
    let is_rounded = |plan: &&TensorPlan<'_>| {
        plan.tensor.dtype == DType::Ternary.into() && plan.to == DType::F16.into()
    };
    let mut rounded = plans.iter().filter(is_rounded);
    let first = rounded.next()?;
    let count = 1 + rounded.count();
    Some(format!(
        "ternary matrices that became f16, because i2_s requires rows of a multiple of 32 elements and no merged \
         adapters: {count}, such as {}; results differ, because activations are not rounded to int8",
        first.tensor.name
    ))
}

/// Prepares the GGUF header: the metadata and the tensor list.
fn header(
    model: &Opened,
    plans: &[TensorPlan<'_>],
    options: &QuantizeOptions<'_>,
) -> Result<Writer<'static>> {
    let mut writer = Writer::new();
    let factors = plans
        .iter()
        .any(|p| p.tensor.name == source_tensor::ROPE_FACTORS);
    let folded = plans.iter().any(|p| !p.tensor.row_factors.is_empty());
    let is_replaced = |key: &str| {
        let of_arch = key.split_once('.').map_or(key, |(_, key)| key);
        let as_factors = factors && key.contains(".rope.scaling.");
        let as_tensor = LISTS.iter().any(|list| key.ends_with(list))
            || CHECKPOINT_KEYS.iter().any(|own| key.ends_with(own));
        let as_weights = folded && multipliers::is_folded(of_arch);
        REPLACED.contains(&key) || as_weights || (as_factors || as_tensor) && model.folder.is_some()
    };
    for (key, value) in model.file.metadata.iter() {
        if !is_replaced(key) {
            writer.copy(key, value);
        }
    }
    if let Some((key, magnitude)) = source_tensor::rope_magnitude(model)? {
        writer.set(&key, magnitude);
    }
    if let Some(number) = file_type(model, plans, options)? {
        writer.set("general.file_type", number);
    }
    writer.set("general.quantization_version", QUANTIZATION_VERSION);
    if let Some(importance) = options.importance {
        let entries = u32::try_from(importance.len()).unwrap_or(u32::MAX);
        writer.set("quantize.imatrix.entries_count", entries);
    }
    for plan in plans {
        let TensorPlan { tensor, to, .. } = plan;
        writer.declare(&tensor.name, *to, &tensor.dims);
    }
    Ok(writer)
}

/// Returns `general.file_type`: of the mix, otherwise of the GGUF source, otherwise of the largest
/// tensor.
fn file_type(
    model: &Opened,
    plans: &[TensorPlan<'_>],
    options: &QuantizeOptions<'_>,
) -> Result<Option<u32>> {
    if let Some(mix) = options.mix {
        return Ok(Some(mix.file_type));
    }
    if model.folder.is_none() {
        return model.file.metadata.u32("general.file_type");
    }
    let largest = plans.iter().max_by_key(|p| p.tensor.elements());
    let dtype = largest.and_then(|p| p.to.known());
    Ok(dtype.and_then(QuantMix::of_base).map(|mix| mix.file_type))
}

/// Encodes and writes a tensor.
pub(super) struct TensorWriter<'a> {
    pub(super) plan: &'a TensorPlan<'a>,
    pub(super) importance: Option<&'a Importance>,
    pub(super) threads: usize,
}

impl TensorWriter<'_> {
    /// Passes the bytes of the tensor to `put`, in order.
    pub(super) fn write(
        &self,
        put: &mut dyn FnMut(&[u8]) -> Result<()>,
        advance: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<TensorReport> {
        let TensorPlan {
            tensor,
            to,
            requested,
        } = *self.plan;
        let importance = self
            .importance
            .map(|i| i.columns(&tensor.name, &tensor.dims));
        let importance = importance.transpose()?.flatten();
        let mut total = EncodedChunk::default();
        let mut bytes = 0;
        let mut write_chunk = |chunk: EncodedChunk| {
            put(&chunk.bytes)?;
            bytes += chunk.bytes.len() as u64;
            total.error += chunk.error;
            total.square += chunk.square;
            advance(chunk.elements)
        };
        match to {
            to if to == tensor.dtype && tensor.is_unchanged() => {
                tensor.copy(&mut write_chunk)?;
            }
            TensorType::Known(dtype) => {
                let target = Target {
                    dtype,
                    importance,
                    threads: self.threads,
                };
                tensor.rows()?.encode(&target, &mut write_chunk)?;
            }
            _ => bail!(Internal, "tensor {}: no encoder for {to}", tensor.name),
        }
        let error = if total.square > 0.0 {
            (total.error / total.square).sqrt()
        } else {
            0.0
        };
        Ok(TensorReport {
            name: tensor.name.clone(),
            from: tensor.dtype,
            to,
            requested,
            elements: tensor.elements(),
            bytes_before: tensor.bytes(),
            bytes,
            error,
            weighted: importance.is_some(),
        })
    }
}
