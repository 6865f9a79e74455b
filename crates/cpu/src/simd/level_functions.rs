//! Functions compiled for a level: macros because an attribute cannot depend on a type.
//!
//! They are methods of the traits of kernels, tasks and probes. The compiler puts a method into the codegen unit of
//! the module of its type, so that units of all kernels are compiled in parallel. Functions with a type parameter
//! would all be in the unit of the level.

/// Calls a macro with every level that has vectors: the name of its functions, its proof, and its features.
#[cfg(target_arch = "x86_64")]
macro_rules! for_each_level {
    ($define:ident) => {
        $define!(avx2, $crate::simd::avx2::Avx2<false>, "avx2,fma,f16c");
        $define!(
            avx_vnni,
            $crate::simd::avx2::Avx2<true>,
            "avx2,fma,f16c,avxvnni"
        );
        $define!(
            avx512,
            $crate::simd::avx512::Avx512,
            "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"
        );
    };
}

/// Calls a macro with every level that has vectors: the name of its functions, its proof, and its features.
#[cfg(target_arch = "aarch64")]
macro_rules! for_each_level {
    ($define:ident) => {
        $define!(
            neon,
            $crate::simd::neon::Neon<{ $crate::simd::neon::SMLAL }>,
            "neon"
        );
        $define!(
            dotprod,
            $crate::simd::neon::Neon<{ $crate::simd::neon::SDOT }>,
            "neon,dotprod"
        );
        $define!(
            i8mm,
            $crate::simd::neon::Neon<{ $crate::simd::neon::SMMLA }>,
            "neon,dotprod,i8mm"
        );
    };
}

/// Defines the entry point of a kernel for a level.
macro_rules! define_entry {
    ($level:ident, $proof:ty, $features:literal) => {
        /// Runs one thread's part of the operation, compiled for this level.
        ///
        /// # Safety
        ///
        /// The processor must have the features of the level.
        #[target_feature(enable = $features)]
        unsafe fn $level(args: Args<'_>) {
            #[cfg(target_arch = "x86_64")]
            crate::simd::stack::align();
            // SAFETY: the caller guarantees the features.
            Self::run(unsafe { <$proof>::assume() }, args);
        }
    };
}

/// Defines the function of a task for a level.
macro_rules! define_task {
    ($level:ident, $proof:ty, $features:literal) => {
        /// Runs the task in a function of its own, compiled for this level.
        ///
        /// # Safety
        ///
        /// The processor must have the features of the level.
        #[target_feature(enable = $features)]
        #[inline(never)]
        unsafe fn $level(self, s: S) {
            #[cfg(target_arch = "x86_64")]
            crate::simd::stack::align();
            self.run(s);
        }
    };
}

/// Defines the function of a probe for a level.
macro_rules! define_probe {
    ($level:ident, $proof:ty, $features:literal) => {
        /// Runs the probe, compiled for this level.
        ///
        /// # Safety
        ///
        /// The processor must have the features of the level.
        #[doc(hidden)]
        #[target_feature(enable = $features)]
        unsafe fn $level(self) -> u64 {
            // SAFETY: the caller guarantees the features.
            self.run(unsafe { <$proof>::assume() })
        }
    };
}
