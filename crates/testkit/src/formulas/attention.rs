//! Formulas of attention, RoPE and the KV cache.

use super::common::{nearby_rows, row_of, rows, softmax, wide};
use crate::fill::of_codes;
use crate::rig::Outcome;
use tabla_core::dtype::DType;
use tabla_core::op::params::{self, attention, rope, rope_kv, self_attention};

pub(super) fn attention(o: &Outcome, live: usize) -> Vec<f32> {
    let p: attention::Params = o.params();
    let (q, k, v) = (o.numbers("q"), o.numbers("k_cache"), o.numbers("v_cache"));
    let (head, kv_heads) = (p.head_dim as usize, p.kv_heads as usize);
    let group = p.heads as usize / kv_heads;
    let tokens = o.rows();
    rows(o, live, |t, i| {
        let h = i / head;
        let position = match p.positions {
            0 => tokens[t].position as usize,
            n => n as usize - 1,
        };
        let first = position.saturating_sub(p.window as usize - 1);
        let seen = first.max(position.min(p.skip as usize))..=position;
        let row = |position| row_of(o, &tokens[t], [p.stride, p.first, p.ring], position);
        let at = |position: usize| (row(position) * kv_heads + h / group) * head;
        let dot = |position: usize| {
            let q = &q[t * group * kv_heads * head + h * head..][..head];
            let pairs = q.iter().zip(&k[at(position)..]);
            let score = wide(p.scale) * pairs.map(|(q, k)| wide(*q) * wide(*k)).sum::<f64>();
            match wide(p.softcap) {
                0.0 => score,
                cap => cap * (score / cap).tanh(),
            }
        };
        let sink = (p.sinks > 0).then(|| wide(o.numbers("sinks")[h]));
        softmax(seen.clone().map(dot).chain(sink))
            .zip(seen)
            .map(|(weight, position)| weight * wide(v[at(position) + i % head]))
            .sum()
    })
}

pub(super) fn attention_scores(o: &Outcome, live: usize) -> Vec<f32> {
    let p: params::attention_scores::Params = o.params();
    let (q, k, mut y) = (o.numbers("q"), o.numbers("k_cache"), o.numbers("y"));
    let [head, heads, kv_heads] = [p.head_dim, p.heads, p.kv_heads].map(|n| n as usize);
    let rows = o.rows();
    for (t, row) in rows.iter().take(live).enumerate() {
        let q = &q[(t * heads + p.head as usize) * head..][..head];
        for position in 0..p.positions as usize {
            let at = row_of(o, row, [p.stride, p.first, p.ring], position) * kv_heads;
            let k = &k[(at + p.head as usize / (heads / kv_heads)) * head..];
            let score = q
                .iter()
                .zip(k)
                .map(|(q, k)| wide(*q) * wide(*k))
                .sum::<f64>();
            let column = p.offset as usize + position;
            y[t * p.width as usize + column] = (wide(p.scale) * score) as f32;
        }
    }
    y
}

