//! Changes of operands for which a formula is hard to compute in f32.

use crate::ops::{cases, expected};
use crate::rig::{Device, near, run_case};
use tabla_core::op::list::Op;

/// A change of operands before a run.
type Change = fn(&str, &mut [u8]);

/// Operations with functions of single elements.
const FUNCTIONS: &[Op] = &[
    Op::Activate,
    Op::Glu,
    Op::GluHalves,
    Op::GluClamped,
    Op::SoftCap,
];

/// The changes, the operations that are tested with them, and the maximum relative error.
const CHANGES: &[(&str, &[Op], Change, f32)] = &[
    ("infinite", &[Op::Edit, Op::AdapterScale], infinite, 1e-6),
    ("spread", FUNCTIONS, spread, 1e-6),
    ("large", FUNCTIONS, large, 1e-6),
    // The difference of large numbers would have an error of 5e-4.
    ("far from zero", &[Op::LayerNorm], far_from_zero, 2e-5),
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

/// Numbers up to 48, many of them small: from where functions are linear to where they are constant.
fn spread(name: &str, bytes: &mut [u8]) {
    if ["x", "y", "gate", "up"].contains(&name) {
        let numbers = bytemuck::cast_slice_mut::<u8, f32>(bytes);
        numbers.iter_mut().for_each(|x| *x *= *x * *x * 6.0);
    }
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
        numbers.iter_mut().for_each(|x| *x += 100.0);
    }
}

/// Panics unless results match their formulas with changed operands.
pub fn check_changed(device: &Device) {
    for (change, ops, apply, tolerance) in CHANGES {
        for op in *ops {
            for case in cases(*op) {
                let outcome = run_case(*op, case, device, &|name, bytes| apply(name, bytes));
                for (name, expected) in expected(*op, &outcome) {
                    let what = format!("{op:?} {}, {change} on {}: {name}", case.name, device.name);
                    near(&what, &expected, &outcome.results(name), *tolerance);
                }
            }
        }
    }
}
