//! Cases of samplers and of log-probabilities.

use super::common::{rows, wide};
use super::{Expected, Tested};
use crate::case::Case;
use crate::rig::Outcome;
use std::collections::HashMap;
use tabla_core::exec::philox::{chance, philox};
use tabla_core::op::kind;
use tabla_core::op::list::Op;
use tabla_core::op::params::{self, Bias, Row, Sampler};
use tabla_core::op::sampler::SamplerKind;
use tabla_core::op::table::BIASES_MAX;

/// Case of a sampler over rows of `$vocab` logits, with parameters or a function that sets them.
macro_rules! filter_case {
    ($name:literal, $vocab:literal $(, $tokens:literal/$live:literal $(at $position:literal)?)? $(, $field:ident: $value:expr)*) => {
        filter_case!($name, $vocab $(, $tokens/$live $(at $position)?)?, |s| {
            *s = Sampler { $($field: $value,)* ..*s }
        })
    };
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal $(at $position:literal)?, $sampler:expr) => {
        Case::new($name, $tokens, $live, |b| b.full_stage($vocab, SamplerKind::DEFAULT))
            $(.at($position, 16))?
            .sampled_rows()
            .sampler($sampler)
            .tolerance(0.0)
    };
    ($name:literal, $vocab:literal, $sampler:expr) => {
        Case::new($name, 1, 1, |b| b.full_stage($vocab, SamplerKind::DEFAULT))
            .sampler($sampler)
            .tolerance(0.0)
    };
}

impl Tested for kind::Bias {
    /// Off, some, the maximum number, stop tokens, rows; random biases are of the first tokens.
    const CASES: &'static [Case] = &[
        filter_case!("one", 1, 1/1 at 0, bias_count: 1),
        filter_case!("off", 37, 1/1 at 0),
        filter_case!("some", 131, 1/1 at 0, bias_count: 17),
        filter_case!("more than the capacity", 5003, 1/1 at 0, bias_count: 1000),
        filter_case!("before stop_from", 131, 1/1 at 8, |s| {
            (s.stop_from, s.stop_count, s.stops[0], s.stops[1]) = (10, 2, 7, 130);
        }),
        filter_case!("at stop_from", 131, 1/1 at 9, |s| {
            (s.stop_from, s.stop_count, s.stops[0]) = (10, 1, 7);
        }),
        filter_case!("rows", 131, 5/4 at 3, |s| {
            (s.bias_count, s.stop_from, s.stop_count, s.stops[0]) = (9, 10, 1, 99);
        }),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let (x, vocab) = (o.numbers("x"), o.slots["x"].cols as usize);
        let biases: Vec<Bias> = bytemuck::pod_collect_to_vec(&o.before["biases"]);
        let rows_and_samplers = rows_with_samplers(o, live);
        rows(o, live, |t, i| {
            let (row, sampler) = rows_and_samplers[t];
            let capacity = BIASES_MAX as usize;
            let own = &biases[row.sequence as usize * capacity..][..capacity];
            let own = own.iter().take(sampler.bias_count as usize);
            let own = own.filter(|bias| bias.token as usize == i);
            let stops = &sampler.stops[..sampler.stop_count as usize];
            if row.position + 1 < sampler.stop_from && stops.contains(&(i as u32)) {
                return f64::NEG_INFINITY;
            }
            wide(x[t * vocab + i]) + own.map(|bias| wide(bias.bias)).sum::<f64>()
        })
    }
}

impl Tested for kind::Mask {
    /// Off, small, large, rows.
    const CASES: &'static [Case] = &[
        filter_case!("one", 1, masked: 1),
        filter_case!("off", 37),
        filter_case!("whole words", 64, masked: 1),
        filter_case!("large", 9003, masked: 1),
        filter_case!("rows", 131, 5/4, masked: 1),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let (y, vocab) = (o.numbers("y"), o.slots["y"].cols as usize);
        let masks: Vec<u32> = bytemuck::pod_collect_to_vec(&o.before["masks"]);
        let words = o.slots["masks"].cols as usize;
        let rows_and_samplers = rows_with_samplers(o, live);
        rows(o, live, |t, i| {
            let (row, sampler) = rows_and_samplers[t];
            let word = masks[row.sequence as usize * words + i / 32];
            match sampler.masked == 1 && word & 1 << (i % 32) == 0 {
                true => f64::NEG_INFINITY,
                false => wide(y[t * vocab + i]),
            }
        })
    }
}

