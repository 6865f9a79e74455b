//! Exports a model as a Hugging Face folder: safetensors, configuration, tokenizer.

use super::gguf::{ConversionReport, TensorWriter};
use super::keys::{self, TEMPLATE, TOKENIZER, TOKENIZER_CONFIG};
use super::mix::EMBEDDING;
use super::source_tensor::{self, SourceTensor};
use super::tensor_plan::{TensorPlan, name_of, torch_dtype};
use super::{lora, speech_export, speech_tensors};
use crate::arch::{self, Arch};
use crate::dtype::DType;
use crate::error::{ErrorKind, Result, bail};
use crate::format::safetensors_header;
use crate::load::row_order::RowOrder;
use crate::load::source::{Opened, Source, detect, open};
use crate::load::tensor_scales::TensorScales;
use crate::load::weight::{Weight, floats};
use crate::load::{chat, hf, speech_names, tokenizer};
use crate::output::OutputFolder;
use crate::text::ChatTemplates;
use serde_json::{Map, Value, json};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tabla_core::reserve::threads;

/// Maximum size of a shard in bytes, the default of `transformers`.
const SHARD_BYTES_MAX: u64 = 5_000_000_000;

/// Files copied when the source is a Hugging Face folder.
const COPIED_FILES: [&str; 4] = [
    TOKENIZER,
    TOKENIZER_CONFIG,
    "generation_config.json",
    "special_tokens_map.json",
];

tabla_core::options! {
    /// Options of [`export`](crate::export()).
    #[derive(Clone, Debug, Default)]
    pub struct ExportOptions {
        /// Storage type of all tensors: `F32`, `F16` or `Bf16`. `None` keeps these types and converts
        /// others to F16.
        pub dtype: Option<DType>,
        /// LoRA adapters to merge into the weights: a folder of `peft` or a GGUF file, and the factor of
        /// its change.
        pub lora: Vec<(PathBuf, f32)>,
        /// Number of threads; 0 uses every core.
        pub threads: u32,
    }
}

/// Exports the model of `source` as a new Hugging Face folder at `path`.
///
/// The folder appears only when it is complete. `progress` receives the number of processed elements
/// and the total, and can cancel.
///
/// # Errors
///
/// As [`quantize`](crate::quantize()); `Unsupported` for a tensor or hyperparameter that Hugging Face
/// formats cannot represent, and for a speech model with a vocabulary of another size than those of
/// published models.
pub fn export(
    source: &Source,
    path: &Path,
    options: &ExportOptions,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<ConversionReport> {
    if let Some(other) = options.dtype.filter(|d| name_of(*d).is_none()) {
        bail!(
            Argument,
            "unsupported type {other} for safetensors; supported are f32, f16 and bf16"
        );
    }
    let model = open(source, detect(source)?)?.uncompiled()?;
    let name = model.file.metadata.str("general.architecture")?;
    let arch = arch::find(name.unwrap_or_default())?;
    hf::check_exportable(arch, &model.file.metadata)?;
    let weights = model.scaled_weights()?;
    let computed = speech_tensors::computed_tensors(&model)?;
    let mut tensors = match model.is_speech()? {
        true => speech_tensors::tensors(&model, &computed)?,
        false => tensors(&model, &weights, arch)?,
    };
    let adapters = lora::read(&model, &tensors, &options.lora)?;
    lora::assign(&model, &mut tensors, &adapters)?;
    check_names(arch, &tensors)?;
    let plans = tensors.iter().map(|tensor| plan(tensor, options));
    let plans: Vec<TensorPlan<'_>> = plans.collect::<Result<_>>()?;
    plans.iter().try_for_each(lora::check_target)?;
    let folder = OutputFolder::create(path)?;
    let mut notes = Vec::new();
    write_side_files(&model, &plans, &folder, &mut notes)?;
    let files = files(&plans);
    let all = tensors
        .iter()
        .map(SourceTensor::elements)
        .fold(0, u64::saturating_add);
    let mut done = 0;
    let mut advance = |elements: u64| {
        done += elements;
        match progress(done, all) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => bail!(Cancelled, "export was cancelled"),
        }
    };
    let mut results = Vec::new();
    for (name, plans) in &files {
        let mut file = folder.file(name)?;
        file.write_all(&header(arch, plans)?)?;
        for plan in *plans {
            let writer = TensorWriter {
                plan,
                importance: None,
                threads: threads(options.threads),
            };
            results.push(writer.write(&mut |bytes| file.write_all(bytes), &mut advance)?);
        }
        file.end()?;
    }
    if files.len() > 1 {
        let index = index(arch, &files).to_string();
        folder.text("model.safetensors.index.json", &index)?;
    }
    model.file.check_unchanged()?;
    folder.commit()?;
    Ok(ConversionReport {
        tensors: results,
        notes,
    })
}

