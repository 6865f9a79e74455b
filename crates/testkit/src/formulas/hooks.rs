//! Formulas of hooks and adapters.

use super::common::{nearby_rows, row_of, softmax, wide};
use crate::rig::Outcome;
use std::ops::Range;
use tabla_core::op::params::{
    adapter_scale as scale, attention_weights as weights, capture as copy, edit as change,
    project_out as projection, self_attention_weights as self_weights,
};

/// Returns `y` after the copy of the operand `from`.
pub(super) fn capture(o: &Outcome, from: &str, live: usize) -> Vec<f32> {
    let p: copy::Params = o.params();
    let (x, mut y) = (o.numbers(from), o.numbers("y"));
    let [dim, width, offset] = [p.dim, p.width, p.offset].map(|n| n as usize);
    for t in 0..live.min(p.tokens as usize) {
        y[t * width + offset..][..dim].copy_from_slice(&x[t * dim..][..dim]);
    }
    y
}

pub(super) fn edit(o: &Outcome, live: usize) -> Vec<f32> {
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
    y
}

pub(super) fn project_out(o: &Outcome, live: usize) -> Vec<f32> {
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

fn dot(q: &[f32], k: &[f32]) -> f64 {
    q.iter().zip(k).map(|(q, k)| wide(*q) * wide(*k)).sum()
}

/// Returns the columns of a head.
fn columns(offset: u32, positions: u32, head: usize) -> Range<usize> {
    let start = offset as usize + head * positions as usize;
    start..start + positions as usize
}

pub(super) fn attention_weights(o: &Outcome, live: usize) -> Vec<f32> {
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
                let score = wide(p.scale) * dot(q, k);
                match wide(p.softcap) {
                    0.0 => score,
                    cap => cap * (score / cap).tanh(),
                }
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
    y
}

pub(super) fn self_attention_weights(o: &Outcome, live: usize) -> Vec<f32> {
    let p: self_weights::Params = o.params();
    let (q, k, mut y) = (o.numbers("q"), o.numbers("k"), o.numbers("y"));
    let [dim, heads, kv_heads] = [p.head_dim, p.heads, p.kv_heads].map(|n| n as usize);
    let rows = &o.rows()[..live];
    for (t, y) in y.chunks_exact_mut(p.width as usize).take(live).enumerate() {
        let seen = nearby_rows(rows, t, p.reach);
        for head in 0..heads {
            let q = &q[(t * heads + head) * dim..][..dim];
            let group = heads / kv_heads;
            let score = |row| wide(p.scale) * dot(q, &k[(row * kv_heads + head / group) * dim..]);
            let positions = seen.clone().map(|row| rows[row].position as usize);
            let y = &mut y[columns(p.offset, p.positions, head)];
            put(y, positions, softmax(seen.clone().map(score)));
        }
    }
    y
}

pub(super) fn adapter_scale(o: &Outcome, live: usize) -> Vec<f32> {
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
    y
}
