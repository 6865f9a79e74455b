//! The builder, and the helpers that its other methods share.

use super::graph::{Graph, Node};
use super::operand::{Quantized, W, X};
use super::point_list::{Hooks, Points};
use super::shape::{Shape, Weights};
use tabla_core::dtype::DType;
use tabla_core::error::{Error, ErrorKind, Result};
use tabla_core::op::list::{Access, Op};
use tabla_core::op::params;
use tabla_core::op::table::{BufferId, LayerEnd, Place, SamplingStage, Slot, SlotInfo};

/// Builds a [`Graph`] from the operations of a forward pass.
#[expect(missing_debug_implementations, reason = "it borrows a trait object")]
pub struct Builder<'a> {
    weights: &'a dyn Weights,
    pub(super) shape: Shape,
    pub(super) graph: Graph,
    pub(super) state: Slot,
    scratch: u32,
    pub(super) quantized: Option<Quantized>,
    pub(super) hooks: Option<Hooks<'a>>,
    pub(super) points: Points,
    /// Residual stream after the last layer.
    pub(super) residual: Option<X>,
    /// Maxima of the parts of the logits that samplers filter, if they are known.
    pub(super) maxima: Option<Slot>,
    error: Option<Error>,
}

impl<'a> Builder<'a> {
    /// Creates a builder for a table shape and the tensors of a model.
    pub fn new(weights: &'a dyn Weights, shape: Shape) -> Self {
        let graph = Graph {
            name: shape.name,
            tokens: shape.tokens,
            nodes: Vec::new(),
            slots: Vec::new(),
            layers: Vec::new(),
            head: 0,
            stages: [None; SamplingStage::COUNT],
        };
        let mut b = Self {
            weights,
            shape,
            graph,
            state: Slot(0),
            scratch: 0,
            quantized: None,
            hooks: None,
            points: Points::default(),
            residual: None,
            maxima: None,
            error: None,
        };
        let words =
            |bytes: usize| u32::try_from(bytes / size_of::<u32>()).expect("the struct is small");
        let [head, row] = [size_of::<params::State>(), size_of::<params::Row>()].map(words);
        let words = head + row * shape.tokens;
        b.state = b.buffer_slot("state", DType::U32, [1, words], BufferId::State);
        b
    }

