//! Levels: the instruction sets that have kernels in this build; link selects one.

#[cfg(target_arch = "x86_64")]
use super::amx;
#[cfg(target_arch = "x86_64")]
use super::avx2;
#[cfg(target_arch = "x86_64")]
use super::avx512;
#[cfg(target_arch = "x86_64")]
use super::bf16;
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::rows::Rows;
use super::scalar::Scalar;
#[cfg(target_feature = "simd128")]
use super::simd128::Simd128;
use super::vectors::{Decode, Probe, Unpack};
#[cfg(target_arch = "aarch64")]
use std::arch::is_aarch64_feature_detected;
use tabla_core::error::{Result, bail};
use tabla_quant::{Floats, Ints};

/// An instruction set that has kernels in this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Plain Rust: the reference for the other levels.
    Scalar,
    /// SIMD128 of WebAssembly: every engine since 2023.
    Simd128,
    /// NEON: every 64-bit Arm processor.
    Neon,
    /// NEON and dot products of bytes: most Arm processors since 2018.
    Dotprod,
    /// NEON, dot products and matrix products of bytes: Graviton 3, Apple since the M2.
    I8mm,
    /// AVX2, FMA and F16C: x86-64 since 2013.
    Avx2,
    /// AVX2 and AVX-VNNI: Intel processors since 2021 without AVX-512.
    AvxVnni,
    /// AVX-512 F, BW, VL, DQ and VNNI; products of BF16 weights use AVX-512 BF16 if the processor has
    /// it.
    Avx512,
    /// AVX-512 and AMX with int8 and bf16: tile products, if the operating system permits them.
    Amx,
}

/// Whether there are kernels for AVX2: `--cfg tabla_level="scalar"` leaves out the kernels of all levels of x86-64, to
/// compile fast.
#[cfg(target_arch = "x86_64")]
pub(super) const HAS_AVX2: bool = cfg!(not(tabla_level = "scalar"));

/// Whether there are kernels for the levels above AVX2, which `--cfg tabla_level="avx2"` leaves out.
#[cfg(target_arch = "x86_64")]
pub(super) const HAS_ALL_LEVELS: bool = HAS_AVX2 && cfg!(not(tabla_level = "avx2"));

/// Whether all kernels are compiled for the scalar level. `--cfg tabla_level="simd128"` leaves out most, so that a module
/// for WebAssembly is small; those of SIMD128 serve both levels. Attention needs it for heads that vectors do not divide.
#[cfg(target_feature = "simd128")]
pub(super) const HAS_SCALAR: bool = cfg!(not(tabla_level = "simd128"));

impl Level {
    /// All levels, the fastest of each architecture last.
    const ALL: [Self; 9] = [
        Self::Scalar,
        Self::Simd128,
        Self::Neon,
        Self::Dotprod,
        Self::I8mm,
        Self::Avx2,
        Self::AvxVnni,
        Self::Avx512,
        Self::Amx,
    ];

    /// Returns all levels that this machine supports, the fastest last.
    pub fn available() -> Vec<Self> {
        Self::ALL
            .into_iter()
            .filter(|level| Isa::detect(*level).is_some())
            .collect()
    }

    /// Returns the level named by the environment variable `TABLA_CPU`, or the fastest one.
    ///
    /// # Errors
    ///
    /// `Argument` if the variable names no level, `Unsupported` if the machine does not support it.
    pub fn best() -> Result<Self> {
        let best = Self::available().pop().unwrap_or(Self::Scalar);
        match std::env::var("TABLA_CPU") {
            Ok(name) if !name.is_empty() => Self::named(&name),
            _ => Ok(best),
        }
    }

    /// Name in profiles and in `TABLA_CPU`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Simd128 => "simd128",
            Self::Neon => "neon",
            Self::Dotprod => "dotprod",
            Self::I8mm => "i8mm",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avxvnni",
            Self::Avx512 => "avx512",
            Self::Amx => "amx",
        }
    }

    /// Returns the level with this name, as in `TABLA_CPU`.
    ///
    /// # Errors
    ///
    /// `Argument` for an unknown name, `Unsupported` for a level that this machine does not
    /// support.
    pub fn named(name: &str) -> Result<Self> {
        let Some(level) = Self::ALL.into_iter().find(|l| l.name() == name) else {
            let known = Self::ALL.map(Self::name).join(", ");
            bail!(
                Argument,
                "unknown CPU level {name:?} in TABLA_CPU; known levels: {known}"
            );
        };
        Isa::of(level)?;
        Ok(level)
    }
}

