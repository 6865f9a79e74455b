//! Kernel entry points: one function per kernel and level.

#[cfg(target_arch = "x86_64")]
use super::amx::{self, Amx};
#[cfg(target_arch = "x86_64")]
use super::bf16::{self, Bf16};
#[cfg(target_feature = "simd128")]
use super::levels::HAS_SCALAR;
#[cfg(target_arch = "x86_64")]
use super::levels::{HAS_ALL_LEVELS, HAS_AVX2};
use super::levels::{Isa, Proof};
use super::scalar::Scalar;
#[cfg(target_feature = "simd128")]
use super::simd128::Simd128;
use super::vectors::Simd;
#[cfg(target_arch = "x86_64")]
use super::vectors::Task;
use crate::memory::Args;
#[cfg(target_arch = "x86_64")]
use std::marker::PhantomData;

/// Entry point of a kernel, called by a step of a linked table.
pub(crate) type Entry = fn(Args<'_>);

/// A kernel, written once for all instruction sets. `run` is `#[inline(always)]`, so that its plain
/// loops are also compiled for the instruction set.
pub(crate) trait Kernel {
    /// What it uses of a level: it is compiled for the levels that differ in it.
    const USES: Uses = Uses::Loops;

    /// Runs one thread's part of the operation.
    fn run<S: Simd>(s: S, args: Args<'_>);

    /// Runs one thread's part of the operation, compiled for the scalar level.
    fn scalar(args: Args<'_>) {
        Self::run(Scalar, args);
    }

    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    for_each_level!(define_entry);
}

/// What a kernel uses of a level.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uses {
    /// Plain loops, or vectors where wider ones are not worth another copy. AVX2 serves AVX-512.
    Loops,
    /// Vectors of floats.
    Vectors,
    /// Products of bytes.
    ByteProducts,
}

#[cfg(target_arch = "x86_64")]
/// A kernel for instructions that only some processors of a level have.
pub(crate) trait ProofKernel<P> {
    /// Runs one thread's part of the operation.
    fn run(proof: P, args: Args<'_>);
}

/// A kernel and its arguments as a task.
#[cfg(target_arch = "x86_64")]
struct KernelTask<'a, K> {
    args: Args<'a>,
    kernel: PhantomData<K>,
}

#[cfg(target_arch = "x86_64")]
impl<'a, K> KernelTask<'a, K> {
    fn new(args: Args<'a>) -> Self {
        Self {
            args,
            kernel: PhantomData,
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl<K: ProofKernel<P>, P> Task<P> for KernelTask<'_, K> {
    #[inline(always)]
    fn run(self, proof: P) {
        K::run(proof, self.args);
    }
}

impl Isa {
    /// Returns the kernel compiled for this instruction set.
    pub(crate) fn entry<K: Kernel>(self) -> Entry {
        match self.0 {
            #[cfg(target_feature = "simd128")]
            Proof::Simd128 => |args| K::run(Simd128, args),
            #[cfg(target_feature = "simd128")]
            Proof::Scalar if const { !HAS_SCALAR && !matches!(K::USES, Uses::Vectors) } => {
                |args| K::run(Simd128, args)
            }
            Proof::Scalar => K::scalar,
            #[cfg(target_arch = "aarch64")]
            Proof::I8mm if const { matches!(K::USES, Uses::ByteProducts) } => |args| {
                // SAFETY: this closure is only reached through an `Isa` that detection created.
                unsafe { K::i8mm(args) }
            },
            #[cfg(target_arch = "aarch64")]
            Proof::Dotprod if const { matches!(K::USES, Uses::ByteProducts) } => |args| {
                // SAFETY: this closure is only reached through an `Isa` that detection created.
                unsafe { K::dotprod(args) }
            },
            #[cfg(target_arch = "aarch64")]
            Proof::Neon | Proof::Dotprod | Proof::I8mm => |args| {
                // SAFETY: this closure is only reached through an `Isa` that detection created.
                unsafe { K::neon(args) }
            },
            #[cfg(target_arch = "x86_64")]
            Proof::AvxVnni if const { matches!(K::USES, Uses::ByteProducts) && HAS_ALL_LEVELS } => {
                |args| {
                    // SAFETY: this closure is only reached through an `Isa` that detection created.
                    unsafe { K::avx_vnni(args) }
                }
            }
            #[cfg(target_arch = "x86_64")]
            Proof::Avx512 | Proof::Amx(_)
                if const { !matches!(K::USES, Uses::Loops) && HAS_ALL_LEVELS } =>
            {
                |args| {
                    // SAFETY: this closure is only reached through an `Isa` that detection created.
                    unsafe { K::avx512(args) }
                }
            }
            #[cfg(target_arch = "x86_64")]
            Proof::Avx2 | Proof::AvxVnni | Proof::Avx512 | Proof::Amx(_) if const { HAS_AVX2 } => {
                |args| {
                    // SAFETY: this closure is only reached through an `Isa` that detection created, and all
                    // of these levels include AVX2.
                    unsafe { K::avx2(args) }
                }
            }
            // Detection creates no proof of levels without kernels.
            #[cfg(target_arch = "x86_64")]
            Proof::Avx2 | Proof::AvxVnni | Proof::Avx512 | Proof::Amx(_) => K::scalar,
        }
    }

    /// Returns the kernel that uses AMX tiles, if this level has them.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn tiles<K: ProofKernel<Amx>>(self) -> Option<Entry> {
        let Proof::Amx(_) = self.0 else {
            return None;
        };
        if const { !HAS_ALL_LEVELS } {
            return None;
        }
        Some(|args| {
            // SAFETY: this closure is only reached through an `Isa` that detection created.
            unsafe { amx::enter(KernelTask::<K>::new(args)) }
        })
    }

    /// Returns the kernel that uses AVX-512 BF16, if the level is AVX-512 and the processor has it.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn bf16<K: ProofKernel<Bf16>>(self) -> Option<Entry> {
        if const { !HAS_ALL_LEVELS } {
            return None;
        }
        self.has_bf16().then_some(|args| {
            // SAFETY: this closure is only reached after detection.
            unsafe { bf16::enter(KernelTask::<K>::new(args)) }
        })
    }
}
