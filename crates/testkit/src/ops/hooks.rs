//! Cases of hooks and adapters.

use super::common::{dot, heads, nearby_rows, row_of, softcapped, softmax, wide};
use super::{Expected, Tested};
use crate::case::Case;
use crate::rig::INFINITE;
use crate::rig::Outcome;
use std::ops::Range;
use tabla_core::dtype::DType;
use tabla_core::op::kind;
use tabla_core::op::params::{
    adapter_scale as scale, attention_weights as weights, capture as copy, edit as change,
    project_out as projection, self_attention_weights as self_weights,
};
use tabla_plan::builder::{AttentionCapture, EditRows, Router, RouterVectors, Scores};

macro_rules! capture_case {
    ($name:literal, $dim:literal at $offset:literal of $width:literal, $tokens:literal/$live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let x = b.input("x", $dim);
            b.capture(x, 3, [$offset, $width]);
        })
        .tolerance(0.0)
    };
}

impl Tested for kind::Capture {
    /// Offsets at the start, in the middle and at the end; fewer rows than the table has.
    const CASES: &'static [Case] = &[
        capture_case!("one", 1 at 0 of 1, 1/1),
        capture_case!("primes", 37 at 3 of 41, 5/3),
        capture_case!("the last", 257 at 257 of 514, 2/2),
        capture_case!("wide", 8191 at 0 of 8192, 1/1),
        capture_case!("many", 131 at 131 of 300, 67/61),
        Case::new("the last row", 5, 3, |b| {
            let x = b.input("x", 37);
            let last = b.logit_rows(x);
            b.capture(last, 0, [2, 40]);
        })
        .tolerance(0.0),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        vec![("y", capture(o, "x", live))]
    }
}

macro_rules! capture_ids_case {
    ($name:literal, $k:literal at $offset:literal of $width:literal, $tokens:literal/$live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let x = b.input("x", 60);
            let (routes, _) = b.route(x, Router::softmax($k), RouterVectors::default());
            b.capture_ids(routes, 3, [$offset, $width]);
        })
        .tolerance(0.0)
    };
}

impl Tested for kind::CaptureIds {
    /// Offsets at the start, in the middle and at the end.
    const CASES: &'static [Case] = &[
        capture_ids_case!("one", 1 at 0 of 1, 1/1),
        capture_ids_case!("middle", 4 at 3 of 11, 5/3),
        capture_ids_case!("the last", 60 at 257 of 317, 2/2),
        capture_ids_case!("many", 7 at 2 of 9, 67/61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        vec![("y", capture(o, "ids", live))]
    }
}

macro_rules! edit_case {
    ($name:literal, $tokens:literal/$live:literal at $position:literal by $sequence:expr,
     $count:literal at $column:literal of $width:literal, $first:literal to $end:expr,
     $rows:literal rows by $stride:expr, keep $keep:literal gain $gain:literal $(, after $constant:expr)?) => {
        Case::new($name, $tokens, $live, |b| {
            let at = EditRows {
                column: $column,
                count: $count,
                first: $first,
                end: $end,
            };
            let v = b.constant($rows * $count $(+ $constant)?, [$rows, $count]);
            let y = b.input("y", $width);
            b.edit(v, y, at, $stride, $keep, $gain);
        })
        .at($position, 16)
        .sequence($sequence)
        .tolerance(1e-6)
    };
}

const ALL: u32 = u32::MAX;

