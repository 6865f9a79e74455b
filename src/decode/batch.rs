//! Continuous batching of many prompts on one thread.

use super::generate::GenerateOptions;
use super::generation::Generation;
use super::model::Model;
use super::notifier::Notifier;
use super::outputs::{Piece, Stats};
use super::request::IfBusy;
use super::session::Session;
use crate::cancel::Cancel;
use crate::error::{Error, Result, bail};
use std::sync::Arc;
use std::task::Poll;

/// Generates text for many prompts at once, at most [`Batch::PENDING_MAX`]. The model decodes as
/// many of them together as it has sequences; the rest are queued.
#[derive(Debug)]
pub struct Batch {
    model: Model,
    notifier: Arc<Notifier>,
    pending: Vec<Pending>,
    /// Index of the generation that is polled first.
    next: usize,
    added: usize,
}

/// A running generation.
#[derive(Debug)]
struct Pending {
    request: usize,
    generation: Generation,
}

/// Output of one prompt of a [`Batch`].
#[derive(Debug)]
#[non_exhaustive]
pub struct BatchPiece<'a> {
    /// Number of the prompt, from 0 in the order of [`Batch::add`].
    pub request: usize,
    /// The output.
    pub event: BatchEvent<'a>,
}

/// Event of a prompt of a [`Batch`].
#[derive(Debug)]
pub enum BatchEvent<'a> {
    /// A piece of generated text.
    Piece(Piece<'a>),
    /// The generation ended. The session contains prompt and output and can be continued.
    End(Stats, Box<Session>),
    /// The generation failed.
    Failed(Error),
}

impl Batch {
    /// Maximum number of pending prompts.
    pub const PENDING_MAX: usize = 512;

    /// Creates an empty batch.
    pub fn new(model: Model) -> Self {
        Self {
            model,
            notifier: Arc::new(Notifier::new()),
            pending: Vec::new(),
            next: 0,
            added: 0,
        }
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Adds a prompt and starts the generation. Returns the number of the prompt and a handle that
    /// cancels it from any thread.
    ///
    /// # Errors
    ///
    /// See [`Session::prefill`] and [`Session::generate`]. `Busy` if [`Batch::PENDING_MAX`] prompts
    /// are pending. On errors nothing is added.
    pub fn add(&mut self, prompt: &[u32], options: &GenerateOptions) -> Result<(usize, Cancel)> {
        self.add_with(prompt, options, |_| Ok(()))
    }

    /// Same as [`Batch::add`]. `configure` receives the session of the prompt first, for example to set its
    /// hooks and the scales of its adapters.
    ///
    /// # Errors
    ///
    /// See [`Batch::add`], and those of `configure`.
    pub fn add_with(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        configure: impl FnOnce(&mut Session) -> Result<()>,
    ) -> Result<(usize, Cancel)> {
        let (pending, max) = (self.pending.len(), Self::PENDING_MAX);
        if pending >= max {
            bail!(
                Busy,
                "{pending} prompts are pending, which is the maximum: wait until some have ended"
            );
        }
        let notifier = Some(Arc::clone(&self.notifier));
        let mut session = Session::with(self.model.clone(), IfBusy::Wait, notifier);
        configure(&mut session)?;
        session.append(prompt)?;
        let cancel = session.canceller();
        let generation = Generation::new(session, options).map_err(|e| e.error)?;
        let request = self.added;
        self.added += 1;
        self.pending.push(Pending {
            request,
            generation,
        });
        Ok((request, cancel))
    }

    /// Returns the number of pending prompts.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Waits for the next output of any prompt, in round-robin order. Returns `None` if no prompt
    /// is pending.
    #[expect(
        clippy::should_implement_trait,
        reason = "an `Iterator` cannot return borrowed items"
    )]
    pub fn next(&mut self) -> Option<BatchPiece<'_>> {
        let (at, ready) = self.wait()?;
        let request = self.pending[at].request;
        let event = match ready {
            Ok(true) => {
                self.next = at + 1;
                BatchEvent::Piece(self.pending[at].generation.piece())
            }
            Ok(false) => {
                let ended = self.pending.remove(at).generation;
                let stats = ended.stats();
                BatchEvent::End(stats, Box::new(ended.into_session()))
            }
            Err(error) => {
                self.pending.remove(at);
                BatchEvent::Failed(error)
            }
        };
        Some(BatchPiece { request, event })
    }

    /// Runs an iteration of each model, in builds without threads. A session can have been moved to another model.
    fn run_iterations(&self) {
        self.model.run_iteration();
        let others = self.pending.iter().map(|p| p.generation.model());
        let others = others.filter(|model| !model.is(&self.model));
        others.for_each(Model::run_iteration);
    }

    /// Waits until a generation is ready. Returns its index and whether it has a piece.
    fn wait(&mut self) -> Option<(usize, Result<bool>)> {
        let count = self.pending.len();
        if count == 0 {
            return None;
        }
        loop {
            let seen = self.notifier.generation();
            for at in (0..count).map(|i| (self.next + i) % count) {
                if let Poll::Ready(ready) = self.pending[at].generation.poll() {
                    return Some((at, ready));
                }
            }
            match self.model.runs_on_caller() {
                true => self.run_iterations(),
                false => self.notifier.wait(seen),
            }
        }
    }
}
