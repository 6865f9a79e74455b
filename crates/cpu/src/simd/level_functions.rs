//! Functions compiled for a level: a macro because an attribute cannot depend on a type.

/// Defines `enter`, `probe` and `outlined` for the proof type of a level, with the expression that
/// creates a proof and the features that it proves.
macro_rules! level_functions {
    ($proof:ty, $new:expr, $features:literal) => {
        /// Runs a task compiled for this level.
        ///
        /// # Safety
        ///
        /// The processor must have the features of this level.
        #[target_feature(enable = $features)]
        pub(in crate::simd) unsafe fn enter<T: crate::simd::Task<$proof>>(task: T) {
            #[cfg(target_arch = "x86_64")]
            crate::simd::stack::align();
            task.run($new);
        }

        /// Runs a probe compiled for this level.
        ///
        /// # Safety
        ///
        /// As for [`enter`].
        #[target_feature(enable = $features)]
        pub(in crate::simd) unsafe fn probe<P: crate::simd::Probe>(probe: P) -> u64 {
            probe.run($new)
        }

        /// Runs a task in a function of its own, compiled for this level.
        ///
        /// # Safety
        ///
        /// As for [`enter`].
        #[target_feature(enable = $features)]
        #[inline(never)]
        pub(in crate::simd) unsafe fn outlined<S, T: crate::simd::Task<S>>(s: S, task: T) {
            #[cfg(target_arch = "x86_64")]
            crate::simd::stack::align();
            task.run(s);
        }
    };
}
