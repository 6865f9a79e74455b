//! A model as a folder of Hugging Face: safetensors, configuration, tokenizer.

use super::gguf::{Plan, Work, Written};
use super::keys::{self, TEMPLATE, TOKENIZER, TOKENIZER_CONFIG};
use super::mix::EMBEDDING;
use super::rows::threads;
use super::stored::{self, Order, Stored};
use crate::arch::{self, Arch};
use crate::dtype::DType;
use crate::error::{ErrorKind, Result, bail};
use crate::format::safetensors_header;
use crate::load::source::{Opened, Source, detect, open};
use crate::load::weight::{Weight, floats};
use crate::load::{chat, hf, tokenizer};
use crate::output::OutputFolder;
use serde_json::{Map, Value, json};
use std::ops::ControlFlow;
use std::path::Path;

/// Bytes of a file at most, as `transformers` cuts models.
const FILE_BYTES: u64 = 5_000_000_000;

/// Files that are copied from folder to folder.
const BESIDE: [&str; 6] = [
    TOKENIZER,
    TOKENIZER_CONFIG,
    TEMPLATE,
    "chat_template.json",
    "generation_config.json",
    "special_tokens_map.json",
];

/// How a folder is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Export {
    /// `F32`, `F16` or `Bf16` for all numbers; `None` leaves those three as they are and makes the
    /// rest F16.
    pub dtype: Option<DType>,
    /// Threads; 0 takes every core.
    pub threads: u32,
}

/// Writes the model of `source` as a new folder at `path`, by the names of Hugging Face.
///
/// The folder is there when it is whole. `progress` hears how many of all elements are done, and
/// may stop.
///
/// # Errors
///
/// As [`quantize`](crate::quantize()); `Unsupported` for a tensor or a number that has no name there.
pub fn export(
    source: &Source,
    path: &Path,
    how: &Export,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Written> {
    if let Some(other) = how.dtype.filter(|d| name_of(*d).is_none()) {
        bail!(
            Argument,
            "{other}: safetensors are written as f32, f16 or bf16"
        );
    }
    let model = open(source, detect(source)?)?;
    let name = model.file.metadata.str("general.architecture")?;
    let arch = arch::find(name.unwrap_or_default())?;
    hf::check_written(arch)?;
    let weights = model.folder_weights()?;
    let tensors = tensors(&model, &weights, arch)?;
    let plans = tensors.iter().map(|tensor| plan(tensor, how));
    let plans: Vec<Plan<'_>> = plans.collect::<Result<_>>()?;
    let folder = OutputFolder::create(path)?;
    let mut notes = Vec::new();
    write_beside(&model, &plans, &folder, &mut notes)?;
    let files = files(&plans);
    let all = tensors
        .iter()
        .map(Stored::elements)
        .fold(0, u64::saturating_add);
    let (mut done, mut results) = (0, Vec::new());
    for (name, plans) in &files {
        let mut file = folder.file(name)?;
        file.write_all(&header(arch, plans)?)?;
        for plan in *plans {
            let mut advance = |elements: u64| {
                done += elements;
                match progress(done, all) {
                    ControlFlow::Continue(()) => Ok(()),
                    ControlFlow::Break(()) => bail!(Cancelled, "stopped"),
                }
            };
            let work = Work {
                plan,
                importance: None,
                threads: threads(how.threads),
            };
            results.push(work.write(&mut |bytes| file.write_all(bytes), &mut advance)?);
        }
        file.end()?;
    }
    if files.len() > 1 {
        folder.text(
            "model.safetensors.index.json",
            &index(arch, &files).to_string(),
        )?;
    }
    model.file.check_unchanged()?;
    folder.commit()?;
    Ok(Written {
        tensors: results,
        notes,
    })
}

/// The tensors by their names there, in the order of rows that is usual there.
fn tensors<'a>(
    model: &'a Opened,
    weights: &'a [Weight],
    arch: &'static Arch,
) -> Result<Vec<Stored<'a>>> {
    let file = &model.file;
    let mut stored = if model.folder.is_some() {
        let stored = weights.iter().map(|w| Stored::of_weight(file, w));
        stored.collect::<Result<Vec<_>>>()?
    } else {
        let others = file
            .tensors
            .iter()
            .filter(|t| t.name != stored::ROPE_FACTORS);
        let stored = others.map(|t| Stored::of_tensor(file, t));
        stored.collect::<Result<Vec<_>>>()?
    };
    stored::check_names(&stored)?;
    if model.folder.is_none() && !arch.half_split {
        for tensor in &mut stored {
            tensor.turn(&file.metadata, Order::Halves)?;
        }
    }
    for tensor in &mut stored {
        if hf::to_hf(arch, &tensor.name).is_none() {
            bail!(
                Unsupported,
                "tensor {} has no name in checkpoints of Hugging Face",
                tensor.name
            );
        }
    }
    Ok(stored)
}

fn plan<'a>(tensor: &'a Stored<'a>, how: &Export) -> Result<Plan<'a>> {
    let own = tensor.dtype.known().filter(|d| name_of(*d).is_some());
    let to = how.dtype.or(own).unwrap_or(DType::F16);
    if tensor.dtype.known().is_none() {
        bail!(
            Unsupported,
            "tensor {} is {}, which is not decoded here",
            tensor.name,
            tensor.dtype
        );
    }
    Ok(Plan {
        tensor,
        to: to.into(),
        instead_of: None,
    })
}

