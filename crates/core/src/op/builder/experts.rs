//! Mixtures of experts: which ones a token takes, their products, and the sum of what they say.

use super::base::Builder;
use super::operand::{W, X};
use super::shape::FEW_TOKENS;
use crate::dtype::DType;
use crate::op::list::Op;
use crate::op::params::{self, KERNELS};
use crate::op::table::Slot;

/// The experts that each token takes.
#[derive(Clone, Copy, Debug)]
pub struct Routes {
    ids: X,
    experts: u32,
    /// Of many tokens the pairs of a token and an expert, those of the same expert together.
    tiles: Option<Tiles>,
}

/// So many tiles of so many pairs at most.
#[derive(Clone, Copy, Debug)]
struct Tiles {
    slot: Slot,
    count: u32,
    tile: u32,
}

impl Builder<'_> {
    /// The `k` experts with the largest of `softmax(x)`, the largest first, and these numbers, over
    /// their sum if `normalise`, `[tokens, k]`.
    #[expect(
        clippy::fn_params_excessive_bools,
        reason = "the one switch of the formula"
    )]
    pub fn route(&mut self, x: X, k: u32, normalise: bool) -> (Routes, X) {
        if k == 0 || k > x.cols {
            self.fail(format!("{k} of {} experts", x.cols));
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
            normalise: u32::from(normalise),
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
        // Full ones, and one that is not of each expert and of those that are not there.
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

    /// `W x` by the experts that each token takes, `[tokens, k rows]`, where `w` holds the rows of
    /// all experts one after the other. `x` is one row for a token, or one for each expert of it.
    /// Of many tokens those that take the same expert are multiplied together.
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
                "{experts} experts of {} rows of {} meet rows of {}, {k} experts a token",
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

    /// `y += sum_s w[s] x[s]`: what a token's experts say, `[tokens, k dim]`, by their weights.
    pub fn combine(&mut self, x: X, w: X, y: X) {
        if w.cols.checked_mul(y.cols) != Some(x.cols) {
            self.fail(format!(
                "{} rows of {} are no row of {}",
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
