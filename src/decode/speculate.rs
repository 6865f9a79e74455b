//! Speculative decoding: one pass of the model checks several draft tokens.
//!
//! A pass over the last token and `k` draft tokens samples a token after each of them. A draft
//! token is accepted if it equals the token sampled at its position. The tokens up to the first
//! rejected one are the same as without speculation (Leviathan et al., arXiv 2211.17192). This
//! holds for sampled tokens, too, because random draws depend only on the seed and the position.

use super::drafter::lookup::Lookup;
use super::drafter::{DraftSource, Drafter, Drafts};
use super::model::{Model, Role};
use super::request::IfBusy;
use super::rows::BURST_MAX;
use super::sampling::Sampling;
use super::sampling_request::SamplingRequest;
use super::session::Session;
use crate::error::{ErrorKind, Result, bail};
use crate::text::Tokenizer;

/// Source of draft tokens for speculative decoding. Speculation changes the speed, never the
/// output; it is paused automatically while it is slower than single steps.
///
/// A GPU requires a model that was loaded with
/// [`GpuSpeculation::On`](crate::load::GpuSpeculation::On); otherwise speculation is
/// disabled. It is also disabled with Mirostat, a grammar or
/// [log-probabilities](crate::GenerateOptions::logprobs).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum SpeculateOptions {
    /// No speculative decoding.
    #[default]
    Off,
    /// Prompt lookup: draft tokens are those that followed an earlier occurrence of the last
    /// tokens.
    Lookup,
    /// Drafting head: a head of the model that was loaded with it
    /// ([`LoadOptions::drafting_head`](crate::load::LoadOptions::drafting_head)).
    Head,
    /// Draft model: a smaller model with the same vocabulary. No tokens are drafted while other
    /// sessions use all of its sequences.
    Draft(Model),
}

impl SpeculateOptions {
    /// Checks that the draft model has the vocabulary of the target model, and that a drafting head was loaded.
    ///
    /// # Errors
    ///
    /// `Argument` if the vocabularies differ, if the draft model is an encoder, or if there is no drafting head.
    pub(super) fn check(&self, model: &Model) -> Result<()> {
        let draft = match self {
            Self::Draft(draft) => draft,
            Self::Head if model.facts().drafting_head.is_none() => bail!(
                Argument,
                "the model was loaded without a drafting head (MTP or EAGLE-3)"
            ),
            Self::Off | Self::Lookup | Self::Head => return Ok(()),
        };
        if draft.is_encoder() {
            bail!(
                Argument,
                "the draft model is an encoder, expected a decoder"
            );
        }
        let [own, other] = [model.facts().vocab, draft.facts().vocab];
        if own != other {
            bail!(
                Argument,
                "vocabulary mismatch: the draft model has {other} tokens, the target model {own}"
            );
        }
        let [own, other] = [model, draft].map(Model::tokenizer);
        let differs = |token: &u32| own.token_bytes(*token) != other.token_bytes(*token);
        if let Some(token) = (0..model.facts().vocab).find(differs) {
            let text = |of: &Tokenizer| String::from_utf8_lossy(of.token_bytes(token)).into_owned();
            let [own, other] = [own, other].map(text);
            bail!(
                Argument,
                "vocabulary mismatch: token {token} of the draft model is {other:?}, expected {own:?}"
            );
        }
        Ok(())
    }

    /// Assigns the roles of draft and target for the lifetime of the models.
    ///
    /// # Errors
    ///
    /// `State` if a model already has the other role.
    pub(super) fn assign_roles(&self, model: &Model) -> Result<()> {
        match self {
            Self::Draft(draft)
                if model.is(draft)
                    || !(draft.assign_role(Role::Draft) && model.assign_role(Role::Target)) =>
            {
                bail!(
                    State,
                    "a model cannot be both a draft model and a target model: load a second copy"
                )
            }
            _ => Ok(()),
        }
    }

    /// Creates the drafter for a sequence of at most `context` tokens; `None` for
    /// [`SpeculateOptions::Off`].
    pub(super) fn drafter(&self, sampling: &Sampling, context: usize) -> Option<Drafter> {
        let source = match self {
            Self::Off => return None,
            Self::Head => Drafts::Head,
            Self::Lookup => Drafts::Source(Box::new(Lookup::with_capacity(context))),
            Self::Draft(model) => Drafts::Source(Box::new(DraftModel {
                session: Session::with(model.clone(), IfBusy::Fail, None),
                // DRY breakers belong to the target model.
                sampling: Sampling {
                    dry_multiplier: 0.0,
                    ..*sampling
                },
            })),
        };
        Some(Drafter::new(source))
    }
}

/// A sequence of a draft model.
#[derive(Debug)]
struct DraftModel {
    session: Session,
    sampling: Sampling,
}

impl DraftSource for DraftModel {
    /// Drafts the tokens that the draft model generates after `tokens`. Drafts none if the draft
    /// model fails or is busy, or if more than a chunk of `tokens` is left to prefill: the target
    /// model goes on without draft tokens.
    fn draft(&mut self, tokens: &[u32], count: usize, out: &mut Vec<u32>) -> bool {
        let cached = self.session.tokens().iter().zip(tokens);
        let same = cached.take_while(|(a, b)| a == b).count();
        self.session.truncate(same);
        if tokens.len() + count > self.session.facts().context as usize {
            return true;
        }
        let chunk = self.session.profile().chunk_tokens as usize;
        let unread = &tokens[same..];
        let part = &unread[..unread.len().min(chunk)];
        let mut drafted = self.session.prefill(part);
        let is_prefilled = drafted.is_err() || part.len() == unread.len();
        if drafted.is_ok() && is_prefilled {
            let max_burst = self.session.profile().burst_tokens.min(BURST_MAX);
            let limit = u32::try_from(count).expect("at most the rows of a table");
            let sampling = SamplingRequest::plain(&self.sampling, limit, max_burst);
            drafted = self.session.sample_tokens(sampling);
        }
        // `Busy` is temporary.
        if let Some(e) = drafted.err().filter(|e| e.kind() != ErrorKind::Busy) {
            tracing::warn!("the draft model failed: {e}");
        }
        let draft = self.session.tokens().get(tokens.len()..);
        out.extend(draft.unwrap_or_default());
        is_prefilled
    }
}
