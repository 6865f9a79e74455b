//! The two ends of a table's head: which rows get logits, and how a token is picked.

use super::base::Builder;
use super::operand::{W, X};
use super::shape::LogitRows;
use crate::dtype::DType;
use crate::op::list::Op;
use crate::op::params;
use crate::op::sampler::SamplerKind;
use crate::op::table::{BIASES_MAX, BufferId, SamplingStage, Slot};
use bytemuck::{Pod, Zeroable};

/// The parameters of what works on rows of logits.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Rows {
    tokens: u32,
    vocab: u32,
}

/// What becomes of logits before a token is picked: `cap tanh(scale x / cap)`.
#[derive(Clone, Copy, Debug)]
pub struct LogitMap {
    /// The factor.
    pub scale: f32,
    /// What no logit comes beyond; 0: nothing bounds them.
    pub cap: f32,
}

/// Logits as they are.
impl Default for LogitMap {
    fn default() -> Self {
        Self {
            scale: 1.0,
            cap: 0.0,
        }
    }
}

impl Builder<'_> {
    /// The rows of `h` that get logits: the last live one, or all of them.
    pub fn logit_rows(&mut self, h: X) -> X {
        self.draft.head = self.draft.nodes.len();
        if h.tokens == 1 || self.shape.logits != LogitRows::Last {
            return h;
        }
        let y = self.scratch("last", 1, h.cols);
        let params = params::last_row::Params {
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

    /// Whether the table ends with these rows, which it then leaves in [`BufferId::Hidden`].
    pub fn ends_with(&mut self, x: X) -> bool {
        let ends = self.shape.logits == LogitRows::None;
        if ends {
            self.draft.slots[usize::from(x.slot.0)].place = BufferId::Hidden;
        }
        ends
    }

    /// The logits `W x`, mapped, where the host and the picking operations find them.
    pub fn logits(&mut self, w: W, x: X, map: LogitMap) {
        let logits = self.logits_slot(w.rows);
        self.mat_into(w, x, logits.slot, [Op::Gemv, Op::Gemm, Op::BitMat]);
        if map.scale != 1.0 {
            self.scale(logits, map.scale);
        }
        if map.cap != 0.0 {
            self.soft_cap(logits, map.cap);
        }
    }

    /// Where the logits are: those of the last row, or of all.
    fn logits_slot(&mut self, vocab: u32) -> X {
        let (name, tokens, place) = match self.shape.logits {
            LogitRows::Last => ("logits", 1, BufferId::Logits),
            // Tables without logits have ended before.
            LogitRows::All | LogitRows::None => ("scores", self.shape.tokens, BufferId::Scores),
        };
        X {
            slot: self.place(name, DType::F32, [tokens, vocab], place),
            tokens,
            cols: vocab,
        }
    }

    /// The tails of a table that picks tokens, for every row that has logits, with these samplers.
    pub fn pick(&mut self, vocab: u32, samplers: &[SamplerKind]) {
        self.pick_greedy(vocab);
        self.pick_sampled(vocab, samplers);
        self.pick_full(vocab, samplers);
    }

    /// The tail that takes the largest logit.
    pub fn pick_greedy(&mut self, vocab: u32) {
        self.begin_tail(SamplingStage::Greedy);
        let logits = self.logits_slot(vocab);
        let ids = self.largest(logits);
        self.advance(ids, logits.tokens);
    }

    /// The tail that takes the largest of what the usual samplers leave, with Gumbel noise, which is a
    /// draw from the softmax (Gumbel-max).
    pub fn pick_sampled(&mut self, vocab: u32, samplers: &[SamplerKind]) {
        self.begin_tail(SamplingStage::Sampled);
        let logits = self.logits_slot(vocab);
        let left = self.filtered(logits, samplers, SamplingStage::Sampled);
        let left = self.own(left);
        self.in_place(Op::Gumbel, left);
        let ids = self.largest(left);
        self.advance(ids, logits.tokens);
    }

    /// The same with all samplers, and what is told of a token.
    pub fn pick_full(&mut self, vocab: u32, samplers: &[SamplerKind]) {
        self.begin_tail(SamplingStage::Full);
        let logits = self.logits_slot(vocab);
        let left = self.biased(logits);
        self.masked(left);
        let left = self.filtered(left, samplers, SamplingStage::Full);
        self.in_place(Op::Mirostat, left);
        // Without its noise it says how likely a token was.
        let noisy = self.columns(left, 0, vocab);
        self.in_place(Op::Gumbel, noisy);
        let ids = self.largest(noisy);
        let params = Rows {
            tokens: logits.tokens,
            vocab,
        };
        let (samplers, log_probs) = (self.samplers(), self.log_probs());
        let work = [1, logits.tokens];
        let slots = [left.slot, ids, samplers, self.state];
        self.emit((Op::MirostatMu, None), &slots, &params, work);
        let slots = [logits.slot, ids, log_probs, samplers, self.state];
        self.emit((Op::LogProbs, None), &slots, &params, work);
        self.advance(ids, logits.tokens);
    }

    /// What samplers leave of `x`, in a slot of its own where there is one that changes anything.
    fn filtered(&mut self, x: X, samplers: &[SamplerKind], tail: SamplingStage) -> X {
        let ops = samplers.iter().flat_map(|kind| kind.ops(tail));
        ops.fold(x, |x, op| match op {
            Op::Penalize => self.penalized(x),
            Op::Dry => self.dry(x),
            _ => {
                let x = self.own(x);
                self.in_place(*op, x);
                x
            }
        })
    }

    /// A copy of the logits: they stay as they are. Anything else is a slot of its own.
    fn own(&mut self, x: X) -> X {
        let scratch = matches!(
            self.draft.slots[usize::from(x.slot.0)].place,
            BufferId::Scratch(_)
        );
        if scratch {
            x
        } else {
            self.columns(x, 0, x.cols)
        }
    }

    /// A sampler that changes what it reads: whole rows, or every number by itself.
    fn in_place(&mut self, op: Op, x: X) {
        let (tokens, vocab) = (x.tokens, x.cols);
        let units = match op {
            Op::Temper | Op::Gumbel => vocab,
            _ => 1,
        };
        let slots = [x.slot, self.samplers(), self.state];
        self.emit((op, None), &slots, &Rows { tokens, vocab }, [units, tokens]);
    }

    fn masked(&mut self, x: X) {
        let (tokens, vocab) = (x.tokens, x.cols);
        let words = vocab.div_ceil(u32::BITS);
        let shape = [self.shape.sequences, words];
        let masks = self.place("masks", DType::U32, shape, BufferId::Masks);
        let slots = [masks, x.slot, self.samplers(), self.state];
        let params = params::mask::Params {
            tokens,
            vocab,
            words,
        };
        self.emit((Op::Mask, None), &slots, &params, [vocab, tokens]);
    }

    fn biased(&mut self, x: X) -> X {
        let (tokens, vocab) = (x.tokens, x.cols);
        let words = words_of::<params::Bias>();
        let shape = [self.shape.sequences, BIASES_MAX * words];
        let biases = self.place("biases", DType::U32, shape, BufferId::Biases);
        let y = self.scratch("s", tokens, vocab);
        let slots = [x.slot, biases, y.slot, self.samplers(), self.state];
        let params = params::bias::Params {
            tokens,
            vocab,
            room: BIASES_MAX,
        };
        self.emit((Op::Bias, None), &slots, &params, [vocab, tokens]);
        y
    }

    fn penalized(&mut self, x: X) -> X {
        let (tokens, vocab) = (x.tokens, x.cols);
        let y = self.scratch("s", tokens, vocab);
        let (history, samplers) = (self.history(), self.samplers());
        let slots = [x.slot, history, y.slot, samplers, self.state];
        let params = Rows { tokens, vocab };
        self.emit((Op::Penalize, None), &slots, &params, [vocab, tokens]);
        y
    }

    fn dry(&mut self, x: X) -> X {
        let (tokens, vocab) = (x.tokens, x.cols);
        let words = vocab.div_ceil(u32::BITS);
        let shape = [self.shape.sequences, words];
        let breakers = self.place("breakers", DType::U32, shape, BufferId::Breakers);
        let y = self.scratch("s", tokens, vocab);
        let (history, samplers) = (self.history(), self.samplers());
        let slots = [x.slot, history, breakers, y.slot, samplers, self.state];
        let params = params::dry::Params {
            tokens,
            vocab,
            words,
        };
        self.emit((Op::Dry, None), &slots, &params, [1, tokens]);
        y
    }

    fn begin_tail(&mut self, tail: SamplingStage) {
        self.draft.tails[tail as usize] = Some(self.draft.nodes.len());
    }

    /// The id of the largest number of each row.
    fn largest(&mut self, x: X) -> Slot {
        let (tokens, vocab) = (x.tokens, x.cols);
        let ids = self.scratch_of(DType::U32, "ids", [tokens, 1]);
        let slots = [x.slot, ids, self.state];
        let params = params::argmax::Params { tokens, vocab };
        self.emit((Op::Argmax, None), &slots, &params, [1, tokens]);
        ids
    }

    /// Every row goes on with its id.
    fn advance(&mut self, ids: Slot, tokens: u32) {
        let (history, samplers) = (self.history(), self.samplers());
        let slots = [ids, history, samplers, self.state];
        let params = params::advance::Params { tokens };
        self.emit((Op::Advance, None), &slots, &params, [1, 1]);
    }

    fn samplers(&mut self) -> Slot {
        let shape = [self.shape.sequences, words_of::<params::Sampler>()];
        self.place("samplers", DType::U32, shape, BufferId::Samplers)
    }

    fn log_probs(&mut self) -> Slot {
        let shape = [self.shape.sequences, words_of::<params::LogProbs>()];
        self.place("log_probs", DType::U32, shape, BufferId::LogProbs)
    }

    fn history(&mut self) -> Slot {
        self.place(
            "history",
            DType::U32,
            [self.shape.sequences, self.shape.context],
            BufferId::History,
        )
    }
}

fn words_of<T>() -> u32 {
    u32::try_from(size_of::<T>() / size_of::<u32>()).expect("a small struct")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::builder::{Shape, WeightInfo, Weights};
    use crate::op::operands::gemv;
    use crate::op::pages::Pages;

    struct Square;
    impl Weights for Square {
        fn find(&self, _: &str) -> Option<WeightInfo> {
            Some(WeightInfo {
                index: 0,
                dtype: DType::F32,
                rows: 8,
                cols: 8,
                scale: None,
            })
        }
    }

    /// The operations behind the product, and the rows and columns that each works on.
    fn behind(rows: LogitRows, map: LogitMap) -> Vec<(Op, [u32; 2])> {
        let shape = Shape {
            name: "test",
            tokens: 3,
            logits: rows,
            sequences: 1,
            context: 8,
            pages: Pages::new(1, 8, &[], 3),
            cache: DType::F32,
            part: 0,
        };
        let mut b = Builder::new(&Square, shape);
        let x = b.input("x", 8);
        let (w, x) = (b.weight("w", 8, 8), b.logit_rows(x));
        b.logits(w, x, map);
        let draft = b.finish().expect("it fits");
        let at = draft.nodes.iter().position(|n| n.label == "w");
        let (product, behind) = draft.nodes[at.expect("it is there")..]
            .split_first()
            .expect("the product");
        let nodes = behind.iter().map(|node| {
            let logits = node.slots[0];
            assert_eq!(logits, product.slots[gemv::AT.y], "the logits");
            (node.op, node.work)
        });
        nodes.collect()
    }

    #[test]
    fn logits_are_mapped_where_they_lie() {
        let map = LogitMap {
            scale: 0.5,
            cap: 30.0,
        };
        let all = [(Op::Scale, [8, 3]), (Op::SoftCap, [8, 3])];
        assert_eq!(behind(LogitRows::All, map), all);
        let last = [(Op::Scale, [8, 1]), (Op::SoftCap, [8, 1])];
        assert_eq!(behind(LogitRows::Last, map), last);
        assert_eq!(behind(LogitRows::All, LogitMap::default()), []);
    }
}
