//! Parameters of a generation that all APIs share, and their ranges.

use super::numbers::Int;
use super::samplers::Samplers;
use super::sampling_fields::SamplingFields;
use crate::http::body::{Json, fields};
use crate::http::error::{ApiError, ApiResult};
use crate::http::ids;
use crate::models::Loaded;
use serde::Deserialize;
use serde_json::Value;
use tabla::{GenerateOptions, Model, Sampling};
use utoipa::ToSchema;

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

/// Fields of a request that apply to an answer, besides [`SamplingFields`].
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct AnswerFields {
    /// Samplers that apply, as a list of names or a string of letters, as in llama.cpp; their order is fixed. Default:
    /// those of the server.
    #[schema(value_type = Option<Object>)]
    pub(crate) samplers: Option<Value>,
    /// DRY sequence breakers.
    pub(crate) dry_sequence_breakers: Option<Vec<String>>,
    /// Mirostat: 0 off, 2 on.
    #[schema(value_type = Option<i64>)]
    pub(crate) mirostat: Option<Int>,
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
    #[serde(alias = "reasoning_budget_tokens")]
    #[schema(value_type = Option<i64>)]
    pub(crate) thinking_budget_tokens: Option<Int>,
    /// Values added to logits: an object from token ids to numbers, or a list of pairs.
    #[schema(value_type = Option<Object>)]
    pub(crate) logit_bias: Option<Value>,
}

/// Parses the options of a generation from the fields of a request.
pub(crate) fn generate_options(request: &Json, model: &Loaded) -> ApiResult<GenerateOptions> {
    let sampling: SamplingFields = fields(request)?;
    let answer: AnswerFields = fields(request)?;
    sampling.check()?;
    answer.options(&sampling, model)
}

/// Checks the sampling parameters of a request.
pub(crate) fn check_sampling(request: &Json) -> ApiResult<()> {
    fields::<SamplingFields>(request)?.check()
}

impl AnswerFields {
    fn options(&self, sampling: &SamplingFields, loaded: &Loaded) -> ApiResult<GenerateOptions> {
        let model = &loaded.model;
        let breakers = self.dry_sequence_breakers.as_deref();
        check_texts("dry_sequence_breakers", breakers.unwrap_or_default())?;
        let vocab = model.facts().vocab;
        let ids = self.stop_token_ids.iter().flatten();
        let ids = ids.map(|id| id.u32_in("stop_token_ids", 0, vocab.saturating_sub(1)));
        let options = GenerateOptions::default()
            .sampling(self.complete(sampling, &loaded.samplers)?)
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

    /// Returns the sampling parameters with the seed. Mirostat is off unless it is switched on.
    fn complete(&self, fields: &SamplingFields, samplers: &Samplers) -> ApiResult<Sampling> {
        let sampling = fields.sampling();
        let tau = match self.mirostat {
            Some(Int(2)) => sampling.mirostat_tau,
            None | Some(Int(..=0)) => 0.0,
            Some(Int(mode)) => {
                let message = format!("expected 0 (off) or 2 (Mirostat 2), got {mode}");
                return Err(ApiError::field("mirostat", message));
            }
        };
        let sampling = sampling.mirostat_tau(tau).seed(match self.seed {
            Some(Int(seed)) if seed >= 0 => seed.unsigned_abs(),
            _ => ids::new_seed(),
        });
        samplers.select(self.samplers.as_ref(), fields, sampling)
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
    /// Maximum number of tokens to generate; -1: no limit; 0: only the prompt is processed. Reasoning counts.
    #[schema(value_type = Option<i64>)]
    pub(crate) max_completion_tokens: Option<Int>,
    /// Same as `max_completion_tokens`, which has precedence.
    #[schema(value_type = Option<i64>)]
    pub(crate) max_tokens: Option<Int>,
    /// Same as `max_tokens`, which has precedence.
    #[schema(value_type = Option<i64>)]
    pub(crate) n_predict: Option<Int>,
}

impl LimitFields {
    /// Returns the limit of the first of these fields; `None` if the request has none.
    pub(crate) fn limit(&self) -> ApiResult<Option<TokenLimit>> {
        let named = [
            ("max_completion_tokens", self.max_completion_tokens),
            ("max_tokens", self.max_tokens),
            ("n_predict", self.n_predict),
        ];
        let mut named = named.into_iter();
        let first = named.find_map(|(name, value)| Some((name, value?)));
        first
            .map(|(name, value)| TokenLimit::new(name, value))
            .transpose()
    }
}

/// Limit of the number of generated tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TokenLimit {
    /// The generation ends at a stop token, or when the context is full.
    #[default]
    None,
    /// Nothing is generated: the prompt is processed, and then is in the prefix cache.
    PromptOnly,
    /// Maximum number.
    Max(u32),
}

impl TokenLimit {
    /// Parses the number of a field.
    pub(crate) fn new(name: &str, value: Int) -> ApiResult<Self> {
        Ok(match value.in_range(name, -1, i64::MAX)? {
            -1 => Self::None,
            0 => Self::PromptOnly,
            tokens => Self::Max(u32::try_from(tokens).unwrap_or(u32::MAX)),
        })
    }

    /// Returns the number of choices that are generated of `choices`.
    pub(crate) fn choices(self, choices: u32) -> u32 {
        match self {
            Self::PromptOnly => 0,
            Self::None | Self::Max(_) => choices,
        }
    }

    /// Returns the option of a generation.
    pub(crate) fn max_tokens(self) -> u32 {
        match self {
            Self::PromptOnly => 0,
            Self::None => u32::MAX,
            Self::Max(tokens) => tokens,
        }
    }

    /// Returns the number as in a request.
    pub(crate) fn number(self) -> i64 {
        match self {
            Self::None => -1,
            Self::PromptOnly => 0,
            Self::Max(tokens) => tokens.into(),
        }
    }
}
