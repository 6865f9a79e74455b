//! Tables that are added to an executor of the CPU.

use crate::cpu_of;
use tabla_cpu::{Level, LinkOptions};
use tabla_testkit::added_tables;
use tabla_testkit::rig::Device;

fn for_each_cpu(check: impl Fn(&Device)) {
    for level in Level::available() {
        for (packed_bytes, threads) in [(u64::MAX, 1), (u64::MAX, 3), (0, 2)] {
            let options = LinkOptions::default().level(level);
            check(&cpu_of(options.packed_bytes(packed_bytes).threads(threads)));
        }
    }
}

#[test]
fn added_tables_have_results_of_tables_alone() {
    for_each_cpu(added_tables::results);
}

#[test]
fn added_tables_are_timed() {
    for_each_cpu(added_tables::timings);
}
