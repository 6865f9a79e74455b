//! Tables before planning: operations and slots, without kernels and buffer reuse.

use bytemuck::Pod;
use tabla_core::dtype::DType;
use tabla_core::error::Result;
use tabla_core::op::list::Op;
use tabla_core::op::params;
use tabla_core::op::table::{LayerEnd, Place, SamplingStage, Slot, SlotInfo};

/// Command before planning.
#[derive(Clone, Debug)]
pub struct Node {
    /// Operation.
    pub op: Op,
    /// Storage type that selects the kernel.
    pub dtype: Option<DType>,
    /// Operands, in the order of the list.
    pub slots: Vec<Slot>,
    /// Bytes of its `Params`.
    pub params: Vec<u8>,
    /// Work units and tokens; `plan` divides them by the tile size of the kernel.
    pub work: [u32; 2],
    /// Label: the name of its weight, or of its operation.
    pub label: String,
    /// Where it runs.
    pub place: Place,
}

impl Node {
    /// Creates a node without a weight.
    pub fn plain<P: Pod>(op: Op, slots: &[Slot], params: &P, work: [u32; 2]) -> Self {
        Self {
            op,
            dtype: None,
            slots: slots.to_vec(),
            params: bytemuck::bytes_of(params).to_vec(),
            work,
            label: op.name().to_string(),
            place: Place::Device,
        }
    }

    /// Creates the copy of `[tokens, dim]` from the first slot to the second; the last is the step state.
    pub fn transfer(slots: [Slot; 3], [tokens, dim]: [u32; 2]) -> Self {
        let params = params::transfer::Params { tokens, dim };
        Self::plain(Op::Transfer, &slots, &params, [dim, tokens])
    }
}

/// Table before planning.
#[derive(Clone, Debug)]
pub struct Graph {
    /// Name of the table.
    pub name: &'static str,
    /// Number of tokens per pass.
    pub tokens: u32,
    /// Commands in order of execution.
    pub nodes: Vec<Node>,
    /// Slots; each scratch slot has its own buffer.
    pub slots: Vec<SlotInfo>,
    /// Ends of the layers.
    pub layers: Vec<LayerEnd>,
    /// Index of the first node of the output projection.
    pub head: usize,
    /// Index of the first node of each sampling stage; a stage ends where the next one begins.
    pub stages: [Option<usize>; SamplingStage::COUNT],
}

impl Graph {
    /// Replaces each node by the nodes that `by` pushes. Indices of a node are updated to its first
    /// replacement, or to the following node if there is none.
    ///
    /// # Errors
    ///
    /// Errors of `by`.
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
        for stage in self.stages.iter_mut().flatten() {
            *stage = starts[*stage];
        }
        Ok(())
    }
}
