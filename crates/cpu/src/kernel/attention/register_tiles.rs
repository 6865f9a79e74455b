//! Attention products in register tiles: several query rows by several vectors.
//!
//! Every sum is one chain of fused multiply-adds, over the elements of a head for a score and over
//! cache rows for a weighted value, so that the result does not depend on the tiling.

use crate::simd::rows::unroll;
use crate::simd::{Simd, math};
use half::f16;
use std::marker::PhantomData;
use std::ops::Range;
use tabla_core::op::params::PAGE;
use tabla_quant::q8_0;

/// Storage type of keys and values in the cache.
pub(crate) trait CacheType {
    /// Bytes of an element; scales follow all elements of a row.
    const BYTES: usize;
    /// Whether decoding a vector takes about as long as loading a copy.
    const FAST: bool = true;

    /// Bytes of a row of `dim` elements.
    #[inline(always)]
    fn row_bytes(dim: usize) -> usize {
        dim * Self::BYTES
    }

    /// Loads a vector of elements, from `i` on, of a row of `dim` elements that `row` starts with.
    fn load<S: Simd>(s: S, row: &[u8], dim: usize, i: usize) -> S::V;

    /// Loads `J` vectors of elements, from `first` on.
    #[inline(always)]
    fn vectors<S: Simd, const J: usize>(s: S, row: &[u8], dim: usize, first: usize) -> [S::V; J] {
        let mut v = [s.splat(0.0); J];
        unroll!(j < J => { v[j] = Self::load(s, row, dim, first + j * S::LANES); });
        v
    }

    /// Loads `to.len()` elements, whole vectors, from `first` on.
    #[inline(always)]
    fn copy<S: Simd>(s: S, row: &[u8], dim: usize, first: usize, to: &mut [f32]) {
        for (v, to) in to.chunks_exact_mut(S::LANES).enumerate() {
            s.store(to, Self::load(s, row, dim, first + v * S::LANES));
        }
    }

    /// Loads element `i` of the row.
    fn number(row: &[u8], dim: usize, i: usize) -> f32;
}

pub(crate) struct F32;

impl CacheType for F32 {
    const BYTES: usize = 4;

    #[inline(always)]
    fn load<S: Simd>(s: S, row: &[u8], _: usize, i: usize) -> S::V {
        s.load_f32(&row[4 * i..])
    }

    fn number(row: &[u8], _: usize, i: usize) -> f32 {
        let bytes = row[4 * i..]
            .first_chunk()
            .expect("the element is inside the row");
        f32::from_le_bytes(*bytes)
    }
}

pub(crate) struct F16;

impl CacheType for F16 {
    const BYTES: usize = 2;

    #[inline(always)]
    fn load<S: Simd>(s: S, row: &[u8], _: usize, i: usize) -> S::V {
        s.load_f16(&row[2 * i..])
    }

    /// Without the bounds checks of [`CacheType::load`], as in [`CacheType::copy`].
    #[inline(always)]
    fn vectors<S: Simd, const J: usize>(s: S, row: &[u8], _: usize, first: usize) -> [S::V; J] {
        let row = &row[2 * first..][..2 * J * S::LANES];
        let mut v = [s.splat(0.0); J];
        for (v, row) in v.iter_mut().zip(row.chunks_exact(2 * S::LANES)) {
            *v = s.load_f16(row);
        }
        v
    }

    /// Without the bounds checks of [`CacheType::load`], which take longer than the copy.
    #[inline(always)]
    fn copy<S: Simd>(s: S, row: &[u8], _: usize, first: usize, to: &mut [f32]) {
        let row = &row[2 * first..][..2 * to.len()];
        let vectors = row.chunks_exact(2 * S::LANES);
        for (to, row) in to.chunks_exact_mut(S::LANES).zip(vectors) {
            s.store(to, s.load_f16(row));
        }
    }

    fn number(row: &[u8], _: usize, i: usize) -> f32 {
        let bytes = row[2 * i..]
            .first_chunk()
            .expect("the element is inside the row");
        f16::from_le_bytes(*bytes).to_f32()
    }
}

