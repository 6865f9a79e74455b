//! Segments of a transcript and their words.

/// A segment of a transcript.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// Number of the segment, from 0.
    pub id: u32,
    /// First frame of its window, in units of 10 ms.
    pub seek: u32,
    /// Start in seconds.
    pub start: f64,
    /// End in seconds.
    pub end: f64,
    /// Text. It starts with a space in most languages.
    pub text: String,
    /// Tokens, timestamps included.
    pub tokens: Vec<u32>,
    /// Temperature of its window.
    pub temperature: f64,
    /// Average log-probability of the tokens of its window.
    pub avg_logprob: f64,
    /// Compression ratio of the text of its window.
    pub compression_ratio: f64,
    /// Probability that its window has no speech.
    pub no_speech_prob: f64,
    /// Words; empty without word times.
    pub words: Vec<Word>,
}

/// A word of a segment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Word {
    /// Text, with the space before it and with its punctuation.
    pub text: String,
    /// Start in seconds.
    pub start: f64,
    /// End in seconds.
    pub end: f64,
    /// Mean probability of its tokens.
    pub probability: f64,
}

impl Segment {
    /// Removes text, tokens and words if the segment has no duration or a blank text.
    pub fn clear_if_empty(&mut self) {
        if self.start == self.end || self.text.trim().is_empty() {
            self.text.clear();
            self.tokens.clear();
            self.words.clear();
        }
    }

    /// Limits all times to those before `end`, in seconds, such as the end of the recording: what would
    /// begin after it begins and ends there.
    pub fn clamp(&mut self, end: f64) {
        let times = self.words.iter_mut().map(|w| (&mut w.start, &mut w.end));
        for (from, to) in times.chain([(&mut self.start, &mut self.end)]) {
            *from = from.min(end);
            *to = to.min(end).max(*from);
        }
    }
}

/// End of the last word of segments, or of the last segment if there are no words.
pub fn last_end(segments: &[Segment]) -> Option<f64> {
    let word = segments.iter().rev().find_map(|s| s.words.last());
    word.map(|word| word.end)
        .or_else(|| segments.last().map(|s| s.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(start: f64, end: f64, text: &str) -> Segment {
        Segment {
            start,
            end,
            text: text.to_string(),
            tokens: vec![1],
            ..Segment::default()
        }
    }

    #[test]
    fn empty_segments_are_cleared() {
        for (start, end, text, is_empty) in [
            (1.0, 2.0, " a", false),
            (1.0, 1.0, " a", true),
            (1.0, 2.0, " \n", true),
        ] {
            let mut s = segment(start, end, text);
            s.clear_if_empty();
            assert_eq!(s.tokens.is_empty(), is_empty, "{text:?}");
            assert_eq!(s.text.is_empty(), is_empty, "{text:?}");
        }
    }

    #[test]
    fn times_are_limited() {
        // Start and end, and those of 10 seconds of audio.
        for (times, limited) in [
            ([2.0, 4.5], [2.0, 4.5]),
            ([8.0, 10.0], [8.0, 10.0]),
            ([8.0, 11.38], [8.0, 10.0]),
            ([10.5, 29.98], [10.0, 10.0]),
            // Rounding may exchange start and end.
            ([3.0, 2.5], [3.0, 3.0]),
        ] {
            let mut s = segment(times[0], times[1], " a");
            s.words = vec![Word {
                text: " a".to_string(),
                start: times[0],
                end: times[1],
                probability: 0.5,
            }];
            let before = s.clone();
            s.clamp(10.0);
            assert_eq!([s.start, s.end], limited, "{times:?}");
            assert_eq!([s.words[0].start, s.words[0].end], limited, "{times:?}");
            assert_eq!((&s.text, &s.tokens), (&before.text, &before.tokens));
            assert_eq!(s.words[0].text, before.words[0].text);
        }
    }

    #[test]
    fn last_end_prefers_words() {
        assert_eq!(last_end(&[]), None);
        let mut all = [segment(0.0, 1.0, "a"), segment(1.0, 2.0, "b")];
        assert_eq!(last_end(&all), Some(2.0));
        all[0].words.push(Word {
            end: 0.7,
            ..Word::default()
        });
        assert_eq!(last_end(&all), Some(0.7));
    }
}
