//! Lookups, norms, and what is done to each number.

use super::{Builder, W, X};
use crate::op::list::Op;
use crate::op::shaders;

impl Builder<'_> {
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

    /// `y += b` for every token.
    pub fn add_bias(&mut self, b: W, y: X) {
        let params = shaders::add_bias::Params {
            tokens: y.tokens,
            dim: y.cols,
        };
        let slots = [b.slot, y.slot, self.state];
        self.emit((Op::AddBias, None), &slots, &params, [y.cols, y.tokens]);
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
}
