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

    /// Writes the series with the label of the model, such as `model="a"`.
    fn write(&self, out: &mut String, name: &str, label: &str) {
        let mut total = 0;
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS) {
            total += bucket.load(Ordering::Relaxed);
            let _ = writeln!(out, "{name}_bucket{{{label},le=\"{bound}\"}} {total}");
        }
        let count = self.count.load(Ordering::Relaxed);
        let seconds = Duration::from_micros(self.micros.load(Ordering::Relaxed)).as_secs_f64();
        let _ = writeln!(out, "{name}_bucket{{{label},le=\"+Inf\"}} {count}");
        let _ = writeln!(out, "{name}_sum{{{label}}} {seconds}");
        let _ = writeln!(out, "{name}_count{{{label}}} {count}");
    }
}

/// Metrics of a model. They remain when the model is unloaded.
#[derive(Debug, Default)]
pub(crate) struct ModelMetrics {
    pub(crate) prompt_tokens: AtomicU64,
    pub(crate) cached_tokens: AtomicU64,
    pub(crate) generated_tokens: AtomicU64,
    pub(crate) prompt_micros: AtomicU64,
    pub(crate) generation_micros: AtomicU64,
    /// Number of finished choices by reason, in the order of [`REASONS`].
    finished: [AtomicU64; REASONS.len()],
    pub(crate) rejected: AtomicU64,
    pub(crate) queue_time: Histogram,
    pub(crate) prefill_time: Histogram,
    pub(crate) first_token_time: Histogram,
    pub(crate) token_time: Histogram,
    pub(crate) request_time: Histogram,
}

const REASONS: [FinishReason; 4] = [
    FinishReason::Stop,
    FinishReason::Length,
    FinishReason::Context,
    FinishReason::ToolCalls,
];

/// Time between the tokens of one choice.
pub(crate) struct Latency<'a> {
    metrics: &'a ModelMetrics,
    /// Time of the last token.
    last: Option<Instant>,
}

impl Latency<'_> {
    /// Records a token.
    pub(crate) fn token(&mut self) {
        let now = Instant::now();
        let time = match self.last.replace(now) {
            Some(last) => {
                self.metrics.token_time.observe(now - last);
                now - last
            }
            // The time until the first token is that of the prompt.
            None => Duration::ZERO,
        };
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.metrics
            .generation_micros
            .fetch_add(micros, Ordering::Relaxed);
        self.metrics
            .generated_tokens
            .fetch_add(1, Ordering::Relaxed);
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
            last: None,
        }
    }

    /// Records the end of a choice.
    pub(crate) fn finished(&self, reason: FinishReason) {
        let at = REASONS.iter().position(|row| *row == reason).unwrap_or(0);
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

/// A metric with one value per model: name, type, description, value.
pub(crate) type Row = (
    &'static str,
    &'static str,
    &'static str,
    fn(&ModelState<'_>) -> f64,
);

/// A histogram of durations per model: name, description, histogram.
pub(crate) type HistogramRow = (&'static str, &'static str, fn(&ModelMetrics) -> &Histogram);

/// The number of finished choices.
pub(crate) struct FinishedRow {
    pub(crate) name: &'static str,
    /// Label of the reason.
    pub(crate) label: &'static str,
    /// Words for the reasons.
    pub(crate) reasons: &'static [(&'static str, &'static [FinishReason])],
}

/// Names of metrics.
pub(crate) struct MetricNames {
    /// Label of the model.
    pub(crate) label: &'static str,
    pub(crate) rows: &'static [Row],
    pub(crate) finished: Option<FinishedRow>,
    pub(crate) histograms: &'static [HistogramRow],
}

pub(crate) fn load(counter: &AtomicU64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
    let value = counter.load(Ordering::Relaxed) as f64;
    value
}

pub(crate) fn seconds(micros: &AtomicU64) -> f64 {
    load(micros) / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
const ROWS: &[Row] = &[
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

const HISTOGRAMS: &[HistogramRow] = &[
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

/// The names of Tabla.
pub(crate) const TABLA: MetricNames = MetricNames {
    label: "model",
    rows: ROWS,
    finished: Some(FinishedRow {
        name: "tabla_requests_total",
        label: "finish_reason",
        reasons: &[
            ("stop", &[FinishReason::Stop]),
            ("length", &[FinishReason::Length]),
            ("context", &[FinishReason::Context]),
            ("tool_calls", &[FinishReason::ToolCalls]),
        ],
    }),
    histograms: HISTOGRAMS,
};

/// Writes the metrics of all models.
pub(crate) fn render(names: &MetricNames, models: &[ModelState<'_>], out: &mut String) {
    let label = |model: &ModelState<'_>| format!("{}=\"{}\"", names.label, escape(model.name));
    let labels: Vec<String> = models.iter().map(label).collect();
    for (name, kind, help, value) in names.rows {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (model, label) in models.iter().zip(&labels) {
            let _ = writeln!(out, "{name}{{{label}}} {}", value(model));
        }
    }
    if let Some(row) = &names.finished {
        let name = row.name;
        let _ = writeln!(
            out,
            "# HELP {name} Number of finished choices.\n# TYPE {name} counter"
        );
        for (model, label) in models.iter().zip(&labels) {
            for (word, reasons) in row.reasons {
                let counts = REASONS.iter().zip(&model.metrics.finished);
                let counts = counts.filter(|(reason, _)| reasons.contains(reason));
                let count: u64 = counts.map(|(_, count)| count.load(Ordering::Relaxed)).sum();
                let key = row.label;
                let _ = writeln!(out, "{name}{{{label},{key}=\"{word}\"}} {count}");
            }
        }
    }
    for (name, help, select) in names.histograms {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
        for (model, label) in models.iter().zip(&labels) {
            select(model.metrics).write(out, name, label);
        }
    }
}

/// Escapes a label value.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
