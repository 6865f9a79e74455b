//! Python's `textwrap.wrap`, for the filter `wordwrap`.

use super::failure::Outcome;
use super::heap::Heap;
use super::strings::{characters, length};

/// Splits a line into lines of at most `width` characters. `options` are whether long words are
/// broken, and whether words are broken at hyphens.
pub(super) fn wrap(
    heap: &Heap,
    line: &str,
    width: usize,
    options: [bool; 2],
) -> Outcome<Vec<String>> {
    let [break_long, break_hyphens] = options;
    let mut chunks = chunks(line, options);
    heap.budget
        .charge(chunks.len().saturating_mul(4 * size_of::<&str>()))?;
    chunks.reverse();
    let mut out: Vec<String> = Vec::new();
    while !chunks.is_empty() {
        // A line does not begin with white space, except the first one.
        if !out.is_empty() && chunks.last().is_some_and(|chunk| chunk.trim().is_empty()) {
            chunks.pop();
        }
        let (mut current, mut used) = (Vec::new(), 0);
        while let Some(chunk) = chunks.last() {
            let size = length(chunk);
            if used + size > width {
                break;
            }
            used += size;
            current.extend(chunks.pop());
        }
        if let Some(chunk) = chunks.last_mut()
            && length(chunk) > width
        {
            heap.budget.work(chunk.len())?;
            let space = width.saturating_sub(used).max(usize::from(used == 0));
            if break_long {
                let mut end = characters(chunk, 0, space).len();
                let hyphen = chunk[..end]
                    .rfind('-')
                    .filter(|at| break_hyphens && *at > 0 && chunk[..*at].contains(|c| c != '-'));
                end = hyphen.map_or(end, |at| at + 1);
                current.push(&chunk[..end]);
                *chunk = &chunk[end..];
            } else if current.is_empty() {
                current.extend(chunks.pop());
            }
        }
        if current.last().is_some_and(|chunk| chunk.trim().is_empty()) {
            current.pop();
        }
        if !current.is_empty() {
            let line = current.concat();
            heap.budget.charge(line.len() + size_of::<String>())?;
            out.push(line);
        }
    }
    Ok(out)
}

/// Splits a line into words and the white space between them.
fn chunks(line: &str, [_, break_hyphens]: [bool; 2]) -> Vec<&str> {
    let mut chunks = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let space = first.is_whitespace();
        let end = rest.find(|c: char| c.is_whitespace() != space);
        let (chunk, tail) = rest.split_at(end.unwrap_or(rest.len()));
        if space || !break_hyphens {
            chunks.push(chunk);
        } else {
            split_hyphens(chunk, &mut chunks);
        }
        rest = tail;
    }
    chunks
}

/// Splits a word after hyphens between letters.
fn split_hyphens<'t>(word: &'t str, chunks: &mut Vec<&'t str>) {
    let mut start = 0;
    for (at, _) in word.match_indices('-') {
        // A dash between words is a chunk of its own.
        let dash = word[at..].len() - word[at..].trim_start_matches('-').len();
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        if at < start {
            continue;
        }
        if dash > 1 && at > start && is_word(word[at + dash..].chars().next()) {
            chunks.extend([&word[start..at], &word[at..at + dash]]);
            start = at + dash;
            continue;
        }
        let is_letter = |c: Option<char>| c.is_some_and(char::is_alphabetic);
        let mut before = word[start..at].chars().rev();
        let mut after = word[at + 1..].chars();
        let two_before = is_letter(before.next()) && is_letter(before.next());
        if two_before && is_letter(after.next()) && is_letter(after.find(|c| *c != '-')) {
            chunks.push(&word[start..=at]);
            start = at + 1;
        }
    }
    if start < word.len() {
        chunks.push(&word[start..]);
    }
}
