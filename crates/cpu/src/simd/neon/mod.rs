//! NEON: 8 lanes in two vectors, and byte products with `smmla` and `sdot` or, on processors without
//! them, with `smlal` and `sadalp`.
//!
//! All intrinsics here need a value of [`Neon`], which only [`Neon::assume`] creates.
//! Vectors are used in pairs because kernels are designed for sixteen registers of 8 lanes, and
//! there are thirty-two of 4.

use super::rows::{Column, Half, Rows, Word, unroll};
use super::vectors::{Simd, Task};
use std::arch::aarch64::{
    float32x4_t, int32x4_t, uint8x16_t, uint16x4_t, vaddq_f32, vaddq_s32, vaddq_u8, vaddq_u32,
    vaddvq_s32, vandq_s32, vandq_u8, vbslq_f32, vcgeq_u8, vcgtq_f32, vcombine_u16, vcvt_f16_f32,
    vcvt_f32_f16, vcvtq_f32_s32, vdupq_n_f32, vdupq_n_s16, vdupq_n_s32, vdupq_n_u8, vdupq_n_u32,
    vfmaq_f32, vgetq_lane_f32, vld1_u16, vld1q_f32, vld1q_u8, vmovl_u16, vmovn_u16, vmovn_u32,
    vmulq_f32, vorrq_u8, vpaddq_f32, vqtbl1q_u8, vreinterpret_f16_u16, vreinterpret_u16_f16,
    vreinterpretq_f32_f64, vreinterpretq_f32_u8, vreinterpretq_f32_u32, vreinterpretq_f64_f32,
    vreinterpretq_s32_u8, vreinterpretq_s32_u32, vreinterpretq_u8_u16, vreinterpretq_u16_u8,
    vreinterpretq_u32_f32, vreinterpretq_u32_s32, vshlq_n_u32, vshlq_s32, vshlq_u16, vshlq_u32,
    vshrq_n_s32, vst1_u8, vst1_u16, vst1q_f32, vst1q_u8, vsubq_u8, vtrn1q_f32, vtrn1q_f64,
    vtrn2q_f32, vtrn2q_f64,
};
use std::arch::asm;

/// Instruction of the products of a [`Neon`]: `smlal`.
pub(super) const SMLAL: u8 = 0;
/// `sdot`: four columns of a row.
pub(super) const SDOT: u8 = 1;
/// `sdot`, and for tiles of stored weights `smmla`: eight columns of two rows and two tokens.
pub(super) const SMMLA: u8 = 2;

/// Proof that the processor has NEON and the instructions of `PRODUCTS`, one of the constants
/// above.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neon<const PRODUCTS: u8>(());

impl<const PRODUCTS: u8> Neon<PRODUCTS> {
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
        let Self(()) = $self;
        // SAFETY: `self` proves the instructions that these intrinsics need.
        unsafe { $call }
    }};
}

/// A call with vector `$i` of each array.
macro_rules! at {
    ($i:literal, $self:ident, |$($v:ident),+| $call:expr) => {{
        let Self(()) = $self;
        $(let $v = $v[$i];)+
        // SAFETY: `self` proves the instructions that these intrinsics need.
        unsafe { $call }
    }};
}

/// Eight lanes are two vectors: applies the same call to each.
macro_rules! both {
    ($($call:tt)+) => {
        [at!(0, $($call)+), at!(1, $($call)+)]
    };
}

/// Sixteen rows are four vectors: applies the same call to each.
macro_rules! four {
    ($($call:tt)+) => {
        [at!(0, $($call)+), at!(1, $($call)+), at!(2, $($call)+), at!(3, $($call)+)]
    };
}

mod products;

#[inline(always)]
fn prefix<T, const N: usize>(all: &[T]) -> &[T; N] {
    all.first_chunk().expect("a full vector")
}

impl<const PRODUCTS: u8> Neon<PRODUCTS> {
    #[inline(always)]
    fn sixteen(self, bytes: &[u8; 16]) -> uint8x16_t {
        // SAFETY: 16 bytes are readable, the load needs no alignment, and `self` proves NEON.
        unsafe { vld1q_u8(bytes.as_ptr()) }
    }

