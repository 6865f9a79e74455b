//! `TQ1_0`: 256 ternary values and an f16 scale `d` (`block_tq1_0` in ggml-common.h).
//!
//! A byte is a fraction of 256 with five base-3 digits, the most significant first. 32 bytes hold
//! 160 elements, the first digits of all bytes before the second ones; 16 bytes hold 80 in the same
//! order, and 4 hold 16 in four digits.

use super::bytes::map_bytes;
use super::chunk::CHUNK;
use super::section::{
    Section::{self, Field},
    ternary,
};
use super::tq2_0;
use std::array::from_fn;
use tabla_core::scales::f16;

/// Bytes of a block.
pub const BYTES: usize = 54;

/// `x[i] = d (q[i] - 1)`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; CHUNK], scale: &mut [f32; 16], _: &mut [f32; 16]) {
    let (first, rest) = q.split_at_mut(5 * 32);
    let (second, third) = rest.split_at_mut(5 * 16);
    let (head, tail) = (
        block.first_chunk().expect("the block has 54 bytes"),
        block.last_chunk().expect("the block has 54 bytes"),
    );
    first.copy_from_slice(digits(*head).as_flattened());
    // Decodes the last 32 bytes at once: ten bytes of the head, then 16, then 4, then the scale.
    let digits = digits(*tail);
    for (q, digits) in second.as_chunks_mut::<16>().0.iter_mut().zip(&digits) {
        q.copy_from_slice(&digits[10..26]);
    }
    for (q, digits) in third.as_chunks_mut::<4>().0.iter_mut().zip(&digits) {
        q.copy_from_slice(&digits[26..30]);
    }
    scale.fill(f16([tail[30], tail[31]]));
}

/// Digits of 32 bytes, minus 1: the first digits of all bytes, then the second ones, and so on.
#[inline(always)]
fn digits(mut bytes: [u8; 32]) -> [[i8; 32]; 5] {
    let mut digits = [[0; 32]; 5];
    for digits in &mut digits {
        // The digit is floor(3 b / 256); the remainder is 3 b modulo 256.
        map_bytes(digits, &bytes, |b| {
            (u8::from(b >= 86) + u8::from(b >= 171)).wrapping_sub(1)
        });
        bytes.iter_mut().for_each(|b| *b = b.wrapping_mul(3));
    }
    digits
}

/// Encodes a block: `d = max |x|`, `q = round(x / d)`, ties away from zero, like ggml's reference.
pub fn encode(x: &[f32; CHUNK], _: Option<&[f32; CHUNK]>) -> [u8; BYTES] {
    let (d, q) = tq2_0::digits(x);
    let mut block = [0; BYTES];
    let (digits, scale) = block.split_at_mut(52);
    digits[..32].copy_from_slice(&pack::<32>(&q[..5 * 32]));
    digits[32..48].copy_from_slice(&pack::<16>(&q[5 * 32..15 * 16]));
    digits[48..].copy_from_slice(&pack::<4>(&q[15 * 16..]));
    scale.copy_from_slice(&d);
    block
}

/// Packs every `N`th digit into a byte; missing digits are 0.
fn pack<const N: usize>(q: &[u8]) -> [u8; N] {
    from_fn(|i| {
        let digit = |k: usize| u16::from(q.get(N * k + i).copied().unwrap_or(0));
        let number = (0..5).fold(0, |number, k| 3 * number + digit(k));
        // As a fraction of 256 instead of 3⁵, rounded up.
        let parts = (number * 256).div_ceil(243);
        u8::try_from(parts).expect("at most 255")
    })
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![ternary(), Field(52..54)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoded;
    use tabla_core::dtype::DType;

    #[test]
    fn ternary_values_round_trip() {
        let x: [f32; CHUNK] = from_fn(|i| 0.5 * ((i * i + i / 7) % 3) as f32 - 0.5);
        let block = encode(&x, None);
        assert_eq!(block[52..], [0x00, 0x38], "0.5 in f16 is 0x3800");
        assert_eq!(decoded(DType::Tq1_0, &block), x);
        assert_eq!(
            decoded(DType::Tq1_0, &encode(&[0.0; CHUNK], None)),
            [0.0; CHUNK]
        );
    }
}
