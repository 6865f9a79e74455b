//! Cases of ternary products, and of the quantization of their activations.

use crate::case::{Case, PLAIN};
use tabla_core::dtype::DType;
use tabla_plan::builder::{Builder, W, X};

/// Shapes for ternary products: rows that begin within blocks, rows with a partial chunk or octet;
/// one token and many; partial panels, and more panels than one group.
macro_rules! digit_cases {
    ($emit:ident) => {
        digit_cases!(@list $emit,
            ("blocks across rows", I2S, 4, 32, 1, 1), ("blocks across rows", I2S, 12, 160, 3, 2),
            ("blocks across rows", I2S, 8, 288, 67, 61), ("wider than a workgroup", I2S, 5, 1152, 1, 1),
            ("chunks", Tq1_0, 5, 512, 1, 1), ("chunks", Tq1_0, 3, 768, 9, 9),
            ("chunks", Tq2_0, 7, 256, 1, 1), ("chunks", Tq2_0, 3, 512, 17, 8),
            ("quarters", Ternary, 4, 1, 1, 1), ("quarters", Ternary, 12, 333, 1, 1),
            ("quarters", Ternary, 8, 77, 13, 11), ("ragged panels", I2S, 52, 352, 17, 17),
            ("ragged panels", Ternary, 36, 333, 67, 33),
            ("several groups of panels", Tq2_0, 150, 256, 67, 61),
            ("several groups of panels", Ternary, 132, 130, 33, 20))
    };
    (@list $emit:ident,
     $(($name:literal, $dtype:ident, $rows:literal, $cols:literal, $tokens:literal, $live:literal)),+) => {
        &[$(Case {
            name: concat!($name, " ", stringify!($dtype)),
            tokens: $tokens,
            live: $live,
            weights: &[("w", DType::$dtype, $rows, $cols)],
            scale: Some(0.37),
            emit: |b| {
                let w = b.weight("w", $rows, $cols);
                let x = b.input("x", $cols);
                let y = b.input("y", $rows);
                $emit(b, w, x, y);
            },
            tolerance: 0.0,
            ..PLAIN
        }),+]
    };
}

macro_rules! bit_quantize_case {
    ($name:literal, $cols:literal, $tokens:literal, $live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            weights: &[("w", DType::Ternary, 4, $cols)],
            scale: Some(1.0),
            emit: |b| {
                let w = b.weight("w", 4, $cols);
                let x = b.input("x", $cols);
                b.mat("y", w, x);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Odd widths.
pub(super) const BIT_QUANTIZE: &[Case] = &[
    bit_quantize_case!("one", 1, 1, 1),
    bit_quantize_case!("primes", 37, 5, 3),
    bit_quantize_case!("whole vectors", 128, 2, 2),
    bit_quantize_case!("wider than a workgroup", 1031, 3, 2),
    bit_quantize_case!("many", 131, 67, 61),
];

/// All shapes.
pub(super) const BIT_MAT: &[Case] = digit_cases!(bit_mat_emit);

fn bit_mat_emit(b: &mut Builder<'_>, w: W, x: X, _: X) {
    b.mat("y", w, x);
}

/// All shapes.
pub(super) const BIT_MAT_ADD: &[Case] = digit_cases!(bit_mat_add_emit);

fn bit_mat_add_emit(b: &mut Builder<'_>, w: W, x: X, y: X) {
    b.mat_add(w, x, y);
}
