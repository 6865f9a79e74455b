//! What recipes share: the layer's names, projections, the feed-forward layer, the two ends.

use super::Config;
use crate::op::builder::{Activation, Builder, Heads, LogitMap, W, X};

/// A layer of the model: its number gives its tensors their names.
#[derive(Clone, Copy)]
pub(super) struct Layer(pub(super) u32);

impl Layer {
    /// The layer's matrix `name`, `[rows, cols]`.
    pub(super) fn mat(self, b: &mut Builder<'_>, name: &str, rows: u32, cols: u32) -> W {
        b.weight(&format!("blk.{}.{name}.weight", self.0), rows, cols)
    }

    /// The layer's norm `name`, `[dim]`.
    pub(super) fn norm(self, b: &mut Builder<'_>, name: &str, dim: u32) -> W {
        b.vector(&format!("blk.{}.{name}.weight", self.0), dim)
    }

    /// The heads of this layer.
    pub(super) fn heads(self, c: &Config) -> Heads {
        Heads {
            layer: self.0,
            heads: c.heads,
            kv_heads: c.kv_heads,
            head_dim: c.head_dim,
            rope_dim: c.rope_dim,
            half_split: c.half_split,
        }
    }

    /// `W x`, `[tokens, rows]`.
    pub(super) fn project(self, b: &mut Builder<'_>, name: &str, rows: u32, x: X) -> X {
        let w = self.mat(b, name, rows, x.cols());
        b.mat(short(name), w, x)
    }

    /// `W x + bias`, `[tokens, rows]`.
    pub(super) fn project_biased(self, b: &mut Builder<'_>, name: &str, rows: u32, x: X) -> X {
        let y = self.project(b, name, rows, x);
        let bias = b.vector(&format!("blk.{}.{name}.bias", self.0), rows);
        b.add_bias(bias, y);
        y
    }

    /// `h += W x`.
    pub(super) fn project_add(self, b: &mut Builder<'_>, name: &str, x: X, h: X) {
        let w = self.mat(b, name, h.cols(), x.cols());
        b.mat_add(w, x, h);
    }

    /// Norm, gated SiLU and the way back: `h += down(silu(gate n) * up n)`.
    pub(super) fn feed_forward(self, b: &mut Builder<'_>, c: &Config, h: X) {
        let norm = self.norm(b, "ffn_norm", c.dim);
        let n = b.rms_norm(h, norm, c.eps); // [tokens, dim]
        let gate = self.project(b, "ffn_gate", c.ffn, n); // [tokens, ffn]
        let up = self.project(b, "ffn_up", c.ffn, n);
        let f = b.glu(Activation::Silu, gate, up);
        self.project_add(b, "ffn_down", f, h);
    }
}

/// The residual stream of the tokens, `[tokens, dim]`.
pub(super) fn embed(b: &mut Builder<'_>, c: &Config) -> X {
    let w = b.weight("token_embd.weight", c.vocab, c.dim);
    b.embed(w)
}

/// From the residual stream to logits.
pub(super) fn head(b: &mut Builder<'_>, c: &Config, h: X) {
    let last = b.logit_rows(h);
    let norm = b.vector("output_norm.weight", c.dim);
    let n = b.rms_norm(last, norm, c.eps);
    let w = b.weight("output.weight", c.vocab, c.dim);
    b.logits(w, n, LogitMap::default());
}

/// `1 / sqrt(head_dim)`.
pub(super) fn attention_scale(c: &Config) -> f32 {
    1.0 / (c.head_dim as f32).sqrt()
}

/// The name of an activation in listings: `attn_q` makes `q`, `ffn_gate` makes `gate`.
fn short(name: &str) -> &str {
    name.rsplit('_').next().unwrap_or(name)
}
