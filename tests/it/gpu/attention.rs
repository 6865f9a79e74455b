//! Tests of RoPE and attention against their formulas in f64.

use super::fixture::{
    Fixture, UNTOUCHED, Weight, active_rows, assert_close, decode, floats, shape, weight, wide,
    with_untouched,
};
use crate::common::is_gpu_slow;
use half::f16;
use tabla::dtype::DType;
use tabla::exec::gpu::Device;
use tabla::op::pages::Pages;
use tabla::op::params::State;
use tabla::plan::builder::{Heads, Rope, Scores, Shape};
use tabla::quant::{self, q8_0};
use tabla_testkit::fill::row_of_codes;

pub(super) fn rope_kv(device: &Device) -> f64 {
    // head_dim, rope_dim, window, first position; positions up to a million.
    let shapes = [
        (12, 12, 0, 0),
        (12, 8, 0, 500),
        (10, 6, 7, 3),
        (12, 0, 0, 5),
        (64, 64, 0, 70_000),
        (6, 6, 5, 80_001),
        (2, 2, 0, 999_990),
    ];
    let mut worst = 0.0;
    for (head_dim, dim, window, position) in shapes {
        for half_split in [false, true] {
            for cache in [DType::F32, DType::F16, DType::Q8_0] {
                if cache == DType::Q8_0 && head_dim % 64 != 0 {
                    continue;
                }
                let at = Heads {
                    layer: 0,
                    heads: 4,
                    kv_heads: 2,
                    head_dim,
                    window,
                    latent: false,
                };
                let rope = Rope {
                    index: 3,
                    dim,
                    half_split,
                    magnitude: 1.5,
                };
                worst = rope_kv_case(device, at, rope, position, cache).max(worst);
            }
        }
    }
    worst
}

/// Returns the frequencies of the pairs of a head.
fn freqs(dim: u32) -> Weight {
    Weight {
        bytes: (0..dim / 2)
            .flat_map(|i| (0.5_f32).powi(i.cast_signed()).to_le_bytes())
            .collect(),
        ..weight("freqs", DType::F32, 1, dim / 2)
    }
}

/// Returns a row of heads, rotated by its position.
fn rotated(head_dim: u32, rope: Rope, x: &[f32], position: u32) -> Vec<f64> {
    let mut out = wide(x);
    let half = rope.dim as usize / 2;
    let freqs = decode(DType::F32, &freqs(rope.dim).bytes);
    for (i, freq) in freqs.iter().enumerate() {
        let (a, b) = if rope.half_split {
            (i, i + half)
        } else {
            (2 * i, 2 * i + 1)
        };
        #[expect(clippy::cast_possible_truncation, reason = "the angle is f32")]
        let (sin, cos) = f64::from((f64::from(position) * freq) as f32).sin_cos();
        let magnitude = f64::from(rope.magnitude);
        for head in out.chunks_mut(head_dim as usize) {
            let (x, y) = (head[a] * magnitude, head[b] * magnitude);
            (head[a], head[b]) = (x * cos - y * sin, x * sin + y * cos);
        }
    }
    out
}

