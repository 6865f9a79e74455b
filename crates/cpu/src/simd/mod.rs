//! Instruction sets: one trait, a proof type per set, and the level that is chosen at link.
#![cfg_attr(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    expect(
        unsafe_code,
        reason = "intrinsics, and calls that enable their instructions"
    )
)]

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
pub(super) mod math;
#[cfg(target_arch = "aarch64")]
mod neon;
pub(super) mod rows;
mod scalar;
pub(super) mod words;

use super::memory::Args;
use rows::Rows;
pub use scalar::Scalar;
#[cfg(target_arch = "aarch64")]
use std::arch::is_aarch64_feature_detected;
use tabla_core::error::{Result, bail};
use tabla_quant::{CHUNK, Chunk, Floats, Ints, Matrix};

/// An instruction set that this build has kernels for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Plain Rust: the reference that the others are held against.
    Scalar,
    /// NEON: every 64-bit Arm.
    Neon,
    /// The same and dot products of bytes: most of them since 2018.
    Dotprod,
    /// AVX2, FMA and F16C: x86-64 since 2013.
    Avx2,
    /// AVX-512 F, BW, VL and VNNI.
    Avx512,
    /// The same and AMX with int8 and bf16: products by tiles, where the system allows them.
    Amx,
}

impl Level {
    /// All that there are, the fastest of each architecture last.
    const ALL: [Self; 6] = [
        Self::Scalar,
        Self::Neon,
        Self::Dotprod,
        Self::Avx2,
        Self::Avx512,
        Self::Amx,
    ];

    /// Every level that this machine can run, the fastest last.
    pub fn available() -> Vec<Self> {
        Self::ALL
            .into_iter()
            .filter(|level| Isa::detect(*level).is_some())
            .collect()
    }

    /// The fastest level, or the one that the environment variable `TABLA_CPU` names.
    ///
    /// # Errors
    ///
    /// `Argument` where the variable names no level, `Unsupported` where the machine lacks it.
    pub fn best() -> Result<Self> {
        let best = Self::available().pop().unwrap_or(Self::Scalar);
        match std::env::var("TABLA_CPU") {
            Ok(name) if !name.is_empty() => Self::named(&name),
            _ => Ok(best),
        }
    }

    /// Its name in profiles and in `TABLA_CPU`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Neon => "neon",
            Self::Dotprod => "dotprod",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Amx => "amx",
        }
    }

    /// The level with this name, as in `TABLA_CPU`.
    ///
    /// # Errors
    ///
    /// `Argument` for an unknown name, `Unsupported` for a level that this machine lacks.
    pub fn named(name: &str) -> Result<Self> {
        let Some(level) = Self::ALL.into_iter().find(|l| l.name() == name) else {
            let known = Self::ALL.map(Self::name).join(", ");
            bail!(Argument, "TABLA_CPU={name}: known are {known}");
        };
        Isa::of(level)?;
        Ok(level)
    }
}

/// A level that was found on this machine: what a kernel is instantiated by.
#[derive(Clone, Copy, Debug)]
pub struct Isa(Proof);

#[derive(Clone, Copy, Debug)]
enum Proof {
    Scalar,
    #[cfg(target_arch = "aarch64")]
    Neon,
    #[cfg(target_arch = "aarch64")]
    Dotprod,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Amx(amx::Amx),
}

