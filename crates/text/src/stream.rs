//! Bytes in, text out: holds back the start of a character until its end arrives.

/// Turns the bytes of tokens into text, piece by piece.
///
/// A byte-level token may end inside a character. What is complete comes out at once, an unfinished
/// character waits for the next push, and bytes that can never become text come out as U+FFFD, in the
/// places where [`String::from_utf8_lossy`] puts it.
#[derive(Debug)]
pub struct Utf8Stream {
    held: Vec<u8>,
    out: String,
}

/// The longest start of a character that can be waiting.
const HELD_BYTES_MAX: usize = 3;

impl Utf8Stream {
    /// A stream that does not allocate while no push is longer than `piece_bytes_max`.
    pub fn new(piece_bytes_max: usize) -> Self {
        let held = piece_bytes_max.saturating_add(HELD_BYTES_MAX);
        // Every byte may turn into a U+FFFD of three bytes.
        Self {
            held: Vec::with_capacity(held),
            out: String::with_capacity(held.saturating_mul(3)),
        }
    }

    /// Takes the next bytes and returns the text that they complete.
    pub fn push(&mut self, bytes: &[u8]) -> &str {
        self.held.extend_from_slice(bytes);
        self.out.clear();
        let mut rest = &self.held[..];
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
        let used = self.held.len() - rest.len();
        self.held.drain(..used);
        &self.out
    }

    /// Ends the text: an unfinished character becomes U+FFFD, and the stream starts afresh.
    pub fn flush(&mut self) -> &str {
        self.out.clear();
        if !self.held.is_empty() {
            self.held.clear();
            self.out.push(char::REPLACEMENT_CHARACTER);
        }
        &self.out
    }

    /// Whether a character is waiting for its end.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streamed(bytes: &[u8], step: usize) -> String {
        let mut stream = Utf8Stream::new(step);
        let room = (stream.held.capacity(), stream.out.capacity());
        let mut text = String::new();
        for piece in bytes.chunks(step) {
            text.push_str(stream.push(piece));
        }
        text.push_str(stream.flush());
        assert_eq!(
            room,
            (stream.held.capacity(), stream.out.capacity()),
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
    fn every_cut_gives_the_same_text() {
        check(b"");
        check("plain".as_bytes());
        check("naïve 日本語 👩‍👩‍👧‍👦 \u{301}\0\t".as_bytes());
    }

    #[test]
    fn bytes_that_are_no_text_become_replacements() {
        check(b"a\xffb");
        check(b"\xf0\x9f\x98");
        check(b"\xf0\x9fA\xc3");
        check(b"\xed\xa0\x80 surrogate");
        check(b"\xc0\xaf overlong \xf5\x80\x80\x80");
        check(&(0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn an_unfinished_character_waits() {
        let mut stream = Utf8Stream::new(8);
        assert_eq!(stream.push(b"a\xe6\x97"), "a");
        assert!(stream.is_holding());
        assert_eq!(stream.push(b"\xa5b"), "日b");
        assert!(!stream.is_holding());
        assert_eq!(stream.flush(), "");
    }
}
