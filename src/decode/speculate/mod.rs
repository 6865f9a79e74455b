//! Speculation: guesses at the tokens to come, which one pass of the model checks together.
//!
//! A pass over the last token and `k` guesses behind it picks a token behind each of them. A guess is
//! right where it is what was picked in front of it; up to the first wrong one the tokens are those
//! of as many steps, whatever was guessed (Leviathan et al., arXiv 2211.17192). Draws depend on the
//! seed and the position alone, so that this holds of sampled tokens, too.

mod lookup;
mod pace;

use super::model::Role;
use super::request::IfBusy;
use super::{Flow, Generate, Model, Sampling, Session};
use crate::error::{ErrorKind, Result, bail};
use crate::model::STEP_ROWS_MAX;
use crate::text::Tokenizer;
use lookup::Lookup;
use pace::Pace;
use std::time::Duration;

/// Where guesses at the next tokens come from. They change how fast an answer comes, and no token of
/// it: where they do not pay, steps go on without them.
///
/// On a GPU they want a model that was loaded with [wide steps](crate::StepTables::Wide), and nothing is
/// guessed without; nor is anything where Mirostat picks, where an answer follows a grammar, or where
/// [probabilities](crate::Generate::log_probs) are told.
#[derive(Clone, Debug, Default)]
pub enum Speculate {
    /// There are none.
    #[default]
    Off,
    /// What followed the last tokens when they stood in the sequence before (prompt lookup).
    Lookup,
    /// What a smaller model of the same vocabulary picks. It guesses nothing while its sequences are all
    /// taken by others.
    Draft(Model),
}

impl Speculate {
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
}

/// Guesses of a pass at most: with the last token, they are the rows of a table.
const GUESSES_MAX: usize = STEP_ROWS_MAX as usize - 1;

/// What makes guesses for a sequence.
#[derive(Debug)]
pub(super) struct Guesser {
    source: Box<dyn Source>,
    pace: Pace,
    /// The last token and the guesses behind it.
    tokens: Vec<u32>,
    pub(super) count: Guesses,
}

/// A source of guesses. It is told apart at run time: a draft model is as much as the model itself.
trait Source: std::fmt::Debug + Send {
    /// Appends guesses at what follows these tokens, `count` at most. Returns whether it has read them all:
    /// else it goes on when it is asked next.
    fn guess(&mut self, tokens: &[u32], count: usize, out: &mut Vec<u32>) -> bool;
}

/// A sequence of the draft model.
#[derive(Debug)]
struct Draft {
    session: Session,
    how: Generate,
}

/// Guesses at tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guesses {
    /// How many were made.
    pub made: u32,
    /// How many of them were right.
    pub right: u32,
}

impl std::ops::AddAssign for Guesses {
    fn add_assign(&mut self, other: Self) {
        self.made = self.made.saturating_add(other.made);
        self.right = self.right.saturating_add(other.right);
    }
}

impl Guesser {
    /// What guesses this way for a sequence of so many tokens at most; `None` where nothing does.
    pub(super) fn new(speculate: &Speculate, sampling: &Sampling, context: usize) -> Option<Self> {
        let source: Box<dyn Source> = match speculate {
            Speculate::Off => return None,
            Speculate::Lookup => Box::new(Lookup::with_room(context)),
            Speculate::Draft(model) => Box::new(Draft {
                session: Session::with(model.clone(), IfBusy::Fail, None),
                how: Generate {
                    // What ends repetitions is found anew for every answer.
                    sampling: Sampling {
                        dry_multiplier: 0.0,
                        ..*sampling
                    },
                    ignore_stops: true,
                    ..Generate::default()
                },
            }),
        };
        Some(Self {
            source,
            pace: Pace::new(GUESSES_MAX),
            tokens: Vec::with_capacity(1 + GUESSES_MAX),
            count: Guesses::default(),
        })
    }

    /// Steps that are to go without guesses, at least.
    pub(super) fn rest(&self) -> u32 {
        self.pace.rest()
    }

    /// Hears of steps without guesses.
    pub(super) fn stepped(&mut self, took: Duration, steps: u32) {
        self.pace.stepped(took, steps);
    }

    /// The last of these tokens and guesses at what follows it, `most` at most. No guesses: it is not
    /// known, or not worth it.
    pub(super) fn guess(&mut self, tokens: &[u32], most: usize) -> Option<&[u32]> {
        let count = self.pace.guesses().min(most);
        if count == 0 || self.rest() > 0 {
            return None;
        }
        self.tokens.clear();
        self.tokens.extend(tokens.last());
        let read = self.source.guess(tokens, count, &mut self.tokens);
        if self.tokens.len() < 2 {
            match read {
                true => self.pace.missed(),
                false => self.pace.later(),
            }
            return None;
        }
        Some(&self.tokens)
    }

    /// How many guesses are right where this was picked behind each of the tokens.
    pub(super) fn right(&self, picked: impl Iterator<Item = u32>) -> usize {
        let guesses = self.tokens[1..].iter();
        let same = guesses
            .zip(picked)
            .take_while(|(guess, pick)| **guess == *pick);
        same.count()
    }

    /// Hears what became of the guesses, and how long they and their check took.
    pub(super) fn checked(&mut self, right: usize, took: Duration) {
        let made = self.tokens.len() - 1;
        let few = |n| u32::try_from(n).expect("no more than rows of a table");
        self.count += Guesses {
            made: few(made),
            right: few(right),
        };
        self.pace.checked(made, right, took);
    }
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
        self.how.max_tokens = u32::try_from(count).expect("no more than rows of a table");
        self.how.chain = self.how.max_tokens;
        let chunk = self.session.profile().chunk_tokens as usize;
        let unread = &tokens[same..];
        let part = &unread[..unread.len().min(chunk)];
        let mut drafted = self.session.prefill(part, &mut |_, _| {});
        let read = drafted.is_err() || part.len() == unread.len();
        if drafted.is_ok() && read {
            let picked = self.session.generate(&self.how, &mut |_| Flow::Continue);
            drafted = picked.map(drop);
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
