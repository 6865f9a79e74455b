//! Reads the files of a drafter for a model.

use super::collect;
use super::options::{DraftingHead, LoadOptions};
use super::source::{Opened, Source, detect, open};
use super::weight::{Data, Weight, f32_bytes, floats};
use crate::arch::{self, Config, DRAFTER_PREFIX, EAGLE3, Eagle3, TOKEN_INDEX};
use crate::dtype::DType;
use crate::error::{Context, Result, bail};
use crate::format;
use std::path::Path;
use std::sync::Arc;

/// Name of the tokens of the drafter: numbers of tokens of the model in GGUF files, otherwise their differences to the
/// numbers in the vocabulary of the drafter.
const TOKENS: &str = "d2t";

/// Adds a drafter to a model: its tensors to the files of `model`, its hyperparameters to `config`. Returns its weights.
///
/// # Errors
///
/// Those of opening a model; `Argument` if the files are not a drafter; `Format` or `Unsupported` if it does not fit
/// the model.
pub(super) fn add(
    path: &Path,
    model: &mut Opened,
    config: &mut Config,
    options: &LoadOptions,
) -> Result<Vec<Weight>> {
    let source = Source::Path(path.to_path_buf());
    let opened = open(&source, detect(&source)?)
        .and_then(Opened::uncompiled)
        .context("drafting head")?;
    let weights = read(&opened, config, options).context(path.display())?;
    let file = opened.file;
    let (Some(files), Some(drafter)) = (Arc::get_mut(&mut model.file), Arc::into_inner(file))
    else {
        bail!(Internal, "the files of the model are in use");
    };
    let first = format::append(files, drafter, DRAFTER_PREFIX)?;
    Ok(weights
        .into_iter()
        .map(|weight| weight.moved(first))
        .collect())
}

/// Reads the hyperparameters and the weights of a drafter.
fn read(drafter: &Opened, model: &mut Config, options: &LoadOptions) -> Result<Vec<Weight>> {
    let metadata = &drafter.file.metadata;
    let config = Config::read(metadata)?;
    if config.architecture != EAGLE3 {
        bail!(
            Argument,
            "not an EAGLE-3 drafter, but a model of the architecture {:?}: load it as a draft model",
            config.architecture
        );
    }
    let arch = arch::find(EAGLE3)?;
    let config = config.validate(arch)?;
    let plain = options.clone().drafting_head(DraftingHead::None);
    let mut weights = collect::weights(drafter, arch, &config, &plain)?;
    weights.retain(|weight| weight.name != TOKENS);
    for weight in &mut weights {
        weight.name = format!("{DRAFTER_PREFIX}{}", weight.name);
    }
    if let Some(tensor) = drafter.file.index(TOKENS) {
        weights.push(token_index(tensor, drafter, model.vocab)?);
    }
    let pairs = match drafter.folder {
        Some(_) => arch::RopePairs::HalfSplit,
        None => arch::RopePairs::Adjacent,
    };
    model.add_eagle3(Eagle3::new(config, model, metadata, pairs)?)?;
    Ok(weights)
}

/// Returns for each token of the model its number in the vocabulary of the drafter, or -1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the numbers of tokens are integers in the range of the vocabulary"
)]
fn token_index(tensor: usize, drafter: &Opened, vocab: u32) -> Result<Weight> {
    let file = &drafter.file;
    let numbers = floats(file, &file.tensors[tensor])?;
    let mut index = vec![-1.0f32; vocab as usize];
    for (own, number) in numbers.iter().enumerate() {
        let first = if drafter.folder.is_some() {
            own as f32
        } else {
            0.0
        };
        let token = first + number;
        let slot = (token >= 0.0 && token < vocab as f32).then(|| &mut index[token as usize]);
        let Some(slot) = slot else {
            bail!(
                Format,
                "tensor {}: token {own} of the drafter is token {token} of the model, which has {vocab}",
                file.tensors[tensor].name
            );
        };
        *slot = own as f32;
    }
    Ok(Weight {
        name: TOKEN_INDEX.to_string(),
        dtype: DType::F32,
        rows: 1,
        cols: vocab,
        stack: 1,
        codes: Data::computed(tensor, f32_bytes(&index)),
        scales: None,
    })
}
