//! Attention over tiles of query rows, shared by causal and bidirectional attention.
//!
//! Keys and values are processed in blocks of positions. For each row, a block yields its maximum
//! score, the sum of its weights and its weighted values; blocks are merged in order (as in
//! FlashAttention). Block boundaries depend only on positions, and within a block the order of a
//! row's sums depends on the row alone. So the result of a row has the same bits for any tiling and
//! any page table, and several threads may compute blocks of one row.

use super::pages::Pages;
use super::register_tiles::{
    Cache, CachePanel, CacheType, CopiedValues, LANES_MAX, PANEL, Prefetch, add_weighted_values,
    for_tiles, scores, softmax_weights,
};
use crate::kernel::{Launch, Request};
use crate::simd::{Isa, Kernel, Level, Simd, math};
use crate::work::Split;
use std::ops::Range;
use tabla_core::error::{Result, bail};

/// Positions per block.
pub(super) const KV_BLOCK: usize = 256;

/// A block of positions, aligned to multiples of [`KV_BLOCK`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct KvBlock {
    first: usize,
}

impl KvBlock {
    /// Returns the blocks that cover these positions, in order.
    #[inline(always)]
    pub(crate) fn all(seen: &Range<usize>) -> impl Iterator<Item = Self> + use<> {
        let blocks = seen.start / KV_BLOCK..seen.end.div_ceil(KV_BLOCK);
        blocks.map(|at| Self {
            first: at * KV_BLOCK,
        })
    }

    /// The positions of `seen` in this block.
    pub(crate) fn positions(self, seen: &Range<usize>) -> Range<usize> {
        seen.start.max(self.first)..seen.end.min(self.first + KV_BLOCK)
    }

    /// The positions of `seen` in this block, relative to its first; an empty range may start
    /// anywhere.
    #[inline(always)]
    fn clip(self, seen: &Range<usize>) -> Range<usize> {
        let end = seen.end.clamp(self.first, self.first + KV_BLOCK);
        let start = seen.start.clamp(self.first, end);
        start - self.first..end - self.first
    }
}

/// Maximum number of blocks that `window` consecutive positions overlap.
pub(crate) fn blocks(window: usize) -> usize {
    window.div_ceil(KV_BLOCK) + 1
}

/// Query rows per tile, unless one token has more.
const ROWS: usize = 128;

/// Maximum number of tokens per tile.
pub(crate) const TOKENS: usize = ROWS;

/// Tokens per tile if `heads` query heads share a key head.
pub(crate) fn tile_tokens(heads: usize) -> usize {
    (ROWS / heads).max(1)
}

/// Query rows: tokens, each with the query heads of a group.
#[derive(Clone, Copy)]
pub(crate) struct Queries<'a> {
    /// Elements of q, starting at the first row.
    pub(crate) q: &'a [f32],
    /// Elements between tokens.
    pub(crate) stride: usize,
    /// Visible positions of each token; at least one each.
    pub(crate) seen: &'a [Range<usize>],
}

/// Key and value heads, with the query heads that share them.
pub(crate) struct HeadGroup<'a, C> {
    /// Elements of a head.
    pub(crate) head: usize,
    /// Number of key/value heads; more than one only for a single token.
    pub(crate) unit_kv_heads: usize,
    /// Query heads per key/value head.
    pub(crate) heads: usize,
    /// Scale of the scores.
    pub(crate) scale: f32,
    /// Soft cap of the scores; 0 disables it.
    pub(crate) softcap: f32,
    pub(crate) keys: Cache<'a, C>,
    pub(crate) values: Cache<'a, C>,
    /// Page table; `None` if positions are row numbers.
    pub(crate) pages: Option<Pages<'a>>,
}

/// Keys or values that are processed together. With several tokens they stay in the L1 cache while all
/// query rows read them. A single token reads them only a few times, and memory is read faster if few
/// are processed before the next ones are loaded.
fn panel_size(tokens: usize) -> usize {
    if tokens == 1 { 2 * LANES_MAX } else { PANEL }
}

/// Floats of the partial result of a row: weighted values, not yet divided by the sum of weights,
/// `[head]`; the maximum score, which weights are relative to; the sum of weights.
pub(super) fn partial_len(head: usize) -> usize {
    head + LANES_MAX
}

/// Initializes partial results to those of no positions.
#[inline(always)]
pub(crate) fn clear(total: &mut [f32], head: usize) {
    for total in total.chunks_exact_mut(partial_len(head)) {
        total.fill(0.0);
        total[head] = f32::NEG_INFINITY;
    }
}

