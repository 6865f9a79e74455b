//! Scores: how likely a model finds tokens behind those in front of them.

use super::output_request::{Likelihoods, OutputRequest};
use super::session::{Session, room};
use crate::error::{Result, bail};
use crate::model::TableId;

impl Session {
    /// The log-probability (natural logarithm) of each token from the `from`th on, given all that
    /// stand in front of it. The text begins anew, beside the sequence of the session; what is in
    /// front of `from` may come out of the cache and stays there, so that several ends of one
    /// beginning cost that once. `progress` hears how many of how many tokens are done.
    ///
    /// # Errors
    ///
    /// `Argument` where `from` names no token with one in front of it and for an id outside the
    /// vocabulary, `TooLarge` where the tokens do not fit the context, `State` for an encoder,
    /// `Memory`; nothing is computed then. `Cancelled` after [`Cancel::cancel`](crate::Cancel::cancel).
    pub fn score(
        &mut self,
        tokens: &[u32],
        from: usize,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<f32>> {
        let (vocab, context) = (self.facts().vocab, self.facts().context as usize);
        let Some((last, fed)) = tokens.split_last().filter(|_| from < tokens.len()) else {
            let count = tokens.len();
            bail!(Argument, "no token {from} to score: there are {count}");
        };
        if from == 0 {
            bail!(Argument, "the first token has nothing in front of it");
        }
        // The last one has to be known and is not fed.
        if fed.len() > context {
            let (count, most) = (tokens.len(), context + 1);
            bail!(
                TooLarge,
                "{count} tokens are over the {most} that a context of {context} positions scores"
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
        let wanted = Likelihoods {
            first: from - 1,
            tokens: tokens[from..].to_vec(),
            logits: room(rows * vocab as usize)?,
            numbers: room(tokens.len() - from)?,
        };
        self.beside(fed)?
            .feed(OutputRequest::Likelihoods(wanted), progress)
    }
}
