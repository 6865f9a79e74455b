//! Metrics in the text format of Prometheus. `/metrics` also has the names of another server, for existing
//! dashboards: those of vLLM, <https://docs.vllm.ai/en/latest/usage/metrics.html>, or of llama.cpp.

use crate::config::MetricsCompat;
use crate::engine::events::FinishReason;
use crate::metrics::{Histogram, ModelMetrics, load, seconds};
use Value::{Counter, Finished, Gauge, Times};
use std::fmt::Write;

/// State of a model.
pub(crate) struct ModelState<'a> {
    pub(crate) name: &'a str,
    pub(crate) metrics: &'a ModelMetrics,
    pub(crate) is_loaded: bool,
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) slots: usize,
    /// Bytes of weights that a decoded token reads.
    pub(crate) token_bytes: u64,
}

/// A metric of every model. A name is empty if the server has no equivalent.
struct Metric {
    tabla: &'static str,
    vllm: &'static str,
    llamacpp: &'static str,
    help: &'static str,
    value: Value,
}

enum Value {
    Gauge(fn(&ModelState<'_>) -> f64),
    Counter(fn(&ModelState<'_>) -> f64),
    /// A counter of finished choices for each reason.
    Finished,
    /// A histogram of durations.
    Times(fn(&ModelMetrics) -> &Histogram),
}

const UNNAMED: Metric = Metric {
    tabla: "",
    vllm: "",
    llamacpp: "",
    help: "",
    value: Finished,
};

#[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
const METRICS: &[Metric] = &[
    Metric {
        tabla: "tabla_model_loaded",
        help: "Whether the model is loaded.",
        value: Gauge(|s| f64::from(u8::from(s.is_loaded))),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_requests_running",
        vllm: "vllm:num_requests_running",
        llamacpp: "llamacpp:requests_processing",
        help: "Number of running generations.",
        value: Gauge(|s| s.running as f64),
    },
    Metric {
        tabla: "tabla_requests_waiting",
        vllm: "vllm:num_requests_waiting",
        llamacpp: "llamacpp:requests_deferred",
        help: "Number of queued requests.",
        value: Gauge(|s| s.waiting as f64),
    },
    Metric {
        tabla: "tabla_slots",
        help: "Number of sequences that are decoded at once.",
        value: Gauge(|s| s.slots as f64),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_kv_cache_usage_ratio",
        vllm: "vllm:kv_cache_usage_perc",
        help: "Used sequences of the KV cache, 0 to 1.",
        value: Gauge(|s| s.running as f64 / s.slots.max(1) as f64),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_bytes_per_token",
        help: "Bytes of weights that a decoded token reads.",
        value: Gauge(|s| s.token_bytes as f64),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_prompt_tokens_total",
        vllm: "vllm:prompt_tokens_total",
        help: "Number of prompt tokens.",
        value: Counter(|s| load(&s.metrics.prompt_tokens)),
        ..UNNAMED
    },
    Metric {
        llamacpp: "llamacpp:prompt_tokens_total",
        help: "Number of computed prompt tokens, also of embeddings.",
        value: Counter(|s| computed_tokens(s.metrics) + load(&s.metrics.embedding_tokens)),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_prefix_cache_queries_total",
        vllm: "vllm:prefix_cache_queries_total",
        help: "Number of prompt tokens looked up in the prefix cache.",
        value: Counter(|s| load(&s.metrics.prompt_tokens)),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_prefix_cache_hits_total",
        vllm: "vllm:prefix_cache_hits_total",
        llamacpp: "llamacpp:prompt_tokens_cached_total",
        help: "Number of prompt tokens found in the prefix cache.",
        value: Counter(|s| load(&s.metrics.cached_tokens)),
    },
    Metric {
        tabla: "tabla_generation_tokens_total",
        vllm: "vllm:generation_tokens_total",
        llamacpp: "llamacpp:tokens_predicted_total",
        help: "Number of generated tokens.",
        value: Counter(|s| load(&s.metrics.generated_tokens)),
    },
    Metric {
        tabla: "tabla_prompt_seconds_total",
        llamacpp: "llamacpp:prompt_seconds_total",
        help: "Time in which prompts were processed.",
        value: Counter(|s| seconds(&s.metrics.prompt_micros)),
        ..UNNAMED
    },
    Metric {
        llamacpp: "llamacpp:prompt_tokens_seconds",
        help: "Mean number of computed prompt tokens per second.",
        value: Gauge(|s| {
            rate(
                computed_tokens(s.metrics),
                seconds(&s.metrics.prompt_micros),
            )
        }),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_generation_seconds_total",
        llamacpp: "llamacpp:tokens_predicted_seconds_total",
        help: "Time in which tokens were generated, summed over sequences.",
        value: Counter(|s| seconds(&s.metrics.generation_micros)),
        ..UNNAMED
    },
    Metric {
        llamacpp: "llamacpp:predicted_tokens_seconds",
        help: "Mean number of generated tokens per second of a sequence.",
        value: Gauge(|s| {
            rate(
                load(&s.metrics.generated_tokens),
                seconds(&s.metrics.generation_micros),
            )
        }),
        ..UNNAMED
    },
    Metric {
        llamacpp: "llamacpp:n_tokens_max",
        help: "Largest number of tokens of a sequence.",
        value: Counter(|s| load(&s.metrics.sequence_tokens_max)),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_draft_tokens_total",
        llamacpp: "llamacpp:spec_decode_num_draft_tokens_total",
        help: "Number of draft tokens that were checked.",
        value: Counter(|s| load(&s.metrics.draft_tokens)),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_draft_tokens_accepted_total",
        llamacpp: "llamacpp:spec_decode_num_accepted_tokens_total",
        help: "Number of draft tokens that were accepted.",
        value: Counter(|s| load(&s.metrics.draft_tokens_accepted)),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_embedding_requests_total",
        help: "Number of requests of embeddings.",
        value: Counter(|s| load(&s.metrics.embedding_requests)),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_embedding_tokens_total",
        help: "Number of tokens of the texts of embeddings.",
        value: Counter(|s| load(&s.metrics.embedding_tokens)),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_transcription_requests_total",
        help: "Number of transcriptions and translations.",
        value: Counter(|s| load(&s.metrics.transcription_requests)),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_transcription_audio_seconds_total",
        help: "Duration of the transcribed audio.",
        value: Counter(|s| seconds(&s.metrics.transcription_audio_micros)),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_requests_rejected_total",
        help: "Number of requests rejected because the queue was full.",
        value: Counter(|s| load(&s.metrics.rejected)),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_requests_total",
        vllm: "vllm:request_success_total",
        help: "Number of finished choices.",
        value: Finished,
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_request_queue_time_seconds",
        vllm: "vllm:request_queue_time_seconds",
        help: "Time in the queue.",
        value: Times(|m| &m.queue_time),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_request_prefill_time_seconds",
        vllm: "vllm:request_prefill_time_seconds",
        help: "Time in which a prompt was processed.",
        value: Times(|m| &m.prefill_time),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_time_to_first_token_seconds",
        vllm: "vllm:time_to_first_token_seconds",
        help: "Time from the request to the first token.",
        value: Times(|m| &m.first_token_time),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_inter_token_latency_seconds",
        vllm: "vllm:inter_token_latency_seconds",
        help: "Time between two tokens of a sequence.",
        value: Times(|m| &m.token_time),
        ..UNNAMED
    },
    Metric {
        tabla: "tabla_request_duration_seconds",
        vllm: "vllm:e2e_request_latency_seconds",
        help: "Time from the request to its end.",
        value: Times(|m| &m.request_time),
        ..UNNAMED
    },
];

/// Labels of a server.
struct Labels {
    model: &'static str,
    reason: &'static str,
    /// Words for the reasons why a choice is finished.
    reasons: &'static [(&'static str, &'static [FinishReason])],
}

const TABLA: Labels = Labels {
    model: "model",
    reason: "finish_reason",
    reasons: &[
        ("stop", &[FinishReason::Stop]),
        ("length", &[FinishReason::Length]),
        ("context", &[FinishReason::Context]),
        ("tool_calls", &[FinishReason::ToolCalls]),
    ],
};

const VLLM: Labels = Labels {
    model: "model_name",
    reason: "finished_reason",
    reasons: &[
        ("stop", &[FinishReason::Stop, FinishReason::ToolCalls]),
        ("length", &[FinishReason::Length, FinishReason::Context]),
    ],
};

/// llama.cpp has no label of the model and no metric with reasons.
const LLAMACPP: Labels = Labels {
    model: "model",
    reason: "",
    reasons: &[],
};

/// Writes the metrics of all models with the names of another server, or with those of Tabla.
pub(crate) fn render(compat: Option<MetricsCompat>, models: &[ModelState<'_>], out: &mut String) {
    let labels = match compat {
        None => TABLA,
        Some(MetricsCompat::Vllm) => VLLM,
        Some(MetricsCompat::LlamaCpp) => LLAMACPP,
    };
    let is_llamacpp = compat == Some(MetricsCompat::LlamaCpp);
    for metric in METRICS {
        let name = match compat {
            None => metric.tabla,
            Some(MetricsCompat::Vllm) => metric.vllm,
            Some(MetricsCompat::LlamaCpp) => metric.llamacpp,
        };
        if name.is_empty() {
            continue;
        }
        let kind = match metric.value {
            Gauge(_) => "gauge",
            Counter(_) | Finished => "counter",
            Times(_) => "histogram",
        };
        let help = metric.help;
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for model in models {
            let label = format!("{}=\"{}\"", labels.model, escape(model.name));
            match metric.value {
                // llama.cpp serves one model.
                Gauge(value) | Counter(value) if is_llamacpp && models.len() == 1 => {
                    let _ = writeln!(out, "{name} {}", value(model));
                }
                Gauge(value) | Counter(value) => {
                    let _ = writeln!(out, "{name}{{{label}}} {}", value(model));
                }
                Finished => {
                    for (word, reasons) in labels.reasons {
                        let count = model.metrics.finished_for(reasons);
                        let reason = labels.reason;
                        let _ = writeln!(out, "{name}{{{label},{reason}=\"{word}\"}} {count}");
                    }
                }
                Times(times) => times(model.metrics).write(out, name, &label),
            }
        }
    }
}

/// Escapes a label value.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

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
