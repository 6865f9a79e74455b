//! Positions, the cache, attention.

use super::base::Builder;
use super::operand::X;
use super::shape::{FEW_TOKENS, Shape};
use crate::dtype::DType;
use crate::op::list::Op;
use crate::op::pages::PAGE;
use crate::op::params;
use crate::op::table::{BufferId, Slot};

/// The heads of an attention layer.
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
    /// Positions that a query sees, its own among them; 0: all.
    pub window: u32,
}

/// Parts that positions are cut into at most.
const PARTS_MAX: u32 = 64;

/// Elements of a head at most, where positions are cut into parts.
const PARTS_HEAD_MAX: u32 = 512;

/// How positions turn the elements of a head (`RoPE`).
#[derive(Clone, Copy, Debug)]
pub struct Rope {
    /// Which of the model's constants has the frequencies, `[dim / 2]`, in radians per position.
    pub index: u32,
    /// Elements of a head that are turned; 0: none.
    pub dim: u32,
    /// Whether pairs are `(i, i + dim / 2)` rather than `(2 i, 2 i + 1)`.
    pub half_split: bool,
    /// What cosine and sine are multiplied by.
    pub magnitude: f32,
}

impl Builder<'_> {
    /// Turns `q` by its position, stores the turned `k` and `v` in the layer's cache.
    #[expect(clippy::too_many_arguments, reason = "a layer's q, k and v")]
    pub fn rope_kv(&mut self, at: Heads, rope: Rope, q: X, k: X, v: X) {
        // Where nothing is turned, no frequency is read: any numbers will do.
        let freqs = match rope.dim {
            0 => k.slot,
            _ => self.freqs(rope),
        };
        let ([keys, values], pages) = self.cache(at);
        let own = self.shape.pages.of(at.window);
        let params = params::rope_kv::Params {
            tokens: q.tokens,
            heads: at.heads,
            kv_heads: at.kv_heads,
            head_dim: at.head_dim,
            rope_dim: rope.dim,
            half_split: u32::from(rope.half_split),
            magnitude: rope.magnitude,
            stride: self.shape.pages.stride(),
            first: own.first,
            ring: own.ring,
        };
        let slots = [
            k.slot, v.slot, freqs, pages, q.slot, keys, values, self.state,
        ];
        let work = [at.heads + at.kv_heads, q.tokens];
        self.emit((Op::RopeKv, Some(self.shape.cache)), &slots, &params, work);
    }

    /// Turns heads of `x` by its positions, in place: what goes to no cache of its own.
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
        self.emit((Op::Rope, None), &slots, &params, [heads, x.tokens]);
    }

    /// Attention of `q` over the positions of its window, `[tokens, heads head_dim]`. Scores are
    /// `scale q . k`, bent to `softcap tanh(score / softcap)` where that is not 0.
    pub fn attention(&mut self, at: Heads, q: X, scale: f32, softcap: f32) -> X {
        let head = at.head_dim;
        let octets = head.is_multiple_of(8) && (1..=PARTS_HEAD_MAX).contains(&head);
        if self.shape.part > 0 && q.tokens <= FEW_TOKENS && octets {
            return self.attention_in_parts(at, q, scale, softcap, self.shape.part);
        }
        let y = self.scratch("a", q.tokens, q.cols);
        let ([keys, values], pages) = self.cache(at);
        let own = self.shape.pages.of(at.window);
        let params = params::attention::Params {
            tokens: q.tokens,
            heads: at.heads,
            kv_heads: at.kv_heads,
            head_dim: at.head_dim,
            scale,
            softcap,
            window: self.window(at),
            stride: self.shape.pages.stride(),
            first: own.first,
            ring: own.ring,
        };
        let slots = [q.slot, keys, values, pages, y.slot, self.state];
        let work = [at.heads, q.tokens];
        self.emit(
            (Op::Attention, Some(self.shape.cache)),
            &slots,
            &params,
            work,
        );
        y
    }

    /// The same, where each `part` of the positions is looked at on its own, but in no more than
    /// [`PARTS_MAX`] parts: for few tokens that look at many positions.
    #[expect(
        clippy::too_many_arguments,
        reason = "those of attention, and the part"
    )]
    pub fn attention_in_parts(
        &mut self,
        at: Heads,
        q: X,
        scale: f32,
        softcap: f32,
        part: u32,
    ) -> X {
        let (tokens, window) = (q.tokens, self.window(at));
        let part = part.max(window.div_ceil(PARTS_MAX));
        let parts = window.div_ceil(part.max(1));
        let size = at.heads * parts * (at.head_dim + 2);
        let x = self.scratch("p", tokens, size);
        let ([keys, values], pages) = self.cache(at);
        let own = self.shape.pages.of(at.window);
        let params = params::attend_part::Params {
            tokens,
            heads: at.heads,
            kv_heads: at.kv_heads,
            head_dim: at.head_dim,
            scale,
            softcap,
            window,
            stride: self.shape.pages.stride(),
            first: own.first,
            ring: own.ring,
            part,
            parts,
        };
        let slots = [q.slot, keys, values, pages, x.slot, self.state];
        let fours = (at.heads / at.kv_heads.max(1)).div_ceil(4);
        let work = [at.kv_heads * fours * parts, tokens];
        let kernel = (Op::AttendPart, Some(self.shape.cache));
        self.emit(kernel, &slots, &params, work);

        let y = self.scratch("a", tokens, q.cols);
        let params = params::attend_join::Params {
            tokens,
            heads: at.heads,
            head_dim: at.head_dim,
            window,
            part,
            parts,
        };
        let slots = [x.slot, y.slot, self.state];
        self.emit((Op::AttendJoin, None), &slots, &params, [at.heads, tokens]);
        y
    }

    /// Attention of the rows of each sequence over one another, `[tokens, heads head_dim]`: those
    /// farther than `reach` from a row do not count. Sequences lie one behind the other, and the
    /// positions of each begin at 0.
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
        self.emit((Op::SelfAttention, None), &slots, &params, work);
        y
    }

    /// The frequencies of a `RoPE`.
    fn freqs(&mut self, rope: Rope) -> Slot {
        let name = format!("rope_freqs.{}", rope.index);
        let place = BufferId::Constant(rope.index);
        self.place(&name, DType::F32, [1, rope.dim / 2], place)
    }

    /// The key and value cache of a layer, `[pages PAGE, kv_heads head_dim]`, and the table of pages.
    fn cache(&mut self, at: Heads) -> ([Slot; 2], Slot) {
        let Shape {
            sequences,
            pages,
            cache: dtype,
            ..
        } = self.shape;
        let rows = pages.of(at.window).pool.saturating_mul(PAGE);
        let shape = [rows, at.kv_heads * at.head_dim];
        let layer = at.layer;
        let caches = [
            self.place(&format!("k.{layer}"), dtype, shape, BufferId::Keys(layer)),
            self.place(&format!("v.{layer}"), dtype, shape, BufferId::Values(layer)),
        ];
        let table = [sequences, pages.stride()];
        (
            caches,
            self.place("pages", DType::U32, table, BufferId::Pages),
        )
    }

    /// The positions that a query sees at most.
    fn window(&self, at: Heads) -> u32 {
        match at.window {
            0 => self.shape.context,
            window => window.min(self.shape.context),
        }
    }
}
