//! `y[t, h, :] = softmax(cap(scale q[t, h, :] . k[h / group, seen, :])) v[h / group, seen, :]`
//!
//! A unit is a token and a head of keys.

use super::attend::{self, Cache, F16, F32, Group, Stored};
use super::{Launch, PLAIN, Request};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::exec::case::Case;
use crate::exec::cpu::memory::Args;
use crate::exec::cpu::simd::{Kernel, Simd};
use crate::exec::state::Row;
use crate::op::builder::Heads;
use crate::op::shaders::attention::Params;
use std::marker::PhantomData;
use std::ops::Range;

struct Attention<C>(PhantomData<C>);

impl<C: Stored> Kernel for Attention<C> {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [head, kv_heads] = [p.head_dim as usize, p.kv_heads as usize];
        let width = p.heads as usize / kv_heads * head;
        let q = args.f32s(0);
        let [k, v] = [args.bytes(1), args.bytes(2)];
        let (context, rows) = (args.state(4).context, args.rows(4));
        let mut y = args.open::<f32>(3);
        let mut scratch = args.open::<f32>(5);
        for unit in args.units() {
            let (t, g) = (unit / kv_heads, unit % kv_heads);
            let [keys, values] = [k, v].map(|bytes| Cache::<C>::head(bytes, [g, kv_heads, head]));
            let group = Group {
                head,
                scale: p.scale,
                softcap: p.softcap,
                keys,
                values,
                rows: seen(&p, rows[t], context),
            };
            let q = &q[unit * width..][..width];
            group.attend(s, q, scratch.whole(), y.unit(unit, width));
        }
    }
}

/// The rows of the cache with the last positions of a sequence up to this one, in their order.
fn seen(p: &Params, row: Row, context: u32) -> [Range<usize>; 2] {
    let base = row.sequence * p.ring;
    let end = row.position.min(context.saturating_sub(1)) + 1;
    let count = end.min(p.window);
    let first = (end - count) % p.ring;
    let straight = count.min(p.ring - first);
    [first..first + straight, 0..count - straight]
        .map(|rows| (base + rows.start) as usize..(base + rows.end) as usize)
}

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let shape = [p.tokens, p.kv_heads, p.head_dim];
    let scores = (p.heads / p.kv_heads) as usize * p.window as usize;
    let launch = match request.variant {
        Some(DType::F32) => attend::launch::<Attention<F32>>(request, shape, scores)?,
        Some(DType::F16) => attend::launch::<Attention<F16>>(request, shape, scores)?,
        other => bail!(Unsupported, "no kernel for a cache of {other:?}"),
    };
    let elements = p.tokens as usize * p.window as usize * p.head_dim as usize;
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

/// Groups of 1 to 7, heads that are no whole vectors, several stretches, windows whose rows of
/// the cache begin anew within a batch, within a stretch and at their very end.
pub(super) const CASES: &[Case] = &[
    case!("one", F32, 1/1 at 0 of 1, 1/1 x 1),
    case!("first position", F16, 1/1 at 0 of 8, 4/2 x 16),
    case!("odd head", F32, 3/2 at 4 of 16, 6/2 x 10),
    case!("odd head", F16, 3/3 at 4 of 16, 3/3 x 6),
    case!("group of 4", F16, 2/2 at 30 of 64, 8/2 x 64),
    case!("group of 7", F32, 5/4 at 3 of 32, 14/2 x 32),
    case!("stretches", F16, 1/1 at 200 of 256, 6/2 x 48),
    case!("exactly a stretch", F16, 2/2 at 62 of 128, 4/4 x 80),
    case!("many", F16, 67/61 at 70 of 140, 8/4 x 16),
    case!("soft cap", F32, 3/3 at 9 of 16, 4/2 x 16, window 0, cap 1.5),
    case!("window not yet full", F32, 3/2 at 2 of 64, 5/1 x 2, window 16, cap 0.0),
    case!("window over the context", F16, 2/2 at 6 of 8, 2/1 x 16, window 100, cap 0.0),
    case!("window of one", F16, 4/4 at 37 of 64, 2/2 x 16, window 1, cap 0.0),
    case!("window within a stretch", F16, 1/1 at 300 of 512, 5/1 x 32, window 16, cap 0.0),
    case!("window of stretches", F32, 2/2 at 410 of 512, 6/2 x 16, window 150, cap 2.0),
    case!("batch over the end of the ring", F16, 40/37 at 70 of 256, 4/2 x 16, window 16, cap 0.0),
    case!("exactly a ring", F32, 5/5 at 60 of 128, 3/3 x 10, window 16, cap 0.0),
    case!("sequences", F16, 5/4 at 40 of 64, 4/2 x 16, window 0, cap 0.0, by 1),
    case!("sequences of rings", F32, 9/8 at 60 of 64, 3/1 x 16, window 5, cap 0.0, by 3),
    case!("head of 512", F16, 2/1 at 90 of 128, 2/1 x 512, window 70, cap 30.0),
];