impl Isa {
    /// The proof that this machine has the level.
    pub fn of(level: Level) -> Result<Self> {
        match Self::detect(level) {
            Some(isa) => Ok(isa),
            None => bail!(Unsupported, "this processor has no {}", level.name()),
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn detect(level: Level) -> Option<Self> {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let avx512 = avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vnni");
        match level {
            Level::Scalar => Some(Self(Proof::Scalar)),
            Level::Avx2 => avx2.then_some(Self(Proof::Avx2)),
            Level::Avx512 => avx512.then_some(Self(Proof::Avx512)),
            Level::Amx if avx512 => amx::detect().map(|amx| Self(Proof::Amx(amx))),
            Level::Amx | Level::Neon | Level::Dotprod => None,
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn detect(level: Level) -> Option<Self> {
        let neon = is_aarch64_feature_detected!("neon");
        let dotprod = neon && is_aarch64_feature_detected!("dotprod");
        match level {
            Level::Scalar => Some(Self(Proof::Scalar)),
            Level::Neon => neon.then_some(Self(Proof::Neon)),
            Level::Dotprod => dotprod.then_some(Self(Proof::Dotprod)),
            Level::Avx2 | Level::Avx512 | Level::Amx => None,
        }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn detect(level: Level) -> Option<Self> {
        (level == Level::Scalar).then_some(Self(Proof::Scalar))
    }

    /// [`Rows::RAISED`] of the level.
    pub(super) fn raised(self) -> i32 {
        match self.0 {
            Proof::Scalar => Scalar::RAISED,
            #[cfg(target_arch = "aarch64")]
            Proof::Neon => neon::Neon::<false>::RAISED,
            #[cfg(target_arch = "aarch64")]
            Proof::Dotprod => neon::Neon::<true>::RAISED,
            #[cfg(target_arch = "x86_64")]
            Proof::Avx2 => avx2::Avx2::RAISED,
            #[cfg(target_arch = "x86_64")]
            Proof::Avx512 | Proof::Amx(_) => avx512::Avx512::RAISED,
        }
    }

    /// [`Rows::TOKENS`] of the level.
    pub(super) fn tile_tokens(self) -> u32 {
        let tokens = match self.0 {
            Proof::Scalar => Scalar::TOKENS,
            #[cfg(target_arch = "aarch64")]
            Proof::Neon => neon::Neon::<false>::TOKENS,
            #[cfg(target_arch = "aarch64")]
            Proof::Dotprod => neon::Neon::<true>::TOKENS,
            #[cfg(target_arch = "x86_64")]
            Proof::Avx2 => avx2::Avx2::TOKENS,
            #[cfg(target_arch = "x86_64")]
            Proof::Avx512 | Proof::Amx(_) => avx512::Avx512::TOKENS,
        };
        u32::try_from(tokens).expect("a handful")
    }

    /// The kernel compiled for this instruction set.
    pub(super) fn entry<K: Kernel>(self) -> Entry {
        match self.0 {
            Proof::Scalar => |args| K::run(Scalar, args),
            #[cfg(target_arch = "aarch64")]
            Proof::Neon => |args| {
                // SAFETY: this closure is only reached through an `Isa` that detection made.
                unsafe { neon::plain::enter::<K>(args) }
            },
            #[cfg(target_arch = "aarch64")]
            Proof::Dotprod => |args| {
                // SAFETY: this closure is only reached through an `Isa` that detection made.
                unsafe { neon::dotprod::enter::<K>(args) }
            },
            #[cfg(target_arch = "x86_64")]
            Proof::Avx2 => |args| {
                // SAFETY: this closure is only reached through an `Isa` that detection made.
                unsafe { avx2::enter::<K>(args) }
            },
            #[cfg(target_arch = "x86_64")]
            Proof::Avx512 | Proof::Amx(_) => |args| {
                // SAFETY: this closure is only reached through an `Isa` that detection made.
                unsafe { avx512::enter::<K>(args) }
            },
        }
    }

    /// Runs a probe compiled for this instruction set.
    pub fn probe<P: Probe>(self, probe: P) -> u64 {
        match self.0 {
            Proof::Scalar => probe.run(Scalar),
            // SAFETY: detection made the proof, here and below.
            #[cfg(target_arch = "aarch64")]
            Proof::Neon => unsafe { neon::plain::probe(probe) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Proof::Dotprod => unsafe { neon::dotprod::probe(probe) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Proof::Avx2 => unsafe { avx2::probe(probe) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Proof::Avx512 | Proof::Amx(_) => unsafe { avx512::probe(probe) },
        }
    }

    /// A probe of products in bf16, where this level has tiles for them.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn probe_tiles(self) -> Option<fn(u32) -> u64> {
        let Proof::Amx(_) = self.0 else {
            return None;
        };
        Some(|rounds| {
            // SAFETY: this closure is only reached through an `Isa` that detection made.
            unsafe { amx::probe(rounds) }
        })
    }

    /// Elsewhere no level has them.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn probe_tiles(self) -> Option<fn(u32) -> u64> {
        None
    }

    /// Tiles, where this level has them.
    #[cfg(target_arch = "x86_64")]
    pub fn amx(self) -> Option<amx::Amx> {
        match self.0 {
            Proof::Amx(amx) => Some(amx),
            _ => None,
        }
    }

    /// The kernel that multiplies tiles, where this level has them.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn tiles<K: amx::TileKernel>(self) -> Option<Entry> {
        let Proof::Amx(_) = self.0 else {
            return None;
        };
        Some(|args| {
            // SAFETY: this closure is only reached through an `Isa` that detection made.
            unsafe { amx::enter::<K>(args) }
        })
    }

    /// How chunks of this storage type become integers, compiled for this instruction set.
    pub(super) fn unpack<T: Ints>(self) -> Unpack {
        match self.0 {
            Proof::Scalar => T::unpack,
            // Every function has NEON.
            #[cfg(target_arch = "aarch64")]
            Proof::Neon | Proof::Dotprod => T::unpack,
            #[cfg(target_arch = "x86_64")]
            Proof::Avx2 => |m, row, first, out| {
                // SAFETY: this closure is only reached through an `Isa` that detection made.
                unsafe { avx2::unpack::<T>(m, row, first, out) }
            },
            #[cfg(target_arch = "x86_64")]
            Proof::Avx512 | Proof::Amx(_) => |m, row, first, out| {
                // SAFETY: this closure is only reached through an `Isa` that detection made.
                unsafe { avx512::unpack::<T>(m, row, first, out) }
            },
        }
    }

    /// How chunks of this storage type become floats, compiled for this instruction set.
    pub(super) fn decode<T: Floats>(self) -> Decode {
        match self.0 {
            Proof::Scalar => T::decode,
            // Every function has NEON.
            #[cfg(target_arch = "aarch64")]
            Proof::Neon | Proof::Dotprod => T::decode,
            #[cfg(target_arch = "x86_64")]
            Proof::Avx2 => |m, row, first, out| {
                // SAFETY: this closure is only reached through an `Isa` that detection made.
                unsafe { avx2::decode::<T>(m, row, first, out) }
            },
            #[cfg(target_arch = "x86_64")]
            Proof::Avx512 | Proof::Amx(_) => |m, row, first, out| {
                // SAFETY: this closure is only reached through an `Isa` that detection made.
                unsafe { avx512::decode::<T>(m, row, first, out) }
            },
        }
    }
}

/// A kernel that is chosen: what a step of a linked table calls.
pub(super) type Entry = fn(Args<'_>);

/// Turns the chunk of a row that begins at an element into integers.
pub type Unpack = fn(&Matrix<'_>, usize, usize, &mut Chunk);

/// Turns the chunk of a row that begins at an element into floats.
pub(super) type Decode = fn(&Matrix<'_>, usize, usize, &mut [f32; CHUNK]);

/// A kernel, written once for every instruction set. `run` is `#[inline(always)]`, so that its
/// plain loops too are compiled for the set.
pub(super) trait Kernel {
    /// Does one thread's part of the operation.
    fn run<S: Simd>(s: S, args: Args<'_>);
}

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
