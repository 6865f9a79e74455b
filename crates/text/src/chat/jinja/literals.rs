//! Literals of numbers and strings.

use super::failure::{Outcome, fail};
use super::token::Token;

/// Reads the number at the start of `text`. Returns it and its length. If `before` ends with a dot,
/// as in `list.0.1`, it is an integer.
pub(super) fn number(before: &str, text: &str) -> Outcome<(Token, usize)> {
    let bytes = text.as_bytes();
    let lower = |at: usize| bytes.get(at).map(u8::to_ascii_lowercase);
    let radix = match lower(1) {
        Some(b'x') => 16,
        Some(b'o') => 8,
        Some(b'b') => 2,
        _ => 10,
    };
    if bytes[0] == b'0' && radix != 10 {
        let end = digits(text, 2, radix);
        if end > 2 {
            return integer(&text[2..end], radix).map(|token| (token, end));
        }
    }
    let mut end = digits(text, 0, 10);
    let whole = end;
    if !before.ends_with('.') {
        if lower(end) == Some(b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
            end = digits(text, end + 1, 10);
        }
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = end + 1 + sign;
        if lower(end) == Some(b'e') && bytes.get(exponent).is_some_and(u8::is_ascii_digit) {
            end = digits(text, exponent, 10);
        }
    }
    if end == whole {
        // Zeros at the start are a number of their own, as in Python.
        let zeros = text.len() - text.trim_start_matches(['0', '_']).len();
        if bytes[0] == b'0' {
            end = end.min(zeros);
        }
        return integer(&text[..end], 10).map(|token| (token, end));
    }
    match text[..end].replace('_', "").parse() {
        Ok(number) => Ok((Token::Float(number), end)),
        Err(_) => fail(format_args!("invalid number {}", &text[..end])),
    }
}

/// End of the digits that begin at `start`, with single underscores between them.
fn digits(text: &str, start: usize, radix: u32) -> usize {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| {
        bytes
            .get(at)
            .is_some_and(|b| char::from(*b).is_digit(radix))
    };
    let mut end = start;
    while is_digit(end) || bytes.get(end) == Some(&b'_') && is_digit(end + 1) {
        end += 1;
    }
    end
}

fn integer(digits: &str, radix: u32) -> Outcome<Token> {
    match i128::from_str_radix(&digits.replace('_', ""), radix) {
        Ok(number) => Ok(Token::Int(number)),
        Err(_) => fail(format_args!("the number {digits:.40} is too large")),
    }
}

/// Reads the string at the start of `text`, with Python's escapes. Returns it and its length.
pub(super) fn string(text: &str) -> Outcome<(Token, usize)> {
    let mut chars = text.char_indices();
    let quote = chars.next().map(|(_, c)| c);
    let mut out = String::new();
    while let Some((at, c)) = chars.next() {
        if Some(c) == quote {
            return Ok((Token::Str(out.into()), at + 1));
        }
        if c != '\\' {
            out.push(c);
            continue;
        }
        let Some((at, c)) = chars.next() else { break };
        match escape(&text[at..])? {
            Some((unescaped, length)) => {
                out.extend(unescaped);
                for _ in 1..length {
                    chars.next();
                }
            }
            None => out.extend(['\\', c]),
        }
    }
    fail("a string has no end")
}

/// Decodes the escape whose characters after the backslash begin `text`. Returns the character and
/// the number of characters; `None` for an unknown escape, which Python keeps.
fn escape(text: &str) -> Outcome<Option<(Option<char>, usize)>> {
    let first = text.chars().next().unwrap_or_default();
    let simple = match first {
        '\n' => None,
        '\\' | '\'' | '"' => Some(first),
        'a' => Some('\x07'),
        'b' => Some('\x08'),
        'f' => Some('\x0c'),
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        'v' => Some('\x0b'),
        '0'..='7' => {
            let octal = text
                .bytes()
                .take(3)
                .take_while(|b| matches!(b, b'0'..=b'7'));
            let digits = octal.count();
            let code = u32::from_str_radix(&text[..digits], 8).unwrap_or(0);
            return Ok(Some((char::from_u32(code), digits)));
        }
        'x' | 'u' | 'U' => return hexadecimal(text).map(Some),
        'N' => return fail("escapes of Unicode names are not supported"),
        _ => return Ok(None),
    };
    Ok(Some((simple, 1)))
}

/// Decodes `xhh`, `uhhhh` or `Uhhhhhhhh`, or two `uhhhh` of a surrogate pair.
fn hexadecimal(text: &str) -> Outcome<(Option<char>, usize)> {
    let digits = match text.as_bytes()[0] {
        b'x' => 2,
        b'u' => 4,
        _ => 8,
    };
    let code = |text: &str| {
        let hex = text.get(1..=digits)?;
        let all = hex.bytes().all(|b| b.is_ascii_hexdigit());
        all.then(|| u32::from_str_radix(hex, 16).ok())?
    };
    let Some(first) = code(text) else {
        return fail(format_args!("truncated escape \\{:.10}", text));
    };
    if let (0xd800..0xdc00, Some(rest)) = (first, text[1 + digits..].strip_prefix("\\u"))
        && let Some(second @ 0xdc00..0xe000) =
            code(&text[1 + digits + 1..]).filter(|_| !rest.is_empty())
    {
        let pair = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return Ok((char::from_u32(pair), 2 * digits + 3));
    }
    match char::from_u32(first) {
        Some(c) => Ok((Some(c), 1 + digits)),
        None => fail(format_args!("the escape \\{:.10} is not a character", text)),
    }
}
