//! Cases of recurrent layers.

use super::common::{activation, rows, wide};
use super::{Expected, Tested};
use crate::case::Case;
use crate::rig::Outcome;
use std::collections::BTreeMap;
use tabla_core::dtype::DType;
use tabla_core::op::functions::Activation;
use tabla_core::op::kind;
use tabla_core::op::params::{self, PAGE, Row, STATE_BLOCK};
use tabla_plan::builder::{Conv, DeltaHeads, SsmHeads};

macro_rules! conv_tail_case {
    ($name:literal, $tokens:literal/$live:literal at $position:literal of $context:literal,
     $taps:literal x $channels:literal $(, $biased:literal)? $(, by $sequence:literal)?) => {
        Case::new($name, $tokens, $live, |b| {
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
        })
        .at($position, $context)
        $(.sequence($sequence))?
        .weights(&[
            ("w", DType::F32, 1, $taps * $channels),
            ("bias", DType::F32, 1, $channels),
        ])
    };
}

impl Tested for kind::ConvTail {
    /// Positions before the first, passes that begin and end anywhere in a block, that wrap the ring of inputs
    /// and that cross pages, with several sequences.
    const CASES: &'static [Case] = &[
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

    fn expected(o: &Outcome, live: usize) -> Expected {
        let (x, w, before) = (o.numbers("x"), o.numbers("w"), o.numbers("conv_state"));
        let bias = o.numbers("bias");
        let p: params::conv_tail::Params = o.params();
        let [channels, taps] = [p.channels, p.taps].map(|n| n as usize);
        let depth = BLOCK + taps - 1;
        let (all, context) = (o.rows(), o.state().context);
        let input = |t: usize, j: usize, c: usize| {
            let first = first_row(&all, t);
            if t - first >= j {
                return x[(t - j) * channels + c];
            }
            let position = all[t].position as usize;
            if j > position {
                return 0.0;
            }
            let start = all[first].position - 1;
            let state = state_at(o, &all[t], [p.stride, p.first], start);
            before[(state * depth + (position - j) % depth) * channels + c]
        };
        let unchanged = o.numbers("y");
        rows(o, live, |t, c| {
            if all[t].position >= context {
                return wide(unchanged[t * channels + c]);
            }
            let terms =
                (0..taps).map(|j| wide(w[(taps - 1 - j) * channels + c]) * wide(input(t, j, c)));
            let sum: f64 = terms.sum();
            let sum = sum + if p.biased == 0 { 0.0 } else { wide(bias[c]) };
            if p.silu == 0 { sum } else { silu(sum) }
        })
    }
}

macro_rules! delta_gates_case {
    ($name:literal, $tokens:literal/$live:literal, $heads:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let pair = ["a", "b"].map(|name| b.input(name, $heads));
            let [rate, bias] = ["rate", "bias"].map(|name| b.vector(name, $heads));
            b.delta_gates(pair, rate, bias);
        })
        .weights(&[
            ("rate", DType::F32, 1, $heads),
            ("bias", DType::F32, 1, $heads),
        ])
    };
}

impl Tested for kind::DeltaGates {
    const CASES: &'static [Case] = &[
        delta_gates_case!("one", 1 / 1, 1),
        delta_gates_case!("odd", 5 / 3, 7),
        delta_gates_case!("many", 67 / 61, 100),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let [a, b, rate, bias] = ["a", "b", "rate", "bias"].map(|name| o.numbers(name));
        let heads = rate.len();
        rows(o, live, |t, i| match i.checked_sub(heads) {
            None => wide(rate[i]) * (wide(a[t * heads + i]) + wide(bias[i])).exp().ln_1p(),
            Some(h) => 1.0 / (1.0 + (-wide(b[t * heads + h])).exp()),
        })
    }
}

macro_rules! delta_net_case {
    ($name:literal, $tokens:literal/$live:literal at $position:literal of $context:literal,
     $heads:literal/$key_heads:literal x $key_dim:literal x $value_dim:literal, $interleaved:literal
     $(, by $sequence:literal)?) => {
        Case::new($name, $tokens, $live, |b| {
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
        })
        .at($position, $context)
        $(.sequence($sequence))?
        .tolerance(1e-4)
    };
}

