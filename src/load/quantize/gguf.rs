//! Writes a model as a GGUF file, its tensors in other storage types.

use super::keys;
use super::mix::{self, Facts, Mix};
use super::rows::{self, Piece, Rows, Target, threads};
use super::stored::{self, Order, Stored};
use crate::arch;
use crate::dtype::DType;
use crate::error::{Context, Result, bail};
use crate::format::write::Writer;
use crate::format::{Importance, TensorType};
use crate::load::source::{Opened, Source, detect, open};
use crate::load::weight::Weight;
use crate::output::Output;
use crate::quant;
use std::ops::ControlFlow;
use std::path::Path;

/// How a file is quantized.
#[expect(
    missing_debug_implementations,
    reason = "a function has nothing to show"
)]
pub struct Quantize<'a> {
    /// Which type each tensor gets; `None` leaves what GGUF knows as it is, and makes the rest F16.
    pub mix: Option<&'static Mix>,
    /// The type of the output matrix in place of the mix's.
    pub output: Option<DType>,
    /// The type of the token embedding in place of the mix's.
    pub embedding: Option<DType>,
    /// The type of the matrix of this name in place of the mix's, if it is to have one.
    pub choose: &'a dyn Fn(&str) -> Option<DType>,
    /// How much an error costs, by column.
    pub importance: Option<&'a Importance>,
    /// Threads; 0 takes every core.
    pub threads: u32,
}

/// A model that was written.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its tensors.
    pub tensors: Vec<Quantized>,
    /// What it lacks, and why.
    pub notes: Vec<String>,
}

/// What became of a tensor.
#[derive(Clone, Debug)]
pub struct Quantized {
    /// Its name.
    pub name: String,
    /// Its type before.
    pub from: TensorType,
    /// Its type now.
    pub to: TensorType,
    /// The type that it would have if its rows were whole blocks of it.
    pub instead_of: Option<DType>,
    /// Elements.
    pub elements: u64,
    /// Bytes before.
    pub bytes_before: u64,
    /// Bytes now.
    pub bytes: u64,
    /// Root mean square of the error, relative to that of the numbers before.
    pub error: f64,
    /// Whether importance was known.
    pub weighted: bool,
}

/// Keys that are written anew, or that no longer hold.
const REPLACED: [&str; 6] = [
    "general.alignment",
    "general.file_type",
    "general.quantization_version",
    "split.no",
    "split.count",
    "split.tensors.count",
];

/// Keys of a folder whose lists are tensors in GGUF files.
const LISTS: [&str; 2] = [".rope.scaling.long_factor", ".rope.scaling.short_factor"];

/// Version 2 of ggml's block formats, which all its types are of since 2023.
const QUANTIZATION_VERSION: u32 = 2;

/// Writes the model of `source` to `path` in other storage types.
///
/// The file is there when it is whole; a failure leaves nothing, and what stood under its name
/// stays. `progress` hears how many of all elements are done, and may stop.
///
/// # Errors
///
/// As [`open_directory`](crate::open_directory); `Argument` for a type that is not written, and where `path` is a file of
/// the source; `Format` for a number that is not finite, which names the tensor; `Io` where the
/// disk is full; `Cancelled` where `progress` stopped.
pub fn quantize(
    source: &Source,
    path: &Path,
    how: &Quantize<'_>,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Written> {
    let model = open(source, detect(source)?)?;
    let weights = model.folder_weights()?;
    let factors = match &model.folder {
        Some(_) => stored::rope_factors(&model.file.metadata)?,
        None => Vec::new(),
    };
    let tensors = tensors(&model, &weights, &factors)?;
    let facts = Facts::of(&model.file.metadata, &tensors, how.importance);
    let plans = tensors.iter().map(|tensor| plan(tensor, how, &facts));
    let plans = plans.collect::<Result<Vec<_>>>()?;
    let mut output = Output::create(path, model.file.paths())?;
    let mut notes = Vec::new();
    let mut header = header(&model, &plans, how)?;
    keys::write(&model, &tensors, &mut header, &mut notes)?;
    let mut body = header.begin(&mut output).context(path.display())?;
    let all = tensors
        .iter()
        .map(Stored::elements)
        .fold(0, u64::saturating_add);
    let mut done = 0;
    let mut results = Vec::new();
    for plan in &plans {
        let mut advance = |elements: u64| {
            done += elements;
            match progress(done, all) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => bail!(Cancelled, "stopped"),
            }
        };
        let work = Work {
            plan,
            importance: how.importance,
            threads: threads(how.threads),
        };
        results.push(work.write(
            &mut |bytes| body.write(bytes).context(path.display()),
            &mut advance,
        )?);
    }
    body.end()?;
    model.file.check_unchanged()?;
    output.commit()?;
    Ok(Written {
        tensors: results,
        notes,
    })
}

/// The tensors of the new file, before it is said what they become.
fn tensors<'a>(
    model: &'a Opened,
    weights: &'a [Weight],
    rope_factors: &'a [(&str, Vec<u8>)],
) -> Result<Vec<Stored<'a>>> {
    let file = &model.file;
    if model.folder.is_none() {
        let tensors = file.tensors.iter();
        return tensors.map(|t| Stored::of_tensor(file, t)).collect();
    }
    let name = file.metadata.str("general.architecture")?;
    let arch = arch::find(name.unwrap_or_default())?;
    let stored = weights.iter().map(|w| Stored::of_weight(file, w));
    let mut stored = stored.collect::<Result<Vec<_>>>()?;
    stored::check_names(&stored)?;
    if !arch.half_split {
        for tensor in &mut stored {
            tensor.turn(&file.metadata, Order::Interleaved)?;
        }
    }
    let factors = rope_factors.iter();
    stored.extend(factors.map(|(name, bytes)| stored::rope_tensor(name, bytes)));
    Ok(stored)
}

