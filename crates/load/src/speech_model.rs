//! Weights, tokenizer and other properties of speech models.

use super::source::Opened;
use super::speech_names::{self, POSITIONS};
use super::weight::{Data, Weight, f32_bytes, floats};
use crate::arch::Config;
use crate::audio::MelFilters;
use crate::compiled::ALIGNMENT_HEADS;
use crate::dtype::DType;
use crate::error::{Context, Result, bail};
use crate::format::{Directory, Kind, Metadata, TensorInfo, Value};
use crate::model::SpeechModel;
use crate::plan::builder::{SpeechTokens, WeightInfo};
use crate::speech::{BLANK, SpecialTokens};
use crate::text::{RankedVocab, Tokenizer};
use std::ops::Range;

/// Minimum number of positions of the decoder: a prompt and a text.
const CONTEXT_MIN: u32 = 16;
/// Maximum number of positions; published models have 448.
const CONTEXT_MAX: u32 = 4096;
/// Maximum number of alignment heads: half of the layers of the largest model.
const ALIGNMENT_HEADS_MAX: usize = 320;

/// Key of the mel filters.
pub const FILTERS: &str = "whisper.encoder.mel_filters";

/// Returns the weights of a speech model.
///
/// # Errors
///
/// `Unsupported` for an unexpected tensor or a type without kernels, `Format` for a convolution of
/// another width.
pub(super) fn weights(file: &Directory, config: &Config) -> Result<Vec<Weight>> {
    let mut weights = Vec::with_capacity(file.tensors.len());
    for (index, tensor) in file.tensors.iter().enumerate() {
        let Some(name) = speech_names::recipe_name(&tensor.name)? else {
            continue;
        };
        let weight = if name.starts_with("enc.conv") {
            convolution(name, file, index)
        } else {
            Weight::plain(name, file, index)
        };
        let mut weight = weight.context(&tensor.name)?;
        // Tensors of ggml files are not aligned.
        if file.kind == Kind::Ggml {
            let bytes = weight.codes.bytes(file).to_vec();
            file.release(tensor, 0..bytes.len());
            weight.codes = Data::computed(index, bytes);
        }
        weights.push(weight);
    }
    if let (Some(encoder), None) = (
        &config.speech,
        weights.iter().find(|weight| weight.name == POSITIONS),
    ) {
        weights.push(Weight {
            name: POSITIONS.to_string(),
            dtype: DType::F32,
            rows: encoder.context,
            cols: config.dim,
            stack: 1,
            codes: Data::computed(0, f32_bytes(&sinusoids(encoder.context, config.dim))),
            scales: None,
        });
    }
    Ok(weights)
}

/// Returns a tensor of a convolution: the weight as `[out, 3 in]`, the bias as a vector.
fn convolution(name: String, file: &Directory, index: usize) -> Result<Weight> {
    let tensor = &file.tensors[index];
    let weight = Weight::plain(name, file, index)?;
    let size = weight.rows.saturating_mul(weight.cols);
    let shape = |rows: u32, cols: u32| Weight {
        rows,
        cols,
        stack: 1,
        ..weight.clone()
    };
    if weight.name.ends_with(".bias") {
        let mut bias = shape(1, size);
        if bias.dtype != DType::F32 {
            bias.dtype = DType::F32;
            bias.codes = Data::computed(index, f32_bytes(&floats(file, tensor)?));
        }
        return Ok(bias);
    }
    match tensor.dims[..] {
        [3, _, out] if u32::try_from(out).is_ok() => {
            let out = u32::try_from(out).unwrap_or(1).max(1);
            Ok(shape(out, size / out))
        }
        // MLX stores the channels innermost.
        [_, 3, _] => channels_last(&weight, file, tensor),
        _ => bail!(
            Format,
            "expected a convolution of width 3, got the shape {:?}",
            tensor.dims
        ),
    }
}

