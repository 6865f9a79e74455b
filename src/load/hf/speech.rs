//! Maps the hyperparameters of speech models in `config.json` to GGUF keys.

use super::config::HfConfig;
use crate::error::Result;
use crate::format::write::Writer;

/// GGUF key, and its names in Hugging Face and MLX folders.
const KEYS: &[(&str, [&str; 2])] = &[
    ("vocab_size", ["vocab_size", "n_vocab"]),
    (
        "encoder.context_length",
        ["max_source_positions", "n_audio_ctx"],
    ),
    ("encoder.embedding_length", ["d_model", "n_audio_state"]),
    ("encoder.feed_forward_length", ["encoder_ffn_dim", ""]),
    (
        "encoder.attention.head_count",
        ["encoder_attention_heads", "n_audio_head"],
    ),
    ("encoder.block_count", ["encoder_layers", "n_audio_layer"]),
    ("encoder.mels_count", ["num_mel_bins", "n_mels"]),
    (
        "decoder.context_length",
        ["max_target_positions", "n_text_ctx"],
    ),
    ("decoder.embedding_length", ["d_model", "n_text_state"]),
    ("decoder.feed_forward_length", ["decoder_ffn_dim", ""]),
    (
        "decoder.attention.head_count",
        ["decoder_attention_heads", "n_text_head"],
    ),
    ("decoder.block_count", ["decoder_layers", "n_text_layer"]),
];

impl HfConfig {
    /// Writes the GGUF keys of a speech model, except those of the tokenizer.
    pub(super) fn write_speech(&self, w: &mut Writer<'_>) -> Result<()> {
        for (key, names) in KEYS {
            for name in names {
                if let Some(value) = self.integer(name)? {
                    w.set(&format!("whisper.{key}"), value);
                    break;
                }
            }
        }
        Ok(())
    }
}
