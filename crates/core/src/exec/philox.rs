//! Philox4x32-10: a counter-based random number generator.
//!
//! Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011). The number of
//! any token at any position is computed without the previous ones.

/// Number of 32-bit words per draw.
pub const LANES: usize = 4;

const ROUNDS: u32 = 10;
const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

/// Returns the four words of a counter under a key.
#[inline(always)]
pub fn philox(key: [u32; 2], counter: [u32; LANES]) -> [u32; LANES] {
    let [mut k0, mut k1] = key;
    let [mut a, mut b, mut c, mut d] = counter;
    for _ in 0..ROUNDS {
        let (low0, high0) = product(MULTIPLIERS[0], a);
        let (low1, high1) = product(MULTIPLIERS[1], c);
        [a, b, c, d] = [high1 ^ b ^ k0, low1, high0 ^ d ^ k1, low0];
        k0 = k0.wrapping_add(WEYL[0]);
        k1 = k1.wrapping_add(WEYL[1]);
    }
    [a, b, c, d]
}

/// Maps a word to a number in (0, 1): the midpoint of one of 2^23 equal intervals.
#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "23 bits are exact in f32")]
pub fn chance(word: u32) -> f32 {
    ((word >> 9) as f32 + 0.5) * (1.0 / 8_388_608.0)
}

/// Returns the low and high word of a product.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "splits 64 bits into halves"
)]
fn product(x: u32, y: u32) -> (u32, u32) {
    let product = u64::from(x) * u64::from(y);
    (product as u32, (product >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::philox;

    /// Test vectors from `kat_vectors` of Random123.
    #[test]
    fn matches_random123_vectors() {
        let known = [
            (
                [0; 2],
                [0; 4],
                [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
            ),
            (
                [u32::MAX; 2],
                [u32::MAX; 4],
                [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
            ),
            (
                [0xa409_3822, 0x299f_31d0],
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (key, counter, words) in known {
            assert_eq!(philox(key, counter), words);
        }
    }

    /// Draws of tokens 0 to 15 at position 1 with seed 42, computed independently. They must never
    /// change, so that a seed reproduces its output.
    #[test]
    fn draws_of_a_seed_are_stable() {
        let expected = [
            [0x42e0_b8b3, 0x7dbf_5de8, 0x2fe7_39d4, 0x6aaf_03eb],
            [0x2203_83a8, 0x6880_ffbe, 0x93ef_3466, 0xda94_bb0d],
            [0x0db8_4388, 0x159e_f790, 0x9368_10ee, 0xf8e3_88ac],
            [0x8a10_0e2f, 0x7875_c62d, 0xc01c_0462, 0xa651_4afe],
        ];
        for (group, words) in (0..).zip(expected) {
            assert_eq!(philox([42, 0], [group, 1, 0, 0]), words);
        }
    }
}
