//! Formulas of recurrent layers.

use super::common::{activation, rows, wide};
use crate::rig::Outcome;
use tabla_core::op::functions::Activation;
use tabla_core::op::params::{self, PAGE, Row, STATE_BLOCK};

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

pub(super) fn conv_tail(o: &Outcome, live: usize) -> Vec<f32> {
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

pub(super) fn delta_gates(o: &Outcome, live: usize) -> Vec<f32> {
    let [a, b, rate, bias] = ["a", "b", "rate", "bias"].map(|name| o.numbers(name));
    let heads = rate.len();
    rows(o, live, |t, i| match i.checked_sub(heads) {
        None => wide(rate[i]) * (wide(a[t * heads + i]) + wide(bias[i])).exp().ln_1p(),
        Some(h) => 1.0 / (1.0 + (-wide(b[t * heads + h])).exp()),
    })
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

/// The delta rule, one position after the other.
pub(super) fn delta_net(o: &Outcome, live: usize) -> Vec<f32> {
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
                y[(t * heads + h) * values + c] = (column(&s, &q) / (keys as f64).sqrt()) as f32;
            }
        }
    }
    y
}

pub(super) fn ssm_gates(o: &Outcome, live: usize) -> Vec<f32> {
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

/// The state-space model, one position after the other.
pub(super) fn ssm_scan(o: &Outcome, live: usize) -> Vec<f32> {
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
    y
}

pub(super) fn rms_gate(o: &Outcome, live: usize) -> Vec<f32> {
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