/// Merges partial results of later positions. Rows that see none of these have a weight of 0.
#[inline(always)]
pub(super) fn merge(total: &mut [f32], later: &[f32], head: usize) {
    let rows = total.chunks_exact_mut(partial_len(head));
    for (total, later) in rows.zip(later.chunks_exact(partial_len(head))) {
        let (values, stats) = total.split_at_mut(head);
        let (later, [new, weight, ..]) = (&later[..head], [later[head], later[head + 1]]);
        if weight == 0.0 {
            continue;
        }
        let max = if new > stats[0] { new } else { stats[0] };
        let [a, b] = [stats[0], new].map(|x| math::exp(x - max));
        stats[0] = max;
        stats[1] = stats[1] * a + weight * b;
        for (y, x) in values.iter_mut().zip(later) {
            *y = *y * a + x * b;
        }
    }
}

/// Writes the values of partial results, divided by the sums of their weights. `sinks` has a score of
/// each row that takes part in the softmax and has no value.
#[inline(always)]
pub(crate) fn divide(total: &[f32], head: usize, sinks: Option<&[f32]>, y: &mut [f32]) {
    let rows = total.chunks_exact(partial_len(head));
    for (r, (total, y)) in rows.zip(y.chunks_exact_mut(head)).enumerate() {
        let scale = match sinks {
            None => 1.0 / total[head + 1],
            Some(sinks) => {
                let (peak, sink) = (total[head], sinks[r]);
                let max = if sink > peak { sink } else { peak };
                let [own, other] = [peak, sink].map(|x| math::exp(x - max));
                own / (total[head + 1] * own + other)
            }
        };
        for (y, x) in y.iter_mut().zip(total) {
            *y = x * scale;
        }
    }
}

/// Working memory of a thread.
pub(crate) struct AttentionScratch<'a> {
    /// Transposed keys, `[head, PANEL]`.
    keys: &'a mut [f32],
    /// Values, `[PANEL, head]`.
    values: &'a mut [f32],
    /// Scores, then weights, `[rows, KV_BLOCK]`.
    scores: &'a mut [f32],
    /// Partial results of the rows for one block.
    part: &'a mut [f32],
    /// Partial results of the rows for all blocks so far.
    total: &'a mut [f32],
}

impl<'a> AttentionScratch<'a> {
    /// Number of floats for `rows` rows.
    fn len(rows: usize, head: usize) -> usize {
        2 * PANEL * head + rows * (KV_BLOCK + 2 * partial_len(head))
    }

    #[inline(always)]
    fn of(floats: &'a mut [f32], rows: usize, head: usize) -> Self {
        let (keys, floats) = floats.split_at_mut(PANEL * head);
        let (values, floats) = floats.split_at_mut(PANEL * head);
        let (scores, floats) = floats.split_at_mut(rows * KV_BLOCK);
        let (part, floats) = floats.split_at_mut(rows * partial_len(head));
        Self {
            keys,
            values,
            scores,
            part,
            total: &mut floats[..rows * partial_len(head)],
        }
    }
}

