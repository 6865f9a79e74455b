//! Counters and histograms of a model; `prometheus.rs` writes them.

use crate::engine::events::{FinishReason, PromptUsage};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tabla::DraftStats;

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

    /// Writes the series in the text format of Prometheus, with the label of the model, such as `model="a"`.
    pub(crate) fn write(&self, out: &mut String, name: &str, label: &str) {
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
    /// Largest number of tokens of a sequence: the prompt and the answer.
    pub(crate) sequence_tokens_max: AtomicU64,
    /// Number of checked draft tokens, and of accepted ones.
    pub(crate) draft_tokens: AtomicU64,
    pub(crate) draft_tokens_accepted: AtomicU64,
    pub(crate) embedding_requests: AtomicU64,
    pub(crate) embedding_tokens: AtomicU64,
    pub(crate) transcription_requests: AtomicU64,
    pub(crate) transcription_audio_micros: AtomicU64,
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

    /// Records a request of embeddings of this number of tokens.
    pub(crate) fn embedded(&self, tokens: u64) {
        self.embedding_requests.fetch_add(1, Ordering::Relaxed);
        self.embedding_tokens.fetch_add(tokens, Ordering::Relaxed);
    }

    /// Records a request with this duration of audio.
    pub(crate) fn transcribed(&self, audio: Duration) {
        let micros = u64::try_from(audio.as_micros()).unwrap_or(u64::MAX);
        self.transcription_requests.fetch_add(1, Ordering::Relaxed);
        self.transcription_audio_micros
            .fetch_add(micros, Ordering::Relaxed);
    }

    /// Records the draft tokens of a choice, and the length of its sequence.
    pub(crate) fn sequence(&self, tokens: u64, draft: DraftStats) {
        self.sequence_tokens_max
            .fetch_max(tokens, Ordering::Relaxed);
        self.draft_tokens
            .fetch_add(draft.drafted.into(), Ordering::Relaxed);
        self.draft_tokens_accepted
            .fetch_add(draft.accepted.into(), Ordering::Relaxed);
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

    /// Returns the number of choices that ended for one of these reasons.
    pub(crate) fn finished_for(&self, reasons: &[FinishReason]) -> u64 {
        let counts = REASONS.iter().zip(&self.finished);
        let counts = counts.filter(|(reason, _)| reasons.contains(reason));
        counts.map(|(_, count)| count.load(Ordering::Relaxed)).sum()
    }
}

pub(crate) fn load(counter: &AtomicU64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
    let value = counter.load(Ordering::Relaxed) as f64;
    value
}

pub(crate) fn seconds(micros: &AtomicU64) -> f64 {
    load(micros) / 1e6
}
