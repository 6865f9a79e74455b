//! `q = rot(q, position); k_cache[row(position)] = rot(k, position); v_cache[row(position)] = v`, or without values

use super::pages::Pages;
use super::register_tiles::{CacheType as _, Q8_0};
use super::rotation::{PAIRS, Rotation};
use crate::kernel::{Launch, Link, Request};
use crate::memory::{Args, Out};
use crate::simd::{Kernel, Simd, Task};
use crate::work::Split;
use bytemuck::Pod;
use half::f16;
use std::array::from_fn;
use std::marker::PhantomData;
use tabla_core::dtype::DType;
use tabla_core::error::{Result, bail};
use tabla_core::op::kind;
use tabla_core::op::operands::{rope_keys, rope_kv};
use tabla_core::op::params::rope_kv::Params;
use tabla_quant::q8_0;

/// An element type of the cache.
trait CacheElement: Pod {
    fn of(x: f32) -> Self;
    fn store<S: Simd>(s: S, to: &mut [Self], v: S::V);
}

impl CacheElement for f32 {
    fn of(x: f32) -> Self {
        x
    }

    #[inline(always)]
    fn store<S: Simd>(s: S, to: &mut [Self], v: S::V) {
        s.store(to, v);
    }
}

/// f16 bits, rounded to nearest even.
impl CacheElement for u16 {
    fn of(x: f32) -> Self {
        f16::from_f32_const(x).to_bits()
    }

    #[inline(always)]
    fn store<S: Simd>(s: S, to: &mut [Self], v: S::V) {
        s.store_f16(to, v);
    }
}

/// Copies the common prefix of `x` to `to`.
#[inline(always)]
fn store<S: Simd, C: CacheElement>(s: S, to: &mut [C], x: &[f32]) {
    let mut to = to.chunks_exact_mut(S::LANES);
    let mut x = x.chunks_exact(S::LANES);
    for (to, x) in to.by_ref().zip(x.by_ref()) {
        C::store(s, to, s.load(x));
    }
    for (to, x) in to.into_remainder().iter_mut().zip(x.remainder()) {
        *to = C::of(*x);
    }
}

/// Indices of operands.
struct Operands {
    k: usize,
    freqs: usize,
    pages: usize,
    q: usize,
    k_cache: usize,
    state: usize,
    /// Values and their cache.
    values: Option<[usize; 2]>,
}

/// An operation that stores keys.
trait Stores {
    const AT: Operands;
}

/// Stores keys and values.
impl Stores for kind::RopeKv {
    const AT: Operands = Operands {
        k: rope_kv::AT.k,
        freqs: rope_kv::AT.freqs,
        pages: rope_kv::AT.pages,
        q: rope_kv::AT.q,
        k_cache: rope_kv::AT.k_cache,
        state: rope_kv::AT.state,
        values: Some([rope_kv::AT.v, rope_kv::AT.v_cache]),
    };
}

/// Stores keys, which are also the values.
impl Stores for kind::RopeKeys {
    const AT: Operands = Operands {
        k: rope_keys::AT.k,
        freqs: rope_keys::AT.freqs,
        pages: rope_keys::AT.pages,
        q: rope_keys::AT.q,
        k_cache: rope_keys::AT.k_cache,
        state: rope_keys::AT.state,
        values: None,
    };
}

struct RopeKv<C, O>(PhantomData<(C, O)>);

impl<C: CacheElement, O: Stores> Kernel for RopeKv<C, O> {
    /// A unit is a key/value head with its group of query heads: units write disjoint memory even
    /// if two rows have the same position.
    #[inline(always)]
    fn run<S: Simd>(s: S, args: Args<'_>) {
        s.outlined(StoreRotated::<C> {
            args,
            at: O::AT,
            element: PhantomData,
        });
    }
}

/// Rotates and stores the rows of an operation with these operands.
struct StoreRotated<'a, C> {
    args: Args<'a>,
    at: Operands,
    element: PhantomData<C>,
}

impl<S: Simd, C: CacheElement> Task<S> for StoreRotated<'_, C> {
    #[inline(always)]
    fn run(self, s: S) {
        let Self { mut args, at, .. } = self;
        let p: Params = args.params();
        let head = p.head_dim as usize;
        let group = (p.heads / p.kv_heads) as usize * head;
        let [width, kv_width] = [p.heads as usize * head, p.kv_heads as usize * head];
        let (k, freqs, rows) = (args.f32s(at.k), args.f32s(at.freqs), args.rows(at.state));
        let table = args.bytes(at.pages);
        let mut q = args.open::<f32>(at.q);
        let mut keys = args.open::<C>(at.k_cache);
        let mut values = at.values.map(|[v, to]| (args.f32s(v), args.open::<C>(to)));
        let mine = args.range().start * head..args.range().end * head;
        let context = args.state(at.state).context;
        let rotation = Rotation {
            head,
            freqs: &freqs[..p.rope_dim as usize / 2],
            half_split: p.half_split != 0,
            magnitude: p.magnitude,
        };
        for (t, row) in rows[..args.active_rows()].iter().enumerate() {
            if row.position >= context {
                continue;
            }
            let q = q.columns(t, width, group);
            let k = &k[t * kv_width..][mine.clone()];
            let pages = Pages::of(table, row.sequence, [p.stride, p.first, p.ring]);
            let at = pages.row(row.position as usize);
            if let Some((v, values)) = &mut values {
                let v = &v[t * kv_width..][mine.clone()];
                store(s, values.columns(at, kv_width, head), v);
            }
            let keys = keys.columns(at, kv_width, head);
            store(s, keys, k);
            for angles in rotation.angles(row.position) {
                rotation.rotate(&angles, q);
                for (key, k) in keys.chunks_exact_mut(head).zip(k.chunks_exact(head)) {
                    for (at, rotated) in rotation.rotated(&angles, k).runs() {
                        store(s, &mut key[at], rotated);
                    }
                }
            }
        }
    }
}