/// Transposes a convolution from `[out, 3, in]` to `[out, in, 3]`.
fn channels_last(weight: &Weight, file: &Directory, tensor: &TensorInfo) -> Result<Weight> {
    let bytes = f32_bytes(&floats(file, tensor)?);
    let bytes = taps_last(&bytes, DType::F32.facts().bytes, weight.cols as usize);
    let rows = tensor.dims.last().copied().unwrap_or(0);
    Ok(Weight {
        dtype: DType::F32,
        rows: u32::try_from(rows).unwrap_or(u32::MAX),
        cols: weight.cols.saturating_mul(3),
        stack: 1,
        codes: Data::computed(weight.codes.tensor, bytes),
        ..weight.clone()
    })
}

/// Transposes rows of 3 taps of `channels` elements to rows of as many channels of 3 taps.
pub fn taps_last(bytes: &[u8], element: usize, channels: usize) -> Vec<u8> {
    let rows = bytes.chunks_exact((3 * channels * element).max(1));
    let order = |i: usize| (i % 3 * channels + i / 3) * element;
    rows.flat_map(|row| (0..3 * channels).flat_map(move |i| &row[order(i)..][..element]))
        .copied()
        .collect()
}

/// Position embedding of the encoder: sines, then cosines, of timescales from 1 to 10000.
#[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
pub fn sinusoids(rows: u32, dim: u32) -> Vec<f32> {
    let half = dim / 2;
    let step = 10_000f64.ln() / f64::from(half.saturating_sub(1).max(1));
    let mut values = Vec::with_capacity(rows as usize * dim as usize);
    for row in 0..rows {
        let angles = (0..half).map(|i| f64::from(row) * (-step * f64::from(i)).exp());
        values.extend(angles.clone().map(|angle| angle.sin() as f32));
        values.extend(angles.map(|angle| angle.cos() as f32));
    }
    values
}

/// Sets the hyperparameters of a speech model that follow from its tensors and its configuration: the
/// number of positions, as fine-tunes may have a shorter maximum length, and the alignment heads.
///
/// # Errors
///
/// `Format` for a list of the configuration with heads that do not exist.
pub(super) fn complete(
    model: &Opened,
    positions: Option<WeightInfo>,
    config: &mut Config,
) -> Result<()> {
    if let Some(positions) = positions {
        if positions.rows > CONTEXT_MAX {
            bail!(
                Format,
                "{} positions of the decoder are over the limit of {CONTEXT_MAX}",
                positions.rows
            );
        }
        config.context = positions.rows;
    }
    let heads = alignment_heads(model, config)?;
    if let Some(encoder) = &mut config.speech {
        encoder.alignment_heads = heads;
    }
    Ok(())
}

/// Returns the layers and heads of the decoder whose cross-attention aligns tokens with audio: those
/// of the configuration, those of a published model of the same shape, or all of the upper half of
/// the layers.
///
/// # Errors
///
/// `Format` for a list of the configuration with heads that do not exist.
pub fn alignment_heads(model: &Opened, config: &Config) -> Result<Vec<(u32, u32)>> {
    let [layers, heads] = [config.layers, config.attention.heads];
    let configured = match &model.folder {
        Some(folder) => folder.alignment_heads()?,
        None => model.file.metadata.u32s(ALIGNMENT_HEADS)?.map(|heads| {
            let pairs = heads.as_chunks::<2>().0.iter();
            pairs.map(|[layer, head]| (*layer, *head)).collect()
        }),
    };
    let list = configured.filter(|list| !list.is_empty());
    let list = list.unwrap_or_else(|| crate::speech::alignment_heads(layers, heads, config.vocab));
    if list.len() > ALIGNMENT_HEADS_MAX {
        bail!(
            Unsupported,
            "{} alignment heads are over the limit of {ALIGNMENT_HEADS_MAX}",
            list.len()
        );
    }
    match list
        .iter()
        .find(|(layer, head)| *layer >= layers || *head >= heads)
    {
        None => Ok(list),
        Some(bad) => bail!(
            Format,
            "alignment_heads: {bad:?} does not exist: there are {layers} layers of {heads} heads"
        ),
    }
}

/// Returns the tokens that the sampling stages refer to.
///
/// # Errors
///
/// `Unsupported` if no speech model has a vocabulary of this size.
pub fn tokens(vocab: u32) -> Result<SpeechTokens> {
    let tokens = SpecialTokens::of(vocab)?;
    Ok(SpeechTokens {
        blank: BLANK,
        eot: tokens.eot,
        no_timestamps: tokens.notimestamps,
        first_timestamp: tokens.first_timestamp,
    })
}

