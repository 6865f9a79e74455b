//! Segments of transcripts in the C API.
#![expect(unsafe_code, reason = "buffers with pointers move between threads")]

use std::ffi::{c_char, c_void};
use tabla::speech::Segment;

/// A word of a segment.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaWord {
    /// Text, NUL-terminated, with the space before it and with its punctuation.
    pub text: *const c_char,
    /// Length of the text in bytes.
    pub text_bytes: usize,
    /// Start in seconds.
    pub start: f64,
    /// End in seconds.
    pub end: f64,
    /// Mean probability of its tokens.
    pub probability: f64,
}

/// A segment of a transcript. Pointers are not NULL, except `words` if there are no words.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaSegment {
    /// `sizeof(TablaSegment)`. Set it before `tabla_transcription_next`.
    pub struct_size: u32,
    /// Number of the segment, from 0.
    pub id: u32,
    /// Start in seconds.
    pub start: f64,
    /// End in seconds.
    pub end: f64,
    /// Text, NUL-terminated. It starts with a space in most languages.
    pub text: *const c_char,
    /// Length of the text in bytes.
    pub text_bytes: usize,
    /// Token ids, timestamps included.
    pub tokens: *const u32,
    /// Number of tokens.
    pub tokens_count: usize,
    /// Words, if `word_timestamps` requests them.
    pub words: *const TablaWord,
    /// Number of words.
    pub words_count: usize,
    /// Temperature of its window.
    pub temperature: f64,
    /// Average log-probability of the tokens of its window.
    pub avg_logprob: f64,
    /// Compression ratio of the text of its window.
    pub compression_ratio: f64,
    /// Probability that its window has no speech.
    pub no_speech_prob: f64,
    /// First frame of its window, in units of 10 ms.
    pub seek: u32,
    /// Always 0.
    pub reserved: u32,
}

/// Receives every segment. The segment and its pointers are valid during the call. Return 0 to
/// continue; any other value ends the transcription.
pub type TablaSegmentCallback =
    Option<unsafe extern "C" fn(segment: *const TablaSegment, user_data: *mut c_void) -> i32>;

/// Memory that a segment points to.
#[derive(Default)]
pub(super) struct SegmentBuffer {
    text: Vec<u8>,
    tokens: Vec<u32>,
    /// Texts of all words, each NUL-terminated.
    word_texts: Vec<u8>,
    words: Vec<TablaWord>,
}

// SAFETY: the pointers of `words` point to `word_texts`, which belongs to the same buffer.
unsafe impl Send for SegmentBuffer {}

impl SegmentBuffer {
    /// Converts a segment. Its pointers are valid until the buffer changes.
    pub(super) fn segment(&mut self, segment: &Segment) -> TablaSegment {
        set_text(&mut self.text, &segment.text);
        self.tokens.clone_from(&segment.tokens);
        self.set_words(segment);
        #[expect(clippy::cast_possible_truncation, reason = "a small struct")]
        TablaSegment {
            struct_size: size_of::<TablaSegment>() as u32,
            id: segment.id,
            start: segment.start,
            end: segment.end,
            text: self.text.as_ptr().cast(),
            text_bytes: segment.text.len(),
            tokens: self.tokens.as_ptr(),
            tokens_count: self.tokens.len(),
            words: match self.words.is_empty() {
                true => std::ptr::null(),
                false => self.words.as_ptr(),
            },
            words_count: self.words.len(),
            temperature: segment.temperature,
            avg_logprob: segment.avg_logprob,
            compression_ratio: segment.compression_ratio,
            no_speech_prob: segment.no_speech_prob,
            seek: segment.seek,
            reserved: 0,
        }
    }

    fn set_words(&mut self, segment: &Segment) {
        self.word_texts.clear();
        self.words.clear();
        for word in &segment.words {
            push_text(&mut self.word_texts, &word.text);
        }
        // The texts do not move any more.
        let mut rest = &self.word_texts[..];
        for word in &segment.words {
            self.words.push(TablaWord {
                text: rest.as_ptr().cast(),
                text_bytes: word.text.len(),
                start: word.start,
                end: word.end,
                probability: word.probability,
            });
            rest = &rest[word.text.len() + 1..];
        }
    }
}

/// Stores a NUL-terminated text.
fn set_text(to: &mut Vec<u8>, text: &str) {
    to.clear();
    push_text(to, text);
}

fn push_text(to: &mut Vec<u8>, text: &str) {
    to.extend_from_slice(text.as_bytes());
    to.push(0);
}
