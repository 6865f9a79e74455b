//! Fields of llama.cpp besides those of other APIs: each works, changes only speed, or is an error.

use super::numbers::Int;
use super::request::{Extras, LineRules};
use crate::http::body::{Json, fields};
use crate::http::error::{ApiError, ApiResult};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;
use utoipa::ToSchema;

/// Fields of llama.cpp. `cache_prompt`, `id_slot`, `n_cache_reuse`, `n_keep`, `n_discard`, `backend_sampling` and
/// `speculative.*` are ignored: answers do not depend on them.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ExtraFields {
    /// Minimum number of spaces and tabs at the start of every line after the first; a line with fewer ends the
    /// answer.
    #[schema(value_type = Option<i64>)]
    n_indent: Option<Int>,
    /// Milliseconds of generation after which the next line break ends the answer; 0 or -1: no limit.
    #[schema(value_type = Option<i64>)]
    t_max_predict_ms: Option<Int>,
    /// Whether a stream has `prompt_progress` while the prompt is processed.
    return_progress: Option<bool>,
    /// Whether every chunk of a stream has `timings`.
    timings_per_token: Option<bool>,
    /// Must be 0.
    #[schema(value_type = Option<i64>)]
    min_keep: Option<Value>,
    /// Must be negative.
    adaptive_target: Option<Value>,
    /// Must be an empty list.
    #[schema(value_type = Option<Vec<Object>>)]
    lora: Option<Value>,
    /// Must be false.
    post_sampling_probs: Option<Value>,
    /// Must be false.
    grammar_lazy: Option<Value>,
    /// Must be an empty list.
    #[schema(value_type = Option<Vec<Object>>)]
    grammar_triggers: Option<Value>,
}

/// A field whose default value only is accepted.
struct Fixed {
    name: &'static str,
    field: fn(&ExtraFields) -> Option<&Value>,
    is_default: fn(&Value) -> bool,
    message: &'static str,
}

const FIXED: &[Fixed] = &[
    Fixed {
        name: "min_keep",
        field: |f| f.min_keep.as_ref(),
        is_default: |value| value.as_f64() == Some(0.0),
        message: "must be 0: samplers keep at least one token",
    },
    Fixed {
        name: "adaptive_target",
        field: |f| f.adaptive_target.as_ref(),
        is_default: |value| value.as_f64().is_some_and(|value| value < 0.0),
        message: "must be negative: the sampler adaptive_p is not supported",
    },
    Fixed {
        name: "lora",
        field: |f| f.lora.as_ref(),
        is_default: is_empty,
        message: "must be empty: start the server with --lora-merge",
    },
    Fixed {
        name: "post_sampling_probs",
        field: |f| f.post_sampling_probs.as_ref(),
        is_default: |value| *value == false,
        message: "must be false: probabilities are those before sampling",
    },
    Fixed {
        name: "grammar_lazy",
        field: |f| f.grammar_lazy.as_ref(),
        is_default: |value| *value == false,
        message: "must be false: a grammar applies from the first token",
    },
    Fixed {
        name: "grammar_triggers",
        field: |f| f.grammar_triggers.as_ref(),
        is_default: is_empty,
        message: "must be empty: a grammar applies from the first token",
    },
];

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

impl ExtraFields {
    /// Parses and checks the fields of a request.
    pub(crate) fn parse(request: &Json) -> ApiResult<Self> {
        let parsed: Self = fields(request)?;
        let refused = FIXED.iter().find(|fixed| {
            let value = (fixed.field)(&parsed);
            value.is_some_and(|value| !(fixed.is_default)(value))
        });
        match refused {
            Some(fixed) => Err(ApiError::field(fixed.name, fixed.message)),
            None => Ok(parsed),
        }
    }

    /// Returns how they change the generation.
    pub(crate) fn extras(&self) -> ApiResult<Extras> {
        let indent = self.n_indent.map(|n| n.u32_in("n_indent", 0, u32::MAX));
        let time = self.t_max_predict_ms;
        let time = time.map(|n| n.in_range("t_max_predict_ms", -1, i64::MAX));
        let millis = time.transpose()?.filter(|millis| *millis > 0);
        Ok(Extras {
            progress: self.return_progress.unwrap_or(false),
            lines: LineRules {
                indent: indent.transpose()?.unwrap_or(0),
                time: millis.map(|millis| Duration::from_millis(millis.unsigned_abs())),
            },
        })
    }

    /// Returns which chunks of a stream have times.
    pub(crate) fn timed_chunks(&self) -> TimedChunks {
        match self.timings_per_token.unwrap_or(false) {
            true => TimedChunks::All,
            false => TimedChunks::Last,
        }
    }
}

/// Which chunks of a stream have times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TimedChunks {
    #[default]
    Last,
    All,
}
