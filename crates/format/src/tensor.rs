//! Entries of the tensor list: name, type, shape and place.

use std::fmt;

use tabla_core::dtype::DType;

/// A tensor of the file: what it is called, how its numbers lie, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name, as the file has it.
    pub name: String,
    /// How the numbers are stored.
    pub dtype: TensorType,
    /// Elements along each dimension, the fastest first; one at least.
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
    /// Another type of safetensors, where every element has its own bytes.
    Raw {
        /// Name in listings and messages.
        name: &'static str,
        /// Bytes of an element.
        bytes: u64,
    },
}

/// Spelling in safetensors files, name here, bytes of an element (`Dtype` of the crate, without
/// the types smaller than a byte).
const SAFETENSORS: [(&str, &str, u64); 18] = [
    ("BOOL", "bool", 1),
    ("U8", "u8", 1),
    ("I8", "i8", 1),
    ("F8_E4M3", "e4m3", 1),
    ("F8_E5M2", "e5m2", 1),
    ("F8_E8M0", "e8m0", 1),
    ("U16", "u16", 2),
    ("I16", "i16", 2),
    ("F16", "f16", 2),
    ("BF16", "bf16", 2),
    ("U32", "u32", 4),
    ("I32", "i32", 4),
    ("F32", "f32", 4),
    ("U64", "u64", 8),
    ("I64", "i64", 8),
    ("F64", "f64", 8),
    ("C64", "c64", 8),
    ("C128", "c128", 16),
];

/// Number, name, block elements and block bytes of the types of ggml (`ggml.h`, October 2026) that
/// this build cannot compute with: the sizes are needed to check files.
const OTHERS: [(u32, &str, u64, u64); 4] = [
    (9, "q8_1", 32, 36),
    (40, "nvfp4", 64, 36),
    (41, "q1_0", 128, 18),
    (42, "q2_0", 64, 18),
];

impl TensorType {
    /// The type with this number in GGUF files, if ggml has or had one that files may use.
    pub fn from_gguf(id: u32) -> Option<Self> {
        match DType::from_gguf(id) {
            Some(dtype) => Some(Self::Known(dtype)),
            None => row(id).map(|_| Self::Other(id)),
        }
    }

    /// The type of this spelling in safetensors files.
    pub fn from_safetensors(spelling: &str) -> Option<Self> {
        let (_, name, bytes) = *SAFETENSORS.iter().find(|r| r.0 == spelling)?;
        Some(match DType::from_name(name) {
            Some(dtype) => Self::Known(dtype),
            None => Self::Raw { name, bytes },
        })
    }

    /// The number in GGUF files; `None` for types that exist in memory only.
    pub fn gguf(self) -> Option<u32> {
        match self {
            Self::Known(dtype) => dtype.facts().gguf,
            Self::Other(id) => Some(id),
            Self::Raw { .. } => None,
        }
    }

    /// The type, where this build can compute with it.
    pub fn known(self) -> Option<DType> {
        match self {
            Self::Known(dtype) => Some(dtype),
            Self::Other(_) | Self::Raw { .. } => None,
        }
    }

    /// Name in listings and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Known(dtype) => dtype.name(),
            Self::Other(id) => row(id).map_or("unknown", |r| r.1),
            Self::Raw { name, .. } => name,
        }
    }

    /// Bytes of `rows` rows of `cols` elements; `None` when a row is no whole number of blocks
    /// or the size wraps.
    pub fn bytes(self, rows: u64, cols: u64) -> Option<u64> {
        let elements = rows.checked_mul(cols)?;
        let block = match self {
            // Over the whole tensor, but rows begin where 32 elements lie side by side.
            Self::Known(DType::I2S) => 32,
            Self::Known(dtype) => dtype.facts().block as u64,
            Self::Other(id) => row(id)?.2,
            Self::Raw { .. } => 1,
        };
        if !cols.is_multiple_of(block) {
            return None;
        }
        match self {
            Self::Known(dtype) => dtype.bytes(elements),
            Self::Other(id) => elements.checked_div(block)?.checked_mul(row(id)?.3),
            Self::Raw { bytes, .. } => elements.checked_mul(bytes),
        }
    }
}

fn row(id: u32) -> Option<(u32, &'static str, u64, u64)> {
    OTHERS.into_iter().find(|r| r.0 == id)
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
    fn a_type_is_either_known_or_other() {
        for (id, name, ..) in OTHERS {
            assert_eq!(DType::from_gguf(id), None, "{name}");
            assert_eq!(DType::from_name(name), None, "{name}");
        }
    }

    #[test]
    fn types_of_safetensors_have_the_sizes_that_the_library_knows() {
        for (spelling, name, bytes) in SAFETENSORS {
            let found = TensorType::from_safetensors(spelling).unwrap();
            assert_eq!((found.name(), found.bytes(3, 5)), (name, Some(15 * bytes)));
        }
        assert_eq!(TensorType::from_safetensors("f32"), None);
    }

    #[test]
    fn blocks_do_not_straddle_rows() {
        let q4 = TensorType::Known(DType::Q4_0);
        assert_eq!(q4.bytes(2, 64), Some(72));
        assert_eq!(q4.bytes(2, 48), None);
        assert_eq!(q4.bytes(u64::MAX, 32), None);
        assert_eq!(q4.bytes(0, 32), Some(0));
        assert_eq!(TensorType::Other(40).bytes(3, 256), Some(432));
    }

    #[test]
    fn ternary_tensors_carry_a_tail() {
        let i2s = TensorType::Known(DType::I2S);
        assert_eq!(i2s.bytes(2, 64), Some(64));
        assert_eq!(i2s.bytes(1, 64), None, "half a block");
        assert_eq!(i2s.bytes(8, 16), None, "rows of half a run");
    }

    #[test]
    fn numbers_outside_the_list_are_no_types() {
        for id in [4, 5, 31, 32, 33, 37, 38, 43, u32::MAX] {
            assert_eq!(TensorType::from_gguf(id), None, "{id}");
        }
        assert_eq!(TensorType::from_gguf(13), Some(DType::Q5K.into()));
        assert_eq!(TensorType::from_gguf(40).unwrap().name(), "nvfp4");
    }
}
