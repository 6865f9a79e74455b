//! Normalization and pre-tokenization of BERT.
//!
//! From Google's `tokenization.py`, as implemented by Hugging Face's `BertNormalizer` and
//! `BertPreTokenizer`.

use super::pattern::Pattern;
use super::steps::{Normalization, NormalizationForm, Split, SplitBehavior, Step};
use tabla_core::error::Result;

/// Control and format characters except white space, and U+FFFD.
const CONTROLS: &str = r"[\p{Cc}\p{Cf}\p{Co}\x{fffd}&&[^\t\n\r]]";
/// CJK ideographs. `2b920` should be 2b820; the reference has the same error.
const IDEOGRAPHS: &str = concat!(
    r"[\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{20000}-\x{2a6df}\x{2a700}-\x{2b73f}",
    r"\x{2b740}-\x{2b81f}\x{2b920}-\x{2ceaf}\x{f900}-\x{faff}\x{2f800}-\x{2fa1f}]",
);
/// Unicode punctuation, and all ASCII characters that are neither letters nor digits.
pub(super) const PUNCTUATION: &str = r"[\p{P}!-/:-@\[-`{-~]";

/// Removes control characters and replaces white space with spaces.
pub(super) fn clean() -> Result<[Step; 2]> {
    Ok([replace(CONTROLS, "")?, replace(r"\s", " ")?])
}

/// Puts spaces around each ideograph.
pub(super) fn separate_ideographs() -> Result<Step> {
    Ok(Step::Normalize(Normalization::Surround(Pattern::regex(
        IDEOGRAPHS,
    )?)))
}

/// Removes combining marks.
pub(super) fn strip_accents() -> Result<[Step; 2]> {
    Ok([
        Step::Normalize(Normalization::Form(NormalizationForm::Nfd)),
        replace(r"\p{Mn}", "")?,
    ])
}

/// Splits at white space; each punctuation character is a separate word.
pub(super) fn words() -> Result<[Step; 2]> {
    let spaces = Split {
        pattern: Pattern::regex(r"\s")?,
        behavior: SplitBehavior::Removed,
        invert: false,
    };
    let punctuation = Split::isolated(Pattern::regex(PUNCTUATION)?);
    Ok([Step::Split(spaces), Step::Split(punctuation)])
}

fn replace(regex: &str, with: &str) -> Result<Step> {
    let pattern = Pattern::regex(regex)?;
    Ok(Step::Normalize(Normalization::Replace(
        pattern,
        with.into(),
    )))
}
