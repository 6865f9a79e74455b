//! Storage types: how the numbers of each lie in memory, how they are read, how they are made.
//!
//! One file for each block format. What a format says is written once, as [`Ints::unpack`] or
//! [`Floats::decode`]: kernels of the CPU compile it for their instruction sets, and shaders are
//! held against it.

mod codes;
mod float;
pub mod i2_s;
pub mod iq1_m;
pub mod iq1_s;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod iq_grids;
mod matrix;
pub mod mxfp4;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;
pub mod q8_k;
mod read;
pub mod tq1_0;
pub mod tq2_0;

use crate::dtype::DType;
use bytemuck::{cast, pod_read_unaligned};
use float::f16;
pub use matrix::{Matrix, Scales};
pub use read::{Floats, Ints, Visit, visit};

/// Elements that are read together at most.
pub const CHUNK: usize = 256;

/// Elements that share a scale at least.
pub const GROUP: usize = 16;

/// Some neighbouring elements of a row: `x[i] = scale[i / 16] q[i] + min[i / 16]`.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub struct Chunk {
    /// The numbers.
    pub q: [i8; CHUNK],
    /// What they are multiplied by.
    pub scale: [f32; CHUNK / GROUP],
    /// What is added then; formats without minima leave it alone.
    pub min: [f32; CHUNK / GROUP],
}

impl Chunk {
    /// Zeros.
    pub const ZERO: Self = Self {
        q: [0; CHUNK],
        scale: [0.0; CHUNK / GROUP],
        min: [0.0; CHUNK / GROUP],
    };
}

/// Decodes a row: `row.len()` numbers from `bytes`, which are all of a matrix of one row; of
/// `I2_S`, of a tensor.
///
/// # Panics
///
/// Where the bytes are not those of `row.len()` numbers, or the type holds no reals.
pub fn decode_row(dtype: DType, bytes: &[u8], row: &mut [f32]) {
    assert_eq!(
        dtype.bytes(row.len() as u64),
        Some(bytes.len() as u64),
        "{dtype}: {} bytes for {} numbers",
        bytes.len(),
        row.len()
    );
    let matrix = Matrix {
        bytes,
        scales: None,
        rows: 1,
        cols: row.len(),
    };
    decode_row_of(dtype, &matrix, 0, row);
}

/// Decodes row `row` of a matrix into `out`, whose length is the matrix's columns.
///
/// # Panics
///
/// Where the matrix has no such row, or the type holds no reals.
pub fn decode_row_of(dtype: DType, matrix: &Matrix<'_>, row: usize, out: &mut [f32]) {
    struct Row<'a>(&'a Matrix<'a>, usize, &'a mut [f32]);
    impl Visit for Row<'_> {
        type Out = ();
        fn ints<T: Ints>(self) {
            self.floats::<T>();
        }
        fn floats<T: Floats>(self) {
            let Self(matrix, row, out) = self;
            let mut chunk = [0.0; CHUNK];
            for (first, out) in (0..).step_by(CHUNK).zip(out.chunks_mut(CHUNK)) {
                T::decode(matrix, row, first, &mut chunk);
                out.copy_from_slice(&chunk[..out.len()]);
            }
        }
    }
    assert_eq!(out.len(), matrix.cols, "a row of the matrix");
    visit(dtype, Row(matrix, row, out)).unwrap_or_else(|| panic!("{dtype} holds no reals"));
}

/// Encodes a row and appends its bytes.
///
/// # Panics
///
/// Where the row is no whole number of blocks, or the type holds no reals.
pub fn encode_row(dtype: DType, row: &[f32], bytes: &mut Vec<u8>) {
    let block = dtype.facts().block;
    assert_eq!(row.len() % block, 0, "{dtype}: a part of a block");
    match dtype {
        DType::F32 => float::encode_f32(row, bytes),
        DType::F16 => float::encode_f16(row, bytes),
        DType::Bf16 => float::encode_bf16(row, bytes),
        DType::Q8_0 => encode_blocks(row, bytes, q8_0::encode),
        DType::Q4_0 => encode_blocks(row, bytes, q4_0::encode),
        DType::Q4_1 => encode_blocks(row, bytes, q4_1::encode),
        other => panic!("there is no encoder for {other}"),
    }
}

/// Eight bytes of 1.
const ONES: u64 = 0x0101_0101_0101_0101;
/// Eight bytes of 128.
const TOPS: u64 = 0x8080_8080_8080_8080;

/// The low nibbles of 16 bytes, then the high ones.
#[inline(always)]
fn nibbles(bytes: &[u8; 16]) -> [u64; 4] {
    let [a, b]: [u64; 2] = pod_read_unaligned(bytes);
    [a, b, a >> 4, b >> 4].map(|word| word & (15 * ONES))
}