/// Signed bytes, then an f16 scale for each [`q8_0::ELEMENTS`] of them.
pub(crate) struct Q8_0;

impl Q8_0 {
    #[inline(always)]
    fn scale(row: &[u8], dim: usize, i: usize) -> f32 {
        let at = dim + i / q8_0::ELEMENTS * size_of::<f16>();
        let bytes = row[at..]
            .first_chunk()
            .expect("the scale is inside the row");
        f16::from_le_bytes(*bytes).to_f32_const()
    }
}

impl CacheType for Q8_0 {
    const BYTES: usize = 1;
    const FAST: bool = false;

    #[inline(always)]
    fn row_bytes(dim: usize) -> usize {
        dim / q8_0::ELEMENTS * q8_0::BYTES
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, row: &[u8], dim: usize, i: usize) -> S::V {
        let scale = Self::scale(row, dim, i);
        let mut x = [0.0; LANES_MAX];
        for (x, q) in x.iter_mut().zip(&row[i..][..S::LANES]) {
            *x = scale * f32::from(q.cast_signed());
        }
        s.load(&x)
    }

    fn number(row: &[u8], dim: usize, i: usize) -> f32 {
        Self::scale(row, dim, i) * f32::from(row[i].cast_signed())
    }
}

/// Evaluates an expression with the type of a KV cache as `C`, the storage type of a request.
macro_rules! with_cache_type {
    ($request:expr, |$cache:ident| $launch:expr) => {
        match $request.variant {
            Some(::tabla_core::dtype::DType::F32) => {
                type $cache = $crate::kernel::attention::register_tiles::F32;
                Ok($launch)
            }
            Some(::tabla_core::dtype::DType::F16) => {
                type $cache = $crate::kernel::attention::register_tiles::F16;
                Ok($launch)
            }
            Some(::tabla_core::dtype::DType::Q8_0) => {
                type $cache = $crate::kernel::attention::register_tiles::Q8_0;
                Ok($launch)
            }
            other => {
                ::tabla_core::error::bail!(Unsupported, "no kernel for KV cache type {other:?}")
            }
        }
    };
}
pub(crate) use with_cache_type;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Cache rows that are read together, within a page.
pub(crate) struct CachePanel {
    pub(crate) rows: Range<usize>,
    /// Column of the first row in the transposed keys.
    pub(crate) column: usize,
    /// First row of the next panel, which is prefetched.
    pub(crate) next: usize,
}

/// Prefetches some heads of consecutive rows, in the order of memory because any other is slower.
/// A core drops prefetches while it waits for too many lines, so rows are prefetched again before they
/// are read.
pub(crate) struct Prefetch<'a> {
    bytes: &'a [u8],
    /// First byte of the next row.
    row: usize,
    /// Bytes between rows.
    row_bytes: usize,
    /// Bytes of the heads in a row.
    width: usize,
    /// Bytes of the rows between the first prefetch and the second.
    again: usize,
    /// Bytes read since the last row was prefetched.
    read: usize,
}

impl Prefetch<'_> {
    /// Prefetches as many rows as have been read, given that these bytes were read.
    #[inline(always)]
    fn advance<S: Simd>(&mut self, s: S, bytes: usize) {
        self.read += bytes;
        while self.read >= self.width {
            let again = self.row.saturating_sub(self.again);
            for line in (0..self.width).step_by(LINE) {
                s.prefetch_l1(self.bytes, self.row + line);
                s.prefetch_l1(self.bytes, again + line);
            }
            self.read -= self.width;
            self.row += self.row_bytes;
        }
    }
}

/// Keys or values of some adjacent heads, which are read together.
#[derive(Clone, Copy)]
pub(crate) struct Cache<'a, C> {
    bytes: &'a [u8],
    /// Elements of a row.
    dim: usize,
    /// First element of these heads.
    first: usize,
    /// Elements of a head.
    head: usize,
    /// Number of heads.
    heads: usize,
    stored: PhantomData<C>,
}

