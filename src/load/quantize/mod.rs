//! Quantising: a file's tensors in other storage types, written as GGUF.

mod mix;
mod rows;

pub use mix::{MIXES, Mix};

use super::output::Output;
use super::{Source, open_directory};
use crate::dtype::DType;
use crate::error::{Context, Result, bail};
use crate::format::write::{Body, Writer};
use crate::format::{Directory, Importance, TensorInfo, TensorType};
use crate::quant;
use mix::Facts;
use rows::{Piece, Rows, Target};
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::Path;

/// How a file is quantised.
#[expect(
    missing_debug_implementations,
    reason = "a function has nothing to show"
)]
pub struct Quantize<'a> {
    /// Which type each tensor gets.
    pub mix: &'static Mix,
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

/// Version 2 of ggml's block formats, which all its types are of since 2023.
const QUANTIZATION_VERSION: u32 = 2;

/// Writes the model of `source` to `path` in other storage types.
///
/// The file is there when it is whole; a failure leaves nothing, and what stood under its name
/// stays. `progress` hears how many of all elements are done, and may stop.
///
/// # Errors
///
/// As [`open_directory`]; `Argument` for a type that is not written, and where `path` is a file of
/// the source; `Format` for a number that is not finite, which names the tensor; `Io` where the
/// disk is full; `Cancelled` where `progress` stopped.
pub fn quantize(
    source: &Source,
    path: &Path,
    how: &Quantize<'_>,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Vec<Quantized>> {
    let file = open_directory(source)?;
    let facts = Facts::of(&file, how.importance);
    let plans = file.tensors.iter().map(|tensor| plan(tensor, how, &facts));
    let plans = plans.collect::<Result<Vec<_>>>()?;
    let mut output = Output::create(path, file.paths())?;
    let mut body = header(&file, &plans, how)?
        .begin(&mut output)
        .context(path.display())?;
    let all = plans
        .iter()
        .map(|p| p.tensor.elements())
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
        results.push(write(&file, plan, how, &mut body, &mut advance)?);
    }
    body.end()?;
    file.check_unchanged()?;
    output.commit()?;
    Ok(results)
}

/// What a tensor becomes.
struct Plan<'a> {
    tensor: &'a TensorInfo,
    to: TensorType,
    instead_of: Option<DType>,
}

fn plan<'a>(tensor: &'a TensorInfo, how: &Quantize<'_>, facts: &Facts) -> Result<Plan<'a>> {
    let name = &tensor.name;
    let kept = |to| Plan {
        tensor,
        to,
        instead_of: None,
    };
    if !mix::is_quantised(name, &tensor.dims) {
        let to = match tensor.dtype.known() {
            // Vectors are small, and every build reads them as f32.
            Some(DType::F16 | DType::Bf16) if tensor.rows() == 1 => DType::F32.into(),
            _ => tensor.dtype,
        };
        return Ok(kept(to));
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
        .unwrap_or_else(|| how.mix.choose(name, facts));
    if quant::encoder(wanted).is_none() && wanted != DType::I2S {
        bail!(
            Argument,
            "tensor {name}: {wanted} is read here and not written"
        );
    }
    let to = mix::fitting(wanted, tensor.rows(), tensor.cols());
    Ok(Plan {
        tensor,
        to: to.into(),
        instead_of: (to != wanted).then_some(wanted),
    })
}

/// The header: the file's metadata, and where its tensors will lie.
fn header(file: &Directory, plans: &[Plan<'_>], how: &Quantize<'_>) -> Result<Writer<'static>> {
    let mut writer = Writer::new();
    for (key, value) in file.metadata.iter() {
        if !REPLACED.contains(&key) {
            writer.copy(key, value);
        }
    }
    writer.set("general.file_type", how.mix.file_type);
    writer.set("general.quantization_version", QUANTIZATION_VERSION);
    if let Some(importance) = how.importance {
        let entries = u32::try_from(importance.len()).unwrap_or(u32::MAX);
        writer.set("quantize.imatrix.entries_count", entries);
    }
    for plan in plans {
        writer.declare(&plan.tensor.name, plan.to, &plan.tensor.dims);
    }
    Ok(writer)
}

/// Writes the data of a tensor.
fn write(
    file: &Directory,
    plan: &Plan<'_>,
    how: &Quantize<'_>,
    body: &mut Body<&mut Output>,
    advance: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Quantized> {
    let tensor = plan.tensor;
    let importance = how.importance.map(|i| i.columns(tensor)).transpose()?;
    let mut result = Quantized {
        name: tensor.name.clone(),
        from: tensor.dtype,
        to: plan.to,
        instead_of: plan.instead_of,
        elements: tensor.elements(),
        bytes_before: tensor.bytes,
        bytes: 0,
        error: 0.0,
        weighted: importance.flatten().is_some(),
    };
    let mut total = Piece::default();
    let mut take = |piece: Piece| {
        body.write(&piece.bytes)?;
        result.bytes += piece.bytes.len() as u64;
        total.error += piece.error;
        total.square += piece.square;
        advance(piece.elements)
    };
    match plan.to {
        to if to == tensor.dtype => rows::copy(file.bytes(tensor), tensor.elements(), &mut take)?,
        TensorType::Known(dtype) => {
            let target = Target {
                dtype,
                importance: importance.flatten(),
                threads: how.threads(),
            };
            Rows::of(file, tensor)?.encode(&target, &mut take)?;
        }
        TensorType::Other(_) | TensorType::Raw { .. } => {
            bail!(Internal, "tensor {}: {} is planned", tensor.name, plan.to)
        }
    }
    if total.square > 0.0 {
        result.error = (total.error / total.square).sqrt();
    }
    Ok(result)
}

impl Quantize<'_> {
    fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, NonZero::get),
            n => n as usize,
        }
    }
}