impl Tested for kind::Edit {
    /// Ranges of columns and positions, one vector and one per position, factors of 0, strides whose
    /// product with a position overflows.
    const CASES: &'static [Case] = &[
        edit_case!("one", 1/1 at 0 by ALL, 1 at 0 of 1, 0 to 1, 1 rows by 0, keep 1.0 gain 1.0),
        edit_case!("add", 5/3 at 4 by ALL, 37 at 3 of 41, 5 to ALL, 1 rows by 0, keep 1.0 gain 0.3),
        edit_case!("mix", 5/5 at 4 by ALL, 37 at 4 of 41, 0 to 7, 1 rows by 0, keep -0.5 gain 1.5),
        edit_case!("replace", 5/4 at 2 by ALL, 257 at 0 of 257, 3 to ALL, 5 rows by 1, keep 0.0 gain 1.0),
        edit_case!("fewer vectors", 9/9 at 0 by ALL, 11 at 1 of 13, 2 to ALL, 3 rows by 1, keep 0.0 gain -2.0),
        edit_case!("every other vector", 9/9 at 3 by ALL, 11 at 1 of 13, 4 to ALL, 7 rows by 2, keep 0.7 gain 0.3),
        edit_case!("overflow", 5/5 at 0 by ALL, 4 at 1 of 7, 1 to ALL, 3 rows by 1 << 31, keep 0.5 gain 1.0),
        edit_case!("no positions", 5/5 at 6 by ALL, 4 at 1 of 7, 2 to 6, 1 rows by 0, keep 0.0 gain 1.0),
        edit_case!("scale", 5/3 at 4 by ALL, 37 at 3 of 41, 0 to ALL, 1 rows by 0, keep 0.3 gain 0.0, after INFINITE),
        edit_case!("clear", 5/3 at 4 by ALL, 37 at 3 of 41, 5 to ALL, 1 rows by 0, keep 0.0 gain 0.0, after INFINITE),
        edit_case!("many", 67/61 at 5 by 13, 131 at 131 of 300, 7 to 16, 9 rows by 1, keep 1.0 gain 0.3),
        edit_case!("wide", 1/1 at 9 by ALL, 2048 at 4096 of 8191, 9 to 10, 1 rows by 1, keep 1.0 gain 0.3),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: change::Params = o.params();
        let (v, mut y) = (o.numbers("v"), o.numbers("y"));
        let [width, column, count] = [p.width, p.column, p.count].map(|n| n as usize);
        let times = |factor: f32, x: f32| match factor {
            0.0 => 0.0,
            _ => wide(factor) * wide(x),
        };
        for (t, row) in o.rows()[..live].iter().enumerate() {
            let after = u64::from(row.position).wrapping_sub(p.first.into());
            let Some(from) = after.checked_mul(p.stride.into()) else {
                continue;
            };
            if row.position < p.first || row.position >= p.end || from >= p.rows.into() {
                continue;
            }
            for i in 0..count {
                let y = &mut y[t * width + column + i];
                *y = (times(p.keep, *y) + times(p.gain, v[from as usize * count + i])) as f32;
            }
        }
        vec![("y", y)]
    }
}

macro_rules! project_out_case {
    ($name:literal, $tokens:literal/$live:literal at $position:literal by $sequence:expr,
     $count:literal at $column:literal of $width:literal, $first:literal to $end:expr, $strength:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let at = EditRows {
                column: $column,
                count: $count,
                first: $first,
                end: $end,
            };
            let v = b.constant($count, [1, $count]);
            let y = b.input("y", $width);
            b.project_out(v, y, at, $strength);
        })
        .at($position, 16)
        .sequence($sequence)
    };
}

impl Tested for kind::ProjectOut {
    /// Ranges of columns and positions.
    const CASES: &'static [Case] = &[
        project_out_case!("one", 1/1 at 0 by ALL, 1 at 0 of 1, 0 to 1, 1.0),
        project_out_case!("primes", 5/3 at 4 by ALL, 37 at 3 of 41, 5 to ALL, 1.0),
        project_out_case!("up to a position", 5/5 at 4 by ALL, 37 at 4 of 41, 0 to 7, 0.3),
        project_out_case!("no positions", 5/5 at 6 by ALL, 4 at 1 of 7, 2 to 6, 1.0),
        project_out_case!("partial vector", 2/2 at 0 by ALL, 257 at 0 of 257, 0 to ALL, -0.5),
        project_out_case!("many", 67/61 at 5 by 13, 131 at 131 of 300, 7 to 16, 1.0),
        project_out_case!("wide", 1/1 at 9 by ALL, 2048 at 4096 of 8191, 9 to 10, 0.1),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: projection::Params = o.params();
        let (v, mut y) = (o.numbers("v"), o.numbers("y"));
        let [width, column, count] = [p.width, p.column, p.count].map(|n| n as usize);
        for (t, row) in o.rows()[..live].iter().enumerate() {
            if row.position < p.first || row.position >= p.end {
                continue;
            }
            let y = &mut y[t * width + column..][..count];
            let dot: f64 = y.iter().zip(&v).map(|(y, v)| wide(*y) * wide(*v)).sum();
            for (y, v) in y.iter_mut().zip(&v) {
                *y = (wide(*y) - wide(p.strength) * dot * wide(*v)) as f32;
            }
        }
        vec![("y", y)]
    }
}

macro_rules! attention_weights_case {
    ($name:literal, $cache:ident, $tokens:literal/$live:literal at $position:literal of $context:literal by $sequence:expr,
     $heads:literal/$kv_heads:literal x $head_dim:literal, window $window:literal, cap $cap:literal,
     $positions:literal at $offset:literal of $width:literal $(, $sinks:literal sinks)?) => {
        Case::new($name, $tokens, $live, |b| {
            let q = b.input("q", $heads * $head_dim);
            let at = heads([$heads, $kv_heads, $head_dim], $window);
            let to = AttentionCapture { hooks: 1, positions: $positions, offset: $offset, width: $width };
            let scores = Scores {
                softcap: $cap,
                $(sinks: Some(b.vector("sinks", $sinks)),)?
                ..Scores::scaled(0.3)
            };
            b.attention_weights(at, q, scores, to);
        })
        .at($position, $context)
        .sequence($sequence)
        .window($window)
        .cache(DType::$cache)
        .weights(&[$(("sinks", DType::F32, 1, $sinks))?])
    };
}

