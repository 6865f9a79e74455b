//! AVX2 with FMA and F16C: 8 lanes, and byte products with `vpdpbusd` or, on processors without
//! AVX-VNNI, with `vpmaddubsw`.
//!
//! All intrinsics here need a value of [`Avx2`], which only [`Avx2::assume`] creates.

use super::rows::{Column, Half, Rows, Word, unroll};
use super::vectors::{Simd, Task};
use std::arch::asm;
use std::arch::x86_64::{
    __m128i, __m256, __m256i, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0, _MM_HINT_T1, _mm_add_epi32,
    _mm_add_ps, _mm_add_ss, _mm_cvtsi32_si128, _mm_cvtsi128_si32, _mm_cvtsi128_si64, _mm_cvtss_f32,
    _mm_loadu_si128, _mm_movehdup_ps, _mm_movehl_ps, _mm_prefetch, _mm_shuffle_epi32,
    _mm_storeu_si128, _mm_unpackhi_epi64, _mm_unpacklo_epi32, _mm256_abs_epi8, _mm256_add_epi8,
    _mm256_add_epi16, _mm256_add_epi32, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_castps_si256, _mm256_castps256_ps128, _mm256_castsi256_ps, _mm256_castsi256_si128,
    _mm256_cmpeq_epi8, _mm256_cvtepi32_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_cvtps_ph,
    _mm256_dpbusd_avx_epi32, _mm256_extractf128_ps, _mm256_extracti128_si256, _mm256_fmadd_ps,
    _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_max_epu8,
    _mm256_max_ps, _mm256_mul_ps, _mm256_or_si256, _mm256_permute2f128_ps, _mm256_set1_epi8,
    _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_shuffle_ps, _mm256_sign_epi8, _mm256_sll_epi16, _mm256_sll_epi32,
    _mm256_slli_epi32, _mm256_srai_epi32, _mm256_srl_epi16, _mm256_srl_epi32, _mm256_storeu_ps,
    _mm256_storeu_si256, _mm256_sub_epi8, _mm256_unpackhi_ps, _mm256_unpacklo_ps, _mm256_xor_si256,
};
use tabla_quant::{CHUNK, Chunk, Floats, Ints, Matrix};

/// Proof that the processor has AVX2, FMA and F16C and, if `VNNI` is true, AVX-VNNI.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2<const VNNI: bool>(());

impl<const VNNI: bool> Avx2<VNNI> {
    /// Returns the proof.
    ///
    /// # Safety
    ///
    /// The processor must have the features.
    #[inline(always)]
    pub(super) unsafe fn assume() -> Self {
        Self(())
    }
}

/// Unpacks a chunk with code compiled for this level.
///
/// # Safety
///
/// The processor must have AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn unpack<T: Ints>(m: &Matrix<'_>, row: usize, first: usize, out: &mut Chunk) {
    T::unpack(m, row, first, out);
}

/// Decodes a chunk with code compiled for this level.
///
/// # Safety
///
/// As for [`unpack`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn decode<T: Floats>(
    m: &Matrix<'_>,
    row: usize,
    first: usize,
    out: &mut [f32; CHUNK],
) {
    T::decode(m, row, first, out);
}

/// Calls intrinsics of this level.
macro_rules! with {
    ($self:ident, $call:expr) => {{
        let Avx2(()) = $self;
        // SAFETY: `self` proves the instructions that these intrinsics need.
        unsafe { $call }
    }};
}

/// Sixteen rows are two vectors: applies the same call to each.
macro_rules! both {
    ($self:ident, |$($v:ident),+| $call:expr) => {{
        let Avx2(()) = $self;
        [
            {
                $(let $v = $v[0];)+
                // SAFETY: `self` proves the instructions that these intrinsics need.
                unsafe { $call }
            },
            {
                $(let $v = $v[1];)+
                // SAFETY: as above.
                unsafe { $call }
            },
        ]
    }};
}

#[inline(always)]
fn prefix<const N: usize>(bytes: &[u8]) -> &[u8; N] {
    bytes.first_chunk().expect("a full vector of bytes")
}

