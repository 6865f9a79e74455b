//! Measures the memory bandwidth, as the roof of a roofline chart.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};
use tabla::reserve;

/// Number of bytes of the buffer: more than the caches of most processors.
const BYTES: usize = 256 << 20;
/// Duration of the measurement.
const TIME: Duration = Duration::from_millis(150);

/// Returns the bytes per second that all threads read, the best of several passes; `None` without enough memory.
pub(crate) fn measure() -> Option<f64> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(BYTES / size_of::<u64>()).ok()?;
    buffer.resize(BYTES / size_of::<u64>(), 1_u64);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let part = buffer.len().div_ceil(threads);
    let begun = Instant::now();
    let mut best: f64 = 0.0;
    while begun.elapsed() < TIME {
        let pass = Instant::now();
        thread::scope(|scope| {
            let mut parts = buffer.chunks(part).map(|part| {
                let read =
                    || black_box(part.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
                reserve::thread("tabla-bandwidth")
                    .and_then(|thread| thread.spawn_scoped(scope, read))
                    .ok()
            });
            parts.try_for_each(|started| started.map(drop))
        })?;
        #[expect(clippy::cast_precision_loss, reason = "a rate for display")]
        let rate = BYTES as f64 / pass.elapsed().as_secs_f64();
        best = best.max(rate);
    }
    Some(best)
}
