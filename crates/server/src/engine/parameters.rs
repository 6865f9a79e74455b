//! Parameters of a generation that all APIs share, and their ranges.

use crate::http::error::{ApiError, ApiResult};
use crate::http::ids;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tabla::op::sampling::REPEAT_LAST_N_MAX;
use tabla::{GenerateOptions, Model, Sampling};
use utoipa::ToSchema;

/// An integer, which some clients write with a fraction of zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Int(pub(crate) i64);

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Value::deserialize(deserializer)?;
        let whole = |value: &f64| value.fract() == 0.0 && value.abs() < 9e15;
        #[expect(clippy::cast_possible_truncation, reason = "whole and in range")]
        let from_float = |value: f64| value as i64;
        let value = number.as_i64();
        let value = value.or_else(|| number.as_u64().map(|_| i64::MAX));
        let value = value.or_else(|| number.as_f64().filter(whole).map(from_float));
        value
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom("expected an integer"))
    }
}

impl Int {
    /// Returns the number if it is in the range.
    pub(crate) fn in_range(self, name: &str, min: i64, max: i64) -> ApiResult<i64> {
        match (min..=max).contains(&self.0) {
            true => Ok(self.0),
            false => Err(ApiError::field(
                name,
                format_args!("must be between {min} and {max}, got {}", self.0),
            )),
        }
    }

    /// Returns the number as `u32` if it is in the range.
    pub(crate) fn u32_in(self, name: &str, min: u32, max: u32) -> ApiResult<u32> {
        let value = self.in_range(name, min.into(), max.into())?;
        Ok(u32::try_from(value).unwrap_or(max))
    }
}

/// One string, or several.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub(crate) enum Strings {
    /// One string.
    One(String),
    /// Several strings.
    Many(Vec<String>),
}

impl Strings {
    pub(crate) fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        }
    }
}

/// Sampling parameters of a request, with the names of OpenAI, llama.cpp and vLLM.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct SamplingFields {
    /// Sampling temperature, 0 to 2; 0 selects the likeliest token.
    pub(crate) temperature: Option<f32>,
    /// Nucleus sampling, 0 to 1.
    pub(crate) top_p: Option<f32>,
    /// Number of likeliest tokens to sample from; 0 or less: all.
    #[schema(value_type = Option<i64>)]
    pub(crate) top_k: Option<Int>,
    /// Minimum probability relative to the likeliest token, 0 to 1.
    pub(crate) min_p: Option<f32>,
    /// Locally typical sampling, 0 to 1.
    pub(crate) typical_p: Option<f32>,
    /// Presence penalty, -2 to 2.
    pub(crate) presence_penalty: Option<f32>,
    /// Frequency penalty, -2 to 2.
    pub(crate) frequency_penalty: Option<f32>,
    /// Repetition penalty; 1: off.
    pub(crate) repeat_penalty: Option<f32>,
    /// Same as `repeat_penalty`, which has precedence.
    pub(crate) repetition_penalty: Option<f32>,
    /// Number of tokens to which penalties apply; -1: the maximum.
    #[schema(value_type = Option<i64>)]
    pub(crate) repeat_last_n: Option<Int>,
    /// DRY multiplier; 0: off.
    pub(crate) dry_multiplier: Option<f32>,
    /// DRY base.
    pub(crate) dry_base: Option<f32>,
    /// DRY allowed length.
    #[schema(value_type = Option<i64>)]
    pub(crate) dry_allowed_length: Option<Int>,
    /// Number of tokens that DRY searches; -1: all.
    #[schema(value_type = Option<i64>)]
    pub(crate) dry_penalty_last_n: Option<Int>,
    /// DRY sequence breakers.
    pub(crate) dry_sequence_breakers: Option<Vec<String>>,
    /// XTC probability; 0: off.
    pub(crate) xtc_probability: Option<f32>,
    /// XTC threshold.
    pub(crate) xtc_threshold: Option<f32>,
    /// Top-n-sigma; 0 or less: off.
    pub(crate) top_n_sigma: Option<f32>,
    /// Range of the dynamic temperature; 0: off.
    pub(crate) dynatemp_range: Option<f32>,
    /// Exponent of the dynamic temperature.
    pub(crate) dynatemp_exponent: Option<f32>,
    /// Mirostat: 0 off, 2 on.
    #[schema(value_type = Option<i64>)]
    pub(crate) mirostat: Option<Int>,
    /// Mirostat target entropy.
    pub(crate) mirostat_tau: Option<f32>,
    /// Mirostat learning rate.
    pub(crate) mirostat_eta: Option<f32>,
    /// Key of the random numbers; null or -1: random. The same seed gives the same answer.
    #[schema(value_type = Option<i64>)]
    pub(crate) seed: Option<Int>,
    /// Stop strings.
    pub(crate) stop: Option<Strings>,
    /// Same as `stop`, which has precedence.
    pub(crate) stop_sequences: Option<Strings>,
    /// Additional stop tokens.
    #[schema(value_type = Option<Vec<i64>>)]
    pub(crate) stop_token_ids: Option<Vec<Int>>,
    /// Minimum number of tokens before a stop token is allowed.
    #[schema(value_type = Option<i64>)]
    pub(crate) min_tokens: Option<Int>,
    /// Whether stop tokens are ignored.
    pub(crate) ignore_eos: Option<bool>,
    /// Maximum number of tokens of the reasoning of a chat; then it is closed. -1: no maximum.
    #[schema(value_type = Option<i64>)]
    pub(crate) thinking_token_budget: Option<Int>,
    /// Same as `thinking_token_budget`, which has precedence.
    #[schema(value_type = Option<i64>)]
    pub(crate) thinking_budget_tokens: Option<Int>,
    /// Values added to logits: an object from token ids to numbers, or a list of pairs.
    #[schema(value_type = Option<Object>)]
    pub(crate) logit_bias: Option<Value>,
}