macro_rules! penalize_case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal at $position:literal of $context:literal,
     $last:literal $(, $field:ident: $value:expr)*) => {
        Case::new($name, $tokens, $live, |b| b.sampled_stage($vocab, SamplerKind::DEFAULT))
            .at($position, $context)
            .sampled_rows()
            .sampler(|s| *s = Sampler { repeat_last_n: $last, $($field: $value,)* ..*s })
    };
}

impl Tested for kind::Penalize {
    /// Off, less than the history, more, more than the limit, by count, all at once, rows; histories
    /// have repeated tokens.
    const CASES: &'static [Case] = &[
        penalize_case!("one", 1, 1/1 at 0 of 1, 8, repetition_penalty: 1.5),
        penalize_case!("off", 37, 1/1 at 5 of 8, 0),
        penalize_case!("the last three", 37, 1/1 at 6 of 16, 3, repetition_penalty: 1.3),
        penalize_case!("longer than the history", 131, 1/1 at 6 of 16, 100, repetition_penalty: 1.3),
        penalize_case!("longer than the limit", 5003, 1/1 at 1500 of 2048, 2000, repetition_penalty: 1.1),
        penalize_case!("by count", 131, 1/1 at 90 of 128, 64, frequency_penalty: 0.25),
        penalize_case!("presence penalty", 131, 1/1 at 90 of 128, 64, presence_penalty: -0.5),
        penalize_case!("all at once", 1031, 1/1 at 90 of 128, 80, repetition_penalty: 0.8, frequency_penalty: -0.1, presence_penalty: 0.7),
        penalize_case!("rows", 131, 5/4 at 6 of 16, 5, repetition_penalty: 1.3, frequency_penalty: 0.1),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let x = o.numbers("x");
        let history: Vec<u32> = bytemuck::pod_collect_to_vec(&o.before["history"]);
        let [context, vocab] = ["history", "x"].map(|name| o.slots[name].cols as usize);
        let rows_and_samplers = rows_with_samplers(o, live);
        rows(o, live, |t, i| {
            let (row, sampler) = rows_and_samplers[t];
            let history = &history[row.sequence as usize * context..][..context];
            let known = context.min(row.position as usize + 1);
            let last = known.min(1024).min(sampler.repeat_last_n as usize);
            let penalised = &history[known - last..known];
            let count = penalised.iter().filter(|token| **token == i as u32).count();
            let (x, penalty) = (wide(x[t * vocab + i]), wide(sampler.repetition_penalty));
            let taken =
                count as f64 * wide(sampler.frequency_penalty) + wide(sampler.presence_penalty);
            match count > 0 {
                true if x > 0.0 => x / penalty - taken,
                true => x * penalty - taken,
                false => x,
            }
        })
    }
}

macro_rules! dry_case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal at $position:literal of $context:literal,
     [$multiplier:literal, $base:literal], $allowed:literal, $last:literal) => {
        Case::new($name, $tokens, $live, |b| {
            b.full_stage($vocab, SamplerKind::DEFAULT)
        })
        .at($position, $context)
        .sampled_rows()
        .sampler(|s| {
            (s.dry_multiplier, s.dry_base) = ($multiplier, $base);
            (s.dry_allowed, s.dry_penalty_last_n) = ($allowed, $last);
        })
    };
}

