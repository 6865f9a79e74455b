//! `y[t, h, :] = softmax(cap(scale q[t, h, :] . k[h / group, seen, :])) v[h / group, seen, :]`
//!
//! A unit is a tile of tokens and a key head. A single token with many positions, or with heads that
//! cannot be distributed evenly, is divided into blocks of positions, which a second step merges.

use super::key_blocks::{self, HeadGroup, KvBlock, Queries, TOKENS};
use super::pages::{Pages, runs};
use super::register_tiles::{Cache, CacheType, with_cache_type};
use crate::kernel::{Join, Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, Uses};
use crate::work::Split;
use std::marker::PhantomData;
use std::ops::Range;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::attention::{AT, COUNT};
use tabla_core::op::params::attention::Params;

/// Positions that a token sees: the last `window` positions, up to its own or up to `positions`, without the first `skip`.
#[inline(always)]
fn seen(args: &Args<'_>, p: &Params, token: usize) -> Range<usize> {
    let last = args.state(AT.state).context.saturating_sub(1);
    let end = match p.positions {
        0 => args.rows(AT.state)[token].position.min(last) + 1,
        n => n,
    };
    let first = end.saturating_sub(p.window).max(p.skip.min(end - 1));
    first as usize..end as usize
}

/// Scores of the sinks of all heads, if there are any.
#[inline(always)]
fn sinks<'a>(args: &Args<'a>, p: &Params) -> Option<&'a [f32]> {
    (p.sinks > 0).then(|| args.f32s(AT.sinks))
}

/// Number of sets of key heads that units of a tile are divided into.
#[inline(always)]
fn sets<C: CacheType>(p: &Params, threads: usize) -> usize {
    let kv_heads = p.kv_heads as usize;
    match (p.tokens, threads) {
        // Whole rows are read faster.
        (1, 1) => 1,
        _ => {
            kv_heads / key_blocks::unit_kv_heads(p.tokens, kv_heads, p.head_dim as usize * C::BYTES)
        }
    }
}

/// Blocks of positions of a single token, divided among threads. Each thread first processes `whole`
/// consecutive blocks, because memory is read faster in whole rows and in order. Units of the
/// remaining blocks are sets of heads.
#[derive(Clone, Copy)]
struct BlockUnits {
    /// Number of blocks.
    blocks: usize,
    threads: usize,
    /// Whole blocks per thread.
    whole: usize,
    /// Sets of heads of the remaining blocks.
    sets: usize,
}

impl BlockUnits {
    /// Minimum number of whole blocks per thread, if sets of heads can be distributed evenly instead.
    const WHOLE_MIN: usize = 2;

    /// Returns the units of these positions; `None` if units are sets of heads of all positions.
    #[inline(always)]
    fn of(seen: &Range<usize>, sets: usize, threads: usize) -> Option<Self> {
        let blocks = KvBlock::all(seen).count();
        let units = Self {
            blocks,
            threads,
            whole: blocks / threads,
            sets,
        };
        (threads > 1 && (units.whole >= Self::WHOLE_MIN || !sets.is_multiple_of(threads)))
            .then_some(units)
    }

    /// Block of a unit, its set of heads, and the number of sets; `None` after the last block.
    #[inline(always)]
    fn unit(self, unit: usize) -> Option<(usize, usize, usize)> {
        let whole = self.whole * self.threads;
        if unit < whole {
            let block = unit % self.threads * self.whole + unit / self.threads;
            return Some((block, 0, 1));
        }
        let (block, set) = (
            whole + (unit - whole) / self.sets,
            (unit - whole) % self.sets,
        );
        (block < self.blocks).then_some((block, set, self.sets))
    }

    /// Unit of a block and key head `at` of `kv_heads`, and the index of this head in the unit.
    #[inline(always)]
    fn find(self, block: usize, at: usize, kv_heads: usize) -> (usize, usize) {
        let whole = self.whole * self.threads;
        if block < whole {
            let unit = block % self.whole * self.threads + block / self.whole;
            return (unit, at);
        }
        let each = kv_heads / self.sets;
        (whole + (block - whole) * self.sets + at / each, at % each)
    }

    /// Maximum number of units of `blocks` blocks.
    fn count_max(blocks: usize, sets: usize, threads: usize) -> usize {
        blocks + (threads - 1) * sets
    }
}

struct Attention<C>(PhantomData<C>);

impl<C: CacheType> Kernel for Attention<C> {
    const USES: Uses = Uses::Vectors;

