//! Helpers shared by formulas: rows of results, activation functions.

use crate::rig::Outcome;
use tabla_core::op::builder::Activation;

/// Returns `y` with the first `live` rows replaced by `row(t, i)`.
pub(super) fn rows(o: &Outcome, live: usize, row: impl Fn(usize, usize) -> f64) -> Vec<f32> {
    let mut y = o.numbers("y");
    let cols = o.slots["y"].cols as usize;
    for t in 0..live {
        for i in 0..cols {
            y[t * cols + i] = row(t, i) as f32;
        }
    }
    y
}

pub(super) fn wide(x: f32) -> f64 {
    f64::from(x)
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
