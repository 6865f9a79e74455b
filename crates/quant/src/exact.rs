//! Encoding without loss: codes whose scales are separate tensors become blocks with the same values.

use super::chunk::{CHUNK, Chunk, GROUP};
use super::formats::visit;
use super::matrix::Matrix;
use super::read::{Floats, Ints, Visit};
use super::{mxfp4, nvfp4, q4_0, q4_1, q5_0, q5_1};
use half::f16;

use tabla_core::dtype::DType;

/// Types that codes can become, from the smallest to the largest.
pub const EXACT_TYPES: [DType; 7] = [
    DType::Mxfp4,
    DType::Nvfp4,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
];

/// Elements of a block with integers.
const ELEMENTS: usize = 32;

/// Largest factor of a scale that is searched for as a zero point.
const ZERO_MAX: f32 = 1024.0;

/// Encodes row `row` as type `to` with exactly the same values, and appends its bytes. Returns false and appends
/// nothing if the type cannot represent the row.
///
/// # Panics
///
/// If the matrix has no such row.
pub fn encode_exact(
    dtype: DType,
    matrix: &Matrix<'_>,
    row: usize,
    to: DType,
    bytes: &mut Vec<u8>,
) -> bool {
    let start = bytes.len();
    let blocks = matrix.cols.is_multiple_of(to.facts().block);
    let exact = match (dtype, to) {
        _ if matrix.scales.is_none() || !blocks => false,
        (DType::E2m1, DType::Mxfp4) => mxfp4_row(matrix, row, bytes),
        (DType::E2m1, DType::Nvfp4) => nvfp4_row(matrix, row, bytes),
        _ => {
            let integers = Integers {
                matrix,
                row,
                to,
                bytes,
            };
            visit(dtype, integers) == Some(true)
        }
    };
    if !exact {
        bytes.truncate(start);
    }
    exact
}

/// A row that is encoded as blocks of integers.
struct Integers<'a> {
    matrix: &'a Matrix<'a>,
    row: usize,
    to: DType,
    bytes: &'a mut Vec<u8>,
}

impl Visit for Integers<'_> {
    type Out = bool;

    fn ints<T: Ints>(self) -> bool {
        let mut chunk = Chunk::ZERO;
        (0..self.matrix.cols).step_by(CHUNK).all(|first| {
            T::unpack(self.matrix, self.row, first, &mut chunk);
            if !T::MIN {
                chunk.min.fill(0.0);
            }
            let count = CHUNK.min(self.matrix.cols - first) / ELEMENTS;
            (0..count).all(|i| {
                let block = IntegerBlock::of(&chunk, i);
                block.is_some_and(|block| block.encode(self.to, self.bytes))
            })
        })
    }

    fn floats<T: Floats>(self) -> bool {
        false
    }
}

/// Integers with one scale and one minimum: `x = scale q + min`.
struct IntegerBlock {
    scale: f32,
    min: f32,
    q: [i8; ELEMENTS],
}

impl IntegerBlock {
    /// Returns block `i` of a chunk; `None` if its groups differ.
    fn of(chunk: &Chunk, i: usize) -> Option<Self> {
        let groups = ELEMENTS / GROUP * i..ELEMENTS / GROUP * (i + 1);
        let same = |values: &[f32]| {
            let own = &values[groups.clone()];
            own.iter().all(|x| *x == own[0]).then_some(own[0])
        };
        Some(Self {
            scale: same(&chunk.scale)?,
            min: same(&chunk.min)?,
            q: chunk.q.as_chunks().0[i],
        })
    }

    /// Appends the block as type `to`; returns false if it is not exact.
    fn encode(&self, to: DType, bytes: &mut Vec<u8>) -> bool {
        let appended = match to {
            DType::Q4_0 => self
                .symmetric(8)
                .map(|(d, q)| bytes.extend(q4_0::pack(d, &q))),
            DType::Q5_0 => self
                .symmetric(16)
                .map(|(d, q)| bytes.extend(q5_0::pack(d, &q))),
            DType::Q8_0 => self.symmetric(128).map(|(d, q)| {
                bytes.extend(d.to_le_bytes());
                bytes.extend(q.map(|q| q ^ 0x80));
            }),
            DType::Q4_1 => self
                .with_min(15)
                .map(|(d, q)| bytes.extend(q4_1::pack(d, &q))),
            DType::Q5_1 => self
                .with_min(31)
                .map(|(d, q)| bytes.extend(q5_1::pack(d, &q))),
            _ => None,
        };
        appended.is_some()
    }