    /// Returns the graph.
    ///
    /// # Errors
    ///
    /// The first error of any method: a missing tensor or a shape mismatch.
    pub fn finish(self) -> Result<Graph> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.graph),
        }
    }

    /// Returns the commands after the last layer, which compute [`BufferId::LensLogits`] from
    /// [`BufferId::Residual`] of these hooks.
    ///
    /// # Errors
    ///
    /// Those of [`Builder::finish`].
    pub fn finish_head(self, hooks: u32) -> Result<Graph> {
        let residual = self.residual;
        let mut graph = self.finish()?;
        graph.nodes.drain(..graph.head);
        graph.head = 0;
        graph.layers.clear();
        if let Some(h) = residual {
            graph.slots[usize::from(h.slot.0)].buffer = BufferId::Residual(hooks);
        }
        for slot in &mut graph.slots {
            if matches!(slot.buffer, BufferId::Scores | BufferId::Logits) {
                slot.buffer = BufferId::LensLogits(hooks);
            }
        }
        Ok(graph)
    }

    /// Returns the tensor `name`; its shape must be `[rows, cols]`.
    pub fn weight(&mut self, name: &str, rows: u32, cols: u32) -> W {
        let info = self.weights.find(name);
        let weights = self.weights;
        let spelling = || weights.spelling(name);
        match info {
            None => self.fail(format!("tensor {} is missing", spelling())),
            Some(w) if [w.rows, w.cols] != [rows, cols] => self.fail(format!(
                "tensor {}: expected shape [{rows}, {cols}], got [{}, {}]",
                spelling(),
                w.rows,
                w.cols
            )),
            Some(_) => {}
        }
        let (index, dtype) = info.map_or((0, DType::F32), |w| (w.index, w.dtype));
        let scale = info.and_then(|w| w.scale);
        let slot = self.buffer_slot(name, dtype, [rows, cols], BufferId::Weight(index, 0));
        W {
            slot,
            dtype,
            rows,
            cols,
            scale,
        }
    }

    /// Returns the vector `name`; its type must be f32.
    pub fn vector(&mut self, name: &str, dim: u32) -> W {
        let w = self.weight(name, 1, dim);
        if w.dtype != DType::F32 {
            self.fail(format!(
                "tensor {}: expected an f32 vector, got {}",
                self.weights.spelling(name),
                w.dtype
            ));
        }
        w
    }

    /// Returns whether the model has the tensor `name`.
    pub fn has(&self, name: &str) -> bool {
        self.weights.find(name).is_some()
    }

    /// Returns the number of rows of the tensor `name`; 0 if it is missing.
    pub fn rows_of(&self, name: &str) -> u32 {
        self.weights.find(name).map_or(0, |w| w.rows)
    }

    /// Marks the end of a layer with output `h`, which is the point `blk.N`.
    pub fn end_of_layer(&mut self, h: X) {
        let name = format!("blk.{}", self.graph.layers.len());
        self.point(&name, h);
        self.graph.layers.push(LayerEnd {
            cmd: self.graph.nodes.len(),
            slot: h.slot,
        });
    }

    /// Creates an activation that the caller provides, for tests of single operations.
    pub fn input(&mut self, name: &str, cols: u32) -> X {
        self.scratch(name, self.shape.tokens, cols)
    }

    /// Creates an f32 scratch slot.
    pub(super) fn scratch(&mut self, name: &str, tokens: u32, cols: u32) -> X {
        let slot = self.scratch_of(DType::F32, name, [tokens, cols]);
        X { slot, tokens, cols }
    }

    /// Creates a scratch slot of any type.
    pub(super) fn scratch_of(&mut self, dtype: DType, name: &str, [rows, cols]: [u32; 2]) -> Slot {
        let buffer = BufferId::Scratch(self.scratch);
        self.scratch += 1;
        self.push(SlotInfo {
            name: name.to_string(),
            dtype,
            rows,
            cols,
            buffer,
        })
    }

    /// Returns the slot of a buffer; creates it on first use.
    pub(super) fn buffer_slot(
        &mut self,
        name: &str,
        dtype: DType,
        [rows, cols]: [u32; 2],
        buffer: BufferId,
    ) -> Slot {
        if let Some(i) = self.graph.slots.iter().position(|s| s.buffer == buffer) {
            return Slot(u16::try_from(i).expect("push checks the number of slots"));
        }
        self.push(SlotInfo {
            name: name.to_string(),
            dtype,
            rows,
            cols,
            buffer,
        })
    }

    fn push(&mut self, info: SlotInfo) -> Slot {
        let Ok(index) = u16::try_from(self.graph.slots.len()) else {
            self.fail(format!("table exceeds the limit of {} slots", u16::MAX));
            return Slot(0);
        };
        self.graph.slots.push(info);
        Slot(index)
    }

    pub(super) fn emit<P: bytemuck::Pod>(
        &mut self,
        op: Op,
        dtype: Option<DType>,
        slots: &[Slot],
        params: &P,
        work: [u32; 2],
    ) {
        debug_assert_eq!(slots.len(), op.operands().len(), "{}", op.name());
        let mut infos = slots.iter().map(|s| &self.graph.slots[usize::from(s.0)]);
        let weight = infos.find(|s| matches!(s.buffer, BufferId::Weight(..)));
        let label = weight.map_or_else(|| op.name().to_string(), |s| s.name.clone());
        let mut written = slots.iter().zip(op.operands());
        if written
            .any(|(s, o)| o.access != Access::Read && self.quantized.is_some_and(|q| q.x == *s))
        {
            self.quantized = None;
        }
        self.graph.nodes.push(Node {
            op,
            dtype,
            slots: slots.to_vec(),
            params: bytemuck::bytes_of(params).to_vec(),
            work,
            label,
            place: Place::Device,
        });
    }

    pub(super) fn fail(&mut self, message: String) {
        self.note_error(Err(Error::new(ErrorKind::Format, message)));
    }

    /// Fails because of an option of the user.
    pub(super) fn fail_argument(&mut self, message: String) {
        self.note_error(Err(Error::new(ErrorKind::Argument, message)));
    }

    /// Keeps the first error.
    pub(super) fn note_error(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
    }
}
