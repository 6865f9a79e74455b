//! Answers that follow a grammar: which tokens it lets through is found on a thread of its own while
//! the model computes how likely they are.

use crate::error::{Context, Error, ErrorKind, Result};
use crate::model::STEP_ROWS_MAX;
use crate::text::{CompiledGrammar, Matcher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// An answer on its way through a grammar.
#[derive(Debug)]
pub(super) struct GrammarState {
    matcher: Matcher,
    /// The tokens that may come next, a bit for each.
    mask: Vec<u32>,
    /// Why there is no mask.
    failure: Option<Error>,
    forced: Vec<u32>,
}

impl GrammarState {
    /// At the start of an answer, for so many tokens of a vocabulary.
    pub(super) fn new(grammar: &CompiledGrammar, vocab: u32) -> Box<Self> {
        Box::new(Self {
            matcher: grammar.matcher(),
            mask: vec![0; vocab.div_ceil(u32::BITS) as usize],
            failure: None,
            forced: Vec::new(),
        })
    }

    /// The tokens that may come next, once they were found.
    pub(super) fn mask(&self) -> &[u32] {
        &self.mask
    }

    /// Why the answer cannot go on.
    pub(super) fn failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    fn compute_mask(&mut self) {
        let Self { matcher, mask, .. } = self;
        let result = catch_unwind(AssertUnwindSafe(|| matcher.mask(mask)));
        let panicked = |_| {
            Err(Error::new(
                ErrorKind::Internal,
                "the grammar's parser panicked",
            ))
        };
        self.failure = result.unwrap_or_else(panicked).err();
    }

    /// Takes the token that was picked.
    ///
    /// # Errors
    ///
    /// `Grammar` where the samplers left none that the grammar lets through.
    pub(super) fn accept(&mut self, token: u32) -> Result<()> {
        let accepted = self.matcher.commit(token);
        accepted.map_err(|e| match e.kind() {
            ErrorKind::Argument => {
                let message = "the samplers leave no token that the grammar lets through";
                Error::new(ErrorKind::Grammar, message).caused_by(e)
            }
            _ => e,
        })
    }

    /// Takes the tokens that must come next, `most` of them at most, and returns them.
    ///
    /// # Errors
    ///
    /// `Grammar` where the grammar has become too ambiguous.
    pub(super) fn accept_forced(&mut self, max: usize) -> Result<&[u32]> {
        self.matcher.forced(&mut self.forced)?;
        self.forced.truncate(max);
        for token in &self.forced {
            let accepted = self.matcher.commit(*token);
            accepted.context("a token that must come next")?;
        }
        Ok(&self.forced)
    }

    /// Whether nothing can follow.
    pub(super) fn is_done(&self) -> bool {
        self.matcher.is_done()
    }
}

/// An answer, and the session that it is of.
type MaskJob = (u64, Box<GrammarState>);

/// The thread that finds masks.
pub(super) struct MaskWorker {
    jobs: SyncSender<MaskJob>,
    done: Receiver<MaskJob>,
}

impl MaskWorker {
    /// # Errors
    ///
    /// `Memory` where the thread cannot be had.
    pub(super) fn new() -> Result<Self> {
        // Each row of a step has one at most, and channels with an end allocate nothing.
        let (jobs, received) = sync_channel::<MaskJob>(STEP_ROWS_MAX as usize);
        let (send_done, done) = sync_channel(STEP_ROWS_MAX as usize);
        let thread = thread::Builder::new().name("tabla-masks".to_string());
        let run = move || {
            for (session, mut grammar_state) in received {
                grammar_state.compute_mask();
                // Nobody waits any more where this fails.
                let _ = send_done.send((session, grammar_state));
            }
        };
        thread.spawn(run).map_err(|e| {
            let message = "the thread for grammars cannot start";
            Error::new(ErrorKind::Memory, message).caused_by(e)
        })?;
        Ok(Self { jobs, done })
    }

    /// Has the mask of an answer found.
    pub(super) fn request(&self, session: u64, grammar_state: Box<GrammarState>) -> Result<()> {
        self.jobs
            .send((session, grammar_state))
            .map_err(|_| ended())
    }

    /// Waits for the mask of one of them.
    pub(super) fn wait(&self) -> Result<MaskJob> {
        self.done.recv().map_err(|_| ended())
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Internal, "the thread for grammars has ended")
}