impl Tested for kind::Dry {
    /// Off, less than the history, the whole history, rows; histories have repeated tokens and few
    /// breakers.
    const CASES: &'static [Case] = &[
        dry_case!("one", 1, 1/1 at 0 of 1, [0.8, 1.75], 2, 8),
        dry_case!("off", 37, 1/1 at 5 of 8, [0.0, 1.75], 2, 8),
        dry_case!("single tokens", 37, 1/1 at 14 of 16, [0.8, 1.75], 1, 10),
        dry_case!("whole history", 131, 1/1 at 14 of 16, [0.8, 1.75], 0, 100),
        dry_case!("long", 5003, 1/1 at 1500 of 2048, [0.3, 2.5], 1, 2000),
        dry_case!("rows", 131, 5/4 at 120 of 128, [1.5, 1.2], 1, 90),
    ];

    /// Compares each earlier position of the history with its end, as in the definition.
    fn expected(o: &Outcome, live: usize) -> Expected {
        let x = o.numbers("x");
        let history: Vec<u32> = bytemuck::pod_collect_to_vec(&o.before["history"]);
        let breakers: Vec<u32> = bytemuck::pod_collect_to_vec(&o.before["breakers"]);
        let [context, vocab, words] =
            ["history", "x", "breakers"].map(|name| o.slots[name].cols as usize);
        let breaks = |sequence: usize, token: u32| {
            let word = breakers[sequence * words..][..words].get(token as usize / 32);
            word.is_some_and(|word| word >> (token % 32) & 1 == 1)
        };
        let longest = |row: &Row, sampler: &Sampler| {
            let sequence = row.sequence as usize;
            let text = &history[sequence * context..][..row.position as usize + 1];
            let text = &text[text
                .len()
                .saturating_sub(sampler.dry_penalty_last_n as usize)..];
            let mut longest: HashMap<usize, usize> = HashMap::new();
            for next in 1..text.len() {
                let same = (0..next).take_while(|k| {
                    let token = text[text.len() - 1 - k];
                    token == text[next - 1 - k] && !breaks(sequence, token)
                });
                let n = same.count();
                let of = longest.entry(text[next] as usize).or_default();
                *of = n.max(*of);
            }
            longest
        };
        let rows_and_samplers = rows_with_samplers(o, live);
        let longest: Vec<_> = rows_and_samplers
            .iter()
            .map(|(r, s)| longest(r, s))
            .collect();
        rows(o, live, |t, i| {
            let (_, sampler) = rows_and_samplers[t];
            let n = longest[t].get(&i).copied();
            let over = n.and_then(|n| n.checked_sub(sampler.dry_allowed as usize));
            let penalty = over.map_or(0.0, |over| wide(sampler.dry_base).powf(over as f64));
            wide(x[t * vocab + i]) - wide(sampler.dry_multiplier) * penalty
        })
    }
}

impl Tested for kind::PartMaxima {
    /// One part, a part of one, parts of more than the least number of elements, rows.
    const CASES: &'static [Case] = &[
        filter_case!("one", 1, 1/1 at 0, top_k: 1),
        filter_case!("one part", 37, 1/1 at 0, top_k: 1),
        filter_case!("partial part", 5003, 1/1 at 0, top_k: 1),
        filter_case!("large parts", 150_001, 1/1 at 0, top_k: 1),
        filter_case!("rows", 131, 5/4, top_k: 1),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let (x, mut maxima) = (o.numbers("x"), o.numbers("maxima"));
        let p: params::part_maxima::Params = o.params();
        let [vocab, part, parts] = [p.vocab, p.part, p.parts].map(|n| n as usize);
        for (x, maxima) in x.chunks(vocab).zip(maxima.chunks_mut(parts)).take(live) {
            assert_eq!(x.chunks(part).len(), parts);
            for (x, max) in x.chunks(part).zip(maxima) {
                *max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            }
        }
        vec![("maxima", maxima)]
    }
}

impl Tested for kind::TopNSigma {
    /// Off, narrow, wide, rows.
    const CASES: &'static [Case] = &[
        filter_case!("one", 1, top_n_sigma: 1.0),
        filter_case!("off", 37, top_n_sigma: 0.0),
        filter_case!("narrow", 131, top_n_sigma: 0.1),
        filter_case!("some", 5003, top_n_sigma: 1.0),
        filter_case!("nearly all", 1009, top_n_sigma: 3.0),
        filter_case!("rows", 131, 5/4, top_n_sigma: 1.3),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        threshold(Op::TopNSigma, o, live)
    }
}