fn rope_kv_case(device: &Device, at: Heads, rope: Rope, position: u32, cache: DType) -> f64 {
    let (d, heads, kv_heads) = (
        at.head_dim as usize,
        at.heads as usize,
        at.kv_heads as usize,
    );
    // The third of four rows is outside of the context, the fourth is inactive.
    let shape = Shape {
        context: position + 2,
        pages: Pages::new(1, position + 2, &[at.window], 4),
        cache,
        ..shape(4)
    };
    let mut fixture = Fixture::new(device, shape, vec![freqs(rope.dim)], |b| {
        let (q, k) = (
            b.input("q", at.heads * at.head_dim),
            b.input("k", at.kv_heads * at.head_dim),
        );
        let v = b.input("v", at.kv_heads * at.head_dim);
        b.rope_kv(at, rope, q, k, v);
    });
    let state = State {
        context: position + 2,
        ..active_rows(3)
    };
    let positions = [position, position + 1, position + 2, position];
    fixture.state(state, &positions.map(|position| (0, position)));
    let [q, k, v] = [(9, heads), (10, kv_heads), (11, kv_heads)].map(|(s, n)| floats(s, 4 * n * d));
    fixture.put("q", &q);
    fixture.put("k", &k);
    fixture.put("v", &v);
    fixture.run();
    let row = |x: &[f32], t: usize| {
        let n = x.len() / 4;
        rotated(at.head_dim, rope, &x[t * n..][..n], positions[t])
    };
    let what = format!("{at:?} {rope:?} at {position}, {cache}");
    let expected = [row(&q, 0), row(&q, 1), wide(&q[q.len() / 2..])].concat();
    let worst = assert_close(&what, &fixture.get("q"), &expected, 1e-6);
    // Rounding may change a code by 1 of 127.
    let tolerance = match cache {
        DType::F16 => 1e-3,
        DType::Q8_0 => 8.5e-3,
        _ => 1e-6,
    };
    for (name, rows) in [
        ("k.0", [row(&k, 0), row(&k, 1)]),
        (
            "v.0",
            [0, 1].map(|t| wide(&v[t * kv_heads * d..][..kv_heads * d])),
        ),
    ] {
        let actual = fixture.cached(name);
        let mut expected = vec![0.0; actual.len()];
        for (row, position) in rows.iter().zip(positions) {
            let at = fixture.row(at.window, position) * kv_heads * d;
            expected[at..][..kv_heads * d].copy_from_slice(row);
        }
        #[expect(clippy::cast_possible_truncation, reason = "these were f16 or f32")]
        let actual: Vec<f32> = actual.iter().map(|&x| x as f32).collect();
        assert_close(&format!("{what}: {name}"), &actual, &expected, tolerance);
    }
    worst
}

/// Checks head sizes, windows, caches and parts of attention; on a software GPU a fifth of the combinations, with every
/// value in at least one.
pub(super) fn attention(device: &Device) -> f64 {
    // head_dim, window, first position
    let heads = [
        (12, 0, 0),
        (2, 0, 5),
        (64, 0, 126),
        (256, 0, 300),
        (100, 0, 261),
        (10, 20, 17),
        (64, 1, 99),
        (16, 20, 300),
        (32, 200, 403),
        (6, 1000, 200),
        (64, 0, 400),
        (512, 0, 140),
        (510, 3, 5),
    ];
    let caches = [
        (DType::F32, 0.0),
        (DType::F16, 0.0),
        (DType::F32, 0.9),
        (DType::Q8_0, 0.0),
    ];
    let mut all = Vec::new();
    for (head_dim, window, position) in heads {
        let at = Heads {
            layer: 0,
            heads: 6,
            kv_heads: 2,
            head_dim,
            window,
            latent: false,
        };
        for (cache, softcap) in caches {
            let is_possible = cache != DType::Q8_0 || head_dim % 64 == 0;
            let parts = [0, 64, 256].into_iter().filter(|_| is_possible);
            all.extend(parts.map(|part| (at, softcap, part, position, cache)));
        }
    }
    let step = if is_gpu_slow() { 5 } else { 1 };
    let cases = all.into_iter().step_by(step);
    let errors = cases.map(|(at, softcap, part, position, cache)| {
        attention_case(device, at, softcap, part, position, cache)
    });
    errors.fold(0.0, f64::max)
}

