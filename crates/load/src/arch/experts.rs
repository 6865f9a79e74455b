//! Mixture of experts: router, selected experts and shared experts of a layer.

use super::Config;
use super::parts::{Layer, short};
use crate::op::functions::Activation;
use crate::plan::builder::{Builder, RouterVectors, Routes, X};

/// Norm and feed-forward layer, of experts in layers that have them: `h += experts(norm h)`.
pub(super) fn feed_forward(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    if l.config.experts == 0 {
        l.feed_forward(b, c, h);
        return;
    }
    let n = l.rms_norm(b, c, "ffn_norm", h); // [tokens, dim]
    mixture(b, c, l, [n, h]);
}

/// `h += scale (sum_s w[s] expert(ids[s], n) + shared(n))`.
pub(super) fn mixture(b: &mut Builder<'_>, c: &Config, l: Layer, [n, h]: [X; 2]) {
    let selection = Selection::of(b, c, l, n);
    let point = l.tensor("ffn_down");
    let latent = c.experts.latent;
    if latent == 0 && c.scales.residual == 1.0 && !b.is_hooked(&point) {
        let f = selection.outputs(b, c, l, n);
        b.combine(f, selection.weights, h); // h += sum of weight * result
        add_shared(b, c, l, [n, h]);
        return;
    }
    let sum = if latent == 0 {
        selection.sum(b, c, l, n) // [tokens, dim]
    } else {
        let x = l.project(b, c, "ffn_latent_down", latent, n); // [tokens, latent]
        let sum = selection.sum(b, c, l, x);
        l.project(b, c, "ffn_latent_up", c.dim, sum)
    };
    add_shared(b, c, l, [n, sum]);
    b.point(&point, sum);
    b.add(sum, h, c.scales.residual);
}

/// `y += shared(n)`, with a gate `y += sigmoid(Wg n) shared(n)`.
fn add_shared(b: &mut Builder<'_>, c: &Config, l: Layer, [n, y]: [X; 2]) {
    let width = c.experts.shared_width;
    if width == 0 {
        return;
    }
    let gate = (!c.ffn.ungated).then(|| l.project(b, c, "ffn_gate_shexp", width, n));
    let up = l.project(b, c, "ffn_up_shexp", width, n); // [tokens, width]
    let f = match gate {
        Some(gate) => b.glu(c.ffn.activation, gate, up),
        None => {
            b.activate(c.ffn.activation, up);
            up
        }
    };
    let name = "ffn_down_shexp";
    if c.experts.shared_gate {
        let down = l.project(b, c, name, c.dim, f); // [tokens, dim]
        let gate = l.project(b, c, "ffn_gate_inp_shexp", 1, n); // [tokens, 1]
        b.activate(Activation::Sigmoid, gate);
        b.combine(down, gate, y);
    } else if c.scales.residual == 1.0 {
        l.project_add(b, c, name, f, y);
    } else {
        let down = l.project(b, c, name, c.dim, f);
        b.add(down, y, 1.0);
    }
}

/// Experts that the router selected for each token, and the weights of their outputs.
#[derive(Clone, Copy)]
pub(super) struct Selection {
    routes: Routes,
    /// `[tokens, used]`.
    weights: X,
}

impl Selection {
    /// Selects experts by the router's logits of `x`, `[tokens, dim]`.
    pub(super) fn of(b: &mut Builder<'_>, c: &Config, l: Layer, x: X) -> Self {
        let experts = l.config.experts;
        let logits = l.project(b, c, "ffn_gate_inp", experts, x); // [tokens, experts]
        let mut vector = |name: &str| l.optional_vector(b, c, name, experts);
        let vectors = RouterVectors {
            bias: vector("exp_probs_b.bias"),
            scales: vector("ffn_down_exps.scale"),
        };
        let (routes, weights) = b.route(logits, c.experts.router, vectors);
        b.routes_point(&l.tensor("ffn_experts"), routes);
        b.point(&l.tensor("ffn_expert_weights"), weights);
        Self { routes, weights }
    }

    /// Outputs of the selected experts for `n`, `[tokens, used n.cols]`.
    fn outputs(self, b: &mut Builder<'_>, c: &Config, l: Layer, n: X) -> X {
        let (ffn, dim) = (c.experts.width, n.cols());
        let f = if l.has(b, "ffn_gate_up_exps.weight") {
            let shape = [2 * ffn, dim];
            let gate_up = self.project(b, c, l, "ffn_gate_up_exps", shape, n); // [tokens, used 2 expert_ffn]
            match c.experts.glu_clamp {
                // Rows of the gate and the other matrix in turn.
                Some(clamp) => b.glu_clamped_pairs(clamp, gate_up),
                None => b.glu_halves(c.ffn.activation, gate_up, c.experts.router.k),
            }
        } else if !c.ffn.ungated {
            let gate = self.project(b, c, l, "ffn_gate_exps", [ffn, dim], n); // [tokens, used expert_ffn]
            let up = self.project(b, c, l, "ffn_up_exps", [ffn, dim], n);
            match c.experts.glu_clamp {
                Some(clamp) => b.glu_clamped(clamp, gate, up),
                None => b.glu(c.ffn.activation, gate, up),
            }
        } else {
            let up = self.project(b, c, l, "ffn_up_exps", [ffn, dim], n);
            b.activate(c.ffn.activation, up);
            up
        };
        self.project(b, c, l, "ffn_down_exps", [dim, ffn], f)
    }

    /// `W x` of the selected experts with their matrices `name`, `[tokens, used rows]`, with biases if the file has
    /// them.
    fn project(
        self,
        b: &mut Builder<'_>,
        c: &Config,
        l: Layer,
        name: &str,
        [rows, cols]: [u32; 2],
        x: X,
    ) -> X {
        let w = l.mat(b, name, l.config.experts * rows, cols);
        let y = b.experts(short(name.trim_end_matches("_exps")), w, x, self.routes);
        let bias = format!("{name}.bias");
        if c.biased || l.has(b, &bias) {
            let bias = b.vector(&l.tensor(&bias), l.config.experts * rows);
            b.add_expert_bias(bias, self.routes, y);
        }
        y
    }

    /// Weighted sum of the outputs of the selected experts for `n`, of the same shape.
    pub(super) fn sum(self, b: &mut Builder<'_>, c: &Config, l: Layer, n: X) -> X {
        let f = self.outputs(b, c, l, n);
        let sum = b.columns(n, 0, n.cols());
        b.scale(sum, 0.0);
        b.combine(f, self.weights, sum);
        sum
    }
}
