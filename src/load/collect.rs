//! Collects the weights of opened files in the form that kernels read.

use super::experts;
use super::latent;
use super::options::{DraftingHead, LoadOptions};
use super::recurrent;
use super::source::Opened;
use super::speech;
use super::split::{drop_shared, is_beyond, split};
use super::tensor_scales::TensorScales;
use super::weight::Weight;
use crate::arch::{Arch, CLASSIFIER, CLASSIFIER_DENSE, Config};
use crate::error::{Result, bail};
use crate::format::Directory;

/// Returns the weights of a file in the form that kernels read.
pub(super) fn weights(
    model: &Opened,
    arch: &'static Arch,
    config: &Config,
    options: &LoadOptions,
) -> Result<Vec<Weight>> {
    let file = &model.file;
    check_causal(file, arch)?;
    if model.folder.is_none() {
        check_pooler(file, arch)?;
    }
    let weights = match &model.folder {
        _ if config.speech.is_some() => speech::weights(file, config)?,
        Some(folder) => folder.weights(file, arch)?,
        None => {
            let all = (0..file.tensors.len()).map(|i| {
                let weight = Weight::plain(gguf_name(&file.tensors[i].name), file, i)?;
                weight.with_i2s_layout(options.i2s_layout, file)
            });
            all.collect::<Result<_>>()?
        }
    };
    let source = Collected {
        file,
        arch,
        config,
        is_gguf: model.folder.is_none(),
        layers: config.layers + u32::from(options.drafting_head == DraftingHead::Mtp),
    };
    let mut transforms = TRANSFORMS.iter().filter(|one| (one.applies)(&source));
    transforms.try_fold(weights, |weights, one| (one.apply)(weights, &source))
}

/// Model whose weights are collected.
struct Collected<'a> {
    file: &'a Directory,
    arch: &'static Arch,
    config: &'a Config,
    /// Whether the weights are the tensors of a file; those of a folder have the form of GGUF files already.
    is_gguf: bool,
    /// Number of blocks that are used.
    layers: u32,
}

/// A change of the weights.
type Change = fn(Vec<Weight>, &Collected<'_>) -> Result<Vec<Weight>>;

/// A change of the weights of some models.
struct Transform {
    applies: fn(&Collected<'_>) -> bool,
    apply: Change,
}

const fn when(applies: fn(&Collected<'_>) -> bool, apply: Change) -> Transform {
    Transform { applies, apply }
}

/// All transforms, in order: each one reads the names that those before it write.
const TRANSFORMS: &[Transform] = &[
    when(|m| m.is_gguf && m.config.speech.is_none(), stack_experts),
    when(|m| m.is_gguf, attach_tensor_scales),
    when(|_| true, split_fused),
    when(|m| m.config.attention.shared_kv > 0, drop_shared_caches),
    when(|m| m.config.predict_layers > 0, drop_later_blocks),
    when(
        |m| m.is_gguf && m.config.attention.latent.is_some(),
        split_latent,
    ),
    when(|m| m.config.recurrent.is_some(), split_by_key_head),
    when(|m| !m.arch.aliases.is_empty(), rename),
    when(|_| true, in_kernel_form),
];

fn stack_experts(weights: Vec<Weight>, m: &Collected<'_>) -> Result<Vec<Weight>> {
    experts::stack(weights, m.file, m.arch.name)
}

fn attach_tensor_scales(mut weights: Vec<Weight>, m: &Collected<'_>) -> Result<Vec<Weight>> {
    TensorScales::of(m.file).attach(&mut weights)?;
    Ok(weights)
}

fn split_fused(weights: Vec<Weight>, m: &Collected<'_>) -> Result<Vec<Weight>> {
    split(weights, m.file, m.arch, &|layer| {
        let layer = m.config.layer_configs.get(layer as usize);
        layer.map_or([0; 2], |l| [l.q_dim(), l.kv_dim()])
    })
}

fn drop_shared_caches(mut weights: Vec<Weight>, m: &Collected<'_>) -> Result<Vec<Weight>> {
    drop_shared(&mut weights, &m.file.metadata, m.arch)?;
    Ok(weights)
}

/// Drops blocks after the layers that are not used.
fn drop_later_blocks(mut weights: Vec<Weight>, m: &Collected<'_>) -> Result<Vec<Weight>> {
    weights.retain(|weight| !is_beyond(weight, m.config, m.layers));
    Ok(weights)
}

fn split_latent(weights: Vec<Weight>, m: &Collected<'_>) -> Result<Vec<Weight>> {
    match m.config.attention.latent {
        Some(latent) => latent::split(weights, (latent, m.config.attention.heads), m.file),
        None => Ok(weights),
    }
}

fn split_by_key_head(weights: Vec<Weight>, m: &Collected<'_>) -> Result<Vec<Weight>> {
    match m.config.recurrent.and_then(|recurrent| recurrent.delta()) {
        Some(delta) => recurrent::split_by_key_head(weights, &delta, m.file),
        None => Ok(weights),
    }
}

/// Gives tensors of GGUF files the names of recipes.
fn rename(mut weights: Vec<Weight>, m: &Collected<'_>) -> Result<Vec<Weight>> {
    for weight in &mut weights {
        let mut aliases = m.arch.aliases.iter();
        if let Some((_, name)) = aliases.find(|(alias, _)| *alias == weight.name) {
            weight.name = (*name).to_string();
        }
    }
    Ok(weights)
}

fn in_kernel_form(weights: Vec<Weight>, m: &Collected<'_>) -> Result<Vec<Weight>> {
    let one = |weight| experts::in_kernel_form(recurrent::in_kernel_form(weight, m.file)?, m.file);
    weights.into_iter().map(one).collect()
}

/// Other names of Dense modules in GGUF files.
const DENSE_ALIASES: [(&str, &str); 2] = [("dense.0.", "dense_2."), ("dense.1.", "dense_3.")];

/// Returns the usual name of a tensor of a GGUF file.
fn gguf_name(name: &str) -> String {
    let mut aliases = DENSE_ALIASES.iter();
    let usual =
        aliases.find_map(|(alias, usual)| Some([usual, name.strip_prefix(alias)?].concat()));
    usual.unwrap_or_else(|| name.to_string())
}

/// Checks that the GGUF file of an encoder with a classification head has its dense layer. Without it the
/// scores would be those of another model.
///
/// # Errors
///
/// `Unsupported`.
pub(super) fn check_pooler(file: &Directory, arch: &Arch) -> Result<()> {
    let has = |module: &str| file.tensor(&format!("{module}.weight")).is_some();
    if arch.encoder && has(CLASSIFIER) && !has(CLASSIFIER_DENSE) {
        bail!(
            Unsupported,
            "the file has the classifier of the model (tensor {CLASSIFIER}.weight) but not its pooler \
             ({CLASSIFIER_DENSE}.weight), which the converter of llama.cpp drops, so its scores would be \
             wrong: use the safetensors files of the model"
        );
    }
    Ok(())
}

/// Rejects a decoder with bidirectional attention and an encoder with causal attention, which have
/// the same tensors as supported models.
fn check_causal(file: &Directory, arch: &Arch) -> Result<()> {
    let key = format!("{}.attention.causal", arch.name);
    match file.metadata.bool(&key)? {
        Some(causal) if causal == arch.encoder => {
            bail!(Unsupported, "{key} is {causal}, expected {}", !causal)
        }
        _ => Ok(()),
    }
}
