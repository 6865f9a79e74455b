//! Cases of norms and elementwise operations.

use super::common::{activation, rows, wide};
use super::{Expected, Tested};
use crate::case::Case;
use crate::rig::Outcome;
use tabla_core::dtype::DType;
use tabla_core::op::functions::Activation;
use tabla_core::op::kind;
use tabla_core::op::params;
use tabla_plan::builder::{GluClamp, PositionScale};

macro_rules! rms_norm_case {
    ($name:literal, $cols:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let w = b.vector("w", $dim);
            let x = b.input("x", $cols);
            b.rms_norm(x, w, 1e-5);
        })
        .weights(&[("w", DType::F32, 1, $dim)])
    };
}

impl Tested for kind::RmsNorm {
    /// Rows and groups.
    const CASES: &'static [Case] = &[
        rms_norm_case!("one", 1, 1, 1, 1),
        rms_norm_case!("primes", 37, 37, 5, 3),
        rms_norm_case!("partial vector", 129, 129, 2, 2),
        rms_norm_case!("groups", 96, 24, 3, 2),
        rms_norm_case!("wide", 2048, 2048, 1, 1),
        rms_norm_case!("many", 512, 64, 67, 61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let (x, w) = (o.numbers("x"), o.numbers("w"));
        let (cols, dim) = (o.slots["x"].cols as usize, w.len());
        rows(o, live, |t, i| {
            let group = &x[t * cols + i / dim * dim..][..dim];
            let mean = group.iter().map(|x| wide(*x).powi(2)).sum::<f64>() / dim as f64;
            wide(group[i % dim]) / (mean + 1e-5).sqrt() * wide(w[i % dim])
        })
    }
}

macro_rules! unit_norm_case {
    ($name:literal, $cols:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let x = b.input("x", $cols);
            b.unit_norm(x, $dim, 1e-5);
        })
        .tolerance(0.0)
    };
}

impl Tested for kind::UnitNorm {
    /// Rows and groups.
    const CASES: &'static [Case] = &[
        unit_norm_case!("one", 1, 1, 1, 1),
        unit_norm_case!("primes", 37, 37, 5, 3),
        unit_norm_case!("partial vector", 129, 129, 2, 2),
        unit_norm_case!("groups", 96, 24, 3, 2),
        unit_norm_case!("wide", 2048, 2048, 1, 1),
        unit_norm_case!("many", 512, 64, 67, 61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let x = o.numbers("x");
        let p: params::unit_norm::Params = o.params();
        let (cols, dim) = (o.slots["x"].cols as usize, p.dim as usize);
        rows(o, live, |t, i| {
            let group = &x[t * cols + i / dim * dim..][..dim];
            let mean = group.iter().map(|x| wide(*x).powi(2)).sum::<f64>() / dim as f64;
            wide(group[i % dim]) / (mean + wide(p.eps)).sqrt()
        })
    }
}

macro_rules! layer_norm_case {
    ($name:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let w = b.vector("w", $dim);
            let x = b.input("x", $dim);
            b.layer_norm(x, w, 1e-5);
        })
        .weights(&[("w", DType::F32, 1, $dim)])
        .tolerance(0.0)
    };
}

impl Tested for kind::LayerNorm {
    /// Odd widths.
    const CASES: &'static [Case] = &[
        layer_norm_case!("one", 1, 1, 1),
        layer_norm_case!("primes", 37, 5, 3),
        layer_norm_case!("partial vector", 129, 2, 2),
        layer_norm_case!("wide", 2048, 1, 1),
        layer_norm_case!("many", 131, 67, 61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let (x, w) = (o.numbers("x"), o.numbers("w"));
        let p: params::layer_norm::Params = o.params();
        let dim = w.len();
        rows(o, live, |t, i| {
            let row = &x[t * dim..][..dim];
            let mean = row.iter().map(|x| wide(*x)).sum::<f64>() / dim as f64;
            let squares = row.iter().map(|x| (wide(*x) - mean).powi(2));
            let variance = squares.sum::<f64>() / dim as f64;
            (wide(row[i]) - mean) / (variance + wide(p.eps)).sqrt() * wide(w[i])
        })
    }
}

