//! Speech models in other storage types, and ggml files.

use super::source_tensor::SourceTensor;
use super::speech_tensors::rows;
use super::tensor_plan::TensorPlan;
use crate::arch::{Config, SpeechEncoder};
use crate::audio::MelFilters;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result, bail};
use crate::format::TensorType;
use crate::format::write::Writer;
use crate::load::source::Opened;
use crate::load::{speech_model, speech_names, tokenizer};
use crate::text::Tokenizer;
use std::path::Path;

/// First bytes of a ggml file.
const MAGIC: &[u8; 4] = b"lmgg";
/// Bins of the Fourier transform of the filters.
const FFT_BINS: u32 = 201;
/// Number of tokens in every published file.
const LISTED_TOKENS: u32 = 50_257;
/// Token after those of text in English vocabularies.
const END_OF_TEXT: &[u8] = b"<|endoftext|>";
/// Version of quantized blocks, times the factor of `ftype`.
const BLOCKS: u32 = 2000;
/// Storage types of ggml files and their numbers in `ftype`.
const FILE_TYPES: &[(DType, u32)] = &[
    (DType::F32, 0),
    (DType::F16, 1),
    (DType::Q4_0, BLOCKS + 2),
    (DType::Q4_1, BLOCKS + 3),
    (DType::Q8_0, BLOCKS + 7),
    (DType::Q5_0, BLOCKS + 8),
    (DType::Q5_1, BLOCKS + 9),
    (DType::Q2K, BLOCKS + 10),
    (DType::Q3K, BLOCKS + 11),
    (DType::Q4K, BLOCKS + 12),
    (DType::Q5K, BLOCKS + 13),
    (DType::Q6K, BLOCKS + 14),
];

/// Returns whether a path is that of a ggml file.
pub(super) fn is_ggml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("bin"))
}

/// Replaces types that programs for speech models do not read: vectors and positions are f32,
/// convolutions f16 or f32.
pub(super) fn adjust(plan: &mut TensorPlan<'_>) {
    let name = &plan.tensor.name;
    let float = |to: TensorType| matches!(to.known(), Some(DType::F32 | DType::F16));
    let to = if plan.tensor.dims.len() == 1 || name.ends_with("positional_embedding") {
        DType::F32
    } else if name.contains(".conv") && !float(plan.to) {
        DType::F16
    } else {
        return;
    };
    (plan.to, plan.requested) = (to.into(), None);
}

/// Returns the bytes of a ggml file before its tensors.
///
/// # Errors
///
/// `Unsupported` for a vocabulary of no speech model and for types that ggml files do not have.
pub(super) fn header(model: &Opened, plans: &[TensorPlan<'_>]) -> Result<Vec<u8>> {
    let metadata = &model.file.metadata;
    let config = Config::read(metadata)?;
    let Some(SpeechEncoder {
        layers,
        heads,
        context,
        mels,
        ..
    }) = config.speech
    else {
        bail!(Unsupported, "ggml files are written of speech models only");
    };
    let vocab = rows(plans, speech_names::EMBEDDING)?;
    let mut bytes = MAGIC.to_vec();
    let numbers = [
        vocab,
        context,
        config.dim,
        heads,
        layers,
        config.context,
        config.dim,
        config.attention.heads,
        config.layers,
        mels,
        file_type(plans)?,
        mels,
        FFT_BINS,
    ];
    bytes.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
    let filters = match metadata.f32s(speech_model::FILTERS)? {
        Some(filters) => filters,
        None => MelFilters::slaney(mels as usize).to_rows(),
    };
    bytes.extend(filters.iter().flat_map(|x| x.to_le_bytes()));
    let tokenizer = tokenizer::of_vocab(model, vocab)?;
    let tokens = tokens(&tokenizer, vocab)?;
    bytes.extend(length(tokens.len())?);
    for token in tokens {
        bytes.extend(length(token.len())?);
        bytes.extend(token);
    }
    Ok(bytes)
}

/// Returns the tokens that files of speech models contain: those of text, and one more, which is the
/// end of the text in English vocabularies and empty in others.
fn tokens(tokenizer: &Tokenizer, vocab: u32) -> Result<Vec<&[u8]>> {
    let eot = speech_model::tokens(vocab)?.eot;
    let tokens = (0..LISTED_TOKENS).map(|id| match id {
        id if id < eot => tokenizer.token_bytes(id),
        _ => END_OF_TEXT,
    });
    Ok(tokens.collect())
}

/// Adds the tokens of a folder to the keys of a GGUF file, as bytes. Other files have this key.
///
/// # Errors
///
/// Those of reading the tokenizer; `Unsupported` if no speech model has this vocabulary.
pub(super) fn write_tokens(
    model: &Opened,
    tensors: &[SourceTensor<'_>],
    writer: &mut Writer<'_>,
) -> Result<()> {
    if model.folder.is_none() {
        return Ok(());
    }
    let embedding = tensors
        .iter()
        .find(|tensor| tensor.name == speech_names::EMBEDDING);
    let rows = embedding.map_or(0, |tensor| tensor.matrix.rows);
    let vocab = u32::try_from(rows).unwrap_or(u32::MAX);
    let tokenizer = tokenizer::of_vocab(model, vocab)?;
    writer.list("tokenizer.ggml.tokens", &tokens(&tokenizer, vocab)?);
    Ok(())
}

/// Returns the bytes before the data of a tensor.
pub(super) fn tensor_header(plan: &TensorPlan<'_>) -> Result<Vec<u8>> {
    let (name, mut dims) = (&plan.tensor.name, plan.tensor.dims.clone());
    if name.contains(".conv") && name.ends_with("bias") {
        dims.insert(0, 1);
    }
    let Some(dtype) = plan.to.gguf() else {
        bail!(
            Unsupported,
            "tensor {name}: ggml files have no type {}",
            plan.to
        );
    };
    let mut bytes = [
        length(dims.len())?,
        length(name.len())?,
        dtype.to_le_bytes(),
    ]
    .concat();
    for dim in dims {
        bytes.extend(length(usize::try_from(dim).unwrap_or(usize::MAX))?);
    }
    bytes.extend(name.as_bytes());
    Ok(bytes)
}

fn length(n: usize) -> Result<[u8; 4]> {
    let n = u32::try_from(n).map_err(|_| {
        Error::new(
            ErrorKind::TooLarge,
            "a number of the file does not fit 32 bits",
        )
    })?;
    Ok(n.to_le_bytes())
}

/// Returns `ftype`: the type of most elements.
fn file_type(plans: &[TensorPlan<'_>]) -> Result<u32> {
    let largest = plans.iter().max_by_key(|plan| plan.tensor.elements());
    let dtype = largest.and_then(|plan| plan.to.known());
    let known = FILE_TYPES.iter().find(|(known, _)| Some(*known) == dtype);
    match (known, largest) {
        (Some((_, number)), _) => Ok(*number),
        (None, Some(plan)) => bail!(
            Unsupported,
            "tensor {}: ggml files of speech models have no type {}; supported are {}",
            plan.tensor.name,
            plan.to,
            FILE_TYPES
                .iter()
                .map(|(dtype, _)| dtype.name())
                .collect::<Vec<_>>()
                .join(", ")
        ),
        (None, None) => bail!(Format, "the model has no tensors"),
    }
}
