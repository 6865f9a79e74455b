//! `SentencePiece` token texts: the space character `▁` and byte tokens.

/// Represents a space in a token.
pub(super) const SPACE: char = '▁';

/// [`SPACE`] in UTF-8.
const SPACE_BYTES: &[u8] = "▁".as_bytes();

/// Returns the byte of a token such as `<0x0A>`.
pub(super) fn byte_of(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    let plain = hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u8::from_str_radix(hex, 16).ok()).flatten()
}

/// Appends the bytes of a token. Works on bytes, because large vocabularies have many short tokens.
pub(super) fn decode(token: &str, out: &mut Vec<u8>) {
    let mut rest = token.as_bytes();
    while let [first, others @ ..] = rest {
        let (byte, after) = match rest.strip_prefix(SPACE_BYTES) {
            Some(after) => (b' ', after),
            None => (*first, others),
        };
        out.push(byte);
        rest = after;
    }
}

/// Whether a token has a space after another character, so that texts must not be split at spaces.
pub(super) fn spans_words(token: &str) -> bool {
    token.trim_start_matches(SPACE).contains(SPACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_tokens_have_exactly_two_digits() {
        assert_eq!(byte_of("<0x0A>"), Some(10));
        assert_eq!(byte_of("<0xff>"), Some(255));
        for invalid in [
            "<0xA>", "<0x00A>", "<0x+A>", "<0xG0>", "0x0A", "<0x0A", "", "<0x日>",
        ] {
            assert_eq!(byte_of(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn decodes_spaces() {
        let mut out = Vec::new();
        decode("▁▁a▁", &mut out);
        assert_eq!(out, b"  a ");
    }

    #[test]
    fn detects_tokens_that_span_words() {
        assert!(spans_words("a▁b"));
        assert!(spans_words("▁a▁"));
        assert!(!spans_words("▁▁a"));
        assert!(!spans_words("▁▁"));
    }
}
