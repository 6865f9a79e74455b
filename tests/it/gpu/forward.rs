//! Tests of the operations of a forward pass against their formulas in f64.

use super::fixture::{
    Fixture, UNTOUCHED, active_rows, assert_close, decode, floats, shape, weight, wide,
    with_untouched,
};
use tabla::device::Profile;
use tabla::dtype::DType;
use tabla::exec::gpu::Device;
use tabla::op::functions::Activation;
use tabla::op::operands::ACTIVATIONS;
use tabla::op::table::SlotInfo;

const DTYPES: [DType; 6] = [
    DType::F32,
    DType::F16,
    DType::Bf16,
    DType::Q8_0,
    DType::Q4_0,
    DType::Q4_1,
];

/// Returns numbers of columns to test: partial blocks if the type allows them, and more than a
/// workgroup processes at once.
fn odd_cols(dtype: DType) -> &'static [u32] {
    if dtype.facts().block == 1 {
        &[1, 13, 40, 517]
    } else {
        &[32, 96, 1056]
    }
}

pub(super) fn embed(device: &Device) -> f64 {
    let mut worst = 0.0;
    for dtype in DTYPES {
        for &cols in odd_cols(dtype) {
            let w = weight("w", dtype, 5, cols);
            let mut fixture = Fixture::new(device, shape(4), vec![w.clone()], |b| {
                let w = b.weight("w", 5, cols);
                b.embed(w);
            });
            fixture.state(active_rows(3), &[(4, 0), (9, 0), (1, 0), (2, 0)]);
            fixture.put("h", &vec![UNTOUCHED; 4 * cols as usize]);
            fixture.run();
            let rows = decode(dtype, &w.bytes);
            let row = |t: usize| rows[t * cols as usize..][..cols as usize].to_vec();
            let expected = [row(4), vec![0.0; cols as usize], row(1)].concat();
            let expected = with_untouched(expected, 4 * cols as usize);
            let what = format!("embed {dtype} {cols}");
            worst = assert_close(&what, &fixture.get("h"), &expected, 1e-6).max(worst);
        }
    }
    worst
}

pub(super) fn rms_norm(device: &Device) -> f64 {
    let mut worst = 0.0;
    for (groups, dim) in [(1, 5), (3, 130), (2, 1000)] {
        let w = weight("w", DType::F32, 1, dim);
        let mut fixture = Fixture::new(device, shape(3), vec![w.clone()], |b| {
            let (x, w) = (b.input("x", groups * dim), b.vector("w", dim));
            b.rms_norm(x, w, 1e-5);
        });
        let (n, dim) = ((3 * groups * dim) as usize, dim as usize);
        let (x, w) = (floats(1, n), decode(DType::F32, &w.bytes));
        fixture.state(active_rows(2), &[(0, 0); 3]);
        fixture.put("x", &x);
        fixture.put("n", &vec![UNTOUCHED; n]);
        fixture.run();
        let expected = wide(&x[..n / 3 * 2]);
        let expected = expected.chunks(dim).flat_map(|x| {
            let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
            let scale = 1.0 / (mean + 1e-5).sqrt();
            x.iter()
                .zip(&w)
                .map(|(x, w)| x * scale * w)
                .collect::<Vec<_>>()
        });
        let expected = with_untouched(expected.collect(), n);
        worst = assert_close("rms_norm", &fixture.get("n"), &expected, 1e-6).max(worst);
    }
    worst
}

/// Checks `y = W x` and `y += W x` with `alive` active rows of `tokens`.
fn mat(device: &Device, dtype: DType, [rows, cols]: [u32; 2], [tokens, alive]: [u32; 2]) -> f64 {
    let w = weight("w", dtype, rows, cols);
    let mut fixture = Fixture::new(device, shape(tokens), vec![w.clone()], |b| {
        let (w, x, sum) = (
            b.weight("w", rows, cols),
            b.input("x", cols),
            b.input("sum", rows),
        );
        b.mat("y", w, x);
        b.mat_add(w, x, sum);
    });
    fixture.state(active_rows(alive), &vec![(0, 0); tokens as usize]);
    let (r, c) = (rows as usize, cols as usize);
    let (x, n) = (floats(2, c * tokens as usize), r * tokens as usize);
    fixture.put("x", &x);
    fixture.put("y", &vec![UNTOUCHED; n]);
    fixture.put("sum", &vec![UNTOUCHED; n]);
    fixture.run();
    let decoded = decode(dtype, &w.bytes);
    let x = wide(&x[..c * alive as usize]);
    let product = |x: &[f64], w: &[f64]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>();
    let y: Vec<_> = x
        .chunks(c)
        .flat_map(|x| decoded.chunks(c).map(|w| product(x, w)).collect::<Vec<_>>())
        .collect();
    let sum = y.iter().map(|y| y + f64::from(UNTOUCHED)).collect();
    let what = format!("mat {dtype} [{rows}, {cols}] {alive} of {tokens}");
    // Terms cancel, so the tolerance scales with the sum of their magnitudes.
    let size = y.iter().fold(1e-30, |m: f64, y| m.max(y.abs()));
    let tolerance = 3e-6 * (f64::from(cols) / 4.0 / size).max(1.0);
    let plain = assert_close(&what, &fixture.get("y"), &with_untouched(y, n), tolerance);
    let added = assert_close(
        &what,
        &fixture.get("sum"),
        &with_untouched(sum, n),
        tolerance,
    );
    plain.max(added)
}

