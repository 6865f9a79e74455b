//! Cases of ternary products, and of the quantization of their activations.

use super::common::{rows, wide};
use super::{Expected, Tested};
use crate::case::Case;
use crate::rig::Outcome;
use tabla_core::dtype::DType;
use tabla_core::op::kind;
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
        &[$(Case::new(concat!($name, " ", stringify!($dtype)), $tokens, $live, |b| {
            let w = b.weight("w", $rows, $cols);
            let x = b.input("x", $cols);
            let y = b.input("y", $rows);
            $emit(b, w, x, y);
        })
        .weights(&[("w", DType::$dtype, $rows, $cols)])
        .scale(Some(0.37))
        .tolerance(0.0)),+]
    };
}

macro_rules! bit_quantize_case {
    ($name:literal, $cols:literal, $tokens:literal, $live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let w = b.weight("w", 4, $cols);
            let x = b.input("x", $cols);
            b.mat("y", w, x);
        })
        .weights(&[("w", DType::Ternary, 4, $cols)])
        .scale(Some(1.0))
        .tolerance(0.0)
    };
}

impl Tested for kind::BitQuantize {
    /// Odd widths.
    const CASES: &'static [Case] = &[
        bit_quantize_case!("one", 1, 1, 1),
        bit_quantize_case!("primes", 37, 5, 3),
        bit_quantize_case!("whole vectors", 128, 2, 2),
        bit_quantize_case!("wider than a workgroup", 1031, 3, 2),
        bit_quantize_case!("many", 131, 67, 61),
    ];

    /// Computed in f32, since the rounding of ties depends on it.
    fn expected(o: &Outcome, live: usize) -> Expected {
        let (x, mut q, mut d) = (o.numbers("x"), o.numbers("q"), o.numbers("d"));
        let [cols, padded] = ["x", "q"].map(|name| o.slots[name].cols as usize);
        for t in 0..live {
            let x = &x[t * cols..][..cols];
            let m = x.iter().fold(1e-5f32, |m, x| m.max(x.abs()));
            let scale = 127.0 / m;
            let numbers = x
                .iter()
                .map(|x| (x * scale).round_ties_even().clamp(-128.0, 127.0));
            let row = numbers.chain(std::iter::repeat(0.0));
            q[t * padded..][..padded]
                .iter_mut()
                .zip(row)
                .for_each(|(q, x)| *q = x);
            d[t] = m / 127.0;
        }
        vec![("q", q), ("d", d)]
    }
}

impl Tested for kind::BitMat {
    /// All shapes.
    const CASES: &'static [Case] = digit_cases!(bit_mat_emit);

    fn expected(o: &Outcome, live: usize) -> Expected {
        bit_mat(o, live, 0.0)
    }
}

fn bit_mat_emit(b: &mut Builder<'_>, w: W, x: X, _: X) {
    b.mat("y", w, x);
}

impl Tested for kind::BitMatAdd {
    /// All shapes.
    const CASES: &'static [Case] = digit_cases!(bit_mat_add_emit);

    fn expected(o: &Outcome, live: usize) -> Expected {
        bit_mat(o, live, 1.0)
    }
}

fn bit_mat_add_emit(b: &mut Builder<'_>, w: W, x: X, y: X) {
    b.mat_add(w, x, y);
}

fn bit_mat(o: &Outcome, live: usize, old: f64) -> Expected {
    let (w, q, d, y) = (
        o.digits("w"),
        o.numbers("q"),
        o.numbers("d"),
        o.numbers("y"),
    );
    let width = o.slots["w"].rows as usize;
    let [cols, padded] = ["w", "q"].map(|name| o.slots[name].cols as usize);
    let scale = wide(o.case.scale.expect("ternary cases have a scale"));
    rows(o, live, |t, r| {
        let pairs = w[r * cols..][..cols].iter().zip(&q[t * padded..]);
        let sum: f64 = pairs.map(|(w, q)| f64::from(*w) * wide(*q)).sum();
        sum * wide(d[t]) * scale + old * wide(y[t * width + r])
    })
}
