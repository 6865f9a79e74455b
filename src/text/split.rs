//! Cutting text into words: a safe window first, then the expressions of a row.
//!
//! The expression engine gives up after a million steps back, and the library that wraps it then ends
//! the search in silence: the rest of the text would become one word, with other tokens and no error.
//! So an expression never sees more text than it can walk over with a wide margin, and a longer text
//! is cut before, only at places where every row cuts anyway.

use super::pre::{Cut, Pre};
use crate::error::{Error, ErrorKind, Result, bail};
use tokenizers::utils::SysRegex;

/// Windows are cut at the last good place below this.
const WINDOW_BYTES: usize = 32 << 10;
/// The longest stretch without a good place that the expressions are given. Their worst case is a run
/// of spaces, with under three steps back per byte: a quarter of the million.
pub(super) const RUN_BYTES_MAX: usize = 256 << 10;

/// Cuts a text into windows at places that `good` accepts, each at most `run_bytes_max` long.
///
/// # Errors
/// `TooLarge` where a stretch without a good place is longer.
pub(super) fn windows(
    mut text: &str,
    run_bytes_max: usize,
    good: impl Fn(char, char) -> bool,
) -> Result<Vec<&str>> {
    let mut windows = Vec::new();
    while text.len() > WINDOW_BYTES {
        let places = text
            .char_indices()
            .zip(text.chars().skip(1))
            .filter_map(|((at, c), next)| good(c, next).then_some(at + c.len_utf8()));
        // The last place inside of the window, or else the first behind it.
        let mut place = None;
        for at in places {
            if at > WINDOW_BYTES && place.is_some() {
                break;
            }
            place = Some(at);
            if at > WINDOW_BYTES {
                break;
            }
        }
        let at = place.unwrap_or(text.len());
        if at > run_bytes_max {
            bail!(
                TooLarge,
                "the text has {at} bytes without a place to cut it, over the limit of {run_bytes_max}"
            );
        }
        windows.push(&text[..at]);
        text = &text[at..];
    }
    if !text.is_empty() || windows.is_empty() {
        windows.push(text);
    }
    Ok(windows)
}

/// The expressions of a row, compiled.
#[derive(Debug)]
pub(super) struct Splitter {
    regexes: Vec<SysRegex>,
    cut: Cut,
}

impl Splitter {
    pub(super) fn new(row: &Pre) -> Result<Self> {
        let compile = |regex: &&str| {
            SysRegex::new(regex)
                .map_err(|e| Error::new(ErrorKind::Internal, format!("{regex}: {e}")))
        };
        Ok(Self {
            regexes: row.regexes.iter().map(compile).collect::<Result<_>>()?,
            cut: row.cut,
        })
    }

    /// The words of a text, in order; together they are the text.
    pub(super) fn words<'t>(&self, text: &'t str) -> Result<Vec<&'t str>> {
        let windows = windows(text, RUN_BYTES_MAX, |c, next| is_good(self.cut, c, next))?;
        Ok(windows
            .into_iter()
            .flat_map(|window| self.split(window))
            .collect())
    }

    fn split<'t>(&self, window: &'t str) -> Vec<&'t str> {
        let mut words = vec![window];
        for regex in &self.regexes {
            let mut cut = Vec::with_capacity(words.len() * 2);
            for word in words {
                let mut done = 0;
                for (start, end) in regex.find_iter(word) {
                    cut.extend([&word[done..start], &word[start..end]]);
                    done = end;
                }
                cut.push(&word[done..]);
            }
            cut.retain(|word| !word.is_empty());
            words = cut;
        }
        words
    }
}

