//! The traits of an instruction set: vectors of f32, probes, tasks.

use super::rows::Rows;
use tabla_quant::{CHUNK, Chunk, Matrix};

/// Turns the chunk of a row that begins at an element into integers.
pub type Unpack = fn(&Matrix<'_>, usize, usize, &mut Chunk);

/// Turns the chunk of a row that begins at an element into floats.
pub(crate) type Decode = fn(&Matrix<'_>, usize, usize, &mut [f32; CHUNK]);

/// Work on no operands, written once for every instruction set. `run` is `#[inline(always)]`.
pub trait Probe {
    /// Does it; what it yields is its own affair.
    fn run<S: Simd>(self, s: S) -> u64;
}

/// Something to be run as a function of its own.
pub trait Task<S> {
    /// Runs it.
    fn run(self, s: S);
}

/// Vectors of f32, and the products of bytes that deserve instructions of their own.
///
/// A value of an implementing type proves that its instructions are there.
pub trait Simd: Rows {
    /// Runs a task in a function of its own, compiled for the level: what many kernels share is
    /// there once.
    fn apart<T: Task<Self>>(self, task: T);

    /// Numbers of a vector.
    const LANES: usize;
    /// A vector.
    type V: Copy;

    /// `x` in every lane.
    fn splat(self, x: f32) -> Self::V;
    /// The first `LANES` of `x`.
    fn load(self, x: &[f32]) -> Self::V;
    /// Into the first `LANES` of `y`.
    fn store(self, y: &mut [f32], v: Self::V);
    /// `a * b + c`.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The sum of the lanes, in an order that depends on nothing.
    fn sum(self, v: Self::V) -> f32;

    /// `LANES` f32 from the front of `bytes`.
    fn load_f32(self, bytes: &[u8]) -> Self::V;
    /// `LANES` f16 from the front of `bytes`.
    fn load_f16(self, bytes: &[u8]) -> Self::V;
    /// `LANES` bf16 from the front of `bytes`.
    fn load_bf16(self, bytes: &[u8]) -> Self::V;
    /// Asks for the cache line `ahead` bytes behind the start of `bytes`, which may lie outside. On x86 it
    /// comes into the second cache: into the first, it holds up the kernel's own loads on processors of AMD.
    fn prefetch(self, bytes: &[u8], ahead: usize);

    /// `w . x`, exactly; numbers of `x` are over -128, and the sum must fit.
    fn dot_i8(self, w: &[[i8; 64]], x: &[[i8; 64]]) -> i32;

    /// Turns `LANES` vectors: lane `j` of vector `i` and lane `i` of vector `j` change places.
    fn transpose(self, v: &mut [Self::V]);
    /// `LANES` numbers as f16, rounded to nearest even, to the front of `y`.
    fn store_f16(self, y: &mut [u16], v: Self::V);
    /// The lowest byte of each lane, as the bits of its number have it, to the front of `y`.
    fn store_bytes(self, y: &mut [u8], v: Self::V);
    /// The greater in each lane; `b` where one is no number.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `2^n`, where `n` are the low bits of each lane as an integer in two's complement.
    fn power(self, n: Self::V) -> Self::V;
}
