//! Hyperparameters of the encoder of a speech model.

use crate::error::{Result, bail};
use crate::format::Metadata;

/// Prefix of the keys of the decoder.
pub(super) const DECODER: &str = "whisper.decoder";

/// Architecture of speech models.
pub(crate) const SPEECH: &str = "whisper";

/// Classes of `transformers` that the configuration files of a speech model name.
pub(crate) struct SpeechClasses {
    /// The processor, of audio and texts.
    pub processor: &'static str,
    /// Part of the processor that computes spectrograms.
    pub feature_extractor: &'static str,
    /// The tokenizer.
    pub tokenizer: &'static str,
}

/// Classes of [`SPEECH`].
pub(crate) const SPEECH_CLASSES: SpeechClasses = SpeechClasses {
    processor: "WhisperProcessor",
    feature_extractor: "WhisperFeatureExtractor",
    tokenizer: "WhisperTokenizer",
};

/// Returns whether this is the architecture of a speech model.
pub fn is_speech(name: &str) -> bool {
    name == SPEECH
}

/// Hyperparameters of the encoder of a speech model.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeechEncoder {
    /// Number of layers.
    pub layers: u32,
    /// Number of attention heads.
    pub heads: u32,
    /// Width of the feed-forward layer.
    pub ffn: u32,
    /// Number of output rows per window; the spectrogram has twice as many frames.
    pub context: u32,
    /// Number of mel channels.
    pub mels: u32,
    /// Layers and heads of the decoder whose cross-attention aligns tokens with audio.
    pub alignment_heads: Vec<(u32, u32)>,
}

/// Ranges of the hyperparameters of the encoder.
const RANGES: &[(&str, u32)] = &[
    ("block_count", 4096),
    ("attention.head_count", 4096),
    ("feed_forward_length", 1 << 20),
    // Timestamps end after 30 seconds.
    ("context_length", 1500),
    ("mels_count", 1 << 10),
];

impl SpeechEncoder {
    /// Reads the encoder of a speech model.
    ///
    /// # Errors
    ///
    /// `Format` for a value of the wrong type, a missing one or one out of range; `Unsupported` if
    /// encoder and decoder have different widths.
    pub(super) fn read(meta: &Metadata, dim: u32) -> Result<Self> {
        let key = |name: &str| format!("whisper.encoder.{name}");
        let width = meta.u32(&key("embedding_length"))?.unwrap_or(0);
        if width != dim {
            bail!(
                Unsupported,
                "whisper.encoder.embedding_length is {width}, whisper.decoder.embedding_length {dim}: \
                 expected equal values"
            );
        }
        let mut numbers = [0; RANGES.len()];
        for (number, (name, max)) in numbers.iter_mut().zip(RANGES) {
            let default = match *name {
                "feed_forward_length" => dim.saturating_mul(4),
                _ => 0,
            };
            *number = meta.u32(&key(name))?.unwrap_or(default);
            if !(1..=*max).contains(number) {
                bail!(Format, "{}: expected 1 to {max}, got {number}", key(name));
            }
        }
        let [layers, heads, ffn, context, mels] = numbers;
        if !dim.is_multiple_of(heads) {
            bail!(
                Format,
                "whisper.encoder.embedding_length: expected a multiple of \
                 whisper.encoder.attention.head_count {heads}, got {dim}"
            );
        }
        Ok(Self {
            layers,
            heads,
            ffn,
            context,
            mels,
            alignment_heads: Vec::new(),
        })
    }
}

/// Reads the vocabulary size; 1 if it is absent. It is compared with the embedding later.
pub(super) fn vocab(meta: &Metadata) -> Result<u32> {
    Ok(meta.u32("whisper.vocab_size")?.unwrap_or(1))
}
