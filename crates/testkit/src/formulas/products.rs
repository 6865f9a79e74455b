//! Formulas of products of matrices, ternary digits and experts, with their preparation.

use super::common::{activation, rows, wide};
use crate::case::Case;
use crate::rig::Outcome;
use tabla_core::op::params;

pub(super) fn product(o: &Outcome, live: usize, old: f64) -> Vec<f32> {
    let x: Vec<f64> = o.numbers("x").into_iter().map(wide).collect();
    product_of(o, live, &x, old)
}

pub(super) fn gemv_norm(o: &Outcome, live: usize) -> Vec<f32> {
    let (x, n) = (o.numbers("x"), o.numbers("n"));
    let p: params::gemv_norm::Params = o.params();
    let mean = x.iter().map(|x| wide(*x).powi(2)).sum::<f64>() / x.len() as f64;
    let root = (mean + wide(p.eps)).sqrt();
    let pairs = x.iter().zip(&n);
    let x: Vec<f64> = pairs.map(|(x, n)| wide(*x) / root * wide(*n)).collect();
    product_of(o, live, &x, 0.0)
}

pub(super) fn gemv_glu(o: &Outcome, live: usize, old: f64) -> Vec<f32> {
    let (gate, up) = (o.numbers("gate"), o.numbers("up"));
    let p: params::gemv_glu::Params = o.params();
    let pairs = gate.iter().zip(&up);
    let x: Vec<f64> = pairs
        .map(|(gate, up)| activation(p.activation, wide(*gate)) * wide(*up))
        .collect();
    product_of(o, live, &x, old)
}

/// Returns `W x + old y`.
pub(super) fn product_of(o: &Outcome, live: usize, x: &[f64], old: f64) -> Vec<f32> {
    let (w, y) = (o.numbers("w"), o.numbers("y"));
    let [rows_, cols] = [o.slots["w"].rows, o.slots["w"].cols].map(|n| n as usize);
    rows(o, live, |t, r| {
        let pairs = w[r * cols..][..cols].iter().zip(&x[t * cols..]);
        let sum: f64 = pairs.map(|(w, x)| wide(*w) * x).sum();
        sum + old * wide(y[t * rows_ + r])
    })
}

/// Computed in f32, since the rounding of ties depends on it.
pub(super) fn bit_quantize(o: &Outcome, live: usize) -> Vec<(&'static str, Vec<f32>)> {
    let (x, mut q, mut d) = (o.numbers("x"), o.numbers("q"), o.numbers("d"));
    let [cols, padded] = ["x", "q"].map(|name| o.slots[name].cols as usize);
    for t in 0..live {
        let x = &x[t * cols..][..cols];
        let m = x.iter().fold(1e-5f32, |m, x| m.max(x.abs()));
        let scale = 127.0 / m;
        let numbers = x
            .iter()
            .map(|x| (x * scale).round_ties_even().clamp(-128.0, 127.0));
        let row = numbers.chain(std::iter::repeat(0.0));
        q[t * padded..][..padded]
            .iter_mut()
            .zip(row)
            .for_each(|(q, x)| *q = x);
        d[t] = m / 127.0;
    }
    vec![("q", q), ("d", d)]
}

pub(super) fn bit_mat(case: &Case, o: &Outcome, live: usize, old: f64) -> Vec<f32> {
    let (w, q, d, y) = (
        o.digits("w"),
        o.numbers("q"),
        o.numbers("d"),
        o.numbers("y"),
    );
    let width = o.slots["w"].rows as usize;
    let [cols, padded] = ["w", "q"].map(|name| o.slots[name].cols as usize);
    let scale = wide(case.scale.expect("ternary cases have a scale"));
    rows(o, live, |t, r| {
        let pairs = w[r * cols..][..cols].iter().zip(&q[t * padded..]);
        let sum: f64 = pairs.map(|(w, q)| f64::from(*w) * wide(*q)).sum();
        sum * wide(d[t]) * scale + old * wide(y[t * width + r])
    })
}

pub(super) fn route(o: &Outcome, live: usize) -> Vec<(&'static str, Vec<f32>)> {
    let p: params::route::Params = o.params();
    let (x, mut ids, mut y) = (o.numbers("x"), o.numbers("ids"), o.numbers("y"));
    let (experts, k) = (p.experts as usize, p.k as usize);
    let [bias, scales] = ["bias", "scales"].map(|name| o.numbers(name));
    for t in 0..live {
        let x: Vec<f64> = x[t * experts..][..experts]
            .iter()
            .map(|x| wide(*x))
            .collect();
        let scores = scores(&p, &x);
        let mut choices = scores.clone();
        if p.biased == 1 {
            choices
                .iter_mut()
                .zip(&bias)
                .for_each(|(c, b)| *c += wide(*b));
        }
        let order: Vec<usize> = descending(&choices);
        let used = used_groups(&p, &choices);
        let in_used = |e: &usize| used.contains(&(e * p.groups as usize / experts));
        let chosen: Vec<usize> = order.into_iter().filter(in_used).take(k).collect();
        let weight = |s: usize| match p.score {
            3 => mixed(&x, &chosen[..=s], wide(p.eps)),
            _ => scores[chosen[s]],
        };
        let sum: f64 = (0..k).map(weight).sum();
        let total = if p.normalize == 1 {
            sum + wide(p.eps)
        } else {
            1.0
        };
        for (s, &e) in chosen.iter().enumerate() {
            let scale = if p.scaled == 1 { wide(scales[e]) } else { 1.0 };
            ids[t * k + s] = e as f32;
            y[t * k + s] = (weight(s) / total * wide(p.scale) * scale) as f32;
        }
    }
    vec![("ids", ids), ("y", y)]
}

