//! Escape sequences in prompts.

use crate::output::Failure;

/// Replaces the escape sequences of llama.cpp. Another character after a backslash stays, with the
/// backslash.
pub(super) fn replace(text: &str) -> Result<String, Failure> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let (byte, length) = sequence(&rest[at..]);
        bytes.push(byte);
        rest = &rest[at + length..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    // Bytes of \x may be any.
    String::from_utf8(bytes)
        .map_err(|_| Failure::Usage("-e: the bytes of \\x are not UTF-8".to_string()))
}

/// Returns the byte of the sequence at the start of the text, and the length of the sequence.
fn sequence(text: &str) -> (u8, usize) {
    let byte = match text.as_bytes().get(1) {
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(quoted @ (b'\'' | b'"' | b'\\')) => *quoted,
        Some(b'x') => {
            let digits = text.get(2..4).unwrap_or_default();
            let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            return match u8::from_str_radix(digits, 16) {
                Ok(byte) if is_hex => (byte, 4),
                _ => (b'\\', 1),
            };
        }
        _ => return (b'\\', 1),
    };
    (byte, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_escape_sequences() {
        let check = |text: &str, expected: &str| {
            assert_eq!(replace(text).expect("UTF-8"), expected, "{text}");
        };
        check("a\\nb\\tc\\rd", "a\nb\tc\rd");
        check("\\\\n \\\" \\'", "\\n \" '");
        check("\\x41\\xc3\\xa9\\x4", "A\u{e9}\\x4");
        check("\\q \\", "\\q \\");
        check("\u{e9}\\n\u{e9}", "\u{e9}\n\u{e9}");
        assert!(replace("\\xff").is_err());
    }
}