impl Tested for kind::AttentionWeights {
    /// All cache types; more and fewer positions than those seen; heads that are not a multiple of the
    /// vector width; several blocks of positions; windows and rings; the end of the context.
    const CASES: &'static [Case] = &[
        attention_weights_case!("one", F32, 1/1 at 0 of 4 by ALL, 1/1 x 2, window 0, cap 0.0, 1 at 0 of 1),
        attention_weights_case!("more positions", F16, 5/4 at 7 of 640 by 2, 6/3 x 64, window 0, cap 0.0, 30 at 7 of 190),
        attention_weights_case!("fewer positions", F32, 5/5 at 70 of 640 by ALL, 6/3 x 20, window 0, cap 0.0, 11 at 0 of 66),
        attention_weights_case!("odd heads", F16, 3/2 at 60 of 128 by 1, 5/1 x 10, window 0, cap 0.0, 63 at 1 of 320),
        attention_weights_case!("softcap", F32, 4/4 at 50 of 100 by 2, 4/2 x 16, window 0, cap 2.0, 55 at 3 of 223),
        attention_weights_case!("codes", Q8_0, 3/3 at 129 of 256 by 3, 4/2 x 64, window 0, cap 0.0, 131 at 5 of 600),
        attention_weights_case!("blocks", F16, 2/2 at 600 of 640 by 1, 2/1 x 32, window 0, cap 0.0, 610 at 0 of 1220),
        attention_weights_case!("one of many", F32, 1/1 at 599 of 640 by ALL, 4/4 x 48, window 0, cap 0.0, 300 at 2 of 1202),
        attention_weights_case!("window", F32, 9/8 at 20 of 100 by 5, 2/2 x 16, window 7, cap 0.0, 26 at 0 of 52),
        attention_weights_case!("ring", F16, 4/4 at 400 of 640 by 2, 2/1 x 16, window 150, cap 5.0, 410 at 1 of 821),
        attention_weights_case!("sinks", F16, 5/4 at 270 of 640 by 2, 6/3 x 64, window 130, cap 0.0, 280 at 7 of 1690, 6 sinks),
        attention_weights_case!("before the window", F16, 4/4 at 400 of 640 by 2, 2/1 x 16, window 70, cap 0.0, 100 at 0 of 200),
        attention_weights_case!("past the context", F32, 4/4 at 14 of 16 by ALL, 2/1 x 8, window 0, cap 0.0, 16 at 0 of 32),
        attention_weights_case!("many", F16, 67/61 at 3 of 100 by ALL, 8/4 x 16, window 0, cap 0.0, 70 at 9 of 600),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: weights::Params = o.params();
        let (q, k, mut y) = (o.numbers("q"), o.numbers("k_cache"), o.numbers("y"));
        let [dim, heads, kv_heads] = [p.head_dim, p.heads, p.kv_heads].map(|n| n as usize);
        let rows = y.chunks_exact_mut(p.width as usize).zip(o.rows());
        for (t, (y, row)) in rows.take(live).enumerate() {
            let end = (row.position + 1).min(o.state().context) as usize;
            let seen = end.saturating_sub(p.window as usize)..end;
            for head in 0..heads {
                let q = &q[(t * heads + head) * dim..][..dim];
                let score = |position| {
                    let at = row_of(o, &row, [p.stride, p.first, p.ring], position) * kv_heads;
                    let k = &k[(at + head / (heads / kv_heads)) * dim..];
                    softcapped(wide(p.scale) * dot(q, k), p.softcap)
                };
                let sink = (p.sinks > 0).then(|| wide(o.numbers("sinks")[head]));
                let y = &mut y[columns(p.offset, p.positions, head)];
                put(
                    y,
                    seen.clone(),
                    softmax(seen.clone().map(score).chain(sink)),
                );
            }
        }
        vec![("y", y)]
    }
}

macro_rules! self_attention_weights_case {
    ($name:literal, $tokens:literal/$live:literal by $sequence:expr,
     $heads:literal/$kv_heads:literal x $head_dim:literal, reach $reach:expr,
     $positions:literal at $offset:literal of $width:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let q = b.input("q", $heads * $head_dim);
            let k = b.input("k", $kv_heads * $head_dim);
            let heads = [$heads, $kv_heads, $head_dim];
            let to = AttentionCapture {
                hooks: 1,
                positions: $positions,
                offset: $offset,
                width: $width,
            };
            b.self_attention_weights(heads, [q, k], 0.3, $reach, to);
        })
        .sequence($sequence)
    };
}

