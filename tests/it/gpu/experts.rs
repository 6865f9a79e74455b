//! Tests of mixtures of experts and attention on the GPU: ties in the router, pairs in order, single tokens
//! against batches.

use super::bits::{case, cpu, runners};
use super::fixture::integers;
use tabla::device::Precision;
use tabla::dtype::DType;
use tabla::exec::cpu::Level;
use tabla::exec::gpu::Device;
use tabla::op::list::Op;
use tabla::plan::builder::{Builder, Router, RouterVectors};
use tabla_testkit::case::Case;
use tabla_testkit::ops::cases;
use tabla_testkit::rig::{alone, compare, run_case, table};

/// Attention of several tokens against the scalar level, and the same bits for each token alone. Cooperative matrices
/// round queries and weights to f16.
pub(super) fn attention_rows(device: &Device) -> f64 {
    const TOLERANCE_F16: f32 = 2e-3;
    let scalar = cpu(Level::Scalar, Precision::Exact, 1);
    let gpu = runners(device).pop().unwrap();
    let cases = cases(Op::Attention);
    let mut worst = 0.0f32;
    for case in cases.iter().filter(|case| case.tokens > 1) {
        let [expected, all] =
            [&scalar, &gpu].map(|on| run_case(Op::Attention, case, on, &|_, _| {}));
        let what = format!("attention, {}", case.name);
        let mut cmds = table(case, &gpu).cmds.into_iter();
        let cmd = cmds.find(|cmd| cmd.kernel.op == Op::Attention);
        let in_f16 = cmd.is_some_and(|cmd| cmd.kernel.name().contains("matrix"));
        let tolerance = if in_f16 {
            TOLERANCE_F16
        } else {
            case.tolerance
        };
        compare(&what, &expected, &all, tolerance);
        worst = worst.max(tolerance);
        let width = all.after["y"].len() / case.tokens as usize;
        for t in (0..case.live as usize).step_by(5) {
            let actual = run_case(Op::Attention, case, &gpu, &alone(&all, t, width));
            let same = actual.after["y"][..width] == all.after["y"][t * width..][..width];
            assert!(same, "{what}, row {t} alone");
        }
    }
    f64::from(worst)
}

const EXPERTS: u32 = 100;
const K: u32 = 9;

/// Includes rows with ties and rows of equal numbers.
pub(super) fn router_ties(device: &Device) -> f64 {
    let ties = Case {
        emit: |b| {
            let x = b.input("x", EXPERTS);
            b.route(x, Router::softmax(K), RouterVectors::default());
        },
        ..case("ties", &[], 24)
    };
    let level = |i: usize| [0.5, -1.0, 0.0, -0.0, f32::NEG_INFINITY][(i * i + i / 7) % 5];
    let row = |t: usize| {
        (0..EXPERTS as usize).map(move |i| {
            if t.is_multiple_of(4) {
                1.5
            } else {
                level(i + t)
            }
        })
    };
    let x: Vec<f32> = (0..24).flat_map(row).collect();
    let set = |name: &str, bytes: &mut Vec<u8>| {
        if name == "x" {
            bytes.copy_from_slice(bytemuck::cast_slice(&x));
        }
    };
    for on in runners(device) {
        let actual = run_case(Op::Route, &ties, &on, &set).results("ids");
        for (t, ids) in actual
            .chunks(K as usize)
            .take(ties.live as usize)
            .enumerate()
        {
            let x = &x[t * EXPERTS as usize..][..EXPERTS as usize];
            // Stable sort: the lowest index of equal values is first; -0 equals 0.
            let mut order: Vec<u16> = (0..).take(x.len()).collect();
            order.sort_by(|a, b| x[usize::from(*b)].partial_cmp(&x[usize::from(*a)]).unwrap());
            let expected: Vec<f32> = order[..K as usize].iter().copied().map(f32::from).collect();
            assert_eq!(ids, expected, "row {t} on {}", on.name);
        }
    }
    0.0
}

