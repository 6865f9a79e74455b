//! Traits of an instruction set: f32 vectors, probes, tasks.

use super::rows::Rows;
use tabla_quant::{CHUNK, Chunk, Matrix};

/// Unpacks the chunk of a row that starts at an element to integers.
pub type Unpack = fn(&Matrix<'_>, usize, usize, &mut Chunk);

/// Decodes the chunk of a row that starts at an element to floats.
pub(crate) type Decode = fn(&Matrix<'_>, usize, usize, &mut [f32; CHUNK]);

/// Code without operands, written once for all instruction sets. `run` is `#[inline(always)]`.
pub trait Probe: Sized {
    /// Runs the probe; the meaning of the result depends on the probe.
    fn run<S: Simd>(self, s: S) -> u64;

    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    for_each_level!(define_probe);
}

/// Code that runs in a function of its own.
pub trait Task<S>: Sized {
    /// Runs the task.
    fn run(self, s: S);

    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    for_each_level!(define_task);
}

/// Vectors of f32 and products of bytes.
///
/// A value of an implementing type proves that the processor supports the instructions.
pub trait Simd: Rows {
    /// Runs a task in a separate function compiled for the level, so that code shared by many
    /// kernels exists once.
    fn outlined<T: Task<Self>>(self, task: T);

    /// Number of elements of a vector.
    const LANES: usize;
    /// A vector.
    type V: Copy;

    /// `x` in every lane.
    fn splat(self, x: f32) -> Self::V;
    /// Loads the first `LANES` elements of `x`.
    fn load(self, x: &[f32]) -> Self::V;
    /// Stores to the first `LANES` elements of `y`.
    fn store(self, y: &mut [f32], v: Self::V);
    /// `a * b + c`.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The sum of the lanes, in a fixed order.
    fn sum(self, v: Self::V) -> f32;

    /// Loads `LANES` f32 from the start of `bytes`.
    fn load_f32(self, bytes: &[u8]) -> Self::V;
    /// Loads `LANES` f16 from the start of `bytes`.
    fn load_f16(self, bytes: &[u8]) -> Self::V;
    /// Loads `LANES` bf16 from the start of `bytes`.
    fn load_bf16(self, bytes: &[u8]) -> Self::V;
    /// Prefetches the cache line `ahead` bytes after the start of `bytes`, which may be out of
    /// bounds. On x86 it is loaded into the L2 cache: loading it into L1 delays the kernel's own
    /// loads on AMD processors.
    fn prefetch(self, bytes: &[u8], ahead: usize);

    /// Like [`Simd::prefetch`], but into the L1 cache: for lines that are read soon.
    #[inline(always)]
    fn prefetch_l1(self, bytes: &[u8], ahead: usize) {
        self.prefetch(bytes, ahead);
    }

    /// `w . x`, exact; elements of `x` must be above -128, and the sum must fit.
    fn dot_i8(self, w: &[[i8; 64]], x: &[[i8; 64]]) -> i32;

    /// Transposes `LANES` vectors: swaps lane `j` of vector `i` and lane `i` of vector `j`.
    fn transpose(self, v: &mut [Self::V]);
    /// Stores `LANES` numbers as f16, rounded to nearest even, to the start of `y`.
    fn store_f16(self, y: &mut [u16], v: Self::V);
    /// Stores the lowest byte of the bits of each lane to the start of `y`.
    fn store_bytes(self, y: &mut [u8], v: Self::V);
    /// The larger number in each lane; `b` if either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `2^n`, where `n` is the integer in the low bits of each lane, in two's complement.
    fn exp2i(self, n: Self::V) -> Self::V;
}
