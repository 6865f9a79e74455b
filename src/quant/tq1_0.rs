//! `TQ1_0`: 256 ternary digits and an f16 scale `d` (`block_tq1_0` of ggml-common.h).
//!
//! A byte is a fraction of 256 with five digits in base 3, the first the most significant. 32 bytes
//! hold 160 elements, the first digits of all before the second ones, 16 bytes hold 80 so, and 4
//! hold 16 in four digits.

use super::{CHUNK, each, f16};

/// Bytes of a block.
pub const BYTES: usize = 54;

/// `x[i] = d (q[i] - 1)`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; CHUNK], scale: &mut [f32; 16], _: &mut [f32; 16]) {
    let (first, rest) = q.split_at_mut(5 * 32);
    let (second, third) = rest.split_at_mut(5 * 16);
    let (head, tail) = (
        block.first_chunk().expect("32 of 54"),
        block.last_chunk().expect("32 of 54"),
    );
    first.copy_from_slice(digits(*head).as_flattened());
    // The last 32 bytes in one go: behind ten of the head, 16, then 4, then the scale.
    let digits = digits(*tail);
    for (q, digits) in second.as_chunks_mut::<16>().0.iter_mut().zip(&digits) {
        q.copy_from_slice(&digits[10..26]);
    }
    for (q, digits) in third.as_chunks_mut::<4>().0.iter_mut().zip(&digits) {
        q.copy_from_slice(&digits[26..30]);
    }
    scale.fill(f16([tail[30], tail[31]]));
}

/// The digits of 32 bytes, less 1: the first of all, the second of all and so on.
#[inline(always)]
fn digits(mut bytes: [u8; 32]) -> [[i8; 32]; 5] {
    let mut digits = [[0; 32]; 5];
    for digits in &mut digits {
        // The digit is floor(3 b / 256), and three times b without it is the rest.
        each(digits, &bytes, |b| {
            (u8::from(b >= 86) + u8::from(b >= 171)).wrapping_sub(1)
        });
        bytes.iter_mut().for_each(|b| *b = b.wrapping_mul(3));
    }
    digits
}
