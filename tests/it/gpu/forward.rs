//! Tests of the operations of a forward pass against their formulas in f64.

use super::fixture::{
    Fixture, active_rows, assert_close, decode, floats, integers, shape, weight, wide,
};
use tabla::device::Profile;
use tabla::dtype::DType;
use tabla::exec::gpu::Device;
use tabla::op::functions::Activation;
use tabla::op::list::Op;
use tabla::op::operands::glu;
use tabla::op::table::SlotInfo;

/// A row of x that is not a multiple of 8, in memory that has NaN after it.
pub(super) fn gemv_tail(device: &Device) -> f64 {
    let mut worst = 0.0;
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for cols in [1, 4, 13, 31] {
            let w = weight("w", dtype, 3, cols);
            let mut fixture = Fixture::sharing(device, shape(1), vec![w.clone()], |b| {
                let (old, w) = (b.input("old", 64), b.weight("w", 3, cols));
                let (gate, up) = (b.input("gate", cols), b.input("up", cols));
                b.glu(Activation::Silu, old, old);
                let x = b.glu(Activation::Silu, gate, up);
                b.mat("y", w, x);
            });
            let x = fixture.table.cmds[1].slots()[glu::AT.y];
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

/// Activations that an operation stores in the type that the product reads: gates of powers of two per block, so that int8
/// represents the activations exactly.
pub(super) fn gated(device: &Device) -> f64 {
    let (rows, cols) = (70, 96);
    let w = weight("w", DType::Q8_0, rows, cols);
    let w_f64 = decode(DType::Q8_0, &w.bytes);
    let mut worst = 0.0;
    for tokens in [1, 3, 40] {
        let mut fixture = Fixture::new(device, shape(tokens), vec![w.clone()], |b| {
            let (gate, up) = (b.input("gate", cols), b.input("up", cols));
            let x = b.glu(Activation::Relu, gate, up);
            let w = b.weight("w", rows, cols);
            b.mat("y", w, x);
        });
        let ops: Vec<Op> = fixture.table.cmds.iter().map(|cmd| cmd.kernel.op).collect();
        assert_eq!(ops.len(), 2, "{ops:?}");
        let gate = (0..tokens * cols).map(|i| [0.5, 1.0, 2.0][(i / 32 % 3) as usize]);
        let (gate, up) = (
            gate.collect::<Vec<f32>>(),
            integers(8, cols as usize, tokens as usize),
        );
        fixture.put("gate", &gate);
        fixture.put("up", &up);
        fixture.run();
        let x: Vec<f64> = wide(&gate)
            .iter()
            .zip(wide(&up))
            .map(|(g, u)| g * u)
            .collect();
        let dot = |x: &[f64], w: &[f64]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>();
        let rows = |x| w_f64.chunks(cols as usize).map(move |w| dot(x, w));
        let expected: Vec<f64> = x.chunks(cols as usize).flat_map(rows).collect();
        // Cooperative matrices round weights to f16.
        let tolerance = if device
            .profile()
            .variants
            .iter()
            .any(|v| v.name().contains("matrix"))
        {
            1e-3
        } else {
            2e-6
        };
        worst =
            assert_close("gated activations", &fixture.get("y"), &expected, tolerance).max(worst);
    }
    worst
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
    let (rows, cols) = (75, 32);
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
