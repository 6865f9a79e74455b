//! Attention of tiles of query rows: what causal and mutual attention have in common.
//!
//! Keys and values are taken block by block. A block leaves of every row its largest score, the
//! sum of its weights and its weighted values; these are folded in the order of the blocks.
//! Blocks are cut by positions and never by the tile, and within one the order of a row's sums
//! depends on the row alone: so a row's result is the same bits in any tile and any pages, and
//! several threads may compute the blocks of one row.

use super::pages::Pages;
use super::tiles::{Cache, LANES_MAX, PANEL, Panel, Stored, for_tiles, mix, scores, weigh};
use super::{Launch, Request};
use crate::simd::{Isa, Kernel, Level, Simd, math};
use crate::work::Split;
use std::ops::Range;
use tabla_core::error::Result;

/// Positions that make a block.
const BLOCK: usize = 256;

/// The positions of a block, cut by their own numbers wherever they lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    first: usize,
}

impl Block {
    /// The blocks of these positions, in their order.
    #[inline(always)]
    pub(super) fn all(seen: &Range<usize>) -> impl Iterator<Item = Self> + use<> {
        let blocks = seen.start / BLOCK..seen.end.div_ceil(BLOCK);
        blocks.map(|at| Self { first: at * BLOCK })
    }

    /// Those of `seen` that lie here.
    pub(super) fn positions(self, seen: &Range<usize>) -> Range<usize> {
        seen.start.max(self.first)..seen.end.min(self.first + BLOCK)
    }

    /// The same, counted from the first; none count from anywhere.
    #[inline(always)]
    fn clip(self, seen: &Range<usize>) -> Range<usize> {
        let end = seen.end.clamp(self.first, self.first + BLOCK);
        let start = seen.start.clamp(self.first, end);
        start - self.first..end - self.first
    }
}

/// Blocks that so many positions lie in at most, wherever they begin.
pub(super) fn blocks(window: usize) -> usize {
    window.div_ceil(BLOCK) + 1
}

/// Query rows of a tile, where one token has not more of them.
const ROWS: usize = 128;

/// Tokens of a tile at most.
pub(super) const TOKENS: usize = ROWS;

/// Tokens that make a tile, where so many heads share their keys.
pub(super) fn tile_tokens(heads: usize) -> usize {
    (ROWS / heads).max(1)
}

/// Query rows: tokens, and of each the heads of a group.
#[derive(Clone, Copy)]
pub(super) struct Queries<'a> {
    /// From the first row on.
    pub(super) q: &'a [f32],
    /// Elements from a token to the next.
    pub(super) stride: usize,
    /// The positions that each token sees, at least one.
    pub(super) seen: &'a [Range<usize>],
}

/// Some heads of keys and values, and the query heads of each.
pub(super) struct Group<'a, C> {
    /// Elements of a head.
    pub(super) head: usize,
    /// Heads of keys and values; more than one only for a single token.
    pub(super) sharing: usize,
    /// Query heads that share one of them.
    pub(super) heads: usize,
    /// What products are multiplied by.
    pub(super) scale: f32,
    /// What scores are bent towards at most; 0: they stay.
    pub(super) softcap: f32,
    pub(super) keys: Cache<'a, C>,
    pub(super) values: Cache<'a, C>,
    /// Which rows positions lie in; `None`: in those of their own number.
    pub(super) pages: Option<Pages<'a>>,
}

/// Floats of what a row makes of some positions: its values, weighted and not yet divided by the
/// sum of weights, `[head]`; the largest score, which weights are relative to; that sum.
pub(super) fn record(head: usize) -> usize {
    head + LANES_MAX
}

/// The records of no positions.
#[inline(always)]
pub(super) fn clear(total: &mut [f32], head: usize) {
    for total in total.chunks_exact_mut(record(head)) {
        total.fill(0.0);
        total[head] = f32::NEG_INFINITY;
    }
}

/// Adds records of later positions. Rows that see none of these have no weight there.
#[inline(always)]
pub(super) fn fold(total: &mut [f32], later: &[f32], head: usize) {
    let rows = total.chunks_exact_mut(record(head));
    for (total, later) in rows.zip(later.chunks_exact(record(head))) {
        let (values, facts) = total.split_at_mut(head);
        let (later, [new, weight, ..]) = (&later[..head], [later[head], later[head + 1]]);
        if weight == 0.0 {
            continue;
        }
        let max = if new > facts[0] { new } else { facts[0] };
        let [a, b] = [facts[0], new].map(|x| math::exp(x - max));
        facts[0] = max;
        facts[1] = facts[1] * a + weight * b;
        for (y, x) in values.iter_mut().zip(later) {
            *y = *y * a + x * b;
        }
    }
}

/// The values of records, divided by the sums of their weights.
#[inline(always)]
pub(super) fn divide(total: &[f32], head: usize, y: &mut [f32]) {
    let rows = total.chunks_exact(record(head));
    for (total, y) in rows.zip(y.chunks_exact_mut(head)) {
        let scale = 1.0 / total[head + 1];
        for (y, x) in y.iter_mut().zip(total) {
            *y = x * scale;
        }
    }
}

