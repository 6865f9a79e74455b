//! Storage types: one row for each way in which numbers lie in memory.

/// The facts of a storage type.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Name in listings, kernel variants and messages: ggml's where ggml has one.
    pub name: &'static str,
    /// Elements of a block.
    pub block: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// Bytes behind the last block of a tensor.
    pub tail: usize,
    /// Number in GGUF files (`enum ggml_type` of ggml.h), for types that files hold.
    pub gguf: Option<u32>,
}

macro_rules! dtypes {
    ($(
        $(#[$doc:meta])+
        $dtype:ident = $name:literal, $block:literal, $bytes:literal $(+ $tail:literal)?, $gguf:expr;
    )+) => {
        /// How numbers are stored; [`DType::facts`] has the row of each.
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

// Name, elements of a block, its bytes (and those of the tail), number in GGUF.
dtypes! {
    /// IEEE single.
    F32 = "f32", 1, 4, Some(0);
    /// IEEE half.
    F16 = "f16", 1, 2, Some(1);
    /// bfloat16: the upper half of an F32.
    Bf16 = "bf16", 1, 2, Some(30);
    /// IEEE double.
    F64 = "f64", 1, 8, Some(28);
    /// Signed byte.
    I8 = "i8", 1, 1, Some(24);
    /// Signed 16-bit integer.
    I16 = "i16", 1, 2, Some(25);
    /// Signed 32-bit integer.
    I32 = "i32", 1, 4, Some(26);
    /// Signed 64-bit integer.
    I64 = "i64", 1, 8, Some(27);
    /// Unsigned 32-bit integer: ids, step state.
    U32 = "u32", 1, 4, None;
    /// 32 nibbles, offset 8, and an f16 scale.
    Q4_0 = "q4_0", 32, 18, Some(2);
    /// 32 nibbles with an f16 scale and an f16 minimum.
    Q4_1 = "q4_1", 32, 20, Some(3);
    /// 32 times 5 bits, offset 16, and an f16 scale.
    Q5_0 = "q5_0", 32, 22, Some(6);
    /// 32 times 5 bits with an f16 scale and an f16 minimum.
    Q5_1 = "q5_1", 32, 24, Some(7);
    /// 32 signed bytes and an f16 scale.
    Q8_0 = "q8_0", 32, 34, Some(8);
    /// 256 times 2 bits; scales and minima of 4 bits for 16.
    Q2K = "q2_k", 256, 84, Some(10);
    /// 256 times 3 bits; scales of 6 bits for 16.
    Q3K = "q3_k", 256, 110, Some(11);
    /// 256 nibbles; scales and minima of 6 bits for 32.
    Q4K = "q4_k", 256, 144, Some(12);
    /// 256 times 5 bits; scales and minima of 6 bits for 32.
    Q5K = "q5_k", 256, 176, Some(13);
    /// 256 times 6 bits; scales of 8 bits for 16.
    Q6K = "q6_k", 256, 210, Some(14);
    /// 256 signed bytes, an f32 scale, and sums.
    Q8K = "q8_k", 256, 292, Some(15);
    /// Eights of a grid of 256, signs; scales of 4 bits for 32.
    Iq2Xxs = "iq2_xxs", 256, 66, Some(16);
    /// Eights of a grid of 512, signs; scales of 4 bits for 16.
    Iq2Xs = "iq2_xs", 256, 74, Some(17);
    /// Eights of a grid of 1024, signs; scales of 4 bits for 16.
    Iq2S = "iq2_s", 256, 82, Some(22);
    /// Fours of a grid of 256, signs; scales of 4 bits for 32.
    Iq3Xxs = "iq3_xxs", 256, 98, Some(18);
    /// Fours of a grid of 512, signs; scales of 4 bits for 32.
    Iq3S = "iq3_s", 256, 110, Some(21);
    /// Eights of a ternary grid of 2048; scales of 3 bits for 32.
    Iq1S = "iq1_s", 256, 50, Some(19);
    /// Eights of a ternary grid of 2048; scales of 3 bits for 16.
    Iq1M = "iq1_m", 256, 56, Some(29);
    /// 32 nibbles that point into a table, and an f16 scale.
    Iq4Nl = "iq4_nl", 32, 18, Some(20);
    /// 256 nibbles that point into a table; scales of 6 bits for 32.
    Iq4Xs = "iq4_xs", 256, 136, Some(23);
    /// 32 floats of 4 bits, and a power of two as the scale.
    Mxfp4 = "mxfp4", 32, 17, Some(39);
    /// 256 ternary digits, five to a byte, and an f16 scale.
    Tq1_0 = "tq1_0", 256, 54, Some(34);
    /// 256 ternary digits, four to a byte, and an f16 scale.
    Tq2_0 = "tq2_0", 256, 66, Some(35);
    /// `BitNet`'s ternary digits, four to a byte over the whole tensor; its tail has the scale.
    I2S = "i2_s", 128, 32 + 32, Some(36);
    /// MLX's 2 bits; scales and biases lie in tensors of their own.
    Affine2 = "affine2", 32, 8, None;
    /// MLX's 3 bits; scales and biases lie in tensors of their own.
    Affine3 = "affine3", 32, 12, None;
    /// MLX's 4 bits; scales and biases lie in tensors of their own.
    Affine4 = "affine4", 32, 16, None;
    /// MLX's 5 bits; scales and biases lie in tensors of their own.
    Affine5 = "affine5", 32, 20, None;
    /// MLX's 6 bits; scales and biases lie in tensors of their own.
    Affine6 = "affine6", 32, 24, None;
    /// MLX's 8 bits; scales and biases lie in tensors of their own.
    Affine8 = "affine8", 32, 32, None;
    /// Floats of 4 bits, the low nibble first; scales lie in a tensor of their own.
    E2m1 = "e2m1", 32, 16, None;
    /// Floats of 8 bits: sign, 4 bits of exponent, 3 of mantissa.
    E4m3 = "e4m3", 1, 1, None;
    /// Powers of two: the exponent of an F32.
    E8m0 = "e8m0", 1, 1, None;
    /// Hugging Face's `BitNet`: ternary digits of four rows to a byte.
    Ternary = "ternary", 4, 1, None;
}

impl DType {
    /// The row of this type.
    pub fn facts(self) -> Facts {
        ROWS[self as usize].1
    }

    /// Name in listings, kernel variants and messages.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The type with this number in GGUF files.
    pub fn from_gguf(id: u32) -> Option<Self> {
        ROWS.iter()
            .find(|(_, f)| f.gguf == Some(id))
            .map(|(d, _)| *d)
    }

    /// The type of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        ROWS.iter().find(|(_, f)| f.name == name).map(|(d, _)| *d)
    }

    /// Bytes of a tensor of `elements` numbers; `None` when they are no whole number of blocks or
    /// the size wraps.
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
    fn names_and_numbers_are_of_one_type_each() {
        for (d, f) in ROWS {
            assert_eq!(d.name(), f.name, "rows stand in the order of the enum");
            assert_eq!(DType::from_name(f.name), Some(*d));
            if let Some(id) = f.gguf {
                assert_eq!(DType::from_gguf(id), Some(*d), "{}", f.name);
            }
        }
    }

    #[test]
    fn bytes_refuses_parts_of_blocks_and_wrapping() {
        assert_eq!(DType::Q4_0.bytes(64), Some(36));
        assert_eq!(DType::Q4_0.bytes(33), None);
        assert_eq!(DType::I2S.bytes(256), Some(96));
        assert_eq!(DType::I2S.bytes(64), None);
        assert_eq!(DType::F32.bytes(u64::MAX), None);
    }
}
