//! Entries of the tensor list: name, type, shape and place.

use std::fmt;

use crate::dtype::DType;

/// A tensor of the file: what it is called, how its numbers lie, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name, as the file has it.
    pub name: String,
    /// How the numbers are stored.
    pub dtype: TensorType,
    /// Elements along each dimension, the fastest first; one to four of them.
    pub dims: Vec<u64>,
    /// Which file of the set holds it.
    pub shard: usize,
    /// First byte, counted from the start of that file.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
}

impl TensorInfo {
    /// Elements of a row: the fastest dimension.
    pub fn cols(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Rows: the product of the other dimensions.
    pub fn rows(&self) -> u64 {
        // Opening has shown that the product fits.
        self.dims
            .iter()
            .skip(1)
            .fold(1, |n, d| n.saturating_mul(*d))
    }

    /// All elements.
    pub fn elements(&self) -> u64 {
        self.rows().saturating_mul(self.cols())
    }
}

/// The storage type of a tensor in a file.
///
/// A file may use types that this build cannot compute with; it can still be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorType {
    /// A type that the rest of the library knows.
    Known(DType),
    /// Another type of ggml, by its number.
    Other(u32),
}

/// Number, name, block elements and block bytes of the types of ggml (`ggml.h`, October 2026).
///
/// The sizes are needed to check files even where the type cannot be computed with.
const GGML: [(u32, &str, u64, u64); 36] = [
    (0, "f32", 1, 4),
    (1, "f16", 1, 2),
    (2, "q4_0", 32, 18),
    (3, "q4_1", 32, 20),
    (6, "q5_0", 32, 22),
    (7, "q5_1", 32, 24),
    (8, "q8_0", 32, 34),
    (9, "q8_1", 32, 36),
    (10, "q2_k", 256, 84),
    (11, "q3_k", 256, 110),
    (12, "q4_k", 256, 144),
    (13, "q5_k", 256, 176),
    (14, "q6_k", 256, 210),
    (15, "q8_k", 256, 292),
    (16, "iq2_xxs", 256, 66),
    (17, "iq2_xs", 256, 74),
    (18, "iq3_xxs", 256, 98),
    (19, "iq1_s", 256, 50),
    (20, "iq4_nl", 32, 18),
    (21, "iq3_s", 256, 110),
    (22, "iq2_s", 256, 82),
    (23, "iq4_xs", 256, 136),
    (24, "i8", 1, 1),
    (25, "i16", 1, 2),
    (26, "i32", 1, 4),
    (27, "i64", 1, 8),
    (28, "f64", 1, 8),
    (29, "iq1_m", 256, 56),
    (30, "bf16", 1, 2),
    (34, "tq1_0", 256, 54),
    (35, "tq2_0", 256, 66),
    (I2_S, "i2_s", 4, 1),
    (39, "mxfp4", 32, 17),
    (40, "nvfp4", 64, 36),
    (41, "q1_0", 128, 18),
    (42, "q2_0", 64, 18),
];

/// `BitNet`'s ternary type: four elements to a byte over the whole tensor, then a tail.
const I2_S: u32 = 36;
/// The tail of an `i2_s` tensor holds its one scale.
const I2_S_TAIL_BYTES: u64 = 32;

impl TensorType {
    /// The type with this number in GGUF files, if ggml has or had one that files may use.
    pub fn from_gguf(id: u32) -> Option<Self> {
        match DType::from_gguf(id) {
            Some(dtype) => Some(Self::Known(dtype)),
            None => row(id).map(|_| Self::Other(id)),
        }
    }

    /// The number in GGUF files; `None` for types that exist in memory only.
    pub fn gguf(self) -> Option<u32> {
        match self {
            Self::Known(dtype) => dtype.facts().gguf,
            Self::Other(id) => Some(id),
        }
    }

    /// The type, where this build can compute with it.
    pub fn known(self) -> Option<DType> {
        match self {
            Self::Known(dtype) => Some(dtype),
            Self::Other(_) => None,
        }
    }

    /// Name in listings and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Known(dtype) => dtype.name(),
            Self::Other(id) => row(id).map_or("unknown", |r| r.1),
        }
    }

    /// Bytes of `rows` rows of `cols` elements; `None` when a row is no whole number of blocks
    /// or the size wraps.
    pub fn bytes(self, rows: u64, cols: u64) -> Option<u64> {
        let elements = rows.checked_mul(cols)?;
        // Numbers come first: blocks of `i2_s` run over rows, whatever the list of types says.
        match (self, self.gguf().and_then(row)) {
            (_, Some((I2_S, ..))) => {
                let packed = elements
                    .is_multiple_of(4)
                    .then(|| elements.checked_div(4))??;
                packed.checked_add(I2_S_TAIL_BYTES)
            }
            (_, Some((_, _, block, bytes))) => cols
                .is_multiple_of(block)
                .then(|| elements.checked_div(block))??
                .checked_mul(bytes),
            (Self::Known(dtype), None) => dtype.bytes(elements),
            (Self::Other(_), None) => None,
        }
    }
}

fn row(id: u32) -> Option<(u32, &'static str, u64, u64)> {
    GGML.into_iter().find(|r| r.0 == id)
}

impl From<DType> for TensorType {
    fn from(dtype: DType) -> Self {
        Self::Known(dtype)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_agree_with_the_types_that_the_library_knows() {
        for (id, name, block, bytes) in GGML {
            let Some(dtype) = DType::from_gguf(id) else {
                continue;
            };
            assert_eq!(dtype.name(), name, "id {id}");
            if id != I2_S {
                assert_eq!(dtype.bytes(block), Some(bytes), "{name}");
            }
        }
    }

    #[test]
    fn blocks_do_not_straddle_rows() {
        let q4 = TensorType::Known(DType::Q4_0);
        assert_eq!(q4.bytes(2, 64), Some(72));
        assert_eq!(q4.bytes(2, 48), None);
        assert_eq!(q4.bytes(u64::MAX, 32), None);
        assert_eq!(q4.bytes(0, 32), Some(0));
        assert_eq!(TensorType::Other(13).bytes(3, 256), Some(528));
    }

    #[test]
    fn ternary_tensors_carry_a_tail() {
        let i2s = TensorType::from_gguf(I2_S).unwrap();
        assert_eq!(i2s.bytes(2, 64), Some(64));
        assert_eq!(i2s.bytes(1, 3), None);
    }

    #[test]
    fn numbers_outside_the_list_are_no_types() {
        for id in [4, 5, 31, 32, 33, 37, 38, 43, u32::MAX] {
            assert_eq!(TensorType::from_gguf(id), None, "{id}");
        }
        assert_eq!(TensorType::from_gguf(13).unwrap().name(), "q5_k");
    }
}
