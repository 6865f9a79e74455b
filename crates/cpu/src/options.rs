//! Options for linking.

use super::simd::Level;
use tabla_core::device::Precision;
use tabla_core::error::{Result, bail};
use tabla_core::reserve;

tabla_core::options! {
    /// Options for linking tables to the CPU.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct LinkOptions {
        /// Number of threads that replay a table. Default 0: one thread per core available to the
        /// process, or a single thread if a token is less work than the barriers. Builds without threads have one.
        pub threads: u32,
        /// Instruction set; default [`Level::best`].
        pub level: Option<Level>,
        /// Whether activations may be quantized to int8 for products with quantized weights.
        pub precision: Precision,
        /// Maximum number of bytes of the weights that are packed into panels while linking, in memory of
        /// their own, if their type supports it. Others are used in place: first experts, of which a token
        /// reads a few. Default 0: all weights are used in place.
        pub packed_bytes: u64,
    }
}

/// Maximum number of threads; more than the cores of any machine.
const THREADS_MAX: usize = 1024;

impl LinkOptions {
    pub(super) fn level_or_best(&self) -> Result<Level> {
        self.level.map_or_else(Level::best, Ok)
    }

    pub(super) fn thread_count(&self) -> Result<usize> {
        let threads = reserve::threads(self.threads);
        if threads > THREADS_MAX {
            bail!(Argument, "too many threads: {threads}, limit {THREADS_MAX}");
        }
        Ok(threads)
    }
}
