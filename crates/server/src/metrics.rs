//! Metrics of models, in the text format of Prometheus.

use crate::engine::events::{FinishReason, PromptUsage};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Upper bounds of histogram buckets in seconds.
const BOUNDS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];

/// Histogram of durations.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    micros: AtomicU64,
}

impl Histogram {
    pub(crate) fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        if let Some(at) = BOUNDS.iter().position(|bound| seconds <= *bound) {
            self.buckets[at].fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn write(&self, out: &mut String, name: &str, label: &str) {
        let mut total = 0;
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS) {
            total += bucket.load(Ordering::Relaxed);
            let _ = writeln!(
                out,
                "{name}_bucket{{model=\"{label}\",le=\"{bound}\"}} {total}"
            );
        }
        let count = self.count.load(Ordering::Relaxed);
        let seconds = Duration::from_micros(self.micros.load(Ordering::Relaxed)).as_secs_f64();
        let _ = writeln!(
            out,
            "{name}_bucket{{model=\"{label}\",le=\"+Inf\"}} {count}"
        );
        let _ = writeln!(out, "{name}_sum{{model=\"{label}\"}} {seconds}");
        let _ = writeln!(out, "{name}_count{{model=\"{label}\"}} {count}");
    }
}

/// Metrics of a model. They remain when the model is unloaded.
#[derive(Debug, Default)]
pub(crate) struct ModelMetrics {
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    generated_tokens: AtomicU64,
    prompt_micros: AtomicU64,
    generation_micros: AtomicU64,
    finished: [AtomicU64; 4],
    pub(crate) rejected: AtomicU64,
    pub(crate) queue_time: Histogram,
    prefill_time: Histogram,
    pub(crate) first_token_time: Histogram,
    token_time: Histogram,
    pub(crate) request_time: Histogram,
}

const REASONS: [(FinishReason, &str); 4] = [
    (FinishReason::Stop, "stop"),
    (FinishReason::Length, "length"),
    (FinishReason::Context, "context"),
    (FinishReason::ToolCalls, "tool_calls"),
];

/// Time between the tokens of one choice.
pub(crate) struct Latency<'a> {
    metrics: &'a ModelMetrics,
    last: Instant,
    is_first: bool,
}

impl Latency<'_> {
    /// Records a token.
    pub(crate) fn token(&mut self) {
        let now = Instant::now();
        let time = now - std::mem::replace(&mut self.last, now);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.metrics
            .generation_micros
            .fetch_add(micros, Ordering::Relaxed);
        self.metrics
            .generated_tokens
            .fetch_add(1, Ordering::Relaxed);
        if !std::mem::replace(&mut self.is_first, false) {
            self.metrics.token_time.observe(time);
        }
    }
}

impl ModelMetrics {
    /// Records a processed prompt.
    pub(crate) fn prompt(&self, prompt: PromptUsage, time: Duration) {
        self.prompt_tokens
            .fetch_add(prompt.tokens, Ordering::Relaxed);
        self.cached_tokens
            .fetch_add(prompt.cached, Ordering::Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.prompt_micros.fetch_add(micros, Ordering::Relaxed);
        self.prefill_time.observe(time);
    }

    /// Returns a recorder of the times between tokens.
    pub(crate) fn latency(&self) -> Latency<'_> {
        Latency {
            metrics: self,
            last: Instant::now(),
            is_first: true,
        }
    }

    /// Records the end of a choice.
    pub(crate) fn finished(&self, reason: FinishReason) {
        let at = REASONS.iter().position(|row| row.0 == reason).unwrap_or(0);
        self.finished[at].fetch_add(1, Ordering::Relaxed);
    }
}

/// State of a model for [`render`].
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

