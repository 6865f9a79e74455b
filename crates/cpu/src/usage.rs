//! Computes the memory of a program before it is linked.

use super::kernel::Launch;
use super::launches::{Target, is_stored};
use super::link::{ArenaLayout, Buffers};
use super::pack::{PackSpec, PackSpecs};
use std::collections::BTreeMap;
use tabla_core::error::Result;
use tabla_core::exec::{Layout, Program};
use tabla_core::op::list::Op;
use tabla_core::op::operands::WEIGHT;
use tabla_core::op::table::BufferId;

/// Memory of a linked program in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryUsage {
    /// Packed weights.
    pub packed: u64,
    /// Weights that are read in place, with their scales, also in panels of a compiled model; except embeddings, of
    /// which a token reads one row.
    pub mapped: u64,
    /// All other buffers: KV cache, activations, and vectors that are copied.
    pub buffers: u64,
}

impl MemoryUsage {
    /// Returns the memory of a program that is linked with these launches.
    pub(super) fn of(
        program: &Program,
        target: Target,
        (launches, packed): &(Vec<Vec<Launch>>, PackSpecs),
    ) -> Result<Self> {
        let none = Buffers::none();
        let mut packed = packed.clone();
        packed.retain(|weight, _| !is_stored(program, *weight));
        let shared = BTreeMap::new();
        let layout = ArenaLayout::new(program, launches, target.threads, &none, &shared)?;
        let mut mapped = BTreeMap::new();
        for (table, launches) in program.tables.iter().zip(launches) {
            for (cmd, launch) in table.cmds.iter().zip(launches) {
                if matches!(cmd.kernel.op, Op::Embed | Op::EmbedAdd) {
                    continue;
                }
                for (operand, slot) in cmd.slots().iter().enumerate() {
                    let buffer = table.slot(*slot).buffer;
                    let is_packed = operand == WEIGHT && launch.pack.is_some();
                    if let BufferId::Weight(index, _) = buffer
                        && !(is_packed && packed.contains_key(&index))
                        && !layout.buffers.contains_key(&buffer)
                    {
                        let scales = program.tensors.scales(index);
                        let scales = scales.map_or(0, |s| s.bytes.len() + s.biases.len());
                        let stored = program.tensors.in_layout(index, Layout::Panels);
                        let codes = stored.unwrap_or(program.tensors.weight(index));
                        let bytes = codes.len() + scales;
                        mapped.insert(index, bytes as u64);
                    }
                }
            }
        }
        Ok(Self {
            packed: packed.values().map(PackSpec::bytes).sum::<usize>() as u64,
            mapped: mapped.values().sum(),
            buffers: layout.bytes as u64,
        })
    }
}
