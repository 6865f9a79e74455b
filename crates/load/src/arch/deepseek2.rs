//! DeepSeek V2 and V3, GLM 4.7 Flash: multi-head latent attention (MLA), and mixtures of experts after the first layers.
//!
//! Formula: DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1, with the products of keys and values absorbed into those of
//! queries and outputs: the cache has one row `[rotated key | c]` per position, which is the key and the value of all
//! heads; a head multiplies its query by its key matrix, and its result by its value matrix.

use super::family::{Arch, DEFAULT, HeadBlock, HfModel, RopePairs};
use super::latent_config::{EPS, FUSED_KEYS_VALUES, Latent};
use super::names::{self, Names};
use super::parts::{self, Layer};
use super::{Config, drafting, experts};
use crate::plan::builder::{Builder, Router, Routes, X};

pub(super) const ARCH: Arch = Arch {
    name: "deepseek2",
    hf: &[
        HfModel {
            types: &["deepseek_v2"],
            json: r#"{"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "first_k_dense_replace": 0,
                "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64, "v_head_dim": 128, "num_experts_per_tok": 2,
                "moe_intermediate_size": 1407, "n_routed_experts": 64, "routed_scaling_factor": 1.0,
                "topk_method": "greedy", "scoring_func": "softmax"}"#,
            ..HfModel::DEFAULT
        },
        HfModel {
            types: &["deepseek_v3"],
            json: r#"{"vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432,
                "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
                "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "n_shared_experts": 1,
                "n_routed_experts": 256, "routed_scaling_factor": 2.5, "kv_lora_rank": 512,
                "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                "v_head_dim": 128, "n_group": 8, "topk_group": 4, "num_experts_per_tok": 8,
                "first_k_dense_replace": 3, "norm_topk_prob": true, "scoring_func": "sigmoid"}"#,
            ..HfModel::DEFAULT
        },
        HfModel {
            types: &["glm4_moe_lite"],
            json: r#"{"vocab_size": 154880, "hidden_size": 2048, "intermediate_size": 10240,
                "moe_intermediate_size": 1536, "num_hidden_layers": 47, "num_attention_heads": 20,
                "max_position_embeddings": 202752, "rms_norm_eps": 1e-5, "n_shared_experts": 1,
                "n_routed_experts": 64, "routed_scaling_factor": 1.8, "kv_lora_rank": 512,
                "q_lora_rank": 768, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
                "v_head_dim": 256, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 4,
                "first_k_dense_replace": 1, "norm_topk_prob": true, "scoring_func": "sigmoid"}"#,
            ..HfModel::DEFAULT
        },
    ],
    names: &NAMES,
    rope_pairs: RopePairs::Adjacent,
    router: Router {
        eps: 1e-20,
        ..Router::softmax(0)
    },
    latent: true,
    mtp: Some(HEAD),
    recipe,
    ..DEFAULT
};

const NAMES: Names = Names {
    layer: &[
        names::PRE_NORMS,
        names::FEED_FORWARD,
        names::EXPERTS,
        &[
            ("self_attn.q_proj", "attn_q"),
            ("self_attn.q_a_proj", "attn_q_a"),
            ("self_attn.q_a_layernorm", "attn_q_a_norm"),
            ("self_attn.q_b_proj", "attn_q_b"),
            ("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"),
            ("self_attn.kv_a_layernorm", "attn_kv_a_norm"),
            ("self_attn.kv_b_proj", "attn_kv_b"),
            ("self_attn.embed_q", "attn_k_b"),
            ("self_attn.unembed_out", "attn_v_b"),
            ("self_attn.o_proj", "attn_output"),
            ("eh_proj", "nextn.eh_proj"),
            ("enorm", "nextn.enorm"),
            ("hnorm", "nextn.hnorm"),
            ("embed_tokens", "nextn.embed_tokens"),
            ("shared_head.norm", "nextn.shared_head_norm"),
            ("shared_head.head", "nextn.shared_head_head"),
            ("mlp.gate.e_score_correction_bias", "exp_probs_b.bias"),
            ("mlp.shared_experts.gate_proj", "ffn_gate_shexp"),
            ("mlp.shared_experts.up_proj", "ffn_up_shexp"),
            ("mlp.shared_experts.down_proj", "ffn_down_shexp"),
        ],
    ],
    split: &[FUSED_KEYS_VALUES],
    ..names::LLAMA
};

