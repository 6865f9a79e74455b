//! Mixture of experts: routing, expert products and the weighted sum of their outputs.

use super::base::Builder;
use super::operand::{W, X};
use tabla_core::dtype::DType;
use tabla_core::op::functions::{EXPERT_GROUPS_MAX, EXPERTS_MAX, ExpertScore};
use tabla_core::op::list::Op;
use tabla_core::op::params::{self, KERNELS};
use tabla_core::op::table::{FEW_TOKENS, Slot};

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

/// Rule by which a router selects experts and weights their outputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Router {
    /// Number of selected experts per token.
    pub k: u32,
    /// Function of the logits.
    pub score: ExpertScore,
    /// Whether weights are divided by their sum plus `eps`.
    pub normalize: bool,
    /// Epsilon of the normalization; of `SparseMixer`, the relative distance of near logits.
    pub eps: f32,
    /// Factor of the weights.
    pub scale: f32,
    /// Number of groups of experts with consecutive ids; 1 if experts are selected from all.
    pub groups: u32,
    /// Number of groups from which experts are selected.
    pub groups_used: u32,
    /// Number of largest scores in a group, 1 or 2, whose sum is the score of the group.
    pub group_best: u32,
}

impl Router {
    /// Returns the router that selects `k` experts by a softmax over all, without normalization.
    pub const fn softmax(k: u32) -> Self {
        Self {
            k,
            score: ExpertScore::Softmax,
            normalize: false,
            eps: 0.0,
            scale: 1.0,
            groups: 1,
            groups_used: 1,
            group_best: 1,
        }
    }
}

/// Optional vectors of a router, `[experts]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouterVectors {
    /// Added to the scores by which experts are selected, not to their weights.
    pub bias: Option<W>,
    /// Factors of the weights.
    pub scales: Option<W>,
}

impl Builder<'_> {
    /// Emits the selection of experts by the logits `x`, in descending order of their scores. Returns
    /// the routes and the weights, `[tokens, k]`.
    pub fn route(&mut self, x: X, router: Router, vectors: RouterVectors) -> (Routes, X) {
        self.check_router(x, &router);
        let k = router.k;
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
            score: router.score as u32,
            normalize: u32::from(router.normalize),
            groups: router.groups,
            groups_used: router.groups_used,
            group_best: router.group_best,
            eps: router.eps,
            scale: router.scale,
            biased: u32::from(vectors.bias.is_some()),
            scaled: u32::from(vectors.scales.is_some()),
        };
        // An absent vector is not read; any f32 slot is bound.
        let [bias, scales] = [vectors.bias, vectors.scales].map(|w| w.map_or(x.slot, |w| w.slot));
        let slots = [x.slot, bias, scales, ids.slot, weights.slot, self.state];
        self.emit(Op::Route, None, &slots, &params, [1, x.tokens]);
        let tiles = (x.tokens > FEW_TOKENS).then(|| self.group_by_expert(ids, x.cols));
        let routes = Routes {
            ids,
            experts: x.cols,
            tiles,
        };
        (routes, weights)
    }

    /// Emits routes of every token to all of `heads` experts in order: [`Self::experts`] then multiplies each head of
    /// its input by the matrix of that head.
    pub fn head_routes(&mut self, heads: u32) -> Routes {
        let tokens = self.shape.tokens;
        let ids = X {
            slot: self.scratch_of(DType::U32, "ids", [tokens, heads]),
            tokens,
            cols: heads,
        };
        let params = params::head_ids::Params { tokens, heads };
        let slots = [ids.slot, self.state];
        self.emit(Op::HeadIds, None, &slots, &params, [heads, tokens]);
        Routes {
            ids,
            experts: heads,
            tiles: (tokens > FEW_TOKENS).then(|| self.group_by_expert(ids, heads)),
        }
    }

    /// Rejects a router that selects more experts than there are.
    fn check_router(&mut self, x: X, router: &Router) {
        let experts = x.cols;
        let Router {
            k,
            groups,
            groups_used,
            group_best,
            ..
        } = *router;
        if experts > EXPERTS_MAX || !(1..=EXPERT_GROUPS_MAX).contains(&groups) {
            self.fail(format!(
                "expected at most {EXPERTS_MAX} experts in 1 to {EXPERT_GROUPS_MAX} groups, got {experts} in \
                 {groups}"
            ));
            return;
        }
        let size = experts / groups;
        if !experts.is_multiple_of(groups)
            || !(1..=groups).contains(&groups_used)
            || !(1..=size.min(2)).contains(&group_best)
        {
            self.fail(format!(
                "cannot select from {groups_used} of {groups} groups of {experts} experts by their \
                 {group_best} best"
            ));
        }
        if !(1..=size * groups_used).contains(&k) {
            self.fail(format!(
                "number of selected experts must be 1 to {}, got {k}",
                size * groups_used
            ));
        }
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
        self.emit(Op::GroupByExpert, None, &slots, &params, work);
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
            self.emit(Op::GroupedGemm, Some(w.dtype), &slots, &params, work);
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
            self.emit(Op::Experts, Some(w.dtype), &slots, &params, work);
        }
        y
    }

    /// Emits `y[s] += b[ids[s]]` for the selected experts of each token. `b` has the concatenated biases of all
    /// experts, `y` is `[tokens, k dim]`.
    pub fn add_expert_bias(&mut self, b: W, routes: Routes, y: X) {
        let Routes { ids, experts, .. } = routes;
        let dim = y.cols / ids.cols.max(1);
        if experts.checked_mul(dim) != Some(b.cols) || dim.checked_mul(ids.cols) != Some(y.cols) {
            self.fail(format!(
                "shape mismatch: biases of {experts} experts have {} elements, outputs of {} selected experts {} \
                 columns",
                b.cols, ids.cols, y.cols
            ));
        }
        let params = params::add_expert_bias::Params {
            tokens: y.tokens,
            k: ids.cols,
            dim,
            experts,
        };
        let slots = [b.slot, ids.slot, y.slot, self.state];
        self.emit(Op::AddExpertBias, None, &slots, &params, [y.cols, y.tokens]);
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
        self.emit(Op::Combine, None, &slots, &params, [y.cols, y.tokens]);
    }
}
