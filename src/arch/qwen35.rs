//! Qwen 3.5 and Qwen 3 Next: layers with the gated delta rule, and attention with an output gate in every n-th
//! layer; feed-forward layers or mixtures of experts.

use super::delta_net::delta_net;
use super::drafting;
use super::family::HeadBlock;
use super::layer_config::RecurrentPattern;
use super::parts::{self, Layer};
use super::stack;
use super::{Config, experts};
use crate::op::functions::Activation;
use crate::plan::builder::{Builder, X};

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    let taps = stack::layers(b, c, block, h);
    drafting::follow(b, c, (h, &taps));
    parts::head(b, c, h);
}

/// The block of an MTP head has attention.
pub(super) const HEAD: HeadBlock = HeadBlock {
    block,
    store: store_keys_values,
};

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    mix(b, c, l, h);
    let n = l.rms_norm(b, c, "post_attention_norm", h); // [tokens, dim]
    if l.config.experts > 0 {
        experts::mixture(b, c, l, [n, h]);
        return;
    }
    let f = l.gated(b, c, n); // [tokens, ffn]
    l.project_add(b, c, "ffn_down", f, h);
}

/// `h += mix(norm h)`: the delta rule or attention.
fn mix(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    if l.config.mixer.has_state() {
        delta_net(b, c, l, h);
    } else {
        attention(b, c, l, h);
    }
}

/// `h += Wo (attention(norm h) * sigmoid(gate))`. The rows of a head in `attn_q` are its query, then its gate.
fn attention(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let (heads, head_dim) = (l.config.heads, l.config.head_dim);
    let q = l.project(b, c, "attn_q", 2 * l.config.q_dim(), n); // [tokens, heads 2 head_dim]
    let [k, v] = keys_values(b, c, l, n);
    let gate = b.columns_of_groups(q, heads, [head_dim, head_dim]); // [tokens, heads head_dim]
    let q = b.columns_of_groups(q, heads, [0, head_dim]);
    let q = l.head_norm(b, c, "attn_q_norm", q);
    let a = l.attend(b, c, [q, k, v]); // [tokens, heads head_dim]
    let a = b.glu(Activation::Sigmoid, gate, a);
    l.project_add(b, c, "attn_output", a, h);
}

/// K before RoPE and V, `[tokens, kv_heads head_dim]`.
fn keys_values(b: &mut Builder<'_>, c: &Config, l: Layer, n: X) -> [X; 2] {
    let k = l.project(b, c, "attn_k", l.config.kv_dim(), n);
    let v = l.project(b, c, "attn_v", l.config.kv_dim(), n);
    [l.head_norm(b, c, "attn_k_norm", k), v]
}

/// Stores the keys and values of a layer with attention.
fn store_keys_values(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let [k, v] = keys_values(b, c, l, n);
    l.store_kv(b, c, [n, k, v]);
}

/// Defaults of files without these keys.
pub(super) fn defaults(c: &mut Config) {
    c.shared_gate = true;
    if let (Some(_), RecurrentPattern::None) = (&c.recurrent, &c.per_layer.recurrent) {
        c.per_layer.recurrent = RecurrentPattern::Periodic(4);
    }
}
