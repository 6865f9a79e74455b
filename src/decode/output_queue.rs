//! What lies between a session and the engine while the engine works for it: tokens and news come out
//! here, and the session waits for them on its own thread.

use super::end::End;
use super::notifier::Notifier;
use super::sync::{Condvar, Mutex};
use crate::exec::state::LogProbs;
use std::collections::VecDeque;
use std::sync::Arc;

/// Tokens that wait for the session at most: who does not take them is left out of further steps.
pub(super) const UNREAD_MAX: usize = 64;

/// A session's box.
#[derive(Debug)]
pub(super) struct OutputQueue {
    state: Mutex<OutputState>,
    changed: Condvar,
    /// Rings with whatever comes in, for who waits for several.
    notifier: Option<Arc<Notifier>>,
}

#[derive(Debug)]
struct OutputState {
    tokens: VecDeque<u32>,
    /// What each was picked from, where that was asked for.
    log_probs: VecDeque<LogProbs>,
    /// Tokens that the cache holds.
    cached: usize,
    end: Option<End>,
    /// Whether the session wants no more.
    stop_requested: bool,
}

/// What comes next of the engine's work.
#[derive(Debug)]
pub(super) enum OutputEvent {
    /// A token was picked, from what it was asked to tell.
    Token(u32, Option<LogProbs>),
    /// The cache holds so many tokens.
    Progress(usize),
    /// The work has ended.
    End(End),
}

impl OutputQueue {
    /// An empty one.
    pub(super) fn new(notifier: Option<Arc<Notifier>>) -> Self {
        Self {
            state: Mutex::new(OutputState {
                tokens: VecDeque::with_capacity(UNREAD_MAX),
                log_probs: VecDeque::new(),
                cached: 0,
                end: None,
                stop_requested: false,
            }),
            changed: Condvar::new(),
            notifier,
        }
    }

    /// Forgets what is in it.
    pub(super) fn clear(&self) {
        let mut state = self.state.lock();
        state.tokens.clear();
        state.log_probs.clear();
        state.cached = 0;
        state.end = None;
        state.stop_requested = false;
    }

    /// Makes room for the probabilities of as many tokens as there is room for.
    pub(super) fn expect_log_probs(&self) {
        self.state.lock().log_probs.reserve(UNREAD_MAX);
    }

    /// Says that no more is wanted.
    pub(super) fn request_stop(&self) {
        self.state.lock().stop_requested = true;
    }

    /// Whether no more is wanted.
    pub(super) fn is_stop_requested(&self) -> bool {
        self.state.lock().stop_requested
    }

    /// How many tokens it takes.
    pub(super) fn room(&self) -> usize {
        UNREAD_MAX - self.state.lock().tokens.len()
    }

    /// Puts in tokens, for which there is room; of a session that wants them probabilities come with
    /// each, one by one.
    pub(super) fn push_tokens(&self, tokens: &[u32], log_probs: Option<LogProbs>) {
        let mut state = self.state.lock();
        state.tokens.extend(tokens);
        state.log_probs.extend(log_probs);
        drop(state);
        self.notify();
    }

    /// Says how many tokens the cache holds.
    pub(super) fn report_progress(&self, count: usize) {
        self.state.lock().cached = count;
        self.notify();
    }

    /// Ends the work.
    pub(super) fn end(&self, end: End) {
        self.state.lock().end = Some(end);
        self.notify();
    }

    /// Wakes who waits.
    fn notify(&self) {
        self.changed.notify_one();
        if let Some(notifier) = &self.notifier {
            notifier.notify();
        }
    }

    /// Waits for what comes next: tokens in their order, then how far feeding is where that is wanted
    /// and is not `fed`, then the end.
    pub(super) fn next(&self, cached: Option<usize>) -> OutputEvent {
        let mut state = self.state.lock();
        loop {
            if let Some(event) = state.next(cached) {
                return event;
            }
            self.changed.wait(&mut state);
        }
    }

    /// What is there of tokens and the end, without a wait.
    pub(super) fn try_next(&self) -> Option<OutputEvent> {
        self.state.lock().next(None)
    }
}

impl OutputState {
    fn next(&mut self, cached: Option<usize>) -> Option<OutputEvent> {
        if let Some(token) = self.tokens.pop_front() {
            return Some(OutputEvent::Token(token, self.log_probs.pop_front()));
        }
        if cached.is_some_and(|cached| self.cached != cached) {
            return Some(OutputEvent::Progress(self.cached));
        }
        self.end.take().map(OutputEvent::End)
    }
}
