//! Tests of the operations of hooks and adapters on the GPU: every case against the scalar CPU level,
//! which is tested against formulas.

use super::bits::runners;
use super::experts::cases;
use tabla::exec::gpu::Device;
use tabla::op::list::Op;
use tabla_testkit::rig::{infinite, near, run_case};
use tabla_testkit::{cases, formulas};

pub(super) fn capture(device: &Device) -> f64 {
    cases(device, Op::Capture)
}

pub(super) fn capture_ids(device: &Device) -> f64 {
    cases(device, Op::CaptureIds)
}

pub(super) fn edit(device: &Device) -> f64 {
    cases(device, Op::Edit)
}

pub(super) fn project_out(device: &Device) -> f64 {
    cases(device, Op::ProjectOut)
}

pub(super) fn attention_weights(device: &Device) -> f64 {
    cases(device, Op::AttentionWeights)
}

pub(super) fn self_attention_weights(device: &Device) -> f64 {
    cases(device, Op::SelfAttentionWeights)
}

pub(super) fn adapter_scale(device: &Device) -> f64 {
    cases(device, Op::AdapterScale)
}

/// A factor of 0 removes infinite values.
pub(super) fn infinite_values(device: &Device) -> f64 {
    let gpu = runners(device).pop().unwrap();
    for op in [Op::Edit, Op::AdapterScale] {
        for case in cases::cases(op) {
            let outcome = run_case(op, case, &gpu, &|name, bytes| infinite(name, bytes));
            for (name, expected) in formulas::of(op, case, &outcome) {
                let what = format!("{op:?} {}: {name}", case.name);
                near(&what, &expected, &outcome.results(name), case.tolerance);
            }
        }
    }
    0.0
}
