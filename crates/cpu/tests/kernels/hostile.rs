//! Commands with wrong parameters, as a damaged file may have: they fail, but never outside of their buffers.

use crate::{cpu, for_each_case};
use std::sync::Arc;
use tabla_core::device::Precision;
use tabla_core::error::Result;
use tabla_core::exec::{Executor, Program};
use tabla_core::op::table::{BufferId, Table};
use tabla_cpu::Level;
use tabla_plan::verify;
use tabla_testkit::case::Case;
use tabla_testkit::rig::{Device, state, table, tensors};

fn link(table: &Table, case: &Case, device: &Device) -> Result<Box<dyn Executor>> {
    (device.link)(Program {
        tables: Arc::from([table.clone()]),
        tensors: Arc::new(tensors(case)),
    })
}

/// Links a table and runs it once.
fn run(table: &Table, case: &Case, device: &Device) -> Result<()> {
    let cmds = table.cmds.len();
    let mut executor = link(table, case, device)?;
    executor.write(BufferId::State, 0, &state(case))?;
    executor.run(0, (0..cmds).into(), 1)
}

#[test]
#[cfg_attr(panic = "abort", ignore = "a panic ends the module")]
fn wrong_parameters_are_errors() {
    let best = Level::available().into_iter().last().expect("a level");
    // Panics on the thread of the test are not printed. Several threads have other kernels, which are only linked.
    let [device, threads] = [1, 3].map(|threads| cpu(best, Precision::Fast, threads));
    let (mut linked, mut failed) = (0, 0);
    let mut last = None;
    for_each_case(|op, case| {
        // One case of each operation: kernels of storage types check the same parameters.
        if last.replace(op) == Some(op) {
            return;
        }
        let valid = table(case, &device);
        for word in (0..valid.params.len()).step_by(4) {
            for value in [0u32, 1, 1 << 20, 1 << 28] {
                let mut table = valid.clone();
                table.params[word..word + 4].copy_from_slice(&value.to_le_bytes());
                if verify::check(&table, &device.profile).is_ok() {
                    linked += 1;
                    failed += usize::from(run(&table, case, &device).is_err());
                    let _ = link(&table, case, &threads);
                }
            }
        }
    });
    assert!(
        linked > 1000 && failed > 100,
        "{linked} linked, {failed} failed"
    );
}
