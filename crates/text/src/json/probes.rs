//! Texts on which a converted tokenizer is compared with the original.

use super::settings::AddedTokens;
use crate::tokenizer::{EncodeOptions, SpecialTokens, Tokenizer};
use tabla_core::error::{Error, ErrorKind, Result};

/// Letters, digits, marks, white space and newlines in combinations that distinguish pre-tokenizers.
pub(super) const PROSE: &str = "Hello, world! It's WE'LL they'Re I'd 1234567 12.5% x=3;y_z \
    HTTPServer camelCase iPhone\n\n\n  \tindented\r\n  two   spaces    end \
    caf\u{e9} na\u{ef}ve x\u{301} \u{dc}ber \u{393}\u{3b5}\u{3b9}\u{3ac} \
    \u{41f}\u{440}\u{438}\u{432}\u{435}\u{442} \u{645}\u{631}\u{62d}\u{628}\u{627} \
    \u{939}\u{93f}\u{928}\u{94d}\u{926}\u{940} \u{e2a}\u{e27}\u{e31}\u{e2a} \
    \u{65e5}\u{672c}\u{8a9e}\u{306e}\u{30c6}\u{30ad}\u{30b9}\u{30c8}\u{3002}\u{4e2d}\u{6587}123 \
    \u{d55c}\u{ad6d}\u{c5b4} \u{1f642}\u{1f468}\u{200d}\u{1f469} <a href='b'>//c</a> \
    $9.99 (a)[b]{c} #!/bin ... ??!\n\u{661}\u{662}\u{663} \u{b2}\u{bd} don\u{2019}t\u{3000}.";

/// Texts that programs often treat differently: white space at both ends, empty texts, control characters, combining
/// marks and long words.
pub(super) const EDGES: [&str; 18] = [
    "",
    " ",
    "  \t\n ",
    "\r\n",
    " x",
    "x ",
    "  Two words  ",
    "\tx\t",
    "\n x \n",
    "\u{a0}x\u{a0}",
    "\u{3000}x\u{2003}y\u{3000}",
    "\u{2581}x \u{2581} y\u{2581}",
    "a\u{0}b\u{1}c\u{7f}d\u{85}e\u{2028}f\u{b}g\u{c}h",
    "a\u{200b}b\u{200d}c\u{ad}d\u{feff}e\u{fffd}f\u{e000}g",
    "e\u{301}\u{323} A\u{30a} \u{1e9b}\u{323} \u{fb01} \u{212b} \u{2460} \u{33a5} \u{fdfb} \u{ff21}\u{ff76}\u{ff9e}",
    "I\u{130}\u{131}i \u{3a3}\u{3c3}\u{3c2} \u{1e9e}\u{df} MiXeD \u{c9}T\u{c9} e\u{301}t\u{e9}",
    "\u{1f1e9}\u{1f1ea} \u{2764}\u{fe0f} \u{1112}\u{1161}\u{11ab} \u{5d9}\u{5bc} \u{e01}\u{e33}",
    LONG_WORD,
];

/// A word of 240 characters.
const LONG_WORD: &str = concat!(
    "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl",
    "mnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwx",
    "yzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghij",
    "klmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdef",
);

/// How a converted tokenizer compares with the original.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// All tokens are the same.
    Same,
    /// Words with a space between two have the same tokens; this text does not. Whether it has added tokens.
    Edges(String, AddedTokens),
    /// Words with a space between two have other tokens.
    Prose(String),
}

/// A text with an added token: next to letters, next to white space of several kinds, twice, and in other cases.
fn around(token: &str) -> String {
    let (lower, upper) = (token.to_lowercase(), token.to_uppercase());
    format!(
        "x{token}y x {token} y a\n{token}\nb\u{a0}{token}\u{3000}c\t{token}\r\nd  {token}{token}  {token} {lower} {upper} "
    )
}

/// Compares two tokenizers on all texts.
pub(super) fn compare(converted: &Tokenizer, original: &Tokenizer) -> Comparison {
    let differs = |text: &str, specials: SpecialTokens| {
        let options = EncodeOptions {
            add_special: true,
            specials,
        };
        // A vocabulary may have no tokens for a character, which is an error of both.
        let ids = |tokenizer: &Tokenizer| tokenizer.encode(text, options).ok();
        ids(converted) != ids(original)
    };
    let shown = |text: &str| text.chars().take(40).collect();
    let words: Vec<&str> = PROSE.split_whitespace().collect();
    if differs(&words.join(" "), SpecialTokens::Text) {
        return Comparison::Prose(shown(PROSE));
    }
    for text in EDGES.into_iter().chain([PROSE]) {
        if differs(text, SpecialTokens::Text) {
            return Comparison::Edges(shown(text), AddedTokens::Also);
        }
    }
    let added: Vec<String> = original.added_tokens().into_iter().map(around).collect();
    for specials in [SpecialTokens::Tokens, SpecialTokens::Text] {
        if !differs(&added.concat(), specials) {
            continue;
        }
        for text in &added {
            if differs(text, specials) {
                return Comparison::Edges(text.clone(), AddedTokens::Only);
            }
        }
        let all = "two added tokens next to each other".to_string();
        return Comparison::Edges(all, AddedTokens::Only);
    }
    Comparison::Same
}

/// Compares pairs of texts, as cross-encoders read them. A tokenizer without a format of pairs has none that could
/// differ.
///
/// # Errors
/// Those of [`Tokenizer::encode_pair`].
pub(super) fn have_same_pairs(converted: &Tokenizer, original: &Tokenizer) -> Result<bool> {
    let texts = ["One text.", "Another one."];
    match original.encode_pair(texts, None) {
        Ok(pair) => Ok(converted.encode_pair(texts, None)? == pair),
        Err(e) if e.kind() == ErrorKind::Unsupported => Ok(true),
        Err(e) => Err(e),
    }
}

/// Checks that a converted tokenizer encodes all texts as the original does.
///
/// # Errors
/// `Unsupported` if it does not.
pub(super) fn check(converted: &Tokenizer, original: &Tokenizer) -> Result<()> {
    match compare(converted, original) {
        Comparison::Same => Ok(()),
        Comparison::Edges(text, _) | Comparison::Prose(text) => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the converted tokenizer would produce different tokens, for example of {text:?}"
            ),
        )),
    }
}
