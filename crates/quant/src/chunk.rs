//! The unit in which rows are read: up to 256 elements with their scales and minima.

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
