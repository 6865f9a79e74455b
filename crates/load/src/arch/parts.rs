//! Building blocks of recipes: layers, projections, norms, attention, embedding, logits.

use super::{Config, DENSE_MODULES, LayerConfig};
use crate::plan::builder::{Builder, Heads, LogitMap, Rope, Scores, W, X};

/// A layer of the model. Its index is part of its tensor names.
#[derive(Clone, Copy)]
pub(super) struct Layer {
    /// Prefix of its tensor names: empty except for the encoder of a model that also has a decoder.
    pub(super) prefix: &'static str,
    pub(super) index: u32,
    pub(super) config: LayerConfig,
}

/// Name of the embedding, and of the point with the residual stream before the first layer.
pub(super) const EMBEDDING: &str = "token_embd";

/// Returns the layers of the model.
pub(super) fn layers(c: &Config) -> impl Iterator<Item = Layer> {
    let layers = (0..).zip(&c.layer_configs);
    layers.map(|(index, config)| Layer {
        prefix: "",
        index,
        config: *config,
    })
}

impl Layer {
    /// Returns the full name of a tensor of the layer.
    pub(super) fn tensor(self, name: &str) -> String {
        format!("{}blk.{}.{name}", self.prefix, self.index)
    }

    /// The layer's matrix `name`, `[rows, cols]`.
    pub(super) fn mat(self, b: &mut Builder<'_>, name: &str, rows: u32, cols: u32) -> W {
        b.weight(&self.tensor(&format!("{name}.weight")), rows, cols)
    }

    /// The layer's vector `name`, `[dim]`.
    pub(super) fn vector(self, b: &mut Builder<'_>, name: &str, dim: u32) -> W {
        b.vector(&self.tensor(&format!("{name}.weight")), dim)
    }

    /// RMS norm `name` of the layer.
    pub(super) fn rms_norm(self, b: &mut Builder<'_>, c: &Config, name: &str, x: X) -> X {
        let w = self.vector(b, name, x.cols());
        let y = b.rms_norm(x, w, c.eps);
        b.point(&self.tensor(name), y);
        y
    }

    /// RMS norm `name` of the layer, per head.
    pub(super) fn head_norm(self, b: &mut Builder<'_>, c: &Config, name: &str, x: X) -> X {
        let w = self.vector(b, name, self.config.head_dim);
        let y = b.rms_norm(x, w, c.eps);
        b.point(&self.tensor(name), y);
        y
    }

    /// Layer norm `name` of the layer, with bias.
    pub(super) fn layer_norm(self, b: &mut Builder<'_>, c: &Config, name: &str, x: X) -> X {
        layer_norm(b, c, &self.tensor(name), x)
    }

    /// Returns the attention heads of the layer.
    pub(super) fn heads(self) -> Heads {
        let LayerConfig {
            heads,
            kv_heads,
            head_dim,
            window,
            cache,
            latent,
            ..
        } = self.config;
        Heads {
            layer: cache,
            heads,
            kv_heads,
            head_dim,
            window,
            latent,
        }
    }

    /// Returns the RoPE of the layer; dimension 0 means none.
    pub(super) fn rope(self, c: &Config) -> Rope {
        let Some(index) = self.config.rope else {
            return Rope {
                index: 0,
                dim: 0,
                half_split: c.rope.half_split,
                magnitude: 1.0,
            };
        };
        let rotation = &c.rope.rotations[index as usize];
        Rope {
            index,
            dim: rotation.dim,
            half_split: c.rope.half_split,
            magnitude: rotation.magnitude(),
        }
    }

    /// `W x`, `[tokens, rows]`, with a bias if the file has one.
    pub(super) fn project(self, b: &mut Builder<'_>, c: &Config, name: &str, rows: u32, x: X) -> X {
        let x = self.norm_in(b, c, name, x);
        let w = self.mat(b, name, rows, x.cols());
        let y = b.mat(short(name), w, x);
        self.bias(b, c, name, y);
        b.adapters(&self.tensor(name), x, y);
        let scale = c.projection_scale(name);
        if scale != 1.0 {
            b.scale(y, scale);
        }
        b.point(&self.tensor(name), y);
        y
    }