pub(super) fn gemv(device: &Device) -> f64 {
    let mut worst = 0.0;
    for dtype in DTYPES {
        for &cols in odd_cols(dtype) {
            for rows in [1, 7] {
                worst = mat(device, dtype, [rows, cols], [1, 1]).max(worst);
            }
        }
    }
    worst
}

/// A row of x that is not a multiple of 8, in memory that has NaN after it.
pub(super) fn gemv_tail(device: &Device) -> f64 {
    let mut worst = 0.0;
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for cols in [1, 4, 13, 31] {
            let w = weight("w", dtype, 3, cols);
            let mut fixture = Fixture::new(device, shape(1), vec![w.clone()], |b| {
                let (old, w) = (b.input("old", 64), b.weight("w", 3, cols));
                let (gate, up) = (b.input("gate", cols), b.input("up", cols));
                b.glu(Activation::Silu, old, old);
                let x = b.glu(Activation::Silu, gate, up);
                b.mat("y", w, x);
            });
            let x = fixture.table.cmds[2].slots()[ACTIVATIONS];
            assert_eq!(fixture.table.slot(x).cols, cols);
            let reused = |s: &&SlotInfo| s.buffer == fixture.table.slot(x).buffer && s.cols == 64;
            assert!(
                fixture.table.slots.iter().any(|s| reused(&s)),
                "{}",
                fixture.table.name
            );
            fixture.put("old", &[f32::NAN; 64]);
            let (gate, up) = (vec![1.0; cols as usize], floats(20, cols as usize));
            fixture.put("gate", &gate);
            fixture.put("up", &up);
            fixture.run();
            let silu = 1.0 / (1.0 + (-1.0_f64).exp());
            let w = decode(dtype, &w.bytes);
            let dot = |w: &[f64]| {
                w.iter()
                    .zip(&up)
                    .map(|(w, &u)| w * silu * f64::from(u))
                    .sum()
            };
            let expected: Vec<f64> = w.chunks(cols as usize).map(dot).collect();
            let error = assert_close(
                &format!("{dtype} {cols}"),
                &fixture.get("y"),
                &expected,
                1e-5,
            );
            worst = error.max(worst);
        }
    }
    worst
}

pub(super) fn gemm(device: &Device) -> f64 {
    let mut worst = 0.0;
    for dtype in DTYPES {
        for &cols in odd_cols(dtype) {
            worst = mat(device, dtype, [67, cols], [5, 3]).max(worst);
        }
        worst = mat(device, dtype, [133, 64], [70, 69]).max(worst);
    }
    worst
}

pub(super) fn gemm_bits(device: &Device) -> f64 {
    let (rows, cols, tokens) = (67, 544, 70);
    let w = weight("w", DType::Q4_0, rows, cols);
    let mut fixture = Fixture::new(device, shape(tokens), vec![w], |b| {
        let (w, x) = (b.weight("w", rows, cols), b.input("x", cols));
        b.mat("y", w, x);
    });
    let x = floats(3, (tokens * cols) as usize);
    let mut alone = |first: u32, alive: u32| {
        fixture.state(active_rows(alive), &[]);
        fixture.put("x", &x[(first * cols) as usize..]);
        fixture.run();
        fixture.get("y")[..(alive * rows) as usize].to_vec()
    };
    let together = alone(0, 70);
    for first in [0, 3, 68] {
        let row = (first * rows) as usize;
        assert_eq!(
            alone(first, 2),
            together[row..row + 2 * rows as usize],
            "from {first}"
        );
    }
    0.0
}

