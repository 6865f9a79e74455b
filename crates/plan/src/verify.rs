//! Validation of tables before linking.

use super::operands;
use std::collections::HashSet;
use tabla_core::device::Profile;
use tabla_core::error::{Context, Result, bail};
use tabla_core::op::list::Access;
use tabla_core::op::params;
use tabla_core::op::table::{BufferId, DispatchCmd, PARAMS_BYTES_MAX, Place, SLOTS_MAX, Table};

/// Validates a table: scratch buffers are written before they are read, in the memory of the device that
/// reads them, no command reads a buffer that it writes, operands and parameters fit their operation, and device
/// limits hold. Indices of slots, labels and parameters must be in range.
///
/// # Errors
///
/// `Internal` for a planning error, `TooLarge` if a device limit is exceeded. The message names the
/// table, the command and the slot.
pub fn check(table: &Table, profile: &Profile) -> Result<()> {
    let mut written: HashSet<(Place, BufferId)> = HashSet::new();
    for (at, cmd) in table.cmds.iter().enumerate() {
        let name = cmd.kernel.op.name();
        check_command(table, cmd, profile, &mut written)
            .context(format_args!("table {}: command {at} {name}", table.name))?;
    }
    let mut end = table.body().end;
    for stage in &table.stages {
        if stage.start != end || stage.end < stage.start {
            bail!(
                Internal,
                "table {}: invalid command range of a sampling stage: {stage:?}, expected to start at {end}",
                table.name
            );
        }
        end = stage.end;
    }
    if end != table.cmds.len() {
        bail!(
            Internal,
            "table {}: sampling stages end at command {end}, expected {}",
            table.name,
            table.cmds.len()
        );
    }
    Ok(())
}

/// Checks the number of operands, the size of the parameters, and the limits of bindings and grid.
fn check_limits(cmd: &DispatchCmd, profile: &Profile) -> Result<()> {
    let operands = cmd.kernel.op.operands();
    if operands.len() != cmd.slots().len() || operands.len() > SLOTS_MAX {
        bail!(
            Internal,
            "expected {} operands, got {}",
            operands.len(),
            cmd.slots().len()
        );
    }
    let expected = params::bytes(cmd.kernel.op);
    if cmd.params_bytes as usize != expected || expected > PARAMS_BYTES_MAX {
        bail!(
            Internal,
            "expected {expected} bytes of parameters, got {}",
            cmd.params_bytes
        );
    }
    if operands.len() > profile.bindings_max as usize {
        bail!(
            TooLarge,
            "{} bindings exceed the device limit of {}",
            operands.len(),
            profile.bindings_max
        );
    }
    if cmd.grid.iter().any(|&n| n == 0 || n > profile.grid_max) {
        bail!(
            TooLarge,
            "grid {:?}: each dimension must be 1 to {}",
            cmd.grid,
            profile.grid_max
        );
    }
    Ok(())
}

