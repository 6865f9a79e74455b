//! Every operation on the GPU: all cases against their formulas in f64 and the scalar CPU level.

use super::bits::{cpu, runners};
use tabla::device::Precision;
use tabla::exec::cpu::Level;
use tabla::exec::gpu::Device;
use tabla::op::list::Op;
use tabla_testkit::changes::check_changed;
use tabla_testkit::ops::{cases, expected};
use tabla_testkit::rig::{compare, near, run_case};

/// Maximum relative difference where the CPU levels have equal bits: `exp` and the order of sums differ.
const TOLERANCE: f32 = 2e-5;

/// Checks all cases of an operation.
pub(super) fn check(device: &Device, op: Op) {
    let scalar = cpu(Level::Scalar, Precision::Exact, 1);
    let gpu = runners(device).pop().unwrap();
    for case in cases(op) {
        let [reference, actual] = [&scalar, &gpu].map(|on| run_case(op, case, on, &|_, _| {}));
        let what = format!("{op:?} {}", case.name);
        let tolerance = case.tolerance.max(TOLERANCE);
        compare(&what, &reference, &actual, tolerance);
        for (name, expected) in expected(op, &actual) {
            near(
                &format!("{what}: {name}"),
                &expected,
                &actual.results(name),
                tolerance,
            );
        }
    }
}

/// Checks operations with operands for which their formulas are hard to compute.
pub(super) fn changed_operands(device: &Device) -> f64 {
    check_changed(&runners(device).pop().unwrap(), TOLERANCE);
    f64::from(TOLERANCE)
}
