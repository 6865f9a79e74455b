//! `y[t, h, :] = softmax(cap(scale q[t, h, :] . k[h / group, seen, :])) v[h / group, seen, :]`
//!
//! A unit is a tile of tokens and a head of keys. Where heads cannot be dealt out evenly, a single
//! token's unit is a block of positions and a head of keys, and a second step joins the blocks.

use super::attend::{self, Block, Group, Queries, TOKENS};
use super::pages::Pages;
use super::tiles::{Cache, F16, F32, Q8_0, Stored};
use super::{Join, Launch, PLAIN, Request};
use tabla_core::dtype::DType;
use tabla_core::error::{Result, bail};
use tabla_core::exec::case::Case;
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::step::Split;
use tabla_core::exec::state::Row;
use tabla_core::op::builder::Heads;
use tabla_core::op::operands::attention::{AT, COUNT};
use tabla_core::op::params::attention::Params;
use std::marker::PhantomData;
use std::ops::Range;

/// The positions that a token sees: the last ones up to its own.
#[inline(always)]
fn seen(args: &Args<'_>, p: &Params, token: usize) -> Range<usize> {
    let last = args.state(AT.state).context.saturating_sub(1);
    let end = args.rows(AT.state)[token].position.min(last) + 1;
    end.saturating_sub(p.window) as usize..end as usize
}

/// The tokens that lie in one sequence's cache side by side.
fn runs(rows: &[Row], tokens: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut end = tokens.start;
    let runs = rows[tokens].chunk_by(|a, b| a.sequence == b.sequence);
    runs.map(move |run| {
        end += run.len();
        end - run.len()..end
    })
}

/// Heads of keys and values that a unit does.
fn sharing<C: Stored>(p: &Params) -> usize {
    attend::sharing(p.tokens, p.kv_heads as usize, p.head_dim as usize * C::BYTES)
}

struct Attention<C>(PhantomData<C>);

impl<C: Stored> Kernel for Attention<C> {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [head, kv_heads] = [p.head_dim as usize, p.kv_heads as usize];
        let (heads, sharing) = (p.heads as usize / kv_heads, sharing::<C>(&p));
        let sets = kv_heads / sharing;
        let [width, size] = [head, attend::record(head)].map(|n| sharing * heads * n);
        let tile = attend::tile_tokens(heads);
        let (q, live) = (args.f32s(AT.q), args.live());
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
                    let set = set * sharing..(set + 1) * sharing;
                    Cache::<C>::of(args.bytes(i), set, [kv_heads, head])
                });
                let group = Group {
                    head,
                    sharing,
                    heads,
                    scale: p.scale,
                    softcap: p.softcap,
                    keys,
                    values,
                    pages: Some(pages),
                };
                let mut positions = attend::hull(queries.seen);
                if parts.is_some() {
                    match Block::all(&positions).nth(down) {
                        Some(block) => positions = block.positions(&positions),
                        None => break,
                    }
                }
                let records = group.attend(s, queries, &positions, floats.whole());
                if let Some(parts) = &mut parts {
                    parts.unit(unit, size).copy_from_slice(records);
                    continue;
                }
                for (token, records) in tokens.zip(records.chunks_exact(size)) {
                    attend::divide(records, head, y.tiled(token, set, [tile, sets], width));
                }
            }
        }
    }
}

/// The operand of the parts that [`Joined`] joins, where there are such.
const PARTS: usize = COUNT + 1;

/// Joins what threads left of one token's blocks.
struct Joined;

impl Kernel for Joined {
    /// A unit is a head of keys.
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [head, kv_heads] = [p.head_dim as usize, p.kv_heads as usize];
        let heads = p.heads as usize / kv_heads;
        let blocks = Block::all(&seen(&args, &p, 0)).count();
        let parts = args.f32s(PARTS);
        let mut y = args.open::<f32>(AT.y);
        let mut floats = args.open::<f32>(COUNT);
        for at in args.units() {
            let size = heads * attend::record(head);
            let total = &mut floats.whole()[..size];
            attend::clear(total, head);
            for block in 0..blocks {
                let part = &parts[(block * kv_heads + at) * size..][..size];
                attend::fold(total, part, head);
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
        other => bail!(Unsupported, "no kernel for a cache of {other:?}"),
    }
}

fn of_cache<C: Stored>(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let [head, kv_heads] = [p.head_dim as usize, p.kv_heads as usize];
    let request = &attend::whole_vectors(request, p.head_dim)?;
    let shape = [p.tokens, p.heads, p.kv_heads, p.head_dim];
    let sharing = sharing::<C>(&p);
    let mut launch = attend::launch::<Attention<C>>(request, shape, sharing);
    let sets = kv_heads / sharing;
    if p.tokens == 1 && !sets.is_multiple_of(request.threads) {
        let blocks = attend::blocks(p.window as usize);
        let records = p.heads as usize * attend::record(head);
        launch.split = Split::Dealt {
            units: blocks * sets,
            rows: 1,
        };
        launch.join = Some(Join {
            bytes: blocks * records * size_of::<f32>(),
            entry: request.isa.entry::<Joined>(),
            split: Split::Units(kv_heads),
        });
    }
    let elements = p.tokens as usize * p.window as usize * head;
    Ok(launch.of_elements(elements))
}

macro_rules! case {
    ($name:literal, $cache:ident, $tokens:literal/$live:literal at $position:literal of $context:literal,
     $heads:literal/$kv_heads:literal x $head_dim:literal) => {
        case!($name, $cache, $tokens/$live at $position of $context,
              $heads/$kv_heads x $head_dim, window 0, cap 0.0)
    };
    ($name:literal, $cache:ident, $tokens:literal/$live:literal at $position:literal of $context:literal,
     $heads:literal/$kv_heads:literal x $head_dim:literal, window $window:literal, cap $cap:literal
     $(, by $sequence:literal)?) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            position: $position,
            $(sequence: $sequence,)?
            context: $context,
            window: $window,
            cache: DType::$cache,
            emit: |b| {
                let q = b.input("q", $heads * $head_dim);
                let at = Heads {
                    layer: 0,
                    heads: $heads,
                    kv_heads: $kv_heads,
                    head_dim: $head_dim,
                    window: $window,
                };
                b.attention(at, q, 0.3, $cap);
            },
            ..PLAIN
        }
    };
}

