//! DeepSeek V2 and V3, GLM 4.7 Flash: multi-head latent attention (MLA), and mixtures of experts after the first layers.
//!
//! Formula: DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1, with the products of keys and values absorbed into those of
//! queries and outputs: the cache has one row `[rotated key | c]` per position, which is the key and the value of all
//! heads; a head multiplies its query by its key matrix, and its result by its value matrix.

use super::drafting;
use super::family::HeadBlock;
use super::latent_config::{EPS, Latent};
use super::parts::{self, Layer};
use super::{Config, experts};
use crate::plan::builder::{Builder, Routes, X};

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    let of_heads = b.head_routes(c.heads);
    b.point(parts::EMBEDDING, h);
    for l in parts::layers(c) {
        block(b, c, l, h, of_heads);
        b.end_of_layer(h);
    }
    drafting::follow(b, c, (h, &[]));
    parts::head(b, c, h);
}

/// The block of an MTP head.
pub(super) const HEAD: HeadBlock = HeadBlock {
    block: |b, c, l, h| {
        let of_heads = b.head_routes(c.heads);
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
    match c.latent {
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
