//! Tests of tables that are added to an executor of the GPU, with both replay modes.

use super::{devices, software};
use std::cell::Cell;
use tabla::exec::gpu::{self, Device};
use tabla_testkit::{added_tables, rig};

fn runner(device: &Device) -> rig::Device {
    let (profile, device) = (device.profile().clone(), device.clone());
    rig::Device {
        name: profile.to_string(),
        profile,
        link: Box::new(move |program| gpu::link(device.clone(), program)),
    }
}

#[test]
fn added_tables_have_results_of_tables_alone() {
    for device in devices(&software(), 1) {
        added_tables::results(&runner(&device));
    }
}

#[test]
fn added_tables_are_timed() {
    for device in devices(&software(), 1) {
        added_tables::timings(&runner(&device));
    }
}

#[test]
fn memory_of_removed_tables_is_freed() {
    for device in devices(&software(), 1) {
        let linked = Cell::new(0);
        added_tables::memory(&runner(&device), &|step| {
            let all = device.allocations().expect("Vulkan reports allocations");
            let bytes: u64 = all.iter().map(|(_, bytes)| bytes).sum();
            match step {
                "linked" => linked.set(bytes),
                "added" => assert!(bytes > linked.get(), "{bytes} of {}", linked.get()),
                _ => assert_eq!(bytes, linked.get(), "{step}: {all:?}"),
            }
        });
    }
}