fn check_command(
    table: &Table,
    cmd: &DispatchCmd,
    profile: &Profile,
    written: &mut HashSet<(Place, BufferId)>,
) -> Result<()> {
    check_limits(cmd, profile)?;
    operands::check(table, cmd, profile)?;
    let operands = cmd.kernel.op.operands();
    for (operand, slot) in operands.iter().zip(cmd.slots()) {
        let info = table.slot(*slot);
        if cmd.place == Place::Device && info.bytes() > profile.binding_bytes_max {
            bail!(
                TooLarge,
                "{}: {} bytes exceed the device's binding limit of {}",
                info.name,
                info.bytes(),
                profile.binding_bytes_max
            );
        }
        let scratch = matches!(
            info.buffer,
            BufferId::Scratch(_) | BufferId::Transferred(..)
        );
        let memory = (cmd.reads_from(), info.buffer);
        if scratch && operand.access != Access::Write && !written.contains(&memory) {
            bail!(Internal, "{} is read before it is written", info.name);
        }
        let twice = operands.iter().zip(cmd.slots()).filter(|(other, s)| {
            table.slot(**s).buffer == info.buffer
                && (other.access != Access::Read || operand.access != Access::Read)
        });
        if twice.count() > 1 {
            bail!(
                Internal,
                "{} is bound twice and written by the same command",
                info.name
            );
        }
        if matches!(info.buffer, BufferId::Weight(..) | BufferId::Constant(_))
            && operand.access != Access::Read
        {
            bail!(
                Internal,
                "{} is a read-only tensor but is written",
                info.name
            );
        }
    }
    for (operand, slot) in operands.iter().zip(cmd.slots()) {
        if operand.access != Access::Read {
            written.insert((cmd.place, table.slot(*slot).buffer));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::{Builder, LogitMap};
    use crate::fixture::{SQUARE, shape};
    use tabla_core::device::KernelVariant;
    use tabla_core::dtype::DType;
    use tabla_core::error::ErrorKind;
    use tabla_core::op::operands::gemv;
    use tabla_core::op::sampler::SamplerKind;
    use tabla_core::op::table::Slot;

    fn table() -> Table {
        let shape = shape(1);
        let mut b = Builder::new(&SQUARE, shape);
        let w = b.weight("w", 8, 8);
        let h = b.embed(w);
        let y = b.mat("y", w, h);
        b.mat_add(w, y, h);
        b.logits(w, h, LogitMap::default());
        b.sampled_stage(8, SamplerKind::DEFAULT);
        crate::compile(
            b.finish().expect("the weights fit"),
            &crate::plain_profile(),
        )
        .expect("compiles")
    }

    #[test]
    fn accepts_a_valid_table() {
        check(&table(), &crate::plain_profile()).expect("the table is valid");
    }

    fn check_rejected(change: impl FnOnce(&mut Table, &mut Profile), kind: ErrorKind, words: &str) {
        let (mut table, mut profile) = (table(), crate::plain_profile());
        change(&mut table, &mut profile);
        let error = check(&table, &profile).expect_err(words);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(words), "{error}");
    }

    #[test]
    fn rejects_invalid_tables() {
        check_rejected(
            |t, _| t.cmds.rotate_left(1),
            ErrorKind::Internal,
            "read before it is written",
        );
        check_rejected(
            |t, _| t.cmds[1].slots[gemv::AT.y] = t.cmds[1].slots[gemv::AT.x],
            ErrorKind::Internal,
            "bound twice",
        );
        check_rejected(
            |t, _| t.cmds[1].slots[gemv::AT.y] = Slot(1),
            ErrorKind::Internal,
            "bound twice",
        );
        check_rejected(
            |t, _| t.cmds[1].params_bytes = 4,
            ErrorKind::Internal,
            "parameters",
        );
        check_rejected(
            |t, _| t.cmds[0].n_slots = 2,
            ErrorKind::Internal,
            "operands",
        );
        check_rejected(|t, _| t.stages[0].end = 99, ErrorKind::Internal, "stage");
        check_rejected(|_, p| p.grid_max = 0, ErrorKind::TooLarge, "grid");
        check_rejected(
            |_, p| p.binding_bytes_max = 16,
            ErrorKind::TooLarge,
            "binding limit",
        );
        check_rejected(|_, p| p.bindings_max = 2, ErrorKind::TooLarge, "bindings");
    }

    /// Sets a word of the parameters of a command.
    fn set(table: &mut Table, cmd: usize, word: usize, value: u32) {
        let at = table.cmds[cmd].params as usize + 4 * word;
        table.params[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    #[test]
    fn rejects_operands_and_parameters_that_do_not_fit() {
        check_rejected(
            |t, _| t.slots[2].buffer = BufferId::State,
            ErrorKind::Internal,
            "cannot be the operand",
        );
        check_rejected(
            |t, _| t.slots[0].buffer = BufferId::History,
            ErrorKind::Internal,
            "cannot be the operand state",
        );
        check_rejected(
            |t, _| t.cmds[1].kernel.dtype = Some(DType::F16),
            ErrorKind::Internal,
            "storage type f16",
        );
        check_rejected(
            |t, _| set(t, 1, 0, 9),
            ErrorKind::Internal,
            "gemv: parameter rows: expected 8 to 8, got 9",
        );
        check_rejected(
            |t, _| set(t, 1, 2, u32::MAX),
            ErrorKind::Internal,
            "parameter first",
        );
        check_rejected(
            |t, _| t.cmds[1].kernel.variant = Some(KernelVariant::Int8),
            ErrorKind::Unsupported,
            "does not run gemv_f32.subgroup+int8",
        );
        check_rejected(
            |t, _| t.cmds[1].place = Place::Host,
            ErrorKind::Unsupported,
            "does not run cpu:gemv_f32",
        );
    }

    #[test]
    fn rejects_products_that_exceed_their_output() {
        let shape = shape(4);
        let mut b = Builder::new(&SQUARE, shape);
        let w = b.weight("w", 8, 8);
        let h = b.embed(w);
        b.mat("y", w, h);
        let graph = b.finish().expect("the weights fit");
        let profile = crate::plain_profile();
        let mut table = crate::compile(graph, &profile).expect("compiles");
        check(&table, &profile).expect("the table is valid");
        // The number of columns of the output.
        set(&mut table, 1, 4, 9);
        let error = check(&table, &profile).expect_err("it is out of bounds");
        assert!(
            error.message().contains("exceed its shape [4, 8]"),
            "{error}"
        );
    }
}