/// Keeps LLVM from turning a chain of sums into a tree, whose parts need more registers than there
/// are.
#[target_feature(enable = "avx2")]
#[inline]
fn in_chain(mut v: __m256i) -> __m256i {
    // SAFETY: the assembly is empty.
    unsafe { asm!("/* {0} */", inout(ymm_reg) v, options(pure, nomem, nostack, preserves_flags)) };
    v
}

/// As [`in_chain`], and also keeps sums in the order of the source.
#[target_feature(enable = "avx2")]
#[inline]
fn in_order(mut v: __m256i) -> __m256i {
    // SAFETY: the assembly is empty.
    unsafe { asm!("/* {0} */", inout(ymm_reg) v, options(nomem, nostack, preserves_flags)) };
    v
}

impl<const VNNI: bool> Avx2<VNNI> {
    #[inline(always)]
    fn bytes(self, bytes: &[u8; 32]) -> __m256i {
        // SAFETY: 32 bytes are readable, the load needs no alignment, and `self` proves AVX.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn half(self, bytes: &[u8; 16]) -> __m128i {
        // SAFETY: 16 bytes are readable and the load needs no alignment.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    /// Adds products of unsigned `w` and signed `x` to 8 sums. Without AVX-VNNI, sums of two neighbouring
    /// products must fit 16 bits.
    #[inline(always)]
    fn dot_u8(self, sums: __m256i, w: __m256i, x: __m256i) -> __m256i {
        if VNNI {
            return with!(self, _mm256_dpbusd_avx_epi32(sums, w, x));
        }
        with!(self, {
            let pairs = _mm256_maddubs_epi16(w, x);
            _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        })
    }

    /// [`Rows::dots`] with AVX-VNNI.
    #[inline(always)]
    fn dots_vnni<const N: usize, const J: usize>(
        self,
        mut sums: [[__m256i; 2]; J],
        w: &[[__m256i; 2]; N],
        x: [&[u8]; J],
    ) -> [[__m256i; 2]; J] {
        let x = x.map(|x| x.as_chunks::<4>().0);
        unroll!(i < N => {
            let w = w[i];
            unroll!(j < J => {
                let x = with!(self, _mm256_set1_epi32(i32::from_le_bytes(x[j][i])));
                sums[j] = [self.dot_u8(sums[j][0], w[0], x), self.dot_u8(sums[j][1], w[1], x)];
            });
        });
        sums
    }
}

impl<const VNNI: bool> Simd for Avx2<VNNI> {
    #[inline(always)]
    fn outlined<T: Task<Self>>(self, task: T) {
        if VNNI {
            // SAFETY: `self` proves what the function needs.
            unsafe { task.avx_vnni(self) };
        } else {
            // SAFETY: as above.
            unsafe { task.avx2(self) };
        }
    }

    const LANES: usize = 8;
    type V = __m256;

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        with!(self, _mm256_set1_ps(x))
    }

