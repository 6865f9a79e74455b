//! Queue of messages from sessions to the scheduler.

use super::engine::Engine;
use super::request::Request;
use crate::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::Duration;

/// Message to the scheduler.
#[expect(
    clippy::large_enum_variant,
    reason = "a step of a session must not allocate, so requests are not boxed"
)]
pub(super) enum Message {
    /// Starts a request.
    Start(Request),
    /// Runs a function on the engine between two scheduler iterations.
    Call(Box<dyn FnOnce(&mut Engine) + Send>),
}

/// How long the scheduler waits for a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitPolicy {
    /// Does not wait: there is other work.
    NoWait,
    /// Waits at most this long: requests are paused until sessions read their tokens.
    Timeout(Duration),
    /// Waits without limit: there is no other work.
    Forever,
}

/// Result of [`RequestQueue::receive`].
#[expect(clippy::large_enum_variant, reason = "same as for `Message`")]
pub(super) enum Received {
    Message(Message),
    Empty,
    /// The queue is closed.
    Closed,
}

/// First-in first-out queue of messages.
pub(super) struct RequestQueue {
    state: Mutex<RequestQueueState>,
    arrived: Condvar,
}

struct RequestQueueState {
    messages: VecDeque<Message>,
    is_closed: bool,
}

/// Initial capacity.
const INITIAL_CAPACITY: usize = 64;

impl RequestQueue {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(RequestQueueState {
                messages: VecDeque::with_capacity(INITIAL_CAPACITY),
                is_closed: false,
            }),
            arrived: Condvar::new(),
        }
    }

    /// Sends a message. A closed queue drops it, which ends its request with an error.
    pub(super) fn send(&self, message: Message) {
        let mut state = self.state.lock();
        if state.is_closed {
            drop(state);
            drop(message);
            return;
        }
        state.messages.push_back(message);
        self.arrived.notify_one();
    }

    /// Closes the queue and drops its messages.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let remaining = std::mem::take(&mut state.messages);
        self.arrived.notify_one();
        drop(state);
        drop(remaining);
    }

    /// Returns whether the queue is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Receives the next message.
    pub(super) fn receive(&self, wait: WaitPolicy) -> Received {
        let mut state = self.state.lock();
        loop {
            if let Some(message) = state.messages.pop_front() {
                return Received::Message(message);
            }
            if state.is_closed {
                return Received::Closed;
            }
            match wait {
                WaitPolicy::NoWait => return Received::Empty,
                WaitPolicy::Forever => self.arrived.wait(&mut state),
                WaitPolicy::Timeout(time) => {
                    if self.arrived.wait_for(&mut state, time).timed_out() {
                        return Received::Empty;
                    }
                }
            }
        }
    }
}
