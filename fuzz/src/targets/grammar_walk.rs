//! A random output of a grammar.

use super::choices::Choices;
use super::errors::check;
use std::sync::{Arc, OnceLock};
use tabla::ErrorKind;
use tabla::text::{Grammar, GrammarEngine, Matcher, Tokenizer, Vocab};

/// Maximum number of tokens of an output.
const TOKENS_MAX: usize = 80;
/// Tokens of several bytes, after one for each byte and the end token.
const PIECES: [&str; 10] = [
    "{\"", "\":", "abc", "ab", "b", "true", "\",\"", "\u{4f60}", "]}", "1.5",
];
const END: u32 = 256;

fn engine() -> &'static (Arc<Tokenizer>, GrammarEngine) {
    static ENGINE: OnceLock<(Arc<Tokenizer>, GrammarEngine)> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let bytes: Vec<String> = (0..=255).map(|byte| format!("<0x{byte:02X}>")).collect();
        let bytes = bytes
            .iter()
            .map(|byte| (byte.as_str(), 6))
            .chain([("</s>", 3)]);
        let (tokens, types): (Vec<&str>, Vec<u32>) =
            bytes.chain(PIECES.map(|piece| (piece, 1))).unzip();
        let scores = vec![0.0; tokens.len()];
        let vocab = Vocab {
            model: "llama",
            tokens,
            types,
            scores,
            eos: Some(END),
            ..Vocab::default()
        };
        let tokenizer = Arc::new(Tokenizer::new(&vocab).expect("a valid vocabulary"));
        let engine = GrammarEngine::new(&tokenizer).expect("a vocabulary for grammars");
        (tokenizer, engine)
    })
}

/// Compiles a grammar and returns an output that it allows, `None` without a grammar or an end.
pub(crate) fn walk(grammar: &Grammar, choices: &mut Choices<'_>) -> Option<Vec<u8>> {
    let (tokenizer, engine) = engine();
    let compiled = engine
        .compile(grammar)
        .map_err(|error| check(&error))
        .ok()?;
    let mut matcher = compiled.matcher();
    let mut output = Vec::new();
    for _ in 0..TOKENS_MAX {
        let allowed = mask(&mut matcher, tokenizer)?;
        assert_eq!(
            allowed.contains(&END),
            matcher.may_end().expect("a valid state"),
            "the end token"
        );
        if matcher.is_done()
            || (allowed.contains(&END) && (choices.is_empty() || choices.rarely(4)))
        {
            return Some(output);
        }
        let token = allowed[choices.byte() as usize % allowed.len()];
        if token == END {
            return Some(output);
        }
        check_others(&mut matcher, tokenizer, &allowed, choices);
        if let Err(error) = matcher.commit(token) {
            // The grammar is too ambiguous after this token.
            assert_eq!(
                error.kind(),
                ErrorKind::Grammar,
                "token {token} is allowed: {error}"
            );
            return None;
        }
        output.extend(tokenizer.token_bytes(token));
    }
    None
}

/// Returns the allowed tokens; `None` if the grammar is too ambiguous.
fn mask(matcher: &mut Matcher, tokenizer: &Tokenizer) -> Option<Vec<u32>> {
    let mut mask = vec![0; tokenizer.vocab_size().div_ceil(32)];
    if let Err(error) = matcher.mask(&mut mask) {
        check(&error);
        return None;
    }
    let is_allowed = |token: &u32| mask[*token as usize / 32] & 1 << (token % 32) != 0;
    let allowed: Vec<u32> = (0..tokenizer.vocab_size() as u32)
        .filter(is_allowed)
        .collect();
    assert!(!allowed.is_empty(), "an empty mask");
    Some(allowed)
}

/// Returns the text that must follow.
fn forced(matcher: &mut Matcher, tokenizer: &Tokenizer) -> Vec<u8> {
    let mut tokens = Vec::new();
    matcher.forced(&mut tokens).expect("a valid state");
    let bytes = tokens.iter().map(|token| tokenizer.token_bytes(*token));
    bytes.flatten().copied().collect()
}

/// Checks that a token that is not allowed is an error that changes nothing, and that rollback returns to the state.
fn check_others(
    matcher: &mut Matcher,
    tokenizer: &Tokenizer,
    allowed: &[u32],
    choices: &mut Choices<'_>,
) {
    let other = u32::from(choices.byte());
    if !choices.rarely(4) {
        return;
    }
    if !allowed.contains(&other) {
        match matcher.commit(other) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Argument, "{error}"),
            Ok(()) => {
                // Another token for a forced text, of which the mask has only the canonical one.
                matcher.rollback(1).expect("one token");
                let text = forced(matcher, tokenizer);
                let bytes = tokenizer.token_bytes(other);
                let fits = text.starts_with(bytes) || bytes.starts_with(&text);
                assert!(!text.is_empty() && fits, "token {other} is not allowed");
            }
        }
    } else if other != END {
        if let Err(error) = matcher.clone().commit(other) {
            assert_eq!(error.kind(), ErrorKind::Grammar, "{error}");
            return;
        }
        matcher.commit(other).expect("as the clone");
        matcher.rollback(1).expect("one token");
    }
    assert_eq!(
        mask(matcher, tokenizer).as_deref(),
        Some(allowed),
        "the state has changed"
    );
}
