//! Python's operations on strings, whose indexes count characters.

use super::build::Items;
use super::failure::{Outcome, fail};
use super::value::Value;

/// `len(text)`.
pub(super) fn length(text: &str) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    text.chars().count()
}

/// The characters from `start` to `end`, which are at most the length.
pub(super) fn characters(text: &str, start: usize, end: usize) -> &str {
    if start >= end {
        return "";
    }
    if text.is_ascii() {
        return &text[start..end];
    }
    let offset = |text: &str, count: usize| {
        let mut offsets = text.char_indices().map(|(at, _)| at);
        offsets.nth(count).unwrap_or(text.len())
    };
    let tail = &text[offset(text, start)..];
    &tail[..offset(tail, end - start)]
}

/// `str.isspace` of a character.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\x1c'..='\x1f')
}

/// `str.splitlines`: the lines with their line ends.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let is_end = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = rest.len();
        if let Some(at) = rest.find(is_end) {
            let tail = &rest[at..];
            let first = tail.chars().next().map_or(1, char::len_utf8);
            end = at + if tail.starts_with("\r\n") { 2 } else { first };
        }
        let (line, tail) = rest.split_at(end);
        rest = tail;
        Some(line)
    })
}

/// A line of [`lines`] without its line end.
pub(super) fn without_end(line: &str) -> &str {
    match line.strip_suffix("\r\n") {
        Some(line) => line,
        None => line
            .strip_suffix(|c: char| lines(&format!("{c}x")).count() == 2)
            .unwrap_or(line),
    }
}

/// Which end of a string an operation begins at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// `str.split` and `str.rsplit`, at most `max` times.
pub(super) fn split(
    text: &str,
    separator: Option<&str>,
    max: usize,
    side: Side,
    out: &mut Items<'_>,
) -> Outcome<()> {
    let max = max.saturating_add(1);
    match (separator, side) {
        (Some(""), _) => return fail("split: the separator is empty"),
        (Some(separator), Side::Left) => {
            for part in text.splitn(max, separator) {
                out.push_text(part)?;
            }
            return Ok(());
        }
        (Some(separator), Side::Right) => {
            for part in text.rsplitn(max, separator) {
                out.push_text(part)?;
            }
        }
        (None, Side::Left) => {
            let mut rest = text.trim_start_matches(is_space);
            let mut count = 1;
            while !rest.is_empty() {
                let end = rest.find(is_space).filter(|_| count < max);
                let (part, tail) = rest.split_at(end.unwrap_or(rest.len()));
                out.push_text(part)?;
                rest = tail.trim_start_matches(is_space);
                count += 1;
            }
            return Ok(());
        }
        (None, Side::Right) => {
            let mut rest = text.trim_end_matches(is_space);
            let mut count = 1;
            while !rest.is_empty() {
                let space = rest.char_indices().rfind(|(_, c)| is_space(*c));
                let space = space.filter(|_| count < max);
                let start = space.map_or(0, |(at, c)| at + c.len_utf8());
                out.push_text(&rest[start..])?;
                rest = rest[..start].trim_end_matches(is_space);
                count += 1;
            }
        }
    }
    out.reverse();
    Ok(())
}

/// `str.strip`, `lstrip` and `rstrip` with characters; without, of white space.
pub(super) fn strip<'t>(text: &'t str, chars: Option<&str>, sides: &[Side]) -> &'t str {
    let stripped = |c: char| match chars {
        Some(chars) => chars.contains(c),
        None => is_space(c),
    };
    let mut text = text;
    for side in sides {
        text = match side {
            Side::Left => text.trim_start_matches(stripped),
            Side::Right => text.trim_end_matches(stripped),
        };
    }
    text
}

/// `str.capitalize`.
pub(super) fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    first.chain(chars.as_str().to_lowercase().chars()).collect()
}

/// Changes the case of words: `first` of their first characters, lower case of the others.
pub(super) fn title(text: &str, is_boundary: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut start = true;
    for c in text.chars() {
        if start {
            out.extend(c.to_uppercase());
        } else {
            out.extend(c.to_lowercase());
        }
        start = is_boundary(c);
    }
    out
}

/// `str.swapcase`.
pub(super) fn swap_case(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_uppercase() {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
    }
    out
}

/// `str.expandtabs`: the number of columns of each tab.
pub(super) fn tab_columns(column: usize, size: usize) -> usize {
    match size {
        0 => 0,
        size => size - column % size,
    }
}

/// HTML escapes of `markupsafe`.
pub(super) fn html_escape(c: char) -> Option<&'static str> {
    Some(match c {
        '&' => "&amp;",
        '<' => "&lt;",
        '>' => "&gt;",
        '\'' => "&#39;",
        '"' => "&#34;",
        _ => return None,
    })
}

/// A predicate such as `str.isalpha`: not empty, and true for all characters.
pub(super) fn all(text: &str, predicate: impl Fn(char) -> bool) -> Value {
    Value::Bool(!text.is_empty() && text.chars().all(predicate))
}

/// `str.islower` and `str.isupper`: some character has the case, none has the other one.
pub(super) fn has_case(text: &str, has: fn(char) -> bool, other: fn(char) -> bool) -> Value {
    Value::Bool(text.chars().any(has) && !text.chars().any(other))
}

/// `str.istitle`.
pub(super) fn is_title(text: &str) -> bool {
    let (mut cased, mut found) = (false, false);
    for c in text.chars() {
        if c.is_uppercase() == cased && (c.is_uppercase() || c.is_lowercase()) {
            return false;
        }
        cased = c.is_uppercase() || c.is_lowercase();
        found |= cased;
    }
    found
}