/// Whether every word that matters here ends between these two characters.
fn is_good(cut: Cut, c: char, next: char) -> bool {
    // All rows match these letters and digits, and none goes on from one to such a mark.
    let plain = c.is_ascii_alphanumeric() || ('\u{4e00}'..='\u{9fa5}').contains(&c);
    let mark = matches!(next, ' ' | '\n' | '、' | '。' | '，');
    (plain && mark) || (cut == Cut::Spaces && next == ' ' && !c.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::super::pre;
    use super::*;

    fn words<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        Splitter::new(pre::find(Some(name), 0).unwrap().1)
            .unwrap()
            .words(text)
            .unwrap()
    }

    #[test]
    fn rows_cut_as_documented() {
        assert_eq!(
            words("gpt-2", "I'll  go\n\n\tnow 123"),
            ["I", "'ll", " ", " go", "\n\n", "\t", "now", " 123"]
        );
        assert_eq!(
            words("llama-bpe", "I'LL 12345 x.\n\n y"),
            ["I", "'LL", " ", "123", "45", " x", ".\n\n", " y"]
        );
        assert_eq!(words("qwen2", "a1234"), ["a", "1", "2", "3", "4"]);
        assert_eq!(words("smollm", "is 12"), ["is", " ", "1", "2"]);
        assert_eq!(words("falcon", "a=1234"), ["a", "=", "123", "4"]);
        assert_eq!(words("deepseek-coder", "= = x"), ["= =", " x"]);
    }

    /// Texts of awkward neighbours, by a small generator (`SplitMix64`).
    fn text(seed: u64, chars: usize) -> String {
        const ALPHABET: [char; 26] = [
            ' ', ' ', ' ', '\n', '\r', '\t', 'a', 'Z', 's', '\'', '7', '0', '.', '(', '=', '/',
            '。', '，', '日', '한', 'é', 'я', '€', '\u{301}', '👍', '\u{3000}',
        ];
        let mut state = seed;
        let next = std::iter::repeat_with(move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            usize::try_from((z ^ (z >> 27)) >> 32).unwrap() % ALPHABET.len()
        });
        next.take(chars).map(|n| ALPHABET[n]).collect()
    }

    #[test]
    fn good_places_are_word_ends_in_every_row() {
        for row in pre::rows() {
            let splitter = Splitter::new(row).unwrap();
            for seed in 0..150 {
                let text = text(seed, 60);
                let whole = splitter.split(&text);
                assert_eq!(whole.concat(), text);
                let mut parts = Vec::new();
                let mut start = 0;
                for ((at, c), next) in text.char_indices().zip(text.chars().skip(1)) {
                    if is_good(row.cut, c, next) {
                        parts.extend(splitter.split(&text[start..at + c.len_utf8()]));
                        start = at + c.len_utf8();
                    }
                }
                parts.extend(splitter.split(&text[start..]));
                assert_eq!(parts, whole, "{} {text:?}", row.names[0]);
            }
        }
    }

    #[test]
    fn the_longest_runs_are_walked_to_the_end_in_every_row() {
        for row in pre::rows() {
            let splitter = Splitter::new(row).unwrap();
            for unit in [" ", "\t", "a", "A", "7", "=", "\u{301}", "日"] {
                // The end differs from the run, so a search that stopped early cannot hide.
                let text = unit.repeat(RUN_BYTES_MAX / unit.len() - 1) + "x";
                let short = unit.repeat(1001) + "x";
                let (long, short) = (splitter.split(&text), splitter.split(&short));
                let name = row.names[0];
                assert_eq!(long.len() > 1, short.len() > 1, "{name} {unit:?}");
                if long.len() > 1 {
                    assert_eq!(long.last(), short.last(), "{name} {unit:?}");
                }
            }
        }
    }

    #[test]
    fn a_run_over_the_limit_is_an_error_and_never_one_word() {
        let splitter = Splitter::new(pre::find(Some("llama-bpe"), 0).unwrap().1).unwrap();
        let text = " ".repeat(512 << 10) + "x";
        let error = splitter.words(&text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        let run = " ".repeat(RUN_BYTES_MAX - 1);
        let text = format!("{run}x");
        assert_eq!(splitter.words(&text).unwrap(), [&run[1..], " x"]);
    }

    #[test]
    fn windows_are_cut_at_good_places() {
        let text = "word ".repeat(30_000);
        let all = windows(&text, RUN_BYTES_MAX, |c, next| {
            is_good(Cut::Spaces, c, next)
        })
        .unwrap();
        assert!(all.len() > 3);
        assert!(all.iter().all(|w| w.len() <= WINDOW_BYTES));
        assert_eq!(all.concat(), text);
        assert_eq!(windows("", 1, |_, _| true).unwrap(), [""]);
        // The first good place lies behind the window.
        let text = "x".repeat(WINDOW_BYTES + 100) + " " + &"y".repeat(WINDOW_BYTES);
        let all = windows(&text, RUN_BYTES_MAX, |c, next| {
            is_good(Cut::Spaces, c, next)
        })
        .unwrap();
        assert_eq!(
            all.iter().map(|w| w.len()).collect::<Vec<_>>(),
            [WINDOW_BYTES + 100, WINDOW_BYTES + 1]
        );
    }
}
