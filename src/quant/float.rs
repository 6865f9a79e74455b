//! Numbers one after the other, little endian.

use super::CHUNK;

/// An f16 as f32: exact, without a branch, fit to be compiled into vectors.
#[inline(always)]
pub(super) fn f16(bytes: [u8; 2]) -> f32 {
    let bits = u32::from(u16::from_le_bytes(bytes));
    let (sign, rest) = ((bits & 0x8000) << 16, (bits & 0x7fff) << 13);
    // The exponent's bias is 15 there and 127 here; infinity and NaN go up to 255.
    let (bias, special) = ((127 - 15) << 23, (255 - 31) << 23);
    let normal = rest + if rest < 31 << 23 { bias } else { special };
    // A subnormal is what it adds to the least normal number.
    let least = f32::from_bits(bias + (1 << 23));
    let subnormal = f32::from_bits(rest + bias + (1 << 23)) - least;
    let magnitude = if rest < 1 << 23 {
        subnormal.to_bits()
    } else {
        normal
    };
    f32::from_bits(magnitude | sign)
}

/// An f64 as the nearest f32.
#[inline(always)]
pub(super) fn narrow(bytes: [u8; 8]) -> f32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "rounding is what is asked for"
    )]
    let x = f64::from_le_bytes(bytes) as f32;
    x
}

/// Decodes the chunk of a row that begins at element `first`, of numbers of `BYTES` bytes.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_is_what_the_crate_half_says() {
        for bits in 0..=u16::MAX {
            let (x, y) = (
                f16(bits.to_le_bytes()),
                half::f16::from_bits(bits).to_f32_const(),
            );
            assert!(
                x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan(),
                "{bits:04x}: {x} {y}"
            );
        }
    }
}
