//! The builder: recipes call its methods line by line, and a draft of a table comes out.
//!
//! A draft names operations and slots; which kernel runs an operation, how wide, and where a
//! slot lives is decided later, in `plan`. One recipe serves every shape: `tokens` is the
//! builder's, not the recipe's. The first thing that does not fit is kept as the draft's error,
//! so that a recipe reads as a forward pass.

use super::list::Op;
use super::shaders;
use super::table::{Place, Slot, SlotInfo};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};

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
    /// Positions of the KV cache.
    pub context: u32,
    /// Storage of the KV cache.
    pub cache: DType,
}

/// Which rows get logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitRows {
    /// The last live row, into [`Place::Logits`].
    Last,
    /// Every row, into [`Place::Scores`].
    All,
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
}

/// The heads of an attention layer and how positions turn them.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Layer, for the cache.
    pub layer: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads; divides `heads`.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Elements of a head that are rotated.
    pub rope_dim: u32,
    /// Whether pairs are `(i, i + rope_dim / 2)` rather than `(2 i, 2 i + 1)`.
    pub half_split: bool,
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
    /// The first node of the head, which turns the last layer's output into logits.
    pub head: usize,
    /// The first node of the tail that picks a token.
    pub pick: usize,
}

/// Collects the lines of a recipe into a [`Draft`].
#[expect(missing_debug_implementations, reason = "it borrows a trait object")]
pub struct Builder<'a> {
    weights: &'a dyn Weights,
    shape: Shape,
    draft: Draft,
    state: Slot,
    scratch: u32,
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
            head: 0,
            pick: 0,
        };
        let mut b = Self {
            weights,
            shape,
            draft,
            state: Slot(0),
            scratch: 0,
            error: None,
        };
        // Words of the state's head, then two words (token, position) for every row.
        let words = size_of::<shaders::State>() / size_of::<u32>();
        let words = u32::try_from(words).expect("a small struct") + 2 * shape.tokens;
        b.state = b.place("state", DType::U32, [1, words], Place::State);
        b
    }

    /// The draft, or the first thing in the recipe that does not fit the tensors.
    ///
    /// # Errors
    ///
    /// A tensor that is missing or has another shape.
    pub fn finish(mut self) -> Result<Draft> {
        if self.draft.pick == 0 {
            self.draft.pick = self.draft.nodes.len();
        }
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.draft),
        }
    }

    /// The tensor `name`, which must be `[rows, cols]`.
    pub fn weight(&mut self, name: &str, rows: u32, cols: u32) -> W {
        let found = self.weights.find(name);
        let spelling = self.weights.spelling(name);
        match found {
            None => self.fail(format!("tensor {spelling} is missing")),
            Some(w) if [w.rows, w.cols] != [rows, cols] => self.fail(format!(
                "tensor {spelling} is [{}, {}], this architecture wants [{rows}, {cols}]",
                w.rows, w.cols
            )),
            Some(_) => {}
        }
        let (index, dtype) = found.map_or((0, DType::F32), |w| (w.index, w.dtype));
        let slot = self.place(name, dtype, [rows, cols], Place::Weight(index));
        W {
            slot,
            dtype,
            rows,
            cols,
        }
    }

    /// A vector of the model, which must be f32.
    pub fn vector(&mut self, name: &str, dim: u32) -> W {
        let w = self.weight(name, 1, dim);
        if w.dtype != DType::F32 {
            self.fail(format!(
                "tensor {name} is {}, a vector must be f32",
                w.dtype
            ));
        }
        w
    }

    /// Whether the model has this tensor.
    pub fn has(&self, name: &str) -> bool {
        self.weights.find(name).is_some()
    }

    /// An activation that comes from outside the table: for tests of one operation.
    pub fn input(&mut self, name: &str, cols: u32) -> X {
        self.scratch(name, self.shape.tokens, cols)
    }

    /// `y[t, :] = W[token[t], :]`, `[tokens, dim]`.
    pub fn embed(&mut self, w: W) -> X {
        let tokens = self.shape.tokens;
        let y = self.scratch("h", tokens, w.cols);
        let params = shaders::embed::Params {
            tokens,
            rows: w.rows,
            cols: w.cols,
        };
        let slots = [w.slot, y.slot, self.state];
        self.emit(
            (Op::Embed, Some(w.dtype)),
            &slots,
            &params,
            [w.cols, tokens],
        );
        y
    }

    /// Each row of `x` over its root mean square, times `w`. Where `w` is shorter than a row,
    /// the row is `cols / dim` groups (heads) that are normed apart.
    pub fn rms_norm(&mut self, x: X, w: W, eps: f32) -> X {
        let y = self.scratch("n", x.tokens, x.cols);
        let groups = x.cols / w.cols.max(1);
        let params = shaders::rms_norm::Params {
            tokens: x.tokens,
            groups,
            dim: w.cols,
            eps,
        };
        let slots = [x.slot, w.slot, y.slot, self.state];
        self.emit((Op::RmsNorm, None), &slots, &params, [groups, x.tokens]);
        y
    }

    /// `W x` for every token, `[tokens, rows]`.
    pub fn mat(&mut self, name: &str, w: W, x: X) -> X {
        let y = self.scratch(name, x.tokens, w.rows);
        self.mat_into(w, x, y.slot, [Op::Gemv, Op::Gemm]);
        y
    }

    /// `y += W x` for every token.
    pub fn mat_add(&mut self, w: W, x: X, y: X) {
        self.mat_into(w, x, y.slot, [Op::GemvAdd, Op::GemmAdd]);
    }

    /// `y += b` for every token.
    pub fn add_bias(&mut self, b: W, y: X) {
        let params = shaders::add_bias::Params {
            tokens: y.tokens,
            dim: y.cols,
        };
        let slots = [b.slot, y.slot, self.state];
        self.emit((Op::AddBias, None), &slots, &params, [y.cols, y.tokens]);
    }

    /// Turns `q` by its position, stores the turned `k` and `v` in the layer's cache.
    pub fn rope_kv(&mut self, at: Heads, q: X, k: X, v: X) {
        let freqs = self.place(
            "rope_freqs",
            DType::F32,
            [1, at.rope_dim / 2],
            Place::Constant(0),
        );
        let [keys, values] = self.cache(at);
        let params = shaders::rope_kv::Params {
            tokens: q.tokens,
            heads: at.heads,
            kv_heads: at.kv_heads,
            head_dim: at.head_dim,
            rope_dim: at.rope_dim,
            half_split: u32::from(at.half_split),
        };
        let slots = [k.slot, v.slot, freqs, q.slot, keys, values, self.state];
        let work = [at.heads + at.kv_heads, q.tokens];
        self.emit((Op::RopeKv, Some(self.shape.cache)), &slots, &params, work);
    }

    /// Attention of `q` over all positions up to its own, `[tokens, heads head_dim]`.
    pub fn attention(&mut self, at: Heads, q: X, scale: f32) -> X {
        let y = self.scratch("a", q.tokens, q.cols);
        let [keys, values] = self.cache(at);
        let params = shaders::attention::Params {
            tokens: q.tokens,
            heads: at.heads,
            kv_heads: at.kv_heads,
            head_dim: at.head_dim,
            scale,
        };
        let slots = [q.slot, keys, values, y.slot, self.state];
        let work = [at.heads, q.tokens];
        self.emit(
            (Op::Attention, Some(self.shape.cache)),
            &slots,
            &params,
            work,
        );
        y
    }

    /// `silu(gate) * up`, `[tokens, ffn]`.
    pub fn swiglu(&mut self, gate: X, up: X) -> X {
        let y = self.scratch("f", gate.tokens, gate.cols);
        let params = shaders::swiglu::Params {
            tokens: gate.tokens,
            dim: gate.cols,
        };
        let slots = [gate.slot, up.slot, y.slot, self.state];
        self.emit(
            (Op::Swiglu, None),
            &slots,
            &params,
            [gate.cols, gate.tokens],
        );
        y
    }

    /// The rows of `h` that get logits: the last live one, or all of them.
    pub fn logit_rows(&mut self, h: X) -> X {
        self.draft.head = self.draft.nodes.len();
        if h.tokens == 1 || self.shape.logits == LogitRows::All {
            return h;
        }
        let y = self.scratch("last", 1, h.cols);
        let params = shaders::last_row::Params {
            tokens: h.tokens,
            dim: h.cols,
        };
        self.emit(
            (Op::LastRow, None),
            &[h.slot, y.slot, self.state],
            &params,
            [h.cols, 1],
        );
        y
    }

    /// The logits `W x`, where the host and the picking operations find them.
    pub fn logits(&mut self, w: W, x: X) {
        let slot = match self.shape.logits {
            LogitRows::Last => self.place("logits", DType::F32, [1, w.rows], Place::Logits),
            LogitRows::All => self.place("scores", DType::F32, [x.tokens, w.rows], Place::Scores),
        };
        self.mat_into(w, x, slot, [Op::Gemv, Op::Gemm]);
    }

    /// The tail of a greedy table: the largest logit.
    pub fn pick_greedy(&mut self, vocab: u32) {
        self.draft.pick = self.draft.nodes.len();
        let logits = self.place("logits", DType::F32, [1, vocab], Place::Logits);
        self.argmax(logits, vocab);
    }

    /// The tail of a sampled table: the largest of what the filters leave, with Gumbel noise,
    /// which is a draw from the softmax (Gumbel-max).
    pub fn pick_sampled(&mut self, vocab: u32) {
        self.draft.pick = self.draft.nodes.len();
        let logits = self.place("logits", DType::F32, [1, vocab], Place::Logits);
        let history = self.history();
        let y = self.scratch("s", 1, vocab).slot;
        let one = [1, 1];
        let params = shaders::penalize::Params { vocab };
        self.emit(
            (Op::Penalize, None),
            &[logits, history, y, self.state],
            &params,
            [vocab, 1],
        );
        let slots = [y, self.state];
        self.emit(
            (Op::TopK, None),
            &slots,
            &shaders::top_k::Params { vocab },
            one,
        );
        self.emit(
            (Op::TopP, None),
            &slots,
            &shaders::top_p::Params { vocab },
            one,
        );
        self.emit(
            (Op::MinP, None),
            &slots,
            &shaders::min_p::Params { vocab },
            one,
        );
        self.emit(
            (Op::Gumbel, None),
            &slots,
            &shaders::gumbel::Params { vocab },
            [vocab, 1],
        );
        self.argmax(y, vocab);
    }

    fn argmax(&mut self, x: Slot, vocab: u32) {
        let history = self.history();
        let params = shaders::argmax::Params { vocab };
        self.emit(
            (Op::Argmax, None),
            &[x, history, self.state],
            &params,
            [1, 1],
        );
    }

    /// A mat-vec for one token, a mat-mat for more.
    fn mat_into(&mut self, w: W, x: X, y: Slot, [one, many]: [Op; 2]) {
        if w.cols != x.cols {
            self.fail(format!(
                "a matrix of {} columns meets rows of {}",
                w.cols, x.cols
            ));
        }
        let slots = [w.slot, x.slot, y, self.state];
        let (rows, cols, tokens) = (w.rows, w.cols, x.tokens);
        if tokens == 1 {
            let params = shaders::gemv::Params { rows, cols };
            self.emit((one, Some(w.dtype)), &slots, &params, [rows, 1]);
        } else {
            let params = shaders::gemm::Params { tokens, rows, cols };
            self.emit((many, Some(w.dtype)), &slots, &params, [rows, tokens]);
        }
    }

    /// The key and value cache of a layer, `[context, kv_heads head_dim]`.
    fn cache(&mut self, at: Heads) -> [Slot; 2] {
        let shape = [self.shape.context, at.kv_heads * at.head_dim];
        let layer = at.layer;
        let dtype = self.shape.cache;
        [
            self.place(&format!("k.{layer}"), dtype, shape, Place::Keys(layer)),
            self.place(&format!("v.{layer}"), dtype, shape, Place::Values(layer)),
        ]
    }

    fn history(&mut self) -> Slot {
        self.place(
            "history",
            DType::U32,
            [1, self.shape.context],
            Place::History,
        )
    }

    /// A new slot of working memory.
    fn scratch(&mut self, name: &str, tokens: u32, cols: u32) -> X {
        let place = Place::Scratch(self.scratch);
        self.scratch += 1;
        let slot = self.push(SlotInfo {
            name: name.to_string(),
            dtype: DType::F32,
            rows: tokens,
            cols,
            place,
        });
        X { slot, tokens, cols }
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
        let weight = infos.find(|s| matches!(s.place, Place::Weight(_)));
        let label = weight.map_or_else(|| op.name().to_string(), |s| s.name.clone());
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
