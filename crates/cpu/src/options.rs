//! Options of linking.

use super::simd::Level;
use tabla_core::device::Precision;
use tabla_core::error::{Result, bail};

/// How tables are linked to the CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Threads that replay a table; 0: one for each core that the process may use, and one alone
    /// where a token is less work than waiting for others.
    pub threads: u32,
    /// The instruction set; `None`: what [`Level::best`] gives.
    pub level: Option<Level>,
    /// Whether activations may go to int8 before a quantized product.
    pub precision: Precision,
    /// Whether weights whose type has panels are rearranged while linking, in memory of their own;
    /// otherwise they are used where they are.
    pub packed: bool,
}

/// Threads at most: beyond any machine's cores a number is a mistake.
const THREADS_MAX: usize = 1024;

impl Options {
    pub(super) fn level(&self) -> Result<Level> {
        self.level.map_or_else(Level::best, Ok)
    }

    pub(super) fn threads(&self) -> Result<usize> {
        let threads = match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n as usize,
        };
        if threads > THREADS_MAX {
            bail!(
                Argument,
                "{threads} threads are over the limit of {THREADS_MAX}"
            );
        }
        Ok(threads)
    }
}