/// Returns the scores of all experts. The order of `SparseMixer` is that of the logits.
fn scores(p: &params::route::Params, x: &[f64]) -> Vec<f64> {
    let all: f64 = x.iter().map(|x| x.exp()).sum();
    let score = |x: &f64| match p.score {
        0 => x.exp() / all,
        1 => 1.0 / (1.0 + (-x).exp()),
        2 => x.exp().ln_1p().sqrt(),
        _ => *x,
    };
    x.iter().map(score).collect()
}

/// Returns the indices of the largest numbers first. The sort is stable: ties by lowest index.
fn descending(numbers: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|&a, &b| numbers[b].total_cmp(&numbers[a]));
    order
}

/// Returns the groups from which experts are selected.
fn used_groups(p: &params::route::Params, choices: &[f64]) -> Vec<usize> {
    let groups = choices.chunks_exact(choices.len() / p.groups as usize);
    let score = |group: &[f64]| -> f64 {
        let best = descending(group).into_iter().take(p.group_best as usize);
        best.map(|i| group[i]).sum()
    };
    let groups: Vec<f64> = groups.map(score).collect();
    let mut best = descending(&groups);
    best.truncate(p.groups_used as usize);
    best
}

/// Returns `SparseMixer`'s weight of the last of `ids`.
fn mixed(x: &[f64], ids: &[usize], distance: f64) -> f64 {
    let (last, before) = ids.split_last().expect("at least one");
    let best = x[*last];
    let rest = (0..x.len()).filter(|e| !before.contains(e));
    let near = rest.filter(|e| (best - x[*e]) <= distance * x[*e].abs().max(best));
    1.0 / near.map(|e| (x[e] - best).exp()).sum::<f64>()
}

pub(super) fn experts(o: &Outcome, live: usize, numbers: [u32; 3]) -> Vec<f32> {
    let (w, x, ids) = (o.numbers("w"), o.numbers("x"), o.numbers("ids"));
    let [experts, k, per_expert] = numbers.map(|n| n as usize);
    let [rows_of_all, cols] = [o.slots["w"].rows, o.slots["w"].cols].map(|n| n as usize);
    let rows_per_expert = rows_of_all / experts;
    rows(o, live, |t, i| {
        let (s, r) = (i / rows_per_expert, i % rows_per_expert);
        let id = ids[t * k + s] as usize;
        let from = if per_expert == 1 { t * k + s } else { t };
        let pairs = x[from * cols..][..cols]
            .iter()
            .zip(w.iter().skip((id * rows_per_expert + r) * cols));
        pairs.map(|(x, w)| wide(*x) * wide(*w)).sum()
    })
}

pub(super) fn add_expert_bias(o: &Outcome, live: usize) -> Vec<f32> {
    let p: params::add_expert_bias::Params = o.params();
    let (b, ids, y) = (o.numbers("b"), o.numbers("ids"), o.numbers("y"));
    let [k, dim] = [p.k, p.dim].map(|n| n as usize);
    rows(o, live, |t, i| {
        let id = ids[t * k + i / dim] as usize;
        // An id out of range has no effect.
        let bias = b.get(id * dim + i % dim);
        wide(y[t * k * dim + i]) + bias.map_or(0.0, |bias| wide(*bias))
    })
}

pub(super) fn group_by_expert(o: &Outcome, live: usize) -> Vec<f32> {
    let p: params::group_by_expert::Params = o.params();
    let (ids, all) = (o.numbers("ids"), o.slots["tiles"].rows as usize);
    let mut tiles = Vec::new();
    let row = 2 + p.tile as usize;
    for expert in 0..=p.experts {
        let of_it = |pair: &usize| (ids[*pair] as u32).min(p.experts) == expert;
        let pairs: Vec<usize> = (0..live * p.k as usize).filter(of_it).collect();
        for pairs in pairs.chunks(p.tile as usize) {
            tiles.extend([expert as f32, pairs.len() as f32]);
            tiles.extend(pairs.iter().map(|pair| *pair as f32));
            tiles.resize(tiles.len().next_multiple_of(row), 0.0);
        }
    }
    while tiles.len() < all * row {
        tiles.push(p.experts as f32);
        tiles.resize(tiles.len().next_multiple_of(row), 0.0);
    }
    tiles
}
