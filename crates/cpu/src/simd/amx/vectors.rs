//! Vector code used with tiles: products of a single token, and conversion of inputs and results.

use super::{Amx, ROW_BYTES, SumTile, TILE};
use crate::simd::avx512::Avx512;
use crate::simd::rows::AHEAD;
use crate::simd::vectors::Simd;
use std::arch::x86_64::{
    __m512, __m512bh, _CMP_LT_OQ, _mm512_abs_ps, _mm512_add_ps, _mm512_and_si512, _mm512_castpd_ps,
    _mm512_castps_pd, _mm512_cmp_ps_mask, _mm512_cvtne2ps_pbh, _mm512_dpbf16_ps, _mm512_loadu_ps,
    _mm512_loadu_si512, _mm512_mask_and_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_shuffle_f32x4, _mm512_storeu_ps, _mm512_unpackhi_pd, _mm512_unpackhi_ps,
    _mm512_unpacklo_pd, _mm512_unpacklo_ps,
};
use std::mem::transmute;

/// Calls intrinsics of this level.
macro_rules! with {
    ($self:ident, $call:expr) => {{
        let Amx(()) = $self;
        // SAFETY: `self` proves the instructions that these intrinsics need.
        unsafe { $call }
    }};
}

impl Amx {
    /// `sums[r] +=` products of 16 rows and one token, in bf16 and 32 columns. Same bits as
    /// [`Amx::bf16`], which starts separate sums of even and odd columns for each tile.
    ///
    /// Source: `TDPBF16PS` and `VDPBF16PS` in Intel's Software Developer's Manual.
    #[inline(always)]
    pub fn bf16_gemv(
        self,
        w: &[[u8; ROW_BYTES]; TILE],
        x: &[u8; ROW_BYTES],
        sums: __m512,
    ) -> __m512 {
        // The other half of each pair is zero in both operands, so that even infinity does not
        // affect the sum.
        let even = with!(self, _mm512_set1_epi32(0x0000_ffff));
        let odd = with!(self, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
        let mut parts = [with!(self, _mm512_setzero_ps()); 2];
        for (w, x) in w.iter().zip(x.as_chunks::<4>().0) {
            // One line at a time: several prefetches at once would stall each other and all other
            // loads.
            Avx512::from(self).prefetch(w, AHEAD);
            // SAFETY: 64 bytes are readable, and the load needs no alignment.
            let w = unsafe { _mm512_loadu_si512(w.as_ptr().cast()) };
            let x = with!(self, _mm512_set1_epi32(i32::from_ne_bytes(*x)));
            for (part, half) in parts.iter_mut().zip([even, odd]) {
                let w = with!(self, _mm512_and_si512(w, half));
                let x = with!(self, _mm512_and_si512(x, half));
                // SAFETY: both are 64 bytes, and any bits are bf16.
                let [w, x]: [__m512bh; 2] = unsafe { transmute([w, x]) };
                *part = with!(self, _mm512_dpbf16_ps(*part, w, x));
            }
        }
        let [even, odd] = parts;
        let part = self.flush_subnormals(with!(self, _mm512_add_ps(even, odd)));
        self.flush_subnormals(with!(
            self,
            _mm512_add_ps(self.flush_subnormals(sums), part)
        ))
    }

    /// Flushes subnormal numbers to zero.
    #[inline(always)]
    fn flush_subnormals(self, v: __m512) -> __m512 {
        let size = with!(self, _mm512_abs_ps(v));
        let least = with!(self, _mm512_set1_ps(f32::MIN_POSITIVE));
        // NaN compares false and is kept.
        let small = with!(self, _mm512_cmp_ps_mask::<_CMP_LT_OQ>(size, least));
        let sign = with!(self, _mm512_set1_ps(-0.0));
        with!(self, _mm512_mask_and_ps(v, small, v, sign))
    }

    /// Transposes the tile.
    #[inline(always)]
    pub(crate) fn transpose(self, block: &mut SumTile) {
        let mut v = [with!(self, _mm512_setzero_ps()); TILE];
        for (v, row) in v.iter_mut().zip(&block.0) {
            // SAFETY: 16 numbers are readable, and the load needs no alignment.
            *v = unsafe { _mm512_loadu_ps(row.as_ptr()) };
        }
        let mut w = v;
        // Pairs, then groups of four rows; each quarter of a vector is a column of four numbers.
        for i in (0..TILE).step_by(2) {
            w[i] = with!(self, _mm512_unpacklo_ps(v[i], v[i + 1]));
            w[i + 1] = with!(self, _mm512_unpackhi_ps(v[i], v[i + 1]));
        }
        for i in (0..TILE).step_by(4) {
            for j in 0..2 {
                let a = with!(self, _mm512_castps_pd(w[i + j]));
                let b = with!(self, _mm512_castps_pd(w[i + j + 2]));
                v[i + 2 * j] = with!(self, _mm512_castpd_ps(_mm512_unpacklo_pd(a, b)));
                v[i + 2 * j + 1] = with!(self, _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
            }
        }
        // Even and odd quarters of eight rows, then each column of all rows.
        for i in [0, 1, 2, 3, 8, 9, 10, 11] {
            w[i] = with!(self, _mm512_shuffle_f32x4::<0x88>(v[i], v[i + 4]));
            w[i + 4] = with!(self, _mm512_shuffle_f32x4::<0xdd>(v[i], v[i + 4]));
        }
        for i in 0..TILE / 2 {
            v[i] = with!(self, _mm512_shuffle_f32x4::<0x88>(w[i], w[i + 8]));
            v[i + 8] = with!(self, _mm512_shuffle_f32x4::<0xdd>(w[i], w[i + 8]));
        }
        for (v, row) in v.iter().zip(&mut block.0) {
            // SAFETY: 16 numbers are writable, and the store needs no alignment.
            unsafe { _mm512_storeu_ps(row.as_mut_ptr(), *v) };
        }
    }

    /// Rounds to the nearest bf16.
    #[inline(always)]
    pub(crate) fn round(self, x: &[f32; 2 * TILE]) -> [u8; ROW_BYTES] {
        let (low, high) = x.split_at(TILE);
        // SAFETY: 16 numbers are readable, and the load needs no alignment.
        let low = unsafe { _mm512_loadu_ps(low.as_ptr()) };
        // SAFETY: as above.
        let high = unsafe { _mm512_loadu_ps(high.as_ptr()) };
        let rounded = with!(self, _mm512_cvtne2ps_pbh(high, low));
        // SAFETY: both are 64 bytes, and any bits are bytes.
        unsafe { transmute(rounded) }
    }
}
