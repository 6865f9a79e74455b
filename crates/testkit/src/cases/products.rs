//! Cases of products of a matrix and activations.

use crate::case::{Case, PLAIN};
use tabla_core::dtype::DType;
use tabla_core::op::functions::Activation;
use tabla_plan::builder::{Builder, W, X};

/// Shapes for products: `mat_cases!(tokens, live, emit)`.
macro_rules! mat_cases {
    ($tokens:literal, $live:literal, $emit:ident) => {
        mat_cases!(@list $tokens, $live, $emit,
            ("one", F32, 1, 1), ("primes", F32, 7, 37), ("partial block", F32, 5, 129),
            ("primes", F16, 11, 67), ("wide", F16, 64, 96), ("partial block", Bf16, 6, 33),
            ("wide", Bf16, 13, 128), ("one block", Q8_0, 3, 32), ("odd blocks", Q8_0, 17, 96),
            ("even blocks", Q8_0, 64, 256), ("one block", Q4_0, 1, 32),
            ("odd blocks", Q4_0, 29, 160), ("even blocks", Q4_0, 64, 128),
            ("one block", Q4_1, 2, 32), ("odd blocks", Q4_1, 19, 96),
            ("even blocks", Q4_1, 36, 192), ("partial chunk", Q5_0, 5, 352),
            ("partial chunk", Q5_1, 3, 288), ("chunks", Q2K, 5, 512), ("chunks", Q3K, 3, 768),
            ("chunks", Q4K, 7, 512), ("chunks", Q5K, 5, 256), ("chunks", Q6K, 3, 512),
            ("chunks", Q8K, 2, 512), ("partial chunk", Iq4Nl, 6, 352), ("chunks", Iq4Xs, 5, 512),
            ("chunks", Iq1S, 3, 512), ("chunks", Iq1M, 5, 256), ("chunks", Iq2Xxs, 3, 512),
            ("chunks", Iq2Xs, 5, 256), ("chunks", Iq2S, 3, 512), ("chunks", Iq3Xxs, 5, 256),
            ("chunks", Iq3S, 3, 512), ("partial chunk", Mxfp4, 7, 320), ("chunks", Tq1_0, 5, 512),
            ("chunks", Tq2_0, 3, 512), ("blocks across rows", I2S, 8, 288),
            ("partial chunk", Nvfp4, 5, 320), ("partial chunk", Q1_0, 3, 384),
            ("partial chunk", Q2_0, 7, 320),
            ("partial chunk", Affine2, 5, 320), ("partial chunk", Affine3, 3, 288),
            ("partial chunk", Affine4, 7, 352), ("partial chunk", Affine5, 5, 288),
            ("partial chunk", Affine6, 3, 320), ("partial chunk", Affine8, 5, 352),
            ("groups", Affine4, 29, 640), ("groups", Affine8, 18, 384),
            ("partial chunk", E2m1, 5, 288), ("partial chunk", E4m3, 3, 352),
            ("partial chunk", I8, 5, 288), ("quarters", Ternary, 12, 320),
            ("partial panel", Bf16, 37, 288), ("wide rows", Bf16, 50, 2144),
            ("several groups of panels", Q4_0, 150, 1056), ("several groups of panels", Q8_0, 131, 544),
            ("several groups of panels", Q4K, 145, 1024), ("several groups of panels", Q6K, 131, 768))
    };
    (@list $tokens:literal, $live:literal, $emit:ident,
     $(($name:literal, $dtype:ident, $rows:literal, $cols:literal)),+) => {
        &[$(Case {
            name: concat!($name, " ", stringify!($dtype)),
            tokens: $tokens,
            live: $live,
            weights: &[("w", DType::$dtype, $rows, $cols)],
            emit: |b| {
                let w = b.weight("w", $rows, $cols);
                let x = b.input("x", $cols);
                let y = b.input("y", $rows);
                $emit(b, w, x, y);
            },
            ..PLAIN
        }),+]
    };
}

/// Shapes for fused products: `fused_cases!(emit)`, with `w`, the vector `n` and `y`.
macro_rules! fused_cases {
    ($emit:ident) => {
        fused_cases!(@list $emit,
            ("one vector", F32, 1, 4), ("partial vector", F32, 5, 132), ("wide", F16, 64, 96),
            ("partial chunk", Bf16, 13, 516), ("odd blocks", Q8_0, 17, 96),
            ("even blocks", Q4_0, 64, 128), ("chunks", Q4K, 7, 512), ("chunks", Q6K, 3, 2304),
            ("partial chunk", Mxfp4, 7, 320), ("groups", Affine4, 29, 640),
            ("quarters", Ternary, 12, 320))
    };
    (@list $emit:ident, $(($name:literal, $dtype:ident, $rows:literal, $cols:literal)),+) => {
        &[$(Case {
            name: concat!($name, " ", stringify!($dtype)),
            weights: &[
                ("w", DType::$dtype, $rows, $cols),
                ("n", DType::F32, 1, $cols),
            ],
            emit: |b| {
                let w = b.weight("w", $rows, $cols);
                let y = b.input("y", $rows);
                $emit(b, w, y, $cols);
            },
            ..PLAIN
        }),+]
    };
}

/// Odd shapes in all storage types.
pub(super) const GEMV: &[Case] = mat_cases!(1, 1, gemv_emit);

fn gemv_emit(b: &mut Builder<'_>, w: W, x: X, _: X) {
    b.mat("y", w, x);
}

/// Odd shapes in all storage types.
pub(super) const GEMV_ADD: &[Case] = mat_cases!(1, 1, gemv_add_emit);

fn gemv_add_emit(b: &mut Builder<'_>, w: W, x: X, y: X) {
    b.mat_add(w, x, y);
}

/// Some shapes and storage types.
pub(super) const GEMV_NORM: &[Case] = fused_cases!(gemv_norm_emit);

fn gemv_norm_emit(b: &mut Builder<'_>, w: W, _: X, cols: u32) {
    let n = b.vector("n", cols);
    let x = b.input("x", cols);
    let x = b.rms_norm(x, n, 1e-5);
    b.mat("y", w, x);
}

/// Some shapes and storage types.
pub(super) const GEMV_GLU: &[Case] = fused_cases!(gemv_glu_emit);

fn gemv_glu_emit(b: &mut Builder<'_>, w: W, _: X, cols: u32) {
    let [gate, up] = ["gate", "up"].map(|name| b.input(name, cols));
    let f = b.glu(Activation::Silu, gate, up);
    b.mat("y", w, f);
}

/// Some shapes and storage types.
pub(super) const GEMV_GLU_ADD: &[Case] = fused_cases!(gemv_glu_add_emit);

fn gemv_glu_add_emit(b: &mut Builder<'_>, w: W, y: X, cols: u32) {
    let [gate, up] = ["gate", "up"].map(|name| b.input(name, cols));
    let f = b.glu(Activation::GeluTanh, gate, up);
    b.mat_add(w, f, y);
}

/// Odd shapes in all storage types.
pub(super) const GEMM: &[Case] = mat_cases!(7, 6, gemm_emit);

fn gemm_emit(b: &mut Builder<'_>, w: W, x: X, _: X) {
    b.mat("y", w, x);
}

/// Odd shapes in all storage types.
pub(super) const GEMM_ADD: &[Case] = mat_cases!(37, 35, gemm_add_emit);

fn gemm_add_emit(b: &mut Builder<'_>, w: W, x: X, y: X) {
    b.mat_add(w, x, y);
}
