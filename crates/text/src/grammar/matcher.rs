//! The state of one output in a grammar.

use super::error::grammar_error;
use crate::Tokenizer;
use llguidance::Matcher as Parser;
use std::fmt;
use std::sync::Arc;
use tabla_core::error::{Context, Result, bail};

/// Tracks one output: computes which tokens may come next and consumes the sampled token.
///
/// Every call may allocate, and a mask may take some milliseconds. After an error of kind `Grammar`
/// the matcher cannot continue.
pub struct Matcher {
    parser: Parser,
    tokenizer: Arc<Tokenizer>,
    /// Number of consumed tokens.
    consumed: usize,
    /// Whether the last consumed token ended the output without being a part of it.
    ended: bool,
}

impl Matcher {
    pub(super) fn new(parser: Parser, tokenizer: Arc<Tokenizer>) -> Self {
        Self {
            parser,
            tokenizer,
            consumed: 0,
            ended: false,
        }
    }

    /// Writes the mask of allowed tokens: bit `i % 32` of word `i / 32` is token `i`. Words past the
    /// vocabulary are 0. End-of-generation tokens are allowed where the grammar accepts. Where only one text may
    /// follow, the mask has only the first of its [canonical tokens](Self::forced).
    ///
    /// # Errors
    /// `Argument` for a mask that is shorter than the vocabulary, `Grammar` if the grammar is too
    /// ambiguous or no token is allowed.
    pub fn mask(&mut self, out: &mut [u32]) -> Result<()> {
        let words = self.tokenizer.vocab_size().div_ceil(32);
        if out.len() < words {
            bail!(
                Argument,
                "a mask of {} words is too short for a vocabulary of {}",
                out.len(),
                self.tokenizer.vocab_size()
            );
        }
        let mask = self.parser.compute_mask_or_eos().map_err(grammar_error);
        let mask = mask.context("token mask")?;
        let (vocabulary, padding) = out.split_at_mut(words);
        vocabulary.copy_from_slice(&mask.as_slice()[..words]);
        padding.fill(0);
        Ok(())
    }

    /// Consumes the next token of the output: one of the mask, or another one for the same text where only one text
    /// may follow.
    ///
    /// # Errors
    /// `Argument` for a token that the grammar does not allow, which changes nothing; `Grammar` as for
    /// [`mask`](Self::mask).
    pub fn commit(&mut self, token: u32) -> Result<()> {
        let ends = !self.ended && self.tokenizer.is_stop(token) && self.may_end()?;
        let is_consumed = !self.ended && (ends || self.consume(token)?);
        if !is_consumed {
            bail!(Argument, "token {token} is not allowed by the grammar");
        }
        self.ended = ends;
        self.consumed += 1;
        Ok(())
    }

    /// Consumes a text that may begin or end within a token.
    ///
    /// # Errors
    /// `Argument` for a text that is not allowed, of which a part may have been consumed; `Grammar`
    /// as for [`mask`](Self::mask).
    pub fn commit_text(&mut self, text: &[u8]) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let environment = self.parser.tok_env().map_err(grammar_error)?;
        let tokens = environment.tokenize_bytes(text);
        tokens.into_iter().try_for_each(|token| self.commit(token))
    }

    fn consume(&mut self, token: u32) -> Result<bool> {
        if token as usize >= self.tokenizer.vocab_size() {
            return Ok(false);
        }
        let consumed = self.parser.try_consume_tokens(&[token]);
        Ok(consumed
            .map_err(grammar_error)
            .context(format_args!("token {token}"))?
            == 1)
    }

    /// Writes the forced tokens: those that must come next regardless of the model. May be empty. They
    /// are the canonical tokens of the forced text, and are not consumed.
    ///
    /// # Errors
    /// `Grammar` as for [`mask`](Self::mask).
    pub fn forced(&mut self, out: &mut Vec<u32>) -> Result<()> {
        out.clear();
        if !self.is_done() {
            out.extend(self.parser.compute_ff_tokens());
        }
        match self.parser.get_error() {
            None => Ok(()),
            Some(error) => Err(grammar_error(error)).context("forced tokens"),
        }
    }

    /// Whether the output may end here.
    ///
    /// # Errors
    /// `Grammar` as for [`mask`](Self::mask).
    pub fn may_end(&mut self) -> Result<bool> {
        Ok(self.is_done() || self.parser.is_accepting().map_err(grammar_error)?)
    }

    /// Whether the output is complete: only an end-of-generation token may follow, or one did.
    pub fn is_done(&self) -> bool {
        self.ended || (self.parser.is_stopped() && self.parser.stop_reason().is_ok())
    }

    /// Undoes the last `tokens` consumed tokens.
    ///
    /// # Errors
    /// `Argument` for more than were consumed.
    pub fn rollback(&mut self, tokens: usize) -> Result<()> {
        if tokens > self.consumed {
            bail!(
                Argument,
                "cannot roll back {tokens} tokens, only {} were consumed",
                self.consumed
            );
        }
        // The parser did not consume an end token that is not a part of the grammar.
        let in_parser = tokens - usize::from(self.ended && tokens > 0);
        self.parser.rollback(in_parser).map_err(grammar_error)?;
        self.ended &= tokens == 0;
        self.consumed -= tokens;
        Ok(())
    }
}

/// Creates an independent matcher in the same state.
impl Clone for Matcher {
    fn clone(&self) -> Self {
        Self {
            parser: self.parser.deep_clone(),
            tokenizer: self.tokenizer.clone(),
            ..*self
        }
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matcher")
            .field("consumed", &self.consumed)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
