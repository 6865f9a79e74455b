//! Mixtures of experts: which ones a token takes, their products, and the sum of what they say.

use super::{Builder, W, X};
use crate::dtype::DType;
use crate::op::list::Op;
use crate::op::shaders;

impl Builder<'_> {
    /// The `k` experts with the largest of `softmax(x)`, the largest first, and these numbers, over
    /// their sum if `normalise`: ids and weights, `[tokens, k]` each.
    #[expect(
        clippy::fn_params_excessive_bools,
        reason = "the one switch of the formula"
    )]
    pub fn route(&mut self, x: X, k: u32, normalise: bool) -> (X, X) {
        if k == 0 || k > x.cols {
            self.fail(format!("{k} of {} experts", x.cols));
        }
        let ids = X {
            slot: self.scratch_of(DType::U32, "ids", [x.tokens, k]),
            tokens: x.tokens,
            cols: k,
        };
        let weights = self.scratch("weights", x.tokens, k);
        let params = shaders::route::Params {
            tokens: x.tokens,
            experts: x.cols,
            k,
            normalise: u32::from(normalise),
        };
        let slots = [x.slot, ids.slot, weights.slot, self.state];
        self.emit((Op::Route, None), &slots, &params, [1, x.tokens]);
        (ids, weights)
    }

    /// `W x` by the experts that each token takes, `[tokens, k rows]`, where `w` holds the rows of
    /// all `experts` one after the other. `x` is one row for a token, or one for each expert of it.
    #[expect(clippy::too_many_arguments, reason = "the operands of the formula")]
    pub fn experts(&mut self, name: &str, w: W, experts: u32, x: X, ids: X) -> X {
        let k = ids.cols;
        let per_expert = x.cols != w.cols;
        let wide = if per_expert {
            w.cols.saturating_mul(k)
        } else {
            w.cols
        };
        if x.cols != wide || experts == 0 || !w.rows.is_multiple_of(experts) {
            self.fail(format!(
                "{experts} experts of {} rows of {} meet rows of {}, {k} experts a token",
                w.rows, w.cols, x.cols
            ));
        }
        let rows = w.rows / experts.max(1);
        let y = self.scratch(name, x.tokens, k.saturating_mul(rows));
        let params = shaders::experts::Params {
            tokens: x.tokens,
            rows: w.rows,
            cols: w.cols,
            experts,
            k,
            per_expert: u32::from(per_expert),
            first: 0,
        };
        let slots = [w.slot, x.slot, ids.slot, y.slot, self.state];
        let work = [rows, x.tokens.saturating_mul(k)];
        self.emit((Op::Experts, Some(w.dtype)), &slots, &params, work);
        y
    }

    /// `y += sum_s w[s] x[s]`: what a token's experts say, `[tokens, k dim]`, by their weights.
    pub fn combine(&mut self, x: X, w: X, y: X) {
        if w.cols.checked_mul(y.cols) != Some(x.cols) {
            self.fail(format!(
                "{} rows of {} are no row of {}",
                w.cols, y.cols, x.cols
            ));
        }
        let params = shaders::combine::Params {
            tokens: y.tokens,
            k: w.cols,
            dim: y.cols,
        };
        let slots = [x.slot, w.slot, y.slot, self.state];
        self.emit((Op::Combine, None), &slots, &params, [y.cols, y.tokens]);
    }
}
