//! Names of the metrics of other servers, for existing dashboards. Metrics without an equivalent here are
//! missing.

use crate::engine::events::FinishReason;
use crate::metrics::{FinishedRow, HistogramRow, MetricNames, ModelMetrics, Row, load, seconds};

/// The names of vLLM: <https://docs.vllm.ai/en/latest/usage/metrics.html>.
pub(crate) const VLLM: MetricNames = MetricNames {
    label: "model_name",
    rows: VLLM_ROWS,
    finished: Some(FinishedRow {
        name: "vllm:request_success_total",
        label: "finished_reason",
        reasons: &[
            ("stop", &[FinishReason::Stop, FinishReason::ToolCalls]),
            ("length", &[FinishReason::Length, FinishReason::Context]),
        ],
    }),
    histograms: VLLM_HISTOGRAMS,
};

#[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
const VLLM_ROWS: &[Row] = &[
    (
        "vllm:num_requests_running",
        "gauge",
        "Number of running generations.",
        |s| s.running as f64,
    ),
    (
        "vllm:num_requests_waiting",
        "gauge",
        "Number of queued requests.",
        |s| s.waiting as f64,
    ),
    (
        "vllm:kv_cache_usage_perc",
        "gauge",
        "Used sequences of the KV cache, 0 to 1.",
        |s| s.running as f64 / s.slots.max(1) as f64,
    ),
    (
        "vllm:prefix_cache_queries_total",
        "counter",
        "Number of prompt tokens looked up in the prefix cache.",
        |s| load(&s.metrics.prompt_tokens),
    ),
    (
        "vllm:prefix_cache_hits_total",
        "counter",
        "Number of prompt tokens found in the prefix cache.",
        |s| load(&s.metrics.cached_tokens),
    ),
    (
        "vllm:prompt_tokens_total",
        "counter",
        "Number of prompt tokens.",
        |s| load(&s.metrics.prompt_tokens),
    ),
    (
        "vllm:generation_tokens_total",
        "counter",
        "Number of generated tokens.",
        |s| load(&s.metrics.generated_tokens),
    ),
];

const VLLM_HISTOGRAMS: &[HistogramRow] = &[
    (
        "vllm:request_queue_time_seconds",
        "Time in the queue.",
        |m| &m.queue_time,
    ),
    (
        "vllm:request_prefill_time_seconds",
        "Time in which a prompt was processed.",
        |m| &m.prefill_time,
    ),
    (
        "vllm:time_to_first_token_seconds",
        "Time from the request to the first token.",
        |m| &m.first_token_time,
    ),
    (
        "vllm:inter_token_latency_seconds",
        "Time between two tokens of a sequence.",
        |m| &m.token_time,
    ),
    (
        "vllm:e2e_request_latency_seconds",
        "Time from the request to its end.",
        |m| &m.request_time,
    ),
];

/// The names of llama.cpp, which has no label of the model.
pub(crate) const LLAMACPP: MetricNames = MetricNames {
    label: "model",
    rows: LLAMACPP_ROWS,
    finished: None,
    histograms: &[],
};

#[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
const LLAMACPP_ROWS: &[Row] = &[
    (
        "llamacpp:prompt_tokens_total",
        "counter",
        "Number of computed prompt tokens.",
        |s| computed_tokens(s.metrics),
    ),
    (
        "llamacpp:prompt_seconds_total",
        "counter",
        "Time in which prompts were processed.",
        |s| seconds(&s.metrics.prompt_micros),
    ),
    (
        "llamacpp:prompt_tokens_seconds",
        "gauge",
        "Mean number of computed prompt tokens per second.",
        |s| {
            rate(
                computed_tokens(s.metrics),
                seconds(&s.metrics.prompt_micros),
            )
        },
    ),
    (
        "llamacpp:tokens_predicted_total",
        "counter",
        "Number of generated tokens.",
        |s| load(&s.metrics.generated_tokens),
    ),
    (
        "llamacpp:tokens_predicted_seconds_total",
        "counter",
        "Time in which tokens were generated, summed over sequences.",
        |s| seconds(&s.metrics.generation_micros),
    ),
    (
        "llamacpp:predicted_tokens_seconds",
        "gauge",
        "Mean number of generated tokens per second of a sequence.",
        |s| {
            let tokens = load(&s.metrics.generated_tokens);
            rate(tokens, seconds(&s.metrics.generation_micros))
        },
    ),
    (
        "llamacpp:requests_processing",
        "gauge",
        "Number of running generations.",
        |s| s.running as f64,
    ),
    (
        "llamacpp:requests_deferred",
        "gauge",
        "Number of queued requests.",
        |s| s.waiting as f64,
    ),
];

/// Number of prompt tokens that were not in the prefix cache.
fn computed_tokens(metrics: &ModelMetrics) -> f64 {
    load(&metrics.prompt_tokens) - load(&metrics.cached_tokens)
}

fn rate(count: f64, seconds: f64) -> f64 {
    match seconds > 0.0 {
        true => count / seconds,
        false => 0.0,
    }
}