impl SamplingFields {
    /// Returns the options of a generation.
    pub(crate) fn options(&self, model: &Model) -> ApiResult<GenerateOptions> {
        self.check()?;
        let vocab = model.facts().vocab;
        let ids = self.stop_token_ids.iter().flatten();
        let ids = ids.map(|id| id.u32_in("stop_token_ids", 0, vocab.saturating_sub(1)));
        let options = GenerateOptions::default()
            .sampling(self.sampling())
            .stop(self.stop_strings()?)
            .stop_token_ids(ids.collect::<ApiResult<_>>()?)
            .min_tokens(match self.min_tokens {
                Some(count) => count.u32_in("min_tokens", 0, u32::MAX)?,
                None => 0,
            })
            .ignore_eos(self.ignore_eos.unwrap_or(false))
            .reasoning_budget(self.reasoning_budget()?)
            .dry_sequence_breakers(self.dry_sequence_breakers.clone());
        // The model has stop tokens of its own, which count.
        let check = |options: &GenerateOptions, name| {
            let checked = options.check(model);
            checked.map_err(|error| ApiError::in_field(name, error))
        };
        check(&options, "stop_token_ids")?;
        let options = options.logit_bias(match &self.logit_bias {
            Some(bias) => logit_bias(bias, model)?,
            None => Vec::new(),
        });
        check(&options, "logit_bias")?;
        Ok(options)
    }

    /// Returns the maximum number of tokens of the reasoning.
    fn reasoning_budget(&self) -> ApiResult<Option<u32>> {
        let named = [
            ("thinking_token_budget", self.thinking_token_budget),
            ("thinking_budget_tokens", self.thinking_budget_tokens),
        ];
        let mut named = named.into_iter();
        let first = named.find_map(|(name, tokens)| Some((name, tokens?)));
        let Some((name, tokens)) = first else {
            return Ok(None);
        };
        let tokens = tokens.in_range(name, -1, u32::MAX.into())?;
        Ok(Some(u32::try_from(tokens).unwrap_or(u32::MAX)))
    }

    /// Returns the stop strings without empty ones.
    fn stop_strings(&self) -> ApiResult<Vec<String>> {
        let (name, stop) = match (&self.stop, &self.stop_sequences) {
            (None, Some(stop)) => ("stop_sequences", Some(stop)),
            (stop, _) => ("stop", stop.as_ref()),
        };
        let texts = stop.cloned().map_or(Vec::new(), Strings::into_vec);
        let texts: Vec<String> = texts.into_iter().filter(|text| !text.is_empty()).collect();
        check_texts(name, &texts)?;
        Ok(texts)
    }

