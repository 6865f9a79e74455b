//! The two ends of a table's head: which rows get logits, and how a token is picked.

use super::{Builder, LogitRows, W, X};
use crate::dtype::DType;
use crate::op::list::Op;
use crate::op::shaders;
use crate::op::table::{Place, Slot, Tail};
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

    /// Whether the table ends with these rows, which it then leaves in [`Place::Hidden`].
    pub fn ends_with(&mut self, x: X) -> bool {
        let ends = self.shape.logits == LogitRows::None;
        if ends {
            self.draft.slots[usize::from(x.slot.0)].place = Place::Hidden;
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
            LogitRows::Last => ("logits", 1, Place::Logits),
            // Tables without logits have ended before.
            LogitRows::All | LogitRows::None => ("scores", self.shape.tokens, Place::Scores),
        };
        X {
            slot: self.place(name, DType::F32, [tokens, vocab], place),
            tokens,
            cols: vocab,
        }
    }

    /// The tails of a table that picks tokens, for every row that has logits.
    pub fn pick(&mut self, vocab: u32) {
        self.pick_greedy(vocab);
        self.pick_sampled(vocab);
    }

    /// The tail that takes the largest logit.
    pub fn pick_greedy(&mut self, vocab: u32) {
        self.begin_tail(Tail::Greedy);
        let logits = self.logits_slot(vocab);
        self.pick_largest(logits);
    }

    /// The tail that takes the largest of what the samplers leave, with Gumbel noise, which is a draw
    /// from the softmax (Gumbel-max).
    pub fn pick_sampled(&mut self, vocab: u32) {
        self.begin_tail(Tail::Sampled);
        let logits = self.logits_slot(vocab);
        let (history, samplers) = (self.history(), self.samplers());
        let tokens = logits.tokens;
        let sampled = self.scratch("s", tokens, vocab);
        let params = shaders::penalize::Params { tokens, vocab };
        let slots = [logits.slot, history, sampled.slot, samplers, self.state];
        self.emit((Op::Penalize, None), &slots, &params, [vocab, tokens]);
        // Whole rows, then every number by itself.
        for (op, units) in [
            (Op::TopK, 1),
            (Op::TopP, 1),
            (Op::MinP, 1),
            (Op::Temper, vocab),
            (Op::Gumbel, vocab),
        ] {
            let params = Rows { tokens, vocab };
            let slots = [sampled.slot, samplers, self.state];
            self.emit((op, None), &slots, &params, [units, tokens]);
        }
        self.pick_largest(sampled);
    }

    fn begin_tail(&mut self, tail: Tail) {
        self.draft.tails[tail as usize] = Some(self.draft.nodes.len());
    }

    /// Every row goes on with the largest of its numbers.
    fn pick_largest(&mut self, x: X) {
        let (tokens, vocab) = (x.tokens, x.cols);
        let ids = self.scratch_of(DType::U32, "ids", [tokens, 1]);
        self.emit(
            (Op::Argmax, None),
            &[x.slot, ids, self.state],
            &shaders::argmax::Params { tokens, vocab },
            [1, tokens],
        );
        let (history, samplers) = (self.history(), self.samplers());
        self.emit(
            (Op::Advance, None),
            &[ids, history, samplers, self.state],
            &shaders::advance::Params { tokens },
            [1, 1],
        );
    }

    fn samplers(&mut self) -> Slot {
        let words = u32::try_from(size_of::<shaders::Sampler>() / size_of::<u32>());
        let shape = [self.shape.sequences, words.expect("a small struct")];
        self.place("samplers", DType::U32, shape, Place::Samplers)
    }

    fn history(&mut self) -> Slot {
        self.place(
            "history",
            DType::U32,
            [self.shape.sequences, self.shape.context],
            Place::History,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::builder::{Shape, WeightInfo, Weights};
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
            assert_eq!(node.slots[0], product.slots[2], "the logits");
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