impl<C: CacheType> HeadGroup<'_, C> {
    /// Computes the partial results of the query rows for these positions; `floats` is working
    /// memory.
    #[inline(always)]
    pub(super) fn attend<'m, S: Simd>(
        &self,
        s: S,
        queries: Queries<'_>,
        positions: &Range<usize>,
        floats: &'m mut [f32],
    ) -> &'m [f32] {
        let rows = queries.seen.len() * self.unit_kv_heads * self.heads;
        let mut scratch = AttentionScratch::of(floats, rows, self.head);
        clear(scratch.total, self.head);
        let size = panel_size(queries.seen.len());
        for block in KvBlock::all(positions) {
            let Range { start, end } = block.clip(positions);
            // Panels are aligned, so they do not cross pages.
            let panels = start / size..end.div_ceil(size);
            let panels =
                panels.map(|at| align_down(start).max(at * size)..end.min((at + 1) * size));
            for panel in panels.clone() {
                let in_cache = self.panel(&block, &panel, size);
                let next = &mut self.keys.prefetch(&in_cache);
                for at in 0..self.unit_kv_heads {
                    self.keys.transpose(s, at, &in_cache, next, scratch.keys);
                    self.score(s, queries, at, &block, &panel, &mut scratch);
                }
            }
            self.softmax_weights(s, queries, &block, &mut scratch);
            for panel in panels {
                let in_cache = self.panel(&block, &panel, size);
                let next = &mut self.values.prefetch(&in_cache);
                if let ([seen], true) = (queries.seen, self.decodes_per_tile()) {
                    let own = block.clip(seen);
                    let own = own.start.max(panel.start)..own.end.min(panel.end);
                    let row = in_cache.rows.start + own.start - panel.start;
                    self.add_values_in_cache(s, &own, row, next, &mut scratch);
                    continue;
                }
                for at in 0..self.unit_kv_heads {
                    self.values.copy(s, at, &in_cache, next, scratch.values);
                    self.add_weighted_values(s, queries, at, &block, &panel, &mut scratch);
                }
            }
            merge(scratch.total, scratch.part, self.head);
        }
        scratch.total
    }

    /// Cache rows of a panel of a block, and the start of the next one.
    #[inline(always)]
    fn panel(&self, block: &KvBlock, panel: &Range<usize>, size: usize) -> CachePanel {
        let row = |position| self.pages.map_or(position, |pages| pages.row(position));
        let first = row(block.first + panel.start);
        CachePanel {
            rows: first..first + panel.len(),
            column: panel.start % PANEL,
            next: row((block.first + panel.end).next_multiple_of(size)),
        }
    }

    /// Computes the scores of a panel of head `at`, whose keys are transposed in `memory.keys`.
    #[inline(always)]
    fn score<S: Simd>(
        &self,
        s: S,
        queries: Queries<'_>,
        at: usize,
        block: &KvBlock,
        panel: &Range<usize>,
        scratch: &mut AttentionScratch<'_>,
    ) {
        let rows = queries.seen.len() * self.heads;
        let all = &mut scratch.scores[at * rows * KV_BLOCK..];
        for_tiles!(rows, N, r => {
            let seen = &queries.seen[r / self.heads..=(r + N - 1) / self.heads];
            let own = block.clip(&enclosing_range(seen));
            let own = align_down(own.start).max(panel.start)..own.end.min(panel.end);
            if !own.is_empty() {
                let mut q = [queries.q; N];
                let (mut token, mut head) = (r / self.heads, r % self.heads);
                for q in &mut q {
                    let first = (at * self.heads + head) * self.head;
                    *q = &q[token * queries.stride + first..][..self.head];
                    head += 1;
                    if head == self.heads {
                        (token, head) = (token + 1, 0);
                    }
                }
                let first = panel.start % PANEL;
                let columns = first + own.start - panel.start..first + own.end - panel.start;
                let to = &mut all[r * KV_BLOCK + panel.start - first..];
                scores(s, q, scratch.keys, columns, to, KV_BLOCK);
            }
        });
    }

    /// Converts scores to weights, 0 for masked positions, and initializes the partial results of a
    /// block.
    #[inline(always)]
    fn softmax_weights<S: Simd>(
        &self,
        s: S,
        queries: Queries<'_>,
        block: &KvBlock,
        scratch: &mut AttentionScratch<'_>,
    ) {
        let partials = scratch.part.chunks_exact_mut(partial_len(self.head));
        let rows = partials
            .zip(scratch.scores.chunks_exact_mut(KV_BLOCK))
            .enumerate();
        for (r, (partial, scores)) in rows {
            partial.fill(0.0);
            let own = block.clip(&queries.seen[r / self.heads % queries.seen.len()]);
            if own.is_empty() {
                continue;
            }
            let first = align_down(own.start);
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
            let stats = softmax_weights(s, scores, scale);
            scores[..own.start].fill(0.0);
            scores[own.end..].fill(0.0);
            partial[self.head..][..2].copy_from_slice(&stats);
        }
    }

    /// Whether values of a single token are decoded for each tile of its query heads. Otherwise, they
    /// are copied as f32 for all tiles.
    #[inline(always)]
    fn decodes_per_tile(&self) -> bool {
        C::FAST && self.heads <= 4
    }

    /// Adds the weighted values of some positions of a block for a single token; the first is in this
    /// cache row.
    #[inline(always)]
    fn add_values_in_cache<S: Simd>(
        &self,
        s: S,
        own: &Range<usize>,
        row: usize,
        next: &mut Prefetch<'_>,
        scratch: &mut AttentionScratch<'_>,
    ) {
        let (head, stride) = (self.head, partial_len(self.head));
        for at in 0..self.unit_kv_heads {
            for_tiles!(self.heads, N, r => {
                let first = at * self.heads + r;
                let mut tile = [&scratch.scores[..0]; N];
                for (n, tile) in tile.iter_mut().enumerate() {
                    *tile = &scratch.scores[(first + n) * KV_BLOCK..][own.clone()];
                }
                let prefetched = (r == 0).then_some(&mut *next);
                let mut values = self.values.values(at, row, prefetched);
                let partials = &mut scratch.part[first * stride..][..N * stride];
                add_weighted_values(s, tile, &mut values, head, partials);
            });
        }
    }

    /// Adds the weighted values of a panel of head `at`, which are in `memory.values`.
    ///
    /// Positions that all rows of a tile see are added together; those before and after, which only
    /// some rows see, are added row by row. A masked value may be infinite, and 0 times infinity is
    /// NaN.
    #[inline(always)]
    fn add_weighted_values<S: Simd>(
        &self,
        s: S,
        queries: Queries<'_>,
        at: usize,
        block: &KvBlock,
        panel: &Range<usize>,
        scratch: &mut AttentionScratch<'_>,
    ) {
        let (head, stride) = (self.head, partial_len(self.head));
        let rows = queries.seen.len() * self.heads;
        let scores = &scratch.scores[at * rows * KV_BLOCK..];
        let part = &mut scratch.part[at * rows * stride..];
        let own = |token: usize| {
            let own = block.clip(&queries.seen[token]);
            own.start.max(panel.start)..own.end.min(panel.end)
        };
        let weights = |r: usize, seen: &Range<usize>| &scores[r * KV_BLOCK..][seen.clone()];
        let values = |seen: &Range<usize>| CopiedValues {
            values: &scratch.values[(seen.start - panel.start) * head..],
            head,
        };
        for_tiles!(rows, N, r => {
            let (first, last) = (r / self.heads, (r + N - 1) / self.heads);
            let Range { mut start, mut end } = own(first);
            for token in first + 1..=last {
                (start, end) = (start.max(own(token).start), end.min(own(token).end));
            }
            end = end.max(start);
            for phase in 0..3 {
                if phase == 1 {
                    let all = start..end;
                    if !all.is_empty() {
                        let mut tile = [scores; N];
                        for (n, tile) in tile.iter_mut().enumerate() {
                            *tile = weights(r + n, &all);
                        }
                        let partials = &mut part[r * stride..][..N * stride];
                        add_weighted_values(s, tile, &mut values(&all), head, partials);
                    }
                } else if first < last {
                    for r in r..r + N {
                        let own = own(r / self.heads);
                        let edge = match phase {
                            0 => own.start..own.end.min(start),
                            _ => own.start.max(end)..own.end,
                        };
                        if !edge.is_empty() {
                            let partial = &mut part[r * stride..][..stride];
                            add_weighted_values(s, [weights(r, &edge)], &mut values(&edge), head, partial);
                        }
                    }
                }
            }
        });
    }
}

