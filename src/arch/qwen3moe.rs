//! Qwen 3 MoE: the feed-forward layer is a weighted sum of the selected experts.

use super::parts::{self, Layer};
use super::{Config, qwen3};
use crate::op::builder::{Builder, X};

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    parts::decoder(b, c, block);
}

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    qwen3::attention(b, c, l, h);
    let n = l.rms_norm(b, c, "ffn_norm", h); // [tokens, dim]
    let scores = l.project(b, c, "ffn_gate_inp", c.experts, n); // [tokens, experts]
    let (routes, weights) = b.route(scores, c.experts_used, c.expert_norm); // [tokens, used]
    b.routes_point(&l.tensor("ffn_experts"), routes);
    b.point(&l.tensor("ffn_expert_weights"), weights);
    let all = |rows: u32| c.experts * rows;
    let gate = l.mat(b, "ffn_gate_exps", all(c.expert_ffn), c.dim);
    let up = l.mat(b, "ffn_up_exps", all(c.expert_ffn), c.dim);
    let down = l.mat(b, "ffn_down_exps", all(c.dim), c.expert_ffn);
    let gate = b.experts("gate", gate, n, routes); // [tokens, used expert_ffn]
    let up = b.experts("up", up, n, routes);
    let f = b.glu(c.activation, gate, up);
    let f = b.experts("down", down, f, routes); // [tokens, used dim]
    let point = l.tensor("ffn_down");
    if b.is_hooked(&point) {
        let sum = b.columns(h, 0, c.dim);
        b.scale(sum, 0.0);
        b.combine(f, weights, sum);
        b.point(&point, sum);
        b.add(sum, h, 1.0);
    } else {
        b.combine(f, weights, h); // h += sum of weight * result
    }
}
