//! AVX2 with FMA and F16C: 8 lanes, and byte products by `vpmaddubsw`.
//!
//! Every intrinsic here is reached through a value of [`Avx2`], which only [`enter`] makes.

use super::{Args, Kernel, PREFETCH_BYTES, Quantised, Simd};
use crate::quant::{CHUNK, Chunk, Floats, Ints, Matrix, q4_0, q4_1, q8_0};
use std::arch::x86_64::{
    __m128i, __m256, __m256i, _MM_HINT_T0, _mm_add_epi32, _mm_add_ps, _mm_add_ss, _mm_cvtph_ps,
    _mm_cvtsi32_si128, _mm_cvtsi128_si32, _mm_cvtss_f32, _mm_loadu_si128, _mm_movehdup_ps,
    _mm_movehl_ps, _mm_prefetch, _mm_shuffle_epi32, _mm_srli_epi16, _mm_unpackhi_epi64,
    _mm256_abs_epi8, _mm256_add_epi32, _mm256_and_si256, _mm256_blend_ps, _mm256_castps256_ps128,
    _mm256_castsi128_si256, _mm256_castsi256_ps, _mm256_castsi256_si128, _mm256_cvtepi32_ps,
    _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_extractf128_ps, _mm256_extracti128_si256,
    _mm256_fmadd_ps, _mm256_inserti128_si256, _mm256_loadu_ps, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_set1_epi8, _mm256_set1_epi16,
    _mm256_set1_ps, _mm256_setzero_si256, _mm256_sign_epi8, _mm256_slli_epi32, _mm256_storeu_ps,
    _mm256_zextsi128_si256,
};

/// Proof that the processor has AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

/// Runs a kernel compiled for this level.
///
/// # Safety
///
/// The processor must have AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn enter<K: Kernel>(args: Args<'_>) {
    K::run(Avx2(()), args);
}

/// Unpacks a chunk, compiled for this level.
///
/// # Safety
///
/// As for [`enter`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn unpack<T: Ints>(m: &Matrix<'_>, row: usize, first: usize, out: &mut Chunk) {
    T::unpack(m, row, first, out);
}

/// Decodes a chunk, compiled for this level.
///
/// # Safety
///
/// As for [`enter`].
#[target_feature(enable = "avx2,fma,f16c")]
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
        let Avx2(()) = $self;
        // SAFETY: `self` proves the instructions that these intrinsics need.
        unsafe { $call }
    }};
}

#[inline(always)]
fn front<const N: usize>(bytes: &[u8]) -> &[u8; N] {
    bytes.first_chunk().expect("a vector's worth of bytes")
}

impl Avx2 {
    #[inline(always)]
    fn bytes(self, bytes: &[u8; 32]) -> __m256i {
        // SAFETY: 32 bytes are there, the load wants no alignment, and `self` proves AVX.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn half(self, bytes: &[u8; 16]) -> __m128i {
        // SAFETY: 16 bytes are there and the load wants no alignment.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
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
        let half = self.half(bytes);
        with!(self, {
            let high = _mm_srli_epi16::<4>(half);
            let both = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(half), high);
            _mm256_and_si256(both, _mm256_set1_epi8(15))
        })
    }

    /// `a` in the lanes of the first half of a block, `b` in those of the second.
    #[inline(always)]
    fn halves(self, [a, b]: [f32; 2]) -> __m256 {
        with!(
            self,
            _mm256_blend_ps::<0xf0>(_mm256_set1_ps(a), _mm256_set1_ps(b))
        )
    }

    /// Products of unsigned `w` and signed `x` in 8 sums. Neighbours must not leave 16 bits.
    #[inline(always)]
    fn dot_u8(self, w: __m256i, x: __m256i) -> __m256i {
        with!(self, {
            let pairs = _mm256_maddubs_epi16(w, x);
            _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
        })
    }

    /// `acc + d * ints`.
    #[inline(always)]
    fn scaled(self, ints: __m256i, d: __m256, acc: __m256) -> __m256 {
        with!(self, _mm256_fmadd_ps(_mm256_cvtepi32_ps(ints), d, acc))
    }
}