impl<'a, C: CacheType> Cache<'a, C> {
    /// Heads `heads` of a cache with shape `[rows, all, head]`.
    #[inline(always)]
    pub(crate) fn of(bytes: &'a [u8], heads: Range<usize>, [all, head]: [usize; 2]) -> Self {
        Self {
            bytes,
            dim: all * head,
            first: heads.start * head,
            head,
            heads: heads.len(),
            stored: PhantomData,
        }
    }

    /// Returns a row.
    #[inline(always)]
    fn row(&self, row: usize) -> &'a [u8] {
        let bytes = C::row_bytes(self.dim);
        &self.bytes[row * bytes..][..bytes]
    }

    /// Prefetches the rows after a panel while it is read.
    #[inline(always)]
    pub(crate) fn prefetch(&self, panel: &CachePanel) -> Prefetch<'a> {
        let row_bytes = C::row_bytes(self.dim);
        Prefetch {
            bytes: self.bytes,
            row: panel.next * row_bytes + self.first * C::BYTES,
            row_bytes,
            width: self.heads * self.head * C::BYTES,
            again: panel.rows.len() / 2 * row_bytes,
            read: 0,
        }
    }

    /// `to[i, r] = self[rows.start + r, i]` of head `at`, where `to` has rows of `PANEL` and starts at
    /// the panel's column. The last row is repeated up to whole vectors.
    #[inline(always)]
    pub(crate) fn transpose<S: Simd>(
        &self,
        s: S,
        at: usize,
        panel: &CachePanel,
        next: &mut Prefetch<'_>,
        to: &mut [f32],
    ) {
        let rows = &panel.rows;
        let (to, _) = to.as_chunks_mut::<PANEL>();
        for first in (0..rows.len()).step_by(S::LANES) {
            let mut lanes = [self.row(rows.start); LANES_MAX];
            for (j, lane) in lanes[..S::LANES].iter_mut().enumerate() {
                *lane = self.row((rows.start + first + j).min(rows.end - 1));
            }
            let column = panel.column + first;
            assert!(column + S::LANES <= PANEL, "the panel has this column");
            for (i, to) in to
                .chunks_exact_mut(S::LANES)
                .enumerate()
                .take(self.head / S::LANES)
            {
                next.advance(s, S::LANES * S::LANES * C::BYTES);
                let i = self.first + at * self.head + i * S::LANES;
                let mut v = [s.splat(0.0); LANES_MAX];
                for j in 0..S::LANES {
                    v[j] = C::load(s, lanes[j], self.dim, i);
                }
                s.transpose(&mut v[..S::LANES]);
                for (v, to) in v.iter().zip(to) {
                    s.store(&mut to[column..], *v);
                }
            }
        }
    }

    /// Values of head `at`, starting at a cache row.
    #[inline(always)]
    pub(crate) fn values<'p, 'b>(
        &'b self,
        at: usize,
        row: usize,
        next: Option<&'b mut Prefetch<'p>>,
    ) -> CachedValues<'a, 'p, 'b, C> {
        CachedValues {
            cache: self,
            row,
            first: self.first + at * self.head,
            next,
        }
    }

    /// `to[r, :] = self[rows.start + r, :]` of head `at`.
    #[inline(always)]
    pub(crate) fn copy<S: Simd>(
        &self,
        s: S,
        at: usize,
        panel: &CachePanel,
        next: &mut Prefetch<'_>,
        to: &mut [f32],
    ) {
        let rows = panel.rows.clone();
        for (row, to) in rows.zip(to.chunks_exact_mut(self.head)) {
            next.advance(s, self.head * C::BYTES);
            let first = self.first + at * self.head;
            C::copy(s, self.row(row), self.dim, first, to);
        }
    }
}

/// Number of keys or values that stay in the L1 cache while all query rows read them.
pub(crate) const PANEL: usize = 64;