/// What a tensor becomes.
pub(super) struct Plan<'a> {
    pub(super) tensor: &'a Stored<'a>,
    pub(super) to: TensorType,
    pub(super) instead_of: Option<DType>,
}

fn plan<'a>(tensor: &'a Stored<'a>, how: &Quantize<'_>, facts: &Facts) -> Result<Plan<'a>> {
    let name = &tensor.name;
    let kept = Plan {
        tensor,
        to: match tensor.dtype.known() {
            // Vectors are small, and every build reads them as f32.
            Some(DType::F16 | DType::Bf16) if tensor.dims.len() == 1 => DType::F32.into(),
            _ if tensor.matrix.scales.is_some() => DType::F16.into(),
            _ if tensor.dtype.gguf().is_none() => DType::F16.into(),
            _ => tensor.dtype,
        },
        instead_of: None,
    };
    if !mix::is_quantized(name, &tensor.dims) {
        return Ok(kept);
    }
    let wanted = match name.as_str() {
        mix::OUTPUT_MATRIX => how.output,
        mix::EMBEDDING => how
            .embedding
            .or(how.output.filter(|_| facts.is_output(name))),
        _ => None,
    };
    let wanted = wanted
        .or_else(|| (how.choose)(name))
        .or_else(|| how.mix.map(|mix| mix.choose(name, facts)));
    let Some(wanted) = wanted else {
        return Ok(kept);
    };
    if quant::encoder(wanted).is_none() && wanted != DType::I2S {
        bail!(
            Argument,
            "tensor {name}: {wanted} is read here and not written"
        );
    }
    let rows = tensor.dims.iter().skip(1).product();
    let to = mix::fitting(wanted, rows, tensor.dims[0]);
    Ok(Plan {
        tensor,
        to: to.into(),
        instead_of: (to != wanted).then_some(wanted),
    })
}

/// The header: the model's metadata, and where its tensors will lie.
fn header(model: &Opened, plans: &[Plan<'_>], how: &Quantize<'_>) -> Result<Writer<'static>> {
    let mut writer = Writer::new();
    let factors = plans.iter().any(|p| p.tensor.name == stored::ROPE_FACTORS);
    let is_written_anew = |key: &str| {
        let worked_out = factors && key.contains(".rope.scaling.");
        let listed = LISTS.iter().any(|list| key.ends_with(list));
        REPLACED.contains(&key) || (worked_out || listed) && model.folder.is_some()
    };
    for (key, value) in model.file.metadata.iter() {
        if !is_written_anew(key) {
            writer.copy(key, value);
        }
    }
    if let Some((key, magnitude)) = stored::rope_magnitude(model)? {
        writer.set(&key, magnitude);
    }
    if let Some(number) = file_type(model, plans, how)? {
        writer.set("general.file_type", number);
    }
    writer.set("general.quantization_version", QUANTIZATION_VERSION);
    if let Some(importance) = how.importance {
        let entries = u32::try_from(importance.len()).unwrap_or(u32::MAX);
        writer.set("quantize.imatrix.entries_count", entries);
    }
    for plan in plans {
        let Plan { tensor, to, .. } = plan;
        writer.declare(&tensor.name, *to, &tensor.dims);
    }
    Ok(writer)
}

/// `general.file_type`: that of the mix, or else of the file, or else of most elements.
fn file_type(model: &Opened, plans: &[Plan<'_>], how: &Quantize<'_>) -> Result<Option<u32>> {
    if let Some(mix) = how.mix {
        return Ok(Some(mix.file_type));
    }
    if model.folder.is_none() {
        return model.file.metadata.u32("general.file_type");
    }
    let largest = plans.iter().max_by_key(|p| p.tensor.elements());
    let dtype = largest.and_then(|p| p.to.known());
    Ok(dtype.and_then(Mix::of_base).map(|mix| mix.file_type))
}

/// A tensor to be written.
pub(super) struct Work<'a> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) importance: Option<&'a Importance>,
    pub(super) threads: usize,
}

impl Work<'_> {
    /// Hands the bytes of the tensor to `put`, in order.
    pub(super) fn write(
        &self,
        put: &mut dyn FnMut(&[u8]) -> Result<()>,
        advance: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Quantized> {
        let Plan {
            tensor,
            to,
            instead_of,
        } = *self.plan;
        let importance = self
            .importance
            .map(|i| i.columns(&tensor.name, &tensor.dims));
        let importance = importance.transpose()?.flatten();
        let mut total = Piece::default();
        let mut bytes = 0;
        let mut take = |piece: Piece| {
            put(&piece.bytes)?;
            bytes += piece.bytes.len() as u64;
            total.error += piece.error;
            total.square += piece.square;
            advance(piece.elements)
        };
        match to {
            to if to == tensor.dtype => rows::copy(tensor, &mut take)?,
            TensorType::Known(dtype) => {
                let target = Target {
                    dtype,
                    importance,
                    threads: self.threads,
                };
                Rows::of(tensor)?.encode(&target, &mut take)?;
            }
            _ => bail!(Internal, "tensor {}: {to} is planned", tensor.name),
        }
        let error = if total.square > 0.0 {
            (total.error / total.square).sqrt()
        } else {
            0.0
        };
        Ok(Quantized {
            name: tensor.name.clone(),
            from: tensor.dtype,
            to,
            instead_of,
            elements: tensor.elements(),
            bytes_before: tensor.bytes(),
            bytes,
            error,
            weighted: importance.is_some(),
        })
    }
}