    #[inline(always)]
    fn load(self, x: &[f32]) -> __m256 {
        let x: &[f32; 8] = x.first_chunk().expect("a full vector");
        // SAFETY: 8 numbers are readable, the load needs no alignment, and `self` proves AVX.
        unsafe { _mm256_loadu_ps(x.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, y: &mut [f32], v: __m256) {
        let y: &mut [f32; 8] = y.first_chunk_mut().expect("a full vector");
        // SAFETY: 8 numbers are writable, the store needs no alignment, and `self` proves AVX.
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
        with!(self, _mm256_castsi256_ps(self.bytes(prefix(bytes))))
    }

    #[inline(always)]
    fn load_f16(self, bytes: &[u8]) -> __m256 {
        with!(self, _mm256_cvtph_ps(self.half(prefix(bytes))))
    }

    #[inline(always)]
    fn load_bf16(self, bytes: &[u8]) -> __m256 {
        with!(self, {
            let wide = _mm256_cvtepu16_epi32(self.half(prefix(bytes)));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        })
    }

    #[inline(always)]
    fn prefetch(self, bytes: &[u8], ahead: usize) {
        let at = bytes.as_ptr().wrapping_add(ahead);
        // SAFETY: a prefetch of any address is a hint and touches nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
    }

    #[inline(always)]
    fn prefetch_l1(self, bytes: &[u8], ahead: usize) {
        let at = bytes.as_ptr().wrapping_add(ahead);
        // SAFETY: a prefetch of any address is a hint and touches nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }

    #[inline(always)]
    fn dot_i8(self, w: &[[i8; 64]], x: &[[i8; 64]]) -> i32 {
        let mut acc = with!(self, _mm256_setzero_si256());
        for (w, x) in w.iter().zip(x) {
            let halves = w.as_chunks::<32>().0.iter().zip(x.as_chunks().0);
            for (w, x) in halves {
                let w = self.bytes(bytemuck::cast_ref(w));
                let x = self.bytes(bytemuck::cast_ref::<[i8; 32], [u8; 32]>(x));
                // |w| is at most 128 and |x| at most 127: the sum of two products stays below 2^15.
                let (magnitude, signed) = with!(self, (_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)));
                acc = self.dot_u8(acc, magnitude, signed);
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
    fn transpose(self, v: &mut [__m256]) {
        let v: &mut [__m256; 8] = v.first_chunk_mut().expect("at least eight vectors");
        with!(self, {
            let mut pairs = *v;
            for i in 0..4 {
                pairs[2 * i] = _mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]);
                pairs[2 * i + 1] = _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]);
            }
            let mut fours = pairs;
            for i in [0, 4] {
                for j in 0..2 {
                    let (a, b) = (pairs[i + j], pairs[i + 2 + j]);
                    fours[i + 2 * j] = _mm256_shuffle_ps::<0b01_00_01_00>(a, b);
                    fours[i + 2 * j + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(a, b);
                }
            }
            for i in 0..4 {
                v[i] = _mm256_permute2f128_ps::<0x20>(fours[i], fours[i + 4]);
                v[i + 4] = _mm256_permute2f128_ps::<0x31>(fours[i], fours[i + 4]);
            }
        });
    }

    #[inline(always)]
    fn store_f16(self, y: &mut [u16], v: __m256) {
        let y: &mut [u16; 8] = y.first_chunk_mut().expect("a full vector");
        let half = with!(self, _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v));
        // SAFETY: 8 numbers of 16 bits are writable, and the store needs no alignment.
        unsafe { _mm_storeu_si128(y.as_mut_ptr().cast(), half) };
    }

    #[inline(always)]
    fn store_bytes(self, y: &mut [u8], v: __m256) {
        let y: &mut [u8; 8] = y.first_chunk_mut().expect("a full vector");
        let low = with!(self, {
            // The low byte of every lane, first within each half, then of both halves.
            let gather = _mm256_set1_epi32(0x0c08_0400);
            let four = _mm256_shuffle_epi8(_mm256_castps_si256(v), gather);
            let (low, high) = (
                _mm256_castsi256_si128(four),
                _mm256_extracti128_si256::<1>(four),
            );
            _mm_cvtsi128_si64(_mm_unpacklo_epi32(low, high))
        });
        *y = low.to_le_bytes();
    }

    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        with!(self, _mm256_max_ps(a, b))
    }

    #[inline(always)]
    fn exp2i(self, n: __m256) -> __m256 {
        with!(self, {
            let exponent = _mm256_add_epi32(_mm256_castps_si256(n), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
        })
    }
}

impl<const VNNI: bool> Rows for Avx2<VNNI> {
    type Bytes = [__m256i; 2];
    type Ints = [__m256i; 2];
    type Floats = [__m256; 2];

    const SIGNED_OFFSET: i32 = if VNNI { 128 } else { 0 };
    const TOKENS: usize = 4;
    const PAIRS: bool = !VNNI;

