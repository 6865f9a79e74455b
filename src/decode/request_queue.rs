//! What sessions send to the scheduler: a queue that keeps its room.

use super::engine::Engine;
use super::request::Request;
use super::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::Duration;

/// What comes to the scheduler.
#[expect(
    clippy::large_enum_variant,
    reason = "a step of a session allocates nothing, no box either"
)]
pub(super) enum Message {
    /// A sequence wants to be fed or to go on.
    Start(Request),
    /// Work on the engine itself, between two rounds.
    Call(Box<dyn FnOnce(&mut Engine) + Send>),
}

/// How long the scheduler waits for a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitPolicy {
    /// There is work to do.
    NoWait,
    /// So long: sessions have to take tokens first.
    Timeout(Duration),
    /// There is nothing to do.
    Forever,
}

/// What was found in the inbox.
#[expect(clippy::large_enum_variant, reason = "as of messages")]
pub(super) enum Received {
    Message(Message),
    Empty,
    /// Nobody sends any more.
    Closed,
}

/// Messages in their order.
pub(super) struct RequestQueue {
    state: Mutex<RequestQueueState>,
    arrived: Condvar,
}

struct RequestQueueState {
    messages: VecDeque<Message>,
    is_closed: bool,
}

/// Messages that there is room for from the start.
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

    /// Puts a message in. A closed inbox drops it, which ends what it asks for.
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

    /// Says that nothing comes or goes any more. What is in it is dropped.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let remaining = std::mem::take(&mut state.messages);
        self.arrived.notify_one();
        drop(state);
        drop(remaining);
    }

    /// Takes the next message.
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
