//! Cases of operations on residual streams.

use crate::case::{Case, PLAIN};
use tabla_plan::builder::StreamFactor;

/// Names of the streams, which are inputs.
pub(crate) const NAMES: [&str; 4] = ["x0", "x1", "x2", "x3"];

macro_rules! mix_streams_case {
    ($name:literal, $dim:literal, $tokens:literal/$live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let c = b.input("c", 16);
                let streams = NAMES.map(|name| b.input(name, $dim));
                b.mix_streams(c, streams);
            },
            ..PLAIN
        }
    };
}

/// Odd widths.
pub(super) const MIX_STREAMS: &[Case] = &[
    mix_streams_case!("one", 1, 1 / 1),
    mix_streams_case!("primes", 37, 5 / 3),
    mix_streams_case!("partial vector", 257, 2 / 2),
    mix_streams_case!("many", 131, 67 / 61),
];

macro_rules! add_to_streams_case {
    ($name:literal, $dim:literal, from $first:literal, $offset:literal + $gain:literal c, $tokens:literal/$live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let c = b.input("c", 4);
                let v = b.input("v", $dim);
                let streams = NAMES.map(|name| b.input(name, $dim));
                let factor = StreamFactor {
                    first: $first,
                    offset: $offset,
                    gain: $gain,
                };
                b.add_to_streams(factor, [c, v], streams);
            },
            ..PLAIN
        }
    };
}

/// All streams and some, with and without coefficients.
pub(super) const ADD_TO_STREAMS: &[Case] = &[
    add_to_streams_case!("one", 1, from 0, 1.0 + 1.0 c, 1/1),
    add_to_streams_case!("constant", 37, from 1, 1.0 + 0.0 c, 5/3),
    add_to_streams_case!("the last", 257, from 3, 0.0 + 0.3 c, 2/2),
    add_to_streams_case!("some", 40, from 2, 0.5 + -2.0 c, 4/3),
    add_to_streams_case!("many", 131, from 0, 1.0 + 1.0 c, 67/61),
];

macro_rules! match_rms_case {
    ($name:literal, $dim:literal, floor $floor:literal, $tokens:literal/$live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let [x, y] = ["x", "y"].map(|name| b.input(name, $dim));
                b.match_rms(x, y, $floor);
            },
            ..PLAIN
        }
    };
}

/// Odd widths; floors below and above the values.
pub(super) const MATCH_RMS: &[Case] = &[
    match_rms_case!("one", 1, floor 1e-5, 1/1),
    match_rms_case!("below the floor", 37, floor 9.0, 5/3),
    match_rms_case!("partial vector", 129, floor 1e-5, 2/2),
    match_rms_case!("wide", 2048, floor 1e-5, 1/1),
    match_rms_case!("many", 131, floor 1.3, 67/61),
];

macro_rules! gaussian_top_k_case {
    ($name:literal, $dim:literal, at $deviations:literal, $tokens:literal/$live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let y = b.input("y", $dim);
                b.gaussian_top_k(y, $deviations);
            },
            ..PLAIN
        }
    };
}

/// Odd widths; cutoffs on both sides of the mean, and above all values.
pub(super) const GAUSSIAN_TOP_K: &[Case] = &[
    gaussian_top_k_case!("one", 1, at 0.5, 1/1),
    gaussian_top_k_case!("primes", 37, at 0.5244, 5/3),
    gaussian_top_k_case!("below the mean", 129, at - 0.7, 2 / 2),
    gaussian_top_k_case!("wide", 2048, at 1.6449, 1/1),
    gaussian_top_k_case!("above all", 64, at 9.0, 2/2),
    gaussian_top_k_case!("many", 131, at 1.0, 67/61),
];