impl Tested for kind::TopK {
    /// Off, one, nearly all, more than all, rows.
    const CASES: &'static [Case] = &[
        filter_case!("one", 1, top_k: 1),
        filter_case!("off", 37, top_k: 0),
        filter_case!("the largest", 37, top_k: 1),
        filter_case!("all but one", 131, top_k: 130),
        filter_case!("more than all", 131, top_k: 500),
        filter_case!("k = 40", 5003, top_k: 40),
        filter_case!("half", 1009, top_k: 500),
        filter_case!("the most parts", 131_072, top_k: 300),
        filter_case!("the largest parts", 262_208, top_k: 2000),
        filter_case!("rows", 131, 5/4, top_k: 7),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        threshold(Op::TopK, o, live)
    }
}

impl Tested for kind::Typical {
    /// Off, the most typical token, part of the probability mass, rows.
    const CASES: &'static [Case] = &[
        filter_case!("one", 1, typical_p: 0.5),
        filter_case!("off", 37, typical_p: 1.0),
        filter_case!("the most typical", 37, typical_p: 0.0),
        filter_case!("half", 131, typical_p: 0.5),
        filter_case!("most", 5003, typical_p: 0.95),
        filter_case!("rows", 131, 5/4, typical_p: 0.7),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        vec![("y", filter(Op::Typical, o, live))]
    }
}

impl Tested for kind::TopP {
    /// Off, only the largest, most of the probability mass, rows.
    const CASES: &'static [Case] = &[
        filter_case!("one", 1, top_p: 0.5),
        filter_case!("off", 37, top_p: 1.0),
        filter_case!("the largest", 37, top_p: 0.0),
        filter_case!("half", 131, top_p: 0.5),
        filter_case!("most", 5003, top_p: 0.95),
        filter_case!("rows", 131, 5/4, top_p: 0.7),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        threshold(Op::TopP, o, live)
    }
}

impl Tested for kind::MinP {
    /// Off, some, only the largest, rows.
    const CASES: &'static [Case] = &[
        filter_case!("one", 1, min_p: 0.5),
        filter_case!("off", 37, min_p: 0.0),
        filter_case!("some", 131, min_p: 0.3),
        filter_case!("the largest", 5003, min_p: 1.0),
        filter_case!("rows", 131, 5/4, min_p: 0.3),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        threshold(Op::MinP, o, live)
    }
}

impl Tested for kind::Xtc {
    /// Off, always, randomly, threshold above all probabilities, rows.
    const CASES: &'static [Case] = &[
        filter_case!("one", 1, xtc_probability: 1.0, xtc_threshold: 0.1),
        filter_case!("off", 37, xtc_probability: 0.0, xtc_threshold: 0.1),
        filter_case!("always", 37, xtc_probability: 1.0, xtc_threshold: 0.03),
        filter_case!("random", 131, xtc_probability: 0.5, xtc_threshold: 0.01),
        filter_case!("large vocabulary", 5003, xtc_probability: 1.0, xtc_threshold: 3e-4),
        filter_case!("threshold too high", 131, xtc_probability: 1.0, xtc_threshold: 0.5),
        filter_case!("rows", 131, 5/4, xtc_probability: 0.5, xtc_threshold: 0.01),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        vec![("y", filter(Op::Xtc, o, live))]
    }
}