    /// `W x + bias`, `[tokens, rows]`, with a required bias.
    pub(super) fn project_biased(self, b: &mut Builder<'_>, name: &str, rows: u32, x: X) -> X {
        let w = self.mat(b, name, rows, x.cols());
        let y = b.mat(short(name), w, x);
        let bias = b.vector(&self.tensor(&format!("{name}.bias")), rows);
        b.add_bias(bias, y);
        b.adapters(&self.tensor(name), x, y);
        b.point(&self.tensor(name), y);
        y
    }

    /// `h += scale W x`, with a bias if the file has one.
    pub(super) fn project_add(self, b: &mut Builder<'_>, c: &Config, name: &str, x: X, h: X) {
        let x = self.norm_in(b, c, name, x);
        let w = self.mat(b, name, h.cols(), x.cols());
        let point = self.tensor(name);
        let scale = c.scales.residual * c.projection_scale(name);
        if scale == 1.0 && !b.is_hooked(&point) {
            b.mat_add(w, x, h);
            self.bias(b, c, name, h);
            b.adapters(&point, x, h);
        } else {
            let y = b.mat(short(name), w, x);
            self.bias(b, c, name, y);
            b.adapters(&point, x, y);
            b.point(&point, y);
            b.add(y, h, scale);
        }
    }

    /// Adds the bias of a projection if the architecture requires one or the file has one.
    fn bias(self, b: &mut Builder<'_>, c: &Config, name: &str, y: X) {
        let name = format!("{name}.bias");
        if c.biased || self.has(b, &name) {
            let bias = b.vector(&self.tensor(&name), y.cols());
            b.add_bias(bias, y);
        }
    }

    /// Returns whether the file has this tensor for the layer or an adjacent layer. All layers or none
    /// have it, so that a missing tensor of a single layer is reported as an error.
    pub(super) fn has(self, b: &Builder<'_>, name: &str) -> bool {
        let neighbours = [self.index.checked_sub(1), self.index.checked_add(1)];
        let layers = [Some(self.index)].into_iter().chain(neighbours);
        let mut names = layers
            .flatten()
            .map(|index| Self { index, ..self }.tensor(name));
        names.any(|name| b.has(&name))
    }

    /// Returns whether the file has this tensor for any layer, in models whose layers differ.
    pub(super) fn any_has(self, b: &Builder<'_>, c: &Config, name: &str) -> bool {
        let mut names = (0..c.layers).map(|index| Self { index, ..self }.tensor(name));
        names.any(|name| b.has(&name))
    }

    /// The vector `name` of the layer, `[dim]`, if the layers of the file have it.
    pub(super) fn optional_vector(
        self,
        b: &mut Builder<'_>,
        c: &Config,
        name: &str,
        dim: u32,
    ) -> Option<W> {
        self.any_has(b, c, name)
            .then(|| b.vector(&self.tensor(name), dim))
    }

    /// Applies the input norm of a projection if there is one, as in BitNet embedding models.
    fn norm_in(self, b: &mut Builder<'_>, c: &Config, name: &str, x: X) -> X {
        let norm = format!("{name}_norm_in");
        if !self.has(b, &format!("{norm}.weight")) {
            return x;
        }
        self.rms_norm(b, c, &norm, x)
    }

    /// Q, `[tokens, heads head_dim]`, and K and V, `[tokens, kv_heads head_dim]`.
    pub(super) fn qkv(self, b: &mut Builder<'_>, c: &Config, n: X) -> [X; 3] {
        let (q_dim, kv_dim) = (self.config.q_dim(), self.config.kv_dim());
        [
            self.project(b, c, "attn_q", q_dim, n),
            self.project(b, c, "attn_k", kv_dim, n),
            self.project(b, c, "attn_v", kv_dim, n),
        ]
    }

    /// Applies RoPE, stores K and V in the cache, and computes attention, `[tokens, heads head_dim]`.
    pub(super) fn attend(self, b: &mut Builder<'_>, c: &Config, [q, k, v]: [X; 3]) -> X {
        self.rope_kv(b, c, [q, k, v]);
        self.attention(b, c, q)
    }

    /// Applies RoPE, stores K and V in the cache, and scales Q by its position if the model does.
    pub(super) fn rope_kv(self, b: &mut Builder<'_>, c: &Config, [q, k, v]: [X; 3]) {
        let (at, rope) = (self.heads(), self.rope(c));
        let k_point = self.tensor("attn_k_rope");
        // K after RoPE is only in the cache, unless hooks need it.
        let apart = b.is_hooked(&k_point);
        if apart {
            b.rope(at.heads, at.head_dim, rope, q);
            b.rope(at.kv_heads, at.head_dim, rope, k);
        }
        b.point(&k_point, k);
        if apart {
            b.store_kv(at, k, v, q);
        } else {
            b.rope_kv(at, rope, q, k, v);
        }
        b.point(&self.tensor("attn_q_rope"), q);
        if let Some(scale) = c.attention.query_scale {
            b.scale_at(q, scale);
        }
    }

