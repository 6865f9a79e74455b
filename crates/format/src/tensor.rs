//! Entries of the tensor list: name, type, shape and location.

use std::fmt;

use tabla_core::dtype::DType;

/// A tensor of a file: name, type, shape and location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name in the file.
    pub name: String,
    /// Storage type.
    pub dtype: TensorType,
    /// Shape, fastest dimension first; at least one dimension.
    pub dims: Vec<u64>,
    /// Index of the file in the set.
    pub shard: usize,
    /// Offset of the data from the start of the file, in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
}

impl TensorInfo {
    /// Returns the number of columns: the fastest dimension.
    pub fn cols(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Returns the number of rows: the product of the other dimensions.
    pub fn rows(&self) -> u64 {
        // Cannot overflow: `open` checks the product.
        self.dims
            .iter()
            .skip(1)
            .fold(1, |n, d| n.saturating_mul(*d))
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> u64 {
        self.rows().saturating_mul(self.cols())
    }
}

/// The storage type of a tensor in a file.
///
/// Includes types without compute support, so that files that use them can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorType {
    /// A type with compute support.
    Known(DType),
    /// A ggml type without compute support, by its number.
    Other(u32),
    /// A safetensors type without compute support; elements are whole bytes.
    Raw {
        /// Name in listings and messages.
        name: &'static str,
        /// Size of an element in bytes.
        bytes: u64,
    },
}

/// Name in safetensors files, name in this library, bytes per element (`Dtype` of the
/// `safetensors` crate, without the types smaller than a byte).
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

/// Number, name, block elements and block bytes of the ggml types without compute support
/// (`ggml.h`, October 2026). The sizes are needed to validate files.
const OTHERS: [(u32, &str, u64, u64); 1] = [(9, "q8_1", 32, 36)];

impl TensorType {
    /// Returns the type with this number in GGUF files; `None` if unknown or removed from ggml.
    pub fn from_gguf(id: u32) -> Option<Self> {
        match DType::from_gguf(id) {
            Some(dtype) => Some(Self::Known(dtype)),
            None => row(id).map(|_| Self::Other(id)),
        }
    }

    /// Returns the type with this name in safetensors files.
    pub fn from_safetensors(spelling: &str) -> Option<Self> {
        let (_, name, bytes) = *SAFETENSORS.iter().find(|r| r.0 == spelling)?;
        Some(match DType::from_name(name) {
            Some(dtype) => Self::Known(dtype),
            None => Self::Raw { name, bytes },
        })
    }

    /// Returns the number in GGUF files; `None` for types that exist only in memory.
    pub fn gguf(self) -> Option<u32> {
        match self {
            Self::Known(dtype) => dtype.facts().gguf,
            Self::Other(id) => Some(id),
            Self::Raw { .. } => None,
        }
    }

    /// Returns the type if it has compute support.
    pub fn known(self) -> Option<DType> {
        match self {
            Self::Known(dtype) => Some(dtype),
            Self::Other(_) | Self::Raw { .. } => None,
        }
    }

    /// Returns the name for listings and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Known(dtype) => dtype.name(),
            Self::Other(id) => row(id).map_or("unknown", |r| r.1),
            Self::Raw { name, .. } => name,
        }
    }

    /// Returns the size of `rows` rows of `cols` elements in bytes; `None` if a row is not a whole
    /// number of blocks or the size overflows.
    pub fn bytes(self, rows: u64, cols: u64) -> Option<u64> {
        let elements = rows.checked_mul(cols)?;
        let block = match self {
            // The block spans the tensor, but a row starts at a multiple of 32 elements.
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
    fn other_types_are_not_known_types() {
        for (id, name, ..) in OTHERS {
            assert_eq!(DType::from_gguf(id), None, "{name}");
            // Activations in memory are q8_1 too, in another layout, which no file has.
            let known = DType::from_name(name);
            assert!(known.is_none_or(|d| d.facts().gguf.is_none()), "{name}");
        }
    }

    #[test]
    fn safetensors_types_have_the_listed_sizes() {
        for (spelling, name, bytes) in SAFETENSORS {
            let dtype = TensorType::from_safetensors(spelling).unwrap();
            assert_eq!((dtype.name(), dtype.bytes(3, 5)), (name, Some(15 * bytes)));
        }
        assert_eq!(TensorType::from_safetensors("f32"), None);
    }

    #[test]
    fn rows_are_whole_blocks() {
        let q4 = TensorType::Known(DType::Q4_0);
        assert_eq!(q4.bytes(2, 64), Some(72));
        assert_eq!(q4.bytes(2, 48), None);
        assert_eq!(q4.bytes(u64::MAX, 32), None);
        assert_eq!(q4.bytes(0, 32), Some(0));
        assert_eq!(TensorType::Other(9).bytes(3, 256), Some(864));
    }

    #[test]
    fn i2s_size_includes_the_scale() {
        let i2s = TensorType::Known(DType::I2S);
        assert_eq!(i2s.bytes(2, 64), Some(64));
        assert_eq!(i2s.bytes(1, 64), None, "half a block");
        assert_eq!(i2s.bytes(8, 16), None, "rows of half a run");
    }

    #[test]
    fn rejects_unknown_type_numbers() {
        for id in [4, 5, 31, 32, 33, 37, 38, 43, u32::MAX] {
            assert_eq!(TensorType::from_gguf(id), None, "{id}");
        }
        assert_eq!(TensorType::from_gguf(13), Some(DType::Q5K.into()));
        assert_eq!(TensorType::from_gguf(9).unwrap().name(), "q8_1");
    }
}
