//! The builder: recipes call its methods line by line, and a draft of a table comes out.
//!
//! A draft names operations and slots; which kernel runs an operation, how wide, and where a
//! slot lives is decided later, in `plan`. One recipe serves every shape: `tokens` is the
//! builder's, not the recipe's. The first thing that does not fit is kept as the draft's error,
//! so that a recipe reads as a forward pass.

mod attention;
mod elementwise;
mod ends;
mod experts;
mod product;
mod ternary;

use super::list::{Access, Op};
use super::pages::Pages;
use super::params;
use super::table::{LayerEnd, Place, Slot, SlotInfo, Tail};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
pub use attention::{Heads, Rope};
pub use elementwise::Activation;
pub use ends::LogitMap;
pub use experts::Routes;
use ternary::Quantised;

/// Tokens that are no prompt but one of each of several sequences: their products stay as near to
/// those of one token as they can, so that a sequence picks the same tokens in company as alone.
pub const FEW_TOKENS: u32 = 32;

/// What the builder asks of a model's tensors.
pub trait Weights {
    /// The tensor of this name.
    fn find(&self, name: &str) -> Option<WeightInfo>;

    /// The name that the model's files have for it, in messages.
    fn spelling(&self, name: &str) -> String {
        name.to_string()
    }
}

/// A tensor as the builder sees it.
#[derive(Clone, Copy, Debug)]
pub struct WeightInfo {
    /// Its place among the model's tensors.
    pub index: u32,
    /// How it is stored.
    pub dtype: DType,
    /// Rows: outputs.
    pub rows: u32,
    /// Elements of a row: inputs.
    pub cols: u32,
    /// The one scale of a matrix of ternary digits, where its activations go to int8 first.
    pub scale: Option<f32>,
}

/// What a table is built for.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Name of the table.
    pub name: &'static str,
    /// Tokens that go through at once.
    pub tokens: u32,
    /// Which rows get logits.
    pub logits: LogitRows,
    /// Sequences that the KV cache holds.
    pub sequences: u32,
    /// Positions of each.
    pub context: u32,
    /// How the KV cache lies in pages.
    pub pages: Pages,
    /// Storage of the KV cache.
    pub cache: DType,
    /// Positions that attention of few tokens takes at a time; 0: all.
    pub part: u32,
}

/// Which rows get logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitRows {
    /// The last live row, into [`Place::Logits`].
    Last,
    /// Every row, into [`Place::Scores`].
    All,
    /// None: the table ends with the normed rows of the last layer, in [`Place::Hidden`].
    None,
}

/// An activation: a slot and its shape per token.
#[derive(Clone, Copy, Debug)]
pub struct X {
    slot: Slot,
    tokens: u32,
    cols: u32,
}

impl X {
    /// Elements per token.
    pub fn cols(self) -> u32 {
        self.cols
    }
}

/// A weight that a recipe asked for, `[rows, cols]`.
#[derive(Clone, Copy, Debug)]
pub struct W {
    slot: Slot,
    dtype: DType,
    rows: u32,
    cols: u32,
    scale: Option<f32>,
}

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
    pub tails: [Option<usize>; Tail::COUNT],
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

/// Collects the lines of a recipe into a [`Draft`].
#[expect(missing_debug_implementations, reason = "it borrows a trait object")]
pub struct Builder<'a> {
    weights: &'a dyn Weights,
    shape: Shape,
    draft: Draft,
    state: Slot,
    scratch: u32,
    quantised: Option<Quantised>,
    error: Option<Error>,
}

impl<'a> Builder<'a> {
    /// A builder for this shape over these tensors.
    pub fn new(weights: &'a dyn Weights, shape: Shape) -> Self {
        let draft = Draft {
            name: shape.name,
            tokens: shape.tokens,
            nodes: Vec::new(),
            slots: Vec::new(),
            layers: Vec::new(),
            head: 0,
            tails: [None; Tail::COUNT],
        };
        let mut b = Self {
            weights,
            shape,
            draft,
            state: Slot(0),
            scratch: 0,
            quantised: None,
            error: None,
        };
        let words = |bytes: usize| u32::try_from(bytes / size_of::<u32>()).expect("a small struct");
        let [head, row] = [size_of::<params::State>(), size_of::<params::Row>()].map(words);
        let words = head + row * shape.tokens;
        b.state = b.place("state", DType::U32, [1, words], Place::State);
        b
    }