    /// Applies RoPE to K, and stores K and V in the cache. `x` is any activation with the same tokens.
    pub(super) fn store_kv(self, b: &mut Builder<'_>, c: &Config, [x, k, v]: [X; 3]) {
        let without_queries = Heads {
            heads: 0,
            ..self.heads()
        };
        b.rope_kv(without_queries, self.rope(c), x, k, v);
    }

    /// Applies RoPE to Q and to `row`, `[tokens, head_dim]`, stores the row in the cache, and computes attention, for
    /// which the row is key and value, `[tokens, heads head_dim]`.
    pub(super) fn attend_latent(self, b: &mut Builder<'_>, c: &Config, q: X, row: X) -> X {
        b.rope_keys(self.heads(), self.rope(c), q, row);
        b.point(&self.tensor("attn_q_rope"), q);
        self.attention(b, c, q)
    }

    /// Applies RoPE to `row`, `[tokens, head_dim]`, and stores it in the cache. `x` is any activation with the same
    /// tokens.
    pub(super) fn store_row(self, b: &mut Builder<'_>, c: &Config, [x, row]: [X; 2]) {
        let without_queries = Heads {
            heads: 0,
            ..self.heads()
        };
        b.rope_keys(without_queries, self.rope(c), x, row);
    }

    /// Attention of Q after RoPE, `[tokens, heads head_dim]`.
    pub(super) fn attention(self, b: &mut Builder<'_>, c: &Config, q: X) -> X {
        self.attention_by(b, self.scores(c), q)
    }

    /// Returns the scores of attention without sinks.
    pub(super) fn scores(self, c: &Config) -> Scores {
        let scores = Scores::scaled(self.attention_scale(c)).softcapped(c.attention.cap);
        scores.skipping(self.config.skip)
    }

    /// Attention of Q after RoPE by these scores, `[tokens, heads head_dim]`.
    pub(super) fn attention_by(self, b: &mut Builder<'_>, scores: Scores, q: X) -> X {
        let at = self.heads();
        b.attention_point(&self.tensor("attn_weights"), at, q, scores);
        let a = b.attention(at, q, scores);
        b.point(&self.tensor("attn"), a);
        a
    }

    /// Applies RoPE and computes bidirectional attention within each text, `[tokens, heads head_dim]`.
    pub(super) fn attend_both_ways(self, b: &mut Builder<'_>, c: &Config, [q, k, v]: [X; 3]) -> X {
        let (at, rope) = (self.heads(), self.rope(c));
        if rope.dim > 0 {
            b.rope(at.heads, at.head_dim, rope, q);
            b.rope(at.kv_heads, at.head_dim, rope, k);
            b.point(&self.tensor("attn_q_rope"), q);
            b.point(&self.tensor("attn_k_rope"), k);
        }
        // A window extends by half its size to each side.
        let reach = match at.window {
            0 => u32::MAX,
            window => window / 2,
        };
        let (heads, scale) = (
            [at.heads, at.kv_heads, at.head_dim],
            self.attention_scale(c),
        );
        b.self_attention_point(&self.tensor("attn_weights"), heads, [q, k], scale, reach);
        let a = b.self_attention(heads, [q, k, v], scale, reach);
        b.point(&self.tensor("attn"), a);
        a
    }

    /// Returns the attention scale of the file, or `1 / sqrt(head_dim)`.
    pub(super) fn attention_scale(self, c: &Config) -> f32 {
        if c.attention.scale > 0.0 {
            c.attention.scale
        } else {
            1.0 / (self.config.head_dim as f32).sqrt()
        }
    }

    /// Applies the activation function to `f`, `[tokens, ffn]`.
    pub(super) fn activate(self, b: &mut Builder<'_>, c: &Config, f: X) {
        b.activate(c.ffn.activation, f);
        b.point(&self.tensor("ffn"), f);
    }

    /// `act(gate n) * up n`, `[tokens, ffn]`.
    pub(super) fn gated(self, b: &mut Builder<'_>, c: &Config, n: X) -> X {
        let gate = self.project(b, c, "ffn_gate", self.config.ffn, n);
        let up = self.project(b, c, "ffn_up", self.config.ffn, n);
        let f = b.glu(c.ffn.activation, gate, up);
        b.point(&self.tensor("ffn"), f);
        f
    }