/// The kernel for a quantized cache, which rotates whole heads before encoding them.
struct RopeKvCodes<O>(PhantomData<O>);

/// Maximum number of elements of a head in a quantized cache.
const HEAD_MAX: usize = 576;

impl<O: Stores> Kernel for RopeKvCodes<O> {
    /// A unit is the same as for [`RopeKv`].
    #[inline(always)]
    fn run<S: Simd>(s: S, args: Args<'_>) {
        s.outlined(EncodeRotated { args, at: O::AT });
    }
}

/// Rotates, encodes and stores the rows of an operation with these operands.
struct EncodeRotated<'a> {
    args: Args<'a>,
    at: Operands,
}

impl<S: Simd> Task<S> for EncodeRotated<'_> {
    #[inline(always)]
    fn run(self, _: S) {
        let Self { mut args, at } = self;
        let p: Params = args.params();
        let head = p.head_dim as usize;
        let group = (p.heads / p.kv_heads) as usize * head;
        let [width, kv_width] = [p.heads as usize * head, p.kv_heads as usize * head];
        let (k, freqs, rows) = (args.f32s(at.k), args.f32s(at.freqs), args.rows(at.state));
        let table = args.bytes(at.pages);
        let mut q = args.open::<f32>(at.q);
        let mut keys = args.open::<u8>(at.k_cache);
        let mut values = at.values.map(|[v, to]| (args.f32s(v), args.open::<u8>(to)));
        let mine = args.range();
        let context = args.state(at.state).context;
        let rotation = Rotation {
            head,
            freqs: &freqs[..p.rope_dim as usize / 2],
            half_split: p.half_split != 0,
            magnitude: p.magnitude,
        };
        let mut rotated = [0.0; HEAD_MAX];
        for (t, row) in rows[..args.active_rows()].iter().enumerate() {
            if row.position >= context {
                continue;
            }
            let q = q.columns(t, width, group);
            let mut angles = rotation.angles(row.position);
            let angles: [_; HEAD_MAX.div_ceil(2 * PAIRS)] = from_fn(|_| angles.next());
            for angles in angles.iter().flatten() {
                rotation.rotate(angles, q);
            }
            let pages = Pages::of(table, row.sequence, [p.stride, p.first, p.ring]);
            let row = QuantizedRow {
                row: pages.row(row.position as usize),
                dim: kv_width,
                head,
            };
            for (at, unit) in mine.clone().enumerate() {
                let own = t * kv_width + unit * head..t * kv_width + (unit + 1) * head;
                if let Some((v, values)) = &mut values {
                    row.store(values, at, &v[own.clone()]);
                }
                let rotated = &mut rotated[..head];
                rotated.copy_from_slice(&k[own]);
                for angles in angles.iter().flatten() {
                    rotation.rotate(angles, rotated);
                }
                row.store(&mut keys, at, rotated);
            }
        }
    }
}

/// A row of the cache in the layout of [`Q8_0`](super::register_tiles::Q8_0).
struct QuantizedRow {
    row: usize,
    /// Elements of the row.
    dim: usize,
    /// Elements of a head.
    head: usize,
}

impl QuantizedRow {
    /// Stores a head, number `at` of the part.
    #[inline(always)]
    fn store(&self, to: &mut Out<'_, u8>, at: usize, x: &[f32]) {
        let row_bytes = Q8_0::row_bytes(self.dim);
        let blocks = self.head / q8_0::ELEMENTS;
        let encoded = x.as_chunks().0.iter().map(|x| q8_0::encode(x, None));
        let codes = to.columns_from(0, [self.row, row_bytes], self.head);
        let codes = codes[at * self.head..].chunks_exact_mut(q8_0::ELEMENTS);
        let mut scales = [[0; 2]; HEAD_MAX / q8_0::ELEMENTS];
        for ((codes, scale), block) in codes.zip(&mut scales).zip(encoded) {
            let (d, q) = block.split_at(2);
            scale.copy_from_slice(d);
            codes.copy_from_slice(q);
        }
        let own = to.columns_from(self.dim, [self.row, row_bytes], 2 * blocks);
        let own = &mut own[2 * blocks * at..][..2 * blocks];
        own.copy_from_slice(scales[..blocks].as_flattened());
    }
}

impl Link for kind::RopeKv {
    fn link(request: &Request<'_>) -> Result<Launch> {
        link_stores::<Self>(request)
    }
}

impl Link for kind::RopeKeys {
    fn link(request: &Request<'_>) -> Result<Launch> {
        const {
            assert!(
                size_of::<tabla_core::op::params::rope_keys::Params>() == size_of::<Params>(),
                "the parameters are the same"
            );
        }
        link_stores::<Self>(request)
    }
}

fn link_stores<O: Stores>(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let heads = p.heads.saturating_add(p.kv_heads.saturating_mul(2));
    let split = Split::Units(p.kv_heads as usize);
    let launch = match request.variant {
        Some(DType::F32) => request.launch::<RopeKv<f32, O>>(split, p.tokens),
        Some(DType::F16) => request.launch::<RopeKv<u16, O>>(split, p.tokens),
        Some(DType::Q8_0) if p.head_dim as usize <= HEAD_MAX => {
            request.launch::<RopeKvCodes<O>>(split, p.tokens)
        }
        other => bail!(
            Unsupported,
            "no kernel for KV cache type {other:?} with head size {}",
            p.head_dim
        ),
    };
    Ok(launch.single_thread_if_small([p.tokens, heads, p.head_dim]))
}
