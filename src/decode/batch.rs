//! Answers to many prompts, taken by one thread as they come.

use super::answer::AnswerState;
use super::cancel::Cancel;
use super::generate::GenerateOptions;
use super::model::Model;
use super::notifier::Notifier;
use super::outputs::{Piece, Stats};
use super::request::IfBusy;
use super::session::Session;
use crate::error::{Error, Result, bail};
use std::sync::Arc;
use std::task::Poll;

/// Answers of one model to many prompts, [`Batch::PENDING_MAX`] at once. They go on together, as many as the
/// model has sequences; the others wait for their turn.
#[derive(Debug)]
pub struct Batch {
    model: Model,
    bell: Arc<Notifier>,
    members: Vec<Member>,
    /// The member that is looked at first.
    turn: usize,
    added: usize,
}

/// An answer that is under way.
#[derive(Debug)]
struct Member {
    number: usize,
    session: Session,
    answer: AnswerState,
}

/// What came of one of the answers.
#[derive(Debug)]
pub struct BatchPiece<'a> {
    /// Which one, counted from 0 in the order in which they were added.
    pub number: usize,
    /// What came.
    pub event: BatchEvent<'a>,
}

/// What comes of an answer.
#[derive(Debug)]
pub enum BatchEvent<'a> {
    /// A piece.
    Piece(Piece<'a>),
    /// It has ended: nothing more comes of it. The session has prompt and answer, and can go on.
    End(Stats, Box<Session>),
    /// It has failed: nothing more comes of it.
    Failed(Error),
}

impl Batch {
    /// Answers that may be under way at once.
    pub const PENDING_MAX: usize = 512;

    /// One without prompts.
    pub fn new(model: Model) -> Self {
        Self {
            model,
            bell: Arc::new(Notifier::new()),
            members: Vec::new(),
            turn: 0,
            added: 0,
        }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Adds a prompt and begins to answer it; others may be under way. Returns its number, and what
    /// cancels it from any thread.
    ///
    /// # Errors
    ///
    /// As [`Session::prefill`] and [`Session::generate`], `Busy` where [`Batch::PENDING_MAX`] are under way;
    /// nothing is added then.
    pub fn add(&mut self, prompt: &[u32], options: &GenerateOptions) -> Result<(usize, Cancel)> {
        let (pending, most) = (self.pending(), Self::PENDING_MAX);
        if pending >= most {
            bail!(
                Busy,
                "{pending} answers are under way, which is the limit: take some to their end"
            );
        }
        let bell = Some(Arc::clone(&self.bell));
        let mut session = Session::with(self.model.clone(), IfBusy::Wait, bell);
        session.append(prompt)?;
        let cancel = session.canceller();
        let mut answer = AnswerState::prepare(&session, options)?;
        answer.begin(&mut session)?;
        let number = self.added;
        self.added += 1;
        self.members.push(Member {
            number,
            session,
            answer,
        });
        Ok((number, cancel))
    }

    /// How many answers are under way.
    pub fn pending(&self) -> usize {
        self.members.len()
    }

    /// Waits for what comes next of any of them, each in its turn; `None` where none is under way.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator cannot lend what it yields"
    )]
    pub fn next(&mut self) -> Option<BatchPiece<'_>> {
        let (at, ready) = self.wait()?;
        let number = self.members[at].number;
        let event = match ready {
            Ok(true) => {
                self.turn = at + 1;
                BatchEvent::Piece(self.members[at].answer.piece())
            }
            Ok(false) => {
                let ended = self.members.remove(at);
                let stats = ended.answer.stats(&ended.session);
                BatchEvent::End(stats, Box::new(ended.session))
            }
            Err(error) => {
                self.members.remove(at);
                BatchEvent::Failed(error)
            }
        };
        Some(BatchPiece { number, event })
    }

    /// Waits until one of the members has something new, and says which and what.
    fn wait(&mut self) -> Option<(usize, Result<bool>)> {
        let count = self.members.len();
        if count == 0 {
            return None;
        }
        loop {
            let rings = self.bell.rings();
            for at in (0..count).map(|i| (self.turn + i) % count) {
                let Member {
                    session, answer, ..
                } = &mut self.members[at];
                if let Poll::Ready(ready) = answer.poll(session) {
                    return Some((at, ready));
                }
            }
            self.bell.wait(rings);
        }
    }
}
