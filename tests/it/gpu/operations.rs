//! Every operation on the GPU: all cases against their formulas in f64 and the scalar CPU level.

use super::bits::{cpu, runners};
use tabla::device::Precision;
use tabla::dtype::DType;
use tabla::exec::cpu::Level;
use tabla::exec::gpu::Device;
use tabla::op::list::Op;
use tabla_testkit::changes::check_changed;
use tabla_testkit::ops::{cases, defined, expected};
use tabla_testkit::rig::{Device as Runner, near, run_case};

/// Operations that copy or scale elements: the same bits on every device.
const EXACT: &[Op] = &[
    Op::Scale,
    Op::Columns,
    Op::PickColumns,
    Op::Concat,
    Op::HeadIds,
    Op::Transfer,
    Op::Unfold,
    Op::LastRow,
    Op::Capture,
    Op::CaptureIds,
    Op::AdapterScale,
    Op::Bias,
    Op::Mask,
];

/// Maximum relative error of other operations that are equal on all CPU levels.
const ROUNDING: f32 = 2e-6;

/// Operations that store floats in words of 32 bits, which `CHECKS` compares.
const FLOATS_IN_WORDS: &[Op] = &[Op::MirostatMu, Op::Logprobs];

/// Checks all cases of an operation. Returns the maximum relative error.
pub(super) fn check(device: &Device, op: Op) -> f32 {
    check_on(&runners(device).pop().unwrap(), op)
}

/// As `check`, on any device that computes in f32.
pub(super) fn check_on(device: &Runner, op: Op) -> f32 {
    let scalar = cpu(Level::Scalar, Precision::Exact, 1);
    let mut worst = 0.0f32;
    for case in cases(op) {
        let [reference, actual] = [&scalar, device].map(|on| run_case(op, case, on, &|_, _| {}));
        let what = format!("{op:?} {}", case.name);
        let tolerance = match case.tolerance {
            _ if EXACT.contains(&op) => 0.0,
            0.0 => ROUNDING,
            tolerance => tolerance,
        };
        for name in reference.after.keys() {
            if reference.slots[name].dtype != DType::U32 {
                let [expected, found] = [&reference, &actual].map(|o| defined(op, o, name));
                let what = format!("{what}: {name}");
                worst = near(&what, &expected, &found, tolerance).max(worst);
            } else if !FLOATS_IN_WORDS.contains(&op) {
                let same = reference.after[name] == actual.after[name];
                assert!(same, "{what}: {name} differs");
            }
        }
        for (name, expected) in expected(op, &actual) {
            // As in the test of the scalar level.
            let tolerance = case.tolerance.max(2e-5);
            near(
                &format!("{what}: {name}"),
                &expected,
                &actual.results(name),
                tolerance,
            );
        }
    }
    worst
}

/// Checks operations with operands for which their formulas are hard to compute.
pub(super) fn changed_operands(device: &Device) -> f64 {
    check_changed(&runners(device).pop().unwrap());
    0.0
}
