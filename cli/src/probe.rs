//! What memory can deliver: every thread sums over its part of a buffer that no cache holds.

use crate::failure::Failure;
use memmap2::MmapMut;
use std::time::Instant;

/// Bytes of the buffer at least.
const BUFFER_BYTES_MIN: u64 = 512 << 20;
/// How many times the buffer is larger than the last-level cache.
const CACHES: u64 = 4;
/// Bytes that one turn of the loop adds up, as eight sums that do not wait for each other.
const STRIDE: usize = 64;

/// A buffer in parts, one for each thread, and the rate of every round.
pub(crate) struct Probe {
    parts: Vec<MmapMut>,
    /// Bytes per second.
    rates: Vec<f64>,
}

impl Probe {
    /// A buffer for this many threads and a last-level cache of this size.
    pub(crate) fn new(threads: u32, cache_bytes: u64) -> Result<Self, Failure> {
        let threads = u64::from(threads.max(1));
        let bytes = BUFFER_BYTES_MIN.max(cache_bytes.saturating_mul(CACHES));
        let part = usize::try_from(bytes / threads).unwrap_or(usize::MAX);
        let part = (part / STRIDE).max(1).saturating_mul(STRIDE);
        let fail = |cause| Failure::Program {
            message: format!("cannot get {bytes} bytes to measure the memory with"),
            cause: Some(cause),
        };
        let parts = (0..threads).map(|_| MmapMut::map_anon(part));
        let mut parts = parts.collect::<Result<Vec<_>, _>>().map_err(fail)?;
        // Weights lie in huge pages too where the system has them; a refusal costs a few per cent.
        #[cfg(target_os = "linux")]
        for part in &parts {
            let _ = part.advise(memmap2::Advice::HugePage);
        }
        std::thread::scope(|scope| {
            for part in &mut parts {
                scope.spawn(|| part.fill(1));
            }
        });
        Ok(Self {
            parts,
            rates: Vec::new(),
        })
    }

    /// Reads the buffer once.
    pub(crate) fn round(&mut self) {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for part in &self.parts {
                scope.spawn(|| std::hint::black_box(sum(part)));
            }
        });
        let seconds = start.elapsed().as_secs_f64();
        let bytes: usize = self.parts.iter().map(|part| part.len()).sum();
        if seconds > 0.0 {
            self.rates.push(bytes as f64 / seconds);
        }
    }

    /// Bytes per second of every round.
    pub(crate) fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// Bytes per second of the best round.
    pub(crate) fn best(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }
}

fn sum(bytes: &[u8]) -> u64 {
    let mut sums = [0_u64; STRIDE / size_of::<u64>()];
    for stride in bytes.as_chunks::<STRIDE>().0 {
        for (sum, number) in sums.iter_mut().zip(stride.as_chunks().0) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*number));
        }
    }
    sums.into_iter().fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_read() {
        assert_eq!(sum(&[1; 128]), 16 * 0x0101_0101_0101_0101);
    }
}