/// Groups of 1 to 7, heads that are no whole vectors, several panels and blocks, contexts that are
/// no whole pages, windows whose pages begin anew within a batch, a panel and a block.
pub(super) const CASES: &[Case] = &[
    case!("one", F32, 1/1 at 0 of 1, 1/1 x 1),
    case!("first position", F16, 1/1 at 0 of 8, 4/2 x 16),
    case!("odd head", F32, 3/2 at 4 of 16, 6/2 x 10),
    case!("odd head", F16, 3/3 at 4 of 16, 3/3 x 6),
    case!("group of 4", F16, 2/2 at 30 of 64, 8/2 x 64),
    case!("group of 7", F32, 5/4 at 3 of 32, 14/2 x 32),
    case!("panels", F16, 1/1 at 200 of 256, 6/2 x 48),
    case!("exactly a panel", F16, 2/2 at 62 of 128, 4/4 x 80),
    case!("many", F16, 67/61 at 70 of 140, 8/4 x 16),
    case!("soft cap", F32, 3/3 at 9 of 16, 4/2 x 16, window 0, cap 1.5),
    case!("window not yet full", F32, 3/2 at 2 of 64, 5/1 x 2, window 16, cap 0.0),
    case!("window over the context", F16, 2/2 at 6 of 8, 2/1 x 16, window 100, cap 0.0),
    case!("window of one", F16, 4/4 at 190 of 200, 2/2 x 16, window 1, cap 0.0),
    case!("window within a panel", F16, 1/1 at 300 of 512, 5/1 x 32, window 16, cap 0.0),
    case!("window of panels", F32, 2/2 at 410 of 512, 6/2 x 16, window 150, cap 2.0),
    case!("batch over the end of the ring", F16, 40/37 at 100 of 256, 4/2 x 16, window 16, cap 0.0),
    case!("over the end of the ring", F32, 5/5 at 124 of 256, 3/3 x 10, window 16, cap 0.0),
    case!("sequences", F16, 5/4 at 100 of 150, 4/2 x 16, window 0, cap 0.0, by 1),
    case!("sequences of rings", F32, 9/8 at 190 of 200, 3/1 x 16, window 5, cap 0.0, by 3),
    case!("blocks", F16, 1/1 at 1000 of 1024, 6/2 x 16),
    case!("blocks of heads that share", F16, 1/1 at 600 of 640, 8/8 x 64),
    case!("exactly a block", F32, 2/2 at 254 of 512, 2/1 x 16),
    case!("tiles over blocks", F16, 150/141 at 200 of 400, 2/1 x 16),
    case!("ring within a tile", F16, 70/66 at 610 of 1024, 2/2 x 16, window 300, cap 0.0),
    case!("ring of blocks", F16, 1/1 at 700 of 1024, 2/1 x 16, window 515, cap 0.0),
    case!("many heads of 256", F16, 20/19 at 30 of 64, 2/1 x 256),
    case!("many odd heads", F16, 21/20 at 3 of 64, 2/2 x 288, window 9, cap 0.0),
    case!("many heads of 512", F32, 19/18 at 20 of 64, 2/1 x 512, window 16, cap 2.0),
    case!("codes", Q8_0, 1/1 at 300 of 512, 6/3 x 64),
    case!("a tile of codes", Q8_0, 67/61 at 70 of 140, 8/2 x 128, window 0, cap 1.5),
    case!("a ring of codes", Q8_0, 40/37 at 100 of 256, 4/1 x 64, window 16, cap 0.0),
    case!("head of 512", F16, 2/1 at 90 of 128, 2/1 x 512, window 70, cap 30.0),
];