macro_rules! add_bias_case {
    ($name:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let bias = b.vector("b", $dim);
            let y = b.input("y", $dim);
            b.add_bias(bias, y);
        })
        .weights(&[("b", DType::F32, 1, $dim)])
        .tolerance(0.0)
    };
}

impl Tested for kind::AddBias {
    /// Odd widths.
    const CASES: &'static [Case] = &[
        add_bias_case!("one", 1, 1, 1),
        add_bias_case!("primes", 37, 5, 3),
        add_bias_case!("partial vector", 257, 2, 2),
        add_bias_case!("many", 131, 67, 61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let (b, y) = (o.numbers("b"), o.numbers("y"));
        rows(o, live, |t, i| wide(y[t * b.len() + i]) + wide(b[i]))
    }
}

macro_rules! glu_case {
    ($name:literal, $act:ident, $dim:literal, $tokens:literal, $live:literal) => {
        Case::new(concat!($name, " ", stringify!($act)), $tokens, $live, |b| {
            let gate = b.input("gate", $dim);
            let up = b.input("up", $dim);
            b.glu(Activation::$act, gate, up);
        })
        .tolerance(0.0)
    };
}

impl Tested for kind::Glu {
    /// Odd widths.
    const CASES: &'static [Case] = &[
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

    fn expected(o: &Outcome, live: usize) -> Expected {
        let (gate, up) = (o.numbers("gate"), o.numbers("up"));
        let p: params::glu::Params = o.params();
        let cols = o.slots["y"].cols as usize;
        rows(o, live, |t, i| {
            activation(p.activation, wide(gate[t * cols + i])) * wide(up[t * cols + i])
        })
    }
}

macro_rules! glu_clamped_case {
    ($name:literal, $inputs:literal x $dim:literal, limit $limit:literal, $tokens:literal, $live:literal) => {
        Case::new($name, $tokens, $live, |b| {
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
        })
    };
}

impl Tested for kind::GluClamped {
    /// Two inputs and pairs of columns; limits within and beyond the values.
    const CASES: &'static [Case] = &[
        glu_clamped_case!("one", 2 x 1, limit 7.0, 1, 1),
        glu_clamped_case!("clamped", 2 x 37, limit 0.25, 5, 3),
        glu_clamped_case!("pairs", 1 x 257, limit 0.5, 2, 2),
        glu_clamped_case!("many pairs", 1 x 131, limit 7.0, 67, 61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: params::glu_clamped::Params = o.params();
        let [dim, stride] = [p.dim, p.stride].map(|n| n as usize);
        let [gate, up] = [o.numbers("gate"), o.numbers("up")];
        let [alpha, limit] = [p.alpha, p.limit].map(wide);
        rows(o, live, |t, i| {
            let at = stride * (t * dim + i);
            let g = wide(gate[at]).min(limit);
            let u = wide(up[at + stride - 1]).clamp(-limit, limit);
            g / (1.0 + (-alpha * g).exp()) * (u + 1.0)
        })
    }
}

macro_rules! glu_halves_case {
    ($name:literal, $act:ident, $groups:literal x $dim:literal, $tokens:literal, $live:literal) => {
        Case::new(concat!($name, " ", stringify!($act)), $tokens, $live, |b| {
            let x = b.input("x", 2 * $groups * $dim);
            b.glu_halves(Activation::$act, x, $groups);
        })
        .tolerance(0.0)
    };
}

