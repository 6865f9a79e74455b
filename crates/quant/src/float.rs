//! Consecutive little-endian numbers.

use super::chunk::CHUNK;

/// Rounds an f64 to the nearest f32.
#[inline(always)]
pub(super) fn narrow(bytes: [u8; 8]) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "rounding is intended")]
    let x = f64::from_le_bytes(bytes) as f32;
    x
}

/// Decodes the chunk of a row that starts at element `first`, with `BYTES` bytes per number.
#[inline(always)]
pub(super) fn decode<const BYTES: usize>(
    bytes: &[u8],
    first: usize,
    out: &mut [f32; CHUNK],
    number: impl Fn([u8; BYTES]) -> f32,
) {
    let numbers = &bytes.as_chunks().0[first..];
    for (x, b) in out.iter_mut().zip(numbers) {
        *x = number(*b);
    }
}

pub(super) fn encode_f32(row: &[f32], bytes: &mut Vec<u8>) {
    for x in row {
        bytes.extend_from_slice(&x.to_le_bytes());
    }
}

pub(super) fn encode_f16(row: &[f32], bytes: &mut Vec<u8>) {
    for &x in row {
        bytes.extend_from_slice(&half::f16::from_f32_const(x).to_le_bytes());
    }
}

pub(super) fn encode_bf16(row: &[f32], bytes: &mut Vec<u8>) {
    for &x in row {
        bytes.extend_from_slice(&half::bf16::from_f32_const(x).to_le_bytes());
    }
}
