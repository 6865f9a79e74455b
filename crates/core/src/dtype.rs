//! Storage types of tensors: one row per format.

/// Properties of a storage type.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Name in listings, kernel names and messages: the ggml name if there is one.
    pub name: &'static str,
    /// Number of elements per block.
    pub block: usize,
    /// Size of a block in bytes.
    pub bytes: usize,
    /// Number of bytes after the last block of a tensor.
    pub tail: usize,
    /// Type number in GGUF files (`enum ggml_type` in ggml.h), if the type is stored in files.
    pub gguf: Option<u32>,
}

macro_rules! dtypes {
    ($(
        $(#[$doc:meta])+
        $dtype:ident = $name:literal, $block:literal, $bytes:literal $(+ $tail:literal)?, $gguf:expr;
    )+) => {
        /// Storage type of a tensor; [`DType::facts`] returns its properties.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DType {
            $($(#[$doc])+ $dtype,)+
        }

        const ROWS: &[(DType, Facts)] = &[$((
            DType::$dtype,
            Facts { name: $name, block: $block, bytes: $bytes, tail: 0 $(+ $tail)?, gguf: $gguf },
        ),)+];
    };
}

// Name, elements per block, bytes per block (+ bytes after the last block), GGUF type number.
dtypes! {
    /// IEEE single precision.
    F32 = "f32", 1, 4, Some(0);
    /// IEEE half precision.
    F16 = "f16", 1, 2, Some(1);
    /// bfloat16: the upper 16 bits of an F32.
    Bf16 = "bf16", 1, 2, Some(30);
    /// IEEE double precision.
    F64 = "f64", 1, 8, Some(28);
    /// Signed byte.
    I8 = "i8", 1, 1, Some(24);
    /// Signed 16-bit integer.
    I16 = "i16", 1, 2, Some(25);
    /// Signed 32-bit integer.
    I32 = "i32", 1, 4, Some(26);
    /// Signed 64-bit integer.
    I64 = "i64", 1, 8, Some(27);
    /// Unsigned 32-bit integer: token ids, step state.
    U32 = "u32", 1, 4, None;
    /// 32 4-bit codes with offset 8, an f16 scale.
    Q4_0 = "q4_0", 32, 18, Some(2);
    /// 32 4-bit codes, an f16 scale, an f16 minimum.
    Q4_1 = "q4_1", 32, 20, Some(3);
    /// 32 5-bit codes with offset 16, an f16 scale.
    Q5_0 = "q5_0", 32, 22, Some(6);
    /// 32 5-bit codes, an f16 scale, an f16 minimum.
    Q5_1 = "q5_1", 32, 24, Some(7);
    /// 32 signed bytes, an f16 scale.
    Q8_0 = "q8_0", 32, 34, Some(8);
    /// Activations of products on a GPU: 32 signed bytes, an f32 scale, scaled sums of both halves, 4 unused bytes; in planes
    /// per row (`shaders/lib/put_block/q8_1.wgsl`).
    Q8_1 = "q8_1", 32, 48, None;
    /// 256 2-bit codes; 4-bit scales and minima per 16.
    Q2K = "q2_k", 256, 84, Some(10);
    /// 256 3-bit codes; 6-bit scales per 16.
    Q3K = "q3_k", 256, 110, Some(11);
    /// 256 4-bit codes; 6-bit scales and minima per 32.
    Q4K = "q4_k", 256, 144, Some(12);
    /// 256 5-bit codes; 6-bit scales and minima per 32.
    Q5K = "q5_k", 256, 176, Some(13);
    /// 256 6-bit codes; 8-bit scales per 16.
    Q6K = "q6_k", 256, 210, Some(14);
    /// 256 signed bytes, an f32 scale, sums of the bytes.
    Q8K = "q8_k", 256, 292, Some(15);
    /// 256 elements in groups of 8 from a grid of 256, with signs; 4-bit scales per 32.
    Iq2Xxs = "iq2_xxs", 256, 66, Some(16);
    /// 256 elements in groups of 8 from a grid of 512, with signs; 4-bit scales per 16.
    Iq2Xs = "iq2_xs", 256, 74, Some(17);
    /// 256 elements in groups of 8 from a grid of 1024, with signs; 4-bit scales per 16.
    Iq2S = "iq2_s", 256, 82, Some(22);
    /// 256 elements in groups of 4 from a grid of 256, with signs; 4-bit scales per 32.
    Iq3Xxs = "iq3_xxs", 256, 98, Some(18);
    /// 256 elements in groups of 4 from a grid of 512, with signs; 4-bit scales per 32.
    Iq3S = "iq3_s", 256, 110, Some(21);
    /// 256 elements in groups of 8 from a ternary grid of 2048; 3-bit scales per 32.
    Iq1S = "iq1_s", 256, 50, Some(19);
    /// 256 elements in groups of 8 from a ternary grid of 2048; 3-bit scales per 16.
    Iq1M = "iq1_m", 256, 56, Some(29);
    /// 32 4-bit indices into a value table, an f16 scale.
    Iq4Nl = "iq4_nl", 32, 18, Some(20);
    /// 256 4-bit indices into a value table; 6-bit scales per 32.
    Iq4Xs = "iq4_xs", 256, 136, Some(23);
    /// 32 4-bit floats (E2M1), a power-of-two scale (E8M0).
    Mxfp4 = "mxfp4", 32, 17, Some(39);
    /// 64 4-bit floats (E2M1), an unsigned 8-bit float scale (UE4M3) per 16; one scale for the tensor is
    /// a separate tensor.
    Nvfp4 = "nvfp4", 64, 36, Some(40);
    /// 128 signs, an f16 scale.
    Q1_0 = "q1_0", 128, 18, Some(41);
    /// 64 2-bit codes with offset 1, an f16 scale.
    Q2_0 = "q2_0", 64, 18, Some(42);
    /// 256 ternary digits, five per byte, an f16 scale.
    Tq1_0 = "tq1_0", 256, 54, Some(34);
    /// 256 ternary digits, four per byte, an f16 scale.
    Tq2_0 = "tq2_0", 256, 66, Some(35);
    /// `BitNet` ternary digits, four per byte; the scale follows the last block of the tensor.
    I2S = "i2_s", 128, 32 + 32, Some(36);
    /// MLX 2-bit codes; scales and biases are separate tensors.
    Affine2 = "affine2", 32, 8, None;
    /// MLX 3-bit codes; scales and biases are separate tensors.
    Affine3 = "affine3", 32, 12, None;
    /// MLX 4-bit codes; scales and biases are separate tensors.
    Affine4 = "affine4", 32, 16, None;
    /// MLX 5-bit codes; scales and biases are separate tensors.
    Affine5 = "affine5", 32, 20, None;
    /// MLX 6-bit codes; scales and biases are separate tensors.
    Affine6 = "affine6", 32, 24, None;
    /// MLX 8-bit codes; scales and biases are separate tensors.
    Affine8 = "affine8", 32, 32, None;
    /// 4-bit floats, low nibble first; scales are a separate tensor.
    E2m1 = "e2m1", 32, 16, None;
    /// 8-bit floats: sign, 4 exponent bits, 3 mantissa bits.
    E4m3 = "e4m3", 1, 1, None;
    /// Powers of two, stored as the exponent byte of an F32.
    E8m0 = "e8m0", 1, 1, None;
    /// Hugging Face `BitNet`: ternary digits of four rows per byte.
    Ternary = "ternary", 4, 1, None;
}

impl DType {
    /// Returns the properties of this type.
    pub fn facts(self) -> Facts {
        ROWS[self as usize].1
    }

    /// Returns the name in listings, kernel names and messages.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Finds the type with this number in GGUF files.
    pub fn from_gguf(id: u32) -> Option<Self> {
        ROWS.iter()
            .find(|(_, f)| f.gguf == Some(id))
            .map(|(d, _)| *d)
    }

    /// Finds the type with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        ROWS.iter().find(|(_, f)| f.name == name).map(|(d, _)| *d)
    }

    /// Returns the size in bytes of a tensor of `elements` elements; `None` if `elements` is not a
    /// multiple of the block size or the size overflows.
    pub fn bytes(self, elements: u64) -> Option<u64> {
        let f = self.facts();
        if !elements.is_multiple_of(f.block as u64) {
            return None;
        }
        (elements / f.block as u64)
            .checked_mul(f.bytes as u64)?
            .checked_add(f.tail as u64)
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_gguf_numbers_are_unique() {
        for (d, f) in ROWS {
            assert_eq!(d.name(), f.name, "rows are in the order of the enum");
            assert_eq!(DType::from_name(f.name), Some(*d));
            if let Some(id) = f.gguf {
                assert_eq!(DType::from_gguf(id), Some(*d), "{}", f.name);
            }
        }
    }

    #[test]
    fn bytes_rejects_partial_blocks_and_overflow() {
        assert_eq!(DType::Q4_0.bytes(64), Some(36));
        assert_eq!(DType::Q4_0.bytes(33), None);
        assert_eq!(DType::I2S.bytes(256), Some(96));
        assert_eq!(DType::I2S.bytes(64), None);
        assert_eq!(DType::F32.bytes(u64::MAX), None);
    }
}
