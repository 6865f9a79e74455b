//! Samplers on every level of the CPU.

use crate::cpu;
use tabla_core::device::Precision;
use tabla_cpu::Level;
use tabla_testkit::rig::Device;
use tabla_testkit::samplers::{log_probs, mirostat_mu, odd_logits, orders, stages};

fn cpus() -> Vec<Device> {
    let levels = Level::available().into_iter();
    levels.map(|level| cpu(level, Precision::Fast, 2)).collect()
}

#[test]
fn odd_logits_leave_the_sets_of_the_definitions() {
    cpus().iter().for_each(odd_logits);
}

#[test]
fn the_device_learns_and_tells() {
    for device in cpus() {
        mirostat_mu(&device);
        log_probs(&device);
    }
}

#[test]
fn a_larger_tail_picks_the_same() {
    cpus().iter().for_each(stages);
}

#[test]
fn samplers_go_in_the_order_of_the_list() {
    cpus().iter().for_each(orders);
}
