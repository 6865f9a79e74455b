//! Changes of operands for which a formula is hard to compute in f32.

use crate::ops::{cases, expected};
use crate::rig::{Device, near, run_case};
use tabla_core::op::list::Op;

/// A change of operands before a run.
type Change = fn(&str, &mut [u8]);

/// The changes, and the operations that are tested with them.
const CHANGES: &[(&str, &[Op], Change)] = &[
    ("infinite", &[Op::Edit, Op::AdapterScale], infinite),
    (
        "large",
        &[
            Op::Activate,
            Op::Glu,
            Op::GluHalves,
            Op::GluClamped,
            Op::SoftCap,
        ],
        large,
    ),
    ("far from zero", &[Op::LayerNorm], far_from_zero),
];

/// Factors of 0 remove values that are not finite: `y` is infinite and `scales` are 0.
fn infinite(name: &str, bytes: &mut [u8]) {
    let value = match name {
        "y" => f32::INFINITY,
        "scales" => 0.0,
        _ => return,
    };
    bytemuck::cast_slice_mut::<u8, f32>(bytes).fill(value);
}

/// Activation functions do not overflow to NaN.
fn large(name: &str, bytes: &mut [u8]) {
    if ["x", "y", "gate", "up"].contains(&name) {
        let numbers = bytemuck::cast_slice_mut::<u8, f32>(bytes);
        numbers.iter_mut().for_each(|x| *x *= 1e4);
    }
}

/// The variance of nearly equal numbers is not a difference of large numbers.
fn far_from_zero(name: &str, bytes: &mut [u8]) {
    if name == "x" {
        let numbers = bytemuck::cast_slice_mut::<u8, f32>(bytes);
        numbers.iter_mut().for_each(|x| *x += 8.0);
    }
}

/// Panics unless results match their formulas with changed operands, within a relative tolerance.
pub fn check_changed(device: &Device, tolerance: f32) {
    for (change, ops, apply) in CHANGES {
        for op in *ops {
            for case in cases(*op) {
                let outcome = run_case(*op, case, device, &|name, bytes| apply(name, bytes));
                for (name, expected) in expected(*op, &outcome) {
                    let what = format!("{op:?} {}, {change} on {}: {name}", case.name, device.name);
                    near(&what, &expected, &outcome.results(name), tolerance);
                }
            }
        }
    }
}
