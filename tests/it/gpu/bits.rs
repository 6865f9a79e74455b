//! Tests that ternary products are bit-identical on the GPU and on every CPU level.

use std::fmt::Write as _;
use tabla::device::Precision;
use tabla::dtype::DType;
use tabla::exec::cpu::{self, Level, LinkOptions};
use tabla::exec::gpu::{self, Device};
use tabla::op::list::Op;
use tabla::plan::builder::LogitRows;
use tabla_testkit::case::Case;
use tabla_testkit::ops::cases;
use tabla_testkit::rig::{Device as Runner, Outcome, compare, run_case};

use super::fixture::{floats, random};

/// Returns a CPU at a level.
pub(super) fn cpu(level: Level, precision: Precision, threads: u32) -> Runner {
    let options = LinkOptions::default()
        .threads(threads)
        .level(level)
        .precision(precision)
        .packed_bytes(u64::MAX);
    Runner {
        name: format!("{options:?}"),
        profile: cpu::profile(&options).expect("an available level"),
        link: Box::new(move |program| cpu::link(program, &options)),
    }
}

/// Returns the CPU levels, the scalar one first, then the GPU.
pub(super) fn runners(device: &Device) -> Vec<Runner> {
    let levels = Level::available().into_iter();
    let mut all: Vec<_> = levels.map(|l| cpu(l, Precision::Fast, 2)).collect();
    let device = device.clone();
    all.push(Runner {
        name: "gpu".to_string(),
        profile: device.profile().clone(),
        link: Box::new(move |program| gpu::link(device.clone(), program)),
    });
    all
}

/// Checks that all devices give the bits of the scalar level; returns its result.
fn assert_same_bits(
    device: &Device,
    op: Op,
    case: &Case,
    set: &dyn Fn(&str, &mut Vec<u8>),
) -> Outcome {
    let mut runners = runners(device).into_iter();
    let scalar = runners.next().unwrap();
    let reference = run_case(op, case, &scalar, set);
    for runner in runners {
        let actual = run_case(op, case, &runner, set);
        let mut what = format!("{op:?} {} on {}", case.name, runner.name);
        for (name, expected) in &reference.after {
            let differ = expected
                .iter()
                .zip(&actual.after[name])
                .position(|(a, b)| a != b);
            if let Some(at) = differ {
                write!(what, ": {name} at byte {at} of {}", expected.len()).unwrap();
                panic!("{what}");
            }
        }
    }
    reference
}

const ROWS: u32 = 4096;
const COLS: u32 = 193;

/// Returns a case with a third of the rows inactive, without commands.
pub(super) fn case(
    name: &'static str,
    weights: &'static [(&'static str, DType, u32, u32)],
    tokens: u32,
) -> Case {
    Case {
        name,
        tokens,
        live: tokens - tokens / 3,
        position: 0,
        sequence: u32::MAX,
        context: 16,
        window: 0,
        cache: DType::F32,
        logits: LogitRows::Last,
        weights,
        scale: Some(0.123),
        emit: |_| {},
        sampler: |_| {},
        tolerance: 0.0,
    }
}

/// Returns a row whose products with the scale are at or next to halves, where the last bit of the
/// scale decides the rounding. Some rows have numbers of any magnitude, infinity or NaN.
fn row(t: usize) -> Vec<f32> {
    let mut next = random(t as u64);
    let mut bits = || u32::try_from(next() >> 32).unwrap();
    let any = (0..COLS).map(|_| f32::from_bits(bits()));
    let mut any: Vec<f32> = any.collect();
    match t % 16 {
        0 => any
            .iter()
            .map(|x| if x.is_finite() { *x } else { 1.0 })
            .collect(),
        1 => any.iter().map(|x| x * 1e-30).collect(),
        2 => any
            .iter()
            .map(|x| f32::from_bits(x.to_bits() & 0x807f_ffff))
            .collect(),
        3 => any
            .iter()
            .map(|x| x.signum() * 1e30 * (1.0 + x.fract().abs()))
            .collect(),
        4 => vec![if t % 32 == 4 { 0.0 } else { -0.0 }; COLS as usize],
        5 => any,
        6 => {
            any.fill(1.0);
            any[t % COLS as usize] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][t / 16 % 3];
            any
        }
        _ => {
            // From 2^-16, about the lower limit of the scale, to 2^127.
            let exponent = 111 + bits() % 143;
            let largest = f32::from_bits(exponent << 23 | bits() >> 9);
            let scale = 127.0 / largest;
            let near = |i: u32| {
                let half = f64::from(i / 3 * 2 % 127) + 0.5;
                #[expect(clippy::cast_possible_truncation, reason = "to the nearest f32")]
                let x = (half / f64::from(scale)) as f32;
                let x = [x.next_down(), x, x.next_up()][i as usize % 3];
                if bits() & 1 == 0 { x } else { -x }
            };
            let mut row: Vec<f32> = (0..COLS).map(near).collect();
            row[t % COLS as usize] = largest;
            row
        }
    }
}