    /// Loads four 16-bit numbers.
    #[inline(always)]
    fn shorts(self, bytes: &[u8; 8]) -> uint16x4_t {
        // SAFETY: 8 bytes are readable, the load needs no alignment, and `self` proves NEON.
        unsafe { vld1_u16(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn four(self, x: &[f32; 4]) -> float32x4_t {
        // SAFETY: 4 numbers are readable, the load needs no alignment, and `self` proves NEON.
        unsafe { vld1q_f32(x.as_ptr()) }
    }

    #[inline(always)]
    fn put_four(self, y: &mut [f32; 4], v: float32x4_t) {
        // SAFETY: 4 numbers are writable, the store needs no alignment, and `self` proves NEON.
        unsafe { vst1q_f32(y.as_mut_ptr(), v) };
    }

    #[inline(always)]
    fn four_of_f16(self, bytes: &[u8; 8]) -> float32x4_t {
        let half = self.shorts(bytes);
        with!(self, vcvt_f32_f16(vreinterpret_f16_u16(half)))
    }

    /// The first 16 bytes, padded with zeros.
    #[inline(always)]
    fn sixteen_padded(self, bytes: &[u8]) -> uint8x16_t {
        if let Some(bytes) = bytes.first_chunk() {
            return self.sixteen(bytes);
        }
        let mut padded = [0; 16];
        padded[..bytes.len()].copy_from_slice(bytes);
        self.sixteen(&padded)
    }

    /// Each pair of bytes shifted as a 16-bit number: left, or right if `by` is negative.
    #[inline(always)]
    fn shift(self, v: [uint8x16_t; 4], by: i32) -> [uint8x16_t; 4] {
        let by = i16::try_from(by).expect("shift counts are below 16");
        four!(self, |v| {
            let v = vshlq_u16(vreinterpretq_u16_u8(v), vdupq_n_s16(by));
            vreinterpretq_u8_u16(v)
        })
    }
}

impl<const PRODUCTS: u8> Simd for Neon<PRODUCTS> {
    #[inline(always)]
    fn outlined<T: Task<Self>>(self, task: T) {
        if Self::HAS_SMMLA {
            // SAFETY: `self` proves what the function needs.
            unsafe { task.i8mm(self) };
        } else if Self::HAS_SDOT {
            // SAFETY: as above.
            unsafe { task.dotprod(self) };
        } else {
            // SAFETY: as above.
            unsafe { task.neon(self) };
        }
    }

    const LANES: usize = 8;
    type V = [float32x4_t; 2];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        with!(self, [vdupq_n_f32(x); 2])
    }

    #[inline(always)]
    fn load(self, x: &[f32]) -> Self::V {
        let [low, high] = bytemuck::cast_ref::<[f32; 8], [[f32; 4]; 2]>(prefix(x));
        [self.four(low), self.four(high)]
    }

    #[inline(always)]
    fn store(self, y: &mut [f32], v: Self::V) {
        let y: &mut [[f32; 4]; 2] = y.as_chunks_mut().0.first_chunk_mut().expect("full vector");
        for (y, v) in y.iter_mut().zip(v) {
            self.put_four(y, v);
        }
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        both!(self, |a, b, c| vfmaq_f32(c, a, b))
    }

    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        with!(self, {
            let four = vaddq_f32(v[0], v[1]);
            let two = vpaddq_f32(four, four);
            vgetq_lane_f32::<0>(vpaddq_f32(two, two))
        })
    }

    #[inline(always)]
    fn load_f32(self, bytes: &[u8]) -> Self::V {
        let bytes: &[[u8; 16]; 2] = bytemuck::cast_ref::<[u8; 32], _>(prefix(bytes));
        let bits = [self.sixteen(&bytes[0]), self.sixteen(&bytes[1])];
        both!(self, |bits| vreinterpretq_f32_u8(bits))
    }

    #[inline(always)]
    fn load_f16(self, bytes: &[u8]) -> Self::V {
        let [low, high] = bytemuck::cast_ref::<[u8; 16], [[u8; 8]; 2]>(prefix(bytes));
        [self.four_of_f16(low), self.four_of_f16(high)]
    }

    #[inline(always)]
    fn load_bf16(self, bytes: &[u8]) -> Self::V {
        let bytes: &[[u8; 8]; 2] = bytemuck::cast_ref::<[u8; 16], _>(prefix(bytes));
        let bits = [self.shorts(&bytes[0]), self.shorts(&bytes[1])];
        both!(self, |bits| {
            vreinterpretq_f32_u32(vshlq_n_u32::<16>(vmovl_u16(bits)))
        })
    }

    #[inline(always)]
    fn prefetch(self, bytes: &[u8], ahead: usize) {
        let at = bytes.as_ptr().wrapping_add(ahead);
        // SAFETY: a prefetch of any address is a hint and touches nothing.
        unsafe {
            asm!("prfm pldl1keep, [{at}]", at = in(reg) at,
                options(readonly, nostack, preserves_flags));
        }
    }

    #[inline(always)]
    fn dot_i8(self, w: &[[i8; 64]], x: &[[i8; 64]]) -> i32 {
        let mut sums = with!(self, [vdupq_n_s32(0); 4]);
        for (w, x) in w.iter().zip(x) {
            let w: &[[u8; 16]; 4] = bytemuck::cast_ref(w);
            let x: &[[u8; 16]; 4] = bytemuck::cast_ref(x);
            for (sum, (w, x)) in sums.iter_mut().zip(w.iter().zip(x)) {
                let (w, x) = (self.sixteen(w), self.sixteen(x));
                *sum = self.add_sixteen(*sum, w, x);
            }
        }
        sums.map(|sum| with!(self, vaddvq_s32(sum))).iter().sum()
    }

    #[inline(always)]
    fn transpose(self, v: &mut [Self::V]) {
        let v: &mut [Self::V; 8] = v.first_chunk_mut().expect("at least eight vectors");
        let from = *v;
        // 4 by 4 blocks, which are swapped across the diagonal.
        for (row, half) in [(0, 0), (0, 1), (4, 0), (4, 1)] {
            let [a, b, c, d] = [0, 1, 2, 3].map(|i| from[row + i][half]);
            let columns = with!(self, {
                let double = |v| vreinterpretq_f64_f32(v);
                let (ab, cd) = (double(vtrn1q_f32(a, b)), double(vtrn1q_f32(c, d)));
                let (ab_odd, cd_odd) = (double(vtrn2q_f32(a, b)), double(vtrn2q_f32(c, d)));
                [
                    vreinterpretq_f32_f64(vtrn1q_f64(ab, cd)),
                    vreinterpretq_f32_f64(vtrn1q_f64(ab_odd, cd_odd)),
                    vreinterpretq_f32_f64(vtrn2q_f64(ab, cd)),
                    vreinterpretq_f32_f64(vtrn2q_f64(ab_odd, cd_odd)),
                ]
            });
            for (i, column) in columns.into_iter().enumerate() {
                v[4 * half + i][row / 4] = column;
            }
        }
    }

    #[inline(always)]
    fn store_f16(self, y: &mut [u16], v: Self::V) {
        let y: &mut [[u16; 4]; 2] = y.as_chunks_mut().0.first_chunk_mut().expect("full vector");
        let bits = both!(self, |v| vreinterpret_u16_f16(vcvt_f16_f32(v)));
        for (y, bits) in y.iter_mut().zip(bits) {
            // SAFETY: 4 numbers of 16 bits are writable, and the store needs no alignment.
            unsafe { vst1_u16(y.as_mut_ptr(), bits) };
        }
    }

    #[inline(always)]
    fn store_bytes(self, y: &mut [u8], v: Self::V) {
        let y: &mut [u8; 8] = y.first_chunk_mut().expect("a full vector");
        let low = with!(self, {
            let [low, high] = v.map(|v| vmovn_u32(vreinterpretq_u32_f32(v)));
            vmovn_u16(vcombine_u16(low, high))
        });
        // SAFETY: 8 bytes are writable, and the store needs no alignment.
        unsafe { vst1_u8(y.as_mut_ptr(), low) };
    }

    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        // `fmax` would return NaN if either operand is NaN.
        both!(self, |a, b| vbslq_f32(vcgtq_f32(a, b), a, b))
    }

