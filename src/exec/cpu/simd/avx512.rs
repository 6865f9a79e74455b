//! AVX-512 F, BW, VL, DQ and VNNI: 16 lanes, and byte products by `vpdpbusd`, two blocks at once.
//!
//! Every intrinsic here is reached through a value of [`Avx512`], which only [`enter`] makes.

use super::{Args, Kernel, PREFETCH_BYTES, Quantised, Simd};
use crate::quant::{CHUNK, Chunk, Floats, Ints, Matrix, q4_0, q4_1, q8_0};
use std::arch::x86_64::{
    __m128i, __m256i, __m512, __m512i, _MM_HINT_T0, _mm_cvtph_ps, _mm_cvtsi32_si128, _mm_cvtss_f32,
    _mm_loadu_ps, _mm_loadu_si128, _mm_prefetch, _mm_srli_epi16, _mm256_and_si256,
    _mm256_castsi128_si256, _mm256_inserti128_si256, _mm256_loadu_si256, _mm256_set1_epi8,
    _mm512_castps128_ps512, _mm512_castsi256_si512, _mm512_castsi512_ps, _mm512_cvtepi32_ps,
    _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps,
    _mm512_inserti64x4, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_mov_ps,
    _mm512_mask_set1_epi32, _mm512_maskz_set1_epi32, _mm512_mul_ps, _mm512_permutexvar_ps,
    _mm512_reduce_add_epi32, _mm512_reduce_add_ps, _mm512_set_epi32, _mm512_set1_epi8,
    _mm512_set1_ps, _mm512_setzero_si512, _mm512_slli_epi32, _mm512_storeu_ps, _mm512_sub_epi32,
    _mm512_xor_si512,
};

/// Proof that the processor has the AVX-512 sets of this level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512(());

/// Runs a kernel compiled for this level.
///
/// # Safety
///
/// The processor must have AVX2, FMA, F16C and AVX-512 F, BW, VL, DQ and VNNI.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) unsafe fn enter<K: Kernel>(args: Args<'_>) {
    K::run(Avx512(()), args);
}

/// Unpacks a chunk, compiled for this level.
///
/// # Safety
///
/// As for [`enter`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) unsafe fn unpack<T: Ints>(m: &Matrix<'_>, row: usize, first: usize, out: &mut Chunk) {
    T::unpack(m, row, first, out);
}

/// Decodes a chunk, compiled for this level.
///
/// # Safety
///
/// As for [`enter`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) unsafe fn decode<T: Floats>(
    m: &Matrix<'_>,
    row: usize,
    first: usize,
    out: &mut [f32; CHUNK],
) {
    T::decode(m, row, first, out);
}

/// `f` with the instructions of this level.
macro_rules! with {
    ($self:ident, $call:expr) => {{
        let Avx512(()) = $self;
        // SAFETY: `self` proves the instructions that these intrinsics need.
        unsafe { $call }
    }};
}

#[inline(always)]
fn front<const N: usize>(bytes: &[u8]) -> &[u8; N] {
    bytes.first_chunk().expect("a vector's worth of bytes")
}

impl Avx512 {
    #[inline(always)]
    fn quarter(self, bytes: &[u8; 16]) -> __m128i {
        // SAFETY: 16 bytes are there and the load wants no alignment.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn half(self, bytes: &[u8; 32]) -> __m256i {
        // SAFETY: 32 bytes are there, the load wants no alignment, and `self` proves AVX.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn join(self, low: __m256i, high: __m256i) -> __m512i {
        with!(
            self,
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
        )
    }