    #[expect(
        clippy::too_many_lines,
        reason = "units of tokens, or of blocks of one token"
    )]
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [head, kv_heads] = [p.head_dim as usize, p.kv_heads as usize];
        let heads = p.heads as usize / kv_heads;
        let sets = sets::<C>(&p, args.threads());
        let tile = key_blocks::tile_tokens(heads);
        let (q, sinks, live) = (args.f32s(AT.q), sinks(&args, &p), args.active_rows());
        let mut y = args.open::<f32>(AT.y);
        let mut floats = args.open::<f32>(COUNT);
        let mut parts = (args.count() > PARTS).then(|| args.open::<f32>(PARTS));
        let blocks = match parts {
            Some(_) => BlockUnits::of(&seen(&args, &p, 0), sets, args.threads()),
            None => None,
        };
        for unit in args.units() {
            let ((first, set, sets), block) = match blocks {
                None => ((unit / sets * tile, unit % sets, sets), None),
                Some(blocks) => match blocks.unit(unit) {
                    Some((block, set, sets)) => ((0, set, sets), Some(block)),
                    None => break,
                },
            };
            // There are units for the blocks of the longest context, and sets may be fewer.
            if first >= live {
                break;
            }
            let unit_kv_heads = kv_heads / sets;
            let [width, size] =
                [head, key_blocks::partial_len(head)].map(|n| unit_kv_heads * heads * n);
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
                let mut positions = key_blocks::enclosing_range(queries.seen);
                if let Some(block) = block {
                    let mut all = KvBlock::all(&positions);
                    let block = all.nth(block).expect("one of these blocks");
                    positions = block.positions(&positions);
                }
                let partials = group.attend(s, queries, &positions, floats.whole());
                if let (Some(parts), Some(_)) = (&mut parts, block) {
                    parts.unit(unit, sets * size)[..size].copy_from_slice(partials);
                    continue;
                }
                let sinks = sinks.map(|all| &all[set * unit_kv_heads * heads..]);
                for (token, partials) in tokens.zip(partials.chunks_exact(size)) {
                    key_blocks::divide(
                        partials,
                        head,
                        sinks,
                        y.tiled(token, set, [tile, sets], width),
                    );
                }
            }
        }
    }
}

/// Operand of the partial results that [`JoinBlocks`] merges, if present.
const PARTS: usize = COUNT + 1;

/// Merges the partial results of one token's blocks.
struct JoinBlocks<C>(PhantomData<C>);

impl<C: CacheType> Kernel for JoinBlocks<C> {
    /// A unit is a key head.
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [head, kv_heads] = [p.head_dim as usize, p.kv_heads as usize];
        let heads = p.heads as usize / kv_heads;
        let sets = sets::<C>(&p, args.threads());
        let Some(blocks) = BlockUnits::of(&seen(&args, &p, 0), sets, args.threads()) else {
            return;
        };
        let parts = args.f32s(PARTS);
        let sinks = sinks(&args, &p);
        let mut y = args.open::<f32>(AT.y);
        let mut floats = args.open::<f32>(COUNT);
        for at in args.units() {
            let size = heads * key_blocks::partial_len(head);
            let total = &mut floats.whole()[..size];
            key_blocks::clear(total, head);
            for block in 0..blocks.blocks {
                let (unit, index) = blocks.find(block, at, kv_heads);
                let part = &parts[(unit * kv_heads + index) * size..][..size];
                key_blocks::merge(total, part, head);
            }
            let sinks = sinks.map(|all| &all[at * heads..]);
            key_blocks::divide(total, head, sinks, y.unit(at, heads * head));
        }
    }
}

impl Link for kind::Attention {
    fn link(request: &Request<'_>) -> Result<Launch> {
        with_cache_type!(request, |C| of_cache::<C>(request)?)
    }
}

fn of_cache<C: CacheType>(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    key_blocks::check_heads([p.heads, p.kv_heads, p.head_dim])?;
    let [head, kv_heads] = [p.head_dim as usize, p.kv_heads as usize];
    let request = &key_blocks::whole_vectors(request, p.head_dim)?;
    let shape = [p.tokens, p.heads, p.kv_heads, p.head_dim];
    let sets = sets::<C>(&p, request.threads);
    // A unit has all heads if it is a whole block.
    let unit_kv_heads = if p.tokens == 1 {
        kv_heads
    } else {
        kv_heads / sets
    };
    let mut launch = key_blocks::launch::<Attention<C>>(request, shape, unit_kv_heads);
    if p.tokens == 1 && request.threads > 1 {
        let blocks = key_blocks::blocks(p.window as usize);
        let units = BlockUnits::count_max(blocks, sets, request.threads).max(sets);
        let partials = p.heads as usize * key_blocks::partial_len(head);
        launch.split = Split::RoundRobin { units, rows: 1 };
        launch.join = Some(Join {
            bytes: units.saturating_mul(partials * size_of::<f32>()),
            entry: request.isa.entry::<JoinBlocks<C>>(),
            split: Split::Units(kv_heads),
        });
    }
    Ok(launch.single_thread_if_small([p.tokens, p.window, p.head_dim]))
}
