//! RoPE, KV cache and attention.

use super::base::Builder;
use super::operand::{W, X};
use super::shape::Shape;
use tabla_core::dtype::DType;
use tabla_core::op::list::Op;
use tabla_core::op::params;
use tabla_core::op::params::PAGE;
use tabla_core::op::table::FEW_TOKENS;
use tabla_core::op::table::{BufferId, Slot};

/// Heads of an attention layer.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Layer index, selects the KV cache.
    pub layer: u32,
    /// Number of query heads.
    pub heads: u32,
    /// Number of KV heads; divides `heads`.
    pub kv_heads: u32,
    /// Number of elements per head.
    pub head_dim: u32,
    /// Sliding window: number of positions that a query sees, including its own; 0: all.
    pub window: u32,
    /// Whether the rows of the cache are keys and values, which [`Builder::rope_keys`] stores.
    pub latent: bool,
}

/// Scores of an attention layer.
#[derive(Clone, Copy, Debug)]
pub struct Scores {
    /// Factor of `q . k`.
    pub scale: f32,
    /// Scores are `softcap tanh(score / softcap)`; 0: unchanged.
    pub softcap: f32,
    /// A score per query head that takes part in the softmax and has no value, `[heads]`.
    pub sinks: Option<W>,
    /// Number of positions, at the start of a sequence, that other positions do not see.
    pub skip: u32,
}

impl Scores {
    /// Scores `scale q . k`.
    #[must_use]
    pub const fn scaled(scale: f32) -> Self {
        Self {
            scale,
            softcap: 0.0,
            sinks: None,
            skip: 0,
        }
    }

    /// Scores with a soft cap.
    #[must_use]
    pub const fn softcapped(self, softcap: f32) -> Self {
        Self { softcap, ..self }
    }

    /// Scores of positions that do not see the first `skip`.
    #[must_use]
    pub const fn skipping(self, skip: u32) -> Self {
        Self { skip, ..self }
    }

    /// Returns the slot of the sinks. Without sinks they are not read; returns that of any activation.
    pub(super) fn sinks_or(&self, x: X) -> Slot {
        self.sinks.map_or(x.slot, |w| w.slot)
    }
}

/// Maximum number of parts of split attention.
const PARTS_MAX: u32 = 64;

/// Maximum number of elements per head for split attention.
const PARTS_HEAD_MAX: u32 = 576;

/// Rotary position embedding (`RoPE`).
#[derive(Clone, Copy, Debug)]
pub struct Rope {
    /// Index of the constant with the frequencies, `[dim / 2]`, in radians per position.
    pub index: u32,
    /// Number of rotated elements per head; 0: none.
    pub dim: u32,
    /// Whether pairs are `(i, i + dim / 2)` (`NeoX`) or `(2 i, 2 i + 1)`.
    pub half_split: bool,
    /// Factor of cosine and sine.
    pub magnitude: f32,
}

