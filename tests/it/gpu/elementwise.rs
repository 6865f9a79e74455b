//! Tests of elementwise operations and norms against their formulas in f64.

use super::fixture::{
    Fixture, UNTOUCHED, Weight, active_rows, assert_close, decode, floats, shape, weight, wide,
};
use tabla::dtype::DType;
use tabla::exec::gpu::Device;
use tabla::op::functions::Activation;
use tabla::plan::builder::Builder;
use tabla_testkit::formulas::activation;

/// Number of rows of the tables; two of them are active.
const ROWS: usize = 3;

/// Runs the commands of `emit` on inputs of [`ROWS`] rows and checks the active rows of `out` against
/// `expected`; the last row must not change.
fn check(
    device: &Device,
    weights: &[Weight],
    inputs: &[(&str, &[f32])],
    emit: impl Fn(&mut Builder<'_>),
    (out, mut expected): (&str, Vec<f64>),
) -> f64 {
    let mut fixture = Fixture::new(device, shape(3), weights.to_vec(), emit);
    fixture.state(active_rows(2), &[(0, 5), (0, 6), (0, 7)]);
    let mut last = vec![UNTOUCHED; expected.len() / 2];
    fixture.put(out, &vec![UNTOUCHED; ROWS * last.len()]);
    for (name, values) in inputs {
        fixture.put(name, values);
        if *name == out {
            last.copy_from_slice(&values[expected.len()..]);
        }
    }
    fixture.run();
    expected.extend(wide(&last));
    assert_close(out, &fixture.get(out), &expected, 1e-6)
}

/// Maps the elements of the active rows.
fn map_active(y: &[f32], f: impl Fn(usize, f64) -> f64) -> Vec<f64> {
    let live = &y[..y.len() / ROWS * 2];
    let live = live.iter().enumerate();
    live.map(|(i, &y)| f(i, f64::from(y))).collect()
}

/// Returns random numbers up to `size`, many of them small.
fn spread(seed: u64, n: usize, size: f32) -> Vec<f32> {
    let cubes = floats(seed, n).into_iter().map(|v| v * v * v * size);
    cubes.collect()
}

pub(super) fn glu_halves(device: &Device) -> f64 {
    // Three rows of six groups of a gate and a half of 50 numbers.
    let x = spread(6, 1800, 100.0);
    let mut worst = 0.0;
    for &act in Activation::ALL {
        let emit = |b: &mut Builder<'_>| {
            let x = b.input("x", 600);
            b.glu_halves(act, x, 6);
        };
        let f = |i: usize| {
            let gate = i / 50 * 100 + i % 50;
            activation(act as u32, f64::from(x[gate])) * f64::from(x[gate + 50])
        };
        let expected = (0..2 * 300).map(f).collect();
        worst = check(device, &[], &[("x", &x[..])], emit, ("f", expected)).max(worst);
    }
    worst
}

pub(super) fn glu(device: &Device) -> f64 {
    let (gate, up) = (spread(6, 900, 100.0), floats(7, 900));
    let mut worst = 0.0;
    for &act in Activation::ALL {
        let f = |i: usize, g| activation(act as u32, g) * f64::from(up[i]);
        let inputs = [("gate", &gate[..]), ("up", &up[..])];
        let emit = |b: &mut Builder<'_>| {
            let (gate, up) = (b.input("gate", 300), b.input("up", 300));
            b.glu(act, gate, up);
        };
        let expected = map_active(&gate, f);
        worst = check(device, &[], &inputs, emit, ("f", expected)).max(worst);
    }
    worst
}

pub(super) fn activate(device: &Device) -> f64 {
    let mut worst = 0.0;
    // Large inputs must not overflow to NaN.
    for size in [4.0, 50.0, 1e6] {
        let y = spread(6, 900, size);
        for &act in Activation::ALL {
            let expected = map_active(&y, |_, y| activation(act as u32, y));
            let emit = |b: &mut Builder<'_>| {
                let y = b.input("y", 300);
                b.activate(act, y);
            };
            worst = check(device, &[], &[("y", &y)], emit, ("y", expected)).max(worst);
        }
    }
    worst
}

pub(super) fn add(device: &Device) -> f64 {
    let (x, y) = (floats(5, 900), floats(6, 900));
    let expected = map_active(&y, |i, y| y + 0.25 * f64::from(x[i]));
    let emit = |b: &mut Builder<'_>| {
        let (x, y) = (b.input("x", 300), b.input("y", 300));
        b.add(x, y, 0.25);
    };
    check(device, &[], &[("x", &x), ("y", &y)], emit, ("y", expected))
}

pub(super) fn scale(device: &Device) -> f64 {
    let y = floats(6, 900);
    let expected = map_active(&y, |_, y| y * f64::from(0.3f32));
    let emit = |b: &mut Builder<'_>| {
        let y = b.input("y", 300);
        b.scale(y, 0.3);
    };
    check(device, &[], &[("y", &y)], emit, ("y", expected))
}

