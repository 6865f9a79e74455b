//! Computes the memory of a program before it is linked.

use super::kernel::Launch;
use super::launches::{Target, in_place, is_stored};
use super::link::{ArenaLayout, Buffers};
use super::pack::PackSpecs;
use std::collections::BTreeMap;
use tabla_core::error::Result;
use tabla_core::exec::{Layout, Program};
use tabla_core::op::list::Op;

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
        let is_copied = |buffer| layout.buffers.contains_key(&buffer);
        let panels = |index| packed.get(&index).map(|spec| spec.pack);
        let reads = |op| !matches!(op, Op::Embed | Op::EmbedAdd);
        let all = in_place(program, launches, &panels, &is_copied, &reads);
        let mapped = all.into_iter().map(|index| {
            let scales = program.tensors.scales(index);
            let scales = scales.map_or(0, |s| s.bytes.len() + s.biases.len());
            let stored = program.tensors.in_layout(index, Layout::Panels);
            let codes = stored.unwrap_or(program.tensors.weight(index));
            (codes.len() + scales) as u64
        });
        Ok(Self {
            packed: packed.values().map(|spec| spec.bytes() as u64).sum(),
            mapped: mapped.sum(),
            buffers: layout.bytes as u64,
        })
    }
}
