//! AVX-512 F, BW, VL, DQ and VNNI: 16 lanes, and byte products with `vpdpbusd`.
//!
//! All intrinsics here need a value of [`Avx512`], which only [`Avx512::assume`] and the proofs of
//! AMX create.

use super::amx::{Amx, ByteTiles};
use super::bf16::Bf16;
use super::rows::{Column, Half, Rows, Word};
use super::vectors::{Simd, Task};
use std::arch::asm;
use std::arch::x86_64::{
    __m256i, __m512, __m512i, _MM_FROUND_CUR_DIRECTION, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0,
    _MM_HINT_T1, _mm_cvtsi32_si128, _mm_loadu_si128, _mm_prefetch, _mm_storeu_si128,
    _mm256_loadu_si256, _mm256_storeu_si256, _mm512_add_epi8, _mm512_add_epi32, _mm512_and_si512,
    _mm512_broadcast_i32x4, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cmpge_epu8_mask,
    _mm512_cvt_roundph_ps, _mm512_cvtepi32_epi8, _mm512_cvtepi32_ps, _mm512_cvtepu16_epi32,
    _mm512_cvtps_ph, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512,
    _mm512_maskz_set1_epi8, _mm512_max_ps, _mm512_mul_ps, _mm512_or_si512, _mm512_reduce_add_epi32,
    _mm512_reduce_add_ps, _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps,
    _mm512_setzero_si512, _mm512_shuffle_epi8, _mm512_shuffle_f32x4, _mm512_shuffle_ps,
    _mm512_sll_epi16, _mm512_sll_epi32, _mm512_slli_epi32, _mm512_srai_epi32, _mm512_srl_epi16,
    _mm512_srl_epi32, _mm512_storeu_ps, _mm512_storeu_si512, _mm512_sub_epi32, _mm512_unpackhi_ps,
    _mm512_unpacklo_ps, _mm512_xor_si512,
};

/// Proof that the processor has the AVX-512 extensions of this level.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

impl Avx512 {
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

/// Calls intrinsics of this level.
macro_rules! with {
    ($self:ident, $call:expr) => {{
        let Avx512(()) = $self;
        // SAFETY: `self` proves the instructions that these intrinsics need.
        unsafe { $call }
    }};
}

#[inline(always)]
fn prefix<const N: usize>(bytes: &[u8]) -> &[u8; N] {
    bytes.first_chunk().expect("a full vector of bytes")
}

impl From<&ByteTiles> for Avx512 {
    /// Levels with tiles include these vectors.
    #[inline(always)]
    fn from(_: &ByteTiles) -> Self {
        Self(())
    }
}

impl From<Amx> for Avx512 {
    #[inline(always)]
    fn from(_: Amx) -> Self {
        Self(())
    }
}

impl From<Bf16> for Avx512 {
    #[inline(always)]
    fn from(_: Bf16) -> Self {
        Self(())
    }
}

impl Avx512 {
    #[inline(always)]
    fn half(self, bytes: &[u8; 32]) -> __m256i {
        // SAFETY: 32 bytes are readable, the load needs no alignment, and `self` proves AVX.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }
}

impl Simd for Avx512 {
    #[inline(always)]
    fn outlined<T: Task<Self>>(self, task: T) {
        // SAFETY: `self` proves what the function needs.
        unsafe { task.avx512(self) };
    }

    const LANES: usize = 16;
    type V = __m512;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        with!(self, _mm512_set1_ps(x))
    }

    #[inline(always)]
    fn load(self, x: &[f32]) -> __m512 {
        let x: &[f32; 16] = x.first_chunk().expect("a full vector");
        // SAFETY: 16 numbers are readable, the load needs no alignment, and `self` proves AVX-512.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, y: &mut [f32], v: __m512) {
        let y: &mut [f32; 16] = y.first_chunk_mut().expect("a full vector");
        // SAFETY: 16 numbers are writable, the store needs no alignment, `self` proves AVX-512.
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
        let bytes: &[u8; 64] = prefix(bytes);
        // SAFETY: 64 bytes are readable, the load needs no alignment, and `self` proves AVX-512.
        let bits = unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
        with!(self, _mm512_castsi512_ps(bits))
    }

    #[inline(always)]
    fn load_f16(self, bytes: &[u8]) -> __m512 {
        // With its own exception mask, the conversion could not take a memory operand.
        with!(
            self,
            _mm512_cvt_roundph_ps::<_MM_FROUND_CUR_DIRECTION>(self.half(prefix(bytes)))
        )
    }

