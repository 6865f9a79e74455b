//! Logits and sampling stages.

use super::base::Builder;
use super::operand::{W, X};
use super::shape::LogitRows;
use bytemuck::{Pod, Zeroable};
use tabla_core::dtype::DType;
use tabla_core::op::list::{Access, Op};
use tabla_core::op::params;
use tabla_core::op::sampler::SamplerKind;
use tabla_core::op::table::{BIASES_MAX, BufferId, SamplingStage, Slot};

/// Number of elements per part of a divided argmax.
const ARGMAX_PART: u32 = 4096;

/// Minimum number of elements of a part of a row. Filters read the maxima of parts.
const PART_MIN: u32 = 64;
/// Maximum number of parts of a row, as in `shaders/lib/live.wgsl`.
const PARTS_MAX: u32 = 2048;

/// Parameters of operations on rows of logits.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Rows {
    tokens: u32,
    vocab: u32,
}

/// Parameters of filters of logits: rows in parts.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RowsOfParts {
    tokens: u32,
    vocab: u32,
    part: u32,
    parts: u32,
}

impl RowsOfParts {
    fn of(x: X) -> Self {
        let part = x.cols.div_ceil(PARTS_MAX).next_power_of_two();
        let part = part.max(PART_MIN);
        Self {
            tokens: x.tokens,
            vocab: x.cols,
            part,
            parts: x.cols.div_ceil(part),
        }
    }
}

/// Transformation of logits before sampling: `cap tanh(scale (x + bias) / cap)`.
#[derive(Clone, Copy, Debug)]
pub struct LogitMap {
    /// Bias, `[vocab]`.
    pub bias: Option<W>,
    /// Factor.
    pub scale: f32,
    /// Softcap; 0 disables it.
    pub cap: f32,
}

/// Returns the identity.
impl Default for LogitMap {
    fn default() -> Self {
        Self {
            bias: None,
            scale: 1.0,
            cap: 0.0,
        }
    }
}