impl Tested for kind::GluHalves {
    /// One group and several, of odd widths.
    const CASES: &'static [Case] = &[
        glu_halves_case!("one", Silu, 1 x 1, 1, 1),
        glu_halves_case!("primes", Silu, 7 x 37, 5, 3),
        glu_halves_case!("partial vector", Silu, 1 x 257, 2, 2),
        glu_halves_case!("many", Silu, 8 x 131, 67, 61),
        glu_halves_case!("many", GeluTanh, 3 x 96, 35, 35),
        glu_halves_case!("primes", Gelu, 2 x 13, 3, 3),
        glu_halves_case!("primes", Relu2, 2 x 13, 3, 3),
        glu_halves_case!("primes", Relu, 2 x 13, 3, 3),
        glu_halves_case!("primes", Sigmoid, 2 x 13, 3, 3),
        glu_halves_case!("primes", Linear, 2 x 13, 3, 3),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let x = o.numbers("x");
        let p: params::glu_halves::Params = o.params();
        let (groups, dim) = (p.groups as usize, p.dim as usize);
        rows(o, live, |t, i| {
            let gate = 2 * dim * (t * groups + i / dim) + i % dim;
            activation(p.activation, wide(x[gate])) * wide(x[gate + dim])
        })
    }
}

macro_rules! activate_case {
    ($name:literal, $act:ident, $dim:literal, $tokens:literal, $live:literal) => {
        Case::new(concat!($name, " ", stringify!($act)), $tokens, $live, |b| {
            let y = b.input("y", $dim);
            b.activate(Activation::$act, y);
        })
        .tolerance(0.0)
    };
}

impl Tested for kind::Activate {
    /// Odd widths.
    const CASES: &'static [Case] = &[
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
        activate_case!("primes", Sigmoid, 37, 5, 3),
        activate_case!("primes", Linear, 37, 5, 3),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: params::activate::Params = o.params();
        elementwise(o, live, |y| activation(p.activation, y))
    }
}

macro_rules! add_case {
    ($name:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let x = b.input("x", $dim);
            let y = b.input("y", $dim);
            b.add(x, y, 0.3);
        })
        .tolerance(0.0)
    };
}

impl Tested for kind::Add {
    /// Odd widths.
    const CASES: &'static [Case] = &[
        add_case!("one", 1, 1, 1),
        add_case!("primes", 37, 5, 3),
        add_case!("partial vector", 257, 2, 2),
        add_case!("wide", 8191, 1, 1),
        add_case!("many", 131, 67, 61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let (x, y) = (o.numbers("x"), o.numbers("y"));
        let p: params::add::Params = o.params();
        let cols = o.slots["y"].cols as usize;
        rows(o, live, |t, i| {
            let at = t * cols + i;
            wide(y[at]) + wide(p.scale) * wide(x[at])
        })
    }
}

macro_rules! scale_case {
    ($name:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let y = b.input("y", $dim);
            b.scale(y, 0.3);
        })
        .tolerance(0.0)
    };
}

impl Tested for kind::Scale {
    /// Odd widths.
    const CASES: &'static [Case] = &[
        scale_case!("one", 1, 1, 1),
        scale_case!("primes", 37, 5, 3),
        scale_case!("partial vector", 257, 2, 2),
        scale_case!("wide", 8191, 1, 1),
        scale_case!("many", 131, 67, 61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: params::scale::Params = o.params();
        elementwise(o, live, |y| y * wide(p.factor))
    }
}

macro_rules! scale_at_case {
    ($name:literal, $dim:literal, length $length:literal at $position:literal, $tokens:literal/$live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let y = b.input("y", $dim);
            let scale = PositionScale {
                beta: 0.3,
                length: $length,
            };
            b.scale_at(y, scale);
        })
        .at($position, 1 << 20)
    };
}

