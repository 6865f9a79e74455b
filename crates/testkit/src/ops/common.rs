//! Helpers shared by formulas: rows of results, rows that attention sees, softmax, activation
//! functions.

use super::Expected;
use crate::rig::Outcome;
use tabla_core::op::functions::Activation;
use tabla_core::op::params::{PAGE, Row};
use tabla_plan::builder::Heads;

/// Expects `y` with the first `live` rows replaced by `row(t, i)`.
pub(super) fn rows(o: &Outcome, live: usize, row: impl Fn(usize, usize) -> f64) -> Expected {
    let mut y = o.numbers("y");
    let cols = o.slots["y"].cols as usize;
    for t in 0..live {
        for i in 0..cols {
            y[t * cols + i] = row(t, i) as f32;
        }
    }
    vec![("y", y)]
}

/// Returns the heads of an attention layer with a window; 0: all positions.
pub(super) const fn heads([heads, kv_heads, head_dim]: [u32; 3], window: u32) -> Heads {
    Heads {
        layer: 0,
        heads,
        kv_heads,
        head_dim,
        window,
        latent: false,
    }
}

pub(super) fn wide(x: f32) -> f64 {
    f64::from(x)
}

/// Returns the dot product of the elements of the shorter slice.
pub(super) fn dot(x: &[f32], y: &[f32]) -> f64 {
    x.iter().zip(y).map(|(x, y)| wide(*x) * wide(*y)).sum()
}

/// Returns `cap tanh(score / cap)`; the score if the cap is 0.
pub(super) fn softcapped(score: f64, cap: f32) -> f64 {
    match wide(cap) {
        0.0 => score,
        cap => cap * (score / cap).tanh(),
    }
}

/// Returns the cache row of a position in the sequence of `row`.
pub(super) fn row_of(
    o: &Outcome,
    row: &Row,
    [stride, first, ring]: [u32; 3],
    position: usize,
) -> usize {
    let page = PAGE as usize;
    let [stride, first, ring] = [stride, first, ring].map(|n| n as usize);
    let at = row.sequence as usize * stride + first + position / page % ring;
    let entry = &o.before["pages"][4 * at..][..4];
    let entry = u32::from_le_bytes(entry.try_into().expect("four bytes"));
    entry as usize * page + position % page
}

/// Returns the rows of the same sequence at a distance of at most `reach`.
pub(super) fn nearby_rows(
    rows: &[Row],
    t: usize,
    reach: u32,
) -> impl Iterator<Item = usize> + Clone {
    let mut sequence = 0;
    let sequences = rows.iter().map(|row| {
        sequence += usize::from(row.position == 0);
        sequence
    });
    let sequences: Vec<usize> = sequences.collect();
    let near = move |&r: &usize| sequences[r] == sequences[t] && r.abs_diff(t) <= reach as usize;
    (0..rows.len()).filter(near)
}

pub(super) fn softmax(scores: impl Iterator<Item = f64>) -> impl Iterator<Item = f64> {
    let scores: Vec<f64> = scores.collect();
    let max = scores.iter().fold(f64::NEG_INFINITY, |m, s| m.max(*s));
    let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
    scores.into_iter().map(move |s| (s - max).exp() / sum)
}

/// Applies the activation with this number.
pub fn activation(number: u32, x: f64) -> f64 {
    match Activation::ALL[number as usize] {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Gelu => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
        Activation::GeluTanh => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + u.tanh())
        }
        Activation::Relu2 => x.max(0.0).powi(2),
        Activation::Relu => x.max(0.0),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::Linear => x,
    }
}

/// Error function by the series `2 / sqrt(pi) e^(-x^2) (x + 2 x^3 / 3 + 4 x^5 / 15 + ...)`.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
}
