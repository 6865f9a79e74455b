//! Words of a transcript: tokens joined to words, punctuation joined to words.

use crate::language::Language;
use std::ops::Range;
use tabla_core::error::{Result, bail};

/// Punctuation that is joined to the next word.
const PREPENDED: &str = "\"'“¿([{-";
/// Punctuation that is joined to the word before.
const APPENDED: &str = "\"'.。,，!！?？:：”)]}、";
/// Punctuation of ASCII, as Python's `string.punctuation`.
const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
/// Columns of an alignment per second.
const COLUMNS_PER_SECOND: f64 = 50.0;

/// A word and its place among the tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenWord {
    /// Text, with the space before it. Incomplete UTF-8 is U+FFFD.
    pub text: String,
    /// Tokens of the word.
    pub tokens: Range<usize>,
}

/// A word and its times from the start of a window.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedWord {
    /// Text; empty if it was joined to another word.
    pub text: String,
    /// Number of tokens; 0 if it was joined to another word.
    pub tokens: usize,
    /// Start in seconds.
    pub start: f64,
    /// End in seconds.
    pub end: f64,
    /// Mean probability of its tokens.
    pub probability: f64,
}

/// Splits text tokens into words. `decode` returns the bytes of tokens; those of several tokens are
/// those of each in order.
///
/// Tokens are joined until they are complete UTF-8. In languages with spaces, a piece that starts with
/// a space or is punctuation of ASCII starts a word, and others continue it. In languages without, a
/// piece is a word.
pub fn split_words(
    tokens: &[u32],
    decode: &dyn Fn(&[u32]) -> Vec<u8>,
    language: &Language,
) -> Vec<TokenWord> {
    let mut words: Vec<TokenWord> = Vec::new();
    for piece in complete_pieces(tokens, decode) {
        let starts = !language.has_spaces()
            || piece.text.starts_with(' ')
            || PUNCTUATION.contains(piece.text.trim());
        match words.last_mut() {
            Some(word) if !starts => {
                word.text.push_str(&piece.text);
                word.tokens.end = piece.tokens.end;
            }
            _ => words.push(piece),
        }
    }
    words
}

/// Joins tokens until they are complete UTF-8, or as complete as all tokens together are at this place.
fn complete_pieces(tokens: &[u32], decode: &dyn Fn(&[u32]) -> Vec<u8>) -> Vec<TokenWord> {
    let bytes: Vec<Vec<u8>> = tokens.iter().map(|token| decode(&[*token])).collect();
    let whole = bytes.concat();
    let whole: Vec<char> = String::from_utf8_lossy(&whole).chars().collect();
    let mut pieces: Vec<TokenWord> = Vec::new();
    let mut pending = Vec::new();
    let (mut start, mut chars) = (0, 0);
    for (at, bytes) in bytes.iter().enumerate() {
        pending.extend(bytes);
        let text = String::from_utf8_lossy(&pending);
        let invalid = text.chars().position(|c| c == char::REPLACEMENT_CHARACTER);
        let is_complete = invalid
            .is_none_or(|place| whole.get(chars + place) == Some(&char::REPLACEMENT_CHARACTER));
        // Tokens at the end that never become complete are a piece too; OpenAI's code loses them.
        if is_complete || at + 1 == tokens.len() {
            chars += text.chars().count();
            pieces.push(TokenWord {
                text: text.into_owned(),
                tokens: start..at + 1,
            });
            pending.clear();
            start = at + 1;
        }
    }
    pieces
}

/// Gives words their times, from the starts of all tokens and the end of the last, in columns of
/// 20 ms, and the probability of each token.
///
/// # Errors
///
/// `Argument` if there are not as many starts and probabilities as tokens.
pub fn time_words(
    words: Vec<TokenWord>,
    starts: &[u32],
    probabilities: &[f32],
) -> Result<Vec<TimedWord>> {
    let count = words.last().map_or(0, |word| word.tokens.end);
    if starts.len() != count + 1 || probabilities.len() != count {
        bail!(
            Argument,
            "{count} tokens with {} starts and {} probabilities",
            starts.len(),
            probabilities.len()
        );
    }
    let seconds = |at: usize| f64::from(starts[at]) / COLUMNS_PER_SECOND;
    let time = |word: TokenWord| {
        let tokens = word.tokens.len();
        let own = &probabilities[word.tokens.clone()];
        let sum: f64 = own.iter().map(|p| f64::from(*p)).sum();
        TimedWord {
            text: word.text,
            tokens,
            start: seconds(word.tokens.start),
            end: seconds(word.tokens.end),
            probability: sum / tokens.max(1) as f64,
        }
    };
    Ok(words.into_iter().map(time).collect())
}