impl Tested for kind::SelfAttentionWeights {
    /// One sequence and several, the last one partial; single rows; reaches smaller and larger than
    /// sequences; more and fewer positions than those of a sequence.
    const CASES: &'static [Case] = &[
        self_attention_weights_case!("one row", 1/1 by 9, 2/1 x 2, reach ALL, 1 at 0 of 2),
        self_attention_weights_case!("one sequence", 67/61 by 100, 4/4 x 16, reach ALL, 67 at 1 of 300),
        self_attention_weights_case!("sequences", 40/37 by 13, 6/2 x 10, reach ALL, 14 at 0 of 84),
        self_attention_weights_case!("fewer positions", 40/40 by 13, 6/2 x 7, reach ALL, 5 at 3 of 33),
        self_attention_weights_case!("blocks", 300/290 by 280, 2/2 x 16, reach ALL, 280 at 0 of 560),
        self_attention_weights_case!("single rows", 5/4 by 1, 3/3 x 16, reach ALL, 2 at 0 of 6),
        self_attention_weights_case!("nearby rows", 50/49 by 20, 6/3 x 16, reach 4, 20 at 2 of 122),
        self_attention_weights_case!("only itself", 5/5 by 3, 2/2 x 6, reach 0, 3 at 0 of 6),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: self_weights::Params = o.params();
        let (q, k, mut y) = (o.numbers("q"), o.numbers("k"), o.numbers("y"));
        let [dim, heads, kv_heads] = [p.head_dim, p.heads, p.kv_heads].map(|n| n as usize);
        let rows = &o.rows()[..live];
        for (t, y) in y.chunks_exact_mut(p.width as usize).take(live).enumerate() {
            let seen = nearby_rows(rows, t, p.reach);
            for head in 0..heads {
                let q = &q[(t * heads + head) * dim..][..dim];
                let group = heads / kv_heads;
                let score =
                    |row| wide(p.scale) * dot(q, &k[(row * kv_heads + head / group) * dim..]);
                let positions = seen.clone().map(|row| rows[row].position as usize);
                let y = &mut y[columns(p.offset, p.positions, head)];
                put(y, positions, softmax(seen.clone().map(score)));
            }
        }
        vec![("y", y)]
    }
}

macro_rules! adapter_scale_case {
    ($name:literal, $dim:literal, adapter $adapter:literal of $adapters:literal, $tokens:literal/$live:literal by $sequence:expr) => {
        Case::new($name, $tokens, $live, |b| {
            let y = b.input("y", $dim);
            b.adapter_scale(2, [$adapters, $adapter], y);
        })
        .sequence($sequence)
        .tolerance(0.0)
    };
}

impl Tested for kind::AdapterScale {
    /// One sequence and several, one adapter and several.
    const CASES: &'static [Case] = &[
        adapter_scale_case!("one", 1, adapter 0 of 1, 1/1 by ALL),
        adapter_scale_case!("sequences", 37, adapter 1 of 3, 5/3 by 1),
        adapter_scale_case!("partial vector", 257, adapter 2 of 3, 2/2 by ALL),
        adapter_scale_case!("wide", 8191, adapter 0 of 2, 1/1 by ALL),
        adapter_scale_case!("many", 131, adapter 4 of 5, 67/61 by 13),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: scale::Params = o.params();
        let (scales, mut y) = (o.numbers("scales"), o.numbers("y"));
        let rows = y.chunks_exact_mut(p.dim as usize).zip(o.rows());
        for (y, row) in rows.take(live) {
            let scale = scales[(row.sequence * p.adapters + p.adapter) as usize];
            for y in y {
                *y = match scale {
                    0.0 => 0.0,
                    _ => (wide(*y) * wide(scale)) as f32,
                };
            }
        }
        vec![("y", y)]
    }
}

/// Returns `y` after the copy of the operand `from`.
fn capture(o: &Outcome, from: &str, live: usize) -> Vec<f32> {
    let p: copy::Params = o.params();
    let (x, mut y) = (o.numbers(from), o.numbers("y"));
    let [dim, width, offset] = [p.dim, p.width, p.offset].map(|n| n as usize);
    for t in 0..live.min(p.tokens as usize) {
        y[t * width + offset..][..dim].copy_from_slice(&x[t * dim..][..dim]);
    }
    y
}

/// Writes weights to the columns of their positions; other columns are 0.
fn put(y: &mut [f32], seen: impl Iterator<Item = usize>, weights: impl Iterator<Item = f64>) {
    y.fill(0.0);
    for (position, weight) in seen.zip(weights) {
        if let Some(y) = y.get_mut(position) {
            *y = weight as f32;
        }
    }
}

/// Returns the columns of a head.
fn columns(offset: u32, positions: u32, head: usize) -> Range<usize> {
    let start = offset as usize + head * positions as usize;
    start..start + positions as usize
}
