//! Device layout of weights: consecutive sections, as read by `shaders/lib`.
//!
//! A section stores one component of the whole matrix in row-major order: bit planes of codes
//! (`shaders/lib/planes.wgsl`), scales, or scales of scales. Kernels read rows in column blocks of
//! 32 columns, with loads of up to 16 bytes. Sections are ordered from wide to narrow elements, so
//! that each is aligned. Rows of a row range have the same layout as in the whole matrix.

use super::chunk::{CHUNK, Chunk};
use super::formats::visit;
use super::matrix::Matrix;
use super::one_scale;
use super::read::{Floats, Ints, Visit};
use super::section::Section;
use bytemuck::{cast, cast_slice, cast_slice_mut};
use std::array::from_fn;
use tabla_core::dtype::DType;

/// Number of columns of a column block.
const COL_BLOCK: usize = 32;
/// Size of a load of one invocation in bytes.
const LOAD_BYTES: usize = 16;

impl Section {
    /// Returns the size of the section in bytes.
    pub fn bytes(&self, dtype: DType, [rows, cols]: [usize; 2]) -> usize {
        let facts = dtype.facts();
        let (col_blocks, blocks) = (cols.div_ceil(COL_BLOCK), cols / facts.block);
        match self {
            Self::Grid(grid) => grid.len(),
            Self::Plane { bits, .. } => rows * col_blocks * COL_BLOCK / 8 * bits,
            Self::Numbers { .. } => rows * col_blocks * COL_BLOCK * facts.bytes,
            Self::Field(range) => rows * blocks * range.len(),
            Self::Computed(bytes, _) => rows * blocks * bytes,
            Self::Scales { columns, numbers } => {
                rows * cols.div_ceil(*columns) * numbers * size_of::<f32>()
            }
            Self::Scale => size_of::<f32>(),
        }
    }

    /// Returns the data stored once, before the rows.
    pub fn head(&self, dtype: DType, matrix: &Matrix<'_>) -> Vec<u8> {
        match self {
            Self::Grid(grid) => grid.to_vec(),
            Self::Scale => {
                let scale =
                    one_scale(dtype, matrix).expect("types with this section have one scale");
                scale.to_le_bytes().to_vec()
            }
            _ => Vec::new(),
        }
    }

    /// Appends the data of a row.
    pub fn row(&self, dtype: DType, matrix: &Matrix<'_>, row: usize, out: &mut Vec<u8>) {
        let blocks = || matrix.row(row).chunks_exact(dtype.facts().bytes);
        let col_blocks = matrix.cols.div_ceil(COL_BLOCK);
        match self {
            Self::Grid(_) | Self::Scale => {}
            Self::Plane {
                shift,
                bits,
                encode,
            } => {
                let mut words = words(dtype, matrix, row, col_blocks);
                if let Some(encode) = encode {
                    encode(cast_slice_mut(&mut words));
                }
                match bits {
                    1 => pack::<1>(&words, *shift, out),
                    2 => pack::<2>(&words, *shift, out),
                    4 => pack::<4>(&words, *shift, out),
                    _ => split(cast_slice(&words), COL_BLOCK, LOAD_BYTES, out),
                }
            }
            Self::Numbers { parts } => {
                let block_bytes = COL_BLOCK * dtype.facts().bytes;
                let mut padded = matrix.row(row).to_vec();
                padded.resize(col_blocks * block_bytes, 0);
                split(&padded, block_bytes, block_bytes / parts, out);
            }
            Self::Field(range) => blocks().for_each(|b| out.extend_from_slice(&b[range.clone()])),
            Self::Computed(_, compute) => blocks().for_each(|b| compute(b, out)),
            Self::Scales { columns, numbers } => {
                for col in (0..matrix.cols).step_by(*columns) {
                    let all = match &matrix.scales {
                        Some(scales) => scales.at(row, col, matrix.cols),
                        None => [1.0, 0.0],
                    };
                    out.extend_from_slice(cast_slice(&all[..*numbers]));
                }
            }
        }
    }
}

