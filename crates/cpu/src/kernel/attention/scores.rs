//! Scores of one query row, and their softmax by position.

use super::key_blocks::KV_BLOCK;
use super::register_tiles::CacheType;
use crate::simd::{Simd, math};
use std::ops::Range;

/// `q . k`, where k starts at element `first` of a cache row of `dim` elements.
#[inline(always)]
pub(crate) fn dot<S: Simd, C: CacheType>(
    s: S,
    q: &[f32],
    row: &[u8],
    [dim, first]: [usize; 2],
) -> f32 {
    let whole = q.len() / S::LANES * S::LANES;
    let mut sum = s.splat(0.0);
    for i in (0..whole).step_by(S::LANES) {
        sum = s.fma(s.load(&q[i..]), C::load(s, row, dim, first + i), sum);
    }
    let rest = (whole..q.len()).map(|i| q[i] * C::number(row, dim, first + i));
    s.sum(sum) + rest.sum::<f32>()
}

/// Writes the weights of the first positions: the softmax of the scores of `seen`, 0 for other
/// positions. The softmax is over all of `seen`, in blocks of positions, and the score of the sink.
#[inline(always)]
pub(crate) fn weights(
    seen: Range<usize>,
    y: &mut [f32],
    sink: Option<f32>,
    score: impl Fn(usize) -> f32,
) {
    y.fill(0.0);
    let (mut peak, mut total) = (f32::NEG_INFINITY, 0.0);
    for start in seen.clone().step_by(KV_BLOCK) {
        let mut block = [0.0; KV_BLOCK];
        let block = &mut block[..KV_BLOCK.min(seen.end - start)];
        for (position, to) in (start..).zip(block.iter_mut()) {
            *to = score(position);
        }
        if let Some(y) = y.get_mut(start..) {
            y.iter_mut().zip(&*block).for_each(|(y, s)| *y = *s);
        }
        let max = math::max(block);
        let top = if max > peak { max } else { peak };
        total = total * math::exp(peak - top) + math::sum(block, |s| math::exp(s - top));
        peak = top;
    }
    if let Some(sink) = sink {
        let top = if sink > peak { sink } else { peak };
        total = total * math::exp(peak - top) + math::exp(sink - top);
        peak = top;
    }
    let end = seen.end.min(y.len());
    for y in &mut y[seen.start.min(end)..end] {
        *y = math::exp(*y - peak) / total;
    }
}
