//! `I2_S`: 2-bit ternary values of a whole tensor, followed by one f32 scale (`quantize_i2_s` in
//! `BitNet`'s ggml-bitnet-mad.cpp).
//!
//! 32 bytes hold 128 elements of the flat tensor, the first 32 in the top bits, so a row may start
//! within a block. The scale is the first number of a tail of 32 bytes; the other bytes are unused.

use super::bytes::{ONES, map_words, sub_bytes};
use super::chunk::{CHUNK, Chunk};
use super::matrix::Matrix;
use tabla_core::dtype::DType;
use tabla_core::error::{Result, bail};

/// Contiguous elements; rows start at a multiple of it.
const RUN: usize = 32;
/// Bytes after the blocks.
const TAIL_BYTES: usize = 32;

/// `x[i] = d (q[i] - 1)`; code 3, which no encoder writes, is 2.
#[inline(always)]
pub(super) fn unpack(m: &Matrix<'_>, row: usize, first: usize, out: &mut Chunk) {
    let start = row * m.cols + first;
    let runs = CHUNK.min(m.cols - first) / RUN;
    let codes = &m.bytes[..m.bytes.len() - TAIL_BYTES];
    for (n, q) in out.q.as_chunks_mut().0.iter_mut().take(runs).enumerate() {
        let (block, part) = ((start / RUN + n) / 4, (start / RUN + n) % 4);
        let bytes = &codes.as_chunks().0[block];
        map_words(q, bytes, |w| sub_bytes(w >> (6 - 2 * part) & (3 * ONES), 1));
    }
    out.scale.fill(scale(m.bytes));
}

/// Scale of a tensor.
#[inline(always)]
pub(super) fn scale(tensor: &[u8]) -> f32 {
    let tail = &tensor[tensor.len() - TAIL_BYTES..];
    f32::from_le_bytes(tail.as_chunks().0[0])
}

/// Returns a tensor of zeros with this scale, in whole blocks.
pub fn zeros(elements: usize, scale: f32) -> Vec<u8> {
    // Zero has code 1.
    let mut tensor = vec![0x55; elements / 4];
    tensor.extend(scale.to_le_bytes());
    tensor.resize(elements / 4 + TAIL_BYTES, 0);
    tensor
}

/// Encodes elements from index `at` on, rounded to the nearest ternary value with the tensor's
/// scale.
///
/// # Panics
///
/// If the tensor is too short.
pub fn encode(tensor: &mut [u8], at: usize, row: &[f32]) {
    let scale = scale(tensor);
    for (i, x) in (at..).zip(row) {
        let (byte, shift) = Layout::Blocks128.place(i, 0);
        let code = match x / scale {
            v if v >= 0.5 => 2,
            v if v <= -0.5 => 0,
            _ => 1,
        };
        tensor[byte] = tensor[byte] & !(3 << shift) | code << shift;
    }
}

/// Layout of the codes in a file. Files do not record it; [`Layout::Blocks128`] is the usual one,
/// the others come from builds of bitnet.cpp with other settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// 128 elements in 32 bytes.
    #[default]
    Blocks128,
    /// 64 elements in 16 bytes: Arm builds since November 2025.
    Blocks64,
    /// One column of four rows per byte: x86 builds without `ACT_PARALLEL`.
    Rows4,
}

