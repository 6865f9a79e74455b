//! Gemma 4, text models: Gemma 3's block with unweighted V norms, layers that share a KV cache,
//! two head dimensions, per-layer token embeddings, and experts next to the dense feed-forward layer.

use super::experts::Selection;
use super::family::{Arch, DEFAULT, HfModel};
use super::gemma2::{after_attention, feed_forward};
use super::names::{self, Names, Pairs};
use super::parts::{self, Layer};
use super::{Config, RopeScaling};
use crate::op::functions::Activation;
use crate::plan::builder::{Builder, X};

pub(super) const ARCH: Arch = Arch {
    name: "gemma4",
    hf: &[HfModel {
        types: &["gemma4_text", "gemma4"],
        json: r#"{"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216,
            "num_hidden_layers": 30, "num_attention_heads": 8, "num_key_value_heads": 4,
            "head_dim": 256, "global_head_dim": 512, "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-6, "sliding_window": 512, "sliding_window_pattern": 6,
            "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 0,
            "use_double_wide_mlp": false, "attention_k_eq_v": false, "enable_moe_block": false,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                    "rope_theta": 1e6}},
            "tie_word_embeddings": true}"#,
        ..HfModel::DEFAULT
    }],
    names: &Names {
        outer: LAYER_EMBEDDINGS,
        layer: &[
            names::SANDWICH,
            names::ATTENTION,
            names::FEED_FORWARD,
            LAYER_EMBEDDING,
            &[("layer_scalar", "layer_output_scale")],
            &[
                ("post_feedforward_layernorm_1", "post_ffw_norm_1"),
                ("pre_feedforward_layernorm_2", "pre_ffw_norm_2"),
                ("post_feedforward_layernorm_2", "post_ffw_norm_2"),
                ("router.proj", "ffn_gate_inp"),
                ("router.scale", "ffn_gate_inp.scale"),
                ("router.per_expert_scale", "ffn_down_exps.scale"),
                ("experts.gate_up_proj", "ffn_gate_up_exps"),
                ("experts.down_proj", "ffn_down_exps"),
                ("experts.switch_glu.gate_proj", "ffn_gate_exps"),
                ("experts.switch_glu.up_proj", "ffn_up_exps"),
                ("experts.switch_glu.down_proj", "ffn_down_exps"),
            ],
        ],
        ..names::LLAMA
    },
    activation: Activation::GeluTanh,
    defaults,
    recipe,
    ..DEFAULT
};

/// Modules of Gemma with per-layer embeddings; in Gemma 3n also matrices of its streams.
pub(super) const LAYER_EMBEDDINGS: Pairs = &[
    ("embed_tokens", "token_embd"),
    ("norm", "output_norm"),
    ("lm_head", names::HEAD),
    ("embed_tokens_per_layer", "per_layer_token_embd"),
    ("per_layer_model_projection", "per_layer_model_proj"),
    ("per_layer_projection_norm", "per_layer_proj_norm"),
    ("altup_projections", "altup_proj"),
    ("altup_unembed_projections", "altup_unembd_proj"),
];

/// Modules that add a per-layer embedding.
pub(super) const LAYER_EMBEDDING: Pairs = &[
    ("per_layer_input_gate", "inp_gate"),
    ("per_layer_projection", "proj"),
    ("post_per_layer_input_norm", "post_norm"),
];

fn recipe(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    b.point(parts::EMBEDDING, h);
    let embeddings = (c.layer_embeddings.width > 0).then(|| layer_embeddings(b, c, c.vocab, h));
    for l in parts::layers(c) {
        attention(b, c, l, h);
        if l.config.experts == 0 {
            feed_forward(b, c, l, h);
        } else {
            mixture(b, c, l, h);
        }
        if let Some(embeddings) = embeddings {
            let o = layer_embedding(b, c, l, embeddings, h);
            b.add(o, h, 1.0);
        }
        if l.has(b, "layer_output_scale.weight") {
            let scale = l.vector(b, "layer_output_scale", 1);
            b.mul(scale, h);
        }
        b.end_of_layer(h);
    }
    parts::head(b, c, h);
}