    /// Returns the scale, and codes from 0 to `2 half - 1` with `x = scale (code - half)`.
    fn symmetric(&self, half: i32) -> Option<(f16, [u8; ELEMENTS])> {
        let d = exact_f16(self.scale)?;
        if self.scale == 0.0 {
            let code = u8::try_from(half).ok()?;
            return (self.min == 0.0).then_some((d, [code; ELEMENTS]));
        }
        let zero = self.min / self.scale;
        let whole = zero.round() == zero && zero.abs() <= ZERO_MAX && zero * self.scale == self.min;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "an integer of at most ZERO_MAX"
        )]
        let shift = whole.then_some(zero as i32 + half)?;
        let mut codes = [0; ELEMENTS];
        for (code, q) in codes.iter_mut().zip(self.q) {
            let shifted = i32::from(q) + shift;
            *code = u8::try_from(shifted).ok().filter(|_| shifted < 2 * half)?;
        }
        Some((d, codes))
    }

    /// Returns the scale and the minimum, and codes from 0 to `largest`.
    fn with_min(&self, largest: u8) -> Option<([f16; 2], [u8; ELEMENTS])> {
        let factors = [exact_f16(self.scale)?, exact_f16(self.min)?];
        let codes = self.q.map(i8::cast_unsigned);
        let fits = codes.iter().all(|code| *code <= largest);
        fits.then_some((factors, codes))
    }
}

/// Returns a number as f16; `None` if it is not exact.
fn exact_f16(x: f32) -> Option<f16> {
    let half = f16::from_f32_const(x);
    (half.to_f32_const() == x).then_some(half)
}

/// Returns the packed elements of a row of 4-bit floats, and its scales if they are bytes of one type and group.
fn fp4_row<'a>(
    m: &Matrix<'a>,
    row: usize,
    float: DType,
    group: usize,
) -> Option<(&'a [u8], &'a [u8])> {
    let scales = m.scales?;
    let count = m.cols / group;
    let plain = scales.float == float && scales.group == [1, group];
    plain.then(|| (m.row(row), &scales.bytes[row * count..][..count]))
}

fn mxfp4_row(m: &Matrix<'_>, row: usize, bytes: &mut Vec<u8>) -> bool {
    let Some((pairs, scales)) = fp4_row(m, row, DType::E8m0, mxfp4::ELEMENTS) else {
        return false;
    };
    for (pairs, scale) in pairs.as_chunks().0.iter().zip(scales) {
        bytes.extend_from_slice(&mxfp4::pack(*scale, pairs));
    }
    true
}