    #[inline(always)]
    fn exp2i(self, n: Self::V) -> Self::V {
        both!(self, |n| {
            let exponent = vaddq_u32(vreinterpretq_u32_f32(n), vdupq_n_u32(127));
            vreinterpretq_f32_u32(vshlq_n_u32::<23>(exponent))
        })
    }
}

impl<const PRODUCTS: u8> Rows for Neon<PRODUCTS> {
    type Bytes = [uint8x16_t; 4];
    type Ints = [int32x4_t; 4];
    type Floats = [float32x4_t; 4];

    const SIGNED_OFFSET: i32 = 0;
    const TOKENS: usize = 8;

    #[inline(always)]
    fn bytes(self, word: &Word) -> Self::Bytes {
        let parts: &[[u8; 16]; 4] = bytemuck::cast_ref(word);
        [0, 1, 2, 3].map(|i| self.sixteen(&parts[i]))
    }
    #[inline(always)]
    fn put_bytes(self, word: &mut Word, v: Self::Bytes) {
        let parts: &mut [[u8; 16]; 4] = bytemuck::cast_mut(word);
        for (part, v) in parts.iter_mut().zip(v) {
            // SAFETY: 16 bytes are writable, the store needs no alignment, and `self` proves NEON.
            unsafe { vst1q_u8(part.as_mut_ptr(), v) };
        }
    }
    #[inline(always)]
    fn and(self, v: Self::Bytes, mask: u8) -> Self::Bytes {
        four!(self, |v| vandq_u8(v, vdupq_n_u8(mask)))
    }
    #[inline(always)]
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        four!(self, |a, b| vorrq_u8(a, b))
    }
    #[inline(always)]
    fn shr(self, v: Self::Bytes, by: u32) -> Self::Bytes {
        self.shift(v, -by.cast_signed())
    }
    #[inline(always)]
    fn shl(self, v: Self::Bytes, by: u32) -> Self::Bytes {
        self.shift(v, by.cast_signed())
    }
    #[inline(always)]
    fn lookup(self, table: &[i8; 16], v: Self::Bytes) -> Self::Bytes {
        let table = self.sixteen(bytemuck::cast_ref(table));
        four!(self, |v| vqtbl1q_u8(table, v))
    }
    #[inline(always)]
    fn leading_digit(self, v: Self::Bytes) -> Self::Bytes {
        four!(self, |v| {
            // True is -1.
            let least = |n| vcgeq_u8(v, vdupq_n_u8(n));
            vsubq_u8(vdupq_n_u8(0), vaddq_u8(least(86), least(171)))
        })
    }
    #[inline(always)]
    fn mul3(self, v: Self::Bytes) -> Self::Bytes {
        four!(self, |v| vaddq_u8(v, vaddq_u8(v, v)))
    }
    #[inline(always)]
    fn offset_signed(self, v: Self::Bytes) -> Self::Bytes {
        v
    }

    #[inline(always)]
    fn dot<const N: usize>(
        self,
        max: u8,
        start: Self::Ints,
        w: &[Self::Bytes; N],
        x: &[u8],
    ) -> Self::Ints {
        let [sums] = self.dots(max, [start], w, [x]);
        sums
    }

    #[inline(always)]
    fn dots<const N: usize, const J: usize>(
        self,
        max: u8,
        mut starts: [Self::Ints; J],
        w: &[Self::Bytes; N],
        x: [&[u8]; J],
    ) -> [Self::Ints; J] {
        if !Self::HAS_SDOT {
            for (start, x) in starts.iter_mut().zip(x) {
                *start = self.dot_widening(max, *start, w, x);
            }
            return starts;
        }
        // One register holds the columns of four words; each word uses its lane.
        let mut columns = x.map(|x| self.sixteen_padded(x));
        unroll!(i < N => {
            if i > 0 && i.is_multiple_of(4) {
                columns = x.map(|x| self.sixteen_padded(&x[4 * i..]));
            }
            for (sums, x) in starts.iter_mut().zip(columns) {
                for (sum, w) in sums.iter_mut().zip(w[i]) {
                    *sum = self.add_products(*sum, w, x, i % 4);
                }
            }
        });
        starts
    }

    #[inline(always)]
    fn tile_words<const N: usize>(self, words: [Self::Bytes; N]) -> [Self::Bytes; N] {
        match Self::HAS_SMMLA {
            true => self.row_pairs(words),
            false => words,
        }
    }

    #[inline(always)]
    fn tile_dots<const N: usize, const J: usize>(
        self,
        max: u8,
        mut starts: [Self::Ints; J],
        w: &[Self::Bytes; N],
        x: [&[u8]; J],
    ) -> [Self::Ints; J] {
        if !Self::HAS_SMMLA {
            return self.dots(max, starts, w, x);
        }
        assert!(J.is_multiple_of(2), "pairs of tokens");
        unroll!(pair < J / 2 => {
            let (a, b) = (2 * pair, 2 * pair + 1);
            [starts[a], starts[b]] = self.pair_products([starts[a], starts[b]], w, [x[a], x[b]]);
        });
        starts
    }

    #[inline(always)]
    fn ints(self, v: Self::Bytes) -> Self::Ints {
        four!(self, |v| vreinterpretq_s32_u8(v))
    }
    #[inline(always)]
    fn ints_of_halves(self, half: &Half) -> Self::Ints {
        let parts: &[[u8; 8]; 4] = bytemuck::cast_ref(half);
        let v = [0, 1, 2, 3].map(|i| self.shorts(&parts[i]));
        four!(self, |v| vreinterpretq_s32_u32(vmovl_u16(v)))
    }
    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::Ints {
        with!(self, [vdupq_n_s32(x); 4])
    }
    #[inline(always)]
    fn bits(self, v: Self::Ints, by: u32, mask: i32) -> Self::Ints {
        let by = -by.cast_signed();
        four!(self, |v| {
            let v = vshlq_u32(vreinterpretq_u32_s32(v), vdupq_n_s32(by));
            vandq_s32(vreinterpretq_s32_u32(v), vdupq_n_s32(mask))
        })
    }
    #[inline(always)]
    fn add_shifted(self, a: Self::Ints, b: Self::Ints, by: u32) -> Self::Ints {
        let by = by.cast_signed();
        four!(self, |a, b| vaddq_s32(a, vshlq_s32(b, vdupq_n_s32(by))))
    }
    #[inline(always)]
    fn signed_byte(self, v: Self::Ints, i: u32) -> Self::Ints {
        let by = 24 - 8 * i.cast_signed();
        four!(self, |v| {
            vshrq_n_s32::<24>(vshlq_s32(v, vdupq_n_s32(by)))
        })
    }
    #[inline(always)]
    fn floats(self, v: Self::Ints) -> Self::Floats {
        four!(self, |v| vcvtq_f32_s32(v))
    }

    #[inline(always)]
    fn column(self, column: &Column) -> Self::Floats {
        let parts: &[[f32; 4]; 4] = bytemuck::cast_ref(column);
        [0, 1, 2, 3].map(|i| self.four(&parts[i]))
    }
    #[inline(always)]
    fn put_column(self, column: &mut Column, v: Self::Floats) {
        let parts: &mut [[f32; 4]; 4] = bytemuck::cast_mut(column);
        for (part, v) in parts.iter_mut().zip(v) {
            self.put_four(part, v);
        }
    }
    #[inline(always)]
    fn halves(self, half: &Half) -> Self::Floats {
        let parts: &[[u8; 8]; 4] = bytemuck::cast_ref(half);
        [0, 1, 2, 3].map(|i| self.four_of_f16(&parts[i]))
    }
    #[inline(always)]
    fn splat_float(self, x: f32) -> Self::Floats {
        with!(self, [vdupq_n_f32(x); 4])
    }
    #[inline(always)]
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        four!(self, |a, b| vmulq_f32(a, b))
    }
    #[inline(always)]
    fn mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        four!(self, |a, b, c| vfmaq_f32(c, a, b))
    }
}