impl Tested for kind::DeltaNet {
    /// Steps and chunks at every place of a block, across blocks and pages, both orders of heads, several
    /// sequences.
    const CASES: &'static [Case] = &[
        delta_net_case!("first position", 1/1 at 0 of 4, 1/1 x 2 x 2, false),
        delta_net_case!("first chunk", 5/3 at 0 of 16, 6/2 x 8 x 12, false),
        delta_net_case!("step in a block", 1/1 at 5 of 64, 6/3 x 16 x 16, true),
        delta_net_case!("step at a block", 1/1 at 32 of 64, 4/2 x 16 x 32, true),
        delta_net_case!("step at a page", 1/1 at 128 of 256, 4/4 x 16 x 16, false),
        delta_net_case!("in a block", 7/6 at 3 of 64, 3/1 x 20 x 7, false),
        delta_net_case!("across blocks", 40/37 at 5 of 64, 2/1 x 128 x 128, false),
        delta_net_case!("short keys", 19/19 at 9 of 64, 2/2 x 64 x 128, false),
        delta_net_case!("long values", 3/3 at 79 of 128, 2/1 x 128 x 256, true),
        delta_net_case!("across pages", 90/83 at 50 of 256, 4/2 x 24 x 48, true),
        delta_net_case!("past the context", 5/5 at 62 of 65, 2/1 x 16 x 16, false),
        delta_net_case!("sequences", 7/6 at 64 of 128, 4/2 x 16 x 16, true, by 1),
        delta_net_case!("sequences of rows", 9/8 at 62 of 128, 4/2 x 16 x 16, false, by 3),
    ];

    /// The delta rule, one position after the other.
    fn expected(o: &Outcome, live: usize) -> Expected {
        let (x, gates, before) = (
            o.numbers("x"),
            o.numbers("gates"),
            o.numbers("recurrent_state"),
        );
        let p: params::delta_net::Params = o.params();
        let [heads, key_heads, keys, values] =
            [p.heads, p.key_heads, p.key_dim, p.value_dim].map(|n| n as usize);
        let size = keys * values + BLOCK * (keys + values + 1);
        let width = 2 * key_heads * keys + heads * values;
        let (all, context) = (o.rows(), o.state().context);
        let mut y = o.numbers("y");
        for h in 0..heads {
            let key_head = match p.interleaved {
                0 => h / (heads / key_heads),
                _ => h % key_heads,
            };
            let mut s = Vec::new();
            for t in (0..live).filter(|t| all[*t].position < context) {
                let position = all[t].position;
                if first_row(&all, t) == t {
                    let at = state_at(o, &all[t], [p.stride, p.first], position.saturating_sub(1));
                    s = state_before(
                        &before[(at * heads + h) * size..][..size],
                        [keys, values],
                        position,
                    );
                }
                let x = &x[t * width..][..width];
                let unit = |first: usize| {
                    let x = &x[(first + key_head) * keys..][..keys];
                    let length = (x.iter().map(|x| wide(*x).powi(2)).sum::<f64>() + 1e-6).sqrt();
                    x.iter().map(|x| wide(*x) / length).collect::<Vec<f64>>()
                };
                let (q, k) = (unit(0), unit(key_heads));
                let decay = wide(gates[t * 2 * heads + h]).exp();
                let beta = wide(gates[(t * 2 + 1) * heads + h]);
                for c in 0..values {
                    let column = |s: &[Vec<f64>], with: &[f64]| {
                        s.iter().zip(with).map(|(s, w)| s[c] * w).sum::<f64>()
                    };
                    s.iter_mut().for_each(|s| s[c] *= decay);
                    let v = wide(x[2 * key_heads * keys + h * values + c]);
                    let added = beta * (v - column(&s, &k));
                    s.iter_mut().zip(&k).for_each(|(s, k)| s[c] += k * added);
                    y[(t * heads + h) * values + c] =
                        (column(&s, &q) / (keys as f64).sqrt()) as f32;
                }
            }
        }
        vec![("y", y)]
    }

    fn defined(o: &Outcome, name: &str, live: usize) -> Vec<f32> {
        let p: params::delta_net::Params = o.params();
        let head = [p.heads, p.key_dim, p.value_dim];
        defined_states(o, name, live, [p.stride, p.first], head)
    }
}

macro_rules! ssm_gates_case {
    ($name:literal, $tokens:literal/$live:literal, $heads:literal, $low:literal to $high:expr) => {
        Case::new($name, $tokens, $live, |b| {
            let x = b.input("x", $heads);
            let vectors = ["rate", "bias"].map(|name| b.vector(name, $heads));
            b.ssm_gates(x, vectors, [$low, $high]);
        })
        .weights(&[
            ("rate", DType::F32, 1, $heads),
            ("bias", DType::F32, 1, $heads),
        ])
    };
}

