//! Products of ternary digits and activations in int8, as `BitNet` was trained with.

use super::base::Builder;
use super::operand::{Quantized, W, X};
use crate::dtype::DType;
use crate::op::list::Op;
use crate::op::params;
use crate::op::table::Slot;

/// Bytes that a row of int8 activations is a multiple of: the widest vector.
const ROW_ALIGN: u32 = 64;

impl Builder<'_> {
    /// `y = W x`, stored or added, with the digits of `w` times `scale`, and `x` in int8.
    pub(super) fn bit_mat(&mut self, (op, scale): (Op, f32), w: W, x: X, y: Slot) {
        let Quantized { q, d, .. } = self.bit_quantize(x);
        let params = params::bit_mat::Params {
            tokens: x.tokens,
            rows: w.rows,
            cols: w.cols,
            scale,
        };
        let slots = [w.slot, q, d, y, self.state];
        let work = [w.rows, x.tokens];
        self.emit((op, Some(w.dtype)), &slots, &params, work);
    }

    /// The rows of `x` in int8, a scale each.
    fn bit_quantize(&mut self, x: X) -> Quantized {
        if let Some(made) = self.quantized.filter(|made| made.x == x.slot) {
            return made;
        }
        let padded = x.cols.next_multiple_of(ROW_ALIGN);
        let made = Quantized {
            x: x.slot,
            q: self.scratch_of(DType::I8, "q8", [x.tokens, padded]),
            d: self.scratch("d8", x.tokens, 1).slot,
        };
        let params = params::bit_quantize::Params {
            tokens: x.tokens,
            cols: x.cols,
        };
        let slots = [made.x, made.q, made.d, self.state];
        self.emit((Op::BitQuantize, None), &slots, &params, [1, x.tokens]);
        self.quantized = Some(made);
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::builder::{LogitRows, Shape, WeightInfo, Weights};
    use crate::op::pages::Pages;

    struct Digits;
    impl Weights for Digits {
        fn find(&self, _: &str) -> Option<WeightInfo> {
            Some(WeightInfo {
                index: 0,
                dtype: DType::I2S,
                rows: 96,
                cols: 96,
                scale: Some(0.5),
            })
        }
    }

    #[test]
    fn rows_are_quantized_once_and_anew_when_they_change() {
        let shape = Shape {
            name: "ternary",
            tokens: 1,
            logits: LogitRows::Last,
            sequences: 1,
            context: 8,
            pages: Pages::new(1, 8, &[], 1),
            cache: DType::F32,
            part: 0,
        };
        let mut b = Builder::new(&Digits, shape);
        let w = b.weight("w", 96, 96);
        let x = b.input("x", 96);
        let q = b.mat("q", w, x);
        b.mat("k", w, x);
        b.mat_add(w, q, x);
        b.mat("v", w, x);
        let draft = b.finish().expect("the weights fit");
        let ops: Vec<Op> = draft.nodes.iter().map(|node| node.op).collect();
        let (quantize, product) = (Op::BitQuantize, Op::BitMat);
        let wanted: [&[Op]; 3] = [
            &[quantize, product, product],
            &[quantize, Op::BitMatAdd],
            &[quantize, product],
        ];
        assert_eq!(ops, wanted.concat());
    }
}
