//! Transcripts of a model that answers at random, compared with those of `openai-whisper`;
//! `reference/transcribe.py` writes the golden file.

use serde_json::Value;
use std::collections::BTreeMap;
use tabla_speech::{
    Attempt, FRAMES_PER_SECOND, Format, Header, History, InitialPrompt, LANGUAGES, Segment,
    SpecialTokens, Task, Thresholds, TimedWord, Transcript, Verdict, WINDOW_FRAMES, Window, Word,
    WordTimes, add_words, last_end, split_window, split_words,
};

/// Default temperatures.
const TEMPERATURES: [f64; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];

/// Temperature, tokens, average log-probability, probability of no speech, compression ratio.
type GoldenAttempt = (f64, Vec<u32>, f64, f64, f64);
/// Number of tokens, start, end, probability.
type GoldenWord = (usize, f64, f64, f64);
/// Number, first, last and sum of the prompt.
type GoldenPrompt = (usize, u32, u32, u64);
type GoldenWindow = (GoldenPrompt, Vec<GoldenAttempt>, Vec<GoldenWord>);
/// Number, seek, start, end, text, tokens, temperature, words.
type GoldenSegment = (
    u32,
    u32,
    f64,
    f64,
    String,
    Vec<u32>,
    f64,
    Vec<(String, f64, f64, f64)>,
);
type Limits = (Option<f64>, Option<f64>, Option<f64>);
type Case = (
    u32,
    bool,
    bool,
    Vec<u32>,
    bool,
    Limits,
    Vec<GoldenWindow>,
    Vec<GoldenSegment>,
    [String; 4],
);

/// A transcription in progress.
struct Run {
    special: SpecialTokens,
    vocabulary: BTreeMap<u32, String>,
    thresholds: Thresholds,
    words: WordTimes,
    history: History,
    segments: Vec<Segment>,
    last_speech: f64,
}

impl Run {
    /// Processes a window and returns the frames to the next, and the temperature if it has speech.
    fn window(&mut self, window: &Window, golden: &GoldenWindow) -> (u32, Option<f64>) {
        let (prompt, attempts, words) = golden;
        let previous = self.history.previous();
        let sum: u64 = previous.iter().map(|t| u64::from(*t)).sum();
        let ends = [previous.first(), previous.last()].map(|t| t.copied().unwrap_or(0));
        assert_eq!((previous.len(), ends[0], ends[1], sum), *prompt);
        let mut kept = None;
        for (at, attempt) in attempts.iter().enumerate() {
            let facts = Attempt {
                avg_logprob: attempt.2,
                no_speech_prob: attempt.3,
                compression_ratio: attempt.4,
            };
            assert_eq!(attempt.0, TEMPERATURES[at]);
            let verdict = if at + 1 == TEMPERATURES.len() {
                self.thresholds.judge_last(&facts)
            } else {
                self.thresholds.judge(&facts)
            };
            assert_eq!(verdict == Verdict::Retry, at + 1 < attempts.len());
            kept = (verdict == Verdict::Accept).then_some(attempt);
        }
        let Some(attempt) = kept else {
            return (window.frames, None);
        };
        let split = split_window(&attempt.1, window, &self.special);
        let segments = split.spans.iter();
        let mut segments: Vec<Segment> = segments
            .map(|span| self.segment(window, attempt, span.tokens.clone(), [span.start, span.end]))
            .collect();
        let mut advance = split.advance_frames;
        if self.words == WordTimes::On {
            self.add_words(&mut segments, words);
            let end = last_end(&segments).unwrap_or(0.0);
            if !split.is_finished && end > window.start() {
                let frames = (end * f64::from(FRAMES_PER_SECOND)).round_ties_even();
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "small"
                )]
                let seek = frames as u32;
                advance = seek - window.seek;
            }
            self.last_speech = end;
        }
        for (segment, id) in segments.iter_mut().zip(self.segments.len()..) {
            segment.id = u32::try_from(id).expect("small");
            segment.clear_if_empty();
            self.history.push(&segment.tokens);
        }
        self.segments.extend(segments);
        (advance, Some(attempt.0))
    }

    fn text(&self, tokens: &[u32]) -> String {
        tokens
            .iter()
            .filter_map(|t| self.vocabulary.get(t))
            .map(|s| &**s)
            .collect()
    }

    fn segment(
        &self,
        window: &Window,
        attempt: &GoldenAttempt,
        tokens: std::ops::Range<usize>,
        [start, end]: [f64; 2],
    ) -> Segment {
        let tokens = attempt.1[tokens].to_vec();
        Segment {
            seek: window.seek,
            start,
            end,
            text: self.text(&tokens),
            tokens,
            temperature: attempt.0,
            ..Segment::default()
        }
    }

    fn add_words(&self, segments: &mut [Segment], golden: &[GoldenWord]) {
        let eot = self.special.eot;
        let tokens = segments.iter().flat_map(|s| s.tokens.iter().copied());
        let tokens: Vec<u32> = tokens.filter(|token| *token < eot).collect();
        let decode = |tokens: &[u32]| self.text(tokens).into_bytes();
        let words = split_words(&tokens, &decode, &LANGUAGES[0]);
        assert_eq!(words.len(), golden.len());
        let timed = words
            .into_iter()
            .zip(golden)
            .map(|(word, golden)| TimedWord {
                text: word.text,
                tokens: golden.0,
                start: golden.1,
                end: golden.2,
                probability: golden.3,
            });
        add_words(segments, timed.collect(), eot, self.last_speech);
    }
}

