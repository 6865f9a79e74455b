//! `generation_settings` of llama.cpp: the options of a generation.

use crate::engine::extra_fields::TimedChunks;
use crate::engine::parameters::{AnswerFields, TokenLimit};
use crate::http::body::{Json, fields};
use crate::http::error::ApiResult;
use crate::models::Loaded;
use serde_json::{Value, json};
use tabla::{GenerateOptions, Overflow, Sampling};

/// Options of a generation.
pub(super) struct Settings<'a> {
    pub(super) options: &'a GenerateOptions,
    pub(super) limit: TokenLimit,
    pub(super) is_stream: bool,
    pub(super) timed: TimedChunks,
}

impl Settings<'_> {
    /// Returns the options with the names of llama.cpp.
    pub(super) fn value(&self, model: &Loaded, request: &Json) -> ApiResult<Value> {
        let options = self.options;
        let answer: AnswerFields = fields(request)?;
        let biases = options.logit_bias.iter().copied();
        let stops = model.model.tokenizer().stops().iter();
        // As in llama.cpp, tokens that cannot be generated have the bias null.
        let banned = stops.map(|token| (*token, f32::NEG_INFINITY));
        let biases = biases.chain(banned.filter(|_| options.ignore_eos));
        let biases = biases.map(|(token, bias)| {
            let bias = bias.is_finite().then_some(bias);
            json!({ "token": token, "bias": bias })
        });
        let mut value = sampling(&options.sampling);
        for (name, field) in [
            (
                "dry_sequence_breakers",
                json!(options.dry_sequence_breakers),
            ),
            ("stop", json!(options.stop)),
            ("max_tokens", self.limit.number().into()),
            ("n_predict", self.limit.number().into()),
            ("n_keep", kept(model.overflow).into()),
            ("ignore_eos", options.ignore_eos.into()),
            ("stream", self.is_stream.into()),
            ("logit_bias", biases.collect::<Vec<_>>().into()),
            ("n_probs", options.logprobs.unwrap_or(0).into()),
            ("timings_per_token", (self.timed == TimedChunks::All).into()),
            (
                "samplers",
                model.samplers.listed(answer.samplers.as_ref())?.into(),
            ),
        ] {
            value[name] = field;
        }
        Ok(value)
    }
}

/// Returns the number of initial tokens that a context shift keeps; -1: the prompt.
pub(crate) fn kept(overflow: Overflow) -> i64 {
    match overflow {
        Overflow::Shift { n_keep: u32::MAX } => -1,
        Overflow::Shift { n_keep } => n_keep.into(),
        _ => 0,
    }
}

/// Returns sampling parameters with the names of llama.cpp, and the values of those that Tabla lacks.
pub(crate) fn sampling(sampling: &Sampling) -> Value {
    let Sampling {
        repetition_penalty,
        frequency_penalty,
        presence_penalty,
        repeat_last_n,
        dry_multiplier,
        dry_base,
        dry_allowed_length,
        dry_penalty_last_n,
        top_n_sigma,
        top_k,
        typical_p,
        top_p,
        min_p,
        xtc_probability,
        xtc_threshold,
        temperature,
        dynatemp_range,
        dynatemp_exponent,
        mirostat_tau,
        mirostat_eta,
        seed,
        ..
    } = *sampling;
    let dry_penalty_last_n = i64::from(dry_penalty_last_n);
    let is_mirostat = mirostat_tau > 0.0;
    json!({
        "seed": seed,
        "temperature": temperature,
        "dynatemp_range": dynatemp_range,
        "dynatemp_exponent": dynatemp_exponent,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "top_n_sigma": top_n_sigma,
        "xtc_probability": xtc_probability,
        "xtc_threshold": xtc_threshold,
        "typical_p": typical_p,
        "repeat_last_n": repeat_last_n,
        "repeat_penalty": repetition_penalty,
        "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty,
        "dry_multiplier": dry_multiplier,
        "dry_base": dry_base,
        "dry_allowed_length": dry_allowed_length,
        "dry_penalty_last_n": if dry_penalty_last_n == i64::from(u32::MAX) { -1 } else { dry_penalty_last_n },
        "mirostat": if is_mirostat { 2 } else { 0 },
        "mirostat_tau": mirostat_tau,
        "mirostat_eta": mirostat_eta,
        "adaptive_target": -1.0,
        "adaptive_decay": 0.9,
        "n_keep": 0,
        "n_discard": 0,
        "min_keep": 0,
        "post_sampling_probs": false,
        "lora": [],
    })
}
