//! Files of a speech model next to its `config.json`: front end, generation and tokenizer.

use super::speech::SpeechFacts;
use crate::arch::SPEECH_CLASSES;
use crate::audio::{HOP, SAMPLE_RATE};
use crate::error::Result;
use crate::speech::{BLANK, SpecialTokens, Task, suppressed};
use crate::speech_model::special_text;
use serde_json::{Map, Value, json};

/// Points of the Fourier transform.
const FFT: usize = 400;
/// Frames of the spectrogram per row of the encoder.
const FRAMES_PER_ROW: usize = 2;
/// Last timestamp that a window may begin with, in units of 20 ms.
const FIRST_TIMESTAMP_MAX: u32 = 50;

/// Returns the `preprocessor_config.json`.
///
/// # Errors
///
/// `Unsupported` for a model that is no speech model.
pub fn preprocessor_config(facts: &SpeechFacts) -> Result<Value> {
    let encoder = facts.encoder()?;
    let frames = FRAMES_PER_ROW * encoder.context as usize;
    let samples = frames * HOP;
    Ok(json!({
        "feature_extractor_type": SPEECH_CLASSES.feature_extractor,
        "processor_class": SPEECH_CLASSES.processor,
        "feature_size": encoder.mels,
        "sampling_rate": SAMPLE_RATE,
        "hop_length": HOP,
        "n_fft": FFT,
        "chunk_length": (samples / SAMPLE_RATE as usize).max(1),
        "n_samples": samples,
        "nb_max_frames": frames,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": false,
    }))
}

/// Returns the `generation_config.json`.
///
/// # Errors
///
/// `Unsupported` for a model that is no speech model.
pub fn generation_config(facts: &SpeechFacts) -> Result<Value> {
    let (tokens, heads) = (&facts.tokens, &facts.encoder()?.alignment_heads);
    let mut root = facts.ids();
    let mut set = |name: &str, value: Value| root.insert(name.to_string(), value);
    set("alignment_heads", json!(heads));
    set("begin_suppress_tokens", json!([BLANK, tokens.eot]));
    set("is_multilingual", tokens.is_multilingual().into());
    if tokens.is_multilingual() {
        set("lang_to_id", languages(tokens).into());
        let tasks: [(String, Value); 2] = [Task::Transcribe, Task::Translate].map(|task| {
            let id = tokens.task_token(task);
            (task.name().to_string(), id.into())
        });
        set("task_to_id", Map::from_iter(tasks).into());
    }
    set("max_initial_timestamp_index", FIRST_TIMESTAMP_MAX.into());
    set("max_length", facts.config.context.into());
    set("no_timestamps_token_id", tokens.notimestamps.into());
    set("prev_sot_token_id", tokens.startofprev.into());
    set("return_timestamps", false.into());
    set("suppress_tokens", suppressed(tokens).into());
    Ok(root.into())
}

/// Returns the language tokens and their ids.
fn languages(tokens: &SpecialTokens) -> Map<String, Value> {
    let ids = tokens.sot + 1..tokens.translate;
    ids.map(|id| (special_text(tokens, id), id.into()))
        .collect()
}

/// Returns the `tokenizer_config.json`.
pub fn speech_tokenizer_config(tokens: &SpecialTokens) -> Value {
    let end = special_text(tokens, tokens.eot);
    let specials = tokens.sot..tokens.first_timestamp;
    let specials: Vec<String> = specials.map(|id| special_text(tokens, id)).collect();
    json!({
        "tokenizer_class": SPEECH_CLASSES.tokenizer,
        "processor_class": SPEECH_CLASSES.processor,
        "bos_token": end,
        "eos_token": end,
        "pad_token": end,
        "unk_token": end,
        "additional_special_tokens": specials,
        "add_prefix_space": false,
        "clean_up_tokenization_spaces": false,
        "errors": "replace",
        "model_max_length": 1024,
        "return_attention_mask": false,
    })
}
