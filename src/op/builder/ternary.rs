//! Products of ternary digits and activations in int8, as `BitNet` was trained with.

use super::{Builder, W, X};
use crate::dtype::DType;
use crate::op::list::Op;
use crate::op::shaders;
use crate::op::table::Slot;

/// Bytes that a row of int8 activations is a multiple of: the widest vector.
const ROW_ALIGN: u32 = 64;

/// The rows that were quantised last; the products that read them one after another share them.
#[derive(Clone, Copy)]
pub(super) struct Quantised {
    /// What was quantised.
    pub(super) x: Slot,
    q: Slot,
    d: Slot,
}

impl Builder<'_> {
    /// `y = W x` with the digits of `w` times `scale`, and `x` in int8.
    pub(super) fn bit_mat(&mut self, w: W, scale: f32, x: X, y: Slot) {
        let Quantised { q, d, .. } = self.bit_quantize(x);
        let params = shaders::bit_mat::Params {
            tokens: x.tokens,
            rows: w.rows,
            cols: w.cols,
            scale,
        };
        let slots = [w.slot, q, d, y, self.state];
        let work = [w.rows, x.tokens];
        self.emit((Op::BitMat, Some(w.dtype)), &slots, &params, work);
    }

    /// The rows of `x` in int8, a scale each.
    fn bit_quantize(&mut self, x: X) -> Quantised {
        if let Some(made) = self.quantised.filter(|made| made.x == x.slot) {
            return made;
        }
        let padded = x.cols.next_multiple_of(ROW_ALIGN);
        let made = Quantised {
            x: x.slot,
            q: self.scratch_of(DType::I8, "q8", [x.tokens, padded]),
            d: self.scratch("d8", x.tokens, 1).slot,
        };
        let params = shaders::bit_quantize::Params {
            tokens: x.tokens,
            cols: x.cols,
        };
        let slots = [made.x, made.q, made.d, self.state];
        self.emit((Op::BitQuantize, None), &slots, &params, [1, x.tokens]);
        self.quantised = Some(made);
        made
    }
}
