//! Energy gate: the parts of a recording that are not silent.

use crate::mel::SAMPLE_RATE;
use std::ops::Range;

/// Default threshold of [`loud_ranges`], in dBFS.
pub const DEFAULT_THRESHOLD: f32 = -45.0;
/// Samples whose energy is added up: 50 ms.
const BLOCK: usize = SAMPLE_RATE as usize / 20;
/// Blocks of a window: 0.5 s.
const WINDOW: usize = 10;
/// Samples of padding before and after each range: 0.2 s.
const PADDING: usize = SAMPLE_RATE as usize / 5;

/// Returns the ranges of samples at 16 kHz in which the root mean square over 0.5 s is above `threshold`,
/// with a padding of 0.2 s, in ascending order. They do not overlap.
///
/// The threshold is in dBFS: 0 is the level of a constant 1.0, a sine of amplitude 1.0 has -3.01. A
/// recording shorter than 0.5 s is one window. Samples that are not finite count as silence.
pub fn loud_ranges(samples: &[f32], threshold: f32) -> Vec<Range<usize>> {
    let limit = 10f64.powf(f64::from(threshold) / 10.0);
    let energy = |block: &[f32]| -> f64 {
        let finite = block.iter().filter(|x| x.is_finite());
        finite.map(|x| f64::from(*x).powi(2)).sum()
    };
    let blocks: Vec<f64> = samples.chunks(BLOCK).map(energy).collect();
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let last = blocks.len().saturating_sub(WINDOW);
    for first in 0..=last {
        let energy: f64 = blocks.iter().skip(first).take(WINDOW).sum();
        let start = first * BLOCK;
        let end = samples.len().min(start + WINDOW * BLOCK);
        if energy <= limit * (end - start) as f64 {
            continue;
        }
        let start = start.saturating_sub(PADDING);
        let end = samples.len().min(end + PADDING);
        match ranges.last_mut() {
            Some(last) if last.end >= start => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    ranges
}