impl Tested for kind::SsmGates {
    /// With and without limits.
    const CASES: &'static [Case] = &[
        ssm_gates_case!("one", 1/1, 1, 0.0 to f32::MAX),
        ssm_gates_case!("odd", 5/3, 7, 0.3 to 0.9),
        ssm_gates_case!("many", 67/61, 100, 0.0 to f32::MAX),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let [x, rate, bias] = ["x", "rate", "bias"].map(|name| o.numbers(name));
        let p: params::ssm_gates::Params = o.params();
        let heads = rate.len();
        rows(o, live, |t, i| {
            let h = i % heads;
            let dt = (wide(x[t * heads + h]) + wide(bias[h])).exp().ln_1p();
            let dt = dt.max(wide(p.low)).min(wide(p.high));
            if i < heads { wide(rate[h]) * dt } else { dt }
        })
    }
}

macro_rules! ssm_scan_case {
    ($name:literal, $tokens:literal/$live:literal at $position:literal of $context:literal,
     $heads:literal/$groups:literal x $key_dim:literal x $value_dim:literal $(, by $sequence:literal)?) => {
        Case::new($name, $tokens, $live, |b| {
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
        })
        .at($position, $context)
        $(.sequence($sequence))?
        .weights(&[("d", DType::F32, 1, $heads)])
        .tolerance(1e-4)
    };
}

impl Tested for kind::SsmScan {
    /// As for the delta rule; groups of heads, keys that are longer than a workgroup.
    const CASES: &'static [Case] = &[
        ssm_scan_case!("first position", 1/1 at 0 of 4, 1/1 x 2 x 2),
        ssm_scan_case!("first chunk", 5/3 at 0 of 16, 6/2 x 8 x 12),
        ssm_scan_case!("step in a block", 1/1 at 5 of 64, 6/3 x 16 x 16),
        ssm_scan_case!("step at a block", 1/1 at 32 of 64, 4/2 x 16 x 32),
        ssm_scan_case!("step at a page", 1/1 at 128 of 256, 4/4 x 16 x 16),
        ssm_scan_case!("in a block", 7/6 at 3 of 64, 3/1 x 20 x 7),
        ssm_scan_case!("across blocks", 40/37 at 5 of 64, 2/1 x 256 x 64),
        ssm_scan_case!("step of 128 keys", 1/1 at 47 of 64, 2/1 x 128 x 64),
        ssm_scan_case!("across pages", 90/83 at 50 of 256, 4/2 x 24 x 48),
        ssm_scan_case!("past the context", 5/5 at 62 of 65, 2/1 x 16 x 80),
        ssm_scan_case!("sequences", 7/6 at 64 of 128, 4/2 x 16 x 16, by 1),
        ssm_scan_case!("sequences of rows", 9/8 at 62 of 128, 4/2 x 16 x 16, by 3),
    ];

    /// The state-space model, one position after the other.
    fn expected(o: &Outcome, live: usize) -> Expected {
        let [x, gates, d] = ["x", "gates", "d"].map(|name| o.numbers(name));
        let before = o.numbers("recurrent_state");
        let p: params::ssm_scan::Params = o.params();
        let [heads, groups, keys, values] =
            [p.heads, p.groups, p.key_dim, p.value_dim].map(|n| n as usize);
        let size = keys * values + BLOCK * (keys + values + 1);
        let width = heads * values + 2 * groups * keys;
        let (all, context) = (o.rows(), o.state().context);
        let mut y = o.numbers("y");
        for h in 0..heads {
            let mut s = Vec::new();
            for t in (0..live).filter(|t| all[*t].position < context) {
                let position = all[t].position;
                if first_row(&all, t) == t {
                    let at = state_at(o, &all[t], [p.stride, p.first], position.saturating_sub(1));
                    let head = &before[(at * heads + h) * size..][..size];
                    s = state_before(head, [keys, values], position);
                }
                let x = &x[t * width..][..width];
                let group = |first: usize| {
                    let at = heads * values + (first + h / (heads / groups)) * keys;
                    &x[at..][..keys]
                };
                let (b, c) = (group(0), group(groups));
                let decay = wide(gates[t * 2 * heads + h]).exp();
                let dt = wide(gates[(t * 2 + 1) * heads + h]);
                for i in 0..values {
                    let v = wide(x[h * values + i]);
                    for (s, b) in s.iter_mut().zip(b) {
                        s[i] = decay * s[i] + dt * wide(*b) * v;
                    }
                    let sum: f64 = s.iter().zip(c).map(|(s, c)| s[i] * wide(*c)).sum();
                    y[(t * heads + h) * values + i] = (sum + wide(d[h]) * v) as f32;
                }
            }
        }
        vec![("y", y)]
    }

    fn defined(o: &Outcome, name: &str, live: usize) -> Vec<f32> {
        let p: params::ssm_scan::Params = o.params();
        let head = [p.heads, p.key_dim, p.value_dim];
        defined_states(o, name, live, [p.stride, p.first], head)
    }
}