/// Transcribes as a case says, and compares prompts, segments and files.
fn check(case: &Case, vocabulary: &BTreeMap<u32, String>) {
    let (frames, words, previous, initial, carry, limits, windows, segments, files) = case;
    let words = if *words {
        WordTimes::On
    } else {
        WordTimes::Off
    };
    let mode = if *carry {
        InitialPrompt::Always
    } else {
        InitialPrompt::Once
    };
    let mut run = Run {
        special: SpecialTokens::of(51_865).expect("a published size"),
        vocabulary: vocabulary.clone(),
        thresholds: Thresholds {
            compression_ratio: limits.0,
            logprob: limits.1,
            no_speech: limits.2,
        },
        words,
        history: History::new(initial, mode),
        segments: Vec::new(),
        last_speech: 0.0,
    };
    let mut seek = 0;
    for golden in windows {
        assert!(seek < *frames);
        let window = Window {
            seek,
            frames: (frames - seek).min(WINDOW_FRAMES),
        };
        let (advance, temperature) = run.window(&window, golden);
        seek += advance;
        if temperature.is_some_and(|t| t > 0.5 || !previous) {
            run.history.forget();
        }
    }
    assert!(seek >= *frames, "{seek} of {frames}");
    assert_eq!(run.segments.len(), segments.len());
    for (found, golden) in run.segments.iter().zip(segments) {
        assert_eq!(*found, segment(golden));
    }
    let transcript = Transcript {
        header: Header {
            task: Task::Transcribe,
            language: &LANGUAGES[0],
            words,
        },
        duration: f64::from(*frames) / 100.0,
        segments: run.segments,
    };
    check_files(&transcript, files);
}

fn segment(golden: &GoldenSegment) -> Segment {
    let word = |(text, start, end, probability): &(String, f64, f64, f64)| Word {
        text: text.clone(),
        start: *start,
        end: *end,
        probability: *probability,
    };
    Segment {
        id: golden.0,
        seek: golden.1,
        start: golden.2,
        end: golden.3,
        text: golden.4.clone(),
        tokens: golden.5.clone(),
        temperature: golden.6,
        words: golden.7.iter().map(word).collect(),
        ..Segment::default()
    }
}

/// Compares text, srt, vtt and tsv.
fn check_files(transcript: &Transcript, files: &[String; 4]) {
    let formats = [Format::Text, Format::Srt, Format::Vtt, Format::Tsv];
    for (format, expected) in formats.into_iter().zip(files) {
        // OpenAI's code leaves arrows in the text of words.
        let has_times = |line: &str| line.starts_with(|c: char| c.is_ascii_digit());
        let is_cue = matches!(format, Format::Srt | Format::Vtt);
        let lines = expected.split_inclusive('\n').map(|line| match line {
            line if is_cue && !has_times(line) => line.replace("-->", "->"),
            line => line.to_string(),
        });
        assert_eq!(transcript.write(format), lines.collect::<String>());
    }
}

#[test]
fn transcripts_are_those_of_openai() {
    let golden: Value = serde_json::from_str(include_str!("golden/transcribe.json")).unwrap();
    let vocabulary = serde_json::from_value(golden["vocabulary"].clone()).unwrap();
    let cases: Vec<Case> = serde_json::from_value(golden["cases"].clone()).unwrap();
    assert_eq!(cases.len(), 28);
    for case in cases {
        check(&case, &vocabulary);
    }
}
