//! Cases of norms and elementwise operations.

use crate::case::{Case, PLAIN};
use tabla_core::dtype::DType;
use tabla_core::op::functions::Activation;
use tabla_plan::builder::{GluClamp, PositionScale};

macro_rules! rms_norm_case {
    ($name:literal, $cols:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            weights: &[("w", DType::F32, 1, $dim)],
            emit: |b| {
                let w = b.vector("w", $dim);
                let x = b.input("x", $cols);
                b.rms_norm(x, w, 1e-5);
            },
            ..PLAIN
        }
    };
}

/// Rows and groups.
pub(super) const RMS_NORM: &[Case] = &[
    rms_norm_case!("one", 1, 1, 1, 1),
    rms_norm_case!("primes", 37, 37, 5, 3),
    rms_norm_case!("partial vector", 129, 129, 2, 2),
    rms_norm_case!("groups", 96, 24, 3, 2),
    rms_norm_case!("wide", 2048, 2048, 1, 1),
    rms_norm_case!("many", 512, 64, 67, 61),
];

macro_rules! unit_norm_case {
    ($name:literal, $cols:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let x = b.input("x", $cols);
                b.unit_norm(x, $dim, 1e-5);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Rows and groups.
pub(super) const UNIT_NORM: &[Case] = &[
    unit_norm_case!("one", 1, 1, 1, 1),
    unit_norm_case!("primes", 37, 37, 5, 3),
    unit_norm_case!("partial vector", 129, 129, 2, 2),
    unit_norm_case!("groups", 96, 24, 3, 2),
    unit_norm_case!("wide", 2048, 2048, 1, 1),
    unit_norm_case!("many", 512, 64, 67, 61),
];

macro_rules! layer_norm_case {
    ($name:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            weights: &[("w", DType::F32, 1, $dim)],
            emit: |b| {
                let w = b.vector("w", $dim);
                let x = b.input("x", $dim);
                b.layer_norm(x, w, 1e-5);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Odd widths.
pub(super) const LAYER_NORM: &[Case] = &[
    layer_norm_case!("one", 1, 1, 1),
    layer_norm_case!("primes", 37, 5, 3),
    layer_norm_case!("partial vector", 129, 2, 2),
    layer_norm_case!("wide", 2048, 1, 1),
    layer_norm_case!("many", 131, 67, 61),
];

macro_rules! add_bias_case {
    ($name:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            weights: &[("b", DType::F32, 1, $dim)],
            emit: |b| {
                let bias = b.vector("b", $dim);
                let y = b.input("y", $dim);
                b.add_bias(bias, y);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Odd widths.
pub(super) const ADD_BIAS: &[Case] = &[
    add_bias_case!("one", 1, 1, 1),
    add_bias_case!("primes", 37, 5, 3),
    add_bias_case!("partial vector", 257, 2, 2),
    add_bias_case!("many", 131, 67, 61),
];

macro_rules! glu_case {
    ($name:literal, $act:ident, $dim:literal, $tokens:literal, $live:literal) => {
        Case {
            name: concat!($name, " ", stringify!($act)),
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let gate = b.input("gate", $dim);
                let up = b.input("up", $dim);
                b.glu(Activation::$act, gate, up);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Odd widths.
pub(super) const GLU: &[Case] = &[
    glu_case!("one", Silu, 1, 1, 1),
    glu_case!("primes", Silu, 37, 5, 3),
    glu_case!("partial vector", Silu, 257, 2, 2),
    glu_case!("wide", Silu, 8191, 1, 1),
    glu_case!("many", Silu, 131, 67, 61),
    glu_case!("primes", Gelu, 37, 5, 3),
    glu_case!("many", Gelu, 131, 67, 61),
    glu_case!("primes", GeluTanh, 37, 5, 3),
    glu_case!("many", GeluTanh, 131, 67, 61),
    glu_case!("primes", Relu2, 37, 5, 3),
    glu_case!("many", Relu2, 131, 67, 61),
    glu_case!("primes", Relu, 37, 5, 3),
    glu_case!("many", Relu, 131, 67, 61),
    glu_case!("primes", Sigmoid, 37, 5, 3),
    glu_case!("primes", Linear, 37, 5, 3),
];

macro_rules! glu_clamped_case {
    ($name:literal, $inputs:literal x $dim:literal, limit $limit:literal, $tokens:literal, $live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let clamp = GluClamp {
                    alpha: 1.702,
                    limit: $limit,
                };
                match $inputs {
                    1 => {
                        let x = b.input("x", 2 * $dim);
                        b.glu_clamped_pairs(clamp, x);
                    }
                    _ => {
                        let (gate, up) = (b.input("gate", $dim), b.input("up", $dim));
                        b.glu_clamped(clamp, gate, up);
                    }
                }
            },
            ..PLAIN
        }
    };
}

/// Two inputs and pairs of columns; limits within and beyond the values.
pub(super) const GLU_CLAMPED: &[Case] = &[
    glu_clamped_case!("one", 2 x 1, limit 7.0, 1, 1),
    glu_clamped_case!("clamped", 2 x 37, limit 0.25, 5, 3),
    glu_clamped_case!("pairs", 1 x 257, limit 0.5, 2, 2),
    glu_clamped_case!("many pairs", 1 x 131, limit 7.0, 67, 61),
];

macro_rules! glu_halves_case {
    ($name:literal, $act:ident, $groups:literal x $dim:literal, $tokens:literal, $live:literal) => {
        Case {
            name: concat!($name, " ", stringify!($act)),
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let x = b.input("x", 2 * $groups * $dim);
                b.glu_halves(Activation::$act, x, $groups);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// One group and several, of odd widths.
pub(super) const GLU_HALVES: &[Case] = &[
    glu_halves_case!("one", Silu, 1 x 1, 1, 1),
    glu_halves_case!("primes", Silu, 7 x 37, 5, 3),
    glu_halves_case!("partial vector", Silu, 1 x 257, 2, 2),
    glu_halves_case!("many", Silu, 8 x 131, 67, 61),
    glu_halves_case!("many", GeluTanh, 3 x 96, 35, 35),
    glu_halves_case!("primes", Gelu, 2 x 13, 3, 3),
    glu_halves_case!("primes", Relu2, 2 x 13, 3, 3),
    glu_halves_case!("primes", Relu, 2 x 13, 3, 3),
    glu_halves_case!("primes", Sigmoid, 2 x 13, 3, 3),
];

macro_rules! activate_case {
    ($name:literal, $act:ident, $dim:literal, $tokens:literal, $live:literal) => {
        Case {
            name: concat!($name, " ", stringify!($act)),
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let y = b.input("y", $dim);
                b.activate(Activation::$act, y);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Odd widths.
pub(super) const ACTIVATE: &[Case] = &[
    activate_case!("one", Silu, 1, 1, 1),
    activate_case!("primes", Silu, 37, 5, 3),
    activate_case!("partial vector", Silu, 257, 2, 2),
    activate_case!("wide", Silu, 8191, 1, 1),
    activate_case!("many", Silu, 131, 67, 61),
    activate_case!("primes", Gelu, 37, 5, 3),
    activate_case!("many", Gelu, 131, 67, 61),
    activate_case!("primes", GeluTanh, 37, 5, 3),
    activate_case!("many", GeluTanh, 131, 67, 61),
    activate_case!("primes", Relu2, 37, 5, 3),
    activate_case!("many", Relu2, 131, 67, 61),
    activate_case!("primes", Relu, 37, 5, 3),
    activate_case!("many", Relu, 131, 67, 61),
];

macro_rules! add_case {
    ($name:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let x = b.input("x", $dim);
                let y = b.input("y", $dim);
                b.add(x, y, 0.3);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Odd widths.
pub(super) const ADD: &[Case] = &[
    add_case!("one", 1, 1, 1),
    add_case!("primes", 37, 5, 3),
    add_case!("partial vector", 257, 2, 2),
    add_case!("wide", 8191, 1, 1),
    add_case!("many", 131, 67, 61),
];

macro_rules! scale_case {
    ($name:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let y = b.input("y", $dim);
                b.scale(y, 0.3);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Odd widths.
pub(super) const SCALE: &[Case] = &[
    scale_case!("one", 1, 1, 1),
    scale_case!("primes", 37, 5, 3),
    scale_case!("partial vector", 257, 2, 2),
    scale_case!("wide", 8191, 1, 1),
    scale_case!("many", 131, 67, 61),
];

macro_rules! scale_at_case {
    ($name:literal, $dim:literal, length $length:literal at $position:literal, $tokens:literal/$live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            position: $position,
            context: 1 << 20,
            emit: |b| {
                let y = b.input("y", $dim);
                let scale = PositionScale {
                    beta: 0.3,
                    length: $length,
                };
                b.scale_at(y, scale);
            },
            ..PLAIN
        }
    };
}

/// The first positions, whose factor is 1, borders of `length`, and distant positions.
pub(super) const SCALE_AT: &[Case] = &[
    scale_at_case!("one", 1, length 1 at 0, 1/1),
    scale_at_case!("a border", 37, length 3 at 1, 5/3),
    scale_at_case!("the last position", 257, length 16384 at 1_048_575, 1/1),
    scale_at_case!("many borders", 131, length 7 at 100, 67/61),
    scale_at_case!("wide", 8191, length 32 at 95, 2/2),
];

macro_rules! mul_case {
    ($name:literal, $len:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            weights: &[("w", DType::F32, 1, $len)],
            emit: |b| {
                let w = b.vector("w", $len);
                let y = b.input("y", $dim);
                b.mul(w, y);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// One element, a group, a row.
pub(super) const MUL: &[Case] = &[
    mul_case!("one", 1, 1, 1, 1),
    mul_case!("a number", 1, 37, 5, 3),
    mul_case!("primes", 37, 37, 5, 3),
    mul_case!("groups", 24, 96, 3, 2),
    mul_case!("partial vector", 257, 257, 2, 2),
    mul_case!("many", 131, 131, 67, 61),
];

macro_rules! soft_cap_case {
    ($name:literal, $cap:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let y = b.input("y", $dim);
                b.soft_cap(y, $cap);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Caps from far below to far above the values.
pub(super) const SOFT_CAP: &[Case] = &[
    soft_cap_case!("one", 1.0, 1, 1, 1),
    soft_cap_case!("primes", 0.1, 37, 5, 3),
    soft_cap_case!("partial vector", 30.0, 257, 2, 2),
    soft_cap_case!("wide", 1.5, 8191, 1, 1),
    soft_cap_case!("many", 50.0, 131, 67, 61),
];

macro_rules! columns_case {
    ($name:literal, $groups:literal x $width:literal, $offset:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let x = b.input("x", $groups * $width);
                b.columns_of_groups(x, $groups, [$offset, $dim]);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

macro_rules! pick_columns_case {
    ($name:literal, $width:literal, $dim:literal) => {
        Case {
            name: $name,
            weights: &[("index", DType::F32, 1, $dim)],
            emit: |b| {
                let x = b.input("x", $width);
                let index = b.vector("index", $dim);
                b.pick_logits(x, index);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Indices are numbers in (-2, 2), of which the integer part counts.
pub(super) const PICK_COLUMNS: &[Case] = &[
    pick_columns_case!("one", 2, 1),
    pick_columns_case!("many", 37, 8191),
];

/// Offsets at the start, in the middle and at the end, of rows and of groups.
pub(super) const COLUMNS: &[Case] = &[
    columns_case!("one", 1 x 1, 0, 1, 1, 1),
    columns_case!("the first", 1 x 37, 0, 5, 5, 3),
    columns_case!("middle", 1 x 41, 3, 37, 5, 3),
    columns_case!("the last", 1 x 514, 257, 257, 2, 2),
    columns_case!("many", 1 x 300, 131, 131, 67, 61),
    columns_case!("groups", 6 x 32, 16, 16, 5, 3),
    columns_case!("odd groups", 7 x 41, 3, 37, 2, 2),
];

macro_rules! transfer_case {
    ($name:literal, $dim:literal, $tokens:literal/$live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let x = b.input("x", $dim);
                b.transfer(x);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

pub(super) const TRANSFER: &[Case] = &[
    transfer_case!("one", 1, 1 / 1),
    transfer_case!("odd", 257, 5 / 3),
    transfer_case!("many", 131, 67 / 61),
];

macro_rules! concat_case {
    ($name:literal, $groups:literal x ($a:literal + $b:literal), $tokens:literal/$live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let pair = [b.input("a", $groups * $a), b.input("b", $groups * $b)];
                b.concat_groups($groups, pair);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

pub(super) const CONCAT: &[Case] = &[
    concat_case!("one", 1 x (1 + 1), 1/1),
    concat_case!("odd groups", 7 x (3 + 38), 5/3),
    concat_case!("many", 3 x (64 + 130), 67/61),
];

macro_rules! unfold_case {
    ($name:literal, $channels:literal, $stride:literal, $tokens:literal, $live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let x = b.input("x", $channels);
                b.unfold(x, $stride);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Both strides of Whisper, odd widths, inactive rows.
pub(super) const UNFOLD: &[Case] = &[
    unfold_case!("one", 1, 1, 1, 1),
    unfold_case!("primes", 37, 1, 5, 3),
    unfold_case!("stride of 2", 37, 2, 6, 3),
    unfold_case!("partial vector", 129, 2, 8, 2),
    unfold_case!("many", 80, 1, 67, 61),
];