pub(super) fn mul(device: &Device) -> f64 {
    let y = floats(6, 900);
    let mut worst = 0.0;
    for len in [1, 20, 300] {
        let w = weight("w", DType::F32, 1, len);
        let factors = decode(DType::F32, &w.bytes);
        let expected = map_active(&y, |i, y| y * factors[i % 300 % factors.len()]);
        let emit = |b: &mut Builder<'_>| {
            let (w, y) = (b.vector("w", len), b.input("y", 300));
            b.mul(w, y);
        };
        worst = check(device, &[w], &[("y", &y)], emit, ("y", expected)).max(worst);
    }
    worst
}

pub(super) fn soft_cap(device: &Device) -> f64 {
    let mut worst = 0.0;
    // From numbers much smaller than the cap to much larger ones.
    for size in [1e-3, 3.0, 100.0, 1e6] {
        let y = spread(6, 900, size);
        let expected = map_active(&y, |_, y| 30.0 * (y / 30.0).tanh());
        let emit = |b: &mut Builder<'_>| {
            let y = b.input("y", 300);
            b.soft_cap(y, 30.0);
        };
        worst = check(device, &[], &[("y", &y)], emit, ("y", expected)).max(worst);
    }
    worst
}

pub(super) fn columns(device: &Device) -> f64 {
    let x = floats(8, ROWS * 1000);
    let mut worst = 0.0;
    for (offset, dim) in [(0, 300), (41, 300), (700, 300), (999, 1)] {
        let rows = wide(&x[..2000]);
        let rows = rows.chunks(1000).flat_map(|x| {
            let [offset, dim] = [offset, dim].map(|n| n as usize);
            x[offset..][..dim].to_vec()
        });
        let emit = |b: &mut Builder<'_>| {
            let x = b.input("x", 1000);
            b.columns(x, offset, dim);
        };
        let expected = ("c", rows.collect());
        worst = check(device, &[], &[("x", &x)], emit, expected).max(worst);
    }
    worst
}

pub(super) fn embed_add(device: &Device) -> f64 {
    let mut worst = 0.0;
    for (dtype, cols) in [(DType::F32, 517), (DType::F16, 13), (DType::Q4_0, 1056)] {
        // The active rows have positions 5 and 6: they add rows 5 and 6, 6 and none, 1 and 1.
        for (stride, offset) in [(1, 0), (1, 1), (0, 1)] {
            let w = weight("w", dtype, 7, cols);
            let table = decode(dtype, &w.bytes);
            let cols_ = cols as usize;
            let y = floats(9, ROWS * cols_);
            let expected = map_active(&y, |i, y| {
                let row = stride as usize * (5 + i / cols_) + offset as usize;
                y + table.get(row * cols_ + i % cols_).copied().unwrap_or(0.0)
            });
            let emit = |b: &mut Builder<'_>| {
                let (w, y) = (b.weight("w", 7, cols), b.input("y", cols));
                b.embed_add(w, y, stride, offset);
            };
            worst = check(device, &[w], &[("y", &y)], emit, ("y", expected)).max(worst);
        }
    }
    worst
}

pub(super) fn unit_norm(device: &Device) -> f64 {
    let mut worst = 0.0;
    for (groups, dim) in [(1, 5), (3, 130), (2, 1000)] {
        let x = floats(1, ROWS * (groups * dim) as usize);
        let rows = wide(&x[..x.len() / ROWS * 2]);
        let expected = rows.chunks(dim as usize).flat_map(|x| {
            let mean = x.iter().map(|x| x * x).sum::<f64>() / f64::from(dim);
            x.iter().map(move |x| x / (mean + 1e-5).sqrt())
        });
        let emit = |b: &mut Builder<'_>| {
            let x = b.input("x", groups * dim);
            b.unit_norm(x, dim, 1e-5);
        };
        let expected = ("n", expected.collect());
        worst = check(device, &[], &[("x", &x)], emit, expected).max(worst);
    }
    worst
}

pub(super) fn layer_norm(device: &Device) -> f64 {
    let mut worst = 0.0;
    for dim in [5, 130, 1000] {
        let w = weight("w", DType::F32, 1, dim);
        let factors = decode(DType::F32, &w.bytes);
        // With a large mean, the difference of mean square and squared mean would be inaccurate.
        let x: Vec<f32> = floats(1, ROWS * dim as usize);
        let x: Vec<f32> = x.iter().map(|x| x + 8.0).collect();
        let rows = wide(&x[..x.len() / ROWS * 2]);
        let expected = rows.chunks(dim as usize).flat_map(|x| {
            let mean = x.iter().sum::<f64>() / f64::from(dim);
            let squares = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>();
            let scale = 1.0 / (squares / f64::from(dim) + 1e-5).sqrt();
            let pairs = x.iter().zip(&factors);
            pairs.map(move |(x, w)| (x - mean) * scale * w)
        });
        let emit = |b: &mut Builder<'_>| {
            let (x, w) = (b.input("x", dim), b.vector("w", dim));
            b.layer_norm(x, w, 1e-5);
        };
        let expected = ("n", expected.collect());
        worst = check(device, &[w], &[("x", &x)], emit, expected).max(worst);
    }
    worst
}