    #[inline(always)]
    fn load_bf16(self, bytes: &[u8]) -> __m512 {
        with!(self, {
            let wide = _mm512_cvtepu16_epi32(self.half(prefix(bytes)));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
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
        let zero = with!(self, _mm512_setzero_si512());
        let (mut raised, mut offset) = (zero, zero);
        for (w, x) in w.iter().zip(x) {
            // SAFETY: the load needs 64 bytes, which the array has, and `self` proves AVX-512.
            let w = unsafe { _mm512_loadu_si512(w.as_ptr().cast()) };
            // SAFETY: as above.
            let x = unsafe { _mm512_loadu_si512(x.as_ptr().cast()) };
            with!(self, {
                // Flipping the sign bit adds 128; the second product subtracts it again.
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
    fn transpose(self, v: &mut [__m512]) {
        let v: &mut [__m512; 16] = v.first_chunk_mut().expect("at least sixteen vectors");
        with!(self, {
            let mut pairs = *v;
            for i in 0..8 {
                pairs[2 * i] = _mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]);
                pairs[2 * i + 1] = _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]);
            }
            // Vector 4 i + j holds columns j, j + 4, j + 8 and j + 12 of rows 4 i to 4 i + 3.
            let mut fours = pairs;
            for i in [0, 4, 8, 12] {
                for j in 0..2 {
                    let (a, b) = (pairs[i + j], pairs[i + 2 + j]);
                    fours[i + 2 * j] = _mm512_shuffle_ps::<0b01_00_01_00>(a, b);
                    fours[i + 2 * j + 1] = _mm512_shuffle_ps::<0b11_10_11_10>(a, b);
                }
            }
            for j in 0..4 {
                let a = _mm512_shuffle_f32x4::<0b10_00_10_00>(fours[j], fours[4 + j]);
                let b = _mm512_shuffle_f32x4::<0b10_00_10_00>(fours[8 + j], fours[12 + j]);
                let c = _mm512_shuffle_f32x4::<0b11_01_11_01>(fours[j], fours[4 + j]);
                let d = _mm512_shuffle_f32x4::<0b11_01_11_01>(fours[8 + j], fours[12 + j]);
                v[j] = _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b);
                v[4 + j] = _mm512_shuffle_f32x4::<0b10_00_10_00>(c, d);
                v[8 + j] = _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b);
                v[12 + j] = _mm512_shuffle_f32x4::<0b11_01_11_01>(c, d);
            }
        });
    }

    #[inline(always)]
    fn store_f16(self, y: &mut [u16], v: __m512) {
        let y: &mut [u16; 16] = y.first_chunk_mut().expect("a full vector");
        let half = with!(self, _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v));
        // SAFETY: 16 numbers of 16 bits are writable, and the store needs no alignment.
        unsafe { _mm256_storeu_si256(y.as_mut_ptr().cast(), half) };
    }

    #[inline(always)]
    fn store_bytes(self, y: &mut [u8], v: __m512) {
        let y: &mut [u8; 16] = y.first_chunk_mut().expect("a full vector");
        let low = with!(self, _mm512_cvtepi32_epi8(_mm512_castps_si512(v)));
        // SAFETY: 16 bytes are writable, and the store needs no alignment.
        unsafe { _mm_storeu_si128(y.as_mut_ptr().cast(), low) };
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        with!(self, _mm512_max_ps(a, b))
    }