impl Builder<'_> {
    /// Emits the rotation of `q` in place, and the store of the rotated `k` and of `v` in the KV
    /// cache of the layer.
    pub fn rope_kv(&mut self, at: Heads, rope: Rope, q: X, k: X, v: X) {
        // Without rotation, frequencies are not read; bind any f32 slot.
        let freqs = match rope.dim {
            0 => k.slot,
            _ => self.freqs(rope),
        };
        let ([keys, values], pages) = self.cache(at);
        let pages_of_layer = self.shape.pages.of(at.window);
        let params = params::rope_kv::Params {
            tokens: q.tokens,
            heads: at.heads,
            kv_heads: at.kv_heads,
            head_dim: at.head_dim,
            rope_dim: rope.dim,
            half_split: u32::from(rope.half_split),
            magnitude: rope.magnitude,
            stride: self.shape.pages.stride(),
            first: pages_of_layer.first,
            ring: pages_of_layer.ring,
        };
        let slots = [
            k.slot, v.slot, freqs, pages, q.slot, keys, values, self.state,
        ];
        let work = [at.heads + at.kv_heads, q.tokens];
        self.emit(Op::RopeKv, Some(self.shape.cache), &slots, &params, work);
    }

    /// Emits the rotation of `q` in place, and the store of the rotated `k` in the cache of the layer, whose rows are keys
    /// and values. Without query heads, `q` is any activation with the same tokens, which does not change.
    pub fn rope_keys(&mut self, at: Heads, rope: Rope, q: X, k: X) {
        let q_cols = at.heads * at.head_dim;
        let is_queries = at.heads == 0 || q.cols == q_cols;
        if !at.latent || k.cols != at.kv_heads * at.head_dim || !is_queries {
            self.fail(format!(
                "shape mismatch: keys of {} columns and queries of {} for {at:?}",
                k.cols, q.cols
            ));
        }
        let freqs = match rope.dim {
            0 => k.slot,
            _ => self.freqs(rope),
        };
        let ([keys, _], pages) = self.cache(at);
        let pages_of_layer = self.shape.pages.of(at.window);
        let params = params::rope_keys::Params {
            tokens: q.tokens,
            heads: at.heads,
            kv_heads: at.kv_heads,
            head_dim: at.head_dim,
            rope_dim: rope.dim,
            half_split: u32::from(rope.half_split),
            magnitude: rope.magnitude,
            stride: self.shape.pages.stride(),
            first: pages_of_layer.first,
            ring: pages_of_layer.ring,
        };
        let slots = [k.slot, freqs, q.slot, pages, keys, self.state];
        let work = [at.heads + at.kv_heads, q.tokens];
        let cache = Some(self.shape.cache);
        self.emit(Op::RopeKeys, cache, &slots, &params, work);
    }

    /// Emits the load of the row of the previous position from the cache of a layer, whose rows are only keys; returns
    /// `[tokens, kv_heads head_dim]`, 0 for the first position. [`Self::rope_keys`] stores the rows.
    pub fn previous_row(&mut self, at: Heads) -> X {
        let cols = at.kv_heads * at.head_dim;
        let y = self.scratch("previous", self.shape.tokens, cols);
        let ([keys, _], pages) = self.cache(at);
        let pages_of_layer = self.shape.pages.of(at.window);
        let params = params::previous_row::Params {
            tokens: y.tokens,
            kv_heads: at.kv_heads,
            head_dim: at.head_dim,
            stride: self.shape.pages.stride(),
            first: pages_of_layer.first,
            ring: pages_of_layer.ring,
        };
        let slots = [y.slot, keys, self.state, pages];
        let work = [cols / 2, y.tokens];
        let cache = Some(self.shape.cache);
        self.emit(Op::PreviousRow, cache, &slots, &params, work);
        y
    }

    /// Emits the rotation of `x` in place, without a KV cache.
    pub fn rope(&mut self, heads: u32, head_dim: u32, rope: Rope, x: X) {
        if rope.dim == 0 {
            return;
        }
        let freqs = self.freqs(rope);
        let params = params::rope::Params {
            tokens: x.tokens,
            heads,
            head_dim,
            rope_dim: rope.dim,
            half_split: u32::from(rope.half_split),
            magnitude: rope.magnitude,
        };
        let slots = [freqs, x.slot, self.state];
        self.emit(Op::Rope, None, &slots, &params, [heads, x.tokens]);
    }

    /// Emits attention of `q` over its window; returns `[tokens, heads head_dim]`.
    pub fn attention(&mut self, at: Heads, q: X, scores: Scores) -> X {
        self.attend(at, q, scores, 0)
    }

    /// Emits attention of `q` over the first `positions` positions, whatever its own; returns
    /// `[tokens, heads head_dim]`. [`Self::store_kv`] stores their keys and values.
    pub fn cross_attention(&mut self, at: Heads, q: X, scale: f32, positions: u32) -> X {
        self.attend(at, q, Scores::scaled(scale), positions)
    }

    /// Emits the scores of `head` of `q` for the first `positions` positions, as number `index` of
    /// `count` such results in [`BufferId::Alignment`], `[tokens, count positions]`.
    pub fn attention_scores(
        &mut self,
        at: Heads,
        q: X,
        head: u32,
        scale: f32,
        positions: u32,
        [index, count]: [u32; 2],
    ) {
        let ([keys, _], pages) = self.cache(at);
        let pages_of_layer = self.shape.pages.of(at.window);
        let width = count.saturating_mul(positions);
        let shape = [q.tokens, width];
        let y = self.buffer_slot("alignment", DType::F32, shape, BufferId::Alignment);
        let params = params::attention_scores::Params {
            tokens: q.tokens,
            heads: at.heads,
            kv_heads: at.kv_heads,
            head_dim: at.head_dim,
            scale,
            stride: self.shape.pages.stride(),
            first: pages_of_layer.first,
            ring: pages_of_layer.ring,
            positions,
            head,
            offset: index * positions,
            width,
        };
        let slots = [q.slot, keys, y, pages, self.state];
        let (cache, work) = (Some(self.shape.cache), [positions, q.tokens]);
        self.emit(Op::AttentionScores, cache, &slots, &params, work);
    }

    /// Emits the store of `k` and `v`, without rotation, in the KV cache of the layer. `x` is any
    /// activation with the same tokens, which does not change.
    pub fn store_kv(&mut self, at: Heads, k: X, v: X, x: X) {
        let without_queries = Heads { heads: 0, ..at };
        let rope = Rope {
            index: 0,
            dim: 0,
            half_split: true,
            magnitude: 1.0,
        };
        self.rope_kv(without_queries, rope, x, k, v);
    }

    /// Emits attention over the window, or over `positions` positions unless that is 0.
    fn attend(&mut self, at: Heads, q: X, scores: Scores, positions: u32) -> X {
        let head = at.head_dim;
        let octets = head.is_multiple_of(8) && (1..=PARTS_HEAD_MAX).contains(&head);
        if self.shape.part > 0 && q.tokens <= FEW_TOKENS && octets {
            let part = self.shape.part;
            return self.attend_parts(at, q, scores, [part, positions]);
        }
        let y = self.scratch("a", q.tokens, q.cols);
        let ([keys, values], pages) = self.cache(at);
        let pages_of_layer = self.shape.pages.of(at.window);
        let params = params::attention::Params {
            tokens: q.tokens,
            heads: at.heads,
            kv_heads: at.kv_heads,
            head_dim: at.head_dim,
            scale: scores.scale,
            softcap: scores.softcap,
            window: self.window(at, positions),
            stride: self.shape.pages.stride(),
            first: pages_of_layer.first,
            ring: pages_of_layer.ring,
            positions,
            sinks: u32::from(scores.sinks.is_some()),
            skip: scores.skip,
        };
        let sinks = scores.sinks_or(q);
        let slots = [q.slot, keys, values, pages, sinks, y.slot, self.state];
        let work = [at.heads, q.tokens];
        self.emit(Op::Attention, Some(self.shape.cache), &slots, &params, work);
        y
    }

    /// Emits split attention, for few tokens and many positions: parts of `part` positions are
    /// processed in parallel, or of more if 64 parts of that size are too few for the visible positions.
    pub fn split_attention(&mut self, at: Heads, q: X, scores: Scores, part: u32) -> X {
        self.attend_parts(at, q, scores, [part, 0])
    }

    fn attend_parts(&mut self, at: Heads, q: X, scores: Scores, [part, positions]: [u32; 2]) -> X {
        let (tokens, window) = (q.tokens, self.window(at, positions));
        let parts = window.div_ceil(part.max(1)).min(PARTS_MAX);
        let size = at.heads * parts * (at.head_dim + 2);
        let x = self.scratch("p", tokens, size);
        let ([keys, values], pages) = self.cache(at);
        let pages_of_layer = self.shape.pages.of(at.window);
        let params = params::attend_part::Params {
            tokens,
            heads: at.heads,
            kv_heads: at.kv_heads,
            head_dim: at.head_dim,
            scale: scores.scale,
            softcap: scores.softcap,
            window,
            stride: self.shape.pages.stride(),
            first: pages_of_layer.first,
            ring: pages_of_layer.ring,
            part,
            parts,
            positions,
            skip: scores.skip,
        };
        let slots = [q.slot, keys, values, pages, x.slot, self.state];
        let fours = (at.heads / at.kv_heads.max(1)).div_ceil(4);
        let work = [at.kv_heads * fours * parts, tokens];
        let cache = Some(self.shape.cache);
        self.emit(Op::AttendPart, cache, &slots, &params, work);

        let y = self.scratch("a", tokens, q.cols);
        let params = params::attend_join::Params {
            tokens,
            heads: at.heads,
            head_dim: at.head_dim,
            window,
            part,
            parts,
            positions,
            sinks: u32::from(scores.sinks.is_some()),
            skip: scores.skip,
        };
        let slots = [x.slot, scores.sinks_or(q), y.slot, self.state];
        self.emit(Op::AttendJoin, None, &slots, &params, [at.heads, tokens]);
        y
    }

    /// Emits bidirectional attention within each sequence; returns `[tokens, heads head_dim]`. A
    /// row attends to rows at a distance of at most `reach`. Sequences are concatenated; positions
    /// of each begin at 0.
    pub fn self_attention(
        &mut self,
        [heads, kv_heads, head_dim]: [u32; 3],
        [q, k, v]: [X; 3],
        scale: f32,
        reach: u32,
    ) -> X {
        let y = self.scratch("a", q.tokens, q.cols);
        let params = params::self_attention::Params {
            tokens: q.tokens,
            heads,
            kv_heads,
            head_dim,
            scale,
            reach,
        };
        let slots = [q.slot, k.slot, v.slot, y.slot, self.state];
        let work = [heads, q.tokens];
        self.emit(Op::SelfAttention, None, &slots, &params, work);
        y
    }

    /// Returns the slot of the `RoPE` frequencies.
    fn freqs(&mut self, rope: Rope) -> Slot {
        let name = format!("rope_freqs.{}", rope.index);
        let buffer = BufferId::Constant(rope.index);
        self.buffer_slot(&name, DType::F32, [1, rope.dim / 2], buffer)
    }

    /// Returns the key and value cache of a layer, `[pages PAGE, kv_heads head_dim]`, and the page
    /// table.
    pub(super) fn cache(&mut self, at: Heads) -> ([Slot; 2], Slot) {
        let Shape {
            pages,
            cache: dtype,
            ..
        } = self.shape;
        let rows = pages.of(at.window).pool.saturating_mul(PAGE);
        let shape = [rows, at.kv_heads * at.head_dim];
        let layer = at.layer;
        let keys = self.buffer_slot(&format!("k.{layer}"), dtype, shape, BufferId::Keys(layer));
        let values = match at.latent {
            true => keys,
            false => self.buffer_slot(&format!("v.{layer}"), dtype, shape, BufferId::Values(layer)),
        };
        ([keys, values], self.page_table())
    }

    /// Returns the maximum number of positions that a query sees.
    pub(super) fn window(&self, at: Heads, positions: u32) -> u32 {
        match (positions, at.window) {
            (0, 0) => self.shape.context,
            (0, window) => window.min(self.shape.context),
            (positions, _) => positions,
        }
    }
}