/// The bytes of a word, each below 128, less a number.
#[inline(always)]
fn less(word: u64, by: u8) -> u64 {
    // The top bits stop what is borrowed.
    ((word | TOPS) - ONES * u64::from(by)) ^ TOPS
}

/// `y[i] = d x[i]`.
#[inline(always)]
fn times(d: f32, x: [i8; 16]) -> [f32; 16] {
    x.map(|x| d * f32::from(x))
}

/// `q = f(a)`, eight bytes at once.
#[inline(always)]
fn words(q: &mut [i8; 32], a: &[u8; 32], f: impl Fn(u64) -> u64) {
    let a: [u64; 4] = pod_read_unaligned(a);
    *q = cast(a.map(f));
}

/// `q = f(a, b)`, eight bytes at once.
#[inline(always)]
fn words2(q: &mut [i8; 32], a: &[u8; 32], b: &[u8; 32], f: impl Fn(u64, u64) -> u64) {
    let (a, b): ([u64; 4], [u64; 4]) = (pod_read_unaligned(a), pod_read_unaligned(b));
    *q = cast(std::array::from_fn::<_, 4, _>(|i| f(a[i], b[i])));
}

/// `q[i] = f(a[i])`, as an int8.
#[inline(always)]
fn each<const N: usize>(q: &mut [i8; N], a: &[u8; N], f: impl Fn(u8) -> u8) {
    for (q, a) in q.iter_mut().zip(a) {
        *q = f(*a).cast_signed();
    }
}

fn encode_blocks<const BYTES: usize, const N: usize>(
    row: &[f32],
    bytes: &mut Vec<u8>,
    encode: fn(&[f32; N]) -> [u8; BYTES],
) {
    for block in row.as_chunks().0 {
        bytes.extend_from_slice(&encode(block));
    }
}

/// The numbers of some blocks.
#[cfg(test)]
fn decoded(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let facts = dtype.facts();
    let mut row = vec![0.0; bytes.len() / facts.bytes * facts.block];
    decode_row(dtype, bytes, &mut row);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ramp that is not symmetric, so that signs and minima show.
    fn ramp() -> Vec<f32> {
        (0..64u8).map(|i| f32::from(i) * 0.25 - 3.0).collect()
    }

    #[test]
    fn a_row_survives_within_half_a_step() {
        // Step sizes of the second block, whose largest number is 12.75.
        let steps = [
            (DType::F32, 0.0),
            (DType::F16, 0.0),
            (DType::Bf16, 0.0625),
            (DType::Q8_0, 12.75 / 127.0),
            (DType::Q4_0, 12.75 / 7.0),
            (DType::Q4_1, 7.75 / 15.0),
        ];
        let row = ramp();
        for (dtype, step) in steps {
            let mut bytes = Vec::new();
            encode_row(dtype, &row, &mut bytes);
            let mut back = vec![0.0; row.len()];
            decode_row(dtype, &bytes, &mut back);
            for (x, y) in row.iter().zip(&back) {
                assert!((x - y).abs() <= step * 0.51 + 0.01, "{dtype}: {x} {y}");
            }
        }
    }

    /// Made by `quantize` of the package gguf 0.19 over `(37 i mod 64) / 8 - 3.3`.
    #[test]
    fn the_bytes_are_those_of_gguf() {
        let row: Vec<f32> = (0..64u16)
            .map(|i| f32::from(i * 37 % 64) * 0.125 - 3.3)
            .collect();
        let known = [
            (
                DType::Q8_0,
                "9c28a425c747ea6a0caf2fd252f47517b93adc5cff7f21c444e66709ab2cce4ef1\
                 717c2814b438d75bfb7f1fbe42e26606a529c94ded7110b034d458f77b1bbb3fde6202",
            ),
            (
                DType::Q4_0,
                "93b8ae268c0369c147ad257bd359b1379c1473b8379d147bd258b0269c046ac248ae258b",
            ),
            (
                DType::Q4_1,
                "33389ac240d962fb952eb751da730c953ec851ea11385ac2c851ea731da63fc862fb841db740d962",
            ),
        ];
        for (dtype, hex) in known {
            let mut bytes = Vec::new();
            encode_row(dtype, &row, &mut bytes);
            let ours: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(ours, hex, "{dtype}");
        }
    }

    #[test]
    #[should_panic(expected = "q4_0: 18 bytes for 31 numbers")]
    fn a_part_of_a_block_is_refused() {
        decode_row(DType::Q4_0, &[0; 18], &mut [0.0; 31]);
    }
}