/// Returns the signed codes of a row by column block, in words of four columns.
fn words(dtype: DType, matrix: &Matrix<'_>, row: usize, col_blocks: usize) -> Vec<[u32; 8]> {
    struct Codes<'a>(&'a Matrix<'a>, usize, &'a mut [[u32; 8]]);
    impl Visit for Codes<'_> {
        type Out = ();
        fn ints<T: Ints>(self) {
            let Self(matrix, row, out) = self;
            let mut chunk = Chunk::ZERO;
            let parts = out.chunks_mut(CHUNK / COL_BLOCK);
            for (first, out) in (0..).step_by(CHUNK).zip(parts) {
                chunk.q.fill(0);
                T::unpack(matrix, row, first, &mut chunk);
                let all: [[u32; 8]; CHUNK / COL_BLOCK] = cast(chunk.q);
                out.copy_from_slice(&all[..out.len()]);
            }
        }
        fn floats<T: Floats>(self) {}
    }
    let mut all = vec![[0; 8]; col_blocks];
    visit(dtype, Codes(matrix, row, &mut all)).expect("types with planes decode to integers");
    all
}

/// Appends a plane of `BITS` bits per code: each byte packs the fields of adjacent words.
fn pack<const BITS: usize>(words: &[[u32; 8]], shift: u32, out: &mut Vec<u8>) {
    let mask = 0x0101_0101 * ((1 << BITS) - 1);
    for block in words {
        let packed: [u32; BITS] = from_fn(|i| {
            let group = &block[i * (8 / BITS)..][..8 / BITS];
            let fields = group.iter().rev().map(|word| word >> shift & mask);
            fields.fold(0, |all, field| all << BITS | field)
        });
        out.extend_from_slice(cast_slice(&packed));
    }
}

