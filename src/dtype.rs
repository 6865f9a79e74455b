//! Storage types: one row for each way in which numbers lie in memory.

/// How numbers are stored. `Row` data is in [`DType::facts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16: the upper half of an F32.
    Bf16,
    /// 32 signed bytes and an f16 scale.
    Q8_0,
    /// 32 nibbles, offset 8, and an f16 scale.
    Q4_0,
    /// 32 nibbles with an f16 scale and an f16 minimum.
    Q4_1,
    /// Unsigned 32-bit integer: ids, step state.
    U32,
}

/// The facts of a storage type.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Name in listings, kernel variants and messages.
    pub name: &'static str,
    /// Elements of a block.
    pub block: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// Number in GGUF files (`enum ggml_type` of ggml.h), for types that files hold.
    pub gguf: Option<u32>,
}

const ROWS: [(DType, Facts); 7] = [
    (
        DType::F32,
        Facts {
            name: "f32",
            block: 1,
            bytes: 4,
            gguf: Some(0),
        },
    ),
    (
        DType::F16,
        Facts {
            name: "f16",
            block: 1,
            bytes: 2,
            gguf: Some(1),
        },
    ),
    (
        DType::Bf16,
        Facts {
            name: "bf16",
            block: 1,
            bytes: 2,
            gguf: Some(30),
        },
    ),
    (
        DType::Q8_0,
        Facts {
            name: "q8_0",
            block: 32,
            bytes: 34,
            gguf: Some(8),
        },
    ),
    (
        DType::Q4_0,
        Facts {
            name: "q4_0",
            block: 32,
            bytes: 18,
            gguf: Some(2),
        },
    ),
    (
        DType::Q4_1,
        Facts {
            name: "q4_1",
            block: 32,
            bytes: 20,
            gguf: Some(3),
        },
    ),
    (
        DType::U32,
        Facts {
            name: "u32",
            block: 1,
            bytes: 4,
            gguf: None,
        },
    ),
];

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

    /// Bytes of `elements` numbers; `None` when they are no whole number of blocks or wrap.
    pub fn bytes(self, elements: u64) -> Option<u64> {
        let f = self.facts();
        if !elements.is_multiple_of(f.block as u64) {
            return None;
        }
        (elements / f.block as u64).checked_mul(f.bytes as u64)
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
    fn rows_stand_in_the_order_of_the_enum() {
        for (i, (d, f)) in ROWS.iter().enumerate() {
            assert_eq!(*d as usize, i, "{}", f.name);
            assert_eq!(DType::from_name(f.name), Some(*d));
        }
    }

    #[test]
    fn bytes_refuses_parts_of_blocks_and_wrapping() {
        assert_eq!(DType::Q4_0.bytes(64), Some(36));
        assert_eq!(DType::Q4_0.bytes(33), None);
        assert_eq!(DType::F32.bytes(u64::MAX), None);
    }
}
