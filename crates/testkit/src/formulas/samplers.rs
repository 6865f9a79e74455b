//! Formulas of samplers.

use super::common::{rows, wide};
use crate::rig::Outcome;
use std::collections::HashMap;
use tabla_core::exec::philox::{chance, philox};
use tabla_core::op::list::Op;
use tabla_core::op::params::{Bias, Row, Sampler};
use tabla_core::op::table::BIASES_MAX;

/// Returns the row and the sampler of each active row.
pub(super) fn rows_with_samplers(o: &Outcome, live: usize) -> Vec<(Row, Sampler)> {
    let samplers: Vec<Sampler> = bytemuck::pod_collect_to_vec(&o.before["samplers"]);
    let rows = o.rows().into_iter().take(live);
    rows.map(|row| (row, samplers[row.sequence as usize]))
        .collect()
}

pub(super) fn penalize(o: &Outcome, live: usize) -> Vec<f32> {
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
        let taken = count as f64 * wide(sampler.frequency_penalty) + wide(sampler.presence_penalty);
        match count > 0 {
            true if x > 0.0 => x / penalty - taken,
            true => x * penalty - taken,
            false => x,
        }
    })
}

pub(super) fn temper(o: &Outcome, live: usize) -> Vec<f32> {
    let (y, vocab) = (o.numbers("y"), o.slots["y"].cols as usize);
    let rows_and_samplers = rows_with_samplers(o, live);
    rows(o, live, |t, i| match rows_and_samplers[t].1 {
        s if s.temperature == 0.0 || s.dynatemp_range > 0.0 => wide(y[t * vocab + i]),
        s => wide(y[t * vocab + i]) / wide(s.temperature),
    })
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

pub(super) fn dynamic_temper(o: &Outcome, live: usize) -> Vec<f32> {
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

pub(super) fn bias(o: &Outcome, live: usize) -> Vec<f32> {
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

pub(super) fn mask(o: &Outcome, live: usize) -> Vec<f32> {
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

/// Compares each earlier position of the history with its end, as in the definition.
pub(super) fn dry(o: &Outcome, live: usize) -> Vec<f32> {
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

pub(super) fn filter(op: Op, o: &Outcome, live: usize) -> Vec<f32> {
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
            let top = p.iter().filter(|p| **p >= threshold);
            let last = top.fold(f64::INFINITY, |m, p| m.min(*p));
            let off = chance(word) >= sampler.xtc_probability;
            p.iter().map(|p| off || *p <= last).collect()
        }
        _ if sampler.mirostat_tau == 0.0 => all,
        _ => {
            let largest = p.iter().fold(0.0f64, |m, p| m.max(*p));
            let stays = |p: &f64| -p.log2() <= wide(sampler.mirostat_mu) || *p == largest;
            p.iter().map(stays).collect()
        }
    }
}
