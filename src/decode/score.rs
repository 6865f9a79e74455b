//! Log-probabilities of given tokens.

use super::generate::GenerateOptions;
use super::output_request::{OutputRequest, TargetLogprobs};
use super::outputs::{Logprob, ScoredToken};
use super::rows::{filled, zeroed};
use super::session::Session;
use crate::error::{Result, bail};
use crate::model::TableId;

impl Session {
    /// Returns the log-probability (natural logarithm) of each token from index `from` on, given
    /// all tokens before it. The tokens are a separate sequence, not a continuation of the session.
    /// The prefix before `from` is cached, so that scoring several continuations computes it once.
    /// `progress` receives the number of computed tokens and the total.
    ///
    /// # Errors
    ///
    /// `Argument` if `from` is 0 or not less than the number of tokens, and for a token outside the
    /// vocabulary; `TooLarge` if the tokens exceed the context; `State` for an encoder; `Memory`.
    /// Nothing is computed then. `Cancelled` after [`Cancel::cancel`](crate::Cancel::cancel).
    pub fn score(
        &mut self,
        tokens: &[u32],
        from: usize,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<f32>> {
        let (prefix, targets) = self.targets(tokens, from, 0)?;
        let output = OutputRequest::Logprobs(targets);
        let scores = self.detached(prefix)?.compute(output, progress)?;
        self.check_scores(from, scores.iter().copied())?;
        Ok(scores)
    }

    /// Checks the log-probabilities of tokens from index `from` on. A token can have the probability 0.
    fn check_scores(&self, from: usize, mut scores: impl Iterator<Item = f32>) -> Result<()> {
        match scores.position(f32::is_nan) {
            Some(at) => {
                let what = format!("the log-probability of token {}", from + at);
                self.check_finite(&what, &[f32::NAN])
            }
            None => Ok(()),
        }
    }

    /// Same as [`score`](Self::score), and returns for each token also the `top` likeliest tokens at
    /// its position, at most [`GenerateOptions::LOGPROBS_MAX`]. The log-probabilities have the bits
    /// that `score` returns.
    ///
    /// # Errors
    ///
    /// See [`Session::score`]. `Argument` if `top` exceeds the maximum.
    pub fn score_with_alternatives(
        &mut self,
        tokens: &[u32],
        from: usize,
        top: u32,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<ScoredToken>> {
        let max = GenerateOptions::LOGPROBS_MAX;
        if top > max {
            bail!(
                Argument,
                "the number of alternatives must be at most {max}, got {top}"
            );
        }
        let (prefix, targets) = self.targets(tokens, from, top)?;
        let output = OutputRequest::Logprobs(targets);
        let output = self.detached(prefix)?.compute_output(output, progress)?;
        let scored = output.into_scored_tokens();
        self.check_scores(from, scored.iter().map(|token| token.logprob))?;
        Ok(scored)
    }

    /// Checks the tokens to score. Returns the tokens to compute, and the buffers for the result.
    fn targets<'t>(
        &self,
        tokens: &'t [u32],
        from: usize,
        top: u32,
    ) -> Result<(&'t [u32], TargetLogprobs)> {
        let (vocab, context) = (self.facts().vocab, self.facts().context as usize);
        let Some((last, prefix)) = tokens.split_last().filter(|_| from < tokens.len()) else {
            let count = tokens.len();
            bail!(
                Argument,
                "index {from} of the first token to score is out of range: there are {count} tokens"
            );
        };
        if from == 0 {
            bail!(
                Argument,
                "the first token cannot be scored: no token precedes it"
            );
        }
        // The last token is scored but not computed.
        if prefix.len() > context {
            let (count, max) = (tokens.len(), context + 1);
            bail!(
                TooLarge,
                "{count} tokens exceed the maximum of {max} for a context of {context} positions"
            );
        }
        if *last >= vocab {
            bail!(
                Argument,
                "token {last} is outside the vocabulary of {vocab}"
            );
        }
        let steps = self.model.tables().iter();
        let steps = steps.filter(|table| table.name == TableId::Step.name());
        let rows = steps.map(|table| table.tokens as usize).max().unwrap_or(0);
        let top = top.min(vocab) as usize;
        let empty = Logprob {
            token: 0,
            logprob: 0.0,
        };
        let targets = TargetLogprobs {
            first: from - 1,
            tokens: tokens[from..].to_vec(),
            logits: zeroed(rows * vocab as usize)?,
            logprobs: zeroed(tokens.len() - from)?,
            top,
            alternatives: filled((tokens.len() - from) * top, empty)?,
        };
        Ok((prefix, targets))
    }
}
