//! Formulas of operations on residual streams.

use super::common::{rows, wide};
use crate::cases::STREAM_NAMES;
use crate::rig::Outcome;
use tabla_core::op::params;

/// Returns all streams, with elements of the active rows replaced by `x(j, t, i)`.
fn streams(
    o: &Outcome,
    live: usize,
    x: impl Fn(usize, usize, usize) -> f64,
) -> Vec<(&'static str, Vec<f32>)> {
    let stream = |(j, name): (usize, &'static str)| {
        let mut all = o.numbers(name);
        let cols = o.slots[name].cols as usize;
        for (at, out) in all[..live * cols].iter_mut().enumerate() {
            *out = x(j, at / cols, at % cols) as f32;
        }
        (name, all)
    };
    STREAM_NAMES.into_iter().enumerate().map(stream).collect()
}

pub(super) fn mix_streams(o: &Outcome, live: usize) -> Vec<(&'static str, Vec<f32>)> {
    let (c, old) = (o.numbers("c"), STREAM_NAMES.map(|name| o.numbers(name)));
    let cols = o.slots["x0"].cols as usize;
    streams(o, live, |j, t, i| {
        let at = t * cols + i;
        let terms = (0..4).map(|k| wide(c[16 * t + 4 * j + k]) * wide(old[k][at]));
        wide(old[j][at]) + terms.sum::<f64>()
    })
}

pub(super) fn add_to_streams(o: &Outcome, live: usize) -> Vec<(&'static str, Vec<f32>)> {
    let p: params::add_to_streams::Params = o.params();
    let (c, v, old) = (
        o.numbers("c"),
        o.numbers("v"),
        STREAM_NAMES.map(|name| o.numbers(name)),
    );
    let cols = o.slots["x0"].cols as usize;
    streams(o, live, |j, t, i| {
        let at = t * cols + i;
        let factor = match j >= p.first as usize {
            true => wide(p.offset) + wide(p.gain) * wide(c[4 * t + j]),
            false => 0.0,
        };
        wide(old[j][at]) + factor * wide(v[at])
    })
}

pub(super) fn match_rms(o: &Outcome, live: usize) -> Vec<f32> {
    let (x, y) = (o.numbers("x"), o.numbers("y"));
    let p: params::match_rms::Params = o.params();
    let dim = p.dim as usize;
    let mean_square = |x: &[f32], t: usize| {
        let row = &x[t * dim..][..dim];
        row.iter().map(|x| wide(*x).powi(2)).sum::<f64>() / dim as f64
    };
    rows(o, live, |t, i| {
        let own = mean_square(&y, t).max(wide(p.floor));
        wide(y[t * dim + i]) * (mean_square(&x, t) / own).sqrt()
    })
}

pub(super) fn gaussian_top_k(o: &Outcome, live: usize) -> Vec<f32> {
    let y = o.numbers("y");
    let p: params::gaussian_top_k::Params = o.params();
    let dim = p.dim as usize;
    rows(o, live, |t, i| {
        let row = &y[t * dim..][..dim];
        let mean = row.iter().map(|y| wide(*y)).sum::<f64>() / dim as f64;
        let squares = row.iter().map(|y| (wide(*y) - mean).powi(2));
        let sigma = (squares.sum::<f64>() / dim as f64).sqrt();
        (wide(row[i]) - mean - wide(p.deviations) * sigma).max(0.0)
    })
}
