//! Maps the hyperparameters of speech models between `config.json` and GGUF keys.

use super::config::HfConfig;
use super::write::write_class;
use crate::arch::{self, Config, SPEECH, SpeechEncoder};
use crate::error::{Result, bail};
use crate::format::write::Writer;
use crate::speech::SpecialTokens;
use serde_json::{Map, Value, json};

/// GGUF key, its names in Hugging Face and MLX folders, and its value in the configuration.
type Row = (
    &'static str,
    [&'static str; 2],
    fn(&Config, &SpeechEncoder) -> u32,
);

const KEYS: &[Row] = &[
    ("vocab_size", ["vocab_size", "n_vocab"], |c, _| c.vocab),
    (
        "encoder.context_length",
        ["max_source_positions", "n_audio_ctx"],
        |_, e| e.context,
    ),
    (
        "encoder.embedding_length",
        ["d_model", "n_audio_state"],
        |c, _| c.dim,
    ),
    (
        "encoder.feed_forward_length",
        ["encoder_ffn_dim", ""],
        |_, e| e.ffn,
    ),
    (
        "encoder.attention.head_count",
        ["encoder_attention_heads", "n_audio_head"],
        |_, e| e.heads,
    ),
    (
        "encoder.block_count",
        ["encoder_layers", "n_audio_layer"],
        |_, e| e.layers,
    ),
    ("encoder.mels_count", ["num_mel_bins", "n_mels"], |_, e| {
        e.mels
    }),
    (
        "decoder.context_length",
        ["max_target_positions", "n_text_ctx"],
        |c, _| c.context,
    ),
    (
        "decoder.embedding_length",
        ["d_model", "n_text_state"],
        |c, _| c.dim,
    ),
    (
        "decoder.feed_forward_length",
        ["decoder_ffn_dim", ""],
        |c, _| c.ffn.width,
    ),
    (
        "decoder.attention.head_count",
        ["decoder_attention_heads", "n_text_head"],
        |c, _| c.attention.heads,
    ),
    (
        "decoder.block_count",
        ["decoder_layers", "n_text_layer"],
        |c, _| c.layers,
    ),
];

/// `bos_token_id` of every published configuration, whatever the vocabulary.
const BOS: u32 = 50_257;

/// Properties of a speech model that its configuration files contain.
#[derive(Debug)]
pub struct SpeechFacts {
    /// Hyperparameters, with the alignment heads.
    pub config: Config,
    /// Ids of the special tokens.
    pub tokens: SpecialTokens,
    /// `torch_dtype` of the largest tensor.
    pub dtype: &'static str,
}

impl SpeechFacts {
    /// Returns the encoder.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a model that is no speech model.
    pub(super) fn encoder(&self) -> Result<&SpeechEncoder> {
        match &self.config.speech {
            Some(encoder) => Ok(encoder),
            None => bail!(Unsupported, "the model is no speech model"),
        }
    }

    /// Returns the ids that `config.json` and `generation_config.json` both contain.
    pub(super) fn ids(&self) -> Map<String, Value> {
        let ids = [
            ("bos_token_id", BOS),
            ("eos_token_id", self.tokens.eot),
            ("pad_token_id", self.tokens.eot),
            ("decoder_start_token_id", self.tokens.sot),
        ];
        let ids = ids.map(|(name, id)| (name.to_string(), id.into()));
        ids.into_iter().collect()
    }
}

impl HfConfig {
    /// Writes the GGUF keys of a speech model, except those of the tokenizer.
    pub(super) fn write_speech(&self, w: &mut Writer<'_>) -> Result<()> {
        for (key, names, _) in KEYS {
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

/// Settings of generation in `config.json`, which apply if there is no `generation_config.json`.
pub const GENERATION_KEYS: [&str; 4] = [
    "begin_suppress_tokens",
    "forced_decoder_ids",
    "max_length",
    "suppress_tokens",
];

/// Keys that describe the tensors of the source, not those of the result.
const STORAGE_KEYS: [&str; 2] = ["dtype", "quantization_config"];

/// Returns the `config.json` of a speech model: the reverse of `HfConfig::write_speech`. `source` has
/// the settings of a source that is a folder, which are kept if they do not contradict the tensors.
///
/// # Errors
///
/// `Unsupported` for a model that is no speech model.
pub fn speech_config(facts: &SpeechFacts, source: &Map<String, Value>) -> Result<Value> {
    let (arch, encoder) = (arch::find(SPEECH)?, facts.encoder()?);
    let mut root = defaults();
    root.extend(source.clone());
    for key in STORAGE_KEYS {
        root.remove(key);
    }
    if let Some(model) = arch.exported().next() {
        write_class(model, &mut root);
    }
    for (_, [name, _], value) in KEYS {
        let value = value(&facts.config, encoder);
        root.insert((*name).to_string(), value.into());
    }
    root.append(&mut facts.ids());
    root.insert("num_hidden_layers".into(), encoder.layers.into());
    root.insert("torch_dtype".into(), facts.dtype.into());
    Ok(root.into())
}

/// Returns the settings that do not depend on the model.
fn defaults() -> Map<String, Value> {
    let mut root = Map::new();
    root.insert("activation_function".into(), "gelu".into());
    root.insert("init_std".into(), json!(0.02));
    root.insert("scale_embedding".into(), false.into());
    for name in ["is_encoder_decoder", "tie_word_embeddings", "use_cache"] {
        root.insert(name.into(), true.into());
    }
    for name in [
        "activation_dropout",
        "attention_dropout",
        "decoder_layerdrop",
        "dropout",
        "encoder_layerdrop",
    ] {
        root.insert(name.into(), json!(0.0));
    }
    root
}
