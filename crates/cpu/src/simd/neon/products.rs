//! Products of bytes with NEON.
//!
//! The instructions are inline assembly because their intrinsics are not stable yet.

use super::{Neon, SDOT, SMMLA};
use crate::simd::rows::unroll;
use std::arch::aarch64::{
    int16x8_t, int32x4_t, uint8x16_t, vaddq_s32, vdupq_n_s16, vdupq_n_s32, vget_low_s8,
    vmlal_high_s8, vmlal_s8, vpadalq_s16, vpaddq_s32, vreinterpretq_s8_u8, vreinterpretq_s32_u8,
    vreinterpretq_u8_s32, vreinterpretq_u8_u64, vreinterpretq_u64_u8, vuzp1q_s32, vuzp2q_s32,
    vzip1q_s32, vzip1q_u64, vzip2q_s32, vzip2q_u64,
};
use std::arch::asm;

/// Adds to each element of `sum` the products of four bytes of `w` and four of `x`, all signed.
///
/// # Safety
///
/// The processor must have `sdot`.
#[target_feature(enable = "neon,dotprod")]
#[inline]
unsafe fn sdot(mut sum: int32x4_t, w: uint8x16_t, x: uint8x16_t) -> int32x4_t {
    // SAFETY: the caller guarantees the instruction, which accesses only registers.
    unsafe {
        asm!("sdot {sum:v}.4s, {w:v}.16b, {x:v}.16b",
            sum = inout(vreg) sum, w = in(vreg) w, x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// Like [`sdot`], with the same four bytes of `x` for each element.
///
/// # Safety
///
/// As for [`sdot`].
#[target_feature(enable = "neon,dotprod")]
#[inline]
unsafe fn sdot_lane<const LANE: usize>(
    mut sum: int32x4_t,
    w: uint8x16_t,
    x: uint8x16_t,
) -> int32x4_t {
    // SAFETY: as above.
    unsafe {
        asm!("sdot {sum:v}.4s, {w:v}.16b, {x:v}.4b[{lane}]",
            sum = inout(vreg) sum, w = in(vreg) w, x = in(vreg) x, lane = const LANE,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// Adds to `sum` the products of two rows of eight bytes of `w` and two of `x`, all signed:
/// `sum[2 i + j] += w[i] . x[j]`.
///
/// # Safety
///
/// The processor must have `smmla`.
#[target_feature(enable = "neon,i8mm")]
#[inline]
unsafe fn smmla(mut sum: int32x4_t, w: uint8x16_t, x: uint8x16_t) -> int32x4_t {
    // SAFETY: as above.
    unsafe {
        asm!("smmla {sum:v}.4s, {w:v}.16b, {x:v}.16b",
            sum = inout(vreg) sum, w = in(vreg) w, x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

impl<const PRODUCTS: u8> Neon<PRODUCTS> {
    /// Whether the level has `sdot`.
    pub(super) const HAS_SDOT: bool = PRODUCTS >= SDOT;
    /// Whether the level has `smmla`.
    pub(super) const HAS_SMMLA: bool = PRODUCTS >= SMMLA;

    /// `sdot` with the bytes `4 lane..4 lane + 4` of `x`.
    #[inline(always)]
    pub(super) fn add_products(
        self,
        sum: int32x4_t,
        w: uint8x16_t,
        x: uint8x16_t,
        lane: usize,
    ) -> int32x4_t {
        assert!(Self::HAS_SDOT, "a level with sdot");
        with!(
            self,
            match lane {
                0 => sdot_lane::<0>(sum, w, x),
                1 => sdot_lane::<1>(sum, w, x),
                2 => sdot_lane::<2>(sum, w, x),
                _ => sdot_lane::<3>(sum, w, x),
            }
        )
    }

    /// Adds sixteen products of signed bytes to four sums.
    #[inline(always)]
    pub(super) fn add_sixteen(self, sum: int32x4_t, w: uint8x16_t, x: uint8x16_t) -> int32x4_t {
        if Self::HAS_SDOT {
            return with!(self, sdot(sum, w, x));
        }
        let [low, high] = self.multiply_add(with!(self, [vdupq_n_s16(0); 2]), w, x);
        with!(self, vpadalq_s16(vpadalq_s16(sum, low), high))
    }

    /// Adds products of signed bytes to 16-bit sums, which must not overflow.
    #[inline(always)]
    fn multiply_add(self, sums: [int16x8_t; 2], w: uint8x16_t, x: uint8x16_t) -> [int16x8_t; 2] {
        with!(self, {
            let (w, x) = (vreinterpretq_s8_u8(w), vreinterpretq_s8_u8(x));
            [
                vmlal_s8(sums[0], vget_low_s8(w), vget_low_s8(x)),
                vmlal_high_s8(sums[1], w, x),
            ]
        })
    }

    /// [`dot`](crate::simd::rows::Rows::dot) without `sdot`: products are added up in 16 bits as long as they fit.
    #[inline(always)]
    pub(super) fn dot_widening<const N: usize>(
        self,
        max: u8,
        mut start: [int32x4_t; 4],
        w: &[[uint8x16_t; 4]; N],
        x: &[u8],
    ) -> [int32x4_t; 4] {
        let run = 32767 / (127 * usize::from(max));
        let x = x.as_chunks::<4>().0;
        let none = with!(self, [vdupq_n_s16(0); 2]);
        let mut products = [none; 4];
        // Two partial sums of each row: first of two rows, then of the next two.
        let mut wide = with!(self, [[vdupq_n_s32(0); 2]; 4]);
        unroll!(i < N => {
            let x = with!(self, vreinterpretq_u8_s32(vdupq_n_s32(i32::from_le_bytes(x[i]))));
            for (products, w) in products.iter_mut().zip(w[i]) {
                *products = self.multiply_add(*products, w, x);
            }
            if (i + 1).is_multiple_of(run) || i + 1 == N {
                for (wide, products) in wide.iter_mut().zip(&mut products) {
                    *wide = both!(self, |wide, products| vpadalq_s16(wide, products));
                    *products = none;
                }
            }
        });
        for (start, [first, second]) in start.iter_mut().zip(wide) {
            *start = with!(self, vaddq_s32(*start, vpaddq_s32(first, second)));
        }
        start
    }

    /// Changes pairs of words, four columns of sixteen rows each, to eight columns of two rows per
    /// vector: rows 0 to 7 in the first word, 8 to 15 in the second.
    #[inline(always)]
    pub(super) fn row_pairs<const N: usize>(
        self,
        mut words: [[uint8x16_t; 4]; N],
    ) -> [[uint8x16_t; 4]; N] {
        for pair in words.as_chunks_mut::<2>().0 {
            let [a, b] = pair.map(|word| four!(self, |word| vreinterpretq_s32_u8(word)));
            let low = four!(self, |a, b| vreinterpretq_u8_s32(vzip1q_s32(a, b)));
            let high = four!(self, |a, b| vreinterpretq_u8_s32(vzip2q_s32(a, b)));
            *pair = [
                [low[0], high[0], low[1], high[1]],
                [low[2], high[2], low[3], high[3]],
            ];
        }
        words
    }

    /// Adds the products of words in the order of [`Self::row_pairs`] and two tokens.
    #[inline(always)]
    pub(super) fn pair_products<const N: usize>(
        self,
        [first, second]: [[int32x4_t; 4]; 2],
        w: &[[uint8x16_t; 4]; N],
        x: [&[u8]; 2],
    ) -> [[int32x4_t; 4]; 2] {
        assert!(N.is_multiple_of(4), "whole vectors of a token");
        // Sums of two rows and two tokens each.
        let mut low = four!(self, |first, second| vzip1q_s32(first, second));
        let mut high = four!(self, |first, second| vzip2q_s32(first, second));
        unroll!(i < N / 4 => {
            // Sixteen columns of each token, then eight of both.
            let [a, b] = x.map(|x| self.sixteen_padded(&x[16 * i..]));
            let x = with!(self, {
                let (a, b) = (vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b));
                [vzip1q_u64(a, b), vzip2q_u64(a, b)].map(|x| vreinterpretq_u8_u64(x))
            });
            for (pair, x) in x.into_iter().enumerate() {
                let [a, b] = [0, 1].map(|word| w[4 * i + 2 * pair + word]);
                let even = [a[0], a[2], b[0], b[2]];
                let odd = [a[1], a[3], b[1], b[3]];
                low = four!(self, |low, even| smmla(low, even, x));
                high = four!(self, |high, odd| smmla(high, odd, x));
            }
        });
        [
            four!(self, |low, high| vuzp1q_s32(low, high)),
            four!(self, |low, high| vuzp2q_s32(low, high)),
        ]
    }
}