impl Tested for kind::Temper {
    /// Low, off, high, per row, rows.
    const CASES: &'static [Case] = &[
        filter_case!("one", 1, temperature: 0.5),
        filter_case!("off", 37, temperature: 0.0),
        filter_case!("high", 5003, temperature: 2.5),
        filter_case!("dynamic", 37, temperature: 0.7, dynatemp_range: 0.5),
        filter_case!("rows", 131, 5/4, temperature: 0.7),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let (y, vocab) = (o.numbers("y"), o.slots["y"].cols as usize);
        let rows_and_samplers = rows_with_samplers(o, live);
        rows(o, live, |t, i| match rows_and_samplers[t].1 {
            s if s.temperature == 0.0 || s.dynatemp_range > 0.0 => wide(y[t * vocab + i]),
            s => wide(y[t * vocab + i]) / wide(s.temperature),
        })
    }
}

macro_rules! dynamic_temper_case {
    ($name:literal, $vocab:literal, $($rows:literal / $live:literal,)? [$middle:literal, $range:literal, $exponent:literal]) => {
        filter_case!($name, $vocab, $($rows/$live,)? temperature: $middle, dynatemp_range: $range, dynatemp_exponent: $exponent)
            .tolerance(1e-5)
    };
}

impl Tested for kind::DynamicTemper {
    /// Off, low, high, exponents, rows.
    const CASES: &'static [Case] = &[
        dynamic_temper_case!("one", 1, [0.5, 0.2, 1.0]),
        dynamic_temper_case!("off", 37, [0.7, 0.0, 1.0]),
        dynamic_temper_case!("only the largest", 37, [0.0, 0.5, 1.0]),
        dynamic_temper_case!("down to 0", 131, [0.5, 2.0, 1.0]),
        dynamic_temper_case!("high", 5003, [1.5, 1.0, 1.0]),
        dynamic_temper_case!("exponent 2", 1009, [0.8, 0.5, 2.0]),
        dynamic_temper_case!("exponent 0.5", 131, [0.8, 0.5, 0.5]),
        dynamic_temper_case!("rows", 131, 5 / 4, [1.0, 0.7, 1.0]),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let (y, vocab) = (o.numbers("y"), o.slots["y"].cols as usize);
        let rows_and_samplers = rows_with_samplers(o, live);
        let temperature = |t: usize| {
            let sampler = rows_and_samplers[t].1;
            let [middle, range] = [sampler.temperature, sampler.dynatemp_range].map(wide);
            if middle == 0.0 || range == 0.0 || vocab == 1 {
                return 1.0;
            }
            let (_, entropy) = probabilities(&y[t * vocab..][..vocab]);
            let part = entropy / (vocab as f64).ln();
            let low = (middle - range).max(0.0);
            low + (middle + range - low) * part.powf(wide(sampler.dynatemp_exponent))
        };
        let temperatures: Vec<f64> = (0..live).map(temperature).collect();
        rows(o, live, |t, i| wide(y[t * vocab + i]) / temperatures[t])
    }
}

impl Tested for kind::Mirostat {
    /// Off, only the largest, some, all, rows.
    const CASES: &'static [Case] = &[
        filter_case!("one", 1, mirostat_tau: 5.0, mirostat_mu: 10.0),
        filter_case!("off", 37, mirostat_tau: 0.0, mirostat_mu: 1.0),
        filter_case!("the largest", 37, mirostat_tau: 5.0, mirostat_mu: -3.0),
        filter_case!("some", 5003, mirostat_tau: 5.0, mirostat_mu: 12.0),
        filter_case!("all", 131, mirostat_tau: 5.0, mirostat_mu: 40.0),
        filter_case!("rows", 131, 5/4, mirostat_tau: 5.0, mirostat_mu: 7.0),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        threshold(Op::Mirostat, o, live)
    }
}

macro_rules! gumbel_case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal at $position:literal, $seed:literal) => {
        Case::new($name, $tokens, $live, |b| {
            b.sampled_stage($vocab, SamplerKind::DEFAULT)
        })
        .at($position, 16)
        .sampled_rows()
        .sampler(|s| {
            s.seed_lo = $seed;
            s.seed_hi = 7;
        })
    };
}