/// What safetensors and `transformers` call a type.
fn name_of(dtype: DType) -> Option<[&'static str; 2]> {
    match dtype {
        DType::F32 => Some(["F32", "float32"]),
        DType::F16 => Some(["F16", "float16"]),
        DType::Bf16 => Some(["BF16", "bfloat16"]),
        _ => None,
    }
}

/// Names of files, and the tensors of each.
fn files<'a, 'b>(plans: &'b [Plan<'a>]) -> Vec<(String, &'b [Plan<'a>])> {
    let mut cuts = vec![0];
    let mut bytes = 0;
    for (at, plan) in plans.iter().enumerate() {
        if bytes > 0 && bytes + size(plan) > FILE_BYTES {
            cuts.push(at);
            bytes = 0;
        }
        bytes += size(plan);
    }
    cuts.push(plans.len());
    let count = cuts.len() - 1;
    let name = |n: usize| match count {
        1 => "model.safetensors".to_string(),
        _ => format!("model-{:05}-of-{count:05}.safetensors", n + 1),
    };
    let parts = cuts.windows(2).enumerate();
    parts
        .map(|(n, cut)| (name(n), &plans[cut[0]..cut[1]]))
        .collect()
}

/// Bytes of a tensor in the new file.
fn size(plan: &Plan<'_>) -> u64 {
    let dtype = plan.to.known();
    let bytes = dtype.and_then(|d| d.bytes(plan.tensor.elements()));
    bytes.unwrap_or(u64::MAX)
}

fn hf_name(arch: &Arch, plan: &Plan<'_>) -> String {
    hf::to_hf(arch, &plan.tensor.name).unwrap_or_default()
}

/// The header of a file of these tensors, one behind the other.
fn header(arch: &Arch, plans: &[Plan<'_>]) -> Result<Vec<u8>> {
    let mut entries = Vec::new();
    for plan in plans {
        let dtype = plan
            .to
            .known()
            .and_then(name_of)
            .map_or("", |names| names[0]);
        entries.push((hf_name(arch, plan), dtype, &*plan.tensor.dims, size(plan)));
    }
    safetensors_header(&entries)
}

fn index(arch: &Arch, files: &[(String, &[Plan<'_>])]) -> Value {
    let all = files
        .iter()
        .flat_map(|(name, plans)| plans.iter().map(move |p| (name, p)));
    let map = all
        .clone()
        .map(|(file, plan)| (hf_name(arch, plan), json!(file)));
    let bytes: u64 = all.map(|(_, plan)| size(plan)).sum();
    json!({
        "metadata": { "total_size": bytes },
        "weight_map": map.collect::<Map<_, _>>(),
    })
}

/// Writes what stands beside the tensors. Of a folder it is copied, but for what its configuration
/// says of how weights were quantized.
fn write_beside(
    model: &Opened,
    plans: &[Plan<'_>],
    folder: &OutputFolder,
    notes: &mut Vec<String>,
) -> Result<()> {
    let meta = &model.file.metadata;
    let text = serde_json::to_string_pretty(&config(model, plans)?);
    folder.text("config.json", &text.unwrap_or_default())?;
    if let Some(from) = &model.folder {
        for name in BESIDE {
            if let Some(text) = keys::text(from, name)? {
                folder.text(name, &text)?;
            }
        }
        return Ok(());
    }
    if meta.get("tokenizer.ggml.model").is_none() {
        notes.push(format!("no {TOKENIZER}: the file has no tokenizer"));
        return Ok(());
    }
    let vocab = tokenizer::vocab(meta)?;
    match vocab.to_json() {
        Ok(text) => folder.text(TOKENIZER, &text)?,
        Err(e) if e.kind() == ErrorKind::Unsupported => {
            notes.push(format!("no {TOKENIZER}: {e}"));
        }
        Err(e) => return Err(e),
    }
    let spelling = |id: Option<u32>| id.and_then(|id| vocab.tokens.get(id as usize));
    let config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": spelling(vocab.bos),
        "eos_token": spelling(vocab.eos),
        "unk_token": spelling(vocab.unk),
        "clean_up_tokenization_spaces": false,
    });
    folder.text(TOKENIZER_CONFIG, &config.to_string())?;
    if let Some(template) = meta.str(chat::KEY)? {
        folder.text(TEMPLATE, template)?;
    }
    Ok(())
}

fn config(model: &Opened, plans: &[Plan<'_>]) -> Result<Value> {
    let file = &model.file;
    let find = |name: &str| plans.iter().find(|p| p.tensor.name == name);
    let largest = plans.iter().max_by_key(|p| p.tensor.elements());
    let dtype = largest.and_then(|p| p.to.known()).and_then(name_of);
    let factors = file.tensor(stored::ROPE_FACTORS);
    let shape = hf::Shape {
        vocab: find(EMBEDDING).map_or(0, |p| p.tensor.matrix.rows),
        has: &|name| find(name).is_some(),
        rope_factors: factors.map(|t| floats(file, t)).transpose()?,
        dtype: dtype.map_or("float16", |names| names[1]),
    };
    hf::config(&file.metadata, &shape)
}
