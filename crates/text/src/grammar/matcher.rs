//! One answer on its way through a grammar.

use super::error::refused;
use crate::Tokenizer;
use llguidance::Matcher as Parser;
use std::fmt;
use std::sync::Arc;
use tabla_core::error::{Context, Result, bail};

/// Follows one answer: says which tokens may come next, and takes the one that was picked.
///
/// Every call allocates a little, and a mask may take some milliseconds. After an error of kind
/// `Grammar` the answer cannot go on.
pub struct Matcher {
    parser: Parser,
    tokenizer: Arc<Tokenizer>,
    /// Tokens that were taken.
    taken: usize,
    /// Whether the last of them ended the answer without being a part of it.
    ended: bool,
}

impl Matcher {
    pub(super) fn new(parser: Parser, tokenizer: Arc<Tokenizer>) -> Self {
        Self {
            parser,
            tokenizer,
            taken: 0,
            ended: false,
        }
    }

    /// Writes which tokens may come next: bit `i % 32` of word `i / 32` is token `i`. Words past
    /// the vocabulary become 0. Tokens that end an answer are among them where the grammar may end.
    ///
    /// # Errors
    /// `Argument` for a mask that is shorter than the vocabulary, `Grammar` where the grammar has
    /// become too ambiguous or has come to a dead end.
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
        let mask = self.parser.compute_mask_or_eos().map_err(refused);
        let mask = mask.context("the tokens that may come next")?;
        let (front, behind) = out.split_at_mut(words);
        front.copy_from_slice(&mask.as_slice()[..words]);
        behind.fill(0);
        Ok(())
    }

    /// Takes the next token of the answer.
    ///
    /// # Errors
    /// `Argument` for a token that may not come next, which changes nothing; `Grammar` as for
    /// [`mask`](Self::mask).
    pub fn commit(&mut self, token: u32) -> Result<()> {
        let ends = !self.ended && self.tokenizer.is_stop(token) && self.may_end()?;
        let taken = !self.ended && (ends || self.take(token)?);
        if !taken {
            bail!(Argument, "token {token} may not come next in the grammar");
        }
        self.ended = ends;
        self.taken += 1;
        Ok(())
    }

    fn take(&mut self, token: u32) -> Result<bool> {
        if token as usize >= self.tokenizer.vocab_size() {
            return Ok(false);
        }
        let taken = self.parser.try_consume_tokens(&[token]);
        Ok(taken
            .map_err(refused)
            .context(format_args!("token {token}"))?
            == 1)
    }

    /// Writes the tokens that must come next, whatever the model says; there may be none. They are
    /// those that the model would have seen for the text, and are not taken yet.
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
            Some(error) => Err(refused(error)).context("the tokens that must come next"),
        }
    }

    /// Whether the answer may end here.
    ///
    /// # Errors
    /// `Grammar` as for [`mask`](Self::mask).
    pub fn may_end(&mut self) -> Result<bool> {
        Ok(self.is_done() || self.parser.is_accepting().map_err(refused)?)
    }

    /// Whether the answer is whole: nothing can follow but a token that ends it, or one did.
    pub fn is_done(&self) -> bool {
        self.ended || (self.parser.is_stopped() && self.parser.stop_reason().is_ok())
    }

    /// Takes the last `tokens` back.
    ///
    /// # Errors
    /// `Argument` for more than were taken.
    pub fn rollback(&mut self, tokens: usize) -> Result<()> {
        if tokens > self.taken {
            bail!(
                Argument,
                "{tokens} tokens cannot be taken back of {}",
                self.taken
            );
        }
        let of_grammar = tokens - usize::from(self.ended && tokens > 0);
        self.parser.rollback(of_grammar).map_err(refused)?;
        self.ended &= tokens == 0;
        self.taken -= tokens;
        Ok(())
    }
}

/// Another answer that goes on from the same place, on its own.
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
            .field("taken", &self.taken)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
