//! The unit in which rows are read: up to 256 elements with their scales and minima.

/// Maximum number of elements that are read together.
pub const CHUNK: usize = 256;

/// Minimum number of elements that share a scale.
pub const GROUP: usize = 16;

/// Consecutive elements of a row: `x[i] = scale[i / 16] q[i] + min[i / 16]`.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Integer values.
    pub q: [i8; CHUNK],
    /// Scales.
    pub scale: [f32; CHUNK / GROUP],
    /// Minima; formats without minima do not write them.
    pub min: [f32; CHUNK / GROUP],
}

impl Chunk {
    /// All zeros.
    pub const ZERO: Self = Self {
        q: [0; CHUNK],
        scale: [0.0; CHUNK / GROUP],
        min: [0.0; CHUNK / GROUP],
    };
}