    /// One f16.
    #[inline(always)]
    fn f16(self, bits: [u8; 2]) -> f32 {
        let bits = i32::from(u16::from_le_bytes(bits));
        with!(self, _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits))))
    }

    /// 16 bytes as 32 nibbles: low ones, then high ones.
    #[inline(always)]
    fn nibbles(self, bytes: &[u8; 16]) -> __m256i {
        let half = self.quarter(bytes);
        with!(self, {
            let high = _mm_srli_epi16::<4>(half);
            let both = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(half), high);
            _mm256_and_si256(both, _mm256_set1_epi8(15))
        })
    }

    /// Each number in the lanes of its quarter.
    #[inline(always)]
    fn quarters(self, four: &[f32; 4]) -> __m512 {
        // SAFETY: four numbers are there, and the load wants no alignment.
        let four = unsafe { _mm_loadu_ps(four.as_ptr()) };
        with!(self, {
            let lanes = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
            _mm512_permutexvar_ps(lanes, _mm512_castps128_ps512(four))
        })
    }

    /// `a` in the lanes of the first block, `b` in those of the second.
    #[inline(always)]
    fn two(self, [a, b]: [f32; 2]) -> __m512 {
        with!(
            self,
            _mm512_mask_mov_ps(_mm512_set1_ps(a), 0xff00, _mm512_set1_ps(b))
        )
    }

    /// `a` in the first lane of the first block, `b` in that of the second.
    #[inline(always)]
    fn firsts(self, [a, b]: [i32; 2]) -> __m512i {
        with!(
            self,
            _mm512_mask_set1_epi32(_mm512_maskz_set1_epi32(0x0001, a), 0x0100, b)
        )
    }

    /// `acc + d * (start + w . x)`, with unsigned `w` and signed `x`.
    #[inline(always)]
    fn scaled(self, start: __m512i, [w, x]: [__m512i; 2], d: [f32; 2], acc: __m512) -> __m512 {
        let d = self.two(d);
        with!(self, {
            let ints = _mm512_dpbusd_epi32(start, w, x);
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(ints), d, acc)
        })
    }
}

/// A block format of this level.
trait Block<const BYTES: usize> {
    /// A block of weights as unsigned bytes, and its numbers as f32.
    fn unpack(s: Avx512, block: &[u8; BYTES]) -> (__m256i, [f32; 2]);
    /// Adds the product of two blocks with two of activations.
    fn add(s: Avx512, w: Weights, x: Activations, acc: __m512) -> __m512;
}

/// Two blocks of weights: bytes, and the numbers of each.
#[derive(Clone, Copy)]
struct Weights {
    q: __m512i,
    d: [f32; 2],
    m: [f32; 2],
}

/// Two blocks of activations.
#[derive(Clone, Copy)]
struct Activations {
    q: __m512i,
    d: [f32; 2],
    sum: [i32; 2],
}

impl Activations {
    #[inline(always)]
    fn scale(self, d: [f32; 2]) -> [f32; 2] {
        [d[0] * self.d[0], d[1] * self.d[1]]
    }
}

