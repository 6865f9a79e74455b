//! Speculation: guesses at the tokens to come, which one pass of the model checks together.
//!
//! A pass over the last token and `k` guesses behind it picks a token behind each of them. A guess is
//! right where it is what was picked in front of it; up to the first wrong one the tokens are those
//! of as many steps, whatever was guessed (Leviathan et al., arXiv 2211.17192). Draws depend on the
//! seed and the position alone, so that this holds of sampled tokens, too.

use super::drafter::lookup::Lookup;
use super::drafter::{Drafter, Source};
use super::model::{Model, Role};
use super::request::IfBusy;
use super::rows::PICKS_MAX;
use super::sampling::Sampling;
use super::sampling_request::SamplingRequest;
use super::session::Session;
use crate::error::{ErrorKind, Result, bail};
use crate::text::Tokenizer;

/// Where guesses at the next tokens come from. They change how fast an answer comes, and no token of
/// it: where they do not pay, steps go on without them.
///
/// On a GPU they want a model that was loaded with [wide steps](crate::StepTables::MultiRow), and nothing is
/// guessed without; nor is anything where Mirostat picks, where an answer follows a grammar, or where
/// [probabilities](crate::GenerateOptions::log_probs) are told.
#[derive(Clone, Debug, Default)]
pub enum SpeculateOptions {
    /// There are none.
    #[default]
    Off,
    /// What followed the last tokens when they stood in the sequence before (prompt lookup).
    Lookup,
    /// What a smaller model of the same vocabulary picks. It guesses nothing while its sequences are all
    /// taken by others.
    Draft(Model),
}

impl SpeculateOptions {
    /// Holds a draft model to the vocabulary of the model that it drafts for.
    ///
    /// # Errors
    ///
    /// `Argument` where it has another one, or yields embeddings alone.
    pub(super) fn check(&self, model: &Model) -> Result<()> {
        let Self::Draft(draft) = self else {
            return Ok(());
        };
        if draft.is_encoder() {
            bail!(Argument, "the draft model is an encoder");
        }
        let [own, others] = [model.facts().vocab, draft.facts().vocab];
        if own != others {
            bail!(
                Argument,
                "the draft model has another vocabulary: {others} tokens, not {own}"
            );
        }
        let [own, others] = [model, draft].map(Model::tokenizer);
        let unlike = |token: &u32| own.token_bytes(*token) != others.token_bytes(*token);
        if let Some(token) = (0..model.facts().vocab).find(unlike) {
            let text = |of: &Tokenizer| String::from_utf8_lossy(of.token_bytes(token)).into_owned();
            let [own, others] = [own, others].map(text);
            bail!(
                Argument,
                "the draft model has another vocabulary: token {token} is {others:?}, not {own:?}"
            );
        }
        Ok(())
    }

    /// Gives both models their parts, for good.
    ///
    /// # Errors
    ///
    /// `State` where one of the two has been the other's part before.
    pub(super) fn take_roles(&self, model: &Model) -> Result<()> {
        match self {
            Self::Draft(draft)
                if model.is(draft) || !(draft.takes(Role::Draft) && model.takes(Role::Target)) =>
            {
                bail!(
                    State,
                    "a model cannot draft and have a draft model: load one of the two once more"
                )
            }
            _ => Ok(()),
        }
    }

    /// Creates the guesser for a sequence of at most `context` tokens; `None` for [`SpeculateOptions::Off`].
    pub(super) fn guesser(&self, sampling: &Sampling, context: usize) -> Option<Drafter> {
        let source: Box<dyn Source> = match self {
            Self::Off => return None,
            Self::Lookup => Box::new(Lookup::with_room(context)),
            Self::Draft(model) => Box::new(Draft {
                session: Session::with(model.clone(), IfBusy::Fail, None),
                // The draft model has no DRY breakers of its own.
                sampling: Sampling {
                    dry_multiplier: 0.0,
                    ..*sampling
                },
            }),
        };
        Some(Drafter::new(source))
    }
}

/// A sequence of the draft model.
#[derive(Debug)]
struct Draft {
    session: Session,
    sampling: Sampling,
}

impl Source for Draft {
    /// What the draft model picks behind these tokens. It guesses nothing where it fails or others have it,
    /// and as long as it has more than a chunk of them to read: what it drafts for goes on without it.
    fn guess(&mut self, tokens: &[u32], count: usize, out: &mut Vec<u32>) -> bool {
        let known = self.session.tokens().iter().zip(tokens);
        let same = known.take_while(|(a, b)| a == b).count();
        self.session.truncate(same);
        if tokens.len() + count > self.session.facts().context as usize {
            return true;
        }
        let chunk = self.session.profile().chunk_tokens as usize;
        let unread = &tokens[same..];
        let part = &unread[..unread.len().min(chunk)];
        let mut drafted = self.session.prefill(part, &mut |_, _| {});
        let read = drafted.is_err() || part.len() == unread.len();
        if drafted.is_ok() && read {
            let longest = self.session.profile().chain_tokens.min(PICKS_MAX);
            let limit = u32::try_from(count).expect("no more than rows of a table");
            let picking = SamplingRequest::plain(&self.sampling, limit, longest);
            drafted = self.session.pick(picking);
        }
        // That others have it passes.
        if let Some(e) = drafted.err().filter(|e| e.kind() != ErrorKind::Busy) {
            tracing::warn!("the draft model guesses nothing: {e}");
        }
        let guesses = self.session.tokens().get(tokens.len()..);
        out.extend(guesses.unwrap_or_default());
        read
    }
}
