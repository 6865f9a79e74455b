//! Every operation on the GPU: all cases against their formulas in f64 and the scalar CPU level.

use super::bits::{cpu, runners};
use tabla::device::Precision;
use tabla::dtype::DType;
use tabla::exec::cpu::Level;
use tabla::exec::gpu::Device;
use tabla::op::list::Op;
use tabla_testkit::changes::check_changed;
use tabla_testkit::ops::{cases, defined, expected};
use tabla_testkit::rig::{near, run_case};

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
        let formula = expected(op, &actual);
        if formula.is_empty() {
            // `CHECKS` has it.
            return;
        }
        for (name, slot) in &reference.slots {
            if slot.dtype == DType::U32 {
                let same = reference.after.get(name) == actual.after.get(name);
                assert!(same, "{what}: {name} differs");
            } else if reference.after.contains_key(name) {
                let [expected, found] = [&reference, &actual].map(|o| defined(op, o, name));
                near(&format!("{what}: {name}"), &expected, &found, tolerance);
            }
        }
        for (name, expected) in formula {
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