/// What a thread works in.
pub(super) struct Memory<'a> {
    /// `[head, PANEL]`
    keys: &'a mut [f32],
    /// `[PANEL, head]`
    values: &'a mut [f32],
    /// `[rows, BLOCK]`
    scores: &'a mut [f32],
    /// The records of the rows for one block.
    part: &'a mut [f32],
    /// Those for all of them.
    total: &'a mut [f32],
}

impl<'a> Memory<'a> {
    /// Floats for so many rows.
    fn len(rows: usize, head: usize) -> usize {
        2 * PANEL * head + rows * (BLOCK + 2 * record(head))
    }

    #[inline(always)]
    fn of(floats: &'a mut [f32], rows: usize, head: usize) -> Self {
        let (keys, floats) = floats.split_at_mut(PANEL * head);
        let (values, floats) = floats.split_at_mut(PANEL * head);
        let (scores, floats) = floats.split_at_mut(rows * BLOCK);
        let (part, floats) = floats.split_at_mut(rows * record(head));
        Self {
            keys,
            values,
            scores,
            part,
            total: &mut floats[..rows * record(head)],
        }
    }
}

impl<C: Stored> Group<'_, C> {
    /// The records of the query rows for these positions, with `floats` to work in.
    #[inline(always)]
    pub(super) fn attend<'m, S: Simd>(
        &self,
        s: S,
        queries: Queries<'_>,
        positions: &Range<usize>,
        floats: &'m mut [f32],
    ) -> &'m [f32] {
        let rows = queries.seen.len() * self.sharing * self.heads;
        let mut memory = Memory::of(floats, rows, self.head);
        clear(memory.total, self.head);
        for block in Block::all(positions) {
            let Range { start, end } = block.clip(positions);
            // Panels end where pages may.
            let panels = start / PANEL..end.div_ceil(PANEL);
            let panels = panels.map(|at| whole(start).max(at * PANEL)..end.min((at + 1) * PANEL));
            for panel in panels.clone() {
                let in_cache = self.panel(&block, &panel);
                for at in 0..self.sharing {
                    self.keys.turn(s, at, &in_cache, memory.keys);
                    self.score(s, queries, (at, &block, &panel), &mut memory);
                }
            }
            self.weigh(s, queries, &block, &mut memory);
            for panel in panels {
                let in_cache = self.panel(&block, &panel);
                for at in 0..self.sharing {
                    self.values.copy(s, at, &in_cache, memory.values);
                    self.mix(s, queries, (at, &block, &panel), &mut memory);
                }
            }
            fold(memory.total, memory.part, self.head);
        }
        memory.total
    }

    /// Where a panel of a block lies, and the one behind it.
    #[inline(always)]
    fn panel(&self, block: &Block, panel: &Range<usize>) -> Panel {
        let row = |position| self.pages.map_or(position, |pages| pages.row(position));
        let first = row(block.first + panel.start);
        Panel {
            rows: first..first + panel.len(),
            next: row((block.first + panel.end).next_multiple_of(PANEL)),
        }
    }

    /// The scores of a panel of head `at`, whose keys lie turned in `memory.keys`.
    #[inline(always)]
    fn score<S: Simd>(
        &self,
        s: S,
        queries: Queries<'_>,
        (at, block, panel): (usize, &Block, &Range<usize>),
        memory: &mut Memory<'_>,
    ) {
        let rows = queries.seen.len() * self.heads;
        let all = &mut memory.scores[at * rows * BLOCK..];
        for_tiles!(rows, N, r => {
            let own = block.clip(&hull(&queries.seen[r / self.heads..=(r + N - 1) / self.heads]));
            let own = whole(own.start).max(panel.start)..own.end.min(panel.end);
            if !own.is_empty() {
                let mut q = [queries.q; N];
                for (n, q) in q.iter_mut().enumerate() {
                    let (token, head) = ((r + n) / self.heads, (r + n) % self.heads);
                    let head = (at * self.heads + head) * self.head;
                    *q = &q[token * queries.stride + head..][..self.head];
                }
                let columns = own.start - panel.start..own.end - panel.start;
                let to = &mut all[r * BLOCK + panel.start..];
                scores(s, q, memory.keys, columns, (to, BLOCK));
            }
        });
    }

    /// Turns scores into weights, 0 where a row sees nothing, and begins the records of a block.
    #[inline(always)]
    fn weigh<S: Simd>(&self, s: S, queries: Queries<'_>, block: &Block, memory: &mut Memory<'_>) {
        let records = memory.part.chunks_exact_mut(record(self.head));
        let rows = records
            .zip(memory.scores.chunks_exact_mut(BLOCK))
            .enumerate();
        for (r, (record, scores)) in rows {
            record.fill(0.0);
            let own = block.clip(&queries.seen[r / self.heads % queries.seen.len()]);
            if own.is_empty() {
                continue;
            }
            let first = whole(own.start);
            let scores = &mut scores[first..own.end.next_multiple_of(LANES_MAX)];
            let own = own.start - first..own.end - first;
            let mut scale = self.scale;
            if self.softcap > 0.0 {
                for x in scores.iter_mut() {
                    *x = self.softcap * math::tanh(*x * scale / self.softcap);
                }
                scale = 1.0;
            }
            scores[..own.start].fill(f32::NEG_INFINITY);
            scores[own.end..].fill(f32::NEG_INFINITY);
            let facts = weigh(s, scores, scale);
            scores[..own.start].fill(0.0);
            scores[own.end..].fill(0.0);
            record[self.head..][..2].copy_from_slice(&facts);
        }
    }

    /// Adds the weighted values of a panel of head `at`, which lie in `memory.values`.
    ///
    /// What all rows of a tile see is added at once; what only some see before and behind it is
    /// added row by row: an infinite value must not come near a row that does not see it, not
    /// even times 0.
    #[inline(always)]
    fn mix<S: Simd>(
        &self,
        s: S,
        queries: Queries<'_>,
        (at, block, panel): (usize, &Block, &Range<usize>),
        memory: &mut Memory<'_>,
    ) {
        let (head, stride) = (self.head, record(self.head));
        let rows = queries.seen.len() * self.heads;
        let scores = &memory.scores[at * rows * BLOCK..];
        let part = &mut memory.part[at * rows * stride..];
        let own = |r: usize| {
            let own = block.clip(&queries.seen[r / self.heads]);
            own.start.max(panel.start)..own.end.min(panel.end)
        };
        let weights = |r: usize, seen: &Range<usize>| &scores[r * BLOCK..][seen.clone()];
        let values = |seen: &Range<usize>| &memory.values[(seen.start - panel.start) * head..];
        for_tiles!(rows, N, r => {
            let start = (r..r + N).fold(panel.start, |at, r| at.max(own(r).start));
            let end = (r..r + N).fold(panel.end, |at, r| at.min(own(r).end)).max(start);
            for phase in 0..3 {
                if phase == 1 {
                    let all = start..end;
                    if !all.is_empty() {
                        let mut tile = [scores; N];
                        for (n, tile) in tile.iter_mut().enumerate() {
                            *tile = weights(r + n, &all);
                        }
                        let records = &mut part[r * stride..][..N * stride];
                        mix(s, tile, (values(&all), head), records);
                    }
                    continue;
                }
                for r in r..r + N {
                    let Range { start: first, end: last } = own(r);
                    let edge = if phase == 0 { first..last.min(start) } else { first.max(end)..last };
                    if !edge.is_empty() {
                        let record = &mut part[r * stride..][..stride];
                        mix(s, [weights(r, &edge)], (values(&edge), head), record);
                    }
                }
            }
        });
    }
}

