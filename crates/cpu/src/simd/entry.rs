//! Kernel entry points: one function per kernel and level.

#[cfg(target_arch = "x86_64")]
use super::amx::{self, Amx};
#[cfg(target_arch = "x86_64")]
use super::avx2;
#[cfg(target_arch = "x86_64")]
use super::avx512;
#[cfg(target_arch = "x86_64")]
use super::bf16::{self, Bf16};
#[cfg(target_arch = "x86_64")]
use super::levels::HAS_ALL_LEVELS;
use super::levels::{Isa, Proof};
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::scalar::Scalar;
use super::vectors::{Simd, Task};
use crate::memory::Args;
use std::marker::PhantomData;

/// Entry point of a kernel, called by a step of a linked table.
pub(crate) type Entry = fn(Args<'_>);

/// A kernel, written once for all instruction sets. `run` is `#[inline(always)]`, so that its plain
/// loops are also compiled for the instruction set.
pub(crate) trait Kernel {
    /// Whether it multiplies bytes. Other kernels are not compiled again for a level that differs
    /// from another one only in products of bytes.
    const BYTE_PRODUCTS: bool = false;

    /// Runs one thread's part of the operation.
    fn run<S: Simd>(s: S, args: Args<'_>);
}

#[cfg(target_arch = "x86_64")]
/// A kernel for instructions that only some processors of a level have.
pub(crate) trait ProofKernel<P> {
    /// Runs one thread's part of the operation.
    fn run(proof: P, args: Args<'_>);
}

/// A kernel and its arguments as a task of a level.
struct KernelTask<'a, K> {
    args: Args<'a>,
    kernel: PhantomData<K>,
}

impl<'a, K> KernelTask<'a, K> {
    fn new(args: Args<'a>) -> Self {
        Self {
            args,
            kernel: PhantomData,
        }
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl<K: Kernel, S: Simd> Task<S> for KernelTask<'_, K> {
    #[inline(always)]
    fn run(self, s: S) {
        K::run(s, self.args);
    }
}

#[cfg(target_arch = "x86_64")]
impl<K: ProofKernel<P>, P> Task<P> for KernelTask<'_, ProofMarker<K>> {
    #[inline(always)]
    fn run(self, proof: P) {
        K::run(proof, self.args);
    }
}

/// Marker for a [`ProofKernel`].
#[cfg(target_arch = "x86_64")]
struct ProofMarker<K>(PhantomData<K>);

impl Isa {
    /// Returns the kernel compiled for the scalar level.
    pub(crate) fn scalar_entry<K: Kernel>() -> Entry {
        |args| K::run(Scalar, args)
    }

    /// Returns the kernel compiled for this instruction set.
    pub(crate) fn entry<K: Kernel>(self) -> Entry {
        match self.0 {
            Proof::Scalar => Self::scalar_entry::<K>(),
            #[cfg(target_arch = "aarch64")]
            Proof::I8mm if const { K::BYTE_PRODUCTS } => |args| {
                // SAFETY: this closure is only reached through an `Isa` that detection created.
                unsafe { neon::i8mm::enter(KernelTask::<K>::new(args)) }
            },
            #[cfg(target_arch = "aarch64")]
            Proof::Dotprod if const { K::BYTE_PRODUCTS } => |args| {
                // SAFETY: this closure is only reached through an `Isa` that detection created.
                unsafe { neon::dotprod::enter(KernelTask::<K>::new(args)) }
            },
            #[cfg(target_arch = "aarch64")]
            Proof::Neon | Proof::Dotprod | Proof::I8mm => |args| {
                // SAFETY: this closure is only reached through an `Isa` that detection created.
                unsafe { neon::plain::enter(KernelTask::<K>::new(args)) }
            },
            #[cfg(target_arch = "x86_64")]
            Proof::AvxVnni if const { K::BYTE_PRODUCTS && HAS_ALL_LEVELS } => |args| {
                // SAFETY: this closure is only reached through an `Isa` that detection created.
                unsafe { avx2::vnni::enter(KernelTask::<K>::new(args)) }
            },
            #[cfg(target_arch = "x86_64")]
            Proof::Avx2 | Proof::AvxVnni => |args| {
                // SAFETY: this closure is only reached through an `Isa` that detection created.
                unsafe { avx2::plain::enter(KernelTask::<K>::new(args)) }
            },
            #[cfg(target_arch = "x86_64")]
            Proof::Avx512 | Proof::Amx(_) if const { HAS_ALL_LEVELS } => |args| {
                // SAFETY: this closure is only reached through an `Isa` that detection created.
                unsafe { avx512::enter(KernelTask::<K>::new(args)) }
            },
            #[cfg(target_arch = "x86_64")]
            Proof::Avx512 | Proof::Amx(_) => unreachable!("not detected without its kernels"),
        }
    }

    /// Returns the kernel that uses AMX tiles, if this level has them.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn tiles<K: ProofKernel<Amx>>(self) -> Option<Entry> {
        let Proof::Amx(_) = self.0 else {
            return None;
        };
        Some(|args| {
            // SAFETY: this closure is only reached through an `Isa` that detection created.
            unsafe { amx::enter(KernelTask::<ProofMarker<K>>::new(args)) }
        })
    }

    /// Returns the kernel that uses AVX-512 BF16, if the level is AVX-512 and the processor has it.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn bf16<K: ProofKernel<Bf16>>(self) -> Option<Entry> {
        self.has_bf16().then_some(|args| {
            // SAFETY: this closure is only reached after detection.
            unsafe { bf16::enter(KernelTask::<ProofMarker<K>>::new(args)) }
        })
    }
}
