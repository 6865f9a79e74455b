//! Conversion of a vocabulary of tiktoken to a `tokenizer.json`.

use super::probes::check;
use super::translate::byte_level;
use crate::bytelevel;
use crate::pieces::TokenType;
use crate::ranks::{self, RankedVocab};
use crate::tokenizer::Tokenizer;
use tabla_core::error::{Context, Result};

impl RankedVocab<'_> {
    /// Converts the vocabulary to the text of a `tokenizer.json`.
    ///
    /// # Errors
    ///
    /// As [`Tokenizer::from_ranks`]; `Unsupported` if the converted tokenizer differs, as for a
    /// vocabulary that was not trained with BPE.
    pub fn to_json(&self) -> Result<String> {
        let specials = [&*self.controls, &*self.added].concat();
        let mut spec = ranks::spec(&self.tokens, &specials)?;
        let first_added = self.tokens.len() + self.controls.len();
        spec.token_types[first_added..].fill(TokenType::UserDefined);
        (spec.before, spec.after) = (self.before.clone(), self.after.clone());
        let merges: Vec<String> = ranks::merges(&self.tokens)
            .iter()
            .map(|parts| parts.map(bytelevel::encode).join(" "))
            .collect();
        let text = byte_level(&spec, &merges)?.to_string();
        let converted = Tokenizer::from_json(&text, None)?;
        let original = Tokenizer::build(spec).context("vocabulary")?;
        check(&converted, &original).context("converting the vocabulary to tokenizer.json")?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::{EncodeOptions, SpecialTokens};
    use tabla_core::error::ErrorKind;

    #[test]
    fn converts_to_json() {
        let bytes: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
        let mut tokens: Vec<&[u8]> = bytes.iter().map(|byte| &byte[..]).collect();
        tokens.extend([&b"ll"[..], b"He", b"llo", b"Hello", b""]);
        let mut vocab = RankedVocab {
            tokens,
            controls: vec!["<|end|>".to_string(), "<|start|>".to_string()],
            added: vec!["<|0.00|>".to_string()],
            before: vec![262],
            after: vec![261],
        };
        let json = vocab.to_json().unwrap();
        let tokenizer = Tokenizer::from_json(&json, None).unwrap();
        let options = EncodeOptions {
            add_special: true,
            specials: SpecialTokens::Text,
        };
        let ids = tokenizer.encode("Hello<|0.00|>", options).unwrap();
        assert_eq!(ids, [262, 259, 263, 261]);
        assert!(tokenizer.is_control(262) && !tokenizer.is_control(263));
        // `llo` is no token of the merges, so that the whole word is no result of merges either.
        vocab.tokens[256] = b"xx";
        let error = vocab.to_json().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }

    #[test]
    fn merges_bytes_of_characters() {
        let bytes: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
        let mut tokens: Vec<&[u8]> = bytes.iter().map(|byte| &byte[..]).collect();
        // A part of a character, and a token with the space of a word.
        tokens.extend([&b"\xe6\x97"[..], "\u{65e5}".as_bytes(), b" a"]);
        let tokenizer = Tokenizer::from_ranks(&tokens, &[]).unwrap();
        let encode = |text| tokenizer.encode(text, EncodeOptions::default()).unwrap();
        assert_eq!(encode("x\u{65e5}"), [120, 257]);
        assert_eq!(encode(" ab"), [258, 98]);
        // The token of the byte E9 is spelled like this character, whose bytes are others.
        assert_eq!(encode("x\u{e9}"), [120, 0xc3, 0xa9]);
    }
}
