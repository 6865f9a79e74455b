//! Cases of samplers and of log-probabilities.

use crate::case::{Case, PLAIN};
use tabla_core::op::params::Sampler;
use tabla_core::op::sampler::SamplerKind;
use tabla_plan::builder::LogitRows;

/// Case of a sampler over rows of `$vocab` logits.
macro_rules! filter_case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal, $sampler:expr) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            sequence: 1,
            logits: LogitRows::All,
            emit: |b| b.full_stage($vocab, SamplerKind::DEFAULT),
            sampler: $sampler,
            tolerance: 0.0,
            ..PLAIN
        }
    };
    ($name:literal, $vocab:literal, $sampler:expr) => {
        Case {
            name: $name,
            emit: |b| b.full_stage($vocab, SamplerKind::DEFAULT),
            sampler: $sampler,
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

macro_rules! bias_case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal at $position:literal, $sampler:expr) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            position: $position,
            sequence: 1,
            logits: LogitRows::All,
            emit: |b| b.full_stage($vocab, SamplerKind::DEFAULT),
            sampler: $sampler,
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Off, some, the maximum number, stop tokens, rows; random biases are of the first tokens.
pub(super) const BIAS: &[Case] = &[
    bias_case!("one", 1, 1/1 at 0, |s| s.bias_count = 1),
    bias_case!("off", 37, 1/1 at 0, |_| {}),
    bias_case!("some", 131, 1/1 at 0, |s| s.bias_count = 17),
    bias_case!("more than the capacity", 5003, 1/1 at 0, |s| s.bias_count = 1000),
    bias_case!("before stop_from", 131, 1/1 at 8, |s| {
        (s.stop_from, s.stop_count, s.stops[0], s.stops[1]) = (10, 2, 7, 130);
    }),
    bias_case!("at stop_from", 131, 1/1 at 9, |s| {
        (s.stop_from, s.stop_count, s.stops[0]) = (10, 1, 7);
    }),
    bias_case!("rows", 131, 5/4 at 3, |s| {
        (s.bias_count, s.stop_from, s.stop_count, s.stops[0]) = (9, 10, 1, 99);
    }),
];

/// Off, small, large, rows.
pub(super) const MASK: &[Case] = &[
    filter_case!("one", 1, |s| s.masked = 1),
    filter_case!("off", 37, |_| {}),
    filter_case!("whole words", 64, |s| s.masked = 1),
    filter_case!("large", 9003, |s| s.masked = 1),
    filter_case!("rows", 131, 5 / 4, |s| s.masked = 1),
];

macro_rules! penalize_case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal at $position:literal of $context:literal,
     $last:literal, $sampler:expr) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            sequence: 1,
            position: $position,
            context: $context,
            logits: LogitRows::All,
            emit: |b| b.sampled_stage($vocab, SamplerKind::DEFAULT),
            sampler: |s| {
                s.repeat_last_n = $last;
                let set: fn(&mut Sampler) = $sampler;
                set(s);
            },
            ..PLAIN
        }
    };
}

/// Off, less than the history, more, more than the limit, by count, all at once, rows; histories
/// have repeated tokens.
pub(super) const PENALIZE: &[Case] = &[
    penalize_case!("one", 1, 1/1 at 0 of 1, 8, |s| s.repetition_penalty = 1.5),
    penalize_case!("off", 37, 1/1 at 5 of 8, 0, |_| {}),
    penalize_case!("the last three", 37, 1/1 at 6 of 16, 3, |s| s.repetition_penalty = 1.3),
    penalize_case!("longer than the history", 131, 1/1 at 6 of 16, 100, |s| s.repetition_penalty = 1.3),
    penalize_case!("longer than the limit", 5003, 1/1 at 1500 of 2048, 2000, |s| s.repetition_penalty = 1.1),
    penalize_case!("by count", 131, 1/1 at 90 of 128, 64, |s| s.frequency_penalty = 0.25),
    penalize_case!("presence penalty", 131, 1/1 at 90 of 128, 64, |s| s.presence_penalty = -0.5),
    penalize_case!("all at once", 1031, 1/1 at 90 of 128, 80, |s| {
        (s.repetition_penalty, s.frequency_penalty, s.presence_penalty) = (0.8, -0.1, 0.7);
    }),
    penalize_case!("rows", 131, 5/4 at 6 of 16, 5, |s| (s.repetition_penalty, s.frequency_penalty) = (1.3, 0.1)),
];

macro_rules! dry_case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal at $position:literal of $context:literal,
     [$multiplier:literal, $base:literal], $allowed:literal, $last:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            sequence: 1,
            position: $position,
            context: $context,
            logits: LogitRows::All,
            emit: |b| b.full_stage($vocab, SamplerKind::DEFAULT),
            sampler: |s| {
                (s.dry_multiplier, s.dry_base) = ($multiplier, $base);
                (s.dry_allowed, s.dry_penalty_last_n) = ($allowed, $last);
            },
            ..PLAIN
        }
    };
}

