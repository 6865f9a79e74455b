//! Segments of a window, as `whisper/transcribe.py` of OpenAI splits its tokens.

use crate::special::SpecialTokens;
use std::ops::Range;

/// Spectrogram frames per second.
pub const FRAMES_PER_SECOND: u32 = 100;
/// Frames of a full window: 30 seconds.
pub const WINDOW_FRAMES: u32 = 3000;
/// Frames between timestamps.
const TIMESTAMP_FRAMES: u32 = 2;

/// Position of a window in the recording, in frames of 10 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First frame.
    pub seek: u32,
    /// Number of frames with audio: [`WINDOW_FRAMES`], fewer at the end of a recording.
    pub frames: u32,
}

impl Window {
    /// Start in seconds.
    pub fn start(&self) -> f64 {
        f64::from(self.seek) / f64::from(FRAMES_PER_SECOND)
    }

    /// End in seconds.
    pub fn end(&self) -> f64 {
        f64::from(self.seek.saturating_add(self.frames)) / f64::from(FRAMES_PER_SECOND)
    }

    /// Duration in seconds.
    pub fn duration(&self) -> f64 {
        f64::from(self.frames) / f64::from(FRAMES_PER_SECOND)
    }
}

/// Times of a segment and its place among the tokens of the window.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentSpan {
    /// Start in seconds, from the start of the recording.
    pub start: f64,
    /// End in seconds.
    pub end: f64,
    /// Tokens of the segment, timestamps included.
    pub tokens: Range<usize>,
}

/// Segments of a window.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowSegments {
    /// Segments in order. An unfinished segment at the end is left to the next window.
    pub spans: Vec<SegmentSpan>,
    /// Frames from the start of this window to the next; at least 1.
    pub advance_frames: u32,
    /// Whether the tokens end in text and one timestamp: the rest of the window has no speech.
    pub is_finished: bool,
}

/// Splits the tokens of a window into segments. `tokens` has no `eot`.
///
/// A segment ends at two timestamps in a row. Without such a pair, all tokens are one segment.
///
/// Two cases differ from OpenAI's code, which the rules of timestamps exclude: a segment that starts
/// with text starts with the window, and a window that ends at its start is skipped.
pub fn split_window(tokens: &[u32], window: &Window, special: &SpecialTokens) -> WindowSegments {
    let is_timestamp = |token: &u32| special.is_timestamp(*token);
    let is_finished = match tokens {
        [.., text, end] => !is_timestamp(text) && is_timestamp(end),
        _ => false,
    };
    let pairs = (1..tokens.len()).filter(|&at| tokens[at - 1..=at].iter().all(is_timestamp));
    let mut ends: Vec<usize> = pairs.collect();
    if ends.is_empty() {
        let last = tokens.iter().rfind(|token| is_timestamp(token));
        let end = last.map_or(0.0, |token| special.seconds(*token));
        let duration = if end > 0.0 { end } else { window.duration() };
        return WindowSegments {
            spans: vec![SegmentSpan {
                start: window.start(),
                end: window.start() + duration,
                tokens: 0..tokens.len(),
            }],
            advance_frames: window.frames.max(1),
            is_finished,
        };
    }
    let last_pair = ends[ends.len() - 1];
    if is_finished {
        ends.push(tokens.len());
    }
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let spans = starts.zip(&ends).map(|(start, &end)| SegmentSpan {
        start: window.start() + special.seconds(tokens[start]),
        end: window.start() + special.seconds(tokens[end - 1]),
        tokens: start..end,
    });
    let spans = spans.collect();
    let last = special.timestamp_position(tokens[last_pair - 1]);
    let advance_frames = match last.saturating_mul(TIMESTAMP_FRAMES) {
        frames if frames > 0 && !is_finished => frames,
        _ => window.frames.max(1),
    };
    WindowSegments {
        spans,
        advance_frames,
        is_finished,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window {
        seek: 1000,
        frames: 3000,
    };

    /// Start and end in units of 20 ms, and tokens.
    type Span = (i32, i32, Range<usize>);

    /// Splits tokens: negative numbers are texts, others timestamps. Returns the segments,
    /// the advance, and whether the window is finished.
    fn split(tokens: &[i32]) -> (Vec<Span>, u32, bool) {
        let special = SpecialTokens::of(51_865).unwrap();
        let id = |&t: &i32| u32::try_from(t).map_or(7, |at| special.first_timestamp + at);
        let ids: Vec<u32> = tokens.iter().map(id).collect();
        let found = split_window(&ids, &WINDOW, &special);
        #[expect(clippy::cast_possible_truncation, reason = "small")]
        let units = |seconds: f64| ((seconds - 10.0) * 50.0).round() as i32;
        let spans = found.spans.iter();
        let spans = spans.map(|s| (units(s.start), units(s.end), s.tokens.clone()));
        (spans.collect(), found.advance_frames, found.is_finished)
    }

    #[test]
    fn pairs_end_segments() {
        // The third segment is unfinished.
        assert_eq!(
            split(&[0, -1, -1, 100, 110, -1, 200, 200, -1]),
            (vec![(0, 100, 0..4), (110, 200, 4..7)], 400, false)
        );
        // A pair at the end.
        assert_eq!(
            split(&[0, -1, 100, 110]),
            (vec![(0, 100, 0..3)], 200, false)
        );
        // A single timestamp at the end.
        assert_eq!(
            split(&[0, -1, 100, 110, -1, 200]),
            (vec![(0, 100, 0..3), (110, 200, 3..6)], 3000, true)
        );
    }

    #[test]
    fn windows_without_pair_are_one_segment() {
        for (tokens, end, finished) in [
            (&[0, -1, 300][..], 300, true),
            (&[0, -1, -1], 1500, false),
            (&[20, -1, -1], 20, false),
            (&[-1, -1], 1500, false),
            (&[], 1500, false),
        ] {
            let count = tokens.len();
            assert_eq!(
                split(tokens),
                (vec![(0, end, 0..count)], 3000, finished),
                "{tokens:?}"
            );
        }
    }

    #[test]
    fn every_window_advances() {
        assert_eq!(split(&[0, 0]), (vec![(0, 0, 0..1)], 3000, false));
        assert_eq!(split(&[-1, 5, 5]), (vec![(0, 5, 0..2)], 10, false));
        let none = Window { seek: 5, frames: 0 };
        let special = SpecialTokens::of(51_864).unwrap();
        assert_eq!(split_window(&[], &none, &special).advance_frames, 1);
    }
}