impl Tested for kind::Gumbel {
    /// Ids that end within a draw, a large position, rows.
    const CASES: &'static [Case] = &[
        gumbel_case!("one", 1, 1/1 at 0, 0),
        gumbel_case!("a part of a draw", 37, 1/1 at 3, 0x1234_5678),
        gumbel_case!("partial draw", 65, 1/1 at 15, 1),
        gumbel_case!("many", 50_021, 1/1 at 4, 99),
        gumbel_case!("rows", 131, 5/4 at 9, 3),
    ];

    /// Separate tests compare the results.
    fn expected(_: &Outcome, _: usize) -> Expected {
        Vec::new()
    }
}

macro_rules! mirostat_mu_case {
    ($name:literal, $tokens:literal/$live:literal, $tau:literal) => {
        Case::new($name, $tokens, $live, |b| {
            b.full_stage(101, SamplerKind::DEFAULT)
        })
        .sampled_rows()
        .sampler(|s| {
            (s.mirostat_tau, s.mirostat_eta) = ($tau, 0.1);
            s.mirostat_mu = 2.0 * $tau;
        })
    };
}

impl Tested for kind::MirostatMu {
    /// Off, one row, rows; random ids are below 50.
    const CASES: &'static [Case] = &[
        mirostat_mu_case!("off", 1 / 1, 0.0),
        mirostat_mu_case!("one", 1 / 1, 5.0),
        mirostat_mu_case!("rows", 5 / 4, 3.0),
    ];

    /// Separate tests compare the results.
    fn expected(_: &Outcome, _: usize) -> Expected {
        Vec::new()
    }
}

macro_rules! logprobs_case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal, $logprobs:literal) => {
        Case::new($name, $tokens, $live, |b| {
            b.full_stage($vocab, SamplerKind::DEFAULT)
        })
        .sampled_rows()
        .sampler(|s| s.logprobs = $logprobs)
    };
}

impl Tested for kind::Logprobs {
    /// Off, fewer tokens than entries, many, rows; random ids are below 50.
    const CASES: &'static [Case] = &[
        logprobs_case!("off", 101, 1 / 1, 0),
        logprobs_case!("vocabulary of 50", 50, 1 / 1, 1),
        logprobs_case!("many", 5003, 1 / 1, 1),
        logprobs_case!("rows", 131, 5 / 4, 1),
    ];

    /// Separate tests compare the results.
    fn expected(_: &Outcome, _: usize) -> Expected {
        Vec::new()
    }
}

/// Returns the row and the sampler of each active row.
pub(super) fn rows_with_samplers(o: &Outcome, live: usize) -> Vec<(Row, Sampler)> {
    let samplers: Vec<Sampler> = bytemuck::pod_collect_to_vec(&o.before["samplers"]);
    let rows = o.rows().into_iter().take(live);
    rows.map(|row| (row, samplers[row.sequence as usize]))
        .collect()
}

/// Returns the softmax of a row and its entropy; NaN has probability 0.
pub fn probabilities(y: &[f32]) -> (Vec<f64>, f64) {
    let peak = y.iter().fold(f32::NEG_INFINITY, |m, y| m.max(*y));
    let weights = y.iter().map(|y| (wide(*y) - wide(peak)).exp());
    let weights = weights.map(|w| if w.is_nan() { 0.0 } else { w });
    let total: f64 = weights.clone().sum();
    let p: Vec<f64> = weights.map(|w| w / total).collect();
    let terms = p.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln());
    let entropy = terms.sum();
    (p, entropy)
}

fn filter(op: Op, o: &Outcome, live: usize) -> Vec<f32> {
    let mut y = o.numbers("y");
    let rows_and_samplers = rows_with_samplers(o, live);
    let rows = y
        .chunks_exact_mut(o.slots["y"].cols as usize)
        .zip(rows_and_samplers);
    for (y, (row, sampler)) in rows {
        let keeps = keeps(op, y, &row, &sampler);
        let gone = y.iter_mut().zip(keeps).filter(|(_, keep)| !keep);
        gone.for_each(|(y, _)| *y = f32::NEG_INFINITY);
    }
    y
}

