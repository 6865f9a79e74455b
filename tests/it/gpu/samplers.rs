//! Tests of the samplers of the full sampling stage, and of the sampling stages.

use super::bits::runners;
use super::experts::cases;
use tabla::exec::gpu::Device;
use tabla::op::list::Op;
use tabla_testkit::{rig, samplers};

pub(super) fn bias(device: &Device) -> f64 {
    cases(device, Op::Bias)
}

pub(super) fn mask(device: &Device) -> f64 {
    cases(device, Op::Mask)
}

pub(super) fn dry(device: &Device) -> f64 {
    cases(device, Op::Dry)
}

pub(super) fn top_n_sigma(device: &Device) -> f64 {
    cases(device, Op::TopNSigma)
}

pub(super) fn typical(device: &Device) -> f64 {
    cases(device, Op::Typical)
}

pub(super) fn xtc(device: &Device) -> f64 {
    cases(device, Op::Xtc)
}

pub(super) fn dynamic_temper(device: &Device) -> f64 {
    cases(device, Op::DynamicTemper)
}

pub(super) fn mirostat(device: &Device) -> f64 {
    cases(device, Op::Mirostat)
}

/// All penalties; `penalize` tests only the repeat penalty.
pub(super) fn penalties(device: &Device) -> f64 {
    cases(device, Op::Penalize)
}

fn check_all(device: &Device, check: fn(&rig::Device)) -> f64 {
    runners(device).iter().for_each(check);
    0.0
}

pub(super) fn odd_logits(device: &Device) -> f64 {
    check_all(device, samplers::odd_logits)
}

pub(super) fn mirostat_mu(device: &Device) -> f64 {
    check_all(device, samplers::mirostat_mu)
}

pub(super) fn logprobs(device: &Device) -> f64 {
    check_all(device, samplers::logprobs)
}

pub(super) fn tails(device: &Device) -> f64 {
    check_all(device, samplers::stages)
}

pub(super) fn orders(device: &Device) -> f64 {
    check_all(device, samplers::orders)
}
