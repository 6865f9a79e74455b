//! Samplers at every level of the CPU.

use crate::cpu;
use tabla_core::device::Precision;
use tabla_cpu::Level;
use tabla_testkit::rig::Device;
use tabla_testkit::samplers::{logprobs, mirostat_mu, odd_logits, orders, stages};

fn cpus() -> Vec<Device> {
    let levels = Level::available().into_iter();
    levels.map(|level| cpu(level, Precision::Fast, 2)).collect()
}

#[test]
fn filters_match_definitions_on_odd_logits() {
    cpus().iter().for_each(odd_logits);
}

#[test]
fn device_updates_mirostat_and_logprobs() {
    for device in cpus() {
        mirostat_mu(&device);
        logprobs(&device);
    }
}

#[test]
fn larger_sampling_stage_picks_same_token() {
    cpus().iter().for_each(stages);
}

#[test]
fn samplers_run_in_list_order() {
    cpus().iter().for_each(orders);
}
