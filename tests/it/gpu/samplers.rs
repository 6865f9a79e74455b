//! Tests of the samplers of the full sampling stage, and of the sampling stages.

use super::bits::runners;
use tabla::exec::gpu::Device;
use tabla_testkit::{rig, samplers};

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