/// Off, less than the history, the whole history, rows; histories have repeated tokens and few
/// breakers.
pub(super) const DRY: &[Case] = &[
    dry_case!("one", 1, 1/1 at 0 of 1, [0.8, 1.75], 2, 8),
    dry_case!("off", 37, 1/1 at 5 of 8, [0.0, 1.75], 2, 8),
    dry_case!("single tokens", 37, 1/1 at 14 of 16, [0.8, 1.75], 1, 10),
    dry_case!("whole history", 131, 1/1 at 14 of 16, [0.8, 1.75], 0, 100),
    dry_case!("long", 5003, 1/1 at 1500 of 2048, [0.3, 2.5], 1, 2000),
    dry_case!("rows", 131, 5/4 at 120 of 128, [1.5, 1.2], 1, 90),
];

/// Off, narrow, wide, rows.
pub(super) const TOP_N_SIGMA: &[Case] = &[
    filter_case!("one", 1, |s| s.top_n_sigma = 1.0),
    filter_case!("off", 37, |s| s.top_n_sigma = 0.0),
    filter_case!("narrow", 131, |s| s.top_n_sigma = 0.1),
    filter_case!("some", 5003, |s| s.top_n_sigma = 1.0),
    filter_case!("nearly all", 1009, |s| s.top_n_sigma = 3.0),
    filter_case!("rows", 131, 5 / 4, |s| s.top_n_sigma = 1.3),
];

/// Off, one, nearly all, more than all, rows.
pub(super) const TOP_K: &[Case] = &[
    filter_case!("one", 1, |s| s.top_k = 1),
    filter_case!("off", 37, |s| s.top_k = 0),
    filter_case!("the largest", 37, |s| s.top_k = 1),
    filter_case!("all but one", 131, |s| s.top_k = 130),
    filter_case!("more than all", 131, |s| s.top_k = 500),
    filter_case!("k = 40", 5003, |s| s.top_k = 40),
    filter_case!("half", 1009, |s| s.top_k = 500),
    filter_case!("rows", 131, 5 / 4, |s| s.top_k = 7),
];

/// Off, the most typical token, part of the probability mass, rows.
pub(super) const TYPICAL: &[Case] = &[
    filter_case!("one", 1, |s| s.typical_p = 0.5),
    filter_case!("off", 37, |s| s.typical_p = 1.0),
    filter_case!("the most typical", 37, |s| s.typical_p = 0.0),
    filter_case!("half", 131, |s| s.typical_p = 0.5),
    filter_case!("most", 5003, |s| s.typical_p = 0.95),
    filter_case!("rows", 131, 5 / 4, |s| s.typical_p = 0.7),
];

/// Off, only the largest, most of the probability mass, rows.
pub(super) const TOP_P: &[Case] = &[
    filter_case!("one", 1, |s| s.top_p = 0.5),
    filter_case!("off", 37, |s| s.top_p = 1.0),
    filter_case!("the largest", 37, |s| s.top_p = 0.0),
    filter_case!("half", 131, |s| s.top_p = 0.5),
    filter_case!("most", 5003, |s| s.top_p = 0.95),
    filter_case!("rows", 131, 5 / 4, |s| s.top_p = 0.7),
];

/// Off, some, only the largest, rows.
pub(super) const MIN_P: &[Case] = &[
    filter_case!("one", 1, |s| s.min_p = 0.5),
    filter_case!("off", 37, |s| s.min_p = 0.0),
    filter_case!("some", 131, |s| s.min_p = 0.3),
    filter_case!("the largest", 5003, |s| s.min_p = 1.0),
    filter_case!("rows", 131, 5 / 4, |s| s.min_p = 0.3),
];

/// Off, always, randomly, threshold above all probabilities, rows.
pub(super) const XTC: &[Case] = &[
    filter_case!("one", 1, |s| (s.xtc_probability, s.xtc_threshold) =
        (1.0, 0.1)),
    filter_case!("off", 37, |s| (s.xtc_probability, s.xtc_threshold) =
        (0.0, 0.1)),
    filter_case!("always", 37, |s| (s.xtc_probability, s.xtc_threshold) =
        (1.0, 0.03)),
    filter_case!("random", 131, |s| (s.xtc_probability, s.xtc_threshold) =
        (0.5, 0.01)),
    filter_case!("large vocabulary", 5003, |s| (
        s.xtc_probability,
        s.xtc_threshold
    ) = (1.0, 3e-4)),
    filter_case!("threshold too high", 131, |s| (
        s.xtc_probability,
        s.xtc_threshold
    ) = (1.0, 0.5)),
    filter_case!("rows", 131, 5 / 4, |s| (
        s.xtc_probability,
        s.xtc_threshold
    ) = (0.5, 0.01)),
];

