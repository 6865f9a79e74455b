//! A table before planning: operations and slots, without kernels and shared memory.

use crate::dtype::DType;
use crate::error::Result;
use crate::op::list::Op;
use crate::op::table::{LayerEnd, SamplingStage, Slot, SlotInfo};

/// A command before planning.
#[derive(Clone, Debug)]
pub struct Node {
    /// The operation.
    pub op: Op,
    /// The storage type that chooses among its kernels.
    pub variant: Option<DType>,
    /// Operands, in the order of the list.
    pub slots: Vec<Slot>,
    /// The bytes of its `Params`.
    pub params: Vec<u8>,
    /// Units of work and tokens; `plan` divides them by a kernel's tile.
    pub work: [u32; 2],
    /// What it is for.
    pub label: String,
}

/// A table before planning.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Name of the table.
    pub name: &'static str,
    /// Tokens that go through at once.
    pub tokens: u32,
    /// The commands.
    pub nodes: Vec<Node>,
    /// The slots, each scratch slot with a place of its own.
    pub slots: Vec<SlotInfo>,
    /// Where each layer ends.
    pub layers: Vec<LayerEnd>,
    /// The first node of the head, which turns the last layer's output into logits.
    pub head: usize,
    /// The first node of each tail that picks tokens; a tail ends where the next one begins.
    pub tails: [Option<usize>; SamplingStage::COUNT],
}

impl Draft {
    /// Puts what `by` pushes in the place of each node; what points at a node points at the first that
    /// stands for it then, or behind it where none does.
    ///
    /// # Errors
    ///
    /// As of `by`.
    pub fn replace(
        &mut self,
        mut by: impl FnMut(Node, &mut Vec<Node>) -> Result<()>,
    ) -> Result<()> {
        let nodes = std::mem::take(&mut self.nodes);
        let mut starts = Vec::with_capacity(nodes.len() + 1);
        for node in nodes {
            starts.push(self.nodes.len());
            by(node, &mut self.nodes)?;
        }
        starts.push(self.nodes.len());
        for layer in &mut self.layers {
            layer.cmd = starts[layer.cmd];
        }
        self.head = starts[self.head];
        for tail in self.tails.iter_mut().flatten() {
            *tail = starts[*tail];
        }
        Ok(())
    }
}
