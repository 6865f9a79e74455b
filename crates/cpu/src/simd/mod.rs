//! Instruction sets: traits, a proof type per set, and the levels that link selects from.
#![cfg_attr(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    expect(
        unsafe_code,
        reason = "intrinsics, and calls that enable their instructions"
    )
)]

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[macro_use]
mod level_functions;

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(target_arch = "x86_64")]
pub(super) mod bf16;
mod entry;
mod levels;
pub(super) mod math;
#[cfg(target_arch = "aarch64")]
mod neon;
pub(super) mod rows;
mod scalar;
#[cfg(target_feature = "simd128")]
mod simd128;
#[cfg(target_arch = "x86_64")]
mod stack;
mod vectors;
pub(super) mod words;

#[cfg(target_arch = "x86_64")]
pub(super) use entry::ProofKernel;
pub(super) use entry::{Entry, Kernel, Uses};
pub use levels::{Isa, Level};
pub use scalar::Scalar;
pub(super) use vectors::Decode;
pub(super) use vectors::Task;
pub use vectors::{Probe, Simd, Unpack};
