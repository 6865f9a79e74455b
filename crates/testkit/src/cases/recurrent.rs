//! Cases of recurrent layers.

use crate::case::{Case, PLAIN};
use tabla_core::dtype::DType;
use tabla_plan::builder::{Conv, DeltaHeads, SsmHeads};

macro_rules! conv_tail_case {
    ($name:literal, $tokens:literal/$live:literal at $position:literal of $context:literal,
     $taps:literal x $channels:literal $(, $biased:literal)? $(, by $sequence:literal)?) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            position: $position,
            $(sequence: $sequence,)?
            context: $context,
            weights: &[
                ("w", DType::F32, 1, $taps * $channels),
                ("bias", DType::F32, 1, $channels),
            ],
            emit: |b| {
                let x = b.input("x", $channels);
                let (w, bias) = (b.vector("w", $taps * $channels), b.vector("bias", $channels));
                // Unlike the other cases, one with a bias has no activation.
                let biased: &[&str] = &[$($biased)?];
                let conv = Conv {
                    taps: $taps,
                    w,
                    bias: (!biased.is_empty()).then_some(bias),
                    silu: biased.is_empty(),
                };
                b.conv_tail(0, conv, x);
            },
            ..PLAIN
        }
    };
}

/// Positions before the first, passes that begin and end anywhere in a block, that wrap the ring of inputs
/// and that cross pages, with several sequences.
pub(super) const CONV_TAIL: &[Case] = &[
    conv_tail_case!("first position", 1/1 at 0 of 4, 4 x 3),
    conv_tail_case!("one tap", 3/2 at 5 of 16, 1 x 17),
    conv_tail_case!("step", 1/1 at 37 of 64, 4 x 40),
    conv_tail_case!("chunk", 9/7 at 0 of 64, 4 x 100),
    conv_tail_case!("three taps", 19/18 at 2 of 64, 3 x 33),
    conv_tail_case!("eight taps", 7/7 at 3 of 64, 8 x 20),
    conv_tail_case!("across pages", 150/141 at 61 of 300, 4 x 37),
    conv_tail_case!("at a page", 3/3 at 128 of 300, 4 x 16),
    conv_tail_case!("past the context", 5/5 at 62 of 65, 4 x 18),
    conv_tail_case!("bias", 9/7 at 30 of 64, 4 x 100, "biased"),
    conv_tail_case!("sequences", 7/6 at 63 of 128, 4 x 21, by 1),
    conv_tail_case!("sequences of rows", 9/8 at 62 of 128, 4 x 21, by 3),
];

macro_rules! delta_gates_case {
    ($name:literal, $tokens:literal/$live:literal, $heads:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            weights: &[
                ("rate", DType::F32, 1, $heads),
                ("bias", DType::F32, 1, $heads),
            ],
            emit: |b| {
                let pair = ["a", "b"].map(|name| b.input(name, $heads));
                let [rate, bias] = ["rate", "bias"].map(|name| b.vector(name, $heads));
                b.delta_gates(pair, rate, bias);
            },
            ..PLAIN
        }
    };
}

pub(super) const DELTA_GATES: &[Case] = &[
    delta_gates_case!("one", 1 / 1, 1),
    delta_gates_case!("odd", 5 / 3, 7),
    delta_gates_case!("many", 67 / 61, 100),
];

macro_rules! delta_net_case {
    ($name:literal, $tokens:literal/$live:literal at $position:literal of $context:literal,
     $heads:literal/$key_heads:literal x $key_dim:literal x $value_dim:literal, $interleaved:literal
     $(, by $sequence:literal)?) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            position: $position,
            $(sequence: $sequence,)?
            context: $context,
            emit: |b| {
                let at = DeltaHeads {
                    key_heads: $key_heads,
                    heads: $heads,
                    key_dim: $key_dim,
                    value_dim: $value_dim,
                    interleaved: $interleaved,
                };
                let x = b.input("x", at.channels());
                let gates = b.input("gates", 2 * $heads);
                b.delta_net(0, at, x, gates);
            },
            tolerance: 1e-4,
            ..PLAIN
        }
    };
}

