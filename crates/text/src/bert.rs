//! What BERT does to a text before its tokens are looked for.
//!
//! Google's `tokenization.py`, in the reading of Hugging Face's `BertNormalizer` and `BertPreTokenizer`.

use super::pattern::Pattern;
use super::steps::{Cut, Edit, Form, Matches, Step};
use tabla_core::error::Result;

/// Control and format characters that are no white space, and what could not be read.
const CONTROLS: &str = r"[\p{Cc}\p{Cf}\p{Co}\x{fffd}&&[^\t\n\r]]";
/// Ideographs; `2b920` stands where 2b820 would be right, as it does there.
const IDEOGRAPHS: &str = concat!(
    r"[\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{20000}-\x{2a6df}\x{2a700}-\x{2b73f}",
    r"\x{2b740}-\x{2b81f}\x{2b920}-\x{2ceaf}\x{f900}-\x{faff}\x{2f800}-\x{2fa1f}]",
);
/// Punctuation of Unicode, and all of ASCII that is neither a letter nor a digit.
pub(super) const PUNCTUATION: &str = r"[\p{P}!-/:-@\[-`{-~]";

/// Control characters go away, and all white space becomes a space.
pub(super) fn clean() -> Result<[Step; 2]> {
    Ok([replace(CONTROLS, "")?, replace(r"\s", " ")?])
}

/// Each ideograph becomes a word.
pub(super) fn part_ideographs() -> Result<Step> {
    Ok(Step::Edit(Edit::Surround(Pattern::regex(IDEOGRAPHS)?)))
}

/// Letters lose their marks.
pub(super) fn strip_accents() -> Result<[Step; 2]> {
    Ok([Step::Edit(Edit::Form(Form::Nfd)), replace(r"\p{Mn}", "")?])
}

/// Words are what white space parts, and each punctuation mark is one.
pub(super) fn words() -> Result<[Step; 2]> {
    let spaces = Cut {
        pattern: Pattern::regex(r"\s")?,
        matches: Matches::Removed,
        invert: false,
    };
    let marks = Cut::isolated(Pattern::regex(PUNCTUATION)?);
    Ok([Step::Cut(spaces), Step::Cut(marks)])
}

fn replace(regex: &str, with: &str) -> Result<Step> {
    let pattern = Pattern::regex(regex)?;
    Ok(Step::Edit(Edit::Replace(pattern, with.into())))
}
