//! Transposition of words with instructions that every processor of the target has.

/// Four words of each of four rows.
pub type Words = [[[u8; 4]; 4]; 4];

/// Swaps word `i` of row `j` and word `j` of row `i`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn transpose(words: Words) -> Words {
    use std::arch::x86_64::{
        __m128i, _mm_unpackhi_epi32, _mm_unpackhi_epi64, _mm_unpacklo_epi32, _mm_unpacklo_epi64,
    };
    #[inline]
    #[target_feature(enable = "sse2")]
    fn columns([a, b, c, d]: [__m128i; 4]) -> [__m128i; 4] {
        let (ab, cd) = (_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
        let (ab_high, cd_high) = (_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
        [
            _mm_unpacklo_epi64(ab, cd),
            _mm_unpackhi_epi64(ab, cd),
            _mm_unpacklo_epi64(ab_high, cd_high),
            _mm_unpackhi_epi64(ab_high, cd_high),
        ]
    }
    // SAFETY: every x86-64 processor has SSE2.
    bytemuck::cast(unsafe { columns(bytemuck::cast(words)) })
}

/// Swaps word `i` of row `j` and word `j` of row `i`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn transpose(words: Words) -> Words {
    std::array::from_fn(|i| words.map(|row| row[i]))
}