    /// Checks the ranges: those of OpenAI's API, and those of the library for other parameters.
    fn check(&self) -> ApiResult<()> {
        for (name, value, min, max) in [
            ("temperature", self.temperature, 0.0, 2.0),
            ("top_p", self.top_p, 0.0, 1.0),
            ("min_p", self.min_p, 0.0, 1.0),
            ("presence_penalty", self.presence_penalty, -2.0, 2.0),
            ("frequency_penalty", self.frequency_penalty, -2.0, 2.0),
            ("repeat_penalty", self.repeat_penalty, 0.01, 100.0),
            ("repetition_penalty", self.repetition_penalty, 0.01, 100.0),
            ("typical_p", self.typical_p, 0.0, 1.0),
            ("dry_multiplier", self.dry_multiplier, 0.0, 100.0),
            ("dry_base", self.dry_base, 1.0, 100.0),
            ("xtc_probability", self.xtc_probability, 0.0, 1.0),
            ("xtc_threshold", self.xtc_threshold, 0.0, 1.0),
            ("top_n_sigma", self.top_n_sigma, -100.0, 100.0),
            ("dynatemp_range", self.dynatemp_range, 0.0, 100.0),
            ("dynatemp_exponent", self.dynatemp_exponent, 0.0, 100.0),
            ("mirostat_tau", self.mirostat_tau, 0.0, 100.0),
            ("mirostat_eta", self.mirostat_eta, 0.0, 1.0),
        ] {
            if let Some(value) = value.filter(|value| !(min..=max).contains(value)) {
                let message = format_args!("must be between {min} and {max}, got {value}");
                return Err(ApiError::field(name, message));
            }
        }
        if let Some(tokens) = self.repeat_last_n {
            tokens.in_range("repeat_last_n", -1, REPEAT_LAST_N_MAX.into())?;
        }
        let breakers = self.dry_sequence_breakers.as_deref();
        check_texts("dry_sequence_breakers", breakers.unwrap_or_default())
    }

    fn sampling(&self) -> Sampling {
        let default = Sampling::default();
        let size = |value: Option<Int>, default: u32, negative: u32| match value {
            None => default,
            Some(Int(value)) if value < 0 => negative,
            Some(Int(value)) => u32::try_from(value).unwrap_or(u32::MAX),
        };
        let is_mirostat = self.mirostat.is_some_and(|Int(mode)| mode > 0);
        let tau = self.mirostat_tau.unwrap_or(5.0);
        Sampling::default()
            .temperature(self.temperature.unwrap_or(default.temperature))
            .top_p(self.top_p.unwrap_or(default.top_p))
            .top_k(size(self.top_k, default.top_k, 0))
            .min_p(self.min_p.unwrap_or(default.min_p))
            .typical_p(self.typical_p.unwrap_or(default.typical_p))
            .presence_penalty(self.presence_penalty.unwrap_or(default.presence_penalty))
            .frequency_penalty(self.frequency_penalty.unwrap_or(default.frequency_penalty))
            .repetition_penalty({
                let penalty = self.repeat_penalty.or(self.repetition_penalty);
                penalty.unwrap_or(default.repetition_penalty)
            })
            .repeat_last_n(size(
                self.repeat_last_n,
                default.repeat_last_n,
                REPEAT_LAST_N_MAX,
            ))
            .dry_multiplier(self.dry_multiplier.unwrap_or(default.dry_multiplier))
            .dry_base(self.dry_base.unwrap_or(default.dry_base))
            .dry_allowed_length(size(self.dry_allowed_length, default.dry_allowed_length, 0))
            .dry_penalty_last_n(size(
                self.dry_penalty_last_n,
                default.dry_penalty_last_n,
                u32::MAX,
            ))
            .xtc_probability(self.xtc_probability.unwrap_or(default.xtc_probability))
            .xtc_threshold(self.xtc_threshold.unwrap_or(default.xtc_threshold))
            .top_n_sigma(self.top_n_sigma.unwrap_or(default.top_n_sigma).max(0.0))
            .dynatemp_range(self.dynatemp_range.unwrap_or(default.dynatemp_range))
            .dynatemp_exponent(self.dynatemp_exponent.unwrap_or(default.dynatemp_exponent))
            .mirostat_tau(if is_mirostat {
                tau
            } else {
                default.mirostat_tau
            })
            .mirostat_eta(self.mirostat_eta.unwrap_or(default.mirostat_eta))
            .seed(match self.seed {
                Some(Int(seed)) if seed >= 0 => seed.unsigned_abs(),
                _ => ids::new_seed(),
            })
    }
}