fn attention_case(
    device: &Device,
    at: Heads,
    softcap: f32,
    part: u32,
    position: u32,
    cache: DType,
) -> f64 {
    let shape = Shape {
        pages: Pages::new(1, 512, &[at.window], 4),
        cache,
        part,
        ..shape(4)
    };
    let mut fixture = Fixture::new(device, shape, vec![], |b| {
        let q = b.input("q", at.heads * at.head_dim);
        b.attention(at, q, Scores::scaled(0.7).softcapped(softcap));
        // A later use of the queries prevents that the output shares their memory.
        let sum = b.input("sum", at.heads * at.head_dim);
        b.add(q, sum, 1.0);
    });
    let d = at.head_dim as usize;
    let positions = [position, position + 1, position + 2];
    fixture.state(
        active_rows(3),
        &[(0, position), (0, position + 1), (0, position + 2), (0, 0)],
    );
    let q = floats(12, 4 * 6 * d);
    fixture.put("q", &q);
    fixture.put("a", &vec![UNTOUCHED; q.len()]);
    let window = match at.window {
        0 => u32::MAX,
        window => window,
    };
    let seen = |position: u32| position.saturating_sub(window - 1)..=position;
    let rows: Vec<usize> = (0..=position + 2)
        .map(|p| fixture.row(at.window, p))
        .collect();
    let mut fill = |name, seed| {
        // Rows outside of all windows may contain NaN.
        let (buffer, _) = fixture.buffer(name);
        let all = fixture.cached(name).len();
        let mut values = vec![f32::NAN; all];
        for seen in positions.map(seen) {
            for row in seen.map(|p| rows[p as usize]) {
                values[row * 2 * d..][..2 * d].copy_from_slice(&floats(seed + row as u64, 2 * d));
            }
        }
        let bytes = stored(cache, &values, 2 * d);
        fixture.executor.write(buffer, 0, &bytes).unwrap();
        fixture.cached(name)
    };
    let (k, v) = (fill("k.0", 1000), fill("v.0", 5000));
    fixture.run();
    let q = wide(&q);
    let mut expected = Vec::new();
    for (i, q) in q.chunks(d).take(3 * 6).enumerate() {
        let (token, head) = (i / 6, i % 6);
        let row = |x: &[f64], p: u32| x[(rows[p as usize] * 2 + head / 3) * d..][..d].to_vec();
        let score = |p| {
            let score = row(&k, p).iter().zip(q).map(|(k, q)| k * q).sum::<f64>() * 0.7;
            match f64::from(softcap) {
                0.0 => score,
                cap => cap * (score / cap).tanh(),
            }
        };
        let weights: Vec<_> = seen(positions[token])
            .map(|p| (p, score(p).exp()))
            .collect();
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let sum = |e: usize| weights.iter().map(|&(p, w)| w * row(&v, p)[e]).sum::<f64>() / total;
        expected.extend((0..d).map(sum));
    }
    let expected = with_untouched(expected, 4 * 6 * d);
    assert_close(
        &format!("attention {at:?} cap {softcap} part {part} at {position}, {cache}"),
        &fixture.get("a"),
        &expected,
        2e-6,
    )
}

/// Encodes rows of `dim` numbers for a cache; NaN of quantized rows is stored in the scale.
fn stored(cache: DType, values: &[f32], dim: usize) -> Vec<u8> {
    let halves = values.iter().map(|&v| f16::from_f32(v));
    match cache {
        DType::F16 => halves.flat_map(f16::to_le_bytes).collect(),
        DType::Q8_0 => values.chunks(dim).flat_map(quantized).collect(),
        _ => bytemuck::cast_slice(values).to_vec(),
    }
}

fn quantized(row: &[f32]) -> Vec<u8> {
    let mut blocks = Vec::new();
    quant::encode_row(DType::Q8_0, row, &mut blocks);
    if row[0].is_nan() {
        let scale = f16::NAN.to_le_bytes();
        let blocks = blocks.chunks_exact_mut(q8_0::BYTES);
        blocks.for_each(|block| block[..2].copy_from_slice(&scale));
    }
    row_of_codes(&blocks)
}