/// A metric with one value per model.
type Row<'a> = (&'a str, &'a str, &'a str, fn(&ModelState<'_>) -> f64);

fn load(counter: &AtomicU64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
    let value = counter.load(Ordering::Relaxed) as f64;
    value
}

fn seconds(micros: &AtomicU64) -> f64 {
    load(micros) / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
const ROWS: &[Row<'_>] = &[
    (
        "tabla_model_loaded",
        "gauge",
        "Whether the model is loaded.",
        |s| f64::from(u8::from(s.is_loaded)),
    ),
    (
        "tabla_requests_running",
        "gauge",
        "Number of running generations.",
        |s| s.running as f64,
    ),
    (
        "tabla_requests_waiting",
        "gauge",
        "Number of queued requests.",
        |s| s.waiting as f64,
    ),
    (
        "tabla_slots",
        "gauge",
        "Number of sequences that are decoded at once.",
        |s| s.slots as f64,
    ),
    (
        "tabla_kv_cache_usage_ratio",
        "gauge",
        "Used sequences of the KV cache, 0 to 1.",
        |s| s.running as f64 / s.slots.max(1) as f64,
    ),
    (
        "tabla_bytes_per_token",
        "gauge",
        "Bytes of weights that a decoded token reads.",
        |s| s.token_bytes as f64,
    ),
    (
        "tabla_prompt_tokens_total",
        "counter",
        "Number of prompt tokens.",
        |s| load(&s.metrics.prompt_tokens),
    ),
    (
        "tabla_prefix_cache_queries_total",
        "counter",
        "Number of prompt tokens looked up in the prefix cache.",
        |s| load(&s.metrics.prompt_tokens),
    ),
    (
        "tabla_prefix_cache_hits_total",
        "counter",
        "Number of prompt tokens found in the prefix cache.",
        |s| load(&s.metrics.cached_tokens),
    ),
    (
        "tabla_generation_tokens_total",
        "counter",
        "Number of generated tokens.",
        |s| load(&s.metrics.generated_tokens),
    ),
    (
        "tabla_prompt_seconds_total",
        "counter",
        "Time in which prompts were processed.",
        |s| seconds(&s.metrics.prompt_micros),
    ),
    (
        "tabla_generation_seconds_total",
        "counter",
        "Time in which tokens were generated, summed over sequences.",
        |s| seconds(&s.metrics.generation_micros),
    ),
    (
        "tabla_requests_rejected_total",
        "counter",
        "Number of requests rejected because the queue was full.",
        |s| load(&s.metrics.rejected),
    ),
];

/// Renders the metrics of all models.
pub(crate) fn render(models: &[ModelState<'_>]) -> String {
    let mut out = String::new();
    let labels: Vec<String> = models.iter().map(|model| escape(model.name)).collect();
    for (name, kind, help, value) in ROWS {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (model, label) in models.iter().zip(&labels) {
            let _ = writeln!(out, "{name}{{model=\"{label}\"}} {}", value(model));
        }
    }
    let name = "tabla_requests_total";
    let _ = writeln!(
        out,
        "# HELP {name} Number of finished choices.\n# TYPE {name} counter"
    );
    for (model, label) in models.iter().zip(&labels) {
        for ((_, reason), count) in REASONS.iter().zip(&model.metrics.finished) {
            let count = count.load(Ordering::Relaxed);
            let _ = writeln!(
                out,
                "{name}{{model=\"{label}\",finish_reason=\"{reason}\"}} {count}"
            );
        }
    }
    type Select = fn(&ModelMetrics) -> &Histogram;
    let histograms: [(&str, &str, Select); 5] = [
        (
            "tabla_request_queue_time_seconds",
            "Time in the queue.",
            |m| &m.queue_time,
        ),
        (
            "tabla_request_prefill_time_seconds",
            "Time in which a prompt was processed.",
            |m| &m.prefill_time,
        ),
        (
            "tabla_time_to_first_token_seconds",
            "Time from the request to the first token.",
            |m| &m.first_token_time,
        ),
        (
            "tabla_inter_token_latency_seconds",
            "Time between two tokens of a sequence.",
            |m| &m.token_time,
        ),
        (
            "tabla_request_duration_seconds",
            "Time from the request to its end.",
            |m| &m.request_time,
        ),
    ];
    for (name, help, select) in histograms {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
        for (model, label) in models.iter().zip(&labels) {
            select(model.metrics).write(&mut out, name, label);
        }
    }
    out
}

/// Escapes a label value.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