fn nvfp4_row(m: &Matrix<'_>, row: usize, bytes: &mut Vec<u8>) -> bool {
    let Some((pairs, scales)) = fp4_row(m, row, DType::E4m3, GROUP) else {
        return false;
    };
    // The scales of blocks have no sign and no NaN.
    if scales.iter().any(|scale| *scale >= 0x7f) {
        return false;
    }
    for (pairs, scales) in pairs.as_chunks().0.iter().zip(scales.as_chunks().0) {
        bytes.extend_from_slice(&nvfp4::pack(*scales, pairs));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode_row, decode_row_of};
    use tabla_core::scales::Scales;

    const COLS: usize = 320;

    /// Encodes a row of codes with a scale and a bias per 32 columns, and compares the values. Returns whether
    /// the type is exact.
    fn check(dtype: DType, to: DType, float: DType, scales: &[f32], biases: &[f32]) -> bool {
        let len = usize::try_from(dtype.bytes(COLS as u64).unwrap()).unwrap();
        let codes: Vec<u8> = (0..len)
            .map(|i| (i * i * 31 + i * 7).to_le_bytes()[0])
            .collect();
        let list = |values: &[f32]| {
            let mut bytes = Vec::new();
            for i in 0..COLS / 32 * usize::from(!values.is_empty()) {
                let value = &values[i % values.len()..][..1];
                crate::encode_row(float, value, &mut bytes);
            }
            bytes
        };
        let (scales, biases) = (list(scales), list(biases));
        let matrix = Matrix {
            bytes: &codes,
            scales: Some(Scales {
                float,
                bytes: &scales,
                biases: &biases,
                group: [1, 32],
            }),
            rows: 1,
            cols: COLS,
        };
        compare(dtype, &matrix, to)
    }

    fn compare(dtype: DType, matrix: &Matrix<'_>, to: DType) -> bool {
        let mut bytes = vec![7];
        if !encode_exact(dtype, matrix, 0, to, &mut bytes) {
            assert_eq!(bytes, [7], "{dtype} as {to}");
            return false;
        }
        let [mut x, mut y] = [[0.0; COLS]; 2];
        decode_row_of(dtype, matrix, 0, &mut x);
        decode_row(to, &bytes[1..], &mut y);
        assert_eq!(x, y, "{dtype} as {to}");
        true
    }

    /// Returns the first type that is exact.
    fn first(dtype: DType, float: DType, scales: &[f32], biases: &[f32]) -> Option<DType> {
        let mut all = EXACT_TYPES.into_iter();
        all.find(|to| check(dtype, *to, float, scales, biases))
    }

    #[test]
    fn symmetric_codes_become_symmetric_blocks() {
        // 1 + 2^-10 has all bits of an f16.
        let scales = [1.0 + 1.0 / 1024.0, -0.5, 0.0];
        let zeros = |zero: f32| scales.map(|scale| -zero * scale);
        let of = |dtype, zero| first(dtype, DType::F32, &scales, &zeros(zero));
        assert_eq!(of(DType::Affine4, 8.0), Some(DType::Q4_0));
        assert_eq!(of(DType::Affine3, 4.0), Some(DType::Q4_0));
        assert_eq!(of(DType::Affine2, 2.0), Some(DType::Q4_0));
        // The minimum -7 (1 + 2^-10) has more bits than an f16.
        assert_eq!(of(DType::Affine4, 7.0), Some(DType::Q5_0));
        assert_eq!(of(DType::Affine4, 16.0), Some(DType::Q4_1));
        assert_eq!(of(DType::Affine5, 16.0), Some(DType::Q5_0));
        assert_eq!(of(DType::Affine6, 32.0), Some(DType::Q8_0));
        assert_eq!(of(DType::Affine8, 128.0), Some(DType::Q8_0));
        assert_eq!(of(DType::Affine8, 64.0), None);
        assert_eq!(
            first(DType::I8, DType::F32, &scales, &[]),
            Some(DType::Q8_0)
        );
    }

    #[test]
    fn affine_codes_become_blocks_with_minima() {
        let (scales, biases) = ([0.25, 0.75], [0.1, -3.0]);
        let of = |dtype, float| first(dtype, float, &scales, &biases);
        assert_eq!(of(DType::Affine4, DType::F16), Some(DType::Q4_1));
        assert_eq!(of(DType::Affine5, DType::F16), Some(DType::Q5_1));
        assert_eq!(of(DType::Affine8, DType::F16), None);
        // 0.1 has 24 bits in F32.
        assert_eq!(of(DType::Affine4, DType::F32), None);
    }

    #[test]
    fn scales_beyond_f16_are_not_exact() {
        for scale in [65536.0, 1e-8, 1.0 + f32::EPSILON] {
            let biases = [-8.0 * scale];
            let found = first(DType::Affine4, DType::F32, &[scale], &biases);
            assert_eq!(found, None, "{scale}");
        }
        // A scale of zero has no zero point.
        let found = first(DType::Affine4, DType::F32, &[0.0], &[1.5]);
        assert_eq!(found, Some(DType::Q4_1));
    }

    #[test]
    fn four_bit_floats_become_blocks() {
        let pairs: Vec<u8> = (0..COLS / 2)
            .map(|i| (i * 37 + 11).to_le_bytes()[0])
            .collect();
        let of = |float: DType, group: usize, bytes: &[u8]| {
            let matrix = Matrix {
                bytes: &pairs,
                scales: Some(Scales {
                    float,
                    bytes,
                    biases: &[],
                    group: [1, group],
                }),
                rows: 1,
                cols: COLS,
            };
            let mut all = EXACT_TYPES.into_iter();
            all.find(|to| compare(DType::E2m1, &matrix, *to))
        };
        let count = |n: usize| (0..n).map(|i| (110 + i).to_le_bytes()[0]);
        let bytes: Vec<u8> = count(10).collect();
        assert_eq!(of(DType::E8m0, 32, &bytes), Some(DType::Mxfp4));
        let mut bytes: Vec<u8> = count(20).map(|byte| byte - 100).collect();
        assert_eq!(of(DType::E4m3, 16, &bytes), Some(DType::Nvfp4));
        bytes[3] = 0x85;
        assert_eq!(of(DType::E4m3, 16, &bytes), None);
    }
}