/// The pairs of each expert must stay in order, also with more experts than are counted at once, with
/// experts without pairs, one expert with all pairs, and invalid ids.
pub(super) fn grouping(device: &Device) -> f64 {
    const MOST: u32 = 2500;
    let spread = Case {
        emit: |b| {
            let x = b.input("x", MOST);
            b.route(x, Router::softmax(K), RouterVectors::default());
        },
        ..case("spread", &[], 300)
    };
    type Rule = fn(u32) -> u32;
    let rules: [(&str, Rule); 4] = [
        ("any", |i| i.wrapping_mul(2_654_435_761) >> 20),
        ("one", |_| 1500),
        ("none there", |i| MOST + i % 2 * (u32::MAX - MOST)),
        ("few", |i| {
            [0, 1023, 1024, MOST - 1, MOST][(i * i % 7 % 5) as usize]
        }),
    ];
    let scalar = cpu(Level::Scalar, Precision::Exact, 1);
    let gpu = runners(device).pop().unwrap();
    for (what, rule) in rules {
        let set = |name: &str, bytes: &mut Vec<u8>| {
            if name == "ids" {
                let ids: Vec<u32> = (0..300 * K).map(rule).collect();
                bytes.copy_from_slice(bytemuck::cast_slice(&ids));
            }
        };
        let [expected, actual] =
            [&scalar, &gpu].map(|on| run_case(Op::GroupByExpert, &spread, on, &set));
        compare(what, &expected, &actual, 0.0);
    }
    0.0
}

const BATCH_WEIGHTS: &[(&str, DType, u32, u32)] = &[("w", DType::Q6K, 50 * 5, 512)];

/// A token must have the same bits alone and in a batch, and match the scalar level up to the order of
/// sums; tested with few tokens, and with enough for grouped gemm, which the CPU does not use.
pub(super) fn batch_invariance(device: &Device) -> f64 {
    const TOLERANCE: f32 = 1e-5;
    // Maximum relative rounding error of f16 weights, which cooperative matrices use.
    const TOLERANCE_F16: f32 = 4.9e-4;
    fn emit(b: &mut Builder<'_>) {
        let w = b.weight("w", 50 * 5, 512);
        let (router, x) = (b.input("router", 50), b.input("x", 512));
        let normalized = Router {
            normalize: true,
            ..Router::softmax(3)
        };
        let (routes, _) = b.route(router, normalized, RouterVectors::default());
        b.experts("y", w, x, routes);
    }
    for (op, tokens, least) in [(Op::Experts, 32, 1), (Op::GroupedGemm, 60, 33)] {
        let with_tokens = |tokens| Case {
            emit,
            ..case("batch", BATCH_WEIGHTS, tokens)
        };
        let many = with_tokens(tokens);
        let set = |name: &str, bytes: &mut Vec<u8>| match name {
            "x" => bytes.copy_from_slice(bytemuck::cast_slice(&integers(7, 512, tokens as usize))),
            // Every third pair has the same expert, so that it has more than a tile of pairs.
            "ids" => {
                let ids: &mut [u32] = bytemuck::cast_slice_mut(bytes);
                ids.iter_mut().step_by(3).for_each(|id| *id = 7);
            }
            _ => {}
        };
        let scalar = cpu(Level::Scalar, Precision::Exact, 1);
        let expected = run_case(op, &many, &scalar, &set);
        for on in runners(device) {
            let all = run_case(op, &many, &on, &set);
            let (op, least) = if on.name == "gpu" {
                let mut cmds = table(&many, &on).cmds.into_iter();
                let kernel = cmds
                    .find(|cmd| cmd.kernel.op == op)
                    .expect("the table has the operation")
                    .kernel;
                let in_f16 = kernel.name().contains("matrix");
                let tolerance = if in_f16 { TOLERANCE_F16 } else { TOLERANCE };
                compare("batch", &expected, &all, tolerance);
                (op, least)
            } else {
                (Op::Experts, 1)
            };
            let one = Case {
                live: 1,
                ..with_tokens(least)
            };
            for t in 0..many.live as usize {
                let row = |name: &str, bytes: &mut Vec<u8>| {
                    if ["x", "ids"].contains(&name) {
                        let len = all.before[name].len() / tokens as usize;
                        bytes[..len].copy_from_slice(&all.before[name][t * len..][..len]);
                    }
                };
                let alone = run_case(op, &one, &on, &row);
                let len = all.after["y"].len() / tokens as usize;
                let actual = &all.after["y"][t * len..][..len];
                let same = actual == &alone.after["y"][..len];
                assert!(same, "{op:?}, token {t} of {tokens} on {}", on.name);
            }
        }
    }
    f64::from(TOLERANCE)
}
