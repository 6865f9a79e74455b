//! Cases of products of a matrix and activations.

use super::common::{rows, wide};
use super::{Expected, Tested};
use crate::case::Case;
use crate::rig::Outcome;
use half::f16;
use tabla_core::dtype::DType;
use tabla_core::op::kind;
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
        &[$(Case::new(concat!($name, " ", stringify!($dtype)), $tokens, $live, |b| {
            let w = b.weight("w", $rows, $cols);
            let x = b.input("x", $cols);
            let y = b.input("y", $rows);
            $emit(b, w, x, y);
        })
        .weights(&[("w", DType::$dtype, $rows, $cols)])),+]
    };
}

macro_rules! convert_cases {
    ($(($name:literal, $dtype:ident, $tokens:literal, $live:literal, $cols:literal)),+) => {
        &[$(Case::new(concat!($name, " ", stringify!($dtype)), $tokens, $live, |b| {
            let x = b.input("x", $cols);
            b.convert("y", x, DType::$dtype);
        })),+]
    };
}

impl Tested for kind::Convert {
    /// Whole and partial blocks, rows that begin within a vector.
    const CASES: &'static [Case] = convert_cases!(
        ("one", F32, 1, 1, 1),
        ("primes", F32, 5, 3, 37),
        ("vectors", F32, 3, 2, 132),
        ("one", F16, 1, 1, 1),
        ("primes", F16, 5, 3, 37),
        ("vectors", F16, 3, 2, 132),
        ("one", Q8_1, 1, 1, 1),
        ("primes", Q8_1, 5, 3, 37),
        ("vectors", Q8_1, 3, 2, 132),
        ("blocks", Q8_1, 7, 6, 96),
        ("several workgroups", Q8_1, 2, 2, 4128)
    );

    fn expected(o: &Outcome, live: usize) -> Expected {
        let (x, mut y) = (o.numbers("x"), o.numbers("y"));
        let [cols, padded] = ["x", "y"].map(|name| o.slots[name].cols as usize);
        let dtype = o.slots["y"].dtype;
        for (x, y) in x.chunks(cols).zip(y.chunks_mut(padded)).take(live) {
            y.fill(0.0);
            y[..cols].copy_from_slice(x);
            match dtype {
                DType::Q8_1 => y.chunks_mut(32).for_each(round_block),
                DType::F16 => y
                    .iter_mut()
                    .for_each(|y| *y = f16::from_f32(*y / 8.0).to_f32()),
                _ => {}
            }
        }
        vec![("y", y)]
    }
}

/// Rounds a block to multiples of 1/127 of its largest magnitude, in f32, since the rounding of ties depends on it.
fn round_block(block: &mut [f32]) {
    let largest = block.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    if largest > 0.0 {
        let q = |x: f32| (x * (127.0 / largest)).round_ties_even();
        block
            .iter_mut()
            .for_each(|x| *x = q(*x) * (largest / 127.0));
    }
}

impl Tested for kind::Gemv {
    /// Odd shapes in all storage types.
    const CASES: &'static [Case] = mat_cases!(1, 1, gemv_emit);

    fn expected(o: &Outcome, live: usize) -> Expected {
        product(o, live, 0.0)
    }
}

fn gemv_emit(b: &mut Builder<'_>, w: W, x: X, _: X) {
    b.mat("y", w, x);
}

impl Tested for kind::GemvAdd {
    /// Odd shapes in all storage types.
    const CASES: &'static [Case] = mat_cases!(1, 1, gemv_add_emit);

    fn expected(o: &Outcome, live: usize) -> Expected {
        product(o, live, 1.0)
    }
}

fn gemv_add_emit(b: &mut Builder<'_>, w: W, x: X, y: X) {
    b.mat_add(w, x, y);
}

impl Tested for kind::Gemm {
    /// Odd shapes in all storage types.
    const CASES: &'static [Case] = mat_cases!(7, 6, gemm_emit);

    fn expected(o: &Outcome, live: usize) -> Expected {
        product(o, live, 0.0)
    }
}

fn gemm_emit(b: &mut Builder<'_>, w: W, x: X, _: X) {
    b.mat("y", w, x);
}

impl Tested for kind::GemmAdd {
    /// Odd shapes in all storage types.
    const CASES: &'static [Case] = mat_cases!(37, 35, gemm_add_emit);

    fn expected(o: &Outcome, live: usize) -> Expected {
        product(o, live, 1.0)
    }
}

fn gemm_add_emit(b: &mut Builder<'_>, w: W, x: X, y: X) {
    b.mat_add(w, x, y);
}

fn product(o: &Outcome, live: usize, old: f64) -> Expected {
    let x: Vec<f64> = o.numbers("x").into_iter().map(wide).collect();
    product_of(o, live, &x, old)
}

/// Returns `W x + old y`.
fn product_of(o: &Outcome, live: usize, x: &[f64], old: f64) -> Expected {
    let (w, y) = (o.numbers("w"), o.numbers("y"));
    let [rows_, cols] = [o.slots["w"].rows, o.slots["w"].cols].map(|n| n as usize);
    rows(o, live, |t, r| {
        let pairs = w[r * cols..][..cols].iter().zip(&x[t * cols..]);
        let sum: f64 = pairs.map(|(w, x)| wide(*w) * x).sum();
        sum + old * wide(y[t * rows_ + r])
    })
}