/// Low, off, high, per row, rows.
pub(super) const TEMPER: &[Case] = &[
    filter_case!("one", 1, |s| s.temperature = 0.5),
    filter_case!("off", 37, |s| s.temperature = 0.0),
    filter_case!("high", 5003, |s| s.temperature = 2.5),
    filter_case!("dynamic", 37, |s| (s.temperature, s.dynatemp_range) =
        (0.7, 0.5)),
    filter_case!("rows", 131, 5 / 4, |s| s.temperature = 0.7),
];

macro_rules! dynamic_temper_case {
    ($name:literal, $vocab:literal, $($rows:literal / $live:literal,)? [$middle:literal, $range:literal, $exponent:literal]) => {
        Case {
            tolerance: 1e-5,
            ..filter_case!($name, $vocab, $($rows/$live,)? |s| {
                (s.temperature, s.dynatemp_range) = ($middle, $range);
                s.dynatemp_exponent = $exponent;
            })
        }
    };
}

/// Off, low, high, exponents, rows.
pub(super) const DYNAMIC_TEMPER: &[Case] = &[
    dynamic_temper_case!("one", 1, [0.5, 0.2, 1.0]),
    dynamic_temper_case!("off", 37, [0.7, 0.0, 1.0]),
    dynamic_temper_case!("only the largest", 37, [0.0, 0.5, 1.0]),
    dynamic_temper_case!("down to 0", 131, [0.5, 2.0, 1.0]),
    dynamic_temper_case!("high", 5003, [1.5, 1.0, 1.0]),
    dynamic_temper_case!("exponent 2", 1009, [0.8, 0.5, 2.0]),
    dynamic_temper_case!("exponent 0.5", 131, [0.8, 0.5, 0.5]),
    dynamic_temper_case!("rows", 131, 5 / 4, [1.0, 0.7, 1.0]),
];

/// Off, only the largest, some, all, rows.
pub(super) const MIROSTAT: &[Case] = &[
    filter_case!("one", 1, |s| (s.mirostat_tau, s.mirostat_mu) = (5.0, 10.0)),
    filter_case!("off", 37, |s| (s.mirostat_tau, s.mirostat_mu) = (0.0, 1.0)),
    filter_case!("the largest", 37, |s| (s.mirostat_tau, s.mirostat_mu) =
        (5.0, -3.0)),
    filter_case!("some", 5003, |s| (s.mirostat_tau, s.mirostat_mu) =
        (5.0, 12.0)),
    filter_case!("all", 131, |s| (s.mirostat_tau, s.mirostat_mu) =
        (5.0, 40.0)),
    filter_case!("rows", 131, 5 / 4, |s| (s.mirostat_tau, s.mirostat_mu) =
        (5.0, 7.0)),
];

macro_rules! gumbel_case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal at $position:literal, $seed:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            sequence: 1,
            position: $position,
            logits: LogitRows::All,
            emit: |b| b.sampled_stage($vocab, SamplerKind::DEFAULT),
            sampler: |s| {
                s.seed_lo = $seed;
                s.seed_hi = 7;
            },
            ..PLAIN
        }
    };
}

/// Ids that end within a draw, a large position, rows.
pub(super) const GUMBEL: &[Case] = &[
    gumbel_case!("one", 1, 1/1 at 0, 0),
    gumbel_case!("a part of a draw", 37, 1/1 at 3, 0x1234_5678),
    gumbel_case!("partial draw", 65, 1/1 at 15, 1),
    gumbel_case!("many", 50_021, 1/1 at 4, 99),
    gumbel_case!("rows", 131, 5/4 at 9, 3),
];

macro_rules! mirostat_mu_case {
    ($name:literal, $tokens:literal/$live:literal, $tau:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            sequence: 1,
            logits: LogitRows::All,
            emit: |b| b.full_stage(101, SamplerKind::DEFAULT),
            sampler: |s| {
                (s.mirostat_tau, s.mirostat_eta) = ($tau, 0.1);
                s.mirostat_mu = 2.0 * $tau;
            },
            ..PLAIN
        }
    };
}

/// Off, one row, rows; random ids are below 50.
pub(super) const MIROSTAT_MU: &[Case] = &[
    mirostat_mu_case!("off", 1 / 1, 0.0),
    mirostat_mu_case!("one", 1 / 1, 5.0),
    mirostat_mu_case!("rows", 5 / 4, 3.0),
];

macro_rules! logprobs_case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal, $logprobs:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            sequence: 1,
            logits: LogitRows::All,
            emit: |b| b.full_stage($vocab, SamplerKind::DEFAULT),
            sampler: |s| s.logprobs = $logprobs,
            ..PLAIN
        }
    };
}

/// Off, fewer tokens than entries, many, rows; random ids are below 50.
pub(super) const LOGPROBS: &[Case] = &[
    logprobs_case!("off", 101, 1 / 1, 0),
    logprobs_case!("vocabulary of 50", 50, 1 / 1, 1),
    logprobs_case!("many", 5003, 1 / 1, 1),
    logprobs_case!("rows", 131, 5 / 4, 1),
];