pub(super) fn rope(device: &Device) -> f64 {
    let mut worst = 0.0;
    for (head_dim, dim, position) in [(12, 8, 0), (10, 10, 77), (64, 64, 70_000), (2, 2, 9)] {
        for half_split in [false, true] {
            let rope = Rope {
                index: 0,
                dim,
                half_split,
                magnitude: 0.5,
            };
            let mut fixture = Fixture::new(device, shape(4), vec![freqs(dim)], |b| {
                let x = b.input("x", 3 * head_dim);
                b.rope(3, head_dim, rope, x);
            });
            let positions = [position, 2 * position, 5, 7];
            fixture.state(active_rows(3), &positions.map(|position| (0, position)));
            let x = floats(15, 4 * 3 * head_dim as usize);
            fixture.put("x", &x);
            fixture.run();
            let rows = x.chunks(3 * head_dim as usize).zip(positions);
            let mut expected: Vec<f64> = rows
                .take(3)
                .flat_map(|(x, position)| rotated(head_dim, rope, x, position))
                .collect();
            expected.extend(wide(&x[expected.len()..]));
            let what = format!("{rope:?} of {head_dim} at {position}");
            worst = assert_close(&what, &fixture.get("x"), &expected, 1e-6).max(worst);
        }
    }
    worst
}

pub(super) fn self_attention(device: &Device) -> f64 {
    let mut worst = 0.0;
    // head_dim, reach, sequence lengths; the last row is inactive
    for (head_dim, reach, lengths) in [
        (12, u32::MAX, &[7][..]),
        (2, u32::MAX, &[1, 5, 3, 1, 1]),
        (64, u32::MAX, &[140, 9, 261]),
        (16, 20, &[150, 2, 30]),
        (32, 70, &[300]),
        (6, 0, &[4, 4]),
        (512, 3, &[9, 9]),
    ] {
        worst = self_attention_case(device, head_dim, reach, lengths).max(worst);
    }
    worst
}

fn self_attention_case(device: &Device, head_dim: u32, reach: u32, lengths: &[u32]) -> f64 {
    let (heads, kv_heads) = (6, 2);
    let rows: Vec<(usize, u32)> = lengths
        .iter()
        .enumerate()
        .flat_map(|(sequence, &length)| (0..length).map(move |position| (sequence, position)))
        .collect();
    let tokens = u32::try_from(rows.len()).unwrap() + 1;
    let mut fixture = Fixture::new(device, shape(tokens), vec![], |b| {
        let q = b.input("q", heads * head_dim);
        let [k, v] = ["k", "v"].map(|name| b.input(name, kv_heads * head_dim));
        b.self_attention([heads, kv_heads, head_dim], [q, k, v], 0.7, reach);
    });
    let mut state: Vec<(u32, u32)> = rows.iter().map(|&(_, position)| (0, position)).collect();
    state.push((0, rows[rows.len() - 1].1 + 1));
    fixture.state(active_rows(tokens - 1), &state);
    let (d, n) = (head_dim as usize, tokens as usize);
    let q = floats(16, n * 6 * d);
    // Inactive rows may contain NaN.
    let [k, v] = [17, 18].map(|seed| {
        let mut x = floats(seed, n * 2 * d);
        x[(n - 1) * 2 * d..].fill(f32::NAN);
        x
    });
    fixture.put("q", &q);
    fixture.put("k", &k);
    fixture.put("v", &v);
    fixture.put("a", &vec![UNTOUCHED; q.len()]);
    fixture.run();
    let [q, k, v] = [q, k, v].map(|x| wide(&x));
    let mut expected = Vec::new();
    for (i, q) in q.chunks(d).take(rows.len() * 6).enumerate() {
        let (t, head) = (i / 6, i % 6);
        let seen = |r: &usize| rows[*r].0 == rows[t].0 && r.abs_diff(t) <= reach as usize;
        let row = |x: &[f64], r: usize| x[(r * 2 + head / 3) * d..][..d].to_vec();
        let score = |r| row(&k, r).iter().zip(q).map(|(k, q)| k * q).sum::<f64>() * 0.7;
        let seen = (0..rows.len()).filter(seen);
        let weights: Vec<_> = seen.map(|r| (row(&v, r), score(r).exp())).collect();
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let sum = |e: usize| weights.iter().map(|(v, weight)| weight * v[e]).sum::<f64>() / total;
        expected.extend((0..d).map(sum));
    }
    let expected = with_untouched(expected, n * 6 * d);
    assert_close(
        &format!("self_attention {head_dim} reach {reach} of {lengths:?}"),
        &fixture.get("a"),
        &expected,
        2e-6,
    )
}
