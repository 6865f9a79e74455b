//! Text files of users: UTF-8, with or without a byte order mark.

use crate::error::{Result, bail};

const BOM: char = '\u{feff}';

/// Decodes UTF-8 and removes a byte order mark at the beginning, as the Encoding standard of WHATWG does.
///
/// # Errors
///
/// `Format` with the offset of the first invalid byte, or if the text is UTF-16 or UTF-32.
pub fn decode(bytes: Vec<u8>) -> Result<String> {
    let encoding = match bytes[..] {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => Some("UTF-32"),
        // Without a byte order mark, ASCII has a zero among the first two bytes.
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, _, ..] | [_, 0, ..] => Some("UTF-16"),
        _ => None,
    };
    if let Some(encoding) = encoding {
        bail!(Format, "the text is {encoding}: save it as UTF-8");
    }
    match String::from_utf8(bytes) {
        Ok(mut text) => {
            if text.starts_with(BOM) {
                text.drain(..BOM.len_utf8());
            }
            Ok(text)
        }
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            bail!(Format, "the text is not UTF-8: byte {at} is invalid")
        }
    }
}

/// Returns a text without the byte order mark at its beginning.
pub fn without_bom(text: &str) -> &str {
    text.strip_prefix(BOM).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_one_byte_order_mark() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"\xef\xbb\xbf", ""),
            (b"\xef\xbb\xbfa\xef\xbb\xbf", "a\u{feff}"),
            (b"\xef\xbb\xbf\xef\xbb\xbfa", "\u{feff}a"),
        ] {
            assert_eq!(decode(bytes.to_vec()).expect("UTF-8"), text);
        }
        assert_eq!(without_bom("\u{feff}a"), "a");
    }

    #[test]
    fn names_other_encodings() {
        for (bytes, part) in [
            (&b"\xff\xfea\0"[..], "UTF-16"),
            (b"\xfe\xff\0a", "UTF-16"),
            (b"a\0b\0", "UTF-16"),
            (b"\0a\0b", "UTF-16"),
            (b"\xff\xfe\0\0a\0\0\0", "UTF-32"),
            (b"\0\0\xfe\xff\0\0\0a", "UTF-32"),
            (b"ab\xff", "byte 2"),
        ] {
            let error = decode(bytes.to_vec()).expect_err("not UTF-8");
            assert!(error.message().contains(part), "{error}");
        }
    }
}