impl Builder<'_> {
    /// Returns the rows of `h` that logits are computed for: the last active one, or all.
    pub fn logit_rows(&mut self, h: X) -> X {
        self.graph.head = self.graph.nodes.len();
        self.residual = Some(h);
        if h.tokens == 1 || self.shape.logits != LogitRows::Last {
            return h;
        }
        let y = self.scratch("last", 1, h.cols);
        let params = params::last_row::Params {
            tokens: h.tokens,
            dim: h.cols,
        };
        self.emit(
            Op::LastRow,
            None,
            &[h.slot, y.slot, self.state],
            &params,
            [h.cols, 1],
        );
        y
    }

    /// Returns whether the output of the table is rows rather than logits for sampling.
    pub fn ends_with_rows(&self) -> bool {
        self.shape.logits == LogitRows::None
    }

    /// Makes `x` the output of a table that ends with rows, in [`BufferId::Hidden`].
    pub fn output(&mut self, x: X) {
        self.graph.slots[usize::from(x.slot.0)].buffer = BufferId::Hidden;
    }

    /// Emits the logits `W x`, transformed by `map`, into the buffer that the host and the sampling
    /// stages read.
    pub fn logits(&mut self, w: W, x: X, map: LogitMap) {
        let logits = self.logits_slot(w.rows);
        self.mat_into(w, x, logits.slot, [Op::Gemv, Op::Gemm, Op::BitMat]);
        if let Some(bias) = map.bias {
            self.add_bias(bias, logits);
        }
        if map.scale != 1.0 {
            self.scale(logits, map.scale);
        }
        if map.cap != 0.0 {
            self.soft_cap(logits, map.cap);
        }
    }

    /// Returns the slot of the logits of the last row, or of all rows.
    pub(super) fn logits_slot(&mut self, vocab: u32) -> X {
        let (name, tokens, buffer) = match self.shape.logits {
            LogitRows::Last => ("logits", 1, BufferId::Logits),
            // Not reached by tables without logits.
            LogitRows::All | LogitRows::None => ("scores", self.shape.tokens, BufferId::Scores),
        };
        X {
            slot: self.buffer_slot(name, DType::F32, [tokens, vocab], buffer),
            tokens,
            cols: vocab,
        }
    }

    /// Emits all sampling stages with this sampler chain, for all rows with logits.
    pub fn sampling_stages(&mut self, vocab: u32, samplers: &[SamplerKind]) {
        self.greedy_stage(vocab);
        self.sampled_stage(vocab, samplers);
        self.full_stage(vocab, samplers);
    }

    /// Emits the greedy stage: the largest logit.
    pub fn greedy_stage(&mut self, vocab: u32) {
        self.begin_stage(SamplingStage::Greedy);
        let logits = self.logits_slot(vocab);
        let ids = self.argmax(logits);
        self.advance(ids, logits.tokens);
    }

    /// Emits the sampled stage: the common samplers, then a draw from the softmax by adding Gumbel
    /// noise and taking the maximum (Gumbel-max).
    pub fn sampled_stage(&mut self, vocab: u32, samplers: &[SamplerKind]) {
        self.begin_stage(SamplingStage::Sampled);
        let logits = self.logits_slot(vocab);
        let filtered = self.apply_samplers(logits, samplers, SamplingStage::Sampled);
        let filtered = self.scratch_copy(filtered);
        self.in_place(Op::Gumbel, filtered);
        let ids = self.argmax(filtered);
        self.advance(ids, logits.tokens);
    }

    /// Emits the full stage: all samplers, and log-probabilities.
    pub fn full_stage(&mut self, vocab: u32, samplers: &[SamplerKind]) {
        self.begin_stage(SamplingStage::Full);
        let logits = self.logits_slot(vocab);
        let filtered = self.bias(logits);
        self.mask(filtered);
        let filtered = self.apply_samplers(filtered, samplers, SamplingStage::Full);
        let maxima = self.filter(Op::Mirostat, filtered);
        // Mirostat needs the logits without noise.
        let noisy = self.columns(filtered, 0, vocab);
        self.in_place(Op::Gumbel, noisy);
        let ids = self.argmax(noisy);
        let params = RowsOfParts::of(filtered);
        let slots = [filtered.slot, maxima, ids, self.samplers(), self.state];
        self.emit(Op::MirostatMu, None, &slots, &params, [1, logits.tokens]);
        self.logprobs_of(logits, ids);
        self.advance(ids, logits.tokens);
    }

    /// Emits the log-probabilities of `ids` and of the most likely tokens.
    pub(super) fn logprobs_of(&mut self, logits: X, ids: Slot) {
        let (tokens, vocab) = (logits.tokens, logits.cols);
        let (samplers, logprobs) = (self.samplers(), self.logprobs());
        let slots = [logits.slot, ids, logprobs, samplers, self.state];
        let params = Rows { tokens, vocab };
        self.emit(Op::Logprobs, None, &slots, &params, [1, tokens]);
    }

    /// Emits a sampler chain; returns the filtered logits, in a scratch slot if there is any
    /// sampler.
    fn apply_samplers(&mut self, x: X, samplers: &[SamplerKind], stage: SamplingStage) -> X {
        let ops = samplers.iter().flat_map(|kind| kind.ops(stage));
        ops.fold(x, |x, op| match op {
            Op::Penalize => self.penalize(x),
            Op::Dry => self.dry(x),
            Op::Temper => {
                let x = self.scratch_copy(x);
                self.in_place(Op::Temper, x);
                x
            }
            _ => {
                let x = self.scratch_copy(x);
                self.filter(*op, x);
                x
            }
        })
    }

    /// Returns a scratch copy of the logits, or `x` if it is already scratch.
    fn scratch_copy(&mut self, x: X) -> X {
        let scratch = matches!(
            self.graph.slots[usize::from(x.slot.0)].buffer,
            BufferId::Scratch(_)
        );
        if scratch {
            x
        } else {
            self.columns(x, 0, x.cols)
        }
    }

    /// Emits an in-place sampler of single elements.
    pub(super) fn in_place(&mut self, op: Op, x: X) {
        let (tokens, vocab) = (x.tokens, x.cols);
        let slots = [x.slot, self.samplers(), self.state];
        self.emit(op, None, &slots, &Rows { tokens, vocab }, [vocab, tokens]);
        self.maxima = None;
    }

    /// Emits a filter of whole rows; returns the maxima of their parts.
    fn filter(&mut self, op: Op, x: X) -> Slot {
        let params = RowsOfParts::of(x);
        let maxima = match self.maxima {
            Some(maxima) => maxima,
            None => self.part_maxima(x),
        };
        let slots = [x.slot, maxima, self.samplers(), self.state];
        self.emit(op, None, &slots, &params, [1, x.tokens]);
        let keeps = op.operands()[1].access == Access::Update;
        self.maxima = keeps.then_some(maxima);
        maxima
    }

    /// Emits the maxima of the parts of each row; returns their slot.
    fn part_maxima(&mut self, x: X) -> Slot {
        let params = RowsOfParts::of(x);
        let maxima = self.scratch_of(DType::F32, "maxima", [x.tokens, params.parts]);
        let slots = [x.slot, maxima, self.state];
        let work = [params.parts, x.tokens];
        self.emit(Op::PartMaxima, None, &slots, &params, work);
        maxima
    }

    fn mask(&mut self, x: X) {
        let (tokens, vocab) = (x.tokens, x.cols);
        let words = vocab.div_ceil(u32::BITS);
        let shape = [self.shape.sequences, words];
        let masks = self.buffer_slot("masks", DType::U32, shape, BufferId::Masks);
        let slots = [masks, x.slot, self.samplers(), self.state];
        let params = params::mask::Params {
            tokens,
            vocab,
            words,
        };
        self.emit(Op::Mask, None, &slots, &params, [vocab, tokens]);
    }

    fn bias(&mut self, x: X) -> X {
        let (tokens, vocab) = (x.tokens, x.cols);
        let words = words_of::<params::Bias>();
        let shape = [self.shape.sequences, BIASES_MAX * words];
        let biases = self.buffer_slot("biases", DType::U32, shape, BufferId::Biases);
        let y = self.scratch("s", tokens, vocab);
        let slots = [x.slot, biases, y.slot, self.samplers(), self.state];
        let params = params::bias::Params {
            tokens,
            vocab,
            capacity: BIASES_MAX,
        };
        self.emit(Op::Bias, None, &slots, &params, [vocab, tokens]);
        y
    }

    fn penalize(&mut self, x: X) -> X {
        self.maxima = None;
        let (tokens, vocab) = (x.tokens, x.cols);
        let y = self.scratch("s", tokens, vocab);
        let (history, samplers) = (self.history(), self.samplers());
        let slots = [x.slot, history, y.slot, samplers, self.state];
        let params = Rows { tokens, vocab };
        self.emit(Op::Penalize, None, &slots, &params, [vocab, tokens]);
        y
    }

    fn dry(&mut self, x: X) -> X {
        self.maxima = None;
        let (tokens, vocab) = (x.tokens, x.cols);
        let words = vocab.div_ceil(u32::BITS);
        let shape = [self.shape.sequences, words];
        let breakers = self.buffer_slot("breakers", DType::U32, shape, BufferId::Breakers);
        let y = self.columns(x, 0, vocab);
        let (history, samplers) = (self.history(), self.samplers());
        let slots = [x.slot, history, breakers, y.slot, samplers, self.state];
        let params = params::dry::Params {
            tokens,
            vocab,
            words,
        };
        self.emit(Op::Dry, None, &slots, &params, [1, tokens]);
        y
    }

    pub(super) fn begin_stage(&mut self, stage: SamplingStage) {
        self.graph.stages[stage as usize] = Some(self.graph.nodes.len());
        self.maxima = None;
    }

    /// Emits the argmax of each row; returns the ids.
    pub(super) fn argmax(&mut self, x: X) -> Slot {
        let (tokens, vocab) = (x.tokens, x.cols);
        // Devices that divide attention also divide rows.
        if self.shape.part > 0 && vocab > ARGMAX_PART {
            return self.argmax_of_parts(x, ARGMAX_PART);
        }
        let ids = self.scratch_of(DType::U32, "ids", [tokens, 1]);
        let slots = [x.slot, ids, self.state];
        let params = params::argmax::Params { tokens, vocab };
        self.emit(Op::Argmax, None, &slots, &params, [1, tokens]);
        ids
    }

    /// Emits the argmax of each row in parts of `part` elements; returns the ids.
    pub fn argmax_of_parts(&mut self, x: X, part: u32) -> Slot {
        let (tokens, vocab) = (x.tokens, x.cols);
        let parts = vocab.div_ceil(part.max(1));
        let of_parts = self.scratch_of(DType::U32, "best", [tokens, parts]);
        let params = params::argmax_part::Params {
            tokens,
            vocab,
            part,
            parts,
        };
        let slots = [x.slot, of_parts, self.state];
        self.emit(Op::ArgmaxPart, None, &slots, &params, [parts, tokens]);
        let ids = self.scratch_of(DType::U32, "ids", [tokens, 1]);
        let params = params::argmax_join::Params {
            tokens,
            vocab,
            parts,
        };
        let slots = [x.slot, of_parts, ids, self.state];
        self.emit(Op::ArgmaxJoin, None, &slots, &params, [1, tokens]);
        ids
    }

    /// Emits the update of all rows with their sampled tokens.
    pub(super) fn advance(&mut self, ids: Slot, tokens: u32) {
        let (history, samplers) = (self.history(), self.samplers());
        let slots = [ids, history, samplers, self.state];
        let params = params::advance::Params { tokens };
        self.emit(Op::Advance, None, &slots, &params, [1, 1]);
    }

    pub(super) fn samplers(&mut self) -> Slot {
        let shape = [self.shape.sequences, words_of::<params::Sampler>()];
        self.buffer_slot("samplers", DType::U32, shape, BufferId::Samplers)
    }

    fn logprobs(&mut self) -> Slot {
        let shape = [self.shape.sequences, words_of::<params::Logprobs>()];
        self.buffer_slot("logprobs", DType::U32, shape, BufferId::Logprobs)
    }

    pub(super) fn history(&mut self) -> Slot {
        self.buffer_slot(
            "history",
            DType::U32,
            [self.shape.sequences, self.shape.context],
            BufferId::History,
        )
    }
}