/// Checks the number and the lengths of texts.
fn check_texts(name: &str, texts: &[String]) -> ApiResult<()> {
    let (count, max) = (texts.len(), GenerateOptions::STOP_STRINGS_MAX);
    if count > max {
        let message = format!("expected at most {max} texts, got {count}");
        return Err(ApiError::field(name, message));
    }
    let max = GenerateOptions::STOP_STRING_BYTES_MAX;
    let is_valid = |text: &String| (1..=max).contains(&text.len());
    match texts.iter().position(|text| !is_valid(text)) {
        None => Ok(()),
        Some(at) => {
            let message = format!("expected 1 to {max} bytes, got {}", texts[at].len());
            Err(ApiError::field(format!("{name}[{at}]"), message))
        }
    }
}

/// Parses the biases of tokens. A value of -100 or less, and `false`, bans a token.
fn logit_bias(bias: &Value, model: &Model) -> ApiResult<Vec<(u32, f32)>> {
    const NAME: &str = "logit_bias";
    let invalid = |message: &str| ApiError::field(NAME, message);
    let pairs: Vec<(Value, Value)> = match bias {
        Value::Null => Vec::new(),
        Value::Object(fields) => {
            let pairs = fields.iter();
            pairs
                .map(|(key, value)| (key.clone().into(), value.clone()))
                .collect()
        }
        Value::Array(items) => {
            let pair = |item: &Value| match item.as_array().map(Vec::as_slice) {
                Some([token, value]) => Ok((token.clone(), value.clone())),
                _ => Err(invalid("expected pairs of a token and a number")),
            };
            items.iter().map(pair).collect::<ApiResult<_>>()?
        }
        _ => return Err(invalid("expected an object from token ids to numbers")),
    };
    let mut biases = Vec::new();
    for (token, value) in pairs {
        #[expect(clippy::cast_possible_truncation, reason = "logits are f32")]
        let value = match value {
            Value::Bool(false) => f32::NEG_INFINITY,
            value => match value.as_f64() {
                Some(value) if value <= -100.0 => f32::NEG_INFINITY,
                Some(value) if value <= 100.0 => value as f32,
                _ => return Err(invalid("expected numbers between -100 and 100")),
            },
        };
        let id = token.as_u64().or_else(|| token.as_str()?.parse().ok());
        match (id.map(u32::try_from), token.as_str()) {
            (Some(Ok(id)), _) if id < model.facts().vocab => biases.push((id, value)),
            (None, Some(text)) => {
                let ids = model
                    .tokenizer()
                    .encode(text, tabla::text::EncodeOptions::default())?;
                biases.extend(ids.into_iter().map(|id| (id, value)));
            }
            _ => return Err(invalid(&format!("token {token} is outside the vocabulary"))),
        }
    }
    Ok(biases)
}

/// Number of tokens to generate.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct LimitFields {
    /// Maximum number of tokens to generate, at least 1. Reasoning counts.
    #[schema(value_type = Option<i64>)]
    pub(crate) max_completion_tokens: Option<Int>,
    /// Same as `max_completion_tokens`, which has precedence.
    #[schema(value_type = Option<i64>)]
    pub(crate) max_tokens: Option<Int>,
    /// Same as `max_tokens`; -1: no limit.
    #[schema(value_type = Option<i64>)]
    pub(crate) n_predict: Option<Int>,
}

impl LimitFields {
    /// Returns the limit; 0: until the context is full.
    pub(crate) fn tokens(&self) -> ApiResult<u32> {
        let named = [
            ("max_completion_tokens", self.max_completion_tokens),
            ("max_tokens", self.max_tokens),
        ];
        let first = named
            .into_iter()
            .find_map(|(name, value)| Some((name, value?)));
        match (first, self.n_predict) {
            (Some((name, value)), _) => {
                Ok(u32::try_from(value.in_range(name, 1, i64::MAX)?).unwrap_or(u32::MAX))
            }
            (None, Some(Int(value))) if value > 0 => Ok(u32::try_from(value).unwrap_or(u32::MAX)),
            _ => Ok(0),
        }
    }
}
