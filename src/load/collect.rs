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
    let mut weights: Vec<Weight> = match &model.folder {
        _ if config.speech.is_some() => speech::weights(file, config)?,
        Some(folder) => folder.weights(file, arch)?,
        None => {
            let all = (0..file.tensors.len()).map(|i| {
                let weight = Weight::plain(gguf_name(&file.tensors[i].name), file, i)?;
                weight.with_i2s_layout(options.i2s_layout, file)
            });
            experts::stack(all.collect::<Result<_>>()?, file, arch.name)?
        }
    };
    if model.folder.is_none() {
        TensorScales::of(file).attach(&mut weights)?;
    }
    let mut weights = split(weights, file, arch, &|layer| {
        let layer = config.layer_configs.get(layer as usize);
        layer.map_or([0; 2], |l| [l.q_dim(), l.kv_dim()])
    })?;
    drop_shared(&mut weights, &file.metadata, arch)?;
    let layers = config.layers + u32::from(options.drafting_head == DraftingHead::Mtp);
    weights.retain(|weight| !is_beyond(weight, config, layers));
    if let (Some(latent), None) = (config.latent, &model.folder) {
        weights = latent::split(weights, (latent, config.heads), file)?;
    }
    if let Some(delta) = config.recurrent.and_then(|recurrent| recurrent.delta()) {
        weights = recurrent::split_by_key_head(weights, &delta, file)?;
    }
    for weight in &mut weights {
        let mut aliases = arch.aliases.iter();
        if let Some((_, name)) = aliases.find(|(alias, _)| *alias == weight.name) {
            weight.name = (*name).to_string();
        }
    }
    let in_kernel_form =
        |weight| experts::in_kernel_form(recurrent::in_kernel_form(weight, file)?, file);
    weights.into_iter().map(in_kernel_form).collect()
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