/// From the first position that any sees to behind the last.
#[inline(always)]
pub(super) fn hull(seen: &[Range<usize>]) -> Range<usize> {
    let start = seen.iter().fold(usize::MAX, |at, seen| at.min(seen.start));
    let end = seen.iter().fold(0, |at, seen| at.max(seen.end));
    start..end
}

/// Down to whole vectors of any level: within a block the lanes of sums begin there.
#[inline(always)]
fn whole(at: usize) -> usize {
    at / LANES_MAX * LANES_MAX
}

/// Bytes of a row that are read at once, where it has so many: memory is slow at less.
const PIECE: usize = 512;

/// Heads of keys, each of so many bytes, that one unit does. Of several tokens a unit does one
/// head: they need no memory that often, and leave enough units.
pub(super) fn sharing(tokens: u32, kv_heads: usize, bytes: usize) -> usize {
    let wanted = if tokens == 1 { PIECE / bytes } else { 1 };
    let fits = |n: &usize| kv_heads.is_multiple_of(*n);
    (1..=wanted.min(kv_heads)).rev().find(fits).unwrap_or(1)
}

/// How a kernel over tiles of tokens and sets of `sharing` heads of keys is run.
pub(super) fn launch<K: Kernel>(
    request: &Request<'_>,
    [tokens, heads, kv_heads, head_dim]: [u32; 4],
    sharing: usize,
) -> Launch {
    let heads = (heads / kv_heads) as usize;
    let tile = tile_tokens(heads).min(tokens as usize);
    let split = Split::Dealt {
        units: kv_heads as usize / sharing,
        rows: tile,
    };
    let floats = Memory::len(tile * heads * sharing, head_dim as usize);
    Launch {
        scratch: floats * size_of::<f32>(),
        ..request.launch::<K>(split, tokens)
    }
}

/// The request at a level whose vectors divide heads of this size.
pub(super) fn whole_vectors<'a>(request: &Request<'a>, head_dim: u32) -> Result<Request<'a>> {
    let divided = (head_dim as usize).is_multiple_of(LANES_MAX);
    let isa = if divided {
        request.isa
    } else {
        Isa::of(Level::Scalar)?
    };
    Ok(Request { isa, ..*request })
}
