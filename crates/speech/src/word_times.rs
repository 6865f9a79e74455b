//! Words of segments: over-long words are cut, and segments get the times of their words.
//!
//! The rules are those of `add_word_timestamps` in `whisper/timing.py` of OpenAI.

use crate::segment::{Segment, Word};
use crate::segments::FRAMES_PER_SECOND;
use crate::words::{TimedWord, merge_punctuation};

/// Marks that end a sentence.
const SENTENCE_ENDS: &str = ".。!！?？";
/// Largest median duration in seconds.
const MEDIAN_MAX: f64 = 0.7;
/// Difference in seconds above which the times of a segment are preferred to those of its words.
const SEGMENT_TOLERANCE: f64 = 0.5;

/// Durations of the words of a window, in seconds.
#[derive(Clone, Copy, Debug)]
struct Durations {
    median: f64,
    max: f64,
}

/// Distributes the words of a window to its segments and repairs their times.
///
/// `words` are those of the text tokens of all segments, ids below `eot`. `last_speech` is the end of
/// the last word before the window, in seconds; [`last_end`](crate::last_end) of the segments is that
/// of the next window. The start and end of a segment become those of its words, unless they differ
/// by more than 0.5 s from a word that is too long.
pub fn add_words(segments: &mut [Segment], mut words: Vec<TimedWord>, eot: u32, last_speech: f64) {
    let Some(first) = segments.first() else {
        return;
    };
    let offset = f64::from(first.seek) / f64::from(FRAMES_PER_SECOND);
    let durations = durations(&words);
    cut_at_sentence_ends(&mut words, durations);
    merge_punctuation(&mut words);
    let mut words = words.into_iter();
    let mut last_speech = last_speech;
    for segment in segments {
        let count = segment.tokens.iter().filter(|token| **token < eot).count();
        segment.words = take_words(&mut words, count, offset);
        if !segment.words.is_empty() {
            cut_after_pause(&mut segment.words, durations, last_speech);
            fit_start(segment, durations);
            fit_end(segment, durations);
            last_speech = segment.end;
        }
    }
}

/// Median of the durations above 0, at most 0.7 s, and twice that.
fn durations(words: &[TimedWord]) -> Durations {
    let all = words.iter().map(|word| word.end - word.start);
    let mut all: Vec<f64> = all.filter(|seconds| *seconds != 0.0).collect();
    all.sort_unstable_by(f64::total_cmp);
    let middle = all.len() / 2;
    let median = match all.get(middle) {
        None => 0.0,
        Some(upper) if all.len() % 2 == 1 => *upper,
        Some(upper) => f64::midpoint(all[middle - 1], *upper),
    };
    let median = median.min(MEDIAN_MAX);
    Durations {
        median,
        max: 2.0 * median,
    }
}

/// Cuts over-long marks that end a sentence, and over-long words after them.
fn cut_at_sentence_ends(words: &mut [TimedWord], durations: Durations) {
    if durations.median == 0.0 {
        return;
    }
    for at in 1..words.len() {
        if words[at].end - words[at].start <= durations.max {
            continue;
        }
        if SENTENCE_ENDS.contains(&*words[at].text) {
            words[at].end = words[at].start + durations.max;
        } else if SENTENCE_ENDS.contains(&*words[at - 1].text) {
            words[at].start = words[at].end - durations.max;
        }
    }
}

/// Takes words of at least `count` tokens. Joined punctuation is left out.
fn take_words(words: &mut impl Iterator<Item = TimedWord>, count: usize, offset: f64) -> Vec<Word> {
    let mut taken = Vec::new();
    let mut tokens = 0;
    while tokens < count
        && let Some(word) = words.next()
    {
        tokens += word.tokens;
        if !word.text.is_empty() {
            taken.push(Word {
                text: word.text,
                start: round_to_hundredths(offset + word.start),
                end: round_to_hundredths(offset + word.end),
                probability: word.probability,
            });
        }
    }
    taken
}

/// Cuts the first two words after a pause if they are over-long.
fn cut_after_pause(words: &mut [Word], durations: Durations, last_speech: f64) {
    let Durations { median, max } = durations;
    let (first, second) = match words {
        [] => return,
        [first] => (first, None),
        [first, second, ..] => (first, Some(second)),
    };
    let both = second.as_ref().map(|second| second.end - first.start);
    let is_long = first.end - first.start > max || both.is_some_and(|both| both > 2.0 * max);
    if first.end - last_speech <= 4.0 * median || !is_long {
        return;
    }
    if let Some(second) = second
        && second.end - second.start > max
    {
        let boundary = (second.end / 2.0).max(second.end - max);
        first.end = boundary;
        second.start = boundary;
    }
    first.start = (first.end - max).max(0.0);
}

/// Moves the start of a segment to that of its first word, or the start of an over-long word to that of
/// the segment.
fn fit_start(segment: &mut Segment, durations: Durations) {
    let Some(first) = segment.words.first_mut() else {
        return;
    };
    if segment.start < first.end && segment.start - SEGMENT_TOLERANCE > first.start {
        first.start = (first.end - durations.median).min(segment.start).max(0.0);
    } else {
        segment.start = first.start;
    }
}

/// Moves the end of a segment to that of its last word, or the end of an over-long word to that of the
/// segment.
fn fit_end(segment: &mut Segment, durations: Durations) {
    let Some(last) = segment.words.last_mut() else {
        return;
    };
    if segment.end > last.start && segment.end + SEGMENT_TOLERANCE < last.end {
        last.end = (last.start + durations.median).max(segment.end);
    } else {
        segment.end = last.end;
    }
}

fn round_to_hundredths(seconds: f64) -> f64 {
    (seconds * 100.0).round_ties_even() / 100.0
}