macro_rules! rms_gate_case {
    ($name:literal, $tokens:literal/$live:literal, $groups:literal x $dim:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let [x, gate] = ["x", "gate"].map(|name| b.input(name, $groups * $dim));
            let w = b.vector("w", $dim);
            b.rms_gate(x, w, gate, 1e-6);
        })
        .weights(&[("w", DType::F32, 1, $dim)])
    };
}

impl Tested for kind::RmsGate {
    const CASES: &'static [Case] = &[
        rms_gate_case!("one", 1/1, 1 x 1),
        rms_gate_case!("groups", 5/3, 6 x 10),
        rms_gate_case!("many", 67/61, 3 x 128),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let [x, w, gate] = ["x", "w", "gate"].map(|name| o.numbers(name));
        let p: params::rms_gate::Params = o.params();
        let (cols, dim) = (o.slots["x"].cols as usize, p.dim as usize);
        rows(o, live, |t, i| {
            let group = &x[t * cols + i / dim * dim..][..dim];
            let mean = group.iter().map(|x| wide(*x).powi(2)).sum::<f64>() / dim as f64;
            let normed = wide(group[i % dim]) / (mean + wide(p.eps)).sqrt() * wide(w[i % dim]);
            normed * silu(wide(gate[t * cols + i]))
        })
    }
}

/// Positions of a block, and of a page.
const BLOCK: usize = STATE_BLOCK as usize;

/// Returns the state of a sequence after a position.
fn state_at(o: &Outcome, row: &Row, [stride, first]: [u32; 2], position: u32) -> usize {
    let at = (row.sequence * stride + first + position / PAGE) as usize;
    let entry = &o.before["pages"][4 * at..][..4];
    u32::from_le_bytes(entry.try_into().expect("four bytes")) as usize
}

/// Returns the index of the first row of the sequence of row `t`.
fn first_row(all: &[Row], t: usize) -> usize {
    let same = |row: &&Row| row.sequence == all[t].sequence;
    t - all[..t].iter().rev().take_while(same).count()
}

fn silu(x: f64) -> f64 {
    activation(Activation::Silu as u32, x)
}

/// Returns an operand after the operation. In `recurrent_state`, the entries of positions of the block that
/// a sequence does not have yet are undefined.
fn defined_states(
    o: &Outcome,
    name: &str,
    live: usize,
    pages: [u32; 2],
    head: [u32; 3],
) -> Vec<f32> {
    let mut after = o.results(name);
    if name != "recurrent_state" {
        return after;
    }
    let [heads, keys, values] = head.map(|n| n as usize);
    let size = keys * values + BLOCK * (keys + values + 1);
    let context = o.state().context;
    // The last position in each state.
    let mut last: BTreeMap<usize, u32> = BTreeMap::new();
    for row in o.rows()[..live].iter().filter(|row| row.position < context) {
        let position = last
            .entry(state_at(o, row, pages, row.position))
            .or_default();
        *position = row.position.max(*position);
    }
    for (state, position) in last {
        let count = position as usize % BLOCK + 1;
        for head in after[state * heads * size..][..heads * size].chunks_exact_mut(size) {
            let (key, rest) = head[keys * values..].split_at_mut(keys * BLOCK);
            let (value, sums) = rest.split_at_mut(values * BLOCK);
            key.chunks_exact_mut(BLOCK)
                .for_each(|key| key[count..].fill(0.0));
            value[values * count..].fill(0.0);
            sums[count..].fill(0.0);
        }
    }
    after
}

/// State of a head in f64, `[key_dim][value_dim]`, after the positions of the block before `position`.
fn state_before(head: &[f32], [keys, values]: [usize; 2], position: u32) -> Vec<Vec<f64>> {
    if position == 0 {
        return vec![vec![0.0; values]; keys];
    }
    // A state is never read before its block has a position.
    let count = (position as usize - 1) % BLOCK + 1;
    let (matrix, rest) = head.split_at(keys * values);
    let (key, rest) = rest.split_at(keys * BLOCK);
    let (value, sums) = rest.split_at(values * BLOCK);
    let last = wide(sums[count - 1]);
    let element = |d: usize, c: usize| {
        let terms = (0..count).map(|i| {
            let weight = (last - wide(sums[i])).exp() * wide(key[d * BLOCK + i]);
            weight * wide(value[i * values + c])
        });
        last.exp() * wide(matrix[d * values + c]) + terms.sum::<f64>()
    };
    (0..keys)
        .map(|d| (0..values).map(|c| element(d, c)).collect())
        .collect()
}