/// Per-layer embeddings: each layer's own embedding plus a projection of the token embedding,
/// `[tokens, layers width]`, for the first `vocab` tokens.
pub(super) fn layer_embeddings(b: &mut Builder<'_>, c: &Config, vocab: u32, h: X) -> X {
    let cols = c.layers * c.layer_embeddings.width;
    let width = c.layer_embeddings.width as f32;
    let table = b.weight("per_layer_token_embd.weight", vocab, cols);
    let token = b.embed(table);
    let w = b.weight("per_layer_model_proj.weight", cols, c.dim);
    let context = b.mat("context", w, h);
    b.scale(context, 1.0 / (c.dim as f32).sqrt());
    let norm = b.vector("per_layer_proj_norm.weight", c.layer_embeddings.width);
    let embeddings = b.rms_norm(context, norm, c.eps); // per layer
    b.add(token, embeddings, width.sqrt());
    b.scale(embeddings, std::f32::consts::FRAC_1_SQRT_2);
    embeddings
}

/// Returns whether full-attention layers have no V and use K before its norm.
fn values_are_keys(b: &Builder<'_>, c: &Config) -> bool {
    let mut full = parts::layers(c).filter(|l| l.config.window == 0);
    full.all(|l| !b.has(&l.tensor("attn_v.weight")))
}

/// `h += norm(Wo attention(norm h))`.
fn attention(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let q = attention_input(b, c, l, n);
    let a = l.attention(b, c, q); // [tokens, heads head_dim]
    after_attention(b, c, l, a, h);
}

/// Q of the normalized rows `n`, with norm and RoPE, `[tokens, heads head_dim]`. Stores K and V in the
/// cache, unless the layer shares that of another.
pub(super) fn attention_input(b: &mut Builder<'_>, c: &Config, l: Layer, n: X) -> X {
    let at = l.heads();
    let q = l.project(b, c, "attn_q", l.config.q_dim(), n); // [tokens, heads head_dim]
    let q = l.head_norm(b, c, "attn_q_norm", q);
    if at.layer == l.index {
        let k = l.project(b, c, "attn_k", l.config.kv_dim(), n); // [tokens, kv_heads head_dim]
        let v = if l.config.window == 0 && values_are_keys(b, c) {
            k
        } else {
            l.project(b, c, "attn_v", l.config.kv_dim(), n)
        };
        let v = b.unit_norm(v, l.config.head_dim, c.eps);
        let k = l.head_norm(b, c, "attn_k_norm", k);
        l.rope_kv(b, c, [q, k, v]);
    } else {
        b.rope(at.heads, at.head_dim, l.rope(c), q);
        b.point(&l.tensor("attn_q_rope"), q);
    }
    q
}

/// `h += norm(norm(dense(norm h)) + norm(experts(norm h)))`. The router has a norm of its own.
fn mixture(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "ffn_norm", h); // [tokens, dim]
    let f = l.gated(b, c, n); // [tokens, ffn]
    let d = l.project(b, c, "ffn_down", c.dim, f);
    let d = l.rms_norm(b, c, "post_ffw_norm_1", d);
    let r = b.unit_norm(h, c.dim, c.eps);
    let scale = b.vector(&l.tensor("ffn_gate_inp.scale"), c.dim);
    b.mul(scale, r);
    b.scale(r, 1.0 / (c.dim as f32).sqrt());
    let selection = Selection::of(b, c, l, r);
    let n = l.rms_norm(b, c, "pre_ffw_norm_2", h);
    let e = selection.sum(b, c, l, n); // [tokens, dim]
    b.point(&l.tensor("ffn_down_exps"), e);
    let e = l.rms_norm(b, c, "post_ffw_norm_2", e);
    b.add(e, d, 1.0);
    let o = l.rms_norm(b, c, "post_ffw_norm", d);
    b.add(o, h, 1.0);
}

/// `norm(proj(act(gate h) * own))`, where `own` is the embedding of this layer.
pub(super) fn layer_embedding(b: &mut Builder<'_>, c: &Config, l: Layer, embeddings: X, h: X) -> X {
    let width = c.layer_embeddings.width;
    let own = b.columns(embeddings, l.index * width, width);
    let gate = l.project(b, c, "inp_gate", width, h); // [tokens, width]
    let g = b.glu(c.ffn.activation, gate, own);
    let o = l.project(b, c, "proj", c.dim, g); // [tokens, dim]
    l.rms_norm(b, c, "post_norm", o)
}

/// Defaults of Gemma 4.
fn defaults(c: &mut Config) {
    c.scale_embeddings();
    c.use_gelu_tanh();
    c.attention.scale = 1.0;
    c.default_window_theta(10_000.0);
    // GGUF files store the proportional rule only as factors.
    if c.rope.rotations[0].scaling == RopeScaling::None {
        c.rope.rotations[0].scaling = RopeScaling::Listed;
    }
}
