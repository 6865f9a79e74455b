//! `y[t, h, :] = softmax(cap(scale q[t, h, :] . k[h / group, seen, :])) v[h / group, seen, :]`
//!
//! A unit is a tile of tokens and a key head. If heads cannot be distributed evenly, a unit of a
//! single token is a block of positions and a key head, and a second step merges the blocks.

use super::attend::{self, HeadGroup, KvBlock, Queries, TOKENS};
use super::pages::Pages;
use super::tiles::{Cache, CacheType, F16, F32, Q8_0};
use super::{Join, Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::work::Split;
use std::marker::PhantomData;
use std::ops::Range;
use tabla_core::dtype::DType;
use tabla_core::error::{Result, bail};
use tabla_core::op::operands::attention::{AT, COUNT};
use tabla_core::op::params::Row;
use tabla_core::op::params::attention::Params;

/// Positions that a token sees: the last `window` positions, up to its own.
#[inline(always)]
fn seen(args: &Args<'_>, p: &Params, token: usize) -> Range<usize> {
    let last = args.state(AT.state).context.saturating_sub(1);
    let end = args.rows(AT.state)[token].position.min(last) + 1;
    end.saturating_sub(p.window) as usize..end as usize
}

/// Splits tokens into runs of the same sequence.
fn runs(rows: &[Row], tokens: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut end = tokens.start;
    let runs = rows[tokens].chunk_by(|a, b| a.sequence == b.sequence);
    runs.map(move |run| {
        end += run.len();
        end - run.len()..end
    })
}

/// Number of key/value heads per unit.
fn unit_kv_heads<C: CacheType>(p: &Params) -> usize {
    attend::unit_kv_heads(
        p.tokens,
        p.kv_heads as usize,
        p.head_dim as usize * C::BYTES,
    )
}

struct Attention<C>(PhantomData<C>);

impl<C: CacheType> Kernel for Attention<C> {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [head, kv_heads] = [p.head_dim as usize, p.kv_heads as usize];
        let (heads, unit_kv_heads) = (p.heads as usize / kv_heads, unit_kv_heads::<C>(&p));
        let sets = kv_heads / unit_kv_heads;
        let [width, size] = [head, attend::partial_len(head)].map(|n| unit_kv_heads * heads * n);
        let tile = attend::tile_tokens(heads);
        let (q, live) = (args.f32s(AT.q), args.active_rows());
        let mut y = args.open::<f32>(AT.y);
        let mut floats = args.open::<f32>(COUNT);
        let mut parts = (args.count() > PARTS).then(|| args.open::<f32>(PARTS));
        for unit in args.units() {
            let (down, set) = (unit / sets, unit % sets);
            let first = if parts.is_some() { 0 } else { down * tile };
            for tokens in runs(args.rows(AT.state), first..live.min(first + tile)) {
                let sequence = args.rows(AT.state)[tokens.start].sequence;
                let pages = Pages::of(args.bytes(AT.pages), sequence, [p.stride, p.first, p.ring]);
                let mut ranges = [const { 0..0 }; TOKENS];
                for (range, token) in ranges.iter_mut().zip(tokens.clone()) {
                    *range = seen(&args, &p, token);
                }
                let queries = Queries {
                    q: &q[(tokens.start * sets + set) * width..],
                    stride: sets * width,
                    seen: &ranges[..tokens.len()],
                };
                let [keys, values] = [AT.k_cache, AT.v_cache].map(|i| {
                    let set = set * unit_kv_heads..(set + 1) * unit_kv_heads;
                    Cache::<C>::of(args.bytes(i), set, [kv_heads, head])
                });
                let group = HeadGroup {
                    head,
                    unit_kv_heads,
                    heads,
                    scale: p.scale,
                    softcap: p.softcap,
                    keys,
                    values,
                    pages: Some(pages),
                };
                let mut positions = attend::enclosing_range(queries.seen);
                if parts.is_some() {
                    match KvBlock::all(&positions).nth(down) {
                        Some(block) => positions = block.positions(&positions),
                        None => break,
                    }
                }
                let partials = group.attend(s, queries, &positions, floats.whole());
                if let Some(parts) = &mut parts {
                    parts.unit(unit, size).copy_from_slice(partials);
                    continue;
                }
                for (token, partials) in tokens.zip(partials.chunks_exact(size)) {
                    attend::divide(partials, head, y.tiled(token, set, [tile, sets], width));
                }
            }
        }
    }
}

/// Operand of the partial results that [`JoinBlocks`] merges, if present.
const PARTS: usize = COUNT + 1;

/// Merges the partial results of one token's blocks.
struct JoinBlocks;

impl Kernel for JoinBlocks {
    /// A unit is a key head.
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [head, kv_heads] = [p.head_dim as usize, p.kv_heads as usize];
        let heads = p.heads as usize / kv_heads;
        let blocks = KvBlock::all(&seen(&args, &p, 0)).count();
        let parts = args.f32s(PARTS);
        let mut y = args.open::<f32>(AT.y);
        let mut floats = args.open::<f32>(COUNT);
        for at in args.units() {
            let size = heads * attend::partial_len(head);
            let total = &mut floats.whole()[..size];
            attend::clear(total, head);
            for block in 0..blocks {
                let part = &parts[(block * kv_heads + at) * size..][..size];
                attend::merge(total, part, head);
            }
            attend::divide(total, head, y.unit(at, heads * head));
        }
    }
}

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    match request.variant {
        Some(DType::F32) => of_cache::<F32>(request),
        Some(DType::F16) => of_cache::<F16>(request),
        Some(DType::Q8_0) => of_cache::<Q8_0>(request),
        other => bail!(Unsupported, "no kernel for KV cache type {other:?}"),
    }
}

fn of_cache<C: CacheType>(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let [head, kv_heads] = [p.head_dim as usize, p.kv_heads as usize];
    let request = &attend::whole_vectors(request, p.head_dim)?;
    let shape = [p.tokens, p.heads, p.kv_heads, p.head_dim];
    let unit_kv_heads = unit_kv_heads::<C>(&p);
    let mut launch = attend::launch::<Attention<C>>(request, shape, unit_kv_heads);
    let sets = kv_heads / unit_kv_heads;
    if p.tokens == 1 && !sets.is_multiple_of(request.threads) {
        let blocks = attend::blocks(p.window as usize);
        let partials = p.heads as usize * attend::partial_len(head);
        launch.split = Split::RoundRobin {
            units: blocks * sets,
            rows: 1,
        };
        launch.join = Some(Join {
            bytes: blocks * partials * size_of::<f32>(),
            entry: request.isa.entry::<JoinBlocks>(),
            split: Split::Units(kv_heads),
        });
    }
    let elements = p.tokens as usize * p.window as usize * head;
    Ok(launch.single_thread_if_small(elements))
}
