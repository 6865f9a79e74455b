//! Emits matrix products: gemv or gemm, by the number of tokens.

use super::base::Builder;
use super::operand::{W, X};
use tabla_core::dtype::DType;
use tabla_core::op::list::Op;
use tabla_core::op::params;
use tabla_core::op::table::Slot;

impl Builder<'_> {
    /// Emits `W x` for all tokens; returns `[tokens, rows]`.
    pub fn mat(&mut self, name: &str, w: W, x: X) -> X {
        let y = self.scratch(name, x.tokens, w.rows);
        self.mat_into(w, x, y.slot, [Op::Gemv, Op::Gemm, Op::BitMat]);
        y
    }

    /// Emits `y += W x` for all tokens.
    pub fn mat_add(&mut self, w: W, x: X, y: X) {
        self.mat_into(w, x, y.slot, [Op::GemvAdd, Op::GemmAdd, Op::BitMatAdd]);
    }

    /// Emits the conversion of `x` to the storage type that a kernel reads, for tests of single operations: planning
    /// inserts it before products.
    pub fn convert(&mut self, name: &str, x: X, dtype: DType) -> X {
        let cols = x.cols.next_multiple_of(32);
        let slot = self.scratch_of(dtype, name, [x.tokens, cols]);
        let params = params::convert::Params {
            tokens: x.tokens,
            groups: 1,
            cols: x.cols,
        };
        let slots = [x.slot, slot, self.state];
        self.emit(Op::Convert, Some(dtype), &slots, &params, [cols, x.tokens]);
        X { slot, cols, ..x }
    }

    /// Emits a matrix-vector product for one token, a matrix-matrix product for more; ternary
    /// weights use one operation for both.
    pub(super) fn mat_into(&mut self, w: W, x: X, y: Slot, [one, many, digits]: [Op; 3]) {
        if w.cols != x.cols {
            self.fail(format!(
                "shape mismatch: weight has {} columns, input has {}",
                w.cols, x.cols
            ));
        }
        if let Some(scale) = w.scale {
            return self.bit_mat(digits, scale, w, x, y);
        }
        let slots = [w.slot, x.slot, y, self.state];
        let (rows, cols, tokens) = (w.rows, w.cols, x.tokens);
        if tokens == 1 {
            let params = params::gemv::Params {
                rows,
                cols,
                first: 0,
            };
            self.emit(one, Some(w.dtype), &slots, &params, [rows, 1]);
        } else {
            let params = params::gemm::Params {
                tokens,
                rows,
                cols,
                first: 0,
                width: rows,
            };
            self.emit(many, Some(w.dtype), &slots, &params, [rows, tokens]);
        }
    }
}