const _: () = assert!(
    (PAGE as usize).is_multiple_of(PANEL),
    "panels do not cross pages"
);

/// Lanes of the widest vector.
pub(crate) const LANES_MAX: usize = 16;

/// Repeats the body for tiles of `N` query rows, starting at row `r`.
macro_rules! for_tiles {
    ($rows:expr, $n:ident, $r:ident => $body:block) => {{
        let mut $r = 0;
        while $r + 4 <= $rows {
            const $n: usize = 4;
            $body
            $r += 4;
        }
        while $r + 2 <= $rows {
            const $n: usize = 2;
            $body
            $r += 2;
        }
        while $r < $rows {
            const $n: usize = 1;
            $body
            $r += 1;
        }
    }};
}
pub(crate) use for_tiles;

/// `scores[n, r] = q[n, :] . keys[:, r]` for `r` in a range of whole vectors, where `keys` has rows
/// of `PANEL` and rows of `scores` are `stride` apart.
#[inline(always)]
pub(crate) fn scores<S: Simd, const N: usize>(
    s: S,
    q: [&[f32]; N],
    keys: &[f32],
    columns: Range<usize>,
    scores: &mut [f32],
    stride: usize,
) {
    let mut at = columns.start;
    if S::LANES == LANES_MAX {
        while at + 4 * S::LANES <= columns.end {
            score::<S, N, 4>(s, q, keys, at, scores, stride);
            at += 4 * S::LANES;
        }
    }
    while at + 2 * S::LANES <= columns.end {
        score::<S, N, 2>(s, q, keys, at, scores, stride);
        at += 2 * S::LANES;
    }
    while at < columns.end {
        score::<S, N, 1>(s, q, keys, at, scores, stride);
        at += S::LANES;
    }
}

/// Computes the scores of `J` vectors, starting at `at`.
#[inline(always)]
fn score<S: Simd, const N: usize, const J: usize>(
    s: S,
    q: [&[f32]; N],
    keys: &[f32],
    at: usize,
    scores: &mut [f32],
    stride: usize,
) {
    let mut acc = [[s.splat(0.0); J]; N];
    let count = q[0].len();
    let mut rows = q;
    for row in &mut rows {
        *row = &row[..count];
    }
    let (keys, _) = keys.as_chunks::<PANEL>();
    assert!(
        keys.len() >= count && at + J * S::LANES <= PANEL,
        "all keys are there"
    );
    for i in 0..count {
        let keys = &keys[i][at..][..J * S::LANES];
        let mut k = [s.splat(0.0); J];
        for (k, keys) in k.iter_mut().zip(keys.chunks_exact(S::LANES)) {
            *k = s.load(keys);
        }
        for n in 0..N {
            let q = s.splat(rows[n][i]);
            for j in 0..J {
                acc[n][j] = s.fma(q, k[j], acc[n][j]);
            }
        }
    }
    for n in 0..N {
        for j in 0..J {
            s.store(&mut scores[n * stride + at + j * S::LANES..], acc[n][j]);
        }
    }
}

/// `x = e^(scale x - max)`; `x` must be whole vectors of every level. Returns the largest `scale x`
/// and the sum.
#[inline(always)]
pub(super) fn softmax_weights<S: Simd>(s: S, x: &mut [f32], scale: f32) -> [f32; 2] {
    let zero = s.splat(0.0);
    let mut max = s.splat(f32::NEG_INFINITY);
    for x in x.chunks_exact_mut(S::LANES) {
        let v = s.fma(s.load(x), s.splat(scale), zero);
        s.store(x, v);
        max = s.max(v, max);
    }
    let mut lanes = [f32::NEG_INFINITY; LANES_MAX];
    s.store(&mut lanes, max);
    for width in [8, 4, 2, 1] {
        for i in 0..width {
            lanes[i] = if lanes[i] > lanes[i + width] {
                lanes[i]
            } else {
                lanes[i + width]
            };
        }
    }
    let max = lanes[0];
    let mut sum = zero;
    for x in x.chunks_exact_mut(S::LANES) {
        let v = math::exp_lanes(s, s.fma(s.splat(-1.0), s.splat(max), s.load(x)));
        s.store(x, v);
        sum = s.fma(v, s.splat(1.0), sum);
    }
    [max, s.sum(sum)]
}