fn words_of<T>() -> u32 {
    u32::try_from(size_of::<T>() / size_of::<u32>()).expect("the struct is small")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Shape;
    use crate::fixture::{SQUARE, shape};
    use tabla_core::op::operands::gemv;

    /// Returns the operations after the product, and the work of each.
    fn ops_after_product(rows: LogitRows, map: LogitMap) -> Vec<(Op, [u32; 2])> {
        let shape = Shape {
            logits: rows,
            ..shape(3)
        };
        let mut b = Builder::new(&SQUARE, shape);
        let x = b.input("x", 8);
        let (w, x) = (b.weight("w", 8, 8), b.logit_rows(x));
        b.logits(w, x, map);
        let graph = b.finish().expect("the weights fit");
        let at = graph.nodes.iter().position(|n| n.label == "w");
        let (product, after) = graph.nodes[at.expect("the graph has the product")..]
            .split_first()
            .expect("the product");
        let nodes = after.iter().map(|node| {
            let logits = node.slots[0];
            assert_eq!(logits, product.slots[gemv::AT.y], "the logits");
            (node.op, node.work)
        });
        nodes.collect()
    }

    #[test]
    fn logits_are_transformed_in_place() {
        let map = LogitMap {
            bias: None,
            scale: 0.5,
            cap: 30.0,
        };
        let all = [(Op::Scale, [8, 3]), (Op::SoftCap, [8, 3])];
        assert_eq!(ops_after_product(LogitRows::All, map), all);
        let last = [(Op::Scale, [8, 1]), (Op::SoftCap, [8, 1])];
        assert_eq!(ops_after_product(LogitRows::Last, map), last);
        assert_eq!(ops_after_product(LogitRows::All, LogitMap::default()), []);
    }

    #[test]
    fn shaders_have_memory_for_all_parts() {
        let shader = include_str!("../../../../shaders/lib/live.wgsl");
        assert!(shader.contains(&format!("const PARTS_MAX = {PARTS_MAX}u;")));
        for (vocab, part) in [(1, 64), (131_072, 64), (131_073, 128), (1 << 20, 512)] {
            let x = X {
                slot: Slot(0),
                tokens: 1,
                cols: vocab,
            };
            let shape = RowsOfParts::of(x);
            assert_eq!((shape.part, shape.parts), (part, vocab.div_ceil(part)));
            assert!(shape.parts <= PARTS_MAX, "{vocab}");
        }
    }

    #[test]
    fn maxima_of_parts_are_computed_again_after_other_changes() {
        use Op::{PartMaxima, Temper};
        use SamplerKind::{MinP, Penalties, Temperature, TopK, TopP, Typical};
        let ops = |samplers: &[SamplerKind], stage| {
            let mut b = Builder::new(&SQUARE, shape(1));
            let x = b.input("x", 100);
            b.begin_stage(stage);
            b.apply_samplers(x, samplers, stage);
            let graph = b.finish().expect("no weights");
            let ops = graph.nodes.iter().map(|node| node.op);
            ops.filter(|op| *op != Op::Columns).collect::<Vec<_>>()
        };
        let once = [PartMaxima, Op::TopK, Op::TopP, Op::MinP, Temper];
        let sampled = SamplingStage::Sampled;
        assert_eq!(ops(&[TopK, TopP, MinP, Temperature], sampled), once);
        let twice = [PartMaxima, Op::TopK, Op::Penalize, PartMaxima, Op::TopP];
        assert_eq!(ops(&[TopK, Penalties, TopP], sampled), twice);
        let twice = [Temper, PartMaxima, Op::DynamicTemper, PartMaxima, Op::MinP];
        assert_eq!(ops(&[Temperature, MinP], SamplingStage::Full), twice);
        let twice = [PartMaxima, Op::TopP, Op::Typical, PartMaxima, Op::TopK];
        assert_eq!(ops(&[TopP, Typical, TopK], SamplingStage::Full), twice);
    }
}
