//! Decoding rules of Whisper, as functions of tokens and probabilities.
//!
//! OpenAI's `openai-whisper` package is the reference of each file. No file reads audio, runs a model
//! or encodes text.

mod align;
mod beam;
mod dtw;
mod fallback;
mod heads;
mod json;
mod language;
mod probability;
mod prompt;
mod rules;
mod segment;
mod segments;
mod special;
mod suppress;
mod word_times;
mod words;
mod write;

pub use align::{Attention, AttentionKind, align};
pub use beam::{BeamOptions, BeamSearch, Candidate, Hypothesis, NextBeam, best_hypothesis};
pub use dtw::dtw;
pub use fallback::{Attempt, Thresholds, Verdict, compression_ratio, temperatures};
pub use heads::alignment_heads;
pub use language::{LANGUAGES, Language};
pub use probability::{language_probabilities, probability};
pub use prompt::{
    History, InitialPrompt, NEW_TOKENS_MAX, PREVIOUS_TOKENS_MAX, Prompt, Timestamps, sot_sequence,
};
pub use rules::apply_timestamp_rules;
pub use segment::{Segment, Word, last_end};
pub use segments::{
    FRAMES_PER_SECOND, SegmentSpan, WINDOW_FRAMES, Window, WindowSegments, split_window,
};
pub use special::{SpecialTokens, TIMESTAMP_SECONDS, Task};
pub use suppress::{BLANK, suppressed};
pub use word_times::add_words;
pub use words::{TimedWord, TokenWord, split_words, time_words};
pub use write::{Format, Header, Transcript, WordTimes, Writer};