/// Values of consecutive positions.
pub(crate) trait Values {
    /// Loads `J` vectors of elements of row `r`, starting at `i`.
    fn load<S: Simd, const J: usize>(&mut self, s: S, r: usize, i: usize) -> [S::V; J];
}

/// Values that were copied as f32, in rows of `head`.
pub(crate) struct CopiedValues<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) head: usize,
}

impl Values for CopiedValues<'_> {
    #[inline(always)]
    fn load<S: Simd, const J: usize>(&mut self, s: S, r: usize, i: usize) -> [S::V; J] {
        let values = &self.values[r * self.head + i..][..J * S::LANES];
        let mut v = [s.splat(0.0); J];
        for (v, values) in v.iter_mut().zip(values.chunks_exact(S::LANES)) {
            *v = s.load(values);
        }
        v
    }
}

/// Values in the cache.
pub(crate) struct CachedValues<'a, 'p, 'b, C> {
    cache: &'b Cache<'a, C>,
    /// First cache row.
    row: usize,
    /// First element of the head in a row.
    first: usize,
    /// Rows that are prefetched, if these are read for the first time.
    next: Option<&'b mut Prefetch<'p>>,
}

impl<C: CacheType> Values for CachedValues<'_, '_, '_, C> {
    #[inline(always)]
    fn load<S: Simd, const J: usize>(&mut self, s: S, r: usize, i: usize) -> [S::V; J] {
        if let Some(next) = &mut self.next {
            next.advance(s, J * S::LANES * C::BYTES);
        }
        let row = self.cache.row(self.row + r);
        C::vectors(s, row, self.cache.dim, self.first + i)
    }
}

/// `y[n, ..head] += sum_r weights[n][r] values[r, :]`.
#[inline(always)]
pub(crate) fn add_weighted_values<S: Simd, const N: usize>(
    s: S,
    weights: [&[f32]; N],
    values: &mut impl Values,
    head: usize,
    y: &mut [f32],
) {
    let mut i = 0;
    if S::LANES == LANES_MAX {
        while i + 4 * S::LANES <= head {
            columns::<S, N, 4>(s, weights, values, i, y);
            i += 4 * S::LANES;
        }
    }
    while i + 2 * S::LANES <= head {
        columns::<S, N, 2>(s, weights, values, i, y);
        i += 2 * S::LANES;
    }
    while i < head {
        columns::<S, N, 1>(s, weights, values, i, y);
        i += S::LANES;
    }
}

/// Computes `J` vectors of columns, starting at `i`.
#[expect(
    clippy::needless_range_loop,
    reason = "the weights of several rows are indexed together"
)]
#[inline(always)]
fn columns<S: Simd, const N: usize, const J: usize>(
    s: S,
    weights: [&[f32]; N],
    values: &mut impl Values,
    i: usize,
    y: &mut [f32],
) {
    let stride = y.len() / N;
    let at = |n: usize, j: usize| n * stride + i + j * S::LANES;
    let mut acc = [[s.splat(0.0); J]; N];
    for n in 0..N {
        for j in 0..J {
            acc[n][j] = s.load(&y[at(n, j)..]);
        }
    }
    let count = weights[0].len();
    let mut w = weights;
    for w in &mut w {
        *w = &w[..count];
    }
    for r in 0..count {
        let v: [S::V; J] = values.load(s, r, i);
        for n in 0..N {
            let weight = s.splat(w[n][r]);
            for j in 0..J {
                acc[n][j] = s.fma(weight, v[j], acc[n][j]);
            }
        }
    }
    for n in 0..N {
        for j in 0..J {
            s.store(&mut y[at(n, j)..], acc[n][j]);
        }
    }
}
