//! Kernels of commands, and the weights that are packed for them.

use super::descriptors::WeightReader;
use super::kernel::{self, Launch, Request};
use super::pack::{PackSpec, PackSpecs, Panels, fitting, unpacked};
use super::panel::Pack;
use super::simd::Isa;
use std::collections::BTreeSet;
use tabla_core::device::Precision;
use tabla_core::error::{Context, Result, bail};
use tabla_core::exec::{Layout, Program};
use tabla_core::op::list::Op;
use tabla_core::op::operands::WEIGHT;
use tabla_core::op::table::{BufferId, DispatchCmd, SlotInfo, Table};

/// Target that commands are linked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// Instruction set.
    pub(super) isa: Isa,
    /// Precision of matrix products.
    pub(super) precision: Precision,
    /// Maximum number of bytes of packed weights.
    pub(super) packed_bytes: u64,
    /// Number of threads.
    pub(super) threads: usize,
}

/// Returns the kernels of all commands of each table, and the weights that are packed for them, including
/// those in `panels`.
pub(super) fn launches_of(
    program: &Program,
    target: Target,
    panels: &Panels,
) -> Result<(Vec<Vec<Launch>>, PackSpecs)> {
    let link = |is_packed: &dyn Fn(u32) -> bool| {
        let tables = program.tables.iter();
        let launches = tables.map(|table| launches(program, table, target, is_packed));
        let launches = launches.collect::<Result<Vec<_>>>()?;
        let specs = pack_specs(program, &launches)?;
        Ok((launches, specs))
    };
    let packs = target.packed_bytes > 0 || !panels.is_empty();
    let (launches, specs) = link(&|weight| packs || is_stored(program, weight))?;
    let (stored, own): (PackSpecs, _) = unpacked(specs.clone(), panels)
        .into_iter()
        .partition(|(weight, _)| is_stored(program, *weight));
    let mut selected = fitting(&own, &experts(program), target.packed_bytes);
    selected.extend(panels.keys().chain(stored.keys()));
    match specs.keys().all(|weight| selected.contains(weight)) {
        true => Ok((launches, specs)),
        false => link(&|weight| selected.contains(&weight)),
    }
}

/// Returns the weights that commands of some operations read in place: neither from `panels` nor copied to a buffer.
pub(super) fn in_place(
    program: &Program,
    launches: &[Vec<Launch>],
    panels: &dyn Fn(u32) -> Option<Pack>,
    is_copied: &dyn Fn(BufferId) -> bool,
    reads: &dyn Fn(Op) -> bool,
) -> BTreeSet<u32> {
    let mut all = BTreeSet::new();
    for (table, launches) in program.tables.iter().zip(launches) {
        let cmds = table.cmds.iter().zip(launches);
        for (cmd, launch) in cmds.filter(|(cmd, _)| reads(cmd.kernel.op)) {
            for (operand, slot) in cmd.slots().iter().enumerate() {
                let buffer = table.slot(*slot).buffer;
                let reads_panels = |pack| {
                    operand == WEIGHT && (launch.pack.is_some() || launch.reads_rows_of(pack))
                };
                if let BufferId::Weight(index, _) = buffer
                    && !panels(index).is_some_and(reads_panels)
                    && !is_copied(buffer)
                {
                    all.insert(index);
                }
            }
        }
    }
    all
}

impl Launch {
    /// Whether it reads rows of a weight that is packed for other commands.
    pub(super) fn reads_rows_of(&self, pack: Pack) -> bool {
        matches!(
            (self.reader, pack),
            (Some(WeightReader::Rows(..)), Pack::Blocks(_))
        )
    }
}

/// Returns whether a compiled model has the panels of a weight.
pub(super) fn is_stored(program: &Program, weight: u32) -> bool {
    program.tensors.in_layout(weight, Layout::Panels).is_some()
}