/// Proof of a level that this machine supports; kernels are instantiated by it.
#[derive(Clone, Copy, Debug)]
pub struct Isa(pub(super) Proof);

#[derive(Clone, Copy, Debug)]
pub(super) enum Proof {
    Scalar,
    #[cfg(target_feature = "simd128")]
    Simd128,
    #[cfg(target_arch = "aarch64")]
    Neon,
    #[cfg(target_arch = "aarch64")]
    Dotprod,
    #[cfg(target_arch = "aarch64")]
    I8mm,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Amx(amx::Amx),
}

impl Isa {
    /// Returns the proof that this machine supports the level.
    pub fn of(level: Level) -> Result<Self> {
        match Self::detect(level) {
            Some(isa) => Ok(isa),
            None => bail!(
                Unsupported,
                "this processor does not support {}",
                level.name()
            ),
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn detect(level: Level) -> Option<Self> {
        let avx2 = HAS_AVX2
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let avx512 = avx2
            && HAS_ALL_LEVELS
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vnni");
        match level {
            Level::Scalar => Some(Self(Proof::Scalar)),
            Level::Avx2 => avx2.then_some(Self(Proof::Avx2)),
            Level::AvxVnni => {
                (avx2 && is_x86_feature_detected!("avxvnni")).then_some(Self(Proof::AvxVnni))
            }
            Level::Avx512 => avx512.then_some(Self(Proof::Avx512)),
            Level::Amx if avx512 => amx::detect().map(|amx| Self(Proof::Amx(amx))),
            Level::Amx | Level::Simd128 | Level::Neon | Level::Dotprod | Level::I8mm => None,
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn detect(level: Level) -> Option<Self> {
        let neon = is_aarch64_feature_detected!("neon");
        let dotprod = neon && is_aarch64_feature_detected!("dotprod");
        let i8mm = dotprod && is_aarch64_feature_detected!("i8mm");
        match level {
            Level::Scalar => Some(Self(Proof::Scalar)),
            Level::Neon => neon.then_some(Self(Proof::Neon)),
            Level::Dotprod => dotprod.then_some(Self(Proof::Dotprod)),
            Level::I8mm => i8mm.then_some(Self(Proof::I8mm)),
            Level::Simd128 | Level::Avx2 | Level::AvxVnni | Level::Avx512 | Level::Amx => None,
        }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn detect(level: Level) -> Option<Self> {
        match level {
            Level::Scalar => Some(Self(Proof::Scalar)),
            #[cfg(target_feature = "simd128")]
            Level::Simd128 => Some(Self(Proof::Simd128)),
            _ => None,
        }
    }

    /// [`Rows::SIGNED_OFFSET`] of the level.
    pub(crate) fn signed_offset(self) -> i32 {
        match self.0 {
            Proof::Scalar => Scalar::SIGNED_OFFSET,
            #[cfg(target_feature = "simd128")]
            Proof::Simd128 => Simd128::SIGNED_OFFSET,
            #[cfg(target_arch = "aarch64")]
            Proof::Neon | Proof::Dotprod | Proof::I8mm => {
                neon::Neon::<{ neon::SMLAL }>::SIGNED_OFFSET
            }
            #[cfg(target_arch = "x86_64")]
            Proof::Avx2 => avx2::Avx2::<false>::SIGNED_OFFSET,
            #[cfg(target_arch = "x86_64")]
            Proof::AvxVnni => avx2::Avx2::<true>::SIGNED_OFFSET,
            #[cfg(target_arch = "x86_64")]
            Proof::Avx512 | Proof::Amx(_) => avx512::Avx512::SIGNED_OFFSET,
        }
    }

    /// [`Rows::TOKENS`] of the level.
    pub(crate) fn tile_tokens(self) -> u32 {
        let tokens = match self.0 {
            Proof::Scalar => Scalar::TOKENS,
            #[cfg(target_feature = "simd128")]
            Proof::Simd128 => Simd128::TOKENS,
            #[cfg(target_arch = "aarch64")]
            Proof::Neon | Proof::Dotprod | Proof::I8mm => neon::Neon::<{ neon::SMLAL }>::TOKENS,
            #[cfg(target_arch = "x86_64")]
            Proof::Avx2 | Proof::AvxVnni => avx2::Avx2::<false>::TOKENS,
            #[cfg(target_arch = "x86_64")]
            Proof::Avx512 | Proof::Amx(_) => avx512::Avx512::TOKENS,
        };
        u32::try_from(tokens).expect("at most 16")
    }

    /// [`Rows::PANELS`] of the level.
    pub(crate) fn panels(self) -> bool {
        !matches!(self.0, Proof::Scalar)
    }

    /// Runs a probe compiled for this instruction set.
    pub fn probe<P: Probe>(self, probe: P) -> u64 {
        match self.0 {
            Proof::Scalar => probe.run(Scalar),
            #[cfg(target_feature = "simd128")]
            Proof::Simd128 => probe.run(Simd128),
            // SAFETY: detection created the proof, here and below.
            #[cfg(target_arch = "aarch64")]
            Proof::Neon => unsafe { probe.neon() },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Proof::Dotprod => unsafe { probe.dotprod() },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Proof::I8mm => unsafe { probe.i8mm() },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Proof::Avx2 => unsafe { probe.avx2() },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Proof::AvxVnni => unsafe { probe.avx_vnni() },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Proof::Avx512 | Proof::Amx(_) => unsafe { probe.avx512() },
        }
    }

    /// Returns a probe of bf16 products, if the processor has instructions for them.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn probe_bf16(self) -> Option<fn(u32) -> u64> {
        if let Proof::Amx(_) = self.0 {
            return Some(|rounds| {
                // SAFETY: this closure is only reached through an `Isa` that detection created.
                unsafe { amx::probe(rounds) }
            });
        }
        self.has_bf16().then_some(|rounds| {
            // SAFETY: this closure is only reached after detection.
            unsafe { bf16::probe(rounds) }
        })
    }

    /// Kernels of other architectures multiply bf16 in f32.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn probe_bf16(self) -> Option<fn(u32) -> u64> {
        None
    }

    /// Returns whether the level is AVX-512 and the processor has AVX-512 BF16.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn has_bf16(self) -> bool {
        matches!(self.0, Proof::Avx512) && is_x86_feature_detected!("avx512bf16")
    }

    /// Returns the proof of AMX, if this level has it.
    #[cfg(target_arch = "x86_64")]
    pub fn amx(self) -> Option<amx::Amx> {
        match self.0 {
            Proof::Amx(amx) => Some(amx),
            _ => None,
        }
    }

    /// Returns the function that unpacks chunks of this storage type to integers, compiled for this
    /// instruction set.
    pub(crate) fn unpack<T: Ints>(self) -> Unpack {
        match self.0 {
            Proof::Scalar => T::unpack,
            // SIMD128 is enabled in all functions.
            #[cfg(target_feature = "simd128")]
            Proof::Simd128 => T::unpack,
            // NEON is enabled in all functions.
            #[cfg(target_arch = "aarch64")]
            Proof::Neon | Proof::Dotprod | Proof::I8mm => T::unpack,
            // Wider vectors are not worth another copy.
            #[cfg(target_arch = "x86_64")]
            Proof::Avx2 | Proof::AvxVnni | Proof::Avx512 | Proof::Amx(_) if const { HAS_AVX2 } => {
                |m, row, first, out| {
                    // SAFETY: this closure is only reached through an `Isa` that detection created, and all
                    // of these levels include AVX2.
                    unsafe { avx2::unpack::<T>(m, row, first, out) }
                }
            }
            // Detection creates no proof of levels without kernels.
            #[cfg(target_arch = "x86_64")]
            Proof::Avx2 | Proof::AvxVnni | Proof::Avx512 | Proof::Amx(_) => T::unpack,
        }
    }

    /// Returns the function that decodes chunks of this storage type to floats, compiled for this
    /// instruction set.
    pub(crate) fn decode<T: Floats>(self) -> Decode {
        match self.0 {
            Proof::Scalar => T::decode,
            // SIMD128 is enabled in all functions.
            #[cfg(target_feature = "simd128")]
            Proof::Simd128 => T::decode,
            // NEON is enabled in all functions.
            #[cfg(target_arch = "aarch64")]
            Proof::Neon | Proof::Dotprod | Proof::I8mm => T::decode,
            // Wider vectors are not worth another copy.
            #[cfg(target_arch = "x86_64")]
            Proof::Avx2 | Proof::AvxVnni | Proof::Avx512 | Proof::Amx(_) if const { HAS_AVX2 } => {
                |m, row, first, out| {
                    // SAFETY: this closure is only reached through an `Isa` that detection created, and all
                    // of these levels include AVX2.
                    unsafe { avx2::decode::<T>(m, row, first, out) }
                }
            }
            // Detection creates no proof of levels without kernels.
            #[cfg(target_arch = "x86_64")]
            Proof::Avx2 | Proof::AvxVnni | Proof::Avx512 | Proof::Amx(_) => T::decode,
        }
    }
}