impl Tested for kind::ScaleAt {
    /// The first positions, whose factor is 1, borders of `length`, and distant positions.
    const CASES: &'static [Case] = &[
        scale_at_case!("one", 1, length 1 at 0, 1/1),
        scale_at_case!("a border", 37, length 3 at 1, 5/3),
        scale_at_case!("the last position", 257, length 16384 at 1_048_575, 1/1),
        scale_at_case!("many borders", 131, length 7 at 100, 67/61),
        scale_at_case!("wide", 8191, length 32 at 95, 2/2),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: params::scale_at::Params = o.params();
        let (y, tokens) = (o.numbers("y"), o.rows());
        let cols = o.slots["y"].cols as usize;
        rows(o, live, |t, i| {
            let steps = f64::from(tokens[t].position / p.length);
            wide(y[t * cols + i]) * (1.0 + wide(p.beta) * steps.ln_1p())
        })
    }
}

macro_rules! mul_case {
    ($name:literal, $len:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let w = b.vector("w", $len);
            let y = b.input("y", $dim);
            b.mul(w, y);
        })
        .weights(&[("w", DType::F32, 1, $len)])
        .tolerance(0.0)
    };
}

impl Tested for kind::Mul {
    /// One element, a group, a row.
    const CASES: &'static [Case] = &[
        mul_case!("one", 1, 1, 1, 1),
        mul_case!("a number", 1, 37, 5, 3),
        mul_case!("primes", 37, 37, 5, 3),
        mul_case!("groups", 24, 96, 3, 2),
        mul_case!("partial vector", 257, 257, 2, 2),
        mul_case!("many", 131, 131, 67, 61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let (w, y) = (o.numbers("w"), o.numbers("y"));
        let cols = o.slots["y"].cols as usize;
        rows(o, live, |t, i| wide(y[t * cols + i]) * wide(w[i % w.len()]))
    }
}

macro_rules! soft_cap_case {
    ($name:literal, $cap:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let y = b.input("y", $dim);
            b.soft_cap(y, $cap);
        })
        .tolerance(0.0)
    };
}

impl Tested for kind::SoftCap {
    /// Caps from far below to far above the values.
    const CASES: &'static [Case] = &[
        soft_cap_case!("one", 1.0, 1, 1, 1),
        soft_cap_case!("primes", 0.1, 37, 5, 3),
        soft_cap_case!("partial vector", 30.0, 257, 2, 2),
        soft_cap_case!("wide", 1.5, 8191, 1, 1),
        soft_cap_case!("many", 50.0, 131, 67, 61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: params::soft_cap::Params = o.params();
        elementwise(o, live, |y| wide(p.cap) * (y / wide(p.cap)).tanh())
    }
}

macro_rules! columns_case {
    ($name:literal, $groups:literal x $width:literal, $offset:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let x = b.input("x", $groups * $width);
            b.columns_of_groups(x, $groups, [$offset, $dim]);
        })
        .tolerance(0.0)
    };
}

macro_rules! pick_columns_case {
    ($name:literal, $width:literal, $dim:literal) => {
        Case::new($name, 1, 1, |b| {
            let x = b.input("x", $width);
            let index = b.vector("index", $dim);
            b.pick_logits(x, index);
        })
        .weights(&[("index", DType::F32, 1, $dim)])
        .tolerance(0.0)
    };
}

impl Tested for kind::PickColumns {
    /// Indices are numbers in (-2, 2), of which the integer part counts.
    const CASES: &'static [Case] = &[
        pick_columns_case!("one", 2, 1),
        pick_columns_case!("many", 37, 8191),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let [x, index] = ["x", "index"].map(|name| o.numbers(name));
        let width = o.slots["x"].cols as usize;
        rows(o, live, |t, i| match index[i] {
            column if column < 0.0 => f64::NEG_INFINITY,
            column => wide(x[t * width + column as usize]),
        })
    }
}

