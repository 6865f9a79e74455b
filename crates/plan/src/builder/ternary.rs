//! Products of ternary weights and int8 activations, as in `BitNet`.

use super::base::Builder;
use super::operand::{Quantized, W, X};
use tabla_core::dtype::DType;
use tabla_core::op::list::Op;
use tabla_core::op::params;
use tabla_core::op::table::Slot;

/// Row alignment of int8 activations in bytes: the widest SIMD vector.
const ROW_ALIGN: u32 = 64;

impl Builder<'_> {
    /// Emits `y = W x` or `y += W x`, with the digits of `w` times `scale`, and `x` in int8.
    pub(super) fn bit_mat(&mut self, op: Op, scale: f32, w: W, x: X, y: Slot) {
        let Quantized { q, d, .. } = self.bit_quantize(x);
        let params = params::bit_mat::Params {
            tokens: x.tokens,
            rows: w.rows,
            cols: w.cols,
            scale,
        };
        let slots = [w.slot, q, d, y, self.state];
        let work = [w.rows, x.tokens];
        self.emit(op, Some(w.dtype), &slots, &params, work);
    }

    /// Emits the quantization of `x` to int8, one scale per row; reuses the last one if `x` is
    /// unchanged.
    fn bit_quantize(&mut self, x: X) -> Quantized {
        if let Some(quantized) = self.quantized.filter(|last| last.x == x.slot) {
            return quantized;
        }
        let padded = x.cols.next_multiple_of(ROW_ALIGN);
        let quantized = Quantized {
            x: x.slot,
            q: self.scratch_of(DType::I8, "q8", [x.tokens, padded]),
            d: self.scratch("d8", x.tokens, 1).slot,
        };
        let params = params::bit_quantize::Params {
            tokens: x.tokens,
            cols: x.cols,
        };
        let slots = [quantized.x, quantized.q, quantized.d, self.state];
        self.emit(Op::BitQuantize, None, &slots, &params, [1, x.tokens]);
        self.quantized = Some(quantized);
        quantized
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::WeightInfo;
    use crate::fixture::{Same, shape};

    const DIGITS: Same = Same(WeightInfo {
        index: 0,
        dtype: DType::I2S,
        rows: 96,
        cols: 96,
        scale: Some(0.5),
    });

    #[test]
    fn rows_are_quantized_once_until_they_change() {
        let shape = shape(1);
        let mut b = Builder::new(&DIGITS, shape);
        let w = b.weight("w", 96, 96);
        let x = b.input("x", 96);
        let q = b.mat("q", w, x);
        b.mat("k", w, x);
        b.mat_add(w, q, x);
        b.mat("v", w, x);
        let graph = b.finish().expect("the weights fit");
        let ops: Vec<Op> = graph.nodes.iter().map(|node| node.op).collect();
        let (quantize, product) = (Op::BitQuantize, Op::BitMat);
        let expected: [&[Op]; 3] = [
            &[quantize, product, product],
            &[quantize, Op::BitMatAdd],
            &[quantize, product],
        ];
        assert_eq!(ops, expected.concat());
    }
}
