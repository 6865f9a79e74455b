//! `SentencePiece` vocabularies: the visible space, and bytes as tokens.

/// Stands for a space inside of a token.
pub(super) const SPACE: char = '▁';

/// The byte that a token such as `<0x0A>` stands for.
pub(super) fn byte_of(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    let plain = hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u8::from_str_radix(hex, 16).ok()).flatten()
}

/// Writes the bytes that a token stands for.
pub(super) fn decode(token: &str, out: &mut Vec<u8>) {
    for (n, part) in token.split(SPACE).enumerate() {
        if n > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(part.as_bytes());
    }
}

/// Whether a token goes on behind a space, so that a text must not be cut there.
pub(super) fn goes_over_spaces(token: &str) -> bool {
    token.trim_start_matches(SPACE).contains(SPACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_tokens_have_exactly_two_digits() {
        assert_eq!(byte_of("<0x0A>"), Some(10));
        assert_eq!(byte_of("<0xff>"), Some(255));
        for no in [
            "<0xA>", "<0x00A>", "<0x+A>", "<0xG0>", "0x0A", "<0x0A", "", "<0x日>",
        ] {
            assert_eq!(byte_of(no), None, "{no}");
        }
    }

    #[test]
    fn visible_spaces_are_spaces() {
        let mut out = Vec::new();
        decode("▁▁a▁", &mut out);
        assert_eq!(out, b"  a ");
    }

    #[test]
    fn a_token_over_a_space_is_seen() {
        assert!(goes_over_spaces("a▁b"));
        assert!(goes_over_spaces("▁a▁"));
        assert!(!goes_over_spaces("▁▁a"));
        assert!(!goes_over_spaces("▁▁"));
    }
}