/// Returns the rows after a filter of the smallest values, and the maxima of their parts.
fn threshold(op: Op, o: &Outcome, live: usize) -> Expected {
    let (y, mut maxima) = (filter(op, o, live), o.numbers("maxima"));
    let p: params::top_k::Params = o.params();
    let [vocab, part, parts] = [p.vocab, p.part, p.parts].map(|n| n as usize);
    let rows = y.chunks(vocab).zip(maxima.chunks_mut(parts));
    for (y, maxima) in rows.take(live) {
        for (y, max) in y.chunks(part).zip(maxima) {
            *max = y.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        }
    }
    vec![("y", y), ("maxima", maxima)]
}

/// Returns which elements of a row a filter keeps. Sorts the elements, so that kept sets are
/// prefixes; excludes NaN.
pub fn keeps(op: Op, y: &[f32], row: &Row, sampler: &Sampler) -> Vec<bool> {
    let mut sorted: Vec<f32> = y.iter().copied().filter(|y| !y.is_nan()).collect();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let from = |least: f32| y.iter().map(|y| *y >= least).collect();
    let (p, entropy) = probabilities(y);
    let all = vec![true; y.len()];
    match op {
        Op::TopK => match sampler.top_k as usize {
            0 => all,
            k => from(sorted.get(k - 1).copied().unwrap_or(f32::NEG_INFINITY)),
        },
        Op::TopP if sampler.top_p >= 1.0 => all,
        Op::TopP => {
            let weight = |y: &f32| (wide(*y) - wide(sorted[0])).exp();
            let total: f64 = sorted.iter().map(weight).sum();
            let mut mass = 0.0;
            let last = sorted.iter().find(|y| {
                mass += weight(y);
                mass >= wide(sampler.top_p) * total
            });
            from(*last.expect("the total probability is reached"))
        }
        Op::MinP => from(sorted[0] + sampler.min_p.ln()),
        Op::TopNSigma if sampler.top_n_sigma == 0.0 => all,
        Op::TopNSigma => {
            let finite = sorted.iter().filter(|y| y.is_finite());
            let count = finite.clone().count() as f64;
            let mean = finite.clone().map(|y| wide(*y)).sum::<f64>() / count;
            let squares = finite.map(|y| (wide(*y) - mean).powi(2));
            let sigma = (squares.sum::<f64>() / count).sqrt();
            let least = wide(sorted[0]) - wide(sampler.top_n_sigma) * sigma;
            y.iter().map(|y| wide(*y) >= least).collect()
        }
        Op::Typical if sampler.typical_p >= 1.0 => all,
        Op::Typical => {
            let far = |i: &usize| (-p[*i].ln() - entropy).abs();
            let mut order: Vec<usize> = (0..y.len()).collect();
            order.sort_by(|a, b| far(a).total_cmp(&far(b)));
            let mut mass = 0.0;
            let last = order.iter().find(|i| {
                mass += p[**i];
                mass >= wide(sampler.typical_p)
            });
            let last = far(last.expect("the total probability is reached"));
            (0..y.len()).map(|i| far(&i) <= last).collect()
        }
        Op::Xtc => {
            let key = [sampler.seed_lo, sampler.seed_hi];
            let word = philox(key, [0, row.position + 1, 1, 0])[0];
            let threshold = wide(sampler.xtc_threshold);
            let some = p.iter().zip(y).filter(|(_, y)| **y > f32::NEG_INFINITY);
            let top = some.map(|(p, _)| *p).filter(|p| *p >= threshold);
            let last = top.fold(f64::INFINITY, f64::min);
            let off = chance(word) >= sampler.xtc_probability;
            p.iter().map(|p| off || *p <= last).collect()
        }
        Op::Mirostat if sampler.mirostat_tau == 0.0 => all,
        Op::Mirostat => {
            let largest = p.iter().fold(0.0f64, |m, p| m.max(*p));
            let stays = |p: &f64| -p.log2() <= wide(sampler.mirostat_mu) || *p == largest;
            p.iter().map(stays).collect()
        }
        _ => panic!("{}: `keeps` has no definition of this filter", op.name()),
    }
}
