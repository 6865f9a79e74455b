//! Mixture of experts: routing, expert products and the weighted sum of their outputs.

use super::base::Builder;
use super::operand::{W, X};
use super::shape::FEW_TOKENS;
use crate::dtype::DType;
use crate::op::list::Op;
use crate::op::params::{self, KERNELS};
use crate::op::table::Slot;

/// Selected experts of each token.
#[derive(Clone, Copy, Debug)]
pub struct Routes {
    pub(super) ids: X,
    experts: u32,
    /// For many tokens: pairs of token and expert, grouped by expert.
    tiles: Option<Tiles>,
}

/// `count` tiles of up to `tile` pairs.
#[derive(Clone, Copy, Debug)]
struct Tiles {
    slot: Slot,
    count: u32,
    tile: u32,
}

impl Builder<'_> {
    /// Emits the selection of the `k` experts with the largest `softmax(x)`, in descending order.
    /// Returns the routes and the weights `[tokens, k]`, divided by their sum if `normalize`.
    #[expect(clippy::fn_params_excessive_bools, reason = "the formula has one flag")]
    pub fn route(&mut self, x: X, k: u32, normalize: bool) -> (Routes, X) {
        if k == 0 || k > x.cols {
            self.fail(format!(
                "number of selected experts must be 1 to {}, got {k}",
                x.cols
            ));
        }
        let ids = X {
            slot: self.scratch_of(DType::U32, "ids", [x.tokens, k]),
            tokens: x.tokens,
            cols: k,
        };
        let weights = self.scratch("weights", x.tokens, k);
        let params = params::route::Params {
            tokens: x.tokens,
            experts: x.cols,
            k,
            normalize: u32::from(normalize),
        };
        let slots = [x.slot, ids.slot, weights.slot, self.state];
        self.emit((Op::Route, None), &slots, &params, [1, x.tokens]);
        let tiles = (x.tokens > FEW_TOKENS).then(|| self.group_by_expert(ids, x.cols));
        let routes = Routes {
            ids,
            experts: x.cols,
            tiles,
        };
        (routes, weights)
    }

    fn group_by_expert(&mut self, ids: X, experts: u32) -> Tiles {
        let kernels = KERNELS.iter().find(|row| row.op == Op::GroupedGemm);
        let tile = kernels.expect("every operation has kernels").tokens;
        let pairs = ids.tokens.saturating_mul(ids.cols);
        // Full tiles, and one partial tile per expert and for ids out of range.
        let count = pairs.min(pairs / tile + experts.saturating_add(1));
        let slot = self.scratch_of(DType::U32, "tiles", [count, 2 + tile]);
        let params = params::group_by_expert::Params {
            tokens: ids.tokens,
            k: ids.cols,
            experts,
            tile,
            count,
        };
        let work = [experts.saturating_add(1), 1];
        let slots = [ids.slot, slot, self.state];
        self.emit((Op::GroupByExpert, None), &slots, &params, work);
        Tiles { slot, count, tile }
    }

    /// Emits `W x` for the selected experts of each token; returns `[tokens, k rows]`. `w` has the
    /// concatenated rows of all experts. `x` has one row per token, or one per token and selected
    /// expert. For many tokens, products are grouped by expert.
    pub fn experts(&mut self, name: &str, w: W, x: X, routes: Routes) -> X {
        let Routes {
            ids,
            experts,
            tiles,
        } = routes;
        let k = ids.cols;
        let per_expert = x.cols != w.cols;
        let wide = if per_expert {
            w.cols.saturating_mul(k)
        } else {
            w.cols
        };
        if x.cols != wide || experts == 0 || !w.rows.is_multiple_of(experts) {
            self.fail(format!(
                "shape mismatch: weight of {experts} experts is [{}, {}], input has {} columns for {k} selected experts",
                w.rows, w.cols, x.cols
            ));
        }
        let rows = w.rows / experts.max(1);
        let y = self.scratch(name, x.tokens, k.saturating_mul(rows));
        let (tokens, per_expert) = (x.tokens, u32::from(per_expert));
        if let Some(Tiles { slot, count, tile }) = tiles {
            let params = params::grouped_gemm::Params {
                tokens,
                rows: w.rows,
                cols: w.cols,
                experts,
                k,
                per_expert,
                first: 0,
                tile,
            };
            let slots = [w.slot, x.slot, slot, y.slot, self.state];
            let work = [rows, count.saturating_mul(tile)];
            self.emit((Op::GroupedGemm, Some(w.dtype)), &slots, &params, work);
        } else {
            let params = params::experts::Params {
                tokens,
                rows: w.rows,
                cols: w.cols,
                experts,
                k,
                per_expert,
                first: 0,
            };
            let slots = [w.slot, x.slot, ids.slot, y.slot, self.state];
            let work = [rows, tokens.saturating_mul(k)];
            self.emit((Op::Experts, Some(w.dtype)), &slots, &params, work);
        }
        y
    }

    /// Emits `y += sum_s w[s] x[s]`: the weighted sum of the expert outputs `[tokens, k dim]`.
    pub fn combine(&mut self, x: X, w: X, y: X) {
        if w.cols.checked_mul(y.cols) != Some(x.cols) {
            self.fail(format!(
                "shape mismatch: {} expert outputs of {} columns, input has {}",
                w.cols, y.cols, x.cols
            ));
        }
        let params = params::combine::Params {
            tokens: y.tokens,
            k: w.cols,
            dim: y.cols,
        };
        let slots = [x.slot, w.slot, y.slot, self.state];
        self.emit((Op::Combine, None), &slots, &params, [y.cols, y.tokens]);
    }
}