/// Does not change unused parts.
pub(super) fn attend_part(o: &Outcome, live: usize) -> Vec<f32> {
    let p: params::attend_part::Params = o.params();
    let (q, k, v) = (o.numbers("q"), o.numbers("k_cache"), o.numbers("v_cache"));
    let [head, heads, kv_heads] = [p.head_dim, p.heads, p.kv_heads].map(|n| n as usize);
    let mut y = o.numbers("y");
    for (unit, row) in o
        .rows()
        .iter()
        .take(live)
        .flat_map(|row| vec![row; heads])
        .enumerate()
    {
        let end = match p.positions {
            0 => row.position + 1,
            n => n,
        };
        let first = end.saturating_sub(p.window).max(p.skip.min(end - 1));
        let seen: Vec<u32> = (first..end).collect();
        let y = &mut y[unit * p.parts as usize * (head + 2)..];
        let at = |position: &u32| {
            let row = row_of(o, row, [p.stride, p.first, p.ring], *position as usize);
            (row * kv_heads + unit % heads / (heads / kv_heads)) * head
        };
        let score = |position: &u32| {
            let pairs = q[unit * head..][..head].iter().zip(&k[at(position)..]);
            let score = wide(p.scale) * pairs.map(|(q, k)| wide(*q) * wide(*k)).sum::<f64>();
            match wide(p.softcap) {
                0.0 => score,
                cap => cap * (score / cap).tanh(),
            }
        };
        for (seen, y) in seen
            .chunks(p.part as usize)
            .zip(y.chunks_exact_mut(head + 2))
        {
            let peak = seen.iter().map(score).fold(f64::MIN, f64::max);
            let weights: Vec<f64> = seen.iter().map(|s| (score(s) - peak).exp()).collect();
            for (i, y) in y[..head].iter_mut().enumerate() {
                let values = seen.iter().map(|s| wide(v[at(s) + i]));
                *y = values.zip(&weights).map(|(v, w)| v * w).sum::<f64>() as f32;
            }
            y[head] = peak as f32;
            y[head + 1] = weights.iter().sum::<f64>() as f32;
        }
    }
    y
}

pub(super) fn attend_join(o: &Outcome, live: usize) -> Vec<f32> {
    let p: params::attend_join::Params = o.params();
    let x = o.numbers("x");
    let [head, heads, parts] = [p.head_dim, p.heads, p.parts].map(|n| n as usize);
    let size = head + 2;
    let tokens = o.rows();
    rows(o, live, |t, i| {
        let end = match p.positions {
            0 => tokens[t].position + 1,
            n => n,
        };
        let seen = end.min(p.window).min(end - p.skip.min(end - 1));
        let there = seen.div_ceil(p.part) as usize;
        let parts = x[(t * heads + i / head) * parts * size..]
            .chunks(size)
            .take(there);
        let sink = match p.sinks {
            0 => f64::NEG_INFINITY,
            _ => wide(o.numbers("sinks")[i / head]),
        };
        let peaks = parts.clone().map(|x| wide(x[head]));
        let peak = peaks.fold(sink, f64::max);
        let weight = |x: &[f32]| (wide(x[head]) - peak).exp();
        let total: f64 = parts.clone().map(|x| weight(x) * wide(x[head + 1])).sum();
        let total = total + (sink - peak).exp();
        parts.map(|x| weight(x) * wide(x[i % head])).sum::<f64>() / total
    })
}

pub(super) fn self_attention(o: &Outcome, live: usize) -> Vec<f32> {
    let p: self_attention::Params = o.params();
    let [q, k, v] = ["q", "k", "v"].map(|name| o.numbers(name));
    let (head, kv_heads) = (p.head_dim as usize, p.kv_heads as usize);
    let group = p.heads as usize / kv_heads;
    let tokens = o.rows();
    rows(o, live, |t, i| {
        let h = i / head;
        let seen = nearby_rows(&tokens[..live], t, p.reach);
        let at = |row: usize| (row * kv_heads + h / group) * head;
        let dot = |row: usize| {
            let q = &q[t * group * kv_heads * head + h * head..][..head];
            let pairs = q.iter().zip(&k[at(row)..]);
            wide(p.scale) * pairs.map(|(q, k)| wide(*q) * wide(*k)).sum::<f64>()
        };
        softmax(seen.clone().map(dot))
            .zip(seen)
            .map(|(weight, row)| weight * wide(v[at(row) + i % head]))
            .sum()
    })
}