    #[inline(always)]
    fn bytes(self, word: &Word) -> [__m256i; 2] {
        let [low, high] = bytemuck::cast_ref::<Word, [[u8; 32]; 2]>(word);
        [Self::bytes(self, low), Self::bytes(self, high)]
    }
    #[inline(always)]
    fn put_bytes(self, word: &mut Word, v: [__m256i; 2]) {
        let halves: &mut [[u8; 32]; 2] = bytemuck::cast_mut(word);
        for (half, v) in halves.iter_mut().zip(v) {
            // SAFETY: 32 bytes are writable, the store needs no alignment, and `self` proves AVX.
            unsafe { _mm256_storeu_si256(half.as_mut_ptr().cast(), v) };
        }
    }
    #[inline(always)]
    fn and(self, v: [__m256i; 2], mask: u8) -> [__m256i; 2] {
        let mask = mask.cast_signed();
        both!(self, |v| _mm256_and_si256(v, _mm256_set1_epi8(mask)))
    }
    #[inline(always)]
    fn or(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        both!(self, |a, b| _mm256_or_si256(a, b))
    }
    #[inline(always)]
    fn shr(self, v: [__m256i; 2], by: u32) -> [__m256i; 2] {
        let by = by.cast_signed();
        both!(self, |v| _mm256_srl_epi16(v, _mm_cvtsi32_si128(by)))
    }
    #[inline(always)]
    fn shl(self, v: [__m256i; 2], by: u32) -> [__m256i; 2] {
        let by = by.cast_signed();
        both!(self, |v| _mm256_sll_epi16(v, _mm_cvtsi32_si128(by)))
    }
    #[inline(always)]
    fn lookup(self, table: &[i8; 16], v: [__m256i; 2]) -> [__m256i; 2] {
        let table = self.half(bytemuck::cast_ref(table));
        both!(self, |v| _mm256_shuffle_epi8(
            _mm256_broadcastsi128_si256(table),
            v
        ))
    }
    #[inline(always)]
    fn leading_digit(self, v: [__m256i; 2]) -> [__m256i; 2] {
        both!(self, |v| {
            // max(v, n) equals v where v >= n; the comparison yields -1 there.
            let least = |n| _mm256_cmpeq_epi8(_mm256_max_epu8(v, _mm256_set1_epi8(n)), v);
            let count = _mm256_add_epi8(least(86), least(171u8.cast_signed()));
            _mm256_sub_epi8(_mm256_setzero_si256(), count)
        })
    }
    #[inline(always)]
    fn mul3(self, v: [__m256i; 2]) -> [__m256i; 2] {
        both!(self, |v| _mm256_add_epi8(v, _mm256_add_epi8(v, v)))
    }
    #[inline(always)]
    fn offset_signed(self, v: [__m256i; 2]) -> [__m256i; 2] {
        if VNNI {
            // Flipping the sign bit adds 128.
            return both!(self, |v| _mm256_xor_si256(v, _mm256_set1_epi8(-128)));
        }
        v
    }

