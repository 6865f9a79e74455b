//! Positions, the cache, attention.

use super::{Builder, X};
use crate::dtype::DType;
use crate::op::list::Op;
use crate::op::shaders;
use crate::op::table::{Place, Slot};

/// The heads of an attention layer and how positions turn them.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Layer, for the cache.
    pub layer: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads; divides `heads`.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Elements of a head that are rotated.
    pub rope_dim: u32,
    /// Whether pairs are `(i, i + rope_dim / 2)` rather than `(2 i, 2 i + 1)`.
    pub half_split: bool,
}

impl Builder<'_> {
    /// Turns `q` by its position, stores the turned `k` and `v` in the layer's cache.
    pub fn rope_kv(&mut self, at: Heads, q: X, k: X, v: X) {
        let freqs = self.place(
            "rope_freqs",
            DType::F32,
            [1, at.rope_dim / 2],
            Place::Constant(0),
        );
        let [keys, values] = self.cache(at);
        let params = shaders::rope_kv::Params {
            tokens: q.tokens,
            heads: at.heads,
            kv_heads: at.kv_heads,
            head_dim: at.head_dim,
            rope_dim: at.rope_dim,
            half_split: u32::from(at.half_split),
        };
        let slots = [k.slot, v.slot, freqs, q.slot, keys, values, self.state];
        let work = [at.heads + at.kv_heads, q.tokens];
        self.emit((Op::RopeKv, Some(self.shape.cache)), &slots, &params, work);
    }

    /// Attention of `q` over all positions up to its own, `[tokens, heads head_dim]`.
    pub fn attention(&mut self, at: Heads, q: X, scale: f32) -> X {
        let y = self.scratch("a", q.tokens, q.cols);
        let [keys, values] = self.cache(at);
        let params = shaders::attention::Params {
            tokens: q.tokens,
            heads: at.heads,
            kv_heads: at.kv_heads,
            head_dim: at.head_dim,
            scale,
        };
        let slots = [q.slot, keys, values, y.slot, self.state];
        let work = [at.heads, q.tokens];
        self.emit(
            (Op::Attention, Some(self.shape.cache)),
            &slots,
            &params,
            work,
        );
        y
    }

    /// The key and value cache of a layer, `[context, kv_heads head_dim]`.
    fn cache(&mut self, at: Heads) -> [Slot; 2] {
        let shape = [self.shape.context, at.kv_heads * at.head_dim];
        let layer = at.layer;
        let dtype = self.shape.cache;
        [
            self.place(&format!("k.{layer}"), dtype, shape, Place::Keys(layer)),
            self.place(&format!("v.{layer}"), dtype, shape, Place::Values(layer)),
        ]
    }
}