/// Rotates the heads of a row by a position.
fn rotated(p: &rope::Params, freqs: &[f32], position: u32, heads: &[f32]) -> Vec<f32> {
    let mut out = heads.to_vec();
    let half = p.rope_dim as usize / 2;
    for head in out.chunks_exact_mut(p.head_dim as usize) {
        for (i, freq) in freqs[..half].iter().enumerate() {
            let (a, b) = match p.half_split {
                0 => (2 * i, 2 * i + 1),
                _ => (i, i + half),
            };
            // The angle is f32: at large positions its rounding dominates the error.
            let (sin, cos) = wide(position as f32 * freq).sin_cos();
            let (x, y) = (wide(head[a]), wide(head[b]));
            let magnitude = wide(p.magnitude);
            head[a] = (magnitude * (x * cos - y * sin)) as f32;
            head[b] = (magnitude * (x * sin + y * cos)) as f32;
        }
    }
    out
}

pub(super) fn rope(o: &Outcome, live: usize) -> Vec<f32> {
    let p: rope::Params = o.params();
    let (freqs, mut x) = (o.numbers("freqs"), o.numbers("x"));
    let width = (p.heads * p.head_dim) as usize;
    for (row, x) in o.rows()[..live].iter().zip(x.chunks_exact_mut(width)) {
        let y = rotated(&p, &freqs, row.position, x);
        x.copy_from_slice(&y);
    }
    x
}

/// Rotated queries, and caches with the new keys, which are rotated, and values.
pub(super) fn rope_kv(
    o: &Outcome,
    live: usize,
    stored: &[(&'static str, &'static str)],
) -> Vec<(&'static str, Vec<f32>)> {
    let p: rope_kv::Params = o.params();
    let turns = rope::Params {
        tokens: p.tokens,
        heads: p.heads,
        head_dim: p.head_dim,
        rope_dim: p.rope_dim,
        half_split: p.half_split,
        magnitude: p.magnitude,
    };
    let [freqs, mut q] = ["freqs", "q"].map(|name| o.numbers(name));
    let new = stored.iter().map(|(x, _)| o.numbers(x));
    let new: Vec<_> = new.collect();
    let caches = stored.iter().map(|(_, cache)| o.numbers(cache));
    let mut caches: Vec<_> = caches.collect();
    let [width, kv_width] = [p.heads, p.kv_heads].map(|heads| (heads * p.head_dim) as usize);
    for (t, row) in o.rows()[..live].iter().enumerate() {
        if row.position >= o.state().context {
            continue;
        }
        let position = row.position as usize;
        let at = row_of(o, row, [p.stride, p.first, p.ring], position) * kv_width;
        let of = |x: &[f32], width: usize| x[t * width..][..width].to_vec();
        let turn = |x: Vec<f32>| rotated(&turns, &freqs, row.position, &x);
        let turned_q = turn(of(&q, width));
        q[t * width..][..width].copy_from_slice(&turned_q);
        for (i, (cache, x)) in caches.iter_mut().zip(&new).enumerate() {
            let x = of(x, kv_width);
            cache[at..][..kv_width].copy_from_slice(&if i == 0 { turn(x) } else { x });
        }
    }
    if of_codes(&o.slots["k_cache"]) {
        // Existing rows are restored exactly from their codes.
        for cache in &mut caches {
            let mut blocks = Vec::new();
            tabla_quant::encode_row(DType::Q8_0, cache, &mut blocks);
            tabla_quant::decode_row(DType::Q8_0, &blocks, cache);
        }
    }
    let caches = stored.iter().map(|(_, name)| *name).zip(caches);
    std::iter::once(("q", q)).chain(caches).collect()
}

/// Rows of the previous positions.
pub(super) fn previous_row(o: &Outcome, live: usize) -> Vec<f32> {
    let p: params::previous_row::Params = o.params();
    let (keys, mut y) = (o.numbers("k_cache"), o.numbers("y"));
    let width = (p.kv_heads * p.head_dim) as usize;
    let rows = o.rows();
    for (row, y) in rows.iter().take(live).zip(y.chunks_mut(width)) {
        match row.position.min(o.state().context) {
            0 => y.fill(0.0),
            n => {
                let at = row_of(o, row, [p.stride, p.first, p.ring], n as usize - 1) * width;
                y.copy_from_slice(&keys[at..][..width]);
            }
        }
    }
    y
}
