//! Mixtures of experts on the GPU: every case of the list against the scalar level, which the
//! formulas hold; experts between which the router sees no difference; tokens alone and in company.

use super::bits::{case, cpu, runners};
use super::rig::wholes;
use tabla::device::Precision;
use tabla::dtype::DType;
use tabla::exec::cpu::Level;
use tabla::exec::gpu::Device;
use tabla::op::builder::Builder;
use tabla::op::list::Op;
use tabla_testkit::case::Case;
use tabla_testkit::cases;
use tabla_testkit::rig::{alone, compare, run_case, table};

/// Every case of an operation; the cases' own tolerance.
pub(super) fn cases(device: &Device, op: Op) -> f64 {
    let scalar = cpu(Level::Scalar, Precision::Exact, 1);
    let gpu = runners(device).pop().unwrap();
    for case in cases::cases(op) {
        let [wanted, found] = [&scalar, &gpu].map(|on| run_case(op, case, on, &|_, _| {}));
        compare(
            &format!("{op:?} {}", case.name),
            &wanted,
            &found,
            case.tolerance,
        );
    }
    f64::from(cases::cases(op)[0].tolerance)
}

/// Attention of several tokens, and the same bits for each of them alone.
pub(super) fn attention_cases(device: &Device) -> f64 {
    let scalar = cpu(Level::Scalar, Precision::Exact, 1);
    let gpu = runners(device).pop().unwrap();
    let cases = cases::cases(Op::Attention);
    for case in cases.iter().filter(|case| case.tokens > 1) {
        let [wanted, all] = [&scalar, &gpu].map(|on| run_case(Op::Attention, case, on, &|_, _| {}));
        let what = format!("attention, {}", case.name);
        compare(&what, &wanted, &all, case.tolerance);
        let width = all.after["y"].len() / case.tokens as usize;
        for t in (0..case.live as usize).step_by(5) {
            let found = run_case(Op::Attention, case, &gpu, &alone(&all, t, width));
            let same = found.after["y"][..width] == all.after["y"][t * width..][..width];
            assert!(same, "{what}, row {t} alone");
        }
    }
    f64::from(cases[0].tolerance)
}

pub(super) fn attend_part(device: &Device) -> f64 {
    cases(device, Op::AttendPart)
}

pub(super) fn attend_join(device: &Device) -> f64 {
    cases(device, Op::AttendJoin)
}

pub(super) fn gemv_norm(device: &Device) -> f64 {
    cases(device, Op::GemvNorm)
}

pub(super) fn gemv_glu(device: &Device) -> f64 {
    cases(device, Op::GemvGlu).max(cases(device, Op::GemvGluAdd))
}

pub(super) fn combine(device: &Device) -> f64 {
    cases(device, Op::Combine)
}

const EXPERTS: u32 = 100;
const K: u32 = 9;

/// Also rows of few different numbers, and of none that is larger than another.
pub(super) fn route(device: &Device) -> f64 {
    let equals = Case {
        emit: |b| {
            let x = b.input("x", EXPERTS);
            b.route(x, K, false);
        },
        ..case("equals", &[], 24)
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
        let found = run_case(Op::Route, &equals, &on, &set).results("ids");
        for (t, ids) in found
            .chunks(K as usize)
            .take(equals.live as usize)
            .enumerate()
        {
            let x = &x[t * EXPERTS as usize..][..EXPERTS as usize];
            // Stable: the lowest of equals stays first; -0 is 0.
            let mut order: Vec<u16> = (0..).take(x.len()).collect();
            order.sort_by(|a, b| x[usize::from(*b)].partial_cmp(&x[usize::from(*a)]).unwrap());
            let wanted: Vec<f32> = order[..K as usize].iter().copied().map(f32::from).collect();
            assert_eq!(ids, wanted, "row {t} on {}", on.name);
        }
    }
    cases(device, Op::Route)
}

pub(super) fn experts(device: &Device) -> f64 {
    company(device).max(cases(device, Op::Experts))
}

/// The pairs of each expert in their order, whatever the ids: also where experts are more than are
/// counted at once, and none takes a pair, one takes all, or some are not there.
pub(super) fn group_by_expert(device: &Device) -> f64 {
    const MOST: u32 = 2500;
    let spread = Case {
        emit: |b| {
            let x = b.input("x", MOST);
            b.route(x, K, false);
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
        let [wanted, found] =
            [&scalar, &gpu].map(|on| run_case(Op::GroupByExpert, &spread, on, &set));
        compare(what, &wanted, &found, 0.0);
    }
    cases(device, Op::GroupByExpert)
}

pub(super) fn grouped_gemm(device: &Device) -> f64 {
    cases(device, Op::GroupedGemm)
}

const COMPANY: &[(&str, DType, u32, u32)] = &[("w", DType::Q6K, 50 * 5, 512)];

/// The same bits for a token alone and among others, which are those of the scalar level but for
/// the order of sums: of few tokens, and of as many as are grouped, which a CPU multiplies as one.
pub(super) fn company(device: &Device) -> f64 {
    const TOLERANCE: f32 = 1e-5;
    // Matrix units take weights in f16, which rounds each by so much at most.
    const HALVED: f32 = 4.9e-4;
    fn emit(b: &mut Builder<'_>) {
        let w = b.weight("w", 50 * 5, 512);
        let (router, x) = (b.input("router", 50), b.input("x", 512));
        let (routes, _) = b.route(router, 3, true);
        b.experts("y", w, x, routes);
    }
    for (op, tokens, least) in [(Op::Experts, 32, 1), (Op::GroupedGemm, 60, 33)] {
        let of = |tokens| Case {
            emit,
            ..case("company", COMPANY, tokens)
        };
        let many = of(tokens);
        let set = |name: &str, bytes: &mut Vec<u8>| match name {
            "x" => bytes.copy_from_slice(bytemuck::cast_slice(&wholes(7, 512, tokens as usize))),
            // Every third pair goes to one expert, which has more than a tile of them.
            "ids" => {
                let ids: &mut [u32] = bytemuck::cast_slice_mut(bytes);
                ids.iter_mut().step_by(3).for_each(|id| *id = 7);
            }
            _ => {}
        };
        let scalar = cpu(Level::Scalar, Precision::Exact, 1);
        let wanted = run_case(op, &many, &scalar, &set);
        for on in runners(device) {
            let all = run_case(op, &many, &on, &set);
            let (op, least) = if on.name == "gpu" {
                let mut cmds = table(&many, &on).cmds.into_iter();
                let kernel = cmds
                    .find(|cmd| cmd.kernel.op == op)
                    .expect("the case has it")
                    .kernel;
                let halved = kernel.name().contains("matrix");
                let tolerance = if halved { HALVED } else { TOLERANCE };
                compare("company", &wanted, &all, tolerance);
                (op, least)
            } else {
                (Op::Experts, 1)
            };
            let one = Case {
                live: 1,
                ..of(least)
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
                let found = &all.after["y"][t * len..][..len];
                let same = found == &alone.after["y"][..len];
                assert!(same, "{op:?}, token {t} of {tokens} on {}", on.name);
            }
        }
    }
    f64::from(TOLERANCE)
}
