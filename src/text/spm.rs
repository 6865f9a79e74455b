//! `SentencePiece` vocabularies: the visible space, bytes as tokens, and merges out of scores.

use super::pieces::{Blob, Role};

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

/// Writes a text as it is looked up, with visible spaces, behind a prefix.
///
/// A visible space in the text itself comes back as a space: the format cannot tell them apart.
pub(super) fn escape(prefix: &str, text: &str) -> String {
    let mut out = String::with_capacity(prefix.len() + text.len() + text.len() / 2);
    out.push_str(prefix);
    out.extend(text.chars().map(|c| if c == ' ' { SPACE } else { c }));
    out
}

/// Whether a token goes on behind a space, so that a text must not be cut there.
pub(super) fn goes_over_spaces(token: &str) -> bool {
    token.trim_start_matches(SPACE).contains(SPACE)
}

/// Each way to put a token together out of two others, best score first.
///
/// `SentencePiece` merges the pair whose result has the best score; written as an ordered list, that
/// is what a merge list is. Ties go to the lower id, then to the longer left half.
pub(super) fn merges(
    texts: &Blob,
    roles: &[Role],
    scores: &[f32],
    has: impl Fn(&str) -> bool,
) -> Vec<(String, String)> {
    let mut found: Vec<(u32, u32, u32)> = Vec::new();
    for n in (0..texts.len()).filter(|&n| roles[n].is_text()) {
        let (text, Ok(id)) = (texts.text(n), u32::try_from(n)) else {
            continue;
        };
        let order = descending(scores.get(n).copied().unwrap_or(0.0));
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if let Ok(at) = u32::try_from(at)
                && has(left)
                && has(right)
            {
                found.push((order, id, u32::MAX - at));
            }
        }
    }
    found.sort_unstable();
    let halves = found.into_iter().map(|(_, id, at)| {
        let (left, right) = texts.text(id as usize).split_at((u32::MAX - at) as usize);
        (left.to_owned(), right.to_owned())
    });
    halves.collect()
}

/// A key that sorts numbers from high to low.
fn descending(score: f32) -> u32 {
    // The order of IEEE 754 as an integer: flip all bits of the negative, the sign of the others.
    let bits = score.to_bits();
    let ascending = if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    };
    !ascending
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
    fn spaces_are_made_visible_and_back() {
        assert_eq!(escape("▁", "a  b"), "▁a▁▁b");
        assert_eq!(escape("", ""), "");
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

    #[test]
    fn merges_go_by_score() {
        let texts = Blob::of(&["a", "b", "ab", "aba", "<s>", "ba"], 9).unwrap();
        let mut roles = vec![Role::Normal; 6];
        roles[4] = Role::Control;
        let scores = [0.0, 0.0, -2.0, -1.0, 0.0, -3.0];
        let all = merges(&texts, &roles, &scores, |s| {
            ["a", "b", "ab", "ba"].contains(&s)
        });
        let pairs: Vec<_> = all.iter().map(|(l, r)| (l.as_str(), r.as_str())).collect();
        assert_eq!(pairs, [("ab", "a"), ("a", "ba"), ("a", "b"), ("b", "a")]);
    }

    #[test]
    fn higher_scores_sort_first() {
        let mut scores = [-1.0, 0.0, f32::NEG_INFINITY, 3.0, -0.5];
        scores.sort_unstable_by_key(|&s| descending(s));
        assert_eq!(scores, [3.0, 0.0, -0.5, -1.0, f32::NEG_INFINITY]);
    }
}