/// Joins punctuation to words, which keep their times. The text of joined punctuation becomes empty.
pub(crate) fn merge_punctuation(words: &mut [TimedWord]) {
    // The empty text counts as punctuation of both kinds, as in OpenAI's code.
    let mut following = words.len().saturating_sub(1);
    for at in (0..following).rev() {
        let text = &words[at].text;
        if text.starts_with(' ') && PREPENDED.contains(text.trim()) {
            let text = std::mem::take(&mut words[at].text);
            words[following].text.insert_str(0, &text);
            words[following].tokens += std::mem::take(&mut words[at].tokens);
        } else {
            following = at;
        }
    }
    let mut previous = 0;
    for at in 1..words.len() {
        if !words[previous].text.ends_with(' ') && APPENDED.contains(&*words[at].text) {
            let text = std::mem::take(&mut words[at].text);
            words[previous].text.push_str(&text);
            words[previous].tokens += std::mem::take(&mut words[at].tokens);
        } else {
            previous = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits pieces of bytes; token `i` is piece `i`.
    fn split(pieces: &[&[u8]], language: &str) -> Vec<(String, usize)> {
        let tokens: Vec<u32> = (0..).take(pieces.len()).collect();
        let decode = |tokens: &[u32]| -> Vec<u8> {
            let bytes = tokens.iter().map(|t| pieces[*t as usize]);
            bytes.collect::<Vec<_>>().concat()
        };
        let words = split_words(&tokens, &decode, Language::find(language).unwrap());
        let mut end = 0;
        for word in &words {
            assert_eq!(word.tokens.start, end);
            end = word.tokens.end;
        }
        assert_eq!(end, pieces.len());
        let counted = words.into_iter().map(|w| (w.text, w.tokens.len()));
        counted.collect()
    }

    fn expect(found: &[(String, usize)], expected: &[(&str, usize)]) {
        let found: Vec<(&str, usize)> = found.iter().map(|(t, n)| (&**t, *n)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn words_start_with_spaces_or_punctuation() {
        let pieces: [&[u8]; 6] = [b" And", b" s", b"o", b",", b" \"", b"my"];
        expect(
            &split(&pieces, "en"),
            &[(" And", 1), (" so", 2), (",", 1), (" \"my", 2)],
        );
        let pieces: [&[u8]; 3] = [b"a", b"\n", b"..."];
        // Runs of punctuation count only in the order of ASCII.
        expect(&split(&pieces, "en"), &[("a", 1), ("\n...", 2)]);
    }

    #[test]
    fn pieces_are_complete_utf8() {
        let pieces: [&[u8]; 4] = [b"\xE4\xBD", b"\xA0", "好".as_bytes(), "吗?".as_bytes()];
        let words = [("你", 2), ("好", 1), ("吗?", 1)];
        expect(&split(&pieces, "zh"), &words);
        expect(&split(&pieces, "en"), &[("你好吗?", 4)]);
        expect(&split(&[], "zh"), &[]);
    }

    #[test]
    fn invalid_bytes_are_pieces() {
        // Never complete: at the end, and before other text.
        expect(
            &split(&[b" a", b"\xF0\x9F", b"\x98"], "zh"),
            &[(" a", 1), ("\u{FFFD}", 1), ("\u{FFFD}", 1)],
        );
        expect(
            &split(&[b"\xF0\x9F", b" b"], "zh"),
            &[("\u{FFFD}", 1), (" b", 1)],
        );
        expect(
            &split(&["\u{FFFD}".as_bytes(), b"x"], "ja"),
            &[("\u{FFFD}", 1), ("x", 1)],
        );
    }

    fn timed(texts: &[&str]) -> Vec<TimedWord> {
        let word = |(at, text): (u32, &&str)| TimedWord {
            text: text.to_string(),
            tokens: 1,
            start: f64::from(at),
            end: f64::from(at + 1),
            probability: 1.0,
        };
        (0..).zip(texts).map(word).collect()
    }

    #[test]
    fn punctuation_joins_words() {
        for (texts, expected) in [
            (
                &[" Hi", ",", " \"", "you", "!", "\""][..],
                &[" Hi,", "", "", " \"you!\"", "", ""][..],
            ),
            (&[" -", " ("], &["", " - ("]),
            (&[" a", "'s"], &[" a", "'s"]),
            (&["."], &["."]),
            (&["a ", "."], &["a ", "."]),
            (&[], &[]),
        ] {
            let mut words = timed(texts);
            merge_punctuation(&mut words);
            let found: Vec<&str> = words.iter().map(|w| &*w.text).collect();
            assert_eq!(found, expected);
            let tokens: usize = words.iter().map(|w| w.tokens).sum();
            assert_eq!(tokens, texts.len());
        }
    }

    #[test]
    fn words_have_times_of_their_tokens() {
        let words = split_words(
            &[0, 1, 2],
            &|t| vec![b" ab"[t[0] as usize]],
            &crate::LANGUAGES[0],
        );
        let timed = time_words(words.clone(), &[5, 6, 7, 10], &[0.5, 0.25, 0.75]).unwrap();
        assert_eq!(timed.len(), 1);
        assert_eq!((timed[0].start, timed[0].end), (0.1, 0.2));
        assert_eq!((timed[0].tokens, timed[0].probability), (3, 0.5));
        time_words(words.clone(), &[5, 6, 7], &[0.5, 0.25, 0.75]).unwrap_err();
        time_words(words, &[5, 6, 7, 10], &[0.5]).unwrap_err();
        assert!(time_words(Vec::new(), &[3], &[]).unwrap().is_empty());
    }
}
