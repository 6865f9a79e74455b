//! `tabla tokenize` and `tabla detokenize`: text to ids and back.
//!
//! The line end that `echo` puts behind a text does not count, and a line end is put behind the
//! text that comes out: one undoes the other.

use crate::args::{ModelArg, prompt};
use crate::output::Failure;
use crate::output::terminal;
use clap::Args;
use serde_json::json;
use tabla::text::{DecodeOptions, EncodeOptions, SpecialTokens};

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct TokenizeArgs {
    /// The text; without it, standard input
    #[arg(value_name = "TEXT")]
    pub(crate) text: Option<String>,
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Writes one JSON object: ids and the text of each token
    #[arg(long)]
    pub(crate) json: bool,
    /// Takes special tokens that are spelt out in the text for what they are
    #[arg(long)]
    pub(crate) special: bool,
    /// Leaves out the token that begins a text
    #[arg(long)]
    pub(crate) no_bos: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DetokenizeArgs {
    /// The ids, separated by spaces or commas; without any, standard input
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Spells special tokens out instead of leaving them out
    #[arg(long)]
    pub(crate) special: bool,
}

pub(crate) fn encode(args: &TokenizeArgs) -> Result<(), Failure> {
    let text = match &args.text {
        Some(text) => text.clone(),
        None => prompt::stdin_to_end()?,
    };
    let tokenizer = tabla::load_tokenizer(&args.model.source(terminal::note)?)?;
    let encode = EncodeOptions {
        add_special: !args.no_bos,
        specials: if args.special {
            SpecialTokens::Tokens
        } else {
            SpecialTokens::Text
        },
    };
    let ids = tokenizer.encode(&text, encode)?;
    if args.json {
        let pieces = ids.iter().map(|id| tokenizer.token_bytes_with_special(*id));
        let pieces: Vec<_> = pieces.map(String::from_utf8_lossy).collect();
        let object = json!({ "ids": ids, "pieces": pieces, "count": ids.len() });
        return terminal::line(&object.to_string());
    }
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    terminal::line(&ids.join(" "))
}

pub(crate) fn decode(args: &DetokenizeArgs) -> Result<(), Failure> {
    let text = if args.ids.is_empty() {
        prompt::stdin_to_end()?
    } else {
        args.ids.join(" ")
    };
    let ids = ids(&text)?;
    let tokenizer = tabla::load_tokenizer(&args.model.source(terminal::note)?)?;
    let decode = DecodeOptions {
        from_start: true,
        specials: if args.special {
            SpecialTokens::Tokens
        } else {
            SpecialTokens::Text
        },
    };
    let text = tokenizer.decode_lossy(&ids, decode)?;
    if terminal::stdout_is_terminal() {
        return terminal::line(&terminal::printable(&text));
    }
    terminal::line(&text)
}

/// Ids between blanks, commas and brackets, so that a JSON array will do.
fn ids(text: &str) -> Result<Vec<u32>, Failure> {
    let between = |c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']');
    let words = text.split(between).filter(|word| !word.is_empty());
    let id = |word: &str| {
        let shown = terminal::one_line(word);
        word.parse()
            .map_err(|_| Failure::Usage(format!("{shown:?} is no token id")))
    };
    words.map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_in_many_forms() {
        for text in ["1 22 333", "1,22,333", "[1, 22, 333]\n"] {
            assert_eq!(ids(text).expect("ids"), [1, 22, 333], "{text}");
        }
        assert!(ids("1 x").is_err());
        assert!(ids("-1").is_err());
        assert!(ids("4294967296").is_err());
    }
}
