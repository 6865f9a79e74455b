//! Streaming UTF-8 decoder for token bytes.

/// Converts a stream of token bytes to text.
///
/// A byte-level token may end within a character. Complete characters are returned immediately, an
/// incomplete one is kept for the next push. Invalid bytes become U+FFFD as in
/// [`String::from_utf8_lossy`].
#[derive(Debug)]
pub struct Utf8Stream {
    pending: Vec<u8>,
    out: String,
}

/// Maximum length of an incomplete character in bytes.
const PENDING_BYTES_MAX: usize = 3;

impl Utf8Stream {
    /// Creates a stream that does not allocate if no push is longer than `piece_bytes_max`.
    pub fn new(piece_bytes_max: usize) -> Self {
        let capacity = piece_bytes_max.saturating_add(PENDING_BYTES_MAX);
        // Each byte may become a U+FFFD of three bytes.
        Self {
            pending: Vec::with_capacity(capacity),
            out: String::with_capacity(capacity.saturating_mul(3)),
        }
    }

    /// Decodes the next bytes and returns the completed text.
    pub fn push(&mut self, bytes: &[u8]) -> &str {
        self.pending.extend_from_slice(bytes);
        self.out.clear();
        let mut rest = &self.pending[..];
        loop {
            match str::from_utf8(rest) {
                Ok(text) => {
                    self.out.push_str(text);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (text, tail) = rest.split_at(error.valid_up_to());
                    self.out
                        .push_str(str::from_utf8(text).expect("valid up to here"));
                    rest = tail;
                    let Some(bad) = error.error_len() else { break };
                    self.out.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[bad..];
                }
            }
        }
        let used = self.pending.len() - rest.len();
        self.pending.drain(..used);
        &self.out
    }

    /// Ends the text and resets the stream. An incomplete character becomes U+FFFD.
    pub fn flush(&mut self) -> &str {
        self.out.clear();
        if !self.pending.is_empty() {
            self.pending.clear();
            self.out.push(char::REPLACEMENT_CHARACTER);
        }
        &self.out
    }

    /// Whether an incomplete character is pending.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streamed(bytes: &[u8], step: usize) -> String {
        let mut stream = Utf8Stream::new(step);
        let capacity = (stream.pending.capacity(), stream.out.capacity());
        let mut text = String::new();
        for piece in bytes.chunks(step) {
            text.push_str(stream.push(piece));
        }
        text.push_str(stream.flush());
        assert_eq!(
            capacity,
            (stream.pending.capacity(), stream.out.capacity()),
            "a push allocated"
        );
        text
    }

    fn check(bytes: &[u8]) {
        for step in 1..=bytes.len().max(1) {
            assert_eq!(
                streamed(bytes, step),
                String::from_utf8_lossy(bytes),
                "step {step}"
            );
        }
    }

    #[test]
    fn piece_boundaries_do_not_change_text() {
        check(b"");
        check("plain".as_bytes());
        check("naïve 日本語 👩‍👩‍👧‍👦 \u{301}\0\t".as_bytes());
    }

    #[test]
    fn replaces_invalid_bytes() {
        check(b"a\xffb");
        check(b"\xf0\x9f\x98");
        check(b"\xf0\x9fA\xc3");
        check(b"\xed\xa0\x80 surrogate");
        check(b"\xc0\xaf overlong \xf5\x80\x80\x80");
        check(&(0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn holds_back_incomplete_character() {
        let mut stream = Utf8Stream::new(8);
        assert_eq!(stream.push(b"a\xe6\x97"), "a");
        assert!(stream.has_pending());
        assert_eq!(stream.push(b"\xa5b"), "日b");
        assert!(!stream.has_pending());
        assert_eq!(stream.flush(), "");
    }
}
