//! Queue of output from the model's thread to a session, which waits on its own thread.

use super::end::End;
use super::notifier::Notifier;
use crate::op::params::Logprobs;
use crate::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of unread tokens. A request is paused while its queue is full.
pub(super) const UNREAD_MAX: usize = 64;

/// Output queue of a session.
#[derive(Debug)]
pub(super) struct OutputQueue {
    state: Mutex<OutputState>,
    changed: Condvar,
    /// Notifier for a thread that waits for several queues.
    notifier: Option<Arc<Notifier>>,
}

#[derive(Debug)]
struct OutputState {
    tokens: VecDeque<u32>,
    /// Log-probabilities of each token, if requested.
    logprobs: VecDeque<Logprobs>,
    /// Number of tokens in the KV cache.
    cached: usize,
    /// Number of tokens in the KV cache when the request began.
    cached_at_first: Option<usize>,
    end: Option<End>,
    /// Whether the session requested the end of the output.
    stop_requested: bool,
}

/// Output event of a request.
#[derive(Debug)]
pub(super) enum OutputEvent {
    /// A sampled token and its log-probabilities, if requested.
    Token(u32, Option<Logprobs>),
    /// Number of tokens in the KV cache.
    Progress(usize),
    /// The request has ended.
    End(End),
}

impl OutputQueue {
    /// Creates an empty queue.
    pub(super) fn new(notifier: Option<Arc<Notifier>>) -> Self {
        Self {
            state: Mutex::new(OutputState {
                tokens: VecDeque::with_capacity(UNREAD_MAX),
                logprobs: VecDeque::new(),
                cached: 0,
                cached_at_first: None,
                end: None,
                stop_requested: false,
            }),
            changed: Condvar::new(),
            notifier,
        }
    }

    /// Clears the queue.
    pub(super) fn clear(&self) {
        let mut state = self.state.lock();
        state.tokens.clear();
        state.logprobs.clear();
        state.cached = 0;
        state.cached_at_first = None;
        state.end = None;
        state.stop_requested = false;
    }

    /// Reserves memory for the log-probabilities of all queued tokens.
    pub(super) fn reserve_logprobs(&self) {
        self.state.lock().logprobs.reserve(UNREAD_MAX);
    }

    /// Requests the end of the output.
    pub(super) fn request_stop(&self) {
        self.state.lock().stop_requested = true;
    }

    /// Returns whether the session requested the end of the output.
    pub(super) fn is_stop_requested(&self) -> bool {
        self.state.lock().stop_requested
    }

    /// Returns the number of tokens that can be pushed.
    pub(super) fn room(&self) -> usize {
        UNREAD_MAX - self.state.lock().tokens.len()
    }

    /// Pushes tokens, at most [`OutputQueue::room`]. With log-probabilities, tokens are pushed one
    /// by one.
    pub(super) fn push_tokens(&self, tokens: &[u32], logprobs: Option<Logprobs>) {
        let mut state = self.state.lock();
        state.tokens.extend(tokens);
        state.logprobs.extend(logprobs);
        drop(state);
        self.notify();
    }

    /// Reports the number of tokens in the KV cache.
    pub(super) fn report_progress(&self, count: usize) {
        let mut state = self.state.lock();
        state.cached = count;
        state.cached_at_first.get_or_insert(count);
        drop(state);
        self.notify();
    }

    /// Returns the first number of tokens in the KV cache that was reported: those of the prefix cache. 0 before.
    pub(super) fn cached_at_first(&self) -> usize {
        self.state.lock().cached_at_first.unwrap_or(0)
    }

    /// Pushes the end of the request.
    pub(super) fn end(&self, end: End) {
        self.state.lock().end = Some(end);
        self.notify();
    }

    /// Wakes the waiting threads.
    fn notify(&self) {
        self.changed.notify_one();
        if let Some(notifier) = &self.notifier {
            notifier.notify();
        }
    }

    /// Waits for the next event: first the tokens in order, then the progress if it is requested
    /// and differs from `cached`, then the end.
    pub(super) fn next(&self, cached: Option<usize>) -> OutputEvent {
        let mut state = self.state.lock();
        loop {
            if let Some(event) = state.next(cached) {
                return event;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Returns the next event, if there is one, in the order of [`OutputQueue::next`].
    pub(super) fn try_next(&self, cached: Option<usize>) -> Option<OutputEvent> {
        self.state.lock().next(cached)
    }
}

impl OutputState {
    fn next(&mut self, cached: Option<usize>) -> Option<OutputEvent> {
        if let Some(token) = self.tokens.pop_front() {
            return Some(OutputEvent::Token(token, self.logprobs.pop_front()));
        }
        if cached.is_some_and(|cached| self.cached != cached) {
            return Some(OutputEvent::Progress(self.cached));
        }
        self.end.take().map(OutputEvent::End)
    }
}
