//! Lexical analysis of Rust source: comments, literals and whole words.

/// Parts of a text to keep besides code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// String and character literals.
    Literals,
    /// Code only.
    Code,
}

/// Replaces comments, and optionally literals, by blanks. Offsets do not change.
pub(super) fn blank(text: &str, keep: Keep) -> String {
    let literals = keep == Keep::Code;
    let from = text.as_bytes();
    let mut out = from.to_vec();
    let mut at = 0;
    while at < from.len() {
        let rest = &text[at..];
        let (len, wipe) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), true)
        } else if rest.starts_with("/*") {
            (rest.find("*/").map_or(rest.len(), |end| end + 2), true)
        } else if rest.starts_with('"') {
            (string(&text[..at], rest), literals)
        } else if rest.starts_with('\'') {
            (character(rest), literals)
        } else {
            (rest.chars().next().map_or(1, char::len_utf8), false)
        };
        if wipe {
            out[at..at + len]
                .iter_mut()
                .filter(|b| **b != b'\n')
                .for_each(|b| *b = b' ');
        }
        at += len;
    }
    String::from_utf8(out).expect("only whole characters are replaced")
}

/// Returns the length of a string literal at the start of `rest`; it is raw if `before` ends with
/// `r` and `#`s.
fn string(before: &str, rest: &str) -> usize {
    let bare = before.trim_end_matches('#');
    if bare.ends_with('r') {
        let end = format!("\"{}", "#".repeat(before.len() - bare.len()));
        return rest[1..]
            .find(&end)
            .map_or(rest.len(), |at| 1 + at + end.len());
    }
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            _ => escaped = c == '\\' && !escaped,
        }
    }
    rest.len()
}

/// Returns the length of a character literal, or of the quote of a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => rest[2..].find('\'').map_or(1, |at| {
            // The escaped character may be a quote.
            if at == 0 { 4 } else { at + 3 }
        }),
        Some(_) if chars.next().is_some_and(|(_, c)| c == '\'') => {
            rest[1..].find('\'').map_or(1, |at| at + 2)
        }
        _ => 1,
    }
}

/// Returns the offsets of a whole word.
pub(super) fn find<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| {
            let open = word.starts_with(|c: char| c.is_alphanumeric());
            let close = word.ends_with(|c: char| c.is_alphanumeric());
            let before = text[..*at].chars().next_back();
            let after = text[at + word.len()..].chars().next();
            let joined = open && part(before) || close && part(after);
            !joined
        })
}

/// Replaces items for tests only by blanks. `code` has no comments and no literals; offsets do not
/// change.
pub(super) fn without_test_items(code: &str) -> String {
    let mut out = code.to_string();
    let mut at = 0;
    while let Some(start) = ["#[cfg(test)]", "#[cfg(all(test,"]
        .iter()
        .filter_map(|attribute| out[at..].find(attribute))
        .min()
    {
        let start = at + start;
        let end = start + item(&out[start..]);
        let bytes = out[start..end].bytes();
        let blanks = bytes.map(|b| if b == b'\n' { '\n' } else { ' ' });
        let blanks: String = blanks.collect();
        out.replace_range(start..end, &blanks);
        at = end;
    }
    out
}

/// Returns the length of an item, including its attributes.
fn item(code: &str) -> usize {
    // Nesting of brackets, and of angle brackets outside of them.
    let (mut depth, mut angles) = (0, 0);
    let mut before = ' ';
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return at,
            ')' | ']' | '}' => depth -= 1,
            '<' if depth == 0 => angles += 1,
            '>' if depth == 0 && !['-', '='].contains(&before) => angles -= 1,
            _ => {}
        }
        let ends = c == ';' || c == '}' || c == ',' && angles == 0;
        if ends && depth == 0 {
            return at + 1;
        }
        before = c;
    }
    code.len()
}