/// A block format of this level.
trait Block<const BYTES: usize> {
    /// A block of weights as bytes to multiply, and its numbers as f32.
    fn unpack(s: Avx2, block: &[u8; BYTES]) -> (__m256i, [f32; 2]);
    /// Adds the product with a block of activations of scale `d` and sum `sum`.
    fn add(s: Avx2, w: (__m256i, [f32; 2]), x: Activations, acc: __m256) -> __m256;
}

/// A block of activations.
#[derive(Clone, Copy)]
struct Activations {
    q: __m256i,
    d: f32,
    sum: i32,
}

/// Every pair of a row and a token. The order of a pair's sum does not depend on `R` and `T`,
/// so a token's result is the same bits alone and in a batch.
#[inline(always)]
fn pairs<B: Block<BYTES>, const BYTES: usize, const R: usize, const T: usize>(
    s: Avx2,
    w: [&[u8]; R],
    x: [Quantised<'_>; T],
) -> [[f32; T]; R] {
    let blocks = x[0].q.len();
    let w = w.map(|w| &w.as_chunks::<BYTES>().0[..blocks]);
    let x = x.map(|x| (&x.q[..blocks], &x.d[..blocks], &x.sum[..blocks]));
    let mut acc = [[s.splat(0.0); T]; R];
    let zero = s.bytes(&[0; 32]);
    for b in 0..blocks {
        // Loops, not `map`: a closure is its own function, which lacks the level's instructions
        // where it is not inlined.
        let mut block_x = [Activations {
            q: zero,
            d: 0.0,
            sum: 0,
        }; T];
        for t in 0..T {
            let (q, d, sum) = x[t];
            block_x[t] = Activations {
                q: s.bytes(&q[b]),
                d: d[b],
                sum: sum[b],
            };
        }
        for r in 0..R {
            s.prefetch(&w[r][b], PREFETCH_BYTES);
            let block = B::unpack(s, &w[r][b]);
            for t in 0..T {
                acc[r][t] = B::add(s, block, block_x[t], acc[r][t]);
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
    fn unpack(s: Avx2, block: &[u8; q8_0::BYTES]) -> (__m256i, [f32; 2]) {
        let d = s.f16([block[0], block[1]]);
        (s.bytes(front(&block[2..])), [d, 0.0])
    }

    #[inline(always)]
    fn add(s: Avx2, (w, [d, _]): (__m256i, [f32; 2]), x: Activations, acc: __m256) -> __m256 {
        // |w| is at most 128 and |x| at most 127: two products stay below 2^15.
        let (magnitude, signed) = with!(s, (_mm256_abs_epi8(w), _mm256_sign_epi8(x.q, w)));
        s.scaled(s.dot_u8(magnitude, signed), s.splat(d * x.d), acc)
    }
}

struct Q4;

impl Block<{ q4_0::BYTES }> for Q4 {
    #[inline(always)]
    fn unpack(s: Avx2, block: &[u8; q4_0::BYTES]) -> (__m256i, [f32; 2]) {
        let d = s.f16([block[0], block[1]]);
        (s.nibbles(front(&block[2..])), [d, 0.0])
    }

    #[inline(always)]
    fn add(s: Avx2, (w, [d, _]): (__m256i, [f32; 2]), x: Activations, acc: __m256) -> __m256 {
        // The offset 8 of the nibbles, folded into one lane.
        let offset = with!(s, _mm256_zextsi128_si256(_mm_cvtsi32_si128(-8 * x.sum)));
        let ints = s.dot_u8(w, x.q);
        let ints = with!(s, _mm256_add_epi32(ints, offset));
        s.scaled(ints, s.splat(d * x.d), acc)
    }
}

struct Q4WithMin;

impl Block<{ q4_1::BYTES }> for Q4WithMin {
    #[inline(always)]
    fn unpack(s: Avx2, block: &[u8; q4_1::BYTES]) -> (__m256i, [f32; 2]) {
        let d = s.f16([block[0], block[1]]);
        let m = s.f16([block[2], block[3]]);
        (s.nibbles(front(&block[4..])), [d, m])
    }

    #[inline(always)]
    fn add(s: Avx2, (w, [d, m]): (__m256i, [f32; 2]), x: Activations, acc: __m256) -> __m256 {
        let acc = s.scaled(s.dot_u8(w, x.q), s.splat(d * x.d), acc);
        // The minimum times the sum of the activations, in one lane.
        let sum = with!(s, _mm256_zextsi128_si256(_mm_cvtsi32_si128(x.sum)));
        s.scaled(sum, s.splat(m * x.d), acc)
    }
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    type V = __m256;

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        with!(self, _mm256_set1_ps(x))
    }

    #[inline(always)]
    fn load(self, x: &[f32]) -> __m256 {
        let x: &[f32; 8] = x.first_chunk().expect("a vector's worth");
        // SAFETY: 8 numbers are there, the load wants no alignment, and `self` proves AVX.
        unsafe { _mm256_loadu_ps(x.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, y: &mut [f32], v: __m256) {
        let y: &mut [f32; 8] = y.first_chunk_mut().expect("a vector's worth");
        // SAFETY: 8 numbers have room, the store wants no alignment, and `self` proves AVX.
        unsafe { _mm256_storeu_ps(y.as_mut_ptr(), v) };
    }

    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        with!(self, _mm256_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn sum(self, v: __m256) -> f32 {
        with!(self, {
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        })
    }

    #[inline(always)]
    fn load_f32(self, bytes: &[u8]) -> __m256 {
        with!(self, _mm256_castsi256_ps(self.bytes(front(bytes))))
    }

    #[inline(always)]
    fn load_f16(self, bytes: &[u8]) -> __m256 {
        with!(self, _mm256_cvtph_ps(self.half(front(bytes))))
    }

    #[inline(always)]
    fn load_bf16(self, bytes: &[u8]) -> __m256 {
        with!(self, {
            let wide = _mm256_cvtepu16_epi32(self.half(front(bytes)));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        })
    }

    #[inline(always)]
    fn prefetch(self, bytes: &[u8], ahead: usize) {
        let at = bytes.as_ptr().wrapping_add(ahead);
        // SAFETY: a prefetch of any address is a hint and touches nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }

    #[inline(always)]
    fn dot_chunk<const MIN: bool>(self, w: &Chunk, x: Quantised<'_>, mut acc: __m256) -> __m256 {
        let blocks = w.q.as_chunks::<32>().0.iter();
        for (b, (w_q, x_q)) in blocks.zip(x.q).enumerate() {
            let (w_q, x_q) = (self.bytes(bytemuck::cast_ref(w_q)), self.bytes(x_q));
            let d = self.splat(x.d[b]);
            let scale = self.halves([w.scale[2 * b], w.scale[2 * b + 1]]);
            // |w| is at most 128 and |x| at most 127: two products stay below 2^15.
            let (magnitude, signed) =
                with!(self, (_mm256_abs_epi8(w_q), _mm256_sign_epi8(x_q, w_q)));
            let scale = with!(self, _mm256_mul_ps(scale, d));
            acc = self.scaled(self.dot_u8(magnitude, signed), scale, acc);
            if MIN {
                let min = self.halves([w.min[2 * b], w.min[2 * b + 1]]);
                let ones = with!(self, _mm256_set1_epi8(1));
                let min = with!(self, _mm256_mul_ps(min, d));
                acc = self.scaled(self.dot_u8(ones, x_q), min, acc);
            }
        }
        acc
    }

    #[inline(always)]
    fn dot_i8(self, w: &[[i8; 64]], x: &[[i8; 64]]) -> i32 {
        let mut acc = with!(self, _mm256_setzero_si256());
        for (w, x) in w.iter().zip(x) {
            let halves = w.as_chunks::<32>().0.iter().zip(x.as_chunks().0);
            for (w, x) in halves {
                let w = self.bytes(bytemuck::cast_ref(w));
                let x = self.bytes(bytemuck::cast_ref::<[i8; 32], [u8; 32]>(x));
                // |w| is at most 128 and |x| at most 127: two products stay below 2^15.
                let (magnitude, signed) = with!(self, (_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)));
                acc = with!(self, _mm256_add_epi32(acc, self.dot_u8(magnitude, signed)));
            }
        }
        with!(self, {
            let four = _mm_add_epi32(
                _mm256_castsi256_si128(acc),
                _mm256_extracti128_si256::<1>(acc),
            );
            let two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
            _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<1>(two)))
        })
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