/// Steps and chunks at every place of a block, across blocks and pages, both orders of heads, several
/// sequences.
pub(super) const DELTA_NET: &[Case] = &[
    delta_net_case!("first position", 1/1 at 0 of 4, 1/1 x 2 x 2, false),
    delta_net_case!("first chunk", 5/3 at 0 of 16, 6/2 x 8 x 12, false),
    delta_net_case!("step in a block", 1/1 at 5 of 64, 6/3 x 16 x 16, true),
    delta_net_case!("step at a block", 1/1 at 32 of 64, 4/2 x 16 x 32, true),
    delta_net_case!("step at a page", 1/1 at 128 of 256, 4/4 x 16 x 16, false),
    delta_net_case!("in a block", 7/6 at 3 of 64, 3/1 x 20 x 7, false),
    delta_net_case!("across blocks", 40/37 at 5 of 64, 2/1 x 128 x 128, false),
    delta_net_case!("across pages", 90/83 at 50 of 256, 4/2 x 24 x 48, true),
    delta_net_case!("past the context", 5/5 at 62 of 65, 2/1 x 16 x 16, false),
    delta_net_case!("sequences", 7/6 at 64 of 128, 4/2 x 16 x 16, true, by 1),
    delta_net_case!("sequences of rows", 9/8 at 62 of 128, 4/2 x 16 x 16, false, by 3),
];

macro_rules! ssm_gates_case {
    ($name:literal, $tokens:literal/$live:literal, $heads:literal, $low:literal to $high:expr) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            weights: &[
                ("rate", DType::F32, 1, $heads),
                ("bias", DType::F32, 1, $heads),
            ],
            emit: |b| {
                let x = b.input("x", $heads);
                let vectors = ["rate", "bias"].map(|name| b.vector(name, $heads));
                b.ssm_gates(x, vectors, [$low, $high]);
            },
            ..PLAIN
        }
    };
}

/// With and without limits.
pub(super) const SSM_GATES: &[Case] = &[
    ssm_gates_case!("one", 1/1, 1, 0.0 to f32::MAX),
    ssm_gates_case!("odd", 5/3, 7, 0.3 to 0.9),
    ssm_gates_case!("many", 67/61, 100, 0.0 to f32::MAX),
];

macro_rules! ssm_scan_case {
    ($name:literal, $tokens:literal/$live:literal at $position:literal of $context:literal,
     $heads:literal/$groups:literal x $key_dim:literal x $value_dim:literal $(, by $sequence:literal)?) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            position: $position,
            $(sequence: $sequence,)?
            context: $context,
            weights: &[("d", DType::F32, 1, $heads)],
            emit: |b| {
                let at = SsmHeads {
                    groups: $groups,
                    heads: $heads,
                    key_dim: $key_dim,
                    value_dim: $value_dim,
                };
                let x = b.input("x", at.channels());
                let gates = b.input("gates", 2 * $heads);
                let d = b.vector("d", $heads);
                b.ssm_scan(0, at, x, gates, d);
            },
            tolerance: 1e-4,
            ..PLAIN
        }
    };
}

/// As for the delta rule; groups of heads, keys that are longer than a workgroup.
pub(super) const SSM_SCAN: &[Case] = &[
    ssm_scan_case!("first position", 1/1 at 0 of 4, 1/1 x 2 x 2),
    ssm_scan_case!("first chunk", 5/3 at 0 of 16, 6/2 x 8 x 12),
    ssm_scan_case!("step in a block", 1/1 at 5 of 64, 6/3 x 16 x 16),
    ssm_scan_case!("step at a block", 1/1 at 32 of 64, 4/2 x 16 x 32),
    ssm_scan_case!("step at a page", 1/1 at 128 of 256, 4/4 x 16 x 16),
    ssm_scan_case!("in a block", 7/6 at 3 of 64, 3/1 x 20 x 7),
    ssm_scan_case!("across blocks", 40/37 at 5 of 64, 2/1 x 256 x 64),
    ssm_scan_case!("across pages", 90/83 at 50 of 256, 4/2 x 24 x 48),
    ssm_scan_case!("past the context", 5/5 at 62 of 65, 2/1 x 16 x 80),
    ssm_scan_case!("sequences", 7/6 at 64 of 128, 4/2 x 16 x 16, by 1),
    ssm_scan_case!("sequences of rows", 9/8 at 62 of 128, 4/2 x 16 x 16, by 3),
];

macro_rules! rms_gate_case {
    ($name:literal, $tokens:literal/$live:literal, $groups:literal x $dim:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            weights: &[("w", DType::F32, 1, $dim)],
            emit: |b| {
                let [x, gate] = ["x", "gate"].map(|name| b.input(name, $groups * $dim));
                let w = b.vector("w", $dim);
                b.rms_gate(x, w, gate, 1e-6);
            },
            ..PLAIN
        }
    };
}

pub(super) const RMS_GATE: &[Case] = &[
    rms_gate_case!("one", 1/1, 1 x 1),
    rms_gate_case!("groups", 5/3, 6 x 10),
    rms_gate_case!("many", 67/61, 3 x 128),
];