impl Layout {
    /// Returns the layout with this name: `128`, `64` or `1x4`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "128" => Some(Self::Blocks128),
            "64" => Some(Self::Blocks64),
            "1x4" => Some(Self::Rows4),
            _ => None,
        }
    }

    /// Byte index and shift of an element of a tensor with rows of `cols` elements.
    fn place(self, i: usize, cols: usize) -> (usize, usize) {
        // Four elements at this distance share a byte.
        let distance = match self {
            Self::Blocks128 => 32,
            Self::Blocks64 => 16,
            Self::Rows4 => cols,
        };
        let (block, part) = (i / (4 * distance), i % (4 * distance));
        (
            block * distance + part % distance,
            6 - 2 * (part / distance),
        )
    }

    /// Converts a tensor from this layout to [`Layout::Blocks128`].
    ///
    /// # Errors
    ///
    /// `Format` if the tensor is not in whole blocks, or not in groups of four rows for
    /// [`Layout::Rows4`].
    pub fn canonical(self, tensor: &[u8], cols: usize) -> Result<Vec<u8>> {
        let elements = tensor.len().saturating_sub(TAIL_BYTES) * 4;
        if DType::I2S.bytes(elements as u64) != Some(tensor.len() as u64) {
            bail!(
                Format,
                "i2_s: {} bytes are not a whole number of blocks",
                tensor.len()
            );
        }
        if self == Self::Rows4 && (cols == 0 || !elements.is_multiple_of(4 * cols)) {
            bail!(
                Format,
                "i2_s: {elements} elements are not a multiple of four rows of {cols}"
            );
        }
        let (codes, tail) = tensor.split_at(elements / 4);
        let mut out = vec![0; codes.len()];
        for i in 0..elements {
            let (from, right) = self.place(i, cols);
            let (to, left) = Self::Blocks128.place(i, cols);
            out[to] |= (codes[from] >> right & 3) << left;
        }
        out.extend_from_slice(tail);
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode_row, decode_row_of};

    /// 2 blocks: code `i` is `i * i % 3`, packed with the formula of each layout.
    fn tensor(byte: impl Fn(usize, usize) -> usize) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        for (n, b) in bytes.iter_mut().enumerate() {
            for k in 0..4 {
                let i = byte(n, k);
                *b = *b << 2 | u8::try_from(i * i % 3).unwrap();
            }
        }
        bytes.extend(0.5f32.to_le_bytes());
        bytes.resize(64 + TAIL_BYTES, 0xaa);
        bytes
    }

    #[test]
    fn all_layouts_decode_equally() {
        let usual = tensor(|n, k| n / 32 * 128 + 32 * k + n % 32);
        let layouts = [
            ("128", usual.clone()),
            ("64", tensor(|n, k| n / 16 * 64 + 16 * k + n % 16)),
            ("1x4", tensor(|n, k| (n / 8 * 4 + k) * 8 + n % 8)),
        ];
        for (name, bytes) in layouts {
            let layout = Layout::from_name(name).unwrap();
            assert_eq!(layout.canonical(&bytes, 8).unwrap(), usual, "{name}");
        }
    }

    #[test]
    fn row_can_start_within_a_block() {
        let bytes = tensor(|n, k| n / 32 * 128 + 32 * k + n % 32);
        let matrix = Matrix {
            bytes: &bytes,
            scales: None,
            rows: 4,
            cols: 64,
        };
        for r in 0..4 {
            let mut row = [0.0; 64];
            decode_row_of(DType::I2S, &matrix, r, &mut row);
            let expected = |c| (((64 * r + c) * (64 * r + c) % 3) as f32 - 1.0) * 0.5;
            assert_eq!(row, std::array::from_fn(expected), "row {r}");
        }
    }

    #[test]
    fn ternary_values_round_trip() {
        let x: Vec<f32> = (0..256).map(|i| 0.5 * (i * i % 3) as f32 - 0.5).collect();
        let mut bytes = zeros(256, 0.5);
        for (n, row) in x.chunks(64).enumerate() {
            encode(&mut bytes, 64 * n, row);
        }
        assert_eq!(bytes.len(), 64 + TAIL_BYTES);
        let mut back = [0.0; 256];
        decode_row(DType::I2S, &bytes, &mut back);
        assert_eq!(x, back);
    }

    #[test]
    fn rejects_invalid_tensor() {
        for (layout, bytes, cols) in [
            (Layout::Blocks64, 31, 128),
            (Layout::Blocks64, 32 + 16, 64),
            (Layout::Rows4, 64, 0),
            (Layout::Rows4, 64, 64),
        ] {
            assert!(
                layout.canonical(&vec![0; bytes], cols).is_err(),
                "{layout:?} {bytes}"
            );
        }
    }
}