/// Small activations must keep their precision with every number type of the kernels.
pub(super) fn small(device: &Device) -> f64 {
    let (rows, cols, tokens) = (70, 96, 40);
    let w = weight("w", DType::Q8_0, rows, cols);
    let mut fixture = Fixture::new(device, shape(tokens), vec![w.clone()], |b| {
        let (w, x) = (b.weight("w", rows, cols), b.input("x", cols));
        b.mat("y", w, x);
    });
    let x: Vec<f32> = floats(7, (tokens * cols) as usize);
    let x: Vec<f32> = x.into_iter().map(|x| 1e-3 * x).collect();
    fixture.put("x", &x);
    fixture.run();
    let (w, x) = (decode(DType::Q8_0, &w.bytes), wide(&x));
    let row = |x: &[f64], w: &[f64]| w.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
    let rows = |x| w.chunks(cols as usize).map(move |w| row(x, w));
    let expected: Vec<f64> = x.chunks(cols as usize).flat_map(rows).collect();
    assert_close("small activations", &fixture.get("y"), &expected, 1e-2)
}

/// NaN must propagate, and only in the rows that have it.
pub(super) fn nan_stays(device: &Device) -> f64 {
    let (rows, cols) = (70, 96);
    for (dtype, tokens) in [(DType::Q4_0, 1), (DType::Q4_1, 3), (DType::Q8_0, 1)] {
        let w = weight("w", dtype, rows, cols);
        let mut fixture = Fixture::new(device, shape(tokens), vec![w], |b| {
            let (w, x) = (b.weight("w", rows, cols), b.input("x", cols));
            b.mat("y", w, x);
        });
        let mut x = floats(6, (tokens * cols) as usize);
        x[40] = f32::NAN;
        fixture.put("x", &x);
        fixture.run();
        for (t, y) in fixture.get("y").chunks(rows as usize).enumerate() {
            let actual = y.iter().filter(|y| y.is_nan()).count();
            let expected = if t == 0 { rows as usize } else { 0 };
            assert_eq!(actual, expected, "{dtype}, token {t} of {tokens}");
        }
    }
    0.0
}

pub(super) fn wide_grid(device: &Device) -> f64 {
    let profile = Profile {
        grid_max: 7,
        ..device.profile().clone()
    };
    let (rows, cols) = (150, 32);
    let w = weight("w", DType::Q8_0, rows, cols);
    let mut fixture = Fixture::with(device, &profile, shape(1), vec![w.clone()], |b| {
        let (w, x) = (b.weight("w", rows, cols), b.input("x", cols));
        b.mat("y", w, x);
    });
    assert_eq!(fixture.table.cmds[0].grid, [7, 1, 6]);
    let x = floats(4, cols as usize);
    fixture.put("x", &x);
    fixture.run();
    let (w, x) = (decode(DType::Q8_0, &w.bytes), wide(&x));
    let expected = w
        .chunks(32)
        .map(|w| w.iter().zip(&x).map(|(w, x)| w * x).sum());
    assert_close(
        "wide grid",
        &fixture.get("y"),
        &expected.collect::<Vec<f64>>(),
        1e-6,
    )
}

pub(super) fn add_bias(device: &Device) -> f64 {
    let w = weight("b", DType::F32, 1, 300);
    let mut fixture = Fixture::new(device, shape(3), vec![w.clone()], |b| {
        let (y, w) = (b.input("y", 300), b.vector("b", 300));
        b.add_bias(w, y);
    });
    let y = floats(5, 900);
    fixture.state(active_rows(2), &[(0, 0); 3]);
    fixture.put("y", &y);
    fixture.run();
    let bias = decode(DType::F32, &w.bytes);
    let added = |i: usize| if i < 600 { bias[i % 300] } else { 0.0 };
    let expected: Vec<_> = (0..900).map(|i| f64::from(y[i]) + added(i)).collect();
    assert_close("add_bias", &fixture.get("y"), &expected, 1e-6)
}

pub(super) fn last_row(device: &Device) -> f64 {
    let mut fixture = Fixture::new(device, shape(4), vec![], |b| {
        let h = b.input("h", 300);
        b.logit_rows(h);
    });
    let h = floats(8, 1200);
    fixture.put("h", &h);
    fixture.state(active_rows(3), &[]);
    fixture.run();
    assert_close("last_row", &fixture.get("last"), &wide(&h[600..900]), 0.0)
}