fn recipe(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    let of_heads = b.head_routes(c.attention.heads);
    b.point(parts::EMBEDDING, h);
    for l in parts::layers(c) {
        block(b, c, l, h, of_heads);
        b.end_of_layer(h);
    }
    drafting::follow(b, c, h, &[]);
    parts::head(b, c, h);
}

/// The block of an MTP head.
const HEAD: HeadBlock = HeadBlock {
    block: |b, c, l, h| {
        let of_heads = b.head_routes(c.attention.heads);
        block(b, c, l, h, of_heads);
    },
    store: |b, c, l, h| {
        let n = l.rms_norm(b, c, "attn_norm", h);
        let row = row(b, c, l, n);
        l.store_row(b, c, [n, row]);
    },
};

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X, of_heads: Routes) {
    attention(b, c, l, h, of_heads);
    experts::feed_forward(b, c, l, h);
}

/// `h += Wo [Wv[0] u[0], Wv[1] u[1], ..]`, where `u[i]` is the attention of head `i` to the rows of the cache.
fn attention(b: &mut Builder<'_>, c: &Config, l: Layer, h: X, of_heads: Routes) {
    let latent = latent(c);
    let Latent {
        rank, rope, value, ..
    } = latent;
    let heads = l.config.heads;
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let q = query(b, c, l, latent, n, of_heads); // [tokens, heads (rope + rank)]
    let row = row(b, c, l, n);
    let a = l.attend_latent(b, c, q, row); // [tokens, heads (rope + rank)]
    let u = b.columns_of_groups(a, heads, [rope, rank]); // [tokens, heads rank]
    let w = l.mat(b, "attn_v_b", heads * value, rank);
    let o = b.experts("v_b", w, u, of_heads); // [tokens, heads value]
    b.point(&l.tensor("attn"), o);
    l.project_add(b, c, "attn_output", o, h);
}

fn latent(c: &Config) -> Latent {
    match c.attention.latent {
        Some(latent) => latent,
        None => unreachable!("the architecture has latent attention"),
    }
}

/// Row of the cache before RoPE, `[key | c]`, `[tokens, rope + rank]`.
fn row(b: &mut Builder<'_>, c: &Config, l: Layer, n: X) -> X {
    let Latent { rank, rope, .. } = latent(c);
    let kv = l.project(b, c, "attn_kv_a_mqa", rank + rope, n);
    let c_kv = b.columns(kv, 0, rank);
    let w = l.vector(b, "attn_kv_a_norm", rank);
    let c_kv = b.rms_norm(c_kv, w, EPS);
    let key = b.columns(kv, rank, rope);
    b.concat_groups(1, [key, c_kv])
}

/// Queries `[q_rope | Wk q]` of all heads, `[tokens, heads (rope + rank)]`, before RoPE.
fn query(b: &mut Builder<'_>, c: &Config, l: Layer, latent: Latent, n: X, of_heads: Routes) -> X {
    let Latent {
        query_rank,
        rank,
        plain,
        rope,
        ..
    } = latent;
    let heads = l.config.heads;
    let width = heads * (plain + rope);
    let q = if query_rank == 0 {
        l.project(b, c, "attn_q", width, n)
    } else {
        let x = l.project(b, c, "attn_q_a", query_rank, n);
        let w = l.vector(b, "attn_q_a_norm", query_rank);
        let x = b.rms_norm(x, w, EPS);
        l.project(b, c, "attn_q_b", width, x)
    };
    let rotated = b.columns_of_groups(q, heads, [plain, rope]);
    let q = b.columns_of_groups(q, heads, [0, plain]);
    let w = l.mat(b, "attn_k_b", heads * rank, plain);
    let q = b.experts("k_b", w, q, of_heads); // [tokens, heads rank]
    b.concat_groups(heads, [rotated, q])
}