    /// The draft, or the first thing in the recipe that does not fit the tensors.
    ///
    /// # Errors
    ///
    /// A tensor that is missing or has another shape.
    pub fn finish(self) -> Result<Draft> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.draft),
        }
    }

    /// The tensor `name`, which must be `[rows, cols]`.
    pub fn weight(&mut self, name: &str, rows: u32, cols: u32) -> W {
        let found = self.weights.find(name);
        let weights = self.weights;
        let spelling = || weights.spelling(name);
        match found {
            None => self.fail(format!("tensor {} is missing", spelling())),
            Some(w) if [w.rows, w.cols] != [rows, cols] => self.fail(format!(
                "tensor {} is [{}, {}], this architecture wants [{rows}, {cols}]",
                spelling(),
                w.rows,
                w.cols
            )),
            Some(_) => {}
        }
        let (index, dtype) = found.map_or((0, DType::F32), |w| (w.index, w.dtype));
        let scale = found.and_then(|w| w.scale);
        let slot = self.place(name, dtype, [rows, cols], Place::Weight(index, 0));
        W {
            slot,
            dtype,
            rows,
            cols,
            scale,
        }
    }

    /// A vector of the model, which must be f32.
    pub fn vector(&mut self, name: &str, dim: u32) -> W {
        let w = self.weight(name, 1, dim);
        if w.dtype != DType::F32 {
            self.fail(format!(
                "tensor {} is {}, a vector must be f32",
                self.weights.spelling(name),
                w.dtype
            ));
        }
        w
    }

    /// Whether the model has this tensor.
    pub fn has(&self, name: &str) -> bool {
        self.weights.find(name).is_some()
    }

    /// Rows of this tensor, where any number will do; 0 where the model lacks it.
    pub fn rows_of(&self, name: &str) -> u32 {
        self.weights.find(name).map_or(0, |w| w.rows)
    }

    /// Says that a layer ends here, with `h` as its result.
    pub fn end_of_layer(&mut self, h: X) {
        self.draft.layers.push(LayerEnd {
            cmd: self.draft.nodes.len(),
            slot: h.slot,
        });
    }

    /// An activation that comes from outside the table: for tests of one operation.
    pub fn input(&mut self, name: &str, cols: u32) -> X {
        self.scratch(name, self.shape.tokens, cols)
    }

    /// A new slot of working memory.
    fn scratch(&mut self, name: &str, tokens: u32, cols: u32) -> X {
        let slot = self.scratch_of(DType::F32, name, [tokens, cols]);
        X { slot, tokens, cols }
    }

    /// A new slot of working memory for numbers of any type.
    fn scratch_of(&mut self, dtype: DType, name: &str, [rows, cols]: [u32; 2]) -> Slot {
        let place = Place::Scratch(self.scratch);
        self.scratch += 1;
        self.push(SlotInfo {
            name: name.to_string(),
            dtype,
            rows,
            cols,
            place,
        })
    }

    /// The slot of a place that stands for itself.
    fn place(&mut self, name: &str, dtype: DType, [rows, cols]: [u32; 2], place: Place) -> Slot {
        if let Some(i) = self.draft.slots.iter().position(|s| s.place == place) {
            return Slot(u16::try_from(i).expect("push checks the number of slots"));
        }
        self.push(SlotInfo {
            name: name.to_string(),
            dtype,
            rows,
            cols,
            place,
        })
    }

    fn push(&mut self, info: SlotInfo) -> Slot {
        let Ok(index) = u16::try_from(self.draft.slots.len()) else {
            self.fail(format!("more than {} slots", u16::MAX));
            return Slot(0);
        };
        self.draft.slots.push(info);
        Slot(index)
    }

    fn emit<P: bytemuck::Pod>(
        &mut self,
        (op, variant): (Op, Option<DType>),
        slots: &[Slot],
        params: &P,
        work: [u32; 2],
    ) {
        debug_assert_eq!(slots.len(), op.operands().len(), "{}", op.name());
        let mut infos = slots.iter().map(|s| &self.draft.slots[usize::from(s.0)]);
        let weight = infos.find(|s| matches!(s.place, Place::Weight(..)));
        let label = weight.map_or_else(|| op.name().to_string(), |s| s.name.clone());
        let mut written = slots.iter().zip(op.operands());
        if written
            .any(|(s, o)| o.access != Access::Read && self.quantised.is_some_and(|q| q.x == *s))
        {
            self.quantised = None;
        }
        self.draft.nodes.push(Node {
            op,
            variant,
            slots: slots.to_vec(),
            params: bytemuck::bytes_of(params).to_vec(),
            work,
            label,
        });
    }

    fn fail(&mut self, message: String) {
        self.error
            .get_or_insert_with(|| Error::new(ErrorKind::Format, message));
    }
}
