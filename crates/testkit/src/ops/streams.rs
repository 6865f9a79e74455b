//! Cases of operations on residual streams.

use super::common::{rows, wide};
use super::{Expected, Tested};
use crate::case::Case;
use crate::rig::Outcome;
use tabla_core::op::kind;
use tabla_core::op::params;
use tabla_plan::builder::StreamFactor;

/// Names of the streams, which are inputs.
const NAMES: [&str; 4] = ["x0", "x1", "x2", "x3"];

macro_rules! mix_streams_case {
    ($name:literal, $dim:literal, $tokens:literal/$live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let c = b.input("c", 16);
            let streams = NAMES.map(|name| b.input(name, $dim));
            b.mix_streams(c, streams);
        })
    };
}

impl Tested for kind::MixStreams {
    /// Odd widths.
    const CASES: &'static [Case] = &[
        mix_streams_case!("one", 1, 1 / 1),
        mix_streams_case!("primes", 37, 5 / 3),
        mix_streams_case!("partial vector", 257, 2 / 2),
        mix_streams_case!("many", 131, 67 / 61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let (c, old) = (o.numbers("c"), NAMES.map(|name| o.numbers(name)));
        let cols = o.slots["x0"].cols as usize;
        streams(o, live, |j, t, i| {
            let at = t * cols + i;
            let terms = (0..4).map(|k| wide(c[16 * t + 4 * j + k]) * wide(old[k][at]));
            wide(old[j][at]) + terms.sum::<f64>()
        })
    }
}

macro_rules! add_to_streams_case {
    ($name:literal, $dim:literal, from $first:literal, $offset:literal + $gain:literal c, $tokens:literal/$live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let c = b.input("c", 4);
            let v = b.input("v", $dim);
            let streams = NAMES.map(|name| b.input(name, $dim));
            let factor = StreamFactor {
                first: $first,
                offset: $offset,
                gain: $gain,
            };
            b.add_to_streams(factor, [c, v], streams);
        })
    };
}

impl Tested for kind::AddToStreams {
    /// All streams and some, with and without coefficients.
    const CASES: &'static [Case] = &[
        add_to_streams_case!("one", 1, from 0, 1.0 + 1.0 c, 1/1),
        add_to_streams_case!("constant", 37, from 1, 1.0 + 0.0 c, 5/3),
        add_to_streams_case!("the last", 257, from 3, 0.0 + 0.3 c, 2/2),
        add_to_streams_case!("some", 40, from 2, 0.5 + -2.0 c, 4/3),
        add_to_streams_case!("many", 131, from 0, 1.0 + 1.0 c, 67/61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: params::add_to_streams::Params = o.params();
        let (c, v, old) = (
            o.numbers("c"),
            o.numbers("v"),
            NAMES.map(|name| o.numbers(name)),
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
}

macro_rules! match_rms_case {
    ($name:literal, $dim:literal, floor $floor:literal, $tokens:literal/$live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let [x, y] = ["x", "y"].map(|name| b.input(name, $dim));
            b.match_rms(x, y, $floor);
        })
    };
}

impl Tested for kind::MatchRms {
    /// Odd widths; floors below and above the values.
    const CASES: &'static [Case] = &[
        match_rms_case!("one", 1, floor 1e-5, 1/1),
        match_rms_case!("below the floor", 37, floor 9.0, 5/3),
        match_rms_case!("partial vector", 129, floor 1e-5, 2/2),
        match_rms_case!("wide", 2048, floor 1e-5, 1/1),
        match_rms_case!("many", 131, floor 1.3, 67/61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
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
}

macro_rules! gaussian_top_k_case {
    ($name:literal, $dim:literal, at $deviations:literal, $tokens:literal/$live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let y = b.input("y", $dim);
            b.gaussian_top_k(y, $deviations);
        })
    };
}

impl Tested for kind::GaussianTopK {
    /// Odd widths; cutoffs on both sides of the mean, and above all values.
    const CASES: &'static [Case] = &[
        gaussian_top_k_case!("one", 1, at 0.5, 1/1),
        gaussian_top_k_case!("primes", 37, at 0.5244, 5/3),
        gaussian_top_k_case!("below the mean", 129, at - 0.7, 2 / 2),
        gaussian_top_k_case!("wide", 2048, at 1.6449, 1/1),
        gaussian_top_k_case!("above all", 64, at 9.0, 2/2),
        gaussian_top_k_case!("many", 131, at 1.0, 67/61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
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
}

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
    NAMES.into_iter().enumerate().map(stream).collect()
}