/// Returns the tensors of a language model, with Q and K in the row order of Hugging Face.
fn tensors<'a>(
    model: &'a Opened,
    weights: &'a [Weight],
    arch: &'static Arch,
) -> Result<Vec<SourceTensor<'a>>> {
    let file = &model.file;
    let mut tensors = if model.folder.is_some() {
        let tensors = weights.iter().map(|w| SourceTensor::of_weight(file, w));
        tensors.collect::<Result<Vec<_>>>()?
    } else {
        let scales = TensorScales::of(file);
        let others = file
            .tensors
            .iter()
            .filter(|t| t.name != source_tensor::ROPE_FACTORS && !scales.contain(&t.name));
        let tensors = others.map(|t| SourceTensor::of_gguf(file, t, weights));
        tensors.collect::<Result<Vec<_>>>()?
    };
    if model.folder.is_none() && arch.permutes_heads() {
        for tensor in &mut tensors {
            tensor.permute_heads(&file.metadata, RowOrder::Halves)?;
        }
    }
    Ok(tensors)
}

/// Rejects two tensors with the same name, and tensors without a name in Hugging Face formats.
fn check_names(arch: &Arch, tensors: &[SourceTensor<'_>]) -> Result<()> {
    source_tensor::check_names(tensors)?;
    match tensors.iter().find(|t| to_hf(arch, &t.name).is_none()) {
        None => Ok(()),
        Some(tensor) => bail!(
            Unsupported,
            "tensor {} has no Hugging Face name",
            tensor.name
        ),
    }
}

/// Returns the Hugging Face name of a tensor.
fn to_hf(arch: &Arch, tensor: &str) -> Option<String> {
    if arch::is_speech(arch.name) {
        return speech_names::hf_name(tensor);
    }
    hf::to_hf(arch, tensor)
}

fn plan<'a>(tensor: &'a SourceTensor<'a>, options: &ExportOptions) -> Result<TensorPlan<'a>> {
    let own = tensor.dtype.known().filter(|d| name_of(*d).is_some());
    let to = options.dtype.or(own).unwrap_or(DType::F16);
    if tensor.dtype.known().is_none() {
        bail!(
            Unsupported,
            "tensor {}: cannot decode type {}",
            tensor.name,
            tensor.dtype
        );
    }
    Ok(TensorPlan {
        tensor,
        to: to.into(),
        requested: None,
    })
}

/// Splits the tensors into shards, with file names.
fn files<'a, 'b>(plans: &'b [TensorPlan<'a>]) -> Vec<(String, &'b [TensorPlan<'a>])> {
    let mut cuts = vec![0];
    let mut bytes = 0;
    for (at, plan) in plans.iter().enumerate() {
        if bytes > 0 && bytes + size(plan) > SHARD_BYTES_MAX {
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

/// Returns the bytes of a tensor in the new file.
fn size(plan: &TensorPlan<'_>) -> u64 {
    let dtype = plan.to.known();
    let bytes = dtype.and_then(|d| d.bytes(plan.tensor.elements()));
    bytes.unwrap_or(u64::MAX)
}

fn hf_name(arch: &Arch, plan: &TensorPlan<'_>) -> String {
    to_hf(arch, &plan.tensor.name).unwrap_or_default()
}

/// Returns the safetensors header of a file with these tensors in order.
fn header(arch: &Arch, plans: &[TensorPlan<'_>]) -> Result<Vec<u8>> {
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

fn index(arch: &Arch, files: &[(String, &[TensorPlan<'_>])]) -> Value {
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

/// Writes the configuration, the tokenizer and the chat template. The tokenizer files of a folder are
/// copied.
fn write_side_files(
    model: &Opened,
    plans: &[TensorPlan<'_>],
    folder: &OutputFolder,
    notes: &mut Vec<String>,
) -> Result<()> {
    if model.is_speech()? {
        return speech_export::write_side_files(model, plans, folder, notes);
    }
    let meta = &model.file.metadata;
    let text = serde_json::to_string_pretty(&config(model, plans)?);
    folder.text("config.json", &text.unwrap_or_default())?;
    write_templates(model, folder, notes)?;
    if let Some(from) = &model.folder {
        for name in COPIED_FILES {
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
    folder.text(TOKENIZER_CONFIG, &config.to_string())
}

/// Writes the chat templates, each in a file of its own.
fn write_templates(model: &Opened, folder: &OutputFolder, notes: &mut Vec<String>) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || ['_', '-'].contains(&c);
    for (name, template) in chat::read(model)?.iter() {
        match name {
            ChatTemplates::DEFAULT => folder.text(TEMPLATE, template)?,
            name if !name.is_empty() && name.chars().all(plain) => {
                folder.text(&format!("{}/{name}.jinja", chat::NAMED), template)?;
            }
            name => notes.push(format!("no chat template {name:?}: not a file name")),
        }
    }
    Ok(())
}

fn config(model: &Opened, plans: &[TensorPlan<'_>]) -> Result<Value> {
    let file = &model.file;
    let find = |name: &str| plans.iter().find(|p| p.tensor.name == name);
    let factors = file.tensor(source_tensor::ROPE_FACTORS);
    let facts = hf::TensorFacts {
        vocab: find(EMBEDDING).map_or(0, |p| p.tensor.matrix.rows),
        has: &|name| find(name).is_some(),
        rope_factors: factors.map(|t| floats(file, t)).transpose()?,
        dtype: torch_dtype(plans),
    };
    hf::config(&file.metadata, &facts)
}