    /// Norm and gated feed-forward layer: `h += down(act(gate n) * up n)`.
    pub(super) fn feed_forward(self, b: &mut Builder<'_>, c: &Config, h: X) {
        let n = self.rms_norm(b, c, "ffn_norm", h); // [tokens, dim]
        let f = self.gated(b, c, n); // [tokens, ffn]
        self.project_add(b, c, "ffn_down", f, h);
    }
}

/// Layer norm `name`, with bias.
pub(super) fn layer_norm(b: &mut Builder<'_>, c: &Config, name: &str, x: X) -> X {
    let w = b.vector(&format!("{name}.weight"), x.cols());
    let y = b.layer_norm(x, w, c.eps);
    let bias = b.vector(&format!("{name}.bias"), x.cols());
    b.add_bias(bias, y);
    b.point(name, y);
    y
}

/// Token embeddings, `[tokens, dim]`.
pub(super) fn embed(b: &mut Builder<'_>, c: &Config) -> X {
    embed_by(b, c, EMBEDDING)
}

/// Token embeddings of this matrix, `[tokens, dim]`.
pub(super) fn embed_by(b: &mut Builder<'_>, c: &Config, name: &str) -> X {
    let w = b.weight(&format!("{name}.weight"), c.vocab, c.dim);
    let h = b.embed(w);
    if c.scales.embedding != 1.0 {
        b.scale(h, c.scales.embedding);
    }
    h
}

/// Output norm and logits.
pub(super) fn head(b: &mut Builder<'_>, c: &Config, h: X) {
    let rows = b.logit_rows(h);
    let w = b.vector("output_norm.weight", c.dim);
    let n = b.rms_norm(rows, w, c.eps);
    logits(b, c, n);
}

/// Output norm, a layer norm, and logits.
pub(super) fn layer_norm_head(b: &mut Builder<'_>, c: &Config, h: X) {
    let rows = b.logit_rows(h);
    let n = layer_norm(b, c, "output_norm", rows);
    logits(b, c, n);
}

/// Logits of normalized rows. An embedding table ends with the rows.
pub(super) fn logits(b: &mut Builder<'_>, c: &Config, n: X) {
    if b.ends_with_rows() {
        return embeddings(b, c, n);
    }
    logits_of(b, c, "output", n);
}

/// Logits of normalized rows by this matrix.
pub(super) fn logits_of(b: &mut Builder<'_>, c: &Config, name: &str, n: X) {
    let w = b.weight(&format!("{name}.weight"), c.vocab, c.dim);
    let bias = &format!("{name}.bias");
    let map = LogitMap {
        bias: b.has(bias).then(|| b.vector(bias, c.vocab)),
        scale: 1.0 / c.output.logit_scale,
        cap: c.output.logit_cap,
    };
    b.logits(w, n, map);
}

/// Output of an embedding table: the rows, after the Dense modules of sentence-transformers. These are
/// linear, so that pooling of their outputs gives the same as that of their inputs.
pub(super) fn embeddings(b: &mut Builder<'_>, c: &Config, x: X) {
    if c.dense.after_pooling {
        return b.output(x);
    }
    let mut x = x; // [tokens, dim]
    for ((_, name), features) in DENSE_MODULES.iter().zip(c.dense.features) {
        // Some files lack the number of features.
        let features = features.unwrap_or_else(|| b.rows_of(&format!("{name}.weight")));
        if features > 0 {
            x = linear(b, name, features, x); // [tokens, features]
        }
    }
    b.output(x);
}

/// `W x`, `[tokens, rows]`, of a matrix that is outside of the layers, with a bias if the file has one.
pub(super) fn linear(b: &mut Builder<'_>, name: &str, rows: u32, x: X) -> X {
    let w = b.weight(&format!("{name}.weight"), rows, x.cols());
    let y = b.mat(name, w, x);
    let bias = format!("{name}.bias");
    if b.has(&bias) {
        let bias = b.vector(&bias, rows);
        b.add_bias(bias, y);
    }
    y
}

/// Returns the name of an activation in listings: `attn_q` gives `q`, `ffn_gate` gives `gate`.
pub(super) fn short(name: &str) -> &str {
    name.rsplit('_').next().unwrap_or(name)
}
