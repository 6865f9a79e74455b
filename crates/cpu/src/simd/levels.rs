//! Levels: the instruction sets that this build has kernels for, and the one that is chosen at link.

#[cfg(target_arch = "x86_64")]
use super::amx;
#[cfg(target_arch = "x86_64")]
use super::avx2;
#[cfg(target_arch = "x86_64")]
use super::avx512;
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::rows::Rows;
use super::scalar::Scalar;
use super::vectors::{Decode, Probe, Unpack};
#[cfg(target_arch = "aarch64")]
use std::arch::is_aarch64_feature_detected;
use tabla_core::error::{Result, bail};
use tabla_quant::{Floats, Ints};

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
pub struct Isa(pub(super) Proof);

#[derive(Clone, Copy, Debug)]
pub(super) enum Proof {
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
    pub(crate) fn raised(self) -> i32 {
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
    pub(crate) fn tile_tokens(self) -> u32 {
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

    /// [`Rows::PANELS`] of the level.
    pub(crate) fn panels(self) -> bool {
        !matches!(self.0, Proof::Scalar)
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
    pub(crate) fn probe_tiles(self) -> Option<fn(u32) -> u64> {
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
    pub(crate) fn probe_tiles(self) -> Option<fn(u32) -> u64> {
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

    /// How chunks of this storage type become integers, compiled for this instruction set.
    pub(crate) fn unpack<T: Ints>(self) -> Unpack {
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
    pub(crate) fn decode<T: Floats>(self) -> Decode {
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