pub(super) fn bit_quantize(device: &Device) -> f64 {
    let case = Case {
        emit: |b| {
            let w = b.weight("w", 4, COLS);
            let x = b.input("x", COLS);
            b.mat("y", w, x);
        },
        ..case("any rows", &[("w", DType::Ternary, 4, COLS)], ROWS)
    };
    let x: Vec<f32> = (0..ROWS as usize).flat_map(row).collect();
    let set = |name: &str, bytes: &mut Vec<u8>| {
        if name == "x" {
            bytes.copy_from_slice(bytemuck::cast_slice(&x));
        }
    };
    let actual = assert_same_bits(device, Op::BitQuantize, &case, &set);
    let (q, d) = (actual.results("q"), actual.results("d"));
    let padded = q.len() / ROWS as usize;
    let mut worst = 0.0;
    for (t, x) in x.chunks(COLS as usize).take(case.live as usize).enumerate() {
        let q = &q[t * padded..][..padded];
        if !x.iter().all(|x| x.is_finite()) {
            assert!(d[t].is_nan() && q.iter().all(|q| *q == 0.0), "row {t}");
            continue;
        }
        let scale = 127.0 / x.iter().fold(1e-5f32, |m, x| m.max(x.abs()));
        for (x, q) in x.iter().zip(q) {
            assert_eq!((x * scale).round_ties_even(), *q, "{x} of row {t}");
        }
        let error = (f64::from(d[t]) * f64::from(scale) - 1.0).abs();
        assert!(error < 3e-7, "row {t}: {error:.1e}");
        worst = error.max(worst);
    }
    worst
}

pub(super) fn bit_mat(device: &Device) -> f64 {
    let mut cases: Vec<Case> = cases(Op::BitMat).to_vec();
    cases.push(Case {
        emit: |b| {
            let (w, x) = (b.weight("w", 37, 4096), b.input("x", 4096));
            b.mat("y", w, x);
        },
        ..case("many rows", &[("w", DType::Tq1_0, 37, 4096)], 300)
    });
    cases.push(Case {
        emit: |b| {
            let (w, x) = (b.weight("w", 132, 2592), b.input("x", 2592));
            b.mat("y", w, x);
        },
        ..case("many rows", &[("w", DType::I2S, 132, 2592)], 70)
    });
    for case in &cases {
        assert_same_bits(device, Op::BitMat, case, &scales(case));
    }
    0.0
}

/// Returns a setter of the row scales of a case.
fn scales(case: &Case) -> impl Fn(&str, &mut Vec<u8>) {
    let seed = u64::from(case.tokens);
    move |name, bytes| {
        if name == "d" {
            let d = floats(seed, bytes.len() / 4);
            bytes.copy_from_slice(bytemuck::cast_slice(&d));
        }
    }
}

/// The tolerance is for GPUs that use a fused multiply-add.
pub(super) fn bit_mat_add(device: &Device) -> f64 {
    let op = Op::BitMatAdd;
    for case in cases(op) {
        let all = runners(device);
        let outcomes = all.iter().map(|on| run_case(op, case, on, &scales(case)));
        let outcomes: Vec<Outcome> = outcomes.collect();
        let (gpu, levels) = outcomes.split_last().unwrap();
        for level in levels {
            compare(case.name, &outcomes[0], level, 0.0);
        }
        compare(case.name, &outcomes[0], gpu, 1e-6);
    }
    1e-6
}