/// Appends a row of blocks part by part: the first part of all blocks, then the second part of all
/// blocks, and so on.
fn split(row: &[u8], block_bytes: usize, part_bytes: usize, out: &mut Vec<u8>) {
    for at in (0..block_bytes).step_by(part_bytes) {
        for block in row.chunks_exact(block_bytes) {
            out.extend_from_slice(&block[at..at + part_bytes]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::sections;
    use crate::section::codes_of;
    use crate::{iq4_nl, mxfp4};
    use tabla_core::op::list::Op;
    use tabla_core::op::table::KernelId;

    /// Returns every type with kernels.
    fn dtypes() -> impl Iterator<Item = DType> {
        KernelId::dtypes(Op::Embed)
    }

    /// Returns varied bytes for a matrix.
    fn bytes(dtype: DType, [rows, cols]: [usize; 2]) -> Vec<u8> {
        let count = dtype.bytes((rows * cols) as u64).unwrap();
        let byte = |i: u64| (i * i * 31 + i * 7 + i / 256).to_le_bytes()[0];
        (0..count).map(byte).collect()
    }

    fn matrix(bytes: &[u8], [rows, cols]: [usize; 2]) -> Matrix<'_> {
        let scales = None;
        Matrix {
            bytes,
            scales,
            rows,
            cols,
        }
    }

    /// Returns the data of all rows of a section.
    fn all_rows(section: &Section, dtype: DType, matrix: &Matrix<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        (0..matrix.rows).for_each(|row| section.row(dtype, matrix, row, &mut out));
        out
    }

    #[test]
    fn section_sizes_match_their_data() {
        let any_width = [
            DType::F32,
            DType::F16,
            DType::Bf16,
            DType::E4m3,
            DType::I8,
            DType::Ternary,
        ];
        for dtype in dtypes() {
            for cols in [256, 768, 77] {
                if cols == 77 && !any_width.contains(&dtype) {
                    continue;
                }
                let shape = [4, cols];
                let bytes = bytes(dtype, shape);
                let matrix = matrix(&bytes, shape);
                for (i, section) in sections(dtype).iter().enumerate() {
                    let size = section.head(dtype, &matrix).len()
                        + all_rows(section, dtype, &matrix).len();
                    assert_eq!(
                        section.bytes(dtype, shape),
                        size,
                        "{dtype} {cols} section {i}"
                    );
                }
            }
        }
    }

    #[test]
    fn weight_sizes_are_as_listed() {
        for (dtype, rows, cols, bytes) in [
            (DType::F32, 3, 5, 3 * 32 * 4),
            (DType::Bf16, 3, 40, 3 * 64 * 2),
            (DType::Q4_1, 2, 32, 2 * 20),
            (DType::Q4K, 3, 512, 3 * 2 * (128 + 16 + 4)),
            (DType::Q6K, 3, 512, 3 * 2 * 210),
            (DType::Mxfp4, 2, 64, 2 * 2 * 17),
            (DType::Nvfp4, 3, 128, 3 * (2 * 36 + 4)),
            (DType::Q1_0, 2, 256, 2 * 2 * 18),
            (DType::Q2_0, 2, 64, 2 * 18),
            (DType::Tq1_0, 1, 256, 64 + 2),
            (DType::I2S, 4, 96, 96 + 4),
            (DType::Iq3S, 1, 256, 110 + 512 * 4),
            (DType::Affine3, 4, 96, 4 * (3 * 12 + 3 * 8)),
            (DType::E2m1, 2, 64, 2 * (2 * 16 + 4 * 4)),
            (DType::E4m3, 5, 77, 5 * (96 + 3 * 4)),
            (DType::Ternary, 8, 77, 8 * 96 / 4 + 8 * 4),
        ] {
            let all = sections(dtype).into_iter();
            let total: usize = all.map(|s| s.bytes(dtype, [rows, cols])).sum();
            assert_eq!(total, bytes, "{dtype}");
        }
    }

    #[test]
    fn row_ranges_have_the_layout_of_the_whole_matrix() {
        // Rows of these types share bytes.
        let interleaved = [DType::Ternary, DType::I2S];
        for dtype in dtypes().filter(|d| !interleaved.contains(d)) {
            let bytes = bytes(dtype, [5, 512]);
            let part = &bytes[bytes.len() / 5 * 2..][..bytes.len() / 5 * 2];
            for section in sections(dtype) {
                let all = all_rows(&section, dtype, &matrix(&bytes, [5, 512]));
                let range = all_rows(&section, dtype, &matrix(part, [2, 512]));
                assert_eq!(range, all[all.len() / 5 * 2..][..range.len()], "{dtype}");
            }
        }
    }

    #[test]
    fn planes_store_a_field_of_each_code() {
        // Code n is 8 n + n / 4, so that every bit is tested.
        let code = |n: u8| n.wrapping_mul(8).wrapping_add(n / 4);
        let block: [u8; 32] = from_fn(|n| code(n.to_le_bytes()[0]));
        let words: [u32; 8] = cast(block);
        type Pack = fn(&[[u32; 8]], u32, &mut Vec<u8>);
        let packs: [(Pack, u32, usize); 4] = [
            (pack::<4>, 0, 4),
            (pack::<2>, 4, 2),
            (pack::<1>, 2, 1),
            (pack::<2>, 0, 2),
        ];
        for (pack, shift, bits) in packs {
            let mut plane = Vec::new();
            pack(&[words], shift, &mut plane);
            assert_eq!(plane.len(), 4 * bits);
            for (n, code) in block.iter().enumerate() {
                let (word, byte) = (n / 4, n % 4);
                let (at, field) = (word / (8 / bits) * 4 + byte, word % (8 / bits));
                let stored = plane[at] >> (bits * field) & ((1 << bits) - 1);
                assert_eq!(
                    stored,
                    code >> shift & ((1 << bits) - 1),
                    "{bits} bits of code {n}"
                );
            }
        }
    }

    #[test]
    fn codes_are_the_inverse_of_values() {
        for values in [iq4_nl::VALUES, mxfp4::DOUBLED] {
            let codes = codes_of(&values);
            for value in values {
                let code = codes[usize::from(value.cast_unsigned())];
                assert_eq!(values[usize::from(code)], value);
            }
        }
    }
}
