//! Texts of a generator.

use super::choices::Choices;

/// Texts that tokenizers, templates and JSON treat in a special way.
const PARTS: [&str; 30] = [
    "a",
    " ",
    "  ",
    "\n",
    "the",
    "<|end|>",
    "</s>",
    "<s>",
    "\u{2581}",
    "\u{e9}",
    "e\u{301}",
    "\u{4f60}\u{597d}",
    "\u{1f469}\u{200d}\u{1f466}",
    "1",
    "23",
    "'s",
    "'",
    "\"",
    "\\",
    "{",
    "}",
    "[CLS]",
    "\0",
    "\u{ad}",
    "A",
    "\t",
    "\r\n",
    "\u{fffd}",
    "\u{a0}",
    "-",
];

/// Returns a text of at most `most` parts.
pub(crate) fn text(choices: &mut Choices<'_>, most: usize) -> String {
    let mut text = String::new();
    for _ in 0..choices.below(most + 1) {
        match choices.below(PARTS.len() + 4) {
            at if at < PARTS.len() => text += PARTS[at],
            _ => {
                let length = choices.below(8);
                text += &String::from_utf8_lossy(choices.bytes(length));
            }
        }
    }
    text
}