impl Tested for kind::Columns {
    /// Offsets at the start, in the middle and at the end, of rows and of groups.
    const CASES: &'static [Case] = &[
        columns_case!("one", 1 x 1, 0, 1, 1, 1),
        columns_case!("the first", 1 x 37, 0, 5, 5, 3),
        columns_case!("middle", 1 x 41, 3, 37, 5, 3),
        columns_case!("the last", 1 x 514, 257, 257, 2, 2),
        columns_case!("many", 1 x 300, 131, 131, 67, 61),
        columns_case!("groups", 6 x 32, 16, 16, 5, 3),
        columns_case!("odd groups", 7 x 41, 3, 37, 2, 2),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let x = o.numbers("x");
        let p: params::columns::Params = o.params();
        let [groups, width, offset, dim] = [p.groups, p.width, p.offset, p.dim].map(|n| n as usize);
        rows(o, live, |t, i| {
            wide(x[(t * groups + i / dim) * width + offset + i % dim])
        })
    }
}

macro_rules! transfer_case {
    ($name:literal, $dim:literal, $tokens:literal/$live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let x = b.input("x", $dim);
            b.transfer(x);
        })
        .tolerance(0.0)
    };
}

impl Tested for kind::Transfer {
    const CASES: &'static [Case] = &[
        transfer_case!("one", 1, 1 / 1),
        transfer_case!("odd", 257, 5 / 3),
        transfer_case!("many", 131, 67 / 61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let x = o.numbers("x");
        let p: params::transfer::Params = o.params();
        rows(o, live, |t, i| wide(x[t * p.dim as usize + i]))
    }
}

macro_rules! concat_case {
    ($name:literal, $groups:literal x ($a:literal + $b:literal), $tokens:literal/$live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let pair = [b.input("a", $groups * $a), b.input("b", $groups * $b)];
            b.concat_groups($groups, pair);
        })
        .tolerance(0.0)
    };
}

impl Tested for kind::Concat {
    const CASES: &'static [Case] = &[
        concat_case!("one", 1 x (1 + 1), 1/1),
        concat_case!("odd groups", 7 x (3 + 38), 5/3),
        concat_case!("many", 3 x (64 + 130), 67/61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let [a, b] = ["a", "b"].map(|name| o.numbers(name));
        let p: params::concat::Params = o.params();
        let [groups, a_dim, b_dim] = [p.groups, p.a_dim, p.b_dim].map(|n| n as usize);
        rows(o, live, |t, i| {
            let (group, column) = (t * groups + i / (a_dim + b_dim), i % (a_dim + b_dim));
            wide(match column.checked_sub(a_dim) {
                None => a[group * a_dim + column],
                Some(column) => b[group * b_dim + column],
            })
        })
    }
}

macro_rules! unfold_case {
    ($name:literal, $channels:literal, $stride:literal, $tokens:literal, $live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let x = b.input("x", $channels);
            b.unfold(x, $stride);
        })
        .tolerance(0.0)
    };
}

impl Tested for kind::Unfold {
    /// Both strides of Whisper, odd widths, inactive rows.
    const CASES: &'static [Case] = &[
        unfold_case!("one", 1, 1, 1, 1),
        unfold_case!("primes", 37, 1, 5, 3),
        unfold_case!("stride of 2", 37, 2, 6, 3),
        unfold_case!("partial vector", 129, 2, 8, 2),
        unfold_case!("many", 80, 1, 67, 61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let x = o.numbers("x");
        let p: params::unfold::Params = o.params();
        let [channels, stride] = [p.channels, p.stride].map(|n| n as usize);
        rows(o, live, |t, i| {
            let row = (stride * t + i % 3).wrapping_sub(1);
            let x = x
                .get(row.wrapping_mul(channels)..)
                .and_then(|row| row.get(i / 3));
            x.map_or(0.0, |x| wide(*x))
        })
    }
}

/// Applies `f` to all elements of the active rows of `y`.
fn elementwise(o: &Outcome, live: usize, f: impl Fn(f64) -> f64) -> Expected {
    let y = o.numbers("y");
    let cols = o.slots["y"].cols as usize;
    rows(o, live, |t, i| f(wide(y[t * cols + i])))
}