/// Every pair of a row and a token, two blocks at once; zeros stand behind an odd last block.
/// The order of a pair's sum does not depend on `R` and `T`, so a token's result is the same
/// bits alone and in a batch.
#[inline(always)]
fn pairs<B: Block<BYTES>, const BYTES: usize, const R: usize, const T: usize>(
    s: Avx512,
    w: [&[u8]; R],
    x: [Quantised<'_>; T],
) -> [[f32; T]; R] {
    let blocks = x[0].q.len();
    let w = w.map(|w| &w.as_chunks::<BYTES>().0[..blocks]);
    let x = x.map(|x| (&x.q[..blocks], &x.d[..blocks], &x.sum[..blocks]));
    let mut acc = [[s.splat(0.0); T]; R];
    let zeros = s.half(&[0; 32]);
    for b in 0..blocks / 2 {
        let (i, j) = (2 * b, 2 * b + 1);
        // Loops, not `map`: a closure is its own function, which lacks the level's instructions
        // where it is not inlined.
        let mut pair_x = [Activations {
            q: s.join(zeros, zeros),
            d: [0.0; 2],
            sum: [0; 2],
        }; T];
        for t in 0..T {
            let (q, d, sum) = x[t];
            pair_x[t] = Activations {
                q: s.join(s.half(&q[i]), s.half(&q[j])),
                d: [d[i], d[j]],
                sum: [sum[i], sum[j]],
            };
        }
        for r in 0..R {
            s.prefetch(&w[r][i], PREFETCH_BYTES);
            let (low, [d0, m0]) = B::unpack(s, &w[r][i]);
            let (high, [d1, m1]) = B::unpack(s, &w[r][j]);
            let block = Weights {
                q: s.join(low, high),
                d: [d0, d1],
                m: [m0, m1],
            };
            for t in 0..T {
                acc[r][t] = B::add(s, block, pair_x[t], acc[r][t]);
            }
        }
    }
    if blocks % 2 == 1 {
        let i = blocks - 1;
        for (r, w) in w.iter().enumerate() {
            let (low, [d, m]) = B::unpack(s, &w[i]);
            let block = Weights {
                q: s.join(low, zeros),
                d: [d, 0.0],
                m: [m, 0.0],
            };
            for (t, (q, d, sum)) in x.iter().enumerate() {
                let x = Activations {
                    q: s.join(s.half(&q[i]), zeros),
                    d: [d[i], 0.0],
                    sum: [sum[i], 0],
                };
                acc[r][t] = B::add(s, block, x, acc[r][t]);
            }
        }
    }
    let mut sums = [[0.0; T]; R];
    for r in 0..R {
        for t in 0..T {
            sums[r][t] = s.sum(acc[r][t]);
        }
    }
    sums
}

struct Q8;

impl Block<{ q8_0::BYTES }> for Q8 {
    #[inline(always)]
    fn unpack(s: Avx512, block: &[u8; q8_0::BYTES]) -> (__m256i, [f32; 2]) {
        let d = s.f16([block[0], block[1]]);
        (s.half(front(&block[2..])), [d, 0.0])
    }

    #[inline(always)]
    fn add(s: Avx512, w: Weights, x: Activations, acc: __m512) -> __m512 {
        // Flipping the sign bit adds 128, which the start takes away again.
        let unsigned = with!(s, _mm512_xor_si512(w.q, _mm512_set1_epi8(-128)));
        let start = s.firsts([-128 * x.sum[0], -128 * x.sum[1]]);
        s.scaled(start, [unsigned, x.q], x.scale(w.d), acc)
    }
}

struct Q4;

impl Block<{ q4_0::BYTES }> for Q4 {
    #[inline(always)]
    fn unpack(s: Avx512, block: &[u8; q4_0::BYTES]) -> (__m256i, [f32; 2]) {
        let d = s.f16([block[0], block[1]]);
        (s.nibbles(front(&block[2..])), [d, 0.0])
    }

    #[inline(always)]
    fn add(s: Avx512, w: Weights, x: Activations, acc: __m512) -> __m512 {
        let start = s.firsts([-8 * x.sum[0], -8 * x.sum[1]]);
        s.scaled(start, [w.q, x.q], x.scale(w.d), acc)
    }
}

struct Q4WithMin;

impl Block<{ q4_1::BYTES }> for Q4WithMin {
    #[inline(always)]
    fn unpack(s: Avx512, block: &[u8; q4_1::BYTES]) -> (__m256i, [f32; 2]) {
        let d = s.f16([block[0], block[1]]);
        let m = s.f16([block[2], block[3]]);
        (s.nibbles(front(&block[4..])), [d, m])
    }

    #[inline(always)]
    fn add(s: Avx512, w: Weights, x: Activations, acc: __m512) -> __m512 {
        let zero = with!(s, _mm512_setzero_si512());
        let acc = s.scaled(zero, [w.q, x.q], x.scale(w.d), acc);
        let sums = with!(s, _mm512_cvtepi32_ps(s.firsts(x.sum)));
        s.fma(sums, s.two(x.scale(w.m)), acc)
    }
}

impl Simd for Avx512 {
    const LANES: usize = 16;
    type V = __m512;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        with!(self, _mm512_set1_ps(x))
    }

    #[inline(always)]
    fn load(self, x: &[f32]) -> __m512 {
        let x: &[f32; 16] = x.first_chunk().expect("a vector's worth");
        // SAFETY: 16 numbers are there, the load wants no alignment, and `self` proves AVX-512.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, y: &mut [f32], v: __m512) {
        let y: &mut [f32; 16] = y.first_chunk_mut().expect("a vector's worth");
        // SAFETY: 16 numbers have room, the store wants no alignment, `self` proves AVX-512.
        unsafe { _mm512_storeu_ps(y.as_mut_ptr(), v) };
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        with!(self, _mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn sum(self, v: __m512) -> f32 {
        with!(self, _mm512_reduce_add_ps(v))
    }

    #[inline(always)]
    fn load_f32(self, bytes: &[u8]) -> __m512 {
        let bytes: &[u8; 64] = front(bytes);
        // SAFETY: 64 bytes are there, the load wants no alignment, and `self` proves AVX-512.
        let bits = unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
        with!(self, _mm512_castsi512_ps(bits))
    }

    #[inline(always)]
    fn load_f16(self, bytes: &[u8]) -> __m512 {
        with!(self, _mm512_cvtph_ps(self.half(front(bytes))))
    }

    #[inline(always)]
    fn load_bf16(self, bytes: &[u8]) -> __m512 {
        with!(self, {
            let wide = _mm512_cvtepu16_epi32(self.half(front(bytes)));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        })
    }

    #[inline(always)]
    fn prefetch(self, bytes: &[u8], ahead: usize) {
        let at = bytes.as_ptr().wrapping_add(ahead);
        // SAFETY: a prefetch of any address is a hint and touches nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }

    #[inline(always)]
    fn dot_chunk<const MIN: bool>(self, w: &Chunk, x: Quantised<'_>, mut acc: __m512) -> __m512 {
        let zeros = self.half(&[0; 32]);
        let w_pairs = w.q.as_chunks::<64>().0.iter();
        let scales = w.scale.as_chunks::<4>().0.iter();
        let mins = w.min.as_chunks::<4>().0;
        for (p, (x_q, (w_q, scale))) in x.q.chunks(2).zip(w_pairs.zip(scales)).enumerate() {
            // A block without a second one counts beside zeros.
            let (second, d) = match x_q {
                [_, second] => (self.half(second), [x.d[2 * p], x.d[2 * p + 1]]),
                _ => (zeros, [x.d[2 * p], 0.0]),
            };
            let x_q = self.join(self.half(&x_q[0]), second);
            let d = self.two(d);
            // SAFETY: the load wants 64 bytes, which the array has, and `self` proves AVX-512.
            let w_q = unsafe { _mm512_loadu_si512(w_q.as_ptr().cast()) };
            let scale = with!(self, _mm512_mul_ps(self.quarters(scale), d));
            with!(self, {
                // Flipping the sign bit adds 128, which the second product takes away again.
                let flip = _mm512_set1_epi8(-128);
                let raised =
                    _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_xor_si512(w_q, flip), x_q);
                let offset = _mm512_dpbusd_epi32(_mm512_setzero_si512(), flip, x_q);
                let ints = _mm512_sub_epi32(raised, offset);
                acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(ints), scale, acc);
            });
            if MIN {
                let min = with!(self, _mm512_mul_ps(self.quarters(&mins[p]), d));
                let zero = with!(self, _mm512_setzero_si512());
                with!(self, {
                    let sums = _mm512_dpbusd_epi32(zero, _mm512_set1_epi8(1), x_q);
                    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), min, acc);
                });
            }
        }
        acc
    }

    #[inline(always)]
    fn dot_i8(self, w: &[[i8; 64]], x: &[[i8; 64]]) -> i32 {
        let zero = with!(self, _mm512_setzero_si512());
        let (mut raised, mut offset) = (zero, zero);
        for (w, x) in w.iter().zip(x) {
            // SAFETY: the load wants 64 bytes, which the array has, and `self` proves AVX-512.
            let w = unsafe { _mm512_loadu_si512(w.as_ptr().cast()) };
            // SAFETY: as above.
            let x = unsafe { _mm512_loadu_si512(x.as_ptr().cast()) };
            with!(self, {
                // Flipping the sign bit adds 128, which the second product takes away again.
                let flip = _mm512_set1_epi8(-128);
                raised = _mm512_dpbusd_epi32(raised, _mm512_xor_si512(w, flip), x);
                offset = _mm512_dpbusd_epi32(offset, flip, x);
            });
        }
        with!(
            self,
            _mm512_reduce_add_epi32(_mm512_sub_epi32(raised, offset))
        )
    }

    #[inline(always)]
    fn dot_q8_0<const R: usize, const T: usize>(
        self,
        w: [&[u8]; R],
        x: [Quantised<'_>; T],
    ) -> [[f32; T]; R] {
        pairs::<Q8, _, R, T>(self, w, x)
    }

    #[inline(always)]
    fn dot_q4_0<const R: usize, const T: usize>(
        self,
        w: [&[u8]; R],
        x: [Quantised<'_>; T],
    ) -> [[f32; T]; R] {
        pairs::<Q4, _, R, T>(self, w, x)
    }

    #[inline(always)]
    fn dot_q4_1<const R: usize, const T: usize>(
        self,
        w: [&[u8]; R],
        x: [Quantised<'_>; T],
    ) -> [[f32; T]; R] {
        pairs::<Q4WithMin, _, R, T>(self, w, x)
    }
}