/// Smallest range that contains all the ranges.
#[inline(always)]
pub(super) fn enclosing_range(seen: &[Range<usize>]) -> Range<usize> {
    let start = seen.iter().fold(usize::MAX, |at, seen| at.min(seen.start));
    let end = seen.iter().fold(0, |at, seen| at.max(seen.end));
    start..end
}

/// Rounds down to whole vectors of any level: the lanes of sums within a block start there.
#[inline(always)]
fn align_down(at: usize) -> usize {
    at / LANES_MAX * LANES_MAX
}

/// Minimum number of bytes to read contiguously from a row, if it has as many; smaller reads are
/// slow.
const READ_BYTES: usize = 512;

/// Number of key heads, of `bytes` bytes each, per unit that is not a whole block. With several tokens
/// it is one: memory bandwidth matters less, and there are more units.
pub(super) fn unit_kv_heads(tokens: u32, kv_heads: usize, bytes: usize) -> usize {
    let wanted = if tokens == 1 { READ_BYTES / bytes } else { 1 };
    let fits = |n: &usize| kv_heads.is_multiple_of(*n);
    (1..=wanted.min(kv_heads)).rev().find(fits).unwrap_or(1)
}

/// Launch of a kernel over tiles of tokens and sets of `unit_kv_heads` key heads.
pub(crate) fn launch<K: Kernel>(
    request: &Request<'_>,
    [tokens, heads, kv_heads, head_dim]: [u32; 4],
    unit_kv_heads: usize,
) -> Launch {
    let heads = (heads / kv_heads) as usize;
    let tile = tile_tokens(heads).min(tokens as usize);
    let split = Split::RoundRobin {
        units: kv_heads as usize / unit_kv_heads,
        rows: tile,
    };
    let floats = AttentionScratch::len(tile * heads * unit_kv_heads, head_dim as usize);
    Launch {
        scratch: floats * size_of::<f32>(),
        ..request.launch::<K>(split, tokens)
    }
}

/// Checks the number and the size of heads.
pub(crate) fn check_heads([heads, kv_heads, head_dim]: [u32; 3]) -> Result<()> {
    let row = heads.checked_mul(head_dim);
    if kv_heads == 0 || !heads.is_multiple_of(kv_heads) || row.is_none_or(|row| row == 0) {
        bail!(
            Internal,
            "invalid heads: {heads} of {head_dim} elements, {kv_heads} of keys"
        );
    }
    Ok(())
}

/// The request at a level whose vectors divide the head size.
pub(crate) fn whole_vectors<'a>(request: &Request<'a>, head_dim: u32) -> Result<Request<'a>> {
    let divided = (head_dim as usize).is_multiple_of(LANES_MAX);
    let isa = if divided {
        request.isa
    } else {
        Isa::of(Level::Scalar)?
    };
    Ok(Request { isa, ..*request })
}