/// Builds the tokenizer of a file with the tokens alone, as bytes by rank. Special tokens follow from
/// the size of the vocabulary.
///
/// # Errors
///
/// As [`ranked_vocab`].
pub(super) fn tokenizer(meta: &Metadata, vocab: u32) -> Result<Tokenizer> {
    let vocab = ranked_vocab(meta, vocab)?;
    let specials = [&*vocab.controls, &*vocab.added].concat();
    Tokenizer::from_ranks(&vocab.tokens, &specials)
}

/// Reads the vocabulary of a file with the tokens alone.
///
/// # Errors
///
/// `Format` if text tokens are missing, `Unsupported` if no speech model has this vocabulary.
pub fn ranked_vocab(meta: &Metadata, vocab: u32) -> Result<RankedVocab<'_>> {
    let ids = SpecialTokens::of(vocab)?;
    let list = meta.get("tokenizer.ggml.tokens").and_then(Value::array);
    let tokens = list.iter().flat_map(|list| list.iter());
    let tokens = tokens.map(|token| match token {
        Value::String(bytes) => bytes,
        _ => b"",
    });
    let tokens: Vec<&[u8]> = tokens.take(ids.eot as usize).collect();
    if tokens.len() < ids.eot as usize {
        bail!(
            Format,
            "the file has {} text tokens, a vocabulary of {vocab} has {}",
            tokens.len(),
            ids.eot
        );
    }
    let texts = |range: Range<u32>| range.map(|id| special_text(&ids, id)).collect();
    Ok(RankedVocab {
        tokens,
        controls: texts(ids.eot..ids.first_timestamp),
        added: texts(ids.first_timestamp..vocab),
        before: vec![ids.sot, ids.notimestamps],
        after: vec![ids.eot],
    })
}

/// Returns the text of a special token.
pub(super) fn special_text(ids: &SpecialTokens, id: u32) -> String {
    if ids.is_timestamp(id) {
        return format!("<|{:.2}|>", ids.seconds(id));
    }
    let named = [
        (ids.eot, "endoftext"),
        (ids.sot, "startoftranscript"),
        (ids.translate, "translate"),
        (ids.transcribe, "transcribe"),
        (ids.startoflm, "startoflm"),
        (ids.startofprev, "startofprev"),
        (ids.nospeech, "nospeech"),
        (ids.notimestamps, "notimestamps"),
    ];
    let name = named.iter().find(|(named, _)| *named == id);
    let language = ids.language_of(id).map(|language| language.code);
    format!(
        "<|{}|>",
        name.map(|(_, name)| *name).or(language).unwrap_or("")
    )
}

/// Returns the properties of a speech model that its tables do not contain; `None` for other models.
///
/// # Errors
///
/// `Unsupported` if no speech model has this vocabulary, `Format` for invalid mel filters.
pub(super) fn read(model: &Opened, config: &Config) -> Result<Option<SpeechModel>> {
    let Some(encoder) = &config.speech else {
        return Ok(None);
    };
    if config.context < CONTEXT_MIN {
        bail!(
            Format,
            "whisper.decoder.context_length: expected at least {CONTEXT_MIN}, got {}",
            config.context
        );
    }
    let filters = match model.file.metadata.f32s(FILTERS)? {
        Some(rows) if rows.iter().any(|x| !x.is_finite()) => {
            bail!(Format, "{FILTERS}: a filter is not finite")
        }
        Some(rows) => MelFilters::from_rows(&rows).context(FILTERS)?,
        None => MelFilters::slaney(encoder.mels as usize),
    };
    if filters.mels() != encoder.mels as usize {
        bail!(
            Format,
            "{FILTERS}: {} filters, expected {}",
            filters.mels(),
            encoder.mels
        );
    }
    Ok(Some(SpeechModel {
        tokens: SpecialTokens::of(config.vocab)?,
        filters,
        context: encoder.context,
        alignment_heads: encoder.alignment_heads.len(),
    }))
}