    #[inline(always)]
    fn dot<const N: usize>(
        self,
        max: u8,
        start: [__m256i; 2],
        w: &[[__m256i; 2]; N],
        x: &[u8],
    ) -> [__m256i; 2] {
        let [sums] = self.dots(max, [start], w, [x]);
        sums
    }
    #[inline(always)]
    fn dots<const N: usize, const J: usize>(
        self,
        max: u8,
        mut starts: [[__m256i; 2]; J],
        w: &[[__m256i; 2]; N],
        x: [&[u8]; J],
    ) -> [[__m256i; 2]; J] {
        if VNNI {
            return self.dots_vnni(starts, w, x);
        }
        // Words whose pairs of products have a sum that fits an i16; for a single token at most half
        // of them, so that there are two chains of sums.
        let longest = if J == 1 { N.div_ceil(2) } else { N };
        let run = (32767 / (254 * usize::from(max))).clamp(1, longest);
        let x = x.map(|x| x.as_chunks::<4>().0);
        let mut pairs = [[with!(self, _mm256_setzero_si256()); 2]; J];
        unroll!(i < N => {
            let w = w[i];
            unroll!(j < J => {
                let x = with!(self, _mm256_set1_epi32(i32::from_le_bytes(x[j][i])));
                let products = both!(self, |w| if max == 128 {
                    _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                } else {
                    _mm256_maddubs_epi16(w, x)
                });
                let all = pairs[j];
                pairs[j] = both!(self, |all, products| match i % run {
                    0 => products,
                    // Several tokens gain from a schedule by LLVM.
                    _ if J > 1 => in_chain(_mm256_add_epi16(all, products)),
                    _ => in_order(_mm256_add_epi16(all, products)),
                });
                if (i + 1).is_multiple_of(run) || i + 1 == N {
                    let (sum, all) = (starts[j], pairs[j]);
                    starts[j] = both!(self, |sum, all| {
                        let ints = _mm256_madd_epi16(all, _mm256_set1_epi16(1));
                        _mm256_add_epi32(sum, ints)
                    });
                }
            });
        });
        starts
    }
    #[expect(
        clippy::pointers_in_nomem_asm_block,
        reason = "the assembly is empty and hides only where the pointer comes from"
    )]
    #[inline(always)]
    fn in_memory<T>(self, sum: &mut T) -> &mut T {
        let mut at: *mut T = sum;
        // SAFETY: the assembly is empty.
        unsafe {
            asm!("/* {0} */", inout(reg) at, options(pure, nomem, nostack, preserves_flags));
        };
        // SAFETY: it is the pointer of the reference, which is not used otherwise.
        unsafe { &mut *at }
    }

    #[inline(always)]
    fn ints(self, v: [__m256i; 2]) -> [__m256i; 2] {
        v
    }
    #[inline(always)]
    fn ints_of_halves(self, half: &Half) -> [__m256i; 2] {
        let halves: &[[u8; 16]; 2] = bytemuck::cast_ref(half);
        let v = [self.half(&halves[0]), self.half(&halves[1])];
        both!(self, |v| _mm256_cvtepu16_epi32(v))
    }
    #[inline(always)]
    fn splat_int(self, x: i32) -> [__m256i; 2] {
        [with!(self, _mm256_set1_epi32(x)); 2]
    }
    #[inline(always)]
    fn bits(self, v: [__m256i; 2], by: u32, mask: i32) -> [__m256i; 2] {
        let by = by.cast_signed();
        both!(self, |v| {
            let v = _mm256_srl_epi32(v, _mm_cvtsi32_si128(by));
            _mm256_and_si256(v, _mm256_set1_epi32(mask))
        })
    }
    #[inline(always)]
    fn add_shifted(self, a: [__m256i; 2], b: [__m256i; 2], by: u32) -> [__m256i; 2] {
        let by = by.cast_signed();
        both!(self, |a, b| {
            let b = _mm256_sll_epi32(b, _mm_cvtsi32_si128(by));
            _mm256_add_epi32(a, b)
        })
    }
    #[inline(always)]
    fn signed_byte(self, v: [__m256i; 2], i: u32) -> [__m256i; 2] {
        let by = 24 - 8 * i.cast_signed();
        both!(self, |v| {
            let top = _mm256_sll_epi32(v, _mm_cvtsi32_si128(by));
            _mm256_srai_epi32::<24>(top)
        })
    }
    #[inline(always)]
    fn floats(self, v: [__m256i; 2]) -> [__m256; 2] {
        both!(self, |v| _mm256_cvtepi32_ps(v))
    }

    #[inline(always)]
    fn column(self, column: &Column) -> [__m256; 2] {
        [self.load(&column[..8]), self.load(&column[8..])]
    }
    #[inline(always)]
    fn put_column(self, column: &mut Column, v: [__m256; 2]) {
        self.store(&mut column[..8], v[0]);
        self.store(&mut column[8..], v[1]);
    }
    #[inline(always)]
    fn halves(self, half: &Half) -> [__m256; 2] {
        [self.load_f16(&half[..16]), self.load_f16(&half[16..])]
    }
    #[inline(always)]
    fn splat_float(self, x: f32) -> [__m256; 2] {
        [self.splat(x); 2]
    }
    #[inline(always)]
    fn mul(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        both!(self, |a, b| _mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn mul_add(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        both!(self, |a, b, c| _mm256_fmadd_ps(a, b, c))
    }
}
