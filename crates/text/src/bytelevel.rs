//! The byte-level alphabet of GPT-2: each byte as one printable character.
//!
//! Printable bytes map to themselves. The other 68 (control characters, the space, some of Latin-1)
//! map to the characters from U+0100, in order.

/// One past the last character of the alphabet.
const CHARS_END: usize = 0x144;

const fn maps_to_itself(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

/// The character for each byte.
#[expect(
    clippy::cast_possible_truncation,
    reason = "all casts are of numbers below 256"
)]
pub(super) const CHARS: [char; 256] = {
    let mut chars = ['\0'; 256];
    let mut next = 0x100;
    let mut byte = 0;
    while byte < 256 {
        let is_printable = maps_to_itself(byte as u8);
        let code = if is_printable { byte as u32 } else { next };
        chars[byte] = match char::from_u32(code) {
            Some(c) => c,
            None => unreachable!(),
        };
        next += !is_printable as u32;
        byte += 1;
    }
    chars
};

/// The byte for each character, or `NOT_A_BYTE`.
const BYTES: [u16; CHARS_END] = {
    let mut bytes = [NOT_A_BYTE; CHARS_END];
    let mut byte = 0;
    while byte < 256 {
        bytes[CHARS[byte as usize] as usize] = byte;
        byte += 1;
    }
    bytes
};

const NOT_A_BYTE: u16 = u16::MAX;

/// Appends the bytes of a token.
///
/// A token with a character outside the alphabet decodes to its own text, as in Hugging Face's
/// `ByteLevel` decoder.
pub(super) fn decode(token: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for c in token.chars() {
        let byte = BYTES.get(c as usize).and_then(|&b| u8::try_from(b).ok());
        let Some(byte) = byte else {
            out.truncate(start);
            out.extend_from_slice(token.as_bytes());
            return;
        };
        out.push(byte);
    }
}

/// Encodes bytes in the alphabet.
pub(super) fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|b| CHARS[usize::from(*b)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_matches_gpt_2() {
        assert_eq!(CHARS[usize::from(b' ')], 'Ġ');
        assert_eq!(CHARS[usize::from(b'\n')], 'Ċ');
        assert_eq!(CHARS[usize::from(b'A')], 'A');
        assert_eq!(CHARS[0], 'Ā');
        assert_eq!(CHARS[0xad], 'Ń');
        assert_eq!(CHARS[0xff], 'ÿ');
    }

    #[test]
    fn round_trips_all_bytes() {
        let token: String = CHARS.iter().collect();
        let mut out = Vec::new();
        decode(&token, &mut out);
        assert_eq!(out, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn decodes_text_outside_alphabet_to_itself() {
        let mut out = b"x".to_vec();
        decode("Ġ日", &mut out);
        assert_eq!(out, "xĠ日".as_bytes());
    }

    #[test]
    fn decode_inverts_encode() {
        let mut bytes = Vec::new();
        decode(&encode("é \0\u{7f}".as_bytes()), &mut bytes);
        assert_eq!(bytes, "é \0\u{7f}".as_bytes());
    }
}