    #[inline(always)]
    fn exp2i(self, n: __m512) -> __m512 {
        with!(self, {
            let exponent = _mm512_add_epi32(_mm512_castps_si512(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent))
        })
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn in_place(mut v: __m512) -> __m512 {
    // SAFETY: the assembly is empty.
    unsafe { asm!("/* {0} */", inout(zmm_reg) v, options(nomem, nostack, preserves_flags)) };
    v
}

impl Rows for Avx512 {
    type Bytes = __m512i;
    type Ints = __m512i;
    type Floats = __m512;

    const SIGNED_OFFSET: i32 = 128;
    const TOKENS: usize = 16;

    #[inline(always)]
    fn in_place(self, sum: __m512) -> __m512 {
        with!(self, in_place(sum))
    }

    #[inline(always)]
    fn bytes(self, word: &Word) -> __m512i {
        // SAFETY: 64 bytes are readable, the load needs no alignment, and `self` proves AVX-512.
        unsafe { _mm512_loadu_si512(word.as_ptr().cast()) }
    }
    #[inline(always)]
    fn put_bytes(self, word: &mut Word, v: __m512i) {
        // SAFETY: 64 bytes are writable, the store needs no alignment, `self` proves AVX-512.
        unsafe { _mm512_storeu_si512(word.as_mut_ptr().cast(), v) };
    }
    #[inline(always)]
    fn and(self, v: __m512i, mask: u8) -> __m512i {
        let mask = mask.cast_signed();
        with!(self, _mm512_and_si512(v, _mm512_set1_epi8(mask)))
    }
    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        with!(self, _mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn shr(self, v: __m512i, by: u32) -> __m512i {
        let by = by.cast_signed();
        with!(self, _mm512_srl_epi16(v, _mm_cvtsi32_si128(by)))
    }
    #[inline(always)]
    fn shl(self, v: __m512i, by: u32) -> __m512i {
        let by = by.cast_signed();
        with!(self, _mm512_sll_epi16(v, _mm_cvtsi32_si128(by)))
    }
    #[inline(always)]
    fn lookup(self, table: &[i8; 16], v: __m512i) -> __m512i {
        // SAFETY: 16 bytes are readable and the load needs no alignment.
        let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
        with!(self, _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), v))
    }
    #[inline(always)]
    fn leading_digit(self, v: __m512i) -> __m512i {
        with!(self, {
            let one = |least: u8| {
                let mask = _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8(least.cast_signed()));
                _mm512_maskz_set1_epi8(mask, 1)
            };
            _mm512_add_epi8(one(86), one(171))
        })
    }
    #[inline(always)]
    fn mul3(self, v: __m512i) -> __m512i {
        with!(self, _mm512_add_epi8(v, _mm512_add_epi8(v, v)))
    }
    #[inline(always)]
    fn offset_signed(self, v: __m512i) -> __m512i {
        // Flipping the sign bit adds 128.
        with!(self, _mm512_xor_si512(v, _mm512_set1_epi8(-128)))
    }

    #[inline(always)]
    fn dot<const N: usize>(self, max: u8, start: __m512i, w: &[__m512i; N], x: &[u8]) -> __m512i {
        let [sum] = self.dots(max, [start], w, [x]);
        sum
    }

    #[inline(always)]
    fn dots<const N: usize, const J: usize>(
        self,
        _: u8,
        mut starts: [__m512i; J],
        w: &[__m512i; N],
        x: [&[u8]; J],
    ) -> [__m512i; J] {
        let x = x.map(|x| x.as_chunks::<4>().0);
        for (i, w) in w.iter().enumerate() {
            for (sum, x) in starts.iter_mut().zip(x) {
                let x = i32::from_le_bytes(x[i]);
                *sum = with!(self, _mm512_dpbusd_epi32(*sum, *w, _mm512_set1_epi32(x)));
            }
        }
        starts
    }

    #[inline(always)]
    fn ints(self, v: __m512i) -> __m512i {
        v
    }
    #[inline(always)]
    fn ints_of_halves(self, half: &Half) -> __m512i {
        with!(self, _mm512_cvtepu16_epi32(self.half(half)))
    }
    #[inline(always)]
    fn splat_int(self, x: i32) -> __m512i {
        with!(self, _mm512_set1_epi32(x))
    }
    #[inline(always)]
    fn bits(self, v: __m512i, by: u32, mask: i32) -> __m512i {
        let by = by.cast_signed();
        with!(self, {
            let v = _mm512_srl_epi32(v, _mm_cvtsi32_si128(by));
            _mm512_and_si512(v, _mm512_set1_epi32(mask))
        })
    }
    #[inline(always)]
    fn add_shifted(self, a: __m512i, b: __m512i, by: u32) -> __m512i {
        let by = by.cast_signed();
        with!(self, {
            let b = _mm512_sll_epi32(b, _mm_cvtsi32_si128(by));
            _mm512_add_epi32(a, b)
        })
    }
    #[inline(always)]
    fn signed_byte(self, v: __m512i, i: u32) -> __m512i {
        let by = 24 - 8 * i.cast_signed();
        with!(self, {
            let top = _mm512_sll_epi32(v, _mm_cvtsi32_si128(by));
            _mm512_srai_epi32::<24>(top)
        })
    }
    #[inline(always)]
    fn floats(self, v: __m512i) -> __m512 {
        with!(self, _mm512_cvtepi32_ps(v))
    }

    #[inline(always)]
    fn column(self, column: &Column) -> __m512 {
        self.load(column)
    }
    #[inline(always)]
    fn put_column(self, column: &mut Column, v: __m512) {
        self.store(column, v);
    }
    #[inline(always)]
    fn halves(self, half: &Half) -> __m512 {
        self.load_f16(half)
    }
    #[inline(always)]
    fn splat_float(self, x: f32) -> __m512 {
        self.splat(x)
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        with!(self, _mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        self.fma(a, b, c)
    }
}