/// Returns the weights of experts.
fn experts(program: &Program) -> BTreeSet<u32> {
    let tables = program.tables.iter();
    let weights = tables.flat_map(|table| {
        let is_expert = |cmd: &&DispatchCmd| matches!(cmd.kernel.op, Op::Experts | Op::GroupedGemm);
        table
            .cmds
            .iter()
            .filter(is_expert)
            .map(|cmd| weight(table, cmd))
    });
    weights.flatten().collect()
}

/// Returns the weight of a command, if its first operand is one.
pub(super) fn weight(table: &Table, cmd: &DispatchCmd) -> Option<u32> {
    match table.slot(*cmd.slots().get(WEIGHT)?).buffer {
        BufferId::Weight(index, _) => Some(index),
        _ => None,
    }
}

/// Kernels of all commands of a table.
fn launches(
    program: &Program,
    table: &Table,
    target: Target,
    is_packed: &dyn Fn(u32) -> bool,
) -> Result<Vec<Launch>> {
    let launch = |cmd: &DispatchCmd| {
        let slots = cmd.slots().len();
        if slots != cmd.kernel.op.operands().len() {
            bail!(
                Internal,
                "{} has a wrong number of operands: {slots}",
                cmd.kernel.op.name()
            );
        }
        let weight = weight(table, cmd);
        let request = Request {
            isa: target.isa,
            precision: target.precision,
            packed: weight.is_some_and(is_packed),
            variant: cmd.kernel.dtype,
            params: table.params(cmd),
            scales: weight.and_then(|weight| program.tensors.scales(weight)),
            threads: target.threads,
        };
        kernel::link(cmd.kernel.op, &request)
    };
    table
        .cmds
        .iter()
        .map(|cmd| launch(cmd).context(label(table, cmd)))
        .collect()
}

/// Weights that are packed, and how.
fn pack_specs(program: &Program, launches: &[Vec<Launch>]) -> Result<PackSpecs> {
    let mut pack_specs = PackSpecs::new();
    for (table, launches) in program.tables.iter().zip(launches) {
        for (cmd, launch) in table.cmds.iter().zip(launches) {
            let (Some(pack), Some(index)) = (launch.pack, weight(table, cmd)) else {
                continue;
            };
            let slot = table.slot(cmd.slots()[WEIGHT]);
            tensor_bytes(program, slot)?;
            let spec = PackSpec {
                pack,
                rows: slot.rows as usize,
                cols: slot.cols as usize,
            };
            pack_specs.insert(index, spec);
        }
    }
    Ok(pack_specs)
}

/// Returns the label of a command.
pub(super) fn label<'a>(table: &'a Table, cmd: &DispatchCmd) -> &'a str {
    table
        .labels
        .get(cmd.label as usize)
        .map_or(cmd.kernel.op.name(), String::as_str)
}

/// Bytes of a tensor.
pub(super) fn tensor(program: &Program, buffer: BufferId) -> Option<&[u8]> {
    match buffer {
        BufferId::Weight(i, _) => Some(program.tensors.weight(i)),
        BufferId::Constant(i) => Some(program.tensors.constant(i)),
        _ => None,
    }
}

/// Bytes of a slot's tensor, cut to the size of the slot; empty if there are only its panels.
pub(super) fn tensor_bytes<'a>(program: &'a Program, slot: &SlotInfo) -> Result<Option<&'a [u8]>> {
    let Some(bytes) = tensor(program, slot.buffer) else {
        return Ok(None);
    };
    let expected = usize::try_from(slot.bytes()).ok();
    match expected.and_then(|n| bytes.get(..n)) {
        Some(bytes) => Ok(Some(bytes)),
        None if matches!(slot.buffer, BufferId::Weight(i, _) if is_stored(program, i)) => {
            Ok(Some(&[]))
        }
        None => bail!(
            Format,
            "tensor {} has {} bytes, expected {}",
            slot.name,
            bytes.len(),
            slot.bytes()
        ),
    }
}
