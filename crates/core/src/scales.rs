//! Scales of quantized matrices that are stored as separate tensors, and conversions from 8-bit and
//! 16-bit floats.

use crate::dtype::DType;

/// Scales in a separate tensor, as in safetensors checkpoints: one scale, and for affine codes one
/// bias, per `group` of elements.
///
/// Element `(row, col)` of a matrix with `cols` columns uses entry
/// `row / group[0] * cols.div_ceil(group[1]) + col / group[1]`.
#[derive(Clone, Copy, Debug)]
pub struct Scales<'a> {
    /// Storage type of scales and biases: `F32`, `F16`, `Bf16`, `E8m0` or `E4m3`.
    pub float: DType,
    /// Bytes of the scales.
    pub bytes: &'a [u8],
    /// Bytes of the biases, in the same order; empty if there are none.
    pub biases: &'a [u8],
    /// Rows and columns per scale; columns are a multiple of 16.
    pub group: [usize; 2],
}

impl Scales<'_> {
    /// Returns scale and bias of an element of a matrix with `cols` columns.
    #[inline(always)]
    pub fn at(&self, row: usize, col: usize, cols: usize) -> [f32; 2] {
        let i = row / self.group[0] * cols.div_ceil(self.group[1]) + col / self.group[1];
        let bias = if self.biases.is_empty() {
            0.0
        } else {
            number(self.float, self.biases, i)
        };
        [number(self.float, self.bytes, i), bias]
    }

    /// Returns the size in bytes of all scales of a matrix; `None` if `float` is not a scale type
    /// or the size overflows.
    pub fn bytes_of(float: DType, group: [usize; 2], rows: usize, cols: usize) -> Option<usize> {
        let bytes = match float {
            DType::F32 | DType::F16 | DType::Bf16 | DType::E8m0 | DType::E4m3 => {
                float.facts().bytes
            }
            _ => return None,
        };
        let groups = rows
            .div_ceil(group[0])
            .checked_mul(cols.div_ceil(group[1]))?;
        groups.checked_mul(bytes)
    }
}

/// Decodes element `i` of an array of floats.
#[inline(always)]
fn number(float: DType, bytes: &[u8], i: usize) -> f32 {
    match float {
        DType::F32 => f32::from_le_bytes(bytes.as_chunks().0[i]),
        DType::F16 => f16(bytes.as_chunks().0[i]),
        DType::Bf16 => {
            let [a, b] = bytes.as_chunks().0[i];
            f32::from_le_bytes([0, 0, a, b])
        }
        DType::E8m0 => e8m0(bytes[i]),
        _ => e4m3(bytes[i]),
    }
}

/// Decodes E8M0: `2^(e - 127)`, NaN for 255; the scale of the OCP microscaling formats (MX v1.0,
/// 5.4.1).
#[inline(always)]
pub fn e8m0(e: u8) -> f32 {
    match e {
        // Subnormal in f32.
        0 => f32::from_bits(0x0040_0000),
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(e) << 23),
    }
}

/// Decodes OCP 8-bit floating point E4M3: sign, four exponent bits with bias 7, three mantissa
/// bits; no infinity, NaN if all exponent and mantissa bits are set.
#[inline(always)]
pub fn e4m3(byte: u8) -> f32 {
    let magnitude = u32::from(byte & 0x7f);
    let value = match magnitude {
        0x7f => f32::NAN,
        // Subnormals, in steps of 2^-9.
        0..=7 => magnitude as f32 * (1.0 / 512.0),
        _ => f32::from_bits((magnitude << 20) + ((127 - 7) << 23)),
    };
    f32::from_bits(value.to_bits() | u32::from(byte & 0x80) << 24)
}

/// Converts an f16 to f32 exactly. Branch-free, so that the compiler vectorizes it.
#[inline(always)]
pub fn f16(bytes: [u8; 2]) -> f32 {
    let bits = u32::from(u16::from_le_bytes(bytes));
    let (sign, rest) = ((bits & 0x8000) << 16, (bits & 0x7fff) << 13);
    // The exponent bias is 15 in f16 and 127 in f32; the exponent of infinity and NaN becomes 255.
    let (bias, special) = ((127 - 15) << 23, (255 - 31) << 23);
    let normal = rest + if rest < 31 << 23 { bias } else { special };
    // A subnormal is the difference to the smallest normal number.
    let least = f32::from_bits(bias + (1 << 23));
    let subnormal = f32::from_bits(rest + bias + (1 << 23)) - least;
    let magnitude = if rest < 1 << 23 {
        subnormal.to_bits()
    } else {
        normal
    };
    f32::from_bits(magnitude | sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f16_conversion_agrees_with_crate_half() {
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

    #[test]
    fn eight_bit_floats_match_their_formulas() {
        for byte in 0..=255u8 {
            let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7) / 8.0);
            let magnitude = match (exponent, byte & 7) {
                (15, 7) => f32::NAN,
                (0, _) => mantissa * 2f32.powi(-6),
                _ => (1.0 + mantissa) * 2f32.powi(exponent - 7),
            };
            let expected = if byte < 128 { magnitude } else { -magnitude };
            let x = e4m3(byte);
            assert!(
                x.to_bits() == expected.to_bits() || x.is_nan() && expected.is_nan(),
                "{byte}: {x}"
            );
            if byte < 255 {
                assert_eq!(
                    f64::from(e8m0(byte)),
                    2f64.powi(i32::from(byte) - 127),
                    "{byte}"
                );
            }
        }
        assert!(e8m0(255).is_nan());
    }
}
