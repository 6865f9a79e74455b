//! Grammar-constrained decoding. A separate thread computes the mask of allowed tokens while the
//! model computes the logits.

use crate::error::{Context, Error, ErrorKind, Result};
use crate::model::STEP_ROWS_MAX;
use crate::reserve::{self, HAS_THREADS};
use crate::text::{CompiledGrammar, Matcher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// State of a grammar during a generation.
#[derive(Debug)]
pub(super) struct GrammarState {
    matcher: Matcher,
    /// Bit set of the allowed tokens.
    mask: Vec<u32>,
    /// Error of the last mask computation.
    failure: Option<Error>,
    forced: Vec<u32>,
}

impl GrammarState {
    /// Creates the initial state for a vocabulary of `vocab` tokens.
    pub(super) fn new(grammar: &CompiledGrammar, vocab: u32) -> Box<Self> {
        Box::new(Self {
            matcher: grammar.matcher(),
            mask: vec![0; vocab.div_ceil(u32::BITS) as usize],
            failure: None,
            forced: Vec::new(),
        })
    }

    /// Returns the mask of allowed tokens. Valid after the mask worker computed it.
    pub(super) fn mask(&self) -> &[u32] {
        &self.mask
    }

    /// Takes the error of the last mask computation.
    pub(super) fn failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    fn compute_mask(&mut self) {
        let Self { matcher, mask, .. } = self;
        let result = catch_unwind(AssertUnwindSafe(|| matcher.mask(mask)));
        let panicked = |_| {
            Err(Error::new(
                ErrorKind::Internal,
                "the grammar parser panicked",
            ))
        };
        self.failure = result.unwrap_or_else(panicked).err();
    }

    /// Advances the grammar by a sampled token.
    ///
    /// # Errors
    ///
    /// `Grammar` if the grammar does not allow the token.
    pub(super) fn accept(&mut self, token: u32) -> Result<()> {
        let accepted = self.matcher.commit(token);
        accepted.map_err(|e| match e.kind() {
            ErrorKind::Argument => {
                let message = "the grammar allows none of the tokens that the samplers keep";
                Error::new(ErrorKind::Grammar, message).caused_by(e)
            }
            _ => e,
        })
    }

    /// Advances the grammar by a text that is already in the output.
    ///
    /// # Errors
    ///
    /// `Argument` if the grammar does not allow the text, `Grammar` if it is too ambiguous. The state
    /// is undefined then.
    pub(super) fn accept_text(&mut self, text: &[u8]) -> Result<()> {
        self.matcher.commit_text(text)
    }

    /// Advances the grammar by the tokens that it forces, at most `max`, and returns them.
    ///
    /// # Errors
    ///
    /// `Grammar` if the grammar is too ambiguous.
    pub(super) fn accept_forced(&mut self, max: usize) -> Result<&[u32]> {
        self.matcher.forced(&mut self.forced)?;
        self.forced.truncate(max);
        for token in &self.forced {
            let accepted = self.matcher.commit(*token);
            accepted.context("forced token")?;
        }
        Ok(&self.forced)
    }

    /// Returns whether the grammar allows no further token.
    pub(super) fn is_done(&self) -> bool {
        self.matcher.is_done()
    }
}

/// A slot and the grammar state of its request.
type MaskJob = (u32, Box<GrammarState>);

/// Thread that computes token masks.
pub(super) struct MaskWorker {
    jobs: Jobs,
    done: Receiver<MaskJob>,
}

/// What computes the masks.
enum Jobs {
    Thread(SyncSender<MaskJob>),
    /// The caller, in builds without threads, which sends them to [`MaskWorker::done`].
    Caller(SyncSender<MaskJob>),
}

impl MaskWorker {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// `Memory` if the thread cannot be started.
    pub(super) fn new() -> Result<Self> {
        // Each row of a step has at most one job. Bounded channels do not allocate when sending.
        let (send_done, done) = sync_channel(STEP_ROWS_MAX as usize);
        if !HAS_THREADS {
            let jobs = Jobs::Caller(send_done);
            return Ok(Self { jobs, done });
        }
        let (jobs, received) = sync_channel::<MaskJob>(STEP_ROWS_MAX as usize);
        let thread = reserve::thread("tabla-masks");
        let run = move || {
            for (slot, mut grammar_state) in received {
                grammar_state.compute_mask();
                // Ignore that the receiver is gone.
                let _ = send_done.send((slot, grammar_state));
            }
        };
        thread.and_then(|thread| thread.spawn(run)).map_err(|e| {
            let message = "cannot start the grammar thread";
            Error::new(ErrorKind::Memory, message).caused_by(e)
        })?;
        let jobs = Jobs::Thread(jobs);
        Ok(Self { jobs, done })
    }

    /// Requests the mask of a slot.
    pub(super) fn request(&self, slot: u32, mut grammar_state: Box<GrammarState>) -> Result<()> {
        let sent = match &self.jobs {
            Jobs::Thread(jobs) => jobs.send((slot, grammar_state)),
            Jobs::Caller(done) => {
                grammar_state.compute_mask();
                done.send((slot, grammar_state))
            }
        };
        sent.map_err(|_| ended())
    }

    /// Waits for the next computed mask.
    pub(super) fn wait(&self) -> Result<MaskJob> {
        self.done.recv().map_err(|_| ended())
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Internal, "the grammar thread has ended")
}
