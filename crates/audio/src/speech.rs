//! Ranges of speech from the probabilities of a voice activity detector.

use crate::mel::SAMPLE_RATE;
use crate::voice::VOICE_WINDOW;
use std::ops::Range;

/// Samples per millisecond.
const MILLISECOND: usize = SAMPLE_RATE as usize / 1000;
/// Difference of the thresholds of start and end.
const HYSTERESIS: f32 = 0.15;
/// Minimum of the threshold of the end.
const MIN_END_THRESHOLD: f32 = 0.01;

/// Rules of [`speech_ranges`]. The defaults are those of whisper.cpp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VoiceOptions {
    /// Probability at which speech starts. Default 0.5, range 0.01 to 1.
    pub threshold: f32,
    /// Milliseconds of silence that end speech. Default 100.
    pub min_silence_ms: u32,
    /// Speech that is not longer than this number of milliseconds is dropped, before padding. Default 250.
    pub min_speech_ms: u32,
    /// Ranges with a gap of fewer milliseconds are merged, before padding. Default 200.
    pub merge_gap_ms: u32,
    /// Milliseconds of padding before and after each range. Default 30.
    pub padding_ms: u32,
}

impl Default for VoiceOptions {
    fn default() -> Self {
        Self {
            threshold: 0.5,
            min_silence_ms: 100,
            min_speech_ms: 250,
            merge_gap_ms: 200,
            padding_ms: 30,
        }
    }
}

impl VoiceOptions {
    /// Returns the probability below which a window counts as silence: `threshold - 0.15`, at least 0.01.
    pub fn end_threshold(&self) -> f32 {
        (self.threshold - HYSTERESIS).max(MIN_END_THRESHOLD)
    }
}

/// Returns the ranges of speech in units of samples at 16 kHz, in ascending order. They do not overlap.
///
/// `probabilities` has one value per [`VOICE_WINDOW`] samples. A range starts with a window of at least
/// `threshold`. It ends at the first window below `end_threshold` of a silence of `min_silence_ms`, which a
/// window of at least `threshold` interrupts. Then short ranges are dropped, near ranges are merged, and
/// padding is added; two ranges with a gap of less than twice the padding share the gap.
///
/// The last range may end up to 511 samples after the recording if its last window was padded.
pub fn speech_ranges(probabilities: &[f32], options: &VoiceOptions) -> Vec<Range<usize>> {
    let len = probabilities.len() * VOICE_WINDOW;
    let samples = |milliseconds: u32| (milliseconds as usize).saturating_mul(MILLISECOND);
    let min_silence = samples(options.min_silence_ms);
    let mut ranges = SpeechRanges {
        min_speech: samples(options.min_speech_ms),
        merge_gap: samples(options.merge_gap_ms),
        ranges: Vec::new(),
    };
    let (mut speech, mut silence) = (None, None);
    for (i, probability) in probabilities.iter().enumerate() {
        let at = i * VOICE_WINDOW;
        if *probability >= options.threshold {
            silence = None;
            speech.get_or_insert(at);
        } else if let Some(start) = speech
            && *probability < options.end_threshold()
        {
            let end = *silence.get_or_insert(at);
            if at - end >= min_silence {
                ranges.add(start..end);
                (speech, silence) = (None, None);
            }
        }
    }
    if let Some(start) = speech {
        ranges.add(start..len);
    }
    pad(&mut ranges.ranges, samples(options.padding_ms), len);
    ranges.ranges
}

/// Ranges before padding.
struct SpeechRanges {
    min_speech: usize,
    merge_gap: usize,
    ranges: Vec<Range<usize>>,
}

impl SpeechRanges {
    /// Adds a range after all others unless it is too short.
    fn add(&mut self, range: Range<usize>) {
        if range.len() <= self.min_speech {
            return;
        }
        match self.ranges.last_mut() {
            Some(last) if range.start - last.end < self.merge_gap => last.end = range.end,
            _ => self.ranges.push(range),
        }
    }
}

/// Adds `padding` samples at both sides of each range, within `0..len`.
fn pad(ranges: &mut [Range<usize>], padding: usize, len: usize) {
    if let Some(first) = ranges.first_mut() {
        first.start = first.start.saturating_sub(padding);
    }
    for i in 1..ranges.len() {
        let gap = ranges[i].start - ranges[i - 1].end;
        let padding = padding.min(gap / 2);
        ranges[i - 1].end += padding;
        ranges[i].start -= padding;
    }
    if let Some(last) = ranges.last_mut() {
        last.end = last.end.saturating_add(padding).min(len);
    }
}
